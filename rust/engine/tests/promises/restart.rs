//! What was stored is there after a restart, and only that.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use kvstore_engine::disk::descriptor::{Descriptor, Home, LEN};
use kvstore_engine::disk::place::Place;
use kvstore_engine::io::File;
use kvstore_engine::io::fault::{FaultDisk, FaultPlan};
use kvstore_engine::store::{Ack, Options, Status};
use kvstore_index::{Fingerprint, Kind};

use crate::common;
use crate::support::*;
use crate::tools::*;

const SEEDS: std::ops::Range<u32> = 0..20;

/// B2-01, B2-06: 1,000 blocks are 1,000 hits after a restart, as many as recovery reports; storing
/// them again writes nothing, and the used bytes are the same. What can be rebuilt may be lost: the
/// segment directory is deleted.
#[test]
fn a_restart_loses_and_rewrites_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let layout = layout(32);
    let used = {
        let store = open(dir.path(), &options());
        let ns = namespace(&store, &layout, "a");
        for seed in SEEDS {
            assert_eq!(put_and_wait(&ns, &prompt(seed, 50), Ack::Ssd), [Status::Stored; 50]);
        }
        at_rest(&store);
        let disk = store.stats().disk;
        assert!(store.close());
        (disk.objects, disk.slots, disk.logical)
    };
    for delete in [None, Some("directory")] {
        if let Some(name) = delete {
            std::fs::remove_file(dir.path().join(name)).unwrap();
        }
        let store = open(dir.path(), &options());
        let ns = namespace(&store, &layout, "a");
        assert_eq!(store.recovered().objects, 1000, "{:?}", store.recovered());
        assert_eq!(SEEDS.map(|seed| check(&ns, &prompt(seed, 50))).sum::<usize>(), 1000);
        for seed in SEEDS {
            assert_eq!(put_and_wait(&ns, &prompt(seed, 50), Ack::Ssd), [Status::Exists; 50]);
        }
        at_rest(&store);
        let stats = store.stats();
        assert_eq!((stats.disk.objects, stats.disk.slots, stats.disk.logical), used);
        assert_eq!(stats.counters.bytes_written, 0, "nothing is written again");
        assert!(store.close());
    }
}

/// B2-05: the data belongs to the directory, not to a process or a path: its id is stable, and the
/// moved directory is adopted by whoever opens it.
#[test]
fn a_moved_directory_is_the_same_store() {
    let home = tempfile::tempdir().unwrap();
    let (first, second) = (home.path().join("first"), home.path().join("second"));
    let tokens = prompt(1, 30);
    let id = {
        let store = open(&first, &options());
        put_and_wait(&namespace(&store, &layout(32), "a"), &tokens, Ack::Ssd);
        store.inspect().store
    };
    std::fs::rename(&first, &second).unwrap();
    let store = open(&second, &options());
    assert_eq!(store.inspect().store, id);
    assert_eq!(check(&namespace(&store, &layout(32), "a"), &tokens), 30);
    assert_ne!(open(&first, &options()).inspect().store, id, "a new store has a new id");
}

/// B2-14: a damaged object is a miss once and deleted by it; then it is stored afresh, and hits.
#[test]
fn a_damaged_object_is_dropped_and_stored_afresh() {
    let disk = FaultDisk::new();
    let layout = layout(32);
    let tokens = prompt(1, 10);
    {
        let (store, _) = on(&disk, FaultPlan::default(), &options());
        put_and_wait(&namespace(&store, &layout, "a"), &tokens, Ack::Ssd);
        store.close();
    }
    let (store, _) = on(&disk, FaultPlan::default(), &options());
    let ns = namespace(&store, &layout, "a");
    let last = payload(&keys(&ns, &tokens)[9], layout.body_bytes() as usize);
    let data = disk.contents(File::Data);
    let at = data.windows(64).position(|window| window == &last[..64]).expect("the last block");
    disk.flip_bit(File::Data, at + 1000, 3);

    assert_eq!(check(&ns, &tokens), 9, "the damaged one is a miss");
    assert_eq!(store.stats().counters.failed_checks, 1);
    assert_eq!(blocks_of(&ns, &tokens), 9, "and gone");
    let mut expected = vec![Status::Exists; 9];
    expected.push(Status::Stored);
    assert_eq!(put_and_wait(&ns, &tokens, Ack::Ssd), expected);
    assert_eq!(check(&ns, &tokens), 10);
    assert_eq!(store.stats().counters.failed_checks, 1);
    at_rest(&store);
}

