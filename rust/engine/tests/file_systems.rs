//! What a device does on the file systems it meets. Mounts live in a name space of their own,
//! which goes with the process that made it; without the right to mount, those tests say so.

#![allow(clippy::print_stdout, reason = "roles speak to their test by it")]

mod common;

use std::ffi::CString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvstore_engine::host::{Arena, ArenaKind, Buf};
use kvstore_engine::io::{Device, File, IoErrorKind, Op, OpenError, OpenOptions, PsyncDevice};

fn arena() -> Arc<Arena> {
    Arena::new(ArenaKind::Private, 4 << 20, 1 << 20).unwrap()
}

fn open(dir: &Path) -> Result<PsyncDevice, OpenError> {
    PsyncDevice::open(dir, arena(), &OpenOptions::default())
}

fn complaint(dir: &Path) -> String {
    open(dir).err().map(|error| error.to_string()).unwrap_or_default()
}

/// Writes and reads a buffer, on whichever path the file system takes, and says which.
fn round_trip(dir: &Path) -> String {
    let arena = arena();
    let device = PsyncDevice::open(dir, Arc::clone(&arena), &OpenOptions::default()).unwrap();
    device.grow(File::Data, 1 << 20).unwrap();
    let (from, to) = (
        Buf { extent: 0, offset: 0, len: 256 << 10 },
        Buf { extent: 1, offset: 0, len: 256 << 10 },
    );
    // SAFETY: no operation is in flight.
    unsafe { arena.bytes_mut(from) }.fill(0x5A);
    for op in [Op::write(1, File::Data, 65536, from), Op::read(2, File::Data, 65536, to)] {
        assert_eq!(device.submit(&[op]), 1);
        let mut done = Vec::new();
        while device.complete(&mut done, Instant::now() + Duration::from_secs(30)) == 0 {}
        assert!(done[0].result.is_ok(), "{done:?}");
    }
    // SAFETY: as above.
    assert!(unsafe { arena.bytes(to) }.iter().all(|&byte| byte == 0x5A));
    let path = device.path_in_use();
    assert_eq!(path.direct, path.why.is_empty(), "{path:?}");
    assert!(path.unit >= 4096 && path.unit.is_power_of_two());
    let direct = if path.direct { "direct" } else { "buffered" };
    format!("{direct}, unit {}, {} {}", path.unit, path.allocation, path.why)
}

#[test]
fn a_device_works_where_tests_keep_their_files() {
    let dir = tempfile::tempdir().unwrap();
    let new = dir.path().join("a/new/place");
    round_trip(&new);
    let probe = new.join("probe");
    assert!(!probe.exists(), "the probe is gone");
}

#[test]
fn a_device_works_in_shared_memory() {
    match tempfile::tempdir_in("/dev/shm") {
        Ok(dir) => drop(round_trip(dir.path())),
        Err(error) => skip(&format!("/dev/shm: {error}")),
    }
}

#[test]
fn buffered_files_are_used_when_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let options = OpenOptions { direct: false, ..OpenOptions::default() };
    let path = PsyncDevice::open(dir.path(), arena(), &options).unwrap().path_in_use();
    assert_eq!((path.direct, path.why.as_str()), (false, "buffered files were asked for"));
}

#[test]
fn errors_name_the_path_and_the_mend() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, b"").unwrap();
    let said = complaint(&file);
    assert!(
        said.contains("/file: ") && said.contains("a store needs a directory of its own"),
        "{said}"
    );
    std::fs::create_dir(dir.path().join("data")).unwrap();
    let said = complaint(dir.path());
    assert!(said.contains("/data: ") && said.contains("move it away"), "{said}");
}

#[test]
fn files_are_for_their_user_only() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let home = dir.path().join("store");
    drop(open(&home).unwrap());
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&home), mode(&home.join("data"))), (0o700, 0o600));
}

#[test]
fn a_device_works_on_an_overlay() {
    in_a_name_space("overlay");
}

#[test]
fn a_full_file_system_says_so_and_stays_as_it_was() {
    in_a_name_space("full");
}

#[test]
fn a_read_only_file_system_is_refused_with_the_mend() {
    in_a_name_space("read_only");
}

#[test]
fn closing_waits_for_a_stuck_write_no_longer_than_asked() {
    in_a_name_space("frozen");
}

#[test]
fn in_a_role() {
    let Some(role) = common::role() else { return };
    let dir = tempfile::tempdir().unwrap();
    if let Err(reason) = own_mounts() {
        return skip(&reason);
    }
    match role.as_str() {
        "overlay" => overlay(dir.path()),
        "full" => full(dir.path()),
        "read_only" => read_only(dir.path()),
        "frozen" => frozen(dir.path()),
        other => panic!("no role {other}"),
    }
}

fn overlay(dir: &Path) {
    let place = |name: &str| dir.join(name);
    for name in ["base", "lower", "upper", "work", "merged"] {
        std::fs::create_dir(place(name)).unwrap();
    }
    let path = |name: &str| place(name).display().to_string();
    let options =
        format!("lowerdir={},upperdir={},workdir={}", path("lower"), path("upper"), path("work"));
    match mount("overlay", &place("merged"), 0, &options) {
        Ok(_mount) => say(&round_trip(&place("merged"))),
        Err(reason) => skip(&reason),
    }
}

