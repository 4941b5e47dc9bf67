//! Objects in parts: where they are cut, and the manifest at the start of part 0.

use crate::disk::bytes::{get_u16, get_u32, get_u64, put};

/// Bytes of data in one part at most.
pub(crate) const PART_BYTES: u64 = 4 << 20;
/// The manifest is padded to a multiple of this.
const PAD: usize = 4096;
const MAGIC: &[u8; 4] = b"KVPM";
const HEADER: usize = 16;
const EACH: usize = 12;

/// Lengths and checksums of all parts of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// Of each part: data bytes (without the manifest itself) and their CRC-64/NVME.
    pub parts: Vec<(u32, u64)>,
}

impl Manifest {
    /// Bytes of a manifest of `parts` parts, padding included.
    pub fn bytes(parts: usize) -> usize {
        (HEADER + EACH * parts).next_multiple_of(PAD)
    }

    /// Bytes of the whole object.
    pub fn total(&self) -> u64 {
        self.parts.iter().map(|&(length, _)| u64::from(length)).sum()
    }

    /// magic 4, version 2, reserved 2, count 4, reserved 4; then per part length 4, checksum 8.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; Self::bytes(self.parts.len())];
        put(&mut out, 0, MAGIC);
        put(&mut out, 4, &1_u16.to_le_bytes());
        put(&mut out, 8, &(self.parts.len() as u32).to_le_bytes());
        for (i, (length, checksum)) in self.parts.iter().enumerate() {
            put(&mut out, HEADER + EACH * i, &length.to_le_bytes());
            put(&mut out, HEADER + EACH * i + 4, &checksum.to_le_bytes());
        }
        out
    }

    /// The manifest at the start of `part0`; `None` when there is none.
    pub fn decode(part0: &[u8]) -> Option<Self> {
        let header = part0.get(..HEADER)?;
        let count = get_u32(header, 8) as usize;
        if &header[..4] != MAGIC || get_u16(header, 4) != 1 || count == 0 {
            return None;
        }
        let table = part0.get(HEADER..HEADER.checked_add(EACH.checked_mul(count)?)?)?;
        let parts =
            table.chunks_exact(EACH).map(|part| (get_u32(part, 0), get_u64(part, 4))).collect();
        Some(Self { parts })
    }
}

/// Lengths of the parts of an object of `total` bytes, none above `limit`, cut at `cuts` (offsets
/// where layers begin, ascending) where possible. The manifest counts against part 0's limit.
pub(crate) fn cut(total: u64, limit: u64, cuts: &[u64]) -> Vec<u32> {
    let most_parts = (total / (limit / 2).max(1)) as usize + 2;
    let manifest = Manifest::bytes(most_parts) as u64;
    let mut lengths = Vec::new();
    let mut at = 0;
    while at < total {
        let room = if at == 0 { limit - manifest } else { limit };
        let end = (at + room).min(total);
        // The last layer start inside this part, unless it would leave the part half empty.
        let before = cuts.partition_point(|&cut| cut <= end);
        let end = match before.checked_sub(1).and_then(|i| cuts.get(i)) {
            Some(&cut) if end < total && cut > at + room / 2 => cut,
            _ => end,
        };
        lengths.push((end - at) as u32);
        at = end;
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn parts_cover_the_object_and_fit(
            total in 1_u64..64 << 20,
            layer in 1_u64..3 << 20,
            offset in 0_u64..4096,
        ) {
            let cuts: Vec<u64> = (0..).map(|i| offset + i * layer).take_while(|&c| c < total).collect();
            let lengths = cut(total, PART_BYTES, &cuts);
            let manifest = Manifest::bytes(lengths.len()) as u64;
            prop_assert_eq!(lengths.iter().map(|&l| u64::from(l)).sum::<u64>(), total);
            prop_assert!(u64::from(lengths[0]) + manifest <= PART_BYTES);
            prop_assert!(lengths.iter().all(|&l| l > 0 && u64::from(l) <= PART_BYTES));
        }

        #[test]
        fn a_manifest_survives_its_bytes(parts in prop::collection::vec(any::<(u32, u64)>(), 1..900)) {
            let manifest = Manifest { parts };
            let bytes = manifest.encode();
            prop_assert_eq!(bytes.len() % PAD, 0);
            prop_assert_eq!(Manifest::decode(&bytes), Some(manifest));
        }

        #[test]
        fn arbitrary_bytes_are_no_reason_to_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Manifest::decode(&bytes);
        }
    }

    #[test]
    fn parts_end_where_layers_begin() {
        let layer = 1_500_000;
        let cuts: Vec<u64> = (0..20).map(|i| i * layer).collect();
        let lengths = cut(20 * layer, PART_BYTES, &cuts);
        assert!(lengths.iter().all(|&l| u64::from(l) % layer == 0), "{lengths:?}");
    }
}
