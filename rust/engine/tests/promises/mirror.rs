//! What the serving engine holds in HBM: look-ups, reads and evictions that know of it.

use kvstore_engine::identity::{Extras, Key};
use kvstore_engine::io::fault::{FaultDisk, FaultPlan};
use kvstore_engine::mirror::{Tiers, Worker};
use kvstore_engine::store::{
    Ack, BlockAnswer, Match, MissReason, Namespace, Options, Status, Store,
};
use kvstore_engine::{Error, ErrorKind};

use crate::support::*;
use crate::tools::*;

fn small() -> Options {
    Options { mirror_slots: Some(100), ..options() }
}

fn asked_by(ns: &Namespace, worker: Worker, tokens: &[u32]) -> Match {
    let longer: Vec<u32> = tokens.iter().copied().chain([0]).collect();
    ns.match_for(Some(worker), &longer, &Extras::none(), false, None).expect("a match")
}

fn mark(store: &Store, worker: Worker, keys: &[Key]) {
    let slots: Vec<u32> = (0..keys.len() as u32).collect();
    assert_eq!(store.mirror().insert(keys, &slots, worker).unwrap(), keys.len());
}

/// B10-06: a router forgot a prefix that had left the device while the host still had it.
#[test]
fn each_tier_says_for_itself_what_it_holds() {
    let disk = FaultDisk::new();
    let (store, _) = on(&disk, FaultPlan::default(), &small());
    let ns = namespace(&store, &layout(64), "tiny");
    let tokens = prompt(1, 1);
    let keys = keys(&ns, &tokens);
    let tiers = |mirror, host, disk| assert_eq!(ns.tiers(&keys), [Tiers { mirror, host, disk }]);
    tiers(false, false, false);
    let worker = store.mirror().join(0, 4).unwrap();
    mark(&store, worker, &keys);
    tiers(true, false, false);
    put_and_wait(&ns, &tokens, Ack::Ssd);
    tiers(true, true, true);
    assert_eq!(store.mirror().remove(&keys, worker), 1);
    tiers(false, true, true);
    mark(&store, worker, &keys);
    store.mirror().end(worker);
    tiers(false, true, true);
    drop((ns, store));

    let (store, _) = on(&disk, FaultPlan::default(), &small());
    let ns = namespace(&store, &layout(64), "tiny");
    assert_eq!(ns.tiers(&keys), [Tiers { mirror: false, host: false, disk: true }]);
    assert_eq!(check(&ns, &tokens), 1);
    assert_eq!(ns.tiers(&keys), [Tiers { mirror: false, host: true, disk: true }]);
    assert_eq!(store.stats().counters.lookups, 1, "asking for tiers is no look-up");
}

/// A block that only the worker has is present for that worker, in the middle of a prefix too, and
/// for nobody else; a lease reads what the worker has not got.
#[test]
fn a_mark_is_a_hit_for_its_worker_alone() {
    let disk = FaultDisk::new();
    let (store, _) = on(&disk, FaultPlan::default(), &small());
    let ns = namespace(&store, &layout(64), "tiny");
    let tokens = prompt(1, 5);
    let keys = keys(&ns, &tokens);
    for at in [0, 1, 3] {
        let bytes = payload(&keys[at], ns.layout().body_bytes() as usize);
        let object = object(&keys, at, kvstore_index::Kind::Body, &bytes);
        put_one(&ns, object, Ack::Ssd);
    }
    let [mine, other] = [0, 1].map(|id| store.mirror().join(id, 8).unwrap());
    mark(&store, mine, &keys[1..3]);
    mark(&store, other, &keys[4..]);

    use BlockAnswer::{Host, Mirror, Miss};
    let absent = Miss(MissReason::Absent);
    let found = matched(&ns, &tokens);
    assert_eq!(found.blocks, [Host, Host, absent, absent, absent]);
    let found = asked_by(&ns, other, &tokens);
    assert_eq!(
        found.blocks,
        [Host, Host, absent, absent, absent],
        "behind a hole nothing is asked"
    );
    let found = asked_by(&ns, mine, &tokens);
    assert_eq!(found.blocks, [Host, Mirror, Mirror, Host, absent]);
    assert_eq!(found.plan.usable, 4 * BLOCK_TOKENS);
    let body = ns.layout().body_bytes();
    assert_eq!((found.plan.read_bytes, ns.bytes_of(&found)), (2 * body, 2 * body));
    let counters = store.stats().counters;
    assert_eq!((counters.lookups, counters.hits_mirror, counters.hits_host), (15, 2, 6));

    let lease = ns.lease(&found);
    assert_eq!(lease.plan().bodies, 0..4);
    let given: Vec<u32> = (0..5).filter(|&block| lease.body(block).is_some()).collect();
    assert_eq!(given, [0, 3]);
    let held: Vec<u32> = (0..5).filter(|&block| found.held.has(block)).collect();
    assert_eq!(held, [1, 2]);
    let mut out = vec![0; 2 * body as usize];
    assert_eq!(ns.get_into(&found, &mut out).unwrap().bodies, 0..4);
    assert_eq!(out, [0, 3].map(|at: usize| payload(&keys[at], body as usize)).concat());
    assert_eq!(store.stats().counters.reads_asked, 4);
    drop(lease);

    // More marks change nothing of what this match reads; lost ones end its plan.
    mark(&store, mine, &keys[..3]);
    let lease = ns.lease(&found);
    assert_eq!(lease.plan(), &found.plan);
    assert!(lease.body(0).is_some());
    drop(lease);
    store.mirror().drop_worker(0);
    let lease = ns.lease(&found);
    assert_eq!((lease.plan().bodies.clone(), lease.missed()), (0..1, &[][..]));
    drop(lease);
    assert_eq!(asked_by(&ns, mine, &tokens).blocks, matched(&ns, &tokens).blocks);
    assert_eq!(ns.match_keys_for(Some(other), &keys[4..]), [Mirror]);
    at_rest(&store);
}