fn full(dir: &Path) {
    let _mount = match mount("tmpfs", dir, 0, "size=2m") {
        Ok(mount) => mount,
        Err(reason) => return skip(&reason),
    };
    let arena = arena();
    let device = PsyncDevice::open(dir, Arc::clone(&arena), &OpenOptions::default()).unwrap();
    device.grow(File::Data, 1 << 20).unwrap();
    let error = device.grow(File::Data, 8 << 20).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StorageFull);
    assert_eq!(device.len(File::Data).unwrap(), 1 << 20);

    let buf = Buf { extent: 0, offset: 0, len: 1 << 20 };
    let writes: Vec<Op> = (0..4).map(|at| Op::write(at, File::Data, at << 20, buf)).collect();
    assert_eq!(device.submit(&writes), 4);
    let mut done = Vec::new();
    while done.len() < 4 {
        device.complete(&mut done, Instant::now() + Duration::from_secs(30));
    }
    let failed: Vec<_> = done.iter().filter_map(|one| one.result.err()).collect();
    assert!(!failed.is_empty() && failed.iter().all(|error| error.kind == IoErrorKind::NoSpace));
    drop(device);
    let said = complaint(dir);
    assert!(said.is_empty() || said.contains("make space"), "{said}");
}

fn read_only(dir: &Path) {
    let _mount = match mount("tmpfs", dir, libc::MS_RDONLY, "") {
        Ok(mount) => mount,
        Err(reason) => return skip(&reason),
    };
    let said = complaint(dir);
    assert!(said.contains("mount it for writing"), "{said}");
}

/// A frozen file system lets no write end. Nothing is asserted before it thaws.
fn frozen(dir: &Path) {
    let (image, at) = (dir.join("image"), dir.join("mounted"));
    std::fs::File::create(&image).and_then(|file| file.set_len(16 << 20)).unwrap();
    std::fs::create_dir(&at).unwrap();
    let tool = |line: &[&str], path: &Path| {
        let output = Command::new(line[0]).args(&line[1..]).arg(path).output();
        output.is_ok_and(|output| output.status.success())
    };
    let made = tool(&["mkfs.ext4", "-q", "-F"], &image)
        && tool(&["mount", "-o", "loop", image.to_str().unwrap()], &at);
    if !made {
        return skip("no ext4 in a loop device");
    }
    let _mount = Mount(at.clone());
    let device = open(&at).unwrap();
    device.grow(File::Data, 1 << 20).unwrap();
    if !tool(&["fsfreeze", "-f"], &at) {
        return skip("no fsfreeze");
    }
    let buf = Buf { extent: 0, offset: 0, len: 4096 };
    let writes: Vec<Op> = (0..20).map(|at| Op::write(at, File::Data, 4096 * at, buf)).collect();
    device.submit(&writes);
    let closed = device.close(Instant::now() + Duration::from_millis(100));
    let left = device.in_flight();
    let mut done = Vec::new();
    device.complete(&mut done, Instant::now());
    let thawed = tool(&["fsfreeze", "-u"], &at);

    assert!(thawed && !closed);
    assert_eq!(left, 20);
    let kinds: Vec<_> = done.iter().map(|one| one.result.map_err(|error| error.kind)).collect();
    let running = 20 - kinds.len();
    assert!((1..=8).contains(&running), "{kinds:?}");
    assert!(kinds.iter().all(|kind| *kind == Err(IoErrorKind::Closed)), "{kinds:?}");
    assert!(device.close(Instant::now() + Duration::from_secs(30)));
    done.clear();
    assert_eq!(device.complete(&mut done, Instant::now()), running);
    assert!(done.iter().all(|one| one.result.is_ok()), "{done:?}");
}

/// Runs a role that mounts, in a process of its own.
fn in_a_name_space(role: &str) {
    let output = common::command(role).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    say(said.lines().find(|line| line.contains("skipped")).unwrap_or_default());
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
}

fn own_mounts() -> Result<(), String> {
    // SAFETY: a plain system call.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(format!("unshare: {}", std::io::Error::last_os_error()));
    }
    mount_at("none", Path::new("/"), libc::MS_REC | libc::MS_PRIVATE, "")
}

/// A mounted place, which is unmounted so that its directory can be removed.
struct Mount(PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        let at = CString::new(self.0.to_str().unwrap()).unwrap();
        // SAFETY: a plain system call on a string that lives until it returns.
        unsafe { libc::umount2(at.as_ptr(), libc::MNT_DETACH) };
    }
}

fn mount(kind: &str, at: &Path, flags: libc::c_ulong, options: &str) -> Result<Mount, String> {
    mount_at(kind, at, flags, options).map(|()| Mount(at.to_owned()))
}

fn mount_at(kind: &str, at: &Path, flags: libc::c_ulong, options: &str) -> Result<(), String> {
    let text = |text: &str| CString::new(text).unwrap();
    let (kind, at, options) = (text(kind), text(at.to_str().unwrap()), text(options));
    // SAFETY: a plain system call on strings that live until it returns.
    let result = unsafe {
        libc::mount(kind.as_ptr(), at.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast())
    };
    match result {
        0 => Ok(()),
        _ => Err(format!("mount {kind:?}: {}", std::io::Error::last_os_error())),
    }
}

fn skip(reason: &str) {
    say(&format!("skipped: {reason}"));
}

fn say(line: &str) {
    println!("{line}");
}
