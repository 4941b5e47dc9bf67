//! A scheme bound to a row length: what records, pages and whole matrices share.

use crate::error::Error;
use crate::float::{bf16_to_f32, f32_to_bf16};
use crate::scheme::{Given, Plan, Planes, Scheme, decode_blocks, encode_blocks};

/// Encodes and decodes single bf16 rows of one length without checks or allocation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) scheme: Scheme,
    plan: Plan,
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
    pub(crate) fn new(scheme: &Scheme, cols: usize) -> Result<Self, Error> {
        let sizes = scheme.sizes(1, cols)?;
        Ok(Self {
            scheme: *scheme,
            plan: scheme.plan(1, cols)?,
            code_bytes: sizes.codes,
            scale_bytes: sizes.scales,
        })
    }

    /// Encodes one row into buffers of exactly `code_bytes` and `scale_bytes`.
    pub(crate) fn encode(&self, row: &[u16], given: Given<'_>, codes: &mut [u8], scales: &mut [u8]) {
        let planes = Planes { codes, scales, mins: &mut [] };
        encode_blocks(&self.scheme, &self.plan, |i| bf16_to_f32(row[i]), given, planes);
    }

    /// Decodes one row.
    pub(crate) fn decode(&self, codes: &[u8], scales: &[u8], given: Given<'_>, row: &mut [u16]) {
        let store = |i: usize, v| row[i] = f32_to_bf16(v);
        decode_blocks(&self.scheme, &self.plan, codes, scales, &[], given, store);
    }
}
