//! Element formats: the code of one number without its scale.

use crate::error::{Error, exact};
use crate::float::{Grid, Rounding, Source, bf16_to_f32, f16_to_f32};

/// An element format.
///
/// Codes stand in the low bits of a byte. FNUZ bytes are not OCP bytes: the same code is half the
/// value and 0x80 is NaN, so the two never stand for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Element {
    /// OCP FP8, 4 exponent and 3 mantissa bits, largest 448, NaN 0x7F and 0xFF, no infinity.
    E4M3Fn,
    /// OCP FP8, 5 exponent and 2 mantissa bits, largest 57,344, IEEE infinity and NaN.
    E5M2,
    /// AMD gfx942's E4M3: bias 8, largest 240, NaN 0x80, no negative zero.
    E4M3Fnuz,
    /// AMD gfx942's E5M2: bias 16, largest 57,344, NaN 0x80, no negative zero.
    E5M2Fnuz,
    /// OCP FP4: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
    E2M1,
    /// OCP FP6, largest 7.5.
    E2M3,
    /// OCP FP6, largest 28.
    E3M2,
    /// Two's complement, -128 to 127.
    Int8,
    /// Two's complement, -8 to 7, in the low four bits.
    Int4,
    /// Two's complement, -2 to 1, in the low two bits.
    Int2,
    /// 0 to 255.
    Uint8,
    /// 0 to 15, in the low four bits.
    Uint4,
    /// 0 to 3, in the low two bits.
    Uint2,
}

/// What becomes of a number above the format's largest, infinity included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Overflow {
    /// The largest code with the sign kept (CUDA's satfinite, PyTorch's E4M3 since 2.12).
    Saturate,
    /// Infinity where the format has one, else NaN where it has one, else the largest code
    /// (`ml_dtypes`, PyTorch's E5M2).
    Special,
}

/// Whether NaN and zero keep their sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ZeroSign {
    /// Negative numbers that round to zero, and negative zero, become negative zero.
    Keep,
    /// They become zero (DeepGEMM's FP4 casts, MLX).
    Clear,
    /// Negative zero becomes zero, negative numbers that round to zero keep their sign (ModelOpt's
    /// NVFP4, SGLang's FP4 per 16).
    ClearExact,
}

/// How one number becomes a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cast {
    /// Rounding between codes.
    pub rounding: Rounding,
    /// Policy above the largest code.
    pub overflow: Overflow,
    /// Policy for the sign of zero.
    pub zero: ZeroSign,
}

impl Cast {
    /// Nearest-even, saturating, negative zero kept: the policy when no engine asks otherwise.
    pub const CANONICAL: Self = Self {
        rounding: Rounding::NearestEven,
        overflow: Overflow::Saturate,
        zero: ZeroSign::Keep,
    };
}

/// The codes that stand for no ordinary number.
struct Specials {
    largest: u32,
    infinity: Option<u32>,
    /// NaN without sign; `None` where the format has none.
    nan: Option<u32>,
    /// FNUZ: a sign with an all-zero magnitude is NaN.
    unsigned_zero: bool,
}

impl Element {
    /// All formats.
    pub const ALL: [Self; 13] = [
        Self::E4M3Fn,
        Self::E5M2,
        Self::E4M3Fnuz,
        Self::E5M2Fnuz,
        Self::E2M1,
        Self::E2M3,
        Self::E3M2,
        Self::Int8,
        Self::Int4,
        Self::Int2,
        Self::Uint8,
        Self::Uint4,
        Self::Uint2,
    ];

