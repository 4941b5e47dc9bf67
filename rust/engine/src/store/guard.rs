//! What a binding to another language needs besides: panics stop at its border (contract C4), and
//! questions that neither count nor touch.

use super::batch::{Batch, Status};
use super::blocks::HeldBlocks;
use super::counters::MissReason;
use super::lease::Item;
use super::matching::{BlockAnswer, Match};
use super::namespace::Namespace;
use super::state::State;
use crate::disk::namespaces::NamespaceRecord;
use crate::error::{Error, Result};
use crate::identity::{Description, Extras, FieldDiff, Key};
use kvstore_layout::resume::{self, Costs, Have, Plan};
use std::collections::HashSet;
use std::sync::Arc;

/// What is stored of a prompt and why not more; asked for by people, so it is no look-up.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// Tokens asked for.
    pub tokens: u32,
    /// Tokens whose entries are stored without a hole.
    pub matched: u32,
    /// Tokens from which the prompt can go on.
    pub usable: u32,
    /// The first block that cannot be used, and why; `None` when every whole block can.
    pub missing: Option<(u32, MissReason)>,
    /// Fields in which the nearest namespace with objects differs. Empty where this namespace has
    /// objects of its own, or the store has none.
    pub differs: Vec<FieldDiff>,
}

impl Namespace {
    /// Whether a panic has made the engine answer nothing but misses and rejections.
    pub fn is_poisoned(&self) -> bool {
        self.shared.is_poisoned()
    }

    /// Makes it so: for a caller that caught a panic of the engine.
    pub fn poison(&self, why: &str) {
        self.shared.poison(why);
    }

    /// The match of a store that has nothing: what a poisoned one answers.
    pub fn nothing(&self, tokens: u32, costs: Option<Costs>) -> Match {
        let have = Have { bodies: 0, window: &|_| false, checkpoint: &|_| false };
        Match {
            tokens,
            keys: Vec::new(),
            replayed_from: None,
            blocks: vec![
                BlockAnswer::Miss(MissReason::IoError);
                (tokens / self.block_tokens()) as usize
            ],
            plan: resume::plan(&self.layout, tokens, &have, costs, false),
            held: HeldBlocks::default(),
            worker: None,
            costs,
            allow_approximate: false,
            epochs: self.epochs(),
        }
    }

    /// Whether both handles are of one engine, model side and tenant, so that plans of one are
    /// plans of the other.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
            && self.digest == other.digest
            && self.tenant == other.tenant
    }

    /// Blocks above the first object of each block; `None` for a block that is not stored.
    pub fn depths(&self, blocks: &[Key]) -> Vec<Option<u32>> {
        let state = self.shared.state.lock();
        let depth = |block| {
            let id = state.index.find(&self.first_object(&state, block))?;
            Some(u32::from(state.index[id].depth()))
        };
        blocks.iter().map(depth).collect()
    }

    /// What is stored of a prompt, why not more, and what the nearest other namespace has. Counts
    /// no look-up and touches nothing.
    ///
    /// # Errors
    /// As [`Namespace::match_tokens`].
    pub fn explain(&self, tokens: &[u32], extras: &Extras<'_>) -> Result<Explanation> {
        let count = u32::try_from(tokens.len()).map_err(|_| {
            Error::invalid(format!("{} tokens, fewer than 2^32 fit one prompt", tokens.len()))
        })?;
        let keys = self.keys(tokens, extras)?;
        let state = self.shared.state.lock();
        let found = self.bodies(&state, &keys, None);
        let plan = self.plan(&state, count, &keys, &found, &HashSet::new(), false, None);
        let first = plan.usable / self.block_tokens();
        let limit = count.saturating_sub(1) / self.block_tokens();
        let missing = found.get(first as usize).map(|block| match block.stored {
            Err(reason) => (first, reason),
            Ok(_) if first >= limit => (first, MissReason::BelowUnit),
            Ok(_) => (first, MissReason::NoResumePoint),
        });
        let differs = if plan.usable == 0 { self.nearest(&state) } else { Vec::new() };
        let Plan { matched, usable, .. } = plan;
        Ok(Explanation { tokens: count, matched, usable, missing, differs })
    }

    fn nearest(&self, state: &State) -> Vec<FieldDiff> {
        let objects = &state.namespaces.objects;
        let mine = usize::from(self.index);
        let of = |record: &NamespaceRecord| Description::decode(&record.description).ok();
        let here = state.namespaces.records[mine].as_ref().and_then(of);
        let Some(here) = here.filter(|_| objects[mine] == 0) else { return Vec::new() };
        let stored = state.namespaces.records.iter().zip(objects).filter(|(_, count)| **count > 0);
        stored
            .filter_map(|(record, _)| record.as_ref().and_then(of))
            .map(|there| here.differs(&there))
            .min_by_key(Vec::len)
            .unwrap_or_default()
    }
}

impl Item {
    /// Payload bytes of each part, in order.
    pub fn part_lengths(&self) -> impl Iterator<Item = usize> {
        let skipped = std::iter::once(self.skip).chain(std::iter::repeat(0));
        self.parts.iter().zip(skipped).map(|(part, skip)| part.length as usize - skip)
    }
}

impl Batch {
    /// A batch whose items all have this answer already.
    pub fn settled(items: usize, status: Status) -> Arc<Self> {
        let batch = Self::new(items);
        for item in 0..items {
            batch.settle(item, status);
        }
        batch
    }
}
