//! Lossless packing of 16-bit numbers: byte planes and zstd level 1.
//!
//! A frame is 12 bytes of header (magic `KVBP`, the number of words and the length of the first zstd
//! frame as u32 little-endian), then a zstd frame of the low bytes and one of the high bytes: one
//! table for both planes would spoil the high one's. A frame decodes to exactly the words put in, or
//! is an error. Level 3 is never better here: it finds matches that are not there.

use crate::error::Error;
use crate::options::Options;
use crate::planes;

const MAGIC: [u8; 4] = *b"KVBP";
const HEADER: usize = 12;
const LEVEL: i32 = 1;

/// Working memory of encodes and decodes: contexts and the plane buffer, reused between calls.
pub struct Packer {
    compressor: zstd::bulk::Compressor<'static>,
    decompressor: zstd::bulk::Decompressor<'static>,
    planes: Vec<u8>,
}

impl std::fmt::Debug for Packer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Packer").field("planes", &self.planes.len()).finish_non_exhaustive()
    }
}

fn frame_error(error: impl std::fmt::Display) -> Error {
    Error::Frame(error.to_string())
}

/// The longest frame of `words` numbers.
#[must_use]
pub fn bound(words: usize) -> usize {
    HEADER + 2 * zstd::zstd_safe::compress_bound(words)
}

impl Packer {
    /// Allocates the contexts.
    ///
    /// # Errors
    /// [`Error::Frame`] if zstd has no memory.
    pub fn new() -> Result<Self, Error> {
        Ok(Self {
            compressor: zstd::bulk::Compressor::new(LEVEL).map_err(frame_error)?,
            decompressor: zstd::bulk::Decompressor::new().map_err(frame_error)?,
            planes: Vec::new(),
        })
    }

    /// Packs `words` into `out`, at least [`bound`] long; gives the frame's length.
    ///
    /// # Errors
    /// More than 2^32 - 1 words, or a shorter `out`.
    pub fn encode(&mut self, words: &[u16], out: &mut [u8]) -> Result<usize, Error> {
        let wanted = bound(words.len());
        let Ok(count) = u32::try_from(words.len()) else {
            let given = words.len().to_string();
            return Err(Error::Argument {
                what: "words",
                given,
                wanted: "at most 2^32 - 1".to_owned(),
            });
        };
        if out.len() < wanted {
            let (given, wanted) = (format!("{} bytes", out.len()), format!("at least {wanted}"));
            return Err(Error::Argument { what: "out", given, wanted });
        }
        self.planes.resize(2 * words.len(), 0);
        planes::split(words, &mut self.planes, &Options::default())?;
        let (header, body) = out.split_at_mut(HEADER);
        let (low, high) = self.planes.split_at(words.len());
        let first = self.compressor.compress_to_buffer(low, body).map_err(frame_error)?;
        let second = self.compressor.compress_to_buffer(high, &mut body[first..]);
        let second = second.map_err(frame_error)?;
        let first_length = u32::try_from(first).map_err(frame_error)?;
        header[..4].copy_from_slice(&MAGIC);
        header[4..8].copy_from_slice(&count.to_le_bytes());
        header[8..].copy_from_slice(&first_length.to_le_bytes());
        Ok(HEADER + first + second)
    }

    /// Unpacks a frame into `words`, exactly as many as it holds.
    ///
    /// # Errors
    /// [`Error::Frame`] for anything that is not a whole frame of that many words.
    pub fn decode(&mut self, frame: &[u8], words: &mut [u16]) -> Result<(), Error> {
        let count = frame_words(frame)?;
        if count != words.len() {
            return Err(Error::Frame(format!(
                "{count} words in it, room for {} given",
                words.len()
            )));
        }
        let [first, second] = bodies(frame)?;
        self.planes.resize(2 * count, 0);
        let (low, high) = self.planes.split_at_mut(count);
        for (coded, plane) in [(first, low), (second, high)] {
            let done = self.decompressor.decompress_to_buffer(coded, plane).map_err(frame_error)?;
            if done != count {
                return Err(Error::Frame(format!("{done} bytes in a plane, {count} wanted")));
            }
        }
        planes::join(&self.planes, words, &Options::default())
    }
}

/// Word count and length of the first zstd frame.
fn header(frame: &[u8]) -> Result<(usize, usize), Error> {
    let Some((header, _)) = frame.split_first_chunk::<HEADER>() else {
        return Err(Error::Frame(format!("{} bytes, at least {HEADER} wanted", frame.len())));
    };
    let [a, b, c, d, e, f, g, h, i, j, k, l] = *header;
    if [a, b, c, d] != MAGIC {
        return Err(Error::Frame("magic KVBP missing".to_owned()));
    }
    let number = |bytes| usize::try_from(u32::from_le_bytes(bytes)).map_err(frame_error);
    Ok((number([e, f, g, h])?, number([i, j, k, l])?))
}

