//! Descriptors that a forked child must not keep.
//!
//! A child shares the open file descriptions of its parent, and with them the parent's flock and
//! the memory of its memfd: a worker that outlives a killed owner would hold the store for ever
//! (C9). `O_CLOEXEC` only helps at exec. So every descriptor of the engine is [`Owned`], and a
//! handler of `pthread_atfork` lets go of them in each child.

use std::cell::UnsafeCell;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// An open file that forked children give up.
pub struct Owned(ManuallyDrop<File>);

impl Owned {
    /// Opens a file. Any other thread that forks meanwhile waits, or its child would get a file
    /// that nobody told it to close.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn open(open: impl FnOnce() -> io::Result<File>) -> io::Result<Owned> {
        install();
        REGISTRY.with(|held| {
            let file = open()?;
            held.push(file.as_raw_fd());
            Ok(Owned(ManuallyDrop::new(file)))
        })
    }

    /// The open file. In a forked child its descriptor answers `EBADF` to reads and writes.
    pub fn file(&self) -> &File {
        &self.0
    }
}

impl AsFd for Owned {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // Closed under the lock that a fork takes: no child is born between the two steps, with
        // the file open and nobody to close it.
        REGISTRY.with(|held| {
            let fd = self.0.as_raw_fd();
            if let Some(at) = held.iter().position(|&open| open == fd) {
                held.swap_remove(at);
            }
            // SAFETY: this is the only place that drops the file, and it is not used again.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        });
    }
}

/// Lets go of all [`Owned`] files, for a child born by a raw `clone` that runs no fork handlers.
/// Where they ran already it finds nothing to do.
///
/// # Safety
/// Only in a forked child, before it starts threads: in the owner it would cut off its own I/O.
pub unsafe fn close_in_child() {
    REGISTRY.locked.store(false, Ordering::Relaxed);
    after_fork_child_locked();
}

/// Number of descriptors held at this moment.
pub fn held() -> usize {
    REGISTRY.with(|held| held.len())
}

struct Registry {
    // A spin lock, since a fork handler may use nothing that keeps state about waiting threads:
    // they do not exist in the child. It is held across an open, a close or a fork.
    locked: AtomicBool,
    held: UnsafeCell<Vec<RawFd>>,
}

// SAFETY: `held` is only reached with `locked` set.
unsafe impl Sync for Registry {}

static REGISTRY: Registry =
    Registry { locked: AtomicBool::new(false), held: UnsafeCell::new(Vec::new()) };

impl Registry {
    fn lock(&self) {
        while self.locked.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
    }

    fn unlock(&self) {
        self.locked.store(false, Ordering::Release);
    }

    fn with<R>(&self, work: impl FnOnce(&mut Vec<RawFd>) -> R) -> R {
        struct Guard<'a>(&'a Registry);
        impl Drop for Guard<'_> {
            fn drop(&mut self) {
                self.0.unlock();
            }
        }
        self.lock();
        let guard = Guard(self);
        // SAFETY: the lock is held until the guard goes, and no `work` here calls `with` again.
        let result = work(unsafe { &mut *self.held.get() });
        drop(guard);
        result
    }
}

fn install() {
    static HANDLERS: Once = Once::new();
    HANDLERS.call_once(|| {
        // SAFETY: the three handlers are functions of this library, which is never unloaded while
        // it owns threads and files. ENOMEM leaves a store without fork safety, as on a system
        // that forks by a raw `clone`.
        let _ = unsafe {
            libc::pthread_atfork(Some(before_fork), Some(after_fork_parent), Some(after_fork_child))
        };
    });
}

extern "C" fn before_fork() {
    REGISTRY.lock();
}

extern "C" fn after_fork_parent() {
    REGISTRY.unlock();
}

extern "C" fn after_fork_child() {
    after_fork_child_locked();
    REGISTRY.unlock();
}

/// Only calls that are safe after a fork of a process with threads: no memory is allocated.
fn after_fork_child_locked() {
    // SAFETY: the child has one thread, so nobody else reaches the list.
    let held = unsafe { &mut *REGISTRY.held.get() };
    if held.is_empty() {
        return;
    }
    // The number stays taken until its `Owned` is dropped, or that drop would close a file which
    // the child opened since. O_PATH allows neither reads nor writes.
    // SAFETY: plain system calls with a constant string and plain integers.
    unsafe {
        let nothing = libc::open(c"/".as_ptr(), libc::O_PATH | libc::O_CLOEXEC);
        for &fd in held.iter() {
            if nothing < 0 || libc::dup3(nothing, fd, libc::O_CLOEXEC) < 0 {
                libc::close(fd);
            }
        }
        if nothing >= 0 {
            libc::close(nothing);
        }
    }
    held.clear();
}
