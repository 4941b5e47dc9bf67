//! What is in a directory when a store is opened there, and who else has it open.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use kvstore_engine::ErrorKind;
use kvstore_engine::host::ArenaKind;
use kvstore_engine::io::File;
use kvstore_engine::io::fault::{FaultDisk, FaultPlan};
use kvstore_engine::store::{Ack, Options, Status, Store};

use crate::common;
use crate::support::*;
use crate::tools::*;

fn complaint(dir: &Path, options: &Options) -> (ErrorKind, String) {
    let error = Store::open(dir, options).err().expect("an error");
    (error.kind(), error.to_string())
}

/// C9: a second open in one process is the same engine, counted; other limits are refused.
#[test]
fn a_second_open_in_one_process_is_the_same_engine() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (open(dir.path(), &options()), open(dir.path(), &options()));
    let tokens = prompt(1, 5);
    put_and_wait(&namespace(&first, &layout(32), "a"), &tokens, Ack::Host);
    assert_eq!(check(&namespace(&second, &layout(32), "a"), &tokens), 5);
    let (kind, said) = complaint(dir.path(), &Options { disk_bytes: 300 * MIB, ..options() });
    assert_eq!(kind, ErrorKind::InvalidArgument);
    assert!(said.contains("other options"), "{said}");
    assert!(first.close() && first.close(), "closing twice is closing once");
    assert_eq!(check(&namespace(&second, &layout(32), "a"), &tokens), 5, "the other handle works");
    assert!(second.close());
    let larger = open(dir.path(), &Options { disk_bytes: 300 * MIB, ..options() });
    assert_eq!(check(&namespace(&larger, &layout(32), "a"), &tokens), 5);
}

/// An owner in another process; the line that it said after `ready`.
fn owner(role: &str, dir: &Path) -> (Child, String) {
    let mut owner = common::command(role)
        .env(DIR, dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(owner.stdout.as_mut().unwrap()).lines();
    let said =
        lines.find_map(|line| line.unwrap().split_once("ready ").map(|(_, rest)| rest.to_owned()));
    (owner, said.expect("the owner is ready"))
}

pub(crate) fn own(dir: &Path, then: &str) {
    let arena = if then == "share" { ArenaKind::Shared } else { ArenaKind::Private };
    let store = open(dir, &Options { arena, ..options() });
    let ns = namespace(&store, &layout(192), "a");
    put_and_wait(&ns, &prompt(1, 20), Ack::Ssd);
    let child = if then == "fork" {
        common::fork(|| {
            // The test reads our standard output to its end, which a child must not keep open.
            // SAFETY: plain system calls.
            unsafe {
                libc::close(1);
                libc::close(2);
                libc::alarm(60);
                libc::pause()
            }
        })
    } else {
        0
    };
    println!("ready {child}");
    if then == "write" {
        // Until it is killed, or for as long as a test may take.
        for seed in 2..20_000 {
            let _on_its_way = put(&ns, &prompt(seed, 20), 0, Ack::Ssd);
        }
    }
    let _ = std::io::stdin().read(&mut [0]);
}

/// C9, B2-17: another process gets an error that names the owner; when that was killed, with writes
/// in flight or with a forked child alive, an open waits for its last write and succeeds.
#[test]
fn another_process_is_told_the_owner_and_succeeds_after_a_kill() {
    for role in ["own_store", "own_and_write", "own_and_fork"] {
        let dir = tempfile::tempdir().unwrap();
        let (mut owner, child) = owner(role, dir.path());
        let at_once = Options { lock_wait: Duration::ZERO, ..options() };
        let (kind, said) = complaint(dir.path(), &at_once);
        assert_eq!(kind, ErrorKind::Locked);
        assert!(said.contains(&format!("process {}", owner.id())), "{said}");
        owner.kill().unwrap();
        let store = open(dir.path(), &Options { lock_wait: Duration::from_secs(5), ..options() });
        owner.wait().unwrap();
        let ns = namespace(&store, &layout(192), "a");
        assert_eq!(check(&ns, &prompt(1, 20)), 20, "{role}: what was acknowledged");
        let read: usize = (2..200).map(|seed| check(&ns, &prompt(seed, 20))).sum();
        assert!(read < 4000);
        assert_eq!(store.stats().counters.failed_checks, 0, "{role}");
        at_rest(&store);
        let child: libc::pid_t = child.parse().unwrap();
        if child > 0 {
            // SAFETY: a plain system call on the child that the role of this test forked.
            unsafe { libc::kill(child, libc::SIGKILL) };
        }
    }
}

/// B2-12: 20 killed owners leave no shared memory: the arena has no name in any file system, and
/// the next open works.
#[test]
fn killed_owners_leave_no_shared_memory() {
    let dir = tempfile::tempdir().unwrap();
    let named = || -> Vec<_> {
        let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name());
        names.filter(|name| name.to_string_lossy().contains("kvstore")).collect()
    };
    let before = named();
    for turn in 0..20 {
        let (mut owner, _) = owner("own_and_share", dir.path());
        let maps = std::fs::read_to_string(format!("/proc/{}/maps", owner.id())).unwrap();
        let arena = maps.lines().find(|line| line.contains("memfd:kvstore-arena"));
        let arena = arena.expect("the arena is mapped");
        assert!(arena.ends_with("(deleted)"), "no name to be left behind, turn {turn}: {arena}");
        owner.kill().unwrap();
        owner.wait().unwrap();
    }
    assert_eq!(named(), before);
    let store = open(dir.path(), &Options { arena: ArenaKind::Shared, ..options() });
    assert_eq!(check(&namespace(&store, &layout(192), "a"), &prompt(1, 20)), 20);
}

