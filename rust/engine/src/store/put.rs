//! Puts: one status per item, the first writer wins, parents before children.

use super::batch::{Ack, Batch, Reason, Status};
use super::meta::{bit, expires_at, is_expired, stride_of};
use super::namespace::{Epochs, Namespace};
use super::open::Shared;
use super::room::NoRoom;
use super::state::{Phase, State, Ticket};
use crate::disk::descriptor::flag;
use crate::host::copy::{checksum, copy_checksum};
use crate::host::slots::SlotId;
use crate::identity::{Key, ObjectKind, Piece, object_key};
use kvstore_index::{EntryId, Fingerprint, Kind, NewEntry, Tier};
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How a put is done.
#[derive(Clone, Copy, Debug, Default)]
pub struct PutOptions {
    /// What `Stored` has to mean.
    pub ack: Ack,
    /// Time to live; `None` takes the namespace's.
    pub ttl: Option<Duration>,
    /// How long to wait for room before `Busy`; `None`: not at all for `host`, the store's
    /// `room_wait` for the stronger levels.
    pub wait: Option<Duration>,
    /// Epochs that the keys were made under ([`Namespace::epochs`]): a put of older ones is
    /// `Rejected(cleared)`. `None` takes those of the keys that the handle made last.
    pub epochs: Option<Epochs>,
}

/// One object to be stored.
#[derive(Clone, Copy, Debug)]
pub struct Object<'a> {
    /// Key of the block that it is, or that it belongs to.
    pub block: Key,
    /// What it is.
    pub kind: Kind,
    /// Block under whose first object it hangs; `None` = the root.
    pub parent: Option<Key>,
    /// Item of the same put that must be accepted first.
    pub after: Option<usize>,
    /// Blocks above it.
    pub depth: u32,
    /// It belongs to a chain that was stored after a bounded replay.
    pub replayed: bool,
    /// A window that no resume point needs: among the first victims.
    pub unneeded: bool,
    /// The payload; copied before the put returns.
    pub data: &'a [u8],
    /// Offsets at which layers begin: where an object in parts is cut if possible.
    pub cuts: &'a [u64],
}

impl Namespace {
    /// Stores objects in order, parents before children. The bytes are copied before this returns.
    pub fn put_objects(&self, objects: &[Object<'_>], options: PutOptions) -> Arc<Batch> {
        let batch = Batch::new(objects.len());
        let shared = &self.shared;
        let wait = options.wait.unwrap_or(match options.ack {
            Ack::Host => Duration::ZERO,
            Ack::Ssd | Ack::SsdFlush => shared.options.room_wait,
        });
        let put = Put {
            namespace: self,
            batch: &batch,
            ack: options.ack,
            expires_at: expires_at(options.ttl.or(self.options.ttl)),
            deadline: Instant::now() + wait,
            epochs: options.epochs,
            compared: Cell::new(false),
        };
        // A put is one use of its chain, as a look-up is.
        shared.state.lock().index.touch_chain(&[]);
        let mut refused: Vec<Option<Status>> = vec![None; objects.len()];
        for (item, object) in objects.iter().enumerate() {
            let status = match object.after.and_then(|after| refused[after]) {
                Some(status) => Some(status),
                None => put.one(item, object),
            };
            if let Some(status) = status {
                shared.state.lock().answer(&batch, item, status);
                let accepted = matches!(status, Status::Stored | Status::Exists);
                refused[item] = (!accepted).then_some(status);
            }
        }
        let used = {
            let state = shared.state.lock();
            shared.arena.extents() - state.slots.free_extents()
        };
        shared.care.wake(used);
        shared.wake();
        batch
    }
}

pub(super) struct Put<'a> {
    pub(super) namespace: &'a Namespace,
    batch: &'a Arc<Batch>,
    pub(super) ack: Ack,
    expires_at: u32,
    pub(super) deadline: Instant,
    epochs: Option<Epochs>,
    /// One item's bytes were compared already.
    compared: Cell<bool>,
}

