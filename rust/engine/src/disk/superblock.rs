//! The superblock pair of one device: identity, geometry, classes.
//!
//! Two copies, 64 KiB apart; the valid one with the higher generation counts. A change writes the
//! older copy, syncs it, and then counts (INV-8), so one whole copy exists at every moment.

use super::bytes::{get, get_u16, get_u32, get_u64, put};
use super::geometry::Geometry;
use super::{MAX_CLASSES, PAGE};
use crate::error::{Error, ErrorKind, Result};
use crate::host::copy::crc32c;

const MAGIC: &[u8; 8] = b"KVSTORE\0";
/// Format version that this build reads and writes.
pub const VERSION: u32 = 1;
/// Distance of the two copies, bytes.
pub const COPY_DISTANCE: u64 = 64 * 1024;
/// Bytes of the superblock file.
pub const FILE_BYTES: u64 = 2 * COPY_DISTANCE;
/// Bytes of one copy.
pub const LEN: usize = PAGE as usize;

/// Everything that one copy of a superblock says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Identity of the store, random.
    pub store: [u8; 16],
    /// Number of this device.
    pub device: u16,
    /// Devices of the store, 1 to 16.
    pub devices: u16,
    /// Secret of the tenant tags; on device 0 only.
    pub secret: [u8; 32],
    /// Number of this copy's write.
    pub generation: u64,
    /// Sizes chosen at creation.
    pub geometry: Geometry,
    /// Limits as given at the last open, bytes.
    pub disk_bytes: u64,
    /// Largest `disk_bytes` that a later open may ask for.
    pub max_disk_bytes: u64,
    /// The store's sequence counter starts above this.
    pub sequence_floor: u64,
    /// Epoch of every tenant that has no record of its own.
    pub tenant_floor: u64,
    /// Seconds since 1970 at creation.
    pub created_at: u64,
    /// Stride of each class in bytes, 0 = not taken.
    pub classes: [u32; MAX_CLASSES],
}

impl Superblock {
    /// One copy, ready to be written.
    pub fn encode(&self) -> [u8; LEN] {
        let mut out = [0; LEN];
        put(&mut out, 0, MAGIC);
        put(&mut out, 8, &VERSION.to_le_bytes());
        put(&mut out, 12, &(PAGE as u32).to_le_bytes());
        put(&mut out, 16, &self.store);
        put(&mut out, 32, &self.device.to_le_bytes());
        put(&mut out, 34, &self.devices.to_le_bytes());
        // 36: cipher id, 0 = none. 37: payload checksum, 1 = CRC-64/NVME. 38: reserved.
        out[37] = 1;
        put(&mut out, 40, &self.secret);
        put(&mut out, 72, &self.generation.to_le_bytes());
        put(&mut out, 80, &self.geometry.segment_bytes.to_le_bytes());
        put(&mut out, 88, &self.geometry.max_segments.to_le_bytes());
        put(&mut out, 96, &self.disk_bytes.to_le_bytes());
        put(&mut out, 104, &self.max_disk_bytes.to_le_bytes());
        put(&mut out, 112, &self.sequence_floor.to_le_bytes());
        put(&mut out, 120, &self.tenant_floor.to_le_bytes());
        put(&mut out, 128, &self.created_at.to_le_bytes());
        for (i, stride) in self.classes.iter().enumerate() {
            put(&mut out, 136 + 4 * i, &stride.to_le_bytes());
        }
        let crc = crc32c(&out[..LEN - 4]);
        put(&mut out, LEN - 4, &crc.to_le_bytes());
        out
    }

