//! Collects the fields of a description and settles what may be said in two ways.

use super::{
    CHAIN_RULE, Description, FORMAT_VERSION, IdentityError, ShardAxis, Weights, WeightsKind,
};
use std::collections::BTreeMap;

/// Collects the fields of a [`Description`].
#[derive(Debug, Clone, Default)]
pub struct DescriptionBuilder {
    format_version: Option<u32>,
    model: Option<String>,
    revision: String,
    weights: Option<Weights>,
    allow_weights_by_name: bool,
    adapter: Option<Vec<u8>>,
    dtype: Option<String>,
    scale_rule: Option<String>,
    layout: Option<[u8; 32]>,
    block_tokens: Option<u32>,
    axes: Vec<ShardAxis>,
    hash_rule: Option<String>,
    extra: BTreeMap<String, String>,
}

impl DescriptionBuilder {
    /// Version of the bytes kept; default [`FORMAT_VERSION`].
    #[must_use]
    pub fn format_version(mut self, version: u32) -> Self {
        self.format_version = Some(version);
        self
    }

    /// Name of the model.
    #[must_use]
    pub fn model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// Revision of the model (a commit, a tag); default none.
    #[must_use]
    pub fn revision(mut self, revision: impl Into<String>) -> Self {
        self.revision = revision.into();
        self
    }

    /// Fingerprint of the weights: 16 to 64 bytes, of kind `name` 1 to 64.
    #[must_use]
    pub fn weights(mut self, kind: WeightsKind, digest: impl Into<Vec<u8>>) -> Self {
        self.weights = Some(Weights { kind, digest: digest.into() });
        self
    }

    /// Accepts weights known by name only: other weights under the same name would be hits.
    #[must_use]
    pub fn allow_weights_by_name(mut self) -> Self {
        self.allow_weights_by_name = true;
        self
    }

    /// Digest of the contents of the adapter that is merged or always applied, 16 to 64 bytes; default
    /// none. Its name is no identity: an adapter is reloaded in place.
    #[must_use]
    pub fn adapter(mut self, digest: impl Into<Vec<u8>>) -> Self {
        self.adapter = Some(digest.into());
        self
    }

    /// Number format of the cache, as its layout names it.
    #[must_use]
    pub fn dtype(mut self, dtype: impl Into<String>) -> Self {
        self.dtype = Some(dtype.into());
        self
    }

    /// How scales are made; default `none`.
    #[must_use]
    pub fn scale_rule(mut self, rule: impl Into<String>) -> Self {
        self.scale_rule = Some(rule.into());
        self
    }

    /// Id of the layout, 32 bytes.
    #[must_use]
    pub fn layout(mut self, id: [u8; 32]) -> Self {
        self.layout = Some(id);
        self
    }

    /// Tokens in a block, 1 to [`MAX_BLOCK_TOKENS`](super::MAX_BLOCK_TOKENS).
    #[must_use]
    pub fn block_tokens(mut self, tokens: u32) -> Self {
        self.block_tokens = Some(tokens);
        self
    }

    /// Adds a shard axis, in any order. An axis of one share splits nothing and is left out, so that
    /// `tp = 1` and no `tp` are one namespace.
    #[must_use]
    pub fn axis(mut self, name: impl Into<String>, rank: u32, size: u32) -> Self {
        self.axes.push(ShardAxis { name: name.into(), rank, size });
        self
    }

    /// How block keys are derived: default [`CHAIN_RULE`]; for foreign keys the engine's rule with its
    /// version, algorithm and seed.
    #[must_use]
    pub fn hash_rule(mut self, rule: impl Into<String>) -> Self {
        self.hash_rule = Some(rule.into());
        self
    }

    /// Anything else that changes cache bytes: attention implementation, rope scaling.
    #[must_use]
    pub fn extra(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.extra.insert(name.into(), value.into());
        self
    }

    /// The description.
    ///
    /// # Errors
    /// [`IdentityError::Missing`] for a field without a value, [`IdentityError::Invalid`] for one
    /// outside its range, [`IdentityError::TooLong`] when the encoding exceeds
    /// [`MAX_ENCODED_BYTES`](super::MAX_ENCODED_BYTES).
    pub fn build(self) -> Result<Description, IdentityError> {
        let missing = |field| IdentityError::Missing { field };
        let weights = self.weights.ok_or(missing("weights"))?;
        if weights.kind == WeightsKind::Name && !self.allow_weights_by_name {
            let limit = "other weights under the same name would be hits: allow it by name, \
                         or give a fingerprint";
            return Err(IdentityError::invalid("weights", "of kind name", limit));
        }
        if self.adapter.as_ref().is_some_and(Vec::is_empty) {
            return Err(IdentityError::invalid(
                "adapter",
                "0 bytes long",
                "it takes 16 to 64 bytes",
            ));
        }
        let mut axes = self.axes;
        axes.sort();
        if let Some(pair) = axes.windows(2).find(|pair| pair[0].name == pair[1].name) {
            let field = format!("axis {:?}", pair[0].name);
            return Err(IdentityError::invalid(field, "given twice", "each axis comes once"));
        }
        axes.retain(|axis| (axis.rank, axis.size) != (0, 1));
        let description = Description {
            format_version: self.format_version.unwrap_or(FORMAT_VERSION),
            model: self.model.ok_or(missing("model"))?,
            revision: self.revision,
            weights,
            adapter: self.adapter.unwrap_or_default(),
            dtype: self.dtype.ok_or(missing("dtype"))?,
            scale_rule: self.scale_rule.unwrap_or_else(|| "none".into()),
            layout: self.layout.ok_or(missing("layout"))?,
            block_tokens: self.block_tokens.ok_or(missing("block_tokens"))?,
            axes,
            hash_rule: self.hash_rule.unwrap_or_else(|| CHAIN_RULE.into()),
            extra: self.extra,
        };
        description.check()?;
        Ok(description)
    }
}