/// What is held when a namespace is cleared is no hit afterwards: its keys have changed.
#[test]
fn a_clear_reaches_the_mirror() {
    let disk = FaultDisk::new();
    let (store, _) = on(&disk, FaultPlan::default(), &small());
    let ns = namespace(&store, &layout(64), "tiny");
    let tokens = prompt(1, 3);
    let worker = store.mirror().join(0, 8).unwrap();
    mark(&store, worker, &keys(&ns, &tokens));
    let before = asked_by(&ns, worker, &tokens);
    assert_eq!(before.blocks, [BlockAnswer::Mirror; 3]);
    ns.clear(false).unwrap();
    let after = asked_by(&ns, worker, &tokens);
    assert_eq!(after.blocks, [BlockAnswer::Miss(MissReason::Absent); 3]);
    assert!(ns.lease(&before).plan().bodies.is_empty(), "a plan of before the clear gives nothing");
    at_rest(&store);
}

#[test]
fn room_and_misuse_are_answers() {
    let disk = FaultDisk::new();
    let (store, _) = on(&disk, FaultPlan::default(), &small());
    let ns = namespace(&store, &layout(64), "tiny");
    let keys = keys(&ns, &prompt(1, 3));
    let mirror = store.mirror();
    let first = mirror.join(0, 60).unwrap();
    let full = mirror.join(1, 41).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::Limit);
    assert_eq!(
        full.to_string(),
        "worker 1 wants 41 slots: the mirror has 40 of 100 slots left (mirror_slots)"
    );
    let says = |error: Error| (error.kind(), error.to_string());
    let invalid = |text: &str| (ErrorKind::InvalidArgument, text.to_owned());
    let wrong = mirror.join(255, 1).unwrap_err();
    assert_eq!(says(wrong), invalid("worker is 255, from 0 to 254 are possible"));
    let wrong = mirror.join(0, 0).unwrap_err();
    assert_eq!(says(wrong), invalid("slots is 0, a worker has from 1 to 16777215"));
    let wrong = mirror.insert(&keys, &[0, 60, 2], first).unwrap_err();
    assert_eq!(says(wrong), invalid("slots[1] is 60, worker 0 has 60"));
    let wrong = mirror.insert(&keys, &[0], first).unwrap_err();
    assert_eq!(says(wrong), invalid("slots has 1 items for 3 keys"));
    assert_eq!(mirror.contains(&keys, None), [false; 3]);

    // A slot that is used again holds what it was told last.
    mark(&store, first, &keys);
    assert_eq!(mirror.insert(&keys[2..], &[0], first).unwrap(), 1);
    assert_eq!(mirror.contains(&keys, Some(first)), [false, true, true]);
    let again = mirror.join(0, 100).unwrap();
    assert_eq!(mirror.contains(&keys, None), [false; 3], "a worker that joins again holds nothing");
    assert_eq!(mirror.insert(&keys, &[0, 1, 2], first).unwrap(), 0, "its epoch is over");
    mark(&store, again, &keys);
    assert_eq!(mirror.remove(&keys, first), 0);
    mirror.end(first);
    assert_eq!(mirror.contains(&keys, None), [true; 3]);
    let stats = mirror.stats();
    assert_eq!((stats.limit, stats.workers, stats.slots, stats.marks), (100, 1, 100, 3));
    assert_eq!(stats.stale, 2);
    let host = store.stats().host;
    assert!(host.arena + host.index + stats.bytes <= host.limit);
    store.close();
    assert_eq!(store.mirror().join(1, 1).unwrap_err().kind(), ErrorKind::Unusable);
}

