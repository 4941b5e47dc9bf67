//! The mirror: what the serving engine holds in HBM. Bookkeeping only, no payload passes here.
//!
//! A *worker* joins with a number of slots and gets an epoch; a *mark* says that one of its slots
//! holds a block. A block may be marked before it is put and after the store has evicted it, and by
//! several workers: presence is per (worker, tier), and a removal from one never removes another.
//! A worker that is lost, or joins again, loses all of its marks at once.
//!
//! A slot holds one block and a block has one slot of a worker: a mark in a slot that holds another
//! block replaces it, so that a removal which was never told is mended when the slot is used again.

mod copies;
mod marks;
mod store;
mod table;

pub use marks::{MirrorStats, Worker};
pub use store::{StoreMirror, Tiers};

pub(crate) use copies::Copies;
pub(crate) use marks::Mirror;
