//! Codes to bf16.

use super::{POWER8, POWER8_WIDE, SCALED8, SCALED8_WIDE, Simd, fp8, part, part_mut};
use crate::element::Element;
use crate::job::{
    Family, Fp4Table, Fp4Values, Job, fp4_nv_table, fp4_power_table, fp4_table, ordinary,
};
use crate::scheme::{Global, Scale, nv_total};

/// Blocks from which a table of a second-level scale's values pays.
const TABLE_BLOCKS: usize = 1024;

/// Elements of a piece: streamed results are written to two places in turn, a KiB each.
pub(super) const PIECE: usize = 512;

#[inline(always)]
pub(in crate::simd) fn decode<S: Simd>(
    s: S,
    job: &Job<'_>,
    family: Family,
    codes: &[u8],
    scales: &[u8],
    target: &mut [u16],
) {
    let made;
    let table = match (family, job.scheme.scale) {
        (Family::Power4, _) if job.scale_bytes() == 1 => Some(fp4_power_table()),
        (Family::Nv4, Scale::Nv(nv)) if nv.global == Global::None => Some(fp4_nv_table()),
        (Family::Nv4, Scale::Nv(nv)) if scales.len() >= TABLE_BLOCKS => {
            let multiplier = job.multiplier(&nv);
            made = fp4_table(|code| nv_total(&nv, code, multiplier));
            Some(&made)
        }
        (Family::Power4 | Family::Nv4, _) => {
            return job.decode_blocks(0, codes, scales, target);
        }
        _ => None,
    };
    let (piece, pairs) = pieces(job, target.len());
    let (half, size) = (pairs * piece, job.scale_bytes());
    let mut i = 0;
    while i <= 2 * pairs {
        // From the first half and the second in turn, then what is left.
        let at = if i < 2 * pairs { i / 2 * piece + i % 2 * half } else { 2 * half };
        let len = if i < 2 * pairs { piece } else { target.len() - at };
        let (first, blocks) = (at / job.block, len / job.block);
        let c = part(codes, first * job.block_bytes, blocks * job.block_bytes);
        let stored = part(scales, first * size, blocks * size);
        rows(s, job, family, table, c, stored, part_mut(target, at, len));
        i += 1;
    }
    if job.stream {
        s.fence();
    }
}

/// Elements of a piece of whole rows, and how many pairs of them are written in turn.
///
/// Memory takes lines for two places faster than for one (here a seventh faster); each piece starts
/// on a line.
#[inline(always)]
fn pieces(job: &Job<'_>, len: usize) -> (usize, usize) {
    let row = job.across * job.block;
    let piece = if row < PIECE { PIECE / row * row } else { row };
    let suits = job.stream && piece % 32 == 0;
    (piece, if suits { len / 2 / piece } else { 0 })
}

/// Whole rows.
#[inline(always)]
fn rows<S: Simd>(
    s: S,
    job: &Job<'_>,
    family: Family,
    table: Option<&Fp4Table>,
    codes: &[u8],
    scales: &[u8],
    target: &mut [u16],
) {
    if let Some(table) = table {
        return match job.block {
            16 => fp4::<S, 16>(s, job, table, codes, scales, target),
            32 => fp4::<S, 32>(s, job, table, codes, scales, target),
            128 => fp4::<S, 128>(s, job, table, codes, scales, target),
            _ => fp4::<S, 0>(s, job, table, codes, scales, target),
        };
    }
    let wide = job.scheme.element == Element::E5M2;
    match (family, wide, job.block) {
        (Family::Power8, false, 32) => fp8::powers::<S, POWER8, 32>(s, job, codes, scales, target),
        (Family::Power8, false, 64) => fp8::powers::<S, POWER8, 64>(s, job, codes, scales, target),
        (Family::Power8, false, 128) => {
            fp8::powers::<S, POWER8, 128>(s, job, codes, scales, target);
        }
        (Family::Power8, false, _) => fp8::powers::<S, POWER8, 0>(s, job, codes, scales, target),
        (Family::Power8, true, _) => {
            fp8::powers::<S, POWER8_WIDE, 0>(s, job, codes, scales, target);
        }
        (Family::Int8, _, 128) => int8_blocks::<S, 128>(s, job, codes, scales, target),
        (Family::Int8, ..) => int8_blocks::<S, 0>(s, job, codes, scales, target),
        (_, false, 128) => fp8::scaled::<S, SCALED8, 128>(s, job, codes, scales, target),
        (_, false, _) => fp8::scaled::<S, SCALED8, 0>(s, job, codes, scales, target),
        (_, true, _) => fp8::scaled::<S, SCALED8_WIDE, 0>(s, job, codes, scales, target),
    }
}

