//! A store on file systems as they are: full, read-only, without O_DIRECT or preallocation.

use std::path::Path;

use kvstore_engine::ErrorKind;
use kvstore_engine::io::fault::{Fault, FaultDisk, FaultPlan, Rule};
use kvstore_engine::io::{File, OpKind};
use kvstore_engine::store::{Ack, Options, Reason, Status, Store};

use crate::mounts::{self, in_a_name_space};
use crate::support::*;
use crate::tools::*;

/// A file system with too little room for a new store says so at the open; with more, the same
/// directory works.
#[test]
fn a_full_file_system_is_named_at_the_open() {
    in_a_name_space("full_at_creation");
}

pub(crate) fn full_at_creation() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_mount) = mounts::memory(dir.path(), "size=4m") else { return };
    let error = Store::open(dir.path(), &options()).err().expect("no room");
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("No space left"), "{error}");
    mounts::change(dir.path(), 0, "size=64m");
    let store = open(dir.path(), &options());
    let ns = namespace(&store, &layout(32), "a");
    assert_eq!(put_and_wait(&ns, &prompt(1, 5), Ack::Ssd), [Status::Stored; 5]);
    assert_eq!(check(&ns, &prompt(1, 5)), 5);
    at_rest(&store);
}

/// B2-18: a file system of 64 MiB under a limit of 1 GiB, 200 MiB stored, then a foreign file that
/// takes the rest: every put is answered, what is there can be read, and the counter rises.
#[test]
fn a_file_system_smaller_than_the_limit_goes_on() {
    in_a_name_space("full_later");
}

pub(crate) fn full_later() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_mount) = mounts::memory(dir.path(), "size=64m") else { return };
    let home = dir.path().join("store");
    let options = Options { disk_bytes: 1024 * MIB, host_bytes: 0, ..options() };
    let store = open(&home, &options);
    let ns = namespace(&store, &layout(1600), "a");
    let blocks = 200 * MIB / ns.layout().body_bytes();
    let fill = |seeds: std::ops::Range<u32>| {
        for seed in seeds {
            let answers = put_and_wait(&ns, &prompt(seed, 20), Ack::Ssd);
            assert_eq!(answers, [Status::Stored; 20], "seed {seed}");
            assert_eq!(check(&ns, &prompt(seed, 20)), 20, "seed {seed}");
        }
    };
    let seeds = blocks as u32 / 20;
    fill(0..seeds);
    let stats = store.stats();
    assert!(stats.counters.no_space_evictions > 0 && stats.counters.evicted_disk > 0, "{stats:?}");
    std::fs::write(dir.path().join("foreign"), vec![1; 64 << 20]).unwrap_err();
    fill(1000..1000 + seeds);
    at_rest(&store);
    drop(ns);
    assert!(store.close());
    drop(store);

    let store = open(&home, &options);
    let ns = namespace(&store, &layout(1600), "a");
    let last = 1000 + seeds - 1;
    assert_eq!(check(&ns, &prompt(last, 20)), 20, "a full file system can be opened");
    std::fs::remove_file(dir.path().join("foreign")).unwrap();
    assert_eq!(put_and_wait(&ns, &prompt(5000, 20), Ack::Ssd), [Status::Stored; 20]);
    at_rest(&store);
}

/// A read-only file system is refused with the mend.
#[test]
fn a_read_only_file_system_is_named_at_the_open() {
    in_a_name_space("read_only_mount");
}

pub(crate) fn read_only_mount() {
    let dir = tempfile::tempdir().unwrap();
    let Some(_mount) = mounts::memory(dir.path(), "size=64m") else { return };
    let tokens = prompt(1, 5);
    let put = |store: &Store| {
        put_and_wait(&namespace(store, &layout(32), "a"), &tokens, Ack::Ssd);
    };
    put(&open(dir.path(), &options()));
    mounts::change(dir.path(), libc::MS_RDONLY, "");
    let error = Store::open(dir.path(), &options()).err().expect("nothing can be written");
    assert_eq!(error.kind(), ErrorKind::Io);
    assert!(error.to_string().contains("mount it for writing"), "{error}");
    mounts::change(dir.path(), 0, "");
    let store = open(dir.path(), &options());
    assert_eq!(check(&namespace(&store, &layout(32), "a"), &tokens), 5, "nothing was lost by it");
}

