//! Resume plans, policies and usage for Python.

use std::collections::HashSet;
use std::ops::Range;

use kvstore_layout as core;
use kvstore_layout::resume;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::Layout;

/// From where a prompt can go on, what to read for that and what to compute. Lengths in tokens,
/// ranges in blocks as (first, one past the last).
#[pyclass(frozen, eq, get_all, module = "kvstore._core")]
#[derive(Clone, PartialEq)]
pub(crate) struct ResumePlan {
    /// Tokens whose entries are stored without a hole.
    matched: u32,
    /// The resume point: tokens whose stored entries are used.
    usable: u32,
    /// First token to compute.
    replay_start: u32,
    /// "plain", "checkpoint", "exact_replay", "bounded_replay" or "nothing".
    mode: &'static str,
    /// Bodies to read.
    bodies: (u32, u32),
    /// Window objects to read.
    windows: (u32, u32),
    /// The checkpoint to read, in tokens, or None.
    checkpoint: Option<u32>,
    /// Tokens to compute.
    recompute_tokens: u32,
    /// Layers times tokens to compute.
    recompute_layer_tokens: u64,
    /// Token ids needed before replay_start.
    extra_ids: u32,
    /// Bytes to read.
    read_bytes: u64,
    /// Its cost, when costs were given.
    cost: Option<f64>,
}

#[pymethods]
impl ResumePlan {
    fn __repr__(&self) -> String {
        format!(
            "<ResumePlan {}: {} of {} matched tokens, compute {} from {}, read {} B>",
            self.mode,
            self.usable,
            self.matched,
            self.recompute_tokens,
            self.replay_start,
            self.read_bytes
        )
    }
}

fn mode_name(mode: resume::Mode) -> &'static str {
    match mode {
        resume::Mode::Plain => "plain",
        resume::Mode::Checkpoint => "checkpoint",
        resume::Mode::ExactReplay => "exact_replay",
        resume::Mode::BoundedReplay => "bounded_replay",
        resume::Mode::Nothing => "nothing",
    }
}

impl From<resume::Plan> for ResumePlan {
    fn from(plan: resume::Plan) -> Self {
        let pair = |range: Range<u32>| (range.start, range.end);
        Self {
            matched: plan.matched,
            usable: plan.usable,
            replay_start: plan.replay_start,
            mode: mode_name(plan.mode),
            bodies: pair(plan.bodies),
            windows: pair(plan.windows),
            checkpoint: plan.checkpoint,
            recompute_tokens: plan.recompute_tokens,
            recompute_layer_tokens: plan.recompute_layer_tokens,
            extra_ids: plan.extra_ids,
            read_bytes: plan.read_bytes,
            cost: plan.cost,
        }
    }
}

/// Plans the resume of a prompt of n_tokens, of which the first `bodies` blocks have stored bodies,
/// the blocks in `windows` window objects, and the token counts in `checkpoints` checkpoints. costs
/// is (cost of a token, cost of a byte).
#[pyfunction]
#[pyo3(signature = (layout, n_tokens, bodies, *, windows=HashSet::new(), checkpoints=HashSet::new(),
                    costs=None, allow_approximate=false))]
#[expect(clippy::needless_pass_by_value, reason = "pyo3 hands over what it converted")]
pub(crate) fn resume_plan(
    layout: &Layout,
    n_tokens: u32,
    bodies: u32,
    windows: HashSet<u32>,
    checkpoints: HashSet<u32>,
    costs: Option<(f64, f64)>,
    allow_approximate: bool,
) -> ResumePlan {
    let block = layout.inner.block_tokens();
    let have = resume::Have {
        bodies,
        window: &|b| windows.contains(&b),
        checkpoint: &|b| checkpoints.contains(&((b + 1) * block)),
    };
    let costs = costs.map(|(per_token, per_byte)| resume::Costs { per_token, per_byte });
    resume::plan(&layout.inner, n_tokens, &have, costs, allow_approximate).into()
}

/// What a policy keeps of the computed tokens start..end: (resume points, checkpoints, blocks whose
/// windows are kept). every is the interval of periodic points, windows is "all", "trailing" or
/// "none".
#[pyfunction]
#[pyo3(signature = (layout, start, end, prompt_tokens, *, every=None, prompt_end=true,
                    output_end=true, windows="trailing"))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of one Python function")]
pub(crate) fn keep(
    layout: &Layout,
    start: u32,
    end: u32,
    prompt_tokens: u32,
    every: Option<u32>,
    prompt_end: bool,
    output_end: bool,
    windows: &str,
) -> PyResult<(Vec<u32>, Vec<u32>, Vec<u32>)> {
    let windows = match windows {
        "all" => resume::Windows::All,
        "trailing" => resume::Windows::Trailing,
        "none" => resume::Windows::None,
        other => {
            return Err(PyValueError::new_err(format!(
                "windows = {other:?} must be \"all\", \"trailing\" or \"none\""
            )));
        }
    };
    let policy = resume::Policy { every, prompt_end, output_end, windows };
    let kept = resume::keep(&layout.inner, policy, start..end, prompt_tokens);
    Ok((kept.points, kept.checkpoints, kept.windows))
}

/// Disk context caching's arithmetic: (prompt, hit and miss tokens, first unit that differs or
/// None) of a prompt of which the first `matched` tokens are stored and the first `usable` can be
/// used.
#[pyfunction]
#[pyo3(signature = (prompt_tokens, matched, usable, *, unit=64))]
pub(crate) fn usage_tokens(
    prompt_tokens: u32,
    matched: u32,
    usable: u32,
    unit: u32,
) -> PyResult<(u32, u32, u32, Option<u32>)> {
    if unit == 0 {
        return Err(PyValueError::new_err("unit = 0 must be 1 token or more"));
    }
    let usage = core::usage(prompt_tokens, matched, usable, unit);
    let (hit, miss) = (usage.hit_tokens, usage.miss_tokens);
    Ok((usage.prompt_tokens, hit, miss, usage.first_difference))
}
