//! Everything that the store's mutex guards, and the few steps in which objects come and go.
//!
//! An object leaves in one place only: [`State::remove`] takes it out of the index, and the last
//! [`State::release`] of its references frees its slots. So no slot is freed twice and none while
//! anybody reads, writes or views it (contract C6, C7).

use super::batch::{Ack, Batch, Reason, Status};
use super::counters::Counters;
use super::drain::{Drain, Move};
use super::meta::bit;
use super::room::Budget;
use crate::disk::descriptor::flag;
use crate::disk::namespaces::NamespaceRecord;
use crate::disk::pages::{PageId, Pages, Settles};
use crate::disk::place::Place;
use crate::disk::segments::Segments;
use crate::disk::superblock::Superblock;
use crate::disk::tenants::Tenants;
use crate::disk::{SLOTS_PER_PAGE, namespaces};
use crate::host::arena::Buf;
use crate::host::slots::{SlotId, Slots};
use crate::io::device::Op;
use crate::io::error::IoError;
use crate::mirror::Mirror;
use kvstore_index::{EntryId, Freed, Index, Released, Tier, Victim};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// Life of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    /// Takes no puts; what is pending is written.
    Closing,
    Closed,
}

/// Somebody who waits for an object to reach a level.
pub(crate) struct Ticket {
    pub(crate) batch: Arc<Batch>,
    pub(crate) item: usize,
    pub(crate) ack: Ack,
    /// The answer when it gets there: `Stored`, or `Exists` for who came second.
    pub(crate) then: Status,
}

/// A read of the disk tier.
pub(crate) struct Reading {
    pub(crate) id: EntryId,
    pub(crate) slot: SlotId,
    /// The slot is the reader's alone, not the object's host copy.
    pub(crate) private: bool,
    pub(crate) result: Option<Result<(), IoError>>,
    /// The reader has gone; the writer thread cleans up (contract C7).
    pub(crate) orphan: bool,
}

/// What a completion belongs to.
pub(crate) enum InFlight {
    Payload {
        id: EntryId,
        bytes: u64,
    },
    Page {
        id: PageId,
        settles: Settles,
        buf: Buf,
    },
    Read,
    /// A sync of the data or table file on behalf of these tickets.
    Sync {
        round: u64,
    },
    /// A drained object on its way into host memory, and from there to its new slot.
    MoveRead(EntryId),
    MoveWrite(EntryId),
}

/// Namespaces by index and by digest.
#[derive(Default)]
pub(crate) struct NamespaceTable {
    pub(crate) records: Vec<Option<NamespaceRecord>>,
    pub(crate) by_digest: HashMap<[u8; 32], u16>,
    /// Objects of each namespace in the index; an index is reused only at zero.
    pub(crate) objects: Vec<u64>,
    /// Indices of which neither record is whole: how often they were cleared is not known.
    pub(crate) damaged: HashSet<usize>,
}

impl NamespaceTable {
    pub(crate) fn new() -> Self {
        Self {
            records: vec![None; namespaces::COUNT],
            by_digest: HashMap::new(),
            objects: vec![0; namespaces::COUNT],
            damaged: HashSet::new(),
        }
    }
}

/// How far the files reach.
#[derive(Default)]
pub(crate) struct Grown {
    /// Segments that table and data file have room for.
    pub(crate) segments: u32,
    /// When the file system last refused more.
    pub(crate) refused: Option<Instant>,
}

/// Flushes go in rounds: one covers what had completed when it was started.
#[derive(Default)]
pub(crate) struct Flush {
    /// The round that starts next.
    pub(crate) round: u64,
    /// The last round that somebody without a ticket waits for.
    pub(crate) wanted: Option<u64>,
    /// Rounds below this are over.
    pub(crate) done: u64,
    /// The last round that failed.
    pub(crate) failed: Option<u64>,
}

