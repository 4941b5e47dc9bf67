//! What a store is made of, for people who look after one.

use super::open::Store;
use crate::disk::segments::Phase;
use crate::identity::Description;

/// One segment.
#[derive(Clone, Debug)]
pub struct SegmentInfo {
    /// Number of the segment.
    pub segment: u32,
    /// `free`, `open` or `draining`.
    pub phase: &'static str,
    /// Stride of its class, bytes; 0 = no class.
    pub stride: u32,
    /// Times it was given to a class.
    pub generation: u32,
    /// Slots, and those with an object.
    pub slots: u32,
    /// Slots with an object.
    pub live: u32,
}

/// One namespace.
#[derive(Clone, Debug)]
pub struct NamespaceInfo {
    /// Index in the namespace table.
    pub index: u16,
    /// Digest of the description.
    pub digest: [u8; 32],
    /// The description, when this build can read it.
    pub description: Option<Description>,
    /// Sequence number of the last clear.
    pub epoch: u64,
    /// Objects in the index.
    pub objects: u64,
}

/// What [`Store::inspect`] shows.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// Identity of the store.
    pub store: [u8; 16],
    /// Version of the format.
    pub version: u32,
    /// Seconds since 1970 at creation.
    pub created_at: u64,
    /// Writes of the superblock.
    pub generation: u64,
    /// Number of the last put or epoch.
    pub sequence: u64,
    /// Bytes of one segment.
    pub segment_bytes: u64,
    /// Limits, bytes.
    pub disk_bytes: u64,
    /// Largest limit that a later open may ask for, bytes.
    pub max_disk_bytes: u64,
    /// Strides of the registered classes, bytes.
    pub classes: Vec<u32>,
    /// Segments that ever belonged to a class.
    pub segments: Vec<SegmentInfo>,
    /// Namespaces with a record.
    pub namespaces: Vec<NamespaceInfo>,
}

impl Store {
    /// What the store is made of at this moment.
    pub fn inspect(&self) -> Inspection {
        let state = self.shared.state.lock();
        let superblock = &state.superblock;
        let segments =
            state.segments.iter().filter(|(_, s)| s.generation > 0).map(|(segment, s)| {
                let free = s.phase == Phase::Free;
                SegmentInfo {
                    segment,
                    phase: match s.phase {
                        Phase::Free => "free",
                        Phase::Open => "open",
                        Phase::Draining => "draining",
                    },
                    stride: if free { 0 } else { superblock.classes[usize::from(s.class)] },
                    generation: s.generation,
                    slots: s.slots,
                    live: s.live,
                }
            });
        let namespaces = (0..)
            .zip(&state.namespaces.records)
            .zip(&state.namespaces.objects)
            .filter_map(|((index, record), &objects)| {
                let record = record.as_ref()?;
                Some(NamespaceInfo {
                    index,
                    digest: record.digest,
                    description: Description::decode(&record.description).ok(),
                    epoch: record.epoch,
                    objects,
                })
            });
        Inspection {
            store: superblock.store,
            version: crate::disk::superblock::VERSION,
            created_at: superblock.created_at,
            generation: superblock.generation,
            sequence: state.sequence,
            segment_bytes: superblock.geometry.segment_bytes,
            disk_bytes: superblock.disk_bytes,
            max_disk_bytes: superblock.max_disk_bytes,
            classes: superblock.classes.iter().copied().filter(|&stride| stride > 0).collect(),
            segments: segments.collect(),
            namespaces: namespaces.collect(),
        }
    }
}
