//! Host memory: one arena that is cache, direct-I/O buffer and zero-copy view at once.
//!
//! [`Arena`] is the memory, cut into extents; [`Slots`] gives extents to classes and slots to
//! objects; [`copy`] moves payload bytes and computes their checksums in the same pass. Nothing
//! here knows what an object is: whoever holds a slot owns its bytes.

pub mod arena;
pub mod copy;
mod fold;
pub mod fork;
mod map;
pub mod slots;

pub use arena::{Arena, ArenaKind, Buf};
pub use slots::{SlotId, Slots};

/// Strides of slots, and so the alignment of every buffer, are multiples of this many bytes.
pub const SLOT_ALIGN: u32 = 4096;

pub(crate) use map::prefer_huge_pages;
