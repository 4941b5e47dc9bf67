//! NEON: 16 words of 16 bits in two registers. There are no streamed stores.

use std::arch::aarch64::*;

use super::vector::{Simd, e4m3_subnormal_by_count, intrinsics};

/// Proof that the CPU has NEON.
#[derive(Clone, Copy)]
pub(super) struct Neon(());

impl Neon {
    pub(super) fn new() -> Option<Self> {
        std::arch::is_aarch64_feature_detected!("neon").then_some(Self(()))
    }
}

type Words = (uint16x8_t, uint16x8_t);
type Lanes = (uint32x4_t, uint32x4_t);

/// An operation on both registers, on unsigned, signed or float lanes.
macro_rules! both {
    ($op:ident($a:expr, $b:expr)) => {
        ($op($a.0, $b.0), $op($a.1, $b.1))
    };
    ($back:ident $op:ident $to:ident($a:expr, $b:expr)) => {
        ($back($op($to($a.0), $to($b.0))), $back($op($to($a.1), $to($b.1))))
    };
}

impl Simd for Neon {
    type W = Words;
    type F = Lanes;

    const LANES: usize = 16;
    const BYTE_TABLE: bool = false;

    #[inline(always)]
    fn load(self, words: &[u16]) -> Words {
        assert!(words.len() >= 16);
        // SAFETY: NEON by the token; 32 bytes are inside `words`.
        unsafe { (vld1q_u16(words.as_ptr()), vld1q_u16(words.as_ptr().add(8))) }
    }

    #[inline(always)]
    fn load_bytes(self, bytes: &[u8]) -> Words {
        assert!(bytes.len() >= 16);
        // SAFETY: NEON by the token; 16 bytes are inside `bytes`.
        unsafe {
            let v = vld1q_u8(bytes.as_ptr());
            (vmovl_u8(vget_low_u8(v)), vmovl_u8(vget_high_u8(v)))
        }
    }

    #[inline(always)]
    fn load_signed_bytes(self, bytes: &[u8]) -> Words {
        assert!(bytes.len() >= 16);
        // SAFETY: NEON by the token; 16 bytes are inside `bytes`.
        unsafe {
            let v = vreinterpretq_s8_u8(vld1q_u8(bytes.as_ptr()));
            let (low, high) = (vmovl_s8(vget_low_s8(v)), vmovl_s8(vget_high_s8(v)));
            (vreinterpretq_u16_s16(low), vreinterpretq_u16_s16(high))
        }
    }

    #[inline(always)]
    fn load_whole(self, bytes: &[u8]) -> Words {
        assert!(bytes.len() >= 32);
        // SAFETY: NEON by the token; 32 bytes are inside `bytes`.
        unsafe {
            let (low, high) = (vld1q_u8(bytes.as_ptr()), vld1q_u8(bytes.as_ptr().add(16)));
            (vreinterpretq_u16_u8(low), vreinterpretq_u16_u8(high))
        }
    }

    #[inline(always)]
    fn load_nibbles(self, bytes: &[u8]) -> Words {
        assert!(bytes.len() >= 16);
        // SAFETY: NEON by the token; 16 bytes are inside `bytes`.
        unsafe {
            let v = vld1q_u8(bytes.as_ptr());
            let (low, high) = (vandq_u8(v, vdupq_n_u8(0xF)), vshrq_n_u8(v, 4));
            (vreinterpretq_u16_u8(vzip1q_u8(low, high)), vreinterpretq_u16_u8(vzip2q_u8(low, high)))
        }
    }

    #[inline(always)]
    fn lane_tables(self, [a, b, ..]: [&[u8; 16]; 4]) -> Words {
        // SAFETY: NEON by the token; a table is 16 bytes.
        unsafe {
            (vreinterpretq_u16_u8(vld1q_u8(a.as_ptr())), vreinterpretq_u16_u8(vld1q_u8(b.as_ptr())))
        }
    }

    #[inline(always)]
    fn byte_tables(self, tables: [&[u8; 16]; 2]) -> Words {
        // SAFETY: NEON by the token; a table is 16 bytes.
        let table = unsafe { vreinterpretq_u16_u8(vld1q_u8(tables[0].as_ptr())) };
        (table, table)
    }

