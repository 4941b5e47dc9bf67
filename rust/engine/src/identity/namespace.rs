//! The namespace: all of the model side that changes cache bytes, typed, and its digest.
//!
//! Two processes share cache exactly when their descriptions are equal; a mismatch is an empty cache
//! and one log line that names the field ([`Description::differs`]). The digest is BLAKE3 of the
//! canonical encoding (`encoding.rs`), which the namespace table keeps in clear.

mod builder;
mod differs;
mod encoding;

pub use builder::DescriptionBuilder;
pub use differs::FieldDiff;

use super::{IdentityError, NamespaceDigest};
use std::collections::BTreeMap;
use std::fmt;

/// Version of the bytes that the store keeps under a namespace: slot contents, manifests, windows.
pub const FORMAT_VERSION: u32 = 1;

/// Name of this module's own derivation of block keys, the default of
/// [`DescriptionBuilder::hash_rule`].
pub const CHAIN_RULE: &str = "kvstore-chain-1";

/// Most bytes of a canonical encoding: a namespace record of 1 KiB less its header of 64 bytes.
pub const MAX_ENCODED_BYTES: usize = 1024 - 64;

/// Most tokens in a block.
pub const MAX_BLOCK_TOKENS: u32 = 65_536;

/// How the weights were identified, in descending strength. A weaker kind never hits a stronger one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum WeightsKind {
    /// BLAKE3 of all tensor bytes.
    Full = 1,
    /// The SHA-256 names that the Hugging Face cache gives its blobs.
    Hub = 2,
    /// A full digest remembered per file by device, inode, size, mtime, ctime.
    Cached = 3,
    /// Headers and 64 KiB of each tensor.
    Sampled = 4,
    /// A name alone, refused unless [`DescriptionBuilder::allow_weights_by_name`] was called.
    Name = 5,
}

impl WeightsKind {
    const ALL: [Self; 5] = [Self::Full, Self::Hub, Self::Cached, Self::Sampled, Self::Name];
}

impl fmt::Display for WeightsKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "full",
            Self::Hub => "hub",
            Self::Cached => "cached",
            Self::Sampled => "sampled",
            Self::Name => "name",
        })
    }
}

/// Fingerprint of the weights: its kind and 16 to 64 bytes of digest (of kind `name`: at least one
/// byte).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Weights {
    /// How it was made.
    pub kind: WeightsKind,
    /// The digest, or the name.
    pub digest: Vec<u8>,
}

/// One axis along which the cache is split over devices (`tp`, `pp`, `cp`, `dcp`, `dp`), and which
/// share this is. Groups that are replicated along an axis leave it out on purpose.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardAxis {
    /// Name, unique in a description.
    pub name: String,
    /// This share, from 0.
    pub rank: u32,
    /// Number of shares.
    pub size: u32,
}

/// All of the model side that changes cache bytes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Description {
    format_version: u32,
    model: String,
    revision: String,
    weights: Weights,
    adapter: Vec<u8>,
    dtype: String,
    scale_rule: String,
    layout: [u8; 32],
    block_tokens: u32,
    axes: Vec<ShardAxis>, // ascending by name, each of at least two shares
    hash_rule: String,
    extra: BTreeMap<String, String>,
}

impl Description {
    /// Begins a description; `model`, `weights`, `dtype`, `layout` and `block_tokens` have no default.
    pub fn builder() -> DescriptionBuilder {
        DescriptionBuilder::default()
    }

    /// The key of everything below: BLAKE3 of [`encode`](Self::encode).
    pub fn digest(&self) -> NamespaceDigest {
        NamespaceDigest::from_bytes(*blake3::hash(&self.encode()).as_bytes())
    }

    /// Version of the bytes kept.
    pub fn format_version(&self) -> u32 {
        self.format_version
    }

    /// Name of the model.
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Revision of the model, empty when it has none.
    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// Fingerprint of the weights.
    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    /// Digest of the adapter's contents, empty without one.
    pub fn adapter(&self) -> &[u8] {
        &self.adapter
    }

    /// Number format of the cache.
    pub fn dtype(&self) -> &str {
        &self.dtype
    }

    /// How scales are made, `none` without scales.
    pub fn scale_rule(&self) -> &str {
        &self.scale_rule
    }

    /// Id of the layout.
    pub fn layout(&self) -> &[u8; 32] {
        &self.layout
    }

    /// Tokens in a block.
    pub fn block_tokens(&self) -> u32 {
        self.block_tokens
    }

    /// Shard axes of at least two shares, ascending by name.
    pub fn axes(&self) -> &[ShardAxis] {
        &self.axes
    }

    /// How block keys are derived from tokens.
    pub fn hash_rule(&self) -> &str {
        &self.hash_rule
    }

    /// Everything else that changes cache bytes.
    pub fn extra(&self) -> &BTreeMap<String, String> {
        &self.extra
    }

    /// The rules that hold for every description, however it came about.
    fn check(&self) -> Result<(), IdentityError> {
        let named =
            [("model", &self.model), ("dtype", &self.dtype), ("scale_rule", &self.scale_rule)];
        for (field, value) in named.into_iter().chain([("hash_rule", &self.hash_rule)]) {
            if value.is_empty() {
                return Err(IdentityError::invalid(
                    field,
                    "empty",
                    "it takes at least one character",
                ));
            }
        }
        let least = if self.weights.kind == WeightsKind::Name { 1 } else { 16 };
        check_digest("weights", &self.weights.digest, least)?;
        if !self.adapter.is_empty() {
            check_digest("adapter", &self.adapter, 16)?;
        }
        if !(1..=MAX_BLOCK_TOKENS).contains(&self.block_tokens) {
            let limit = format!("a block has 1 to {MAX_BLOCK_TOKENS} tokens");
            return Err(IdentityError::invalid("block_tokens", &self.block_tokens, limit));
        }
        for axis in &self.axes {
            let field = format!("axis {:?}", axis.name);
            if axis.name.is_empty() || axis.name.len() > 255 {
                return Err(IdentityError::invalid(field, "its name", "names have 1 to 255 bytes"));
            }
            if axis.rank >= axis.size {
                let value = format!("rank {} of {}", axis.rank, axis.size);
                return Err(IdentityError::invalid(field, &value, "ranks are 0 to size - 1"));
            }
        }
        if let Some(name) = self.extra.keys().find(|name| name.is_empty() || name.len() > 255) {
            let field = format!("extra {name:?}");
            return Err(IdentityError::invalid(field, "its name", "names have 1 to 255 bytes"));
        }
        self.check_length()
    }
}

fn check_digest(field: &str, digest: &[u8], least: usize) -> Result<(), IdentityError> {
    if !(least..=64).contains(&digest.len()) {
        let value = format!("{} bytes long", digest.len());
        return Err(IdentityError::invalid(field, &value, format!("it takes {least} to 64 bytes")));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
