//! The entries, their references, and the links of the prefix tree.
//!
//! A child names its parent by slab position; the link counts only while the parent's generation
//! and fingerprint agree. So removing a parent unlinks all its children at no cost, and no child
//! has to be looked for.

use std::collections::HashMap;

use crate::entry::{Entry, EntryId, Freed, HostSide, Links, NONE, NewEntry, Tier, bit};

pub(crate) struct Slab {
    entries: Vec<Entry>,
    capacity: usize,
    free: u32,
    /// Positions taken: by live entries, and by dead ones that are still referenced.
    used: usize,
    hosts: Vec<HostSide>,
    free_host: u32,
    /// References of entries that have 255 or more.
    crowded: HashMap<EntryId, u32>,
}

/// [`Entry::refs`] of an entry whose count is in [`Slab::crowded`].
const CROWDED: u8 = u8::MAX;

impl Slab {
    pub(crate) fn new(capacity: usize, host_capacity: usize) -> Slab {
        Slab {
            entries: Vec::with_capacity(capacity),
            capacity,
            free: NONE,
            used: 0,
            hosts: Vec::with_capacity(host_sides(host_capacity)),
            free_host: NONE,
            crowded: HashMap::new(),
        }
    }

    pub(crate) const fn bytes_for(capacity: usize, host_capacity: usize) -> usize {
        capacity * size_of::<Entry>() + host_sides(host_capacity) * size_of::<HostSide>()
    }

