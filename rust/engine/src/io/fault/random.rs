//! Chance by seed.

/// SplitMix64 (Steele, Lea, Flood 2014): one word of state, and good enough to pick faults.
#[derive(Clone, Debug)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ word >> 31
    }

    /// A number below `end`, which is not 0.
    pub(super) fn below(&mut self, end: usize) -> usize {
        let word = u128::from(self.next()) * end as u128;
        usize::try_from(word >> 64).unwrap_or(0)
    }

    pub(super) fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }
}
