//! The planner.

use std::ops::Range;

use super::stored::{Points, first_window_block};
use crate::Layout;
use crate::group::{Kind, StateRows};

/// What the store has of a prompt. Blocks count from 0.
#[derive(Clone, Copy)]
pub struct Have<'a> {
    /// Bodies present without a hole from block 0. Not read when the layout has no `entries`.
    pub bodies: u32,
    /// Whether the window object of this block is present.
    pub window: &'a dyn Fn(u32) -> bool,
    /// Whether a checkpoint is present at the end of this block.
    pub checkpoint: &'a dyn Fn(u32) -> bool,
}

/// What recomputing and reading cost the caller, in one unit of his choice.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Costs {
    /// Cost of recomputing one token.
    pub per_token: f64,
    /// Cost of reading one byte.
    pub per_byte: f64,
}

/// How a prompt goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Stored entries and window rows are all that is needed. Exact.
    Plain,
    /// A stored checkpoint besides. Exact.
    Checkpoint,
    /// Windows and states are rebuilt by recomputing over stored entries from far enough back.
    /// Exact.
    ExactReplay,
    /// The last window of tokens is recomputed over stored entries: approximate above the first
    /// layer. What is stored afterwards is a replayed block.
    BoundedReplay,
    /// Nothing stored is of use: everything is computed.
    Nothing,
}

/// From where a prompt goes on. All lengths in tokens, all ranges in blocks.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Tokens whose entries are stored without a hole (without `entries` groups: `usable`).
    pub matched: u32,
    /// The resume point N: tokens whose stored entries are used. At most `n_tokens - 1`.
    pub usable: u32,
    /// First token to compute; below `usable` in the replay modes.
    pub replay_start: u32,
    /// How.
    pub mode: Mode,
    /// Bodies to read.
    pub bodies: Range<u32>,
    /// Window objects to read.
    pub windows: Range<u32>,
    /// The checkpoint to read, as its N in tokens.
    pub checkpoint: Option<u32>,
    /// Tokens to compute: `n_tokens - replay_start`.
    pub recompute_tokens: u32,
    /// Layers times tokens to compute; layers that run on a prompt's last window only count so.
    pub recompute_layer_tokens: u64,
    /// Token ids needed before `replay_start` (V4.1: 3).
    pub extra_ids: u32,
    /// Bytes to read.
    pub read_bytes: u64,
    /// Its cost, when costs were given.
    pub cost: Option<f64>,
}

/// Plans the resume of a prompt of `n_tokens` tokens.
///
/// At least one token is left to compute; the resume point is a block end. Without `costs` the
/// plan with the fewest tokens to compute wins, then the one with the fewest bytes to read; with
/// them the cheapest, then the same. `allow_approximate` admits [`Mode::BoundedReplay`].
pub fn plan(
    layout: &Layout,
    n_tokens: u32,
    have: &Have<'_>,
    costs: Option<Costs>,
    allow_approximate: bool,
) -> Plan {
    let planner = Planner::new(layout, n_tokens, have, costs);
    let mut best = planner.nothing();
    let candidates = [
        planner.stored(),
        planner.replay_to_state(),
        planner.exact_replay(),
        allow_approximate.then(|| planner.bounded_replay()).flatten(),
    ];
    for candidate in candidates.into_iter().flatten() {
        if better(&candidate, &best) {
            best = candidate;
        }
    }
    if layout.body_bytes() == 0 {
        best.matched = best.usable;
    }
    best
}

fn better(a: &Plan, b: &Plan) -> bool {
    let cost = match (a.cost, b.cost) {
        (Some(x), Some(y)) => x.total_cmp(&y),
        _ => std::cmp::Ordering::Equal,
    };
    cost.then(a.recompute_tokens.cmp(&b.recompute_tokens))
        .then(a.read_bytes.cmp(&b.read_bytes))
        .is_lt()
}

struct Planner<'a> {
    layout: &'a Layout,
    n_tokens: u32,
    have: &'a Have<'a>,
    costs: Option<Costs>,
    matched: u32,
    /// Highest block end, in blocks, that may be a resume point.
    top: u32,
}

impl<'a> Planner<'a> {
    fn new(layout: &'a Layout, n_tokens: u32, have: &'a Have<'a>, costs: Option<Costs>) -> Self {
        let block = layout.block_tokens();
        let limit = n_tokens.saturating_sub(1) / block;
        let has_entries = layout.body_bytes() > 0;
        let top = if has_entries { limit.min(have.bodies) } else { limit };
        let matched = if has_entries { have.bodies.saturating_mul(block).min(n_tokens) } else { 0 };
        Self { layout, n_tokens, have, costs, matched, top }
    }

