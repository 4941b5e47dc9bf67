//! One fault at a time, on purpose: what exactly happens to who waits, and what is left after.

mod support;

use kvstore_engine::identity::{Extras, Key};
use kvstore_engine::io::{Device, Fault, FaultPlan, File, OpKind, Rule};
use kvstore_engine::store::{
    Ack, BlockAnswer, MissReason, Options, PutOptions, Reason, Status, View,
};
use std::time::{Duration, Instant};
use support::*;

/// Nothing is kept in host memory: every read goes to the disk.
fn disk_only() -> Options {
    Options { host_bytes: 0, ..few_segments() }
}

fn in_order() -> FaultPlan {
    FaultPlan { reorder: false, ..FaultPlan::default() }
}

/// Nothing is left of a put that failed: no pin, no write that will never end.
fn assert_at_rest(rig: &Rig) {
    eventually("nothing is pinned and nothing dirty", || {
        let stats = rig.store.stats();
        stats.pins == 0 && stats.host.pinned == 0 && stats.host.dirty == 0 && stats.in_flight == 0
    });
}

/// B1-09: whichever of 8 reads fails, and however, exactly the blocks before it are given.
#[test]
fn the_blocks_before_a_failed_read_are_given_and_no_other() {
    let faults = [
        (Fault::Errno(libc::EIO), MissReason::IoError),
        (Fault::Errno(libc::ENOSPC), MissReason::IoError),
        (Fault::Broken(libc::EIO), MissReason::IoError),
        (Fault::Partial, MissReason::FailedCheck),
        (Fault::FlipBit, MissReason::FailedCheck),
        (Fault::Misdirect(4096), MissReason::FailedCheck),
    ];
    for (fault, reason) in faults {
        let life = rig(&disk_only(), in_order());
        let tokens = prompt(1, 8);
        let stored = put_and_wait(&namespace(&life.store, &layout(64), "a"), &tokens, Ack::Ssd);
        assert_eq!(stored, [Status::Stored; 8]);
        life.store.close();
        // A new life: no memory has the bytes that a short read leaves out.
        let rig = rig_on(life.disk, &disk_only(), in_order());
        let ns = namespace(&rig.store, &layout(64), "a");
        rig.device.inject(Rule::once(File::Data, OpKind::Read, fault).after(2));
        let keys = ns.keys(&tokens, &Extras::none()).unwrap();
        let (items, missed) = ns.lease_keys(&keys);
        assert_eq!((items.len(), missed), (2, Some(reason)), "{fault:?}");
        for (item, key) in items.iter().zip(&keys) {
            let view = View::joined(item, 0..item.len()).unwrap();
            assert!(view.as_slice() == payload(key, item.len()));
        }
        drop(items);
        assert_at_rest(&rig);
        // The same into the caller's memory: a failed place is no hit, and what failed can be put
        // again.
        assert_eq!(check(&ns, &tokens), 2);
        put_and_wait(&ns, &tokens, Ack::Ssd);
        assert_eq!(check(&ns, &tokens), 8);
    }
}

/// B1-11: a read stalls, its object is cleared and the store filled with others; whatever comes
/// back is a miss or exact, and its memory is not reused before the device has let go (C7).
#[test]
fn a_stalled_read_gives_no_foreign_bytes() {
    let options =
        Options { disk_objects: Some(40), read_deadline: Duration::from_secs(5), ..disk_only() };
    for give_up in [false, true] {
        let mut options = options.clone();
        if give_up {
            options.read_deadline = Duration::from_millis(100);
        }
        let rig = rig(&options, FaultPlan::default());
        let (old, new) =
            (namespace(&rig.store, &layout(64), "a"), namespace(&rig.store, &layout(64), "b"));
        let tokens = prompt(1, 8);
        put_and_wait(&old, &tokens, Ack::Ssd);
        rig.device.inject(Rule { count: 8, ..Rule::once(File::Data, OpKind::Read, Fault::Stuck) });
        let mut longer = tokens.clone();
        longer.push(0);
        let found = old.match_tokens(&longer, &Extras::none(), false, None).unwrap();
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let lease = old.lease(&found);
                let plan = lease.plan().bodies.clone();
                for block in plan.clone() {
                    let item = lease.body(block).unwrap();
                    let view = View::joined(item, 0..item.len()).unwrap();
                    assert!(view.as_slice() == payload(&found.keys[block as usize], item.len()));
                }
                plan.len()
            });
            eventually("the reads are on their way", || rig.store.stats().in_flight >= 8);
            old.clear(false).unwrap();
            for seed in 0..20 {
                put_and_wait(&new, &prompt(100 + seed, 4), Ack::Ssd);
            }
            if give_up {
                assert_eq!(reader.join().unwrap(), 0, "past its deadline a read is a miss");
                assert!(rig.store.stats().pins >= 8, "the device still has the memory");
                rig.device.release();
            } else {
                rig.device.release();
                reader.join().unwrap();
            }
        });
        assert_at_rest(&rig);
        assert_eq!(check(&new, &prompt(119, 4)), 4);
    }
}

