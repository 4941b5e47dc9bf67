//! AVX2: 16 words of 16 bits.

use std::arch::x86_64::*;

use super::vector::{Simd, e4m3_subnormal_by_count, intrinsics};

/// Proof that the CPU has AVX2.
#[derive(Clone, Copy)]
pub(super) struct Avx2(());

impl Avx2 {
    pub(super) fn new() -> Option<Self> {
        is_x86_feature_detected!("avx2").then_some(Self(()))
    }
}

impl Simd for Avx2 {
    type W = __m256i;
    type F = __m256i;

    const LANES: usize = 16;
    const BYTE_TABLE: bool = false;

    #[inline(always)]
    fn load(self, words: &[u16]) -> __m256i {
        assert!(words.len() >= 16);
        // SAFETY: AVX2 by the token; 32 bytes are inside `words`.
        unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
    }

    #[inline(always)]
    fn load_bytes(self, bytes: &[u8]) -> __m256i {
        assert!(bytes.len() >= 16);
        // SAFETY: AVX2 by the token; 16 bytes are inside `bytes`.
        unsafe { _mm256_cvtepu8_epi16(_mm_loadu_si128(bytes.as_ptr().cast())) }
    }

    #[inline(always)]
    fn load_signed_bytes(self, bytes: &[u8]) -> __m256i {
        assert!(bytes.len() >= 16);
        // SAFETY: AVX2 by the token; 16 bytes are inside `bytes`.
        unsafe { _mm256_cvtepi8_epi16(_mm_loadu_si128(bytes.as_ptr().cast())) }
    }

    #[inline(always)]
    fn load_whole(self, bytes: &[u8]) -> __m256i {
        assert!(bytes.len() >= 32);
        // SAFETY: AVX2 by the token; 32 bytes are inside `bytes`.
        unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
    }

    #[inline(always)]
    fn load_nibbles(self, bytes: &[u8]) -> __m256i {
        let v = self.load_bytes(bytes);
        self.and(self.or(v, self.shl(v, 4)), self.splat(0x0F0F))
    }

    #[inline(always)]
    fn lane_tables(self, [a, b, ..]: [&[u8; 16]; 4]) -> __m256i {
        // SAFETY: AVX2 by the token; a table is 16 bytes.
        unsafe { _mm256_loadu2_m128i(b.as_ptr().cast(), a.as_ptr().cast()) }
    }

    #[inline(always)]
    fn byte_tables(self, tables: [&[u8; 16]; 2]) -> __m256i {
        // SAFETY: AVX2 by the token; a table is 16 bytes.
        unsafe { _mm256_broadcastsi128_si256(_mm_loadu_si128(tables[0].as_ptr().cast())) }
    }

    #[inline(always)]
    fn zip(self, low: __m256i, high: __m256i) -> [__m256i; 2] {
        // SAFETY: AVX2 by the token.
        unsafe {
            let first = _mm256_unpacklo_epi8(low, high);
            let second = _mm256_unpackhi_epi8(low, high);
            [
                _mm256_permute2x128_si256(first, second, 0x20),
                _mm256_permute2x128_si256(first, second, 0x31),
            ]
        }
    }

    #[inline(always)]
    fn store(self, v: __m256i, words: &mut [u16], stream: bool) {
        assert!(words.len() >= 16);
        let to = words.as_mut_ptr().cast();
        // SAFETY: AVX2 by the token; 32 bytes are inside `words`. Callers stream only to 64-byte
        // aligned destinations in steps of whole vectors.
        unsafe {
            if stream {
                _mm256_stream_si256(to, v);
            } else {
                _mm256_storeu_si256(to, v);
            }
        }
    }

