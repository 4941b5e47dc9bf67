//! bf16 to E2M1: power-of-two scales per 16 and more, and NVFP4's E4M3 scales per 16.

use super::encode::{Divisor, INFINITY, PowerRow, fp8_code, magnitudes, shifted};
use super::{E4M3, Simd, part, part_mut};
use crate::element::ZeroSign;
use crate::float::{Grid, Rounding};
use crate::job::{Job, NvSteps, nv_steps, ordinary};
use crate::scheme::{Global, NvScale, Quotient, Scale, ScaleArith};

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

    #[inline(always)]
    fn table(self) -> &'static [u8; 64] {
        match self.rounding {
            Rounding::NearestTowardZero => &E2M1_CODES[1],
            Rounding::NearestAway => &E2M1_CODES[2],
            _ => &E2M1_CODES[0],
        }
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

/// E2M1 codes by three exponent bits from 2^-3 on, two mantissa bits, and whether anything follows,
/// for nearest-even, toward zero and away.
static E2M1_CODES: [[u8; 64]; 3] = [
    e2m1_codes(Rounding::NearestEven),
    e2m1_codes(Rounding::NearestTowardZero),
    e2m1_codes(Rounding::NearestAway),
];

const fn e2m1_codes(rounding: Rounding) -> [u8; 64] {
    let grid = Grid { mantissa: 1, bias: 1 };
    let mut table = [0; 64];
    let mut index = 0u32;
    while index < 64 {
        let magnitude = ((124 + (index >> 3)) << 23) | ((index >> 1 & 3) << 21) | (index & 1);
        let code = grid.round(magnitude, rounding);
        table[index as usize] = if code > 7 { 7 } else { code as u8 };
        index += 1;
    }
    table
}

#[inline(always)]
pub(super) fn power4<S: Simd>(
    s: S,
    job: &Job<'_>,
    power: PowerRow,
    amax: u16,
    x: &[u16],
    codes: &mut [u8],
    stored: &mut [u8],
) -> bool {
    if job.scheme.cast.rounding == Rounding::Truncate {
        return false;
    }
    let Some(shift) = power.scale(amax, stored) else { return false };
    let fp4 = Fp4::of(job);
    let zero = s.splat(0);
    let mut i = 0;
    while i < x.len() {
        let v = s.load(part(x, i, S::LANES));
        let code = if S::BYTE_TABLE {
            // From 2^-3 on: exponent, two mantissa bits, and whether anything follows.
            let y = shifted(s, v, shift.wrapping_add(124 << 7));
            let index = s.or(s.and(s.shr(y, 4), s.splat(0x3E)), s.any_bit(y, 0x1F));
            s.byte_table(index, fp4.table())
        } else {
            power4_code(s, fp4, shifted(s, v, shift))
        };
        let sign = s.and(s.shr(v, 12), s.splat(8));
        let sign = if fp4.clear { s.if_above(code, zero, sign, zero) } else { sign };
        let c = part_mut(codes, i / 2, S::LANES / 2);
        s.store_nibbles(s.or(code, sign), c, job.stream);
        i += S::LANES;
    }
    true
}

/// E2M1 codes of magnitudes given as bf16.
#[inline(always)]
fn power4_code<S: Simd>(s: S, fp4: Fp4, y: S::W) -> S::W {
    let (one, zero) = (s.splat(1), s.splat(0));
    let base = s.splat((fp4.half(0x20) - (126 << 7)) as u16);
    let [low, high] = fp4.last(0x3E80, 0x3F40);
    let odd = s.and(s.shr(y, 6), s.splat(fp4.odd()));
    let normal = s.min(s.shr(s.add(y, s.add(base, odd)), 6), s.splat(7));
    let half = s.if_above(y, s.splat(low as u16), one, zero);
    let small = s.add(half, s.if_above(y, s.splat(high as u16), one, zero));
    s.if_above(s.splat(127 << 7), y, small, normal)
}

/// E2M1 codes of quotients in fp32, as [`power4_code`] but in 32-bit lanes and with the sign.
#[inline(always)]
fn fp4_code<S: Simd>(s: S, fp4: Fp4, quotient: S::F) -> S::F {
    let (one, zero) = (s.splat_int(1), s.splat_int(0));
    let magnitude = s.and_int(quotient, s.splat_int(0x7FFF_FFFF));
    let base = s.splat_int(fp4.half(0x20_0000) - (126 << 23));
    let [low, high] = fp4.last(0x3E80_0000, 0x3F40_0000);
    let odd = s.and_int(s.shr_int(magnitude, 22), s.splat_int(i32::from(fp4.odd())));
    let rounded = s.shr_int(s.add_int(magnitude, s.add_int(base, odd)), 22);
    let normal = s.min_int(rounded, s.splat_int(7));
    let half = s.if_above_int(magnitude, s.splat_int(low), one, zero);
    let small = s.add_int(half, s.if_above_int(magnitude, s.splat_int(high), one, zero));
    let code = s.if_above_int(s.splat_int(127 << 23), magnitude, small, normal);
    let sign = s.and_int(s.shr_int(quotient, 28), s.splat_int(8));
    let sign = if fp4.clear { s.if_above_int(code, zero, sign, zero) } else { sign };
    s.or_int(code, sign)
}

