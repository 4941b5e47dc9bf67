//! The store's one thread: takes completions, writes behind, commits table pages, drains.
//!
//! Write order: payload, its completion, then the descriptor page (INV-1). The thread touches no
//! payload byte except to check a moved object.

use super::batch::{Ack, Reason, Status};
use super::counters::MissReason;
use super::evict::NoSlot;
use super::meta::{bit, stride_of};
use super::open::Shared;
use super::state::{InFlight, Phase, State};
use crate::disk::descriptor::{Descriptor, Home, LEN, flag};
use crate::disk::pages::{PageId, Settles};
use crate::disk::place::Place;
use crate::disk::{PAGE, SLOTS_PER_PAGE};
use crate::io::device::{Completion, File, Op};
use crate::io::error::{IoError, IoErrorKind};
use kvstore_index::{EntryId, Tier};
use parking_lot::MutexGuard;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Payload bytes on their way to the device at most: enough to keep any drive busy.
const WRITE_BYTES: u64 = 32 << 20;
/// Sleep of an idle store; it is woken by work.
const IDLE: Duration = Duration::from_secs(5);
/// Sleep while something waits for time to pass (a drain, a full file system).
const TICK: Duration = Duration::from_millis(20);
/// Device errors in a row after which the device is quarantined.
const MAX_ERRORS: u32 = 8;
/// Writes of a page that fail before those who wait for its descriptors are told.
const PAGE_ATTEMPTS: u32 = 3;

impl Shared {
    /// The writer thread. A panic poisons the store: every later call is a miss (contract C4).
    pub(crate) fn run_writer(&self) {
        match catch_unwind(AssertUnwindSafe(|| self.write_until_stopped())) {
            Ok(()) => self.write_last_superblock(),
            Err(_) => self.poison("the writer thread panicked"),
        }
        let mut state = self.state.lock();
        state.writer_over = true;
        state.settle_all(Status::Rejected(Reason::Closing));
        self.changed.notify_all();
    }

    fn write_until_stopped(&self) {
        let mut completions: Vec<Completion> = Vec::new();
        loop {
            let sleep = {
                let mut state = self.state.lock();
                for completion in completions.drain(..) {
                    self.completed(&mut state, completion);
                }
                self.pump(&mut state);
                self.changed.notify_all();
                let over = state.in_flight.is_empty() || self.give_up.load(Ordering::Acquire);
                if self.stop.load(Ordering::Acquire) && over {
                    return;
                }
                let waits = state.drain.is_some()
                    || !state.queue.is_empty()
                    || !state.moves.is_empty()
                    || state.pages.is_parked();
                if waits { TICK } else { IDLE }
            };
            self.device.complete(&mut completions, Instant::now() + sleep);
        }
    }

    /// Submits what can be submitted.
    fn pump(&self, state: &mut MutexGuard<'_, State>) {
        self.step_drain(state);
        self.start_writes(state);
        state.pages.retry(Instant::now());
        self.start_pages(state);
        self.start_syncs(state);
        self.send(state);
    }

    /// Hands waiting operations to the device, as many as it takes.
    pub(crate) fn send(&self, state: &mut State) {
        while !state.outbox.is_empty() {
            let taken = self.device.submit(state.outbox.make_contiguous());
            state.outbox.drain(..taken);
            if taken == 0 {
                return;
            }
        }
    }

    fn start_writes(&self, state: &mut MutexGuard<'_, State>) {
        while state.writing_bytes < WRITE_BYTES {
            let Some(&id) = state.queue.front() else { return };
            if state.index.is_dead(id) {
                state.queue.pop_front();
                state.end_write(id);
                continue;
            }
            if state.is_cancelled(id) {
                state.queue.pop_front();
                self.stay_in_host(state, id, Status::Cancelled);
                continue;
            }
            let stride = u64::from(stride_of(state.index[id].length));
            let refusal = if state.quarantined {
                Some(Reason::ReadOnly)
            } else if state.parent_stays_out(id) {
                Some(Reason::NoSpace)
            } else if state.budget.as_mut().is_some_and(|budget| !budget.has(stride)) {
                Some(Reason::Endurance)
            } else {
                None
            };
            if let Some(reason) = refusal {
                state.queue.pop_front();
                self.stay_in_host(state, id, Status::Rejected(reason));
                continue;
            }
            match self.disk_room(state, id) {
                Ok(place) if state.index.is_dead(id) => {
                    // Removed while the lock was given up to open a segment.
                    state.queue.pop_front();
                    state.free_place(place);
                    state.end_write(id);
                }
                Ok(place) => {
                    state.queue.pop_front();
                    self.start_write(state, id, place);
                }
                Err(NoSlot::Wait) => return,
                Err(NoSlot::Never(reason)) => {
                    state.queue.pop_front();
                    self.stay_in_host(state, id, Status::Rejected(reason));
                }
            }
        }
    }

