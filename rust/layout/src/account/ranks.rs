//! How a layout's bytes lie on the ranks of a parallel deployment.

use super::{Basis, WindowRows};
use crate::Layout;
use crate::group::{Group, Kind, Shard};

/// Sizes of the parallel axes: tensor, pipeline, context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ranks {
    /// Tensor parallel: splits heads; replicated groups are on every rank.
    pub tp: u32,
    /// Pipeline parallel: contiguous runs of layers, the first ones longer by one where it does not
    /// divide.
    pub pp: u32,
    /// Context parallel: blocks dealt in turn. Windows and states are on every context rank.
    pub cp: u32,
}

/// One rank: its place on each axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Rank {
    /// Place on the tensor axis.
    pub tp: u32,
    /// Place on the pipeline axis.
    pub pp: u32,
    /// Place on the context axis.
    pub cp: u32,
}

/// A layout that cannot be split so.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RankError {
    /// An axis of size 0, or a rank beyond its axis.
    #[error("{axis} = {size} with rank {rank}: the size must be 1 or more, the rank below it")]
    Axis {
        /// Name of the axis.
        axis: &'static str,
        /// Its size.
        size: u32,
        /// The rank asked for.
        rank: u32,
    },
    /// Heads that tensor parallelism cannot split.
    #[error("group {group:?}: tp = {tp} and {heads} heads: one must divide the other")]
    Heads {
        /// The group.
        group: String,
        /// Tensor-parallel size.
        tp: u32,
        /// Key-value heads.
        heads: u32,
    },
}

impl Layout {
    /// Bytes of each group that one rank holds of a request of N tokens: entries, held windows and
    /// state.
    ///
    /// # Errors
    ///
    /// An axis of size 0, a rank beyond its axis, or heads that `tp` does not split.
    pub fn rank_bytes(
        &self,
        n: u64,
        ranks: Ranks,
        rank: Rank,
        basis: Basis,
    ) -> Result<Vec<u64>, RankError> {
        let axes =
            [("tp", ranks.tp, rank.tp), ("pp", ranks.pp, rank.pp), ("cp", ranks.cp, rank.cp)];
        for (axis, size, rank) in axes {
            if rank >= size {
                return Err(RankError::Axis { axis, size, rank });
            }
        }
        let stage = stage(self.model_layers(), ranks.pp, rank.pp);
        let tokens = context_tokens(n, u64::from(self.block_tokens()), ranks.cp, rank.cp);
        self.groups()
            .iter()
            .map(|group| {
                let (mine, parts) = split(group, ranks.tp)?;
                let last_stage = rank.pp + 1 == ranks.pp;
                let layers = group
                    .layers
                    .iter()
                    .filter(|&&layer| stage.contains(&layer) || (last_stage && layer >= stage.end));
                let held = if group.kind == Kind::Entries { tokens } else { n };
                let layer = group.layer_bytes(held, basis, WindowRows::Held);
                Ok(layers.count() as u64 * layer * mine / parts)
            })
            .collect()
    }

    /// Copies of each group's bytes that `tp` ranks hold: what storing per rank multiplies by.
    ///
    /// # Errors
    ///
    /// Heads that `tp` does not split.
    pub fn tp_copies(&self, tp: u32) -> Result<Vec<u32>, RankError> {
        let copies = |group: &Group| {
            let (mine, parts) = split(group, tp)?;
            Ok(u32::try_from(u64::from(tp) * mine / parts).unwrap_or(u32::MAX))
        };
        self.groups().iter().map(copies).collect()
    }
}

/// The share of a group that one tensor rank holds, as a fraction.
fn split(group: &Group, tp: u32) -> Result<(u64, u64), RankError> {
    let Shard::Heads(heads) = group.shard else { return Ok((1, 1)) };
    let divides = |a: u32, b: u32| b != 0 && a.is_multiple_of(b);
    if !divides(heads, tp) && !divides(tp, heads) {
        return Err(RankError::Heads { group: group.name.clone(), tp, heads });
    }
    Ok((u64::from((heads / tp.max(1)).max(1)), u64::from(heads)))
}

fn stage(layers: u32, pp: u32, rank: u32) -> std::ops::Range<u32> {
    let (each, more) = (layers / pp, layers % pp);
    let start = rank * each + rank.min(more);
    start..start + each + u32::from(rank < more)
}

/// Tokens of the blocks that fall to one context rank when blocks are dealt in turn.
fn context_tokens(n: u64, block: u64, cp: u32, rank: u32) -> u64 {
    let (cp, rank) = (u64::from(cp), u64::from(rank));
    let whole = n / block;
    let mine = whole / cp + u64::from(whole % cp > rank);
    let tail = if whole % cp == rank { n % block } else { 0 };
    mine * block + tail
}
