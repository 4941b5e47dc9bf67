//! Room on disk: a slot for one object, from its class, from a free segment, by evicting, or by
//! draining another class's segment. Only the writer thread allocates.

use super::batch::Reason;
use super::meta::{bit, stride_of};
use super::open::Shared;
use super::state::State;
use crate::disk::MAX_CLASSES;
use crate::disk::directory::{self, DirectoryEntry};
use crate::disk::place::Place;
use crate::io::device::File;
use kvstore_index::{EntryId, Tier};
use parking_lot::MutexGuard;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Why there is no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSlot {
    /// Slots cool, or a segment drains: ask again when something has completed.
    Wait,
    Never(Reason),
}

/// Wasted share of a slot that is still taken when all classes are: an eighth.
const MAX_WASTE: u32 = 8;
/// After the file system was full, how long until the data file is grown again.
const GROW_AGAIN: Duration = Duration::from_secs(1);
/// Victims that are evicted ahead for what is queued behind, so that they share page writes.
const AHEAD: usize = 64;

impl Shared {
    /// A slot for `id`, counted and owned from now on.
    pub(crate) fn disk_room(
        &self,
        state: &mut MutexGuard<'_, State>,
        id: EntryId,
    ) -> Result<Place, NoSlot> {
        let stride = stride_of(state.index[id].length);
        let class = self.class_for(state, stride)?;
        if let Some(most) = self.options.disk_objects {
            while state.disk_objects >= most {
                if !state.drop_expired() && !state.evict_one_of(None) {
                    return Err(state.nothing_to_evict());
                }
            }
        }
        loop {
            if let Some((segment, slot)) = state.segments.alloc(class, id) {
                state.index[id].class = class;
                state.note_class(id);
                state.disk_objects += 1;
                return Ok(Place { device: 0, segment, slot });
            }
            if self.open_segment(state, class) {
                continue;
            }
            return Err(self.make_room(state, class));
        }
    }

    /// Evicts or drains for `class`; says whether waiting helps.
    fn make_room(&self, state: &mut State, class: u8) -> NoSlot {
        let coming = state.coming_slots(class);
        let wanted = state
            .queue
            .iter()
            .take(AHEAD)
            .filter(|&&id| self.class_of(state, id) == Some(class))
            .count()
            .max(1);
        if coming >= wanted {
            return NoSlot::Wait;
        }
        if state.drop_expired() {
            return NoSlot::Wait;
        }
        if state.drain.is_none()
            && self.another_class_is_older(state, class)
            && self.start_drain(state, class)
        {
            return NoSlot::Wait;
        }
        // One set of parts may give more than one slot.
        let mut evicted = false;
        while state.coming_slots(class) < wanted && state.evict_one_of(Some(class)) {
            evicted = true;
        }
        if evicted || coming > 0 || state.drain.is_some() || self.start_drain(state, class) {
            return NoSlot::Wait;
        }
        state.nothing_to_evict()
    }

    /// Class of a queued object, if its stride has one.
    fn class_of(&self, state: &State, id: EntryId) -> Option<u8> {
        if state.index.is_dead(id) {
            return None;
        }
        let stride = stride_of(state.index[id].length);
        let at = state.superblock.classes.iter().position(|&s| s == stride)?;
        Some(at as u8)
    }

    /// The class of `stride`: registered by its first use, superblock first (INV-8).
    fn class_for(&self, state: &mut MutexGuard<'_, State>, stride: u32) -> Result<u8, NoSlot> {
        if u64::from(stride) > state.superblock.geometry.segment_bytes {
            return Err(NoSlot::Never(Reason::TooLarge));
        }
        let classes = &state.superblock.classes;
        if let Some(at) = classes.iter().position(|&s| s == stride) {
            return Ok(at as u8);
        }
        let unused = (0..MAX_CLASSES)
            .find(|&at| classes[at] == 0 || state.segments.of_class(at as u8).next().is_none());
        if let Some(at) = unused {
            // Only this thread gives classes and segments away, so the lock may go meanwhile.
            let written = MutexGuard::unlocked(state, || {
                self.change_superblock(&self.meta.lock(), |next| next.classes[at] = stride)
            });
            if written.is_err() {
                state.counters.io_errors += 1;
                return Err(NoSlot::Never(Reason::ReadOnly));
            }
            return Ok(at as u8);
        }
        // All are taken: the smallest that holds it without wasting more than an eighth.
        (0..MAX_CLASSES)
            .filter(|&at| classes[at] >= stride && classes[at] - stride <= classes[at] / MAX_WASTE)
            .min_by_key(|&at| classes[at])
            .map(|at| at as u8)
            .ok_or(NoSlot::Never(Reason::NoClass))
    }

