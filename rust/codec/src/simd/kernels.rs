//! The kernels, one text for all levels.
//!
//! A block whose numbers or scale are not ordinary (NaN, infinity, a scale near the ends of fp32)
//! goes to the scalar specification, so that every special case has one implementation.

mod decode;
mod encode;
mod fp4;
mod fp8;
mod linear;
mod traffic;

pub(super) use decode::{decode, join};
pub(super) use encode::{encode, split};
pub(super) use traffic::traffic;

use super::vector::{Simd, part, part_mut};

/// Whether the power-of-two scale of an E8M0 code moves every element's exponent without leaving
/// bf16's normal range.
#[inline(always)]
#[expect(
    clippy::manual_range_contains,
    reason = "stays a call inside functions with target features"
)]
fn moves_exponents(code: u8) -> bool {
    code >= 32 && code <= 224
}

// Families as constants of the loops over blocks.
const POWER8: u8 = 0;
const POWER4: u8 = 1;
const SCALED8: u8 = 2;
const INT8: u8 = 3;
/// E5M2 in place of E4M3.
const WIDE: u8 = 4;
const POWER8_WIDE: u8 = POWER8 | WIDE;
const SCALED8_WIDE: u8 = SCALED8 | WIDE;

/// The constants of an 8-bit float in fp32 and in bf16.
#[derive(Clone, Copy)]
struct Fp8 {
    /// Stored mantissa bits.
    mantissa: i32,
    /// fp32 exponent of the smallest normal number.
    lowest: i32,
    /// The largest finite code.
    largest: i32,
    /// 2^k whose fp32 neighbours are one subnormal step apart: adding it rounds to a step.
    magic: f32,
}

const E4M3: Fp8 = Fp8 { mantissa: 3, lowest: 121, largest: 0x7E, magic: 16_384.0 };
const E5M2: Fp8 = Fp8 { mantissa: 2, lowest: 113, largest: 0x7B, magic: 128.0 };

impl Fp8 {
    /// The format of a family.
    const fn of(family: u8) -> Self {
        if family & WIDE == 0 { E4M3 } else { E5M2 }
    }
}

/// Asks for the next group while this one is worked on: kernels that pass twice over a group would
/// else wait for memory in their first pass and leave it idle in their second.
#[inline(always)]
fn prefetch<S: Simd>(s: S, x: &[u16], ahead: usize) {
    let mut i = 0;
    while i < x.len() {
        s.prefetch(x.as_ptr().wrapping_add(ahead + i));
        i += 32;
    }
}

/// Nearest even at bit `drop` of 32-bit lanes.
#[inline(always)]
fn round_int<S: Simd>(s: S, bits: S::F, drop: i32) -> S::F {
    let odd = s.and_int(s.shr_int(bits, drop), s.splat_int(1));
    let addend = s.add_int(odd, s.splat_int((1 << (drop - 1)) - 1));
    s.add_int(bits, addend)
}
