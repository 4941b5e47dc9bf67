//! A namespace handle: one model, one tenant, one layout, at one epoch.

use super::open::Shared;
use super::state::State;
use crate::disk::namespaces::{COUNT, MAX_DESCRIPTION, NamespaceRecord};
use crate::error::{Error, ErrorKind, Result};
use crate::identity::{
    Chain, Description, Extras, Key, NamespaceDigest, Root, foreign_keys, root, tenant_tag,
};
use kvstore_layout::Layout;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Choices of one namespace handle.
#[derive(Clone, Debug, Default)]
pub struct NamespaceOptions {
    /// Objects die after this time (none: never).
    pub ttl: Option<Duration>,
    /// A second put with other bytes is an error: tests and reference models.
    pub deterministic: bool,
}

/// The epochs that keys are made under: of the namespace and of the tenant. What was made under
/// older ones is `cleared`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Epochs {
    namespace: u64,
    tenant: u64,
}

/// One model side and one tenant of a store.
pub struct Namespace {
    pub(crate) shared: Arc<Shared>,
    pub(crate) digest: NamespaceDigest,
    pub(crate) index: u16,
    pub(crate) tenant: u32,
    pub(crate) layout: Arc<Layout>,
    pub(crate) options: NamespaceOptions,
    salt: Vec<u8>,
    /// Epochs of the keys that were made last.
    last: Mutex<Epochs>,
    diverged: AtomicBool,
}

impl Namespace {
    pub(crate) fn open(
        shared: &Arc<Shared>,
        layout: Arc<Layout>,
        description: &Description,
        salt: &[u8],
        options: NamespaceOptions,
    ) -> Result<Self> {
        let digest = description.digest();
        let tenant = tenant_tag(&shared.secret, salt);
        let index = shared.namespace_index(&digest, description)?;
        Ok(Self {
            shared: shared.clone(),
            digest,
            index,
            tenant,
            layout,
            options,
            salt: salt.to_vec(),
            last: Mutex::default(),
            diverged: AtomicBool::new(false),
        })
    }

    /// The layout of its objects.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Digest of its description.
    pub fn digest(&self) -> &NamespaceDigest {
        &self.digest
    }

    /// Tokens of a block.
    pub fn block_tokens(&self) -> u32 {
        self.layout.block_tokens()
    }

    /// Keys of all whole blocks of `tokens`.
    ///
    /// # Errors
    /// An extra key that is shorter than 128 bits or outside the tokens.
    pub fn keys(&self, tokens: &[u32], extras: &Extras<'_>) -> Result<Vec<Key>> {
        let mut keys = Vec::new();
        Chain::new(&self.digest, &self.root(), self.block_tokens() as usize)
            .and_then(|mut chain| chain.extend(tokens, extras, &mut keys))
            .map_err(|error| Error::invalid(error.to_string()))?;
        Ok(keys)
    }

    /// Block keys of a serving engine's own hashes: `n` of `width` bytes in one buffer, of KV
    /// cache group `group`.
    ///
    /// # Errors
    /// A width outside 16 to 32, a buffer that is no multiple of it.
    pub fn foreign(&self, keys: &[u8], width: usize, group: u32) -> Result<Vec<Key>> {
        foreign_keys(&self.digest, &self.root(), keys, width, group)
            .map_err(|error| Error::invalid(error.to_string()))
    }

    /// The root at the epoch of now: keys made before a clear are unreachable.
    fn root(&self) -> Root {
        let state = self.shared.state.lock();
        self.root_of(&state)
    }

    pub(crate) fn root_of(&self, state: &State) -> Root {
        let now = self.epochs_of(state);
        *self.last.lock() = now;
        root(&self.digest, now.namespace, &self.salt, now.tenant)
    }

    /// The epochs of now. Taken before keys are made, they tell later whether a clear came since.
    pub fn epochs(&self) -> Epochs {
        self.epochs_of(&self.shared.state.lock())
    }