    #[inline(always)]
    fn store_bytes(self, v: __m256i, bytes: &mut [u8], stream: bool) {
        assert!(bytes.len() >= 16);
        let to = bytes.as_mut_ptr().cast();
        // SAFETY: AVX2 by the token; 16 bytes are inside `bytes`, aligned as for `store`.
        unsafe {
            let low = _mm256_and_si256(v, _mm256_set1_epi16(0xFF));
            let packed = _mm256_permute4x64_epi64(_mm256_packus_epi16(low, low), 0b1000);
            let packed = _mm256_castsi256_si128(packed);
            if stream {
                _mm_stream_si128(to, packed);
            } else {
                _mm_storeu_si128(to, packed);
            }
        }
    }

    #[inline(always)]
    fn store_nibbles(self, v: __m256i, bytes: &mut [u8], stream: bool) {
        assert!(bytes.len() >= 8);
        let to = bytes.as_mut_ptr();
        // SAFETY: AVX2 by the token; 8 bytes are inside `bytes`, aligned as for `store`.
        unsafe {
            // Low nibble + 16 x high nibble in each 32-bit lane, then 32 to 16 to 8 bits.
            let pairs = _mm256_madd_epi16(v, _mm256_set1_epi32(0x0010_0001));
            let words = _mm256_packus_epi32(pairs, pairs);
            let bytes = _mm256_packus_epi16(words, words);
            let low = _mm256_castsi256_si128(bytes);
            let high = _mm256_extracti128_si256(bytes, 1);
            let packed = _mm_cvtsi128_si64(_mm_unpacklo_epi32(low, high));
            if stream {
                _mm_stream_si64(to.cast(), packed);
            } else {
                to.cast::<i64>().write_unaligned(packed);
            }
        }
    }

    #[inline(always)]
    fn largest(self, v: __m256i) -> u16 {
        // SAFETY: AVX2 by the token.
        unsafe {
            let folded = _mm_max_epu16(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
            // The smallest complement is the largest.
            let inverted = _mm_xor_si128(folded, _mm_set1_epi16(-1));
            !(_mm_cvtsi128_si32(_mm_minpos_epu16(inverted)) as u16)
        }
    }

    #[inline(always)]
    fn largest_of_8(self, v: [__m256i; 8]) -> [u16; 8] {
        let mut out = [0; 8];
        // SAFETY: AVX2 by the token; `out` is 16 bytes.
        unsafe {
            let folded = fold_8(v);
            let low = _mm256_castsi256_si128(folded);
            let most = _mm_max_epu16(low, _mm256_extracti128_si256(folded, 1));
            _mm_storeu_si128(out.as_mut_ptr().cast(), most);
        }
        out
    }

    #[inline(always)]
    fn largest_of_runs(self, v: [__m256i; 8]) -> [u16; 16] {
        let [a, b, c, d, e, f, g, h] = self.largest_of_8(v);
        [a, b, c, d, e, f, g, h, 0, 0, 0, 0, 0, 0, 0, 0]
    }

    #[inline(always)]
    fn widen(self, words: &[u16; 16]) -> __m256i {
        // SAFETY: AVX2 by the token; 16 bytes are inside `words`.
        unsafe {
            let words = _mm_loadu_si128(words.as_ptr().cast());
            _mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16)
        }
    }

    #[inline(always)]
    fn store_floats(self, v: __m256i, out: &mut [f32; 16]) {
        // SAFETY: AVX2 by the token; 32 bytes are inside `out`.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), v) }
    }

    #[inline(always)]
    fn store_low_bytes(self, v: __m256i, bytes: &mut [u8]) {
        assert!(bytes.len() >= 8);
        // SAFETY: AVX2 by the token; 8 bytes are inside `bytes`.
        unsafe {
            let words = _mm256_packus_epi32(v, v);
            let packed = _mm256_packus_epi16(words, words);
            let low = _mm256_castsi256_si128(packed);
            let high = _mm256_extracti128_si256(packed, 1);
            _mm_storel_epi64(bytes.as_mut_ptr().cast(), _mm_unpacklo_epi32(low, high));
        }
    }

