//! BLAKE3 for fingerprints of weights: many gigabytes, in pieces.

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffers::Memory;
use crate::hints::arguments;

arguments! {
    /// Memory in one piece: a bytes-like object, an array, a CPU tensor.
    Bytes;
}

/// A BLAKE3 hash of bytes that come in pieces. The interpreter is free while a piece is hashed.
#[pyclass(frozen, module = "kvstore._core")]
pub(crate) struct Blake3 {
    hasher: Mutex<blake3::Hasher>,
}

#[pymethods]
impl Blake3 {
    #[new]
    fn new() -> Self {
        Self { hasher: Mutex::new(blake3::Hasher::new()) }
    }

    /// Adds the bytes of an object: a bytes-like one, an array or a CPU tensor, C-contiguous.
    fn update(&self, py: Python<'_>, data: Bytes<'_>) -> PyResult<()> {
        let Bytes(object) = data;
        let memory = Memory::of(&object, "data")?;
        py.detach(|| {
            self.hasher.lock().update(memory.bytes());
        });
        Ok(())
    }

    /// The 32 bytes of the hash of all that was added.
    fn digest<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let digest = py.detach(|| self.hasher.lock().finalize());
        PyBytes::new(py, digest.as_bytes())
    }
}
