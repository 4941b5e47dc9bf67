//! bf16 to codes: the loop over blocks, 8-bit floats with power-of-two scales, byte planes.

use super::fp4::{nv4, power4};
use super::linear::{Scales, int8, scaled8};
use super::{
    Fp8, INT8, POWER4, POWER8, POWER8_WIDE, SCALED8, SCALED8_WIDE, Simd, WIDE, moves_exponents,
    part, part_mut, prefetch,
};
use crate::element::Element;
use crate::job::{Family, Job};
use crate::scheme::{Scale, bf16_addend};

pub(super) const INFINITY: u16 = 0x7F80;

#[inline(always)]
pub(in crate::simd) fn encode<S: Simd>(
    s: S,
    job: &Job<'_>,
    family: Family,
    source: &[u16],
    codes: &mut [u8],
    scales: &mut [u8],
) {
    // Constant families and lengths let the loops over a block unroll.
    let wide = job.scheme.element == Element::E5M2;
    match (family, wide, job.block) {
        (Family::Nv4, ..) => nv4(s, job, source, codes, scales),
        (Family::Power8, false, 32) => blocks::<S, POWER8, 32>(s, job, source, codes, scales),
        (Family::Power8, false, 64) => blocks::<S, POWER8, 64>(s, job, source, codes, scales),
        (Family::Power8, false, 128) => blocks::<S, POWER8, 128>(s, job, source, codes, scales),
        (Family::Power8, false, _) => blocks::<S, POWER8, 0>(s, job, source, codes, scales),
        (Family::Power8, true, _) => blocks::<S, POWER8_WIDE, 0>(s, job, source, codes, scales),
        (Family::Power4, _, 32) => blocks::<S, POWER4, 32>(s, job, source, codes, scales),
        (Family::Power4, ..) => blocks::<S, POWER4, 0>(s, job, source, codes, scales),
        (Family::Scaled8, false, 128) => blocks::<S, SCALED8, 128>(s, job, source, codes, scales),
        (Family::Scaled8, false, _) => blocks::<S, SCALED8, 0>(s, job, source, codes, scales),
        (Family::Scaled8, true, _) => blocks::<S, SCALED8_WIDE, 0>(s, job, source, codes, scales),
        (Family::Int8, _, 128) => blocks::<S, INT8, 128>(s, job, source, codes, scales),
        (Family::Int8, ..) => blocks::<S, INT8, 0>(s, job, source, codes, scales),
    }
    if job.stream {
        s.fence();
    }
}

/// All blocks of a family, each of `N` elements, or of any number for 0.
#[inline(always)]
fn blocks<S: Simd, const FAMILY: u8, const N: usize>(
    s: S,
    job: &Job<'_>,
    source: &[u16],
    codes: &mut [u8],
    scales: &mut [u8],
) {
    let block = if N == 0 { job.block } else { N };
    let bytes = if FAMILY == POWER4 { block / 2 } else { block };
    let size = job.scale_bytes();
    let count = source.len() / block;
    let power = PowerRow::of(job);
    let mut index = 0;
    while index < count {
        let group = if count - index < 8 { count - index } else { 8 };
        let most = maxima(s, part(source, index * block, group * block), block, group);
        let row = match FAMILY {
            SCALED8 | SCALED8_WIDE | INT8 => Scales::of(s, job, index, most),
            _ => Scales::NONE,
        };
        let mut i = 0;
        while i < group {
            let at = index + i;
            // Wrapped products would be caught as parts outside their buffers.
            let x = part(source, at.wrapping_mul(block), block);
            let c = part_mut(codes, at.wrapping_mul(bytes), bytes);
            let stored = part_mut(scales, at.wrapping_mul(size), size);
            prefetch(s, x, if block < 128 { 1024 } else { 8 * block });
            let done = match FAMILY {
                POWER8 | POWER8_WIDE => power8::<S, FAMILY>(s, job, power, most[i], x, c, stored),
                POWER4 => power4(s, job, power, most[i], x, c, stored),
                SCALED8 | SCALED8_WIDE => match row.divisor(s, job, i, most[i], stored) {
                    Some(divisor) => scaled8::<S, FAMILY>(s, job, divisor, x, c),
                    None => false,
                },
                _ => match row.divisor(s, job, i, most[i], stored) {
                    Some(divisor) => int8(s, job, divisor, x, c),
                    None => false,
                },
            };
            if !done {
                job.encode_block(at, x, c, stored);
            }
            i += 1;
        }
        index += group;
    }
}

/// bf16 bits of the largest magnitude of each block of a group of up to eight; NaN and infinity are
/// at least [`INFINITY`].
#[inline(always)]
fn maxima<S: Simd>(s: S, x: &[u16], block: usize, group: usize) -> [u16; 8] {
    if group == 8 {
        let mut v = [s.splat(0); 8];
        let mut i = 0;
        while i < 8 {
            v[i] = most(s, part(x, i * block, block));
            i += 1;
        }
        return s.largest_of_8(v);
    }
    let mut out = [0; 8];
    let mut i = 0;
    while i < group {
        out[i] = s.largest(most(s, part(x, i * block, block)));
        i += 1;
    }
    out
}

/// Stores a scale little-endian.
#[inline(always)]
pub(super) fn put_f32(stored: &mut [u8], value: f32) {
    if let [a, b, c, d] = stored {
        [*a, *b, *c, *d] = value.to_le_bytes();
    }
}

#[inline(always)]
pub(super) fn magnitudes<S: Simd>(s: S, v: S::W) -> S::W {
    s.and(v, s.splat(0x7FFF))
}

