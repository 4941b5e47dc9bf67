//! Who owns which bytes: namespace, tenant, chain of blocks, object keys.
//!
//! Each input that changes cache bytes is in a key exactly once, and every tier and hook builds its
//! keys here:
//!
//! ```text
//! Description --BLAKE3--> NamespaceDigest       all of the model side          namespace.rs
//!   + epochs, salt -----> Root                  the tenant                     tenant.rs
//!     + tokens, extras -> Key of block 0, 1 ..  the prefix                     chain.rs, extra.rs
//!     or engine's key --> Key                   a serving engine's own hash    foreign.rs
//!       + kind, part ---> Key of an object      what the store keeps           object.rs
//! ```
//!
//! Keys have 32 bytes and the chain runs on all of them; only what index and descriptor carry is cut
//! to a [`Fingerprint`] of 16. The rules byte for byte are in the module docs and in
//! docs/format-identity.md; `tests/golden/identity.json` pins them, computed a second time by
//! independent Python.
//!
//! Under the namespace digest as BLAKE3 key there are four kinds of messages. They differ in length,
//! so that none can be taken for another whatever tokens, salts or keys are chosen: a chain step has
//! exactly 64 bytes, a root at least 72, an object key 53, a foreign key 128 with a label that the
//! root's label does not begin with.

mod chain;
mod error;
mod extra;
mod foreign;
mod key;
mod lanes;
mod namespace;
mod object;
mod tenant;
mod tokens;

pub use chain::{Chain, chain_keys, replayed_children};
pub use error::IdentityError;
pub use extra::{Extras, MIN_EXTRA_BYTES, media_extra};
pub use foreign::{FOREIGN_KEY_BYTES, foreign_key, foreign_keys};
pub use key::{Fingerprint, Key, NamespaceDigest, Root};
pub use namespace::{
    CHAIN_RULE, Description, DescriptionBuilder, FORMAT_VERSION, FieldDiff, MAX_BLOCK_TOKENS,
    MAX_ENCODED_BYTES, ShardAxis, Weights, WeightsKind,
};
pub use object::{ObjectKind, Piece, first_object, object_key};
pub use tenant::{root, tenant_tag};
pub use tokens::{Token, token_ids};
