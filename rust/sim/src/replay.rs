//! A trace through `kvstore_index::Index`, as the store would: match, touch once, put the rest.

use kvstore_index::{EntryId, Fingerprint, Index, Kind, NewEntry, PolicyKind, Tier};

use crate::hash::mix;
use crate::loaded::{Counts, Loaded};

/// Where the simulated store keeps its blocks.
const TIER: Tier = Tier::Disk;

/// Keys looked up at once: enough for the index's pipeline, few to waste behind a miss.
const BATCH: usize = 64;

pub(crate) fn run(
    trace: &Loaded,
    policy: PolicyKind,
    capacity: u32,
    hits: &mut dyn FnMut(u32),
) -> Counts {
    // More blocks than the trace has are never stored.
    let capacity = capacity.min(trace.info().unique_blocks) as usize;
    let mut store = Store { index: Index::new(capacity, 0, [policy; 2]), sequence: 0 };
    let mut counts = Counts::default();
    let (mut chain, mut cached) = (Vec::new(), Vec::new());
    for request in 0..trace.info().requests as usize {
        trace.chain(request, &mut chain);
        store.longest_prefix(&chain, &mut cached);
        store.index.touch_chain(&cached);
        counts.hit += cached.len() as u64;
        hits(cached.len() as u32);
        counts.written += store.put(&chain, cached.len(), cached.last().copied());
    }
    counts
}

struct Store {
    index: Index,
    sequence: u64,
}

impl Store {
    /// The blocks that are present from the head on, without a hole.
    fn longest_prefix(&self, chain: &[u32], cached: &mut Vec<EntryId>) {
        cached.clear();
        let mut keys = Vec::with_capacity(BATCH);
        let mut found = [None; BATCH];
        for blocks in chain.chunks(BATCH) {
            keys.clear();
            keys.extend(blocks.iter().map(|&block| fingerprint(block)));
            let found = &mut found[..blocks.len()];
            self.index.find_batch(&keys, found);
            cached.extend(found.iter().map_while(|id| *id));
            if found.contains(&None) {
                break;
            }
        }
    }

    /// Stores the blocks of a chain from position `start` on, and says how many.
    fn put(&mut self, chain: &[u32], start: usize, mut parent: Option<EntryId>) -> u64 {
        let (mut written, mut at) = (0, start);
        while at < chain.len() {
            // Only a policy that leaves holes has blocks behind the first absent one.
            let run = self.present(&chain[at..]);
            if let Some(&last) = run.last() {
                if let Some(parent) = parent {
                    self.index.relink(run[0], parent);
                }
                for pair in run.windows(2) {
                    self.index.relink(pair[1], pair[0]);
                }
                self.index.touch_chain(&run);
                at += run.len();
                parent = Some(last);
                continue;
            }
            // A block whose parent made room for it could never be reached.
            let pin = parent.inspect(|&id| self.index.acquire(id));
            let room = self.make_room();
            if let Some(id) = pin {
                self.index.release(id);
            }
            let above = at.checked_sub(1).map_or(0, |above| fingerprint(chain[above]).prefix());
            let Some(id) = room.then(|| self.insert(fingerprint(chain[at]), above, at)) else {
                break;
            };
            written += 1;
            at += 1;
            parent = Some(id);
        }
        written
    }

    /// The blocks at the head of a chain that are present.
    fn present(&self, chain: &[u32]) -> Vec<EntryId> {
        chain.iter().map_while(|&block| self.index.find(&fingerprint(block))).collect()
    }

    /// Evicts one block if the store is full; false if none can go.
    fn make_room(&mut self) -> bool {
        if self.index.len() < self.index.capacity() {
            return true;
        }
        let victim = self.index.victim(TIER, &mut |_, _| true);
        if let Some(victim) = &victim {
            self.index.remove(victim.id);
        }
        victim.is_some()
    }

    fn insert(&mut self, fingerprint: Fingerprint, parent_prefix: u64, depth: usize) -> EntryId {
        self.sequence += 1;
        let new = NewEntry {
            fingerprint,
            checksum: 0,
            parent_prefix,
            sequence: self.sequence,
            length: 0,
            tenant: 0,
            expires_at: 0,
            namespace: 0,
            depth: u16::try_from(depth).unwrap_or(u16::MAX),
            class: 0,
            kind: Kind::Body,
            flags: 0,
        };
        let id = self.index.insert(&new).expect("room was made for the block");
        self.index.add_resident(id, TIER);
        id
    }
}

fn fingerprint(block: u32) -> Fingerprint {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&mix(u64::from(block)).to_le_bytes());
    bytes[8..].copy_from_slice(&mix(!u64::from(block)).to_le_bytes());
    Fingerprint(bytes)
}
