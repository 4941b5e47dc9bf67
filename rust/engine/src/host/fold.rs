//! Copies that fold what passes through the registers into a residue with the same CRC.
//!
//! A message and its residue, a block as long as one step, have the same remainder modulo the
//! polynomial of CRC-64/NVME. Folding moves the running block over a step by two carry-less
//! products per 128-bit lane with constant powers of x, and adds the next block (Gopal et al.,
//! "Fast CRC computation using PCLMULQDQ", 2009). The CRC of the residue is left to crc-fast.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// Normal form of the polynomial, without x^64.
const POLYNOMIAL: u64 = 0xAD93_D235_94C9_3659;

/// Largest step, and so the largest residue.
pub(super) const MAX_STEP: usize = 256;

/// How the copy is written.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum Stores {
    /// Into the cache: the fastest where the copy is read soon and fits.
    Cached,
    /// Around it: the fastest where source and copy are larger than the cache.
    Streaming,
}

/// Copies `steps` whole steps and returns their residue in the first [`Kernel::step`] bytes.
type Fold = unsafe fn(dst: *mut u8, src: *const u8, steps: usize, state: u64) -> [u8; MAX_STEP];

/// What this processor can do.
#[derive(Copy, Clone)]
pub(super) struct Kernel {
    /// Bytes of a step; streaming stores want `dst` at a multiple of [`Kernel::ALIGN`].
    pub(super) step: usize,
    cached: Fold,
    streaming: Fold,
}

impl Kernel {
    pub(super) const ALIGN: usize = 64;

    /// The widest kernel here, none without carry-less multiplication.
    pub(super) fn widest() -> Option<Kernel> {
        Kernel::all().into_iter().flatten().next()
    }

    /// All kernels that this processor runs, the widest first.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn all() -> [Option<Kernel>; 2] {
        let wide = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("vpclmulqdq");
        let narrow = is_x86_feature_detected!("pclmulqdq") && is_x86_feature_detected!("sse2");
        [
            wide.then_some(Kernel {
                step: 256,
                cached: fold_avx512::<false>,
                streaming: fold_avx512::<true>,
            }),
            narrow.then_some(Kernel {
                step: 128,
                cached: fold_pclmul::<false>,
                streaming: fold_pclmul::<true>,
            }),
        ]
    }

    /// Elsewhere crc-fast has the kernels, and the copy goes in pieces.
    #[cfg(not(target_arch = "x86_64"))]
    pub(super) fn all() -> [Option<Kernel>; 0] {
        []
    }

    /// Copies the whole steps of `src` to `dst` and returns the bytes copied and their residue,
    /// whose CRC from a `state` of 0 is that of these bytes from `state`. At least one step.
    pub(super) fn fold(
        self,
        dst: &mut [u8],
        src: &[u8],
        state: u64,
        stores: Stores,
    ) -> (usize, [u8; MAX_STEP]) {
        let steps = src.len().min(dst.len()) / self.step;
        assert!(steps > 0, "{} bytes are less than a step of {}", src.len(), self.step);
        let aligned = dst.as_ptr().align_offset(Kernel::ALIGN) == 0;
        let fold = match stores {
            Stores::Streaming if aligned => self.streaming,
            _ => self.cached,
        };
        // SAFETY: the kernel was made for features this processor has; both slices have `steps`
        // steps, and `dst` is aligned where that is asked for.
        let residue = unsafe { fold(dst.as_mut_ptr(), src.as_ptr(), steps, state) };
        (steps * self.step, residue)
    }
}

/// Factors that move the first and the second half of a 128-bit lane over `bits`: reflected
/// x^(bits+63) and x^(bits-1), one power less than the distance, since a product of reflected
/// halves comes out one place too low.
const fn factors(bits: u32) -> (i64, i64) {
    (power(bits + 63).cast_signed(), power(bits - 1).cast_signed())
}

