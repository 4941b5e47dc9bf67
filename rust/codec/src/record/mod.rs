//! Records and pages: the bytes of one cached entry, and of a page of them.
//!
//! A record is data: which columns of the bf16 row are coded how, and where codes and scales stand.
//! A page of n entries is n x `data_bytes`, then n x `tail_bytes`, then zeros up to a multiple of
//! `page_multiple`. Formats whose tail is empty are contiguous records; the others cannot be cut at
//! an entry.

mod formats;
pub mod gqa;
mod page;

use crate::element::Element;
use crate::error::Error;
use crate::scheme::Scheme;

pub use formats::{all, named};
pub use page::{move_entries, pack, unpack};

/// Where a part's bytes stand for one entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Offset in the entry's data bytes.
    Data(usize),
    /// Offset in the entry's tail bytes, in the page's second plane.
    Tail(usize),
}

/// The order of a part's scale bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleOrder {
    /// Scale s at position s.
    Linear,
    /// Scale s at byte 8 x (s mod 4) + s / 4: vLLM's 352-byte record.
    Strided4,
}

impl ScaleOrder {
    /// Position of scale `s` among `count`.
    #[must_use]
    pub const fn position(self, s: usize, count: usize) -> usize {
        match self {
            Self::Linear => s,
            Self::Strided4 => count / 4 * (s % 4) + s / 4,
        }
    }
}

/// How a run of columns is coded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Coding {
    /// bf16 as it is: rotary parts.
    Copy,
    /// Each element by itself, without a scale.
    Cast(Element),
    /// A scheme with scales of its own.
    Scheme {
        /// The rule.
        scheme: Scheme,
        /// Where the scales stand.
        scales: Place,
        /// In what order.
        order: ScaleOrder,
    },
}

/// A run of columns of the row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part {
    /// First column.
    pub col: usize,
    /// Number of columns.
    pub cols: usize,
    /// Where the codes stand.
    pub at: Place,
    /// How they are coded.
    pub coding: Coding,
}

/// A record format with its page rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Format {
    /// The name, unique.
    pub name: &'static str,
    /// Who writes it.
    pub engine: &'static str,
    /// The release or the date of the public snapshot.
    pub version: &'static str,
    /// What it holds.
    pub note: &'static str,
    /// bf16 elements of an entry's row.
    pub dim: usize,
    /// The parts, in column order, covering the row.
    pub parts: Vec<Part>,
    /// Bytes of an entry in the first plane.
    pub data_bytes: usize,
    /// Bytes of an entry in the second plane.
    pub tail_bytes: usize,
    /// Pages are padded with zeros to a multiple of this.
    pub page_multiple: usize,
}

impl Format {
    /// Bytes of one entry, padding of the page not counted.
    #[must_use]
    pub const fn record_bytes(&self) -> usize {
        self.data_bytes + self.tail_bytes
    }

    /// Bytes of a page of `entries`.
    #[must_use]
    pub const fn page_bytes(&self, entries: usize) -> usize {
        (entries * self.record_bytes()).next_multiple_of(self.page_multiple)
    }

    /// Whether an entry is one byte range.
    #[must_use]
    pub const fn contiguous(&self) -> bool {
        self.tail_bytes == 0
    }

    /// Offset in a page of `entries` where entry `k`'s bytes at `place` begin.
    pub(crate) const fn offset(&self, entries: usize, k: usize, place: Place) -> usize {
        match place {
            Place::Data(at) => k * self.data_bytes + at,
            Place::Tail(at) => entries * self.data_bytes + k * self.tail_bytes + at,
        }
    }

    /// Whether entries of `self` can become entries of `other` by moving bytes: the same columns
    /// coded by the same rules, wherever they stand.
    #[must_use]
    pub fn moves_to(&self, other: &Self) -> bool {
        let same = |(a, b): (&Part, &Part)| {
            let coding = match (a.coding, b.coding) {
                (Coding::Scheme { scheme: x, .. }, Coding::Scheme { scheme: y, .. }) => x == y,
                (x, y) => x == y,
            };
            coding && (a.col, a.cols) == (b.col, b.cols)
        };
        self.dim == other.dim
            && self.parts.len() == other.parts.len()
            && self.parts.iter().zip(&other.parts).all(same)
    }
}

/// A format by its name.
fn unknown(given: &str, known: impl Iterator<Item = &'static str>) -> Error {
    let known = known.collect::<Vec<_>>().join(", ");
    Error::Unknown { kind: "record format", given: given.to_owned(), known }
}

#[cfg(test)]
mod tests;
