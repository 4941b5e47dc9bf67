//! The operations that kernels are written in.

/// A SIMD level: `LANES` 16-bit words per vector, and the same register seen as fp32 or int32.
///
/// A word vector holds consecutive elements. `even` and `odd` split it into two 32-bit vectors whose
/// upper halves are the words (a bf16 word in the upper half of 32 bits is the fp32 of its value);
/// `merge` undoes that. Comparisons are signed.
pub(super) trait Simd: Copy {
    /// Words.
    type W: Copy;
    /// fp32 or int32.
    type F: Copy;

    /// Words of a vector.
    const LANES: usize;
    /// Whether a 64-byte table is one instruction.
    const BYTE_TABLE: bool;

    fn load(self, words: &[u16]) -> Self::W;
    /// `LANES` bytes, zero-extended.
    fn load_bytes(self, bytes: &[u8]) -> Self::W;
    /// `LANES` bytes, sign-extended.
    fn load_signed_bytes(self, bytes: &[u8]) -> Self::W;
    fn store(self, v: Self::W, words: &mut [u16], stream: bool);
    /// The low byte of each word.
    fn store_bytes(self, v: Self::W, bytes: &mut [u8], stream: bool);
    /// The low nibble of each word, whose other bits are zero.
    fn store_nibbles(self, v: Self::W, bytes: &mut [u8], stream: bool);
    /// Asks for what will be read; any address may be given.
    fn prefetch(self, address: *const u16);
    /// Makes streamed stores visible before later ones.
    fn fence(self);

    fn splat(self, word: u16) -> Self::W;
    fn and(self, a: Self::W, b: Self::W) -> Self::W;
    fn or(self, a: Self::W, b: Self::W) -> Self::W;
    fn xor(self, a: Self::W, b: Self::W) -> Self::W;
    fn add(self, a: Self::W, b: Self::W) -> Self::W;
    fn sub_saturating(self, a: Self::W, b: Self::W) -> Self::W;
    /// Unsigned.
    fn sub_to_zero(self, a: Self::W, b: Self::W) -> Self::W;
    fn min(self, a: Self::W, b: Self::W) -> Self::W;
    fn max(self, a: Self::W, b: Self::W) -> Self::W;
    fn shl(self, a: Self::W, count: i32) -> Self::W;
    fn shr(self, a: Self::W, count: i32) -> Self::W;
    /// `yes` where a > b, else `no`.
    fn if_above(self, a: Self::W, b: Self::W, yes: Self::W, no: Self::W) -> Self::W;
    /// Whether a word is above `low` and below `high`, unsigned.
    fn any_between(self, v: Self::W, low: u16, high: u16) -> bool;
    /// The largest word; all are non-negative.
    fn largest(self, v: Self::W) -> u16;
    /// The largest word of each of eight vectors; all are non-negative.
    fn largest_of_8(self, v: [Self::W; 8]) -> [u16; 8];
    /// The largest of each run of 16 words of eight vectors: `LANES / 2` of them, then zeros.
    fn largest_of_runs(self, v: [Self::W; 8]) -> [u16; 16];
    /// Bytes of a 64-entry table by the low six bits of each word; where [`Simd::BYTE_TABLE`].
    fn byte_table(self, index: Self::W, table: &[u8; 64]) -> Self::W;
    /// 1 where a word has any of the bits, else 0.
    fn any_bit(self, v: Self::W, bits: u16) -> Self::W;
    /// E4M3 codes of magnitudes below 2^-6, given as bf16.
    fn e4m3_subnormal(self, v: Self::W) -> Self::W;

    // The same register as `2 * LANES` bytes.
    fn load_whole(self, bytes: &[u8]) -> Self::W;
    /// `2 * LANES` nibbles, low one first, a byte each.
    fn load_nibbles(self, bytes: &[u8]) -> Self::W;
    /// Tables for `look_bytes`, one for each 16 bytes; the last are not used where there are fewer.
    fn lane_tables(self, tables: [&[u8; 16]; 4]) -> Self::W;
    /// Tables for `look_bytes`: the first for the first 32 bytes, the second for what follows.
    fn byte_tables(self, tables: [&[u8; 16]; 2]) -> Self::W;
    /// Entries by byte index, below 16.
    fn look_bytes(self, tables: Self::W, index: Self::W) -> Self::W;
    fn splat_byte(self, byte: u8) -> Self::W;
    fn min_bytes(self, a: Self::W, b: Self::W) -> Self::W;
    fn max_bytes(self, a: Self::W, b: Self::W) -> Self::W;
    /// Half of a + b + 1.
    fn average_bytes(self, a: Self::W, b: Self::W) -> Self::W;
    fn any_byte_above(self, v: Self::W, limit: u8) -> bool;
    /// Words of these low and high bytes, in the order of the bytes.
    fn zip(self, low: Self::W, high: Self::W) -> [Self::W; 2];

