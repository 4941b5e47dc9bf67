//! Numbers to bytes: formats, scale rules, SIMD levels, engine records and pages.

mod convert;
pub mod e8m0;
mod element;
mod error;
mod float;
mod job;
mod level;
pub mod lossless;
mod options;
mod parallel;
pub mod planes;
pub mod record;
mod rows;
pub mod scheme;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod simd;
pub mod swizzle;
mod traffic;

pub use convert::{Coded, Encoded, decode, encode};
pub use element::{Cast, Element, Overflow, ZeroSign};
pub use error::Error;
pub use float::{
    BF16_NAN, Rounding, Source, Target, bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16,
};
pub use level::{LEVEL_VARIABLE, Level};
pub use options::{BYTES_PER_THREAD, Options, STREAM_ALIGNMENT, STREAM_BYTES, Stores};
pub use traffic::traffic;
