//! Reads: pins what is in host memory, loads what is on disk, verifies what crossed a boundary.
//!
//! The thread that waits for a batch verifies it (contract C1). An object that fails leaves the
//! index in the same step (INV-6). A reader that gives up leaves its loads to the writer thread,
//! which frees their memory when the device is done with it (contract C7).

use super::batch::Reason;
use super::config::Verify;
use super::counters::MissReason;
use super::meta::{bit, is_expired, stride_of};
use super::open::Shared;
use super::state::{InFlight, Reading, State};
use crate::host::arena::{ArenaKind, Buf};
use crate::host::copy::checksum;
use crate::host::slots::SlotId;
use crate::io::device::{File, Op, OpKind};
use kvstore_index::{EntryId, Fingerprint, Tier};
use parking_lot::MutexGuard;
use std::sync::Arc;
use std::time::Instant;

/// An object's bytes, pinned: the memory is not reused while this lives (contract C6).
pub(crate) struct Held {
    pub(crate) shared: Arc<Shared>,
    /// The pinned object, or `None` when the slot is a copy of this holder's own.
    id: Option<EntryId>,
    pub(crate) slot: SlotId,
    /// Where the payload lies.
    pub(crate) buf: Buf,
    pub(crate) length: u32,
    pub(crate) checksum: u64,
    /// Flags of the entry at that time.
    pub(crate) flags: u8,
}

impl Held {
    /// The pinned object.
    pub(crate) fn id(&self) -> Option<EntryId> {
        self.id
    }

    /// Whether the slot is this holder's alone.
    pub(crate) fn is_private(&self) -> bool {
        self.id.is_none()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock();
        state.unpin(self.slot);
        match self.id {
            Some(id) => state.release(id),
            None => state.slots.free(self.slot),
        }
        state.free_orphan(self.slot);
        drop(state);
        self.shared.changed.notify_all();
    }
}

/// First look at one object.
enum Claim {
    Ready(Held),
    /// In host memory, but must be checked before it is trusted.
    Check(Held),
    /// Submitted under this token.
    Load(u64),
    /// Another thread fills or loads it.
    Wait,
    /// No host slot at the moment.
    NoRoom,
    Miss(MissReason),
}

impl Shared {
    /// Reads objects; each is pinned or a miss with its reason. Blocks until all are settled or
    /// the deadline.
    pub(crate) fn fetch(
        self: &Arc<Self>,
        wanted: &[Fingerprint],
        deadline: Instant,
    ) -> Vec<Result<Held, MissReason>> {
        let mut results: Vec<Option<Result<Held, MissReason>>> = Vec::new();
        results.resize_with(wanted.len(), || None);
        let mut loads: Vec<(usize, u64)> = Vec::new();
        let mut open: Vec<usize> = (0..wanted.len()).collect();
        while !open.is_empty() || !loads.is_empty() {
            let mut checks = Vec::new();
            let mut state = self.state.lock();
            let mut still_open = Vec::new();
            let mut full = false;
            for i in open.drain(..) {
                if full {
                    // In order: what comes later is of no use without this one, and must not
                    // take its room.
                    still_open.push(i);
                    continue;
                }
                match self.claim(&mut state, &wanted[i]) {
                    Claim::Ready(held) => results[i] = Some(Ok(held)),
                    Claim::Check(held) => checks.push((i, held)),
                    Claim::Load(token) => loads.push((i, token)),
                    Claim::Miss(reason) => results[i] = Some(Err(reason)),
                    Claim::Wait => still_open.push(i),
                    Claim::NoRoom
                        if loads.is_empty() && checks.is_empty() && !state.frees_soon() =>
                    {
                        results[i] = Some(Err(MissReason::Pinned));
                    }
                    Claim::NoRoom => {
                        still_open.push(i);
                        full = true;
                    }
                }
            }
            open = still_open;
            self.send(&mut state);
            let wait = checks.is_empty() && !(open.is_empty() && loads.is_empty());
            let arrived = self.arrivals(&mut state, &mut loads, wait, deadline);
            let late = Instant::now() >= deadline;
            if late || state.writer_over {
                let reason = if late { MissReason::Timeout } else { MissReason::IoError };
                for (i, token) in loads.drain(..) {
                    state.abandon(token);
                    results[i] = Some(Err(reason));
                }
                for i in open.drain(..) {
                    results[i] = Some(Err(reason));
                }
                // Others may wait for a load that was given back.
                self.changed.notify_all();
            }
            drop(state);
            for (i, held) in checks {
                match self.check(held) {
                    Some(held) => results[i] = Some(Ok(held)),
                    None => open.push(i),
                }
            }
            for (i, reading) in arrived {
                results[i] = Some(self.finish_load(&reading));
            }
        }
        results.into_iter().map(|result| result.unwrap_or(Err(MissReason::Timeout))).collect()
    }

