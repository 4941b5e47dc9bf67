//! Every answer of a put (C2, C3), each for its own reason.

use std::time::Duration;

use kvstore_engine::identity::Extras;
use kvstore_engine::io::fault::{Fault, FaultDisk, FaultPlan, Rule};
use kvstore_engine::io::{File, OpKind};
use kvstore_engine::store::{Ack, NamespaceOptions, Object, Options, PutOptions, Reason, Status};
use kvstore_index::Kind;

use crate::support::*;
use crate::tools::*;

fn rejected(reason: Reason) -> Status {
    Status::Rejected(reason)
}

/// `too_large`: what the asked tier cannot hold at all is refused before anything is evicted for it.
#[test]
fn too_large_is_what_the_asked_tier_can_never_hold() {
    let (store, _) = on(&FaultDisk::new(), FaultPlan::default(), &options());
    let ns = namespace(&store, &layout(32), "a");
    put_and_wait(&ns, &prompt(1, 20), Ack::Ssd);
    let keys = keys(&ns, &prompt(2, 1));
    let arena = store.stats().host.arena as usize;
    let data = vec![7; arena + 1];
    let object = object(&keys, 0, Kind::Checkpoint, &data);
    assert_eq!(put_one(&ns, object, Ack::Host), rejected(Reason::TooLarge));
    let data = vec![7; 256 * MIB as usize];
    let object = Object { data: &data, ..object };
    assert_eq!(put_one(&ns, object, Ack::Ssd), rejected(Reason::TooLarge));
    let stats = store.stats();
    let evicted =
        (stats.counters.evicted, stats.counters.evicted_host, stats.counters.evicted_disk);
    assert_eq!((stats.objects, evicted), (20, (0, 0, 0)));
    at_rest(&store);
    assert_eq!(adds_up(&store), 22);
}

/// `no_class`: 64 classes are live; a 65th stride goes into one that wastes at most an eighth, or
/// is refused.
#[test]
fn no_class_is_the_answer_when_64_are_taken_and_none_is_near() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { disk_bytes: 1200 * MIB, max_disk_bytes: Some(1200 * MIB), ..options() };
    let store = open(dir.path(), &options);
    let ns = namespace(&store, &layout(32), "a");
    let keys = keys(&ns, &prompt(1, 100));
    let data = vec![7; 100 * 4096];
    let put = |at: usize, units: usize| {
        let mut one = object(&keys, at, Kind::Body, &data[..units * 4096]);
        one.parent = None;
        put_one(&ns, one, Ack::Ssd)
    };
    for units in 1..64 {
        assert_eq!(put(units, units), Status::Stored, "{units} units");
    }
    assert_eq!(put(64, 72), Status::Stored, "the 64th class");
    assert_eq!(put(65, 65), Status::Stored, "in the class of 72 units");
    assert_eq!(put(66, 80), rejected(Reason::NoClass));
    assert_eq!(store.stats().disk.classes[&(72 * 4096)], 2);
    at_rest(&store);
}

/// `no_space`: the device can grow no further and nothing may be evicted. The object stays in host
/// memory, and its children are answered as well.
#[test]
fn no_space_is_the_answer_when_there_is_none() {
    let plan = FaultPlan { space: 20 * MIB, ..FaultPlan::default() };
    let (store, _) = on(&FaultDisk::new(), plan, &options());
    let ns = namespace(&store, &layout(32), "a");
    let tokens = prompt(1, 5);
    assert_eq!(put_and_wait(&ns, &tokens, Ack::Ssd), [rejected(Reason::NoSpace); 5]);
    assert_eq!(check(&ns, &tokens), 5, "host memory has them");
    assert_eq!(put_and_wait(&ns, &prompt(2, 5), Ack::Host), [Status::Stored; 5]);
    assert!(store.stats().counters.no_space_evictions > 0);
    at_rest(&store);
}

/// `pinned`: leases hold so much of a tier that nothing can make room in it.
#[test]
fn pinned_is_the_answer_while_leases_hold_the_room() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { host_bytes: 64 * MIB, disk_objects: Some(8), ..options() };
    let store = open(dir.path(), &options);
    let ns = namespace(&store, &layout(32), "a");
    let tokens = prompt(1, 8);
    put_and_wait(&ns, &tokens, Ack::Ssd);
    let lease = ns.lease(&matched(&ns, &tokens));
    assert_eq!(lease.plan().bodies.len(), 8);
    assert_eq!(put_and_wait(&ns, &prompt(2, 2), Ack::Ssd)[0], rejected(Reason::Pinned));
    drop(lease);
    assert_eq!(put_and_wait(&ns, &prompt(3, 2), Ack::Ssd), [Status::Stored; 2]);
    at_rest(&store);
}

