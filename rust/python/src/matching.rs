//! Plans: what a match found, and what a lease really got.

use std::sync::Arc;

use kvstore_engine::store::{BlockAnswer, Match, MissReason};
use kvstore_layout::resume::{self, Mode};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::border::engine;
use crate::explain::Usage;
use crate::hints::{arguments, iterators};
use crate::mirror::{joined, names};
use crate::namespace::Handle;

iterators! {
    /// Answers of blocks.
    Names = &'static str;
}

arguments! {
    /// What recomputing one token and reading one byte cost, in one unit: a pair of numbers.
    Costs;
}

impl Costs<'_> {
    pub(crate) fn read(self) -> PyResult<resume::Costs> {
        let (per_token, per_byte) = self.0.extract::<(f64, f64)>()?;
        for (field, value) in [("per_token", per_token), ("per_byte", per_byte)] {
            if !(value >= 0.0 && value.is_finite()) {
                return Err(crate::errors::invalid(format!(
                    "costs.{field} is {value}: it takes a number from 0"
                )));
            }
        }
        Ok(resume::Costs { per_token, per_byte })
    }
}

/// From where a prompt goes on: a hint when it comes from `match`, the answer as `lease.plan`.
///
/// Lengths are in tokens, ranges in blocks. matched, usable and replay_start stay apart: what is
/// stored, what can be used (a resume point, at most tokens - 1), and where computing starts
/// (earlier than usable in the replay modes).
#[pyclass(frozen, module = "kvstore._core")]
pub(crate) struct Plan {
    handle: Arc<Handle>,
    found: Arc<Match>,
    plan: resume::Plan,
    blocks: Arc<Vec<BlockAnswer>>,
}

impl Plan {
    /// What a match found.
    pub(crate) fn found(handle: Arc<Handle>, found: Match) -> Self {
        let (plan, blocks) = (found.plan.clone(), Arc::new(found.blocks.clone()));
        Self { handle, found: Arc::new(found), plan, blocks }
    }

    /// What was got of it: its blocks are in host memory now, but for those that the worker holds,
    /// and the objects in `missed` could not be given.
    pub(crate) fn got(&self, plan: resume::Plan, missed: &[(u32, MissReason)]) -> Self {
        let usable = (plan.usable / self.handle.layout().block_tokens()) as usize;
        let mut blocks = self.blocks.to_vec();
        for (at, answer) in blocks.iter_mut().enumerate() {
            let reason = missed.iter().find(|(block, _)| *block as usize == at);
            *answer = match (reason, *answer) {
                _ if at < usable && self.found.held.has(at as u32) => BlockAnswer::Mirror,
                _ if at < usable => BlockAnswer::Host,
                (Some((_, reason)), _) => BlockAnswer::Miss(*reason),
                (None, BlockAnswer::Miss(reason)) => BlockAnswer::Miss(reason),
                (None, _) => BlockAnswer::Miss(MissReason::NoResumePoint),
            };
        }
        let (handle, found) = (self.handle.clone(), self.found.clone());
        Self { handle, found, plan, blocks: Arc::new(blocks) }
    }

    /// The match behind the plan, and the namespace that it belongs to.
    pub(crate) fn of(&self) -> (&Arc<Handle>, &Arc<Match>) {
        (&self.handle, &self.found)
    }

    fn count(&self, answer: BlockAnswer) -> u64 {
        self.blocks.iter().filter(|&&block| block == answer).count() as u64
    }
}

#[pymethods]
impl Plan {
    /// Tokens of the prompt.
    #[getter]
    fn tokens(&self) -> u32 {
        self.found.tokens
    }

    /// Tokens whose entries are stored without a hole.
    #[getter]
    fn matched(&self) -> u32 {
        self.plan.matched
    }

    /// The resume point: tokens whose stored entries are used.
    #[getter]
    fn usable(&self) -> u32 {
        self.plan.usable
    }

    /// First token to compute.
    #[getter]
    fn replay_start(&self) -> u32 {
        self.plan.replay_start
    }

