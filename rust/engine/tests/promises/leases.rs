//! Leases: what is viewed is not reused, what was exposed is not trusted, and pins are given back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kvstore_engine::host::ArenaKind;
use kvstore_engine::io::fault::{Fault, FaultDisk, FaultPlan, Rule};
use kvstore_engine::io::{File, OpKind};
use kvstore_engine::store::{Ack, Namespace, Options, Status, Verify, View};

use crate::support::*;
use crate::tools::*;

fn whole(ns: &Namespace, tokens: &[u32], block: u32) -> View {
    let lease = ns.lease(&matched(ns, tokens));
    let item = lease.body(block).expect("the block");
    View::of(item, 0..item.len()).expect("all of it")
}

fn is_block(ns: &Namespace, tokens: &[u32], block: usize, bytes: &[u8]) -> bool {
    bytes == payload(&keys(ns, tokens)[block], bytes.len())
}

/// Memory under a live view is never reused: views outlive their lease, a clear, an eviction of
/// everything and the store itself.
#[test]
fn views_outlive_their_lease_and_their_store() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = prompt(1, 4);
    let layout = layout(1600);
    let (view, wanted) = {
        let store = open(dir.path(), &options());
        let ns = namespace(&store, &layout, "a");
        put_and_wait(&ns, &tokens, Ack::Ssd);
        let wanted = payload(&keys(&ns, &tokens)[2], layout.body_bytes() as usize);
        let view = whole(&ns, &tokens, 2);
        assert!(view.is_zero_copy());
        ns.clear(true).unwrap();
        for seed in 10..60 {
            put_and_wait(&ns, &prompt(seed, 20), Ack::Ssd);
            assert!(view.as_slice() == wanted);
        }
        assert_eq!(store.stats().pins, 1);
        store.close();
        (view, wanted)
    };
    assert!(view.as_slice() == wanted, "the view's memory lives as long as the view");
}

/// C9: a closed store gives its directory back although leases, views and namespaces of it live.
#[test]
fn a_closed_store_can_be_opened_again_while_views_live() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = prompt(1, 2);
    let store = open(dir.path(), &options());
    let ns = namespace(&store, &layout(32), "a");
    put_and_wait(&ns, &tokens, Ack::Ssd);
    let view = whole(&ns, &tokens, 0);
    assert!(store.close());
    let again = open(dir.path(), &Options { lock_wait: Duration::ZERO, ..options() });
    assert_eq!(check(&namespace(&again, &layout(32), "a"), &tokens), 2);
    assert!(is_block(&ns, &tokens, 0, view.as_slice()));
    assert_eq!(
        put_and_wait(&namespace(&again, &layout(32), "b"), &tokens, Ack::Ssd),
        [Status::Stored; 2]
    );
}

/// A lease past its deadline gives no new views; those that were given stay good.
#[test]
fn a_lease_past_its_deadline_gives_no_new_views() {
    let dir = tempfile::tempdir().unwrap();
    let store =
        open(dir.path(), &Options { lease_deadline: Duration::from_millis(300), ..options() });
    let ns = namespace(&store, &layout(32), "a");
    let tokens = prompt(1, 2);
    put_and_wait(&ns, &tokens, Ack::Ssd);
    let lease = ns.lease(&matched(&ns, &tokens));
    let view = lease.body(0).map(|item| View::of(item, 0..item.len()).unwrap());
    while !lease.is_over() {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(lease.body(0).is_none() && lease.body(1).is_none());
    if let Some(view) = view {
        assert!(is_block(&ns, &tokens, 0, view.as_slice()));
    }
    drop(lease);
    at_rest(&store);
}

/// C1: while foreign code may write an object, hits of it come from disk; what it wrote never
/// becomes a hit; when the last view has gone the object is verified once.
#[test]
fn a_write_through_an_exported_view_never_becomes_a_hit() {
    for turns in [1, 3] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path(), &options());
        let ns = namespace(&store, &layout(192), "a");
        let tokens = prompt(1, 3);
        put_and_wait(&ns, &tokens, Ack::Ssd);
        let body = ns.layout().body_bytes();
        let exports: Vec<View> = {
            let lease = ns.lease(&matched(&ns, &tokens));
            let item = lease.body(1).unwrap();
            (0..turns).map(|_| View::export(item, 0..item.len()).unwrap()).collect()
        };
        assert!(exports.iter().all(View::is_zero_copy), "it is on disk, so no copy is needed");
        // What torch does with the pointer that it gets.
        // SAFETY: the memory is the view's, private and writable, and nobody reads it meanwhile.
        unsafe { exports[0].foreign_ptr().cast_mut().add(100).write_bytes(0xEE, 50) };
        for turn in 1..=2 {
            assert_eq!(check(&ns, &tokens), 3, "exact bytes while it is exposed");
            assert_eq!(store.stats().counters.bytes_read, turn * body, "from disk");
        }
        let counters = store.stats().counters;
        assert_eq!((counters.failed_checks, counters.evicted), (0, 0));
        drop(exports);
        let before = store.stats().counters.bytes_read;
        assert_eq!(check(&ns, &tokens), 3, "and after that");
        let counters = store.stats().counters;
        assert_eq!((counters.failed_checks, counters.bytes_read), (1, before + body));
        assert_eq!(check(&ns, &tokens), 3);
        assert_eq!(store.stats().counters.bytes_read, before + body, "trusted again");
        at_rest(&store);
    }
}

