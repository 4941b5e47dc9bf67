//! One object's entry: 88 bytes, whatever the tier.

use crate::Fingerprint;

/// "No entry", "no slot" in 32-bit fields.
pub(crate) const NONE: u32 = u32::MAX;

/// Position of an entry in the slab. Valid while the entry lives or is referenced; whoever keeps
/// one longer keeps a [`Handle`].
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct EntryId(pub(crate) u32);

impl EntryId {
    /// The slab position, dense from 0: for arrays beside the index.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// An [`EntryId`] that notices when its entry has gone.
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Debug)]
pub struct Handle {
    pub(crate) id: EntryId,
    pub(crate) generation: u8,
    pub(crate) prefix: u64,
}

/// A place where objects are kept.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
#[repr(u8)]
pub enum Tier {
    /// Host memory.
    Host = 0,
    /// SSD.
    Disk = 1,
}

impl Tier {
    /// Both tiers.
    pub const ALL: [Tier; 2] = [Tier::Host, Tier::Disk];
}

/// What an object is, by the numbers that descriptors use.
#[derive(Copy, Clone, Eq, PartialEq, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// The pages of all `entries` groups of one block.
    Body = 0,
    /// The pages of all `window` groups of one block.
    Window = 1,
    /// All `state` bytes at one block end.
    Checkpoint = 2,
}

/// What an entry starts with.
#[derive(Copy, Clone, Debug)]
pub struct NewEntry {
    /// The object's fingerprint; absent from the index.
    pub fingerprint: Fingerprint,
    /// Checksum of the payload.
    pub checksum: u64,
    /// [`Fingerprint::prefix`] of the parent, 0 for none.
    pub parent_prefix: u64,
    /// The store's sequence number of this put, below 2^48.
    pub sequence: u64,
    /// Payload bytes.
    pub length: u32,
    /// Keyed tag of the tenant.
    pub tenant: u32,
    /// Seconds since 2020-01-01, 0 = never.
    pub expires_at: u32,
    /// Number of the namespace.
    pub namespace: u16,
    /// Blocks above this one in its chain, saturating.
    pub depth: u16,
    /// Size class.
    pub class: u8,
    /// What the object is.
    pub kind: Kind,
    /// The engine's own bits; the index never reads them.
    pub flags: u8,
}

/// One object. Public fields may be changed through `IndexMut`; all others belong to the index.
// Field order is memory order: what a look-up compares and what a walk reads share cache lines.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Entry {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) parent_prefix: u64,
    /// Slab position of the parent, believed only if generation and prefix agree; next free
    /// position while the entry is free.
    pub(crate) parent: u32,
    pub(crate) last_use: u32,
    pub(crate) disk_links: Links,
    /// Position of the [`HostSide`], or `NONE`.
    pub(crate) host: u32,
    /// Payload bytes.
    pub length: u32,
    /// Bits 0-39 the disk slot (all ones: none), bits 40-63 the linked children, saturating.
    slot_children: u64,
    /// Bits 0-47 sequence, bits 48-63 depth.
    sequence_depth: u64,
    /// Checksum of the payload.
    pub checksum: u64,
    /// Keyed tag of the tenant.
    pub tenant: u32,
    /// Seconds since 2020-01-01, 0 = never.
    pub expires_at: u32,
    /// Number of the namespace.
    pub namespace: u16,
    /// Size class.
    pub class: u8,
    /// The engine's own bits; the index never reads them.
    pub flags: u8,
    pub(crate) bits: u8,
    /// Pins and I/O in flight; 255 = the count is in the slab's overflow map.
    pub(crate) refs: u8,
    pub(crate) generation: u8,
    pub(crate) parent_generation: u8,
}

// The bar is 96 bytes per object for the whole store: 88 here, 5.7 in the table.
const _: () = assert!(size_of::<Entry>() == 88);

/// Bits of [`Entry::bits`] above the kind.
pub(crate) mod bit {
    pub(crate) const KIND: u8 = 0b11;
    /// Out of the table; lives until the last release.
    pub(crate) const DEAD: u8 = 1 << 2;
    /// On the free list.
    pub(crate) const FREE: u8 = 1 << 3;
    /// Resident in the host tier; shifted by one for the disk tier.
    pub(crate) const RESIDENT: u8 = 1 << 4;
    /// Among the first victims.
    pub(crate) const FIRST: u8 = 1 << 6;
}

/// Neighbours in a policy's list.
#[derive(Copy, Clone, Debug)]
#[repr(C)]
pub(crate) struct Links {
    pub(crate) older: u32,
    pub(crate) younger: u32,
}

