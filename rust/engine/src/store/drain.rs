//! Rebalancing between classes: a segment's objects are moved or dropped, then it changes class.
//!
//! Pinned objects wait. Objects with children move within a byte budget or take their subtree
//! along; the rest is dropped. A drain that is not over after a second is given back.

use super::batch::Reason;
use super::meta::{bit, stride_of};
use super::open::Shared;
use super::state::{InFlight, State};
use crate::disk::place::Place;
use crate::disk::segments::Phase;
use crate::host::copy::checksum;
use crate::host::slots::SlotId;
use crate::io::device::{File, Op};
use kvstore_index::{EntryId, Tier};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How long a drain may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// Objects of a segment that are looked at to judge its age.
const SAMPLE: usize = 64;
/// Share of a segment's bytes that may be moved instead of dropped.
const MOVED_SHARE: u64 = 4;

/// An object on its way to another segment. It holds one reference.
#[derive(Debug)]
pub(crate) struct Move {
    /// Where its bytes are meanwhile.
    slot: SlotId,
    /// The slot is the move's own.
    private: bool,
    /// Where it goes.
    pub(crate) to: Place,
    /// The payload is there: the new descriptor may go into a page image (INV-1).
    pub(crate) complete: bool,
    /// The new descriptor is on disk.
    pub(crate) committed: bool,
    /// The flush after which it survives a power cut, asked for once it is on disk.
    pub(crate) flush: u64,
}

/// The drain that is going on; there is at most one.
#[derive(Debug)]
pub(crate) struct Drain {
    segment: u32,
    started: Instant,
    budget: u64,
}

impl Shared {
    /// Whether some segment of another class is older, on average, than the oldest object that
    /// `class` itself could evict.
    pub(crate) fn another_class_is_older(&self, state: &mut State, class: u8) -> bool {
        let own = state.disk_victim(Some(class));
        let own_age = own.map(|victim| u64::from(state.index.last_use(victim.id)));
        match (state.oldest_segment(class), own_age) {
            (Some((_, other)), Some(own)) => other < own,
            (Some(_), None) => true,
            (None, _) => false,
        }
    }

    /// Starts to drain the least valuable segment of another class.
    pub(crate) fn start_drain(&self, state: &mut State, class: u8) -> bool {
        let Some((segment, _)) = state.oldest_segment(class) else { return false };
        state.segments.set_draining(segment, true);
        let budget = state.superblock.geometry.segment_bytes / MOVED_SHARE;
        state.drain = Some(Drain { segment, started: Instant::now(), budget });
        self.step_drain(state);
        true
    }

    /// Goes on with the drain: what is free to go goes.
    pub(crate) fn step_drain(&self, state: &mut State) {
        self.finish_moves(state);
        let Some(mut drain) = state.drain.take() else { return };
        let segment = drain.segment;
        let owned: Vec<EntryId> = state.segments.owned(segment).map(|(_, id)| id).collect();
        let mut doomed = Vec::new();
        for id in owned {
            // A part goes with its set.
            let id = state.head_of.get(&id).copied().unwrap_or(id);
            if state.index.is_dead(id) || state.index.refs(id) > 0 || state.moves.contains_key(&id)
            {
                continue;
            }
            let parent =
                state.index.children(id, Tier::Disk) + state.index.children(id, Tier::Host) > 0;
            if parent
                && !state.sets.contains_key(&id)
                && self.start_move(state, id, &mut drain.budget)
            {
                continue;
            }
            doomed.push(id);
        }
        self.drop_with_subtrees(state, &doomed);
        let left = state.segments.get(segment);
        // Its descriptors are off the disk as well before the segment, and with it the number of
        // its class, may mean something else: a kill would bring them back at other offsets.
        if left.live == 0 && left.cooling == 0 {
            state.segments.retire(segment);
            state.counters.segments_drained += 1;
        } else if drain.started.elapsed() > PATIENCE {
            state.segments.set_draining(segment, false);
            state.spared = Some(segment);
        } else {
            state.drain = Some(drain);
        }
    }

    /// Drops objects and everything below them, but nothing that is in use.
    fn drop_with_subtrees(&self, state: &mut State, doomed: &[EntryId]) {
        if doomed.is_empty() {
            return;
        }
        let mut all: Vec<EntryId> = state.index.subtree(doomed);
        all.extend(doomed);
        // Deepest first, so that no object is left without its parent. By handle: removing a part
        // takes its whole set along.
        all.sort_by_key(|&id| (std::cmp::Reverse(state.index[id].depth()), id));
        all.dedup();
        let all: Vec<_> = all.into_iter().map(|id| (id, state.index.handle(id))).collect();
        for (id, handle) in all {
            if state.index.resolve(handle).is_none() || state.index.refs(id) > 0 {
                continue;
            }
            // What hangs below is in use: a block waits for it, so that no checkpoint is left
            // without its block.
            if state.index.children(id, Tier::Disk) > 0 {
                continue;
            }
            state.counters.evicted_disk += 1;
            state.counters.evicted += 1;
            state.remove(id, Reason::NoSpace);
        }
    }

