//! An intrusive list from the oldest to the youngest, and the view of the tree that a policy gets.

use crate::entry::{Entry, EntryId, Links, NONE, Tier, bit};
use crate::slab::Slab;

/// The entries and their links, as one tier sees them.
pub(crate) struct Tree<'a> {
    slab: &'a mut Slab,
    tier: Tier,
}

impl<'a> Tree<'a> {
    pub(crate) fn new(slab: &'a mut Slab, tier: Tier) -> Tree<'a> {
        Tree { slab, tier }
    }

    pub(crate) fn entry(&self, id: EntryId) -> &Entry {
        self.slab.entry(id)
    }

    pub(crate) fn is_resident(&self, id: EntryId) -> bool {
        self.slab.entry(id).is_resident(self.tier)
    }

    /// Whether it belongs to the first victims.
    pub(crate) fn is_first(&self, id: EntryId) -> bool {
        self.slab.entry(id).has(bit::FIRST)
    }

    /// Pinned, or with I/O in flight: never a victim.
    pub(crate) fn is_pinned(&self, id: EntryId) -> bool {
        self.slab.entry(id).refs > 0
    }

    pub(crate) fn parent(&self, id: EntryId) -> Option<EntryId> {
        self.slab.parent(id)
    }

    /// Children that keep the entry from being a leaf of this tier.
    pub(crate) fn children(&self, id: EntryId) -> u32 {
        self.slab.children(id, self.tier)
    }

    /// Whether the entry may leave this tier for its parent's sake. A disk object that is also in
    /// the host tier may not: its host copy would have no parent on disk.
    pub(crate) fn may_go_along(&self, id: EntryId) -> bool {
        self.tier == Tier::Host || !self.slab.entry(id).is_resident(Tier::Host)
    }

    pub(crate) fn younger(&self, id: EntryId) -> Option<EntryId> {
        some(self.slab.links(id, self.tier).younger)
    }

    fn links_mut(&mut self, id: EntryId) -> &mut Links {
        self.slab.links_mut(id, self.tier)
    }
}

fn some(id: u32) -> Option<EntryId> {
    (id != NONE).then_some(EntryId(id))
}

/// Ends of one list; the links are in the entries.
#[derive(Debug)]
pub(crate) struct List {
    oldest: u32,
    youngest: u32,
}

impl List {
    pub(crate) const fn new() -> List {
        List { oldest: NONE, youngest: NONE }
    }

    pub(crate) fn oldest(&self) -> Option<EntryId> {
        some(self.oldest)
    }

    pub(crate) fn push_youngest(&mut self, tree: &mut Tree<'_>, id: EntryId) {
        self.join(tree, self.youngest, id.0);
        self.join(tree, id.0, NONE);
    }

    /// Puts `id` directly on the older side of `behind`, which is in this list.
    pub(crate) fn insert_behind(&mut self, tree: &mut Tree<'_>, behind: EntryId, id: EntryId) {
        let older = tree.links_mut(behind).older;
        self.join(tree, older, id.0);
        self.join(tree, id.0, behind.0);
    }

    pub(crate) fn remove(&mut self, tree: &mut Tree<'_>, id: EntryId) {
        let Links { older, younger } = *tree.links_mut(id);
        self.join(tree, older, younger);
        *tree.links_mut(id) = Links::NONE;
    }

    /// Makes two entries neighbours; `NONE` stands for the end of the list.
    fn join(&mut self, tree: &mut Tree<'_>, older: u32, younger: u32) {
        match some(older) {
            Some(id) => tree.links_mut(id).younger = younger,
            None => self.oldest = younger,
        }
        match some(younger) {
            Some(id) => tree.links_mut(id).older = older,
            None => self.youngest = older,
        }
    }
}
