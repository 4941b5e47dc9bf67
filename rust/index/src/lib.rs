//! Fingerprints, entries, table, prefix links, eviction policies; no I/O, no threads of its own.
//!
//! One [`Index`] holds a compact [`Entry`] per object in a slab, a flat hash table from
//! [`Fingerprint`] to slab position, the links of the prefix tree, and per [`Tier`] the queue of
//! an eviction policy. The store wraps it in its own lock and owns every slot number in it;
//! `kvstore-sim` replays traces through the very same code.
//!
//! All memory is reserved by [`Index::new`]; [`Index::bytes_for`] says how much beforehand.

mod entry;
mod fingerprint;
mod index;
mod list;
mod policy;
mod residency;
mod settle;
mod slab;
mod table;

pub use entry::{Entry, EntryId, Freed, Handle, Kind, NewEntry, Tier};
pub use fingerprint::Fingerprint;
pub use index::{Full, Index, Released};
pub use policy::{PolicyKind, Victim};
