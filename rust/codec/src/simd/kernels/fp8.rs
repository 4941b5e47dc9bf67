//! 8-bit floats to bf16, a register of codes at a time.
//!
//! The words of one scale follow from 16 bytes of exponents and 16 of mantissas: subnormal codes
//! look up entries of their own, normal ones those of their mantissa and add their exponent. Both
//! halves of a word are made as bytes, and zipped. Scaling by powers of two commutes with rounding,
//! so the tables of any ordinary scale hold the rounded products.

use super::{E4M3, E5M2, Fp8, Simd, WIDE, moves_exponents, part, part_mut, round_int};
use crate::job::{Job, ordinary};

/// The two halves of bf16 words by code: 0 to 2^m - 1 the subnormals, the next 2^m the mantissas of
/// normal numbers at exponent field 0.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
struct Table {
    /// bf16 exponents less one; 0 for zero.
    exponents: [u8; 16],
    /// The low bytes: the exponents' last bits, and mantissas.
    low: [u8; 16],
}

const EMPTY: Table = Table { exponents: [0; 16], low: [0; 16] };

/// bf16 bits of a table's entries at scale 1.
const fn entries(format: Fp8) -> [u16; 16] {
    let normals = 1 << format.mantissa;
    let mut words = [0; 16];
    let mut i = 1u32;
    while i < 2 * normals {
        let top = i.ilog2().cast_signed();
        // Subnormals are i steps; a normal one at exponent field 0 has half of that.
        let exponent = format.lowest - format.mantissa + top - if i < normals { 0 } else { 1 };
        words[i as usize] = ((exponent as u16) << 7) | ((i << (7 - top)) & 0x7F) as u16;
        i += 1;
    }
    words
}

/// The table of each E8M0 code; what leaves bf16's exponents is never looked up.
const fn tables(format: Fp8) -> [Table; 256] {
    let words = entries(format);
    let mut tables = [EMPTY; 256];
    let mut code = 0;
    while code < 256 {
        let mut i = 1;
        while i < 16 && words[i] != 0 {
            let word = words[i].wrapping_add((code as u16).wrapping_sub(127) << 7);
            tables[code].exponents[i] = ((word >> 7) as u8).wrapping_sub(1);
            tables[code].low[i] = word as u8;
            i += 1;
        }
        code += 1;
    }
    tables
}

static E4M3_TABLES: [Table; 256] = tables(E4M3);
static E5M2_TABLES: [Table; 256] = tables(E5M2);

/// Entries at scale 1, and again from the ninth on.
static E4M3_ENTRIES: [[u16; 16]; 2] = halves(entries(E4M3));
static E5M2_ENTRIES: [[u16; 16]; 2] = halves(entries(E5M2));

const fn halves(words: [u16; 16]) -> [[u16; 16]; 2] {
    let mut found = [words, [0; 16]];
    let mut i = 8;
    while i < 16 {
        found[1][i - 8] = words[i];
        i += 1;
    }
    found
}

impl Table {
    /// The table of an fp32 scale.
    #[inline(always)]
    fn scaled<S: Simd>(s: S, entries: &[[u16; 16]; 2], scale: f32) -> Self {
        let by = s.splat_float(scale);
        let mut table = EMPTY;
        let mut i = 0;
        while i < 16 {
            let product = s.multiply(s.widen(&entries[i / 8]), by);
            let rounded = round_int(s, product, 16);
            let less = s.sub_int(s.shr_int(rounded, 23), s.splat_int(1));
            let exponents = s.max_int(less, s.splat_int(0));
            let low = s.and_int(s.shr_int(rounded, 16), s.splat_int(0xFF));
            s.store_low_bytes(exponents, part_mut(&mut table.exponents, i, S::LANES / 2));
            s.store_low_bytes(low, part_mut(&mut table.low, i, S::LANES / 2));
            i += S::LANES / 2;
        }
        table
    }
}