/// `pinned` again: every segment has a leased object when another class needs one. The answer
/// comes while the leases live, and the next put finds room.
#[test]
fn pinned_is_the_answer_while_leases_hold_every_segment() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { host_bytes: 64 * MIB, disk_bytes: 80 * MIB, ..options() };
    let store = open(dir.path(), &options);
    let (small, large) =
        (namespace(&store, &layout(1600), "a"), namespace(&store, &layout(4096), "a"));
    let mut seed = 0;
    while store.stats().counters.evicted_disk == 0 {
        put_and_wait(&small, &prompt(seed, 1), Ack::Ssd);
        seed += 1;
    }
    let leases: Vec<_> = (0..seed)
        .rev()
        .step_by(7)
        .map(|seed| small.lease(&matched(&small, &prompt(seed, 1))))
        .collect();
    assert!(leases.iter().all(|lease| lease.plan().bodies.len() <= 1));
    let answers = put_and_wait(&large, &prompt(1, 1), Ack::Ssd);
    assert_eq!(answers, [rejected(Reason::Pinned)]);
    drop(leases);
    assert_eq!(put_and_wait(&large, &prompt(2, 1), Ack::Ssd), [Status::Stored]);
    at_rest(&store);
}

/// `endurance`: the day's write budget is used up; the object stays in host memory.
#[test]
fn endurance_is_the_answer_when_the_days_budget_is_used_up() {
    let dir = tempfile::tempdir().unwrap();
    let hour = 24 * 40 * 4096;
    let store = open(dir.path(), &Options { write_budget_per_day: Some(hour), ..options() });
    let ns = namespace(&store, &layout(32), "a");
    let answers = put_and_wait(&ns, &prompt(1, 60), Ack::Ssd);
    let stored = answers.iter().filter(|&&answer| answer == Status::Stored).count();
    assert!((40..45).contains(&stored), "{stored}");
    let rest = &answers[stored..];
    assert_eq!(rest[0], rejected(Reason::Endurance));
    assert!(rest.iter().all(|answer| matches!(answer, Status::Rejected(_))), "{rest:?}");
    assert_eq!(store.stats().counters.bytes_written, stored as u64 * 4096);
    assert_eq!(check(&ns, &prompt(1, 60)), 60, "host memory has all");
    at_rest(&store);
}

/// `closing` and `read_only`: the store takes nothing, and says why; reads go on.
#[test]
fn a_store_that_takes_nothing_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let (layout, tokens) = (layout(32), prompt(1, 5));
    {
        let store = open(dir.path(), &options());
        let ns = namespace(&store, &layout, "a");
        put_and_wait(&ns, &tokens, Ack::Ssd);
        store.close();
        assert_eq!(put_and_wait(&ns, &prompt(2, 5), Ack::Host), [rejected(Reason::Closing); 5]);
        assert!(
            store
                .namespace(
                    layout.clone(),
                    &description(&layout, "b"),
                    b"",
                    NamespaceOptions::default()
                )
                .is_err()
        );
    }
    let store = open(dir.path(), &Options { read_only: true, ..options() });
    let ns = namespace(&store, &layout, "a");
    assert_eq!(put_and_wait(&ns, &prompt(2, 5), Ack::Host), [rejected(Reason::ReadOnly); 5]);
    assert_eq!(check(&ns, &tokens), 5);
    assert!(ns.clear(false).is_err());
    adds_up(&store);
}

/// `read_only` again: a device that keeps failing is quarantined. Host memory goes on.
#[test]
fn a_device_that_keeps_failing_is_quarantined() {
    let (store, device) = on(&FaultDisk::new(), FaultPlan::default(), &options());
    let ns = namespace(&store, &layout(32), "a");
    put_and_wait(&ns, &prompt(1, 5), Ack::Ssd);
    device.inject(Rule::always(File::Data, OpKind::Write, Fault::Errno(libc::EIO)));
    let answers = put_and_wait(&ns, &prompt(2, 20), Ack::Ssd);
    assert!(answers.iter().all(|answer| matches!(answer, Status::Rejected(_))), "{answers:?}");
    for seed in 3..15 {
        put_and_wait(&ns, &prompt(seed, 1), Ack::Ssd);
    }
    assert!(store.stats().disk.quarantined);
    assert_eq!(put_and_wait(&ns, &prompt(20, 1), Ack::Ssd), [rejected(Reason::ReadOnly)]);
    assert_eq!(put_and_wait(&ns, &prompt(21, 1), Ack::Host), [Status::Stored]);
    assert_eq!((check(&ns, &prompt(1, 5)), check(&ns, &prompt(21, 1))), (5, 1));
    adds_up(&store);
}

