//! BLAKE3 of many short messages at once, in the SIMD lanes that a single message cannot fill.
//!
//! The public API hashes one message; lanes over several are only in `blake3::platform`, which is
//! hidden from the docs and not under semver. So the workspace pins `blake3` to one exact version,
//! nothing outside this file touches that module, and the tests below hold each function to the
//! public API. A chunk of BLAKE3 has 1,024 bytes: a message of at most that, in whole 64-byte blocks,
//! is one chunk and its last compression is the root.

use blake3::IncrementCounter;
use blake3::platform::Platform;

/// Most messages hashed in one go (AVX-512 has 16 lanes, AVX2 8, NEON 4).
pub(super) const MAX_LANES: usize = 16;

// Flags and initial value: BLAKE3 paper, tables 1 and 3.
const CHUNK_START: u8 = 1 << 0;
const CHUNK_END: u8 = 1 << 1;
const ROOT: u8 = 1 << 3;
const KEYED_HASH: u8 = 1 << 4;
const IV: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

/// A hash function (plain, or keyed with 32 bytes) for messages of one chunk.
#[derive(Clone, Copy)]
pub(super) struct Lanes {
    platform: Platform,
    key: [u32; 8],
    flags: u8,
}

impl Lanes {
    /// Equal to `blake3::hash`.
    pub(super) fn plain() -> Self {
        Self { platform: Platform::detect(), key: IV, flags: 0 }
    }

    /// Equal to `blake3::keyed_hash` with `key`.
    pub(super) fn keyed(key: &[u8; 32]) -> Self {
        let (words, _) = key.as_chunks::<4>();
        let key = std::array::from_fn(|i| u32::from_le_bytes(words[i]));
        Self { platform: Platform::detect(), key, flags: KEYED_HASH }
    }

    /// Hashes each of `messages` into its place in `out`.
    ///
    /// # Panics
    /// If the two lengths differ. `N` is checked at compile time: a multiple of 64, at most 1,024.
    pub(super) fn hash_each<const N: usize>(&self, messages: &[[u8; N]], out: &mut [[u8; 32]]) {
        const { assert!(N > 0 && N.is_multiple_of(blake3::BLOCK_LEN) && N <= blake3::CHUNK_LEN) };
        assert_eq!(messages.len(), out.len(), "one digest a message");
        for (messages, out) in messages.chunks(MAX_LANES).zip(out.chunks_mut(MAX_LANES)) {
            let mut refs = [&[0; N]; MAX_LANES];
            for (slot, message) in refs.iter_mut().zip(messages) {
                *slot = message;
            }
            self.platform.hash_many(
                &refs[..messages.len()],
                &self.key,
                0,
                IncrementCounter::No,
                self.flags,
                CHUNK_START,
                CHUNK_END | ROOT,
                out.as_flattened_mut(),
            );
        }
    }

    /// Hash of the 64 bytes `left`, `right`: exactly one compression.
    pub(super) fn pair(&self, left: &[u8; 32], right: &[u8; 32]) -> [u8; 32] {
        let mut last = *left;
        self.chain(&mut last, &mut [*right]);
        last
    }

    /// Replaces each of `digests` by the hash of the 64 bytes of what stands before it (at first
    /// `last`) and itself; `last` becomes the last. One compression each, one after the other.
    pub(super) fn chain(&self, last: &mut [u8; 32], digests: &mut [[u8; 32]]) {
        let flags = self.flags | CHUNK_START | CHUNK_END | ROOT;
        let mut block = [0; blake3::BLOCK_LEN];
        block[..32].copy_from_slice(last);
        for digest in digests {
            block[32..].copy_from_slice(digest);
            let mut state = self.key;
            self.platform.compress_in_place(&mut state, &block, blake3::BLOCK_LEN as u8, 0, flags);
            for (bytes, word) in digest.as_chunks_mut::<4>().0.iter_mut().zip(state) {
                *bytes = word.to_le_bytes();
            }
            block[..32].copy_from_slice(digest);
        }
        last.copy_from_slice(&block[..32]);
    }
}

