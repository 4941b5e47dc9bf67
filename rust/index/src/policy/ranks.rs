//! Two lists: the first victims, and the rest.

use crate::entry::EntryId;
use crate::list::{List, Tree};

/// Lists in the order in which a victim is looked for.
#[derive(Debug)]
pub(crate) struct Ranks {
    first: List,
    rest: List,
}

impl Ranks {
    pub(crate) const fn new() -> Ranks {
        Ranks { first: List::new(), rest: List::new() }
    }

    /// Both lists, first victims first.
    pub(crate) fn lists(&self) -> [&List; 2] {
        [&self.first, &self.rest]
    }

    /// The list that holds, or is to hold, the entry.
    pub(crate) fn of(&mut self, tree: &Tree<'_>, id: EntryId) -> &mut List {
        if tree.is_first(id) { &mut self.first } else { &mut self.rest }
    }

    /// Makes the entry the youngest of its list.
    pub(crate) fn renew(&mut self, tree: &mut Tree<'_>, id: EntryId) {
        let list = self.of(tree, id);
        list.remove(tree, id);
        list.push_youngest(tree, id);
    }
}