/// B4-11: each step of a store fails once, in each way. Every item is answered exactly once, pins
/// and dirty bytes return to zero, and the store goes on.
#[test]
fn each_step_of_a_store_may_fail_once() {
    let steps = [
        (File::Data, OpKind::Write, 4),
        (File::Table, OpKind::Write, 3),
        (File::Directory, OpKind::Write, 3),
        (File::Superblock, OpKind::Write, 2),
        (File::Superblock, OpKind::Sync, 2),
        (File::Data, OpKind::Sync, 1),
        (File::Table, OpKind::Sync, 1),
    ];
    let faults = [Fault::Errno(libc::EIO), Fault::Errno(libc::ENOSPC), Fault::Broken(libc::EIO)];
    let parts = layout(36_864);
    for (file, kind, times) in steps {
        let later = (1..times).map(|skip| (Fault::Errno(libc::EIO), skip));
        for (fault, skip) in faults.map(|fault| (fault, 0)).into_iter().chain(later) {
            let what = format!("{fault:?} at {kind:?} {skip} of {file}");
            let life = rig(&few_segments(), FaultPlan::default());
            let small = namespace(&life.store, &layout(64), "a");
            let large = namespace(&life.store, &parts, "parts");
            life.device.inject(Rule::once(file, kind, fault).after(skip));
            let batches = [
                put(&small, &prompt(1, 4), 0, Ack::SsdFlush),
                put(&large, &prompt(2, 1), 0, Ack::SsdFlush),
            ];
            for batch in &batches {
                assert!(batch.wait(soon()), "{what}: {:?}", batch.status());
            }
            assert_eq!(answered(&life.store), 5, "{what}");
            assert_at_rest(&life);
            for (ns, tokens, blocks) in [(&small, prompt(1, 4), 4), (&large, prompt(2, 1), 1)] {
                let again = put_and_wait(ns, &tokens, Ack::Ssd);
                let there = |s: &Status| matches!(s, Status::Stored | Status::Exists);
                assert!(again.iter().all(there), "{what}: {again:?}");
                assert_eq!(check(ns, &tokens), blocks, "{what}");
            }
            assert!(life.store.close(), "{what}");
            let life = rig_on(life.disk.clone(), &few_segments(), FaultPlan::default());
            assert_eq!(life.store.check(false, |_, _| ()).unwrap().damaged, [], "{what}");
            assert_eq!(check(&namespace(&life.store, &layout(64), "a"), &prompt(1, 4)), 4);
            assert_eq!(check(&namespace(&life.store, &parts, "parts"), &prompt(2, 1)), 1);
        }
    }
}

/// C2, C6: a full file system is an answer for each put, and the end of nothing else.
#[test]
fn a_full_file_system_is_an_answer() {
    for file in [File::Data, File::Table] {
        let rig = rig(&few_segments(), FaultPlan { allocates: false, ..FaultPlan::default() });
        let ns = namespace(&rig.store, &layout(64), "a");
        rig.device.inject(Rule::always(file, OpKind::Write, Fault::Errno(libc::ENOSPC)));
        for seed in 0..5 {
            let status = put_and_wait(&ns, &prompt(seed, 4), Ack::Ssd);
            assert_eq!(status, [Status::Rejected(Reason::NoSpace); 4], "{file}");
            assert_eq!(check(&ns, &prompt(seed, 4)), 4, "host memory has them");
        }
        rig.device.heal();
        assert_eq!(put_and_wait(&ns, &prompt(9, 4), Ack::Ssd), [Status::Stored; 4], "{file}");
        assert!(rig.store.flush(soon()), "the freed slots cool");
    }
}