    /// The name in presets and on the Python side.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::E4M3Fn => "e4m3fn",
            Self::E5M2 => "e5m2",
            Self::E4M3Fnuz => "e4m3fnuz",
            Self::E5M2Fnuz => "e5m2fnuz",
            Self::E2M1 => "e2m1",
            Self::E2M3 => "e2m3",
            Self::E3M2 => "e3m2",
            Self::Int8 => "int8",
            Self::Int4 => "int4",
            Self::Int2 => "int2",
            Self::Uint8 => "uint8",
            Self::Uint4 => "uint4",
            Self::Uint2 => "uint2",
        }
    }

    /// Bits of one code.
    #[must_use]
    pub const fn bits(self) -> u32 {
        match self {
            Self::E4M3Fn | Self::E5M2 | Self::E4M3Fnuz | Self::E5M2Fnuz => 8,
            Self::Int8 | Self::Uint8 => 8,
            Self::E2M3 | Self::E3M2 => 6,
            Self::E2M1 | Self::Int4 | Self::Uint4 => 4,
            Self::Int2 | Self::Uint2 => 2,
        }
    }

    /// Exponent of the largest power of two: the `emax` of the power-of-two scale rules.
    #[must_use]
    pub const fn emax(self) -> u32 {
        match self {
            Self::E4M3Fn => 8,
            Self::E5M2 | Self::E5M2Fnuz => 15,
            Self::E4M3Fnuz => 7,
            Self::E2M1 | Self::E2M3 => 2,
            Self::E3M2 => 4,
            Self::Int8 => 6,
            Self::Uint8 => 7,
            Self::Int4 => 2,
            Self::Uint4 => 3,
            Self::Int2 => 0,
            Self::Uint2 => 1,
        }
    }

    pub(crate) const fn grid(self) -> Option<Grid> {
        Some(match self {
            Self::E4M3Fn => Grid { mantissa: 3, bias: 7 },
            Self::E5M2 => Grid { mantissa: 2, bias: 15 },
            Self::E4M3Fnuz => Grid { mantissa: 3, bias: 8 },
            Self::E5M2Fnuz => Grid { mantissa: 2, bias: 16 },
            Self::E2M1 => Grid { mantissa: 1, bias: 1 },
            Self::E2M3 => Grid { mantissa: 3, bias: 1 },
            Self::E3M2 => Grid { mantissa: 2, bias: 3 },
            _ => return None,
        })
    }

    const fn specials(self) -> Specials {
        let (largest, infinity, nan, unsigned_zero) = match self {
            Self::E4M3Fn => (0x7E, None, Some(0x7F), false),
            Self::E5M2 => (0x7B, Some(0x7C), Some(0x7F), false),
            Self::E4M3Fnuz | Self::E5M2Fnuz => (0x7F, None, None, true),
            Self::E2M3 | Self::E3M2 => (0x1F, None, None, false),
            _ => (0x7, None, None, false),
        };
        Specials { largest, infinity, nan, unsigned_zero }
    }

    /// Smallest and largest integer of an integer format.
    const fn integers(self) -> (i32, i32) {
        match self {
            Self::Int8 => (-128, 127),
            Self::Int4 => (-8, 7),
            Self::Int2 => (-2, 1),
            Self::Uint8 => (0, 255),
            Self::Uint4 => (0, 15),
            _ => (0, 3),
        }
    }

    /// The largest finite value.
    #[must_use]
    pub fn largest(self) -> f32 {
        match self.grid() {
            Some(grid) => grid.expand(self.specials().largest),
            // At most eight bits: exact.
            None => self.integers().1 as f32,
        }
    }

    /// The code of `value`.
    ///
    /// NaN becomes the format's NaN with the sign dropped (E4M3 and E5M2 0x7F, FNUZ 0x80), as
    /// NVIDIA's conversions do; formats without NaN write their largest magnitude (E2M1 0x7, FP6
    /// 0x1F) and integers 0. A scheme poisons the block's scale where that would hide it.
    #[inline]
    #[must_use]
    pub fn encode(self, value: f32, cast: Cast) -> u8 {
        match self.grid() {
            Some(grid) => self.encode_float(grid, value, cast),
            None => self.encode_integer(value, cast.rounding),
        }
    }

    #[inline]
    fn encode_float(self, grid: Grid, value: f32, cast: Cast) -> u8 {
        let specials = self.specials();
        let sign_bit = 1u32 << (self.bits() - 1);
        let magnitude = value.to_bits() & 0x7FFF_FFFF;
        if magnitude > 0x7F80_0000 {
            let nan = if specials.unsigned_zero {
                sign_bit
            } else {
                specials.nan.unwrap_or(specials.largest)
            };
            return nan as u8;
        }
        let rounded = match magnitude {
            0x7F80_0000 => u32::MAX,
            _ => grid.round(magnitude, cast.rounding),
        };
        let sign = if value.is_sign_negative() { sign_bit } else { 0 };
        let code = if rounded <= specials.largest {
            rounded
        } else if cast.overflow == Overflow::Saturate {
            specials.largest
        } else if specials.unsigned_zero {
            return sign_bit as u8;
        } else {
            specials.infinity.or(specials.nan).unwrap_or(specials.largest)
        };
        let clear = match cast.zero {
            ZeroSign::Keep => specials.unsigned_zero,
            ZeroSign::Clear => true,
            ZeroSign::ClearExact => specials.unsigned_zero || magnitude == 0,
        };
        if code == 0 && clear {
            return 0;
        }
        (sign | code) as u8
    }

    #[inline]
    fn encode_integer(self, value: f32, rounding: Rounding) -> u8 {
        let (low, high) = self.integers();
        let rounded = match rounding {
            Rounding::NearestEven => value.round_ties_even(),
            Rounding::NearestAway => value.round(),
            Rounding::NearestTowardZero => {
                if (value - value.trunc()).abs() > 0.5 {
                    value.round()
                } else {
                    value.trunc()
                }
            }
            Rounding::Truncate => value.trunc(),
        };
        // `as` saturates and sends NaN to 0.
        let integer = (rounded as i32).clamp(low, high);
        let mask = ((1u32 << self.bits()) - 1) as u8;
        (integer & 0xFF) as u8 & mask
    }

    /// The value of a code; bits above the format's width are ignored.
    #[inline]
    #[must_use]
    pub const fn decode(self, code: u8) -> f32 {
        let bits = self.bits();
        let code = code as u32 & ((1 << bits) - 1);
        let sign_bit = 1u32 << (bits - 1);
        let Some(grid) = self.grid() else {
            let signed = matches!(self, Self::Int8 | Self::Int4 | Self::Int2);
            let magnitude = code & (sign_bit - 1);
            // At most eight bits: exact.
            return if !signed {
                code as f32
            } else if code == magnitude {
                magnitude as f32
            } else {
                magnitude as f32 - sign_bit as f32
            };
        };
        let specials = self.specials();
        let magnitude = code & (sign_bit - 1);
        if specials.unsigned_zero && code == sign_bit {
            return f32::NAN;
        }
        let value = match specials.infinity {
            _ if magnitude <= specials.largest => grid.expand(magnitude),
            Some(infinity) if magnitude == infinity => f32::INFINITY,
            _ => return f32::NAN,
        };
        if code == magnitude { value } else { -value }
    }
}

