//! Where the host tier's memory is.

use std::sync::Arc;

use kvstore_engine::host::arena::{Arena, ArenaKind};
use pyo3::prelude::*;

use crate::process::Local;

/// The memory of the host tier that views are in, for cudaHostRegister only: its bytes belong to
/// the engine. Made by `store.arena_range`; holding it keeps the memory mapped, also after the
/// store was closed.
#[pyclass(frozen, module = "kvstore._core")]
pub(crate) struct ArenaRange(Local<Arc<Arena>>);

impl ArenaRange {
    pub(crate) fn new(arena: Arc<Arena>) -> Self {
        Self(Local::new(arena))
    }
}

#[pymethods]
impl ArenaRange {
    /// Address of the first byte.
    #[getter]
    fn address(&self) -> PyResult<usize> {
        Ok(self.0.get()?.view_range().0.addr())
    }

    /// Length in bytes.
    #[getter]
    fn nbytes(&self) -> PyResult<usize> {
        Ok(self.0.get()?.view_range().1)
    }

    /// Whether the memory is mapped for reading only: in a "shared" arena.
    #[getter]
    fn read_only(&self) -> PyResult<bool> {
        Ok(self.0.get()?.kind() == ArenaKind::Shared)
    }
}
