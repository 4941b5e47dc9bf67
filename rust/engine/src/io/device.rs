//! The device: a fixed set of files behind a completion queue.
//!
//! The engine submits operations on buffers of the arena and reaps completions; it never waits in
//! a submission. A buffer belongs to the device from the moment its operation is taken until its
//! completion is handed out (C7); a device keeps the arena alive for that time.

use std::fmt;
use std::io;
use std::time::Instant;

use super::error::IoError;
use crate::host::{Buf, SLOT_ALIGN};

/// The files of one device.
#[repr(u8)]
#[derive(Copy, Clone, Debug, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub enum File {
    /// Store id, device id and classes, twice.
    Superblock,
    /// Namespace records; on device 0.
    Namespaces,
    /// Records of cleared tenants; on device 0.
    Tenants,
    /// What each segment is used for, twice.
    Directory,
    /// Descriptors of all slots.
    Table,
    /// Payloads.
    Data,
}

impl File {
    /// All files, in the order of their numbers.
    pub const ALL: [File; 6] = [
        File::Superblock,
        File::Namespaces,
        File::Tenants,
        File::Directory,
        File::Table,
        File::Data,
    ];

    /// Name in the device's directory.
    pub const fn name(self) -> &'static str {
        match self {
            File::Superblock => "superblock",
            File::Namespaces => "namespaces",
            File::Tenants => "tenants",
            File::Directory => "directory",
            File::Table => "table",
            File::Data => "data",
        }
    }

    /// Whether the file goes around the page cache where the file system lets it. Operations on
    /// such a file, but not [`Device::read_at`] and [`Device::write_at`], are whole units.
    pub const fn direct(self) -> bool {
        matches!(self, File::Table | File::Data)
    }
}

impl fmt::Display for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What an operation does.
#[derive(Copy, Clone, Debug, Eq, PartialEq, Hash)]
pub enum OpKind {
    /// Fills the buffer from the file.
    Read,
    /// Writes the buffer to the file.
    Write,
    /// Makes durable what has completed on the file before the operation was submitted.
    Sync,
}

impl OpKind {
    /// Reads go before writes and syncs, which keep a floor so that they do not starve.
    pub const fn priority(self) -> Priority {
        match self {
            OpKind::Read => Priority::Read,
            OpKind::Write | OpKind::Sync => Priority::Write,
        }
    }
}

/// Which queue an operation waits in.
#[derive(Copy, Clone, Debug, Eq, PartialEq, Hash)]
pub enum Priority {
    /// Somebody waits for the bytes.
    Read,
    /// Nobody waits but memory.
    Write,
}

/// One operation.
#[derive(Copy, Clone, Debug)]
pub struct Op {
    /// The caller's own mark, handed back with the completion.
    pub token: u64,
    /// What to do.
    pub kind: OpKind,
    /// On which file.
    pub file: File,
    /// First byte in the file. A multiple of the unit in a direct file.
    pub offset: u64,
    /// Memory, and with it the length. In a direct file the length is a multiple of the unit, the
    /// offset in the extent one of 4 KiB. Not looked at for a sync.
    pub buf: Buf,
}

impl Op {
    /// Fills `buf` from `offset` of `file`.
    pub fn read(token: u64, file: File, offset: u64, buf: Buf) -> Op {
        Op { token, kind: OpKind::Read, file, offset, buf }
    }

    /// Writes `buf` at `offset` of `file`.
    pub fn write(token: u64, file: File, offset: u64, buf: Buf) -> Op {
        Op { token, kind: OpKind::Write, file, offset, buf }
    }

    /// Makes durable what has completed on `file`.
    pub fn sync(token: u64, file: File) -> Op {
        let buf = Buf { extent: 0, offset: 0, len: 0 };
        Op { token, kind: OpKind::Sync, file, offset: 0, buf }
    }

    /// Whether place and length are whole units, and the memory is aligned, where the file asks
    /// for it.
    pub(super) fn aligned(&self, unit: u32) -> bool {
        let whole = self.offset.is_multiple_of(unit.into())
            && self.buf.len.is_multiple_of(unit)
            && self.buf.offset.is_multiple_of(SLOT_ALIGN);
        whole || !self.file.direct() || self.kind == OpKind::Sync
    }
}