    fn start_write(&self, state: &mut State, id: EntryId, place: Place) {
        state.index.set_slot(id, Tier::Disk, Some(place.pack()));
        if !state.head_of.contains_key(&id) {
            // Other parts are not in the eviction queue: they go with part 0.
            state.index.add_resident(id, Tier::Disk);
        }
        let Some(slot) = state.host_of(id) else {
            unreachable!("a queued object has its host copy: its write holds a reference");
        };
        let stride = stride_of(state.index[id].length);
        let token = state.token();
        let op =
            Op::write(token, File::Data, state.data_offset(place), state.slots.buf(slot, stride));
        state.in_flight.insert(token, InFlight::Payload { id, bytes: u64::from(stride) });
        state.writing_bytes += u64::from(stride);
        if let Some(budget) = &mut state.budget {
            budget.take(u64::from(stride));
        }
        state.outbox.push_back(op);
    }

    /// Ends a write that will not happen: the object stays in host memory if it is kept there.
    fn stay_in_host(&self, state: &mut State, id: EntryId, status: Status) {
        state.settle(id, status);
        let head = state.head_of.get(&id).copied().or(state.sets.contains_key(&id).then_some(id));
        if let (Some(head), Status::Rejected(reason)) = (head, status) {
            // A set is whole on disk or not there at all.
            state.remove(head, reason);
        }
        state.end_write(id);
    }

    fn start_pages(&self, state: &mut State) {
        while let Some(buf) = state.page_buffers.last().copied() {
            let Some((id, settles)) = state.pages.start() else { return };
            state.page_buffers.pop();
            let image = page_image(state, id);
            // SAFETY: the buffer came from the pool, so no operation uses it; it goes back to the
            // pool with the completion of this write.
            unsafe { self.arena.bytes_mut(buf) }.copy_from_slice(&image);
            let offset = u64::from(id.segment) * state.superblock.geometry.table_stride()
                + u64::from(id.page) * PAGE;
            let token = state.token();
            state.in_flight.insert(token, InFlight::Page { id, settles, buf });
            state.outbox.push_back(Op::write(token, File::Table, offset, buf));
        }
    }

    /// Starts one flush for all who wait for one.
    fn start_syncs(&self, state: &mut State) {
        let tickets = state.flushing.iter().map(|&(round, _)| round).max();
        let newest = tickets.max(state.flush.wanted);
        if state.syncs_in_flight > 0 || newest.is_none_or(|round| round < state.flush.round) {
            return;
        }
        let round = state.flush.round;
        state.flush.round += 1;
        for file in [File::Data, File::Table] {
            let token = state.token();
            state.in_flight.insert(token, InFlight::Sync { round });
            state.outbox.push_back(Op::sync(token, file));
            state.syncs_in_flight += 1;
        }
    }

    fn completed(&self, state: &mut State, completion: Completion) {
        let Some(what) = state.in_flight.remove(&completion.token) else { return };
        match completion.result {
            Ok(()) => state.errors_in_row = 0,
            Err(error) => state.count_error(&error),
        }
        match what {
            InFlight::Payload { id, bytes } => {
                state.writing_bytes -= bytes;
                match completion.result {
                    Ok(()) => {
                        state.counters.bytes_written += bytes;
                        state.payload_written(id);
                    }
                    Err(error) => self.payload_failed(state, id, &error),
                }
            }
            InFlight::Page { id, settles, buf } => {
                state.page_buffers.push(buf);
                self.page_done(state, id, settles, completion.result);
            }
            InFlight::Read => state.read_done(completion.token, completion.result),
            InFlight::Sync { round } => state.sync_done(round, completion.result.is_ok()),
            InFlight::MoveRead(id) => self.move_read(state, id, completion.result.is_ok()),
            InFlight::MoveWrite(id) => self.move_written(state, id, completion.result.is_ok()),
        }
    }

    fn payload_failed(&self, state: &mut State, id: EntryId, error: &IoError) {
        tracing::warn!(%error, "a payload write failed");
        // The file is sparse and the file system full: there is no space behind the slot.
        self.write_failed(state, id, error, error.kind == IoErrorKind::NoSpace);
    }