    #[inline(always)]
    fn zip(self, low: Words, high: Words) -> [Words; 2] {
        // SAFETY: NEON by the token.
        unsafe {
            let (a, b) = (vreinterpretq_u8_u16(low.0), vreinterpretq_u8_u16(high.0));
            let (c, d) = (vreinterpretq_u8_u16(low.1), vreinterpretq_u8_u16(high.1));
            let near =
                (vreinterpretq_u16_u8(vzip1q_u8(a, b)), vreinterpretq_u16_u8(vzip2q_u8(a, b)));
            let far =
                (vreinterpretq_u16_u8(vzip1q_u8(c, d)), vreinterpretq_u16_u8(vzip2q_u8(c, d)));
            [near, far]
        }
    }

    #[inline(always)]
    fn store(self, v: Words, words: &mut [u16], _stream: bool) {
        assert!(words.len() >= 16);
        // SAFETY: NEON by the token; 32 bytes are inside `words`.
        unsafe {
            vst1q_u16(words.as_mut_ptr(), v.0);
            vst1q_u16(words.as_mut_ptr().add(8), v.1);
        }
    }

    #[inline(always)]
    fn store_bytes(self, v: Words, bytes: &mut [u8], _stream: bool) {
        assert!(bytes.len() >= 16);
        // SAFETY: NEON by the token; 16 bytes are inside `bytes`.
        unsafe { vst1q_u8(bytes.as_mut_ptr(), vcombine_u8(vmovn_u16(v.0), vmovn_u16(v.1))) }
    }

    #[inline(always)]
    fn store_nibbles(self, v: Words, bytes: &mut [u8], _stream: bool) {
        assert!(bytes.len() >= 8);
        // SAFETY: NEON by the token; 8 bytes are inside `bytes`.
        unsafe {
            let (first, second) = (vmovn_u16(v.0), vmovn_u16(v.1));
            let (low, high) = (vuzp1_u8(first, second), vuzp2_u8(first, second));
            vst1_u8(bytes.as_mut_ptr(), vorr_u8(low, vshl_n_u8(high, 4)));
        }
    }

    // Its prefetch is not in stable Rust.
    #[inline(always)]
    fn prefetch(self, _address: *const u16) {}

    #[inline(always)]
    fn fence(self) {}

    #[inline(always)]
    fn largest_of_8(self, v: [Words; 8]) -> [u16; 8] {
        let mut out = [0; 8];
        let mut i = 0;
        while i < 8 {
            out[i] = self.largest(v[i]);
            i += 1;
        }
        out
    }

    #[inline(always)]
    fn largest_of_runs(self, v: [Words; 8]) -> [u16; 16] {
        let [a, b, c, d, e, f, g, h] = self.largest_of_8(v);
        [a, b, c, d, e, f, g, h, 0, 0, 0, 0, 0, 0, 0, 0]
    }

    #[inline(always)]
    fn byte_table(self, _index: Words, _table: &[u8; 64]) -> Words {
        unreachable!("NEON's 64-byte table is not used")
    }

    #[inline(always)]
    fn e4m3_subnormal(self, v: Words) -> Words {
        e4m3_subnormal_by_count(self, v)
    }

    #[inline(always)]
    fn widen(self, words: &[u16; 16]) -> Lanes {
        // SAFETY: NEON by the token; 16 bytes are inside `words`.
        unsafe {
            let words = vld1q_u16(words.as_ptr());
            (vshll_n_u16(vget_low_u16(words), 16), vshll_n_u16(vget_high_u16(words), 16))
        }
    }

    #[inline(always)]
    fn store_floats(self, v: Lanes, out: &mut [f32; 16]) {
        // SAFETY: NEON by the token; 32 bytes are inside `out`.
        unsafe {
            vst1q_f32(out.as_mut_ptr(), vreinterpretq_f32_u32(v.0));
            vst1q_f32(out.as_mut_ptr().add(4), vreinterpretq_f32_u32(v.1));
        }
    }

    #[inline(always)]
    fn store_low_bytes(self, v: Lanes, bytes: &mut [u8]) {
        assert!(bytes.len() >= 8);
        // SAFETY: NEON by the token; 8 bytes are inside `bytes`.
        unsafe {
            let words = vcombine_u16(vmovn_u32(v.0), vmovn_u32(v.1));
            vst1_u8(bytes.as_mut_ptr(), vmovn_u16(words));
        }
    }

    #[inline(always)]
    fn pair(self, first: f32, _second: f32) -> Lanes {
        self.splat_float(first)
    }

