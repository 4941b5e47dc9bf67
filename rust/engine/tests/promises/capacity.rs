//! Limits are limits, and what goes is what is worth least.

use kvstore_engine::io::fault::{FaultDisk, FaultPlan};
use kvstore_engine::store::{Ack, Options, Status};

use crate::common;
use crate::support::*;
use crate::tools::*;

/// B3-01, B3-02: with nothing but the two limits given, and five times the capacity stored, the
/// directory stays within `disk_bytes` and the memory within `host_bytes`, index included.
#[test]
fn a_limit_holds_all_that_a_tier_keeps() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { disk_bytes: 100 * MIB, host_bytes: 24 * MIB, ..Options::new() };
    let store = open(dir.path(), &options);
    let ns = namespace(&store, &layout(1600), "a");
    let mut most = 0;
    for seed in 0..100 {
        let answers = put_and_wait(&ns, &prompt(seed, 25), Ack::Ssd);
        assert_eq!(answers, [Status::Stored; 25], "seed {seed}");
        most = most.max(du(dir.path()));
        let stats = store.stats();
        assert!(stats.host.arena + stats.host.index <= stats.host.limit, "{:?}", stats.host);
        assert!(stats.host.used <= stats.host.arena);
        let disk = &stats.disk;
        assert!(disk.slots + disk.descriptors + disk.fixed <= disk.limit, "{disk:?}");
    }
    let written = store.stats().counters.bytes_written;
    assert!(written >= 5 * 90 * MIB, "{written} bytes were written");
    assert!(most <= options.disk_bytes, "{most} bytes in the directory");
    assert!(most >= options.disk_bytes * 8 / 10, "the limit is there to be used: {most}");
    at_rest(&store);
}

