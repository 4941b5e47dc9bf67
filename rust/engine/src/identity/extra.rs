//! Extra keys: what besides the tokens decides the cache bytes of a block.
//!
//! Media digests with their position, embeddings given instead of tokens, an adapter used for a part
//! of the prompt, and the mark of a replayed block. They follow the tokens in the block's message, each
//! in a frame:
//!
//! | bytes | what |
//! | --- | --- |
//! | 1 | 1 = the caller's, 2 = replayed |
//! | 4 | length n, u32 little-endian |
//! | n | the bytes; for `replayed` the 16 bytes `kvstore.replayed` (ASCII) |
//!
//! The caller's come first and in his order, the mark last. The tokens have a fixed length and each
//! frame says its own, so a message can be read in one way only: no tokens and no bytes of a caller
//! can imitate a frame.

use super::IdentityError;
use std::ops::Range;

/// Least length of an extra key, in bytes: 128 bits, so that no one can look for a clash.
pub const MIN_EXTRA_BYTES: usize = 16;

const CALLERS: u8 = 1;
const REPLAYED: u8 = 2;
const REPLAYED_MARK: &[u8; MIN_EXTRA_BYTES] = b"kvstore.replayed";

/// The extra keys of a run of blocks, by block number from the start of the token list.
#[derive(Debug, Clone, Copy, Default)]
pub struct Extras<'a> {
    keys: &'a [(usize, &'a [u8])],
    replayed_from: Option<usize>,
}

impl<'a> Extras<'a> {
    /// None: the tokens say all.
    pub const fn none() -> Self {
        Self { keys: &[], replayed_from: None }
    }

    /// Extra keys as (block, bytes), ascending by block; several of one block keep their order, which
    /// counts.
    ///
    /// # Errors
    /// [`IdentityError::Invalid`] when blocks descend or bytes are shorter than [`MIN_EXTRA_BYTES`]
    /// (or longer than a u32 counts).
    pub fn new(keys: &'a [(usize, &'a [u8])]) -> Result<Self, IdentityError> {
        for (block, bytes) in keys {
            if bytes.len() < MIN_EXTRA_BYTES || u32::try_from(bytes.len()).is_err() {
                return Err(IdentityError::invalid(
                    format!("extra_keys[{block}]"),
                    &format!("{} bytes long", bytes.len()),
                    format!("an extra key has {MIN_EXTRA_BYTES} to {} bytes", u32::MAX),
                ));
            }
        }
        if let Some(pair) = keys.windows(2).find(|pair| pair[0].0 > pair[1].0) {
            return Err(IdentityError::invalid(
                "extra_keys",
                &format!("block {} after block {}", pair[1].0, pair[0].0),
                "extra keys come in ascending order of blocks",
            ));
        }
        Ok(Self { keys, replayed_from: None })
    }

    /// The same with `block` marked as the first one stored after a bounded replay.
    #[must_use]
    pub const fn replayed_from(self, block: usize) -> Self {
        Self { replayed_from: Some(block), ..self }
    }

    /// The part that concerns `blocks`, as [`Chain::extend`](super::Chain::extend) wants it.
    #[must_use]
    pub fn within(self, blocks: Range<usize>) -> Self {
        let from = self.keys.partition_point(|(block, _)| *block < blocks.start);
        let to = self.keys.partition_point(|(block, _)| *block < blocks.end).max(from);
        Self {
            keys: &self.keys[from..to],
            replayed_from: self.replayed_from.filter(|block| blocks.contains(block)),
        }
    }

    /// Refuses what lies outside `whole` (blocks that get a key) and is not of the unfinished block
    /// behind it: an extra key with a wrong block number must not vanish from the identity.
    pub(super) fn check(&self, whole: &Range<usize>, tail: bool) -> Result<(), IdentityError> {
        let known = whole.start..whole.end.saturating_add(usize::from(tail));
        for (block, _) in self.keys {
            if !known.contains(block) {
                return Err(outside(format!("extra_keys[{block}]"), *block, &known));
            }
        }
        match self.replayed_from {
            Some(block) if !whole.contains(&block) => Err(outside("replayed_from", block, whole)),
            _ => Ok(()),
        }
    }

    /// Feeds the frames of `block` to `hasher`.
    pub(super) fn frames(&self, block: usize, hasher: &mut blake3::Hasher) {
        let from = self.keys.partition_point(|(other, _)| *other < block);
        for (_, bytes) in self.keys[from..].iter().take_while(|(other, _)| *other == block) {
            frame(CALLERS, bytes, hasher);
        }
        if self.replayed_from == Some(block) {
            frame(REPLAYED, REPLAYED_MARK, hasher);
        }
    }

    /// The blocks that have any frame, ascending.
    pub(super) fn blocks(&self) -> impl Iterator<Item = usize> + use<'a> {
        let mut blocks: Vec<usize> =
            self.keys.iter().map(|(block, _)| *block).chain(self.replayed_from).collect();
        blocks.sort_unstable();
        blocks.dedup();
        blocks.into_iter()
    }
}

fn frame(tag: u8, bytes: &[u8], hasher: &mut blake3::Hasher) {
    let length = u32::try_from(bytes.len()).expect("Extras::new checked the length");
    hasher.update(&[tag]);
    hasher.update(&length.to_le_bytes());
    hasher.update(bytes);
}

fn outside(field: impl Into<String>, block: usize, known: &Range<usize>) -> IdentityError {
    IdentityError::invalid(
        field,
        &format!("block {block}"),
        format!("the tokens cover blocks {} to {} (end excluded)", known.start, known.end),
    )
}

/// The extra key of a picture, sound or video: its full 256-bit digest, then the position (u64
/// little-endian) in the token list of the first token it stands for.
///
/// Each block that holds one of its placeholder tokens takes it. The position tells two pictures in
/// other places apart where the placeholder tokens are the same.
pub fn media_extra(digest: &[u8; 32], position: u64) -> [u8; 40] {
    let mut bytes = [0; 40];
    bytes[..32].copy_from_slice(digest);
    bytes[32..].copy_from_slice(&position.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extra_key_below_128_bits_is_refused_with_block_and_length() {
        let error = Extras::new(&[(3, &[1; 15])]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "extra_keys[3] is 15 bytes long: an extra key has 16 to 4294967295 bytes"
        );
        assert!(Extras::new(&[(3, &[1; 16])]).is_ok());
    }

    #[test]
    fn descending_blocks_are_refused() {
        let error = Extras::new(&[(3, &[1; 16]), (2, &[1; 16])]).unwrap_err();
        assert!(error.to_string().contains("block 2 after block 3"), "{error}");
        assert!(Extras::new(&[(3, &[1; 16]), (3, &[0; 16])]).is_ok());
    }

    #[test]
    fn an_extra_key_outside_the_tokens_is_refused_and_not_forgotten() {
        let one: [(usize, &[u8]); 1] = [(4, &[1; 16])];
        let extras = Extras::new(&one).unwrap();
        assert!(extras.check(&(0..4), false).is_err());
        assert!(extras.check(&(0..4), true).is_ok()); // of the unfinished block: no key, no harm
        assert!(extras.check(&(5..9), false).is_err());
        assert!(extras.within(5..9).check(&(5..9), false).is_ok());
        assert!(Extras::none().replayed_from(4).check(&(0..4), true).is_err());
        assert!(Extras::none().replayed_from(3).check(&(0..4), true).is_ok());
    }
}
