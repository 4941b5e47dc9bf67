//! Memory of Python objects: whatever exports a buffer, and CPU tensors through DLPack.

use std::borrow::Cow;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::dlpack::Tensor;
use crate::errors::invalid;
use crate::hints::arguments;

arguments! {
    /// Writable memory in one piece: an array, a CPU tensor.
    Writable;
}

/// What one item of a buffer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    /// Of so many bytes.
    Signed(usize),
    Unsigned(usize),
    Other,
}

/// The bytes of one Python object: in one piece, and in their place while this lives.
pub(crate) struct Memory {
    start: *mut u8,
    pub(crate) len: usize,
    /// Bytes of one item.
    pub(crate) item: usize,
    pub(crate) number: Number,
    /// Its item type in words.
    pub(crate) format: String,
    pub(crate) shape: Vec<usize>,
    writable: bool,
    _owner: Owner,
}

/// Who keeps the memory in its place.
enum Owner {
    Buffer(#[allow(dead_code, reason = "held for its release")] PyUntypedBuffer),
    Tensor(#[allow(dead_code, reason = "held for its release")] Tensor),
}

// SAFETY: the memory belongs to the exporter, which keeps it in place until the release. Reading
// it from another thread is what the buffer protocol and DLPack are for; that nobody writes it
// meanwhile is up to the caller, as with every consumer of a buffer.
unsafe impl Send for Memory {}
// SAFETY: as above; `Memory` itself changes nothing through a shared reference.
unsafe impl Sync for Memory {}

impl Memory {
    /// The memory of `object`; `field` names it in errors.
    pub(crate) fn of(object: &Bound<'_, PyAny>, field: &str) -> PyResult<Self> {
        if has_buffer(object) {
            return Self::of_buffer(object, field);
        }
        if object.hasattr("__dlpack__")? {
            return Self::of_tensor(object, field);
        }
        Err(invalid(format!(
            "{field} is a {}: it takes an object with the buffer protocol (bytes, array, numpy) or a \
             CPU tensor with DLPack",
            object.get_type().name()?
        )))
    }

    /// Whether an object has memory that [`Memory::of`] reads.
    pub(crate) fn is_of(object: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(has_buffer(object) || object.hasattr("__dlpack__")?)
    }

    fn of_buffer(object: &Bound<'_, PyAny>, field: &str) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(object)?;
        if !buffer.is_c_contiguous() {
            return Err(scattered(field));
        }
        let format = buffer.format().to_string_lossy().into_owned();
        let item = buffer.item_size();
        Ok(Self {
            start: buffer.buf_ptr().cast(),
            len: buffer.len_bytes(),
            item,
            number: number_of(&format, item),
            format: format!("{format:?} ({item} bytes)"),
            shape: buffer.shape().to_vec(),
            writable: !buffer.readonly(),
            _owner: Owner::Buffer(buffer),
        })
    }

    fn of_tensor(object: &Bound<'_, PyAny>, field: &str) -> PyResult<Self> {
        let tensor = Tensor::of(object, field)?;
        if !tensor.is_contiguous() {
            return Err(scattered(field));
        }
        let (code, bits) = tensor.item();
        let item = bits.div_ceil(8);
        Ok(Self {
            start: tensor.start(),
            len: tensor.shape().iter().product::<usize>() * item,
            item,
            number: match (code, bits % 8) {
                (0, 0) => Number::Signed(item),
                (1, 0) => Number::Unsigned(item),
                _ => Number::Other,
            },
            format: format!("DLPack code {code} with {bits} bits"),
            shape: tensor.shape().to_vec(),
            writable: true, // a legacy capsule cannot say otherwise, and its exporter may not
            _owner: Owner::Tensor(tensor),
        })
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: `_owner` keeps `len` bytes at `start` readable and in place.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// The bytes, to be written; `field` names them in the error for read-only ones.
    pub(crate) fn bytes_mut(&mut self, field: &str) -> PyResult<&mut [u8]> {
        if !self.writable {
            return Err(invalid(format!("{field} is read-only: it takes writable memory")));
        }
        if self.len == 0 {
            return Ok(&mut []);
        }
        // SAFETY: `_owner` keeps `len` bytes at `start` writable and in place; `self` is the only
        // way of this call to them.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.start, self.len) })
    }

    /// The items as integers of their own size; a copy where the memory is not aligned for them.
    ///
    /// # Panics
    /// If `T` is not as large as an item: the caller has looked at `number`.
    pub(crate) fn items<T: Integer>(&self) -> Cow<'_, [T]> {
        assert_eq!(self.item, size_of::<T>(), "the caller looked at `number`");
        let count = self.len / self.item;
        if count == 0 {
            return Cow::Borrowed(&[]);
        }
        let first: *const T = self.start.cast();
        if first.is_aligned() {
            // SAFETY: `len` bytes at `start` are readable and in place, aligned as was checked, and
            // every bit pattern is an integer.
            return Cow::Borrowed(unsafe { std::slice::from_raw_parts(first, count) });
        }
        // SAFETY: as above, without the alignment.
        Cow::Owned((0..count).map(|at| unsafe { first.add(at).read_unaligned() }).collect())
    }
}

fn has_buffer(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: the object is alive and this thread holds the interpreter.
    unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) != 0 }
}

/// Types of which every bit pattern is a value.
pub(crate) trait Integer: Copy {}
impl Integer for u8 {}
impl Integer for u16 {}
impl Integer for u32 {}
impl Integer for u64 {}
impl Integer for i8 {}
impl Integer for i16 {}
impl Integer for i32 {}
impl Integer for i64 {}

/// What a format of the struct module stands for, in this machine's byte order.
fn number_of(format: &str, item: usize) -> Number {
    let code = match format.as_bytes() {
        [code] | [b'@' | b'=', code] => *code,
        [b'<', code] if cfg!(target_endian = "little") => *code,
        [b'>' | b'!', code] if cfg!(target_endian = "big") || item == 1 => *code,
        _ => return Number::Other,
    };
    match code {
        b'b' | b'h' | b'i' | b'l' | b'q' | b'n' => Number::Signed(item),
        b'B' | b'H' | b'I' | b'L' | b'Q' | b'N' => Number::Unsigned(item),
        _ => Number::Other,
    }
}

fn scattered(field: &str) -> PyErr {
    invalid(format!("{field} is not C-contiguous: it takes memory in one piece (copy it first)"))
}