/// B3-02, B3-09: what the process really takes stays near the limit of host memory while several
/// times that is put and read.
#[test]
fn memory_stays_near_its_limit() {
    let dir = tempfile::tempdir().unwrap();
    let output = common::command("fill_host_memory").env(DIR, dir.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let grown = said.lines().find_map(|line| line.split_once("grown by ")).expect("a number").1;
    let grown: u64 = grown.trim().parse().unwrap();
    assert!(grown >= 32 * MIB, "the limit is there to be used: {grown}");
    assert!(grown <= 64 * MIB + 24 * MIB, "{grown} bytes under a limit of 64 MiB");
}

pub(crate) fn fill_host_memory(dir: &std::path::Path) {
    let before = resident();
    let options = Options { host_bytes: 64 * MIB, disk_bytes: 200 * MIB, ..options() };
    let store = open(dir, &options);
    let ns = namespace(&store, &layout(1600), "a");
    for seed in 0..80 {
        put_and_wait(&ns, &prompt(seed, 20), Ack::Host);
        check(&ns, &prompt(seed / 2, 20));
    }
    println!("grown by {}", resident() - before);
}

/// A limit that holds nothing is refused, with the number that would do.
#[test]
fn a_tier_too_small_to_work_is_refused_with_the_number() {
    let dir = tempfile::tempdir().unwrap();
    let complaint = |options: Options| {
        let error = kvstore_engine::Store::open(dir.path(), &options).err().expect("an error");
        error.to_string()
    };
    let said = complaint(Options { disk_bytes: 0, ..options() });
    assert!(said.contains("disk_bytes is 0, at least "), "{said}");
    let said = complaint(Options { host_bytes: MIB, ..options() });
    assert!(said.contains("host_bytes is 1048576") && said.contains("give at least "), "{said}");
    let said = complaint(Options { objects: Some(0), ..options() });
    assert!(said.contains("objects is 0"), "{said}");
    assert!(
        std::fs::read_dir(dir.path()).unwrap().all(|file| { file.unwrap().file_name() != "data" })
            || du(dir.path()) < MIB,
        "a refused open leaves nothing that counts"
    );
}

/// A store of 128 blocks and as many as there is room for.
fn small(blocks: u64) -> (tempfile::TempDir, kvstore_engine::Store) {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { disk_objects: Some(blocks), host_bytes: 0, ..options() };
    let store = open(dir.path(), &options);
    (dir, store)
}

/// B3-05: a prefix of 128 blocks, stored in 8 batches, loses its tail to newer blocks, never its
/// head: after 32 had to go the blocks 0 to 95 are left.
#[test]
fn a_prefix_is_evicted_from_its_tail() {
    let (_dir, store) = small(128);
    let ns = namespace(&store, &layout(32), "a");
    let tokens = prompt(1, 128);
    for batch in 1..=8 {
        let so_far = &tokens[..batch * 16 * BLOCK_TOKENS as usize];
        let batch = put(&ns, so_far, (batch - 1) * 16, Ack::Ssd);
        assert!(batch.wait(soon()));
        assert_eq!(batch.status(), [Status::Stored; 16]);
    }
    for seed in 0..32 {
        assert_eq!(put_and_wait(&ns, &prompt(100 + seed, 1), Ack::Ssd), [Status::Stored]);
    }
    assert_eq!(store.stats().counters.evicted_disk, 32);
    assert_eq!(check(&ns, &tokens), 96);
    assert_eq!((0..32).map(|seed| check(&ns, &prompt(100 + seed, 1))).sum::<usize>(), 32);
    at_rest(&store);
}

/// B3-05 again: the common head of two branches outlives both tails.
#[test]
fn a_common_head_outlives_its_branches() {
    let (_dir, store) = small(100);
    let ns = namespace(&store, &layout(32), "a");
    let head = prompt(1, 20);
    let branch = |seed: u32| -> Vec<u32> {
        head.iter().copied().chain(prompt(seed, 20).into_iter().map(|t| t + 1)).collect()
    };
    let (left, right) = (branch(2), branch(3));
    put_and_wait(&ns, &left, Ack::Ssd);
    put_and_wait(&ns, &right, Ack::Ssd);
    for seed in 0..80 {
        put_and_wait(&ns, &prompt(100 + seed, 1), Ack::Ssd);
        let (left, right) = (blocks_of(&ns, &left), blocks_of(&ns, &right));
        // Being looked at keeps them young; what goes is filler from then on, or a tail.
        assert!(left >= 20 && right >= 20, "{left} and {right} with {seed} of the filler");
    }
    at_rest(&store);
}

/// B3-07: with 90 of 100 used, 20 more cost exactly 10.
#[test]
fn eviction_takes_the_shortfall_and_no_more() {
    let (_dir, store) = small(100);
    let ns = namespace(&store, &layout(32), "a");
    assert_eq!(put_and_wait(&ns, &prompt(1, 90), Ack::Ssd), [Status::Stored; 90]);
    assert_eq!(put_and_wait(&ns, &prompt(2, 20), Ack::Ssd), [Status::Stored; 20]);
    let stats = store.stats();
    assert_eq!((stats.counters.evicted_disk, stats.disk.objects), (10, 100));
    assert_eq!((check(&ns, &prompt(1, 90)), check(&ns, &prompt(2, 20))), (80, 20));
    at_rest(&store);
}

/// B3-07 at the limit in bytes: a store whose slots are all taken gives up as many as are asked.
#[test]
fn a_full_tier_gives_up_as_many_slots_as_are_asked() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &Options { disk_bytes: 100 * MIB, host_bytes: 0, ..options() });
    let ns = namespace(&store, &layout(4096), "a");
    let disk = store.stats().disk;
    let stride = ns.layout().body_bytes().next_multiple_of(4096);
    let capacity = u64::from(disk.segments) * (disk.segment_bytes / stride);
    for seed in 0..capacity as u32 {
        assert_eq!(put_and_wait(&ns, &prompt(seed, 1), Ack::Ssd), [Status::Stored]);
    }
    assert_eq!((store.stats().disk.objects, store.stats().counters.evicted_disk), (capacity, 0));
    assert_eq!(put_and_wait(&ns, &prompt(9999, 20), Ack::Ssd), [Status::Stored; 20]);
    let stats = store.stats();
    assert_eq!((stats.disk.objects, stats.counters.evicted_disk), (capacity, 20));
    assert_eq!(check(&ns, &prompt(9999, 20)), 20);
    at_rest(&store);
}

