//! Many threads on one small store that evicts, drains and clears all the time.

mod support;

use kvstore_engine::identity::Extras;
use kvstore_engine::store::{Ack, MissReason, Namespace, Options, PutOptions, Status, Store, View};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::*;

fn tiny() -> Options {
    Options { disk_bytes: 96 * MIB, host_bytes: 24 * MIB, objects: Some(4_000), ..options() }
}

/// Bytes of a prompt in the caller's memory; the answer is the number of blocks.
fn check_into(ns: &Namespace, tokens: &[u32]) -> usize {
    let mut longer = tokens.to_vec();
    longer.push(0);
    let found = ns.match_tokens(&longer, &Extras::none(), false, None).unwrap();
    let size = ns.layout().body_bytes() as usize;
    let mut out = vec![0; ns.bytes_of(&found) as usize];
    let plan = ns.get_into(&found, &mut out).unwrap();
    for (at, block) in plan.bodies.clone().enumerate() {
        let wanted = payload(&found.keys[block as usize], size);
        assert!(out[at * size..(at + 1) * size] == wanted, "block {block} has other bytes");
    }
    plan.bodies.len()
}

/// Nothing is pinned, dirty or in flight once all have gone, and everything counted adds up.
fn assert_at_rest(store: &Store) {
    eventually("the store comes to rest", || {
        let stats = store.stats();
        stats.pins == 0 && stats.host.pinned == 0 && stats.host.dirty == 0 && stats.in_flight == 0
    });
    let stats = store.stats();
    assert!(!stats.poisoned, "a panic in the engine");
    let c = &stats.counters;
    assert_eq!(c.lookups, c.hits_host + c.hits_disk + c.misses.values().sum::<u64>());
    assert_eq!(c.reads_asked, c.reads_given + c.reads_missed.values().sum::<u64>());
    let files = std::fs::read_dir(store.dir()).unwrap();
    let used: u64 = files.map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert!(used <= stats.disk.limit, "{used} bytes of files");
}

/// B1-12: 16 threads with distinct first tokens, 10,000 rounds of put, match, lease, get_into and
/// clear: each gets its own bytes or a miss.
#[test]
fn every_thread_gets_its_own_bytes_or_a_miss() {
    const THREADS: u32 = 16;
    const ROUNDS: u32 = 10_000 / THREADS;
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &tiny());
    let layouts = [layout(64), layout(512), layout(2400)];
    let blocks_got = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, layouts, blocks_got) = (&store, &layouts, &blocks_got);
            scope.spawn(move || {
                let ns = |n: usize, salt: &[u8]| salted(store, &layouts[n], "m", salt);
                let handles = [ns(0, b""), ns(0, b"tenant"), ns(1, b""), ns(2, b"")];
                for round in 0..ROUNDS {
                    let handle = &handles[(round / 20 % 4) as usize];
                    let tokens = prompt(thread * 1000 + round / 5 % 12, 1 + round / 5 % 4);
                    match round % 5 {
                        0 | 1 => {
                            let ack = [Ack::Host, Ack::Ssd][(round / 5 % 2) as usize];
                            let batch = put(handle, &tokens, 0, ack);
                            assert!(batch.wait(soon()), "a put ends: {:?}", batch.status());
                        }
                        2 => {
                            blocks_got
                                .fetch_add(check_into(handle, &tokens) as u64, Ordering::Relaxed);
                        }
                        _ => {
                            blocks_got.fetch_add(check(handle, &tokens) as u64, Ordering::Relaxed);
                        }
                    }
                    if thread == 0 && round % 200 == 199 {
                        handle.clear(false).unwrap();
                        store.clear_tenant(b"tenant", round % 400 == 399).unwrap();
                    }
                }
            });
        }
    });
    assert!(blocks_got.into_inner() > 1_000, "hits as well as misses");
    assert_at_rest(&store);
    assert!(store.close());
    let store = open(dir.path(), &tiny());
    assert_eq!(store.check(false, |_, _| ()).unwrap().damaged, []);
}