/// An exported object that nobody wrote is verified once and then trusted again.
#[test]
fn an_untouched_export_costs_one_check() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &options());
    let ns = namespace(&store, &layout(192), "a");
    let tokens = prompt(1, 3);
    put_and_wait(&ns, &tokens, Ack::Ssd);
    {
        let lease = ns.lease(&matched(&ns, &tokens));
        let export = View::export(lease.body(0).unwrap(), 0..100).unwrap();
        drop(lease);
        assert_eq!(export.len(), 100);
    }
    assert_eq!((check(&ns, &tokens), check(&ns, &tokens)), (3, 3));
    let counters = store.stats().counters;
    assert_eq!((counters.bytes_read, counters.failed_checks), (0, 0), "host memory has it");
    at_rest(&store);
}

/// An object that is not written yet exports a copy: what foreign code does to it reaches neither
/// host memory nor the disk.
#[test]
fn an_object_that_is_not_written_yet_exports_a_copy() {
    let (store, device) = on(&FaultDisk::new(), FaultPlan::default(), &options());
    let ns = namespace(&store, &layout(192), "a");
    let tokens = prompt(1, 1);
    device.inject(Rule::once(File::Data, OpKind::Write, Fault::Stuck));
    put_and_wait(&ns, &tokens, Ack::Host);
    while store.stats().in_flight == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let lease = ns.lease(&matched(&ns, &tokens));
    let export = View::export(lease.body(0).unwrap(), 0..1000).unwrap();
    assert!(!export.is_zero_copy());
    // SAFETY: the copy is this view's alone.
    unsafe { export.foreign_ptr().cast_mut().write_bytes(0xEE, 1000) };
    device.release();
    drop((lease, export));
    assert_eq!(check(&ns, &tokens), 1);
    at_rest(&store);
    assert_eq!(store.stats().counters.failed_checks, 0);
}

/// An object damaged through a view and evicted from the disk tier meanwhile is a miss, not a hit,
/// and is not written back under its old name.
#[test]
fn what_was_damaged_through_a_view_is_not_written_back() {
    let disk = FaultDisk::new();
    let tokens = prompt(1, 1);
    let layout = layout(192);
    {
        let limited = Options { disk_objects: Some(5), ..options() };
        let (store, _) = on(&disk, FaultPlan::default(), &limited);
        let ns = namespace(&store, &layout, "a");
        put_and_wait(&ns, &tokens, Ack::Ssd);
        {
            let lease = ns.lease(&matched(&ns, &tokens));
            let export = View::export(lease.body(0).unwrap(), 0..100).unwrap();
            // SAFETY: the memory is the view's, private and writable, and nobody reads it meanwhile.
            unsafe { export.foreign_ptr().cast_mut().write_bytes(0xEE, 100) };
        }
        for seed in 2..12 {
            put_and_wait(&ns, &prompt(seed, 1), Ack::Ssd);
        }
        let answer = put_and_wait(&ns, &tokens, Ack::Ssd)[0];
        assert!(matches!(answer, Status::Stored | Status::Exists), "{answer:?}");
        disk.kill(1);
    }
    let (store, _) = on(&disk, FaultPlan::default(), &options());
    assert_eq!(
        check(&namespace(&store, &layout, "a"), &tokens),
        1,
        "what was acknowledged is there"
    );
    assert_eq!(store.stats().counters.failed_checks, 0);
}

