//! The segment directory: which class a segment has and which generation it is in. Kept twice.
//!
//! INV-4: an entry has completed, both copies, before the first payload goes into its segment.
//! Where directory and descriptor disagree the higher generation wins (recovery does that).

use super::bytes::{get_u32, put};
use crate::host::copy::crc32c;

/// Bytes of one entry.
pub const ENTRY: usize = 16;
/// Entries of one page.
pub const PER_PAGE: u32 = (super::PAGE as usize / ENTRY) as u32;

/// What the directory says of one segment. A segment never used is 16 zero bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Rises each time the segment is given to a class.
    pub generation: u32,
    /// Index in the superblock's class table.
    pub class: u8,
}

impl DirectoryEntry {
    /// The entry as it stands on disk for `segment` of `device`.
    pub fn encode(&self, store: &[u8; 16], device: u8, segment: u32) -> [u8; ENTRY] {
        let mut out = [0; ENTRY];
        put(&mut out, 0, &self.generation.to_le_bytes());
        out[4] = self.class;
        out[5] = 1;
        let crc = check(&out, store, device, segment);
        put(&mut out, 12, &crc.to_le_bytes());
        out
    }

    /// The entry, or `None` when the bytes are not one of this segment.
    pub fn decode(record: &[u8], store: &[u8; 16], device: u8, segment: u32) -> Option<Self> {
        let record: &[u8; ENTRY] = record.try_into().ok()?;
        (record[5] == 1 && get_u32(record, 12) == check(record, store, device, segment))
            .then(|| Self { generation: get_u32(record, 0), class: record[4] })
    }
}

fn check(record: &[u8; ENTRY], store: &[u8; 16], device: u8, segment: u32) -> u32 {
    let mut covered = [0; 12 + 16 + 8];
    covered[..12].copy_from_slice(&record[..12]);
    covered[12..28].copy_from_slice(store);
    covered[28..32].copy_from_slice(&u32::from(device).to_le_bytes());
    covered[32..36].copy_from_slice(&segment.to_le_bytes());
    crc32c(&covered)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_valid_for_its_own_segment_only() {
        let entry = DirectoryEntry { generation: 8, class: 3 };
        let record = entry.encode(&[9; 16], 0, 5);
        assert_eq!(DirectoryEntry::decode(&record, &[9; 16], 0, 5), Some(entry));
        assert_eq!(DirectoryEntry::decode(&record, &[9; 16], 0, 6), None);
        assert_eq!(DirectoryEntry::decode(&record, &[9; 16], 1, 5), None);
        assert_eq!(DirectoryEntry::decode(&[0; ENTRY], &[9; 16], 0, 5), None);
        for bit in 0..ENTRY * 8 {
            let mut torn = record;
            torn[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(DirectoryEntry::decode(&torn, &[9; 16], 0, 5), None, "bit {bit}");
        }
    }
}
