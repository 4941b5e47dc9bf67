//! The store: identity, host tier, I/O, disk format, tiers.

pub mod host;
pub mod identity;
pub mod io;