impl Links {
    pub(crate) const NONE: Links = Links { older: NONE, younger: NONE };
}

/// What the host tier needs besides: kept for entries that have a host slot, are host-resident or
/// have host-resident children. Those are few, so it is not part of every entry.
#[derive(Clone, Debug)]
pub(crate) struct HostSide {
    pub(crate) slot: u32,
    pub(crate) children: u32,
    pub(crate) links: Links,
}

const SLOT_BITS: u32 = 40;
const SLOT_NONE: u64 = (1 << SLOT_BITS) - 1;
const CHILDREN_MAX: u32 = (1 << (u64::BITS - SLOT_BITS)) - 1;
const SEQUENCE_BITS: u32 = 48;
const SEQUENCE_MASK: u64 = (1 << SEQUENCE_BITS) - 1;

impl Entry {
    pub(crate) fn new(new: &NewEntry, generation: u8, now: u32) -> Entry {
        Entry {
            fingerprint: new.fingerprint,
            parent_prefix: new.parent_prefix,
            parent: NONE,
            last_use: now,
            disk_links: Links::NONE,
            host: NONE,
            length: new.length,
            slot_children: SLOT_NONE,
            sequence_depth: new.sequence & SEQUENCE_MASK | u64::from(new.depth) << SEQUENCE_BITS,
            checksum: new.checksum,
            tenant: new.tenant,
            expires_at: new.expires_at,
            namespace: new.namespace,
            class: new.class,
            flags: new.flags,
            bits: new.kind as u8,
            refs: 0,
            generation,
            parent_generation: 0,
        }
    }

    /// The object's fingerprint.
    #[inline]
    pub const fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    /// [`Fingerprint::prefix`] of the parent, whether or not it is present; 0 for none.
    #[inline]
    pub const fn parent_prefix(&self) -> u64 {
        self.parent_prefix
    }

    /// The store's sequence number of the put, below 2^48.
    #[inline]
    pub const fn sequence(&self) -> u64 {
        self.sequence_depth & SEQUENCE_MASK
    }

    /// A new sequence number, for an object that is written again.
    pub fn set_sequence(&mut self, sequence: u64) {
        self.sequence_depth = self.sequence_depth & !SEQUENCE_MASK | sequence & SEQUENCE_MASK;
    }

    /// Blocks above this one in its chain, saturating.
    #[inline]
    pub const fn depth(&self) -> u16 {
        (self.sequence_depth >> SEQUENCE_BITS) as u16
    }

    /// What the object is.
    #[inline]
    pub const fn kind(&self) -> Kind {
        match self.bits & bit::KIND {
            0 => Kind::Body,
            1 => Kind::Window,
            _ => Kind::Checkpoint,
        }
    }

    pub(crate) const fn has(&self, bits: u8) -> bool {
        self.bits & bits != 0
    }

    pub(crate) fn set(&mut self, bits: u8, on: bool) {
        if on {
            self.bits |= bits;
        } else {
            self.bits &= !bits;
        }
    }

    pub(crate) const fn is_resident(&self, tier: Tier) -> bool {
        self.has(bit::RESIDENT << tier as u8)
    }

    pub(crate) const fn disk_slot(&self) -> Option<u64> {
        let slot = self.slot_children & SLOT_NONE;
        if slot == SLOT_NONE { None } else { Some(slot) }
    }

    pub(crate) fn set_disk_slot(&mut self, slot: Option<u64>) {
        let slot = slot.unwrap_or(SLOT_NONE);
        assert!(slot <= SLOT_NONE, "disk slot {slot} does not fit 40 bits");
        self.slot_children = self.slot_children & !SLOT_NONE | slot;
    }

    pub(crate) const fn children(&self) -> u32 {
        (self.slot_children >> SLOT_BITS) as u32
    }

    /// A count that has reached its maximum stays there: such a parent is never a leaf again,
    /// which is safe, and with 16 million branches below it no victim either way.
    pub(crate) fn add_child(&mut self) {
        if self.children() < CHILDREN_MAX {
            self.slot_children += 1 << SLOT_BITS;
        }
    }

    pub(crate) fn drop_child(&mut self) {
        let children = self.children();
        if children < CHILDREN_MAX && children > 0 {
            self.slot_children -= 1 << SLOT_BITS;
        }
    }
}

/// What is left of an object after its last reference: the engine gives the slots back.
#[derive(Clone, Debug)]
pub struct Freed {
    /// The entry as it was.
    pub entry: Entry,
    /// Its host slot.
    pub host: Option<u32>,
    /// Its disk slot.
    pub disk: Option<u64>,
}
