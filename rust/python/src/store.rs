//! The store handle.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvstore_engine::Store as EngineStore;
use kvstore_engine::store::Options;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use crate::arena::ArenaRange;
use crate::border::engine;
use crate::errors::{ClosedError, raise};
use crate::hints::{Snapshot, arguments};
use crate::layout::Layout;
use crate::mirror::Mirror;
use crate::namespace::{Given, Namespace, Salt};
use crate::process::{Local, Opening, remember};
use crate::sizes::Seconds;
use crate::stats;

arguments! {
    /// Fingerprint of the weights.
    Weights;
}

/// How long a wait stays out of the interpreter before it looks for signals.
const SLICE: Duration = Duration::from_millis(100);

/// One open store; all handles made from it hold this.
pub(crate) struct Shared {
    store: Local<EngineStore>,
    pub(crate) options: Options,
    opening: Mutex<Option<Opening>>,
}

impl Shared {
    pub(crate) fn new(store: EngineStore, options: Options, opening: Opening) -> Arc<Self> {
        let opening = Mutex::new(Some(opening));
        let shared = Arc::new(Self { store: Local::new(store), options, opening });
        remember(Arc::downgrade(&shared));
        shared
    }

    /// The engine's store, as long as it is open and this is its process.
    pub(crate) fn engine(&self) -> PyResult<&EngineStore> {
        let store = self.store.get()?;
        if store.is_closed() {
            return Err(ClosedError::new_err("the store is closed: open it again"));
        }
        Ok(store)
    }

    /// Closes it, within a time; false if something could not be written. The caller is detached.
    pub(crate) fn close_within(&self, wait: Duration) -> bool {
        let Ok(store) = self.store.get() else { return true };
        let written = store.close_within(wait);
        self.opening.lock().take();
        written
    }
}

/// A store: what was computed once, in host memory and on disk. Made by `kvstore.open`.
///
/// A context manager: leaving the block closes it. Handles of one directory in one process share
/// one engine, which closes with the last of them.
#[pyclass(frozen, module = "kvstore._core")]
pub(crate) struct Store {
    shared: Arc<Shared>,
}

impl Store {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// The engine's store, as long as it is open and this is its process.
    pub(crate) fn engine(&self) -> PyResult<&EngineStore> {
        self.shared.engine()
    }
}

