//! From a block's amax to its scale.

use super::{Floor, Global, LinearScale, NvScale, PowerRule, PowerScale, ScaleArith};
use crate::element::{Cast, Element};

/// What [`PowerRule`] adds to the bits of a bf16 amax; its carry is the same as in fp32, where all
/// lower bits of amax are zero.
#[inline(always)]
pub(crate) const fn bf16_addend(rule: PowerRule, element: Element) -> u16 {
    (addend(rule, element) >> 16) as u16
}

/// What [`PowerRule`] adds to the bits of an fp32 amax before the exponent is cut out.
#[inline(always)]
const fn addend(rule: PowerRule, element: Element) -> u32 {
    const M: u32 = 23;
    match rule {
        PowerRule::Floor => 0,
        PowerRule::Ceil => (1 << M) - 1,
        PowerRule::Even => match element.grid() {
            Some(grid) => 1 << (M - grid.mantissa - 1),
            None => 0,
        },
        // 2^m - 1 - mantissa(max): adding it carries exactly when amax > max x 2^k.
        PowerRule::Rceil => (1 << M) - 1 - largest_mantissa(element),
    }
}

/// fp32 mantissa bits of the element's largest value.
#[inline(always)]
const fn largest_mantissa(element: Element) -> u32 {
    match element {
        Element::E4M3Fn | Element::E5M2 | Element::E5M2Fnuz | Element::E3M2 => 0x0060_0000, // 1.75
        Element::E4M3Fnuz | Element::E2M3 => 0x0070_0000,                                   // 1.875
        Element::E2M1 => 0x0040_0000,                                                       // 1.5
        _ => 0,
    }
}

/// The E8M0 code of a block. `amax` is the bits of the largest magnitude (sign clear), NaN included.
///
/// Exact for every amax, subnormals of fp32 included: their own exponent field is 0, so that the
/// result clamps to `min_code`.
#[inline(always)]
pub(crate) const fn power_of_two_code(scale: &PowerScale, element: Element, amax: u32) -> u8 {
    if amax >= 0x7F80_0000 {
        let code = if amax == 0x7F80_0000 { scale.inf_code } else { scale.nan_code };
        if let Some(code) = code {
            return code;
        }
    }
    if amax == 0
        && let Some(code) = scale.zero_code
    {
        return code;
    }
    let exponent = (amax + addend(scale.rule, element)) >> 23;
    let code = exponent.saturating_sub(element.emax());
    if code < scale.min_code as u32 {
        scale.min_code
    } else if code > 254 {
        254
    } else {
        code as u8
    }
}

#[inline(always)]
fn divide(amax: f32, max: f32, arith: ScaleArith) -> f32 {
    match arith {
        ScaleArith::Divide => amax / max,
        ScaleArith::Reciprocal => amax * (1.0 / max),
    }
}

/// The fp32 scale of a block, and the amax that it stands for (after its floor).
///
/// IEEE comparisons: a NaN amax stays NaN through every floor.
#[inline(always)]
pub(crate) fn linear_scale(scale: &LinearScale, amax: f32) -> (f32, f32) {
    let amax = match scale.floor {
        Floor::Amax(floor) if amax < floor => floor,
        _ => amax,
    };
    let value = divide(amax, scale.max, scale.arith);
    let value = match scale.floor {
        Floor::Scale(floor) if value < floor => floor,
        _ => value,
    };
    (value, amax)
}

/// The E4M3 code of a block's scale for `divisor` 6 (or 4), and the fp32 number that codes are
/// multiplied by.
///
/// `multiplier` is the second-level scale as a multiplier; NaN gives 0x7F and infinity 0x7E.
#[inline(always)]
pub(crate) fn nv_scale(scale: &NvScale, amax: f32, divisor: f32, multiplier: f32) -> (u8, f32) {
    let mut value = divide(amax, divisor, scale.arith);
    if scale.global != Global::None {
        value /= multiplier;
    }
    if value == 0.0
        && let Some(code) = scale.zero_code
    {
        return (code, total(scale, code, multiplier));
    }
    if value < scale.floor {
        value = scale.floor;
    }
    let mut code = Element::E4M3Fn.encode(value, Cast::CANONICAL);
    if scale.round_up && code < 0x7E && Element::E4M3Fn.decode(code) < value {
        code += 1; // magnitudes are ordered as their codes
    }
    (code, total(scale, code, multiplier))
}

/// Block scale times second level, in fp32.
#[inline(always)]
pub(crate) fn total(scale: &NvScale, code: u8, multiplier: f32) -> f32 {
    let block = Element::E4M3Fn.values()[code as usize];
    match scale.global {
        Global::None => block,
        _ => multiplier * block,
    }
}
