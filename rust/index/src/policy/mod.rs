//! Who goes first. A policy keeps one tier's order of eviction; the index tells it what comes, is
//! used and goes, and lends it the tree.

mod leaf_lru;
mod lru;
mod ranks;
mod walk;

use crate::entry::{Entry, EntryId};
use crate::list::Tree;

/// The policies to choose from.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
pub enum PolicyKind {
    /// Least recently used among the leaves of the prefix tree.
    LeafLru,
    /// Plain least recently used, which leaves holes in prefixes: for comparison.
    Lru,
}

impl PolicyKind {
    pub(crate) fn build(self) -> Box<dyn Policy> {
        match self {
            PolicyKind::LeafLru => Box::new(leaf_lru::LeafLru::new()),
            PolicyKind::Lru => Box::new(lru::Lru::new()),
        }
    }
}

/// What should leave a tier.
#[derive(Clone, Eq, PartialEq, Debug)]
pub struct Victim {
    /// The object that was accepted.
    pub id: EntryId,
    /// Its descendants in the tier, children before parents: none was accepted, but none can
    /// stay. They leave before it does.
    pub along: Vec<EntryId>,
}

/// Says whether an object would do as a victim (its size class fits, for example).
pub(crate) type Accept<'a> = &'a mut dyn FnMut(EntryId, &Entry) -> bool;

/// One tier's order of eviction.
pub(crate) trait Policy: Send {
    /// The entry has become resident in the tier.
    fn admit(&mut self, tree: &mut Tree<'_>, id: EntryId);

    /// One look-up used these entries, given from the head of the chain to its tail. Those that
    /// are not resident in the tier are skipped.
    fn touch(&mut self, tree: &mut Tree<'_>, chain: &[EntryId]);

    /// The entry is about to leave the tier, or to change its rank.
    fn remove(&mut self, tree: &mut Tree<'_>, id: EntryId);

    /// The next victim among the unpinned entries that `accept` takes. Removes nothing.
    fn victim(&mut self, tree: &Tree<'_>, accept: Accept<'_>) -> Option<Victim>;
}