    pub(crate) fn epochs_of(&self, state: &State) -> Epochs {
        let record = state.namespaces.records[usize::from(self.index)].as_ref();
        Epochs {
            namespace: record.map_or(0, |record| record.epoch),
            tenant: state.tenants.epoch(self.tenant),
        }
    }

    /// Whether no clear came since keys were made under `epochs`, or, without them, since this
    /// handle made the last ones.
    pub(crate) fn is_current(&self, state: &State, epochs: Option<Epochs>) -> bool {
        // An index that lost its objects may belong to another namespace by now.
        let record = state.namespaces.records[usize::from(self.index)].as_ref();
        record.is_some_and(|record| record.digest == *self.digest.as_bytes())
            && epochs.unwrap_or_else(|| *self.last.lock()) == self.epochs_of(state)
    }

    pub(crate) fn note_divergence(&self, block: &Key) {
        tracing::error!(?block, "deterministic namespace: a second put has other bytes");
        self.diverged.store(true, Ordering::Relaxed);
    }

    /// Whether a deterministic namespace has seen a second put with other bytes since the last
    /// call.
    pub fn take_divergence(&self) -> bool {
        self.diverged.swap(false, Ordering::Relaxed)
    }
}

impl Shared {
    /// The namespace's index, taken and written on its first use.
    fn namespace_index(&self, digest: &NamespaceDigest, description: &Description) -> Result<u16> {
        let encoded = description.encode();
        if encoded.len() > MAX_DESCRIPTION {
            return Err(Error::invalid(format!(
                "the namespace description takes {} bytes, at most {MAX_DESCRIPTION} are kept",
                encoded.len()
            )));
        }
        let known = |state: &State| state.namespaces.by_digest.get(digest.as_bytes()).copied();
        if let Some(index) = known(&self.state.lock()) {
            return Ok(index);
        }
        let meta = self.meta.lock();
        let (index, record) = {
            let mut state = self.state.lock();
            if let Some(index) = known(&state) {
                return Ok(index);
            }
            if let Some(line) = nearest(&state, description) {
                tracing::info!("new namespace: {line}");
            }
            let index = free_index(&state).ok_or_else(|| {
                Error::new(
                    ErrorKind::Limit,
                    format!("{COUNT} namespaces have objects in this store: clear one first"),
                )
            })?;
            // From here on the index is nobody's until the new record is on disk.
            let old = state.namespaces.records[index].take();
            if let Some(old) = &old {
                state.namespaces.by_digest.remove(&old.digest);
            }
            let generation = old.map_or(0, |old| old.generation) + 1;
            // An index that is used again starts above every epoch and sequence of its past.
            let again = generation > 1 || state.namespaces.damaged.contains(&index);
            let epoch = if again { state.next_sequence() } else { 0 };
            let digest = *digest.as_bytes();
            (index, NamespaceRecord { epoch, generation, digest, description: encoded })
        };
        if !self.options.read_only {
            self.write_namespace(&meta, index as u16, &record)?;
        }
        let mut state = self.state.lock();
        state.namespaces.by_digest.insert(*digest.as_bytes(), index as u16);
        state.namespaces.records[index] = Some(record);
        Ok(index as u16)
    }
}

/// An index without a record, else one without objects whose record may be forgotten.
fn free_index(state: &State) -> Option<usize> {
    let table = &state.namespaces;
    table
        .records
        .iter()
        .position(Option::is_none)
        .or_else(|| table.objects.iter().position(|&objects| objects == 0))
}

/// One line on the stored namespace that differs least from `new`, for the log: why nothing hits.
pub(crate) fn nearest(state: &State, new: &Description) -> Option<String> {
    let stored = state.namespaces.records.iter().flatten();
    stored
        .filter_map(|record| Description::decode(&record.description).ok())
        .map(|old| new.differs(&old))
        .filter(|fields| !fields.is_empty())
        .min_by_key(Vec::len)
        .map(|fields| {
            let fields: Vec<_> = fields.iter().map(ToString::to_string).collect();
            format!("nothing stored matches; the nearest differs in {}", fields.join(", "))
        })
}
