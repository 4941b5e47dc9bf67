//! Puts of objects in parts: part 0 decides who is first, the others are written before it.

use super::batch::{Reason, Status};
use super::manifest::Manifest;
use super::meta::bit;
use super::put::{Found, Object, Put};
use super::room::NoRoom;
use super::state::State;
use crate::disk::descriptor::flag;
use crate::host::copy::checksum;
use crate::identity::{Key, Piece};
use kvstore_index::{EntryId, Fingerprint};
use parking_lot::MutexGuard;

impl Put<'_> {
    /// Stores an object in parts: part 0 decides who is first, the others are written before it.
    pub(super) fn in_parts(&self, item: usize, object: &Object<'_>, key: &Key) -> Option<Status> {
        let shared = self.shared();
        if object.data.len() as u64 > shared.tier_bytes(self.ack) {
            return Some(Status::Rejected(Reason::TooLarge));
        }
        let lengths =
            super::manifest::cut(object.data.len() as u64, shared.part_limit, object.cuts);
        let manifest_bytes = Manifest::bytes(lengths.len());
        let head_length = manifest_bytes as u32 + lengths[0];
        let others = lengths.len() as u32 - 1;
        let (head, slot) = match self.claim(item, object, key, head_length, Some(others)) {
            Found::Answer(status) => return Some(status),
            Found::Joined => return None,
            Found::Present(answer, _) => return answer,
            Found::Fresh(id, slot) => (id, slot),
        };
        shared.wake();
        let (first, mut rest) = object.data.split_at(lengths[0] as usize);
        let mut parts = vec![(lengths[0], checksum(first))];
        for (number, &length) in lengths.iter().enumerate().skip(1) {
            let (data, after) = rest.split_at(length as usize);
            rest = after;
            match self.part(object, head, number as u32, data) {
                Ok(checksum) => parts.push((length, checksum)),
                Err(status) => return Some(self.give_up(head, status)),
            }
        }
        let manifest = Manifest { parts }.encode();
        let checksum = self.fill(slot, &[&manifest, first]);
        let mut state = shared.state.lock();
        // The set's highest sequence number is part 0's.
        let sequence = state.next_sequence();
        state.index[head].set_sequence(sequence);
        self.filled(&mut state, head, checksum, item)
    }

    /// One part besides part 0: host memory, then the write queue.
    fn part(
        &self,
        object: &Object<'_>,
        head: EntryId,
        number: u32,
        data: &[u8],
    ) -> Result<u64, Status> {
        let shared = self.shared();
        let key = self.namespace.object(&object.block, object.kind, Piece::Part(number));
        let fingerprint = Fingerprint(key.fingerprint());
        let length = data.len() as u32;
        let mut state = shared.state.lock();
        let (id, slot) = loop {
            if state.index.is_dead(head) {
                return Err(Status::Rejected(Reason::Cleared));
            }
            // A put that finds no part 0 removes what is left of an older set.
            if let Some(old) = state.index.find(&fingerprint) {
                state.remove(old, Reason::NoSpace);
            }
            match self.room(&mut state, length) {
                Ok(slot) => {
                    let inserted = self.insert(
                        &mut state,
                        object,
                        fingerprint,
                        None,
                        length,
                        flag::PART,
                        slot,
                    );
                    match inserted {
                        Some(id) => break (id, slot),
                        None => {
                            state.slots.free(slot);
                            return Err(Status::Rejected(Reason::NoSpace));
                        }
                    }
                }
                Err(_) if state.shed_written_parts(head) => {}
                Err(NoRoom::Never(reason)) => return Err(Status::Rejected(reason)),
                Err(NoRoom::Busy) => self.wait_for_room(&mut state)?,
            }
        };
        if state.index.is_dead(head) {
            // It expired, and making room for the part removed it.
            state.remove(id, Reason::Cleared);
            state.release(id);
            return Err(Status::Rejected(Reason::Cleared));
        }
        state.head_of.insert(id, head);
        state.sets.entry(head).or_default().push(id);
        drop(state);
        let checksum = self.fill(slot, &[data]);
        let mut state = shared.state.lock();
        if state.index.is_dead(id) {
            state.release(id);
            return Err(Status::Rejected(Reason::Cleared));
        }
        state.index[id].checksum = checksum;
        state.set(id, bit::HOST);
        state.queue_write(id);
        state.release(id);
        shared.wake();
        Ok(checksum)
    }

    fn wait_for_room(&self, state: &mut MutexGuard<'_, State>) -> Result<(), Status> {
        if self.shared().changed.wait_until(state, self.deadline).timed_out() {
            return Err(Status::Busy);
        }
        Ok(())
    }

    /// Takes back a set that could not be stored whole.
    fn give_up(&self, head: EntryId, status: Status) -> Status {
        let mut state = self.shared().state.lock();
        if !state.index.is_dead(head) {
            let reason =
                if let Status::Rejected(reason) = status { reason } else { Reason::NoSpace };
            state.remove(head, reason);
        }
        state.release(head);
        status
    }
}

impl State {
    /// Drops host copies of a set's parts that are on disk already; a set may be larger than the
    /// host tier. True if any went.
    fn shed_written_parts(&mut self, head: EntryId) -> bool {
        let parts = self.sets.get(&head).cloned().unwrap_or_default();
        let mut shed = false;
        for id in parts {
            if self.has(id, bit::READY | bit::HOST) && self.index.refs(id) == 0 {
                self.drop_host(id);
                shed = true;
            }
        }
        shed
    }
}