    /// Takes finished loads out of `loads`; waits for one when `wait`.
    fn arrivals(
        &self,
        state: &mut MutexGuard<'_, State>,
        loads: &mut Vec<(usize, u64)>,
        wait: bool,
        deadline: Instant,
    ) -> Vec<(usize, Reading)> {
        loop {
            let mut arrived = Vec::new();
            loads.retain(|&(i, token)| {
                let done = state.readings.get(&token).is_none_or(|r| r.result.is_some());
                if done && let Some(reading) = state.readings.remove(&token) {
                    arrived.push((i, reading));
                }
                !done
            });
            if !arrived.is_empty() || !wait || self.changed.wait_until(state, deadline).timed_out()
            {
                return arrived;
            }
            if loads.is_empty() {
                // Nothing of our own: whoever we wait for has made progress, look again.
                return arrived;
            }
        }
    }

    fn claim(self: &Arc<Self>, state: &mut State, wanted: &Fingerprint) -> Claim {
        if self.is_poisoned() {
            return Claim::Miss(MissReason::IoError);
        }
        let Some(id) = state.index.find(wanted) else { return Claim::Miss(MissReason::Absent) };
        if is_expired(state.index[id].expires_at) {
            state.counters.expired += 1;
            state.remove(id, Reason::NoSpace);
            return Claim::Miss(MissReason::Expired);
        }
        if let Some(slot) = state.host_of(id) {
            if !state.has(id, bit::HOST) {
                return Claim::Wait;
            }
            if state.slots.exposed(slot) > 0 {
                // Somebody may write through a view: the reader gets a copy from disk (C1).
                return self.load(state, id, true);
            }
            if state.is_verifying(slot) {
                return Claim::Wait;
            }
            if !state.may_pin(slot, self.pin_limit) {
                return Claim::Miss(MissReason::Pinned);
            }
            let held = self.hold(state, id, slot);
            let unsure = state.slots.suspect(slot);
            if unsure {
                state.set_verifying(slot, true);
            }
            let check = unsure || self.options.verify == Verify::Always;
            return if check { Claim::Check(held) } else { Claim::Ready(held) };
        }
        if !state.has(id, bit::READY) {
            return Claim::Wait;
        }
        self.load(state, id, false)
    }

    fn hold(self: &Arc<Self>, state: &mut State, id: EntryId, slot: SlotId) -> Held {
        state.index.acquire(id);
        state.pin(slot);
        let entry = &state.index[id];
        Held {
            shared: self.clone(),
            id: Some(id),
            slot,
            buf: state.slots.buf(slot, entry.length),
            length: entry.length,
            checksum: entry.checksum,
            flags: entry.flags,
        }
    }

    /// Submits the read of an object's disk copy into a host slot: its own, or one of the
    /// reader's alone.
    fn load(&self, state: &mut State, id: EntryId, private: bool) -> Claim {
        if let Some(reason) = state.disk_is_out() {
            return Claim::Miss(reason);
        }
        let Some(place) = state.place_of(id).filter(|_| state.has(id, bit::READY)) else {
            return Claim::Wait;
        };
        let stride = stride_of(state.index[id].length);
        // The reference comes first: making room must not evict what is being read.
        state.index.acquire(id);
        if state.pinned_bytes + u64::from(stride) > self.pin_limit {
            state.release(id);
            return Claim::Miss(MissReason::Pinned);
        }
        let Ok(slot) = state.host_room(stride) else {
            state.release(id);
            return Claim::NoRoom;
        };
        if !private {
            state.index.set_slot(id, Tier::Host, Some(u64::from(slot.0)));
            state.slots.set_owner(slot, id.index() as u32);
        }
        state.pin(slot);
        let token = state.token();
        state.readings.insert(token, Reading { id, slot, private, result: None, orphan: false });
        state.in_flight.insert(token, InFlight::Read);
        let op =
            Op::read(token, File::Data, state.data_offset(place), state.slots.buf(slot, stride));
        // Before the writes that wait, behind the reads that came first.
        let at = state.outbox.iter().take_while(|op| op.kind == OpKind::Read).count();
        state.outbox.insert(at, op);
        Claim::Load(token)
    }

