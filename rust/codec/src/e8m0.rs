//! E8M0: the power-of-two scale of the MX formats. Code c is 2^(c-127); 0xFF is NaN; there is no
//! zero, no infinity and no sign.

use crate::element::Overflow;

/// The NaN code.
pub const NAN: u8 = 0xFF;

/// The value of a code; code 0 is 2^-127 exactly, a subnormal of fp32.
#[inline]
#[must_use]
pub const fn decode(code: u8) -> f32 {
    match code {
        0 => f32::from_bits(0x0040_0000),
        NAN => f32::NAN,
        _ => f32::from_bits((code as u32) << 23),
    }
}

/// How a number between two powers of two is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Toward {
    /// To the nearest, halfway up (1.5 becomes 2): PyTorch and `ml_dtypes`. Both send what is above
    /// 2^-127 to 2^-126, and so does this.
    Nearest,
    /// Up: CUDA's `cudaRoundPosInf`, the RCEIL rule.
    Up,
    /// Down: CUDA's `cudaRoundZero`.
    Down,
}

/// The code of a magnitude; the sign is ignored, as PyTorch and CUDA do (`ml_dtypes` makes negative
/// numbers and zero NaN).
///
/// NaN becomes [`NAN`], zero becomes 0. Infinity and what rounds above 2^127 becomes 254 when it
/// saturates (CUDA), else [`NAN`] (PyTorch, `ml_dtypes`).
#[inline]
#[must_use]
pub const fn encode(value: f32, toward: Toward, overflow: Overflow) -> u8 {
    let magnitude = value.to_bits() & 0x7FFF_FFFF;
    if magnitude > 0x7F80_0000 {
        return NAN;
    }
    let (exponent, fraction) = (magnitude >> 23, magnitude & 0x007F_FFFF);
    // 2^-127 is 0x400000 among fp32's subnormals, so below code 1 the threshold is shifted by one.
    let up = match (toward, exponent) {
        (Toward::Down, _) => false,
        (Toward::Up, 0) => fraction > 0x0040_0000,
        (Toward::Up, _) => fraction > 0,
        (Toward::Nearest, 0) => fraction > 0x0040_0000,
        (Toward::Nearest, _) => fraction >= 0x0040_0000,
    };
    let code = exponent + if up { 1 } else { 0 };
    match (code, overflow) {
        (..255, _) => code as u8,
        (_, Overflow::Saturate) => 254,
        (_, Overflow::Special) => NAN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Overflow::{Saturate, Special};

    #[test]
    fn every_code_decodes_to_what_encodes_to_it() {
        for code in 0..=254u8 {
            for toward in [Toward::Nearest, Toward::Up, Toward::Down] {
                assert_eq!(encode(decode(code), toward, Saturate), code, "{toward:?}");
            }
        }
        assert!(decode(NAN).is_nan());
        assert_eq!(encode(f32::NAN, Toward::Up, Saturate), NAN);
        assert_eq!(decode(0), 2f32.powi(-126) / 2.0);
    }

    #[test]
    fn halfway_goes_up_and_zero_is_the_smallest_scale() {
        assert_eq!(encode(1.5, Toward::Nearest, Saturate), 128);
        assert_eq!(encode(3.0, Toward::Nearest, Saturate), 129);
        assert_eq!(encode(1.4, Toward::Nearest, Saturate), 127);
        assert_eq!(encode(1.000_001, Toward::Up, Saturate), 128);
        assert_eq!(encode(1.999_999, Toward::Down, Saturate), 127);
        assert_eq!(encode(0.0, Toward::Up, Saturate), 0);
        assert_eq!(encode(f32::INFINITY, Toward::Nearest, Saturate), 254);
        assert_eq!(encode(f32::INFINITY, Toward::Nearest, Special), NAN);
    }
}