    pub(crate) fn region(&self) -> (*const u8, usize) {
        (self.entries.as_ptr().cast(), self.entries.capacity() * size_of::<Entry>())
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
            + self.hosts.capacity() * size_of::<HostSide>()
            + self.crowded.capacity() * size_of::<(EntryId, u32)>()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    /// Positions ever used; all entries are below.
    pub(crate) fn positions(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub(crate) fn entry(&self, id: EntryId) -> &Entry {
        &self.entries[id.index()]
    }

    #[inline]
    pub(crate) fn entry_mut(&mut self, id: EntryId) -> &mut Entry {
        &mut self.entries[id.index()]
    }

    #[inline]
    pub(crate) fn is_live(&self, id: EntryId) -> bool {
        self.entries.get(id.index()).is_some_and(|e| !e.has(bit::DEAD | bit::FREE))
    }

    /// A position for a new entry, or `None` when all are taken.
    pub(crate) fn alloc(&mut self, new: &NewEntry, now: u32) -> Option<EntryId> {
        if self.used == self.capacity {
            return None;
        }
        self.used += 1;
        if self.free == NONE {
            self.entries.push(Entry::new(new, 0, now));
            return Some(EntryId(self.entries.len() as u32 - 1));
        }
        let id = EntryId(self.free);
        let place = self.entry_mut(id);
        let next = place.parent;
        *place = Entry::new(new, place.generation, now);
        self.free = next;
        Some(id)
    }

    /// Gives the position back. The entry is unlinked, in no queue and unreferenced.
    pub(crate) fn free(&mut self, id: EntryId) -> Freed {
        let entry = self.entry(id).clone();
        debug_assert!(entry.refs == 0 && !entry.has(bit::FREE));
        let freed = Freed {
            host: self.slot(id, Tier::Host).map(|slot| slot as u32),
            disk: entry.disk_slot(),
            entry,
        };
        self.set_slot(id, Tier::Host, None);
        let next = self.free;
        let place = self.entry_mut(id);
        place.bits = bit::FREE;
        place.generation = place.generation.wrapping_add(1);
        place.parent = next;
        self.free = id.0;
        self.used -= 1;
        freed
    }

    // References.

    pub(crate) fn refs(&self, id: EntryId) -> u32 {
        match self.entry(id).refs {
            CROWDED => self.crowded.get(&id).copied().unwrap_or(u32::from(CROWDED)),
            refs => u32::from(refs),
        }
    }

    pub(crate) fn acquire(&mut self, id: EntryId) {
        let entry = self.entry_mut(id);
        assert!(!entry.has(bit::FREE), "acquire of a freed entry {id:?}");
        if entry.refs < CROWDED - 1 {
            entry.refs += 1;
        } else {
            entry.refs = CROWDED;
            *self.crowded.entry(id).or_insert(u32::from(CROWDED) - 1) += 1;
        }
    }

    /// Takes one reference back and says how many are left.
    pub(crate) fn release(&mut self, id: EntryId) -> u32 {
        let refs = self.refs(id);
        assert!(refs > 0, "release of an unreferenced entry {id:?}");
        let left = refs - 1;
        if left >= u32::from(CROWDED) {
            self.crowded.insert(id, left);
        } else {
            if self.entry(id).refs == CROWDED {
                self.crowded.remove(&id);
            }
            self.entry_mut(id).refs = left as u8;
        }
        left
    }

    // Slots and residency.

    pub(crate) fn slot(&self, id: EntryId, tier: Tier) -> Option<u64> {
        match tier {
            Tier::Disk => self.entry(id).disk_slot(),
            Tier::Host => {
                self.host(id).map(|side| side.slot).filter(|&slot| slot != NONE).map(u64::from)
            }
        }
    }

    pub(crate) fn set_slot(&mut self, id: EntryId, tier: Tier, slot: Option<u64>) {
        match (tier, slot) {
            (Tier::Disk, slot) => self.entry_mut(id).set_disk_slot(slot),
            (Tier::Host, Some(slot)) => {
                assert!(slot < u64::from(NONE), "host slot {slot} does not fit 32 bits");
                self.host_mut(id).slot = slot as u32;
            }
            (Tier::Host, None) => {
                if self.host(id).is_some() {
                    self.host_mut(id).slot = NONE;
                    self.prune_host(id);
                }
            }
        }
    }

    /// Marks the entry resident and counts it with its parent. False if it already was.
    pub(crate) fn add_resident(&mut self, id: EntryId, tier: Tier) -> bool {
        if self.entry(id).is_resident(tier) {
            return false;
        }
        self.entry_mut(id).set(bit::RESIDENT << tier as u8, true);
        if tier == Tier::Host {
            self.host_mut(id).links = Links::NONE;
            if let Some(parent) = self.parent(id) {
                self.host_mut(parent).children += 1;
            }
        }
        true
    }

    pub(crate) fn drop_resident(&mut self, id: EntryId, tier: Tier) {
        self.entry_mut(id).set(bit::RESIDENT << tier as u8, false);
        if tier == Tier::Host {
            self.prune_host(id);
            if let Some(parent) = self.parent(id) {
                self.drop_host_child(parent);
            }
        }
    }

    // The prefix tree.

    /// The parent that counts this entry among its children.
    #[inline]
    pub(crate) fn parent(&self, id: EntryId) -> Option<EntryId> {
        let entry = self.entry(id);
        if entry.parent == NONE || entry.has(bit::DEAD | bit::FREE) {
            return None;
        }
        let parent = EntryId(entry.parent);
        let it = self.entry(parent);
        (it.generation == entry.parent_generation
            && it.fingerprint.prefix() == entry.parent_prefix
            && !it.has(bit::DEAD | bit::FREE))
        .then_some(parent)
    }

    /// Children that keep this entry from being a leaf: in the host tier the host-resident ones,
    /// in the disk tier all that are linked (a disk leaf with host children is not a leaf, and a
    /// child that is resident nowhere is on its way).
    #[inline]
    pub(crate) fn children(&self, id: EntryId, tier: Tier) -> u32 {
        match tier {
            Tier::Disk => self.entry(id).children(),
            Tier::Host => self.host(id).map_or(0, |side| side.children),
        }
    }

    pub(crate) fn link(&mut self, id: EntryId, parent: EntryId) {
        let generation = self.entry(parent).generation;
        let entry = self.entry_mut(id);
        entry.parent = parent.0;
        entry.parent_generation = generation;
        let in_host = entry.is_resident(Tier::Host);
        self.entry_mut(parent).add_child();
        if in_host {
            self.host_mut(parent).children += 1;
        }
    }

    pub(crate) fn unlink(&mut self, id: EntryId) {
        if let Some(parent) = self.parent(id) {
            self.entry_mut(parent).drop_child();
            if self.entry(id).is_resident(Tier::Host) {
                self.drop_host_child(parent);
            }
        }
        self.entry_mut(id).parent = NONE;
    }

    /// Takes the entry out of the tree: from now on no link to or from it counts.
    pub(crate) fn kill(&mut self, id: EntryId) {
        self.unlink(id);
        self.entry_mut(id).set(bit::DEAD, true);
        if self.host(id).is_some() {
            self.host_mut(id).children = 0;
            self.prune_host(id);
        }
    }

    // Queue links.

    #[inline]
    pub(crate) fn links(&self, id: EntryId, tier: Tier) -> Links {
        match tier {
            Tier::Disk => self.entry(id).disk_links,
            Tier::Host => self.host(id).map_or(Links::NONE, |side| side.links),
        }
    }

    #[inline]
    pub(crate) fn links_mut(&mut self, id: EntryId, tier: Tier) -> &mut Links {
        match tier {
            Tier::Disk => &mut self.entry_mut(id).disk_links,
            Tier::Host => &mut self.host_mut(id).links,
        }
    }

    // Host sides.

    #[inline]
    fn host(&self, id: EntryId) -> Option<&HostSide> {
        self.hosts.get(self.entry(id).host as usize)
    }

    /// The host side of an entry, made if there is none.
    fn host_mut(&mut self, id: EntryId) -> &mut HostSide {
        let mut at = self.entry(id).host;
        if at == NONE {
            let new = HostSide { slot: NONE, children: 0, links: Links::NONE };
            if self.free_host == NONE {
                at = self.hosts.len() as u32;
                self.hosts.push(new);
            } else {
                at = self.free_host;
                self.free_host = self.hosts[at as usize].slot;
                self.hosts[at as usize] = new;
            }
            self.entry_mut(id).host = at;
        }
        &mut self.hosts[at as usize]
    }

    fn drop_host_child(&mut self, parent: EntryId) {
        let side = self.host_mut(parent);
        debug_assert!(side.children > 0, "host children of {parent:?} below zero");
        side.children = side.children.saturating_sub(1);
        self.prune_host(parent);
    }

    /// Gives a host side back that says nothing.
    fn prune_host(&mut self, id: EntryId) {
        let entry = self.entry(id);
        let (at, resident) = (entry.host, entry.is_resident(Tier::Host));
        let Some(side) = self.hosts.get_mut(at as usize) else { return };
        if side.slot == NONE && side.children == 0 && !resident {
            side.slot = self.free_host;
            self.free_host = at;
            self.entry_mut(id).host = NONE;
        }
    }
}

/// Each host-resident object has a side, and at most one parent that has one only for its sake.
const fn host_sides(host_capacity: usize) -> usize {
    host_capacity.saturating_mul(2)
}