/// Objects that nothing is below, one a prompt, oldest first; with no write budget none is on disk.
/// What waits for the writer is held, and no victim: so each put waits until nothing does.
fn fill(store: &Store, ns: &Namespace, seeds: std::ops::Range<u32>) -> Vec<Key> {
    seeds
        .map(|seed| {
            let tokens = prompt(seed, 1);
            assert_eq!(put_and_wait(ns, &tokens, Ack::Host), [Status::Stored]);
            assert!(store.flush(soon()));
            keys(ns, &tokens)[0]
        })
        .collect()
}

/// Fills host memory with prompts of one block until the first is gone.
fn fill_up(store: &Store, ns: &Namespace, from: u32) -> Vec<Key> {
    let mut all = Vec::new();
    while store.stats().counters.evicted == 0 {
        let next = from + all.len() as u32;
        all.extend(fill(store, ns, next..next + 1));
    }
    all
}

fn nothing_written() -> Options {
    let (objects, host_bytes) = (Some(2_000), 20 * MIB);
    Options { host_bytes, objects, write_budget_per_day: Some(0), ..small() }
}

fn in_host(ns: &Namespace, keys: &[Key]) -> Vec<bool> {
    ns.tiers(keys).iter().map(|tiers| tiers.host).collect()
}

/// Among the next few victims the one with a copy in the mirror goes; those further from the end
/// do not, and without a mark the order is the policy's.
#[test]
fn host_memory_gives_up_what_the_mirror_has() {
    let disk = FaultDisk::new();
    let (store, _) = on(&disk, FaultPlan::default(), &nothing_written());
    let ns = namespace(&store, &layout(2048), "tiny");
    let mut all = fill_up(&store, &ns, 0);
    let gone = |all: &[Key]| -> Vec<usize> {
        let there = in_host(&ns, all);
        (0..all.len()).filter(|&at| !there[at]).collect()
    };
    assert_eq!(gone(&all), [0], "the oldest goes first");
    let worker = store.mirror().join(0, 8).unwrap();
    mark(&store, worker, &[all[30], all[7], all[9]]);
    let next = all.len() as u32;
    all.extend(fill(&store, &ns, next..next + 3));
    assert_eq!(gone(&all), [0, 1, 7, 9], "30 is beyond the objects that are looked at");
    assert_eq!(ns.tiers(&all[7..8])[0], Tiers { mirror: true, host: false, disk: false });
    at_rest(&store);
}

/// A head that the mirror has does not take a leaf along that nobody else has.
#[test]
fn a_leaf_without_a_copy_keeps_its_parent() {
    let disk = FaultDisk::new();
    let (store, _) = on(&disk, FaultPlan::default(), &nothing_written());
    let ns = namespace(&store, &layout(2048), "tiny");
    let chain = prompt(1_000, 2);
    put_and_wait(&ns, &chain, Ack::Host);
    let chain = keys(&ns, &chain);
    let all = fill_up(&store, &ns, 0);
    assert_eq!(in_host(&ns, &chain), [true, false], "the leaf of the oldest prompt goes first");

    let chain = prompt(2_000, 2);
    put_and_wait(&ns, &chain, Ack::Host);
    let chain = keys(&ns, &chain);
    let worker = store.mirror().join(0, 8).unwrap();
    // All that is older is used again, so that the chain stands at the old end.
    for seed in 1..all.len() as u32 {
        matched(&ns, &prompt(seed, 1));
    }
    matched(&ns, &prompt(1_000, 1));
    mark(&store, worker, &[chain[0], all[3]]);
    at_rest(&store);
    fill(&store, &ns, 3_000..3_001);
    assert_eq!(in_host(&ns, &chain), [true, true]);
    assert_eq!(in_host(&ns, &all[2..5]), [true, false, true]);
}
