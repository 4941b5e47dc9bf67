//! Builds the state of a store from its device: limits, namespaces, tenants.

use super::config::Options;
use super::counters::Counters;
use super::open::{Recovered, host_objects};
use super::room::Budget;
use super::state::{Flush, Grown, NamespaceTable, Phase, State};
use crate::disk::PAGE;
use crate::disk::namespaces::{self, NamespaceRecord};
use crate::disk::pages::Pages;
use crate::disk::segments::Segments;
use crate::disk::superblock::Superblock;
use crate::disk::tenants::{self, Tenants};
use crate::error::{Error, ErrorKind, Result};
use crate::host::arena::{Arena, Buf};
use crate::host::prefer_huge_pages;
use crate::host::slots::Slots;
use crate::io::device::{Device, File};
use crate::mirror::Mirror;
use kvstore_index::{EntryId, Index, PolicyKind};
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Page images on their way to the slot table at most.
const PAGE_BUFFERS: usize = 256;

/// Builds the state of a store from its device.
pub(super) struct Opener<'a> {
    pub(super) device: &'a dyn Device,
    pub(super) options: &'a Options,
    pub(super) superblock: Superblock,
    pub(super) recovered: Recovered,
    /// Parts besides part 0, with the prefix of their part 0.
    pub(super) parts: Vec<(EntryId, u64)>,
}

impl Opener<'_> {
    pub(super) fn state(&mut self, arena: &Arc<Arena>) -> Result<State> {
        let limit = self.apply_limits()?;
        let mut slots = Slots::new(arena.extents(), arena.extent_bytes() as u32);
        let page_buffers = page_buffers(&mut slots);
        let namespaces = self.namespaces()?;
        let tenants = self.tenants()?;
        let policy = if self.options.leaf_first { PolicyKind::LeafLru } else { PolicyKind::Lru };
        let index =
            Index::new(self.options.index_objects()?, host_objects(self.options), [policy, policy]);
        for (start, len) in index.regions() {
            prefer_huge_pages(start, len);
        }
        let mut state = State {
            phase: Phase::Open,
            index,
            mirror: Mirror::new(self.options.mirror_limit()?),
            slots,
            pins: Vec::new(),
            scrubbing: false,
            verifying: Vec::new(),
            orphans: HashSet::new(),
            pinned_bytes: 0,
            superblock: self.superblock.clone(),
            segments: Segments::new(self.superblock.geometry, limit),
            pages: Pages::default(),
            page_buffers,
            namespaces,
            tenants,
            sequence: 0,
            queue: VecDeque::new(),
            dirty_bytes: 0,
            writing_bytes: 0,
            tickets: HashMap::new(),
            flushing: Vec::new(),
            flush: Flush::default(),
            syncs_in_flight: 0,
            sync_failed: false,
            in_flight: HashMap::new(),
            readings: HashMap::new(),
            next_token: 0,
            sets: HashMap::new(),
            classes_of: HashMap::new(),
            gates: HashMap::new(),
            gated: HashSet::new(),
            head_of: HashMap::new(),
            after_slot: HashMap::new(),
            expiry: BinaryHeap::new(),
            disk_objects: 0,
            drain: None,
            moves: HashMap::new(),
            spared: None,
            grown: Grown::default(),
            outbox: VecDeque::new(),
            budget: self.options.write_budget_per_day.map(Budget::per_day),
            errors_in_row: 0,
            quarantined: false,
            writer_over: false,
            keeps_host: self.options.keeps_host(),
            counters: Counters::default(),
        };
        if self.options.read_only {
            state.pages.freeze();
        }
        self.recover(&mut state)?;
        Ok(state)
    }

    /// Takes over the limits of this open; the answer is the number of segments in use.
    fn apply_limits(&mut self) -> Result<u32> {
        let geometry = self.superblock.geometry;
        let disk_bytes = self.options.disk_bytes;
        if disk_bytes > self.superblock.max_disk_bytes {
            return Err(Error::invalid(format!(
                "disk_bytes is {disk_bytes}, this store was created for at most {} (max_disk_bytes)",
                self.superblock.max_disk_bytes
            )));
        }
        let limit = geometry.segments_for(disk_bytes)?;
        if disk_bytes != self.superblock.disk_bytes && !self.options.read_only {
            let shrink = |file, each: u64| {
                self.device.truncate(file, u64::from(limit) * each).map_err(|error| {
                    Error::new(ErrorKind::Io, format!("cannot shrink the {file} file: {error}"))
                })
            };
            // The table first: without descriptors nobody misses the data.
            shrink(File::Table, geometry.table_stride())?;
            shrink(File::Data, geometry.segment_bytes)?;
            self.superblock.disk_bytes = disk_bytes;
            let offset = self.superblock.next_offset();
            self.superblock.generation += 1;
            self.device
                .write_at(File::Superblock, offset, &self.superblock.encode())
                .and_then(|()| self.device.sync(File::Superblock))
                .map_err(|error| {
                    Error::new(ErrorKind::Io, format!("cannot write the superblock: {error}"))
                })?;
        }
        Ok(limit)
    }

    fn namespaces(&self) -> Result<NamespaceTable> {
        let mut table = NamespaceTable::new();
        let copies = self.both(File::Namespaces, namespaces::COPY_BYTES);
        for index in 0..namespaces::COUNT {
            let at = index * namespaces::LEN;
            let record = |copy: &[u8]| -> [u8; namespaces::LEN] {
                copy[at..at + namespaces::LEN].try_into().unwrap_or([0; namespaces::LEN])
            };
            let (a, b) = (record(&copies[0]), record(&copies[1]));
            if let Some(found) = NamespaceRecord::newer(&a, &b, index as u16) {
                table.by_digest.insert(found.digest, index as u16);
                table.records[index] = Some(found);
            } else if a.iter().chain(&b).any(|&byte| byte != 0) {
                table.damaged.insert(index);
            }
        }
        Ok(table)
    }

    fn tenants(&self) -> Result<Tenants> {
        let [a, b] = self.both(File::Tenants, tenants::COPY_BYTES);
        Ok(Tenants::load(&a, &b, self.superblock.tenant_floor))
    }

    /// Both copies of a table; what cannot be read is no record, and not an empty one either.
    fn both(&self, file: File, copy_bytes: u64) -> [Vec<u8>; 2] {
        [0, copy_bytes].map(|offset| {
            let mut bytes = vec![0; copy_bytes as usize];
            if self.device.read_at(file, offset, &mut bytes).is_err() {
                for (number, page) in (0..).zip(bytes.chunks_exact_mut(PAGE as usize)) {
                    if self.device.read_at(file, offset + number * PAGE, page).is_err() {
                        page.fill(0xFF);
                    }
                }
            }
            bytes
        })
    }
}

/// Memory for page images, out of the arena so that direct I/O can use it.
fn page_buffers(slots: &mut Slots) -> Vec<Buf> {
    (0..PAGE_BUFFERS)
        .map_while(|_| {
            let slot = slots.alloc(PAGE as u32)?;
            Some(slots.buf(slot, PAGE as u32))
        })
        .collect()
}
