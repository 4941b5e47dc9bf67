//! The four 32-byte values of the key hierarchy, and the 16 bytes that index and descriptor carry.

use std::fmt;

/// First 16 bytes of a [`Key`]: what index and slot descriptor carry.
pub type Fingerprint = [u8; 16];

/// Identity of a block or an object, 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key([u8; 32]);

impl Key {
    /// A key from its bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// All 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first 16 bytes. Chains and object keys run on 32; only this is cut.
    pub const fn fingerprint(&self) -> Fingerprint {
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, ..] = self.0;
        [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p]
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", hex(&self.0))
    }
}

/// BLAKE3 of a namespace description: the key of every keyed hash below it, 32 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamespaceDigest([u8; 32]);

impl NamespaceDigest {
    /// A digest from its bytes, as a namespace record keeps them.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// All 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for NamespaceDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NamespaceDigest({})", hex(&self.0))
    }
}

/// Where a tenant's chains and foreign keys begin, 32 bytes.
///
/// Whoever knows it can compute the tenant's keys without the salt, so it is never printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Root([u8; 32]);

impl Root {
    /// A root from its bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// All 32 bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Root(redacted)")
    }
}

/// Lower-case hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    use fmt::Write;
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}"); // writing to a String cannot fail
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_the_first_sixteen_bytes() {
        let bytes: [u8; 32] = std::array::from_fn(|i| i as u8);
        assert_eq!(Key::from_bytes(bytes).fingerprint()[..], bytes[..16]);
    }

    #[test]
    fn a_root_does_not_print_its_bytes() {
        assert_eq!(format!("{:?}", Root::from_bytes([0xab; 32])), "Root(redacted)");
    }
}
