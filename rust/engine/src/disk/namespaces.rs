//! The namespace table: 4,096 records of 1 KiB, kept twice, on device 0.

use super::bytes::{get, get_u16, get_u32, get_u64, put};
use crate::host::copy::crc32c;

/// Records of the table.
pub const COUNT: usize = 4096;
/// Bytes of one record.
pub const LEN: usize = 1024;
/// Bytes of a record before the description.
pub const HEADER: usize = 64;
/// Longest canonical description that a record holds, bytes.
pub const MAX_DESCRIPTION: usize = LEN - HEADER;
/// Bytes of one copy of the table.
pub const COPY_BYTES: u64 = (COUNT * LEN) as u64;
/// Bytes of the file.
pub const FILE_BYTES: u64 = 2 * COPY_BYTES;

/// One namespace as the store remembers it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamespaceRecord {
    /// The store's sequence number at the last clear, 0 = never cleared.
    pub epoch: u64,
    /// Number of this record's write; of two valid copies the higher counts.
    pub generation: u64,
    /// BLAKE3 of `description`.
    pub digest: [u8; 32],
    /// Canonical description (identity).
    pub description: Vec<u8>,
}

impl NamespaceRecord {
    /// The record as it stands at `index`.
    pub fn encode(&self, index: u16) -> [u8; LEN] {
        assert!(self.description.len() <= MAX_DESCRIPTION, "identity checks the length");
        let mut out = [0; LEN];
        out[..4].copy_from_slice(b"NSPC");
        put(&mut out, 4, &index.to_le_bytes());
        put(&mut out, 6, &(self.description.len() as u16).to_le_bytes());
        put(&mut out, 8, &self.epoch.to_le_bytes());
        put(&mut out, 16, &self.generation.to_le_bytes());
        put(&mut out, 24, &self.digest);
        put(&mut out, HEADER, &self.description);
        let crc = check(&out);
        put(&mut out, 60, &crc.to_le_bytes());
        out
    }

    fn decode(record: &[u8; LEN], index: u16) -> Option<Self> {
        let length = usize::from(get_u16(record, 6));
        (&record[..4] == b"NSPC"
            && get_u16(record, 4) == index
            && length <= MAX_DESCRIPTION
            && get_u32(record, 60) == check(record))
        .then(|| Self {
            epoch: get_u64(record, 8),
            generation: get_u64(record, 16),
            digest: get(record, 24),
            description: record[HEADER..HEADER + length].to_vec(),
        })
    }

    /// The copy that counts, `None` when neither is a record of `index`.
    pub fn newer(a: &[u8; LEN], b: &[u8; LEN], index: u16) -> Option<Self> {
        match (Self::decode(a, index), Self::decode(b, index)) {
            (Some(a), Some(b)) => Some(if b.generation > a.generation { b } else { a }),
            (a, b) => a.or(b),
        }
    }
}

/// crc32c of the record without its own four bytes.
fn check(record: &[u8; LEN]) -> u32 {
    let mut covered = *record;
    covered[60..64].fill(0);
    crc32c(&covered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newer_copy_of_a_record_counts_and_a_torn_one_does_not() {
        let old = NamespaceRecord {
            epoch: 1,
            generation: 1,
            digest: [3; 32],
            description: b"model".to_vec(),
        };
        let new = NamespaceRecord { epoch: 9, generation: 2, ..old.clone() };
        let (a, mut b) = (old.encode(17), new.encode(17));
        assert_eq!(NamespaceRecord::newer(&a, &b, 17), Some(new));
        b[9] ^= 4;
        assert_eq!(NamespaceRecord::newer(&a, &b, 17), Some(old));
        assert_eq!(NamespaceRecord::newer(&a, &b, 18), None);
    }
}