/// Names and contents of all files.
fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    let files = entries
        .map(|file| (file.file_name().into_string().unwrap(), std::fs::read(file.path()).unwrap()));
    // Who had it open last is no content.
    files.filter(|(name, _)| name != "owner").collect()
}

/// A store of `blocks` blocks in a directory of its own.
fn stored(blocks: u32) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &options());
    put_and_wait(&namespace(&store, &layout(32), "a"), &prompt(1, blocks), Ack::Ssd);
    dir
}

/// B1-07: a directory of another format version is named, and not touched.
#[test]
fn another_format_version_is_refused_and_left_alone() {
    use std::os::unix::fs::FileExt;
    let dir = stored(5);
    let path = dir.path().join("superblock");
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    for copy in [0, 64 * 1024] {
        file.write_all_at(&2_u32.to_le_bytes(), copy + 8).unwrap();
    }
    let before = contents(dir.path());
    let (kind, said) = complaint(dir.path(), &options());
    assert_eq!(kind, ErrorKind::Incompatible);
    assert!(said.contains("format version 2, this build reads version 1"), "{said}");
    assert!(contents(dir.path()) == before, "the other version's data is left as it was");
}

/// A directory with foreign files: those with other names are left alone; one that has a name of
/// ours is neither used nor overwritten.
#[test]
fn foreign_files_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("notes.txt"), b"mine").unwrap();
    std::fs::create_dir(dir.path().join("photos")).unwrap();
    let store = open(dir.path(), &options());
    put_and_wait(&namespace(&store, &layout(32), "a"), &prompt(1, 5), Ack::Ssd);
    drop(store);
    assert_eq!(std::fs::read(dir.path().join("notes.txt")).unwrap(), b"mine");
    assert!(dir.path().join("photos").is_dir());

    for name in ["superblock", "namespaces", "tenants", "directory", "table", "data"] {
        let dir = tempfile::tempdir().unwrap();
        let precious: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        std::fs::write(dir.path().join(name), &precious).unwrap();
        let (kind, said) = complaint(dir.path(), &options());
        assert_eq!(kind, ErrorKind::Incompatible, "{name}: {said}");
        assert!(std::fs::read(dir.path().join(name)).unwrap() == precious, "{name} was changed");
    }
}