/// `cleared`: keys made before a clear are refused.
#[test]
fn cleared_is_the_answer_to_keys_of_the_past() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &options());
    let ns = namespace(&store, &layout(32), "a");
    let old = keys(&ns, &prompt(1, 1));
    assert_eq!(ns.clear(false).unwrap(), 0);
    let data = vec![1; 4096];
    assert_eq!(
        put_one(&ns, object(&old, 0, Kind::Body, &data), Ack::Host),
        rejected(Reason::Cleared)
    );
    let new = keys(&ns, &prompt(1, 1));
    assert_eq!(put_one(&ns, object(&new, 0, Kind::Body, &data), Ack::Host), Status::Stored);
    at_rest(&store);
}

/// A full queue is an answer (B3-09): while the disk takes nothing, host memory fills to the mark
/// for what is not written, then puts are `Busy`; nothing grows, and all of it flows again later.
#[test]
fn a_slow_disk_makes_puts_busy_and_memory_stays_bounded() {
    let (store, device) = on(&FaultDisk::new(), FaultPlan::default(), &options());
    let ns = namespace(&store, &layout(1600), "a");
    device.inject(Rule::always(File::Data, OpKind::Write, Fault::Stuck));
    let mut counts = [0, 0];
    for seed in 0..20 {
        for status in put_and_wait(&ns, &prompt(seed, 20), Ack::Host) {
            match status {
                Status::Stored => counts[0] += 1,
                Status::Busy => counts[1] += 1,
                other => panic!("{other:?}"),
            }
        }
        let host = store.stats().host;
        assert!(host.dirty <= host.arena / 2 && host.used <= host.arena, "{host:?}");
        assert!(host.arena + host.index <= host.limit, "{host:?}");
    }
    assert!(counts[0] > 0 && counts[1] > 200, "{counts:?}");
    assert_eq!(adds_up(&store), 400);
    device.heal();
    device.release();
    at_rest(&store);
    assert_eq!(put_and_wait(&ns, &prompt(100, 20), Ack::Host), [Status::Stored; 20]);
    at_rest(&store);
}

/// `Cancelled`: what is not submitted yet is given up, what is on its way goes on.
#[test]
fn a_cancelled_put_settles_every_item() {
    let (store, device) = on(&FaultDisk::new(), FaultPlan::default(), &options());
    let ns = namespace(&store, &layout(1600), "a");
    device.inject(Rule::always(File::Data, OpKind::Write, Fault::Stuck));
    let first = put(&ns, &prompt(1, 30), 0, Ack::Ssd);
    let second = put(&ns, &prompt(2, 30), 0, Ack::Ssd);
    second.cancel();
    assert!(!first.done());
    device.heal();
    device.release();
    assert!(first.wait(soon()) && second.wait(soon()));
    assert_eq!(first.status(), [Status::Stored; 30]);
    assert!(second.status().iter().all(|s| matches!(s, Status::Stored | Status::Cancelled)));
    at_rest(&store);
    assert_eq!(adds_up(&store), 60);
}

