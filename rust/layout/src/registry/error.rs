//! Errors of the registry: what is wrong, in which line, and how to mend it.

use toml::Spanned;

/// A file of architectures that cannot be read, or a name that it does not have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{origin}{}: {what}. Mend: {mend}", line_part(*.line))]
pub struct RegistryError {
    /// The file, or "registry".
    pub origin: String,
    /// Line of the mistake, from 1; 0 when there is none.
    pub line: usize,
    /// What is wrong: group, field and value.
    pub what: String,
    /// How to put it right.
    pub mend: String,
}

fn line_part(line: usize) -> String {
    if line == 0 { String::new() } else { format!(":{line}") }
}

/// Where errors of one file are made: knows its name and text.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) origin: &'a str,
    pub(super) text: &'a str,
}

impl Source<'_> {
    pub(super) fn at(
        &self,
        offset: usize,
        what: impl Into<String>,
        mend: impl Into<String>,
    ) -> RegistryError {
        let before = self.text.as_bytes().get(..offset).unwrap_or_default();
        let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
        RegistryError { origin: self.origin.to_owned(), line, what: what.into(), mend: mend.into() }
    }

    pub(super) fn on<T>(
        &self,
        value: &Spanned<T>,
        what: impl Into<String>,
        mend: impl Into<String>,
    ) -> RegistryError {
        self.at(value.span().start, what, mend)
    }
}
