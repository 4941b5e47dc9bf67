//! Counters that add up (contract C10). All under the store's mutex, so plain integers.

use super::batch::{Reason, Status};
use std::collections::BTreeMap;

/// Why a look-up or a read was not answered (contract C10).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MissReason {
    /// Not stored, or behind the first block that is not stored.
    Absent,
    /// Stored, but the last token must be computed or the block lies past the last unit.
    BelowUnit,
    /// Stored, but past its time to live.
    Expired,
    /// Its namespace or tenant was cleared.
    Cleared,
    /// The bytes did not match their checksum.
    FailedCheck,
    /// The device refused.
    IoError,
    /// Not there by the deadline.
    Timeout,
    /// The device failed too often and is not asked any more.
    Quarantined,
    /// Entries are stored, but nothing to resume from (window or checkpoint).
    NoResumePoint,
    /// Leases hold the host memory that the read needs.
    Pinned,
}

impl MissReason {
    /// The word in counters and explanations.
    pub fn name(self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::BelowUnit => "below_unit",
            Self::Expired => "expired",
            Self::Cleared => "cleared",
            Self::FailedCheck => "failed_check",
            Self::IoError => "io_error",
            Self::Timeout => "timeout",
            Self::Quarantined => "quarantined",
            Self::NoResumePoint => "no_resume_point",
            Self::Pinned => "pinned",
        }
    }
}

/// Everything a store has counted since it was opened.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Blocks looked up by `match`.
    pub lookups: u64,
    /// Of these, held in HBM by the worker that asked.
    pub hits_mirror: u64,
    /// Of these, found in host memory.
    pub hits_host: u64,
    /// Of these, found on disk only.
    pub hits_disk: u64,
    /// Of these, missed, by reason. lookups = hits_mirror + hits_host + hits_disk + all misses.
    pub misses: BTreeMap<MissReason, u64>,
    /// Objects asked for by lease, get_into and prefetch.
    pub reads_asked: u64,
    /// Of these, given.
    pub reads_given: u64,
    /// Of these, not given, by reason. asked = given + all missed.
    pub reads_missed: BTreeMap<MissReason, u64>,
    /// Leases that were held past their deadline.
    pub leases_overdue: u64,
    /// Items answered `Stored`.
    pub puts_stored: u64,
    /// Items answered `Exists`.
    pub puts_exists: u64,
    /// Items answered `Busy`.
    pub puts_busy: u64,
    /// Items answered `Cancelled`.
    pub puts_cancelled: u64,
    /// Items answered `Rejected`, by reason.
    pub puts_rejected: BTreeMap<&'static str, u64>,
    /// Puts of a present key with other bytes (engines are not bit-deterministic).
    pub puts_divergent: u64,
    /// Objects that left the host tier to make room.
    pub evicted_host: u64,
    /// Objects that left the disk tier to make room.
    pub evicted_disk: u64,
    /// Objects that were lost from both tiers by an eviction.
    pub evicted: u64,
    /// Objects dropped because they had expired.
    pub expired: u64,
    /// Objects whose bytes did not match their checksum.
    pub failed_checks: u64,
    /// Reads and writes that the device refused.
    pub io_errors: u64,
    /// Evictions because the file system was full before the store's own limit.
    pub no_space_evictions: u64,
    /// Payload bytes read from the disk tier.
    pub bytes_read: u64,
    /// Slot bytes written to the disk tier.
    pub bytes_written: u64,
    /// Table pages written.
    pub pages_written: u64,
    /// Segments given from one class to another.
    pub segments_drained: u64,
    /// Objects that moved to another segment in a drain.
    pub objects_moved: u64,
}

impl Counters {
    pub(crate) fn miss(&mut self, reason: MissReason, blocks: u64) {
        if blocks > 0 {
            *self.misses.entry(reason).or_default() += blocks;
        }
    }

    pub(crate) fn read_missed(&mut self, reason: MissReason) {
        *self.reads_missed.entry(reason).or_default() += 1;
    }

    pub(crate) fn put(&mut self, status: Status) {
        match status {
            Status::Pending => {}
            Status::Stored => self.puts_stored += 1,
            Status::Exists => self.puts_exists += 1,
            Status::Busy => self.puts_busy += 1,
            Status::Cancelled => self.puts_cancelled += 1,
            Status::Rejected(reason) => self.rejected(reason),
        }
    }

    fn rejected(&mut self, reason: Reason) {
        *self.puts_rejected.entry(reason.name()).or_default() += 1;
    }
}