    /// Gives a free segment to `class`, growing the data file where it has to.
    fn open_segment(&self, state: &mut MutexGuard<'_, State>, class: u8) -> bool {
        let Some(segment) = state.segments.free_segment() else { return false };
        if !self.grow_to(state, segment) {
            return false;
        }
        let generation = state.segments.get(segment).generation + 1;
        let page = directory_page(state, segment, DirectoryEntry { generation, class });
        let first = segment / directory::PER_PAGE * directory::PER_PAGE;
        let offset = u64::from(first) * directory::ENTRY as u64;
        let copies = [offset, state.superblock.geometry.directory_bytes() + offset];
        // INV-4: both copies have completed before the first payload goes into the segment. Only
        // this thread gives segments away, so the lock may go meanwhile.
        let written = MutexGuard::unlocked(state, || {
            copies.into_iter().all(|at| self.device.write_at(File::Directory, at, &page).is_ok())
        });
        if !written {
            state.counters.io_errors += 1;
            return false;
        }
        let stride = u64::from(state.superblock.classes[usize::from(class)]);
        state.segments.open(segment, class, stride, generation);
        true
    }

    /// Makes the files long enough for `segment`; false when the file system is full.
    fn grow_to(&self, state: &mut MutexGuard<'_, State>, segment: u32) -> bool {
        let geometry = state.superblock.geometry;
        if segment < state.grown.segments {
            return true;
        }
        if state.grown.refused.is_some_and(|at| at.elapsed() < GROW_AGAIN) {
            return false;
        }
        // A sixteenth of the store at once, so that few growths are synced.
        let step = (state.segments.count() / 16).max(1);
        let ahead = (segment + step).min(state.segments.count());
        for target in [ahead, segment + 1] {
            let data = u64::from(target) * geometry.segment_bytes;
            let table = u64::from(target) * geometry.table_stride();
            let grown = MutexGuard::unlocked(state, || {
                self.device.grow(File::Table, table)?;
                self.device.grow(File::Data, data)
            });
            match grown {
                Ok(_) => {
                    state.grown.segments = target;
                    state.grown.refused = None;
                    return true;
                }
                Err(error) => {
                    tracing::warn!(%error, segments = target, "the data file cannot grow");
                }
            }
        }
        state.grown.refused = Some(Instant::now());
        state.counters.no_space_evictions += 1;
        false
    }
}

impl State {
    /// Slots of `class` that will be free when pages have been written: those that cool, and
    /// those of parts whose part 0 cools.
    fn coming_slots(&self, class: u8) -> usize {
        let followers = self.after_slot.values().flatten();
        let parts = followers.filter(|&&part| self.index[part].class == class).count();
        self.segments.cooling_slots(class) as usize + parts
    }

    /// Whether objects are on their way to disk, which may be victims when they are there.
    fn is_writing(&self) -> bool {
        self.writing_bytes > 0 || !self.pages.is_idle()
    }

    /// What it means that there is no victim.
    fn nothing_to_evict(&self) -> NoSlot {
        if self.is_writing() {
            NoSlot::Wait
        } else if self.pinned_bytes > 0 {
            NoSlot::Never(Reason::Pinned)
        } else {
            NoSlot::Never(Reason::NoSpace)
        }
    }

    /// Evicts the least valuable leaf (with what hangs under it in skipped classes) of `class`, or
    /// of any. Where host-only children keep every disk object from being a leaf, the oldest of
    /// those go instead, until their parent is one.
    pub(crate) fn evict_one_of(&mut self, class: Option<u8>) -> bool {
        let mut below_disk = None;
        loop {
            if let Some(victim) = self.disk_victim(class) {
                for id in victim.along.into_iter().chain([victim.id]) {
                    self.counters.evicted_disk += 1;
                    self.drop_disk(id);
                }
                return true;
            }
            if self.is_writing() {
                return false;
            }
            let below_disk = below_disk.get_or_insert_with(|| self.host_only_below_disk());
            let in_the_way = self.index.victim(Tier::Host, &mut |id, _| below_disk.contains(&id));
            let Some(victim) = in_the_way else { return false };
            for id in victim.along.into_iter().chain([victim.id]) {
                below_disk.remove(&id);
                self.counters.evicted_host += 1;
                self.drop_host(id);
            }
        }
    }

    /// Objects that only host memory has, below one that the disk has. One pass over the index.
    fn host_only_below_disk(&self) -> HashSet<EntryId> {
        let host_only = |id| self.has(id, bit::HOST) && !self.index.is_resident(id, Tier::Disk);
        let all = self.index.iter().map(|(id, _)| id).filter(|&id| host_only(id));
        all.filter(|&id| {
            let mut above = self.index.parent(id);
            while let Some(at) = above.filter(|&at| host_only(at)) {
                above = self.index.parent(at);
            }
            above.is_some_and(|at| self.index.is_resident(at, Tier::Disk))
        })
        .collect()
    }
}

/// The directory page of `segment` with its new entry.
fn directory_page(state: &State, segment: u32, new: DirectoryEntry) -> Vec<u8> {
    let first = segment / directory::PER_PAGE * directory::PER_PAGE;
    let last = (first + directory::PER_PAGE).min(state.segments.count());
    let mut page = vec![0; directory::PER_PAGE as usize * directory::ENTRY];
    for (number, record) in (first..last).zip(page.chunks_exact_mut(directory::ENTRY)) {
        let s = state.segments.get(number);
        let entry = if number == segment {
            new
        } else {
            DirectoryEntry { generation: s.generation, class: s.class }
        };
        if entry.generation > 0 {
            record.copy_from_slice(&entry.encode(&state.superblock.store, 0, number));
        }
    }
    page
}