    #[inline(always)]
    fn byte_table(self, _index: __m256i, _table: &[u8; 64]) -> __m256i {
        unreachable!("AVX2 has no 64-byte table")
    }

    #[inline(always)]
    fn e4m3_subnormal(self, v: __m256i) -> __m256i {
        e4m3_subnormal_by_count(self, v)
    }

    #[inline(always)]
    fn pair(self, first: f32, _second: f32) -> __m256i {
        self.splat_float(first)
    }

    intrinsics! {
        prefetch(address: *const u16) -> () { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
        fence() -> () { _mm_sfence() }
        splat(word: u16) -> __m256i { _mm256_set1_epi16(word.cast_signed()) }
        and(a: __m256i, b: __m256i) -> __m256i { _mm256_and_si256(a, b) }
        or(a: __m256i, b: __m256i) -> __m256i { _mm256_or_si256(a, b) }
        xor(a: __m256i, b: __m256i) -> __m256i { _mm256_xor_si256(a, b) }
        add(a: __m256i, b: __m256i) -> __m256i { _mm256_add_epi16(a, b) }
        sub_saturating(a: __m256i, b: __m256i) -> __m256i { _mm256_subs_epi16(a, b) }
        sub_to_zero(a: __m256i, b: __m256i) -> __m256i { _mm256_subs_epu16(a, b) }
        look_bytes(tables: __m256i, index: __m256i) -> __m256i { _mm256_shuffle_epi8(tables, index) }
        splat_byte(byte: u8) -> __m256i { _mm256_set1_epi8(byte.cast_signed()) }
        min_bytes(a: __m256i, b: __m256i) -> __m256i { _mm256_min_epu8(a, b) }
        max_bytes(a: __m256i, b: __m256i) -> __m256i { _mm256_max_epu8(a, b) }
        average_bytes(a: __m256i, b: __m256i) -> __m256i { _mm256_avg_epu8(a, b) }
        any_byte_above(v: __m256i, limit: u8) -> bool {
            // 0 at and below the limit.
            _mm256_testz_si256(
                _mm256_subs_epu8(v, _mm256_set1_epi8(limit.cast_signed())),
                _mm256_set1_epi8(-1),
            ) == 0
        }
        any_between(v: __m256i, low: u16, high: u16) -> bool {
            // The words between become the smallest signed ones.
            _mm256_movemask_epi8(_mm256_cmpgt_epi16(
                _mm256_set1_epi16((high - low - 1).wrapping_add(0x8000).cast_signed()),
                _mm256_sub_epi16(
                    v,
                    _mm256_set1_epi16((low + 1).wrapping_sub(0x8000).cast_signed()),
                ),
            )) != 0
        }
        quotient(x: __m256i, scale: __m256i, _reciprocal: __m256i) -> __m256i {
            _mm256_castps_si256(_mm256_div_ps(_mm256_castsi256_ps(x), _mm256_castsi256_ps(scale)))
        }
        min(a: __m256i, b: __m256i) -> __m256i { _mm256_min_epi16(a, b) }
        max(a: __m256i, b: __m256i) -> __m256i { _mm256_max_epi16(a, b) }
        shl(a: __m256i, count: i32) -> __m256i { _mm256_sll_epi16(a, _mm_cvtsi32_si128(count)) }
        shr(a: __m256i, count: i32) -> __m256i { _mm256_srl_epi16(a, _mm_cvtsi32_si128(count)) }
        if_above(a: __m256i, b: __m256i, yes: __m256i, no: __m256i) -> __m256i {
            _mm256_blendv_epi8(no, yes, _mm256_cmpgt_epi16(a, b))
        }
        any_bit(v: __m256i, bits: u16) -> __m256i {
            _mm256_add_epi16(
                _mm256_cmpeq_epi16(
                    _mm256_and_si256(v, _mm256_set1_epi16(bits.cast_signed())),
                    _mm256_setzero_si256(),
                ),
                _mm256_set1_epi16(1),
            )
        }
        even(v: __m256i) -> __m256i { _mm256_slli_epi32(v, 16) }
        odd(v: __m256i) -> __m256i { _mm256_and_si256(v, _mm256_set1_epi32(0xFFFF_0000_u32.cast_signed())) }
        merge(even: __m256i, odd: __m256i) -> __m256i { _mm256_blend_epi16(even, odd, 0b1010_1010) }
        even_int(v: __m256i) -> __m256i { _mm256_madd_epi16(v, _mm256_set1_epi32(1)) }
        odd_int(v: __m256i) -> __m256i { _mm256_srai_epi32(v, 16) }
        splat_float(value: f32) -> __m256i { _mm256_castps_si256(_mm256_set1_ps(value)) }
        splat_int(value: i32) -> __m256i { _mm256_set1_epi32(value) }
        multiply(a: __m256i, b: __m256i) -> __m256i {
            _mm256_castps_si256(_mm256_mul_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b)))
        }
        divide(a: __m256i, b: __m256i) -> __m256i {
            _mm256_castps_si256(_mm256_div_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b)))
        }
        add_float(a: __m256i, b: __m256i) -> __m256i {
            _mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b)))
        }
        to_int_nearest(a: __m256i) -> __m256i { _mm256_cvtps_epi32(_mm256_castsi256_ps(a)) }
        to_int_truncate(a: __m256i) -> __m256i { _mm256_cvttps_epi32(_mm256_castsi256_ps(a)) }
        to_float(a: __m256i) -> __m256i { _mm256_castps_si256(_mm256_cvtepi32_ps(a)) }
        and_int(a: __m256i, b: __m256i) -> __m256i { _mm256_and_si256(a, b) }
        add_int(a: __m256i, b: __m256i) -> __m256i { _mm256_add_epi32(a, b) }
        sub_int(a: __m256i, b: __m256i) -> __m256i { _mm256_sub_epi32(a, b) }
        min_int(a: __m256i, b: __m256i) -> __m256i { _mm256_min_epi32(a, b) }
        max_int(a: __m256i, b: __m256i) -> __m256i { _mm256_max_epi32(a, b) }
        shl_int(a: __m256i, count: i32) -> __m256i { _mm256_sll_epi32(a, _mm_cvtsi32_si128(count)) }
        shr_int(a: __m256i, count: i32) -> __m256i { _mm256_srl_epi32(a, _mm_cvtsi32_si128(count)) }
        if_above_int(a: __m256i, b: __m256i, yes: __m256i, no: __m256i) -> __m256i {
            _mm256_blendv_epi8(no, yes, _mm256_cmpgt_epi32(a, b))
        }
    }
}

/// Maxima of eight vectors, word i of each 128-bit lane belonging to vector i.
///
/// # Safety
/// The CPU has AVX2.
#[inline(always)]
unsafe fn fold_8([a, b, c, d, e, f, g, h]: [__m256i; 8]) -> __m256i {
    // SAFETY: the caller vouches for AVX2.
    unsafe {
        let ab = _mm256_max_epu16(_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b));
        let cd = _mm256_max_epu16(_mm256_unpacklo_epi16(c, d), _mm256_unpackhi_epi16(c, d));
        let ef = _mm256_max_epu16(_mm256_unpacklo_epi16(e, f), _mm256_unpackhi_epi16(e, f));
        let gh = _mm256_max_epu16(_mm256_unpacklo_epi16(g, h), _mm256_unpackhi_epi16(g, h));
        let ad = _mm256_max_epu16(_mm256_unpacklo_epi32(ab, cd), _mm256_unpackhi_epi32(ab, cd));
        let eh = _mm256_max_epu16(_mm256_unpacklo_epi32(ef, gh), _mm256_unpackhi_epi32(ef, gh));
        _mm256_max_epu16(_mm256_unpacklo_epi64(ad, eh), _mm256_unpackhi_epi64(ad, eh))
    }
}
