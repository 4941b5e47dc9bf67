//! What a caller may choose about how a call runs; none of it changes a byte.

use crate::error::Error;
use crate::level::{Kernels, Level, kernels};

/// How results are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stores {
    /// Past the cache from 16 MiB of results on, where the destination is 64-byte aligned.
    #[default]
    Auto,
    /// Through the cache: the results are read soon.
    Cached,
    /// Past the cache; a destination that is not 64-byte aligned is an error.
    Stream,
}

/// Level, threads and stores of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Options {
    /// SIMD level; by default the environment's, else the CPU's best.
    pub level: Option<Level>,
    /// Threads at most; 0 for as many as there are cores. A call takes one for each
    /// [`BYTES_PER_THREAD`] of 16-bit numbers, so that small calls start none.
    pub threads: usize,
    /// How results are stored.
    pub stores: Stores,
}

/// Results from which [`Stores::Auto`] writes past the cache.
pub const STREAM_BYTES: usize = 16 << 20;

/// Numbers that are worth a thread, in bytes.
pub const BYTES_PER_THREAD: usize = 4 << 20;

/// Alignment that stores past the cache need.
pub const STREAM_ALIGNMENT: usize = 64;

impl Options {
    pub(crate) fn kernels(&self) -> Result<&'static Kernels, Error> {
        match self.level {
            Some(level) => level.kernels(),
            None => Ok(kernels()),
        }
    }

    /// Units for each thread when `bytes` of numbers are cut into `units`; at least 1.
    pub(crate) fn share(&self, bytes: usize, units: usize) -> usize {
        let most = bytes / BYTES_PER_THREAD;
        if most < 2 || self.threads == 1 {
            return units.max(1);
        }
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if self.threads == 0 { cores() } else { self.threads };
        units.div_ceil(threads.min(most).max(1)).max(1)
    }

    /// Whether a destination of `bytes` at `address` is stored past the cache.
    pub(crate) fn streams(
        &self,
        what: &'static str,
        address: usize,
        bytes: usize,
    ) -> Result<bool, Error> {
        let offset = address % STREAM_ALIGNMENT;
        match self.stores {
            Stores::Cached => Ok(false),
            Stores::Auto => Ok(offset == 0 && bytes >= STREAM_BYTES),
            Stores::Stream if offset == 0 => Ok(true),
            Stores::Stream => Err(Error::Alignment { what, offset, wanted: STREAM_ALIGNMENT }),
        }
    }
}
