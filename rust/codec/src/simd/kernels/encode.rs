//! bf16 to codes.

use super::{Fp8, POWER_CODES, Simd, round_int};
use crate::element::{Element, ZeroSign};
use crate::float::{Rounding, bf16_to_f32};
use crate::job::{Family, Job, nv_table, ordinary};
use crate::scheme::{Quotient, Scale, linear_scale, nv_total, power_of_two_code};

const INFINITY: u16 = 0x7F80;

#[inline(always)]
pub(in crate::simd) fn encode<S: Simd>(
    s: S,
    job: &Job<'_>,
    family: Family,
    source: &[u16],
    codes: &mut [u8],
    scales: &mut [u8],
) {
    match family {
        Family::Nv4 => nv4(s, job, source, codes, scales),
        // Constant lengths let the loops over a block unroll.
        _ if job.block == 32 => blocks::<S, 32>(s, job, family, source, codes, scales),
        _ if job.block == 64 => blocks::<S, 64>(s, job, family, source, codes, scales),
        _ if job.block == 128 => blocks::<S, 128>(s, job, family, source, codes, scales),
        _ => blocks::<S, 0>(s, job, family, source, codes, scales),
    }
    if job.stream {
        s.fence();
    }
}

/// All blocks, each of `N` elements, or of any number for 0.
#[inline(always)]
fn blocks<S: Simd, const N: usize>(
    s: S,
    job: &Job<'_>,
    family: Family,
    source: &[u16],
    codes: &mut [u8],
    scales: &mut [u8],
) {
    let block = if N == 0 { job.block } else { N };
    let bytes = if family == Family::Power4 { block / 2 } else { block };
    let size = job.scale_bytes();
    let pairs = source.chunks_exact(block).zip(codes.chunks_exact_mut(bytes));
    for (index, (x, c)) in pairs.enumerate() {
        let stored = &mut scales[index * size..][..size];
        let done = match family {
            Family::Power8 if job.scheme.element == Element::E5M2 => {
                power8::<S, true>(s, job, x, c, stored)
            }
            Family::Power8 => power8::<S, false>(s, job, x, c, stored),
            Family::Power4 => power4(s, job, x, c, stored),
            Family::Scaled8 => scaled8(s, job, index, x, c, stored),
            _ => int8(s, job, x, c, stored),
        };
        if !done {
            job.encode_block(index, x, c, stored);
        }
    }
}

#[inline(always)]
fn magnitudes<S: Simd>(s: S, v: S::W) -> S::W {
    s.and(v, s.splat(0x7FFF))
}

/// bf16 bits of the largest magnitude; NaN and infinity are at least [`INFINITY`].
#[inline(always)]
fn amax<S: Simd>(s: S, x: &[u16]) -> u16 {
    let mut most = s.splat(0);
    for chunk in x.chunks_exact(S::LANES) {
        most = s.max(most, magnitudes(s, s.load(chunk)));
    }
    s.largest(most)
}

/// The code of a power-of-two scale with its stored form, and what to take from bf16 exponents.
#[inline(always)]
fn power_scale(job: &Job<'_>, amax: u16, stored: &mut [u8]) -> Option<u16> {
    let Scale::Power(power) = job.scheme.scale else { return None };
    let code = power_of_two_code(&power, job.scheme.element, u32::from(amax) << 16);
    if amax >= INFINITY || !POWER_CODES.contains(&code) {
        return None;
    }
    match stored {
        [byte] => *byte = code,
        bytes => bytes.copy_from_slice(&(u32::from(code) << 23).to_le_bytes()),
    }
    Some((u16::from(code) << 7).wrapping_sub(127 << 7))
}

/// Magnitudes divided by the scale: exponents less `shift`, what falls below zero being zero.
///
/// Subnormals of bf16 come out as another tiny number; from code 32 on both round to zero.
#[inline(always)]
fn shifted<S: Simd>(s: S, v: S::W, shift: u16) -> S::W {
    s.max(s.sub_saturating(magnitudes(s, v), s.splat(shift)), s.splat(0))
}

