//! Sizes that are chosen once, when a store is created.

use super::place::MAX_SEGMENTS;
use super::{DESCRIPTOR, MIN_STRIDE, PAGE};
use crate::error::{Error, Result};

const MIB: u64 = 1 << 20;
/// Smallest and largest segment, bytes.
pub const SEGMENT_RANGE: (u64, u64) = (16 * MIB, 256 * MIB);
/// Segments that a store should have at least, so that one of them is a small share.
const WANTED_SEGMENTS: u64 = 256;
/// Fewest segments that a store works with: one per live class and some to drain.
const FEWEST_SEGMENTS: u64 = 4;

/// Fixed sizes of one store. All bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of one segment, a power of two.
    pub segment_bytes: u64,
    /// Segments for which table and directory have room, per device.
    pub max_segments: u32,
}

impl Geometry {
    /// Geometry of a new store: the largest power of two from 16 to 256 MiB that gives at least
    /// 256 segments, 16 MiB on small stores.
    pub fn choose(disk_bytes: u64, max_disk_bytes: u64) -> Result<Self> {
        let (least, most) = SEGMENT_RANGE;
        let mut segment_bytes = most;
        while segment_bytes > least && disk_bytes / segment_bytes < WANTED_SEGMENTS {
            segment_bytes /= 2;
        }
        let max = max_disk_bytes.max(disk_bytes).div_ceil(segment_bytes);
        let max_segments =
            u32::try_from(max).ok().filter(|&n| n <= MAX_SEGMENTS).ok_or_else(|| {
                Error::invalid(format!(
                    "max_disk_bytes is {max_disk_bytes}, at most {} fit one device",
                    u64::from(MAX_SEGMENTS) * segment_bytes
                ))
            })?;
        let this = Self { segment_bytes, max_segments };
        this.segments_for(disk_bytes)?;
        Ok(this)
    }

    /// Most slots of one segment: the table has room for the smallest stride.
    pub fn max_slots(&self) -> u32 {
        (self.segment_bytes / MIN_STRIDE) as u32
    }

    /// Slots of a segment of class `stride`.
    pub fn slots(&self, stride: u64) -> u32 {
        (self.segment_bytes / stride) as u32
    }

    /// Bytes of the slot table that belong to one segment.
    pub fn table_stride(&self) -> u64 {
        u64::from(self.max_slots()) * DESCRIPTOR
    }

    /// Bytes of one copy of the segment directory.
    pub fn directory_bytes(&self) -> u64 {
        (u64::from(self.max_segments) * super::directory::ENTRY as u64).next_multiple_of(PAGE)
    }

    /// Metadata that a store of this geometry holds besides its segments' own tables.
    pub fn fixed_bytes(&self) -> u64 {
        super::superblock::FILE_BYTES
            + super::namespaces::FILE_BYTES
            + super::tenants::FILE_BYTES
            + 2 * self.directory_bytes()
    }

    /// Segments that fit `disk_bytes` with everything a store keeps on disk counted in.
    pub fn segments_for(&self, disk_bytes: u64) -> Result<u32> {
        let each = self.segment_bytes + self.table_stride();
        let fit = disk_bytes.saturating_sub(self.fixed_bytes()) / each;
        if fit < FEWEST_SEGMENTS {
            return Err(Error::invalid(format!(
                "disk_bytes is {disk_bytes}, at least {} are needed (4 segments of {} bytes and the tables)",
                self.fixed_bytes() + FEWEST_SEGMENTS * each,
                self.segment_bytes
            )));
        }
        Ok(u32::try_from(fit).unwrap_or(u32::MAX).min(self.max_segments))
    }

    /// Largest object that is stored bare, bytes; what is larger goes in parts.
    pub fn bare_limit(&self) -> u64 {
        self.segment_bytes / 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_grow_with_the_store() {
        for (disk, segment) in [
            (256 * MIB, 16 * MIB),
            (4096 * MIB, 16 * MIB),
            (8192 * MIB, 32 * MIB),
            (200 << 30, 256 * MIB),
            (4 << 40, 256 * MIB),
        ] {
            assert_eq!(Geometry::choose(disk, disk * 4).unwrap().segment_bytes, segment);
        }
    }

    #[test]
    fn everything_a_store_keeps_is_inside_its_limit() {
        for disk in [128 * MIB, 256 * MIB, 1 << 30, 200 << 30] {
            let g = Geometry::choose(disk, disk).unwrap();
            let n = u64::from(g.segments_for(disk).unwrap());
            let held = n * (g.segment_bytes + g.table_stride()) + g.fixed_bytes();
            assert!(held <= disk, "{held} of {disk}");
            assert!(held + g.segment_bytes + g.table_stride() > disk.min(held + 1));
        }
    }

    #[test]
    fn a_store_too_small_for_four_segments_is_refused_with_the_number() {
        let error = Geometry::choose(32 * MIB, 32 * MIB).unwrap_err().to_string();
        assert!(error.contains("disk_bytes is 33554432"), "{error}");
    }
}
