//! Room in host memory, and the write budget of the disk tier.

use super::batch::Reason;
use super::meta::{bit, is_expired, stride_of};
use super::state::State;
use crate::host::slots::SlotId;
use crate::mirror::Copies;
use kvstore_index::{Entry, EntryId, Tier, Victim};
use std::cmp::Reverse;
use std::time::Instant;

/// Why a host slot could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// Writes or reads on their way will give some back.
    Busy,
    /// Never, or not until a lease ends.
    Never(Reason),
}

impl State {
    /// A host slot of `stride` bytes; evicts no more than what is missing for it.
    pub(crate) fn host_room(&mut self, stride: u32) -> Result<SlotId, NoRoom> {
        if stride > self.slots.extent_bytes() {
            return Err(NoRoom::Never(Reason::TooLarge));
        }
        loop {
            if let Some(slot) = self.slots.alloc(stride) {
                self.slots.set_suspect(slot, false);
                return Ok(slot);
            }
            if !self.evict_host(stride) {
                return Err(self.why_no_room());
            }
        }
    }

    fn why_no_room(&self) -> NoRoom {
        if self.frees_soon() {
            NoRoom::Busy
        } else if self.pinned_bytes > 0 {
            NoRoom::Never(Reason::Pinned)
        } else {
            NoRoom::Never(Reason::NoSpace)
        }
    }

    /// Makes one step towards a free slot of `stride`; false when there is none to make.
    fn evict_host(&mut self, stride: u32) -> bool {
        if self.drop_expired() {
            return true;
        }
        if let Some(victim) = self.host_victim(stride) {
            for id in victim.along.into_iter().chain([victim.id]) {
                self.counters.evicted_host += 1;
                self.drop_host(id);
            }
            return true;
        }
        self.empty_host_extent(stride) || self.shed_part(stride)
    }

    /// The least valuable object of a stride. Where it would be lost, the next few are looked at, and
    /// the first with a copy on disk or in the mirror goes instead.
    fn host_victim(&mut self, stride: u32) -> Option<Victim> {
        let Self { index, mirror, .. } = self;
        let fits = |entry: &Entry| stride_of(entry.length) == stride;
        let has_copy = |entry: &Entry| entry.flags & bit::READY != 0 || mirror.holds_entry(entry);
        let first = index.victim(Tier::Host, &mut |_, entry| fits(entry))?;
        if has_copy(&index[first.id]) {
            return Some(first);
        }
        let mut copies = Copies::default();
        let other = index
            .victim(Tier::Host, &mut |_, entry| fits(entry) && copies.ends(entry, has_copy(entry)));
        let keeps_all = |victim: &Victim| {
            victim.along.iter().chain([&victim.id]).all(|&id| has_copy(&index[id]))
        };
        Some(other.filter(keeps_all).unwrap_or(first))
    }

    /// Takes an extent from another class: one without a pin or a view, whose objects have a
    /// disk copy or nothing below them in host memory.
    fn empty_host_extent(&mut self, stride: u32) -> bool {
        let index = &self.index;
        let droppable = |slot: SlotId, owner: Option<EntryId>| {
            owner.is_some_and(|id| {
                index.refs(id) == 0
                    && !index.is_dead(id)
                    && index.slot(id, Tier::Host) == Some(u64::from(slot.0))
                    && (index[id].flags & bit::READY != 0 || index.children(id, Tier::Host) == 0)
            })
        };
        let slots = &self.slots;
        let candidate = slots.drain_candidate(stride, &mut |slot| {
            droppable(slot, index.at(slots.owner(slot) as usize))
        });
        let Some(extent) = candidate else { return false };
        let owners: Vec<_> = self
            .slots
            .live_in(extent)
            .filter_map(|slot| self.index.at(self.slots.owner(slot) as usize))
            .collect();
        for id in &owners {
            // A set of parts leaves together: an earlier turn may have taken this one along.
            if self.host_of(*id).is_some() && self.index.refs(*id) == 0 {
                self.counters.evicted_host += 1;
                self.drop_host(*id);
            }
        }
        self.slots.live_in(extent).next().is_none()
    }

    /// Removes expired objects, the first victims of all; true if any went.
    pub(crate) fn drop_expired(&mut self) -> bool {
        let mut dropped = false;
        while let Some(&Reverse((at, handle))) = self.expiry.peek() {
            if !is_expired(at) {
                break;
            }
            self.expiry.pop();
            if let Some(id) = self.index.resolve(handle) {
                self.counters.expired += 1;
                self.remove(id, Reason::NoSpace);
                dropped = true;
            }
        }
        dropped
    }
}

/// A token bucket in bytes: a day's budget, refilled evenly, of which an hour can be saved up.
#[derive(Debug)]
pub(crate) struct Budget {
    per_second: f64,
    most: f64,
    left: f64,
    at: Instant,
}

impl Budget {
    pub(crate) fn per_day(bytes: u64) -> Self {
        let per_second = bytes as f64 / 86_400.0;
        let most = per_second * 3600.0;
        Self { per_second, most, left: most, at: Instant::now() }
    }

    /// Whether `bytes` are there.
    pub(crate) fn has(&mut self, bytes: u64) -> bool {
        let now = Instant::now();
        let earned = now.duration_since(self.at).as_secs_f64() * self.per_second;
        self.left = (self.left + earned).min(self.most);
        self.at = now;
        self.left >= bytes as f64
    }

    /// Takes `bytes` that are there.
    pub(crate) fn take(&mut self, bytes: u64) {
        self.left -= bytes as f64;
    }
}
