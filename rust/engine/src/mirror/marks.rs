//! Workers and their marks. Under the store's mutex, so plain data.

use super::table::Table;
use kvstore_index::Fingerprint;
use std::fmt;

/// Bits of a mark's number that are the slot; above them the worker.
const SLOT_BITS: u32 = 24;
/// What a slot without a block carries. No key begins with 128 zero bits but by chance of 2^-128.
const NO_BLOCK: Fingerprint = Fingerprint([0; 16]);

/// A worker of the serving engine under one epoch: what it marks and asks under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Worker {
    id: u8,
    epoch: u64,
}

impl Worker {
    /// Largest id of a worker.
    pub const MAX_ID: u8 = 254;
    /// Most slots of one worker.
    pub const MAX_SLOTS: usize = (1 << SLOT_BITS) - 1;

    /// The id that it joined with.
    pub fn id(self) -> u8 {
        self.id
    }

    /// The number of its join; each join of a store has its own.
    pub fn epoch(self) -> u64 {
        self.epoch
    }
}

/// The mirror at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MirrorStats {
    /// Slots that all workers may have together.
    pub limit: u64,
    /// Memory that is set aside for that, bytes; part of `host_bytes`.
    pub bytes: u64,
    /// Workers that have joined.
    pub workers: u64,
    /// Their slots.
    pub slots: u64,
    /// Slots that are marked as holding a block.
    pub marks: u64,
    /// Calls of workers whose epoch was over: nothing was changed.
    pub stale: u64,
}

/// Slots of one worker.
struct Slots {
    epoch: u64,
    /// Lost, and not yet cleaned up: its marks are seen by nobody.
    leaving: bool,
    blocks: Vec<Fingerprint>,
    marks: u64,
}

/// All marks of all workers.
pub(crate) struct Mirror {
    limit: usize,
    table: Table,
    /// By id.
    workers: Vec<Option<Slots>>,
    epoch: u64,
    stale: u64,
}

/// Why a worker cannot join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoSlots {
    /// Slots that are left.
    pub(crate) left: usize,
    /// Slots in all.
    pub(crate) limit: usize,
}

impl fmt::Display for NoSlots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the mirror has {} of {} slots left", self.left, self.limit)
    }
}

impl Mirror {
    pub(crate) fn new(limit: usize) -> Self {
        let (table, workers) = (Table::new(limit), Vec::new());
        Self { limit, table, workers, epoch: 0, stale: 0 }
    }

    /// Bytes that a mirror of so many slots takes at most.
    pub(crate) const fn bytes_for(limit: usize) -> usize {
        Table::bytes_for(limit) + limit * size_of::<Fingerprint>()
    }

    pub(crate) fn stats(&self) -> MirrorStats {
        let workers = || self.workers.iter().flatten();
        MirrorStats {
            limit: self.limit as u64,
            bytes: Self::bytes_for(self.limit) as u64,
            workers: workers().filter(|slots| !slots.leaving).count() as u64,
            slots: workers().map(|slots| slots.blocks.len() as u64).sum(),
            marks: workers().filter(|slots| !slots.leaving).map(|slots| slots.marks).sum(),
            stale: self.stale,
        }
    }

    /// Adds a worker that [`Mirror::leave`] has seen gone.
    pub(crate) fn join(&mut self, id: u8, slots: usize) -> Result<Worker, NoSlots> {
        let used: usize = self.workers.iter().flatten().map(|slots| slots.blocks.len()).sum();
        let left = self.limit - used;
        if slots > left {
            return Err(NoSlots { left, limit: self.limit });
        }
        let at = usize::from(id);
        if self.workers.len() <= at {
            self.workers.resize_with(at + 1, || None);
        }
        self.epoch += 1;
        let blocks = vec![NO_BLOCK; slots];
        self.workers[at] = Some(Slots { epoch: self.epoch, leaving: false, blocks, marks: 0 });
        Ok(Worker { id, epoch: self.epoch })
    }