/// B2-07: a superblock that is empty, short, torn or gone: one good copy is enough, and without one
/// the store is refused rather than made anew over the data.
#[test]
fn a_damaged_superblock_never_costs_the_data() {
    type Damage = fn(&mut Vec<u8>);
    let harmless: [Damage; 4] = [
        |_| {},
        |bytes| bytes.truncate(64 * 1024 + 4096),
        |bytes| bytes[100] ^= 1,
        |bytes| bytes[64 * 1024..64 * 1024 + 4096].fill(0),
    ];
    let fatal: [Damage; 4] = [
        Vec::clear,
        |bytes| bytes.truncate(100),
        |bytes| bytes.fill(0),
        |bytes| (0..2).for_each(|copy| bytes[copy * 64 * 1024 + 100] ^= 1),
    ];
    let dir = stored(5);
    let path = dir.path().join("superblock");
    let good = std::fs::read(&path).unwrap();
    for (number, damage) in fatal.iter().enumerate() {
        let mut bytes = good.clone();
        damage(&mut bytes);
        std::fs::write(&path, &bytes).unwrap();
        let before = contents(dir.path());
        let (kind, said) = complaint(dir.path(), &options());
        assert_eq!(kind, ErrorKind::Incompatible, "{number}: {said}");
        assert!(contents(dir.path()) == before, "{number}");
    }
    std::fs::remove_file(&path).unwrap();
    assert_eq!(complaint(dir.path(), &options()).0, ErrorKind::Incompatible);
    for damage in harmless {
        let mut bytes = good.clone();
        damage(&mut bytes);
        std::fs::write(&path, &bytes).unwrap();
        let store = open(dir.path(), &options());
        assert_eq!(check(&namespace(&store, &layout(32), "a"), &prompt(1, 5)), 5);
    }
}

/// Truncated files: whatever is missing, the store opens, gives exact bytes or misses, and takes
/// new blocks that survive.
#[test]
fn truncated_files_cost_what_they_held() {
    let good = stored(40);
    for name in ["namespaces", "tenants", "directory", "table", "data"] {
        for keep in [0, 4096, 300_000] {
            let dir = tempfile::tempdir().unwrap();
            for (file, bytes) in contents(good.path()) {
                let bytes = if file == name { &bytes[..keep.min(bytes.len())] } else { &bytes };
                std::fs::write(dir.path().join(file), bytes).unwrap();
            }
            {
                let store = open(dir.path(), &options());
                let ns = namespace(&store, &layout(32), "a");
                let kept = check(&ns, &prompt(1, 40));
                // The record of the only namespace, and the descriptors of the only segment.
                let enough = matches!((name, keep), ("namespaces", 4096..) | ("table", 300_000..));
                let all = enough || matches!(name, "directory" | "tenants");
                assert_eq!(kept, if all { 40 } else { 0 }, "{name} of {keep} bytes");
                let answers = put_and_wait(&ns, &prompt(2, 40), Ack::Ssd);
                assert_eq!(answers, [Status::Stored; 40], "{name} of {keep} bytes");
                assert_eq!(put_and_wait(&ns, &prompt(1, 40), Ack::Ssd).len(), 40);
            }
            let store = open(dir.path(), &options());
            let ns = namespace(&store, &layout(32), "a");
            assert_eq!(
                (check(&ns, &prompt(1, 40)), check(&ns, &prompt(2, 40))),
                (40, 40),
                "{name}"
            );
            assert_eq!(store.stats().counters.failed_checks, 0, "{name} of {keep} bytes");
        }
    }
}

/// B2-09: one flipped bit anywhere in any file: exact bytes or misses, never others, and a store
/// that goes on.
#[test]
fn a_flipped_bit_anywhere_is_a_miss_at_most() {
    let disk = FaultDisk::new();
    {
        let (store, _) = on(&disk, FaultPlan::default(), &options());
        put_and_wait(&namespace(&store, &layout(32), "a"), &prompt(1, 40), Ack::Ssd);
        store.close();
    }
    let images: Vec<_> = File::ALL.iter().map(|&file| (file, disk.contents(file))).collect();
    let mut state = 1_u64;
    let mut random = |below: usize| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for turn in 0..24 {
        let (file, image) = &images[turn % images.len()];
        // Where something is: the first pages of a file.
        let at = random(image.len().min(200_000));
        let disk = FaultDisk::new();
        for (file, image) in &images {
            disk.overwrite(*file, 0, image);
        }
        disk.flip_bit(*file, at, random(8) as u32);
        let (store, _) = on(&disk, FaultPlan::default(), &options());
        let ns = namespace(&store, &layout(32), "a");
        let kept = check(&ns, &prompt(1, 40));
        assert!(kept == 40 || *file != File::Superblock, "the other superblock is whole");
        let answers = put_and_wait(&ns, &prompt(1, 40), Ack::Ssd);
        assert!(
            answers.iter().all(|s| matches!(s, Status::Stored | Status::Exists)),
            "{answers:?}"
        );
        assert_eq!(check(&ns, &prompt(1, 40)), 40, "{file} byte {at}");
        at_rest(&store);
    }
}
