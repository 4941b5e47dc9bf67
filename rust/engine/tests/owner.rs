//! One owner per directory (C9): who holds it, who is told, and when it is free again.

#![allow(clippy::print_stdout, reason = "roles speak to their test by it")]

mod common;

use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use kvstore_engine::host::{Arena, ArenaKind};
use kvstore_engine::io::{Device, File, OpenError, OpenOptions, PsyncDevice, fork};

const DIR: &str = "KVSTORE_TEST_DIR";

fn open(dir: &Path, lock_wait: Duration) -> Result<PsyncDevice, OpenError> {
    let arena = Arena::new(ArenaKind::Private, 64 << 10, 64 << 10).unwrap();
    let options = OpenOptions { lock_wait, threads: 1, ..OpenOptions::default() };
    PsyncDevice::open(dir, arena, &options)
}

fn at_once(dir: &Path) -> Result<PsyncDevice, OpenError> {
    open(dir, Duration::ZERO)
}

fn holder(dir: &Path) -> (String, Option<u32>) {
    match at_once(dir) {
        Err(OpenError::Locked { holder, pid, .. }) => (holder, pid),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("there are two owners"),
    }
}

/// An owner in another process, and the process id of the child it forked, if the role does.
fn owner(role: &str, dir: &Path) -> (Child, Option<libc::pid_t>) {
    let mut owner = common::command(role)
        .env(DIR, dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(owner.stdout.as_mut().unwrap()).lines();
    let said = lines.find_map(|line| {
        line.unwrap().split_once("owner forked ").map(|(_, child)| child.to_owned())
    });
    let child: libc::pid_t = said.unwrap().parse().unwrap();
    (owner, (child != 0).then_some(child))
}

fn kill(mut owner: Child) {
    owner.kill().unwrap();
    owner.wait().unwrap();
}

fn end(child: libc::pid_t) {
    // SAFETY: a plain system call; the child is one that a test's owner forked.
    unsafe { libc::kill(child, libc::SIGKILL) };
}

#[test]
fn a_second_owner_is_told_who_the_first_is() {
    let dir = tempfile::tempdir().unwrap();
    let (first, _) = owner("own", dir.path());
    let (said, pid) = holder(dir.path());
    assert_eq!(pid, Some(first.id()), "{said}");
    let error = at_once(dir.path()).err().unwrap().to_string();
    assert!(error.contains(&format!("in use by process {}", first.id())), "{error}");
    kill(first);
    at_once(dir.path()).unwrap();
}

#[test]
fn the_lock_falls_with_the_device_in_one_process() {
    let dir = tempfile::tempdir().unwrap();
    let first = at_once(dir.path()).unwrap();
    assert_eq!(holder(dir.path()).1, Some(std::process::id()));
    drop(first);
    at_once(dir.path()).unwrap();
}

#[test]
fn a_later_owner_waits_for_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    let first = at_once(dir.path()).unwrap();
    std::thread::scope(|scope| {
        let second = scope.spawn(|| open(dir.path(), Duration::from_secs(30)).map(drop));
        std::thread::sleep(Duration::from_millis(50));
        drop(first);
        second.join().unwrap().unwrap();
    });
}

#[test]
fn a_forked_child_does_not_keep_a_killed_owners_lock() {
    for role in ["own_and_fork", "own_and_clone"] {
        let dir = tempfile::tempdir().unwrap();
        let (first, child) = owner(role, dir.path());
        assert_eq!(holder(dir.path()).1, Some(first.id()), "the child unlocked its parent's files");
        kill(first);
        open(dir.path(), Duration::from_secs(5)).unwrap();
        end(child.unwrap());
    }
}

#[test]
fn a_child_that_keeps_the_files_is_named_as_a_cause() {
    let dir = tempfile::tempdir().unwrap();
    let (first, child) = owner("own_and_keep", dir.path());
    let pid = first.id();
    kill(first);
    let (said, named) = holder(dir.path());
    assert_eq!(named, None);
    assert!(said.contains(&format!("process {pid}, its owner, has ended")), "{said}");
    end(child.unwrap());
    open(dir.path(), Duration::from_secs(5)).unwrap();
}

#[test]
fn a_forked_child_can_neither_read_nor_write() {
    let dir = tempfile::tempdir().unwrap();
    let device = at_once(dir.path()).unwrap();
    device.grow(File::Superblock, 4096).unwrap();
    device.write_at(File::Superblock, 0, b"parent").unwrap();
    let child = common::fork(|| {
        let refused = |result: std::io::Result<()>| {
            result.is_err_and(|error| error.raw_os_error() == Some(libc::EBADF))
        };
        let reads = refused(device.read_at(File::Superblock, 0, &mut [0; 6]));
        let writes = refused(device.write_at(File::Superblock, 0, b"child!"));
        i32::from(reads) + 2 * i32::from(writes)
    });
    assert_eq!(common::wait(child), 3);
    let mut bytes = [0; 6];
    device.read_at(File::Superblock, 0, &mut bytes).unwrap();
    assert_eq!(&bytes, b"parent");
}

#[test]
fn nothing_is_left_of_closed_devices() {
    let output = common::command("open_often").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn in_a_role() {
    let dir = || PathBuf::from(std::env::var_os(DIR).unwrap());
    match common::role().as_deref() {
        Some("own") => own(&dir(), || 0),
        Some("own_and_fork") => own(&dir(), || common::fork(sleep)),
        Some("own_and_clone") => own(&dir(), || {
            raw_clone(|| {
                // SAFETY: this is a child with one thread.
                unsafe { fork::close_in_child() };
                sleep()
            })
        }),
        Some("own_and_keep") => own(&dir(), || raw_clone(sleep)),
        Some("open_often") => open_often(),
        _ => {}
    }
}

fn own(dir: &Path, fork: impl FnOnce() -> libc::pid_t) {
    let _device = at_once(dir).unwrap();
    println!("owner forked {}", fork());
    // Ends with the test run, should that end before it kills this process.
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// A child's life: until it is killed, or its test run has gone.
fn sleep() -> i32 {
    // The parent reads our standard output to its end, which a child must not keep open.
    // SAFETY: plain system calls.
    unsafe {
        libc::close(std::io::stdout().as_raw_fd());
        libc::close(std::io::stderr().as_raw_fd());
        libc::alarm(60);
        libc::pause()
    }
}

/// A fork that runs no handlers.
fn raw_clone(work: impl FnOnce() -> i32) -> libc::pid_t {
    // SAFETY: as fork: the child gets a copy of all memory and only makes system calls.
    let child = unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) };
    if child == 0 {
        let code = work();
        // SAFETY: ends the process without running anything.
        unsafe { libc::_exit(code) }
    }
    child.try_into().unwrap()
}

fn open_often() {
    // In memory where there is such a place: every open makes its directory durable.
    let dir = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let count = |what: &str| std::fs::read_dir(format!("/proc/self/{what}")).unwrap().count();
    let tasks = count("task");
    drop(at_once(dir.path()).unwrap());
    let before = (count("fd"), tasks);
    for _ in 0..500 {
        let device = at_once(dir.path()).unwrap();
        assert!(count("fd") > before.0);
        drop(device);
    }
    // A thread that was joined leaves /proc a moment later.
    let deadline = Instant::now() + Duration::from_secs(5);
    while count("task") != tasks && Instant::now() < deadline {
        std::thread::yield_now();
    }
    assert_eq!((count("fd"), count("task")), before);
    assert_eq!(fork::held(), 0);
}
