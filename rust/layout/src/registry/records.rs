//! Records by name: element types, and the formats of `data/records.toml`.

use std::collections::BTreeMap;

use super::schema;
use crate::group::PageShape;

/// A named record format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordFormat {
    /// Name, scale rule included.
    pub name: String,
    /// Bytes of one entry in each plane.
    pub planes: Vec<u32>,
    /// Padding of an engine page.
    pub align: u32,
    /// Where the format is described.
    pub source: String,
}

/// Records by name.
#[derive(Debug, Clone, Default)]
pub(super) struct Records(BTreeMap<String, RecordFormat>);

impl Records {
    pub(super) fn add(&mut self, record: &schema::Record) {
        let name = record.name.get_ref().clone();
        let format = RecordFormat {
            name: name.clone(),
            planes: record.planes.clone(),
            align: record.align,
            source: record.source.clone(),
        };
        self.0.insert(name, format);
    }

    pub(super) fn get(&self, name: &str) -> Option<&RecordFormat> {
        self.0.get(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &RecordFormat> {
        self.0.values()
    }

    /// Known names, for a mend: the nearest first.
    pub(super) fn near(&self, name: &str) -> String {
        let own = self.0.keys().map(String::as_str);
        let mut names: Vec<&str> = DTYPES.iter().map(|d| d.0).chain(own).collect();
        names.sort_by_key(|known| std::cmp::Reverse(common(known, name)));
        names.truncate(6);
        names.join(", ")
    }
}

/// Letters that two names share at their start or end.
fn common(a: &str, b: &str) -> usize {
    let start = a.bytes().zip(b.bytes()).take_while(|(x, y)| x == y).count();
    let end = a.bytes().rev().zip(b.bytes().rev()).take_while(|(x, y)| x == y).count();
    start.max(end)
}

const DTYPES: [(&str, u64); 10] = [
    ("int64", 64),
    ("fp32", 32),
    ("bf16", 16),
    ("fp16", 16),
    ("fp8", 8),
    ("int8", 8),
    ("fp6", 6),
    ("fp4", 4),
    ("int4", 4),
    ("uint8", 8),
];

/// Bytes of `elements` numbers of this type; `None` when there is no such type or the bits do not
/// fill bytes.
pub(super) fn dtype_bytes(dtype: &str, elements: u32) -> Option<u32> {
    let bits = DTYPES.iter().find(|(name, _)| *name == dtype)?.1 * u64::from(elements);
    if bits.is_multiple_of(8) { u32::try_from(bits / 8).ok() } else { None }
}

/// Whether this is an element type.
pub(super) fn is_dtype(name: &str) -> bool {
    DTYPES.iter().any(|(dtype, _)| *dtype == name)
}

/// The page of a named format.
pub(super) fn shape(format: &RecordFormat) -> PageShape {
    PageShape {
        format: format.name.clone(),
        planes: format.planes.clone(),
        page_entries: 0,
        align: format.align,
    }
}
