//! Aligned memory for metadata on files that go around the page cache.

use std::ops::Range;

/// Bytes at an address that is a multiple of the alignment asked for.
pub(super) struct Bounce {
    room: Vec<u8>,
    used: Range<usize>,
}

impl Bounce {
    /// `len` zeros at a multiple of `align`, a power of two.
    pub(super) fn new(len: usize, align: usize) -> Bounce {
        let room = vec![0; len + align];
        let start = room.as_ptr().align_offset(align);
        Bounce { room, used: start..start + len }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.room[self.used.clone()]
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.room[self.used.clone()]
    }
}

/// The whole units around `len` bytes at `offset`.
pub(super) fn units_around(offset: u64, len: usize, unit: u32) -> Range<u64> {
    let unit = u64::from(unit);
    let end = offset + len as u64;
    offset - offset % unit..end.next_multiple_of(unit)
}