#[inline(always)]
fn power8<S: Simd, const WIDE: bool>(
    s: S,
    job: &Job<'_>,
    x: &[u16],
    codes: &mut [u8],
    stored: &mut [u8],
) -> bool {
    let format = if WIDE { super::E5M2 } else { super::E4M3 };
    let Some(shift) = power_scale(job, amax(s, x), stored) else { return false };
    let drop = 7 - format.mantissa;
    let (half, one) = (s.splat((1 << (drop - 1)) - 1), s.splat(1));
    let base = s.splat(((format.lowest - 1) << 7) as u16);
    let lowest = s.splat((format.lowest << 7) as u16);
    let largest = s.splat(format.largest as u16);
    for (x, c) in x.chunks_exact(S::LANES).zip(codes.chunks_exact_mut(S::LANES)) {
        let v = s.load(x);
        let y = shifted(s, v, shift);
        let odd = s.and(s.shr(y, drop), one);
        let normal = s.shr(s.add(s.sub(y, base), s.add(half, odd)), drop);
        let subnormal = if WIDE { e5m2_subnormal(s, y) } else { s.e4m3_subnormal(y) };
        let code = s.min(s.if_above(lowest, y, subnormal, normal), largest);
        let sign = s.and(s.shr(v, 8), s.splat(0x80));
        s.store_bytes(s.or(code, sign), c, job.stream);
    }
    true
}

/// E5M2 codes of magnitudes below 2^-14, given as bf16: (i + 0.5) x 2^-16, a tie passing where i is
/// odd.
#[inline(always)]
fn e5m2_subnormal<S: Simd>(s: S, v: S::W) -> S::W {
    let mut code = s.splat(0);
    for threshold in [0x3700, 0x37BF, 0x3820, 0x385F] {
        code = s.add(code, s.if_above(v, s.splat(threshold), s.splat(1), s.splat(0)));
    }
    code
}

/// How E2M1 rounds.
#[derive(Clone, Copy)]
struct Fp4 {
    rounding: Rounding,
    clear: bool,
}

impl Fp4 {
    #[inline(always)]
    fn of(job: &Job<'_>) -> Self {
        Self { rounding: job.scheme.cast.rounding, clear: job.scheme.cast.zero == ZeroSign::Clear }
    }

    /// 1 where the last kept bit takes part in the rounding.
    #[inline(always)]
    fn odd(self) -> u16 {
        u16::from(self.rounding == Rounding::NearestEven)
    }

    /// What is added below the last kept bit, with `unit` the value of half of it.
    #[inline(always)]
    fn half(self, unit: i32) -> i32 {
        if self.rounding == Rounding::NearestAway { unit } else { unit - 1 }
    }

    /// The last magnitudes that stay 0 and 0.5, among numbers whose 0.25 and 0.75 are given: a tie
    /// that is rounded up is one below.
    #[inline(always)]
    fn last(self, quarter: i32, three_quarters: i32) -> [i32; 2] {
        match self.rounding {
            Rounding::NearestTowardZero => [quarter, three_quarters],
            Rounding::NearestAway => [quarter - 1, three_quarters - 1],
            _ => [quarter, three_quarters - 1],
        }
    }
}

#[inline(always)]
fn power4<S: Simd>(s: S, job: &Job<'_>, x: &[u16], codes: &mut [u8], stored: &mut [u8]) -> bool {
    if job.scheme.cast.rounding == Rounding::Truncate {
        return false;
    }
    let Some(shift) = power_scale(job, amax(s, x), stored) else { return false };
    let fp4 = Fp4::of(job);
    let (one, zero, odd_bit) = (s.splat(1), s.splat(0), s.splat(fp4.odd()));
    let base = s.splat((fp4.half(0x20) - (126 << 7)) as u16);
    let last = fp4.last(0x3E80, 0x3F40).map(|last| s.splat(last as u16));
    for (x, c) in x.chunks_exact(S::LANES).zip(codes.chunks_exact_mut(S::LANES / 2)) {
        let v = s.load(x);
        let y = shifted(s, v, shift);
        let odd = s.and(s.shr(y, 6), odd_bit);
        let normal = s.min(s.shr(s.add(y, s.add(base, odd)), 6), s.splat(7));
        let half = s.if_above(y, last[0], one, zero);
        let small = s.add(half, s.if_above(y, last[1], one, zero));
        let code = s.if_above(s.splat(127 << 7), y, small, normal);
        let sign = s.and(s.shr(v, 12), s.splat(8));
        let sign = if fp4.clear { s.if_above(code, zero, sign, zero) } else { sign };
        s.store_nibbles(s.or(code, sign), c, job.stream);
    }
    true
}