/// B1-16: 32 readers of one prefix while its neighbours are evicted and rewritten.
#[test]
fn a_prefix_stays_itself_while_its_neighbours_are_rewritten() {
    const READERS: usize = 32;
    let dir = tempfile::tempdir().unwrap();
    let options = Options { disk_objects: Some(64), host_bytes: 0, ..tiny() };
    let store = open(dir.path(), &options);
    let ns = namespace(&store, &layout(512), "a");
    let tokens = prompt(1, 8);
    put_and_wait(&ns, &tokens, Ack::Ssd);
    let (over, reads, whole) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..READERS {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    whole.fetch_add(u64::from(check(&ns, &tokens) == 8), Ordering::Relaxed);
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // Neighbours come and go for as long as it takes to read the prefix 1,000 times.
        for seed in 0.. {
            put_and_wait(&ns, &prompt(100 + seed % 50, 4), Ack::Ssd);
            put_and_wait(&ns, &tokens, Ack::Ssd);
            if seed >= 60 && reads.load(Ordering::Relaxed) >= 1000 {
                break;
            }
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(whole.into_inner() > 500, "most reads give the whole prefix");
    let stats = store.stats();
    assert!(stats.counters.evicted_disk > 0);
    assert_eq!(stats.counters.failed_checks, 0);
}

/// B1-16, second half: one bit that changes on the medium is a miss and counted, wherever it is.
#[test]
fn a_flipped_bit_is_a_miss_and_counted() {
    use std::os::unix::fs::FileExt;
    let dir = tempfile::tempdir().unwrap();
    let options = Options { host_bytes: 0, ..tiny() };
    let store = open(dir.path(), &options);
    let ns = namespace(&store, &layout(64), "a");
    let tokens = prompt(1, 6);
    put_and_wait(&ns, &tokens, Ack::Ssd);
    assert!(store.flush(soon()));
    let file =
        std::fs::File::options().read(true).write(true).open(dir.path().join("data")).unwrap();
    let keys = ns.keys(&tokens, &Extras::none()).unwrap();
    let places: Vec<u64> = (0..6).map(|slot| slot * 8192).collect();
    for (n, &place) in places.iter().enumerate() {
        let mut byte = [0];
        let at = place + (n as u64 * 1637) % 8192;
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1 << n], at).unwrap();
        file.sync_all().unwrap();
        let missed: Vec<_> = keys.iter().filter_map(|key| ns.lease_keys(&[*key]).1).collect();
        let failed = missed.iter().filter(|&&reason| reason == MissReason::FailedCheck).count();
        assert_eq!((failed, missed.len()), (1, n + 1), "bit {n} of the slot at {place}");
        assert_eq!(store.stats().counters.failed_checks, n as u64 + 1);
    }
}