/// All blocks of 8-bit floats with E8M0 scales, each of `N` elements, or of any number for 0.
#[inline(always)]
pub(super) fn powers<S: Simd, const FAMILY: u8, const N: usize>(
    s: S,
    job: &Job<'_>,
    codes: &[u8],
    scales: &[u8],
    target: &mut [u16],
) {
    if job.scale_bytes() != 1 {
        return scaled::<S, FAMILY, N>(s, job, codes, scales, target);
    }
    let tables = if FAMILY & WIDE == 0 { &E4M3_TABLES } else { &E5M2_TABLES };
    let block = if N == 0 { job.block } else { N };
    let count = target.len() / block;
    // Blocks of half a register go in pairs.
    let most = if block < 2 * S::LANES { 2 } else { 1 };
    let mut index = 0;
    while index < count {
        let group = if count - index < most { 1 } else { most };
        // Wrapped products would be caught as parts outside their buffers.
        let y = part_mut(target, index.wrapping_mul(block), group * block);
        let c = part(codes, index.wrapping_mul(block), group * block);
        let stored = part(scales, index, group);
        let (near, far) = (stored[0], stored[group - 1]);
        let pair = [&tables[usize::from(near)], &tables[usize::from(far)]];
        let usual = moves_exponents(near) && moves_exponents(far);
        if !usual || !words::<S, FAMILY>(s, pair, c, y, job.stream) {
            job.decode_blocks(index, c, stored, y);
        }
        index += group;
    }
}

/// All blocks of 8-bit floats with fp32 scales, stored or given.
#[inline(always)]
pub(super) fn scaled<S: Simd, const FAMILY: u8, const N: usize>(
    s: S,
    job: &Job<'_>,
    codes: &[u8],
    scales: &[u8],
    target: &mut [u16],
) {
    let entries = if FAMILY & WIDE == 0 { &E4M3_ENTRIES } else { &E5M2_ENTRIES };
    let block = if N == 0 { job.block } else { N };
    let size = job.scale_bytes();
    let count = target.len() / block;
    let mut index = 0;
    while index < count {
        let y = part_mut(target, index.wrapping_mul(block), block);
        let c = part(codes, index.wrapping_mul(block), block);
        let stored = part(scales, index.wrapping_mul(size), size);
        let scale = match stored {
            [p, q, r, t] => f32::from_le_bytes([*p, *q, *r, *t]),
            _ => job.given_scale(index),
        };
        let table = Table::scaled(s, entries, scale);
        if !ordinary(scale) || !words::<S, FAMILY>(s, [&table, &table], c, y, job.stream) {
            job.decode_block(index, c, stored, y);
        }
        index += 1;
    }
}

/// The words of one block, or of two of half a register; `false` where a code is no finite number.
#[inline(always)]
fn words<S: Simd, const FAMILY: u8>(
    s: S,
    [first, second]: [&Table; 2],
    codes: &[u8],
    target: &mut [u16],
    stream: bool,
) -> bool {
    let step = 2 * S::LANES;
    let exponents = s.byte_tables([&first.exponents, &second.exponents]);
    let low = s.byte_tables([&first.low, &second.low]);
    let format = const { Fp8::of(FAMILY) };
    let mut largest = s.splat(0);
    let mut i = 0;
    while i + step <= codes.len() {
        let c = s.load_whole(part(codes, i, step));
        largest = s.max_bytes(largest, s.and(c, s.splat_byte(0x7F)));
        let [near, far] = pair::<S, FAMILY>(s, exponents, low, c);
        s.store(near, part_mut(target, i, S::LANES), stream);
        s.store(far, part_mut(target, i + S::LANES, S::LANES), stream);
        i += step;
    }
    if i < codes.len() {
        // Half a register, of codes that are followed by zeros.
        let mut padded = [0; 64];
        part_mut(&mut padded, 0, S::LANES).copy_from_slice(part(codes, i, S::LANES));
        let c = s.load_whole(&padded);
        largest = s.max_bytes(largest, s.and(c, s.splat_byte(0x7F)));
        let [near, _] = pair::<S, FAMILY>(s, exponents, low, c);
        s.store(near, part_mut(target, i, S::LANES), stream);
    }
    !s.any_byte_above(largest, format.largest as u8)
}

#[inline(always)]
fn pair<S: Simd, const FAMILY: u8>(s: S, exponents: S::W, low: S::W, c: S::W) -> [S::W; 2] {
    let mantissa = const { Fp8::of(FAMILY) }.mantissa;
    let normals = 1 << mantissa;
    let magnitude = s.and(c, s.splat_byte(0x7F));
    let place = s.or(s.and(c, s.splat_byte(normals - 1)), s.splat_byte(normals));
    let index = s.min_bytes(magnitude, place);
    let binade = s.and(s.shr(c, mantissa), s.splat_byte(0x7F >> mantissa));
    // Half of the exponent is in the high byte, its last bit in the low one.
    let half = s.average_bytes(s.look_bytes(exponents, index), binade);
    let high = s.or(half, s.and(c, s.splat_byte(0x80)));
    let last = s.and(s.shl(c, 7 - mantissa), s.splat_byte(0x80));
    s.zip(s.xor(s.look_bytes(low, index), last), high)
}
