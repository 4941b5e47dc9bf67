//! bf16, fp16 and fp32 as bit patterns, and the one rounding step that every format shares.

/// How a number between two codes is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rounding {
    /// Nearest, ties to the even code: IEEE, OCP, CUDA and PyTorch.
    NearestEven,
    /// Nearest, ties toward zero: DeepGEMM's FP4 casts, MLX, ModelOpt's MXFP4.
    NearestTowardZero,
    /// Nearest, ties away from zero: SGLang's older FP4.
    NearestAway,
    /// Toward zero: vLLM's int8 store.
    Truncate,
}

impl Rounding {
    /// What to add below the kept bits before they are cut off.
    #[inline]
    pub(crate) const fn addend(self, value: u32, drop: u32) -> u32 {
        let half = 1u32 << (drop - 1);
        match self {
            Self::NearestEven => half - 1 + ((value >> drop) & 1),
            Self::NearestTowardZero => half - 1,
            Self::NearestAway => half,
            Self::Truncate => 0,
        }
    }
}

/// A binary float grid narrower than fp32: `mantissa` stored bits and the exponent bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grid {
    pub(crate) mantissa: u32,
    pub(crate) bias: u32,
}

impl Grid {
    pub(crate) const F16: Self = Self { mantissa: 10, bias: 15 };

    /// Biased fp32 exponent of the grid's smallest normal number.
    pub(crate) const fn min_exponent(self) -> u32 {
        128 - self.bias
    }

    /// Rounds a finite fp32 magnitude (sign bit clear) to the grid's code, as if the exponent had no
    /// upper end. One rounding, subnormals of both formats included.
    #[inline]
    pub(crate) const fn round(self, magnitude: u32, rounding: Rounding) -> u32 {
        let drop = 23 - self.mantissa;
        let exponent = magnitude >> 23;
        let lowest = self.min_exponent();
        if exponent >= lowest {
            let value = magnitude - ((lowest - 1) << 23);
            return (value + rounding.addend(value, drop)) >> drop;
        }
        let (significand, exponent) = match exponent {
            0 => (magnitude, 1),
            _ => ((magnitude & 0x007F_FFFF) | 0x0080_0000, exponent),
        };
        let drop = drop + lowest - exponent;
        if drop > 25 {
            return 0; // below half of the smallest code, whatever the rounding
        }
        (significand + rounding.addend(significand, drop)) >> drop
    }

    /// The fp32 magnitude of a code without sign; exact.
    #[inline]
    pub(crate) const fn expand(self, code: u32) -> f32 {
        let (exponent, fraction) = (code >> self.mantissa, code & ((1 << self.mantissa) - 1));
        if exponent == 0 {
            // The fraction has at most 10 bits: the conversion is exact; so is the power of two.
            return fraction as f32 * power_of_two_bits(self.min_exponent(), self.mantissa);
        }
        f32::from_bits(
            ((exponent + self.min_exponent() - 1) << 23) | (fraction << (23 - self.mantissa)),
        )
    }
}

/// 2^(exponent - 127 - below), also when it is subnormal.
const fn power_of_two_bits(exponent: u32, below: u32) -> f32 {
    if exponent > below {
        f32::from_bits((exponent - below) << 23)
    } else {
        f32::from_bits(1 << (22 + exponent - below))
    }
}

/// The bf16 bits that NaN results are written as.
pub const BF16_NAN: u16 = 0x7FC0;

/// bf16 bits to fp32; exact.
#[inline]
#[must_use]
pub const fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits((bits as u32) << 16)
}

/// fp32 to bf16 bits, nearest-even; every NaN becomes [`BF16_NAN`].
#[inline]
#[must_use]
pub const fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return BF16_NAN;
    }
    // Finite values near the top carry into infinity, as they must.
    ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) as u16
}

/// fp16 bits to fp32; exact.
#[inline]
#[must_use]
pub const fn f16_to_f32(bits: u16) -> f32 {
    let (sign, code) = ((bits as u32 & 0x8000) << 16, bits as u32 & 0x7FFF);
    let magnitude = match code {
        0x7C00 => 0x7F80_0000,
        0x7C01.. => 0x7FC0_0000,
        _ => Grid::F16.expand(code).to_bits(),
    };
    f32::from_bits(sign | magnitude)
}

