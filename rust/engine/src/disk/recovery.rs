//! Rebuilds what is known of a device from its slot table (INV-5).
//!
//! One sequential read, segment by segment. Free slots follow from the descriptors, never from a
//! snapshot. A page that cannot be read loses its own objects and is reported.

use super::descriptor::{Descriptor, Home, LEN};
use super::directory::{self, DirectoryEntry};
use super::geometry::Geometry;
use super::place::Place;
use super::{PAGE, SLOTS_PER_PAGE};
use crate::io::device::{Device, File};
use std::ops::Range;

/// What the slot table of one segment holds.
#[derive(Debug)]
pub struct FoundSegment {
    /// Number of the segment.
    pub segment: u32,
    /// Index in the class table; `None` if no superblock knows the class.
    pub class: Option<u8>,
    /// Generation that its live descriptors carry.
    pub generation: u32,
    /// Descriptors of this generation, by slot.
    pub descriptors: Vec<(u32, Descriptor)>,
    /// Slots that hold something which is no descriptor of this generation and might be taken
    /// for one later: they cool before reuse (INV-2).
    pub stale: Vec<u32>,
}

/// Records of one segment's table that are not empty.
struct Table {
    /// By slot, of any generation.
    descriptors: Vec<(u32, Descriptor)>,
    /// Slots whose record is no descriptor.
    stale: Vec<u32>,
}

impl Table {
    /// Class and generation of the newest descriptor.
    fn newest(&self) -> Option<DirectoryEntry> {
        let of = |d: &Descriptor| DirectoryEntry { generation: d.generation, class: d.class };
        self.descriptors.iter().map(|(_, d)| of(d)).max_by_key(|entry| entry.generation)
    }
}

/// What could not be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unreadable {
    /// Pages of the slot table.
    pub table_pages: u64,
    /// Pages of which neither directory copy could be read.
    pub directory_pages: u64,
}

/// Reads a device's directory and slot table.
pub struct Scan<'a> {
    /// Where to read.
    pub device: &'a dyn Device,
    /// Number of the device.
    pub number: u8,
    /// Identity of the store.
    pub store: [u8; 16],
    /// Sizes of the store.
    pub geometry: Geometry,
    /// Strides by class, bytes, 0 = class not taken.
    pub classes: &'a [u32],
    /// Counted while reading.
    pub unreadable: Unreadable,
}

impl Scan<'_> {
    /// Segments `range` that ever belonged to a class; `found` is called for each in order.
    pub fn run(&mut self, range: Range<u32>, mut found: impl FnMut(FoundSegment)) {
        let entries = self.directory(range.end);
        for segment in range {
            let entry = entries.get(segment as usize).copied().flatten();
            if let Some(segment) = self.segment(segment, entry) {
                found(segment);
            }
        }
    }

    /// The directory entries of segments `0..count`; of two valid copies the higher generation.
    fn directory(&mut self, count: u32) -> Vec<Option<DirectoryEntry>> {
        let copies = [0, self.geometry.directory_bytes()];
        let mut entries = vec![None::<DirectoryEntry>; count as usize];
        let mut page = [0; PAGE as usize];
        for first in (0..count).step_by(directory::PER_PAGE as usize) {
            let mut read = false;
            for copy in copies {
                let offset = copy + u64::from(first) * directory::ENTRY as u64;
                if self.device.read_at(File::Directory, offset, &mut page).is_err() {
                    continue;
                }
                read = true;
                for (segment, record) in (first..count).zip(page.chunks_exact(directory::ENTRY)) {
                    let new = DirectoryEntry::decode(record, &self.store, self.number, segment);
                    let old = &mut entries[segment as usize];
                    if new.is_some_and(|n| old.is_none_or(|o| n.generation > o.generation)) {
                        *old = new;
                    }
                }
            }
            self.unreadable.directory_pages += u64::from(!read);
        }
        entries
    }

    fn segment(&mut self, segment: u32, entry: Option<DirectoryEntry>) -> Option<FoundSegment> {
        let expected = entry.and_then(|e| self.stride(e.class)).map(|s| self.geometry.slots(s));
        let scanned = expected.unwrap_or(self.geometry.max_slots());
        let mut table = self.table(segment, scanned);
        // INV-4: where directory and descriptor disagree the higher generation wins.
        let newer =
            table.newest().filter(|new| entry.is_none_or(|e| new.generation > e.generation));
        let DirectoryEntry { generation, class } = newer.or(entry)?;
        let Some(stride) = self.stride(class) else {
            // A damaged superblock forgot the class. Nothing of it can be found, but the next life
            // of the segment must be told from this one.
            let (descriptors, stale) = (Vec::new(), Vec::new());
            return Some(FoundSegment { segment, class: None, generation, descriptors, stale });
        };
        let slots = self.geometry.slots(stride);
        if slots > scanned {
            // The directory entry of this generation was lost: its table is longer than that of
            // the class before.
            table = self.table(segment, slots);
        }
        let Table { mut descriptors, mut stale } = table;
        // A descriptor of an older generation is dead for good: its slot needs no cooling.
        descriptors
            .retain(|(slot, d)| d.generation == generation && d.class == class && *slot < slots);
        stale.retain(|&slot| slot < slots);
        Some(FoundSegment { segment, class: Some(class), generation, descriptors, stale })
    }

    /// The first `slots` records of a segment's table.
    fn table(&mut self, segment: u32, slots: u32) -> Table {
        let pages = u64::from(slots.div_ceil(SLOTS_PER_PAGE));
        let region = u64::from(segment) * self.geometry.table_stride();
        let mut bytes = vec![0; (pages * PAGE) as usize];
        if self.device.read_at(File::Table, region, &mut bytes).is_err() {
            self.page_by_page(region, &mut bytes);
        }
        let mut table = Table { descriptors: Vec::new(), stale: Vec::new() };
        for (slot, record) in (0..slots).zip(bytes.chunks_exact(LEN)) {
            let Ok(record) = <&[u8; LEN]>::try_from(record) else { continue };
            if record.iter().all(|&byte| byte == 0) {
                continue;
            }
            let place = Place { device: self.number, segment, slot };
            match Descriptor::decode(record, &Home { store: self.store, place }) {
                Some(descriptor) => table.descriptors.push((slot, descriptor)),
                None => table.stale.push(slot),
            }
        }
        table
    }

    /// INV-5: a page that cannot be read loses its own objects only. It reads as 64 slots that
    /// hold something which is no descriptor, so that they cool before reuse (INV-2).
    fn page_by_page(&mut self, region: u64, table: &mut [u8]) {
        for (number, page) in (0..).zip(table.chunks_exact_mut(PAGE as usize)) {
            if self.device.read_at(File::Table, region + number * PAGE, page).is_err() {
                page.fill(0xFF);
                self.unreadable.table_pages += 1;
            }
        }
    }

    fn stride(&self, class: u8) -> Option<u64> {
        self.classes.get(usize::from(class)).copied().filter(|&s| s > 0).map(u64::from)
    }
}