/// Length and checksum of an object that was there first.
pub(super) struct Twin {
    length: u32,
    checksum: u64,
}

/// What an item's first step found.
pub(super) enum Found {
    /// The answer is known.
    Answer(Status),
    /// Somebody else's put in flight gives the answer.
    Joined,
    /// It is there: the answer, unless a write or a flush gives it, and what to compare with.
    Present(Option<Status>, Option<Twin>),
    /// A fresh entry with a host slot and one reference, to be filled.
    Fresh(EntryId, SlotId),
}

impl Put<'_> {
    pub(super) fn shared(&self) -> &Shared {
        &self.namespace.shared
    }

    /// `None`: the batch learns the answer later.
    fn one(&self, item: usize, object: &Object<'_>) -> Option<Status> {
        let bare = object.data.len() as u64 <= self.shared().bare_limit;
        let piece = if bare { Piece::Bare } else { Piece::Part(0) };
        let key = self.namespace.object(&object.block, object.kind, piece);
        if bare { self.bare(item, object, &key) } else { self.in_parts(item, object, &key) }
    }

    fn bare(&self, item: usize, object: &Object<'_>, key: &Key) -> Option<Status> {
        match self.claim(item, object, key, object.data.len() as u32, None) {
            Found::Answer(status) => Some(status),
            Found::Joined => None,
            Found::Present(answer, twin) => {
                if let Some(twin) = twin {
                    self.compare(&twin, object);
                }
                answer
            }
            Found::Fresh(id, slot) => {
                let checksum = self.fill(slot, &[object.data]);
                let mut state = self.shared().state.lock();
                self.filled(&mut state, id, checksum, item)
            }
        }
    }

    /// Finds the object or makes room for it; `others` is the number of its parts besides part 0,
    /// if it is in parts.
    pub(super) fn claim(
        &self,
        item: usize,
        object: &Object<'_>,
        key: &Key,
        length: u32,
        others: Option<u32>,
    ) -> Found {
        let flags = if others.is_some() { flag::PART | flag::HEAD } else { 0 };
        let shared = self.shared();
        let fingerprint = Fingerprint(key.fingerprint());
        let mut state = shared.state.lock();
        let mut woken = false;
        loop {
            if let Some(reason) = self.refusal(&state) {
                return Found::Answer(Status::Rejected(reason));
            }
            if let Some(id) = state.index.find(&fingerprint) {
                if !is_expired(state.index[id].expires_at) {
                    return self.present(&mut state, id, item, object);
                }
                state.counters.expired += 1;
                state.remove(id, Reason::NoSpace);
            }
            match self.room(&mut state, length) {
                Ok(slot) => {
                    let parent = self.parent(&state, object);
                    match self.insert(&mut state, object, fingerprint, parent, length, flags, slot)
                    {
                        Some(id) => {
                            if let Some(others) = others {
                                // In the same step: a set that is removed is removed whole.
                                state.sets.insert(id, Vec::new());
                                state.gates.insert(id, others);
                            }
                            return Found::Fresh(id, slot);
                        }
                        None => {
                            state.slots.free(slot);
                            return Found::Answer(Status::Rejected(Reason::NoSpace));
                        }
                    }
                }
                Err(NoRoom::Never(reason)) => return Found::Answer(Status::Rejected(reason)),
                Err(NoRoom::Busy) => {
                    // Once: the writer may not know yet what was queued before this item.
                    if !std::mem::replace(&mut woken, true) {
                        shared.wake();
                    }
                    if shared.changed.wait_until(&mut state, self.deadline).timed_out() {
                        return Found::Answer(Status::Busy);
                    }
                }
            }
        }
    }

    /// Why nothing at all is taken.
    fn refusal(&self, state: &State) -> Option<Reason> {
        if state.phase != Phase::Open || self.shared().is_poisoned() {
            Some(Reason::Closing)
        } else if self.shared().options.read_only {
            Some(Reason::ReadOnly)
        } else if !self.namespace.is_current(state, self.epochs) {
            Some(Reason::Cleared)
        } else {
            None
        }
    }

    /// A host slot, below the high watermark of what is not written yet.
    pub(super) fn room(&self, state: &mut State, length: u32) -> Result<SlotId, NoRoom> {
        let stride = stride_of(length);
        if state.dirty_bytes + u64::from(stride) > self.shared().dirty_limit
            && state.dirty_bytes > 0
        {
            return Err(NoRoom::Busy);
        }
        state.host_room(stride)
    }

    /// The object is there, or on its way.
    fn present(&self, state: &mut State, id: EntryId, item: usize, object: &Object<'_>) -> Found {
        let ticket = |then| Ticket { batch: self.batch.clone(), item, ack: self.ack, then };
        let stored = state.index[id].flags & (bit::HOST | bit::READY) != 0;
        if !stored {
            // Its first put is in flight: join it and get its outcome (contract C2).
            state.tickets.entry(id).or_default().push(ticket(Status::Stored));
            return Found::Joined;
        }
        let twin = self.twin(state, id);
        if let Some(parent) = self.parent(state, object).and_then(|fp| state.index.find(&fp)) {
            state.index.relink(id, parent);
        }
        match (self.ack, state.has(id, bit::READY)) {
            (Ack::Host, _) | (Ack::Ssd, true) => Found::Present(Some(Status::Exists), twin),
            (Ack::SsdFlush, true) => {
                let round = state.flush.round;
                state.flushing.push((round, ticket(Status::Exists)));
                Found::Present(None, twin)
            }
            (_, false) => {
                state.tickets.entry(id).or_default().push(ticket(Status::Exists));
                state.queue_write(id);
                Found::Present(None, twin)
            }
        }
    }

    /// What to compare a second put's bytes with (contract C3). Their checksum costs a pass, so
    /// only one item of a put pays it, and every item of a deterministic namespace.
    fn twin(&self, state: &State, id: EntryId) -> Option<Twin> {
        let entry = &state.index[id];
        let comparable = entry.flags & (flag::HEAD | flag::ENCODED) == 0;
        let wanted = self.namespace.options.deterministic || !self.compared.replace(true);
        (comparable && wanted).then_some(Twin { length: entry.length, checksum: entry.checksum })
    }

    /// Counts a put of a present key whose bytes differ.
    fn compare(&self, twin: &Twin, object: &Object<'_>) {
        if twin.length as usize == object.data.len() && twin.checksum == checksum(object.data) {
            return;
        }
        self.shared().state.lock().counters.puts_divergent += 1;
        if self.namespace.options.deterministic {
            self.namespace.note_divergence(&object.block);
        }
        tracing::warn!(namespace = self.namespace.index, "a put of a present key has other bytes");
    }

    /// Fingerprint of the object under which this one hangs.
    fn parent(&self, state: &State, object: &Object<'_>) -> Option<Fingerprint> {
        object.parent.map(|block| self.namespace.first_object(state, &block))
    }

    #[allow(clippy::too_many_arguments, reason = "the fields of one entry")]
    pub(super) fn insert(
        &self,
        state: &mut State,
        object: &Object<'_>,
        fingerprint: Fingerprint,
        parent: Option<Fingerprint>,
        length: u32,
        flags: u8,
        slot: SlotId,
    ) -> Option<EntryId> {
        let replayed = if object.replayed { flag::REPLAYED } else { 0 };
        let new = NewEntry {
            fingerprint,
            checksum: 0,
            parent_prefix: parent.map_or(0, |fp| fp.prefix()),
            sequence: state.next_sequence(),
            length,
            tenant: self.namespace.tenant,
            expires_at: self.expires_at,
            namespace: self.namespace.index,
            depth: object.depth.min(u32::from(u16::MAX)) as u16,
            class: 0,
            kind: object.kind,
            flags: flags | replayed,
        };
        let id = match state.index.insert(&new) {
            Ok(id) => id,
            Err(_) if state.evict_any() => state.index.insert(&new).ok()?,
            Err(_) => return None,
        };
        state.index.set_slot(id, Tier::Host, Some(u64::from(slot.0)));
        state.slots.set_owner(slot, id.index() as u32);
        state.index.acquire(id);
        state.namespaces.objects[usize::from(self.namespace.index)] += 1;
        if object.unneeded {
            state.index.set_unneeded(id, true);
        }
        if self.expires_at != 0 {
            let handle = state.index.handle(id);
            state.expiry.push(std::cmp::Reverse((self.expires_at, handle)));
        }
        Some(id)
    }

    /// Copies the pieces into the slot, one behind the other; the checksum of all of them.
    pub(super) fn fill(&self, slot: SlotId, pieces: &[&[u8]]) -> u64 {
        let shared = self.shared();
        let length: usize = pieces.iter().map(|piece| piece.len()).sum();
        let buf = shared.state.lock().slots.buf(slot, stride_of(length as u32));
        // SAFETY: the slot was allocated for this object, whose entry is not whole yet: nobody
        // reads, writes or views it until `filled`.
        let bytes = unsafe { shared.arena.bytes_mut(buf) };
        let mut at = 0;
        let mut sum = None;
        for piece in pieces {
            let crc = copy_checksum(&mut bytes[at..at + piece.len()], piece);
            sum = Some(match sum {
                None => crc,
                Some(before) => crate::host::copy::combine(before, crc, piece.len() as u64),
            });
            at += piece.len();
        }
        // No slot carries what an older object left behind its payload.
        bytes[length..].fill(0);
        sum.unwrap_or_else(|| checksum(&[]))
    }

    /// The bytes are in host memory: from now on others find them.
    pub(super) fn filled(
        &self,
        state: &mut State,
        id: EntryId,
        checksum: u64,
        item: usize,
    ) -> Option<Status> {
        if state.index.is_dead(id) {
            // Cleared meanwhile; removal has answered who joined.
            state.release(id);
            return Some(Status::Rejected(Reason::Cleared));
        }
        state.index[id].checksum = checksum;
        state.set(id, bit::HOST);
        state.index.add_resident(id, Tier::Host);
        for ticket in state.take_tickets(id, Ack::Host) {
            state.answer(&ticket.batch, ticket.item, ticket.then);
        }
        let answer = if self.ack == Ack::Host {
            Some(Status::Stored)
        } else {
            let ticket =
                Ticket { batch: self.batch.clone(), item, ack: self.ack, then: Status::Stored };
            state.tickets.entry(id).or_default().push(ticket);
            None
        };
        state.queue_write(id);
        state.release(id);
        self.shared().changed.notify_all();
        answer
    }
}

/// Kind of an object in its key.
pub(crate) fn object_kind(kind: Kind) -> ObjectKind {
    match kind {
        Kind::Body => ObjectKind::Body,
        Kind::Window => ObjectKind::Window,
        Kind::Checkpoint => ObjectKind::Checkpoint,
    }
}

impl Namespace {
    /// The key of an object of `block`.
    pub(crate) fn object(&self, block: &Key, kind: Kind, piece: Piece) -> Key {
        object_key(&self.digest, block, object_kind(kind), piece)
    }

    /// Fingerprint of a block's first object: what is stored of bare body and part 0, else the
    /// bare body's.
    pub(crate) fn first_object(&self, state: &State, block: &Key) -> Fingerprint {
        let bare = Fingerprint(self.object(block, Kind::Body, Piece::Bare).fingerprint());
        if state.index.find(&bare).is_some() {
            return bare;
        }
        let head = Fingerprint(self.object(block, Kind::Body, Piece::Part(0)).fingerprint());
        if state.index.find(&head).is_some() { head } else { bare }
    }
}
