//! Packing rows into pages, unpacking them, and moving entries between page shapes.

use super::{Coding, Format, Part, ScaleOrder};
use crate::element::Cast;
use crate::error::{Error, exact};
use crate::float::{bf16_to_f32, f32_to_bf16};
use crate::options::Options;
use crate::parallel;
use crate::rows::Rows;
use crate::scheme::Given;

/// Scale bytes of one entry's part that are held on the stack while they are permuted.
const MOST_SCALES: usize = 64;

/// Parts of one format.
const MOST_PARTS: usize = 4;

/// A part with its row codec.
struct Bound {
    part: Part,
    rows: Option<Rows>,
}

/// The parts of a format with their row codecs, on the stack: packing allocates nothing.
fn bind(format: &Format, options: &Options) -> Result<[Option<Bound>; MOST_PARTS], Error> {
    let mut bound = [const { None }; MOST_PARTS];
    if format.parts.len() > MOST_PARTS {
        let given = format!("{} parts", format.parts.len());
        return Err(Error::Argument {
            what: "format",
            given,
            wanted: format!("at most {MOST_PARTS}"),
        });
    }
    for (slot, part) in bound.iter_mut().zip(&format.parts) {
        let rows = match part.coding {
            Coding::Scheme { scheme, .. } => {
                Some(Rows::new(&scheme, part.cols, options.kernels()?)?)
            }
            _ => None,
        };
        if rows.is_some_and(|rows| rows.scale_bytes > MOST_SCALES) {
            let given = format!("{} columns in one part", part.cols);
            let wanted = format!("at most {MOST_SCALES} bytes of scales");
            return Err(Error::Argument { what: "format", given, wanted });
        }
        *slot = Some(Bound { part: *part, rows });
    }
    Ok(bound)
}

/// Checks that `pages` are whole pages that hold `rows` entries; gives their number.
fn check(format: &Format, entries: usize, rows: usize, pages: usize) -> Result<(), Error> {
    if entries == 0 {
        return Err(Error::Argument {
            what: "entries",
            given: "0".to_owned(),
            wanted: "at least 1 per page".to_owned(),
        });
    }
    let count = rows.div_ceil(entries);
    exact("pages", pages, count * format.page_bytes(entries), "bytes", || {
        let bytes = format.page_bytes(entries);
        format!("{rows} entries of {} in pages of {entries} ({bytes} bytes)", format.name)
    })
}

fn rows_of(format: &Format, elements: usize) -> Result<usize, Error> {
    if elements.is_multiple_of(format.dim) {
        return Ok(elements / format.dim);
    }
    let by = format!("rows of {}", format.name);
    Err(Error::Multiple { what: "elements", given: elements, multiple: format.dim, by })
}

/// Packs bf16 rows of `format.dim` elements into pages of `entries`; what a last page does not fill
/// is zero, padding too, so that equal rows give equal bytes.
///
/// # Errors
/// Rows that are not whole, or pages of another length than the rows need.
pub fn pack(
    format: &Format,
    rows: &[u16],
    entries: usize,
    pages: &mut [u8],
    options: &Options,
) -> Result<(), Error> {
    let count = rows_of(format, rows.len())?;
    check(format, entries, count, pages.len())?;
    let bound = bind(format, options)?;
    let (page_bytes, page_rows) = (format.page_bytes(entries), entries * format.dim);
    let share = options.share(2 * rows.len(), count.div_ceil(entries));
    parallel::pairs(
        rows.chunks(share * page_rows).zip(pages.chunks_mut(share * page_bytes)),
        |(rows, pages)| {
            for (page, rows) in pages.chunks_exact_mut(page_bytes).zip(rows.chunks(page_rows)) {
                pack_page(format, &bound, entries, rows, page);
            }
        },
    );
    Ok(())
}

fn pack_page(
    format: &Format,
    bound: &[Option<Bound>],
    entries: usize,
    rows: &[u16],
    page: &mut [u8],
) {
    let used = rows.len() / format.dim;
    page[used * format.data_bytes..].fill(0);
    for (k, row) in rows.chunks_exact(format.dim).enumerate() {
        for bound in bound.iter().flatten() {
            encode_part(format, bound, entries, k, row, page);
        }
    }
}

fn encode_part(
    format: &Format,
    bound: &Bound,
    entries: usize,
    k: usize,
    row: &[u16],
    page: &mut [u8],
) {
    let Part { col, cols, at, coding } = bound.part;
    let row = &row[col..col + cols];
    let at = format.offset(entries, k, at);
    match (coding, &bound.rows) {
        (Coding::Scheme { scales, order, .. }, Some(codec)) => {
            let scales = format.offset(entries, k, scales);
            let mut stored = [0u8; MOST_SCALES];
            let stored = &mut stored[..codec.scale_bytes];
            codec.encode(row, Given::default(), &mut page[at..at + codec.code_bytes], stored);
            place_scales(order, stored, &mut page[scales..scales + codec.scale_bytes]);
        }
        (Coding::Cast(element), _) => {
            for (byte, bits) in page[at..at + cols].iter_mut().zip(row) {
                *byte = element.encode(bf16_to_f32(*bits), Cast::CANONICAL);
            }
        }
        _ => {
            for (bytes, bits) in page[at..at + 2 * cols].chunks_exact_mut(2).zip(row) {
                bytes.copy_from_slice(&bits.to_le_bytes());
            }
        }
    }
}

