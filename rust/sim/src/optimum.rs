//! The exact bound: farthest next use, and a block may be declined.
//!
//! A parent is used whenever its child is, so its next use is never later; ties broken deepest
//! first, the block with the farthest next use is always a leaf, and what is kept has no holes. So
//! all kept blocks that are next used by request `q` lie in one run of `q`'s chain, and the
//! deepest goes first: the number of them is all there is to know. A request costs as much as its
//! chain has different next uses, not as it has blocks.

use std::collections::BTreeSet;

use crate::loaded::{Counts, Loaded};

/// `count` blocks in a row of a chain, all next used by the same request, or never.
struct Uses {
    next: Option<u32>,
    count: u32,
}

pub(crate) fn run(trace: &Loaded, capacity: u32, hits: &mut dyn FnMut(u32)) -> Counts {
    let next_uses = next_uses(trace);
    let capacity = u64::from(capacity);
    // Kept blocks by the request that uses them next, their sum, and those requests in order.
    let mut kept = vec![0u32; next_uses.len()];
    let mut total = 0;
    let mut ahead = BTreeSet::new();
    let mut counts = Counts::default();
    for (request, uses) in next_uses.iter().enumerate() {
        let hit = std::mem::take(&mut kept[request]);
        ahead.remove(&(request as u32));
        counts.hit += u64::from(hit);
        hits(hit);
        total -= u64::from(hit);
        for run in uses {
            if let Some(next) = run.next {
                kept[next as usize] += run.count;
                ahead.insert(next);
                total += u64::from(run.count);
            }
        }
        while total > capacity
            && let Some(&farthest) = ahead.last()
        {
            let go = (total - capacity).min(u64::from(kept[farthest as usize]));
            kept[farthest as usize] -= go as u32;
            total -= go;
            if kept[farthest as usize] == 0 {
                ahead.remove(&farthest);
            }
        }
        // A run with blocks that were not there is alone under its next use.
        let mut at = 0;
        for run in uses {
            if let Some(next) = run.next
                && at + run.count > hit
            {
                let stored = at + kept[next as usize].min(run.count);
                counts.written += u64::from(stored.saturating_sub(at.max(hit)));
            }
            at += run.count;
        }
    }
    counts
}

/// For each request, when the blocks of its chain are used again.
fn next_uses(trace: &Loaded) -> Vec<Vec<Uses>> {
    let mut next = vec![None; trace.info().unique_blocks as usize];
    let mut chain = Vec::new();
    let mut all: Vec<Vec<Uses>> = Vec::with_capacity(trace.info().requests as usize);
    for request in (0..trace.info().requests as usize).rev() {
        trace.chain(request, &mut chain);
        let mut uses: Vec<Uses> = Vec::new();
        for &block in &chain {
            let next = next[block as usize].replace(request as u32);
            match uses.last_mut() {
                Some(run) if run.next == next => run.count += 1,
                _ => uses.push(Uses { next, count: 1 }),
            }
        }
        all.push(uses);
    }
    all.reverse();
    all
}