    /// The first `LANES / 2` bf16 words as fp32.
    fn widen(self, words: &[u16; 16]) -> Self::F;
    /// fp32 lanes to the first `LANES / 2` entries.
    fn store_floats(self, v: Self::F, out: &mut [f32; 16]);
    /// The low byte of each 32-bit lane, `LANES / 2` bytes.
    fn store_low_bytes(self, v: Self::F, bytes: &mut [u8]);
    fn even(self, v: Self::W) -> Self::F;
    fn odd(self, v: Self::W) -> Self::F;
    /// Even words as signed integers.
    fn even_int(self, v: Self::W) -> Self::F;
    /// Odd words as signed integers.
    fn odd_int(self, v: Self::W) -> Self::F;
    /// Even lanes from the lower halves of `even`, odd lanes from the upper halves of `odd`.
    fn merge(self, even: Self::F, odd: Self::F) -> Self::W;
    fn splat_float(self, value: f32) -> Self::F;
    fn splat_int(self, value: i32) -> Self::F;
    /// `first` for words 0 to 15, `second` for words 16 to 31.
    fn pair(self, first: f32, second: f32) -> Self::F;
    fn multiply(self, a: Self::F, b: Self::F) -> Self::F;
    fn divide(self, a: Self::F, b: Self::F) -> Self::F;
    /// x / scale of bf16 magnitudes, rounded as a division; the reciprocal is rounded too, and
    /// `job::divides` holds.
    ///
    /// Where division is slow, the product with the reciprocal corrected once by its remainder: for
    /// each 8-bit significand of x and each 24-bit significand of the scale that is the rounded
    /// quotient (all 2^30 pairs were compared).
    fn quotient(self, x: Self::F, scale: Self::F, reciprocal: Self::F) -> Self::F;
    fn add_float(self, a: Self::F, b: Self::F) -> Self::F;
    fn to_int_nearest(self, a: Self::F) -> Self::F;
    fn to_int_truncate(self, a: Self::F) -> Self::F;
    fn to_float(self, a: Self::F) -> Self::F;
    fn and_int(self, a: Self::F, b: Self::F) -> Self::F;
    fn add_int(self, a: Self::F, b: Self::F) -> Self::F;
    fn sub_int(self, a: Self::F, b: Self::F) -> Self::F;
    fn min_int(self, a: Self::F, b: Self::F) -> Self::F;
    fn max_int(self, a: Self::F, b: Self::F) -> Self::F;
    fn shl_int(self, a: Self::F, count: i32) -> Self::F;
    fn shr_int(self, a: Self::F, count: i32) -> Self::F;
    /// `yes` where a > b as integers, else `no`.
    fn if_above_int(self, a: Self::F, b: Self::F, yes: Self::F, no: Self::F) -> Self::F;
}

/// Methods of a level whose bodies are intrinsics: each is an unsafe block that the token covers.
macro_rules! intrinsics {
    ($($name:ident($($arg:ident: $ty:ty),*) -> $ret:ty { $body:expr })*) => {
        $(
            #[inline(always)]
            fn $name(self, $($arg: $ty),*) -> $ret {
                // SAFETY: the token exists only where the CPU has these features; register
                // intrinsics have no other condition.
                unsafe { $body }
            }
        )*
    };
}
pub(super) use intrinsics;

/// Counts in each lane how many thresholds of E4M3's subnormals the bf16 magnitude has passed:
/// (i + 0.5) x 2^-9, a tie passing where i is odd.
#[inline(always)]
pub(super) fn e4m3_subnormal_by_count<S: Simd>(s: S, v: S::W) -> S::W {
    let one = s.splat(1);
    let mut code = s.splat(0);
    let mut i = 0;
    while i < E4M3_STEPS.len() {
        code = s.add(code, s.if_above(v, s.splat(E4M3_STEPS[i]), one, s.splat(0)));
        i += 1;
    }
    code
}

/// bf16 bits of (i + 0.5) x 2^-9 for i = 0 to 7, one less where i is odd.
const E4M3_STEPS: [u16; 8] = [0x3A80, 0x3B3F, 0x3BA0, 0x3BDF, 0x3C10, 0x3C2F, 0x3C50, 0x3C6F];

/// `x[start..start + len]`, always inlined.
///
/// Kernels are inlined into functions with target features, where LLVM leaves iterators and range
/// indexing as calls; plain loops over these two stay loops.
#[inline(always)]
pub(super) fn part<T>(x: &[T], start: usize, len: usize) -> &[T] {
    assert!(start <= x.len() && len <= x.len() - start, "a kernel left its buffer");
    // SAFETY: the range was just checked.
    unsafe { std::slice::from_raw_parts(x.as_ptr().add(start), len) }
}

/// `x[start..start + len]` for writing.
#[inline(always)]
pub(super) fn part_mut<T>(x: &mut [T], start: usize, len: usize) -> &mut [T] {
    assert!(start <= x.len() && len <= x.len() - start, "a kernel left its buffer");
    // SAFETY: the range was just checked, and the borrow of `x` lasts as long as the part.
    unsafe { std::slice::from_raw_parts_mut(x.as_mut_ptr().add(start), len) }
}