/// Blocks of 16: eight vectors of one or two of them at a time.
#[inline(always)]
pub(super) fn nv4<S: Simd>(
    s: S,
    job: &Job<'_>,
    source: &[u16],
    codes: &mut [u8],
    scales: &mut [u8],
) {
    let Scale::Nv(nv) = job.scheme.scale else {
        return job.encode_blocks(0, source, codes, scales);
    };
    if nv.round_up || job.scheme.cast.rounding == Rounding::Truncate {
        return job.encode_blocks(0, source, codes, scales);
    }
    // Without a second level a code depends on the magnitude and the scale's code only.
    let steps = if nv.global == Global::None {
        nv_steps(job.scheme.quotient, job.scheme.cast)
    } else {
        None
    };
    match steps {
        Some(steps) => nv4_groups::<S, true>(s, job, &nv, steps, source, codes, scales),
        None => nv4_groups::<S, false>(s, job, &nv, &[[0; 8]; 256], source, codes, scales),
    }
}

#[inline(always)]
fn nv4_groups<S: Simd, const STEPS: bool>(
    s: S,
    job: &Job<'_>,
    nv: &NvScale,
    steps: &NvSteps,
    source: &[u16],
    codes: &mut [u8],
    scales: &mut [u8],
) {
    let multiplier = job.multiplier(nv);
    let fp4 = Fp4::of(job);
    let divide = job.scheme.quotient == Quotient::Divide;
    let per_vector = S::LANES / 16;
    let blocks = source.len() / 16;
    let mut index = 0;
    while index < blocks {
        let left = (blocks - index) / per_vector;
        let group = if left < 8 { left } else { 8 };
        if group == 0 {
            let x = part(source, index * 16, 16);
            job.encode_block(index, x, part_mut(codes, index * 8, 8), part_mut(scales, index, 1));
            index += 1;
            continue;
        }
        let mut v = [s.splat(0); 8];
        let mut i = 0;
        while i < group {
            v[i] = magnitudes(s, s.load(part(source, index * 16 + i * S::LANES, S::LANES)));
            i += 1;
        }
        let amax = s.largest_of_runs(v);
        let scale = nv_scales(s, nv, s.widen(&amax), multiplier);
        let mut bytes = [0; 16];
        s.store_low_bytes(scale.code, &mut bytes);
        let (mut totals, mut by) = ([0.0; 16], [0.0; 16]);
        s.store_floats(scale.total, &mut totals);
        if !STEPS {
            let one = s.splat_float(1.0);
            let by_lane = match job.scheme.quotient {
                Quotient::GlobalReciprocal => {
                    s.divide(s.splat_float(1.0 / multiplier), scale.block)
                }
                Quotient::Divide => scale.total,
                _ => s.divide(one, scale.total),
            };
            s.store_floats(by_lane, &mut by);
        }
        let mut i = 0;
        while i < group {
            let (first, second) = (i * per_vector, i * per_vector + per_vector - 1);
            let at = index + first;
            let x = part(source, at * 16, S::LANES);
            let c = part_mut(codes, at * 8, S::LANES / 2);
            let stored = part_mut(scales, at, per_vector);
            let finite = amax[first] < INFINITY && amax[second] < INFINITY;
            if finite && ordinary(totals[first]) && ordinary(totals[second]) {
                stored[0] = bytes[first];
                stored[per_vector - 1] = bytes[second];
                let v = s.load(x);
                let code = if STEPS {
                    let tables = [&steps[bytes[first] as usize], &steps[bytes[second] as usize]];
                    let code = s.count_above(magnitudes(s, v), tables);
                    let sign = s.and(s.shr(v, 12), s.splat(8));
                    let zero = s.splat(0);
                    let sign = if fp4.clear { s.if_above(code, zero, sign, zero) } else { sign };
                    s.or(code, sign)
                } else {
                    let divisor = Divisor { by: s.pair(by[first], by[second]), divide };
                    let even = fp4_code(s, fp4, divisor.apply(s, s.even(v)));
                    let odd = fp4_code(s, fp4, divisor.apply(s, s.odd(v)));
                    s.merge(even, s.shl_int(odd, 16))
                };
                s.store_nibbles(code, c, job.stream);
            } else {
                job.encode_blocks(at, x, c, stored);
            }
            i += 1;
        }
        index += group * per_vector;
    }
}

/// Scales of up to 16 blocks in 32-bit lanes.
struct NvLanes<F> {
    /// E4M3 codes.
    code: F,
    /// Their values.
    block: F,
    /// Those times the second level.
    total: F,
}

/// `nv_scale` and `nv_total` lane by lane, for finite amax.
#[inline(always)]
fn nv_scales<S: Simd>(s: S, nv: &NvScale, amax: S::F, multiplier: f32) -> NvLanes<S::F> {
    let sixth = match nv.arith {
        ScaleArith::Divide => s.divide(amax, s.splat_float(6.0)),
        ScaleArith::Reciprocal => s.multiply(amax, s.splat_float(1.0 / 6.0)),
    };
    let by = s.splat_float(multiplier);
    let unfloored = if nv.global == Global::None { sixth } else { s.divide(sixth, by) };
    // Non-negative floats are ordered as their bits.
    let value = s.max_int(unfloored, s.splat_float(nv.floor));
    let code = fp8_code(s, E4M3, value);
    let mut code = s.min_int(code, s.splat_int(E4M3.largest));
    if let Some(zero) = nv.zero_code {
        code = s.if_above_int(unfloored, s.splat_int(0), code, s.splat_int(i32::from(zero)));
    }
    let normal = s.add_int(s.shl_int(code, 20), s.splat_int(120 << 23));
    let subnormal = s.multiply(s.to_float(code), s.splat_float(0.001_953_125));
    let block = s.if_above_int(s.splat_int(8), code, subnormal, normal);
    let total = if nv.global == Global::None { block } else { s.multiply(by, block) };
    NvLanes { code, block, total }
}
