//! Leases: what a match promised, pinned, read and verified.
//!
//! Where an object fails, the plan is made again on what is left: a shorter length may need
//! another checkpoint or a replay (contract C5). `Lease::plan` is the answer.

use super::blocks::HeldBlocks;
use super::counters::MissReason;
use super::manifest::Manifest;
use super::matching::{Match, checkpoint_block};
use super::namespace::Namespace;
use super::open::Shared;
use super::read::Held;
use super::state::State;
use crate::disk::descriptor::flag;
use crate::error::{Error, Result};
use crate::host::copy::copy_checksum;
use crate::identity::{Key, Piece};
use kvstore_index::{Fingerprint, Kind};
use kvstore_layout::resume::Plan;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// Objects that `get_into` holds at a time; their bytes are bounded as well.
const WINDOW: usize = 64;

/// One object of a lease.
#[derive(Clone)]
pub struct Item {
    /// Parts in order; a bare object has one.
    pub(crate) parts: Vec<Arc<Held>>,
    /// Bytes of the manifest at the start of the first part.
    pub(crate) skip: usize,
}

impl Item {
    /// Payload bytes.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.length as usize).sum::<usize>() - self.skip
    }

    /// Whether the payload is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of pieces that the payload lies in.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }
}

/// Which object of a lease.
pub(super) type Which = (u32, u8);

/// Pinned objects of one plan.
pub struct Lease {
    shared: Arc<Shared>,
    items: HashMap<Which, Item>,
    plan: Plan,
    block_tokens: u32,
    deadline: Instant,
    missed: Vec<(u32, MissReason)>,
}

impl Lease {
    /// What was really got.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The body of block `block`, unless the worker holds it itself.
    pub fn body(&self, block: u32) -> Option<&Item> {
        self.get(block, Kind::Body)
    }

    /// The window of block `block`.
    pub fn window(&self, block: u32) -> Option<&Item> {
        self.get(block, Kind::Window)
    }

    /// The plan's checkpoint.
    pub fn checkpoint(&self) -> Option<&Item> {
        self.get(checkpoint_block(&self.plan, self.block_tokens)?, Kind::Checkpoint)
    }

    /// Objects that a match had seen and that could not be given, by block.
    pub fn missed(&self) -> &[(u32, MissReason)] {
        &self.missed
    }

    /// Past this moment the lease gives no new views (contract C6).
    pub fn is_over(&self) -> bool {
        Instant::now() >= self.deadline
    }

    fn get(&self, block: u32, kind: Kind) -> Option<&Item> {
        if self.is_over() {
            return None;
        }
        self.items.get(&(block, kind as u8))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if self.is_over() && !self.items.is_empty() {
            // Reported where it can be seen that somebody holds leases for too long.
            self.shared.state.lock().counters.leases_overdue += 1;
            tracing::warn!(objects = self.items.len(), "a lease was held past its deadline");
        }
    }
}

impl Namespace {
    /// Pins and reads what a match found.
    pub fn lease(&self, found: &Match) -> Lease {
        let deadline = Instant::now() + self.shared.options.read_deadline;
        let mut items: HashMap<Which, Item> = HashMap::new();
        let mut without = HashSet::new();
        let mut missed = Vec::new();
        let plan = loop {
            let plan = self.current_plan(found, &without);
            let wanted: Vec<Which> = objects_of(&plan, &found.held, self.block_tokens())
                .filter(|which| !items.contains_key(which))
                .collect();
            let before = without.len();
            for (which, result) in self.read_items(found, &wanted, deadline) {
                match result {
                    Ok(item) => {
                        items.insert(which, item);
                    }
                    Err(reason) => {
                        without.insert(which);
                        missed.push((which.0, reason));
                    }
                }
            }
            if without.len() == before {
                break plan;
            }
        };
        let kept: HashSet<Which> = objects_of(&plan, &found.held, self.block_tokens()).collect();
        items.retain(|which, _| kept.contains(which));
        Lease {
            shared: self.shared.clone(),
            items,
            plan,
            block_tokens: self.block_tokens(),
            deadline: Instant::now() + self.shared.options.lease_deadline,
            missed,
        }
    }

    /// Pins and reads the objects of block keys, up to the first that cannot be given.
    pub fn lease_keys(&self, keys: &[Key]) -> (Vec<Item>, Option<MissReason>) {
        let deadline = Instant::now() + self.shared.options.read_deadline;
        let mut items = Vec::new();
        for result in self.read_keys(keys, deadline) {
            match result {
                Ok(item) => items.push(item),
                Err(reason) => return (items, Some(reason)),
            }
        }
        (items, None)
    }

