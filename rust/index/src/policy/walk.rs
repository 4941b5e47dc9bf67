//! The search for a victim from the old end.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use crate::entry::EntryId;
use crate::list::Tree;
use crate::policy::ranks::Ranks;
use crate::policy::{Accept, Victim};

/// Entries looked at before the search gives up: a put is answered, never delayed without bound.
pub(crate) const MAX_WALK: usize = 4096;

/// Which entries may be victims at all.
#[derive(Copy, Clone, Eq, PartialEq)]
pub(crate) enum Rule {
    LeavesOnly,
    Any,
}

/// The oldest unpinned entry that the rule allows and `accept` takes.
///
/// A leaf that is not accepted is passed over as if it were gone: once all children of an entry
/// have been passed over it counts as a leaf too, and when it is accepted they go along.
pub(crate) fn victim(
    tree: &Tree<'_>,
    ranks: &Ranks,
    rule: Rule,
    accept: Accept<'_>,
) -> Option<Victim> {
    let mut passed = Passed::default();
    let mut walked = 0;
    for list in ranks.lists() {
        let mut next = list.oldest();
        while let Some(id) = next {
            if walked == MAX_WALK {
                return None;
            }
            walked += 1;
            next = tree.younger(id);
            if tree.is_pinned(id)
                || rule == Rule::LeavesOnly && tree.children(id) > passed.children(id)
            {
                continue;
            }
            if accept(id, tree.entry(id)) {
                return Some(Victim { id, along: passed.below(tree, id) });
            }
            if rule == Rule::LeavesOnly && tree.may_go_along(id) {
                passed.add(tree, id);
            }
        }
    }
    None
}

/// Leaves that were passed over, in the order of the walk: children before their parents.
#[derive(Default)]
struct Passed {
    ids: Vec<EntryId>,
    children: HashMap<EntryId, u32, BuildHasherDefault<IdHasher>>,
}

impl Passed {
    fn add(&mut self, tree: &Tree<'_>, id: EntryId) {
        if let Some(parent) = tree.parent(id) {
            self.ids.push(id);
            *self.children.entry(parent).or_insert(0) += 1;
        }
    }

    fn children(&self, id: EntryId) -> u32 {
        if self.ids.is_empty() { 0 } else { self.children.get(&id).copied().unwrap_or(0) }
    }

    /// The passed descendants of an entry, children before parents.
    fn below(&self, tree: &Tree<'_>, id: EntryId) -> Vec<EntryId> {
        if self.children(id) == 0 {
            return Vec::new();
        }
        let mut inside: HashSet<EntryId, BuildHasherDefault<IdHasher>> = HashSet::from_iter([id]);
        let mut along: Vec<EntryId> = self
            .ids
            .iter()
            .rev()
            .copied()
            .filter(|&id| {
                let is_below = tree.parent(id).is_some_and(|p| inside.contains(&p));
                if is_below {
                    inside.insert(id);
                }
                is_below
            })
            .collect();
        along.reverse();
        along
    }
}

/// Slab positions need no strong hash, only spread bits.
#[derive(Default)]
struct IdHasher(u64);

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    fn write_u32(&mut self, id: u32) {
        self.0 = (self.0 ^ u64::from(id)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32);
    }
}