pub(crate) struct State {
    pub(crate) phase: Phase,
    pub(crate) index: Index,
    pub(crate) mirror: Mirror,
    pub(crate) slots: Slots,
    /// Lease pins per host slot, by slot number.
    pub(crate) pins: Vec<u32>,
    /// The scrubber holds an object, for as long as a checksum takes.
    pub(crate) scrubbing: bool,
    /// A reader is checking this suspect slot.
    pub(crate) verifying: Vec<bool>,
    /// Host slots that were taken from their objects and are still held.
    pub(crate) orphans: HashSet<SlotId>,
    /// Host bytes under lease pins.
    pub(crate) pinned_bytes: u64,
    pub(crate) superblock: Superblock,
    pub(crate) segments: Segments,
    pub(crate) pages: Pages,
    pub(crate) page_buffers: Vec<Buf>,
    pub(crate) namespaces: NamespaceTable,
    pub(crate) tenants: Tenants,
    /// Number of the last put or epoch.
    pub(crate) sequence: u64,
    /// Objects to be written, parents first.
    pub(crate) queue: VecDeque<EntryId>,
    /// Stride bytes of queued and submitted writes.
    pub(crate) dirty_bytes: u64,
    /// Payload bytes of submitted writes.
    pub(crate) writing_bytes: u64,
    pub(crate) tickets: HashMap<EntryId, Vec<Ticket>>,
    /// Tickets whose page is on disk and that wait for a flush: (round, ticket).
    pub(crate) flushing: Vec<(u64, Ticket)>,
    pub(crate) flush: Flush,
    pub(crate) syncs_in_flight: u32,
    pub(crate) sync_failed: bool,
    pub(crate) in_flight: HashMap<u64, InFlight>,
    pub(crate) readings: HashMap<u64, Reading>,
    pub(crate) next_token: u64,
    /// Part 0 of each object in parts, with its other parts.
    pub(crate) sets: HashMap<EntryId, Vec<EntryId>>,
    /// Classes that the other parts of each set have slots in, one bit each.
    pub(crate) classes_of: HashMap<EntryId, u64>,
    /// Other parts whose descriptor is not on disk yet, per part 0 (INV of parts).
    pub(crate) gates: HashMap<EntryId, u32>,
    /// Part 0 of each other part.
    pub(crate) head_of: HashMap<EntryId, EntryId>,
    /// Parts 0 whose payload is on disk and whose gate is not open yet.
    pub(crate) gated: HashSet<EntryId>,
    /// Other parts of removed sets: they keep their slots until the slot of part 0 has cooled.
    pub(crate) after_slot: HashMap<Place, Vec<EntryId>>,
    /// Objects with a time to live, soonest first.
    pub(crate) expiry: BinaryHeap<Reverse<(u32, kvstore_index::Handle)>>,
    /// Objects that hold a disk slot.
    pub(crate) disk_objects: u64,
    pub(crate) drain: Option<Drain>,
    /// Objects on their way to another segment.
    pub(crate) moves: HashMap<EntryId, Move>,
    /// The segment whose drain was given back last: the next drain takes another.
    pub(crate) spared: Option<u32>,
    pub(crate) grown: Grown,
    /// Operations that wait for the device to take them.
    pub(crate) outbox: VecDeque<Op>,
    pub(crate) budget: Option<Budget>,
    /// Device errors in a row; at the limit the device is quarantined.
    pub(crate) errors_in_row: u32,
    pub(crate) quarantined: bool,
    /// The writer thread has ended.
    pub(crate) writer_over: bool,
    pub(crate) keeps_host: bool,
    pub(crate) counters: Counters,
}

impl State {
    pub(crate) fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    pub(crate) fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// Host slot of an object, whole or being filled.
    pub(crate) fn host_of(&self, id: EntryId) -> Option<SlotId> {
        self.index.slot(id, Tier::Host).map(|slot| SlotId(slot as u32))
    }

    /// Disk slot of an object, committed or being written.
    pub(crate) fn place_of(&self, id: EntryId) -> Option<Place> {
        self.index.slot(id, Tier::Disk).map(Place::unpack)
    }

    pub(crate) fn has(&self, id: EntryId, flags: u8) -> bool {
        self.index[id].flags & flags == flags
    }

    pub(crate) fn set(&mut self, id: EntryId, flags: u8) {
        self.index[id].flags |= flags;
    }

    pub(crate) fn unset(&mut self, id: EntryId, flags: u8) {
        self.index[id].flags &= !flags;
    }

    pub(crate) fn page_of(place: Place) -> PageId {
        PageId { segment: place.segment, page: place.slot / SLOTS_PER_PAGE }
    }

    /// Gives back one reference. The last one of a removed object frees its slots; the last one
    /// of a live object drops its host copy where host memory keeps nothing.
    pub(crate) fn release(&mut self, id: EntryId) {
        match self.index.release(id) {
            Released::Live => {}
            Released::LastOfLive => {
                if self.has(id, bit::HOST) && (!self.keeps_host || self.is_left_behind(id)) {
                    self.drop_host(id);
                }
            }
            Released::Freed(freed) => self.free_slots(&freed),
        }
    }

