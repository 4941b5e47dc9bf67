//! A whole trace in memory.

use std::path::Path;

use crate::hash::IdMap;
use crate::trace::{Trace, TraceError};
use crate::{Capacity, Outcome, Policy, optimum, replay};

/// Counts of a trace.
#[derive(Copy, Clone, Eq, PartialEq, Debug)]
pub struct Info {
    /// Requests.
    pub requests: u64,
    /// Blocks looked up, all requests together.
    pub blocks_requested: u64,
    /// Different blocks.
    pub unique_blocks: u32,
}

/// A trace in memory: blocks are numbered from 0 as they appear, so that chains are runs of
/// numbers and 69 million look-ups take a few megabytes.
pub struct Loaded {
    name: String,
    requests: Vec<Box<[Run]>>,
    info: Info,
}

/// Blocks `first .. first + count`.
#[derive(Copy, Clone, Debug)]
struct Run {
    first: u32,
    count: u32,
}

/// The parent of a chain's first block.
const ROOT: u32 = u32::MAX;

impl Loaded {
    /// Reads the first `head` requests of a trace, or all.
    ///
    /// # Errors
    /// [`TraceError`]; also if a block appears behind two different prefixes, since its id then
    /// names no chain and a prefix cache cannot be simulated.
    pub fn read(path: impl AsRef<Path>, head: Option<u64>) -> Result<Loaded, TraceError> {
        let mut trace = Trace::open(path, head)?;
        let mut numbers = IdMap::<u64, u32>::default();
        let (mut ids, mut parents) = (Vec::<u64>::new(), Vec::<u32>::new());
        let mut requests = Vec::new();
        let mut blocks_requested = 0;
        while let Some(request) = trace.next() {
            let request = request?;
            let bad = |problem| TraceError::Line {
                path: trace.path().to_owned(),
                line: trace.line(),
                problem,
            };
            let mut runs: Vec<Run> = Vec::new();
            let mut parent = ROOT;
            for &id in &request.blocks {
                let next = parents.len() as u32;
                if next == ROOT {
                    return Err(bad(format!("more than {ROOT} different blocks")));
                }
                // Chains are mostly runs: the number after the parent's is worth a look first.
                let guess = parent.wrapping_add(1);
                let number = if ids.get(guess as usize) == Some(&id) {
                    guess
                } else {
                    *numbers.entry(id).or_insert(next)
                };
                if number == next {
                    ids.push(id);
                    parents.push(parent);
                } else if parents[number as usize] != parent {
                    return Err(bad(format!(
                        "block {id}: behind another block than before; an id must stand for one \
                         block and the whole prefix up to it"
                    )));
                }
                match runs.last_mut() {
                    Some(run) if run.first + run.count == number => run.count += 1,
                    _ => runs.push(Run { first: number, count: 1 }),
                }
                parent = number;
            }
            blocks_requested += request.blocks.len() as u64;
            requests.push(runs.into_boxed_slice());
        }
        let name = trace.path().file_name().unwrap_or(trace.path().as_os_str());
        Ok(Loaded {
            name: name.to_string_lossy().into_owned(),
            info: Info {
                requests: requests.len() as u64,
                blocks_requested,
                unique_blocks: parents.len() as u32,
            },
            requests,
        })
    }

    /// Counts of the trace.
    pub fn info(&self) -> Info {
        self.info
    }

    /// Replays the trace from an empty store.
    pub fn replay(&self, policy: Policy, capacity: Capacity) -> Outcome {
        self.replay_each(policy, capacity, &mut |_| {})
    }

    /// Replays the trace from an empty store and tells the blocks that each request hit, in order.
    pub fn replay_each(
        &self,
        policy: Policy,
        capacity: Capacity,
        hits: &mut dyn FnMut(u32),
    ) -> Outcome {
        let capacity_blocks = capacity.blocks(self.info.unique_blocks);
        let counts = match policy {
            Policy::Index(kind) => replay::run(self, kind, capacity_blocks, hits),
            Policy::Optimum => optimum::run(self, capacity_blocks, hits),
        };
        Outcome {
            trace: self.name.clone(),
            policy,
            capacity,
            capacity_blocks,
            requests: self.info.requests,
            blocks_requested: self.info.blocks_requested,
            blocks_hit: counts.hit,
            blocks_written: counts.written,
        }
    }

    /// Replaces what is in `chain` by the blocks of a request.
    pub(crate) fn chain(&self, request: usize, chain: &mut Vec<u32>) {
        chain.clear();
        for run in &self.requests[request] {
            chain.extend(run.first..run.first + run.count);
        }
    }
}

/// What a replay counts.
#[derive(Copy, Clone, Default, Debug)]
pub(crate) struct Counts {
    pub(crate) hit: u64,
    pub(crate) written: u64,
}