#[pymethods]
impl Store {
    /// A namespace: all of the model side that changes cache bytes, and a tenant.
    ///
    /// weights is a fingerprint of the weights: 32 bytes (BLAKE3 of all tensor bytes), or a pair of
    /// kind and digest, kvstore.Weights("hub", digest); a kind is "full", "hub", "cached", "sampled"
    /// or "name". A name is refused unless allow_weights_by_name says that other weights under it
    /// would be fine. cache_salt is the tenant's secret: it is neither stored nor shown. adapter is
    /// a digest of the adapter's content (16 to 64 bytes). dtype and scale_rule name the number
    /// format (by default the layout's own record formats), axes the shards: {"tp": (rank, size)}.
    /// extra takes whatever else changes bytes, as strings. ttl is the life of its objects, in
    /// seconds. With deterministic=True a second put with other bytes raises DivergenceError.
    ///
    /// Two processes share cache exactly when all of this is equal.
    #[pyo3(signature = (layout, *, model, weights, cache_salt=None, revision="", adapter=None,
                        dtype=None, scale_rule=None, axes=None, extra=None, hash_rule=None,
                        ttl=None, deterministic=false, allow_weights_by_name=false))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of one Python method")]
    fn namespace(
        &self,
        py: Python<'_>,
        layout: Bound<'_, Layout>,
        model: &str,
        weights: Weights<'_>,
        cache_salt: Option<Salt>,
        revision: &str,
        adapter: Option<PyBackedBytes>,
        dtype: Option<String>,
        scale_rule: Option<String>,
        axes: Option<HashMap<String, (u32, u32)>>,
        extra: Option<HashMap<String, String>>,
        hash_rule: Option<String>,
        ttl: Option<Seconds<'_>>,
        deterministic: bool,
        allow_weights_by_name: bool,
    ) -> PyResult<Namespace> {
        let given = Given {
            model: model.to_owned(),
            weights: crate::namespace::weights(weights)?,
            revision: revision.to_owned(),
            adapter,
            dtype,
            scale_rule,
            axes: axes.unwrap_or_default(),
            extra: extra.unwrap_or_default(),
            hash_rule,
            allow_weights_by_name,
        };
        let ttl = ttl.map(|ttl| ttl.duration("ttl")).transpose()?;
        let salt = cache_salt.map(Salt::bytes).unwrap_or_default();
        Namespace::open(py, &self.shared, layout.unbind(), given, &salt, ttl, deterministic)
    }

    /// Makes everything stored under this salt unreachable, in all namespaces; the number of
    /// objects. erase=True also overwrites them.
    #[pyo3(signature = (*, cache_salt, erase=false))]
    fn clear(&self, py: Python<'_>, cache_salt: Salt, erase: bool) -> PyResult<u64> {
        let store = self.shared.engine()?;
        let salt = cache_salt.bytes();
        engine(py, || store.clear_tenant(&salt, erase))?.map_err(|error| raise(&error))
    }

    /// What the store holds and what it has counted: numbers and strings in nested dicts. Sizes are
    /// in bytes.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Snapshot<'py>> {
        let store = self.shared.engine()?;
        let stats = engine(py, || store.stats())?;
        stats::dict(py, &stats).map(Snapshot::from)
    }

    /// What the workers of a serving engine hold in HBM.
    #[getter]
    fn mirror(&self) -> Mirror {
        Mirror::new(self.shared.clone())
    }

    /// Where the host tier's memory is, for cudaHostRegister only (see kvstore.torch.pinned).
    fn arena_range(&self) -> PyResult<ArenaRange> {
        let arena = self.shared.engine()?.arena().map_err(|error| raise(&error))?;
        Ok(ArenaRange::new(arena))
    }

    /// Writes what is pending and flushes the device, for up to timeout seconds (60 when None).
    /// True if all of it survives a power cut now.
    #[pyo3(signature = (timeout=None))]
    fn flush(&self, py: Python<'_>, timeout: Option<Seconds<'_>>) -> PyResult<bool> {
        let timeout = timeout.map(|timeout| timeout.duration("timeout")).transpose()?;
        let deadline = Instant::now() + timeout.unwrap_or(Duration::from_secs(60));
        loop {
            let store = self.shared.engine()?;
            let slice = deadline.min(Instant::now() + SLICE);
            if engine(py, || store.flush(slice))? {
                return Ok(true);
            }
            py.check_signals()?;
            if Instant::now() >= deadline {
                return Ok(false);
            }
        }
    }

    /// Closes this handle; the last one of a directory writes what is pending, within the store's
    /// close_deadline. True if everything was written. A second call does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<bool> {
        let shared = &self.shared;
        shared.store.get()?;
        Ok(engine(py, || shared.close_within(shared.options.close_deadline))?)
    }

    /// Whether this handle was closed.
    #[getter]
    fn closed(&self) -> PyResult<bool> {
        Ok(self.shared.store.get()?.is_closed())
    }

    /// Directory of the store.
    #[getter]
    fn path(&self) -> PyResult<std::path::PathBuf> {
        Ok(self.shared.store.get()?.dir().to_owned())
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (kind=None, error=None, traceback=None))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<Bound<'_, PyAny>>,
        error: Option<Bound<'_, PyAny>>,
        traceback: Option<Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let _exceptions_pass = (kind, error, traceback);
        self.close(py).map(|_| ())
    }

    fn __repr__(&self) -> PyResult<String> {
        let store = self.shared.store.get()?;
        let state = if store.is_closed() { "closed" } else { "open" };
        Ok(format!("<Store {} ({state})>", store.dir().display()))
    }
}
