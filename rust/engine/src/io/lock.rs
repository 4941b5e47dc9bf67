//! One owner per device directory (C9).
//!
//! The lock is an flock on the very descriptions that carry the I/O: when a killed owner still has
//! a write in the kernel, its descriptions live until that write is over, and so does the lock.
//! Forked children give the descriptions up ([`crate::host::fork`]).

use std::fs;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::error::OpenError;

/// Names the owner for people and error messages. A hint: the lock is the truth.
const OWNER: &str = "owner";
const RETRY: Duration = Duration::from_millis(20);

/// Locks all of `fds`, files in `dir`, or none; tries for up to `wait`.
pub(super) fn acquire(dir: &Path, fds: &[BorrowedFd<'_>], wait: Duration) -> Result<(), OpenError> {
    let give_up = Instant::now() + wait;
    while !try_all(dir, fds)? {
        if Instant::now() >= give_up {
            return Err(locked(dir));
        }
        std::thread::sleep(RETRY);
    }
    let name = format!("{} {}\n", std::process::id(), started(std::process::id()).unwrap_or(0));
    // Without it a second opener is told less, nothing else.
    let _ = fs::write(dir.join(OWNER), name);
    Ok(())
}

/// Unlocks `fds`. Closing their descriptions would do so as well, but others may still hold those.
pub(super) fn release(fds: &[BorrowedFd<'_>]) {
    for fd in fds {
        let _ = flock(fd, FlockOperation::Unlock);
    }
}

fn try_all(dir: &Path, fds: &[BorrowedFd<'_>]) -> Result<bool, OpenError> {
    for (at, fd) in fds.iter().enumerate() {
        match flock(fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(errno) => {
                for held in &fds[..at] {
                    // Closing the description unlocks it as well.
                    let _ = flock(held, FlockOperation::Unlock);
                }
                return match errno {
                    Errno::WOULDBLOCK | Errno::INTR => Ok(false),
                    errno => Err(OpenError::io(dir, errno.into())),
                };
            }
        }
    }
    Ok(true)
}

fn locked(dir: &Path) -> OpenError {
    let name = fs::read_to_string(dir.join(OWNER)).unwrap_or_default();
    let mut fields = name.split_whitespace();
    let pid = fields.next().and_then(|field| field.parse::<u32>().ok());
    let start = fields.next().and_then(|field| field.parse::<u64>().ok());
    let (pid, holder) = match pid {
        Some(pid) if start.is_some() && started(pid) == start => {
            (Some(pid), format!("by process {pid}: close the store there, or attach to it"))
        }
        Some(pid) => (
            None,
            format!(
                "though process {pid}, its owner, has ended or is in another container: a last \
                 write or a child of it holds the files; try again, or end the child"
            ),
        ),
        None => (None, "by another process: close the store there".to_owned()),
    };
    OpenError::Locked { path: dir.to_owned(), holder, pid }
}

/// Start time of a process in clock ticks since boot, which tells it from a later one with the
/// same number (field 22 of `/proc/PID/stat`, counted behind the name, which may hold anything).
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, behind_name) = stat.rsplit_once(')')?;
    let mut fields = behind_name.split_whitespace();
    // A zombie holds nothing any more.
    (fields.next()? != "Z").then_some(())?;
    fields.nth(18)?.parse().ok()
}
