//! Look-ups: what is stored of a token list, and from where it can go on. Pins nothing (C5).

use super::blocks::{BlockFound, HeldBlocks, stored_prefix};
use super::counters::MissReason;
use super::meta::bit;
use super::namespace::{Epochs, Namespace};
use super::state::State;
use crate::error::{Error, Result};
use crate::identity::{Extras, Key, Piece, replayed_children};
use crate::mirror::Worker;
use kvstore_index::{EntryId, Fingerprint, Kind};
use kvstore_layout::resume::{self, Costs, Have, Plan};
use std::collections::HashSet;

/// Where one block was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockAnswer {
    /// In HBM of the worker that asked.
    Mirror,
    /// In host memory.
    Host,
    /// On disk only.
    Disk,
    /// Not found, or of no use.
    Miss(MissReason),
}

/// What is stored of a token list: a hint, until a lease has verified it.
#[derive(Clone, Debug)]
pub struct Match {
    /// Tokens asked for.
    pub tokens: u32,
    /// Key of each whole block, along the chain that was followed.
    pub keys: Vec<Key>,
    /// From which block on the chain is a replayed one.
    pub replayed_from: Option<u32>,
    /// One answer per whole block.
    pub blocks: Vec<BlockAnswer>,
    /// From where the prompt goes on, by what was stored at that moment.
    pub plan: Plan,
    /// Which blocks the asking worker holds itself: they are not read.
    pub held: HeldBlocks,
    pub(crate) worker: Option<Worker>,
    pub(crate) costs: Option<Costs>,
    pub(crate) allow_approximate: bool,
    pub(crate) epochs: Epochs,
}

impl Namespace {
    /// Looks a token list up, for a caller that can only use what the store has.
    ///
    /// # Errors
    /// An extra key that is shorter than 128 bits or outside the tokens; 2^32 tokens or more.
    pub fn match_tokens(
        &self,
        tokens: &[u32],
        extras: &Extras<'_>,
        allow_approximate: bool,
        costs: Option<Costs>,
    ) -> Result<Match> {
        self.match_for(None, tokens, extras, allow_approximate, costs)
    }

    /// Looks a token list up for a worker: the blocks that it holds itself are present, in the store
    /// or not, and are not read. A worker whose epoch is over holds nothing.
    ///
    /// # Errors
    /// As [`Namespace::match_tokens`].
    pub fn match_for(
        &self,
        worker: Option<Worker>,
        tokens: &[u32],
        extras: &Extras<'_>,
        allow_approximate: bool,
        costs: Option<Costs>,
    ) -> Result<Match> {
        let count = u32::try_from(tokens.len()).map_err(|_| {
            Error::invalid(format!("{} tokens, fewer than 2^32 fit one prompt", tokens.len()))
        })?;
        let epochs = self.epochs();
        let mut keys = self.keys(tokens, extras)?;
        let mut state = self.shared.state.lock();
        let mut found = self.bodies(&state, &keys, worker);
        let mut replayed_from = None;
        if allow_approximate
            && has_holes(&found)
            && let Some((from, chain)) =
                self.replayed_chain(&state, tokens, extras, &keys, &found, worker)?
        {
            keys = chain;
            found = self.bodies(&state, &keys, worker);
            replayed_from = Some(from);
        }
        let plan =
            self.plan(&state, count, &keys, &found, &HashSet::new(), allow_approximate, costs);
        self.touch(&mut state, &keys, &found, &plan);
        if self.layout.body_bytes() == 0 {
            found = self.covered(&state, &keys, &plan);
        }
        let blocks = self.count(&mut state, &found, &plan, count);
        Ok(Match {
            tokens: count,
            keys,
            replayed_from,
            blocks,
            plan,
            held: HeldBlocks::of(&found),
            worker,
            costs,
            allow_approximate,
            epochs,
        })
    }

    /// Looks up block keys: how many of them are stored from the first on.
    pub fn match_keys(&self, keys: &[Key]) -> Vec<BlockAnswer> {
        self.match_keys_for(None, keys)
    }

