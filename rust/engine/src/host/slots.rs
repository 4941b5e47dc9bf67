//! Slots of the arena: extents are given to classes, each extent is cut into slots of one stride.
//!
//! No general allocator: sizes of objects repeat exactly, so a slab per stride wastes nothing and
//! cannot fragment. What the engine knows about a slot lives here in a side record, outside of
//! the payload memory that other processes may see.

use std::collections::BTreeSet;

use super::{Buf, SLOT_ALIGN};

/// Owner of a slot that no index entry stands behind.
pub const NO_OWNER: u32 = u32::MAX;

/// Handle of a live slot. Freed handles must not be used again: the next allocation has them.
#[derive(Copy, Clone, Debug, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct SlotId(pub u32);

/// Which slot of which extent is whose.
pub struct Slots {
    extents: Vec<Extent>,
    /// Extents of no class, the one to take next last.
    free: Vec<u32>,
    /// Classes with at least one extent, by stride.
    classes: Vec<Class>,
    extent_bytes: u32,
    /// A handle is `extent << index_bits | index`.
    index_bits: u32,
    used_bytes: u64,
}

#[derive(Default)]
struct Extent {
    stride: u32,
    live: u32,
    sides: Vec<Side>,
    /// One bit per slot, set where it is free.
    free: Vec<u64>,
}

/// Side record of a slot.
#[derive(Clone)]
struct Side {
    owner: u32,
    exposed: u32,
    suspect: bool,
    live: bool,
}

const VACANT: Side = Side { owner: NO_OWNER, exposed: 0, suspect: false, live: false };

struct Class {
    stride: u32,
    extents: u32,
    free_slots: u32,
    /// Extents with a free slot, by live slots: the fullest last.
    open: BTreeSet<(u32, u32)>,
}

impl Slots {
    /// All extents free. `extent_bytes` as of the arena.
    ///
    /// # Panics
    /// If `extent_bytes` is not a power of two from 4 KiB, or the arena is above 16 TiB.
    pub fn new(extents: u32, extent_bytes: u32) -> Slots {
        assert!(
            extent_bytes.is_power_of_two() && extent_bytes >= SLOT_ALIGN,
            "extent_bytes {extent_bytes} is not a power of two from {SLOT_ALIGN}"
        );
        let index_bits = (extent_bytes / SLOT_ALIGN).trailing_zeros();
        assert!(
            u64::from(extents) << index_bits <= u64::from(u32::MAX),
            "{extents} extents of {extent_bytes} bytes are more than 2^32 slots"
        );
        Slots {
            extents: (0..extents).map(|_| Extent::default()).collect(),
            free: (0..extents).rev().collect(),
            classes: Vec::new(),
            extent_bytes,
            index_bits,
            used_bytes: 0,
        }
    }

    /// A free slot of that stride, in the fullest extent that has one so that others can empty;
    /// in a free extent where the class has none. `None` if there is neither, or the stride is
    /// larger than an extent.
    ///
    /// # Panics
    /// If the stride is not a positive multiple of 4 KiB.
    pub fn alloc(&mut self, stride: u32) -> Option<SlotId> {
        assert!(
            stride > 0 && stride.is_multiple_of(SLOT_ALIGN),
            "stride {stride} is not a positive multiple of {SLOT_ALIGN}"
        );
        let at = match self.class(stride) {
            Ok(at) if self.classes[at].free_slots > 0 => at,
            found => self.give_extent(found, stride)?,
        };
        let class = &mut self.classes[at];
        let (live, number) =
            class.open.pop_last().unwrap_or_else(|| panic!("class {stride} lost its free slots"));
        let extent = &mut self.extents[number as usize];
        let index = extent.take_lowest();
        if extent.live < extent.slots() {
            class.open.insert((live + 1, number));
        }
        class.free_slots -= 1;
        self.used_bytes += u64::from(stride);
        Some(SlotId(number << self.index_bits | index))
    }

