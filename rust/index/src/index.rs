//! The index: what comes, what goes, and how it is found.

use std::fmt;
use std::ops;

use crate::Fingerprint;
use crate::entry::{Entry, EntryId, Freed, Handle, NewEntry, Tier, bit};
use crate::policy::{Policy, PolicyKind};
use crate::slab::Slab;
use crate::table::Table;

/// All objects of a store by fingerprint, the prefix tree over them, and each tier's order of
/// eviction. See the crate's documentation.
pub struct Index {
    pub(crate) slab: Slab,
    pub(crate) table: Table,
    /// By [`Tier`].
    pub(crate) policies: [Box<dyn Policy>; 2],
    /// Look-ups so far, wrapping: the clock of [`Index::last_use`].
    pub(crate) now: u32,
    pub(crate) live: usize,
    /// Scratch of the walks up the tree.
    pub(crate) path: Vec<EntryId>,
}

/// The index holds as many objects as it was made for.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Full {
    /// That number.
    pub capacity: usize,
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the index is full: it holds {} objects", self.capacity)
    }
}

impl std::error::Error for Full {}

/// What a [`Index::release`] left behind.
#[derive(Clone, Debug)]
pub enum Released {
    /// Other references remain.
    Live,
    /// The last reference of an entry that is still in the index.
    LastOfLive,
    /// The last reference of an entry that had been removed: it is gone now.
    Freed(Freed),
}

impl Index {
    /// An index for at most `objects` objects, of which about `host_objects` are in the host tier
    /// at a time (more than that only grows an array), with a policy for each [`Tier`].
    ///
    /// # Panics
    /// If `objects` is not below 2^32 - 1.
    pub fn new(objects: usize, host_objects: usize, policies: [PolicyKind; 2]) -> Index {
        assert!(objects < u32::MAX as usize, "{objects} objects, at most 4294967294 are possible");
        Index {
            slab: Slab::new(objects, host_objects),
            table: Table::new(objects),
            policies: policies.map(PolicyKind::build),
            now: 0,
            live: 0,
            path: Vec::new(),
        }
    }

    /// Bytes that [`Index::new`] would reserve.
    pub const fn bytes_for(objects: usize, host_objects: usize) -> usize {
        Slab::bytes_for(objects, host_objects) + Table::bytes_for(objects)
    }

    /// Bytes reserved now.
    pub fn memory_bytes(&self) -> usize {
        self.slab.memory_bytes() + self.table.memory_bytes()
    }

    /// Address and bytes of the two large allocations, untouched after [`Index::new`] and in place
    /// for the life of the index: for whoever may ask the kernel for huge pages, which halve the
    /// time of a look-up among millions.
    pub fn regions(&self) -> [(*const u8, usize); 2] {
        [self.slab.region(), self.table.region()]
    }

    /// Objects that can be found.
    pub fn len(&self) -> usize {
        self.live
    }

    /// Whether no object can be found.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Objects that fit, those included that were removed and are still referenced.
    pub fn capacity(&self) -> usize {
        self.slab.capacity()
    }

    /// The object with this fingerprint, resident or on its way.
    pub fn find(&self, key: &Fingerprint) -> Option<EntryId> {
        self.table.find(&self.slab, key)
    }

    /// `out[i] = find(keys[i])`, with the memory latency of one key hidden behind the others'.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn find_batch(&self, keys: &[Fingerprint], out: &mut [Option<EntryId>]) {
        assert_eq!(keys.len(), out.len(), "keys and out must be equally long");
        self.table.find_batch(&self.slab, keys, out);
    }

    /// Adds an object that is absent. It links to its parent if that is present; the chain above
    /// it counts as used now. It is resident nowhere yet.
    ///
    /// # Errors
    /// [`Full`]; nothing has changed then.
    pub fn insert(&mut self, new: &NewEntry) -> Result<EntryId, Full> {
        debug_assert!(self.find(&new.fingerprint).is_none(), "{:?} is present", new.fingerprint);
        let full = Full { capacity: self.capacity() };
        let id = self.slab.alloc(new, self.now).ok_or(full)?;
        if new.parent_prefix != 0
            && let Some(parent) = self.table.find_prefix(&self.slab, new.parent_prefix)
        {
            self.slab.link(id, parent);
            self.renew_ancestors(id);
        }
        self.table.insert(&new.fingerprint, id);
        self.live += 1;
        Ok(id)
    }

    /// Takes an object out of the table, the queues and the tree at once. Its children are
    /// unlinked: they keep age and depth, and become reachable when it is put again (INV-6). Gives
    /// back what is left, unless the entry is referenced: then it lives on, dead, until the last
    /// [`Index::release`] gives it back.
    pub fn remove(&mut self, id: EntryId) -> Option<Freed> {
        assert!(self.slab.is_live(id), "{id:?} was removed before");
        for tier in Tier::ALL {
            self.drop_resident(id, tier);
        }
        let key = *self.slab.entry(id).fingerprint();
        self.table.remove(&self.slab, &key, id);
        self.slab.kill(id);
        self.live -= 1;
        (self.slab.refs(id) == 0).then(|| self.slab.free(id))
    }

    /// Adds a reference: a pin, or an I/O in flight. An entry with references is never a victim,
    /// and its memory is never reused.
    pub fn acquire(&mut self, id: EntryId) {
        self.slab.acquire(id);
    }

    /// Takes one reference back.
    ///
    /// # Panics
    /// If the entry has none: a reference is given back exactly once.
    pub fn release(&mut self, id: EntryId) -> Released {
        match self.slab.release(id) {
            0 if self.is_dead(id) => Released::Freed(self.slab.free(id)),
            0 => Released::LastOfLive,
            _ => Released::Live,
        }
    }

    /// References held now.
    pub fn refs(&self, id: EntryId) -> u32 {
        self.slab.refs(id)
    }

    /// Whether the object was removed and only its references keep the entry.
    pub fn is_dead(&self, id: EntryId) -> bool {
        self.slab.entry(id).has(bit::DEAD)
    }

    /// A handle to keep without a reference.
    pub fn handle(&self, id: EntryId) -> Handle {
        let entry = self.slab.entry(id);
        Handle { id, generation: entry.generation, prefix: entry.fingerprint.prefix() }
    }

    /// The entry of a handle, if its object is still in the index.
    pub fn resolve(&self, handle: Handle) -> Option<EntryId> {
        (self.slab.is_live(handle.id) && self.handle(handle.id) == handle).then_some(handle.id)
    }

    /// The object at a slab position ([`EntryId::index`]), if there is one.
    pub fn at(&self, position: usize) -> Option<EntryId> {
        let id = EntryId(u32::try_from(position).ok()?);
        (position < self.slab.positions() && self.slab.is_live(id)).then_some(id)
    }

    /// All objects, in no useful order.
    pub fn iter(&self) -> impl Iterator<Item = (EntryId, &Entry)> {
        (0..self.slab.positions() as u32)
            .map(EntryId)
            .filter(|&id| self.slab.is_live(id))
            .map(|id| (id, self.slab.entry(id)))
    }
}

impl ops::Index<EntryId> for Index {
    type Output = Entry;

    fn index(&self, id: EntryId) -> &Entry {
        self.slab.entry(id)
    }
}

impl ops::IndexMut<EntryId> for Index {
    fn index_mut(&mut self, id: EntryId) -> &mut Entry {
        self.slab.entry_mut(id)
    }
}

impl fmt::Debug for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index")
            .field("len", &self.live)
            .field("capacity", &self.capacity())
            .field("memory_bytes", &self.memory_bytes())
            .finish_non_exhaustive()
    }
}
