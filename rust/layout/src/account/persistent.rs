//! What is stored, against the interval between resume points.

use super::{Basis, WindowRows};
use crate::{Fraction, Layout};

/// Which state bytes go with each resume point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tails {
    /// None: entries and windows only.
    None,
    /// What exact resume needs at an aligned point (the overlap tails, recurrent states).
    Exact,
    /// The whole rings that engines hold.
    Engine,
}

impl Layout {
    /// Bytes of one resume point besides the entries: `w` rows of each window, and the tails.
    pub fn resume_point_bytes(&self, windows: bool, tails: Tails, basis: Basis) -> u64 {
        let aligned = u64::from(self.block_tokens()) * u64::from(self.max_window().max(1));
        let window =
            if windows { self.window_bytes_at(aligned, basis, WindowRows::Held) } else { 0 };
        let tails = match tails {
            Tails::None => 0,
            Tails::Exact => self.state_bytes(aligned, basis),
            Tails::Engine => self.ring_bytes(),
        };
        window + tails
    }

    /// Bytes stored per token with a resume point every `interval` tokens; `None` = entries only.
    pub fn persistent_per_token(
        &self,
        interval: Option<u32>,
        windows: bool,
        tails: Tails,
        basis: Basis,
    ) -> Fraction {
        let entries = self.bytes_per_token(basis);
        let Some(interval) = interval else { return entries };
        entries + Fraction::per(self.resume_point_bytes(windows, tails, basis), interval)
    }
}
