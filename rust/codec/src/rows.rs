//! A scheme bound to a row length: what records and pages encode and decode.

use crate::error::Error;
use crate::job::{Family, Job, family};
use crate::level::Kernels;
use crate::scheme::{Given, Plan, Scheme};

/// Encodes and decodes single bf16 rows of one length without checks or allocation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows {
    scheme: Scheme,
    plan: Plan,
    family: Option<Family>,
    kernels: &'static Kernels,
    /// Bytes of a row's codes.
    pub(crate) code_bytes: usize,
    /// Bytes of a row's scales.
    pub(crate) scale_bytes: usize,
}

impl Rows {
    /// Binds a scheme to rows of `cols` elements.
    ///
    /// # Errors
    /// [`Error::Multiple`] where a row does not divide into blocks.
    pub(crate) fn new(
        scheme: &Scheme,
        cols: usize,
        kernels: &'static Kernels,
    ) -> Result<Self, Error> {
        let sizes = scheme.sizes(1, cols)?;
        Ok(Self {
            scheme: *scheme,
            plan: scheme.plan(1, cols)?,
            family: family(scheme, cols),
            kernels,
            code_bytes: sizes.codes,
            scale_bytes: sizes.scales,
        })
    }

    /// Encodes one row into buffers of exactly `code_bytes` and `scale_bytes`.
    pub(crate) fn encode(
        &self,
        row: &[u16],
        given: Given<'_>,
        codes: &mut [u8],
        scales: &mut [u8],
    ) {
        let job = Job::new(&self.scheme, &self.plan, given, false);
        match self.family {
            Some(family) => (self.kernels.encode)(&job, family, row, codes, scales),
            None => job.encode_blocks(0, row, codes, scales),
        }
    }

    /// Decodes one row.
    pub(crate) fn decode(&self, codes: &[u8], scales: &[u8], given: Given<'_>, row: &mut [u16]) {
        let job = Job::new(&self.scheme, &self.plan, given, false);
        match self.family {
            Some(family) => (self.kernels.decode)(&job, family, codes, scales, row),
            None => job.decode_blocks(0, codes, scales, row),
        }
    }
}
