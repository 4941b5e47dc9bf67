//! Errors of operations, and what the kernel's numbers mean to the engine.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use super::device::{Completion, File, Op, OpKind};

/// Why an operation failed.
#[derive(Copy, Clone, Debug, Eq, PartialEq, Hash)]
pub enum IoErrorKind {
    /// No space (`ENOSPC`, `EDQUOT`): the device works, but takes nothing more.
    NoSpace,
    /// The file ends before the operation does.
    Eof,
    /// A place, length or buffer that is not whole units: the caller's mistake.
    Misaligned,
    /// The device failed, with this error number.
    Device(i32),
    /// The device was closed before the operation began.
    Closed,
}

impl std::fmt::Display for IoErrorKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            IoErrorKind::NoSpace => f.write_str("no space left"),
            IoErrorKind::Eof => f.write_str("the file ends before"),
            IoErrorKind::Misaligned => f.write_str("not in whole units"),
            IoErrorKind::Device(errno) => Errno::from_raw_os_error(*errno).fmt(f),
            IoErrorKind::Closed => f.write_str("the device is closed"),
        }
    }
}

/// An operation that failed. Plain data: it is counted and logged, and ends as a miss (C4).
#[derive(Copy, Clone, Debug, Eq, PartialEq, Hash, thiserror::Error)]
#[error("{op:?} of {len} bytes at {offset} of {file}: {kind}")]
pub struct IoError {
    /// What went wrong.
    pub kind: IoErrorKind,
    /// What was tried.
    pub op: OpKind,
    /// On which file.
    pub file: File,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u32,
}

/// Sorts what a system call said.
pub(super) fn kind_of(error: &io::Error) -> IoErrorKind {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC | Errno::DQUOT) => IoErrorKind::NoSpace,
        Some(errno) => IoErrorKind::Device(errno.raw_os_error()),
        None if error.kind() == io::ErrorKind::UnexpectedEof => IoErrorKind::Eof,
        None => IoErrorKind::Device(Errno::IO.raw_os_error()),
    }
}

/// An error of a synchronous call.
pub(super) fn to_io(kind: IoErrorKind) -> io::Error {
    match kind {
        IoErrorKind::NoSpace => io::ErrorKind::StorageFull.into(),
        IoErrorKind::Eof => io::ErrorKind::UnexpectedEof.into(),
        IoErrorKind::Device(errno) => io::Error::from_raw_os_error(errno),
        IoErrorKind::Misaligned | IoErrorKind::Closed => io::Error::other(kind.to_string()),
    }
}

/// The completion of an operation that failed.
pub(super) fn failed(op: &Op, kind: IoErrorKind) -> Completion {
    let Op { token, kind: tried, file, offset, buf } = *op;
    let error = IoError { kind, op: tried, file, offset, len: buf.len };
    Completion { token, result: Err(error) }
}

/// Why a device could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another owner holds it (C9).
    #[error("{} is in use {holder}", path.display())]
    Locked {
        /// Directory of the device.
        path: PathBuf,
        /// Who, as far as is known, and what to do.
        holder: String,
        /// Process id of the owner, if it lives and left its name.
        pid: Option<u32>,
    },
    /// The file system refused.
    #[error("{}: {source}; {mend}", path.display())]
    Io {
        /// File or directory.
        path: PathBuf,
        /// What to do about it.
        mend: &'static str,
        /// What it said.
        source: io::Error,
    },
}

impl OpenError {
    pub(super) fn io(path: &Path, source: io::Error) -> OpenError {
        let mend = match source.kind() {
            io::ErrorKind::PermissionDenied => "give this user write access, or choose another",
            io::ErrorKind::ReadOnlyFilesystem => {
                "mount it for writing, or choose another directory"
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "make space, or give the store a smaller limit"
            }
            io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
                "a store needs a directory of its own"
            }
            io::ErrorKind::IsADirectory => "move it away: a store keeps a file of this name",
            _ => match source.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::MFILE | Errno::NFILE) => "raise the limit of open files (ulimit -n)",
                _ => "check the device and the directory",
            },
        };
        OpenError::Io { path: path.to_owned(), mend, source }
    }
}