/// The end of one operation.
#[derive(Copy, Clone, Debug)]
pub struct Completion {
    /// Mark of the operation.
    pub token: u64,
    /// Success means the full length. On an error the buffer of a read holds nothing of use, and
    /// any part of a write may have been done.
    pub result: Result<(), IoError>,
}

/// How the extents of a file came to be.
#[derive(Copy, Clone, Debug, Eq, PartialEq, Hash)]
pub enum Grown {
    /// Space is set aside: a write inside the length does not fail for want of space.
    Allocated,
    /// The file system cannot set space aside: the file is sparse and a write may find it full.
    Sparse,
}

impl Grown {
    /// Word for stats and logs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Grown::Allocated => "allocated",
            Grown::Sparse => "sparse",
        }
    }
}

/// Which of the possible paths the device takes, for stats and one log line.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PathInUse {
    /// `psync` or `fault`.
    pub engine: &'static str,
    /// Whether [`File::direct`] files go around the page cache.
    pub direct: bool,
    /// Places and lengths of operations on direct files are multiples of this, in bytes.
    pub unit: u32,
    /// How space was set aside by the last growth: `allocated`, `sparse`, or `none` before one.
    pub allocation: &'static str,
    /// Why it is this path and not a better one; empty if there is none.
    pub why: String,
}

/// A storage device. Any thread may submit; one thread reaps.
pub trait Device: Send + Sync {
    /// Takes operations from the front of `ops`, as many as fit below [`Device::capacity`], and
    /// returns how many. Never blocks. After [`Device::close`] they are taken and complete as
    /// `Closed`.
    ///
    /// Reads and writes of one place that are in flight together happen in any order.
    ///
    /// # Panics
    /// If a buffer is not inside the arena: a broken invariant of the caller.
    fn submit(&self, ops: &[Op]) -> usize;

    /// Appends completions to `out` and returns how many; waits until there is at least one, the
    /// deadline has passed or [`Device::wake`] was called.
    fn complete(&self, out: &mut Vec<Completion>, deadline: Instant) -> usize;

    /// Makes a waiting [`Device::complete`] return; if none waits, the next one does.
    fn wake(&self);

    /// Operations taken whose completion has not been handed out.
    fn in_flight(&self) -> usize;

    /// Most operations in flight.
    fn capacity(&self) -> usize;

    /// Length of a file in bytes.
    ///
    /// # Errors
    /// As the file system says.
    fn len(&self, file: File) -> io::Result<u64>;

    /// Makes a file `len` bytes long where it is shorter: its extents are set aside where the file
    /// system can, and length and extents are durable when this returns (INV-8). New bytes read
    /// as zeros. Answers `Sparse` for a file long enough whose space was not set aside here.
    ///
    /// # Errors
    /// `StorageFull` and others; the length is as it was.
    fn grow(&self, file: File, len: u64) -> io::Result<Grown>;

    /// Makes a file `len` bytes long where it is longer, durably.
    ///
    /// # Errors
    /// As the file system says.
    fn truncate(&self, file: File, len: u64) -> io::Result<()>;

    /// Makes durable what has been written to a file.
    ///
    /// # Errors
    /// As the file system says. What was written before is then in doubt.
    fn sync(&self, file: File) -> io::Result<()>;

    /// Reads metadata, waiting for it: for open and recovery. Any place, any length.
    ///
    /// # Errors
    /// `UnexpectedEof` past the end of the file, else as the file system says.
    fn read_at(&self, file: File, offset: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// Writes metadata, waiting for it: for open and recovery. Any place, any length; in a direct
    /// file the rest of the first and last unit is read and written back, so nothing else may be
    /// in flight there, and the length grows to whole units.
    ///
    /// # Errors
    /// As the file system says.
    fn write_at(&self, file: File, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// The path that operations take.
    fn path_in_use(&self) -> PathInUse;

    /// Takes no more work and waits for what is in flight; at the deadline what has not begun
    /// ends as `Closed`. Returns whether all is over: then another owner may open the device, and
    /// synchronous calls fail. Idempotent.
    fn close(&self, deadline: Instant) -> bool;
}