    /// Copies what a match found into `out`: bodies in order, then windows in order, then the
    /// checkpoint, without gaps. Copy and check are one pass. The answer is the plan that was
    /// really got; bytes of `out` behind its objects are undefined.
    ///
    /// # Errors
    /// `out` is shorter than the plan's objects.
    pub fn get_into(&self, found: &Match, out: &mut [u8]) -> Result<Plan> {
        let deadline = Instant::now() + self.shared.options.read_deadline;
        let needed = self.bytes_of(found);
        if (out.len() as u64) < needed {
            return Err(Error::invalid(format!(
                "out has {} bytes, the plan's objects take {needed}",
                out.len()
            )));
        }
        let mut without = HashSet::new();
        let mut done: HashSet<Which> = HashSet::new();
        loop {
            let plan = self.current_plan(found, &without);
            let before = without.len();
            let mut at = 0;
            let all: Vec<(Which, Range<usize>)> =
                objects_of(&plan, &found.held, self.block_tokens())
                    .map(|which| {
                        let start = at;
                        at += self.object_bytes(which.1) as usize;
                        (which, start..at)
                    })
                    .collect();
            if at > out.len() {
                // The store has more by now than the match saw; the caller's buffer has not. A
                // shorter plan may still take more bytes, so each turn takes one block away.
                let most = plan.usable.min(found.plan.usable + self.block_tokens());
                let last = (most / self.block_tokens()).saturating_sub(1);
                without
                    .extend([Kind::Body, Kind::Window, Kind::Checkpoint].map(|k| (last, k as u8)));
                continue;
            }
            let todo: Vec<_> = all
                .into_iter()
                .filter(|(which, _)| which.1 != Kind::Body as u8 || !done.contains(which))
                .collect();
            for chunk in self.chunks(&todo) {
                for (which, result) in self.copy_items(found, chunk, out, deadline) {
                    match result {
                        Ok(()) => done.insert(which),
                        Err(_) => without.insert(which),
                    };
                }
                if without.len() > before {
                    break;
                }
            }
            if without.len() == before {
                return Ok(plan);
            }
        }
    }

    /// Bytes of host memory that one `get_into` holds at most, but for a larger bare object.
    fn hold_limit(&self) -> u64 {
        self.shared.pin_limit / 4
    }

