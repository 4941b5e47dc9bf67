//! What a caller chooses when a store is opened.

use crate::error::{Error, Result};
use crate::host::arena::ArenaKind;
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// When bytes are checked against their checksum besides every crossing of a boundary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// At each crossing that the engine does not control, and of objects that were exposed.
    Crossings,
    /// At every lease as well.
    Always,
}

/// Limits and choices of one store. All sizes in bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Limit of all that the host tier holds: arena, index, staging. 0 keeps nothing in host
    /// memory beyond what is being read or written (an arena of [`Options::STAGING`]).
    pub host_bytes: u64,
    /// Limit of all that the disk tier holds: segments, tables, directory.
    pub disk_bytes: u64,
    /// Largest `disk_bytes` that a later open may ask for; decides how much room the tables
    /// reserve (sparse). `None` = 4 x `disk_bytes`. Only read when the store is created.
    pub max_disk_bytes: Option<u64>,
    /// Objects that the index has room for. `None` = one per 32 KiB of disk and host.
    pub objects: Option<u64>,
    /// Objects that the disk tier keeps at most, besides its limit in bytes. `None` = no limit.
    pub disk_objects: Option<u64>,
    /// Slots of the serving engine's workers that the mirror has room for, about 28 bytes each, part
    /// of `host_bytes`. `None` = one per object of the index, at most [`Options::MIRROR_SLOTS`].
    pub mirror_slots: Option<u64>,
    /// Kind of host memory.
    pub arena: ArenaKind,
    /// When bytes are checked.
    pub verify: Verify,
    /// Open without writing anything: puts are `Rejected(read_only)`.
    pub read_only: bool,
    /// Bytes that may be written to the disk tier per day, `None` = no limit. What the budget
    /// does not cover stays in host memory; a put that asked for more is `Rejected(endurance)`.
    pub write_budget_per_day: Option<u64>,
    /// Leaf-first LRU, or plain LRU (which leaves holes; for comparison only).
    pub leaf_first: bool,
    /// Threads of the psync device.
    pub io_threads: usize,
    /// How long an open waits for a lock before it names the holder.
    pub lock_wait: Duration,
    /// How long a put that asked for `ssd` waits for room before it answers `Busy`.
    pub room_wait: Duration,
    /// How long one read may take before it is a miss.
    pub read_deadline: Duration,
    /// How long `close` writes what is pending.
    pub close_deadline: Duration,
    /// After this long a lease gives no new views.
    pub lease_deadline: Duration,
}

impl Options {
    /// Host memory that a store without a host tier uses for I/O.
    pub const STAGING: u64 = 64 * MIB;
    /// Slots of the mirror, unless the options say otherwise.
    pub const MIRROR_SLOTS: usize = 65_536;

    /// Defaults for the two limits: 1 GiB of host memory, 16 GiB of disk.
    pub fn new() -> Self {
        Self {
            host_bytes: 1024 * MIB,
            disk_bytes: 16 * 1024 * MIB,
            max_disk_bytes: None,
            objects: None,
            disk_objects: None,
            mirror_slots: None,
            arena: ArenaKind::Private,
            verify: Verify::Crossings,
            read_only: false,
            write_budget_per_day: None,
            leaf_first: true,
            io_threads: 8,
            lock_wait: Duration::from_secs(5),
            room_wait: Duration::from_secs(30),
            read_deadline: Duration::from_secs(30),
            close_deadline: Duration::from_secs(30),
            lease_deadline: Duration::from_secs(600),
        }
    }

    /// Whether host memory keeps what nobody uses at the moment.
    pub(crate) fn keeps_host(&self) -> bool {
        self.host_bytes > 0
    }

    /// Objects that the index has room for.
    pub(crate) fn index_objects(&self) -> Result<usize> {
        let objects = self
            .objects
            .unwrap_or_else(|| ((self.disk_bytes + self.host_bytes) / (32 * 1024)).max(16_384));
        if objects == 0 || objects >= u64::from(u32::MAX) {
            return Err(Error::invalid(format!(
                "objects is {objects}, from 1 to {} fit one index",
                u32::MAX - 1
            )));
        }
        Ok(objects as usize)
    }

    /// Slots that the mirror has room for.
    pub(crate) fn mirror_limit(&self) -> Result<usize> {
        let Some(slots) = self.mirror_slots else {
            return Ok(self.index_objects()?.min(Self::MIRROR_SLOTS));
        };
        if slots >= u64::from(u32::MAX) {
            return Err(Error::invalid(format!(
                "mirror_slots is {slots}, from 0 to {} are possible",
                u32::MAX - 1
            )));
        }
        Ok(slots as usize)
    }

    /// Bytes of the arena: what `host_bytes` leaves beside index and mirror.
    pub(crate) fn arena_bytes(&self, index_bytes: u64) -> Result<u64> {
        if self.host_bytes == 0 {
            return Ok(Self::STAGING);
        }
        let least = 16 * MIB;
        match self.host_bytes.checked_sub(index_bytes) {
            Some(rest) if rest >= least => Ok(rest),
            _ => Err(Error::invalid(format!(
                "host_bytes is {}, index and mirror of this store need {index_bytes} and the arena at \
                 least {least}: give at least {}, or fewer objects",
                self.host_bytes,
                index_bytes + least
            ))),
        }
    }

    /// Bytes of one arena extent: a sixteenth of the arena, from 2 to 64 MiB.
    pub(crate) fn extent_bytes(arena_bytes: u64) -> u64 {
        let sixteenth = (arena_bytes / 16).max(1);
        (1 << sixteenth.ilog2()).clamp(2 * MIB, 64 * MIB)
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}
