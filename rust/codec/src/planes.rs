//! Byte planes: all low bytes of 16-bit numbers, then all high bytes.
//!
//! The high bytes of bf16 and fp16 carry sign and exponent, which repeat; the low bytes are close to
//! random. Split, zstd finds the first and passes over the second.

use crate::error::{Error, exact};
use crate::options::Options;

/// Splits `words` (little-endian 16-bit numbers) into low bytes, then high bytes.
///
/// # Errors
/// [`Error::Length`] unless `planes` is exactly twice as long in bytes as `words` in elements; a
/// level that the CPU lacks.
pub fn split(words: &[u16], planes: &mut [u8], options: &Options) -> Result<(), Error> {
    exact("planes", planes.len(), 2 * words.len(), "bytes", || format!("{} words", words.len()))?;
    let (low, high) = planes.split_at_mut(words.len());
    (options.kernels()?.split)(words, low, high);
    Ok(())
}

/// Joins planes made by [`split`].
///
/// # Errors
/// As [`split`].
pub fn join(planes: &[u8], words: &mut [u16], options: &Options) -> Result<(), Error> {
    exact("planes", planes.len(), 2 * words.len(), "bytes", || format!("{} words", words.len()))?;
    let (low, high) = planes.split_at(words.len());
    (options.kernels()?.join)(low, high, words);
    Ok(())
}

/// The scalar specification of [`split`].
pub(crate) fn split_scalar(words: &[u16], low: &mut [u8], high: &mut [u8]) {
    for ((word, low), high) in words.iter().zip(low).zip(high) {
        [*low, *high] = word.to_le_bytes();
    }
}

/// The scalar specification of [`join`].
pub(crate) fn join_scalar(low: &[u8], high: &[u8], words: &mut [u16]) {
    for ((word, low), high) in words.iter_mut().zip(low).zip(high) {
        *word = u16::from_le_bytes([*low, *high]);
    }
}
