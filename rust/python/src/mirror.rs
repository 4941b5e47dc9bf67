//! The mirror: what the workers of a serving engine hold in HBM.

use std::sync::Arc;

use kvstore_engine::identity::Key;
use kvstore_engine::mirror::{Tiers, Worker as EngineWorker};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::border::engine;
use crate::errors::{invalid, raise};
use crate::keyed::Keys;
use crate::store::Shared;

/// Bytes of a block key.
const KEY: usize = 32;

/// A worker of a serving engine under one epoch. Made by `store.mirror.join`.
#[pyclass(frozen, eq, hash, module = "kvstore._core")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Worker(pub(crate) EngineWorker);

#[pymethods]
impl Worker {
    /// The id that it joined with.
    #[getter]
    fn id(&self) -> u8 {
        self.0.id()
    }

    /// The number of its join; each join of a store has its own.
    #[getter]
    fn epoch(&self) -> u64 {
        self.0.epoch()
    }

    fn __repr__(&self) -> String {
        format!("<Worker {}, epoch {}>", self.0.id(), self.0.epoch())
    }
}

/// A worker under its epoch, or whichever has an id.
#[derive(FromPyObject)]
pub(crate) enum Lost<'py> {
    Worker(Bound<'py, Worker>),
    Id(u32),
}

/// What the workers of a serving engine hold in HBM: bookkeeping only, no bytes pass here. It is
/// `store.mirror`.
///
/// A worker joins with a number of slots and marks which block is in which. `ns.match(tokens,
/// worker=worker)` counts its blocks as present, stored or not; eviction of host memory prefers
/// blocks that have another copy. keys are block keys of the store, 32 bytes each, in one buffer or
/// a list: `plan.keys`, or `ns.keyed.block_keys(hashes)`.
#[pyclass(frozen, module = "kvstore._core")]
pub(crate) struct Mirror {
    shared: Arc<Shared>,
}

impl Mirror {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }
}

impl Keys<'_> {
    /// Block keys of the store.
    fn block_keys(self) -> PyResult<Vec<Key>> {
        let bytes = self.read(Some(KEY))?.bytes;
        let (keys, rest) = bytes.as_chunks::<KEY>();
        if !rest.is_empty() {
            return Err(invalid(format!(
                "keys has {} bytes: block keys have {KEY} each (plan.keys, keyed.block_keys)",
                bytes.len()
            )));
        }
        Ok(keys.iter().map(|key| Key::from_bytes(*key)).collect())
    }
}

#[pymethods]
impl Mirror {
    /// A worker with `slots` slots joins under an epoch of its own. One of this id that is there is
    /// taken for lost: its marks are dropped, and under its old epoch it marks nothing any more.
    ///
    /// Ids are 0 to 254. Raises LimitError when the slots of all workers would be more than the
    /// store's mirror_slots.
    fn join(&self, py: Python<'_>, worker: u32, slots: usize) -> PyResult<Worker> {
        let (store, id) = (self.shared.engine()?, id(worker)?);
        let joined = engine(py, || store.mirror().join(id, slots))?;
        joined.map(Worker).map_err(|error| raise(&error))
    }

    /// Marks blocks as held by a worker, keys[i] in slots[i]; the number of marks, which is 0 when
    /// the worker's epoch is over. A slot that held another block holds this one now, and a block
    /// that was in another slot of the worker has moved.
    #[expect(clippy::needless_pass_by_value, reason = "an argument of a Python method")]
    fn insert(
        &self,
        py: Python<'_>,
        keys: Keys<'_>,
        slots: Vec<u32>,
        worker: &Worker,
    ) -> PyResult<usize> {
        let (store, keys, worker) = (self.shared.engine()?, keys.block_keys()?, worker.0);
        let marked = engine(py, || store.mirror().insert(&keys, &slots, worker))?;
        marked.map_err(|error| raise(&error))
    }

    /// A worker no longer holds these blocks; the number of marks that went.
    fn remove(&self, py: Python<'_>, keys: Keys<'_>, worker: &Worker) -> PyResult<usize> {
        let (store, keys, worker) = (self.shared.engine()?, keys.block_keys()?, worker.0);
        Ok(engine(py, || store.mirror().remove(&keys, worker))?)
    }

    /// Whether a worker holds each block; without one, whether any does.
    #[pyo3(signature = (keys, worker=None))]
    fn contains(
        &self,
        py: Python<'_>,
        keys: Keys<'_>,
        worker: Option<&Bound<'_, Worker>>,
    ) -> PyResult<Vec<bool>> {
        let (store, keys) = (self.shared.engine()?, keys.block_keys()?);
        let worker = worker.map(|worker| worker.get().0);
        Ok(engine(py, || store.mirror().contains(&keys, worker))?)
    }

    /// A worker is lost, and all of its marks with it. Given by its id, whoever has that id; given
    /// as a Worker, nothing happens if it has been replaced.
    fn drop_worker(&self, py: Python<'_>, worker: Lost<'_>) -> PyResult<()> {
        let store = self.shared.engine()?;
        match worker {
            Lost::Worker(worker) => {
                let worker = worker.get().0;
                engine(py, || store.mirror().end(worker))?;
            }
            Lost::Id(worker) => {
                let id = id(worker)?;
                engine(py, || store.mirror().drop_worker(id))?;
            }
        }
        Ok(())
    }

    fn __repr__(&self) -> PyResult<String> {
        let stats = self.shared.engine()?.mirror().stats();
        Ok(format!("<Mirror: {} marks of {} workers>", stats.marks, stats.workers))
    }
}

fn id(worker: u32) -> PyResult<u8> {
    u8::try_from(worker).ok().filter(|&id| id <= EngineWorker::MAX_ID).ok_or_else(|| {
        let most = EngineWorker::MAX_ID;
        invalid(format!("worker is {worker}, from 0 to {most} are possible"))
    })
}

/// The tiers of each block in words.
pub(crate) fn names(tiers: &[Tiers]) -> Vec<Vec<&'static str>> {
    let of = |tiers: &Tiers| {
        let all = [("mirror", tiers.mirror), ("host", tiers.host), ("disk", tiers.disk)];
        all.into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect()
    };
    tiers.iter().map(of).collect()
}

/// Keys in one piece.
pub(crate) fn joined<'py>(py: Python<'py>, keys: &[Key]) -> Bound<'py, PyBytes> {
    let bytes: Vec<u8> = keys.iter().flat_map(|key| *key.as_bytes()).collect();
    PyBytes::new(py, &bytes)
}
