//! Codes to bf16.

use super::{
    Fp8, INT8, POWER4, POWER8, POWER8_WIDE, SCALED8, SCALED8_WIDE, Simd, WIDE, moves_exponents,
    part, part_mut, round_int,
};
use crate::element::Element;
use crate::float::BF16_NAN;
use crate::job::{Family, Job, NvValues, nv_plain_values, nv_values, ordinary};
use crate::scheme::{Global, Scale};

/// Blocks from which a table of a second-level scale's values pays.
const TABLE_BLOCKS: usize = 1024;

#[inline(always)]
pub(in crate::simd) fn decode<S: Simd>(
    s: S,
    job: &Job<'_>,
    family: Family,
    codes: &[u8],
    scales: &[u8],
    target: &mut [u16],
) {
    if family == Family::Nv4 {
        let Scale::Nv(nv) = job.scheme.scale else {
            return job.decode_blocks(0, codes, scales, target);
        };
        if nv.global == Global::None {
            nv4(s, job, nv_plain_values(), codes, scales, target);
        } else if scales.len() < TABLE_BLOCKS {
            job.decode_blocks(0, codes, scales, target);
        } else {
            nv4(s, job, &nv_values(&nv, job.multiplier(&nv)), codes, scales, target);
        }
        return finish(s, job);
    }
    let wide = job.scheme.element == Element::E5M2;
    match (family, wide, job.block) {
        (Family::Power8, false, 32) => blocks::<S, POWER8, 32>(s, job, codes, scales, target),
        (Family::Power8, false, 64) => blocks::<S, POWER8, 64>(s, job, codes, scales, target),
        (Family::Power8, false, 128) => blocks::<S, POWER8, 128>(s, job, codes, scales, target),
        (Family::Power8, false, _) => blocks::<S, POWER8, 0>(s, job, codes, scales, target),
        (Family::Power8, true, _) => blocks::<S, POWER8_WIDE, 0>(s, job, codes, scales, target),
        (Family::Power4, _, 32) => blocks::<S, POWER4, 32>(s, job, codes, scales, target),
        (Family::Power4, ..) => blocks::<S, POWER4, 0>(s, job, codes, scales, target),
        (Family::Int8, _, 128) => blocks::<S, INT8, 128>(s, job, codes, scales, target),
        (Family::Int8, ..) => blocks::<S, INT8, 0>(s, job, codes, scales, target),
        (_, false, 128) => blocks::<S, SCALED8, 128>(s, job, codes, scales, target),
        (_, false, _) => blocks::<S, SCALED8, 0>(s, job, codes, scales, target),
        (_, true, _) => blocks::<S, SCALED8_WIDE, 0>(s, job, codes, scales, target),
    }
    finish(s, job);
}

#[inline(always)]
fn finish<S: Simd>(s: S, job: &Job<'_>) {
    if job.stream {
        s.fence();
    }
}

#[inline(always)]
fn blocks<S: Simd, const FAMILY: u8, const N: usize>(
    s: S,
    job: &Job<'_>,
    codes: &[u8],
    scales: &[u8],
    target: &mut [u16],
) {
    let block = if N == 0 { job.block } else { N };
    let bytes = if FAMILY == POWER4 { block / 2 } else { block };
    let size = job.scale_bytes();
    let count = target.len() / block;
    let mut index = 0;
    while index < count {
        // Wrapped products would be caught as parts outside their buffers.
        let y = part_mut(target, index.wrapping_mul(block), block);
        let c = part(codes, index.wrapping_mul(bytes), bytes);
        let stored = part(scales, index.wrapping_mul(size), size);
        let done = match (FAMILY, stored) {
            (POWER8 | POWER8_WIDE, [code]) => power8::<S, FAMILY>(s, job, *code, c, y),
            (POWER4, [code]) => power4(s, job, *code, c, y),
            (POWER4, _) => false,
            (INT8, [p, q, r, t]) => int8(s, job, f32::from_le_bytes([*p, *q, *r, *t]), c, y),
            (_, [p, q, r, t]) => {
                scaled8::<S, FAMILY>(s, job, f32::from_le_bytes([*p, *q, *r, *t]), c, y)
            }
            _ => scaled8::<S, FAMILY>(s, job, job.given_scale(index), c, y),
        };
        if !done {
            job.decode_block(index, c, stored, y);
        }
        index += 1;
    }
}

/// How 8-bit float codes become bf16 with their exponents moved by a shift (a multiple of 128).
struct Fp8Words<S: Simd, const FAMILY: u8> {
    /// What is added to shifted normal codes.
    base: S::W,
    /// Subnormals.
    steps: S::T,
}

impl<S: Simd, const FAMILY: u8> Fp8Words<S, FAMILY> {
    const FORMAT: Fp8 = Fp8::of(FAMILY);

    #[inline(always)]
    fn new(s: S, shift: u16) -> Self {
        let steps = if FAMILY & WIDE == 0 { &E4M3_STEPS } else { &E5M2_STEPS };
        let base = (((Self::FORMAT.lowest - 1) << 7) as u16).wrapping_add(shift);
        Self { base: s.splat(base), steps: s.moved_table(steps, shift) }
    }

