//! Recovery: index and segments from the slot table (INV-5).

use super::meta::{bit, is_expired};
use super::open::Recovered;
use super::opener::Opener;
use super::state::State;
use crate::disk::PAGE;
use crate::disk::descriptor::{Descriptor, flag};
use crate::disk::place::Place;
use crate::disk::recovery::{FoundSegment, Scan, Unreadable};
use crate::disk::tenants;
use crate::error::{Error, ErrorKind, Result};
use crate::io::device::File;
use kvstore_index::{EntryId, NewEntry, Tier};
use std::collections::HashMap;

impl Opener<'_> {
    /// Reads the slot table and fills index and segments (INV-5).
    pub(super) fn recover(&mut self, state: &mut State) -> Result<()> {
        let geometry = self.superblock.geometry;
        let table_len = self.device.len(File::Table).map_err(|error| {
            Error::new(ErrorKind::Io, format!("cannot read the slot table: {error}"))
        })?;
        let data_len = self.device.len(File::Data).map_err(|error| {
            Error::new(ErrorKind::Io, format!("cannot read the data file: {error}"))
        })?;
        let in_table = table_len / geometry.table_stride();
        let in_data = data_len / geometry.segment_bytes;
        let present = in_table.min(in_data).min(u64::from(state.segments.count())) as u32;
        if in_table > u64::from(present) && !self.options.read_only {
            // Descriptors without data: a segment that is made there later starts with none.
            let len = u64::from(present) * geometry.table_stride();
            self.device.truncate(File::Table, len).map_err(|error| {
                Error::new(ErrorKind::Io, format!("cannot shorten the slot table: {error}"))
            })?;
        }
        state.grown.segments = present;

        let epochs = state.namespaces.records.iter().flatten().map(|r| r.epoch).max();
        state.sequence =
            [epochs, Some(state.tenants.highest()), Some(self.superblock.sequence_floor)]
                .into_iter()
                .flatten()
                .max()
                .unwrap_or(0);
        if state.tenants.damaged > 0 {
            // The new floor is above every descriptor, so those are read once more.
            self.scan(present, |_, segment| {
                let highest = segment.descriptors.iter().map(|(_, d)| d.sequence).max();
                state.sequence = state.sequence.max(highest.unwrap_or(0));
            });
            self.mend_tenants(state)?;
        }
        // Segment by segment: the descriptors of a whole store are more than its index.
        self.scan(present, |this, segment| this.adopt(state, &segment));
        self.gather_sets(state);
        state.index.settle();
        self.keep_to_limit(state);
        self.recovered.objects = state.index.len() as u64;
        Ok(())
    }

    /// Some tenant's epoch is lost. What it had before must not come back, so all tenants without
    /// a record of their own start again.
    fn mend_tenants(&mut self, state: &mut State) -> Result<()> {
        let floor = state.next_sequence();
        state.tenants.floor = floor;
        tracing::warn!(records = state.tenants.damaged, floor, "the tenant table is damaged");
        if self.options.read_only {
            return Ok(());
        }
        let failed = |error| Error::new(ErrorKind::Io, format!("cannot mend the tenants: {error}"));
        let next = &mut self.superblock;
        let offset = next.next_offset();
        next.generation += 1;
        next.tenant_floor = floor;
        self.device
            .write_at(File::Superblock, offset, &next.encode())
            .and_then(|()| self.device.sync(File::Superblock))
            .map_err(failed)?;
        state.superblock = next.clone();
        for copy in [0, tenants::COPY_BYTES] {
            for page in 0..tenants::COUNT / tenants::PER_PAGE {
                let offset = copy + page as u64 * PAGE;
                self.device
                    .write_at(File::Tenants, offset, &state.tenants.page(page))
                    .map_err(failed)?;
            }
            self.device.sync(File::Tenants).map_err(failed)?;
        }
        Ok(())
    }

    /// Reads segments `0..present` of the slot table.
    fn scan(&mut self, present: u32, mut found: impl FnMut(&mut Self, FoundSegment)) {
        let classes = self.superblock.classes;
        let mut scan = Scan {
            device: self.device,
            number: 0,
            store: self.superblock.store,
            geometry: self.superblock.geometry,
            classes: &classes,
            unreadable: Unreadable::default(),
        };
        scan.run(0..present, |segment| found(self, segment));
        self.recovered.unreadable = scan.unreadable;
    }

    /// Whether a descriptor still counts; else the counter of its reason.
    fn is_alive(&self, state: &State, d: &Descriptor) -> Result<(), fn(&mut Recovered)> {
        let record =
            state.namespaces.records.get(usize::from(d.namespace)).and_then(Option::as_ref);
        let Some(record) = record else { return Err(|r| r.cleared += 1) };
        if d.sequence < record.epoch || d.sequence < state.tenants.epoch(d.tenant) {
            return Err(|r| r.cleared += 1);
        }
        if is_expired(d.expires_at) {
            return Err(|r| r.expired += 1);
        }
        Ok(())
    }

    /// Takes over what one segment holds.
    fn adopt(&mut self, state: &mut State, segment: &FoundSegment) {
        let Some(class) = segment.class else {
            state.segments.remember(segment.segment, segment.generation);
            return;
        };
        let mut stale = segment.stale.clone();
        self.recovered.damaged += segment.stale.len() as u64;
        let mut owners = Vec::new();
        for (slot, d) in &segment.descriptors {
            state.sequence = state.sequence.max(d.sequence);
            match self.admit(state, d, &mut owners, &mut stale) {
                Ok(id) => owners.push((*slot, id)),
                Err(count) => {
                    count(&mut self.recovered);
                    stale.push(*slot);
                }
            }
        }
        let owned: Vec<u32> = owners.iter().map(|&(slot, _)| slot).collect();
        let stride = u64::from(state.superblock.classes[usize::from(class)]);
        state.segments.adopt(segment.segment, class, stride, segment.generation, &owned, &stale);
        for (slot, id) in owners {
            let place = Place { device: 0, segment: segment.segment, slot };
            state.segments.set_owner(segment.segment, slot, id);
            state.index.set_slot(id, Tier::Disk, Some(place.pack()));
            state.disk_objects += 1;
            if !is_other_part(state.index[id].flags) {
                state.index.add_resident(id, Tier::Disk);
            }
        }
        if self.options.read_only {
            return;
        }
        for slot in stale {
            // INV-2: not empty, without a live descriptor: a page without it goes out first.
            let place = Place { device: 0, segment: segment.segment, slot };
            state.pages.cool(State::page_of(place), slot, segment.generation);
        }
    }

    /// An index entry for a descriptor that counts. An older one of the same object gives way
    /// (INV-7), be it in a segment that is adopted already or among those of this one (`owners`).
    fn admit(
        &mut self,
        state: &mut State,
        d: &Descriptor,
        owners: &mut Vec<(u32, EntryId)>,
        stale: &mut Vec<u32>,
    ) -> Result<EntryId, fn(&mut Recovered)> {
        self.is_alive(state, d)?;
        if let Some(older) = state.index.find(&d.fingerprint) {
            if state.index[older].sequence() >= d.sequence {
                return Err(|r| r.duplicates += 1);
            }
            self.recovered.duplicates += 1;
            self.parts.retain(|&(id, _)| id != older);
            match owners.iter().position(|&(_, id)| id == older) {
                Some(at) => {
                    stale.push(owners.swap_remove(at).0);
                    state.forget(older);
                }
                None => state.remove(older, super::batch::Reason::NoSpace),
            }
        }
        let id = insert(state, d).ok_or((|r| r.no_room += 1) as fn(&mut Recovered))?;
        if is_other_part(d.flags) {
            self.parts.push((id, d.parent_prefix));
        }
        Ok(id)
    }

    /// A power cut may bring evicted objects back: more than the limit allows.
    fn keep_to_limit(&self, state: &mut State) {
        let Some(most) = self.options.disk_objects.filter(|_| !self.options.read_only) else {
            return;
        };
        let going = |state: &State| state.after_slot.values().map(Vec::len).sum::<usize>() as u64;
        while state.disk_objects - going(state) > most && state.evict_one_of(None) {}
    }

    /// Puts parts under their part 0; parts without one are dropped.
    fn gather_sets(&mut self, state: &mut State) {
        let mut heads: HashMap<u64, EntryId> = HashMap::new();
        for (id, entry) in state.index.iter() {
            if entry.flags & flag::HEAD != 0 {
                heads.insert(entry.fingerprint().prefix(), id);
            }
        }
        let mut parts = std::mem::take(&mut self.parts);
        for &head in heads.values() {
            state.sets.insert(head, Vec::new());
        }
        parts.sort_by_key(|&(id, _)| state.index[id].sequence());
        for (id, prefix) in parts {
            match heads.get(&prefix) {
                Some(&head) => {
                    state.head_of.insert(id, head);
                    state.sets.entry(head).or_default().push(id);
                    state.note_class(id);
                }
                None => {
                    self.recovered.orphan_parts += 1;
                    state.remove(id, super::batch::Reason::NoSpace);
                }
            }
        }
    }
}

/// An index entry for a recovered object.
fn insert(state: &mut State, d: &Descriptor) -> Option<EntryId> {
    let new = NewEntry {
        fingerprint: d.fingerprint,
        checksum: d.checksum,
        // A part belongs to its set, not to the prefix tree.
        parent_prefix: if is_other_part(d.flags) { 0 } else { d.parent_prefix },
        sequence: d.sequence,
        length: d.length,
        tenant: d.tenant,
        expires_at: d.expires_at,
        namespace: d.namespace,
        depth: d.depth,
        class: d.class,
        kind: d.kind,
        flags: d.flags | bit::COMMIT | bit::READY,
    };
    let id = state.index.insert(&new).ok()?;
    state.namespaces.objects[usize::from(d.namespace)] += 1;
    if d.expires_at != 0 {
        let handle = state.index.handle(id);
        state.expiry.push(std::cmp::Reverse((d.expires_at, handle)));
    }
    Some(id)
}

fn is_other_part(flags: u8) -> bool {
    flags & (flag::PART | flag::HEAD) == flag::PART
}
