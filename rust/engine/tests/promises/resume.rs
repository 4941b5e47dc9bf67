//! From where a prompt goes on, as what is stored fails or goes away (C5).

use std::sync::Arc;

use kvstore_engine::identity::Extras;
use kvstore_engine::io::File;
use kvstore_engine::io::fault::{FaultDisk, FaultPlan};
use kvstore_engine::store::{
    Ack, BlockAnswer, Lease, Match, MissReason, Namespace, Object, Options, PutOptions, Status,
    Store, View,
};
use kvstore_index::Kind;
use kvstore_layout::resume::{Mode, Plan};
use kvstore_layout::{Group, Layout, Replay};

use crate::support::*;
use crate::tools::*;

/// Entries, a window of 128 tokens and a recurrent state: a resume point at block end N needs the
/// windows of the two blocks before N and the checkpoint at N.
fn hybrid() -> Arc<Layout> {
    let groups = vec![
        Group::entries("full", 32, vec![0]),
        Group::window("sliding", 48, vec![1], 128),
        Group::state("recurrent", 20_000, vec![2]),
    ];
    Arc::new(Layout::new("hybrid", BLOCK_TOKENS, groups).unwrap())
}

/// Bytes of one object, which name its block and kind.
fn bytes_of(ns: &Namespace, tokens: &[u32], block: usize, kind: Kind) -> Vec<u8> {
    let len = match kind {
        Kind::Body => ns.layout().body_bytes(),
        Kind::Window => ns.layout().window_bytes(),
        Kind::Checkpoint => ns.layout().checkpoint_bytes(),
    };
    let mut bytes = payload(&keys(ns, tokens)[block], len as usize);
    bytes.iter_mut().for_each(|byte| *byte ^= kind as u8);
    bytes
}

/// Puts all bodies of a prompt, and windows and a checkpoint for each point (in blocks).
fn store_points(ns: &Namespace, tokens: &[u32], points: &[usize]) {
    let keys = keys(ns, tokens);
    let mut wanted: Vec<(usize, Kind)> = Vec::new();
    for block in 0..keys.len() {
        if ns.layout().body_bytes() > 0 {
            wanted.push((block, Kind::Body));
        }
        if ns.layout().window_bytes() > 0 && points.iter().any(|&n| (n - 2..n).contains(&block)) {
            wanted.push((block, Kind::Window));
        }
        if ns.layout().checkpoint_bytes() > 0 && points.contains(&(block + 1)) {
            wanted.push((block, Kind::Checkpoint));
        }
    }
    let data: Vec<Vec<u8>> =
        wanted.iter().map(|&(block, kind)| bytes_of(ns, tokens, block, kind)).collect();
    let objects: Vec<Object<'_>> = wanted
        .iter()
        .zip(&data)
        .map(|(&(block, kind), data)| object(&keys, block, kind, data))
        .collect();
    let batch = ns.put_objects(&objects, PutOptions { ack: Ack::Ssd, ..PutOptions::default() });
    assert!(batch.wait(soon()));
    assert!(batch.status().iter().all(|&status| status == Status::Stored), "{:?}", batch.status());
}

/// Every byte of a lease is that of its block and kind.
fn is_exact(ns: &Namespace, tokens: &[u32], lease: &Lease) -> bool {
    let same = |item: Option<&kvstore_engine::store::Item>, block: u32, kind| {
        let item = item.expect("an object of the plan");
        let view = View::joined(item, 0..item.len()).unwrap();
        view.as_slice() == bytes_of(ns, tokens, block as usize, kind)
    };
    let plan = lease.plan();
    plan.bodies.clone().all(|block| same(lease.body(block), block, Kind::Body))
        && plan.windows.clone().all(|block| same(lease.window(block), block, Kind::Window))
        && plan
            .checkpoint
            .is_none_or(|n| same(lease.checkpoint(), n / BLOCK_TOKENS - 1, Kind::Checkpoint))
}

/// Resume point in blocks, windows and checkpoint of a plan.
fn shape(plan: &Plan) -> (u32, std::ops::Range<u32>, Option<u32>) {
    (plan.usable / BLOCK_TOKENS, plan.windows.clone(), plan.checkpoint.map(|n| n / BLOCK_TOKENS))
}

fn store_in_memory() -> (Arc<FaultDisk>, Store) {
    let disk = FaultDisk::new();
    let (store, _) = on(&disk, FaultPlan::default(), &Options { host_bytes: 0, ..options() });
    (disk, store)
}

