//! `kvstore._core.codec`: the codec over caller-supplied buffers.
//!
//! Buffers are anything with the buffer protocol, C-contiguous; lengths are in bytes of that buffer.
//! The GIL is released while numbers are converted. Errors are `ValueError` with the codec's own
//! text. The typed, documented face of this module is `kvstore.codec`.

#![expect(clippy::needless_pass_by_value, reason = "pyo3 extracts arguments by value")]

use kvstore_codec::record::{self, gqa};
use kvstore_codec::scheme::presets;
use kvstore_codec::scheme::{Block, Given, Global, Pack, PowerStore, Scale, Scheme};
use kvstore_codec::swizzle::ScaleLayout;
use kvstore_codec::{
    Cast, Coded, Element, Encoded, Error, Level, Options, Overflow, Rounding, Source, Stores,
    Target, ZeroSign, e8m0, lossless, planes,
};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::hints::Snapshot;

fn value_error(error: impl std::fmt::Display) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// A borrowed buffer. The exporter keeps the memory alive and in place until it is dropped.
struct Bytes {
    buffer: PyUntypedBuffer,
    what: &'static str,
}

// SAFETY: only the pointer and the length are used away from the thread that holds the GIL; the
// buffer itself is released after the GIL is taken again.
unsafe impl Sync for Bytes {}

impl Bytes {
    fn new(object: &Bound<'_, PyAny>, what: &'static str) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(object)?;
        if !buffer.is_c_contiguous() {
            let (shape, strides) = (buffer.shape(), buffer.strides());
            return Err(PyValueError::new_err(format!(
                "{what}: shape {shape:?} with strides {strides:?} given, C-contiguous wanted"
            )));
        }
        Ok(Self { buffer, what })
    }

    fn writable(object: &Bound<'_, PyAny>, what: &'static str) -> PyResult<Self> {
        let bytes = Self::new(object, what)?;
        if bytes.buffer.readonly() {
            return Err(PyValueError::new_err(format!("{what}: read-only given, writable wanted")));
        }
        Ok(bytes)
    }

    /// Pointer and element count for elements of `T`, checked for size and alignment.
    fn cast<T>(&self) -> PyResult<(*mut T, usize)> {
        let (size, length) = (size_of::<T>(), self.buffer.len_bytes());
        let pointer = self.buffer.buf_ptr().cast::<T>();
        if length == 0 {
            return Ok((std::ptr::NonNull::dangling().as_ptr(), 0));
        }
        if !length.is_multiple_of(size) {
            let what = self.what;
            return Err(PyValueError::new_err(format!(
                "{what}: {length} bytes given, a multiple of {size} wanted"
            )));
        }
        if !pointer.is_aligned() {
            let offset = pointer as usize % size;
            let error = Error::Alignment { what: self.what, offset, wanted: size };
            return Err(value_error(error));
        }
        Ok((pointer, length / size))
    }

    fn slice<T>(&self) -> PyResult<&[T]> {
        let (pointer, count) = self.cast()?;
        // SAFETY: the exporter vouches for the memory; every bit pattern is a T (u8, u16, f32). As
        // with every buffer consumer, the caller must not write to it meanwhile.
        Ok(unsafe { std::slice::from_raw_parts(pointer, count) })
    }

    #[expect(
        clippy::mut_from_ref,
        reason = "the memory is the exporter's, one such slice per call"
    )]
    fn slice_mut<T>(&self) -> PyResult<&mut [T]> {
        let (pointer, count) = self.cast()?;
        // SAFETY: as in `slice`; writability was checked, and overlaps are refused by `disjoint`.
        Ok(unsafe { std::slice::from_raw_parts_mut(pointer, count) })
    }

    fn range(&self) -> std::ops::Range<usize> {
        let start = self.buffer.buf_ptr() as usize;
        start..start + self.buffer.len_bytes()
    }
}

/// Refuses outputs that overlap each other or an input.
fn disjoint(outputs: &[&Bytes], inputs: &[&Bytes]) -> PyResult<()> {
    for (i, output) in outputs.iter().enumerate() {
        for other in outputs[i + 1..].iter().chain(inputs) {
            let (a, b) = (output.range(), other.range());
            if a.start < b.end && b.start < a.end {
                let (x, y) = (output.what, other.what);
                return Err(PyValueError::new_err(format!(
                    "{x} and {y}: overlapping memory given"
                )));
            }
        }
    }
    Ok(())
}

