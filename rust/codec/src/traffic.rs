//! The memory traffic of a decode without its arithmetic: what a benchmark measures a decode against.

use crate::error::{Error, exact};
use crate::options::Options;

/// Writes each 64 bytes of `source` `times` times in succession to `target`, in the order in which
/// decodes write: what reads as much as a decode (2 times: 8-bit codes, 4 times: 4-bit codes) and
/// writes as much, as fast as this memory takes it. Once is a copy.
///
/// # Errors
/// [`Error::Length`] unless `target` is exactly `times` as many bytes as `source`;
/// [`Error::Multiple`] unless `source` is a multiple of 64 bytes; a level that the CPU lacks; a
/// destination that is not aligned for streamed stores.
pub fn traffic(
    source: &[u8],
    times: usize,
    target: &mut [u16],
    options: &Options,
) -> Result<(), Error> {
    let bytes = 2 * target.len();
    exact("target", bytes, times * source.len(), "bytes", || format!("{times} times the source"))?;
    if !source.len().is_multiple_of(LINE) {
        let by = "whole lines".to_owned();
        return Err(Error::Multiple { what: "source", given: source.len(), multiple: LINE, by });
    }
    let stream = options.streams("target", target.as_ptr() as usize, bytes)?;
    (options.kernels()?.traffic)(source, target, stream);
    Ok(())
}

/// Bytes of a line.
pub(crate) const LINE: usize = 64;

/// The scalar specification of [`traffic`].
pub(crate) fn traffic_scalar(source: &[u8], target: &mut [u16]) {
    if source.is_empty() {
        return;
    }
    let times = 2 * target.len() / source.len();
    let words = LINE / 2;
    for (line, copies) in source.chunks_exact(LINE).zip(target.chunks_exact_mut(times * words)) {
        for copy in copies.chunks_exact_mut(words) {
            for (word, bytes) in copy.iter_mut().zip(line.chunks_exact(2)) {
                *word = u16::from_le_bytes([bytes[0], bytes[1]]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::level::Level;
    use crate::options::Stores;

    #[test]
    fn every_level_repeats_every_line() {
        let source: Vec<u8> = (0..64 * 67u32).map(|i| (i % 251) as u8).collect();
        for times in [1, 2, 3, 4] {
            let mut wanted = vec![0; times * source.len() / 2];
            traffic_scalar(&source, &mut wanted);
            assert_eq!(wanted[32 * times].to_le_bytes(), [source[64], source[65]]);
            for level in Level::available() {
                for stores in [Stores::Cached, Stores::Stream] {
                    let options = Options { level: Some(level), threads: 1, stores };
                    let mut target = vec![0; wanted.len() + 32];
                    let at = target.as_ptr().align_offset(64);
                    let part = &mut target[at..at + wanted.len()];
                    traffic(&source, times, part, &options).unwrap();
                    assert!(part == wanted, "{times} {options:?}");
                }
            }
        }
    }

    #[test]
    fn lengths_are_checked() {
        let error = traffic(&[0; 64], 2, &mut [0; 63], &Options::default()).unwrap_err();
        assert!(error.to_string().contains("target"), "{error}");
        let error = traffic(&[0; 62], 1, &mut [0; 31], &Options::default()).unwrap_err();
        assert!(error.to_string().contains("multiple of 64"), "{error}");
    }
}