/// B2-16: a process that ends without `close`, or by SIGTERM, leaves the same: what was
/// acknowledged as `ssd`, and what a `flush` had written.
#[test]
fn the_end_of_a_process_loses_nothing_that_was_acknowledged() {
    let layout = layout(32);
    for role in ["store_and_exit", "store_and_wait"] {
        let dir = tempfile::tempdir().unwrap();
        let mut child = common::command(role)
            .env(DIR, dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap().contains("all stored")));
        if role == "store_and_wait" {
            // SAFETY: a plain system call on the child that this test started.
            unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
        }
        child.wait().unwrap();
        let store = open(dir.path(), &options());
        let ns = namespace(&store, &layout, "a");
        assert_eq!(store.recovered().objects, 20, "{role}: {:?}", store.recovered());
        assert_eq!((check(&ns, &prompt(1, 10)), check(&ns, &prompt(2, 10))), (10, 10), "{role}");
    }
}

fn store_both_ways(dir: &Path) -> kvstore_engine::Store {
    let store = open(dir, &options());
    let ns = namespace(&store, &layout(32), "a");
    put_and_wait(&ns, &prompt(1, 10), Ack::Ssd);
    put_and_wait(&ns, &prompt(2, 10), Ack::Host);
    assert!(store.flush(soon()));
    println!("all stored");
    store
}

pub(crate) fn store_and_exit(dir: &Path) {
    let _store = store_both_ways(dir);
    std::process::exit(0)
}

pub(crate) fn store_and_wait(dir: &Path) {
    let _store = store_both_ways(dir);
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// Slots of 4 KiB in a segment of 16 MiB.
const SLOTS: u32 = 4096;
const MILLION: u64 = 1 << 20;

fn large() -> Options {
    Options {
        disk_bytes: 5 << 30,
        objects: Some(MILLION + 1000),
        host_bytes: 256 * MIB,
        ..options()
    }
}

/// B2-20: a store of a million objects opens with less than 200 bytes of memory for each, and its
/// first look-up is right at once.
#[test]
fn a_million_objects_open_within_200_bytes_each() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = prompt(1, 1);
    let (id, segment_bytes) = {
        let store = open(dir.path(), &large());
        let ns = namespace(&store, &layout(32), "a");
        assert_eq!(put_and_wait(&ns, &tokens, Ack::Ssd), [Status::Stored]);
        let inspection = store.inspect();
        (inspection.store, inspection.segment_bytes)
    };
    assert_eq!(segment_bytes, 16 * MIB);
    write_descriptors(dir.path(), id);
    let output = common::command("open_a_million").env(DIR, dir.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let line = said.lines().find_map(|line| line.split_once("bytes each: ")).expect("a number");
    let each: u64 = line.1.trim().parse().unwrap();
    assert!((40..200).contains(&each), "{each} bytes of memory for each object");
}

/// Fills segments 1 to 256 with descriptors of slots that were never written.
fn write_descriptors(dir: &Path, store: [u8; 16]) {
    use std::os::unix::fs::FileExt;
    let open = |name| std::fs::OpenOptions::new().write(true).open(dir.join(name)).unwrap();
    let (table, data) = (open("table"), open("data"));
    let segments = (MILLION / u64::from(SLOTS)) as u32;
    let region = u64::from(SLOTS) * LEN as u64;
    table.set_len(u64::from(segments + 1) * region).unwrap();
    data.set_len(u64::from(segments + 1) * 16 * MIB).unwrap();
    for segment in 1..=segments {
        let mut bytes = Vec::with_capacity(region as usize);
        for slot in 0..SLOTS {
            let number = u64::from(segment) << 32 | u64::from(slot);
            let mut fingerprint = [0; 16];
            fingerprint.copy_from_slice(&blake3::hash(&number.to_le_bytes()).as_bytes()[..16]);
            let place = Place { device: 0, segment, slot };
            let descriptor = Descriptor {
                fingerprint: Fingerprint(fingerprint),
                checksum: 0,
                parent_prefix: 0,
                sequence: 10 + number,
                depth: 0,
                tenant: 0,
                generation: 1,
                length: 4096,
                expires_at: 0,
                namespace: 0,
                class: 0,
                kind: Kind::Body,
                flags: 0,
            };
            bytes.extend(descriptor.encode(&Home { store, place }));
        }
        table.write_all_at(&bytes, u64::from(segment) * region).unwrap();
    }
}

pub(crate) fn open_a_million(dir: &Path) {
    let before = resident();
    let store = open(dir, &large());
    let grown = resident() - before;
    assert_eq!(store.recovered().objects, MILLION + 1, "{:?}", store.recovered());
    assert_eq!(check(&namespace(&store, &layout(32), "a"), &prompt(1, 1)), 1);
    println!("bytes each: {}", grown / MILLION);
}

/// Other classes, another block size or another model on the same directory: the old data is
/// invisible to the new namespace, and not destroyed until its space is needed.
#[test]
fn other_layouts_and_models_share_a_directory_without_harm() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = prompt(1, 40);
    let larger_blocks = || {
        let groups = vec![kvstore_layout::Group::entries("kv", 32, vec![0, 1])];
        std::sync::Arc::new(kvstore_layout::Layout::new("test", 128, groups).unwrap())
    };
    let uses = [(layout(32), "a"), (layout(200), "a"), (larger_blocks(), "a"), (layout(32), "b")];
    for (number, (layout, model)) in uses.iter().enumerate() {
        let store = open(dir.path(), &options());
        let ns = namespace(&store, layout, model);
        assert_eq!(blocks_of(&ns, &tokens), 0, "use {number} sees what others stored");
        put_and_wait(&ns, &tokens, Ack::Ssd);
        assert!(store.close());
    }
    let store = open(dir.path(), &options());
    for (number, (layout, model)) in uses.iter().enumerate() {
        let ns = namespace(&store, layout, model);
        let blocks = tokens.len() / layout.block_tokens() as usize;
        assert_eq!(check(&ns, &tokens), blocks, "use {number} is gone");
    }
    at_rest(&store);
}