    /// Ends a write that failed. A slot that is `lost` does not come back before the next open.
    fn write_failed(&self, state: &mut State, id: EntryId, error: &IoError, lost: bool) {
        if !state.index.is_dead(id) && state.index.is_resident(id, Tier::Disk) {
            state.index.drop_resident(id, Tier::Disk);
        }
        if let Some(place) = state.place_of(id) {
            state.index.set_slot(id, Tier::Disk, None);
            if lost {
                state.segments.lose(place.segment, place.slot);
                state.disk_objects -= 1;
                state.counters.no_space_evictions += 1;
                // No descriptor of it can reappear.
                state.free_followers(place);
            } else {
                state.free_place(place);
            }
        }
        let reason = match error.kind {
            IoErrorKind::NoSpace => Reason::NoSpace,
            _ => Reason::ReadOnly,
        };
        self.stay_in_host(state, id, Status::Rejected(reason));
    }

    fn page_done(
        &self,
        state: &mut State,
        id: PageId,
        settles: Settles,
        result: Result<(), IoError>,
    ) {
        if let Err(error) = result {
            tracing::warn!(%error, "a table page write failed");
            self.page_failed(state, id, settles, &error);
            return;
        }
        state.counters.pages_written += 1;
        state.pages.finish(id, None);
        for (slot, generation) in settles.cooled {
            let place = Place { device: 0, segment: id.segment, slot };
            state.segments.release(id.segment, slot, generation);
            state.free_followers(place);
        }
        for entry in settles.committed {
            state.descriptor_written(entry);
        }
    }

    /// A page is tried again, but those who wait for its descriptors are not kept waiting for
    /// ever: their objects stay in host memory, and the next image is without them.
    fn page_failed(&self, state: &mut State, id: PageId, mut settles: Settles, error: &IoError) {
        let passing = !state.quarantined
            && error.kind != IoErrorKind::NoSpace
            && state.pages.failures(id) + 1 < PAGE_ATTEMPTS;
        if passing {
            state.pages.finish(id, Some(settles));
            return;
        }
        for entry in std::mem::take(&mut settles.committed) {
            let moving = state.moves.get(&entry).is_some_and(|step| !step.committed);
            if moving {
                state.abandon_move(entry);
            } else {
                state.unset(entry, bit::COMMIT);
                self.write_failed(state, entry, error, false);
            }
        }
        // INV-2: its slots stay out of use until an image has completed. A quarantined device
        // takes none.
        let again = (!state.quarantined).then_some(settles);
        state.pages.finish(id, again);
    }
}

impl State {
    /// A write of the object is over, whatever its end.
    pub(crate) fn end_write(&mut self, id: EntryId) {
        let stride = u64::from(stride_of(self.index[id].length));
        self.dirty_bytes -= stride;
        self.unset(id, bit::QUEUED);
        self.release(id);
    }

    /// A cancelled put is the only one that wants this write.
    fn is_cancelled(&self, id: EntryId) -> bool {
        self.tickets
            .get(&id)
            .is_some_and(|all| !all.is_empty() && all.iter().all(|t| t.batch.is_cancelled()))
    }

    /// Whether the parent is known and neither on disk nor on its way there: a child is not
    /// written before its parent is at least submitted. A parent that another put is still
    /// filling is on its way: it cannot be waited for, since that put may wait for room here.
    fn parent_stays_out(&self, id: EntryId) -> bool {
        !self.head_of.contains_key(&id)
            && self.index.parent(id).is_some_and(|parent| {
                let filled = self.index[parent].flags & (bit::HOST | bit::READY) != 0;
                filled
                    && !self.index.is_resident(parent, Tier::Disk)
                    && !self.has(parent, bit::QUEUED)
            })
    }

    fn payload_written(&mut self, id: EntryId) {
        if self.index.is_dead(id) {
            self.end_write(id);
        } else if self.gates.get(&id).is_some_and(|&closed| closed > 0) {
            self.gated.insert(id);
        } else {
            self.commit(id);
        }
    }

    /// INV-1: the payload's completion was seen.
    fn commit(&mut self, id: EntryId) {
        let Some(place) = self.place_of(id) else { return self.end_write(id) };
        self.set(id, bit::COMMIT);
        self.pages.commit(Self::page_of(place), id);
    }

    fn descriptor_written(&mut self, id: EntryId) {
        if self.moves.get(&id).is_some_and(|step| step.complete && !step.committed) {
            let flush = self.want_flush();
            if let Some(step) = self.moves.get_mut(&id) {
                step.committed = true;
                step.flush = flush;
            }
            return;
        }
        if self.index.is_dead(id) {
            return self.end_write(id);
        }
        self.set(id, bit::READY);
        for ticket in self.tickets.remove(&id).unwrap_or_default() {
            if ticket.ack == Ack::SsdFlush {
                self.flushing.push((self.flush.round, ticket));
            } else {
                self.answer(&ticket.batch, ticket.item, ticket.then);
            }
        }
        if let Some(&head) = self.head_of.get(&id)
            && let Some(closed) = self.gates.get_mut(&head)
        {
            *closed -= 1;
            if *closed == 0 && self.gated.remove(&head) {
                self.commit(head);
            }
        }
        self.end_write(id);
    }

