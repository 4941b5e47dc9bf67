//! Plain least recently used: the head of a chain is its oldest block, and goes first.

use crate::entry::EntryId;
use crate::list::Tree;
use crate::policy::ranks::Ranks;
use crate::policy::walk::{self, Rule};
use crate::policy::{Accept, Policy, Victim};

pub(crate) struct Lru {
    ranks: Ranks,
}

impl Lru {
    pub(crate) const fn new() -> Lru {
        Lru { ranks: Ranks::new() }
    }
}

impl Policy for Lru {
    fn admit(&mut self, tree: &mut Tree<'_>, id: EntryId) {
        self.ranks.of(tree, id).push_youngest(tree, id);
    }

    fn touch(&mut self, tree: &mut Tree<'_>, chain: &[EntryId]) {
        for &id in chain {
            if tree.is_resident(id) {
                self.ranks.renew(tree, id);
            }
        }
    }

    fn remove(&mut self, tree: &mut Tree<'_>, id: EntryId) {
        self.ranks.of(tree, id).remove(tree, id);
    }

    fn victim(&mut self, tree: &Tree<'_>, accept: Accept<'_>) -> Option<Victim> {
        walk::victim(tree, &self.ranks, Rule::Any, accept)
    }
}