    /// Whether the host copy of a part has outlived that of its part 0, with which it would have
    /// been evicted.
    fn is_left_behind(&self, id: EntryId) -> bool {
        self.has(id, bit::READY)
            && self
                .head_of
                .get(&id)
                .is_some_and(|&head| self.index.refs(head) == 0 && !self.has(head, bit::HOST))
    }

    /// Drops the host copy of one part of a set that cannot leave as a whole: its part 0 is held,
    /// or its other parts are. A set may be larger than the host tier. True if one went.
    pub(crate) fn shed_part(&mut self, stride: u32) -> bool {
        let part = self.head_of.keys().copied().find(|&id| {
            self.has(id, bit::READY | bit::HOST)
                && self.index.refs(id) == 0
                && super::meta::stride_of(self.index[id].length) == stride
        });
        part.inspect(|&id| self.drop_host(id)).is_some()
    }

    /// Notes the class of a set's part, so that who needs a slot of that class finds the set.
    pub(crate) fn note_class(&mut self, part: EntryId) {
        if let Some(&head) = self.head_of.get(&part) {
            *self.classes_of.entry(head).or_default() |= 1 << self.index[part].class;
        }
    }

    /// The least valuable object of the disk tier that has a slot of `class`, itself or by one of
    /// its parts; of any class if none is given.
    pub(crate) fn disk_victim(&mut self, class: Option<u8>) -> Option<Victim> {
        let classes_of = &self.classes_of;
        self.index.victim(Tier::Disk, &mut |id, entry| {
            class.is_none_or(|class| {
                entry.class == class
                    || entry.flags & flag::HEAD != 0
                        && classes_of.get(&id).is_some_and(|bits| bits >> class & 1 == 1)
            })
        })
    }

    /// Takes an object out of the index: from now on nobody finds it. Its slots are freed with
    /// its last reference. Who waits for it gets `Rejected(reason)`.
    pub(crate) fn remove(&mut self, id: EntryId, reason: Reason) {
        self.settle(id, Status::Rejected(reason));
        let others = self.sets.remove(&id).unwrap_or_default();
        self.classes_of.remove(&id);
        self.gates.remove(&id);
        // Losing a part removes the set.
        if let Some(head) = self.head_of.remove(&id)
            && self.sets.contains_key(&head)
        {
            self.remove(head, reason);
        }
        // Losing the set took this part along.
        if !self.is_live(id) {
            return;
        }
        let was_gated = self.gated.remove(&id);
        let head_place = self.place_of(id);
        self.forget(id);
        for other in others {
            self.head_of.remove(&other);
            self.settle(other, Status::Rejected(reason));
            if !self.is_live(other) {
                continue;
            }
            // Part 0's descriptor leaves the disk before any other part's.
            if let Some(place) = head_place
                && self.place_of(other).is_some()
            {
                self.index.acquire(other);
                self.after_slot.entry(place).or_default().push(other);
            }
            self.forget(other);
        }
        if was_gated {
            // Its payload is written and its descriptor will never be: the write ends here.
            self.end_write(id);
        }
    }

    /// Whether the object is in the index: neither removed nor, after that, given back.
    pub(crate) fn is_live(&self, id: EntryId) -> bool {
        self.index.at(id.index()) == Some(id)
    }

    pub(crate) fn forget(&mut self, id: EntryId) {
        let entry = &self.index[id];
        let namespace = usize::from(entry.namespace);
        self.namespaces.objects[namespace] = self.namespaces.objects[namespace].saturating_sub(1);
        if let Some(freed) = self.index.remove(id) {
            self.free_slots(&freed);
        }
    }

    fn free_slots(&mut self, freed: &Freed) {
        if let Some(slot) = freed.host {
            self.slots.free(SlotId(slot));
        }
        if let Some(word) = freed.disk {
            self.free_place(Place::unpack(word));
        }
    }

    /// The slot's descriptor leaves its page; the slot is free when that page is on disk (INV-2).
    pub(crate) fn free_place(&mut self, place: Place) {
        let generation = self.segments.get(place.segment).generation;
        self.segments.disown(place.segment, place.slot);
        self.pages.cool(Self::page_of(place), place.slot, generation);
        self.disk_objects -= 1;
    }

