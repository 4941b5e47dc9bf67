//! One error type for misuse and for a store that cannot be opened.
//!
//! Trouble during normal work is never an error: a failed read is a miss with a reason and a
//! put that finds no room is an answer (contract C2, C4). What remains here is what the caller
//! must mend: a wrong argument, a directory that belongs to somebody else, a damaged superblock.

use crate::identity::IdentityError;
use crate::io::OpenError;
use std::path::Path;

/// What kind of mend an [`Error`] asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An argument is outside what the call takes.
    InvalidArgument,
    /// Another process owns the directory.
    Locked,
    /// The directory holds a store that this build must not touch: other format version, other
    /// geometry, both superblocks damaged.
    Incompatible,
    /// The file system refused: permission, no space, not a directory.
    Io,
    /// The handle is closed, forked or poisoned by a panic.
    Unusable,
    /// A limit of the format is reached (4,096 namespaces, for example).
    Limit,
}

/// An error that names its cause and, where there is one, the mend.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
    owner: Option<u32>,
    #[source]
    source: Option<std::io::Error>,
}

/// Result of engine calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), owner: None, source: None }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidArgument, message)
    }

    pub(crate) fn io(doing: &str, path: &Path, source: std::io::Error) -> Self {
        let kind = if source.kind() == std::io::ErrorKind::WouldBlock {
            ErrorKind::Locked
        } else {
            ErrorKind::Io
        };
        Self {
            kind,
            message: format!("{doing} {}: {source}", path.display()),
            owner: None,
            source: Some(source),
        }
    }

    pub(crate) fn open(error: &OpenError) -> Self {
        let (kind, owner) = match error {
            OpenError::Locked { pid, .. } => (ErrorKind::Locked, *pid),
            OpenError::Io { .. } => (ErrorKind::Io, None),
        };
        Self { owner, ..Self::new(kind, error.to_string()) }
    }

    /// Process id of the owner of a locked store, if it lives and left its name.
    pub fn owner(&self) -> Option<u32> {
        self.owner
    }

    /// A wrong input of the key builder.
    #[allow(clippy::needless_pass_by_value, reason = "for map_err")]
    pub fn identity(error: IdentityError) -> Self {
        Self::invalid(error.to_string())
    }

    /// What kind of mend is needed.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}
