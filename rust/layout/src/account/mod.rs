//! How many bytes a layout costs: at N tokens, per token, stored, and read in a decode step.
//!
//! Four bases, which must not be mixed: *logical* (the format's own bytes), *padded* (in the pages
//! of the layout's engine), *persistent* (what is stored, resume state included) and *read* (bytes
//! touched in one decode step).
//!
//! Counts of tokens are taken up to [`MAX_TOKENS`](crate::MAX_TOKENS); beyond it sums may leave 64
//! bits and panic.

mod persistent;
mod ranks;
mod read;

pub use persistent::Tails;
pub use ranks::{Rank, RankError, Ranks};

use std::collections::BTreeMap;

use crate::group::{Group, Kind};
use crate::{Fraction, Layout};

/// Whose bytes are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Basis {
    /// The format's own bytes.
    Logical,
    /// Bytes in the pages of the layout's engine.
    Padded,
}

/// How many rows of a window are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WindowRows {
    /// `min(N, w - 1)`: what resuming at N needs.
    Resume,
    /// `min(N, w)`: what engines hold, the current token's row included.
    Held,
}

impl Group {
    /// Bytes of one owner layer at N tokens.
    ///
    /// Entries count when they are complete: `floor(N / ratio)`. A state group counts its kept rows
    /// and those of its open pooling group.
    pub fn layer_bytes(&self, n: u64, basis: Basis, rows: WindowRows) -> u64 {
        match (self.kind, &self.state) {
            (Kind::Entries, _) => self.sized(self.entries_in(n), basis),
            (Kind::Window(w), _) => {
                let w = u64::from(w);
                let held = if rows == WindowRows::Held { w } else { w - 1 };
                self.sized(self.entries_in(n.min(held)), basis)
            }
            (Kind::State, Some(state)) => {
                let kept = if n >= u64::from(state.from) { u64::from(state.kept) } else { 0 };
                let open = state
                    .open
                    .map_or(0, |o| n % u64::from(o.modulus.max(1)) * u64::from(o.row_bytes));
                self.sized(kept, basis) + open
            }
            (Kind::State, None) => 0,
        }
    }

    /// Bytes of all owner layers at N tokens.
    pub fn bytes_at(&self, n: u64, basis: Basis, rows: WindowRows) -> u64 {
        self.layers.len() as u64 * self.layer_bytes(n, basis, rows)
    }

    fn sized(&self, entries: u64, basis: Basis) -> u64 {
        match basis {
            Basis::Logical => entries * self.record_bytes(),
            Basis::Padded => self.page.page_bytes(entries),
        }
    }

    /// Bytes that an engine holds of this state for one running request: its ring where it has one.
    pub fn ring_bytes(&self) -> u64 {
        let per_layer = self.state.map_or(0, |s| match s.ring_bytes {
            0 => u64::from(s.kept) * self.record_bytes(),
            ring => u64::from(ring),
        });
        self.layers.len() as u64 * per_layer
    }
}

impl Layout {
    fn sum(&self, kind: fn(Kind) -> bool, each: impl Fn(&Group) -> u64) -> u64 {
        self.groups().iter().filter(|g| kind(g.kind)).map(each).sum()
    }

    /// Bytes of all `entries` groups at N tokens.
    pub fn entry_bytes(&self, n: u64, basis: Basis) -> u64 {
        self.sum(|k| k == Kind::Entries, |g| g.bytes_at(n, basis, WindowRows::Resume))
    }

    /// Bytes of all `window` groups at N tokens.
    pub fn window_bytes_at(&self, n: u64, basis: Basis, rows: WindowRows) -> u64 {
        self.sum(|k| matches!(k, Kind::Window(_)), |g| g.bytes_at(n, basis, rows))
    }

    /// Bytes of all `state` groups at N tokens, open pooling groups included.
    pub fn state_bytes(&self, n: u64, basis: Basis) -> u64 {
        self.sum(|k| k == Kind::State, |g| g.bytes_at(n, basis, WindowRows::Resume))
    }

    /// Bytes of all `state` groups as engines hold them for a running request.
    pub fn ring_bytes(&self) -> u64 {
        self.sum(|k| k == Kind::State, Group::ring_bytes)
    }

    /// Bytes that one request of N tokens occupies: entries, held windows and rings.
    pub fn request_bytes(&self, n: u64, basis: Basis) -> u64 {
        self.entry_bytes(n, basis)
            + self.window_bytes_at(n, basis, WindowRows::Held)
            + self.ring_bytes()
    }

    /// Bytes per token of all `entries` groups, exactly: a block's bytes over its tokens.
    pub fn bytes_per_token(&self, basis: Basis) -> Fraction {
        let block = self.block_tokens();
        Fraction::per(self.entry_bytes(u64::from(block), basis), block)
    }

    /// Bytes of one layer over all groups at N tokens: entries, resume windows and state.
    pub fn layer_bytes(&self, layer: u32, n: u64, basis: Basis) -> u64 {
        let owned = self.groups().iter().filter(|g| g.layers.binary_search(&layer).is_ok());
        owned.map(|g| g.layer_bytes(n, basis, WindowRows::Resume)).sum()
    }

    /// Layers that own entries.
    pub fn owner_layers(&self) -> u32 {
        u32::try_from(self.densest().len()).unwrap_or(u32::MAX)
    }

    /// Entries per token over all owner layers, a layer's index key counted with its entry: the sum
    /// of each owner's densest ratio.
    pub fn entries_per_token(&self) -> Fraction {
        self.densest().values().map(|&ratio| Fraction::per(1, ratio)).sum()
    }

    /// The smallest ratio of each layer that owns entries.
    fn densest(&self) -> BTreeMap<u32, u32> {
        let mut densest = BTreeMap::new();
        for group in self.groups().iter().filter(|g| g.kind == Kind::Entries) {
            for &layer in &group.layers {
                let ratio = densest.entry(layer).or_insert(group.ratio);
                *ratio = group.ratio.min(*ratio);
            }
        }
        densest
    }

    /// Numbers cached per token over all layers and `entries` groups.
    pub fn elements_per_token(&self) -> Fraction {
        let entries = self.groups().iter().filter(|g| g.kind == Kind::Entries);
        entries.map(|g| Fraction::per(u64::from(g.elements) * g.layers.len() as u64, g.ratio)).sum()
    }
}

#[cfg(test)]
mod tests;
