//! Traces and their replay without I/O: `kvstore_sim` for the command line.

use std::io;
use std::path::PathBuf;

use kvstore_sim::{Capacity, Loaded, Outcome, Policy, TraceError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::hints::Snapshot;

/// `(timestamp_ms, input_length, output_length, block ids)`; see [`Trace`].
type Row<'py> = (f64, u64, u64, Bound<'py, PyBytes>);

/// The requests of a trace file: an iterator of `(timestamp_ms, input_length, output_length,
/// block_ids)`. Lengths are in tokens; `block_ids` is a bytes object of little-endian unsigned
/// 64-bit numbers, in prompt order.
///
/// Raises ValueError for a line that is no request and OSError for a file that cannot be read,
/// each with path and line.
#[pyclass(module = "kvstore._core")]
pub(crate) struct Trace {
    requests: kvstore_sim::Trace,
}

#[pymethods]
impl Trace {
    fn __iter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    fn __next__<'py>(&mut self, py: Python<'py>) -> PyResult<Option<Row<'py>>> {
        let Some(request) = py.detach(|| self.requests.next()) else { return Ok(None) };
        let request = request.map_err(error)?;
        let bytes: Vec<u8> = request.blocks.iter().flat_map(|id| id.to_le_bytes()).collect();
        let ids = PyBytes::new(py, &bytes);
        Ok(Some((request.timestamp_ms, request.input_length, request.output_length, ids)))
    }
}

/// Opens a trace: JSON Lines, plain or compressed with gzip or zstd. At most `head` requests are
/// read.
#[pyfunction]
#[pyo3(signature = (path, head=None))]
pub(crate) fn read_trace(py: Python<'_>, path: PathBuf, head: Option<u64>) -> PyResult<Trace> {
    let requests = py.detach(|| kvstore_sim::Trace::open(path, head)).map_err(error)?;
    Ok(Trace { requests })
}

/// Counts of a trace: a dict of `requests`, `blocks_requested` and `unique_blocks`.
///
/// Raises ValueError where an id stands for more than one block and its whole prefix.
#[pyfunction]
#[pyo3(signature = (path, head=None))]
pub(crate) fn trace_info(
    py: Python<'_>,
    path: PathBuf,
    head: Option<u64>,
) -> PyResult<Snapshot<'_>> {
    let info = py.detach(|| Loaded::read(path, head)).map_err(error)?.info();
    let dict = PyDict::new(py);
    dict.set_item("requests", info.requests)?;
    dict.set_item("blocks_requested", info.blocks_requested)?;
    dict.set_item("unique_blocks", info.unique_blocks)?;
    Ok(dict.into())
}

/// Replays a trace from an empty store at each capacity: blocks ("1827") or a share of the
/// trace's unique blocks ("1%"). The policy is "leaf-lru", "lru" or "optimum".
///
/// Gives a dict per capacity: `trace`, `policy`, `capacity`, `capacity_blocks`, `requests`,
/// `blocks_requested`, `blocks_hit`, `hit_ratio`, `blocks_written`, `bytes_written_per_byte_hit`
/// (None without a hit); with per_request also `hits`, the blocks that each request hit.
#[pyfunction]
#[pyo3(signature = (path, policy, capacities, head=None, *, per_request=false))]
pub(crate) fn simulate<'py>(
    py: Python<'py>,
    path: PathBuf,
    policy: &str,
    capacities: Vec<String>,
    head: Option<u64>,
    per_request: bool,
) -> PyResult<Vec<Snapshot<'py>>> {
    let wrong = |error: &dyn std::fmt::Display| PyValueError::new_err(error.to_string());
    let policy: Policy = policy.parse().map_err(|error| wrong(&error))?;
    let capacities = capacities
        .into_iter()
        .map(|text| text.parse::<Capacity>().map_err(|error| wrong(&error)))
        .collect::<PyResult<Vec<_>>>()?;
    let trace = py.detach(|| Loaded::read(path, head)).map_err(error)?;
    let rows = capacities.into_iter().map(|capacity| {
        py.check_signals()?;
        let mut hits = Vec::new();
        let outcome = py.detach(|| {
            trace.replay_each(policy, capacity, &mut |blocks| {
                if per_request {
                    hits.push(blocks);
                }
            })
        });
        let row = row(py, &outcome)?;
        if per_request {
            row.set_item("hits", hits)?;
        }
        Ok(row.into())
    });
    rows.collect()
}

/// The blocks that a capacity stands for in a trace of so many unique blocks: "1827", or "1%".
#[pyfunction]
pub(crate) fn capacity_blocks(capacity: &str, unique_blocks: u32) -> PyResult<u32> {
    let parsed: Result<Capacity, _> = capacity.parse();
    match parsed {
        Ok(capacity) => Ok(capacity.blocks(unique_blocks)),
        Err(error) => Err(PyValueError::new_err(error.to_string())),
    }
}

fn row<'py>(py: Python<'py>, outcome: &Outcome) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("trace", &outcome.trace)?;
    dict.set_item("policy", outcome.policy.to_string())?;
    dict.set_item("capacity", outcome.capacity.to_string())?;
    dict.set_item("capacity_blocks", outcome.capacity_blocks)?;
    dict.set_item("requests", outcome.requests)?;
    dict.set_item("blocks_requested", outcome.blocks_requested)?;
    dict.set_item("blocks_hit", outcome.blocks_hit)?;
    dict.set_item("hit_ratio", outcome.hit_ratio())?;
    dict.set_item("blocks_written", outcome.blocks_written)?;
    dict.set_item("bytes_written_per_byte_hit", outcome.bytes_written_per_byte_hit())?;
    Ok(dict)
}

/// ValueError for a bad line, the fitting OSError for a file that cannot be read.
fn error(error: TraceError) -> PyErr {
    let text = error.to_string();
    match error {
        TraceError::Line { .. } => PyValueError::new_err(text),
        TraceError::Io { source, .. } => io::Error::new(source.kind(), text).into(),
    }
}