/// The same where space is set aside: the file cannot grow, so what is there is used again.
#[test]
fn a_file_that_cannot_grow_is_used_again() {
    let space = 40 * MIB;
    let rig = rig(&few_segments(), FaultPlan { space, ..FaultPlan::default() });
    let ns = namespace(&rig.store, &layout(2400), "large");
    for seed in 0..60 {
        let status = put_and_wait(&ns, &prompt(seed, 4), Ack::Ssd);
        assert_eq!(status, [Status::Stored; 4], "{seed}");
    }
    let stats = rig.store.stats();
    assert!(stats.counters.evicted_disk > 0 && stats.counters.no_space_evictions > 0);
    let files: u64 = File::ALL.iter().map(|&file| rig.device.len(file).unwrap()).sum();
    assert!(files <= space);
    check(&ns, &prompt(59, 4));
}

/// C4, C6: table pages that cannot be written keep no put waiting and no core busy.
#[test]
fn descriptors_that_cannot_be_written_are_an_answer() {
    let rig = rig(&few_segments(), FaultPlan::default());
    let ns = namespace(&rig.store, &layout(64), "a");
    rig.device.inject(Rule::always(File::Table, OpKind::Write, Fault::Errno(libc::EIO)));
    let status = put_and_wait(&ns, &prompt(1, 4), Ack::Ssd);
    assert_eq!(status, [Status::Rejected(Reason::ReadOnly); 4]);
    assert_eq!(check(&ns, &prompt(1, 4)), 4, "host memory has them");
    rig.device.heal();
    assert!(!rig.store.stats().disk.quarantined);
    assert!(rig.store.flush(soon()), "the page goes out without them");
    assert!(rig.store.close());
}

/// C6: close ends in time with a write that never completes, and who waits gets an answer.
#[test]
fn close_does_not_wait_for_a_device_that_hangs() {
    let options = Options { close_deadline: Duration::from_millis(200), ..few_segments() };
    for file in [File::Data, File::Table] {
        let rig = rig(&options, FaultPlan::default());
        let ns = namespace(&rig.store, &layout(64), "a");
        rig.device.inject(Rule::always(file, OpKind::Write, Fault::Stuck));
        let batch = put(&ns, &prompt(1, 4), 0, Ack::Ssd);
        let began = Instant::now();
        assert!(!rig.store.close(), "not everything was written");
        assert!(began.elapsed() < Duration::from_secs(20));
        assert_eq!(batch.status(), [Status::Rejected(Reason::Closing); 4], "{file}");
        rig.device.release();
    }
}

/// C6: a flush that hangs ends at its deadline, and so do look-ups and reads meanwhile.
#[test]
fn a_flush_that_hangs_ends_at_its_deadline() {
    let rig = rig(&few_segments(), FaultPlan::default());
    let ns = namespace(&rig.store, &layout(64), "a");
    put_and_wait(&ns, &prompt(1, 4), Ack::Ssd);
    rig.device.inject(Rule::always(File::Data, OpKind::Sync, Fault::Stuck));
    assert!(!rig.store.flush(Instant::now() + Duration::from_millis(50)));
    assert_eq!(check(&ns, &prompt(1, 4)), 4);
    rig.device.heal();
    rig.device.release();
    assert!(rig.store.flush(soon()));
}

/// A set of parts that is cleared while part 0 waits for the others leaves nothing behind.
#[test]
fn a_set_that_is_cleared_half_written_leaves_nothing_behind() {
    let rig = rig(&few_segments(), in_order());
    let ns = namespace(&rig.store, &layout(36_864), "parts");
    // Part 0 is written last; what hangs is a part before it.
    rig.device.inject(Rule::once(File::Data, OpKind::Write, Fault::Stuck));
    let batch = put(&ns, &prompt(1, 1), 0, Ack::Ssd);
    eventually("part 0 is written and waits", || rig.store.stats().in_flight == 1);
    std::thread::scope(|scope| {
        let clear = scope.spawn(|| ns.clear(false));
        eventually("the set is gone", || rig.store.stats().objects == 0);
        rig.device.release();
        clear.join().unwrap().unwrap();
    });
    assert!(batch.wait(soon()));
    assert_eq!(batch.status(), [Status::Rejected(Reason::Cleared)]);
    assert_at_rest(&rig);
    assert!(rig.store.flush(soon()));
    assert_eq!(rig.store.stats().disk.objects, 0);
    assert_eq!(put_and_wait(&ns, &prompt(1, 1), Ack::Ssd), [Status::Stored]);
    assert_eq!(check(&ns, &prompt(1, 1)), 1);
}