/// A `shared` arena hands out a mapping that nobody can write, so nothing is exposed.
#[test]
fn a_shared_arena_exposes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &Options { arena: ArenaKind::Shared, ..options() });
    assert_eq!(store.stats().host.kind, "shared");
    let ns = namespace(&store, &layout(192), "a");
    let tokens = prompt(1, 3);
    put_and_wait(&ns, &tokens, Ack::Host);
    let lease = ns.lease(&matched(&ns, &tokens));
    let export = View::export(lease.body(0).unwrap(), 0..1000).unwrap();
    assert!(export.is_zero_copy(), "even before it is written");
    // SAFETY: the mapping is live and nobody writes the object.
    let seen = unsafe { std::slice::from_raw_parts(export.foreign_ptr(), export.len()) };
    assert!(seen == export.as_slice() && seen.as_ptr() != export.as_slice().as_ptr());
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let address = export.foreign_ptr() as usize;
    let line = maps.lines().find(|line| {
        let (from, to) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let number = |hex| usize::from_str_radix(hex, 16).unwrap();
        (number(from)..number(to)).contains(&address)
    });
    assert!(line.is_some_and(|line| line.contains(" r--s ")), "{line:?}");
    assert_eq!((check(&ns, &tokens), store.stats().counters.bytes_read), (3, 0));
    drop((lease, export));
    at_rest(&store);
}

/// `verify = always` checks every lease, and one changed byte in host memory is a miss of that copy.
#[test]
fn verify_always_finds_what_changed_in_host_memory() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &Options { verify: Verify::Always, ..options() });
    let ns = namespace(&store, &layout(192), "a");
    let tokens = prompt(1, 3);
    put_and_wait(&ns, &tokens, Ack::Ssd);
    {
        let view = whole(&ns, &tokens, 2);
        // A stray write of somebody who never asked for the memory.
        // SAFETY: nobody reads the object at this moment.
        unsafe { view.foreign_ptr().cast_mut().write(view.as_slice()[0] ^ 1) };
    }
    assert_eq!(check(&ns, &tokens), 3, "from disk");
    let counters = store.stats().counters;
    assert_eq!((counters.failed_checks, counters.bytes_read), (1, ns.layout().body_bytes()));
    at_rest(&store);
}

/// `get_into` always verifies, since its copy is fused with the check.
#[test]
fn get_into_always_verifies() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &options());
    let ns = namespace(&store, &layout(192), "a");
    let tokens = prompt(1, 3);
    put_and_wait(&ns, &tokens, Ack::Ssd);
    {
        let view = whole(&ns, &tokens, 1);
        // SAFETY: nobody reads the object at this moment.
        unsafe { view.foreign_ptr().cast_mut().write(view.as_slice()[0] ^ 1) };
    }
    for failed in [1, 1] {
        let found = matched(&ns, &tokens);
        let mut out = vec![0; ns.bytes_of(&found) as usize];
        let plan = ns.get_into(&found, &mut out).unwrap();
        let body = ns.layout().body_bytes() as usize;
        for (block, bytes) in out.chunks(body).take(plan.bodies.len()).enumerate() {
            assert!(is_block(&ns, &tokens, block, bytes));
        }
        assert_eq!(store.stats().counters.failed_checks, failed);
    }
    let short = ns.get_into(&matched(&ns, &tokens), &mut [0; 10]).unwrap_err();
    assert!(short.to_string().contains("out has 10 bytes"), "{short}");
    at_rest(&store);
}

/// B3-03, B3-04: after 10,000 look-ups that end in a lease, a copy, a prefetch, its cancellation or
/// nothing, no pin is left and a full-size store goes through.
#[test]
fn pins_die_with_their_request() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &Options { host_bytes: 24 * MIB, ..options() });
    let ns = Arc::new(namespace(&store, &layout(32), "a"));
    let prompts: Vec<Vec<u32>> = (0..20).map(|seed| prompt(seed, 5)).collect();
    for tokens in &prompts {
        put_and_wait(&ns, tokens, Ack::Ssd);
    }
    let mut kept = Vec::new();
    let mut batches = Vec::new();
    for cycle in 0..10_000_usize {
        let tokens = &prompts[cycle % prompts.len()];
        let found = matched(&ns, tokens);
        match cycle % 500 {
            499 => {
                let batch = ns.prefetch(&found, Instant::now() + Duration::from_secs(10));
                if cycle % 1000 == 999 {
                    batch.cancel();
                }
                batches.push(batch);
            }
            n if n % 4 == 0 => drop(ns.lease(&found)),
            n if n % 4 == 1 => {
                let mut out = vec![0; ns.bytes_of(&found) as usize];
                ns.get_into(&found, &mut out).unwrap();
            }
            n if n % 4 == 2 => {
                kept.push(ns.lease(&found));
                if kept.len() > 10 {
                    kept.clear();
                }
            }
            _ => {}
        }
    }
    assert!(batches.iter().all(|batch| batch.wait(soon())));
    drop(kept);
    at_rest(&store);
    let large = namespace(&store, &layout(4096), "a");
    for seed in 0..80 {
        let answers = put_and_wait(&large, &prompt(seed, 5), Ack::Ssd);
        assert_eq!(answers, [Status::Stored; 5], "seed {seed}");
    }
    at_rest(&store);
}

