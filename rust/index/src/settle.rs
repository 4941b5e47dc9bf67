//! Passes over the whole index: after a recovery, and when a segment is drained.

use crate::Index;
use crate::entry::{EntryId, Tier};
use crate::list::Tree;

impl Index {
    /// After objects were inserted in any order: links every child to its parent and orders both
    /// queues by last use, objects of one tick by sequence, each parent younger than its children.
    ///
    /// One pass over all objects and a sort: about a second for 10 million.
    pub fn settle(&mut self) {
        let ids: Vec<EntryId> = self.iter().map(|(id, _)| id).collect();
        for &id in &ids {
            let prefix = self.slab.entry(id).parent_prefix();
            if prefix != 0
                && self.parent(id).is_none()
                && let Some(parent) = self.table.find_prefix(&self.slab, prefix)
                && parent != id
            {
                self.slab.link(id, parent);
            }
        }
        let mut by_age: Vec<(u32, u64, EntryId)> = ids
            .into_iter()
            .map(|id| {
                (self.now.wrapping_sub(self.last_use(id)), self.slab.entry(id).sequence(), id)
            })
            .collect();
        by_age.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));

        // From the youngest: an object comes directly behind those of its ancestors that have not
        // come yet, so it pulls them up to its own age.
        let mut placed = vec![false; self.slab.positions()];
        let mut order = Vec::with_capacity(by_age.len());
        for (age, _, id) in by_age {
            let start = order.len();
            let mut next = Some(id);
            while let Some(id) = next
                && !std::mem::replace(&mut placed[id.index()], true)
            {
                self.slab.entry_mut(id).last_use = self.now.wrapping_sub(age);
                order.push(id);
                next = self.parent(id);
            }
            order[start..].reverse();
        }
        for tier in Tier::ALL {
            self.policies[tier as usize].touch(&mut Tree::new(&mut self.slab, tier), &order);
        }
    }

    /// The objects given and all that hang below them, parents before children within a chain.
    ///
    /// One pass over all objects, whatever the size of the answer.
    pub fn subtree(&self, roots: &[EntryId]) -> Vec<EntryId> {
        #[derive(Copy, Clone, Eq, PartialEq)]
        enum Place {
            Unknown,
            Inside,
            Outside,
        }
        let mut place = vec![Place::Unknown; self.slab.positions()];
        let mut found = Vec::new();
        for &root in roots {
            if place[root.index()] == Place::Unknown {
                place[root.index()] = Place::Inside;
                found.push(root);
            }
        }
        let mut path = Vec::new();
        for (id, _) in self.iter() {
            let mut next = Some(id);
            while let Some(at) = next
                && place[at.index()] == Place::Unknown
            {
                // Outside until the end of the walk is known; it also ends the walk in a ring.
                place[at.index()] = Place::Outside;
                path.push(at);
                next = self.parent(at);
            }
            let inside = next.is_some_and(|at| place[at.index()] == Place::Inside);
            for at in path.drain(..).rev() {
                if inside {
                    place[at.index()] = Place::Inside;
                    found.push(at);
                }
            }
        }
        found
    }
}
