//! Chains of blocks that were stored after a bounded replay.
//!
//! The first block stored after a bounded replay takes the extra key `replayed`, only when its
//! parent is exact. Below a replayed block nothing is marked again: the whole chain below carries
//! the mark in its keys. So a chain holds at most one mark.

/// Whether the first block stored now takes the mark: it was computed after a bounded replay, and
/// its parent's chain does not hold the mark already.
pub fn takes_mark(after_bounded_replay: bool, parent_is_replayed: bool) -> bool {
    after_bounded_replay && !parent_is_replayed
}

/// A chain of stored blocks from block 0 on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Chain {
    /// Blocks in the chain.
    pub blocks: u32,
    /// The first replayed block; `None` in an exact chain.
    pub mark: Option<u32>,
}

/// The longest chain that a caller who allows approximation may follow.
///
/// `exact` is the number of exact blocks from 0 on, `limit` the number of blocks of the prompt.
/// `is_there(mark, block)` says whether `block` is stored in the chain that is exact below `mark`
/// and replayed from there on. Of chains of one length the exact one wins, then the one with the
/// later mark.
pub fn longest(exact: u32, limit: u32, is_there: &dyn Fn(u32, u32) -> bool) -> Chain {
    let mut best = Chain { blocks: exact.min(limit), mark: None };
    for mark in (0..=best.blocks).rev() {
        let end = (mark..limit).find(|&block| !is_there(mark, block)).unwrap_or(limit);
        if end > mark && end > best.blocks {
            best = Chain { blocks: end, mark: Some(mark) };
        }
    }
    best
}