    /// Looks up block keys for a worker: those that it holds itself are present.
    pub fn match_keys_for(&self, worker: Option<Worker>, keys: &[Key]) -> Vec<BlockAnswer> {
        let mut state = self.shared.state.lock();
        let found = self.bodies(&state, keys, worker);
        let stored = stored_prefix(&found);
        link(&mut state, &stored);
        state.index.touch_chain(&stored);
        let usable = found.iter().take_while(|block| block.is_present()).count();
        self.answers(&mut state, &found, usable, usable)
    }

    /// For a layout without bodies: the object that stands for each block, which is what the plan
    /// goes on from.
    fn covered(&self, state: &State, keys: &[Key], plan: &Plan) -> Vec<BlockFound> {
        let usable = (plan.usable / self.block_tokens()) as usize;
        let kind = if self.layout.has_state() { Kind::Checkpoint } else { Kind::Window };
        let point = usable.checked_sub(1).and_then(|last| self.other(state, &keys[last], kind));
        let of = |block| point.filter(|_| block < usable).ok_or(MissReason::Absent);
        (0..keys.len()).map(|block| BlockFound { stored: of(block), held: false }).collect()
    }

    fn other(&self, state: &State, block: &Key, kind: Kind) -> Option<EntryId> {
        let key = self.object(block, kind, Piece::Bare);
        let id = state.index.find(&Fingerprint(key.fingerprint()))?;
        state.stored(id).ok()
    }

    /// Plans on what is stored now, without the objects in `without` (block and kind).
    #[allow(clippy::too_many_arguments, reason = "one call of the planner")]
    pub(super) fn plan(
        &self,
        state: &State,
        tokens: u32,
        keys: &[Key],
        found: &[BlockFound],
        without: &HashSet<(u32, u8)>,
        allow_approximate: bool,
        costs: Option<Costs>,
    ) -> Plan {
        let has = |block: u32, kind: Kind| {
            !without.contains(&(block, kind as u8))
                && keys
                    .get(block as usize)
                    .is_some_and(|key| self.other(state, key, kind).is_some())
        };
        let bodies = (0..)
            .zip(found)
            .take_while(|(block, found)| {
                found.is_present() && !without.contains(&(*block, Kind::Body as u8))
            })
            .count() as u32;
        let have = Have {
            bodies,
            window: &|block| has(block, Kind::Window),
            checkpoint: &|block| has(block, Kind::Checkpoint),
        };
        let mut plan = resume::plan(&self.layout, tokens, &have, costs, allow_approximate);
        let held = HeldBlocks::of(found).count(&plan.bodies) * self.layout.body_bytes();
        plan.read_bytes -= held;
        if let (Some(cost), Some(costs)) = (&mut plan.cost, costs) {
            *cost -= costs.per_byte * held as f64;
        }
        plan
    }

    /// Plans again for a match, on what is stored now. What the worker held then it still has to
    /// hold, and the rest is read: who asked knows from the match which is which.
    pub(crate) fn plan_again(
        &self,
        state: &State,
        of: &Match,
        without: &HashSet<(u32, u8)>,
    ) -> Plan {
        let mut found = self.bodies(state, &of.keys, of.worker);
        for (number, block) in (0..).zip(&mut found) {
            if of.held.has(number) {
                block.stored = Err(MissReason::Absent);
            } else {
                block.held = false;
            }
        }
        let (approximate, costs) = (of.allow_approximate, of.costs);
        self.plan(state, of.tokens, &of.keys, &found, without, approximate, costs)
    }