fn source<'a>(bytes: &'a Bytes, dtype: &str) -> PyResult<Source<'a>> {
    match dtype {
        "bf16" => Ok(Source::Bf16(bytes.slice()?)),
        "fp16" => Ok(Source::F16(bytes.slice()?)),
        "fp32" => Ok(Source::F32(bytes.slice()?)),
        _ => Err(unknown("dtype", dtype, "bf16, fp16, fp32")),
    }
}

fn target<'a>(bytes: &'a Bytes, dtype: &str) -> PyResult<Target<'a>> {
    match dtype {
        "bf16" => Ok(Target::Bf16(bytes.slice_mut()?)),
        "fp16" => Ok(Target::F16(bytes.slice_mut()?)),
        "fp32" => Ok(Target::F32(bytes.slice_mut()?)),
        _ => Err(unknown("dtype", dtype, "bf16, fp16, fp32")),
    }
}

fn unknown(kind: &'static str, given: &str, known: &str) -> PyErr {
    value_error(Error::Unknown { kind, given: given.to_owned(), known: known.to_owned() })
}

fn options(level: Option<&str>, threads: usize, stores: &str) -> PyResult<Options> {
    let level = level.map(Level::named).transpose().map_err(value_error)?;
    let stores = match stores {
        "auto" => Stores::Auto,
        "cached" => Stores::Cached,
        "stream" => Stores::Stream,
        _ => return Err(unknown("stores", stores, "auto, cached, stream")),
    };
    Ok(Options { level, threads, stores })
}

fn scheme(preset: &str) -> PyResult<Scheme> {
    Ok(presets::named(preset).map_err(value_error)?.scheme)
}

fn element(name: &str) -> PyResult<Element> {
    let known = || Element::ALL.map(Element::name).join(", ");
    let found = Element::ALL.into_iter().find(|e| e.name() == name);
    found.ok_or_else(|| unknown("element format", name, &known()))
}

fn cast_of(rounding: &str, overflow: &str, zero: &str) -> PyResult<Cast> {
    Ok(Cast {
        rounding: match rounding {
            "even" => Rounding::NearestEven,
            "toward_zero" => Rounding::NearestTowardZero,
            "away" => Rounding::NearestAway,
            "truncate" => Rounding::Truncate,
            _ => return Err(unknown("rounding", rounding, "even, toward_zero, away, truncate")),
        },
        overflow: overflow_of(overflow)?,
        zero: match zero {
            "keep" => ZeroSign::Keep,
            "clear" => ZeroSign::Clear,
            _ => return Err(unknown("zero", zero, "keep, clear")),
        },
    })
}

fn overflow_of(overflow: &str) -> PyResult<Overflow> {
    match overflow {
        "saturate" => Ok(Overflow::Saturate),
        "special" => Ok(Overflow::Special),
        _ => Err(unknown("overflow", overflow, "saturate, special")),
    }
}

fn describe_scale(scale: &Scale) -> &'static str {
    match scale {
        Scale::Given => "given",
        Scale::Power(power) if power.store == PowerStore::F32 => "fp32, power of two",
        Scale::Power(_) => "e8m0",
        Scale::Linear(_) => "fp32",
        Scale::Nv(nv) => match nv.global {
            Global::None => "e4m3",
            Global::Multiplier => "e4m3 x global",
            Global::Inverse => "e4m3 / global",
        },
        Scale::Affine => "fp16 scale and minimum",
    }
}

/// Numbers to bytes. See `kvstore.codec` for the typed face of this module.
#[pymodule]
pub(crate) mod codec {
    use super::*;