/// Waits until the device has done all that is not stuck.
fn settle_down(rig: &Rig) {
    let mut last = None;
    eventually("the store does what it can", || {
        let stats = rig.store.stats();
        let now = (stats.in_flight, stats.queued_writes, stats.counters.bytes_written);
        std::thread::sleep(Duration::from_millis(30));
        last.replace(now) == Some(now)
    });
}

/// INV-2: what freed the slot, it is not written again before its descriptor is off the disk.
#[test]
fn a_freed_slot_is_not_reused_while_its_descriptor_is_on_disk() {
    let options = Options { disk_objects: Some(8), ..disk_only() };
    for (seed, how) in (0..).zip(["evict", "clear", "expire"]) {
        let life = rig(&options, FaultPlan::default());
        let [old, new] = ["a", "b"].map(|model| namespace(&life.store, &layout(64), model));
        if how == "expire" {
            let tokens = prompt(1, 1);
            let key = old.keys(&tokens, &Extras::none()).unwrap()[0];
            let body = payload(&key, 8192);
            let ttl = Some(Duration::from_secs(1));
            let put = PutOptions { ack: Ack::Ssd, ttl, ..PutOptions::default() };
            assert!(old.put_objects(&[one_body(key, &body)], put).wait(soon()));
            std::thread::sleep(Duration::from_secs(2));
        } else {
            assert_eq!(put_and_wait(&old, &prompt(1, 8), Ack::Ssd), [Status::Stored; 8]);
        }
        life.device.inject(Rule::always(File::Table, OpKind::Write, Fault::Stuck));
        if how == "clear" {
            old.clear(false).unwrap();
        }
        let batch = put(&new, &prompt(2, 8), 0, Ack::Ssd);
        settle_down(&life);
        assert!(!batch.done(), "no descriptor is on disk");
        life.disk.kill(seed);
        life.store.close();
        let life = rig_on(life.disk, &options, FaultPlan::default());
        assert_eq!(life.store.check(false, |_, _| ()).unwrap().damaged, [], "{how}");
    }
}

/// INV-1: a page that goes out for another object has no descriptor of one whose payload is on
/// its way.
#[test]
fn a_page_has_no_descriptor_of_a_payload_in_flight() {
    for seed in 0..4 {
        let life = rig(&disk_only(), in_order());
        let [slow, fast] = ["a", "b"].map(|model| namespace(&life.store, &layout(64), model));
        life.device.inject(Rule::once(File::Data, OpKind::Write, Fault::Stuck));
        let batch = put(&slow, &prompt(1, 1), 0, Ack::Ssd);
        assert_eq!(put_and_wait(&fast, &prompt(2, 4), Ack::Ssd), [Status::Stored; 4]);
        assert!(!batch.done());
        life.disk.kill(seed);
        life.store.close();
        let life = rig_on(life.disk, &disk_only(), in_order());
        assert_eq!(life.store.check(false, |_, _| ()).unwrap().damaged, []);
        assert_eq!(check(&namespace(&life.store, &layout(64), "b"), &prompt(2, 4)), 4);
    }
}

