//! The disk tier's format and its in-memory bookkeeping. FORMAT.md documents every byte.
//!
//! Nothing here does I/O by itself except [`recovery`], which reads through the device trait; the
//! store's writer decides when a page goes out. The invariants INV-1 to INV-8 are FORMAT.md's.

pub mod bytes;
pub mod descriptor;
pub mod directory;
pub mod geometry;
pub mod namespaces;
pub mod pages;
pub mod place;
pub mod recovery;
pub mod segments;
pub mod superblock;
pub mod tenants;

/// Unit of every metadata write, bytes.
pub const PAGE: u64 = 4096;
/// Bytes of one descriptor.
pub const DESCRIPTOR: u64 = 64;
/// Descriptors of one table page.
pub const SLOTS_PER_PAGE: u32 = (PAGE / DESCRIPTOR) as u32;
/// Live classes at most.
pub const MAX_CLASSES: usize = 64;
/// Smallest stride and multiple of all strides, bytes.
pub const MIN_STRIDE: u64 = 4096;

/// Entries for tests of what names them: they own slots or wait for a page.
#[cfg(test)]
fn test_entries<const N: usize>() -> [kvstore_index::EntryId; N] {
    use kvstore_index::{Fingerprint, Index, Kind, NewEntry, PolicyKind};
    let mut index = Index::new(N, 1, [PolicyKind::LeafLru; 2]);
    std::array::from_fn(|number| {
        let new = NewEntry {
            fingerprint: Fingerprint([number as u8 + 1; 16]),
            checksum: 0,
            parent_prefix: 0,
            sequence: 1,
            length: 1,
            tenant: 0,
            expires_at: 0,
            namespace: 0,
            depth: 0,
            class: 0,
            kind: Kind::Body,
            flags: 0,
        };
        index.insert(&new).unwrap()
    })
}