/// A store full of one class, reopened and written with another: the new class reaches nine tenths
/// of the capacity within two capacities of writes.
#[test]
fn a_class_takes_over_from_another_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let options = Options { disk_bytes: 128 * MIB, host_bytes: 0, ..options() };
    let (small, large) = (layout(192), layout(1600));
    for (turn, layout) in [&small, &large, &small].into_iter().enumerate() {
        let store = open(dir.path(), &options);
        let ns = namespace(&store, layout, "a");
        let disk = store.stats().disk;
        let stride = layout.body_bytes().next_multiple_of(4096);
        let capacity = u64::from(disk.segments) * (disk.segment_bytes / stride);
        for seed in 0..(2 * capacity).div_ceil(50) as u32 {
            let answers = put_and_wait(&ns, &prompt(seed + 1000 * turn as u32, 50), Ack::Ssd);
            assert!(answers.iter().all(|&status| status == Status::Stored), "{answers:?}");
        }
        let held = store.stats().disk.classes[&(stride as u32)];
        assert!(held * 10 >= capacity * 9, "turn {turn}: {held} of {capacity} objects");
        at_rest(&store);
    }
}

/// Reopening with more adds segments, with less drops only what is in the last ones; what is above
/// the limit of the store's creation is refused with that number.
#[test]
fn a_store_reopens_with_other_limits() {
    let dir = tempfile::tempdir().unwrap();
    let layout = layout(1600);
    let of = |mib: u64| Options { disk_bytes: mib * MIB, host_bytes: 0, ..options() };
    let fill = |store: &kvstore_engine::Store, from: u32| {
        let ns = namespace(store, &layout, "a");
        (from..from + 40).for_each(|seed| drop(put_and_wait(&ns, &prompt(seed, 25), Ack::Ssd)));
        at_rest(store);
        store.stats().disk
    };
    let small = fill(&open(dir.path(), &of(112)), 0);
    let store = open(dir.path(), &of(224));
    assert_eq!(store.recovered().objects, small.objects);
    let large = fill(&store, 100);
    assert!(large.segments >= 2 * small.segments && large.objects > small.objects * 19 / 10);
    store.close();
    drop(store);

    let store = open(dir.path(), &of(112));
    let kept = store.recovered().objects;
    assert!(kept * 10 >= small.objects * 9, "{kept} of {}", small.objects);
    assert!(du(dir.path()) <= 112 * MIB);
    let ns = namespace(&store, &layout, "a");
    let read: usize = (100..140).map(|seed| check(&ns, &prompt(seed, 25))).sum();
    assert!(read > 0);
    assert_eq!(store.stats().counters.failed_checks, 0);
    assert_eq!(put_and_wait(&ns, &prompt(500, 25), Ack::Ssd), [Status::Stored; 25]);
    drop((ns, store));

    let error = kvstore_engine::Store::open(dir.path(), &of(1024)).err().expect("above the most");
    assert!(error.to_string().contains(&(4 * 112 * MIB).to_string()), "{error}");
}