    /// "plain", "checkpoint", "exact_replay", "bounded_replay" or "nothing".
    #[getter]
    fn mode(&self) -> &'static str {
        match self.plan.mode {
            Mode::Plain => "plain",
            Mode::Checkpoint => "checkpoint",
            Mode::ExactReplay => "exact_replay",
            Mode::BoundedReplay => "bounded_replay",
            Mode::Nothing => "nothing",
        }
    }

    /// Blocks whose bodies are read, as (first, end); end is excluded.
    #[getter]
    fn bodies(&self) -> (u32, u32) {
        (self.plan.bodies.start, self.plan.bodies.end)
    }

    /// Blocks whose window objects are read, as (first, end); end is excluded.
    #[getter]
    fn windows(&self) -> (u32, u32) {
        (self.plan.windows.start, self.plan.windows.end)
    }

    /// The checkpoint that is read, as its number of tokens; None without one.
    #[getter]
    fn checkpoint(&self) -> Option<u32> {
        self.plan.checkpoint
    }

    /// Tokens to compute: tokens - replay_start.
    #[getter]
    fn recompute_tokens(&self) -> u32 {
        self.plan.recompute_tokens
    }

    /// Layers times tokens to compute.
    #[getter]
    fn recompute_layer_tokens(&self) -> u64 {
        self.plan.recompute_layer_tokens
    }

    /// Token ids that are needed before replay_start.
    #[getter]
    fn extra_ids(&self) -> u32 {
        self.plan.extra_ids
    }

    /// Bytes of all objects to read: the size of `get_into`'s buffer.
    #[getter]
    fn read_bytes(&self) -> u64 {
        self.plan.read_bytes
    }

    /// Its cost in the unit of the costs that were given, or None.
    #[getter]
    fn cost(&self) -> Option<f64> {
        self.plan.cost
    }

    /// The block from which on the chain is a replayed one; None for an exact chain. Give it to
    /// `put` when the chain goes on.
    #[getter]
    fn replayed_from(&self) -> Option<u32> {
        self.found.replayed_from
    }

    /// One answer per whole block of the prompt: "mirror" (the worker that asked holds it), "host",
    /// "disk", or the reason of a miss.
    #[getter]
    fn blocks(&self) -> Answers {
        Answers(self.blocks.clone())
    }

    /// Block keys of the prompt's whole blocks, 32 bytes each, for `store.mirror`.
    #[getter]
    fn keys<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        joined(py, &self.found.keys)
    }

    /// Which tiers hold each block at this moment, of "mirror" (some worker's HBM), "host" and
    /// "disk". No look-up: it counts nothing, and asks for each block by itself.
    fn tiers(&self, py: Python<'_>) -> PyResult<Vec<Vec<&'static str>>> {
        let namespace = self.handle.engine()?;
        Ok(names(&engine(py, || namespace.tiers(&self.found.keys))?))
    }

    /// Usable blocks that the worker that asked holds itself: they are not read.
    #[getter]
    fn mirror_blocks(&self) -> u64 {
        self.count(BlockAnswer::Mirror)
    }

    /// Usable blocks that are in host memory.
    #[getter]
    fn host_blocks(&self) -> u64 {
        self.count(BlockAnswer::Host)
    }

    /// Bytes of their bodies.
    #[getter]
    fn host_bytes(&self) -> u64 {
        self.count(BlockAnswer::Host) * self.handle.layout().body_bytes()
    }

    /// Usable blocks that are on disk only.
    #[getter]
    fn disk_blocks(&self) -> u64 {
        self.count(BlockAnswer::Disk)
    }

    /// Bytes of their bodies.
    #[getter]
    fn disk_bytes(&self) -> u64 {
        self.count(BlockAnswer::Disk) * self.handle.layout().body_bytes()
    }

    /// Prompt, hit and miss tokens in whole units, as an API bills them.
    #[pyo3(signature = (unit=64))]
    fn usage(&self, unit: u32) -> PyResult<Usage> {
        Usage::of(self.found.tokens, self.plan.matched, self.plan.usable, unit)
    }

    fn __repr__(&self) -> String {
        format!(
            "<Plan of {} tokens: matched {}, usable {}, {}, replay from {}>",
            self.found.tokens,
            self.plan.matched,
            self.plan.usable,
            self.mode(),
            self.plan.replay_start
        )
    }
}

/// One answer per block: a sequence of "mirror", "host", "disk" and reasons of misses.
#[pyclass(frozen, sequence, module = "kvstore._core")]
pub(crate) struct Answers(pub(crate) Arc<Vec<BlockAnswer>>);

pub(crate) fn name(answer: BlockAnswer) -> &'static str {
    match answer {
        BlockAnswer::Mirror => "mirror",
        BlockAnswer::Host => "host",
        BlockAnswer::Disk => "disk",
        BlockAnswer::Miss(reason) => reason.name(),
    }
}

#[pymethods]
impl Answers {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __getitem__(&self, index: isize) -> PyResult<&'static str> {
        at(&self.0, index).map(|&answer| name(answer))
    }

    fn __iter__<'py>(this: &Bound<'py, Self>) -> PyResult<Names<'py>> {
        Names::over(this)
    }

    /// How many blocks have this answer.
    fn count(&self, answer: &str) -> usize {
        self.0.iter().filter(|&&block| name(block) == answer).count()
    }

    fn __repr__(&self) -> String {
        format!("{:?}", self.0.iter().map(|&answer| name(answer)).collect::<Vec<_>>())
    }
}

/// An item by Python's index.
pub(crate) fn at<T>(items: &[T], index: isize) -> PyResult<&T> {
    let from_end = if index < 0 { index.wrapping_add_unsigned(items.len()) } else { index };
    usize::try_from(from_end).ok().and_then(|at| items.get(at)).ok_or_else(|| {
        PyIndexError::new_err(format!("index {index} of a sequence of {}", items.len()))
    })
}