/// All blocks of int8, each of `N` elements, or of any number for 0.
#[inline(always)]
fn int8_blocks<S: Simd, const N: usize>(
    s: S,
    job: &Job<'_>,
    codes: &[u8],
    scales: &[u8],
    target: &mut [u16],
) {
    let block = if N == 0 { job.block } else { N };
    let count = target.len() / block;
    let mut index = 0;
    while index < count {
        // Wrapped products would be caught as parts outside their buffers.
        let y = part_mut(target, index.wrapping_mul(block), block);
        let c = part(codes, index.wrapping_mul(block), block);
        let stored = part(scales, index.wrapping_mul(4), 4);
        let scale = f32::from_le_bytes([stored[0], stored[1], stored[2], stored[3]]);
        if !int8(s, job, scale, c, y) {
            job.decode_block(index, c, stored, y);
        }
        index += 1;
    }
}

/// fp32 products to bf16, nearest even; NaN does not occur or is quiet with zeros below.
#[inline(always)]
fn narrow<S: Simd>(s: S, even: S::F, odd: S::F) -> S::W {
    let high = s.merge(s.shr_int(even, 16), odd);
    let low = s.merge(even, s.shl_int(odd, 16));
    // A half rounds up to an even number only: one less than half does not round up.
    let even_down = s.xor(s.and(high, s.splat(1)), s.splat(1));
    s.add(high, s.shr(s.sub_to_zero(low, even_down), 15))
}

#[inline(always)]
fn int8<S: Simd>(s: S, job: &Job<'_>, scale: f32, codes: &[u8], target: &mut [u16]) -> bool {
    if !ordinary(scale) {
        return false;
    }
    let by = s.splat_float(scale);
    let mut i = 0;
    while i < target.len() {
        let y = part_mut(target, i, S::LANES);
        let c = part(codes, i, S::LANES);
        let v = s.load_signed_bytes(c);
        let (even, odd) = (s.to_float(s.even_int(v)), s.to_float(s.odd_int(v)));
        s.store(narrow(s, s.multiply(even, by), s.multiply(odd, by)), y, job.stream);
        i += S::LANES;
    }
    true
}

/// All blocks of E2M1, each of `N` elements, or of any multiple of 16 for 0.
#[inline(always)]
fn fp4<S: Simd, const N: usize>(
    s: S,
    job: &Job<'_>,
    table: &Fp4Table,
    codes: &[u8],
    scales: &[u8],
    target: &mut [u16],
) {
    let block = if N == 0 { job.block } else { N };
    let step = 2 * S::LANES;
    let mut i = 0;
    while i + step <= target.len() {
        let [near, far] = fp4_words(s, table, block, part(codes, i / 2, S::LANES), scales, i);
        s.store(near, part_mut(target, i, S::LANES), job.stream);
        s.store(far, part_mut(target, i + S::LANES, S::LANES), job.stream);
        i += step;
    }
    let left = target.len() - i;
    if left > 0 {
        let mut padded = [0; 32];
        part_mut(&mut padded, 0, left / 2).copy_from_slice(part(codes, i / 2, left / 2));
        let [near, far] = fp4_words(s, table, block, &padded, scales, i);
        let mut words = [0; 64];
        s.store(near, &mut words, false);
        s.store(far, part_mut(&mut words, S::LANES, S::LANES), false);
        part_mut(target, i, left).copy_from_slice(part(&words, 0, left));
    }
}

/// The words of `S::LANES` bytes of codes, whose first element is number `first`.
#[inline(always)]
fn fp4_words<S: Simd>(
    s: S,
    table: &Fp4Table,
    block: usize,
    codes: &[u8],
    scales: &[u8],
    first: usize,
) -> [S::W; 2] {
    let a = fp4_values(table, scales, first / block);
    let b = fp4_values(table, scales, (first + 16) / block);
    let c = fp4_values(table, scales, (first + 32) / block);
    let d = fp4_values(table, scales, (first + 48) / block);
    let index = s.load_nibbles(codes);
    let low = s.look_bytes(s.lane_tables([&a.low, &b.low, &c.low, &d.low]), index);
    let high = s.look_bytes(s.lane_tables([&a.high, &b.high, &c.high, &d.high]), index);
    s.zip(low, high)
}

/// The values of a block; of the last one for an index past it.
#[inline(always)]
fn fp4_values<'a>(table: &'a Fp4Table, scales: &[u8], index: usize) -> &'a Fp4Values {
    let last = scales.len() - 1;
    &table[usize::from(scales[if index < last { index } else { last }])]
}

/// Byte planes to words.
#[inline(always)]
pub(in crate::simd) fn join<S: Simd>(s: S, low: &[u8], high: &[u8], words: &mut [u16]) {
    let whole = words.len() / S::LANES * S::LANES;
    let mut i = 0;
    while i < whole {
        let (low, high) = (part(low, i, S::LANES), part(high, i, S::LANES));
        let word = s.or(s.load_bytes(low), s.shl(s.load_bytes(high), 8));
        s.store(word, part_mut(words, i, S::LANES), false);
        i += S::LANES;
    }
    crate::planes::join_scalar(&low[whole..], &high[whole..], &mut words[whole..]);
}