/// x / scale or x times a factor, in the scheme's own arithmetic.
#[derive(Clone, Copy)]
struct Divisor<F> {
    by: F,
    divide: bool,
}

impl<F: Copy> Divisor<F> {
    #[inline(always)]
    fn apply<S: Simd<F = F>>(self, s: S, x: F) -> F {
        if self.divide { s.divide(x, self.by) } else { s.multiply(x, self.by) }
    }
}

/// The fp32 scale of a block and its divisor; `None` where either is not ordinary.
#[inline(always)]
fn linear<S: Simd>(
    s: S,
    job: &Job<'_>,
    index: usize,
    amax: u16,
    stored: &mut [u8],
) -> Option<Divisor<S::F>> {
    let (scale, over) = match job.scheme.scale {
        Scale::Linear(linear) => {
            let (scale, amax) = linear_scale(&linear, bf16_to_f32(amax));
            stored.copy_from_slice(&scale.to_le_bytes());
            (scale, linear.max / amax)
        }
        _ => {
            let scale = job.given_scale(index);
            (scale, 1.0 / scale)
        }
    };
    if amax >= INFINITY || !ordinary(scale) {
        return None;
    }
    let divide = job.scheme.quotient == Quotient::Divide;
    let by = match job.scheme.quotient {
        Quotient::Divide => scale,
        Quotient::Reciprocal => 1.0 / scale,
        Quotient::MaxOverAmax => over,
    };
    Some(Divisor { by: s.splat_float(by), divide })
}

/// An 8-bit float's code in the low byte of 32-bit lanes.
#[inline(always)]
fn fp8_code<S: Simd>(s: S, format: Fp8, quotient: S::F) -> S::F {
    let drop = 23 - format.mantissa;
    let magnitude = s.and_int(quotient, s.splat_int(0x7FFF_FFFF));
    let rebias = s.splat_int((format.lowest - 1) << format.mantissa);
    let normal = s.sub_int(s.shr_int(round_int(s, magnitude, drop), drop), rebias);
    let magic = s.splat_float(format.magic);
    let subnormal = s.sub_int(s.add_float(magnitude, magic), magic);
    let below = s.splat_int(format.lowest << 23);
    let code = s.if_above_int(below, magnitude, subnormal, normal);
    let code = s.min_int(code, s.splat_int(format.largest));
    s.or_int(code, s.and_int(s.shr_int(quotient, 24), s.splat_int(0x80)))
}

#[inline(always)]
fn scaled8<S: Simd>(
    s: S,
    job: &Job<'_>,
    index: usize,
    x: &[u16],
    codes: &mut [u8],
    stored: &mut [u8],
) -> bool {
    let format = Fp8::of(job.scheme.element);
    let Some(divisor) = linear(s, job, index, amax(s, x), stored) else { return false };
    for (x, c) in x.chunks_exact(S::LANES).zip(codes.chunks_exact_mut(S::LANES)) {
        let v = s.load(x);
        let even = fp8_code(s, format, divisor.apply(s, s.even(v)));
        let odd = fp8_code(s, format, divisor.apply(s, s.odd(v)));
        s.store_bytes(s.merge(even, s.shl_int(odd, 16)), c, job.stream);
    }
    true
}

#[inline(always)]
fn int8<S: Simd>(s: S, job: &Job<'_>, x: &[u16], codes: &mut [u8], stored: &mut [u8]) -> bool {
    let Some(divisor) = linear(s, job, 0, amax(s, x), stored) else { return false };
    let truncate = job.scheme.cast.rounding == Rounding::Truncate;
    let (low, high) = (s.splat_int(-128), s.splat_int(127));
    let convert = |x: S::F| {
        let quotient = divisor.apply(s, x);
        let integer =
            if truncate { s.to_int_truncate(quotient) } else { s.to_int_nearest(quotient) };
        s.min_int(s.max_int(integer, low), high)
    };
    for (x, c) in x.chunks_exact(S::LANES).zip(codes.chunks_exact_mut(S::LANES)) {
        let v = s.load(x);
        let (even, odd) = (convert(s.even(v)), convert(s.odd(v)));
        s.store_bytes(s.merge(even, s.shl_int(odd, 16)), c, job.stream);
    }
    true
}

