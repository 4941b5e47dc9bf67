//! bf16 to E2M1: power-of-two scales per 16 and more, and NVFP4's E4M3 scales per 16.

use super::encode::{INFINITY, PowerRow, magnitudes, shifted};
use super::linear::{Divisor, narrow_to_odd};
use super::{E4M3, Simd, part, part_mut, prefetch, round_int};
use crate::element::ZeroSign;
use crate::float::{Grid, Rounding, bf16_to_f32};
use crate::job::{Job, NvSteps, divides, nv_steps, ordinary};
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

    /// What is added below the last kept bit of bf16.
    #[inline(always)]
    fn half(self) -> u16 {
        if self.rounding == Rounding::NearestAway { 0x20 } else { 0x1F }
    }

    /// bf16 bits of the last magnitudes that stay 0 and 0.5: a tie that is rounded up is one below.
    #[inline(always)]
    fn last(self) -> [u16; 2] {
        match self.rounding {
            Rounding::NearestTowardZero => [0x3E80, 0x3F40],
            Rounding::NearestAway => [0x3E7F, 0x3F3F],
            _ => [0x3E80, 0x3F3F],
        }
    }

    /// E2M1 codes of magnitudes below 16 given as bf16, whose last bit may stand for all that
    /// follows it.
    #[inline(always)]
    fn codes<S: Simd>(self, s: S, y: S::W) -> S::W {
        if S::BYTE_TABLE {
            // From 2^-3 on: exponent, two mantissa bits, and whether anything follows.
            let y = s.sub_to_zero(y, s.splat(124 << 7));
            let index = s.or(s.and(s.shr(y, 4), s.splat(0x3E)), s.any_bit(y, 0x1F));
            return s.byte_table(index, self.table());
        }
        let (one, zero) = (s.splat(1), s.splat(0));
        let base = s.splat(self.half().wrapping_sub(126 << 7));
        let [low, high] = self.last();
        let odd = s.and(s.shr(y, 6), s.splat(self.odd()));
        let normal = s.min(s.shr(s.add(y, s.add(base, odd)), 6), s.splat(7));
        let half = s.if_above(y, s.splat(low), one, zero);
        let small = s.add(half, s.if_above(y, s.splat(high), one, zero));
        s.if_above(s.splat(127 << 7), y, small, normal)
    }

    /// Codes with the signs of the words `v`.
    #[inline(always)]
    fn signed<S: Simd>(self, s: S, code: S::W, v: S::W) -> S::W {
        let sign = s.and(s.shr(v, 12), s.splat(8));
        let zero = s.splat(0);
        s.or(code, if self.clear { s.if_above(code, zero, sign, zero) } else { sign })
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
    let mut i = 0;
    while i < x.len() {
        let v = s.load(part(x, i, S::LANES));
        let code = fp4.signed(s, fp4.codes(s, shifted(s, v, shift)), v);
        let c = part_mut(codes, i / 2, S::LANES / 2);
        s.store_nibbles(code, c, job.stream);
        i += S::LANES;
    }
    true
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
        None => nv4_groups::<S, false>(s, job, &nv, &[[0; 16]; 256], source, codes, scales),
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
        if !STEPS {
            s.store_floats(scale.total, &mut totals);
            let one = s.splat_float(1.0);
            let by_lane = match job.scheme.quotient {
                Quotient::GlobalReciprocal => {
                    s.divide(s.splat_float(1.0 / multiplier), scale.block)
                }
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
            let usable = |i: usize| {
                let suits = if STEPS {
                    // Scale 0 is a rule of its own.
                    bytes[i] != 0
                } else {
                    let total = totals[i];
                    ordinary(total) && (!divide || divides(bf16_to_f32(amax[i]), total))
                };
                amax[i] < INFINITY && suits
            };
            if usable(first) && usable(second) {
                stored[0] = bytes[first];
                stored[per_vector - 1] = bytes[second];
                let v = s.load(x);
                prefetch(s, x, 1024);
                let magnitude = magnitudes(s, v);
                let code = if STEPS {
                    let tables = [&steps[bytes[first] as usize], &steps[bytes[second] as usize]];
                    count_above(s, s.byte_tables(tables), magnitude)
                } else {
                    let scale = s.pair(totals[first], totals[second]);
                    let divisor = Divisor { by: s.pair(by[first], by[second]), scale, divide };
                    let even = divisor.apply(s, s.even(magnitude));
                    let odd = divisor.apply(s, s.odd(magnitude));
                    fp4.codes(s, s.min(narrow_to_odd(s, even, odd), s.splat(0x4100)))
                };
                let code = fp4.signed(s, code, v);
                s.store_nibbles(code, c, job.stream);
            } else {
                job.encode_blocks(at, x, c, stored);
            }
            i += 1;
        }
        index += group * per_vector;
    }
}

/// How many of seven ascending steps each word is above, by binary search: step 3, then 1 or 5, then
/// 0, 2, 4 or 6. A step's low byte is entry i of the table, its high byte entry 8 + i.
#[inline(always)]
fn count_above<S: Simd>(s: S, steps: S::W, v: S::W) -> S::W {
    let at = step(s, steps, v, s.splat(0x0B03), 0x0D05, 0x0901);
    let at = s.add(at, step(s, steps, v, at, 0x0101, 0xFEFF));
    s.add(s.and(at, s.splat(7)), step(s, steps, v, at, 1, 0))
}

/// `yes` where a word is above the step that `at` points to, else `no`.
#[inline(always)]
fn step<S: Simd>(s: S, steps: S::W, v: S::W, at: S::W, yes: u16, no: u16) -> S::W {
    s.if_above(v, s.look_bytes(steps, at), s.splat(yes), s.splat(no))
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

/// The E4M3 code of a non-negative number in 32-bit lanes, not yet limited to the largest.
#[inline(always)]
fn scale_code<S: Simd>(s: S, value: S::F) -> S::F {
    let rounded = s.add_int(round_int(s, value, 20), s.splat_int(-((E4M3.lowest - 1) << 23)));
    let magic = s.splat_float(E4M3.magic);
    let subnormal = s.sub_int(s.add_float(value, magic), magic);
    let least = s.splat_int(E4M3.lowest << 23);
    s.if_above_int(least, value, subnormal, s.shr_int(rounded, 20))
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
    let code = scale_code(s, value);
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