/// C8: what a drain moves stays as durable as it was acknowledged.
#[test]
fn what_was_flushed_survives_a_power_cut_after_it_was_moved() {
    let mut moved = 0;
    for seed in 0..6 {
        let life = rig(&disk_only(), FaultPlan { seed, ..FaultPlan::default() });
        let [a, b, c] = [(512, "a"), (2400, "b"), (4000, "c")]
            .map(|(record, model)| namespace(&life.store, &layout(record), model));
        // Chains that fill one segment and begin a second, which has room for what is moved.
        let chains: Vec<Vec<u32>> = (0..50).map(|n| prompt(n, 6)).collect();
        for tokens in &chains {
            put_and_wait(&a, tokens, Ack::SsdFlush);
        }
        // Others until the first segment is drained, and some more in its place.
        let mut after = 0;
        for n in 0.. {
            put_and_wait(if n % 2 == 0 { &b } else { &c }, &prompt(n, 2), Ack::Ssd);
            after += u32::from(life.store.stats().counters.segments_drained > 0);
            if after == 4 {
                break;
            }
        }
        settle_down(&life);
        let keys: Vec<Key> =
            chains.iter().flat_map(|tokens| a.keys(tokens, &Extras::none()).unwrap()).collect();
        let kept: Vec<Key> = keys
            .into_iter()
            .filter(|key| a.match_keys(std::slice::from_ref(key)) == [BlockAnswer::Disk])
            .collect();
        life.disk.power_cut(seed);
        life.store.close();
        moved += life.store.stats().counters.objects_moved;
        assert!(!kept.is_empty());
        let life = rig_on(life.disk, &disk_only(), FaultPlan::default());
        let a = namespace(&life.store, &layout(512), "a");
        for key in &kept {
            let (items, missed) = a.lease_keys(std::slice::from_ref(key));
            assert_eq!((items.len(), missed), (1, None), "seed {seed}: one of {}", kept.len());
        }
    }
    assert!(moved > 0, "nothing was moved: the scenario shows nothing");
}

/// Limits hold from the start, also when a power cut brings evicted objects back.
#[test]
fn a_power_cut_brings_nothing_back_beyond_the_limit() {
    let options = Options { disk_objects: Some(8), ..disk_only() };
    let mut back = 0;
    for seed in 0..30 {
        let life = rig(&options, FaultPlan { seed, ..FaultPlan::default() });
        let ns = namespace(&life.store, &layout(64), "a");
        put_and_wait(&ns, &prompt(1, 8), Ack::SsdFlush);
        put_and_wait(&ns, &prompt(2, 8), Ack::Ssd);
        life.disk.power_cut(seed);
        life.store.close();
        let life = rig_on(life.disk, &options, FaultPlan::default());
        let stats = life.store.stats();
        assert!(stats.disk.objects <= 8, "seed {seed}: {}", stats.disk.objects);
        back += stats.counters.evicted_disk;
    }
    assert!(back > 0, "nothing came back: the scenario shows nothing");
}

/// A store that is open for reading changes no byte of its files.
#[test]
fn an_open_for_reading_writes_nothing() {
    let life = rig(&few_segments(), FaultPlan::default());
    let ns = namespace(&life.store, &layout(64), "a");
    put_and_wait(&ns, &prompt(1, 8), Ack::Ssd);
    life.store.close();
    // A damaged descriptor and a damaged payload: things to mend for one who may write.
    life.disk.flip_bit(File::Table, 70, 3);
    life.disk.flip_bit(File::Data, 2 * 8192 + 5, 3);
    let before: Vec<_> = File::ALL.iter().map(|&file| life.disk.contents(file)).collect();
    let reading = Options { read_only: true, ..few_segments() };
    let disk = life.disk;
    let life = rig_on(disk.clone(), &reading, FaultPlan::default());
    let ns = namespace(&life.store, &layout(64), "a");
    assert!(check(&ns, &prompt(1, 8)) < 8);
    assert_eq!(put_and_wait(&ns, &prompt(2, 1), Ack::Host), [Status::Rejected(Reason::ReadOnly)]);
    assert!(life.store.close());
    for (&file, before) in File::ALL.iter().zip(&before) {
        assert!(disk.contents(file) == *before, "{file} has changed");
    }
}

/// C4: a device that keeps failing is quarantined, and everything on it a miss, at once.
#[test]
fn a_device_that_keeps_failing_is_given_up() {
    let rig = rig(&disk_only(), FaultPlan::default());
    let ns = namespace(&rig.store, &layout(64), "a");
    put_and_wait(&ns, &prompt(1, 40), Ack::Ssd);
    rig.device.inject(Rule {
        file: None,
        kind: None,
        ..Rule::always(File::Data, OpKind::Read, Fault::Errno(libc::EIO))
    });
    for _ in 0..10 {
        check(&ns, &prompt(1, 40));
        put_and_wait(&ns, &prompt(2, 2), Ack::Ssd);
    }
    let stats = rig.store.stats();
    assert!(stats.disk.quarantined && stats.objects > 0, "what was not asked for is still listed");
    let keys = ns.keys(&prompt(1, 40), &Extras::none()).unwrap();
    assert_eq!(ns.lease_keys(&keys[39..]).1, Some(MissReason::Quarantined));
    assert!(rig.store.close());
}