    intrinsics! {
        splat(word: u16) -> Words { (vdupq_n_u16(word), vdupq_n_u16(word)) }
        and(a: Words, b: Words) -> Words { both!(vandq_u16(a, b)) }
        or(a: Words, b: Words) -> Words { both!(vorrq_u16(a, b)) }
        xor(a: Words, b: Words) -> Words { both!(veorq_u16(a, b)) }
        add(a: Words, b: Words) -> Words { both!(vaddq_u16(a, b)) }
        sub_saturating(a: Words, b: Words) -> Words {
            both!(vreinterpretq_u16_s16 vqsubq_s16 vreinterpretq_s16_u16(a, b))
        }
        sub_to_zero(a: Words, b: Words) -> Words { both!(vqsubq_u16(a, b)) }
        look_bytes(tables: Words, index: Words) -> Words {
            both!(vreinterpretq_u16_u8 vqtbl1q_u8 vreinterpretq_u8_u16(tables, index))
        }
        splat_byte(byte: u8) -> Words {
            (vreinterpretq_u16_u8(vdupq_n_u8(byte)), vreinterpretq_u16_u8(vdupq_n_u8(byte)))
        }
        min_bytes(a: Words, b: Words) -> Words {
            both!(vreinterpretq_u16_u8 vminq_u8 vreinterpretq_u8_u16(a, b))
        }
        max_bytes(a: Words, b: Words) -> Words {
            both!(vreinterpretq_u16_u8 vmaxq_u8 vreinterpretq_u8_u16(a, b))
        }
        average_bytes(a: Words, b: Words) -> Words {
            both!(vreinterpretq_u16_u8 vrhaddq_u8 vreinterpretq_u8_u16(a, b))
        }
        any_byte_above(v: Words, limit: u8) -> bool {
            vmaxvq_u8(vmaxq_u8(vreinterpretq_u8_u16(v.0), vreinterpretq_u8_u16(v.1))) > limit
        }
        any_between(v: Words, low: u16, high: u16) -> bool {
            vmaxvq_u16(vorrq_u16(
                vandq_u16(vcgtq_u16(v.0, vdupq_n_u16(low)), vcltq_u16(v.0, vdupq_n_u16(high))),
                vandq_u16(vcgtq_u16(v.1, vdupq_n_u16(low)), vcltq_u16(v.1, vdupq_n_u16(high))),
            )) != 0
        }
        quotient(x: Lanes, scale: Lanes, _reciprocal: Lanes) -> Lanes {
            both!(vreinterpretq_u32_f32 vdivq_f32 vreinterpretq_f32_u32(x, scale))
        }
        min(a: Words, b: Words) -> Words {
            both!(vreinterpretq_u16_s16 vminq_s16 vreinterpretq_s16_u16(a, b))
        }
        max(a: Words, b: Words) -> Words {
            both!(vreinterpretq_u16_s16 vmaxq_s16 vreinterpretq_s16_u16(a, b))
        }
        shl(a: Words, count: i32) -> Words {
            (vshlq_u16(a.0, vdupq_n_s16(count as i16)), vshlq_u16(a.1, vdupq_n_s16(count as i16)))
        }
        shr(a: Words, count: i32) -> Words {
            (vshlq_u16(a.0, vdupq_n_s16(-count as i16)), vshlq_u16(a.1, vdupq_n_s16(-count as i16)))
        }
        if_above(a: Words, b: Words, yes: Words, no: Words) -> Words {
            (
                vbslq_u16(vcgtq_s16(vreinterpretq_s16_u16(a.0), vreinterpretq_s16_u16(b.0)), yes.0, no.0),
                vbslq_u16(vcgtq_s16(vreinterpretq_s16_u16(a.1), vreinterpretq_s16_u16(b.1)), yes.1, no.1),
            )
        }
        largest(v: Words) -> u16 { vmaxvq_u16(vmaxq_u16(v.0, v.1)) }
        any_bit(v: Words, bits: u16) -> Words {
            (
                vandq_u16(vtstq_u16(v.0, vdupq_n_u16(bits)), vdupq_n_u16(1)),
                vandq_u16(vtstq_u16(v.1, vdupq_n_u16(bits)), vdupq_n_u16(1)),
            )
        }
        even(v: Words) -> Lanes {
            (vshlq_n_u32(vreinterpretq_u32_u16(v.0), 16), vshlq_n_u32(vreinterpretq_u32_u16(v.1), 16))
        }
        odd(v: Words) -> Lanes {
            (
                vandq_u32(vreinterpretq_u32_u16(v.0), vdupq_n_u32(0xFFFF_0000)),
                vandq_u32(vreinterpretq_u32_u16(v.1), vdupq_n_u32(0xFFFF_0000)),
            )
        }
        even_int(v: Words) -> Lanes {
            (
                vreinterpretq_u32_s32(vshrq_n_s32(vshlq_n_s32(vreinterpretq_s32_u16(v.0), 16), 16)),
                vreinterpretq_u32_s32(vshrq_n_s32(vshlq_n_s32(vreinterpretq_s32_u16(v.1), 16), 16)),
            )
        }
        odd_int(v: Words) -> Lanes {
            (
                vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u16(v.0), 16)),
                vreinterpretq_u32_s32(vshrq_n_s32(vreinterpretq_s32_u16(v.1), 16)),
            )
        }
        merge(even: Lanes, odd: Lanes) -> Words {
            (
                vreinterpretq_u16_u32(vbslq_u32(vdupq_n_u32(0xFFFF), even.0, odd.0)),
                vreinterpretq_u16_u32(vbslq_u32(vdupq_n_u32(0xFFFF), even.1, odd.1)),
            )
        }
        splat_float(value: f32) -> Lanes {
            (vdupq_n_u32(value.to_bits()), vdupq_n_u32(value.to_bits()))
        }
        splat_int(value: i32) -> Lanes {
            (vdupq_n_u32(value.cast_unsigned()), vdupq_n_u32(value.cast_unsigned()))
        }
        multiply(a: Lanes, b: Lanes) -> Lanes {
            both!(vreinterpretq_u32_f32 vmulq_f32 vreinterpretq_f32_u32(a, b))
        }
        divide(a: Lanes, b: Lanes) -> Lanes {
            both!(vreinterpretq_u32_f32 vdivq_f32 vreinterpretq_f32_u32(a, b))
        }
        add_float(a: Lanes, b: Lanes) -> Lanes {
            both!(vreinterpretq_u32_f32 vaddq_f32 vreinterpretq_f32_u32(a, b))
        }
        to_int_nearest(a: Lanes) -> Lanes {
            (
                vreinterpretq_u32_s32(vcvtnq_s32_f32(vreinterpretq_f32_u32(a.0))),
                vreinterpretq_u32_s32(vcvtnq_s32_f32(vreinterpretq_f32_u32(a.1))),
            )
        }
        to_int_truncate(a: Lanes) -> Lanes {
            (
                vreinterpretq_u32_s32(vcvtq_s32_f32(vreinterpretq_f32_u32(a.0))),
                vreinterpretq_u32_s32(vcvtq_s32_f32(vreinterpretq_f32_u32(a.1))),
            )
        }
        to_float(a: Lanes) -> Lanes {
            (
                vreinterpretq_u32_f32(vcvtq_f32_s32(vreinterpretq_s32_u32(a.0))),
                vreinterpretq_u32_f32(vcvtq_f32_s32(vreinterpretq_s32_u32(a.1))),
            )
        }
        and_int(a: Lanes, b: Lanes) -> Lanes { both!(vandq_u32(a, b)) }
        add_int(a: Lanes, b: Lanes) -> Lanes { both!(vaddq_u32(a, b)) }
        sub_int(a: Lanes, b: Lanes) -> Lanes { both!(vsubq_u32(a, b)) }
        min_int(a: Lanes, b: Lanes) -> Lanes {
            both!(vreinterpretq_u32_s32 vminq_s32 vreinterpretq_s32_u32(a, b))
        }
        max_int(a: Lanes, b: Lanes) -> Lanes {
            both!(vreinterpretq_u32_s32 vmaxq_s32 vreinterpretq_s32_u32(a, b))
        }
        shl_int(a: Lanes, count: i32) -> Lanes {
            (vshlq_u32(a.0, vdupq_n_s32(count)), vshlq_u32(a.1, vdupq_n_s32(count)))
        }
        shr_int(a: Lanes, count: i32) -> Lanes {
            (vshlq_u32(a.0, vdupq_n_s32(-count)), vshlq_u32(a.1, vdupq_n_s32(-count)))
        }
        if_above_int(a: Lanes, b: Lanes, yes: Lanes, no: Lanes) -> Lanes {
            (
                vbslq_u32(vcgtq_s32(vreinterpretq_s32_u32(a.0), vreinterpretq_s32_u32(b.0)), yes.0, no.0),
                vbslq_u32(vcgtq_s32(vreinterpretq_s32_u32(a.1), vreinterpretq_s32_u32(b.1)), yes.1, no.1),
            )
        }
    }
}
