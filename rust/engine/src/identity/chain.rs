//! The chain: one key per whole block of tokens, each depending on all tokens before its end.
//!
//! Blocks are numbered from 0; block i holds tokens `i * block_tokens .. (i + 1) * block_tokens`.
//!
//! ```text
//! d(i)    = BLAKE3( tokens of block i as u32 little-endian, then the frames of its extra keys )
//! key(i)  = BLAKE3 keyed with the namespace digest ( key(i-1), d(i) )        32 + 32 bytes
//! key(-1) = the tenant's root
//! ```
//!
//! So key(0) is made from the root and d(0), and n whole blocks have n keys; the root itself names no
//! object. Two levels, because only the second is serial: the d(i) are independent and run in SIMD
//! lanes, and a step over exactly 64 bytes is one compression, the least that a chain can cost.
//! The chain needs no block number: what a key stands for is the tokens before it.

use super::lanes::{Lanes, token_digests, write_le};
use super::{Extras, IdentityError, Key, MAX_BLOCK_TOKENS, NamespaceDigest, Root};

/// Blocks digested before they are chained: their digests (8 KiB) stay in the first-level cache.
const BATCH: usize = 256;

/// A chain that grows: keys up to some block, ready to go on from there.
#[derive(Clone)]
pub struct Chain {
    step: Lanes,
    block_tokens: usize,
    last: [u8; 32],
    next_block: usize,
}

impl Chain {
    /// An empty chain under `root`, in blocks of `block_tokens`.
    ///
    /// # Errors
    /// [`IdentityError::Invalid`] when `block_tokens` is not 1 to [`MAX_BLOCK_TOKENS`].
    pub fn new(
        namespace: &NamespaceDigest,
        root: &Root,
        block_tokens: usize,
    ) -> Result<Self, IdentityError> {
        Self::starting(namespace, *root.as_bytes(), 0, block_tokens)
    }

    /// A chain that goes on at `next_block`, whose parent is `parent` (the key of block
    /// `next_block - 1`).
    ///
    /// # Errors
    /// [`IdentityError::Invalid`] when `block_tokens` is not 1 to [`MAX_BLOCK_TOKENS`], or
    /// `next_block` is 0, whose parent is a root.
    pub fn resume(
        namespace: &NamespaceDigest,
        parent: &Key,
        next_block: usize,
        block_tokens: usize,
    ) -> Result<Self, IdentityError> {
        if next_block == 0 {
            return Err(IdentityError::invalid("next_block", &0, "block 0 starts from the root"));
        }
        Self::starting(namespace, *parent.as_bytes(), next_block, block_tokens)
    }

    fn starting(
        namespace: &NamespaceDigest,
        last: [u8; 32],
        next_block: usize,
        block_tokens: usize,
    ) -> Result<Self, IdentityError> {
        if !(1..=MAX_BLOCK_TOKENS as usize).contains(&block_tokens) {
            let limit = format!("a block has 1 to {MAX_BLOCK_TOKENS} tokens");
            return Err(IdentityError::invalid("block_tokens", &block_tokens, limit));
        }
        Ok(Self { step: Lanes::keyed(namespace.as_bytes()), block_tokens, last, next_block })
    }

    /// Number of the block that the next call begins with.
    pub fn next_block(&self) -> usize {
        self.next_block
    }