    fn decode(copy: &[u8; LEN]) -> Result<Self> {
        let bad = |what: String| Error::new(ErrorKind::Incompatible, what);
        if &get::<8>(copy, 0) != MAGIC {
            return Err(bad("no kvstore superblock".into()));
        }
        let version = get_u32(copy, 8);
        if version != VERSION {
            return Err(bad(format!(
                "format version {version}, this build reads version {VERSION}: \
                 open it with the kvstore that wrote it, or name another directory"
            )));
        }
        if get_u32(copy, LEN - 4) != crc32c(&copy[..LEN - 4]) {
            return Err(bad("superblock checksum does not match".into()));
        }
        if copy[36] != 0 || copy[37] != 1 {
            return Err(bad(format!(
                "cipher id {} and checksum id {}, this build reads 0 and 1",
                copy[36], copy[37]
            )));
        }
        let mut classes = [0; MAX_CLASSES];
        for (i, stride) in classes.iter_mut().enumerate() {
            *stride = get_u32(copy, 136 + 4 * i);
        }
        let geometry =
            Geometry { segment_bytes: get_u64(copy, 80), max_segments: get_u32(copy, 88) };
        let (least, most) = super::geometry::SEGMENT_RANGE;
        if !geometry.segment_bytes.is_power_of_two()
            || !(least..=most).contains(&geometry.segment_bytes)
            || geometry.max_segments > super::place::MAX_SEGMENTS
        {
            return Err(bad(format!("impossible geometry {geometry:?}")));
        }
        Ok(Self {
            store: get(copy, 16),
            device: get_u16(copy, 32),
            devices: get_u16(copy, 34),
            secret: get(copy, 40),
            generation: get_u64(copy, 72),
            geometry,
            disk_bytes: get_u64(copy, 96),
            max_disk_bytes: get_u64(copy, 104),
            sequence_floor: get_u64(copy, 112),
            tenant_floor: get_u64(copy, 120),
            created_at: get_u64(copy, 128),
            classes,
        })
    }

    /// The copy that counts of the two that were read; the error is the first copy's.
    pub fn newer(a: &[u8; LEN], b: &[u8; LEN]) -> Result<Self> {
        match (Self::decode(a), Self::decode(b)) {
            (Ok(a), Ok(b)) => Ok(if b.generation > a.generation { b } else { a }),
            (Ok(one), Err(_)) | (Err(_), Ok(one)) => Ok(one),
            (Err(error), Err(_)) => Err(error),
        }
    }

    /// Whether this can be what a crash left of the very first write: nothing, or some of a copy
    /// of this version. Drives write sectors of 512 bytes whole.
    pub fn may_be_torn(copy: &[u8; LEN]) -> bool {
        let sector = &copy[..512];
        sector.iter().all(|&byte| byte == 0)
            || (sector.starts_with(MAGIC)
                && get_u32(copy, 8) == VERSION
                && get_u32(copy, LEN - 4) != crc32c(&copy[..LEN - 4]))
    }

    /// Where the next write of this superblock goes: the copy that does not count now.
    pub fn next_offset(&self) -> u64 {
        ((self.generation + 1) % 2) * COPY_DISTANCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Superblock {
        let mut classes = [0; MAX_CLASSES];
        classes[0] = 4096;
        classes[1] = 114_688;
        Superblock {
            store: [1; 16],
            device: 0,
            devices: 1,
            secret: [2; 32],
            generation: 4,
            geometry: Geometry { segment_bytes: 16 << 20, max_segments: 64 },
            disk_bytes: 256 << 20,
            max_disk_bytes: 1 << 30,
            sequence_floor: 77,
            tenant_floor: 0,
            created_at: 1_790_000_000,
            classes,
        }
    }

    #[test]
    fn the_newer_whole_copy_counts() {
        let old = sample();
        let new = Superblock { generation: 5, sequence_floor: 99, ..sample() };
        assert_eq!(Superblock::newer(&old.encode(), &new.encode()).unwrap(), new);
        let mut torn = new.encode();
        torn[600] ^= 1;
        assert_eq!(Superblock::newer(&old.encode(), &torn).unwrap(), old);
        assert_ne!(old.next_offset(), new.next_offset());
    }

    #[test]
    fn another_version_is_named() {
        let mut copy = sample().encode();
        copy[8] = 2;
        let error = Superblock::newer(&copy, &[0; LEN]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Incompatible);
        assert!(error.to_string().contains("format version 2"), "{error}");
    }
}
