//! Objects in parts: whole or not at all, larger than host memory or not.

use std::sync::Arc;

use kvstore_engine::identity::Extras;
use kvstore_engine::io::fault::{Fault, FaultDisk, FaultPlan, Rule};
use kvstore_engine::io::{File, OpKind};
use kvstore_engine::store::{Ack, MissReason, Namespace, Options, Reason, Status, View};
use kvstore_index::Kind;
use kvstore_layout::{Group, Layout};

use crate::support::*;
use crate::tools::*;

/// A layout whose checkpoints have `bytes` and whose bodies are small.
fn with_state(bytes: u64) -> Arc<Layout> {
    let state = Group::state("state", u32::try_from(bytes / 2).unwrap(), vec![0, 1]);
    let groups = vec![Group::entries("kv", 32, vec![0, 1]), state];
    Arc::new(Layout::new("test", BLOCK_TOKENS, groups).unwrap())
}

/// Bytes that differ everywhere.
fn pattern(seed: u64, len: u64) -> Vec<u8> {
    let mut bytes = vec![0; len as usize];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    bytes
}

/// One block and its checkpoint.
fn put_with_checkpoint(ns: &Namespace, tokens: &[u32], state: &[u8], ack: Ack) -> Status {
    put_and_wait(ns, tokens, ack);
    let keys = keys(ns, tokens);
    put_one(ns, object(&keys, keys.len() - 1, Kind::Checkpoint, state), ack)
}

/// The checkpoint of a prompt by `get_into`, if it is there.
fn get(ns: &Namespace, tokens: &[u32]) -> Option<Vec<u8>> {
    let found = matched(ns, tokens);
    let mut out = vec![0; ns.bytes_of(&found) as usize];
    let plan = ns.get_into(&found, &mut out).expect("a large enough buffer");
    let bodies = plan.bodies.len() * ns.layout().body_bytes() as usize;
    plan.checkpoint.map(|_| out.split_off(bodies))
}

/// Blocks that were not given, and why.
type Missed = Vec<(u32, MissReason)>;

/// The checkpoint of a prompt by a lease: all of its parts joined, and how many there are.
fn lease(ns: &Namespace, tokens: &[u32]) -> Result<(Vec<u8>, usize), Missed> {
    let lease = ns.lease(&matched(ns, tokens));
    let Some(item) = lease.checkpoint() else { return Err(lease.missed().to_vec()) };
    let view = View::joined(item, 0..item.len()).expect("all of it");
    Ok((view.as_slice().to_vec(), item.parts()))
}

/// A checkpoint of 300 MiB, larger than the host tier or not, is stored, comes back after a
/// restart, and its second put is `Exists`.
#[test]
fn a_checkpoint_of_300_mib_streams_through_128_mib_of_host_memory() {
    a_checkpoint_of_300_mib(128);
}

/// The same where all of it fits.
#[test]
fn a_checkpoint_of_300_mib_is_leased_where_it_fits() {
    a_checkpoint_of_300_mib(512);
}

fn a_checkpoint_of_300_mib(host: u64) {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { host_bytes: host * MIB, disk_bytes: 448 * MIB, ..options() };
    let layout = with_state(300 * MIB);
    let (tokens, state) = (prompt(1, 2), pattern(1, 300 * MIB));
    {
        let store = open(dir.path(), &options);
        let ns = namespace(&store, &layout, "a");
        assert_eq!(put_with_checkpoint(&ns, &tokens, &state, Ack::Ssd), Status::Stored);
        assert_eq!(put_with_checkpoint(&ns, &tokens, &state, Ack::Ssd), Status::Exists);
        let host = store.stats().host;
        assert!(host.used <= host.arena && host.arena + host.index <= host.limit, "{host:?}");
        assert!(store.close());
    }
    let store = open(dir.path(), &options);
    let ns = namespace(&store, &layout, "a");
    assert!(get(&ns, &tokens).expect("it is there") == state, "other bytes");
    match lease(&ns, &tokens) {
        Ok((bytes, parts)) => {
            assert!(host == 512 && bytes == state);
            assert!(parts >= 75, "{parts} parts of at most 4 MiB");
        }
        // It cannot be held at once, and is not lost by the attempt.
        Err(missed) => assert!(host == 128 && missed == [(1, MissReason::Pinned)], "{missed:?}"),
    }
    assert!(get(&ns, &tokens).expect("it is still there") == state);
    assert_eq!(store.stats().counters.failed_checks, 0);
    at_rest(&store);
}

