//! Trace replay of kvstore-index's policies against LRU and the optimum.
//!
//! A trace is a file of requests, each the chain of block ids of one prompt. [`Loaded`] holds one
//! in memory; [`Loaded::replay`] runs a [`Policy`] over it at a [`Capacity`] and says what was hit
//! and written. `lru` and `leaf-lru` run through `kvstore_index::Index`, call for call as the store
//! does; `optimum` is the exact bound for any policy.

mod capacity;
mod hash;
mod loaded;
mod optimum;
mod outcome;
mod policy;
mod replay;
mod trace;

pub use capacity::{Capacity, CapacityError};
pub use loaded::{Info, Loaded};
pub use outcome::Outcome;
pub use policy::{Policy, PolicyError};
pub use trace::{Request, Trace, TraceError};