    /// Asks for a flush of all that has completed by now; the answer is its round.
    pub(crate) fn want_flush(&mut self) -> u64 {
        self.flush.wanted = Some(self.flush.round);
        self.flush.round
    }

    /// Whether what had completed before `round` is durable; `None` while it is on its way.
    pub(crate) fn flushed(&self, round: u64) -> Option<bool> {
        (self.flush.done > round).then(|| self.flush.failed.is_none_or(|failed| failed < round))
    }

    fn sync_done(&mut self, round: u64, ok: bool) {
        self.syncs_in_flight -= 1;
        if !ok {
            self.sync_failed = true;
        }
        if self.syncs_in_flight > 0 {
            return;
        }
        let failed = std::mem::take(&mut self.sync_failed);
        self.flush.done = round + 1;
        if failed {
            self.flush.failed = Some(round);
        }
        let status = failed.then_some(Status::Rejected(Reason::ReadOnly));
        let (over, waiting) =
            std::mem::take(&mut self.flushing).into_iter().partition(|&(r, _)| r <= round);
        self.flushing = waiting;
        let over: Vec<(u64, super::state::Ticket)> = over;
        for (_, ticket) in over {
            self.answer(&ticket.batch, ticket.item, status.unwrap_or(ticket.then));
        }
    }

    fn read_done(&mut self, token: u64, result: Result<(), IoError>) {
        let Some(reading) = self.readings.get_mut(&token) else { return };
        if reading.orphan {
            let reading = self.readings.remove(&token);
            if let Some(reading) = reading {
                self.end_reading(&reading);
            }
        } else {
            reading.result = Some(result);
        }
    }

    fn count_error(&mut self, error: &IoError) {
        self.counters.io_errors += 1;
        match error.kind {
            IoErrorKind::NoSpace => return,
            // Nothing comes after that.
            IoErrorKind::Closed => self.quarantined = true,
            _ => {}
        }
        self.errors_in_row += 1;
        if self.errors_in_row >= MAX_ERRORS && !self.quarantined {
            self.quarantined = true;
            tracing::error!(%error, "{} errors in a row: the device is quarantined", MAX_ERRORS);
        }
    }

    /// Why the disk copy of nothing can be read at the moment.
    pub(crate) fn disk_is_out(&self) -> Option<MissReason> {
        if self.phase == Phase::Closed {
            // Nobody takes completions any more.
            return Some(MissReason::IoError);
        }
        self.quarantined.then_some(MissReason::Quarantined)
    }
}

/// The bytes of a table page: a descriptor for each slot whose payload is on disk, zero bytes for
/// all others (INV-1).
fn page_image(state: &State, page: PageId) -> [u8; PAGE as usize] {
    let mut image = [0; PAGE as usize];
    let segment = state.segments.get(page.segment);
    let first = page.page * SLOTS_PER_PAGE;
    for (slot, record) in (first..first + SLOTS_PER_PAGE).zip(image.chunks_exact_mut(LEN)) {
        let Some(id) = state.segments.owner(page.segment, slot) else { continue };
        let place = Place { device: 0, segment: page.segment, slot };
        let settled = match state.moves.get(&id) {
            Some(step) if step.to == place => step.complete,
            _ => state.place_of(id) == Some(place) && state.has(id, bit::COMMIT),
        };
        if !settled || state.index.is_dead(id) {
            continue;
        }
        let entry = &state.index[id];
        let descriptor = Descriptor {
            fingerprint: *entry.fingerprint(),
            checksum: entry.checksum,
            // A part hangs under its part 0 on disk; in the index it belongs to the set instead.
            parent_prefix: match state.head_of.get(&id) {
                Some(&head) => state.index[head].fingerprint().prefix(),
                None => entry.parent_prefix(),
            },
            sequence: entry.sequence(),
            depth: entry.depth(),
            tenant: entry.tenant,
            generation: segment.generation,
            length: entry.length,
            expires_at: entry.expires_at,
            namespace: entry.namespace,
            class: entry.class,
            kind: entry.kind(),
            flags: entry.flags & flag::DISK,
        };
        let home = Home { store: state.superblock.store, place };
        record.copy_from_slice(&descriptor.encode(&home));
    }
    image
}
