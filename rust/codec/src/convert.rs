//! Encoding and decoding of matrices by a scheme, into memory that the caller supplies.

use crate::error::{Error, exact};
use crate::float::{Source, Target, bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16};
use crate::job::{Job, family};
use crate::options::{Options, STREAM_ALIGNMENT};
use crate::parallel;
use crate::scheme::{Given, Global, Plan, Planes, Scale, Scheme, decode_blocks, encode_blocks};

/// Where an encode writes: exactly the bytes that [`Scheme::sizes`] says.
#[derive(Debug)]
pub struct Encoded<'a> {
    /// Codes, row-major.
    pub codes: &'a mut [u8],
    /// Stored scales, row-major over blocks.
    pub scales: &'a mut [u8],
    /// Minima of affine schemes, else empty.
    pub mins: &'a mut [u8],
}

/// What a decode reads.
#[derive(Debug, Clone, Copy)]
pub struct Coded<'a> {
    /// Codes, row-major.
    pub codes: &'a [u8],
    /// Stored scales, row-major over blocks.
    pub scales: &'a [u8],
    /// Minima of affine schemes, else empty.
    pub mins: &'a [u8],
}

/// Checks what the caller gives beside the data (B6-08: each scale finite and above zero).
fn check_given(scheme: &Scheme, plan: &Plan, given: Given<'_>) -> Result<(), Error> {
    let fits = |value: f32| value.is_finite() && value > 0.0;
    if scheme.scale == Scale::Given {
        let blocks = plan.blocks_per_row();
        let count = given.scale.len();
        if count != 1 && (count == 0 || count != blocks) {
            return Err(Error::Argument {
                what: "scale",
                given: format!("{count} numbers"),
                wanted: format!("1, or one per block of a row ({blocks})"),
            });
        }
    } else if !given.scale.is_empty() {
        let given = format!("{} numbers", given.scale.len());
        let wanted = "none: this scheme stores its own scales".to_owned();
        return Err(Error::Argument { what: "scale", given, wanted });
    }
    if let Some((index, value)) = given.scale.iter().enumerate().find(|(_, v)| !fits(**v)) {
        return Err(Error::Scale { what: "scale", index, value: *value });
    }
    let wants_global = matches!(scheme.scale, Scale::Nv(nv) if nv.global != Global::None);
    match given.global {
        Some(value) if wants_global && !fits(value) => {
            Err(Error::Scale { what: "global_scale", index: 0, value })
        }
        // An inverse whose reciprocal overflows would make every scale infinite.
        Some(value) if wants_global && !fits(1.0 / value) => {
            Err(Error::Scale { what: "1/global_scale", index: 0, value: 1.0 / value })
        }
        Some(value) if !wants_global => Err(Error::Argument {
            what: "global_scale",
            given: value.to_string(),
            wanted: "none: this scheme has no second level".to_owned(),
        }),
        None if wants_global => Err(Error::Argument {
            what: "global_scale",
            given: "none".to_owned(),
            wanted: "a finite number above 0".to_owned(),
        }),
        _ => Ok(()),
    }
}

fn rows_of(len: usize, cols: usize) -> Result<usize, Error> {
    if cols == 0 || !len.is_multiple_of(cols) {
        let by = "the row length".to_owned();
        return Err(Error::Multiple { what: "elements", given: len, multiple: cols, by });
    }
    Ok(len / cols)
}

fn why(rows: usize, cols: usize) -> String {
    format!("{rows} rows of {cols}")
}

/// Encodes `source`, a matrix of rows of `cols` elements.
///
/// # Errors
/// Lengths that do not fit the shape, shapes that do not divide into blocks, scales missing,
/// unwanted, or not finite and positive, a level that the CPU lacks, streamed stores to a misaligned
/// destination. Nothing is written then.
pub fn encode(
    scheme: &Scheme,
    source: Source<'_>,
    cols: usize,
    given: Given<'_>,
    out: Encoded<'_>,
    options: &Options,
) -> Result<(), Error> {
    let Encoded { codes, scales, mins } = out;
    let rows = rows_of(source.len(), cols)?;
    let plan = scheme.plan(rows, cols)?;
    let sizes = scheme.sizes(rows, cols)?;
    exact("codes", codes.len(), sizes.codes, "bytes", || why(rows, cols))?;
    exact("scales", scales.len(), sizes.scales, "bytes", || why(rows, cols))?;
    exact("mins", mins.len(), sizes.mins, "bytes", || why(rows, cols))?;
    check_given(scheme, &plan, given)?;
    let kernels = options.kernels()?;
    let stream = options.streams("codes", codes.as_ptr() as usize, codes.len())?;
    let share = Share::new(scheme, &plan, options);
    let parts = share
        .sources(source)
        .zip(share.cut(codes, share.codes))
        .zip(share.cut(scales, share.scales))
        .zip(share.cut(mins, share.mins));
    parallel::pairs(parts, |(((source, codes), scales), mins)| {
        let plan = Plan { rows: source.len() / cols, ..plan };
        let planes = Planes { codes, scales, mins };
        match (source, family(scheme, cols)) {
            (Source::Bf16(s), Some(family)) => {
                let stream =
                    stream && (planes.codes.as_ptr() as usize).is_multiple_of(STREAM_ALIGNMENT);
                let job = Job::new(scheme, &plan, given, stream);
                (kernels.encode)(&job, family, s, planes.codes, planes.scales);
            }
            (Source::Bf16(s), None) => {
                encode_blocks(scheme, &plan, |i| bf16_to_f32(s[i]), given, planes);
            }
            (Source::F16(s), _) => {
                encode_blocks(scheme, &plan, |i| f16_to_f32(s[i]), given, planes);
            }
            (Source::F32(s), _) => encode_blocks(scheme, &plan, |i| s[i], given, planes),
        }
    });
    Ok(())
}

