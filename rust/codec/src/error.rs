//! What a caller can get wrong, each named with what was given and what is wanted.

use thiserror::Error;

/// Misuse of a codec call, or bytes that cannot be what the caller says they are.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum Error {
    /// A buffer is not exactly as long as the shape asks for.
    #[error("{what}: {given} {unit} given, exactly {wanted} wanted for {why}")]
    Length {
        /// The buffer's role, such as `codes`.
        what: &'static str,
        /// Length given, in `unit`.
        given: usize,
        /// Length wanted, in `unit`.
        wanted: usize,
        /// `bytes` or `elements`.
        unit: &'static str,
        /// The shape that asks for it.
        why: String,
    },
    /// A dimension does not divide into the scheme's blocks.
    #[error("{what}: {given} given, a multiple of {multiple} wanted by {by}")]
    Multiple {
        /// The dimension's name.
        what: &'static str,
        /// Its value.
        given: usize,
        /// What it must be a multiple of.
        multiple: usize,
        /// The scheme or format that wants it.
        by: String,
    },
    /// An address does not have the alignment that the call needs.
    #[error("{what}: address ends {offset} bytes past a multiple of {wanted}, aligned wanted")]
    Alignment {
        /// The buffer's role.
        what: &'static str,
        /// Address modulo `wanted`.
        offset: usize,
        /// Alignment wanted, in bytes.
        wanted: usize,
    },
    /// A scale given by the caller is not finite and positive.
    #[error("{what}[{index}]: {value} given, a finite number above 0 wanted")]
    Scale {
        /// `scale` or `global_scale`.
        what: &'static str,
        /// Position in the list given.
        index: usize,
        /// The value given.
        value: f32,
    },
    /// An argument is missing, unwanted, or outside its range.
    #[error("{what}: {given} given, {wanted} wanted")]
    Argument {
        /// The argument's name.
        what: &'static str,
        /// What was given.
        given: String,
        /// What is wanted.
        wanted: String,
    },
    /// No preset, format or level has this name.
    #[error("unknown {kind} {given:?}; known: {known}")]
    Unknown {
        /// What kind of name.
        kind: &'static str,
        /// The name given.
        given: String,
        /// The names there are.
        known: String,
    },
    /// A coded frame is damaged or is not one.
    #[error("frame: {0}")]
    Frame(String),
}

/// Checks a buffer's exact length.
pub(crate) fn exact(
    what: &'static str,
    given: usize,
    wanted: usize,
    unit: &'static str,
    why: impl FnOnce() -> String,
) -> Result<(), Error> {
    if given == wanted {
        return Ok(());
    }
    Err(Error::Length { what, given, wanted, unit, why: why() })
}