/// fp32 to fp16 bits, nearest-even, overflow to infinity; every NaN becomes 0x7E00.
#[inline]
#[must_use]
pub const fn f32_to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let magnitude = bits & 0x7FFF_FFFF;
    if magnitude > 0x7F80_0000 {
        return 0x7E00;
    }
    let rounded = Grid::F16.round(magnitude, Rounding::NearestEven);
    let code = if rounded > 0x7C00 { 0x7C00 } else { rounded };
    ((bits >> 16) & 0x8000 | code) as u16
}

/// A row-major source of numbers.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// bf16 bit patterns.
    Bf16(&'a [u16]),
    /// fp16 bit patterns.
    F16(&'a [u16]),
    /// fp32.
    F32(&'a [f32]),
}

impl Source<'_> {
    /// Number of elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::Bf16(s) | Self::F16(s) => s.len(),
            Self::F32(s) => s.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first `count` elements and the others.
    pub(crate) const fn split(self, count: usize) -> (Self, Self) {
        match self {
            Self::Bf16(s) => {
                let (a, b) = s.split_at(count);
                (Self::Bf16(a), Self::Bf16(b))
            }
            Self::F16(s) => {
                let (a, b) = s.split_at(count);
                (Self::F16(a), Self::F16(b))
            }
            Self::F32(s) => {
                let (a, b) = s.split_at(count);
                (Self::F32(a), Self::F32(b))
            }
        }
    }
}

/// A row-major destination of numbers, rounded to nearest-even from fp32.
#[derive(Debug)]
pub enum Target<'a> {
    /// bf16 bit patterns.
    Bf16(&'a mut [u16]),
    /// fp16 bit patterns.
    F16(&'a mut [u16]),
    /// fp32.
    F32(&'a mut [f32]),
}

impl Target<'_> {
    /// Number of elements.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::Bf16(s) | Self::F16(s) => s.len(),
            Self::F32(s) => s.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Address and length in bytes.
    pub(crate) fn span(&self) -> (usize, usize) {
        match self {
            Self::Bf16(s) | Self::F16(s) => (s.as_ptr() as usize, 2 * s.len()),
            Self::F32(s) => (s.as_ptr() as usize, 4 * s.len()),
        }
    }

    /// The first `count` elements and the others.
    pub(crate) fn split(self, count: usize) -> (Self, Self) {
        match self {
            Self::Bf16(s) => {
                let (a, b) = s.split_at_mut(count);
                (Self::Bf16(a), Self::Bf16(b))
            }
            Self::F16(s) => {
                let (a, b) = s.split_at_mut(count);
                (Self::F16(a), Self::F16(b))
            }
            Self::F32(s) => {
                let (a, b) = s.split_at_mut(count);
                (Self::F32(a), Self::F32(b))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_precision_pattern_survives_fp32() {
        for bits in 0..=u16::MAX {
            if bits & 0x7FFF <= 0x7C00 {
                assert_eq!(f32_to_f16(f16_to_f32(bits)), bits, "fp16 {bits:#06x}");
            } else {
                assert!(f16_to_f32(bits).is_nan());
            }
            if bits & 0x7FFF <= 0x7F80 {
                assert_eq!(f32_to_bf16(bf16_to_f32(bits)), bits, "bf16 {bits:#06x}");
            }
        }
    }

    #[test]
    fn half_precision_rounds_ties_to_even() {
        assert_eq!(f32_to_bf16(f32::from_bits(0x3F80_8000)), 0x3F80);
        assert_eq!(f32_to_bf16(f32::from_bits(0x3F81_8000)), 0x3F82);
        assert_eq!(f32_to_bf16(f32::from_bits(0x0000_8001)), 0x0001);
        assert_eq!(f32_to_f16(65519.9), 0x7BFF);
        assert_eq!(f32_to_f16(65520.0), 0x7C00);
        assert_eq!(f32_to_f16(-(2f32.powi(-25))), 0x8000);
        assert_eq!(f32_to_f16(f32::NAN), 0x7E00);
    }
}
