//! AVX-512 F, BW, VL and DQ: 32 words of 16 bits; with VBMI a byte table for E4M3's subnormals.

use std::arch::x86_64::*;

use super::vector::{Simd, intrinsics};

/// Proof that the CPU has AVX-512 F, BW, VL and DQ, and VBMI where `VBMI`.
#[derive(Clone, Copy)]
pub(super) struct Avx512<const VBMI: bool>(());

impl<const VBMI: bool> Avx512<VBMI> {
    pub(super) fn new() -> Option<Self> {
        let base = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq");
        (base && (!VBMI || is_x86_feature_detected!("avx512vbmi"))).then_some(Self(()))
    }
}

/// E4M3 codes of bf16 magnitudes from 2^-14 to 2^-6 by 3 exponent bits, 3 mantissa bits and whether
/// anything follows: enough to round exactly.
static E4M3_SUBNORMALS: [u8; 128] = e4m3_subnormals();

const fn e4m3_subnormals() -> [u8; 128] {
    let mut table = [0; 128];
    let mut index = 0;
    while index < 128 {
        let (exponent, mantissa, sticky) = (index >> 4, index >> 1 & 7, index & 1);
        // 1.mmm as 4 bits and the sticky bit below, in units of 2^(exponent - 18).
        let value = ((8 + mantissa) << 1) | sticky;
        // A step of codes, 2^-9, is 2^(9 - exponent) of these units.
        let drop = 9 - exponent as u32;
        let half = 1 << (drop - 1);
        let odd = value >> drop & 1;
        table[index] = ((value + half - 1 + odd) >> drop) as u8;
        index += 1;
    }
    table
}

impl<const VBMI: bool> Simd for Avx512<VBMI> {
    type W = __m512i;
    type F = __m512i;

    const LANES: usize = 32;
    const BYTE_TABLE: bool = VBMI;

    #[inline(always)]
    fn load(self, words: &[u16]) -> __m512i {
        assert!(words.len() >= 32);
        // SAFETY: AVX-512 by the token; 64 bytes are inside `words`.
        unsafe { _mm512_loadu_si512(words.as_ptr().cast()) }
    }

    #[inline(always)]
    fn load_bytes(self, bytes: &[u8]) -> __m512i {
        assert!(bytes.len() >= 32);
        // SAFETY: AVX-512 by the token; 32 bytes are inside `bytes`.
        unsafe { _mm512_cvtepu8_epi16(_mm256_loadu_si256(bytes.as_ptr().cast())) }
    }

    #[inline(always)]
    fn load_signed_bytes(self, bytes: &[u8]) -> __m512i {
        assert!(bytes.len() >= 32);
        // SAFETY: AVX-512 by the token; 32 bytes are inside `bytes`.
        unsafe { _mm512_cvtepi8_epi16(_mm256_loadu_si256(bytes.as_ptr().cast())) }
    }