/// B2-15, C3: two writers of one key, with different bytes: the first one wins, whole.
#[test]
fn writers_of_one_key_never_mix() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &tiny());
    for (record, rounds) in [(64, 60), (36_864, 12)] {
        let ns = namespace(&store, &layout(record), "m");
        let len = ns.layout().body_bytes() as usize;
        for round in 0..rounds {
            let key = ns.keys(&prompt(round, 1), &Extras::none()).unwrap()[0];
            let start = Barrier::new(4);
            let over = AtomicBool::new(false);
            let stored: Vec<(u8, Status)> = std::thread::scope(|scope| {
                let reader = scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        let (items, _) = ns.lease_keys(&[key]);
                        for item in &items {
                            let view = View::joined(item, 0..item.len()).unwrap();
                            let first = view.as_slice()[0];
                            assert!(view.as_slice().iter().all(|&byte| byte == first), "a mix");
                        }
                    }
                });
                let writers: Vec<_> = (1..=4_u8)
                    .map(|byte| {
                        let (ns, start) = (&ns, &start);
                        scope.spawn(move || {
                            let data = vec![byte; len];
                            let object = one_body(key, &data);
                            start.wait();
                            let options = PutOptions { ack: Ack::Ssd, ..PutOptions::default() };
                            let batch = ns.put_objects(&[object], options);
                            assert!(batch.wait(soon()));
                            (byte, batch.status()[0])
                        })
                    })
                    .collect();
                let stored = writers.into_iter().map(|w| w.join().unwrap()).collect();
                over.store(true, Ordering::Relaxed);
                reader.join().unwrap();
                stored
            });
            let taken = |s: &Status| matches!(s, Status::Stored | Status::Exists);
            assert!(stored.iter().all(|(_, status)| taken(status)), "{stored:?}");
            let (items, missed) = ns.lease_keys(&[key]);
            assert_eq!((items.len(), missed), (1, None), "round {round}");
            let view = View::joined(&items[0], 0..len).unwrap();
            let winner = view.as_slice()[0];
            assert!(view.as_slice().iter().all(|&byte| byte == winner));
            let won = stored.iter().find(|(byte, _)| *byte == winner).unwrap().1;
            assert_eq!(won, Status::Stored, "who won was told so: {stored:?}");
        }
    }
    assert_at_rest(&store);
}

/// B3-11: an object that was acknowledged is never absent before it is evicted, whatever moves.
#[test]
fn never_absent_between_stored_and_evicted() {
    let dir = tempfile::tempdir().unwrap();
    // Host memory is short, so the object goes back and forth between the tiers.
    let store = open(dir.path(), &Options { disk_bytes: 256 * MIB, ..tiny() });
    let ns = namespace(&store, &layout(2400), "m");
    let tokens = prompt(1, 2);
    put_and_wait(&ns, &tokens, Ack::Ssd);
    let over = AtomicBool::new(false);
    let looks = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    assert_eq!(check(&ns, &tokens), 2, "absent");
                    looks.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        // 150 MiB of others through a host tier of 24 MiB, in a disk tier that keeps them all.
        for seed in 0..250 {
            put_and_wait(&ns, &prompt(100 + seed, 2), Ack::Host);
            put_and_wait(&ns, &tokens, Ack::Ssd);
        }
        over.store(true, Ordering::Relaxed);
    });
    let stats = store.stats();
    assert_eq!(stats.counters.evicted_disk, 0);
    assert!(stats.counters.evicted_host > 0 && looks.into_inner() > 10);
}

/// B4-02: room for some 10 blocks, 8 fetches of 6 at a time: all end within the deadline, each
/// complete or with a clean miss, and the room comes back.
#[test]
fn fetches_that_compete_for_memory_all_end() {
    let dir = tempfile::tempdir().unwrap();
    let options =
        Options { read_deadline: Duration::from_secs(3), disk_bytes: 512 * MIB, ..tiny() };
    let store = open(dir.path(), &options);
    // One block of 1.5 MiB in each extent of 2 MiB, of which there are 11.
    let ns = namespace(&store, &layout(12_288), "m");
    for seed in 0..8 {
        put_and_wait(&ns, &prompt(seed, 6), Ack::Ssd);
    }
    let complete = AtomicU64::new(0);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for seed in 0..8 {
            let (ns, complete) = (&ns, &complete);
            scope.spawn(move || {
                for _ in 0..4 {
                    let got = check(ns, &prompt(seed, 6));
                    complete.fetch_add(u64::from(got == 6), Ordering::Relaxed);
                }
            });
        }
    });
    assert!(began.elapsed() < Duration::from_secs(4 * 3 + 20), "each ends at its deadline");
    assert_at_rest(&store);
    assert!(complete.into_inner() > 0, "some are complete");
    assert_eq!(check(&ns, &prompt(3, 6)), 6, "the room is back");
}