fn misses(found: &Match) -> Vec<Option<MissReason>> {
    let reason = |answer: &BlockAnswer| match answer {
        BlockAnswer::Miss(reason) => Some(*reason),
        BlockAnswer::Mirror | BlockAnswer::Host | BlockAnswer::Disk => None,
    };
    found.blocks.iter().map(reason).collect()
}

/// The longest point whose windows and checkpoint are there; blocks behind it are stored and of no
/// use, and counted so.
#[test]
fn a_prompt_goes_on_from_the_last_resume_point() {
    let (_disk, store) = store_in_memory();
    let ns = namespace(&store, &hybrid(), "a");
    let tokens = prompt(1, 10);
    store_points(&ns, &tokens, &[4, 8]);
    let found = matched(&ns, &tokens);
    assert_eq!((found.plan.matched, shape(&found.plan)), (640, (8, 6..8, Some(8))));
    assert_eq!(found.plan.mode, Mode::Checkpoint);
    let mut expected = vec![None; 8];
    expected.extend([Some(MissReason::NoResumePoint); 2]);
    assert_eq!(misses(&found), expected);
    let lease = ns.lease(&found);
    assert_eq!(lease.plan(), &found.plan);
    assert!(is_exact(&ns, &tokens, &lease));
    drop(lease);
    let mut out = vec![0; ns.bytes_of(&found) as usize];
    assert_eq!(ns.get_into(&found, &mut out).unwrap(), found.plan);
    let window = bytes_of(&ns, &tokens, 6, Kind::Window);
    assert!(out[8 * ns.layout().body_bytes() as usize..].starts_with(&window));
    at_rest(&store);
}

/// Where an object fails its check the plan is made again on what is left: a shorter length, with
/// another checkpoint and other windows; by lease and by copy alike.
#[test]
fn a_failed_object_shortens_the_plan() {
    let damages = [
        (7, Kind::Checkpoint, 4),
        (7, Kind::Window, 4),
        (6, Kind::Window, 4),
        (5, Kind::Body, 4),
        (4, Kind::Body, 4),
        (3, Kind::Window, 8),
        (2, Kind::Body, 0),
        (9, Kind::Body, 8),
    ];
    for (block, kind, left) in damages {
        for by_lease in [true, false] {
            let (disk, store) = store_in_memory();
            let ns = namespace(&store, &hybrid(), "a");
            let tokens = prompt(1, 10);
            store_points(&ns, &tokens, &[4, 8]);
            let found = matched(&ns, &tokens);
            assert_eq!(shape(&found.plan).0, 8);
            let bytes = bytes_of(&ns, &tokens, block, kind);
            let data = disk.contents(File::Data);
            let at = data.windows(48).position(|window| window == &bytes[..48]).unwrap();
            disk.flip_bit(File::Data, at + 40, 1);
            let plan = if by_lease {
                let lease = ns.lease(&found);
                assert!(is_exact(&ns, &tokens, &lease), "{block} {kind:?}");
                let failed =
                    lease.missed().iter().all(|m| *m == (block as u32, MissReason::FailedCheck));
                assert!(failed, "{:?}", lease.missed());
                lease.plan().clone()
            } else {
                let mut out = vec![0; ns.bytes_of(&found) as usize];
                ns.get_into(&found, &mut out).unwrap()
            };
            let windows = left.max(2) - 2..left;
            let checkpoint = (left > 0).then_some(left);
            assert_eq!(shape(&plan), (left, windows, checkpoint), "{block} {kind:?}");
            // What failed has left; the rest is still there and goes on by itself.
            let read = !matches!((block, kind), (9, Kind::Body) | (3, Kind::Window));
            assert_eq!(store.stats().counters.failed_checks, u64::from(read));
            assert_eq!(shape(&matched(&ns, &tokens).plan).0, left);
            at_rest(&store);
        }
    }
}

/// At least one token is left to compute: a prompt of whole blocks goes on one block before its
/// end, and that block is counted as below the unit.
#[test]
fn the_last_token_is_always_computed() {
    let (_disk, store) = store_in_memory();
    let ns = namespace(&store, &layout(32), "a");
    let tokens = prompt(1, 8);
    put_and_wait(&ns, &tokens, Ack::Ssd);
    let of = |tokens: &[u32]| ns.match_tokens(tokens, &Extras::none(), false, None).unwrap();
    for (asked, usable) in [(512, 448), (511, 448), (449, 448), (448, 384), (65, 64), (64, 0)] {
        let found = of(&tokens[..asked]);
        assert_eq!(found.plan.usable, usable, "{asked} tokens");
        assert_eq!(ns.lease(&found).plan().usable, usable, "{asked} tokens");
        let below = misses(&found).iter().filter(|m| **m == Some(MissReason::BelowUnit)).count();
        assert_eq!(below, usize::from(asked.is_multiple_of(64)), "{asked} tokens");
    }
    let hybrid = namespace(&store, &hybrid(), "a");
    store_points(&hybrid, &tokens, &[4, 8]);
    let found = hybrid.match_tokens(&tokens, &Extras::none(), false, None).unwrap();
    assert_eq!(shape(&found.plan), (4, 2..4, Some(4)), "the point at the end is one too far");
    let mut expected = vec![None; 4];
    expected.extend([Some(MissReason::NoResumePoint); 3]);
    expected.push(Some(MissReason::BelowUnit));
    assert_eq!(misses(&found), expected);
    at_rest(&store);
}

