//! What a replay came to.

use crate::{Capacity, Policy};

/// One trace, one policy, one capacity. All counts are in blocks.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// File name of the trace.
    pub trace: String,
    /// What decided who goes.
    pub policy: Policy,
    /// The capacity as it was asked for.
    pub capacity: Capacity,
    /// The capacity in blocks.
    pub capacity_blocks: u32,
    /// Requests replayed.
    pub requests: u64,
    /// Blocks looked up.
    pub blocks_requested: u64,
    /// Blocks in the longest cached prefix of their request.
    pub blocks_hit: u64,
    /// Blocks stored.
    pub blocks_written: u64,
}

impl Outcome {
    /// Share of the blocks looked up that were hits; 0 for an empty trace.
    pub fn hit_ratio(&self) -> f64 {
        if self.blocks_requested == 0 {
            return 0.0;
        }
        self.blocks_hit as f64 / self.blocks_requested as f64
    }

    /// Bytes stored per byte that a hit saved, blocks being equally large; `None` without a hit.
    pub fn bytes_written_per_byte_hit(&self) -> Option<f64> {
        (self.blocks_hit > 0).then(|| self.blocks_written as f64 / self.blocks_hit as f64)
    }
}