/// Largest magnitudes lane by lane.
#[inline(always)]
fn most<S: Simd>(s: S, x: &[u16]) -> S::W {
    let mut most = s.splat(0);
    let mut i = 0;
    while i < x.len() {
        most = s.max(most, magnitudes(s, s.load(part(x, i, S::LANES))));
        i += S::LANES;
    }
    most
}

/// A power-of-two rule on bf16 bits: `scheme::power_of_two_code` for finite amax of at least 2^-96.
#[derive(Clone, Copy)]
pub(super) struct PowerRow {
    addend: u16,
    emax: u16,
    min_code: u16,
}

impl PowerRow {
    #[inline(always)]
    fn of(job: &Job<'_>) -> Self {
        let element = job.scheme.element;
        let Scale::Power(power) = job.scheme.scale else {
            return Self { addend: 0, emax: 0, min_code: 0 };
        };
        Self {
            addend: bf16_addend(power.rule, element),
            emax: element.emax() as u16,
            min_code: u16::from(power.min_code),
        }
    }

    /// Stores the scale of a block; what to take from bf16 exponents, or `None` where the block goes
    /// to the specification: an infinity or NaN, zeros only, a scale near the ends.
    #[inline(always)]
    pub(super) fn scale(self, amax: u16, stored: &mut [u8]) -> Option<u16> {
        if amax >= INFINITY || amax == 0 {
            return None;
        }
        let exponent = (amax + self.addend) >> 7;
        let code = exponent.saturating_sub(self.emax);
        let code = if code < self.min_code { self.min_code } else { code };
        if !moves_exponents(code as u8) {
            return None;
        }
        match stored {
            [byte] => *byte = code as u8,
            _ => put_f32(stored, f32::from_bits(u32::from(code) << 23)),
        }
        Some((code << 7).wrapping_sub(127 << 7))
    }
}

/// Magnitudes divided by the scale: exponents less `shift`, what falls below zero being zero.
///
/// Subnormals of bf16 come out as another tiny number; from code 32 on both round to zero.
#[inline(always)]
pub(super) fn shifted<S: Simd>(s: S, v: S::W, shift: u16) -> S::W {
    s.max(s.sub_saturating(magnitudes(s, v), s.splat(shift)), s.splat(0))
}

#[inline(always)]
fn power8<S: Simd, const FAMILY: u8>(
    s: S,
    job: &Job<'_>,
    power: PowerRow,
    amax: u16,
    x: &[u16],
    codes: &mut [u8],
    stored: &mut [u8],
) -> bool {
    let Some(shift) = power.scale(amax, stored) else { return false };
    let mut i = 0;
    while i < x.len() {
        let v = s.load(part(x, i, S::LANES));
        let code = fp8_codes::<S, FAMILY>(s, shifted(s, v, shift));
        s.store_bytes(signed(s, code, v), part_mut(codes, i, S::LANES), job.stream);
        i += S::LANES;
    }
    true
}

/// 8-bit codes with the signs of the words `v`.
#[inline(always)]
pub(super) fn signed<S: Simd>(s: S, code: S::W, v: S::W) -> S::W {
    s.or(code, s.and(s.shr(v, 8), s.splat(0x80)))
}

/// Codes of magnitudes given as bf16, whose last bit may stand for all that follows it.
#[inline(always)]
pub(super) fn fp8_codes<S: Simd, const FAMILY: u8>(s: S, y: S::W) -> S::W {
    let format = const { Fp8::of(FAMILY) };
    let drop = 7 - format.mantissa;
    let lowest = (format.lowest << 7) as u16;
    let odd = s.and(s.shr(y, drop), s.splat(1));
    let base = s.splat(lowest - 127 - (1 << (drop - 1)));
    let normal = s.shr(s.sub_to_zero(s.add(y, odd), base), drop);
    let code = s.min(normal, s.splat(format.largest as u16));
    // What rounds to a subnormal code is far below its block's scale, so rare; less is zero above.
    let half_step = lowest - (((format.mantissa + 1) << 7) as u16);
    if !s.any_between(y, half_step, lowest) {
        return code;
    }
    let subnormal = if FAMILY & WIDE == 0 { s.e4m3_subnormal(y) } else { e5m2_subnormal(s, y) };
    s.if_above(s.splat(lowest), y, subnormal, code)
}

const E5M2_STEPS: [u16; 4] = [0x3700, 0x37BF, 0x3820, 0x385F];

/// E5M2 codes of magnitudes below 2^-14, given as bf16: (i + 0.5) x 2^-16, a tie passing where i is
/// odd.
#[inline(always)]
fn e5m2_subnormal<S: Simd>(s: S, v: S::W) -> S::W {
    let mut code = s.splat(0);
    let mut i = 0;
    while i < E5M2_STEPS.len() {
        code = s.add(code, s.if_above(v, s.splat(E5M2_STEPS[i]), s.splat(1), s.splat(0)));
        i += 1;
    }
    code
}

/// Words to byte planes.
#[inline(always)]
pub(in crate::simd) fn split<S: Simd>(s: S, words: &[u16], low: &mut [u8], high: &mut [u8]) {
    let whole = words.len() / S::LANES * S::LANES;
    let mut i = 0;
    while i < whole {
        let v = s.load(part(words, i, S::LANES));
        s.store_bytes(v, part_mut(low, i, S::LANES), false);
        s.store_bytes(s.shr(v, 8), part_mut(high, i, S::LANES), false);
        i += S::LANES;
    }
    crate::planes::split_scalar(&words[whole..], &mut low[whole..], &mut high[whole..]);
}
