//! Which of the objects at the old end of the host tier has another copy.

use super::Mirror;
use kvstore_index::Entry;
use std::collections::HashSet;

/// Objects of the wanted size that are looked at: a put never waits without a bound.
const CANDIDATES: usize = 16;

/// Takes, of the oldest `CANDIDATES` leaves, the first that has another copy: for the second look
/// for a victim, after the first would be lost.
///
/// A leaf that is not taken stays, so what is above it stays as well. The index passes over a
/// refused leaf as if it were gone; here its parent is remembered and refused too.
#[derive(Default)]
pub(crate) struct Copies {
    looked: usize,
    kept: HashSet<u64>,
}

impl Copies {
    /// Whether the search ends with this object: because `has_copy`, or because enough were seen.
    pub(crate) fn ends(&mut self, entry: &Entry, has_copy: bool) -> bool {
        self.looked += 1;
        if self.looked > CANDIDATES {
            return true;
        }
        let stays = !has_copy || self.kept.contains(&entry.fingerprint().prefix());
        if stays {
            self.kept.insert(entry.parent_prefix());
        }
        !stays
    }
}

impl Mirror {
    /// Whether the mirror holds what an entry keeps. It knows blocks by their block keys: an object
    /// in parts, whose first object has a key of its own, counts as not held.
    pub(crate) fn holds_entry(&self, entry: &Entry) -> bool {
        self.holds(entry.fingerprint())
    }
}
