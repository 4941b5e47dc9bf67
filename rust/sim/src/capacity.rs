//! How much of a trace a simulated store holds.

use std::fmt;
use std::str::FromStr;

/// A capacity in blocks, or as a share of the trace's unique blocks.
#[derive(Copy, Clone, PartialEq, Debug)]
pub enum Capacity {
    /// A number of blocks.
    Blocks(u32),
    /// A percentage of the unique blocks, above 0 and at most 100.
    Percent(f64),
}

/// A capacity that cannot be read.
#[derive(Clone, Eq, PartialEq, Debug, thiserror::Error)]
#[error(
    "capacity {text:?}: must be a number of blocks from 1 to 4294967294, or a percentage of the \
     unique blocks above 0% and up to 100%"
)]
pub struct CapacityError {
    text: String,
}

impl Capacity {
    /// The capacity in blocks, rounded down, at least 1.
    pub fn blocks(self, unique: u32) -> u32 {
        match self {
            Capacity::Blocks(blocks) => blocks,
            Capacity::Percent(percent) => ((f64::from(unique) * percent / 100.0) as u32).max(1),
        }
    }
}

impl FromStr for Capacity {
    type Err = CapacityError;

    fn from_str(text: &str) -> Result<Capacity, CapacityError> {
        let capacity = match text.trim().strip_suffix('%') {
            Some(number) => number
                .trim_end()
                .parse()
                .ok()
                .filter(|percent| *percent > 0.0 && *percent <= 100.0)
                .map(Capacity::Percent),
            None => text
                .trim()
                .parse()
                .ok()
                .filter(|blocks| (1..u32::MAX).contains(blocks))
                .map(Capacity::Blocks),
        };
        capacity.ok_or_else(|| CapacityError { text: text.to_owned() })
    }
}

impl fmt::Display for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Capacity::Blocks(blocks) => write!(f, "{blocks}"),
            Capacity::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}