/// `Exists` is an answer at the asked level: with `ssd` a host-only object is written first.
#[test]
fn exists_means_at_the_asked_level() {
    let disk = FaultDisk::new();
    let tokens = prompt(1, 1);
    {
        let (store, device) = on(&disk, FaultPlan::default(), &options());
        let ns = namespace(&store, &layout(32), "a");
        device.inject(Rule::once(File::Data, OpKind::Write, Fault::Errno(libc::EIO)));
        assert_eq!(put_and_wait(&ns, &tokens, Ack::Host), [Status::Stored]);
        assert!(store.flush(soon()));
        assert_eq!(store.stats().disk.objects, 0, "the write failed: it is in host memory only");
        assert_eq!(put_and_wait(&ns, &tokens, Ack::Host), [Status::Exists]);
        assert_eq!(store.stats().disk.objects, 0);
        assert_eq!(put_and_wait(&ns, &tokens, Ack::Ssd), [Status::Exists]);
        assert_eq!(store.stats().disk.objects, 1);

        // With ssd+flush a flush follows, whether or not something is written.
        for present in [true, false] {
            let tokens = if present { tokens.clone() } else { prompt(9, 1) };
            device.inject(Rule::once(File::Data, OpKind::Sync, Fault::Errno(libc::EIO)));
            let refused = put_and_wait(&ns, &tokens, Ack::SsdFlush);
            assert_eq!(refused, [rejected(Reason::ReadOnly)], "the flush was asked for");
            assert_eq!(put_and_wait(&ns, &tokens, Ack::SsdFlush), [Status::Exists]);
        }
        disk.kill(1);
    }
    let (store, _) = on(&disk, FaultPlan::default(), &options());
    let ns = namespace(&store, &layout(32), "a");
    assert_eq!((check(&ns, &tokens), check(&ns, &prompt(9, 1))), (1, 1));
}

/// What was acknowledged as `ssd+flush` survives a power cut.
#[test]
fn a_flushed_put_survives_a_power_cut() {
    for seed in 0..20 {
        let disk = FaultDisk::new();
        {
            let (store, _) = on(&disk, FaultPlan { seed, ..FaultPlan::default() }, &options());
            let ns = namespace(&store, &layout(32), "a");
            assert_eq!(put_and_wait(&ns, &prompt(1, 10), Ack::SsdFlush), [Status::Stored; 10]);
            put_and_wait(&ns, &prompt(2, 10), Ack::Ssd);
            disk.power_cut(seed);
        }
        let (store, _) = on(&disk, FaultPlan::default(), &options());
        let ns = namespace(&store, &layout(32), "a");
        assert_eq!(check(&ns, &prompt(1, 10)), 10, "seed {seed}");
        let _ = check(&ns, &prompt(2, 10));
    }
}

/// A close answers every put at its level, those that wait for a flush included.
#[test]
fn close_waits_for_a_flush_that_was_asked_for() {
    for _ in 0..20 {
        let (store, _) = on(&FaultDisk::new(), FaultPlan::default(), &options());
        let ns = namespace(&store, &layout(32), "a");
        let batch = put(&ns, &prompt(1, 3), 0, Ack::SsdFlush);
        assert!(store.close());
        assert!(batch.wait(soon()));
        assert_eq!(batch.status(), [Status::Stored; 3]);
    }
}

/// A put of a key whose first put is in flight joins it and gets its outcome.
#[test]
fn a_second_put_joins_the_one_in_flight() {
    for fails in [false, true] {
        let (store, device) = on(&FaultDisk::new(), FaultPlan::default(), &options());
        let ns = namespace(&store, &layout(32), "a");
        let fault = Fault::Stuck;
        device.inject(Rule::once(File::Data, OpKind::Write, fault));
        let first = put(&ns, &prompt(1, 1), 0, Ack::Ssd);
        while store.stats().in_flight == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        let second = put(&ns, &prompt(1, 1), 0, Ack::Ssd);
        assert!(!first.done() && !second.done(), "neither is answered before the write is over");
        assert_eq!(put_and_wait(&ns, &prompt(1, 1), Ack::Host), [Status::Exists]);
        if fails {
            device.inject(Rule::always(File::Table, OpKind::Write, Fault::Errno(libc::EIO)));
        }
        device.release();
        assert!(first.wait(soon()) && second.wait(soon()));
        if fails {
            assert_eq!(first.status(), second.status());
            assert!(matches!(first.status()[0], Status::Rejected(_)));
        } else {
            assert_eq!((first.status()[0], second.status()[0]), (Status::Stored, Status::Exists));
            assert_eq!(store.stats().counters.bytes_written, 4096, "it was written once");
        }
        adds_up(&store);
    }
}

