//! Which checkpoints and windows are kept of a computed prompt.

use std::collections::BTreeSet;
use std::ops::Range;

use super::stored::first_window_block;
use crate::Layout;

/// Which blocks' window objects are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Windows {
    /// Of every block: a prompt can go on from any block end.
    All,
    /// The trailing ones of each resume point.
    Trailing,
    /// None: resume by replay.
    None,
}

/// Where resume points are kept, and what of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Policy {
    /// A point every so many tokens, rounded down to block ends; `None` = no periodic points.
    pub every: Option<u32>,
    /// A point at the prompt's last block end.
    pub prompt_end: bool,
    /// A point at the output's last block end.
    pub output_end: bool,
    /// Window objects.
    pub windows: Windows,
}

impl Policy {
    /// What DeepSeek deploys for V4: the prompt's and the output's end (arXiv 2606.19348, 3.5.2).
    pub const ENDS: Self =
        Self { every: None, prompt_end: true, output_end: true, windows: Windows::Trailing };

    /// What DeepSeek deploys for V4.1: neither, a resumed request replays (arXiv 2609.19969).
    pub const NEVER: Self =
        Self { every: None, prompt_end: false, output_end: false, windows: Windows::None };

    /// A point every `tokens` tokens, and at both ends.
    pub const fn every(tokens: u32) -> Self {
        Self { every: Some(tokens), ..Self::ENDS }
    }
}

/// What a policy keeps of one computed stretch. Without `entries`, windows and state alike, a
/// layout keeps nothing but bodies and has a resume point at every block end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Kept {
    /// Resume points in tokens, ascending.
    pub points: Vec<u32>,
    /// Checkpoints in tokens, ascending: the points, in layouts with state.
    pub checkpoints: Vec<u32>,
    /// Blocks whose window objects are kept, ascending. Trailing windows of a point may lie before
    /// the stretch: those are kept by an earlier point, or put by a caller that has their rows.
    pub windows: Vec<u32>,
}

/// What to keep after the tokens of `computed` were computed, of which those below `prompt_tokens`
/// are the prompt.
pub fn keep(layout: &Layout, policy: Policy, computed: Range<u32>, prompt_tokens: u32) -> Kept {
    let block = layout.block_tokens();
    let new = |n: u32| n > computed.start && n <= computed.end;
    let mut points = BTreeSet::new();
    let ends =
        [(policy.prompt_end, prompt_tokens.min(computed.end)), (policy.output_end, computed.end)];
    points.extend(ends.iter().filter(|(on, _)| *on).map(|(_, n)| n / block * block));
    if let Some(every) = policy.every {
        let every = every.max(1);
        let first = computed.start / every + 1;
        let last = computed.end / every;
        points.extend((first..=last).map(|i| i * every / block * block));
    }
    points.retain(|&n| new(n));
    let points: Vec<u32> = points.into_iter().collect();
    let windows = match policy.windows {
        _ if layout.window_bytes() == 0 => BTreeSet::new(),
        Windows::None => BTreeSet::new(),
        Windows::All => (computed.start.div_ceil(block)..computed.end / block).collect(),
        Windows::Trailing => {
            points.iter().flat_map(|&n| first_window_block(layout, n / block)..n / block).collect()
        }
    };
    let checkpoints = if layout.has_state() { points.clone() } else { Vec::new() };
    Kept { points, checkpoints, windows: windows.into_iter().collect() }
}
