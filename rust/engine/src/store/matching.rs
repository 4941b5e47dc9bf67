//! Look-ups: what is stored of a token list, and from where it can go on. Pins nothing (C5).

use super::counters::MissReason;
use super::meta::{bit, is_expired};
use super::namespace::{Epochs, Namespace};
use super::state::State;
use crate::error::{Error, Result};
use crate::identity::{Extras, Key, Piece, replayed_children};
use kvstore_index::{EntryId, Fingerprint, Kind};
use kvstore_layout::resume::{self, Costs, Have, Plan};
use std::collections::HashSet;

/// Where one block was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockAnswer {
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
    pub(crate) costs: Option<Costs>,
    pub(crate) allow_approximate: bool,
    pub(crate) epochs: Epochs,
}

impl Namespace {
    /// Looks a token list up.
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
        let count = u32::try_from(tokens.len()).map_err(|_| {
            Error::invalid(format!("{} tokens, fewer than 2^32 fit one prompt", tokens.len()))
        })?;
        let epochs = self.epochs();
        let mut keys = self.keys(tokens, extras)?;
        let mut state = self.shared.state.lock();
        let mut ids = self.bodies(&state, &keys);
        let mut replayed_from = None;
        if allow_approximate
            && has_holes(&ids)
            && let Some((from, chain)) = self.replayed_chain(&state, tokens, extras, &keys, &ids)?
        {
            keys = chain;
            ids = self.bodies(&state, &keys);
            replayed_from = Some(from);
        }
        let plan = self.plan(&state, count, &keys, &ids, &HashSet::new(), allow_approximate, costs);
        self.touch(&mut state, &keys, &ids, &plan);
        if self.layout.body_bytes() == 0 {
            ids = self.covered(&state, &keys, &plan);
        }
        let blocks = self.count(&mut state, &ids, &plan, count);
        Ok(Match {
            tokens: count,
            keys,
            replayed_from,
            blocks,
            plan,
            costs,
            allow_approximate,
            epochs,
        })
    }

    /// Looks up block keys: how many of them are stored from the first on.
    pub fn match_keys(&self, keys: &[Key]) -> Vec<BlockAnswer> {
        let mut state = self.shared.state.lock();
        let ids = self.bodies(&state, keys);
        let stored: Vec<EntryId> = ids.iter().map_while(|id| id.ok()).collect();
        link(&mut state, &stored);
        state.index.touch_chain(&stored);
        let usable = stored.len();
        self.answers(&mut state, &ids, usable, usable)
    }

    /// The stored body of each key, or why there is none; behind the first absent block all are.
    pub(super) fn bodies(&self, state: &State, keys: &[Key]) -> Vec<Result<EntryId, MissReason>> {
        let bare: Vec<_> = keys.iter().map(|key| Fingerprint(key.fingerprint())).collect();
        let mut found = vec![None; keys.len()];
        state.index.find_batch(&bare, &mut found);
        let in_parts = self.may_have_parts();
        let mut reason = None;
        found
            .into_iter()
            .zip(keys)
            .map(|(id, key)| {
                if let Some(reason) = reason {
                    return Err(reason);
                }
                let id = id.or_else(|| {
                    let head = self.object(key, Kind::Body, Piece::Part(0));
                    in_parts.then(|| state.index.find(&Fingerprint(head.fingerprint()))).flatten()
                });
                let answer = id.ok_or(MissReason::Absent).and_then(|id| state.stored(id));
                if answer.is_err() {
                    reason = Some(MissReason::Absent);
                }
                answer
            })
            .collect()
    }

    /// For a layout without bodies: the object that stands for each block, which is what the plan
    /// goes on from.
    fn covered(
        &self,
        state: &State,
        keys: &[Key],
        plan: &Plan,
    ) -> Vec<Result<EntryId, MissReason>> {
        let usable = (plan.usable / self.block_tokens()) as usize;
        let kind = if self.layout.has_state() { Kind::Checkpoint } else { Kind::Window };
        let point = usable.checked_sub(1).and_then(|last| self.other(state, &keys[last], kind));
        let of = |block| point.filter(|_| block < usable).ok_or(MissReason::Absent);
        (0..keys.len()).map(of).collect()
    }

    /// Whether bodies of this namespace can be in parts: in an opaque layout nobody knows.
    fn may_have_parts(&self) -> bool {
        let body = self.layout.body_bytes();
        body == 0 || body > super::manifest::PART_BYTES / 2
    }

    fn other(&self, state: &State, block: &Key, kind: Kind) -> Option<EntryId> {
        let key = self.object(block, kind, Piece::Bare);
        let id = state.index.find(&Fingerprint(key.fingerprint()))?;
        state.stored(id).ok()
    }

    /// Plans on what is stored now, without the objects in `without` (block and kind).
    #[allow(clippy::too_many_arguments, reason = "one call of the planner")]
    pub(crate) fn plan(
        &self,
        state: &State,
        tokens: u32,
        keys: &[Key],
        ids: &[Result<EntryId, MissReason>],
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
            .zip(ids)
            .take_while(|(block, id)| id.is_ok() && !without.contains(&(*block, Kind::Body as u8)))
            .count() as u32;
        let have = Have {
            bodies,
            window: &|block| has(block, Kind::Window),
            checkpoint: &|block| has(block, Kind::Checkpoint),
        };
        resume::plan(&self.layout, tokens, &have, costs, allow_approximate)
    }

    /// Plans again for a match, on what is stored now.
    pub(crate) fn plan_again(
        &self,
        state: &State,
        of: &Match,
        without: &HashSet<(u32, u8)>,
    ) -> Plan {
        let ids = self.bodies(state, &of.keys);
        self.plan(state, of.tokens, &of.keys, &ids, without, of.allow_approximate, of.costs)
    }

    /// The longest chain that branches off the exact one through a replayed block.
    fn replayed_chain(
        &self,
        state: &State,
        tokens: &[u32],
        extras: &Extras<'_>,
        keys: &[Key],
        ids: &[Result<EntryId, MissReason>],
    ) -> Result<Option<(u32, Vec<Key>)>> {
        let invalid = |error: crate::identity::IdentityError| Error::invalid(error.to_string());
        let block_tokens = self.block_tokens() as usize;
        let root = self.root_of(state);
        let exact = ids.iter().take_while(|id| id.is_ok()).count();
        let children = replayed_children(&self.digest, &root, keys, tokens, block_tokens, extras)
            .map_err(invalid)?;
        let mut best: Option<(usize, u32, Vec<Key>)> = None;
        for (from, child) in children.iter().enumerate().take(exact + 1) {
            if self.bodies(state, std::slice::from_ref(child))[0].is_err() {
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
            let length = self.bodies(state, &branch).iter().take_while(|id| id.is_ok()).count();
            if length > exact && best.as_ref().is_none_or(|(longest, ..)| length > *longest) {
                best = Some((length, from as u32, branch));
            }
        }
        Ok(best.map(|(_, from, branch)| (from, branch)))
    }

    /// The whole matched prefix, and what else the plan reads, were used now.
    fn touch(
        &self,
        state: &mut State,
        keys: &[Key],
        ids: &[Result<EntryId, MissReason>],
        plan: &Plan,
    ) {
        let mut chain: Vec<EntryId> = ids.iter().map_while(|id| id.ok()).collect();
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
        ids: &[Result<EntryId, MissReason>],
        plan: &Plan,
        tokens: u32,
    ) -> Vec<BlockAnswer> {
        let block = self.block_tokens();
        let usable = (plan.usable / block) as usize;
        // Blocks up to the last whole one below n - 1 tokens could have been a resume point.
        let below_limit = (tokens.saturating_sub(1) / block) as usize;
        self.answers(state, ids, usable, below_limit)
    }

    /// Blocks from `usable` on are misses although they are stored: up to `limit` for want of a
    /// resume point, behind it because the last token must be computed.
    fn answers(
        &self,
        state: &mut State,
        ids: &[Result<EntryId, MissReason>],
        usable: usize,
        limit: usize,
    ) -> Vec<BlockAnswer> {
        let answers: Vec<BlockAnswer> = ids
            .iter()
            .enumerate()
            .map(|(block, id)| match *id {
                Err(reason) => BlockAnswer::Miss(reason),
                Ok(_) if block >= limit => BlockAnswer::Miss(MissReason::BelowUnit),
                Ok(_) if block >= usable => BlockAnswer::Miss(MissReason::NoResumePoint),
                Ok(id) if state.has(id, bit::HOST) => BlockAnswer::Host,
                Ok(_) => BlockAnswer::Disk,
            })
            .collect();
        state.counters.lookups += answers.len() as u64;
        for answer in &answers {
            match answer {
                BlockAnswer::Host => state.counters.hits_host += 1,
                BlockAnswer::Disk => state.counters.hits_disk += 1,
                BlockAnswer::Miss(reason) => state.counters.miss(*reason, 1),
            }
        }
        answers
    }
}

impl State {
    /// Whether an object can be read.
    fn stored(&self, id: EntryId) -> Result<EntryId, MissReason> {
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

/// Links the blocks of a chain to each other where a removal had unlinked them.
fn link(state: &mut State, chain: &[EntryId]) {
    for pair in chain.windows(2) {
        if state.index.parent(pair[1]).is_none() {
            state.index.relink(pair[1], pair[0]);
        }
    }
}

fn has_holes(ids: &[Result<EntryId, MissReason>]) -> bool {
    ids.iter().any(Result::is_err)
}

/// The block at whose end the plan's checkpoint is.
pub(crate) fn checkpoint_block(plan: &Plan, block_tokens: u32) -> Option<u32> {
    plan.checkpoint.map(|n| n / block_tokens - 1)
}
