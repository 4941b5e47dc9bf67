//! DLPack 1.x for CPU memory: tensors that come in, views that go out.
//!
//! The structs are those of `dlpack.h` (<https://dmlc.github.io/dlpack/latest/c_api.html>). A legacy
//! capsule cannot say that memory is read-only, so it only ever carries a copy.

use std::ffi::{CStr, c_void};
use std::ptr::NonNull;

use kvstore_engine::store::View;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::errors::invalid;
use crate::process::this;

const CPU: i32 = 1;
const CPU_PINNED: i32 = 3; // kDLCUDAHost: host memory that a GPU may read
const UNSIGNED: u8 = 1;
const READ_ONLY: u64 = 1 << 0;
const IS_COPIED: u64 = 1 << 1;
const LEGACY: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";

#[repr(C)]
struct DlTensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    ndim: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Legacy {
    tensor: DlTensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Legacy)>,
}

#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Versioned)>,
    flags: u64,
    tensor: DlTensor,
}

/// A CPU tensor of another library. The capsule is kept without being consumed: its own destructor
/// gives the memory back.
pub(crate) struct Tensor {
    tensor: NonNull<DlTensor>,
    _capsule: Py<PyAny>,
}

// SAFETY: DLPack's memory may be read from any thread; the capsule is only dropped, which PyO3 does
// under the interpreter's lock.
unsafe impl Send for Tensor {}
// SAFETY: nothing is changed through a shared reference.
unsafe impl Sync for Tensor {}

impl Tensor {
    /// The memory of an object with `__dlpack__`; `field` names it in errors.
    pub(crate) fn of(object: &Bound<'_, PyAny>, field: &str) -> PyResult<Self> {
        let capsule = object.call_method0("__dlpack__")?;
        let pointer = capsule.cast::<PyCapsule>()?.pointer_checked(Some(LEGACY))?;
        // SAFETY: a capsule of this name holds a DLManagedTensor, which begins with its tensor.
        let tensor = unsafe { pointer.cast::<DlTensor>().as_ref() };
        if !matches!(tensor.device_type, CPU | CPU_PINNED) {
            return Err(invalid(format!(
                "{field} is on DLPack device type {}: it takes memory of the CPU (copy it there \
                 first)",
                tensor.device_type
            )));
        }
        if tensor.lanes != 1 || tensor.bits % 8 != 0 {
            return Err(invalid(format!(
                "{field} has items of {} bits in {} lanes: it takes whole bytes",
                tensor.bits, tensor.lanes
            )));
        }
        Ok(Self { tensor: pointer.cast(), _capsule: capsule.unbind() })
    }

    fn get(&self) -> &DlTensor {
        // SAFETY: the capsule that owns it is alive and was not consumed.
        unsafe { self.tensor.as_ref() }
    }

    /// DLPack's type code and the bits of one item.
    pub(crate) fn item(&self) -> (u8, usize) {
        (self.get().code, usize::from(self.get().bits))
    }

    /// Address of the first item.
    pub(crate) fn start(&self) -> *mut u8 {
        let tensor = self.get();
        tensor.data.cast::<u8>().wrapping_add(tensor.byte_offset as usize)
    }

    fn axis(&self, values: *const i64) -> Option<&[i64]> {
        let axes = usize::try_from(self.get().ndim).ok()?;
        // SAFETY: shape and strides have `ndim` numbers each, unless they are null.
        (!values.is_null() && axes > 0).then(|| unsafe { std::slice::from_raw_parts(values, axes) })
    }

    /// Items along each axis.
    pub(crate) fn shape(&self) -> Vec<usize> {
        let shape = self.axis(self.get().shape).unwrap_or_default();
        shape.iter().map(|&items| usize::try_from(items).unwrap_or(0)).collect()
    }

    /// Whether the items lie one behind the other, the last axis first.
    pub(crate) fn is_contiguous(&self) -> bool {
        let Some(strides) = self.axis(self.get().strides) else { return true };
        let shape = self.shape();
        let mut step = 1;
        shape.contains(&0)
            || strides.iter().zip(&shape).rev().all(|(&stride, &items)| {
                let fits = items == 1 || usize::try_from(stride) == Ok(step);
                step *= items;
                fits
            })
    }
}

/// What keeps the exported bytes, and the numbers that the tensor points to.
struct Context {
    _memory: Bytes,
    shape: [i64; 1],
    strides: [i64; 1],
    process: u32,
}

/// Bytes that go out.
pub(crate) enum Bytes {
    /// The store's own, which the consumer must not write.
    View(View),
    /// The consumer's from now on.
    Copy(Box<[u8]>),
}