    /// Frees a slot. An extent whose last slot goes is free for any class again.
    ///
    /// # Panics
    /// If the slot is not live, or a view of it is: memory under a view is never reused (C6).
    pub fn free(&mut self, id: SlotId) {
        let exposed = self.exposed(id);
        assert!(exposed == 0, "{id:?} is freed under {exposed} live views");
        let (number, index) = self.split(id);
        let extent = &mut self.extents[number as usize];
        let (stride, was_live) = (extent.stride, extent.live);
        extent.put_back(index);
        let emptied = extent.live == 0;
        if emptied {
            *extent = Extent::default();
            self.free.push(number);
        }
        self.used_bytes -= u64::from(stride);
        let Ok(at) = self.class(stride) else { panic!("{id:?} has a stride of no class") };
        let class = &mut self.classes[at];
        class.open.remove(&(was_live, number));
        class.free_slots += 1;
        if emptied {
            class.extents -= 1;
            class.free_slots -= self.extent_bytes / stride;
        } else {
            class.open.insert((was_live - 1, number));
        }
        if class.extents == 0 {
            self.classes.remove(at);
        }
    }

    /// The first `len` bytes of a slot.
    ///
    /// # Panics
    /// If the slot is not live or shorter.
    pub fn buf(&self, id: SlotId, len: u32) -> Buf {
        let stride = self.stride(id);
        assert!(len <= stride, "{len} bytes of {id:?}, which has {stride}");
        let (extent, index) = self.split(id);
        Buf { extent, offset: index * stride, len }
    }

    /// Bytes of one extent.
    pub fn extent_bytes(&self) -> u32 {
        self.extent_bytes
    }

    /// Bytes from this slot to the next.
    pub fn stride(&self, id: SlotId) -> u32 {
        self.side(id);
        self.extents[self.split(id).0 as usize].stride
    }

    /// The extent that the slot is in.
    pub fn extent(&self, id: SlotId) -> u32 {
        self.split(id).0
    }