/// B1-04: an empty prompt and one shorter than a block match nothing, lease nothing, store nothing.
#[test]
fn an_empty_prompt_is_nothing() {
    let (_disk, store) = store_in_memory();
    for ns in [namespace(&store, &layout(32), "a"), namespace(&store, &hybrid(), "a")] {
        for len in [0, 1, 63] {
            let tokens = &prompt(1, 1)[..len];
            let found = ns.match_tokens(tokens, &Extras::none(), true, None).unwrap();
            let plan = &found.plan;
            assert_eq!((plan.matched, plan.usable, plan.replay_start), (0, 0, 0));
            assert_eq!((plan.mode, plan.recompute_tokens), (Mode::Nothing, len as u32));
            assert!(found.blocks.is_empty() && found.keys.is_empty());
            let lease = ns.lease(&found);
            assert!(lease.plan().bodies.is_empty() && lease.checkpoint().is_none());
            assert_eq!(ns.get_into(&found, &mut []).unwrap().usable, 0);
            assert!(put_and_wait(&ns, tokens, Ack::Ssd).is_empty());
        }
        assert_eq!(ns.match_keys(&[]), []);
    }
    assert_eq!(store.stats().counters.lookups, 0);
    at_rest(&store);
}

/// A layout without entries (state only, or windows only) goes on from its last point; its blocks
/// up to there are hits.
#[test]
fn a_layout_without_entries_hits_up_to_its_point() {
    let state = vec![Group::state("recurrent", 9000, vec![0])];
    let window = vec![Group::window("sliding", 48, vec![0], 128)];
    for groups in [state, window] {
        let (_disk, store) = store_in_memory();
        let layout = Arc::new(Layout::new("bare", BLOCK_TOKENS, groups).unwrap());
        let ns = namespace(&store, &layout, "a");
        let tokens = prompt(1, 6);
        store_points(&ns, &tokens, &[4]);
        let found = matched(&ns, &tokens);
        assert_eq!(found.plan.usable, 4 * BLOCK_TOKENS);
        let mut expected = vec![None; 4];
        expected.extend([Some(MissReason::Absent); 2]);
        assert_eq!(misses(&found), expected);
        assert!(is_exact(&ns, &tokens, &ns.lease(&found)));
        let counters = store.stats().counters;
        assert_eq!((counters.lookups, counters.hits_disk + counters.hits_host), (6, 4));
        at_rest(&store);
    }
}

/// Windows that no resume point needs are the first victims; a checkpoint dies with, or before, the
/// block that it ends.
#[test]
fn windows_without_a_point_go_first_and_checkpoints_before_their_block() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { disk_objects: Some(60), host_bytes: 0, ..options() };
    let store = open(dir.path(), &options);
    let ns = namespace(&store, &hybrid(), "a");
    let tokens = prompt(1, 10);
    let keys = keys(&ns, &tokens);
    let lone: Vec<Vec<u8>> = (0..6).map(|b| bytes_of(&ns, &tokens, b, Kind::Window)).collect();
    store_points(&ns, &tokens, &[10]);
    for (block, data) in lone.iter().enumerate() {
        let window = Object { unneeded: true, ..object(&keys, block, Kind::Window, data) };
        assert_eq!(put_one(&ns, window, Ack::Ssd), Status::Stored);
    }
    let held = store.stats().disk.objects;
    assert_eq!(held, 10 + 2 + 1 + 6);
    for seed in 0..(60 - held + 6) as u32 {
        put_and_wait(&namespace(&store, &layout(32), "b"), &prompt(seed, 1), Ack::Ssd);
    }
    assert_eq!(store.stats().counters.evicted_disk, 6);
    assert_eq!(shape(&matched(&ns, &tokens).plan), (10, 8..10, Some(10)), "only lone windows went");

    // From here on the whole prompt goes, piece by piece.
    for seed in 100..160 {
        put_and_wait(&namespace(&store, &layout(32), "b"), &prompt(seed, 1), Ack::Ssd);
        let plan = matched(&ns, &tokens).plan;
        if plan.checkpoint.is_some() {
            assert_eq!(plan.bodies.len(), 10, "a checkpoint outlived its block");
        }
    }
    assert!(store.stats().counters.evicted_disk >= 6 + 19);
    at_rest(&store);
}

