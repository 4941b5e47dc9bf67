//! Where an object lies: device, segment, slot, packed into one word.

/// Address of one slot. Packed as `device << 36 | segment << 16 | slot`: the 40 bits that an
/// index entry keeps, of which all ones mean "nowhere".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// Number of the data device, 0 to 15.
    pub device: u8,
    /// Segment of that device, below [`MAX_SEGMENTS`].
    pub segment: u32,
    /// Slot of that segment, below 2^16: a segment of 256 MiB has 65,536 slots of 4 KiB.
    pub slot: u32,
}

const SLOT_BITS: u32 = 16;
const SEGMENT_BITS: u32 = 20;
/// Segments of one device at most. One less than fit, so that no place is all ones.
pub const MAX_SEGMENTS: u32 = (1 << SEGMENT_BITS) - 1;

impl Place {
    /// The word that an index entry keeps.
    pub fn pack(self) -> u64 {
        debug_assert!(self.device < 16 && self.segment < MAX_SEGMENTS && self.slot < 1 << 16);
        (u64::from(self.device) << (SLOT_BITS + SEGMENT_BITS))
            | (u64::from(self.segment) << SLOT_BITS)
            | u64::from(self.slot)
    }

    /// The inverse of [`Place::pack`].
    pub fn unpack(word: u64) -> Self {
        Self {
            device: (word >> (SLOT_BITS + SEGMENT_BITS)) as u8,
            segment: (word >> SLOT_BITS) as u32 & ((1 << SEGMENT_BITS) - 1),
            slot: word as u32 & ((1 << SLOT_BITS) - 1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_SEGMENTS, Place};

    #[test]
    fn a_place_survives_packing_and_is_never_all_ones() {
        for place in [
            Place { device: 0, segment: 0, slot: 0 },
            Place { device: 15, segment: MAX_SEGMENTS - 1, slot: (1 << 16) - 1 },
            Place { device: 3, segment: 77, slot: 4095 },
        ] {
            assert_eq!(Place::unpack(place.pack()), place);
            assert!(place.pack() < (1 << 40) - 1);
        }
    }
}