    #[inline(always)]
    fn load_whole(self, bytes: &[u8]) -> __m512i {
        assert!(bytes.len() >= 64);
        // SAFETY: AVX-512 by the token; 64 bytes are inside `bytes`.
        unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn load_nibbles(self, bytes: &[u8]) -> __m512i {
        let v = self.load_bytes(bytes);
        self.and(self.or(v, self.shl(v, 4)), self.splat(0x0F0F))
    }

    #[inline(always)]
    fn lane_tables(self, [a, b, c, d]: [&[u8; 16]; 4]) -> __m512i {
        // SAFETY: AVX-512 by the token; a table is 16 bytes.
        unsafe {
            let v = _mm512_broadcast_i32x4(_mm_loadu_si128(a.as_ptr().cast()));
            let b = _mm_loadu_si128(b.as_ptr().cast());
            let v = _mm512_mask_broadcast_i32x4(v, 0x00F0, b);
            let c = _mm_loadu_si128(c.as_ptr().cast());
            let v = _mm512_mask_broadcast_i32x4(v, 0x0F00, c);
            _mm512_mask_broadcast_i32x4(v, 0xF000, _mm_loadu_si128(d.as_ptr().cast()))
        }
    }

    #[inline(always)]
    fn byte_tables(self, tables: [&[u8; 16]; 2]) -> __m512i {
        // SAFETY: AVX-512 by the token; a table is 16 bytes.
        unsafe {
            let first = _mm512_broadcast_i32x4(_mm_loadu_si128(tables[0].as_ptr().cast()));
            let second = _mm_loadu_si128(tables[1].as_ptr().cast());
            _mm512_mask_broadcast_i32x4(first, 0xFF00, second)
        }
    }

    #[inline(always)]
    fn zip(self, low: __m512i, high: __m512i) -> [__m512i; 2] {
        // SAFETY: AVX-512 by the token.
        unsafe {
            let first = _mm512_unpacklo_epi8(low, high);
            let second = _mm512_unpackhi_epi8(low, high);
            let (near, far) = (
                _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11),
                _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15),
            );
            [
                _mm512_permutex2var_epi64(first, near, second),
                _mm512_permutex2var_epi64(first, far, second),
            ]
        }
    }

    #[inline(always)]
    fn store(self, v: __m512i, words: &mut [u16], stream: bool) {
        assert!(words.len() >= 32);
        let to = words.as_mut_ptr().cast();
        // SAFETY: AVX-512 by the token; 64 bytes are inside `words`. Callers stream only to 64-byte
        // aligned destinations in steps of whole vectors.
        unsafe {
            if stream {
                _mm512_stream_si512(to, v);
            } else {
                _mm512_storeu_si512(to, v);
            }
        }
    }

    #[inline(always)]
    fn store_bytes(self, v: __m512i, bytes: &mut [u8], stream: bool) {
        assert!(bytes.len() >= 32);
        let to = bytes.as_mut_ptr().cast();
        // SAFETY: AVX-512 by the token; 32 bytes are inside `bytes`, aligned as for `store`.
        unsafe {
            let packed = _mm512_cvtepi16_epi8(v);
            if stream {
                _mm256_stream_si256(to, packed);
            } else {
                _mm256_storeu_si256(to, packed);
            }
        }
    }

    #[inline(always)]
    fn store_nibbles(self, v: __m512i, bytes: &mut [u8], stream: bool) {
        assert!(bytes.len() >= 16);
        let to = bytes.as_mut_ptr().cast();
        // SAFETY: AVX-512 by the token; 16 bytes are inside `bytes`, aligned as for `store`.
        unsafe {
            let packed = _mm512_cvtepi32_epi8(_mm512_or_si512(v, _mm512_srli_epi32(v, 12)));
            if stream {
                _mm_stream_si128(to, packed);
            } else {
                _mm_storeu_si128(to, packed);
            }
        }
    }

    #[inline(always)]
    fn largest(self, v: __m512i) -> u16 {
        // SAFETY: AVX-512 by the token.
        unsafe {
            let v = _mm256_max_epu16(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
            largest_of_256(v)
        }
    }

    #[inline(always)]
    fn largest_of_8(self, v: [__m512i; 8]) -> [u16; 8] {
        let mut out = [0; 8];
        // SAFETY: AVX-512 by the token; `out` is 16 bytes.
        unsafe {
            let folded = fold_8(v);
            let low = _mm512_castsi512_si256(folded);
            let half = _mm256_max_epu16(low, _mm512_extracti64x4_epi64(folded, 1));
            let low = _mm256_castsi256_si128(half);
            let most = _mm_max_epu16(low, _mm256_extracti128_si256(half, 1));
            _mm_storeu_si128(out.as_mut_ptr().cast(), most);
        }
        out
    }

    #[inline(always)]
    fn largest_of_runs(self, v: [__m512i; 8]) -> [u16; 16] {
        let mut out = [0; 16];
        // SAFETY: AVX-512 by the token; `out` is 32 bytes.
        unsafe {
            let folded = fold_8(v);
            let (first, second) =
                (_mm512_castsi512_si256(folded), _mm512_extracti64x4_epi64(folded, 1));
            let first =
                _mm_max_epu16(_mm256_castsi256_si128(first), _mm256_extracti128_si256(first, 1));
            let second =
                _mm_max_epu16(_mm256_castsi256_si128(second), _mm256_extracti128_si256(second, 1));
            let low = _mm_unpacklo_epi16(first, second);
            let high = _mm_unpackhi_epi16(first, second);
            _mm256_storeu_si256(out.as_mut_ptr().cast(), _mm256_set_m128i(high, low));
        }
        out
    }

    #[inline(always)]
    fn widen(self, words: &[u16; 16]) -> __m512i {
        // SAFETY: AVX-512 by the token; 32 bytes are inside `words`.
        unsafe {
            let words = _mm256_loadu_si256(words.as_ptr().cast());
            _mm512_slli_epi32(_mm512_cvtepu16_epi32(words), 16)
        }
    }

    #[inline(always)]
    fn store_floats(self, v: __m512i, out: &mut [f32; 16]) {
        // SAFETY: AVX-512 by the token; 64 bytes are inside `out`.
        unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), v) }
    }

    #[inline(always)]
    fn store_low_bytes(self, v: __m512i, bytes: &mut [u8]) {
        assert!(bytes.len() >= 16);
        // SAFETY: AVX-512 by the token; 16 bytes are inside `bytes`.
        unsafe { _mm_storeu_si128(bytes.as_mut_ptr().cast(), _mm512_cvtepi32_epi8(v)) }
    }

    #[inline(always)]
    fn byte_table(self, index: __m512i, table: &[u8; 64]) -> __m512i {
        assert!(VBMI, "only VBMI has a 64-byte table");
        // SAFETY: VBMI by the token; the table is 64 bytes.
        unsafe { _mm512_permutexvar_epi8(index, _mm512_loadu_si512(table.as_ptr().cast())) }
    }

    #[inline(always)]
    fn e4m3_subnormal(self, v: __m512i) -> __m512i {
        // SAFETY: AVX-512 and VBMI by the token; the table is 128 bytes.
        unsafe {
            if VBMI {
                // From 2^-14, exponent 113, on: what is below saturates to index 0, code 0.
                let above = _mm512_subs_epu16(v, _mm512_set1_epi16(113 << 7));
                let sticky = _mm512_test_epi16_mask(v, _mm512_set1_epi16(0xF));
                let index = _mm512_slli_epi16(_mm512_srli_epi16(above, 4), 1);
                // Below 2^-14 the sticky bit may still point at entry 1, code 0 too.
                let index = _mm512_mask_add_epi16(index, sticky, index, _mm512_set1_epi16(1));
                let low = _mm512_loadu_si512(E4M3_SUBNORMALS.as_ptr().cast());
                let high = _mm512_loadu_si512(E4M3_SUBNORMALS.as_ptr().add(64).cast());
                let code = _mm512_permutex2var_epi8(low, index, high);
                return _mm512_and_si512(code, _mm512_set1_epi16(0xFF));
            }
            let one = _mm512_set1_epi16(1);
            let significand = _mm512_or_si512(
                _mm512_and_si512(v, _mm512_set1_epi16(0x7F)),
                _mm512_set1_epi16(0x80),
            );
            // 4 bits for the mantissa, one more for each exponent below 121; 16 and more give 0.
            let drop = _mm512_sub_epi16(_mm512_set1_epi16(125), _mm512_srli_epi16(v, 7));
            let half = _mm512_sllv_epi16(one, _mm512_sub_epi16(drop, one));
            let odd = _mm512_and_si512(_mm512_srlv_epi16(significand, drop), one);
            let addend = _mm512_add_epi16(_mm512_sub_epi16(half, one), odd);
            _mm512_srlv_epi16(_mm512_add_epi16(significand, addend), drop)
        }
    }

    #[inline(always)]
    fn merge(self, even: __m512i, odd: __m512i) -> __m512i {
        // SAFETY: AVX-512 by the token.
        unsafe { _mm512_mask_blend_epi16(0xAAAA_AAAA, even, odd) }
    }

    #[inline(always)]
    fn quotient(self, x: __m512i, scale: __m512i, reciprocal: __m512i) -> __m512i {
        // SAFETY: AVX-512 by the token.
        unsafe {
            let (x, scale) = (_mm512_castsi512_ps(x), _mm512_castsi512_ps(scale));
            let reciprocal = _mm512_castsi512_ps(reciprocal);
            let product = _mm512_mul_ps(x, reciprocal);
            let remainder = _mm512_fnmadd_ps(product, scale, x);
            _mm512_castps_si512(_mm512_fmadd_ps(remainder, reciprocal, product))
        }
    }

    intrinsics! {
        prefetch(address: *const u16) -> () { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
        fence() -> () { _mm_sfence() }
        splat(word: u16) -> __m512i { _mm512_set1_epi16(word.cast_signed()) }
        and(a: __m512i, b: __m512i) -> __m512i { _mm512_and_si512(a, b) }
        or(a: __m512i, b: __m512i) -> __m512i { _mm512_or_si512(a, b) }
        xor(a: __m512i, b: __m512i) -> __m512i { _mm512_xor_si512(a, b) }
        add(a: __m512i, b: __m512i) -> __m512i { _mm512_add_epi16(a, b) }
        sub_saturating(a: __m512i, b: __m512i) -> __m512i { _mm512_subs_epi16(a, b) }
        sub_to_zero(a: __m512i, b: __m512i) -> __m512i { _mm512_subs_epu16(a, b) }
        look_bytes(tables: __m512i, index: __m512i) -> __m512i { _mm512_shuffle_epi8(tables, index) }
        splat_byte(byte: u8) -> __m512i { _mm512_set1_epi8(byte.cast_signed()) }
        min_bytes(a: __m512i, b: __m512i) -> __m512i { _mm512_min_epu8(a, b) }
        max_bytes(a: __m512i, b: __m512i) -> __m512i { _mm512_max_epu8(a, b) }
        average_bytes(a: __m512i, b: __m512i) -> __m512i { _mm512_avg_epu8(a, b) }
        any_byte_above(v: __m512i, limit: u8) -> bool {
            _mm512_cmpgt_epu8_mask(v, _mm512_set1_epi8(limit.cast_signed())) != 0
        }
        any_between(v: __m512i, low: u16, high: u16) -> bool {
            _mm512_cmplt_epu16_mask(
                _mm512_sub_epi16(v, _mm512_set1_epi16((low + 1).cast_signed())),
                _mm512_set1_epi16((high - low - 1).cast_signed()),
            ) != 0
        }
        min(a: __m512i, b: __m512i) -> __m512i { _mm512_min_epi16(a, b) }
        max(a: __m512i, b: __m512i) -> __m512i { _mm512_max_epi16(a, b) }
        shl(a: __m512i, count: i32) -> __m512i { _mm512_sll_epi16(a, _mm_cvtsi32_si128(count)) }
        shr(a: __m512i, count: i32) -> __m512i { _mm512_srl_epi16(a, _mm_cvtsi32_si128(count)) }
        if_above(a: __m512i, b: __m512i, yes: __m512i, no: __m512i) -> __m512i {
            _mm512_mask_blend_epi16(_mm512_cmpgt_epi16_mask(a, b), no, yes)
        }
        any_bit(v: __m512i, bits: u16) -> __m512i {
            _mm512_maskz_set1_epi16(_mm512_test_epi16_mask(v, _mm512_set1_epi16(bits.cast_signed())), 1)
        }
        even(v: __m512i) -> __m512i { _mm512_slli_epi32(v, 16) }
        odd(v: __m512i) -> __m512i { _mm512_and_si512(v, _mm512_set1_epi32(0xFFFF_0000_u32.cast_signed())) }
        even_int(v: __m512i) -> __m512i { _mm512_madd_epi16(v, _mm512_set1_epi32(1)) }
        odd_int(v: __m512i) -> __m512i { _mm512_srai_epi32(v, 16) }
        splat_float(value: f32) -> __m512i { _mm512_castps_si512(_mm512_set1_ps(value)) }
        splat_int(value: i32) -> __m512i { _mm512_set1_epi32(value) }
        pair(first: f32, second: f32) -> __m512i {
            _mm512_castps_si512(_mm512_insertf32x8(_mm512_set1_ps(first), _mm256_set1_ps(second), 1))
        }
        multiply(a: __m512i, b: __m512i) -> __m512i {
            _mm512_castps_si512(_mm512_mul_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b)))
        }
        divide(a: __m512i, b: __m512i) -> __m512i {
            _mm512_castps_si512(_mm512_div_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b)))
        }
        add_float(a: __m512i, b: __m512i) -> __m512i {
            _mm512_castps_si512(_mm512_add_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b)))
        }
        to_int_nearest(a: __m512i) -> __m512i { _mm512_cvtps_epi32(_mm512_castsi512_ps(a)) }
        to_int_truncate(a: __m512i) -> __m512i { _mm512_cvttps_epi32(_mm512_castsi512_ps(a)) }
        to_float(a: __m512i) -> __m512i { _mm512_castps_si512(_mm512_cvtepi32_ps(a)) }
        and_int(a: __m512i, b: __m512i) -> __m512i { _mm512_and_si512(a, b) }
        add_int(a: __m512i, b: __m512i) -> __m512i { _mm512_add_epi32(a, b) }
        sub_int(a: __m512i, b: __m512i) -> __m512i { _mm512_sub_epi32(a, b) }
        min_int(a: __m512i, b: __m512i) -> __m512i { _mm512_min_epi32(a, b) }
        max_int(a: __m512i, b: __m512i) -> __m512i { _mm512_max_epi32(a, b) }
        shl_int(a: __m512i, count: i32) -> __m512i { _mm512_sll_epi32(a, _mm_cvtsi32_si128(count)) }
        shr_int(a: __m512i, count: i32) -> __m512i { _mm512_srl_epi32(a, _mm_cvtsi32_si128(count)) }
        if_above_int(a: __m512i, b: __m512i, yes: __m512i, no: __m512i) -> __m512i {
            _mm512_mask_blend_epi32(_mm512_cmpgt_epi32_mask(a, b), no, yes)
        }
    }
}

