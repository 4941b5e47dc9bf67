//! Which process a handle belongs to, and the end of that process.
//!
//! A forked child has none of the engine's threads, and its locks as they were at that moment: any
//! call could wait for ever. So what belongs to the engine is [`Local`]: another process gets an
//! error before it touches anything, and leaks it instead of dropping it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Once, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use pyo3::prelude::*;

use crate::errors::ForkedError;
use crate::store::Shared;

/// How long the end of a process waits for what is pending.
const AT_EXIT: Duration = Duration::from_secs(4);

/// Forks between the first process and this one. The process id would say the same, but asking for
/// it is a system call, as much as a whole look-up.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Number that tells this process from those that it was forked from.
pub(crate) fn this() -> u32 {
    static HANDLER: Once = Once::new();
    HANDLER.call_once(|| {
        // SAFETY: the handler is a function of this module, which Python never unloads, and does
        // nothing that is not safe in a forked child. ENOMEM leaves a process without the check.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(forked_child)) };
    });
    FORKS.load(Ordering::Relaxed)
}

extern "C" fn forked_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// Something that works in the process that made it only.
pub(crate) struct Local<T: Send> {
    value: Option<T>,
    process: u32,
}

impl<T: Send> Local<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Some(value), process: this() }
    }

    /// The value, or `ForkedError` in another process.
    pub(crate) fn get(&self) -> PyResult<&T> {
        self.value.as_ref().filter(|_| this() == self.process).ok_or_else(forked)
    }
}

impl<T: Send> Drop for Local<T> {
    fn drop(&mut self) {
        let Some(value) = self.value.take() else { return };
        if this() == self.process {
            detached(|| drop(value));
        } else {
            let _leaked = std::mem::ManuallyDrop::new(value);
        }
    }
}

/// Runs `work` without holding the interpreter, if this thread holds it and there is one.
pub(crate) fn detached(work: impl FnOnce() + Send) {
    let mut work = Some(work);
    let mut run = || {
        if let Some(work) = work.take() {
            work();
        }
    };
    if Python::try_attach(|py| py.detach(&mut run)).is_none() {
        run();
    }
}

fn forked() -> PyErr {
    ForkedError::new_err(
        "this handle was made before a fork, and its threads are in the parent: open the store in \
         one process only, or start workers with multiprocessing's \"spawn\"",
    )
}

/// Stores that are open, or being opened, in the process `OPENER`.
static STORES: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());
static OPENING: AtomicU32 = AtomicU32::new(0);
static OPENER: AtomicU32 = AtomicU32::new(0);

/// Announces that this process opens a store; refused in the child of one that had any open: its
/// registry of engines names some that have no threads here.
pub(crate) fn opening() -> PyResult<Opening> {
    let pid = std::process::id();
    let opener = OPENER.swap(pid, Ordering::AcqRel);
    if opener != pid && opener != 0 && OPENING.load(Ordering::Acquire) > 0 {
        OPENER.store(opener, Ordering::Release);
        return Err(forked());
    }
    OPENING.fetch_add(1, Ordering::AcqRel);
    Ok(Opening { pid })
}

/// Counts one open store until it is dropped; a child's copy counts for ever.
pub(crate) struct Opening {
    pid: u32,
}

impl Drop for Opening {
    fn drop(&mut self) {
        if self.pid == std::process::id() {
            OPENING.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Remembers an open store for the end of the process.
pub(crate) fn remember(store: Weak<Shared>) {
    let mut stores = STORES.lock();
    stores.retain(|store| store.strong_count() > 0);
    stores.push(store);
}

/// Closes every store of this process, within a few seconds; the package calls it at exit.
#[pyfunction]
pub(crate) fn close_all(py: Python<'_>) {
    if OPENER.load(Ordering::Acquire) != std::process::id() {
        return;
    }
    py.detach(|| {
        let stores = std::mem::take(&mut *STORES.lock());
        for store in stores.iter().filter_map(Weak::upgrade) {
            store.close_within(AT_EXIT);
        }
    });
}