    /// The descriptor of a removed part 0 is off the disk: its other parts may go as well.
    pub(crate) fn free_followers(&mut self, head: Place) {
        for other in self.after_slot.remove(&head).unwrap_or_default() {
            self.release(other);
        }
    }

    /// Drops the host copy of an object that nobody uses. An object without another copy leaves.
    pub(crate) fn drop_host(&mut self, id: EntryId) {
        let others = self.sets.get(&id).cloned().unwrap_or_default();
        for one in std::iter::once(id).chain(others) {
            let Some(slot) = self.host_of(one).filter(|_| self.index.refs(one) == 0) else {
                continue;
            };
            if !self.has(one, bit::READY) {
                self.counters.evicted += 1;
                self.remove(one, Reason::NoSpace);
                continue;
            }
            if self.index.is_resident(one, Tier::Host) {
                self.index.drop_resident(one, Tier::Host);
            }
            self.index.set_slot(one, Tier::Host, None);
            self.unset(one, bit::HOST);
            self.slots.free(slot);
        }
    }

    /// Drops the disk copy of an object that nobody uses; with a host copy it is host-only from
    /// now on, without one it leaves.
    pub(crate) fn drop_disk(&mut self, id: EntryId) {
        let others = self.sets.get(&id).cloned().unwrap_or_default();
        // A host copy that foreign code could write may be another object by now.
        let trusted = self.has(id, bit::HOST)
            && self.host_of(id).is_some_and(|slot| !self.slots.suspect(slot));
        if !trusted || !others.is_empty() {
            self.counters.evicted += 1;
            self.remove(id, Reason::NoSpace);
            return;
        }
        if self.index.is_resident(id, Tier::Disk) {
            self.index.drop_resident(id, Tier::Disk);
        }
        self.unset(id, bit::COMMIT | bit::READY);
        if let Some(place) = self.place_of(id) {
            self.index.set_slot(id, Tier::Disk, None);
            self.free_place(place);
        }
    }

    /// Answers everybody who waits for the object.
    pub(crate) fn settle(&mut self, id: EntryId, status: Status) {
        for ticket in self.tickets.remove(&id).unwrap_or_default() {
            let status = if status == Status::Stored { ticket.then } else { status };
            self.answer(&ticket.batch, ticket.item, status);
        }
    }

    /// Answers everybody who waits for anything: nothing more will be written.
    pub(crate) fn settle_all(&mut self, status: Status) {
        let waiting: Vec<EntryId> = self.tickets.keys().copied().collect();
        for id in waiting {
            self.settle(id, status);
        }
        for (_, ticket) in std::mem::take(&mut self.flushing) {
            self.answer(&ticket.batch, ticket.item, status);
        }
    }

    /// Answers one item of a put, and counts it.
    pub(crate) fn answer(&mut self, batch: &Batch, item: usize, status: Status) {
        self.counters.put(status);
        batch.settle(item, status);
    }

    /// Whether a lease may pin the slot: leases leave some of host memory to others (contract C6).
    pub(crate) fn may_pin(&self, slot: SlotId, limit: u64) -> bool {
        let held = self.pins.get(slot.0 as usize).is_some_and(|&pins| pins > 0);
        held || self.pinned_bytes + u64::from(self.slots.stride(slot)) <= limit
    }

    /// Adds a lease's pin to a host slot.
    pub(crate) fn pin(&mut self, slot: SlotId) {
        let at = slot.0 as usize;
        if self.pins.len() <= at {
            self.pins.resize(at + 1, 0);
        }
        self.pins[at] += 1;
        if self.pins[at] == 1 {
            self.pinned_bytes += u64::from(self.slots.stride(slot));
        }
    }

    pub(crate) fn unpin(&mut self, slot: SlotId) {
        let pins = &mut self.pins[slot.0 as usize];
        debug_assert!(*pins > 0, "a pin is given back once");
        *pins -= 1;
        if *pins == 0 {
            self.pinned_bytes -= u64::from(self.slots.stride(slot));
        }
    }

    pub(crate) fn is_verifying(&self, slot: SlotId) -> bool {
        self.verifying.get(slot.0 as usize).copied().unwrap_or(false)
    }

    pub(crate) fn set_verifying(&mut self, slot: SlotId, verifying: bool) {
        let at = slot.0 as usize;
        if self.verifying.len() <= at {
            self.verifying.resize(at + 1, false);
        }
        self.verifying[at] = verifying;
    }
}
