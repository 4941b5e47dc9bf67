//! Least recently used, leaves only.
//!
//! A touch renews a chain from its tail to its head, and a new block goes in directly behind its
//! parent, so a parent is always younger than its children. The oldest entry is then always a
//! leaf: one plain list is leaf-first LRU, exactly.

use crate::entry::EntryId;
use crate::list::Tree;
use crate::policy::ranks::Ranks;
use crate::policy::walk::{self, Rule};
use crate::policy::{Accept, Policy, Victim};

pub(crate) struct LeafLru {
    ranks: Ranks,
}

impl LeafLru {
    pub(crate) const fn new() -> LeafLru {
        LeafLru { ranks: Ranks::new() }
    }
}

impl Policy for LeafLru {
    fn admit(&mut self, tree: &mut Tree<'_>, id: EntryId) {
        let first = tree.is_first(id);
        let behind = tree.parent(id).filter(|&p| tree.is_resident(p) && tree.is_first(p) == first);
        let list = self.ranks.of(tree, id);
        match behind {
            Some(parent) => list.insert_behind(tree, parent, id),
            None => list.push_youngest(tree, id),
        }
    }

    fn touch(&mut self, tree: &mut Tree<'_>, chain: &[EntryId]) {
        for &id in chain.iter().rev() {
            if tree.is_resident(id) {
                self.ranks.renew(tree, id);
            }
        }
    }

    fn remove(&mut self, tree: &mut Tree<'_>, id: EntryId) {
        self.ranks.of(tree, id).remove(tree, id);
    }

    fn victim(&mut self, tree: &Tree<'_>, accept: Accept<'_>) -> Option<Victim> {
        walk::victim(tree, &self.ranks, Rule::LeavesOnly, accept)
    }
}