/// Decodes to `target`, a matrix of rows of `cols` elements.
///
/// Values are code x scale in fp32, rounded to nearest even for bf16 and fp16. A NaN is written as
/// the one quiet NaN 0x7FC0 (bf16) or 0x7E00 (fp16).
///
/// # Errors
/// As [`encode`].
pub fn decode(
    scheme: &Scheme,
    coded: Coded<'_>,
    cols: usize,
    given: Given<'_>,
    target: Target<'_>,
    options: &Options,
) -> Result<(), Error> {
    let rows = rows_of(target.len(), cols)?;
    let plan = scheme.plan(rows, cols)?;
    let sizes = scheme.sizes(rows, cols)?;
    exact("codes", coded.codes.len(), sizes.codes, "bytes", || why(rows, cols))?;
    exact("scales", coded.scales.len(), sizes.scales, "bytes", || why(rows, cols))?;
    exact("mins", coded.mins.len(), sizes.mins, "bytes", || why(rows, cols))?;
    check_given(scheme, &plan, given)?;
    let kernels = options.kernels()?;
    let (address, bytes) = target.span();
    let stream = options.streams("out", address, bytes)?;
    let share = Share::new(scheme, &plan, options);
    let parts = share
        .targets(target)
        .zip(share.slices(coded.codes, share.codes))
        .zip(share.slices(coded.scales, share.scales))
        .zip(share.slices(coded.mins, share.mins));
    parallel::pairs(parts, |(((target, codes), scales), mins)| {
        let plan = Plan { rows: target.len() / cols, ..plan };
        match (target, family(scheme, cols)) {
            (Target::Bf16(t), Some(family)) => {
                let stream = stream && (t.as_ptr() as usize).is_multiple_of(STREAM_ALIGNMENT);
                let job = Job::new(scheme, &plan, given, stream);
                (kernels.decode)(&job, family, codes, scales, t);
            }
            (Target::Bf16(t), None) => {
                let store = |i: usize, v| t[i] = f32_to_bf16(v);
                decode_blocks(scheme, &plan, codes, scales, mins, given, store);
            }
            (Target::F16(t), _) => {
                let store = |i: usize, v| t[i] = f32_to_f16(v);
                decode_blocks(scheme, &plan, codes, scales, mins, given, store);
            }
            (Target::F32(t), _) => {
                decode_blocks(scheme, &plan, codes, scales, mins, given, |i: usize, v| t[i] = v);
            }
        }
    });
    Ok(())
}

/// A thread's share: how many elements and bytes of each buffer, in whole blocks and words.
struct Share {
    elements: usize,
    codes: usize,
    scales: usize,
    mins: usize,
    count: usize,
}

impl Share {
    fn new(scheme: &Scheme, plan: &Plan, options: &Options) -> Self {
        // Both are powers of two, or the block is all rows.
        let unit = plan.block_rows.max(scheme.rows_per_word());
        let units = plan.rows / unit;
        let rows = options.share(2 * plan.rows * plan.cols, units) * unit;
        let scales = rows / plan.block_rows * plan.blocks_per_row() * plan.scale_bytes;
        Self {
            elements: rows * plan.cols,
            codes: rows / scheme.rows_per_word() * plan.row_bytes,
            scales,
            mins: if scheme.scale == Scale::Affine { scales } else { 0 },
            count: plan.rows.div_ceil(rows),
        }
    }

    fn sources<'a>(&self, mut source: Source<'a>) -> impl Iterator<Item = Source<'a>> + use<'a> {
        let elements = self.elements;
        (0..self.count).map(move |_| {
            let (head, rest) = source.split(elements.min(source.len()));
            source = rest;
            head
        })
    }

    fn targets<'a>(&self, target: Target<'a>) -> impl Iterator<Item = Target<'a>> + use<'a> {
        let (elements, mut rest) = (self.elements, Some(target));
        (0..self.count).filter_map(move |_| {
            let target = rest.take()?;
            let at = elements.min(target.len());
            let (head, tail) = target.split(at);
            rest = Some(tail);
            Some(head)
        })
    }

    fn cut<'a>(
        &self,
        bytes: &'a mut [u8],
        each: usize,
    ) -> impl Iterator<Item = &'a mut [u8]> + use<'a> {
        let mut rest = Some(bytes);
        (0..self.count).filter_map(move |_| {
            let bytes = rest.take()?;
            let (head, tail) = bytes.split_at_mut(each.min(bytes.len()));
            rest = Some(tail);
            Some(head)
        })
    }

    fn slices<'a>(
        &self,
        mut bytes: &'a [u8],
        each: usize,
    ) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        (0..self.count).map(move |_| {
            let (head, tail) = bytes.split_at(each.min(bytes.len()));
            bytes = tail;
            head
        })
    }
}