/// B3-07 in host memory: a full arena gives up as many slots as are asked for.
#[test]
fn a_full_host_tier_gives_up_as_many_slots_as_are_asked() {
    let (store, _) = on(&FaultDisk::new(), FaultPlan::default(), &options());
    let ns = namespace(&store, &layout(1600), "a");
    let mut seed = 0;
    while store.stats().counters.evicted_host == 0 {
        put_and_wait(&ns, &prompt(seed, 1), Ack::Ssd);
        seed += 1;
    }
    assert!(store.flush(soon()));
    let before = store.stats();
    assert_eq!(before.counters.evicted_host, 1);
    put_and_wait(&ns, &prompt(9999, 7), Ack::Ssd);
    let after = store.stats();
    assert_eq!(after.counters.evicted_host, 8);
    assert_eq!(after.host.used, before.host.used);
    assert_eq!(after.counters.evicted, 0, "all of them are on disk");
    at_rest(&store);
}

/// B3-08: a sequence larger than the host tier is cut to a prefix that fits or answered `Busy`,
/// and written behind in time all of it goes through; memory stays within the limit throughout.
#[test]
fn a_sequence_larger_than_host_memory_is_cut_or_streams() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { host_bytes: 24 * MIB, disk_bytes: 128 * MIB, ..options() };
    let store = open(dir.path(), &options);
    let ns = namespace(&store, &layout(4096), "a");
    put_and_wait(&ns, &prompt(1, 4), Ack::Ssd);
    let blocks = 60 * MIB / ns.layout().body_bytes();
    let tokens = prompt(2, blocks as u32);
    let answers = put_and_wait(&ns, &tokens, Ack::Host);
    let stored = answers.iter().take_while(|&&answer| answer == Status::Stored).count();
    assert!(stored > 0 && answers[stored..].iter().all(|&s| s == Status::Busy), "{answers:?}");
    let host = store.stats().host;
    assert!(host.used <= host.arena && host.arena + host.index <= 24 * MIB);
    assert_eq!(blocks_of(&ns, &tokens), stored, "a prefix without holes");
    let answers = put_and_wait(&ns, &tokens, Ack::Ssd);
    assert!(answers.iter().all(|s| matches!(s, Status::Stored | Status::Exists)), "{answers:?}");
    let stats = store.stats();
    assert_eq!((stats.counters.evicted, stats.counters.evicted_disk), (0, 0));
    assert_eq!(check(&ns, &prompt(1, 4)), 4, "nothing was lost for it");
    at_rest(&store);
}

/// A disk tier smaller than the host tier: children that only host memory has do not keep the disk
/// tier from taking what comes.
#[test]
fn a_disk_smaller_than_host_memory_goes_on_taking_blocks() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { disk_objects: Some(20), ..options() };
    let store = open(dir.path(), &options);
    let ns = namespace(&store, &layout(32), "a");
    let tokens = prompt(1, 200);
    for blocks in (10..=200).step_by(10) {
        let so_far = &tokens[..blocks * BLOCK_TOKENS as usize];
        let batch = put(&ns, so_far, blocks - 10, Ack::Host);
        assert!(batch.wait(soon()));
        assert_eq!(batch.status(), [Status::Stored; 10], "{blocks} blocks");
    }
    for seed in 2..40 {
        let answers = put_and_wait(&ns, &prompt(seed, 10), Ack::Ssd);
        assert_eq!(answers, [Status::Stored; 10], "seed {seed}: {:?}", store.stats());
        assert!(store.stats().disk.objects <= 20);
    }
    at_rest(&store);
    assert_eq!(check(&ns, &prompt(39, 10)), 10);
}

/// The smallest store: the fewest segments and the smallest arena do all that a large one does.
#[test]
fn the_smallest_store_works() {
    let dir = tempfile::tempdir().unwrap();
    let host_bytes = 20 * MIB;
    let disk_bytes = 80 * MIB;
    let options = Options { host_bytes, disk_bytes, ..options() };
    let store = open(dir.path(), &options);
    let (small, large) =
        (namespace(&store, &layout(32), "a"), namespace(&store, &layout(4096), "a"));
    for seed in 0..60 {
        for (ns, blocks) in [(&small, 20), (&large, 8)] {
            let tokens = prompt(seed, blocks);
            let answers = put_and_wait(ns, &tokens, Ack::Ssd);
            assert_eq!(answers, vec![Status::Stored; blocks as usize], "seed {seed}");
            assert_eq!(check(ns, &tokens), blocks as usize, "seed {seed}");
        }
    }
    assert!(du(dir.path()) <= disk_bytes);
    at_rest(&store);
}
