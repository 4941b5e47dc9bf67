//! File systems of a test's own: a process in a name space of mounts, which go with it.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use crate::common;
use crate::tools::skip;

/// Runs a role that mounts, in a process of its own, and shows what it skipped.
pub(crate) fn in_a_name_space(role: &str) {
    let output = common::command(role).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    if let Some(line) = said.lines().find(|line| line.contains("skipped")) {
        println!("{line}");
    }
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
}

/// A mounted place, unmounted in the end.
pub(crate) struct Mount(PathBuf);

impl Drop for Mount {
    fn drop(&mut self) {
        let at = text(self.0.to_str().unwrap());
        // SAFETY: a plain system call on a string that lives until it returns.
        unsafe { libc::umount2(at.as_ptr(), libc::MNT_DETACH) };
    }
}

/// Mounts a file system in memory; without the right to, says so.
pub(crate) fn memory(at: &Path, options: &str) -> Option<Mount> {
    // SAFETY: a plain system call.
    let alone = unsafe { libc::unshare(libc::CLONE_NEWNS) };
    if alone != 0 {
        skip(&format!("unshare: {}", std::io::Error::last_os_error()));
        return None;
    }
    let mounted = mount("none", Path::new("/"), libc::MS_REC | libc::MS_PRIVATE, "")
        .and_then(|()| mount("tmpfs", at, 0, options));
    match mounted {
        Ok(()) => Some(Mount(at.to_owned())),
        Err(error) => {
            skip(&format!("mount: {error}"));
            None
        }
    }
}

/// Changes the options of a mounted file system in memory.
pub(crate) fn change(at: &Path, flags: libc::c_ulong, options: &str) {
    mount("tmpfs", at, libc::MS_REMOUNT | flags, options).expect("a remount");
}

fn mount(kind: &str, at: &Path, flags: libc::c_ulong, options: &str) -> std::io::Result<()> {
    let (kind, at, options) = (text(kind), text(at.to_str().unwrap()), text(options));
    // SAFETY: a plain system call on strings that live until it returns.
    let result = unsafe {
        libc::mount(kind.as_ptr(), at.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast())
    };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

fn text(text: &str) -> CString {
    CString::new(text).unwrap()
}