/// E2M1 codes of quotients in fp32, as [`power4`] but in 32-bit lanes.
#[inline(always)]
fn fp4_code<S: Simd>(s: S, fp4: Fp4, quotient: S::F) -> S::F {
    let (one, zero) = (s.splat_int(1), s.splat_int(0));
    let magnitude = s.and_int(quotient, s.splat_int(0x7FFF_FFFF));
    let odd = s.and_int(s.shr_int(magnitude, 22), s.splat_int(i32::from(fp4.odd())));
    let base = s.splat_int(fp4.half(0x20_0000) - (126 << 23));
    let rounded = s.add_int(magnitude, s.add_int(base, odd));
    let normal = s.min_int(s.shr_int(rounded, 22), s.splat_int(7));
    let last = fp4.last(0x3E80_0000, 0x3F40_0000).map(|last| s.splat_int(last));
    let passed = s.if_above_int(magnitude, last[0], one, zero);
    let small = s.add_int(passed, s.if_above_int(magnitude, last[1], one, zero));
    let code = s.if_above_int(s.splat_int(127 << 23), magnitude, small, normal);
    let sign = s.and_int(s.shr_int(quotient, 28), s.splat_int(8));
    let sign = if fp4.clear { s.if_above_int(code, zero, sign, zero) } else { sign };
    s.or_int(code, sign)
}

/// Blocks of 16: one or two of them per vector.
#[inline(always)]
fn nv4<S: Simd>(s: S, job: &Job<'_>, source: &[u16], codes: &mut [u8], scales: &mut [u8]) {
    let Scale::Nv(nv) = job.scheme.scale else {
        return job.encode_scalar(source, codes, scales);
    };
    if job.scheme.cast.rounding == Rounding::Truncate {
        return job.encode_scalar(source, codes, scales);
    }
    let table = nv_table(&nv);
    let multiplier = job.multiplier(&nv);
    let fp4 = Fp4::of(job);
    let divide = job.scheme.quotient == Quotient::Divide;
    let group = S::LANES / 16;
    let mut index = 0;
    let mut vectors = source.chunks_exact(S::LANES);
    for x in &mut vectors {
        let (c, stored) = (&mut codes[index * 8..][..group * 8], &mut scales[index..][..group]);
        let v = s.load(x);
        let amax = s.largest_of_16(magnitudes(s, v));
        let code = amax.map(|amax| job.nv_code(&nv, table, amax, multiplier));
        let total = code.map(|code| nv_total(&nv, code, multiplier));
        if amax[0].max(amax[1]) >= INFINITY || !(ordinary(total[0]) && ordinary(total[1])) {
            for i in 0..group {
                let block = &x[i * 16..][..16];
                job.encode_block(index + i, block, &mut c[i * 8..][..8], &mut stored[i..=i]);
            }
        } else {
            stored.copy_from_slice(&code[..group]);
            let by = if divide { total } else { total.map(|total| 1.0 / total) };
            let divisor = Divisor { by: s.pair(by[0], by[1]), divide };
            let even = fp4_code(s, fp4, divisor.apply(s, s.even(v)));
            let odd = fp4_code(s, fp4, divisor.apply(s, s.odd(v)));
            s.store_nibbles(s.merge(even, s.shl_int(odd, 16)), c, job.stream);
        }
        index += group;
    }
    for x in vectors.remainder().chunks_exact(16) {
        job.encode_block(index, x, &mut codes[index * 8..][..8], &mut scales[index..=index]);
        index += 1;
    }
}

/// Words to byte planes.
#[inline(always)]
pub(in crate::simd) fn split<S: Simd>(s: S, words: &[u16], low: &mut [u8], high: &mut [u8]) {
    let whole = words.len() / S::LANES * S::LANES;
    let planes = low.chunks_exact_mut(S::LANES).zip(high.chunks_exact_mut(S::LANES));
    for (words, (low, high)) in words.chunks_exact(S::LANES).zip(planes) {
        let v = s.load(words);
        s.store_bytes(v, low, false);
        s.store_bytes(s.shr(v, 8), high, false);
    }
    crate::planes::split_scalar(&words[whole..], &mut low[whole..], &mut high[whole..]);
}