    /// Cuts a list of objects so that the pieces are few and small enough to be held at a time.
    fn chunks<'a>(
        &self,
        mut todo: &'a [(Which, Range<usize>)],
    ) -> impl Iterator<Item = &'a [(Which, Range<usize>)]> {
        let limit = self.hold_limit();
        std::iter::from_fn(move || {
            let mut bytes = 0;
            let fit = todo.iter().take(WINDOW).take_while(|(_, range)| {
                bytes += range.len() as u64;
                bytes <= limit
            });
            let (chunk, rest) = todo.split_at(fit.count().max(1).min(todo.len()));
            todo = rest;
            (!chunk.is_empty()).then_some(chunk)
        })
    }

    /// Reads objects and copies each to its range of `out`.
    fn copy_items(
        &self,
        found: &Match,
        chunk: &[(Which, Range<usize>)],
        out: &mut [u8],
        deadline: Instant,
    ) -> Vec<(Which, Result<(), MissReason>)> {
        if let [(which, range)] = chunk
            && range.len() as u64 > self.hold_limit()
        {
            let (block, kind) = self.named(found, *which);
            let result = self.stream(&block, kind, &mut out[range.clone()], deadline);
            return vec![(*which, result)];
        }
        let wanted: Vec<Which> = chunk.iter().map(|(which, _)| *which).collect();
        let items = self.read_items(found, &wanted, deadline);
        items
            .into_iter()
            .zip(chunk)
            .map(|((which, item), (_, range))| {
                (which, item.and_then(|item| self.copy_out(&item, &mut out[range.clone()])))
            })
            .collect()
    }

    /// Copies an object into `out`. Of its parts only a few are held at a time, so that it may be
    /// larger than host memory.
    fn stream(
        &self,
        block: &Key,
        kind: Kind,
        out: &mut [u8],
        deadline: Instant,
    ) -> Result<(), MissReason> {
        let result = self.stream_parts(block, kind, out, deadline);
        self.count_reads([result.err()]);
        result
    }

    fn stream_parts(
        &self,
        block: &Key,
        kind: Kind,
        out: &mut [u8],
        deadline: Instant,
    ) -> Result<(), MissReason> {
        let wanted = [self.first_of(&self.shared.state.lock(), block, kind)];
        let mut first = self.shared.fetch(&wanted, deadline);
        let first = first.pop().unwrap_or(Err(MissReason::Absent))?;
        if first.flags & flag::HEAD == 0 {
            return self.copy_out(&Item { parts: vec![Arc::new(first)], skip: 0 }, out);
        }
        let head = Arc::new(first);
        let manifest = self.manifest(&head)?;
        if manifest.total() != out.len() as u64 {
            return Err(MissReason::FailedCheck);
        }
        let (data, mut rest) = out.split_at_mut(manifest.parts[0].0 as usize);
        let skip = Manifest::bytes(manifest.parts.len());
        self.copy_out(&Item { parts: vec![head.clone()], skip }, data)?;
        let at_once = (self.hold_limit() / self.shared.part_limit).max(1) as u32;
        let count = manifest.parts.len() as u32;
        for from in (1..count).step_by(at_once as usize) {
            let numbers = from..(from + at_once).min(count);
            let parts = self.parts(&head, &manifest, block, kind, numbers, deadline)?;
            let bytes = parts.iter().map(|part| part.length as usize).sum();
            let (data, behind) = rest.split_at_mut(bytes);
            self.copy_out(&Item { parts, skip: 0 }, data)?;
            rest = behind;
        }
        Ok(())
    }

    /// Copies the objects of block keys into `out`, each to its own place; answers how many were
    /// given from the first on, and why not more.
    ///
    /// # Errors
    /// Objects whose length differs from that of their place.
    pub fn get_keys_into(
        &self,
        keys: &[Key],
        out: &mut [&mut [u8]],
    ) -> Result<(usize, Option<MissReason>)> {
        let deadline = Instant::now() + self.shared.options.read_deadline;
        let mut given = 0;
        for (keys, places) in keys.chunks(WINDOW).zip(out.chunks_mut(WINDOW)) {
            for (result, place) in self.read_keys(keys, deadline).into_iter().zip(places) {
                let item = match result {
                    Ok(item) => item,
                    Err(reason) => return Ok((given, Some(reason))),
                };
                if item.len() != place.len() {
                    return Err(Error::invalid(format!(
                        "place {given} has {} bytes, its object {}",
                        place.len(),
                        item.len()
                    )));
                }
                if let Err(reason) = self.copy_out(&item, place) {
                    return Ok((given, Some(reason)));
                }
                given += 1;
            }
        }
        Ok((given, None))
    }

    /// The plan on what is stored now; nothing when the keys were made before a clear.
    fn current_plan(&self, found: &Match, without: &HashSet<Which>) -> Plan {
        let state = self.shared.state.lock();
        if self.is_current(&state, Some(found.epochs)) {
            self.plan_again(&state, found, without)
        } else {
            let nothing = Match { keys: Vec::new(), ..found.clone() };
            self.plan_again(&state, &nothing, without)
        }
    }

    /// Bytes of all objects that a match reads.
    pub fn bytes_of(&self, found: &Match) -> u64 {
        let objects = objects_of(&found.plan, &found.held, self.block_tokens());
        objects.map(|(_, kind)| self.object_bytes(kind)).sum()
    }

    fn object_bytes(&self, kind: u8) -> u64 {
        match kind {
            0 => self.layout.body_bytes(),
            1 => self.layout.window_bytes(),
            _ => self.layout.checkpoint_bytes(),
        }
    }

    pub(super) fn read_items(
        &self,
        found: &Match,
        wanted: &[Which],
        deadline: Instant,
    ) -> Vec<(Which, Result<Item, MissReason>)> {
        let objects: Vec<(Key, Kind)> =
            wanted.iter().map(|&which| self.named(found, which)).collect();
        wanted.iter().copied().zip(self.read_objects(&objects, deadline)).collect()
    }

    /// The block and kind of an object of a plan.
    fn named(&self, found: &Match, (block, kind): Which) -> (Key, Kind) {
        let kind = match kind {
            0 => Kind::Body,
            1 => Kind::Window,
            _ => Kind::Checkpoint,
        };
        (found.keys[block as usize], kind)
    }

    pub(super) fn read_keys(
        &self,
        keys: &[Key],
        deadline: Instant,
    ) -> Vec<Result<Item, MissReason>> {
        let objects: Vec<_> = keys.iter().map(|&key| (key, Kind::Body)).collect();
        self.read_objects(&objects, deadline)
    }

    /// Reads objects, each bare or in parts, and counts them (contract C10).
    fn read_objects(
        &self,
        objects: &[(Key, Kind)],
        deadline: Instant,
    ) -> Vec<Result<Item, MissReason>> {
        let firsts: Vec<Fingerprint> = {
            let state = self.shared.state.lock();
            objects.iter().map(|(block, kind)| self.first_of(&state, block, *kind)).collect()
        };
        let results: Vec<_> = self
            .shared
            .fetch(&firsts, deadline)
            .into_iter()
            .zip(objects)
            .map(|(held, (block, kind))| self.whole(held?, block, *kind, deadline))
            .collect();
        self.count_reads(results.iter().map(|result| result.as_ref().err().copied()));
        results
    }

    fn count_reads(&self, missed: impl IntoIterator<Item = Option<MissReason>>) {
        let mut state = self.shared.state.lock();
        for reason in missed {
            state.counters.reads_asked += 1;
            match reason {
                None => state.counters.reads_given += 1,
                Some(reason) => state.counters.read_missed(reason),
            }
        }
    }

    /// Fingerprint of an object or its part 0, whichever is stored.
    fn first_of(&self, state: &State, block: &Key, kind: Kind) -> Fingerprint {
        match kind {
            Kind::Body => self.first_object(state, block),
            _ => Fingerprint(self.object(block, kind, Piece::Bare).fingerprint()),
        }
    }

    /// The object that begins with `first`: itself, or all parts that its manifest names.
    fn whole(
        &self,
        first: Held,
        block: &Key,
        kind: Kind,
        deadline: Instant,
    ) -> Result<Item, MissReason> {
        if first.flags & flag::HEAD == 0 {
            return Ok(Item { parts: vec![Arc::new(first)], skip: 0 });
        }
        let head = Arc::new(first);
        let manifest = self.manifest(&head)?;
        let mut parts = vec![head];
        let others = 1..manifest.parts.len() as u32;
        parts.extend(self.parts(&parts[0], &manifest, block, kind, others, deadline)?);
        Ok(Item { parts, skip: Manifest::bytes(manifest.parts.len()) })
    }

    /// The manifest of a part 0 that fits it.
    fn manifest(&self, head: &Arc<Held>) -> Result<Manifest, MissReason> {
        let fits = |manifest: &Manifest| {
            let skip = Manifest::bytes(manifest.parts.len());
            manifest.parts[0].0 as usize + skip == head.length as usize
        };
        Manifest::decode(head.bytes()).filter(fits).ok_or_else(|| self.shared.lose_set(head))
    }

    /// Parts `numbers` of a set, each as its manifest says.
    fn parts(
        &self,
        head: &Arc<Held>,
        manifest: &Manifest,
        block: &Key,
        kind: Kind,
        numbers: Range<u32>,
        deadline: Instant,
    ) -> Result<Vec<Arc<Held>>, MissReason> {
        let wanted: Vec<Fingerprint> = numbers
            .clone()
            .map(|part| Fingerprint(self.object(block, kind, Piece::Part(part)).fingerprint()))
            .collect();
        let mut parts = Vec::with_capacity(wanted.len());
        for (number, held) in numbers.zip(self.shared.fetch(&wanted, deadline)) {
            let said = manifest.parts[number as usize];
            match held {
                Ok(held) if (held.length, held.checksum) == said => parts.push(Arc::new(held)),
                // Another put's part, or recovery could not read its descriptor: only the
                // manifest knows of it.
                Ok(_) | Err(MissReason::Absent) => return Err(self.shared.lose_set(head)),
                Err(reason) => return Err(reason),
            }
        }
        Ok(parts)
    }

    /// Copies an object out; copy and check are one pass (contract C1).
    fn copy_out(&self, item: &Item, out: &mut [u8]) -> Result<(), MissReason> {
        if item.len() != out.len() {
            return Err(MissReason::FailedCheck);
        }
        let mut at = 0;
        for (number, part) in item.parts.iter().enumerate() {
            let bytes = part.bytes();
            let good = if number == 0 && item.skip > 0 {
                // The manifest is part of what the checksum covers, but not of what is copied.
                let (manifest, data) = bytes.split_at(item.skip);
                let crc = copy_checksum(&mut out[at..at + data.len()], data);
                at += data.len();
                let before = crate::host::copy::checksum(manifest);
                crate::host::copy::combine(before, crc, data.len() as u64) == part.checksum
            } else {
                let crc = copy_checksum(&mut out[at..at + bytes.len()], bytes);
                at += bytes.len();
                crc == part.checksum
            };
            if !good {
                self.shared.distrust(part);
                return Err(MissReason::FailedCheck);
            }
        }
        Ok(())
    }
}

/// The objects that a plan reads: bodies that are not held, windows, checkpoint.
pub(super) fn objects_of<'a>(
    plan: &Plan,
    held: &'a HeldBlocks,
    block_tokens: u32,
) -> impl Iterator<Item = Which> + use<'a> {
    let checkpoint = checkpoint_block(plan, block_tokens);
    plan.bodies
        .clone()
        .filter(|&block| !held.has(block))
        .map(|block| (block, Kind::Body as u8))
        .chain(plan.windows.clone().map(|block| (block, Kind::Window as u8)))
        .chain(checkpoint.map(|block| (block, Kind::Checkpoint as u8)))
}