/// The zstd frames of the two planes, each of which says itself that it holds the header's count:
/// nothing is allocated for a header that lies.
fn bodies(frame: &[u8]) -> Result<[&[u8]; 2], Error> {
    let (count, first) = header(frame)?;
    let body = &frame[HEADER..];
    let Some((first, second)) = body.split_at_checked(first) else {
        return Err(Error::Frame(format!(
            "{} bytes, {first} wanted for the low plane",
            body.len()
        )));
    };
    for plane in [first, second] {
        let said = zstd::zstd_safe::get_frame_content_size(plane).ok().flatten();
        if said != Some(count as u64) {
            let said = said.map_or_else(|| "no".to_owned(), |said| said.to_string());
            return Err(Error::Frame(format!("{said} bytes in a plane, {count} wanted")));
        }
    }
    Ok([first, second])
}

/// The number of words that a frame says it holds: what the caller must make room for.
///
/// # Errors
/// [`Error::Frame`] without a header, or if the planes say otherwise.
pub fn frame_words(frame: &[u8]) -> Result<usize, Error> {
    bodies(frame)?;
    Ok(header(frame)?.0)
}

/// The classes that encoded objects of `raw` bytes go into: 1/16 steps of the raw stride.
///
/// A class is an exact stride, a multiple of the device's `unit`; the last class is the raw stride.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ladder {
    raw: usize,
    unit: usize,
}

impl Ladder {
    /// A ladder under the stride of `raw` bytes.
    ///
    /// # Errors
    /// [`Error::Argument`] if either is 0.
    pub fn new(raw: usize, unit: usize) -> Result<Self, Error> {
        for (what, value) in [("raw", raw), ("unit", unit)] {
            if value == 0 {
                let (given, wanted) = ("0".to_owned(), "at least 1 byte".to_owned());
                return Err(Error::Argument { what, given, wanted });
            }
        }
        Ok(Self { raw, unit })
    }

    /// The raw stride: `raw` rounded up to whole units.
    #[must_use]
    pub const fn raw_stride(&self) -> usize {
        self.raw.next_multiple_of(self.unit)
    }

    /// The stride of the class that holds `encoded` bytes; what does not fit below the raw stride is
    /// kept raw.
    #[must_use]
    pub const fn stride(&self, encoded: usize) -> usize {
        let raw = self.raw_stride();
        if encoded >= raw {
            return raw;
        }
        let step = raw.div_ceil(16);
        let sixteenths = encoded.div_ceil(step);
        let stride = (sixteenths * step).next_multiple_of(self.unit);
        if stride < raw { stride } else { raw }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::float::f32_to_bf16;

    /// Sums of hashed uniforms: close to normal, and the same everywhere.
    fn bell(count: usize) -> Vec<u16> {
        let mut state = 1u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / 16_777_216.0 - 0.5
        };
        (0..count).map(|_| f32_to_bf16((0..6).map(|_| next()).sum())).collect()
    }

    #[test]
    fn frames_give_back_every_word_and_save_a_quarter() {
        let words = bell(32_768);
        let mut packer = Packer::new().unwrap();
        let mut out = vec![0; bound(words.len())];
        let length = packer.encode(&words, &mut out).unwrap();
        assert!(length * 4 < words.len() * 2 * 3, "{length} of {}", words.len() * 2);
        let mut back = vec![0; words.len()];
        packer.decode(&out[..length], &mut back).unwrap();
        assert_eq!(back, words);
        assert_eq!(frame_words(&out[..length]), Ok(words.len()));
    }

    #[test]
    fn a_damaged_or_short_frame_is_an_error() {
        let words = bell(1000);
        let mut packer = Packer::new().unwrap();
        let mut out = vec![0; bound(words.len())];
        let length = packer.encode(&words, &mut out).unwrap();
        let mut back = vec![0; words.len()];
        for end in 0..length {
            assert!(packer.decode(&out[..end], &mut back).is_err(), "{end} of {length}");
        }
        assert!(packer.decode(&out[..length], &mut back[1..]).is_err());
        out[0] ^= 1;
        let error = packer.decode(&out[..length], &mut back).unwrap_err().to_string();
        assert!(error.contains("KVBP"), "{error}");
        assert!(
            packer.encode(&words, &mut [0; 10]).unwrap_err().to_string().contains("out: 10 bytes")
        );
    }

    #[test]
    fn classes_are_sixteenths_of_the_raw_stride() {
        let ladder = Ladder::new(1 << 20, 4096).unwrap();
        assert_eq!(ladder.stride(1), 65_536);
        assert_eq!(ladder.stride(65_536), 65_536);
        assert_eq!(ladder.stride(65_537), 131_072);
        assert_eq!(ladder.stride((1 << 20) - 1), 1 << 20);
        assert_eq!(ladder.stride(1 << 21), 1 << 20);
        let small = Ladder::new(10_000, 4096).unwrap();
        assert_eq!(small.raw_stride(), 12_288);
        assert_eq!(small.stride(7_000), 8_192);
        assert!(Ladder::new(0, 4096).is_err());
    }
}