/// The first writer wins; other bytes are counted, and an error in a deterministic namespace.
#[test]
fn the_first_writer_wins_and_divergence_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &options());
    let layout = layout(32);
    let options = NamespaceOptions { deterministic: true, ..NamespaceOptions::default() };
    let strict = store.namespace(layout.clone(), &description(&layout, "b"), b"", options).unwrap();
    for (turn, ns) in [namespace(&store, &layout, "a"), strict].iter().enumerate() {
        let tokens = prompt(1, 1);
        let keys = keys(ns, &tokens);
        put_and_wait(ns, &tokens, Ack::Ssd);
        assert_eq!(put_and_wait(ns, &tokens, Ack::Ssd), [Status::Exists]);
        assert_eq!(store.stats().counters.puts_divergent, turn as u64);
        assert!(!ns.take_divergence());
        let other = vec![9; 4096];
        assert_eq!(put_one(ns, object(&keys, 0, Kind::Body, &other), Ack::Ssd), Status::Exists);
        assert_eq!(store.stats().counters.puts_divergent, turn as u64 + 1);
        assert_eq!(ns.take_divergence(), turn == 1, "an error only where it was asked for");
        assert_eq!(check(ns, &tokens), 1, "the first writer's bytes");
    }
    at_rest(&store);
}

/// An item whose predecessor was refused is refused with it; an empty put is a batch of nothing.
#[test]
fn items_fall_with_the_item_that_they_need() {
    let (store, device) = on(&FaultDisk::new(), FaultPlan::default(), &options());
    let ns = namespace(&store, &layout(32), "a");
    let empty = ns.put_objects(&[], PutOptions::default());
    assert!(empty.is_empty() && empty.done() && empty.wait(soon()));
    let keys = ns.keys(&prompt(1, 2), &Extras::none()).unwrap();
    let arena = store.stats().host.arena as usize;
    let (large, small) = (vec![1; arena + 1], vec![2; 64]);
    let items = [
        object(&keys, 0, Kind::Body, &large),
        Object { after: Some(0), ..object(&keys, 0, Kind::Checkpoint, &small) },
        Object { after: Some(0), ..object(&keys, 0, Kind::Window, &small) },
        object(&keys, 1, Kind::Window, &[]),
    ];
    let batch = ns.put_objects(&items, PutOptions::default());
    assert!(batch.wait(soon()));
    let refused = rejected(Reason::TooLarge);
    assert_eq!(batch.status(), [refused, refused, refused, Status::Stored]);
    drop(device);
    at_rest(&store);
}

/// Two writers of one prefix with other tails both get through, whoever is first: a child that is
/// put while its parent is being filled by somebody else is written after it, not refused.
#[test]
fn two_writers_of_one_prefix_both_get_through() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &Options { host_bytes: 64 * MIB, ..options() });
    let ns = namespace(&store, &layout(4096), "a");
    for round in 0..40 {
        let head = prompt(round, 6);
        let put = |tail: u32| {
            let tail = prompt(1000 + tail, 3).into_iter().map(|token| token + 1);
            let tokens: Vec<u32> = head.iter().copied().chain(tail).collect();
            put_and_wait(&ns, &tokens, Ack::Ssd)
        };
        let answers: Vec<_> = std::thread::scope(|scope| {
            let threads = [1, 2, 3].map(|tail| scope.spawn(move || put(tail)));
            threads.map(|thread| thread.join().unwrap()).into()
        });
        for answer in answers.iter().flatten() {
            assert!(matches!(answer, Status::Stored | Status::Exists), "{round}: {answers:?}");
        }
    }
    at_rest(&store);
}

/// B1-08: a put has copied its bytes when it returns: whoever fills the buffer next changes nothing.
#[test]
fn the_callers_buffer_is_free_when_a_put_returns() {
    let (store, device) = on(&FaultDisk::new(), FaultPlan::default(), &options());
    let ns = namespace(&store, &layout(192), "a");
    device.inject(Rule::always(File::Data, OpKind::Write, Fault::Stuck));
    let tokens = prompt(1, 4);
    let keys = keys(&ns, &tokens);
    let mut buffer = vec![0; ns.layout().body_bytes() as usize];
    let batches: Vec<_> = (0..4)
        .map(|block| {
            let wanted = payload(&keys[block], buffer.len());
            buffer.copy_from_slice(&wanted);
            let one = object(&keys, block, Kind::Body, &buffer);
            ns.put_objects(&[one], PutOptions { ack: Ack::Ssd, ..PutOptions::default() })
        })
        .collect();
    buffer.fill(0xEE);
    device.heal();
    device.release();
    assert!(batches.iter().all(|batch| batch.wait(soon())));
    assert_eq!(check(&ns, &tokens), 4);
    let report = store.check(false, |_, _| ()).unwrap();
    assert_eq!((report.objects, report.damaged.len()), (4, 0));
    at_rest(&store);
}