    /// The levels of this CPU, weakest first.
    #[pyfunction]
    fn levels() -> Vec<&'static str> {
        Level::available().into_iter().map(Level::name).collect()
    }

    /// The level that calls take by default.
    #[pyfunction]
    fn level() -> &'static str {
        Level::chosen().name()
    }

    /// Names of the element formats.
    #[pyfunction]
    fn elements() -> Vec<&'static str> {
        Element::ALL.map(Element::name).to_vec()
    }

    /// One dictionary per preset.
    #[pyfunction]
    fn presets(py: Python<'_>) -> PyResult<Vec<Snapshot<'_>>> {
        let one = |preset: &kvstore_codec::scheme::presets::Preset| {
            let dict = PyDict::new(py);
            let Block { rows, cols } = preset.scheme.block;
            dict.set_item("name", &preset.name)?;
            dict.set_item("engine", preset.engine)?;
            dict.set_item("version", preset.version)?;
            dict.set_item("note", preset.note)?;
            dict.set_item("element", preset.scheme.element.name())?;
            dict.set_item("block", (rows, cols))?;
            dict.set_item("scale", describe_scale(&preset.scheme.scale))?;
            dict.set_item("scale_bytes", preset.scheme.scale_bytes())?;
            dict.set_item(
                "code_bits",
                if preset.scheme.pack == Pack::Bytes { 8 } else { preset.scheme.element.bits() },
            )?;
            dict.set_item("words_along_rows", preset.scheme.rows_per_word())?;
            Ok(dict.into())
        };
        kvstore_codec::scheme::presets::all().iter().map(one).collect()
    }

    /// Bytes of codes, scales and minima for rows x cols.
    #[pyfunction]
    fn sizes(preset: &str, rows: usize, cols: usize) -> PyResult<(usize, usize, usize)> {
        let sizes = scheme(preset)?.sizes(rows, cols).map_err(value_error)?;
        Ok((sizes.codes, sizes.scales, sizes.mins))
    }

    /// Encodes a matrix of rows of `cols` elements.
    #[pyfunction]
    #[expect(clippy::too_many_arguments, reason = "the typed face has keywords and defaults")]
    fn encode(
        py: Python<'_>,
        preset: &str,
        x: &Bound<'_, PyAny>,
        dtype: &str,
        cols: usize,
        codes: &Bound<'_, PyAny>,
        scales: &Bound<'_, PyAny>,
        mins: &Bound<'_, PyAny>,
        scale: Vec<f32>,
        global_scale: Option<f32>,
        level: Option<&str>,
        threads: usize,
        stores: &str,
    ) -> PyResult<()> {
        let scheme = scheme(preset)?;
        let options = options(level, threads, stores)?;
        let x = Bytes::new(x, "x")?;
        let codes = Bytes::writable(codes, "codes")?;
        let scales = Bytes::writable(scales, "scales")?;
        let mins = Bytes::writable(mins, "mins")?;
        disjoint(&[&codes, &scales, &mins], &[&x])?;
        let source = source(&x, dtype)?;
        let out = Encoded {
            codes: codes.slice_mut()?,
            scales: scales.slice_mut()?,
            mins: mins.slice_mut()?,
        };
        let given = Given { scale: &scale, global: global_scale };
        py.detach(|| kvstore_codec::encode(&scheme, source, cols, given, out, &options))
            .map_err(value_error)
    }

    /// Decodes a matrix of rows of `cols` elements.
    #[pyfunction]
    #[expect(clippy::too_many_arguments, reason = "the typed face has keywords and defaults")]
    fn decode(
        py: Python<'_>,
        preset: &str,
        codes: &Bound<'_, PyAny>,
        scales: &Bound<'_, PyAny>,
        mins: &Bound<'_, PyAny>,
        cols: usize,
        out: &Bound<'_, PyAny>,
        dtype: &str,
        scale: Vec<f32>,
        global_scale: Option<f32>,
        level: Option<&str>,
        threads: usize,
        stores: &str,
    ) -> PyResult<()> {
        let scheme = scheme(preset)?;
        let options = options(level, threads, stores)?;
        let codes = Bytes::new(codes, "codes")?;
        let scales = Bytes::new(scales, "scales")?;
        let mins = Bytes::new(mins, "mins")?;
        let out = Bytes::writable(out, "out")?;
        disjoint(&[&out], &[&codes, &scales, &mins])?;
        let target = target(&out, dtype)?;
        let coded = Coded { codes: codes.slice()?, scales: scales.slice()?, mins: mins.slice()? };
        let given = Given { scale: &scale, global: global_scale };
        py.detach(|| kvstore_codec::decode(&scheme, coded, cols, given, target, &options))
            .map_err(value_error)
    }

    /// Casts numbers to one code per byte, without a scale.
    #[pyfunction]
    #[expect(clippy::too_many_arguments, reason = "the typed face has keywords and defaults")]
    fn cast(
        py: Python<'_>,
        name: &str,
        x: &Bound<'_, PyAny>,
        dtype: &str,
        out: &Bound<'_, PyAny>,
        rounding: &str,
        overflow: &str,
        zero: &str,
    ) -> PyResult<()> {
        let (element, cast) = (element(name)?, cast_of(rounding, overflow, zero)?);
        let x = Bytes::new(x, "x")?;
        let out = Bytes::writable(out, "out")?;
        disjoint(&[&out], &[&x])?;
        let (source, out) = (source(&x, dtype)?, out.slice_mut()?);
        py.detach(|| element.encode_all(source, cast, out)).map_err(value_error)
    }

    /// Values of codes, one per byte, as fp32.
    #[pyfunction]
    fn uncast(
        py: Python<'_>,
        name: &str,
        codes: &Bound<'_, PyAny>,
        out: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let element = element(name)?;
        let codes = Bytes::new(codes, "codes")?;
        let out = Bytes::writable(out, "out")?;
        disjoint(&[&out], &[&codes])?;
        let (codes, out) = (codes.slice()?, out.slice_mut()?);
        py.detach(|| element.decode_all(codes, out)).map_err(value_error)
    }

    /// E8M0 codes of fp32 numbers.
    #[pyfunction]
    fn e8m0_encode(x: Vec<f32>, toward: &str, overflow: &str) -> PyResult<Vec<u8>> {
        let toward = match toward {
            "nearest" => e8m0::Toward::Nearest,
            "up" => e8m0::Toward::Up,
            "down" => e8m0::Toward::Down,
            _ => return Err(unknown("toward", toward, "nearest, up, down")),
        };
        let overflow = overflow_of(overflow)?;
        Ok(x.into_iter().map(|x| e8m0::encode(x, toward, overflow)).collect())
    }

    /// Values of E8M0 codes.
    #[pyfunction]
    fn e8m0_decode(codes: Vec<u8>) -> Vec<f32> {
        codes.into_iter().map(e8m0::decode).collect()
    }

    /// One dictionary per record format.
    #[pyfunction]
    fn formats(py: Python<'_>) -> PyResult<Vec<Snapshot<'_>>> {
        let one = |format: &record::Format| {
            let dict = PyDict::new(py);
            dict.set_item("name", format.name)?;
            dict.set_item("engine", format.engine)?;
            dict.set_item("version", format.version)?;
            dict.set_item("note", format.note)?;
            dict.set_item("dim", format.dim)?;
            dict.set_item("record_bytes", format.record_bytes())?;
            dict.set_item("data_bytes", format.data_bytes)?;
            dict.set_item("tail_bytes", format.tail_bytes)?;
            dict.set_item("page_multiple", format.page_multiple)?;
            Ok(dict.into())
        };
        record::all().iter().map(one).collect()
    }

    /// Bytes of a page of `entries`.
    #[pyfunction]
    fn page_bytes(format: &str, entries: usize) -> PyResult<usize> {
        Ok(record::named(format).map_err(value_error)?.page_bytes(entries))
    }

    /// Packs bf16 rows into pages.
    #[pyfunction]
    fn pack(
        py: Python<'_>,
        format: &str,
        rows: &Bound<'_, PyAny>,
        entries: usize,
        pages: &Bound<'_, PyAny>,
        level: Option<&str>,
        threads: usize,
    ) -> PyResult<()> {
        let format = record::named(format).map_err(value_error)?;
        let options = options(level, threads, "auto")?;
        let rows = Bytes::new(rows, "rows")?;
        let pages = Bytes::writable(pages, "pages")?;
        disjoint(&[&pages], &[&rows])?;
        let (rows, pages) = (rows.slice()?, pages.slice_mut()?);
        py.detach(|| record::pack(format, rows, entries, pages, &options)).map_err(value_error)
    }

    /// Unpacks pages to bf16 rows.
    #[pyfunction]
    fn unpack(
        py: Python<'_>,
        format: &str,
        pages: &Bound<'_, PyAny>,
        entries: usize,
        rows: &Bound<'_, PyAny>,
        level: Option<&str>,
        threads: usize,
    ) -> PyResult<()> {
        let format = record::named(format).map_err(value_error)?;
        let options = options(level, threads, "auto")?;
        let pages = Bytes::new(pages, "pages")?;
        let rows = Bytes::writable(rows, "rows")?;
        disjoint(&[&rows], &[&pages])?;
        let (pages, rows) = (pages.slice()?, rows.slice_mut()?);
        py.detach(|| record::unpack(format, pages, entries, rows, &options)).map_err(value_error)
    }

    /// Moves entries between page shapes.
    #[pyfunction]
    fn move_entries(
        py: Python<'_>,
        source: (String, usize),
        pages: &Bound<'_, PyAny>,
        target: (String, usize),
        out: &Bound<'_, PyAny>,
        count: usize,
    ) -> PyResult<()> {
        let from = (record::named(&source.0).map_err(value_error)?, source.1);
        let to = (record::named(&target.0).map_err(value_error)?, target.1);
        let pages = Bytes::new(pages, "pages")?;
        let out = Bytes::writable(out, "out")?;
        disjoint(&[&out], &[&pages])?;
        let (pages, out) = (pages.slice()?, out.slice_mut()?);
        py.detach(|| record::move_entries(from, pages, to, out, count)).map_err(value_error)
    }

    /// A page of grouped-query attention.
    #[pyclass(frozen)]
    struct GqaPage(gqa::Page);

    #[pymethods]
    impl GqaPage {
        #[new]
        fn new(preset: &str, shape: [usize; 3], order: &str, scales: &str) -> PyResult<Self> {
            let order = match order {
                "nhd" => gqa::Order::Nhd,
                "hnd" => gqa::Order::Hnd,
                _ => return Err(unknown("order", order, "nhd, hnd")),
            };
            let scales = match scales {
                "after" => gqa::Scales::After,
                "inline" => gqa::Scales::Inline,
                "after_v4x4" => gqa::Scales::AfterSwizzledV,
                _ => return Err(unknown("scales", scales, "after, inline, after_v4x4")),
            };
            Ok(Self(gqa::Page::new(preset, shape, order, scales).map_err(value_error)?))
        }

        /// Bytes of a page.
        #[getter]
        fn nbytes(&self) -> PyResult<usize> {
            self.0.bytes().map_err(value_error)
        }

        /// Bytes from one (token, head) row of codes to the next.
        #[getter]
        fn stride(&self) -> PyResult<usize> {
            self.0.stride().map_err(value_error)
        }

        /// Packs bf16 keys and values.
        fn pack(
            &self,
            py: Python<'_>,
            keys: &Bound<'_, PyAny>,
            values: &Bound<'_, PyAny>,
            k_scale: f32,
            v_scale: f32,
            page: &Bound<'_, PyAny>,
        ) -> PyResult<()> {
            let (keys, values) = (Bytes::new(keys, "keys")?, Bytes::new(values, "values")?);
            let page = Bytes::writable(page, "page")?;
            disjoint(&[&page], &[&keys, &values])?;
            let sides: [&[u16]; 2] = [keys.slice()?, values.slice()?];
            let page = page.slice_mut()?;
            py.detach(|| self.0.pack(sides, [k_scale, v_scale], page)).map_err(value_error)
        }

        /// Unpacks a page to bf16 keys and values.
        fn unpack(
            &self,
            py: Python<'_>,
            page: &Bound<'_, PyAny>,
            k_scale: f32,
            v_scale: f32,
            keys: &Bound<'_, PyAny>,
            values: &Bound<'_, PyAny>,
        ) -> PyResult<()> {
            let page = Bytes::new(page, "page")?;
            let (keys, values) =
                (Bytes::writable(keys, "keys")?, Bytes::writable(values, "values")?);
            disjoint(&[&keys, &values], &[&page])?;
            let sides: [&mut [u16]; 2] = [keys.slice_mut()?, values.slice_mut()?];
            let page = page.slice()?;
            py.detach(|| self.0.unpack(page, [k_scale, v_scale], sides)).map_err(value_error)
        }
    }

    /// Bytes of a plane of scales in a layout.
    #[pyfunction]
    fn scale_plane_bytes(layout: &str, rows: usize, groups: usize) -> PyResult<usize> {
        Ok(ScaleLayout::named(layout).map_err(value_error)?.bytes(rows, groups))
    }

    /// Lays row-major one-byte scales out.
    #[pyfunction]
    fn scales_apply(
        layout: &str,
        linear: &Bound<'_, PyAny>,
        rows: usize,
        groups: usize,
        out: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let layout = ScaleLayout::named(layout).map_err(value_error)?;
        let (linear, out) = (Bytes::new(linear, "scales")?, Bytes::writable(out, "out")?);
        disjoint(&[&out], &[&linear])?;
        layout.apply(linear.slice()?, rows, groups, out.slice_mut()?).map_err(value_error)
    }

    /// Gathers row-major scales back.
    #[pyfunction]
    fn scales_undo(
        layout: &str,
        laid: &Bound<'_, PyAny>,
        rows: usize,
        groups: usize,
        out: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let layout = ScaleLayout::named(layout).map_err(value_error)?;
        let (laid, out) = (Bytes::new(laid, "scales")?, Bytes::writable(out, "out")?);
        disjoint(&[&out], &[&laid])?;
        layout.undo(laid.slice()?, rows, groups, out.slice_mut()?).map_err(value_error)
    }

    /// Low bytes of 16-bit numbers, then high bytes.
    #[pyfunction]
    fn planes_split(
        py: Python<'_>,
        words: &Bound<'_, PyAny>,
        out: &Bound<'_, PyAny>,
        level: Option<&str>,
    ) -> PyResult<()> {
        let options = options(level, 1, "cached")?;
        let (words, out) = (Bytes::new(words, "words")?, Bytes::writable(out, "out")?);
        disjoint(&[&out], &[&words])?;
        let (words, out) = (words.slice()?, out.slice_mut()?);
        py.detach(|| planes::split(words, out, &options)).map_err(value_error)
    }

    /// Joins planes.
    #[pyfunction]
    fn planes_join(
        py: Python<'_>,
        bytes: &Bound<'_, PyAny>,
        out: &Bound<'_, PyAny>,
        level: Option<&str>,
    ) -> PyResult<()> {
        let options = options(level, 1, "cached")?;
        let (bytes, out) = (Bytes::new(bytes, "planes")?, Bytes::writable(out, "out")?);
        disjoint(&[&out], &[&bytes])?;
        let (bytes, out) = (bytes.slice()?, out.slice_mut()?);
        py.detach(|| planes::join(bytes, out, &options)).map_err(value_error)
    }

    /// Each 64 bytes of `source`, `times` times, streamed: a decode's traffic without arithmetic.
    #[pyfunction]
    fn traffic(
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        times: usize,
        out: &Bound<'_, PyAny>,
        level: Option<&str>,
    ) -> PyResult<()> {
        let options = options(level, 1, "stream")?;
        let (source, out) = (Bytes::new(source, "source")?, Bytes::writable(out, "out")?);
        disjoint(&[&out], &[&source])?;
        let (source, out) = (source.slice()?, out.slice_mut()?);
        py.detach(|| kvstore_codec::traffic(source, times, out, &options)).map_err(value_error)
    }

    /// The longest frame of `words` 16-bit numbers.
    #[pyfunction]
    fn lossless_bound(words: usize) -> usize {
        lossless::bound(words)
    }

    /// The number of words that a frame says it holds.
    #[pyfunction]
    fn lossless_words(frame: &Bound<'_, PyAny>) -> PyResult<usize> {
        let frame = Bytes::new(frame, "frame")?;
        lossless::frame_words(frame.slice()?).map_err(value_error)
    }

    /// The stride of the class that holds `encoded` bytes of an object of `raw` bytes.
    #[pyfunction]
    fn class_stride(raw: usize, unit: usize, encoded: usize) -> PyResult<usize> {
        Ok(lossless::Ladder::new(raw, unit).map_err(value_error)?.stride(encoded))
    }

    /// Working memory of lossless encodes and decodes.
    #[pyclass]
    struct Packer(lossless::Packer);

    #[pymethods]
    impl Packer {
        #[new]
        fn new() -> PyResult<Self> {
            Ok(Self(lossless::Packer::new().map_err(value_error)?))
        }

        /// Packs words into `out`; the frame's length.
        fn encode(
            &mut self,
            py: Python<'_>,
            words: &Bound<'_, PyAny>,
            out: &Bound<'_, PyAny>,
        ) -> PyResult<usize> {
            let (words, out) = (Bytes::new(words, "words")?, Bytes::writable(out, "out")?);
            disjoint(&[&out], &[&words])?;
            let (words, out) = (words.slice()?, out.slice_mut()?);
            py.detach(|| self.0.encode(words, out)).map_err(value_error)
        }

        /// Unpacks a frame into `out`.
        fn decode(
            &mut self,
            py: Python<'_>,
            frame: &Bound<'_, PyAny>,
            out: &Bound<'_, PyAny>,
        ) -> PyResult<()> {
            let (frame, out) = (Bytes::new(frame, "frame")?, Bytes::writable(out, "out")?);
            disjoint(&[&out], &[&frame])?;
            let (frame, out) = (frame.slice()?, out.slice_mut()?);
            py.detach(|| self.0.decode(frame, out)).map_err(value_error)
        }
    }
}