impl Bytes {
    fn tensor(self) -> (Box<Context>, DlTensor, u64) {
        let (data, len, flags) = match &self {
            Self::View(view) => (view.foreign_ptr(), view.len(), READ_ONLY),
            Self::Copy(bytes) => (bytes.as_ptr(), bytes.len(), IS_COPIED),
        };
        let process = this();
        let shape = [i64::try_from(len).unwrap_or(i64::MAX)];
        let mut context = Box::new(Context { _memory: self, shape, strides: [1], process });
        let tensor = DlTensor {
            data: data.cast_mut().cast(),
            device_type: CPU,
            device_id: 0,
            ndim: 1,
            code: UNSIGNED,
            bits: 8,
            lanes: 1,
            shape: context.shape.as_mut_ptr(),
            strides: context.strides.as_mut_ptr(),
            byte_offset: 0,
        };
        (context, tensor, flags)
    }

    /// A `dltensor_versioned` capsule.
    pub(crate) fn versioned(self, py: Python<'_>) -> PyResult<Bound<'_, PyCapsule>> {
        let (context, tensor, flags) = self.tensor();
        let context = Box::into_raw(context).cast();
        let deleter = Some(delete_versioned as unsafe extern "C" fn(*mut Versioned));
        let managed = Box::new(Versioned { major: 1, minor: 0, context, deleter, flags, tensor });
        let managed = NonNull::from(Box::leak(managed));
        // SAFETY: the destructor reads what a capsule of this name holds.
        unsafe {
            let free = Some(free_versioned as ffi::PyCapsule_Destructor);
            PyCapsule::new_with_pointer_and_destructor(py, managed.cast(), VERSIONED, free)
        }
    }

    /// A `dltensor` capsule, which cannot say read-only.
    pub(crate) fn legacy(self, py: Python<'_>) -> PyResult<Bound<'_, PyCapsule>> {
        let (context, tensor, _) = self.tensor();
        let context = Box::into_raw(context).cast();
        let deleter = Some(delete_legacy as unsafe extern "C" fn(*mut Legacy));
        let managed = NonNull::from(Box::leak(Box::new(Legacy { tensor, context, deleter })));
        // SAFETY: the destructor reads what a capsule of this name holds.
        unsafe {
            let free = Some(free_legacy as ffi::PyCapsule_Destructor);
            PyCapsule::new_with_pointer_and_destructor(py, managed.cast(), LEGACY, free)
        }
    }
}

/// Gives the bytes back, unless this is a forked child: its arena is not mapped, and the engine's
/// locks are as they were.
///
/// # Safety
/// `context` comes from [`Bytes::tensor`] and is used for the last time.
unsafe fn release(context: *mut c_void) {
    // SAFETY: by this function's contract.
    let context = unsafe { Box::from_raw(context.cast::<Context>()) };
    if context.process != this() {
        let _leaked = std::mem::ManuallyDrop::new(context);
    }
}

unsafe extern "C" fn delete_versioned(managed: *mut Versioned) {
    // SAFETY: consumers call a deleter once, with the struct it belongs to.
    unsafe { release(Box::from_raw(managed).context) }
}

unsafe extern "C" fn delete_legacy(managed: *mut Legacy) {
    // SAFETY: consumers call a deleter once, with the struct it belongs to.
    unsafe { release(Box::from_raw(managed).context) }
}

/// Frees what nobody consumed: a consumer renames the capsule.
unsafe extern "C" fn free_versioned(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls a destructor with its capsule, holding the interpreter.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) != 0 {
            delete_versioned(ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr()).cast());
        }
    }
}

unsafe extern "C" fn free_legacy(capsule: *mut ffi::PyObject) {
    // SAFETY: Python calls a destructor with its capsule, holding the interpreter.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, LEGACY.as_ptr()) != 0 {
            delete_legacy(ffi::PyCapsule_GetPointer(capsule, LEGACY.as_ptr()).cast());
        }
    }
}

/// What a consumer asked `__dlpack__` for.
pub(crate) struct Wanted {
    pub(crate) copy: bool,
    pub(crate) versioned: bool,
}

impl Wanted {
    /// Reads the arguments of `__dlpack__`. A view is given only when asked for (`copy=False`): not
    /// every library honours the read-only flag.
    pub(crate) fn read(
        stream: Option<&Bound<'_, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Self> {
        if stream.is_some() {
            return Err(PyBufferError::new_err("stream: memory of the CPU has no streams"));
        }
        if dl_device.is_some_and(|device| device != (CPU, 0)) {
            return Err(PyBufferError::new_err("dl_device: the bytes are on the CPU, (1, 0)"));
        }
        let versioned = max_version.is_some_and(|(major, _)| major >= 1);
        let copy = copy.unwrap_or(true);
        if !copy && !versioned {
            return Err(PyBufferError::new_err(
                "copy=False needs max_version=(1, 0) or higher: older capsules cannot say that the \
                 memory is read-only",
            ));
        }
        Ok(Self { copy, versioned })
    }
}

/// Where the bytes are: the CPU.
pub(crate) const DEVICE: (i32, i32) = (CPU, 0);