    /// A plan that computes from `start` on and uses stored entries up to the end of block
    /// `end - 1`, with the windows and the checkpoint given.
    fn build(
        &self,
        mode: Mode,
        end: u32,
        start: u32,
        windows: Range<u32>,
        checkpoint: Option<u32>,
    ) -> Plan {
        let layout = self.layout;
        let bodies = if layout.body_bytes() > 0 { 0..end } else { 0..0 };
        let read_bytes = u64::from(bodies.end) * layout.body_bytes()
            + u64::from(windows.end - windows.start) * layout.window_bytes()
            + checkpoint.map_or(0, |_| layout.checkpoint_bytes());
        let recompute_tokens = self.n_tokens - start;
        let cost = self
            .costs
            .map(|c| c.per_token * f64::from(recompute_tokens) + c.per_byte * read_bytes as f64);
        Plan {
            matched: self.matched,
            usable: end * layout.block_tokens(),
            replay_start: start,
            mode,
            bodies,
            windows,
            checkpoint,
            recompute_tokens,
            recompute_layer_tokens: layer_tokens(layout, recompute_tokens),
            extra_ids: layout.replay().extra_ids.min(start),
            read_bytes,
            cost,
        }
    }

    fn nothing(&self) -> Plan {
        self.build(Mode::Nothing, 0, 0, 0..0, None)
    }

    fn windows_at(&self, end: u32) -> Range<u32> {
        if self.layout.window_bytes() == 0 {
            return 0..0;
        }
        first_window_block(self.layout, end)..end
    }

    /// The highest block end at which windows and checkpoint are stored.
    fn stored(&self) -> Option<Plan> {
        let block = self.layout.block_tokens();
        let mut points = Points::below(self.layout, self.have, self.top);
        if !self.layout.has_state() {
            let end = points.next()?;
            return Some(self.build(Mode::Plain, end, end * block, self.windows_at(end), None));
        }
        let end = points.find(|&end| (self.have.checkpoint)(end - 1))?;
        let n = end * block;
        Some(self.build(Mode::Checkpoint, end, n, self.windows_at(end), Some(n)))
    }

    /// Windows stored, the checkpoint not, but every state is a function of the last few tokens and
    /// feeds stored entries only: go back so many blocks to stored windows, and recompute from there
    /// over stored entries.
    fn replay_to_state(&self) -> Option<Plan> {
        if !self.layout.has_state() || self.layout.body_bytes() == 0 {
            return None;
        }
        if !states(self.layout).all(|rows| rows.kept == 0 || rows.feeds_entries_only) {
            return None;
        }
        let block = self.layout.block_tokens();
        let back = max_state_span(self.layout)?.div_ceil(block);
        let from = Points::below(self.layout, self.have, self.top.checked_sub(back)?).next()?;
        Some(self.build(Mode::ExactReplay, self.top, from * block, self.windows_at(from), None))
    }

    /// Nothing but entries stored: recompute as many tokens as all layers reach back together.
    fn exact_replay(&self) -> Option<Plan> {
        let back = self.layout.exact_replay_tokens()?;
        self.replay(Mode::ExactReplay, back)
    }

    fn bounded_replay(&self) -> Option<Plan> {
        let back = self.layout.replay().bounded?;
        if self.layout.has_state() && max_state_span(self.layout)? > back {
            return None;
        }
        self.replay(Mode::BoundedReplay, u64::from(back))
    }

    fn replay(&self, mode: Mode, back: u64) -> Option<Plan> {
        let needed = self.layout.window_bytes() > 0 || self.layout.has_state();
        if !needed || self.layout.body_bytes() == 0 {
            return None;
        }
        let usable = u64::from(self.top) * u64::from(self.layout.block_tokens());
        let align = u64::from(self.layout.alignment());
        let start = u32::try_from(usable.checked_sub(back)? / align * align).ok()?;
        if start == 0 {
            return None; // it would compute everything
        }
        Some(self.build(mode, self.top, start, 0..0, None))
    }
}

fn states(layout: &Layout) -> impl Iterator<Item = &StateRows> {
    layout.groups().iter().filter_map(|g| g.state.as_ref())
}

/// Tokens that the longest-reaching replayable state goes back; `None` if one is recurrent.
fn max_state_span(layout: &Layout) -> Option<u32> {
    let states = layout.groups().iter().filter(|g| g.kind == Kind::State);
    states.map(|g| g.reach()).try_fold(0, |max, span| span.map(|s| s.max(max)))
}

/// Layers times tokens for computing the last `tokens` tokens of a prompt.
fn layer_tokens(layout: &Layout, tokens: u32) -> u64 {
    let layers = layout.model_layers();
    let full = layout.replay().tail_from.unwrap_or(layers).min(layers);
    let tail = tokens.min(layout.max_window());
    u64::from(full) * u64::from(tokens) + u64::from(layers - full) * u64::from(tail)
}
