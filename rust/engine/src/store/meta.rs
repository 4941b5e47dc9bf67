//! Words and times that entries and descriptors share.

use crate::disk::MIN_STRIDE;
use crate::disk::descriptor::flag;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bits of an index entry's flags besides those that live on disk.
pub(crate) mod bit {
    use super::flag;
    /// The payload's completion was seen: the descriptor may go into a page image (INV-1).
    pub(crate) const COMMIT: u8 = 1 << 0;
    /// The descriptor is on disk: the disk copy may be read.
    pub(crate) const READY: u8 = 1 << 1;
    /// A write is queued or on its way.
    pub(crate) const QUEUED: u8 = 1 << 6;
    /// The host copy is whole.
    pub(crate) const HOST: u8 = 1 << 7;
    const _: () = assert!((COMMIT | READY | QUEUED | HOST) & flag::DISK == 0);
}

/// 2020-01-01T00:00:00Z in seconds since 1970: zero of `expires_at`.
const EPOCH_2020: u64 = 1_577_836_800;

/// Now, in seconds since 2020-01-01.
pub(crate) fn now() -> u32 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(since_1970.as_secs().saturating_sub(EPOCH_2020)).unwrap_or(u32::MAX)
}

/// `expires_at` of an object that lives for `ttl`: rounded up, so that it lives at least so long.
pub(crate) fn expires_at(ttl: Option<Duration>) -> u32 {
    ttl.map_or(0, |ttl| {
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        u32::try_from(u64::from(now()) + seconds).unwrap_or(u32::MAX)
    })
}

/// Whether an object with this `expires_at` is dead.
pub(crate) fn is_expired(expires_at: u32) -> bool {
    expires_at != 0 && expires_at <= now()
}

/// Exact stride of an object of `length` bytes: the next multiple of 4 KiB.
pub(crate) fn stride_of(length: u32) -> u32 {
    length.max(1).next_multiple_of(MIN_STRIDE as u32)
}