/// BLAKE3 of each block's tokens as u32 little-endian: `tokens` holds `out.len()` blocks of
/// `block_tokens`. Blocks of 16, 32, 48, ... 256 tokens run in lanes, others one by one.
///
/// # Panics
/// If `tokens` does not hold exactly that many.
pub(super) fn token_digests(tokens: &[u32], block_tokens: usize, out: &mut [[u8; 32]]) {
    assert_eq!(tokens.len(), block_tokens * out.len(), "whole blocks");
    macro_rules! by_block_tokens {
        ($($size:literal),*) => {
            match block_tokens {
                $($size => in_lanes::<{ 4 * $size }>(tokens, out),)*
                _ => one_by_one(tokens, block_tokens, out),
            }
        };
    }
    by_block_tokens!(16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256);
}

fn in_lanes<const N: usize>(tokens: &[u32], out: &mut [[u8; 32]]) {
    let lanes = Lanes::plain();
    let mut messages = [[0u8; N]; MAX_LANES];
    for (tokens, out) in tokens.chunks(MAX_LANES * N / 4).zip(out.chunks_mut(MAX_LANES)) {
        write_le(tokens, messages.as_flattened_mut());
        lanes.hash_each(&messages[..out.len()], out);
    }
}

fn one_by_one(tokens: &[u32], block_tokens: usize, out: &mut [[u8; 32]]) {
    let mut message = vec![0u8; 4 * block_tokens];
    for (tokens, out) in tokens.chunks_exact(block_tokens).zip(out) {
        write_le(tokens, &mut message);
        *out = *blake3::hash(&message).as_bytes();
    }
}

/// Writes `tokens` as u32 little-endian to the front of `bytes`.
pub(super) fn write_le(tokens: &[u32], bytes: &mut [u8]) {
    for (bytes, token) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(tokens) {
        *bytes = token.to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(tokens: &[u32]) -> Vec<u8> {
        tokens.iter().flat_map(|token| token.to_le_bytes()).collect()
    }

    /// Each block size from 1 to 257 (all lane sizes, both sides of each, one above a chunk), at
    /// batch lengths around the lane count.
    #[test]
    fn token_digests_equal_the_public_hash() {
        for block_tokens in 1..=257 {
            for blocks in [0, 1, 2, 15, 16, 17, 33] {
                let tokens: Vec<u32> = (0..block_tokens * blocks)
                    .map(|i| (i as u32).wrapping_mul(2_654_435_761))
                    .collect();
                let mut out = vec![[0; 32]; blocks];
                token_digests(&tokens, block_tokens, &mut out);
                for (block, digest) in tokens.chunks_exact(block_tokens).zip(&out) {
                    assert_eq!(digest, blake3::hash(&bytes(block)).as_bytes(), "{block_tokens}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn a_pair_equals_the_public_keyed_hash(key: [u8; 32], left: [u8; 32], right: [u8; 32]) {
            let message = [left, right].concat();
            let (plain, keyed) = (blake3::hash(&message), blake3::keyed_hash(&key, &message));
            prop_assert_eq!(&Lanes::plain().pair(&left, &right), plain.as_bytes());
            prop_assert_eq!(&Lanes::keyed(&key).pair(&left, &right), keyed.as_bytes());
        }

        #[test]
        fn keyed_lanes_equal_the_public_keyed_hash(
            key: [u8; 32],
            messages in prop::collection::vec(any::<[u8; 32]>(), 0..40),
        ) {
            let messages: Vec<[u8; 128]> = messages
                .iter()
                .map(|seed| std::array::from_fn(|i| seed[i % 32] ^ i as u8))
                .collect();
            let mut out = vec![[0; 32]; messages.len()];
            Lanes::keyed(&key).hash_each(&messages, &mut out);
            for (message, digest) in messages.iter().zip(&out) {
                let public = blake3::keyed_hash(&key, message);
                prop_assert_eq!(digest, public.as_bytes());
            }
        }
    }
}
