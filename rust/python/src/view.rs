//! Bytes of a lease as Python objects: read-only, and kept alive by whoever looks.

use std::ffi::c_int;
use std::ops::Range;
use std::sync::OnceLock;

use kvstore_engine::store::{Item, View as EngineView};
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView};

use crate::dlpack::{Bytes, DEVICE, Wanted};
use crate::errors::invalid;
use crate::hints::{Capsule, iterators};
use crate::process::Local;

iterators! {
    /// Views one by one.
    Views = View;
}

impl<'py> Views<'py> {
    /// The views of a lease.
    pub(crate) fn of(lease: &Bound<'py, PyAny>) -> PyResult<Self> {
        Self::over(lease)
    }
}

/// Read-only bytes of one stored object, or of a page of it.
///
/// It has the buffer protocol (`memoryview(view)`, `numpy.frombuffer(view, dtype)`) and DLPack.
/// Both are zero-copy and keep the memory in its place: also after the lease's `with` block, after
/// `close()`, and as long as an array made from it lives. Memory under a live view is not reused
/// and counts against the store's limit of pinned bytes, so copy what you keep for long.
///
/// torch has no read-only tensors and writes through them. So `torch.from_dlpack(view)` is a copy;
/// `torch.from_dlpack(view, copy=False)` and `torch.frombuffer(view, ...)` are views, to be read
/// only. What is written through one never reaches another reader: while this object or an array
/// made from it lives, others read from disk, and the memory is verified before it is trusted
/// again. In a store with
/// `arena="shared"` such a write is a segmentation fault.
///
/// After a fork, views must not be touched in the child: the memory is not mapped there.
#[pyclass(frozen, module = "kvstore._core")]
pub(crate) struct View {
    memory: Memory,
    len: usize,
    /// What the buffer protocol gave out. It lives as long as this object and not only until the
    /// release of a buffer: `torch.frombuffer` releases at once and goes on using the memory.
    exported: OnceLock<Local<EngineView>>,
}

enum Memory {
    /// Within one part of a pinned object.
    Pinned(Local<Item>, Range<usize>),
    /// Joined from several parts.
    Joined(Local<EngineView>),
}

impl View {
    /// Bytes `range` of an object; a copy where the range crosses a cut between parts.
    pub(crate) fn of(item: &Item, range: Range<usize>) -> PyResult<Self> {
        let len = range.len();
        let memory = if EngineView::of(item, range.clone()).is_some() {
            Memory::Pinned(Local::new(item.clone()), range)
        } else {
            let joined = EngineView::joined(item, range).ok_or_else(|| {
                invalid(format!("the page lies outside of its object of {} bytes", item.len()))
            })?;
            Memory::Joined(Local::new(joined))
        };
        Ok(Self { memory, len, exported: OnceLock::new() })
    }

    /// The bytes for foreign code.
    fn export(&self, py: Python<'_>) -> PyResult<EngineView> {
        let gone = || PyBufferError::new_err("the view's bytes are gone");
        match &self.memory {
            Memory::Pinned(item, range) => {
                let item = item.get()?;
                py.detach(|| EngineView::export(item, range.clone())).ok_or_else(gone)
            }
            Memory::Joined(_) => Err(gone()),
        }
    }

    /// The bytes that the buffer protocol gives out.
    fn exported(&self, py: Python<'_>) -> PyResult<&EngineView> {
        if let Memory::Joined(joined) = &self.memory {
            return joined.get();
        }
        if let Some(exported) = self.exported.get() {
            return exported.get();
        }
        let export = Local::new(self.export(py)?);
        self.exported.get_or_init(|| export).get()
    }

    /// Runs `use_bytes` on the bytes while other threads run.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        use_bytes: impl FnOnce(&[u8]) -> T + Send,
    ) -> PyResult<T> {
        match &self.memory {
            Memory::Pinned(item, range) => {
                let item = item.get()?;
                py.detach(|| {
                    let view = EngineView::of(item, range.clone());
                    view.map(|view| use_bytes(view.as_slice()))
                })
                .ok_or_else(|| PyBufferError::new_err("the view's bytes are gone"))
            }
            Memory::Joined(view) => {
                let view = view.get()?;
                Ok(py.detach(|| use_bytes(view.as_slice())))
            }
        }
    }
}

#[pymethods]
impl View {
    fn __len__(&self) -> usize {
        self.len
    }

    /// Number of bytes.
    #[getter]
    fn nbytes(&self) -> usize {
        self.len
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        PyBytes::new_with(py, self.len, |out| self.with(py, |bytes| out.copy_from_slice(bytes)))
    }

    /// A writable copy of the bytes.
    fn copy<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyByteArray>> {
        PyByteArray::new_with(py, self.len, |out| self.with(py, |bytes| out.copy_from_slice(bytes)))
    }

    fn __repr__(&self) -> String {
        format!("<View of {} bytes>", self.len)
    }

    /// The DLPack capsule of the bytes, one-dimensional uint8. A copy, unless copy=False asks for
    /// the store's own memory, marked read-only.
    #[pyo3(signature = (*, stream=None, max_version=None, dl_device=None, copy=None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Capsule<'py>> {
        let wanted = Wanted::read(stream, max_version, dl_device, copy)?;
        let bytes = match &self.memory {
            Memory::Pinned(..) if !wanted.copy => Bytes::View(self.export(py)?),
            _ => Bytes::Copy(self.with(py, |bytes| bytes.into())?),
        };
        let capsule = if wanted.versioned { bytes.versioned(py) } else { bytes.legacy(py) };
        capsule.map(|capsule| Capsule(capsule.into_any()))
    }

    /// (1, 0): the CPU.
    fn __dlpack_device__(&self) -> (i32, i32) {
        DEVICE
    }

    /// A memoryview of the bytes: what makes this a `collections.abc.Buffer`.
    #[pyo3(signature = (flags, /))]
    fn __buffer__<'py>(
        this: &Bound<'py, Self>,
        flags: c_int,
    ) -> PyResult<Bound<'py, PyMemoryView>> {
        if flags & ffi::PyBUF_WRITABLE != 0 {
            return Err(PyBufferError::new_err("the bytes of a view are read-only"));
        }
        PyMemoryView::from(this)
    }

    /// # Safety
    /// Python calls it with a buffer to fill.
    unsafe fn __getbuffer__(
        this: &Bound<'_, Self>,
        buffer: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        if flags & ffi::PyBUF_WRITABLE != 0 {
            return Err(PyBufferError::new_err("the bytes of a view are read-only"));
        }
        let py = this.py();
        let view = this.get();
        let data = view.exported(py)?.foreign_ptr().cast_mut().cast();
        let len = view.len.cast_signed();
        // SAFETY: `buffer` is Python's to fill. `data` has `len` bytes until `this` is dropped, to
        // which the filled buffer holds a reference; they are given out as read-only.
        let filled = unsafe { ffi::PyBuffer_FillInfo(buffer, this.as_ptr(), data, len, 1, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(py)) }
    }
}
