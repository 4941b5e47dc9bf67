//! The store: identity, host tier, I/O, disk format, tiers.