/// B2-10: where a file system takes no direct I/O the store works and says `buffered`.
#[test]
fn a_file_system_without_direct_io_works_and_says_so() {
    let dir = match tempfile::tempdir_in("/dev/shm") {
        Ok(dir) => dir,
        Err(error) => return skip(&format!("/dev/shm: {error}")),
    };
    let options = Options { disk_bytes: 80 * MIB, ..options() };
    let store = open(dir.path(), &options);
    let path = store.stats().disk.path;
    assert_eq!(path.direct, path.why.is_empty(), "a fallback says why: {path:?}");
    let ns = namespace(&store, &layout(32), "a");
    assert_eq!(put_and_wait(&ns, &prompt(1, 50), Ack::Ssd), [Status::Stored; 50]);
    drop(ns);
    drop(store);
    let store = open(dir.path(), &options);
    assert_eq!(check(&namespace(&store, &layout(32), "a"), &prompt(1, 50)), 50);
    at_rest(&store);
}

/// B2-11: where space cannot be set aside the files are sparse: the store works and says so.
#[test]
fn a_file_system_without_preallocation_works_and_says_so() {
    let disk = FaultDisk::new();
    let plan = FaultPlan { allocates: false, ..FaultPlan::default() };
    let (store, _) = on(&disk, plan.clone(), &options());
    let ns = namespace(&store, &layout(32), "a");
    assert_eq!(put_and_wait(&ns, &prompt(1, 50), Ack::Ssd), [Status::Stored; 50]);
    assert_eq!(store.stats().disk.path.allocation, "sparse");
    store.close();
    let (store, _) = on(&disk, plan, &options());
    assert_eq!(check(&namespace(&store, &layout(32), "a"), &prompt(1, 50)), 50);
    at_rest(&store);
}

/// B2-18 where files are sparse: a write that finds no space is answered, costs that slot only, and
/// the next puts take the place of what is older.
#[test]
fn a_write_that_finds_no_space_is_answered_and_the_next_goes_through() {
    let plan = FaultPlan { allocates: false, ..FaultPlan::default() };
    let (store, device) = on(&FaultDisk::new(), plan, &options());
    let ns = namespace(&store, &layout(32), "a");
    put_and_wait(&ns, &prompt(1, 50), Ack::Ssd);
    let full = Rule::once(File::Data, OpKind::Write, Fault::Errno(libc::ENOSPC));
    device.inject(Rule { count: 10, ..full });
    let answers = put_and_wait(&ns, &prompt(2, 5), Ack::Ssd);
    assert!(answers.contains(&Status::Rejected(Reason::NoSpace)), "{answers:?}");
    assert_eq!(check(&ns, &prompt(2, 5)), 5, "host memory has them");
    device.heal();
    for seed in 3..20 {
        assert_eq!(put_and_wait(&ns, &prompt(seed, 5), Ack::Ssd), [Status::Stored; 5]);
    }
    let stats = store.stats();
    assert!(stats.counters.no_space_evictions > 0 && !stats.disk.quarantined);
    assert_eq!(check(&ns, &prompt(1, 50)), 50);
    at_rest(&store);
}

/// B2-13: opening, using and closing a store 500 times under a limit of 256 descriptors leaves as
/// many as there were, and never takes half of them.
#[test]
fn descriptors_are_given_back() {
    let output = crate::common::command("open_often").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
}

pub(crate) fn open_often() {
    let limit = libc::rlimit { rlim_cur: 256, rlim_max: 256 };
    // SAFETY: a plain system call on a local value, in a process of this test's own.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    // In memory where there is such a place: every open makes its directory durable.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let options =
        Options { disk_bytes: 80 * MIB, host_bytes: 20 * MIB, io_threads: 2, ..options() };
    let count = |what: &str| std::fs::read_dir(format!("/proc/self/{what}")).unwrap().count();
    drop(open(dir.path(), &options));
    let before = (count("fd"), count("task"));
    for turn in 0..500 {
        let store = open(dir.path(), &options);
        let ns = namespace(&store, &layout(32), "a");
        let batch = put(&ns, &prompt(turn % 7, 4), 0, Ack::Ssd);
        batch.event().expect("a descriptor");
        assert!(batch.wait(soon()));
        for _ in 0..10 {
            assert_eq!(check(&ns, &prompt(turn % 7, 4)), 4);
        }
        assert!(count("fd") < 128);
    }
    assert_eq!((count("fd"), count("task")), before);
}

/// The directory of a store holds a handful of files however many objects there are (B2-08).
#[test]
fn objects_are_not_files() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &options());
    let files = |dir: &Path| std::fs::read_dir(dir).unwrap().count();
    let before = files(dir.path());
    let ns = namespace(&store, &layout(32), "a");
    for seed in 0..50 {
        put_and_wait(&ns, &prompt(seed, 50), Ack::Ssd);
    }
    assert_eq!(store.stats().objects, 2500);
    assert_eq!(files(dir.path()), before);
    assert!(before < 12, "{before} files");
}
