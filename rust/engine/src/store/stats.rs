//! What a store holds and how it does it: one snapshot.

use super::counters::Counters;
use super::open::{Recovered, Store};
use crate::disk::segments::Phase;
use crate::io::device::PathInUse;
use crate::mirror::MirrorStats;
use std::collections::BTreeMap;

/// The host tier. Bytes.
#[derive(Clone, Debug)]
pub struct HostStats {
    /// The limit that was given.
    pub limit: u64,
    /// Memory for payloads.
    pub arena: u64,
    /// Memory of the index.
    pub index: u64,
    /// Slots in use, at their strides.
    pub used: u64,
    /// Under leases.
    pub pinned: u64,
    /// Not written to disk yet.
    pub dirty: u64,
    /// `private` or `shared`.
    pub kind: &'static str,
    /// What the system gave: huge pages or not.
    pub backing: &'static str,
}

/// The disk tier. Bytes unless the name says otherwise.
#[derive(Clone, Debug)]
pub struct DiskStats {
    /// The limit that was given.
    pub limit: u64,
    /// Bytes of one segment.
    pub segment_bytes: u64,
    /// Segments that the limit allows.
    pub segments: u32,
    /// Of these, belonging to no class.
    pub segments_free: u32,
    /// Objects that hold a slot.
    pub objects: u64,
    /// Their payload bytes.
    pub logical: u64,
    /// Slots in use at their strides, and 64 bytes of descriptor for each.
    pub slots: u64,
    /// 64 bytes for each of these slots.
    pub descriptors: u64,
    /// Superblocks, namespace and tenant tables, directory.
    pub fixed: u64,
    /// Strides of the live classes and the objects of each.
    pub classes: BTreeMap<u32, u64>,
    /// How the device is reached.
    pub path: PathInUse,
    /// The device failed too often: no more reads and writes.
    pub quarantined: bool,
}

/// A snapshot of one store.
#[derive(Clone, Debug)]
pub struct Stats {
    /// Objects in the index.
    pub objects: u64,
    /// The host tier.
    pub host: HostStats,
    /// The disk tier.
    pub disk: DiskStats,
    /// What the serving engine holds.
    pub mirror: MirrorStats,
    /// Everything counted since the open.
    pub counters: Counters,
    /// What recovery found.
    pub recovered: Recovered,
    /// Open leases hold this many host slots.
    pub pins: u64,
    /// Operations at the device.
    pub in_flight: u64,
    /// Objects that wait to be written.
    pub queued_writes: u64,
    /// A panic inside the engine: every call is a miss.
    pub poisoned: bool,
}

impl Store {
    /// What the store holds at this moment. Reads the whole index.
    pub fn stats(&self) -> Stats {
        let shared = &self.shared;
        let state = shared.state.lock();
        let mut classes = BTreeMap::new();
        let mut logical = 0;
        let mut slots = 0;
        let mut objects = 0;
        for (id, entry) in state.index.iter() {
            if let Some(place) = state.place_of(id) {
                let class = state.segments.get(place.segment).class;
                let stride = state.superblock.classes[usize::from(class)];
                *classes.entry(stride).or_default() += 1;
                logical += u64::from(entry.length);
                slots += u64::from(stride);
                objects += 1;
            }
        }
        let geometry = state.superblock.geometry;
        let free = state.segments.iter().filter(|(_, s)| s.phase == Phase::Free).count() as u32;
        let extent = shared.arena.extent_bytes() as u64;
        Stats {
            objects: state.index.len() as u64,
            host: HostStats {
                limit: shared.options.host_bytes,
                arena: extent * u64::from(shared.arena.extents()),
                index: state.index.memory_bytes() as u64,
                used: state.slots.used_bytes(),
                pinned: state.pinned_bytes,
                dirty: state.dirty_bytes,
                kind: match shared.arena.kind() {
                    crate::host::arena::ArenaKind::Private => "private",
                    crate::host::arena::ArenaKind::Shared => "shared",
                },
                backing: shared.arena.backing(),
            },
            disk: DiskStats {
                limit: shared.options.disk_bytes,
                segment_bytes: geometry.segment_bytes,
                segments: state.segments.count(),
                segments_free: free,
                objects,
                logical,
                slots,
                descriptors: objects * crate::disk::DESCRIPTOR,
                fixed: geometry.fixed_bytes(),
                classes,
                path: shared.device.path_in_use(),
                quarantined: state.quarantined,
            },
            mirror: state.mirror.stats(),
            counters: state.counters.clone(),
            recovered: shared.recovered,
            pins: state.pins.iter().map(|&pins| u64::from(pins)).sum(),
            in_flight: state.in_flight.len() as u64,
            queued_writes: state.queue.len() as u64,
            poisoned: shared.is_poisoned(),
        }
    }
}
