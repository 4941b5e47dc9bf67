//! The store: identity, host tier, I/O, disk format, tiers.
//!
//! [`store::Store`] is the entry. Dependencies point one way: `identity` and `disk` know no threads,
//! `disk` runs on any [`io::Device`], `mirror` is bookkeeping, and only `host` and `io` touch memory
//! that is not theirs.

pub mod disk;
pub mod error;
pub mod host;
pub mod identity;
pub mod io;
pub mod mirror;
pub mod store;

pub use error::{Error, ErrorKind, Result};
pub use store::Store;