impl Element {
    /// The values of all bytes.
    pub(crate) const fn values(self) -> &'static [f32; 256] {
        &VALUES[self as usize]
    }

    /// The codes of a whole source, one per byte.
    ///
    /// # Errors
    /// [`Error::Length`] unless `out` has one byte per element.
    pub fn encode_all(self, source: Source<'_>, cast: Cast, out: &mut [u8]) -> Result<(), Error> {
        exact("out", out.len(), source.len(), "bytes", || format!("{} elements", source.len()))?;
        let encode = |(code, value): (&mut u8, f32)| *code = self.encode(value, cast);
        match source {
            Source::Bf16(s) => {
                out.iter_mut().zip(s.iter().map(|b| bf16_to_f32(*b))).for_each(encode);
            }
            Source::F16(s) => out.iter_mut().zip(s.iter().map(|b| f16_to_f32(*b))).for_each(encode),
            Source::F32(s) => out.iter_mut().zip(s.iter().copied()).for_each(encode),
        }
        Ok(())
    }

    /// The values of codes, one per byte.
    ///
    /// # Errors
    /// [`Error::Length`] unless `out` has one number per code.
    pub fn decode_all(self, codes: &[u8], out: &mut [f32]) -> Result<(), Error> {
        exact("out", out.len(), codes.len(), "elements", || format!("{} codes", codes.len()))?;
        let values = self.values();
        out.iter_mut().zip(codes).for_each(|(value, code)| *value = values[usize::from(*code)]);
        Ok(())
    }
}

/// The values of all bytes in each format, in the order of [`Element::ALL`].
static VALUES: [[f32; 256]; 13] = {
    let mut values = [[0.0; 256]; 13];
    let mut index = 0;
    while index < 13 {
        let mut code = 0;
        while code < 256 {
            values[index][code] = Element::ALL[index].decode(code as u8);
            code += 1;
        }
        index += 1;
    }
    values
};

#[cfg(test)]
mod tests;