/// # Safety
/// The CPU has AVX2.
#[inline(always)]
unsafe fn largest_of_256(v: __m256i) -> u16 {
    // SAFETY: the caller vouches for AVX2, which includes SSE4.1's minpos.
    unsafe {
        let folded = _mm_max_epu16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
        // The smallest complement is the largest.
        let inverted = _mm_xor_si128(folded, _mm_set1_epi16(-1));
        !(_mm_cvtsi128_si32(_mm_minpos_epu16(inverted)) as u16)
    }
}

/// Maxima of eight vectors, word i of each 128-bit lane belonging to vector i.
///
/// # Safety
/// The CPU has AVX-512 BW.
#[inline(always)]
unsafe fn fold_8([a, b, c, d, e, f, g, h]: [__m512i; 8]) -> __m512i {
    // SAFETY: the caller vouches for AVX-512 BW.
    unsafe {
        let ab = _mm512_max_epu16(_mm512_unpacklo_epi16(a, b), _mm512_unpackhi_epi16(a, b));
        let cd = _mm512_max_epu16(_mm512_unpacklo_epi16(c, d), _mm512_unpackhi_epi16(c, d));
        let ef = _mm512_max_epu16(_mm512_unpacklo_epi16(e, f), _mm512_unpackhi_epi16(e, f));
        let gh = _mm512_max_epu16(_mm512_unpacklo_epi16(g, h), _mm512_unpackhi_epi16(g, h));
        let ad = _mm512_max_epu16(_mm512_unpacklo_epi32(ab, cd), _mm512_unpackhi_epi32(ab, cd));
        let eh = _mm512_max_epu16(_mm512_unpacklo_epi32(ef, gh), _mm512_unpackhi_epi32(ef, gh));
        _mm512_max_epu16(_mm512_unpacklo_epi64(ad, eh), _mm512_unpackhi_epi64(ad, eh))
    }
}

#[cfg(test)]
mod tests;
