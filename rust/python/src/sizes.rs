//! Sizes and times as people write them.

use std::time::Duration;

use pyo3::prelude::*;

use crate::errors::invalid;
use crate::hints::arguments;

arguments! {
    /// Bytes: an integer, or a string like "8 GiB".
    Size;
    /// Time: seconds, or a `timedelta`.
    Seconds;
}

const UNITS: [(&str, u64); 10] = [
    ("", 1),
    ("B", 1),
    ("KB", 1_000),
    ("MB", 1_000_000),
    ("GB", 1_000_000_000),
    ("TB", 1_000_000_000_000),
    ("KIB", 1 << 10),
    ("MIB", 1 << 20),
    ("GIB", 1 << 30),
    ("TIB", 1 << 40),
];

/// Bytes of a size: an integer, or a string of a number and a unit: B, KB, MB, GB, TB (powers of
/// 1000) or KiB, MiB, GiB, TiB (powers of 1024). "1.5 GiB" is 1610612736.
#[pyfunction]
pub(crate) fn parse_size(size: Size<'_>) -> PyResult<u64> {
    size.bytes("size")
}

impl Size<'_> {
    pub(crate) fn bytes(self, field: &str) -> PyResult<u64> {
        if let Ok(bytes) = self.0.extract::<u64>() {
            return Ok(bytes);
        }
        let text = self.0.extract::<String>().ok();
        text.as_deref().and_then(parse).ok_or_else(|| {
            invalid(format!(
                "{field} is {}: it takes bytes as an integer from 0 to 2^64 - 1 or a string like \
                 \"8 GiB\", \"500 MB\"",
                shown(&self.0)
            ))
        })
    }
}

fn parse(text: &str) -> Option<u64> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'));
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let unit = unit.trim().to_ascii_uppercase();
    let (_, factor) = UNITS.into_iter().find(|(name, _)| *name == unit)?;
    let number = number.replace('_', "");
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor);
    }
    let bytes = number.parse::<f64>().ok()? * factor as f64;
    (bytes.fract() == 0.0 && bytes < u64::MAX as f64).then_some(bytes as u64)
}

impl Seconds<'_> {
    pub(crate) fn duration(self, field: &str) -> PyResult<Duration> {
        let seconds = match self.0.extract::<f64>() {
            Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
            Err(_) => self.0.extract::<Duration>().ok(),
        };
        // A century: longer than any deadline, and far from where instants overflow.
        seconds.filter(|time| time.as_secs() < 100 * 365 * 86_400).ok_or_else(|| {
            invalid(format!(
                "{field} is {}: it takes seconds from 0 to 100 years, or a timedelta",
                shown(&self.0)
            ))
        })
    }
}

/// An argument in an error message.
pub(crate) fn shown(value: &Bound<'_, PyAny>) -> String {
    let text = value.repr().map_or_else(|_| "?".to_owned(), |text| text.to_string());
    match text.char_indices().nth(60) {
        Some((at, _)) => format!("{}...", &text[..at]),
        None => text,
    }
}
