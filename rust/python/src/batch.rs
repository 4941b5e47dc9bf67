//! Answers of a put or a prefetch, and the ways to wait for them.

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvstore_engine::store::{Batch as EngineBatch, Reason, Status as Answer};
use pyo3::prelude::*;
use pyo3::{PyTypeInfo, type_hint_identifier, type_hint_subscript};

use crate::errors::StoreIOError;
use crate::hints::{iterators, results};
use crate::matching::at;
use crate::process::Local;
use crate::sizes::Seconds;

iterators! {
    /// Statuses one by one.
    Each = Status;
}

results! {
    /// What `await batch` runs.
    Awaiting = type_hint_subscript!(
        type_hint_identifier!("collections.abc", "Generator"),
        type_hint_identifier!("typing", "Any"),
        type_hint_identifier!("builtins", "None"),
        Statuses::TYPE_HINT
    );
}

/// How long a wait stays out of the interpreter before it looks for signals.
const SLICE: Duration = Duration::from_millis(50);
/// How long a wait takes when the caller says nothing.
const PATIENCE: Duration = Duration::from_secs(60);

/// Answer for one item of a put or prefetch.
///
/// name is "stored", "exists" (was there before; the first writer's bytes stay), "rejected" (see
/// reason), "busy" (a queue is full: try again later), "cancelled" or "pending".
#[pyclass(frozen, eq, module = "kvstore._core")]
#[derive(PartialEq)]
pub(crate) struct Status(pub(crate) Answer);

#[pymethods]
impl Status {
    /// The answer in one word.
    #[getter]
    fn name(&self) -> &'static str {
        match self.0 {
            Answer::Pending => "pending",
            Answer::Stored => "stored",
            Answer::Exists => "exists",
            Answer::Rejected(_) => "rejected",
            Answer::Busy => "busy",
            Answer::Cancelled => "cancelled",
        }
    }

    /// Why it was rejected; None for other answers.
    #[getter]
    fn reason(&self) -> Option<&'static str> {
        if let Answer::Rejected(reason) = self.0 { Some(Reason::name(reason)) } else { None }
    }

    /// Whether the bytes are in the store at the asked level: stored or exists.
    #[getter]
    fn accepted(&self) -> bool {
        matches!(self.0, Answer::Stored | Answer::Exists)
    }

    fn __hash__(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        (self.name(), self.reason()).hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self) -> String {
        match self.reason() {
            Some(reason) => format!("Status(rejected: {reason})"),
            None => format!("Status({})", self.name()),
        }
    }
}

/// Statuses in the order of the items.
#[pyclass(frozen, sequence, module = "kvstore._core")]
pub(crate) struct Statuses(Vec<Answer>);

#[pymethods]
impl Statuses {
    fn __len__(&self) -> usize {
        self.0.len()
    }

    fn __getitem__(&self, index: isize) -> PyResult<Status> {
        at(&self.0, index).map(|&answer| Status(answer))
    }

    fn __iter__<'py>(this: &Bound<'py, Self>) -> PyResult<Each<'py>> {
        Each::over(this)
    }

    /// How many items have this status: count("stored").
    fn count(&self, name: &str) -> usize {
        self.0.iter().filter(|&&answer| Status(answer).name() == name).count()
    }

    /// Whether every item is stored or exists.
    #[getter]
    fn accepted(&self) -> bool {
        self.0.iter().all(|&answer| Status(answer).accepted())
    }

    fn __repr__(&self) -> String {
        let all: Vec<_> = self.0.iter().map(|&answer| Status(answer).__repr__()).collect();
        format!("[{}]", all.join(", "))
    }
}

/// The answers of one put or prefetch. It can be waited for, polled, selected on, or awaited:
/// `statuses = await batch`.
#[pyclass(frozen, module = "kvstore._core")]
pub(crate) struct Batch {
    batch: Local<Arc<EngineBatch>>,
    items: Vec<(&'static str, u32)>,
}

impl Batch {
    /// A batch, with the kind and number of each item.
    pub(crate) fn new(batch: Arc<EngineBatch>, items: Vec<(&'static str, u32)>) -> Self {
        Self { batch: Local::new(batch), items }
    }
}

#[pymethods]
impl Batch {
    /// Number of items.
    fn __len__(&self) -> usize {
        self.items.len()
    }

    /// What the items are, in order: ("body", block), ("window", block), ("checkpoint", tokens);
    /// in a keyed put ("body", index of the key).
    #[getter]
    fn items(&self) -> Vec<(&'static str, u32)> {
        self.items.clone()
    }

    /// Whether every item has its answer.
    #[getter]
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        let batch = self.batch.get()?;
        Ok(py.detach(|| batch.done()))
    }

    /// The answers so far, one per item.
    #[getter]
    fn status(&self, py: Python<'_>) -> PyResult<Statuses> {
        let batch = self.batch.get()?;
        Ok(Statuses(py.detach(|| batch.status())))
    }

    /// Waits until every item has its answer, for up to timeout seconds (60 when None). True if
    /// all have.
    #[pyo3(signature = (timeout=None))]
    fn wait(&self, py: Python<'_>, timeout: Option<Seconds<'_>>) -> PyResult<bool> {
        let timeout = timeout.map(|timeout| timeout.duration("timeout")).transpose()?;
        let deadline = Instant::now() + timeout.unwrap_or(PATIENCE);
        let batch = self.batch.get()?;
        loop {
            let slice = deadline.min(Instant::now() + SLICE);
            if py.detach(|| batch.wait(slice)) {
                return Ok(true);
            }
            py.check_signals()?;
            if Instant::now() >= deadline {
                return Ok(false);
            }
        }
    }

    /// Gives up on what is not on its way yet: those items become "cancelled", the others settle by
    /// themselves.
    fn cancel(&self, py: Python<'_>) -> PyResult<()> {
        let batch = self.batch.get()?;
        py.detach(|| batch.cancel());
        Ok(())
    }

    /// A descriptor that is readable once every item has its answer; it lives as long as the batch.
    fn fileno(&self, py: Python<'_>) -> PyResult<i32> {
        let batch = self.batch.get()?;
        py.detach(|| batch.event().map(|event| event.as_raw_fd()))
            .map_err(|error| StoreIOError::new_err(format!("batch: {error}")))
    }

    fn __await__<'py>(this: &Bound<'py, Self>) -> PyResult<Awaiting<'py>> {
        let settled = this.py().import("kvstore.aio")?.call_method1("settled", (this,))?;
        settled.call_method0("__await__").map(Awaiting)
    }

    fn __repr__(&self) -> String {
        format!("<Batch of {} items>", self.items.len())
    }
}
