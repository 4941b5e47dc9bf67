//! bf16 to 8-bit floats and integers under fp32 scales, stored or given.

use super::encode::{INFINITY, fp8_codes, magnitudes, put_f32, signed};
use super::{Simd, part, part_mut};
use crate::float::{Rounding, bf16_to_f32};
use crate::job::{Job, divides, ordinary};
use crate::scheme::{Floor, Quotient, Scale, ScaleArith};

/// x / scale or x times a factor, in the scheme's own arithmetic.
#[derive(Clone, Copy)]
pub(super) struct Divisor<F> {
    /// What is multiplied by; for a division the reciprocal of the scale.
    pub(super) by: F,
    /// What is divided by.
    pub(super) scale: F,
    pub(super) divide: bool,
}

impl<F: Copy> Divisor<F> {
    #[inline(always)]
    pub(super) fn apply<S: Simd<F = F>>(self, s: S, x: F) -> F {
        if self.divide { s.quotient(x, self.scale, self.by) } else { s.multiply(x, self.by) }
    }
}

/// fp32 scales of up to eight blocks.
pub(super) struct Scales {
    scale: [f32; 16],
    /// What numbers are multiplied by; for a division the scales' reciprocals.
    by: [f32; 16],
}

impl Scales {
    pub(super) const NONE: Self = Self { scale: [0.0; 16], by: [0.0; 16] };

    /// The scales of the blocks from `index` on, whose largest magnitudes are `most`.
    #[inline(always)]
    pub(super) fn of<S: Simd>(s: S, job: &Job<'_>, index: usize, most: [u16; 8]) -> Self {
        let mut found = Self::NONE;
        let Scale::Linear(linear) = job.scheme.scale else {
            let mut i = 0;
            while i < 8 {
                found.scale[i] = job.given_scale(index + i);
                found.by[i] = 1.0 / found.scale[i];
                i += 1;
            }
            return found;
        };
        // `linear_scale` lane by lane: non-negative floats are ordered as their bits.
        let [a, b, c, d, e, f, g, h] = most;
        let amax = s.widen(&[a, b, c, d, e, f, g, h, 0, 0, 0, 0, 0, 0, 0, 0]);
        let amax = match linear.floor {
            Floor::Amax(floor) => s.max_int(amax, s.splat_float(floor)),
            _ => amax,
        };
        let scale = match linear.arith {
            ScaleArith::Divide => s.divide(amax, s.splat_float(linear.max)),
            ScaleArith::Reciprocal => s.multiply(amax, s.splat_float(1.0 / linear.max)),
        };
        let scale = match linear.floor {
            Floor::Scale(floor) => s.max_int(scale, s.splat_float(floor)),
            _ => scale,
        };
        let by = match job.scheme.quotient {
            Quotient::Divide | Quotient::Reciprocal => s.divide(s.splat_float(1.0), scale),
            Quotient::MaxOverAmax | Quotient::GlobalReciprocal => {
                s.divide(s.splat_float(linear.max), amax)
            }
        };
        s.store_floats(scale, &mut found.scale);
        s.store_floats(by, &mut found.by);
        found
    }

    /// Stores scale `i`; its divisor, or `None` where it or `amax` is not ordinary.
    #[inline(always)]
    pub(super) fn divisor<S: Simd>(
        &self,
        s: S,
        job: &Job<'_>,
        i: usize,
        amax: u16,
        stored: &mut [u8],
    ) -> Option<Divisor<S::F>> {
        let scale = self.scale[i];
        let divide = job.scheme.quotient == Quotient::Divide;
        if amax >= INFINITY || !ordinary(scale) || divide && !divides(bf16_to_f32(amax), scale) {
            return None;
        }
        put_f32(stored, scale);
        Some(Divisor { by: s.splat_float(self.by[i]), scale: s.splat_float(scale), divide })
    }
}

#[inline(always)]
pub(super) fn scaled8<S: Simd, const FAMILY: u8>(
    s: S,
    job: &Job<'_>,
    divisor: Divisor<S::F>,
    x: &[u16],
    codes: &mut [u8],
) -> bool {
    let mut i = 0;
    while i < x.len() {
        let v = s.load(part(x, i, S::LANES));
        let magnitude = magnitudes(s, v);
        let even = divisor.apply(s, s.even(magnitude));
        let odd = divisor.apply(s, s.odd(magnitude));
        let code = fp8_codes::<S, FAMILY>(s, narrow_to_odd(s, even, odd));
        s.store_bytes(signed(s, code, v), part_mut(codes, i, S::LANES), job.stream);
        i += S::LANES;
    }
    true
}

/// The upper halves of fp32, with the last bit set where the lower half is not zero: enough to round
/// once more to fewer bits as if from fp32.
#[inline(always)]
pub(super) fn narrow_to_odd<S: Simd>(s: S, even: S::F, odd: S::F) -> S::W {
    let high = s.merge(s.shr_int(even, 16), odd);
    let low = s.merge(even, s.shl_int(odd, 16));
    s.or(high, s.any_bit(low, 0xFFFF))
}

/// An integer from -128 to 127 in 32-bit lanes.
#[inline(always)]
fn int8_code<S: Simd>(s: S, truncate: bool, quotient: S::F) -> S::F {
    let integer = if truncate { s.to_int_truncate(quotient) } else { s.to_int_nearest(quotient) };
    s.min_int(s.max_int(integer, s.splat_int(-128)), s.splat_int(127))
}

#[inline(always)]
pub(super) fn int8<S: Simd>(
    s: S,
    job: &Job<'_>,
    divisor: Divisor<S::F>,
    x: &[u16],
    codes: &mut [u8],
) -> bool {
    let truncate = job.scheme.cast.rounding == Rounding::Truncate;
    let mut i = 0;
    while i < x.len() {
        let v = s.load(part(x, i, S::LANES));
        let c = part_mut(codes, i, S::LANES);
        let even = int8_code(s, truncate, divisor.apply(s, s.even(v)));
        let odd = int8_code(s, truncate, divisor.apply(s, s.odd(v)));
        s.store_bytes(s.merge(even, s.shl_int(odd, 16)), c, job.stream);
        i += S::LANES;
    }
    true
}