/// B3-06: a set is evicted whole. No part of an evicted one keeps a slot, and none that is left
/// lacks a part.
#[test]
fn a_set_of_parts_is_evicted_whole() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { host_bytes: 40 * MIB, disk_bytes: 160 * MIB, ..options() };
    let layout = with_state(9 * MIB);
    let store = open(dir.path(), &options);
    let ns = namespace(&store, &layout, "a");
    let mut parts = 0;
    for seed in 0..40 {
        let state = pattern(seed, 9 * MIB);
        let answer = put_with_checkpoint(&ns, &prompt(seed as u32, 1), &state, Ack::Ssd);
        assert_eq!(answer, Status::Stored, "seed {seed}");
        if seed == 0 {
            parts = store.stats().disk.objects - 1;
            assert!(parts >= 3);
        }
    }
    at_rest(&store);
    let all = |ns: &Namespace| -> u64 {
        let there = (0..40).filter(|&seed| {
            let got = get(ns, &prompt(seed, 1));
            got.inspect(|got| assert!(*got == pattern(seed.into(), 9 * MIB))).is_some()
        });
        there.count() as u64
    };
    let sets = all(&ns);
    assert!((5..20).contains(&sets), "{sets} sets are left: {:?}", store.stats());
    let bodies = (0..40).map(|seed| blocks_of_any(&ns, seed)).sum::<u64>();
    at_rest(&store);
    assert_eq!(store.stats().disk.objects, sets * parts + bodies, "{sets} sets of {parts}");
    drop(ns);
    assert!(store.close());
    drop(store);
    let store = open(dir.path(), &options);
    assert_eq!(store.recovered().orphan_parts, 0);
    assert_eq!(all(&namespace(&store, &layout, "a")), sets);
}

/// Whether the body of a prompt's only block is stored.
fn blocks_of_any(ns: &Namespace, seed: u32) -> u64 {
    let keys = keys(ns, &prompt(seed, 1));
    ns.lease_keys(&keys).0.len() as u64
}

/// A put of a set that fails half-way leaves nothing: no part in memory or on disk, no pin, and the
/// next put stores all of it.
#[test]
fn a_set_that_cannot_be_stored_whole_leaves_nothing() {
    for (file, skip) in [(File::Data, 0), (File::Data, 2), (File::Table, 0), (File::Table, 2)] {
        let disk = FaultDisk::new();
        let layout = with_state(20 * MIB);
        let (tokens, state) = (prompt(1, 1), pattern(1, 20 * MIB));
        let (store, device) = on(&disk, FaultPlan::default(), &options());
        let ns = namespace(&store, &layout, "a");
        put_and_wait(&ns, &tokens, Ack::Ssd);
        let fault = Rule { count: 6, ..Rule::once(file, OpKind::Write, Fault::Errno(libc::EIO)) };
        device.inject(fault.after(skip));
        let answer = put_with_checkpoint(&ns, &tokens, &state, Ack::Ssd);
        device.heal();
        assert!(store.flush(soon()));
        if answer != Status::Stored {
            assert!(matches!(answer, Status::Rejected(_)), "{file} {skip}: {answer:?}");
            assert_eq!(
                (store.stats().objects, store.stats().disk.objects),
                (1, 1),
                "{file} {skip}"
            );
            assert_eq!(get(&ns, &tokens), None);
            assert_eq!(put_with_checkpoint(&ns, &tokens, &state, Ack::Ssd), Status::Stored);
        }
        assert!(get(&ns, &tokens).expect("it is there") == state);
        at_rest(&store);
        drop(ns);
        store.close();
        let (store, _) = on(&disk, FaultPlan::default(), &options());
        let ns = namespace(&store, &layout, "a");
        assert_eq!(store.recovered().orphan_parts, 0);
        assert!(get(&ns, &tokens).expect("it is there") == state, "{file} {skip}");
    }
}

/// A set whose host put finds no room in time is `Busy`, whole: nothing of it is left.
#[test]
fn a_busy_set_leaves_nothing() {
    let (store, device) = on(&FaultDisk::new(), FaultPlan::default(), &options());
    let layout = with_state(20 * MIB);
    let ns = namespace(&store, &layout, "a");
    put_and_wait(&ns, &prompt(1, 1), Ack::Ssd);
    device.inject(Rule::always(File::Data, OpKind::Write, Fault::Stuck));
    let keys = keys(&ns, &prompt(1, 1));
    let state = pattern(1, 20 * MIB);
    let answer = put_one(&ns, object(&keys, 0, Kind::Checkpoint, &state), Ack::Host);
    assert_eq!(answer, Status::Busy);
    device.heal();
    device.release();
    at_rest(&store);
    assert_eq!((store.stats().objects, store.stats().disk.objects), (1, 1));
    assert_eq!(put_with_checkpoint(&ns, &prompt(1, 1), &state, Ack::Ssd), Status::Stored);
    assert!(get(&ns, &prompt(1, 1)).unwrap() == state);
    at_rest(&store);
}

