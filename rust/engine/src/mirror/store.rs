//! The mirror as a store's callers see it.

use super::marks::{MirrorStats, Worker};
use crate::error::{Error, ErrorKind, Result};
use crate::identity::Key;
use crate::store::Store;
use kvstore_index::Fingerprint;

/// Slots cleaned up, and keys taken, under one hold of the store's mutex.
const AT_ONCE: usize = 4096;

/// Which tiers hold a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tiers {
    /// Some worker holds it in HBM.
    pub mirror: bool,
    /// It is in host memory.
    pub host: bool,
    /// It is on disk and may be read from there.
    pub disk: bool,
}

/// What the serving engine holds; see [`Store::mirror`].
#[derive(Clone, Copy)]
pub struct StoreMirror<'a>(&'a Store);

impl Store {
    /// The mirror of this store.
    pub fn mirror(&self) -> StoreMirror<'_> {
        StoreMirror(self)
    }
}

impl StoreMirror<'_> {
    /// A worker with `slots` slots joins, under an epoch of its own. If one of this id is there it
    /// is taken for lost, and its marks are dropped.
    ///
    /// # Errors
    /// An id above [`Worker::MAX_ID`]; no slots, or more than are left of `mirror_slots`; a closed
    /// store.
    pub fn join(self, id: u8, slots: usize) -> Result<Worker> {
        self.0.check_open()?;
        if id > Worker::MAX_ID {
            return Err(Error::invalid(format!(
                "worker is {id}, from 0 to {} are possible",
                Worker::MAX_ID
            )));
        }
        if !(1..=Worker::MAX_SLOTS).contains(&slots) {
            return Err(Error::invalid(format!(
                "slots is {slots}, a worker has from 1 to {}",
                Worker::MAX_SLOTS
            )));
        }
        loop {
            let mut state = self.0.shared.state.lock();
            if state.mirror.leave(id, None, AT_ONCE) {
                return state.mirror.join(id, slots).map_err(|no| {
                    let why = format!("worker {id} wants {slots} slots: {no} (mirror_slots)");
                    Error::new(ErrorKind::Limit, why)
                });
            }
        }
    }

    /// Marks blocks as held by a worker, each in the slot of the same index; the answer is the
    /// number of them, which is 0 when the worker's epoch is over. A slot that held another block
    /// holds this one, a block that was in another slot of the worker has moved.
    ///
    /// # Errors
    /// Unequal lengths; a slot that the worker has not got; nothing has changed then.
    pub fn insert(self, keys: &[Key], slots: &[u32], worker: Worker) -> Result<usize> {
        if keys.len() != slots.len() {
            return Err(Error::invalid(format!(
                "slots has {} items for {} keys",
                slots.len(),
                keys.len()
            )));
        }
        let Some(count) = self.0.shared.state.lock().mirror.slots_of(worker) else { return Ok(0) };
        if let Some(at) = slots.iter().position(|&slot| slot as usize >= count) {
            return Err(Error::invalid(format!(
                "slots[{at}] is {}, worker {} has {count}",
                slots[at],
                worker.id()
            )));
        }
        let mut done = 0;
        for (keys, slots) in keys.chunks(AT_ONCE).zip(slots.chunks(AT_ONCE)) {
            let mut state = self.0.shared.state.lock();
            if state.mirror.slots_of(worker).is_none() {
                break;
            }
            for (key, &slot) in keys.iter().zip(slots) {
                state.mirror.insert(worker, &block(key), slot as usize);
            }
            done += keys.len();
        }
        Ok(done)
    }

    /// A worker no longer holds these blocks; the number of marks that went.
    pub fn remove(self, keys: &[Key], worker: Worker) -> usize {
        let mut gone = 0;
        for keys in keys.chunks(AT_ONCE) {
            let mut state = self.0.shared.state.lock();
            if state.mirror.slots_of(worker).is_none() {
                break;
            }
            gone += keys.iter().filter(|key| state.mirror.remove(worker, &block(key))).count();
        }
        gone
    }

    /// Whether a worker holds each block; without one, whether any does.
    pub fn contains(self, keys: &[Key], worker: Option<Worker>) -> Vec<bool> {
        let state = self.0.shared.state.lock();
        let held = |key| match worker {
            Some(worker) => state.mirror.slot_of(worker, &block(key)).is_some(),
            None => state.mirror.holds(&block(key)),
        };
        keys.iter().map(held).collect()
    }

    /// A worker of this id is lost, and its marks with it.
    pub fn drop_worker(self, id: u8) {
        let epoch = self.0.shared.state.lock().mirror.epoch_of(id);
        self.leave(id, epoch);
    }

    /// A worker ends. Nothing happens if it has been replaced by one of the same id.
    pub fn end(self, worker: Worker) {
        self.leave(worker.id(), Some(worker.epoch()));
    }

    /// What the mirror holds now.
    pub fn stats(self) -> MirrorStats {
        self.0.shared.state.lock().mirror.stats()
    }

    fn leave(self, id: u8, epoch: Option<u64>) {
        while !self.0.shared.state.lock().mirror.leave(id, epoch, AT_ONCE) {}
    }
}

fn block(key: &Key) -> Fingerprint {
    Fingerprint(key.fingerprint())
}
