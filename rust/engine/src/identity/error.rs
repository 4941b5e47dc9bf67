//! What is wrong with an input of the key builder: field, value and limit.

use std::fmt;
use thiserror::Error;

/// Misuse of the key builder. Nothing here comes from a disk or a peer at run time except
/// [`Malformed`](Self::Malformed), which a damaged namespace record gives.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IdentityError {
    /// A field of the namespace description has no value and no default.
    #[error("namespace description: {field} is missing")]
    Missing {
        /// Name of the field.
        field: &'static str,
    },
    /// A value outside what its field takes.
    #[error("{field} is {value}: {limit}")]
    Invalid {
        /// Name of the field or argument.
        field: String,
        /// The value, as text.
        value: String,
        /// What is allowed.
        limit: String,
    },
    /// The encoded description does not fit a namespace record.
    #[error(
        "namespace description has {length} bytes, the limit is {limit}: \
         the longest field is {longest} with {longest_length} bytes"
    )]
    TooLong {
        /// Bytes of the canonical encoding.
        length: usize,
        /// [`MAX_ENCODED_BYTES`](super::MAX_ENCODED_BYTES).
        limit: usize,
        /// Name of the field (or the `extra` entry) that takes most.
        longest: String,
        /// Bytes of its value.
        longest_length: usize,
    },
    /// Bytes that are no canonical encoding of a description.
    #[error("namespace record: at byte {offset}: {problem}")]
    Malformed {
        /// Where in the encoding, bytes.
        offset: usize,
        /// What was expected and what is there.
        problem: String,
    },
    /// A token id that is not a u32.
    #[error("token_ids[{index}] is {value}: a token id is 0 to 4294967295")]
    Token {
        /// Position in the buffer.
        index: usize,
        /// The value found.
        value: i128,
    },
}

impl IdentityError {
    pub(super) fn invalid(
        field: impl Into<String>,
        value: &(impl fmt::Display + ?Sized),
        limit: impl Into<String>,
    ) -> Self {
        Self::Invalid { field: field.into(), value: value.to_string(), limit: limit.into() }
    }
}