    /// The longest chain that branches off the exact one through a replayed block.
    fn replayed_chain(
        &self,
        state: &State,
        tokens: &[u32],
        extras: &Extras<'_>,
        keys: &[Key],
        found: &[BlockFound],
        worker: Option<Worker>,
    ) -> Result<Option<(u32, Vec<Key>)>> {
        let invalid = |error: crate::identity::IdentityError| Error::invalid(error.to_string());
        let block_tokens = self.block_tokens() as usize;
        let root = self.root_of(state);
        let length = |found: &[BlockFound]| found.iter().take_while(|b| b.is_present()).count();
        let exact = length(found);
        let children = replayed_children(&self.digest, &root, keys, tokens, block_tokens, extras)
            .map_err(invalid)?;
        let mut best: Option<(usize, u32, Vec<Key>)> = None;
        for (from, child) in children.iter().enumerate().take(exact + 1) {
            if !self.bodies(state, std::slice::from_ref(child), worker)[0].is_present() {
                continue;
            }
            let mut chain =
                crate::identity::Chain::resume(&self.digest, child, from + 1, block_tokens)
                    .map_err(invalid)?;
            let mut branch = keys[..from].to_vec();
            branch.push(*child);
            let rest = &tokens[(from + 1) * block_tokens..];
            chain
                .extend(rest, &extras.within(from + 1..usize::MAX), &mut branch)
                .map_err(invalid)?;
            let length = length(&self.bodies(state, &branch, worker));
            if length > exact && best.as_ref().is_none_or(|(longest, ..)| length > *longest) {
                best = Some((length, from as u32, branch));
            }
        }
        Ok(best.map(|(_, from, branch)| (from, branch)))
    }

    /// The whole matched prefix, and what else the plan reads, were used now.
    fn touch(&self, state: &mut State, keys: &[Key], found: &[BlockFound], plan: &Plan) {
        let mut chain = stored_prefix(found);
        link(state, &chain);
        for block in plan.windows.clone() {
            chain.extend(self.other(state, &keys[block as usize], Kind::Window));
        }
        if let Some(block) = checkpoint_block(plan, self.block_tokens()) {
            chain.extend(self.other(state, &keys[block as usize], Kind::Checkpoint));
        }
        state.index.touch_chain(&chain);
    }

    /// One look-up per whole block (contract C10).
    fn count(
        &self,
        state: &mut State,
        found: &[BlockFound],
        plan: &Plan,
        tokens: u32,
    ) -> Vec<BlockAnswer> {
        let block = self.block_tokens();
        let usable = (plan.usable / block) as usize;
        // Blocks up to the last whole one below n - 1 tokens could have been a resume point.
        let below_limit = (tokens.saturating_sub(1) / block) as usize;
        self.answers(state, found, usable, below_limit)
    }

    /// Blocks from `usable` on are misses although they are stored: up to `limit` for want of a
    /// resume point, behind it because the last token must be computed.
    fn answers(
        &self,
        state: &mut State,
        found: &[BlockFound],
        usable: usize,
        limit: usize,
    ) -> Vec<BlockAnswer> {
        let answers: Vec<BlockAnswer> = found
            .iter()
            .enumerate()
            .map(|(block, found)| match found.stored {
                Err(reason) if !found.held => BlockAnswer::Miss(reason),
                _ if block >= limit => BlockAnswer::Miss(MissReason::BelowUnit),
                _ if block >= usable => BlockAnswer::Miss(MissReason::NoResumePoint),
                _ if found.held => BlockAnswer::Mirror,
                Ok(id) if state.has(id, bit::HOST) => BlockAnswer::Host,
                _ => BlockAnswer::Disk,
            })
            .collect();
        state.counters.lookups += answers.len() as u64;
        for answer in &answers {
            match answer {
                BlockAnswer::Mirror => state.counters.hits_mirror += 1,
                BlockAnswer::Host => state.counters.hits_host += 1,
                BlockAnswer::Disk => state.counters.hits_disk += 1,
                BlockAnswer::Miss(reason) => state.counters.miss(*reason, 1),
            }
        }
        answers
    }
}

/// Links the blocks of a chain to each other where a removal had unlinked them.
fn link(state: &mut State, chain: &[EntryId]) {
    for pair in chain.windows(2) {
        if state.index.parent(pair[1]).is_none() {
            state.index.relink(pair[1], pair[0]);
        }
    }
}

fn has_holes(found: &[BlockFound]) -> bool {
    found.iter().any(|block| !block.is_present())
}

/// The block at whose end the plan's checkpoint is.
pub(crate) fn checkpoint_block(plan: &Plan, block_tokens: u32) -> Option<u32> {
    plan.checkpoint.map(|n| n / block_tokens - 1)
}