    #[inline(always)]
    fn decode(&self, s: S, v: S::W) -> S::W {
        let mantissa = Self::FORMAT.mantissa;
        let magnitude = s.and(v, s.splat(0x7F));
        let normal = s.add(s.shl(magnitude, 7 - mantissa), self.base);
        let step = s.look(self.steps, magnitude);
        let value = s.if_above(s.splat(1 << mantissa), magnitude, step, normal);
        let sign = s.shl(s.and(v, s.splat(0x80)), 8);
        let signed = s.or(value, sign);
        let nan = s.splat(BF16_NAN);
        if FAMILY & WIDE == 0 {
            return s.if_above(magnitude, s.splat(0x7E), nan, signed);
        }
        // Above the largest finite code an infinity, then NaN without a sign.
        let infinity = s.or(s.splat(0x7F80), sign);
        let above = s.if_above(magnitude, s.splat(0x7C), nan, infinity);
        s.if_above(magnitude, s.splat(0x7B), above, signed)
    }
}

/// bf16 bits of E4M3's 0 to 7 steps of 2^-9.
const E4M3_STEPS: [u16; 8] = [0, 0x3B00, 0x3B80, 0x3BC0, 0x3C00, 0x3C20, 0x3C40, 0x3C60];
/// bf16 bits of E5M2's 0 to 3 steps of 2^-16.
const E5M2_STEPS: [u16; 8] = [0, 0x3780, 0x3800, 0x3840, 0, 0, 0, 0];

/// What a power-of-two scale adds to bf16 exponents.
#[inline(always)]
fn shift(code: u8) -> u16 {
    (u16::from(code) << 7).wrapping_sub(127 << 7)
}

#[inline(always)]
fn power8<S: Simd, const FAMILY: u8>(
    s: S,
    job: &Job<'_>,
    code: u8,
    codes: &[u8],
    target: &mut [u16],
) -> bool {
    if !moves_exponents(code) {
        return false;
    }
    let words = Fp8Words::<S, FAMILY>::new(s, shift(code));
    let mut i = 0;
    while i < target.len() {
        let y = part_mut(target, i, S::LANES);
        let c = part(codes, i, S::LANES);
        s.store(words.decode(s, s.load_bytes(c)), y, job.stream);
        i += S::LANES;
    }
    true
}

/// fp32 products to bf16, nearest even; NaN does not occur or is quiet with zeros below.
#[inline(always)]
fn narrow<S: Simd>(s: S, even: S::F, odd: S::F) -> S::W {
    s.merge(s.shr_int(round_int(s, even, 16), 16), round_int(s, odd, 16))
}

#[inline(always)]
fn scaled8<S: Simd, const FAMILY: u8>(
    s: S,
    job: &Job<'_>,
    scale: f32,
    codes: &[u8],
    target: &mut [u16],
) -> bool {
    if !ordinary(scale) {
        return false;
    }
    let codes_to_words = Fp8Words::<S, FAMILY>::new(s, 0);
    let by = s.splat_float(scale);
    let mut i = 0;
    while i < target.len() {
        let y = part_mut(target, i, S::LANES);
        let c = part(codes, i, S::LANES);
        let words = codes_to_words.decode(s, s.load_bytes(c));
        let (even, odd) = (s.multiply(s.even(words), by), s.multiply(s.odd(words), by));
        s.store(narrow(s, even, odd), y, job.stream);
        i += S::LANES;
    }
    true
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
        let v = s.load_bytes(c);
        let even = s.sar_int(s.even(s.shl(v, 8)), 24);
        let odd = s.sar_int(s.odd(s.shl(v, 8)), 24);
        let (even, odd) = (s.to_float(even), s.to_float(odd));
        s.store(narrow(s, s.multiply(even, by), s.multiply(odd, by)), y, job.stream);
        i += S::LANES;
    }
    true
}

/// bf16 bits of E2M1's magnitudes.
const E2M1_VALUES: [u16; 8] = [0, 0x3F00, 0x3F80, 0x3FC0, 0x4000, 0x4040, 0x4080, 0x40C0];

#[inline(always)]
fn power4<S: Simd>(s: S, job: &Job<'_>, code: u8, codes: &[u8], target: &mut [u16]) -> bool {
    if !moves_exponents(code) {
        return false;
    }
    let values = s.moved_table(&E2M1_VALUES, shift(code));
    let mut i = 0;
    while i < target.len() {
        let y = part_mut(target, i, S::LANES);
        let c = part(codes, i / 2, S::LANES / 2);
        let v = s.load_nibbles(c);
        let value = s.look(values, s.and(v, s.splat(7)));
        let sign = s.shl(s.and(v, s.splat(8)), 12);
        s.store(s.or(value, sign), y, job.stream);
        i += S::LANES;
    }
    true
}

#[inline(always)]
fn nv4<S: Simd>(
    s: S,
    job: &Job<'_>,
    values: &NvValues,
    codes: &[u8],
    scales: &[u8],
    target: &mut [u16],
) {
    let group = S::LANES / 16;
    let blocks = target.len() / 16;
    let mut index = 0;
    while index + group <= blocks {
        let y = part_mut(target, index * 16, S::LANES);
        let c = part(codes, index * 8, S::LANES / 2);
        let stored = part(scales, index, group);
        let (first, last) = (stored[0], stored[group - 1]);
        if first & 0x7F == 0x7F || last & 0x7F == 0x7F {
            // A NaN scale: the sign of its elements is dropped, which the kernel does not do.
            job.decode_blocks(index, c, stored, y);
        } else {
            let tables = [&values[usize::from(first)], &values[usize::from(last)]];
            let v = s.load_nibbles(c);
            let value = s.lookup(s.and(v, s.splat(7)), tables);
            let sign = s.shl(s.and(v, s.splat(8)), 12);
            s.store(s.xor(value, sign), y, job.stream);
        }
        index += group;
    }
    let rest = blocks - index;
    let y = part_mut(target, index * 16, rest * 16);
    job.decode_blocks(index, part(codes, index * 8, rest * 8), part(scales, index, rest), y);
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
