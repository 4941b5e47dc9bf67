//! Reading every object of the disk tier and comparing it with its checksum.

use super::batch::Reason;
use super::meta::bit;
use super::open::Store;
use crate::disk::place::Place;
use crate::error::Result;
use crate::host::copy::checksum;
use crate::io::device::File;
use kvstore_index::{Handle, Kind};

/// One object whose bytes are not what was put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where it lies.
    pub place: Place,
    /// First 16 bytes of its key.
    pub fingerprint: [u8; 16],
    /// Index of its namespace.
    pub namespace: u16,
    /// What it is.
    pub kind: Kind,
    /// Payload bytes.
    pub length: u32,
    /// What the device said, or that the checksum differs.
    pub why: String,
}

/// What a check found.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Objects that were read.
    pub objects: u64,
    /// Their payload bytes.
    pub bytes: u64,
    /// Objects that failed.
    pub damaged: Vec<Damage>,
    /// Objects that were removed, with `repair`.
    pub removed: u64,
}

impl Store {
    /// Reads and verifies every object on disk; `progress` gets objects done and in all. With
    /// `repair` those that fail are removed, as a get would do; without it nothing changes.
    ///
    /// # Errors
    /// The store is closed.
    pub fn check(&self, repair: bool, mut progress: impl FnMut(u64, u64)) -> Result<CheckReport> {
        self.check_open()?;
        let handles: Vec<Handle> = {
            let state = self.shared.state.lock();
            let ready = state.index.iter().filter(|(_, entry)| entry.flags & bit::READY != 0);
            ready.map(|(id, _)| state.index.handle(id)).collect()
        };
        let mut report = CheckReport::default();
        let mut bytes = Vec::new();
        for (done, &handle) in (0..).zip(&handles) {
            self.check_one(handle, repair, &mut bytes, &mut report);
            progress(done + 1, handles.len() as u64);
        }
        Ok(report)
    }

    fn check_one(
        &self,
        handle: Handle,
        repair: bool,
        bytes: &mut Vec<u8>,
        report: &mut CheckReport,
    ) {
        let shared = &self.shared;
        let mut state = shared.state.lock();
        let Some(id) = state.index.resolve(handle) else { return };
        let Some(place) = state.place_of(id).filter(|_| state.has(id, bit::READY)) else { return };
        let offset = state.data_offset(place);
        let entry = &state.index[id];
        let (expected, length, namespace) = (entry.checksum, entry.length, entry.namespace);
        let (fingerprint, kind) = (entry.fingerprint().0, entry.kind());
        // The reference keeps the slot: it is neither evicted nor moved while it is read.
        state.index.acquire(id);
        drop(state);

        bytes.resize(length as usize, 0);
        let why = match shared.device.read_at(File::Data, offset, bytes) {
            Err(error) => Some(error.to_string()),
            Ok(()) if checksum(bytes) != expected => Some("the checksum differs".into()),
            Ok(()) => None,
        };
        report.objects += 1;
        report.bytes += u64::from(length);
        let mut state = shared.state.lock();
        if let Some(why) = why {
            report.damaged.push(Damage { place, fingerprint, namespace, kind, length, why });
            if repair && !state.index.is_dead(id) {
                state.counters.failed_checks += 1;
                state.remove(id, Reason::NoSpace);
                report.removed += 1;
            }
        }
        state.release(id);
    }
}
