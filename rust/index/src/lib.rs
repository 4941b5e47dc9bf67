//! Fingerprints, entries, table, prefix links, eviction policies; no I/O, no threads of its own.
