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