    /// Live slots of an extent, in order of place.
    pub fn live_in(&self, extent: u32) -> impl Iterator<Item = SlotId> + '_ {
        let sides = self.extents[extent as usize].sides.iter().zip(0u32..);
        let first = extent << self.index_bits;
        sides.filter(|(side, _)| side.live).map(move |(_, index)| SlotId(first | index))
    }

    /// Number of extents that the class of this stride has.
    pub fn extents_of(&self, stride: u32) -> u32 {
        self.class(stride).map_or(0, |at| self.classes[at].extents)
    }

    /// Free slots inside the extents of the class of this stride.
    pub fn free_slots(&self, stride: u32) -> u32 {
        self.class(stride).map_or(0, |at| self.classes[at].free_slots)
    }

    /// Strides that have at least one extent, ascending.
    pub fn strides(&self) -> impl Iterator<Item = u32> + '_ {
        self.classes.iter().map(|class| class.stride)
    }

    /// Extents of no class.
    pub fn free_extents(&self) -> u32 {
        self.free.len().try_into().unwrap_or(u32::MAX)
    }

    /// Strides of all live slots, summed.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Bytes that the side records take at most, with every extent in slots of 4 KiB.
    pub fn side_bytes_max(extents: u32, extent_bytes: u32) -> u64 {
        let slots = u64::from(extents) * u64::from(extent_bytes / SLOT_ALIGN);
        slots * size_of::<Side>() as u64
            + slots / 8
            + u64::from(extents) * size_of::<Extent>() as u64
    }

    /// The extent of another class that is cheapest to empty: all of its live slots `may` be
    /// dropped, none has a live view, and no other such extent holds fewer live bytes.
    pub fn drain_candidate(
        &self,
        not_stride: u32,
        may: &mut dyn FnMut(SlotId) -> bool,
    ) -> Option<u32> {
        let mut others: Vec<(u64, u32)> = (0u32..)
            .zip(&self.extents)
            .filter(|(_, extent)| extent.live > 0 && extent.stride != not_stride)
            .map(|(number, extent)| (u64::from(extent.live) * u64::from(extent.stride), number))
            .collect();
        others.sort_unstable();
        others
            .into_iter()
            .map(|(_, number)| number)
            .find(|&number| self.live_in(number).all(|id| self.exposed(id) == 0 && may(id)))
    }

    /// The index entry that the slot belongs to, [`NO_OWNER`] if none.
    pub fn owner(&self, id: SlotId) -> u32 {
        self.side(id).owner
    }

    /// Says which index entry the slot belongs to.
    pub fn set_owner(&mut self, id: SlotId, owner: u32) {
        self.side_mut(id).owner = owner;
    }

    /// Number of live views through which foreign code could write the slot (C1).
    pub fn exposed(&self, id: SlotId) -> u32 {
        self.side(id).exposed
    }

    /// Counts one more live view.
    pub fn expose(&mut self, id: SlotId) {
        self.side_mut(id).exposed += 1;
    }

    /// Counts one view less and returns how many are left.
    ///
    /// # Panics
    /// If there was none.
    pub fn unexpose(&mut self, id: SlotId) -> u32 {
        let side = self.side_mut(id);
        assert!(side.exposed > 0, "{id:?} has no view to give back");
        side.exposed -= 1;
        side.exposed
    }

    /// Whether the bytes must be verified before they are trusted again.
    pub fn suspect(&self, id: SlotId) -> bool {
        self.side(id).suspect
    }

    /// Says whether the bytes must be verified before they are trusted again.
    pub fn set_suspect(&mut self, id: SlotId, suspect: bool) {
        self.side_mut(id).suspect = suspect;
    }

    /// Turns a free extent into slots of `stride`; returns the place of its class.
    fn give_extent(&mut self, found: Result<usize, usize>, stride: u32) -> Option<usize> {
        let slots = self.extent_bytes / stride;
        if slots == 0 {
            return None;
        }
        let number = self.free.pop()?;
        self.extents[number as usize] = Extent::cut(stride, slots);
        let at = found.unwrap_or_else(|at| {
            let open = BTreeSet::new();
            self.classes.insert(at, Class { stride, extents: 0, free_slots: 0, open });
            at
        });
        let class = &mut self.classes[at];
        class.extents += 1;
        class.free_slots += slots;
        class.open.insert((0, number));
        Some(at)
    }

    /// Place of the class of a stride, or where it would stand. At most 64 of them.
    fn class(&self, stride: u32) -> Result<usize, usize> {
        self.classes.binary_search_by_key(&stride, |class| class.stride)
    }

    fn split(&self, id: SlotId) -> (u32, u32) {
        (id.0 >> self.index_bits, id.0 & ((1 << self.index_bits) - 1))
    }

    fn side(&self, id: SlotId) -> &Side {
        let (extent, index) = self.split(id);
        let sides = self.extents.get(extent as usize).map(|extent| &extent.sides);
        match sides.and_then(|sides| sides.get(index as usize)) {
            Some(side) if side.live => side,
            _ => panic!("{id:?} is not a live slot"),
        }
    }

    fn side_mut(&mut self, id: SlotId) -> &mut Side {
        let (extent, index) = self.split(id);
        let sides = self.extents.get_mut(extent as usize).map(|extent| &mut extent.sides);
        match sides.and_then(|sides| sides.get_mut(index as usize)) {
            Some(side) if side.live => side,
            _ => panic!("{id:?} is not a live slot"),
        }
    }
}

impl Extent {
    fn cut(stride: u32, slots: u32) -> Extent {
        let mut free = vec![u64::MAX; slots.div_ceil(64) as usize];
        if let (Some(last), tail @ 1..) = (free.last_mut(), slots % 64) {
            *last = (1 << tail) - 1;
        }
        Extent { stride, live: 0, sides: vec![VACANT; slots as usize], free }
    }

    fn slots(&self) -> u32 {
        self.sides.len().try_into().unwrap_or(u32::MAX)
    }

    /// The lowest free slot: neighbours in time are neighbours in memory, and so in one transfer.
    fn take_lowest(&mut self) -> u32 {
        let (word, bits) = (0u32..)
            .zip(&mut self.free)
            .find(|(_, bits)| **bits != 0)
            .unwrap_or_else(|| panic!("an open extent has no free slot"));
        let index = word * 64 + bits.trailing_zeros();
        *bits &= *bits - 1;
        self.live += 1;
        self.sides[index as usize].live = true;
        index
    }

    fn put_back(&mut self, index: u32) {
        self.free[index as usize / 64] |= 1 << (index % 64);
        self.live -= 1;
        self.sides[index as usize] = VACANT;
    }
}

#[cfg(test)]
#[path = "slots_tests.rs"]
mod tests;