/// Writes scales in `order`; gathered back by [`gather_scales`].
fn place_scales(order: ScaleOrder, linear: &[u8], out: &mut [u8]) {
    match order {
        ScaleOrder::Linear => out.copy_from_slice(linear),
        ScaleOrder::Strided4 => {
            for (s, byte) in linear.iter().enumerate() {
                out[order.position(s, linear.len())] = *byte;
            }
        }
    }
}

fn gather_scales(order: ScaleOrder, stored: &[u8], linear: &mut [u8]) {
    for (s, byte) in linear.iter_mut().enumerate() {
        *byte = stored[order.position(s, stored.len())];
    }
}

/// Unpacks the first `rows.len() / dim` entries of pages of `entries` to bf16 rows.
///
/// # Errors
/// As [`pack`].
pub fn unpack(
    format: &Format,
    pages: &[u8],
    entries: usize,
    rows: &mut [u16],
    options: &Options,
) -> Result<(), Error> {
    let count = rows_of(format, rows.len())?;
    check(format, entries, count, pages.len())?;
    let bound = bind(format, options)?;
    let (page_bytes, page_rows) = (format.page_bytes(entries), entries * format.dim);
    let share = options.share(2 * rows.len(), count.div_ceil(entries));
    parallel::pairs(
        rows.chunks_mut(share * page_rows).zip(pages.chunks(share * page_bytes)),
        |(rows, pages)| {
            for (page, rows) in pages.chunks_exact(page_bytes).zip(rows.chunks_mut(page_rows)) {
                for (k, row) in rows.chunks_exact_mut(format.dim).enumerate() {
                    for bound in bound.iter().flatten() {
                        decode_part(format, bound, entries, k, page, row);
                    }
                }
            }
        },
    );
    Ok(())
}

fn decode_part(
    format: &Format,
    bound: &Bound,
    entries: usize,
    k: usize,
    page: &[u8],
    row: &mut [u16],
) {
    let Part { col, cols, at, coding } = bound.part;
    let row = &mut row[col..col + cols];
    let at = format.offset(entries, k, at);
    match (coding, &bound.rows) {
        (Coding::Scheme { scales, order, .. }, Some(codec)) => {
            let scales = format.offset(entries, k, scales);
            let mut linear = [0u8; MOST_SCALES];
            let linear = &mut linear[..codec.scale_bytes];
            gather_scales(order, &page[scales..scales + codec.scale_bytes], linear);
            codec.decode(&page[at..at + codec.code_bytes], linear, Given::default(), row);
        }
        (Coding::Cast(element), _) => {
            for (bits, byte) in row.iter_mut().zip(&page[at..at + cols]) {
                *bits = f32_to_bf16(element.decode(*byte));
            }
        }
        _ => {
            for (bits, bytes) in row.iter_mut().zip(page[at..at + 2 * cols].chunks_exact(2)) {
                *bits = u16::from_le_bytes([bytes[0], bytes[1]]);
            }
        }
    }
}

/// Moves `count` entries between page shapes and placements without re-encoding.
///
/// `from` and `to` are (format, entries per page). What the last page of `to` does not fill is zero.
///
/// # Errors
/// Formats that code other columns or by other rules, and lengths as in [`pack`].
pub fn move_entries(
    from: (&Format, usize),
    source: &[u8],
    to: (&Format, usize),
    target: &mut [u8],
    count: usize,
) -> Result<(), Error> {
    if !from.0.moves_to(to.0) {
        return Err(Error::Argument {
            what: "to",
            given: to.0.name.to_owned(),
            wanted: format!("a format with the columns and rules of {}", from.0.name),
        });
    }
    check(from.0, from.1, count, source.len())?;
    check(to.0, to.1, count, target.len())?;
    target.fill(0);
    let bound = bind(from.0, &Options::default())?;
    for index in 0..count {
        let locate = |(format, entries): (&Format, usize), place| {
            let page = index / entries * format.page_bytes(entries);
            page + format.offset(entries, index % entries, place)
        };
        for (b, other) in bound.iter().flatten().zip(&to.0.parts) {
            let bytes = match (b.part.coding, &b.rows) {
                (_, Some(codec)) => codec.code_bytes,
                (Coding::Cast(_), _) => b.part.cols,
                _ => 2 * b.part.cols,
            };
            let (s, t) = (locate(from, b.part.at), locate(to, other.at));
            target[t..t + bytes].copy_from_slice(&source[s..s + bytes]);
            if let (
                Coding::Scheme { scales: s, order, .. },
                Coding::Scheme { scales: t, order: other, .. },
                Some(codec),
            ) = (b.part.coding, other.coding, &b.rows)
            {
                let (s, t, bytes) = (locate(from, s), locate(to, t), codec.scale_bytes);
                let mut linear = [0u8; MOST_SCALES];
                gather_scales(order, &source[s..s + bytes], &mut linear[..bytes]);
                place_scales(other, &linear[..bytes], &mut target[t..t + bytes]);
            }
        }
    }
    Ok(())
}
