//! Segments of one device in memory: which class each has, which slots are free, who owns them.

use super::geometry::Geometry;
use kvstore_index::EntryId;

/// Life of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Belongs to no class.
    Free,
    /// Takes objects of its class.
    Open,
    /// Its objects are being moved or dropped; takes none.
    Draining,
}

/// One segment.
#[derive(Debug)]
pub struct Segment {
    /// Where in its life it is.
    pub phase: Phase,
    /// Index in the class table; of a free segment that of its last life.
    pub class: u8,
    /// Times it was given to a class.
    pub generation: u32,
    /// Slots at the class's stride.
    pub slots: u32,
    /// Slots from here on were never used in this generation.
    fresh: u32,
    /// Slots below `fresh` that are free. A slot comes here only through [`Segments::release`]
    /// (INV-2).
    freed: Vec<u32>,
    /// Slots with an owner.
    pub live: u32,
    /// Slots without an owner that have not cooled yet.
    pub cooling: u32,
    /// Index entry of each slot.
    owners: Vec<Option<EntryId>>,
}

impl Segment {
    fn free_slots(&self) -> u32 {
        self.slots - self.fresh + self.freed.len() as u32
    }
}

/// All segments of one device.
#[derive(Debug)]
pub struct Segments {
    geometry: Geometry,
    list: Vec<Segment>,
    /// Segments that the disk limit allows now.
    limit: u32,
}

impl Segments {
    /// `limit` segments, all free.
    pub fn new(geometry: Geometry, limit: u32) -> Self {
        let list = (0..limit)
            .map(|_| Segment {
                phase: Phase::Free,
                class: 0,
                generation: 0,
                slots: 0,
                fresh: 0,
                freed: Vec::new(),
                live: 0,
                cooling: 0,
                owners: Vec::new(),
            })
            .collect();
        Self { geometry, list, limit }
    }

    /// Number of segments.
    pub fn count(&self) -> u32 {
        self.limit
    }

    /// One segment.
    pub fn get(&self, segment: u32) -> &Segment {
        &self.list[segment as usize]
    }

