//! What there is of each block: in the store, and in the mirror of the one who asks.

use super::counters::MissReason;
use super::meta::{bit, is_expired};
use super::namespace::Namespace;
use super::state::State;
use crate::identity::{Key, Piece};
use crate::mirror::{Tiers, Worker};
use kvstore_index::{EntryId, Fingerprint, Kind};
use std::ops::Range;

/// The blocks of a prompt that a worker holds in HBM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldBlocks(Vec<bool>);

impl HeldBlocks {
    pub(super) fn of(blocks: &[BlockFound]) -> Self {
        // Most callers are no workers: for them this is empty.
        let any = blocks.iter().any(|block| block.held);
        Self(if any { blocks.iter().map(|block| block.held).collect() } else { Vec::new() })
    }

    /// Whether it is one of them.
    pub fn has(&self, block: u32) -> bool {
        self.0.get(block as usize).copied().unwrap_or(false)
    }

    /// How many of `blocks` are.
    pub(super) fn count(&self, blocks: &Range<u32>) -> u64 {
        let end = self.0.len().min(blocks.end as usize);
        let held = self.0[..end].iter().skip(blocks.start as usize);
        held.filter(|&&held| held).count() as u64
    }
}

/// One block of a look-up.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockFound {
    /// Its object in the store, or why there is none to be had.
    pub(super) stored: Result<EntryId, MissReason>,
    /// The asking worker holds it.
    pub(super) held: bool,
}

impl BlockFound {
    pub(super) fn is_present(&self) -> bool {
        self.held || self.stored.is_ok()
    }
}

/// The stored blocks of the prefix that is present.
pub(super) fn stored_prefix(found: &[BlockFound]) -> Vec<EntryId> {
    let present = found.iter().take_while(|block| block.is_present());
    present.filter_map(|block| block.stored.ok()).collect()
}

impl Namespace {
    /// Which tiers hold each block, whether or not it is of use; counts no look-up and touches
    /// nothing.
    pub fn tiers(&self, keys: &[Key]) -> Vec<Tiers> {
        let state = self.shared.state.lock();
        let tiers = |(key, id): (&Key, Option<EntryId>)| {
            let stored = id.filter(|&id| state.stored(id).is_ok());
            let has = |flag| stored.is_some_and(|id| state.has(id, flag));
            Tiers {
                mirror: state.mirror.holds(&Fingerprint(key.fingerprint())),
                host: has(bit::HOST),
                disk: has(bit::READY) && state.disk_is_out().is_none(),
            }
        };
        keys.iter().zip(self.first_objects(&state, keys)).map(tiers).collect()
    }

    /// The first object of each block.
    fn first_objects(&self, state: &State, keys: &[Key]) -> Vec<Option<EntryId>> {
        let bare: Vec<_> = keys.iter().map(|key| Fingerprint(key.fingerprint())).collect();
        let mut found = vec![None; keys.len()];
        state.index.find_batch(&bare, &mut found);
        if self.may_have_parts() {
            for (id, key) in found.iter_mut().zip(keys).filter(|(id, _)| id.is_none()) {
                let head = self.object(key, Kind::Body, Piece::Part(0));
                *id = state.index.find(&Fingerprint(head.fingerprint()));
            }
        }
        found
    }

    /// What there is of each block for the one who asks; behind the first absent block all are.
    pub(super) fn bodies(
        &self,
        state: &State,
        keys: &[Key],
        worker: Option<Worker>,
    ) -> Vec<BlockFound> {
        let mut behind = false;
        self.first_objects(state, keys)
            .into_iter()
            .zip(keys)
            .map(|(id, key)| {
                if behind {
                    return BlockFound { stored: Err(MissReason::Absent), held: false };
                }
                let block = Fingerprint(key.fingerprint());
                let found = BlockFound {
                    stored: id.ok_or(MissReason::Absent).and_then(|id| state.stored(id)),
                    held: worker.is_some_and(|w| state.mirror.slot_of(w, &block).is_some()),
                };
                behind = !found.is_present();
                found
            })
            .collect()
    }

    /// Whether bodies of this namespace can be in parts: in an opaque layout nobody knows.
    fn may_have_parts(&self) -> bool {
        let body = self.layout.body_bytes();
        body == 0 || body > super::manifest::PART_BYTES / 2
    }
}

impl State {
    /// Whether an object can be read.
    pub(super) fn stored(&self, id: EntryId) -> Result<EntryId, MissReason> {
        let entry = &self.index[id];
        if is_expired(entry.expires_at) {
            Err(MissReason::Expired)
        } else if entry.flags & bit::HOST != 0 {
            Ok(id)
        } else if entry.flags & bit::READY == 0 {
            Err(MissReason::Absent)
        } else {
            self.disk_is_out().map_or(Ok(id), Err)
        }
    }
}
