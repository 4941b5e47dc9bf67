//! SIMD levels: one text of each kernel, instantiated per level.
//!
//! [`vector::Simd`] lists the operations; a value of a level's token type exists only where the CPU
//! has the level, so its methods are safe. Kernels are inlined into one function per level that
//! carries the target features.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod kernels;
#[cfg(target_arch = "aarch64")]
mod neon;
mod vector;

use crate::job::{Family, Job};
use crate::level::{Kernels, Level};

/// The kernels of a level, if this CPU has it.
pub(crate) fn kernels(level: Level) -> Option<&'static Kernels> {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => avx2::Avx2::new().map(|_| &AVX2),
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => avx512::Avx512::<false>::new().map(|_| &AVX512),
        #[cfg(target_arch = "x86_64")]
        Level::Avx512Vbmi => avx512::Avx512::<true>::new().map(|_| &AVX512_VBMI),
        #[cfg(target_arch = "aarch64")]
        Level::Neon => neon::Neon::new().map(|_| &NEON),
        _ => None,
    }
}

/// A level's table: each entry detects the token again (one cached load) and enters the function
/// that carries the target features.
macro_rules! level {
    ($table:ident, $level:expr, $token:ty, $features:literal, $module:ident) => {
        mod $module {
            use super::*;

            #[target_feature(enable = $features)]
            fn encode(t: $token, job: &Job<'_>, f: Family, x: &[u16], c: &mut [u8], s: &mut [u8]) {
                kernels::encode(t, job, f, x, c, s);
            }

            #[target_feature(enable = $features)]
            fn decode(t: $token, job: &Job<'_>, f: Family, c: &[u8], s: &[u8], y: &mut [u16]) {
                kernels::decode(t, job, f, c, s, y);
            }

            #[target_feature(enable = $features)]
            fn split(t: $token, words: &[u16], low: &mut [u8], high: &mut [u8]) {
                kernels::split(t, words, low, high);
            }

            #[target_feature(enable = $features)]
            fn join(t: $token, low: &[u8], high: &[u8], words: &mut [u16]) {
                kernels::join(t, low, high, words);
            }

            #[target_feature(enable = $features)]
            fn traffic(t: $token, source: &[u8], target: &mut [u16], stream: bool) {
                kernels::traffic(t, source, target, stream);
            }

            fn token() -> $token {
                <$token>::new().expect("a level's table is only handed out where the CPU has it")
            }

            pub(super) static TABLE: Kernels = Kernels {
                level: $level,
                // SAFETY: the token proves the features.
                encode: |job, f, x, c, s| unsafe { encode(token(), job, f, x, c, s) },
                // SAFETY: the token proves the features.
                decode: |job, f, c, s, y| unsafe { decode(token(), job, f, c, s, y) },
                // SAFETY: the token proves the features.
                split: |words, low, high| unsafe { split(token(), words, low, high) },
                // SAFETY: the token proves the features.
                join: |low, high, words| unsafe { join(token(), low, high, words) },
                // SAFETY: the token proves the features.
                traffic: |source, target, stream| unsafe {
                    traffic(token(), source, target, stream);
                },
            };
        }
        use $module::TABLE as $table;
    };
}

#[cfg(target_arch = "x86_64")]
level!(AVX2, Level::Avx2, avx2::Avx2, "avx2", with_avx2);
#[cfg(target_arch = "x86_64")]
level!(
    AVX512,
    Level::Avx512,
    avx512::Avx512<false>,
    "avx512f,avx512bw,avx512vl,avx512dq",
    with_avx512
);
#[cfg(target_arch = "x86_64")]
level!(
    AVX512_VBMI,
    Level::Avx512Vbmi,
    avx512::Avx512<true>,
    "avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi",
    with_avx512_vbmi
);
#[cfg(target_arch = "aarch64")]
level!(NEON, Level::Neon, neon::Neon, "neon", with_neon);