/// x^n modulo the polynomial, reflected.
const fn power(n: u32) -> u64 {
    let (mut remainder, mut i) = (1u64, 0);
    while i < n {
        let carry = remainder >> 63;
        remainder = (remainder << 1) ^ (POLYNOMIAL * carry);
        i += 1;
    }
    remainder.reverse_bits()
}

/// # Safety
/// AVX-512F and VPCLMULQDQ; `steps` > 0 steps of 256 bytes at both; `dst` at a multiple of 64 if
/// `STREAM`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,vpclmulqdq")]
unsafe fn fold_avx512<const STREAM: bool>(
    dst: *mut u8,
    src: *const u8,
    steps: usize,
    state: u64,
) -> [u8; MAX_STEP] {
    const FACTORS: (i64, i64) = factors(8 * 256);
    let factors = _mm512_broadcast_i32x4(_mm_set_epi64x(FACTORS.1, FACTORS.0));
    let pass = |at: usize| {
        // SAFETY: `at` is inside of the steps.
        unsafe {
            let block = _mm512_loadu_si512(src.add(at).cast());
            let to = dst.add(at).cast();
            if STREAM {
                _mm512_stream_si512(to, block);
            } else {
                _mm512_storeu_si512(to, block);
            }
            block
        }
    };
    let mut running = [pass(0), pass(64), pass(128), pass(192)];
    let state = _mm512_zextsi128_si512(_mm_set_epi64x(0, state.cast_signed()));
    running[0] = _mm512_xor_si512(running[0], state);
    for step in 1..steps {
        for (lane, part) in running.iter_mut().zip((256 * step..).step_by(64)) {
            let first = _mm512_clmulepi64_epi128::<0x00>(*lane, factors);
            let second = _mm512_clmulepi64_epi128::<0x11>(*lane, factors);
            // 0x96 is the exclusive or of three.
            *lane = _mm512_ternarylogic_epi64::<0x96>(first, second, pass(part));
        }
    }
    if STREAM {
        // Streaming stores are ordered with nothing: whoever is told of the copy must see it.
        _mm_sfence();
    }
    // SAFETY: four registers of 64 bytes are the array's 256, and any bytes are a `u8`.
    unsafe { std::mem::transmute(running) }
}

/// # Safety
/// SSE2 and PCLMULQDQ; `steps` > 0 steps of 128 bytes at both; `dst` at a multiple of 16 if
/// `STREAM`.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse2,pclmulqdq")]
unsafe fn fold_pclmul<const STREAM: bool>(
    dst: *mut u8,
    src: *const u8,
    steps: usize,
    state: u64,
) -> [u8; MAX_STEP] {
    const FACTORS: (i64, i64) = factors(8 * 128);
    let factors = _mm_set_epi64x(FACTORS.1, FACTORS.0);
    let pass = |at: usize| {
        // SAFETY: `at` is inside of the steps.
        unsafe {
            let block = _mm_loadu_si128(src.add(at).cast());
            let to = dst.add(at).cast();
            if STREAM {
                _mm_stream_si128(to, block);
            } else {
                _mm_storeu_si128(to, block);
            }
            block
        }
    };
    let mut running =
        [pass(0), pass(16), pass(32), pass(48), pass(64), pass(80), pass(96), pass(112)];
    running[0] = _mm_xor_si128(running[0], _mm_set_epi64x(0, state.cast_signed()));
    for step in 1..steps {
        for (lane, part) in running.iter_mut().zip((128 * step..).step_by(16)) {
            let first = _mm_clmulepi64_si128::<0x00>(*lane, factors);
            let second = _mm_clmulepi64_si128::<0x11>(*lane, factors);
            *lane = _mm_xor_si128(_mm_xor_si128(first, second), pass(part));
        }
    }
    if STREAM {
        // As above.
        _mm_sfence();
    }
    let mut residue = [0; MAX_STEP];
    for (lane, to) in running.into_iter().zip(residue.chunks_exact_mut(16)) {
        // SAFETY: a register is 16 bytes, and so is the piece.
        unsafe { _mm_storeu_si128(to.as_mut_ptr().cast(), lane) };
    }
    residue
}
