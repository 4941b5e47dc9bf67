//! The tenant: a salt at the root of the chain, and the 32-bit tag that may be stored.
//!
//! Root, as bytes under keyed BLAKE3 with the namespace digest:
//!
//! | bytes | what |
//! | --- | --- |
//! | 48 | `kvstore-chain-1 root: epochs, salt length, salt` (ASCII), then one zero byte |
//! | 8 | namespace epoch, u64 little-endian |
//! | 8 | tenant epoch, u64 little-endian |
//! | 8 | length of the salt, u64 little-endian |
//! | n | the salt; none at all when the tenant has none |
//!
//! Tag: the first four bytes, as u32 little-endian, of BLAKE3 keyed with the store's secret over
//! `kvstore-tenant-1` (16 bytes ASCII) and the salt. 0 stands for "no salt" (a salt that hashes to it
//! takes 1).
//!
//! The salt itself is never stored or printed. The tag finds a tenant's objects for a clear; without
//! the store's secret it says nothing about the salt, and two stores tag one tenant differently.

use super::{NamespaceDigest, Root};

const ROOT_LABEL: &[u8; 48] = b"kvstore-chain-1 root: epochs, salt length, salt\0";
const TAG_LABEL: &[u8; 16] = b"kvstore-tenant-1";

/// The root of a tenant's keys in a namespace.
///
/// An epoch is the store's sequence number at the last clear of the namespace or the tenant (0 before
/// the first): a clear moves the root, so that all keys made before are unreachable at once. An empty
/// `salt` is no salt.
pub fn root(
    namespace: &NamespaceDigest,
    namespace_epoch: u64,
    salt: &[u8],
    tenant_epoch: u64,
) -> Root {
    let mut hasher = blake3::Hasher::new_keyed(namespace.as_bytes());
    hasher.update(ROOT_LABEL);
    hasher.update(&namespace_epoch.to_le_bytes());
    hasher.update(&tenant_epoch.to_le_bytes());
    hasher.update(&(salt.len() as u64).to_le_bytes());
    hasher.update(salt);
    Root::from_bytes(*hasher.finalize().as_bytes())
}

/// The tag of a tenant in one store, as descriptors and the tenant table carry it; 0 without a salt.
///
/// `store_secret` is random, made when the store is created. Two tenants share a tag with probability
/// 2^-32; then a clear of one also clears the other, which loses cache and never mixes bytes.
pub fn tenant_tag(store_secret: &[u8; 32], salt: &[u8]) -> u32 {
    if salt.is_empty() {
        return 0;
    }
    let mut hasher = blake3::Hasher::new_keyed(store_secret);
    hasher.update(TAG_LABEL);
    hasher.update(salt);
    let digest = hasher.finalize();
    let [a, b, c, d, ..] = *digest.as_bytes();
    u32::from_le_bytes([a, b, c, d]).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const NAMESPACE: NamespaceDigest = NamespaceDigest::from_bytes([7; 32]);

    #[test]
    fn each_part_of_the_root_moves_it() {
        let roots = [
            root(&NAMESPACE, 0, b"", 0),
            root(&NAMESPACE, 1, b"", 0),
            root(&NAMESPACE, 0, b"", 1),
            root(&NAMESPACE, 0, b"a", 0),
            root(&NAMESPACE, 0, b"a\0", 0),
            root(&NAMESPACE, 0, &[0; 8], 0),
            root(&NAMESPACE, 1, b"a", 1),
            root(&NamespaceDigest::from_bytes([8; 32]), 0, b"", 0),
        ];
        let distinct: HashSet<_> = roots.iter().map(Root::as_bytes).collect();
        assert_eq!(distinct.len(), roots.len());
    }

    #[test]
    fn a_tag_is_zero_only_without_a_salt_and_differs_between_stores() {
        assert_eq!(tenant_tag(&[1; 32], b""), 0);
        assert_ne!(tenant_tag(&[1; 32], b"tenant-a"), 0);
        assert_ne!(tenant_tag(&[1; 32], b"tenant-a"), tenant_tag(&[1; 32], b"tenant-b"));
        assert_ne!(tenant_tag(&[1; 32], b"tenant-a"), tenant_tag(&[2; 32], b"tenant-a"));
    }
}