    /// Begins to move one object; false when it has to go another way.
    fn start_move(&self, state: &mut State, id: EntryId, budget: &mut u64) -> bool {
        let stride = stride_of(state.index[id].length);
        if *budget < u64::from(stride) || !state.has(id, bit::READY) || state.quarantined {
            return false;
        }
        let (slot, private) = match state.host_of(id) {
            // A copy that foreign code may write, or could, is no source.
            Some(slot)
                if state.has(id, bit::HOST)
                    && state.slots.exposed(slot) == 0
                    && !state.slots.suspect(slot) =>
            {
                (slot, false)
            }
            Some(_) => return false,
            None => match state.slots.alloc(stride) {
                Some(slot) => (slot, true),
                None => return false,
            },
        };
        let class = state.index[id].class;
        let Some((segment, number)) = state.segments.alloc(class, id) else {
            if private {
                state.slots.free(slot);
            }
            return false;
        };
        state.disk_objects += 1;
        *budget -= u64::from(stride);
        state.index.acquire(id);
        let to = Place { device: 0, segment, slot: number };
        let (complete, committed, flush) = (false, false, 0);
        state.moves.insert(id, Move { slot, private, to, complete, committed, flush });
        if private {
            self.submit_payload(state, id, slot, InFlight::MoveRead(id), None);
        } else {
            self.submit_payload(state, id, slot, InFlight::MoveWrite(id), Some(to));
        }
        true
    }

    /// Queues the read of an object's disk copy, or the write to `to`.
    fn submit_payload(
        &self,
        state: &mut State,
        id: EntryId,
        slot: SlotId,
        what: InFlight,
        to: Option<Place>,
    ) {
        let token = state.token();
        let buf = state.slots.buf(slot, stride_of(state.index[id].length));
        let op = match (to, state.place_of(id)) {
            (Some(to), _) => Op::write(token, File::Data, state.data_offset(to), buf),
            (None, Some(from)) => Op::read(token, File::Data, state.data_offset(from), buf),
            (None, None) => unreachable!("a moved object has a disk copy"),
        };
        state.in_flight.insert(token, what);
        state.outbox.push_back(op);
    }

    /// The bytes of a moved object are in host memory.
    pub(crate) fn move_read(&self, state: &mut State, id: EntryId, ok: bool) {
        let Some(step) = state.moves.get(&id) else { return };
        let (slot, to) = (step.slot, step.to);
        let entry = &state.index[id];
        let buf = state.slots.buf(slot, entry.length);
        // SAFETY: the slot is the move's own and its read has completed: nobody writes it.
        let good = ok && checksum(unsafe { self.arena.bytes(buf) }) == entry.checksum;
        let live = !state.index.is_dead(id);
        if good && live {
            self.submit_payload(state, id, slot, InFlight::MoveWrite(id), Some(to));
            return;
        }
        if ok && live {
            // INV-6: it leaves the index in the same step.
            state.counters.failed_checks += 1;
            state.remove(id, Reason::NoSpace);
        }
        state.abandon_move(id);
    }

    /// The payload of a moved object is in its new slot.
    pub(crate) fn move_written(&self, state: &mut State, id: EntryId, ok: bool) {
        if !ok || state.index.is_dead(id) {
            state.abandon_move(id);
            return;
        }
        // INV-7: of the two descriptors the one with the higher sequence wins.
        let sequence = state.next_sequence();
        state.index[id].set_sequence(sequence);
        if let Some(step) = state.moves.get_mut(&id) {
            step.complete = true;
            let page = State::page_of(step.to);
            state.pages.commit(page, id);
        }
    }

    /// Switches moved objects over to their new slot, once nobody reads the old one and the new
    /// one is durable: the old one may be all that a flushed put left on the medium.
    fn finish_moves(&self, state: &mut State) {
        let ready: Vec<(EntryId, bool)> = state
            .moves
            .iter()
            .filter(|(id, step)| step.committed && state.index.refs(**id) == 1)
            .filter_map(|(&id, step)| Some((id, state.flushed(step.flush)?)))
            .collect();
        for (id, durable) in ready {
            if !durable {
                state.abandon_move(id);
                continue;
            }
            let (Some(step), Some(from)) = (state.moves.remove(&id), state.place_of(id)) else {
                continue;
            };
            state.index.set_slot(id, Tier::Disk, Some(step.to.pack()));
            state.free_place(from);
            if step.private {
                state.slots.free(step.slot);
            }
            state.counters.objects_moved += 1;
            state.release(id);
        }
    }
}

impl State {
    /// Gives up a move: the object stays where it was.
    pub(crate) fn abandon_move(&mut self, id: EntryId) {
        let Some(step) = self.moves.remove(&id) else { return };
        self.free_place(step.to);
        if step.private {
            self.slots.free(step.slot);
        }
        self.release(id);
    }

    /// The segment of another class than `class` with the smallest mean last use, and that mean.
    pub(crate) fn oldest_segment(&self, class: u8) -> Option<(u32, u64)> {
        let mut age = HashMap::new();
        for (number, segment) in self.segments.iter() {
            if segment.class == class || segment.phase != Phase::Open || self.spared == Some(number)
            {
                continue;
            }
            let step = (segment.slots as usize / SAMPLE).max(1);
            let (mut sum, mut seen) = (0_u64, 0_u64);
            for (_, id) in self.segments.owned(number).step_by(step) {
                // Parts are used with their part 0.
                let id = self.head_of.get(&id).copied().unwrap_or(id);
                sum += u64::from(self.index.last_use(id));
                seen += 1;
            }
            age.insert(number, sum.checked_div(seen).unwrap_or(0));
        }
        age.into_iter().min_by_key(|&(number, mean)| (mean, number))
    }

    /// Offset of a slot in the data file, bytes.
    pub(crate) fn data_offset(&self, place: Place) -> u64 {
        let segment = self.segments.get(place.segment);
        let stride = u64::from(self.superblock.classes[usize::from(segment.class)]);
        u64::from(place.segment) * self.superblock.geometry.segment_bytes
            + u64::from(place.slot) * stride
    }
}
