//! The 64-byte self-checking record of one slot.

use super::bytes::{get, get_u16, get_u32, get_u48, get_u64, put, put_u48};
use super::place::Place;
use crate::host::copy::crc32c;
use kvstore_index::{Fingerprint, Kind};

/// Bytes of one descriptor.
pub const LEN: usize = 64;

/// Flags of a descriptor that live on disk; bits 0 and 1 of the byte are the kind.
pub mod flag {
    /// One part of an object that is stored in parts.
    pub const PART: u8 = 1 << 2;
    /// Stored after a bounded replay (DESIGN "Replayed blocks").
    pub const REPLAYED: u8 = 1 << 3;
    /// The payload is an encoded (compressed) form.
    pub const ENCODED: u8 = 1 << 4;
    /// Part 0 of an object in parts, whose payload begins with the manifest.
    pub const HEAD: u8 = 1 << 5;
    /// All bits that a descriptor may carry besides the kind.
    pub const DISK: u8 = PART | REPLAYED | ENCODED | HEAD;
}

/// What one slot holds. A slot without a descriptor is 64 zero bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// First 16 bytes of the object's key.
    pub fingerprint: Fingerprint,
    /// CRC-64/NVME of the payload's `length` bytes.
    pub checksum: u64,
    /// First 8 bytes of the parent's fingerprint, little-endian; 0 = no parent.
    pub parent_prefix: u64,
    /// Number of the put, 48 bits; of two descriptors with one fingerprint the higher wins (INV-7).
    pub sequence: u64,
    /// Blocks from the root, saturating.
    pub depth: u16,
    /// Tenant tag, 0 = no salt.
    pub tenant: u32,
    /// Generation of the segment at the time of writing.
    pub generation: u32,
    /// Payload bytes.
    pub length: u32,
    /// Seconds since 2020-01-01, 0 = never.
    pub expires_at: u32,
    /// Index in the namespace table.
    pub namespace: u16,
    /// Index in the superblock's class table.
    pub class: u8,
    /// What the object is.
    pub kind: Kind,
    /// Bits of [`flag`].
    pub flags: u8,
}

/// What identifies a place to a descriptor's check: valid in one place only (INV-3).
#[derive(Clone, Copy, Debug)]
pub struct Home {
    /// Identity of the store.
    pub store: [u8; 16],
    /// Device, segment and slot.
    pub place: Place,
}

impl Descriptor {
    /// The record as it stands in the slot table at `home`.
    pub fn encode(&self, home: &Home) -> [u8; LEN] {
        let mut out = [0; LEN];
        put(&mut out, 0, &self.fingerprint.0);
        put(&mut out, 16, &self.checksum.to_le_bytes());
        put(&mut out, 24, &self.parent_prefix.to_le_bytes());
        put_u48(&mut out, 32, self.sequence);
        put(&mut out, 38, &self.depth.to_le_bytes());
        put(&mut out, 40, &self.tenant.to_le_bytes());
        put(&mut out, 44, &self.generation.to_le_bytes());
        put(&mut out, 48, &self.length.to_le_bytes());
        put(&mut out, 52, &self.expires_at.to_le_bytes());
        put(&mut out, 56, &self.namespace.to_le_bytes());
        out[58] = self.class;
        out[59] = self.kind as u8 | (self.flags & flag::DISK);
        let crc = check(&out, home);
        put(&mut out, 60, &crc.to_le_bytes());
        out
    }

    /// What the record says, or `None` when it is not a descriptor of this very place.
    pub fn decode(record: &[u8; LEN], home: &Home) -> Option<Self> {
        if get_u32(record, 60) != check(record, home) {
            return None;
        }
        let kind = match record[59] & 0b11 {
            0 => Kind::Body,
            1 => Kind::Window,
            2 => Kind::Checkpoint,
            _ => return None,
        };
        Some(Self {
            fingerprint: Fingerprint(get(record, 0)),
            checksum: get_u64(record, 16),
            parent_prefix: get_u64(record, 24),
            sequence: get_u48(record, 32),
            depth: get_u16(record, 38),
            tenant: get_u32(record, 40),
            generation: get_u32(record, 44),
            length: get_u32(record, 48),
            expires_at: get_u32(record, 52),
            namespace: get_u16(record, 56),
            class: record[58],
            kind,
            flags: record[59] & flag::DISK,
        })
    }
}

/// INV-3: crc32c of the other 60 bytes, then store id, device, segment and slot number.
fn check(record: &[u8; LEN], home: &Home) -> u32 {
    let mut covered = [0; 60 + 16 + 12];
    covered[..60].copy_from_slice(&record[..60]);
    covered[60..76].copy_from_slice(&home.store);
    covered[76..80].copy_from_slice(&u32::from(home.place.device).to_le_bytes());
    covered[80..84].copy_from_slice(&home.place.segment.to_le_bytes());
    covered[84..88].copy_from_slice(&home.place.slot.to_le_bytes());
    crc32c(&covered)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Descriptor, Home) {
        let home = Home { store: [7; 16], place: Place { device: 0, segment: 3, slot: 130 } };
        let descriptor = Descriptor {
            fingerprint: Fingerprint(*b"0123456789abcdef"),
            checksum: 0x1122_3344_5566_7788,
            parent_prefix: 0x99aa_bbcc_ddee_ff00,
            sequence: 0x0000_a1b2_c3d4_e5f6,
            depth: 0x0102,
            tenant: 0x0304_0506,
            generation: 9,
            length: 113_920,
            expires_at: 42,
            namespace: 5,
            class: 1,
            kind: Kind::Window,
            flags: flag::REPLAYED,
        };
        (descriptor, home)
    }

    /// Golden bytes: a change here is a new format version.
    #[test]
    fn the_bytes_of_a_descriptor_are_fixed() {
        let (descriptor, home) = sample();
        let hex: String = descriptor.encode(&home).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(
            hex[..120],
            *concat!(
                "30313233343536373839616263646566",
                "8877665544332211",
                "00ffeeddccbbaa99",
                "f6e5d4c3b2a1",
                "0201",
                "06050403",
                "09000000",
                "00bd0100",
                "2a000000",
                "0500",
                "01",
                "09"
            )
        );
    }

    #[test]
    fn every_flipped_bit_and_every_other_place_is_refused() {
        let (descriptor, home) = sample();
        let record = descriptor.encode(&home);
        assert_eq!(Descriptor::decode(&record, &home), Some(descriptor));
        for bit in 0..LEN * 8 {
            let mut torn = record;
            torn[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Descriptor::decode(&torn, &home), None, "bit {bit}");
        }
        let moves: [fn(&mut Home); 4] = [
            |h| h.place.slot += 1,
            |h| h.place.segment += 1,
            |h| h.place.device += 1,
            |h| h.store[15] ^= 1,
        ];
        for change in moves {
            let mut other = home;
            change(&mut other);
            assert_eq!(Descriptor::decode(&record, &other), None);
        }
    }

    #[test]
    fn an_empty_slot_is_no_descriptor() {
        let (_, home) = sample();
        assert_eq!(Descriptor::decode(&[0; LEN], &home), None);
    }
}