    /// Appends the keys of all whole blocks of `tokens` to `keys`; `tokens` begins at the start of
    /// block [`next_block`](Self::next_block). Tokens behind the last whole block are left out: give
    /// them again when the block is full.
    ///
    /// # Errors
    /// [`IdentityError::Invalid`] when an extra key or the replayed mark lies outside the tokens (cut
    /// with [`Extras::within`]), or block numbers overflow; then neither `keys` nor the chain has
    /// changed.
    pub fn extend(
        &mut self,
        tokens: &[u32],
        extras: &Extras<'_>,
        keys: &mut Vec<Key>,
    ) -> Result<(), IdentityError> {
        let (whole, tail) = tokens.split_at(tokens.len() - tokens.len() % self.block_tokens);
        let blocks = whole.len() / self.block_tokens;
        let Some(end) = self.next_block.checked_add(blocks) else {
            let limit = format!("with {blocks} blocks more it exceeds {}", usize::MAX);
            return Err(IdentityError::invalid("next_block", &self.next_block, limit));
        };
        extras.check(&(self.next_block..end), !tail.is_empty())?;
        keys.reserve(blocks);
        let mut digests = [[0; 32]; BATCH];
        for tokens in whole.chunks(BATCH * self.block_tokens) {
            let digests = &mut digests[..tokens.len() / self.block_tokens];
            token_digests(tokens, self.block_tokens, digests);
            self.with_extras(tokens, extras, digests);
            self.step.chain(&mut self.last, digests);
            keys.extend(digests.iter().copied().map(Key::from_bytes));
            self.next_block += digests.len();
        }
        Ok(())
    }

    /// Makes anew the digests of those blocks that have extra keys: unequal lengths fit no lanes.
    fn with_extras(&self, tokens: &[u32], extras: &Extras<'_>, digests: &mut [[u8; 32]]) {
        let here = extras.within(self.next_block..self.next_block + digests.len());
        for block in here.blocks() {
            let index = block - self.next_block;
            let tokens = &tokens[index * self.block_tokens..][..self.block_tokens];
            digests[index] = digest_with_extras(tokens, &here, block);
        }
    }
}

impl std::fmt::Debug for Chain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // `last` may be a root, which is never printed.
        f.debug_struct("Chain")
            .field("block_tokens", &self.block_tokens)
            .field("next_block", &self.next_block)
            .finish_non_exhaustive()
    }
}

fn digest_with_extras(tokens: &[u32], extras: &Extras<'_>, block: usize) -> [u8; 32] {
    let mut bytes = vec![0; 4 * tokens.len()];
    write_le(tokens, &mut bytes);
    let mut hasher = blake3::Hasher::new();
    hasher.update(&bytes);
    extras.frames(block, &mut hasher);
    *hasher.finalize().as_bytes()
}

/// The keys of all whole blocks of `tokens`, from block 0.
///
/// # Errors
/// As [`Chain::new`] and [`Chain::extend`].
pub fn chain_keys(
    namespace: &NamespaceDigest,
    root: &Root,
    tokens: &[u32],
    block_tokens: usize,
    extras: &Extras<'_>,
) -> Result<Vec<Key>, IdentityError> {
    let mut keys = Vec::new();
    Chain::new(namespace, root, block_tokens)?.extend(tokens, extras, &mut keys)?;
    Ok(keys)
}

/// For each whole block the key it has as the first one stored after a bounded replay, below its
/// exact parent: what a match that allows approximate prefixes probes at each block boundary.
///
/// `keys` are the exact keys of the same tokens and extra keys, as [`chain_keys`] gives them.
///
/// # Errors
/// [`IdentityError::Invalid`] as [`Chain::extend`], or when the number of keys is not that of the whole
/// blocks.
pub fn replayed_children(
    namespace: &NamespaceDigest,
    root: &Root,
    keys: &[Key],
    tokens: &[u32],
    block_tokens: usize,
    extras: &Extras<'_>,
) -> Result<Vec<Key>, IdentityError> {
    let chain = Chain::new(namespace, root, block_tokens)?;
    let whole = tokens.len() / block_tokens;
    if keys.len() != whole {
        let limit = format!("the tokens have {whole} whole blocks");
        return Err(IdentityError::invalid("keys", &keys.len(), limit));
    }
    extras.check(&(0..whole), !tokens.len().is_multiple_of(block_tokens))?;
    let parents = std::iter::once(root.as_bytes()).chain(keys.iter().map(Key::as_bytes));
    let children = tokens.chunks_exact(block_tokens).zip(parents).enumerate();
    Ok(children
        .map(|(block, (tokens, parent))| {
            let digest = digest_with_extras(tokens, &extras.replayed_from(block), block);
            Key::from_bytes(chain.step.pair(parent, &digest))
        })
        .collect())
}

#[cfg(test)]
mod tests;