    /// All segments with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Segment)> {
        (0..).zip(&self.list)
    }

    /// A free slot of `class`: the fullest segment first, so that others empty.
    pub fn alloc(&mut self, class: u8, owner: EntryId) -> Option<(u32, u32)> {
        let segment = (0..)
            .zip(&self.list)
            .filter(|(_, s)| s.phase == Phase::Open && s.class == class && s.free_slots() > 0)
            .min_by_key(|(_, s)| s.free_slots())
            .map(|(number, _)| number)?;
        let s = &mut self.list[segment as usize];
        let slot = s.freed.pop().unwrap_or_else(|| {
            s.fresh += 1;
            s.fresh - 1
        });
        s.owners[slot as usize] = Some(owner);
        s.live += 1;
        Some((segment, slot))
    }

    /// Free slots of `class`.
    pub fn free_slots(&self, class: u8) -> u64 {
        self.list
            .iter()
            .filter(|s| s.phase == Phase::Open && s.class == class)
            .map(|s| u64::from(s.free_slots()))
            .sum()
    }

    /// Slots of `class` that will be free when their pages have been written.
    pub fn cooling_slots(&self, class: u8) -> u64 {
        self.list
            .iter()
            .filter(|s| s.phase == Phase::Open && s.class == class)
            .map(|s| u64::from(s.cooling))
            .sum()
    }

    /// The lowest free segment.
    pub fn free_segment(&self) -> Option<u32> {
        self.iter().find(|(_, s)| s.phase == Phase::Free).map(|(number, _)| number)
    }

    /// Gives a free segment to a class; the caller has written the directory entry (INV-4).
    pub fn open(&mut self, segment: u32, class: u8, stride: u64, generation: u32) {
        let slots = self.geometry.slots(stride);
        let s = &mut self.list[segment as usize];
        debug_assert!(s.phase == Phase::Free && s.live == 0);
        *s = Segment {
            phase: Phase::Open,
            class,
            generation,
            slots,
            fresh: 0,
            freed: Vec::new(),
            live: 0,
            cooling: 0,
            owners: vec![None; slots as usize],
        };
    }

    /// A segment belongs to no class, but was in this generation before.
    pub fn remember(&mut self, segment: u32, generation: u32) {
        self.list[segment as usize].generation = generation;
    }

    /// What recovery found in a segment: `owned` slots have live descriptors, `stale` ones are
    /// not empty and must cool before reuse (INV-2), all others are free.
    pub fn adopt(
        &mut self,
        segment: u32,
        class: u8,
        stride: u64,
        generation: u32,
        owned: &[u32],
        stale: &[u32],
    ) {
        self.open(segment, class, stride, generation);
        let s = &mut self.list[segment as usize];
        let used = owned.iter().chain(stale).max().map_or(0, |&slot| slot + 1);
        s.fresh = used;
        s.live = owned.len() as u32;
        s.cooling = stale.len() as u32;
        let mut free = vec![true; used as usize];
        for &slot in owned.iter().chain(stale) {
            free[slot as usize] = false;
        }
        s.freed = (0..used).rev().filter(|&slot| free[slot as usize]).collect();
    }

    /// Owner of a slot.
    pub fn owner(&self, segment: u32, slot: u32) -> Option<EntryId> {
        self.list[segment as usize].owners.get(slot as usize).copied().flatten()
    }

    /// Names the owner of a slot that recovery found.
    pub fn set_owner(&mut self, segment: u32, slot: u32, owner: EntryId) {
        self.list[segment as usize].owners[slot as usize] = Some(owner);
    }

    /// The slot has no owner any more; it stays out of the free list until its page has been
    /// written without it (INV-2).
    pub fn disown(&mut self, segment: u32, slot: u32) {
        let s = &mut self.list[segment as usize];
        debug_assert!(s.owners[slot as usize].is_some(), "a slot is disowned once");
        s.owners[slot as usize] = None;
        s.live -= 1;
        s.cooling += 1;
    }

    /// The slot has no owner any more and is of no use until the store is opened again: the file
    /// system has no space behind it. No descriptor of it was ever written in this life.
    pub fn lose(&mut self, segment: u32, slot: u32) {
        self.disown(segment, slot);
        self.list[segment as usize].cooling -= 1;
    }

    /// A page image without the slot's descriptor has completed: the slot is free (INV-2).
    /// A cooled slot of an earlier generation is nobody's business any more.
    pub fn release(&mut self, segment: u32, slot: u32, generation: u32) {
        let s = &mut self.list[segment as usize];
        if s.generation == generation && s.phase != Phase::Free {
            debug_assert!(s.owners[slot as usize].is_none());
            s.cooling -= 1;
            s.freed.push(slot);
        }
    }

    /// Starts or gives back a drain.
    pub fn set_draining(&mut self, segment: u32, draining: bool) {
        let s = &mut self.list[segment as usize];
        debug_assert_ne!(s.phase, Phase::Free);
        s.phase = if draining { Phase::Draining } else { Phase::Open };
    }

    /// A drained segment without live slots belongs to no class.
    pub fn retire(&mut self, segment: u32) {
        let s = &mut self.list[segment as usize];
        debug_assert_eq!(s.live, 0, "a segment is retired empty");
        s.phase = Phase::Free;
        s.cooling = 0;
        s.freed = Vec::new();
        s.owners = Vec::new();
    }

    /// Segments of `class`.
    pub fn of_class(&self, class: u8) -> impl Iterator<Item = u32> + '_ {
        self.iter()
            .filter(move |(_, s)| s.phase != Phase::Free && s.class == class)
            .map(|(number, _)| number)
    }

    /// Owned slots of a segment with their owners.
    pub fn owned(&self, segment: u32) -> impl Iterator<Item = (u32, EntryId)> + '_ {
        (0..)
            .zip(&self.list[segment as usize].owners)
            .filter_map(|(slot, &owner)| Some((slot, owner?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::test_entries;
    use std::collections::HashSet;

    /// An entry to own slots.
    fn owner() -> EntryId {
        test_entries::<1>()[0]
    }

    fn segments(n: u32) -> Segments {
        Segments::new(Geometry { segment_bytes: 16 << 20, max_segments: n }, n)
    }

    #[test]
    fn a_freed_slot_comes_back_only_through_release() {
        let mut s = segments(1);
        s.open(0, 0, 8 << 20, 1);
        assert_eq!(s.alloc(0, owner()), Some((0, 0)));
        assert_eq!(s.alloc(0, owner()), Some((0, 1)));
        assert_eq!(s.alloc(0, owner()), None);
        s.disown(0, 0);
        assert_eq!(s.alloc(0, owner()), None, "the slot cools");
        s.release(0, 0, 1);
        assert_eq!(s.alloc(0, owner()), Some((0, 0)));
    }

    #[test]
    fn a_slot_that_cooled_through_a_change_of_class_is_not_freed_twice() {
        let mut s = segments(1);
        s.open(0, 0, 8 << 20, 1);
        s.alloc(0, owner());
        s.disown(0, 0);
        s.set_draining(0, true);
        s.retire(0);
        s.open(0, 1, 4 << 20, 2);
        s.release(0, 0, 1);
        let slots: HashSet<_> = std::iter::from_fn(|| s.alloc(1, owner())).collect();
        assert_eq!(slots.len(), 4);
    }

    #[test]
    fn recovery_frees_what_is_neither_owned_nor_stale() {
        let mut s = segments(1);
        s.adopt(0, 0, 1 << 20, 3, &[0, 4], &[2]);
        let got: HashSet<_> =
            std::iter::from_fn(|| s.alloc(0, owner())).map(|(_, slot)| slot).collect();
        assert_eq!(got, (0..16).filter(|slot| ![0, 4, 2].contains(slot)).collect());
    }
}