    /// Ends a worker, under the epoch given or whichever it has: its marks are seen by nobody from
    /// now on, and at most `most` of its slots are cleaned up. True when it has gone; until then the
    /// caller comes back, so that nobody waits long for the store's mutex.
    pub(crate) fn leave(&mut self, id: u8, epoch: Option<u64>, most: usize) -> bool {
        let at = usize::from(id);
        let Some(Some(slots)) = self.workers.get_mut(at) else { return true };
        if epoch.is_some_and(|epoch| epoch != slots.epoch) {
            return true;
        }
        slots.leaving = true;
        let left = slots.blocks.len().saturating_sub(most);
        for slot in (left..slots.blocks.len()).rev() {
            self.unmark(at, slot);
        }
        let Some(slots) = &mut self.workers[at] else { return true };
        slots.blocks.truncate(left);
        if left == 0 {
            self.workers[at] = None;
        }
        left == 0
    }

    /// The epoch of the worker that has this id.
    pub(crate) fn epoch_of(&self, id: u8) -> Option<u64> {
        self.workers.get(usize::from(id))?.as_ref().map(|slots| slots.epoch)
    }

    /// Slots of a worker whose epoch is not over; counts it if it is.
    pub(crate) fn slots_of(&mut self, worker: Worker) -> Option<usize> {
        let slots = self.live(worker).map(|slots| slots.blocks.len());
        self.stale += u64::from(slots.is_none());
        slots
    }

    /// Marks a slot of a live worker, below its number of slots, as holding a block.
    pub(crate) fn insert(&mut self, worker: Worker, block: &Fingerprint, slot: usize) {
        let at = usize::from(worker.id);
        if let Some(old) = self.slot_of(worker, block) {
            if old == slot {
                return;
            }
            self.unmark(at, old);
        }
        self.unmark(at, slot);
        if let Some(slots) = &mut self.workers[at] {
            slots.blocks[slot] = *block;
            slots.marks += 1;
            self.table.insert(block.prefix(), number(at, slot));
        }
    }

    /// Takes a live worker's mark of a block away; false if there was none.
    pub(crate) fn remove(&mut self, worker: Worker, block: &Fingerprint) -> bool {
        let slot = self.slot_of(worker, block);
        if let Some(slot) = slot {
            self.unmark(usize::from(worker.id), slot);
        }
        slot.is_some()
    }

    /// The slot in which a worker holds a block; none once its epoch is over.
    pub(crate) fn slot_of(&self, worker: Worker, block: &Fingerprint) -> Option<usize> {
        let mine = self.live(worker)?;
        let found = self.table.find(block.prefix(), |mark| {
            let (at, slot) = place(mark);
            at == usize::from(worker.id) && mine.blocks[slot] == *block
        });
        found.map(|mark| place(mark).1)
    }

    /// Whether any worker holds a block.
    pub(crate) fn holds(&self, block: &Fingerprint) -> bool {
        let held = |mark| {
            let (at, slot) = place(mark);
            let slots = self.workers[at].as_ref().filter(|slots| !slots.leaving);
            slots.is_some_and(|slots| slots.blocks[slot] == *block)
        };
        self.table.find(block.prefix(), held).is_some()
    }

    fn live(&self, worker: Worker) -> Option<&Slots> {
        let slots = self.workers.get(usize::from(worker.id))?.as_ref()?;
        (slots.epoch == worker.epoch && !slots.leaving).then_some(slots)
    }

    /// Empties a slot; no effect if it is empty.
    fn unmark(&mut self, at: usize, slot: usize) {
        let Self { table, workers, .. } = self;
        let block = match &workers[at] {
            Some(slots) if slots.blocks[slot] != NO_BLOCK => slots.blocks[slot],
            _ => return,
        };
        table.remove(block.prefix(), number(at, slot), |mark| {
            let (at, slot) = place(mark);
            workers[at].as_ref().map_or(0, |slots| slots.blocks[slot].prefix())
        });
        if let Some(slots) = &mut workers[at] {
            slots.blocks[slot] = NO_BLOCK;
            slots.marks -= 1;
        }
    }
}

/// A mark's number.
fn number(at: usize, slot: usize) -> u32 {
    (at as u32) << SLOT_BITS | slot as u32
}

/// Worker and slot of a mark.
fn place(mark: u32) -> (usize, usize) {
    ((mark >> SLOT_BITS) as usize, (mark & ((1 << SLOT_BITS) - 1)) as usize)
}

#[cfg(test)]
#[path = "marks_tests.rs"]
mod tests;