/// Leases hold a share of host memory and no more: what is beyond is a shorter plan that says why,
/// and puts go on.
#[test]
fn leases_are_capped_and_puts_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &Options { host_bytes: 24 * MIB, ..options() });
    let ns = namespace(&store, &layout(4096), "a");
    let blocks = (2 * store.stats().host.arena / ns.layout().body_bytes()) as u32;
    let tokens = prompt(1, blocks);
    put_and_wait(&ns, &tokens, Ack::Ssd);
    let lease = ns.lease(&matched(&ns, &tokens));
    let got = lease.plan().bodies.len() as u64;
    let host = store.stats().host;
    assert!(host.pinned * 4 <= host.arena * 3, "{host:?}");
    assert!(
        got * ns.layout().body_bytes() * 2 >= host.arena,
        "{got} blocks: {:?} {:?}",
        lease.missed(),
        store.stats()
    );
    assert!(lease.missed().iter().all(|m| m.1 == kvstore_engine::store::MissReason::Pinned));
    for seed in 2..6 {
        assert_eq!(put_and_wait(&ns, &prompt(seed, 4), Ack::Ssd), [Status::Stored; 4]);
    }
    // All of it can be copied, a little at a time.
    let found = matched(&ns, &tokens);
    let mut out = vec![0; ns.bytes_of(&found) as usize];
    drop(lease);
    assert_eq!(ns.get_into(&found, &mut out).unwrap().bodies.len(), blocks as usize);
    let body = ns.layout().body_bytes() as usize;
    assert!(
        out.chunks(body).enumerate().all(|(block, bytes)| is_block(&ns, &tokens, block, bytes))
    );
    at_rest(&store);
}

/// `prefetch` brings a prompt from disk to host memory.
#[test]
fn prefetch_brings_a_prompt_to_host_memory() {
    let dir = tempfile::tempdir().unwrap();
    let (layout, tokens) = (layout(192), prompt(1, 40));
    {
        let store = open(dir.path(), &options());
        put_and_wait(&namespace(&store, &layout, "a"), &tokens, Ack::Ssd);
    }
    let store = open(dir.path(), &options());
    let ns = Arc::new(namespace(&store, &layout, "a"));
    let batch = ns.prefetch(&matched(&ns, &tokens), soon());
    assert!(batch.wait(soon()));
    assert_eq!(batch.status(), [Status::Stored; 40]);
    let read = store.stats().counters.bytes_read;
    assert_eq!(check(&ns, &tokens), 40);
    let counters = store.stats().counters;
    assert_eq!((counters.bytes_read, counters.hits_host), (read, 40));
    at_rest(&store);
}

/// B3-10: prefetches aborted at any moment leave no read, no pin and no memory behind, and the next
/// one is admitted.
#[test]
fn an_aborted_prefetch_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { host_bytes: 20 * MIB, ..options() };
    let store = open(dir.path(), &options);
    let ns = Arc::new(namespace(&store, &layout(1600), "a"));
    for seed in 0..10 {
        put_and_wait(&ns, &prompt(seed, 20), Ack::Ssd);
    }
    let mut batches = Vec::new();
    for turn in 0..300 {
        let found = matched(&ns, &prompt(turn % 10, 20));
        let deadline = Instant::now() + Duration::from_millis(u64::from(turn % 5));
        let batch = ns.prefetch(&found, deadline);
        if turn % 3 > 0 {
            std::thread::sleep(Duration::from_micros(u64::from(turn) * 7));
            batch.cancel();
        }
        batches.push(batch);
    }
    assert!(batches.iter().all(|batch| batch.wait(soon())));
    at_rest(&store);
    let batch = ns.prefetch(&matched(&ns, &prompt(3, 20)), soon());
    assert!(batch.wait(soon()));
    assert_eq!(batch.status(), [Status::Stored; 20]);
    at_rest(&store);
}