/// Blocks stored after a bounded replay are found by who allows approximation, and by nobody else;
/// the exact prefix comes first.
#[test]
fn exact_callers_never_see_a_replayed_block() {
    let (_disk, store) = store_in_memory();
    let groups =
        vec![Group::entries("full", 32, vec![0]), Group::window("sliding", 48, vec![1, 2, 3], 128)];
    let replay = Replay { bounded: Some(128), ..Replay::default() };
    let layout = Arc::new(Layout::new("replay", BLOCK_TOKENS, groups).unwrap().with_replay(replay));
    let ns = namespace(&store, &layout, "a");
    let tokens = prompt(1, 8);
    // Blocks 0 to 3 exact, 4 to 7 stored after a replay.
    put_and_wait(&ns, &tokens[..4 * BLOCK_TOKENS as usize], Ack::Ssd);
    let marked = ns.keys(&tokens, &Extras::none().replayed_from(4)).unwrap();
    let exact = keys(&ns, &tokens);
    assert_eq!(marked[..4], exact[..4]);
    let data: Vec<_> =
        marked.iter().map(|key| payload(key, layout.body_bytes() as usize)).collect();
    for (block, data) in data.iter().enumerate().skip(4) {
        let one = Object { replayed: true, ..object(&marked, block, Kind::Body, data) };
        assert_eq!(put_one(&ns, one, Ack::Ssd), Status::Stored);
    }
    let longer: Vec<u32> = tokens.iter().copied().chain([0]).collect();
    let found = |approximate| ns.match_tokens(&longer, &Extras::none(), approximate, None).unwrap();
    let strict = found(false);
    assert_eq!((strict.plan.matched, strict.replayed_from), (4 * BLOCK_TOKENS, None));
    assert_ne!(strict.plan.mode, Mode::BoundedReplay);
    assert!(misses(&strict)[4..].iter().all(|m| *m == Some(MissReason::Absent)));
    let loose = found(true);
    assert_eq!((loose.plan.matched, loose.replayed_from), (8 * BLOCK_TOKENS, Some(4)));
    assert_eq!(loose.plan.mode, Mode::BoundedReplay);
    assert_eq!(loose.plan.replay_start, 8 * BLOCK_TOKENS - 128);
    assert_eq!(loose.keys, marked);
    let lease = ns.lease(&loose);
    for block in lease.plan().bodies.clone() {
        let item = lease.body(block).unwrap();
        let view = View::joined(item, 0..item.len()).unwrap();
        assert!(view.as_slice() == payload(&marked[block as usize], item.len()));
    }
    assert_eq!(lease.plan().bodies, 0..8);
    drop(lease);
    // Once the exact blocks are there nobody needs the others.
    put_and_wait(&ns, &tokens, Ack::Ssd);
    assert_eq!(found(true).replayed_from, None);
    at_rest(&store);
}

/// A match pins nothing and is a hint: what is evicted or cleared in between shortens the lease.
#[test]
fn a_lease_answers_for_what_a_match_had_seen() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { disk_objects: Some(30), host_bytes: 0, ..options() };
    let store = open(dir.path(), &options);
    let ns = namespace(&store, &layout(32), "a");
    let tokens = prompt(1, 20);
    put_and_wait(&ns, &tokens, Ack::Ssd);
    let found = matched(&ns, &tokens);
    assert_eq!((found.plan.bodies.len(), store.stats().pins), (20, 0));
    put_and_wait(&ns, &prompt(2, 15), Ack::Ssd);
    let lease = ns.lease(&found);
    assert_eq!(lease.plan().bodies, 0..15);
    assert!(lease.missed().is_empty(), "the plan was made on what is there");
    drop(lease);
    // And longer, if more is there by then.
    drop(matched(&ns, &prompt(2, 15)));
    let early = matched(&ns, &prompt(3, 5));
    put_and_wait(&ns, &prompt(3, 5), Ack::Ssd);
    assert_eq!(ns.lease(&early).plan().bodies, 0..5);
    let mut out = Vec::new();
    assert_eq!(ns.get_into(&early, &mut out).unwrap().bodies, 0..0, "but not than the buffer");
    at_rest(&store);
}