    /// Verifies what a load brought and makes it the object's host copy.
    fn finish_load(self: &Arc<Self>, reading: &Reading) -> Result<Held, MissReason> {
        let (length, expected, flags, buf) = {
            let state = self.state.lock();
            let entry = &state.index[reading.id];
            let buf = state.slots.buf(reading.slot, entry.length);
            (entry.length, entry.checksum, entry.flags, buf)
        };
        let arrived = matches!(reading.result, Some(Ok(())));
        // SAFETY: the load's slot belongs to this reader until it is published below, and its read
        // has completed.
        let good = arrived && checksum(unsafe { self.arena.bytes(buf) }) == expected;
        let mut state = self.state.lock();
        self.changed.notify_all();
        if good {
            state.counters.bytes_read += u64::from(length);
        }
        if good && !state.index.is_dead(reading.id) {
            if reading.private {
                state.release(reading.id);
            } else {
                state.set(reading.id, bit::HOST);
                if !state.head_of.contains_key(&reading.id) {
                    state.index.add_resident(reading.id, Tier::Host);
                }
            }
            return Ok(Held {
                shared: self.clone(),
                id: (!reading.private).then_some(reading.id),
                slot: reading.slot,
                buf,
                length,
                checksum: expected,
                flags,
            });
        }
        if !state.index.is_dead(reading.id) {
            // INV-6: it leaves the index in the same step.
            if arrived {
                state.counters.failed_checks += 1;
            }
            if !state.quarantined {
                state.remove(reading.id, Reason::NoSpace);
            }
        }
        state.end_reading(reading);
        Err(match (arrived, good) {
            (true, true) => MissReason::Cleared,
            (true, false) => MissReason::FailedCheck,
            (false, _) => MissReason::IoError,
        })
    }

    /// Checks an object that was exposed, or every one under `verify = always`. `None`: the host
    /// copy was bad and is gone, look again.
    fn check(&self, held: Held) -> Option<Held> {
        let Some(id) = held.id else { return Some(held) };
        // SAFETY: the slot is pinned by `held`, and no view of it is exposed: a suspect slot is
        // handed to no one until this check is over.
        let good = checksum(unsafe { self.arena.bytes(held.buf) }) == held.checksum;
        let mut state = self.state.lock();
        if state.is_verifying(held.slot) {
            state.set_verifying(held.slot, false);
            state.slots.set_suspect(held.slot, !good);
        }
        self.changed.notify_all();
        if good {
            return Some(held);
        }
        state.drop_bad_host(id, held.slot);
        drop(state);
        drop(held);
        None
    }

    /// A copy out of this pinned object did not match its checksum: its host copy goes.
    pub(crate) fn distrust(&self, held: &Held) {
        if let Some(id) = held.id {
            self.state.lock().drop_bad_host(id, held.slot);
        }
    }

    /// A set lacks a part, or has one of another set: it leaves, so that it can be put again.
    pub(crate) fn lose_set(&self, head: &Held) -> MissReason {
        let mut state = self.state.lock();
        if let Some(id) = head.id.filter(|&id| !state.index.is_dead(id)) {
            state.counters.failed_checks += 1;
            state.remove(id, Reason::NoSpace);
        }
        MissReason::FailedCheck
    }

    /// Whether this arena's memory can be written through a view.
    pub(crate) fn views_are_writable(&self) -> bool {
        self.options.arena == ArenaKind::Private
    }
}

impl State {
    /// Whether host memory will come free without anybody ending a lease.
    pub(crate) fn frees_soon(&self) -> bool {
        self.dirty_bytes > 0 || !self.readings.is_empty() || self.scrubbing
    }

    /// The reader of a load has gone.
    fn abandon(&mut self, token: u64) {
        match self.readings.get_mut(&token) {
            Some(reading) if reading.result.is_none() => reading.orphan = true,
            Some(_) => {
                if let Some(reading) = self.readings.remove(&token) {
                    self.end_reading(&reading);
                }
            }
            None => {}
        }
    }

    /// Gives back the memory of a load that will not be used.
    pub(crate) fn end_reading(&mut self, reading: &Reading) {
        self.unpin(reading.slot);
        if reading.private {
            self.slots.free(reading.slot);
        } else if !self.index.is_dead(reading.id) {
            self.index.set_slot(reading.id, Tier::Host, None);
            self.slots.free(reading.slot);
        }
        // A removed object's host slot goes with its last reference.
        self.release(reading.id);
    }

    /// Frees a slot that was taken from its object once nobody holds it.
    pub(crate) fn free_orphan(&mut self, slot: SlotId) {
        let held = self.pins.get(slot.0 as usize).is_some_and(|&pins| pins > 0);
        if !held && self.orphans.remove(&slot) {
            self.slots.free(slot);
        }
    }

    /// The host copy of an object does not match its checksum: it goes, and the object with it
    /// unless the disk has a copy to fall back on.
    pub(crate) fn drop_bad_host(&mut self, id: EntryId, slot: SlotId) {
        self.counters.failed_checks += 1;
        if self.index.is_dead(id) || self.host_of(id) != Some(slot) {
            return;
        }
        if self.has(id, bit::READY) {
            self.detach_host(id);
        } else {
            self.remove(id, Reason::NoSpace);
        }
    }

    /// Takes a bad host copy away from an object that has a disk copy. The slot is freed when the
    /// last of those who hold it lets go.
    fn detach_host(&mut self, id: EntryId) {
        self.index.drop_resident(id, Tier::Host);
        self.unset(id, bit::HOST);
        if let Some(slot) = self.host_of(id) {
            self.index.set_slot(id, Tier::Host, None);
            self.orphans.insert(slot);
        }
    }
}
