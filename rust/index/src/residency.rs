//! Where objects are, when they were used, and who has to go.

use crate::Index;
use crate::entry::{Entry, EntryId, Tier, bit};
use crate::list::Tree;
use crate::policy::Victim;

impl Index {
    /// The engine's slot number of an object in a tier. The index only keeps it: a slot may be
    /// set before the object is resident and after it has ceased to be.
    pub fn slot(&self, id: EntryId, tier: Tier) -> Option<u64> {
        self.slab.slot(id, tier)
    }

    /// Sets the slot number: below 2^32 - 1 for the host tier, below 2^40 - 1 for the disk tier.
    ///
    /// # Panics
    /// If the number is larger.
    pub fn set_slot(&mut self, id: EntryId, tier: Tier, slot: Option<u64>) {
        self.slab.set_slot(id, tier, slot);
    }

    /// The object's bytes are in the tier: it may be a victim there from now on. In the queue it
    /// stands directly behind its parent. No effect if it is resident already.
    pub fn add_resident(&mut self, id: EntryId, tier: Tier) {
        debug_assert!(self.slab.is_live(id), "{id:?} was removed");
        if self.slab.add_resident(id, tier) {
            self.policies[tier as usize].admit(&mut Tree::new(&mut self.slab, tier), id);
        }
    }

    /// The object's bytes are no longer in the tier. No effect if they were not.
    pub fn drop_resident(&mut self, id: EntryId, tier: Tier) {
        if self.is_resident(id, tier) {
            self.policies[tier as usize].remove(&mut Tree::new(&mut self.slab, tier), id);
            self.slab.drop_resident(id, tier);
        }
    }

    /// Whether the object's bytes are in the tier.
    pub fn is_resident(&self, id: EntryId, tier: Tier) -> bool {
        self.slab.entry(id).is_resident(tier)
    }

    /// Marks an object as one of the first victims, or as an ordinary one again: windows that no
    /// resume point needs, expired objects.
    pub fn set_unneeded(&mut self, id: EntryId, unneeded: bool) {
        if self.is_unneeded(id) == unneeded {
            return;
        }
        for tier in Tier::ALL {
            if self.is_resident(id, tier) {
                self.policies[tier as usize].remove(&mut Tree::new(&mut self.slab, tier), id);
            }
        }
        self.slab.entry_mut(id).set(bit::FIRST, unneeded);
        for tier in Tier::ALL {
            if self.is_resident(id, tier) {
                self.policies[tier as usize].admit(&mut Tree::new(&mut self.slab, tier), id);
            }
        }
    }

    /// Whether the object is one of the first victims.
    pub fn is_unneeded(&self, id: EntryId) -> bool {
        self.slab.entry(id).has(bit::FIRST)
    }

    /// One look-up used this chain, given from head to tail; what is above its head counts as
    /// used too. Each call is one tick of the clock, also with an empty chain.
    pub fn touch_chain(&mut self, chain: &[EntryId]) {
        self.now = self.now.wrapping_add(1);
        self.path.clear();
        if let Some(&head) = chain.first() {
            self.collect_ancestors(head);
        }
        self.path.extend_from_slice(chain);
        self.renew_path();
    }

    /// Links an object to its parent again, after the parent had been removed and put anew. No
    /// effect if it is linked, or if the parent is not the one that the object names.
    pub fn relink(&mut self, id: EntryId, parent: EntryId) {
        let names_it =
            self.slab.entry(parent).fingerprint.prefix() == self.slab.entry(id).parent_prefix;
        if names_it && id != parent && self.slab.is_live(parent) && self.parent(id).is_none() {
            self.slab.link(id, parent);
            // At the same tick the queue alone knows which is younger, so renewing is cheaper
            // than asking; it happens once a link.
            if !self.is_older(id, parent) {
                self.path.clear();
                self.collect_ancestors(id);
                self.renew_path();
            }
        }
    }

    /// The parent that an object is linked to.
    pub fn parent(&self, id: EntryId) -> Option<EntryId> {
        self.slab.parent(id)
    }

    /// Children that keep an object from being a leaf of a tier: in the host tier those that are
    /// resident there, in the disk tier all that are linked, wherever they are.
    pub fn children(&self, id: EntryId, tier: Tier) -> u32 {
        self.slab.children(id, tier)
    }

    /// The tick at which the object was last used, wrapping. See [`Index::now`].
    pub fn last_use(&self, id: EntryId) -> u32 {
        self.slab.entry(id).last_use
    }

    /// The current tick: the calls of [`Index::touch_chain`] so far, wrapping.
    pub fn now(&self) -> u32 {
        self.now
    }

    /// The next victim of a tier, or `None` if there is none near the old end. `accept` says
    /// whether an object would do. Nothing is removed: that is for the caller, `along` first.
    pub fn victim(
        &mut self,
        tier: Tier,
        accept: &mut dyn FnMut(EntryId, &Entry) -> bool,
    ) -> Option<Victim> {
        self.policies[tier as usize].victim(&Tree::new(&mut self.slab, tier), accept)
    }

    /// Whether `a` was last used at an earlier tick than `b` (the clock wraps).
    fn is_older(&self, a: EntryId, b: EntryId) -> bool {
        let age = |id| self.now.wrapping_sub(self.last_use(id));
        age(a) > age(b)
    }

    /// Makes the chain above an object as young as anything, unless it is of this tick already: a
    /// parent is never older than its children.
    pub(crate) fn renew_ancestors(&mut self, id: EntryId) {
        if self.parent(id).is_some_and(|parent| self.last_use(parent) != self.now) {
            self.path.clear();
            self.collect_ancestors(id);
            self.renew_path();
        }
    }

    /// Appends the ancestors of an object to the path, head first.
    fn collect_ancestors(&mut self, id: EntryId) {
        let start = self.path.len();
        let mut at = id;
        // Fingerprints are hashes over the chain, so links cannot close a ring; a bound by the
        // number of objects costs nothing and holds whatever a damaged descriptor says.
        while let Some(parent) = self.parent(at)
            && self.path.len() <= self.live
        {
            self.path.push(parent);
            at = parent;
        }
        self.path[start..].reverse();
    }

    /// The entries of the path, head to tail, were used now.
    fn renew_path(&mut self) {
        let Index { slab, policies, path, now, .. } = self;
        for &id in path.iter() {
            slab.entry_mut(id).last_use = *now;
        }
        for tier in Tier::ALL {
            policies[tier as usize].touch(&mut Tree::new(slab, tier), path);
        }
    }
}
