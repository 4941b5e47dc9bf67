//! What the index knows of a key.

/// The first 128 bits of an object's key. Uniformly distributed: keys are BLAKE3 outputs, so the
/// table uses the bits as they are.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct Fingerprint(pub [u8; 16]);

impl Fingerprint {
    /// The first 8 bytes as a little-endian number: what a descriptor carries of its parent.
    #[inline]
    pub const fn prefix(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}