/// A cleared set is gone with all of its parts, in whatever order recovery found them.
#[test]
fn a_cleared_set_is_gone_whole() {
    let disk = FaultDisk::new();
    let layout = with_state(9 * MIB);
    let state = pattern(1, 9 * MIB);
    {
        let (store, _) = on(&disk, FaultPlan::default(), &options());
        let ns = namespace(&store, &layout, "a");
        for seed in 0..3 {
            put_with_checkpoint(&ns, &prompt(seed, 1), &state, Ack::Ssd);
        }
        store.close();
    }
    let (store, _) = on(&disk, FaultPlan::default(), &options());
    let ns = namespace(&store, &layout, "a");
    put_with_checkpoint(&ns, &prompt(7, 1), &state, Ack::Host);
    let objects = store.stats().objects;
    assert_eq!(ns.clear(false).unwrap(), objects);
    at_rest(&store);
    assert_eq!((store.stats().objects, store.stats().disk.objects), (0, 0));
    assert_eq!(get(&ns, &prompt(1, 1)), None);
    assert_eq!(put_with_checkpoint(&ns, &prompt(1, 1), &state, Ack::Ssd), Status::Stored);
    assert!(get(&ns, &prompt(1, 1)).unwrap() == state);
}

/// B2-19: each part in turn is damaged: the set is a miss as a whole, leaves the index, and is
/// stored afresh.
#[test]
fn a_damaged_part_makes_the_whole_set_a_miss() {
    let layout = with_state(9 * MIB);
    let (tokens, state) = (prompt(1, 1), pattern(1, 9 * MIB));
    for at in [0, 3 * MIB, 9 * MIB - 100] {
        let disk = FaultDisk::new();
        let (store, _) = on(&disk, FaultPlan::default(), &options());
        let ns = namespace(&store, &layout, "a");
        assert_eq!(put_with_checkpoint(&ns, &tokens, &state, Ack::Ssd), Status::Stored);
        store.close();
        drop((ns, store));
        let piece = &state[at as usize..at as usize + 64];
        let data = disk.contents(File::Data);
        let place = data.windows(64).position(|window| window == piece).expect("the part");
        disk.flip_bit(File::Data, place, 0);

        for by_lease in [false, true] {
            let (store, _) = on(&disk, FaultPlan::default(), &options());
            let ns = namespace(&store, &layout, "a");
            if by_lease {
                assert_eq!(get(&ns, &tokens), None, "byte {at}: what was half read is not given");
            } else {
                assert_eq!(lease(&ns, &tokens), Err(vec![(0, MissReason::FailedCheck)]));
            }
            assert_eq!(store.stats().objects, 1, "the body is left");
            disk.kill(1);
        }
        let (store, _) = on(&disk, FaultPlan::default(), &options());
        let ns = namespace(&store, &layout, "a");
        assert_eq!(get(&ns, &tokens), None);
        assert_eq!(put_with_checkpoint(&ns, &tokens, &state, Ack::Ssd), Status::Stored);
        assert!(get(&ns, &tokens).expect("stored afresh") == state);
        at_rest(&store);
    }
}

/// Host memory smaller than one set, and a view of one part that outlives its lease: nothing leaks.
#[test]
fn a_view_of_one_part_does_not_keep_the_others() {
    let (store, _) = on(&FaultDisk::new(), FaultPlan::default(), &options());
    let layout = with_state(9 * MIB);
    let ns = namespace(&store, &layout, "a");
    for seed in 0..16 {
        let (tokens, state) = (prompt(seed, 1), pattern(seed.into(), 9 * MIB));
        assert_eq!(put_with_checkpoint(&ns, &tokens, &state, Ack::Ssd), Status::Stored);
        let view = {
            let lease = ns.lease(&matched(&ns, &tokens));
            let Some(item) = lease.checkpoint() else {
                panic!("{seed}: {:?} {:?}", lease.missed(), store.stats())
            };
            View::of(item, item.len() - 1000..item.len()).expect("inside the last part")
        };
        let other = pattern(1000 + u64::from(seed), 9 * MIB);
        put_with_checkpoint(&ns, &prompt(1000 + seed, 1), &other, Ack::Ssd);
        assert!(view.as_slice() == &state[state.len() - 1000..], "seed {seed}");
    }
    at_rest(&store);
    let tokens = prompt(5000, 1);
    let keys = ns.keys(&tokens, &Extras::none()).unwrap();
    let large = pattern(1, 20 * MIB);
    let answer = put_one(&ns, object(&keys, 0, Kind::Body, &large), Ack::Ssd);
    assert_ne!(answer, Status::Rejected(Reason::Pinned));
    assert_eq!(answer, Status::Stored);
    at_rest(&store);
}
