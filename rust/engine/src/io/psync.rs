//! Threads over `pread` and `pwrite`: the path that every system allows.
//!
//! Containers often forbid io_uring, and on ext4 these writes are the faster ones: a synchronous
//! caller ends its own direct write, an asynchronous one waits for a kernel worker.

use std::collections::VecDeque;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, RwLock, RwLockReadGuard};

use super::device::{Completion, Device, File, Grown, Op, OpKind, PathInUse, Priority};
use super::error::{IoErrorKind, OpenError, failed, kind_of, to_io};
use super::files::Files;
use super::transfer;
use crate::host::Arena;

/// While reads wait, one in this many operations is still a write.
const WRITE_FLOOR: u32 = 4;
/// What a device that is dropped unclosed waits for the operations that run.
const DROP_WAIT: Duration = Duration::from_secs(5);

/// How a device is opened.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Threads, and so the depth at the device. At least 1; 8 saturates an SSD at 64 KiB and up.
    pub threads: usize,
    /// Most operations in flight. At least 1.
    pub queue: usize,
    /// How long to try for the lock before the holder is named.
    pub lock_wait: Duration,
    /// Whether to go around the page cache where the file system allows it.
    pub direct: bool,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        let lock_wait = Duration::from_secs(5);
        OpenOptions { threads: 8, queue: 1024, lock_wait, direct: true }
    }
}

/// A device directory behind a pool of threads.
///
/// The lock on the directory falls when the device is closed or dropped and its last operation is
/// over.
pub struct PsyncDevice {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    files: Files,
    arena: Arc<Arena>,
    /// Whether the lock on the files was given up. Held for reading by synchronous calls.
    disowned: RwLock<bool>,
    capacity: usize,
    threads: usize,
    /// Threads that may write at a time. The others are left to reads, which would else wait for
    /// a whole write or a flush when they come to an idle device.
    writers: usize,
    queue: Mutex<Queue>,
    /// Threads wait here for operations.
    work: Condvar,
    /// The reaper waits here for completions.
    done: Condvar,
    /// `close` waits here for the last operation.
    idle: Condvar,
}

#[derive(Default)]
struct Queue {
    reads: VecDeque<Op>,
    writes: VecDeque<Op>,
    reading: usize,
    writing: usize,
    picks: u32,
    done: Vec<Completion>,
    woken: bool,
    closed: bool,
}

impl PsyncDevice {
    /// Opens the device in `dir`, which is made if it is not there; its files are made empty.
    ///
    /// # Errors
    /// [`OpenError::Locked`] if another owner keeps it beyond `lock_wait`, else what the file
    /// system refused, with the path and what to do.
    pub fn open(
        dir: &Path,
        arena: Arc<Arena>,
        options: &OpenOptions,
    ) -> Result<PsyncDevice, OpenError> {
        let count = options.threads.max(1);
        let shared = Arc::new(Shared {
            files: Files::open(dir, options)?,
            arena,
            disowned: RwLock::new(false),
            capacity: options.queue.max(1),
            threads: count,
            writers: count - count / 4,
            queue: Mutex::default(),
            work: Condvar::new(),
            done: Condvar::new(),
            idle: Condvar::new(),
        });
        let device = PsyncDevice { shared, threads: Mutex::default() };
        for number in 0..count {
            let shared = Arc::clone(&device.shared);
            let thread = std::thread::Builder::new()
                .name(format!("kvstore-io-{number}"))
                .spawn(move || shared.work())
                .map_err(|source| OpenError::Io {
                    path: dir.to_owned(),
                    mend: "raise the limit of processes, or ask for fewer threads",
                    source,
                })?;
            device.threads.lock().push(thread);
        }
        Ok(device)
    }
}

impl Device for PsyncDevice {
    fn submit(&self, ops: &[Op]) -> usize {
        let shared = &*self.shared;
        for op in ops {
            // Panics here, in the caller, and not later in a thread of the pool.
            let _ = shared.arena.ptr(op.buf);
        }
        let mut queue = shared.queue.lock();
        let room = shared.capacity.saturating_sub(queue.in_flight());
        let taken = &ops[..ops.len().min(room)];
        let mut refused = false;
        for op in taken {
            if queue.closed {
                queue.done.push(failed(op, IoErrorKind::Closed));
                refused = true;
            } else if !op.aligned(shared.files.unit()) {
                queue.done.push(failed(op, IoErrorKind::Misaligned));
                refused = true;
            } else {
                match op.kind.priority() {
                    Priority::Read => queue.reads.push_back(*op),
                    Priority::Write => queue.writes.push_back(*op),
                }
            }
        }
        drop(queue);
        for _ in 0..taken.len().min(shared.threads) {
            shared.work.notify_one();
        }
        if refused {
            shared.done.notify_one();
        }
        taken.len()
    }

    fn complete(&self, out: &mut Vec<Completion>, deadline: Instant) -> usize {
        let mut queue = self.shared.queue.lock();
        while queue.done.is_empty() && !queue.woken {
            if self.shared.done.wait_until(&mut queue, deadline).timed_out() {
                break;
            }
        }
        queue.woken = false;
        let count = queue.done.len();
        out.append(&mut queue.done);
        count
    }

    fn wake(&self) {
        self.shared.queue.lock().woken = true;
        self.shared.done.notify_one();
    }

    fn in_flight(&self) -> usize {
        self.shared.queue.lock().in_flight()
    }

    fn capacity(&self) -> usize {
        self.shared.capacity
    }

    fn len(&self, file: File) -> io::Result<u64> {
        self.shared.owned()?.files.len(file)
    }

    fn grow(&self, file: File, len: u64) -> io::Result<Grown> {
        self.shared.owned()?.files.grow(file, len)
    }

    fn truncate(&self, file: File, len: u64) -> io::Result<()> {
        self.shared.owned()?.files.truncate(file, len)
    }

    fn sync(&self, file: File) -> io::Result<()> {
        self.shared.owned()?.files.file(file).sync_data()
    }

    fn read_at(&self, file: File, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.shared.owned()?.files.read_at(file, offset, bytes)
    }

    fn write_at(&self, file: File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.shared.owned()?.files.write_at(file, offset, bytes)
    }

    fn path_in_use(&self) -> PathInUse {
        let files = &self.shared.files;
        PathInUse {
            engine: "psync",
            direct: files.refused().is_none(),
            unit: files.unit(),
            allocation: files.allocation(),
            why: files.refused().unwrap_or_default().to_owned(),
        }
    }

    fn close(&self, deadline: Instant) -> bool {
        let shared = &*self.shared;
        let mut queue = shared.queue.lock();
        queue.closed = true;
        shared.work.notify_all();
        while !queue.is_idle() {
            if shared.idle.wait_until(&mut queue, deadline).timed_out() {
                queue.cancel_waiting();
                shared.done.notify_one();
                break;
            }
        }
        let over = queue.is_idle();
        drop(queue);
        if over {
            for thread in self.threads.lock().drain(..) {
                // A thread has nothing to answer, and a panic in it is one in this library.
                let _ = thread.join();
            }
        }
        over && shared.disown(deadline)
    }
}

impl Drop for PsyncDevice {
    fn drop(&mut self) {
        // A thread that is stuck in the kernel keeps files and arena alive by itself (C7).
        self.shared.queue.lock().cancel_waiting();
        self.close(Instant::now() + DROP_WAIT);
    }
}

/// The files, while the lock on them is held for sure.
struct Owned<'a> {
    files: &'a Files,
    _not_disowned: RwLockReadGuard<'a, bool>,
}

impl Shared {
    /// The files for a synchronous call, if the device is not closed: others may own them then.
    fn owned(&self) -> io::Result<Owned<'_>> {
        let guard = self.disowned.read();
        if *guard {
            return Err(to_io(IoErrorKind::Closed));
        }
        Ok(Owned { files: &self.files, _not_disowned: guard })
    }

    /// Lets go of the lock on the files once no synchronous call uses them; false if one does at
    /// the deadline.
    fn disown(&self, deadline: Instant) -> bool {
        let Some(mut disowned) = self.disowned.try_write_until(deadline) else { return false };
        if !std::mem::replace(&mut *disowned, true) {
            self.files.unlock();
        }
        true
    }

    fn work(&self) {
        let mut queue = self.queue.lock();
        loop {
            let Some(op) = queue.pick(self.writers) else {
                if queue.closed && queue.reads.is_empty() && queue.writes.is_empty() {
                    return;
                }
                self.work.wait(&mut queue);
                continue;
            };
            *queue.running(op.kind) += 1;
            drop(queue);
            let result = self.run(&op);
            queue = self.queue.lock();
            *queue.running(op.kind) -= 1;
            let completion = match result {
                Ok(()) => Completion { token: op.token, result: Ok(()) },
                Err(kind) => failed(&op, kind),
            };
            queue.done.push(completion);
            self.done.notify_one();
            if queue.is_idle() {
                self.idle.notify_all();
            }
            if queue.closed {
                // Others wait for work that will not come, or for a writer to be over.
                self.work.notify_all();
            }
        }
    }

    fn run(&self, op: &Op) -> Result<(), IoErrorKind> {
        let file = self.files.file(op.file);
        let unit = if op.file.direct() { self.files.unit() as usize } else { 1 };
        let at = |done: usize| op.offset + done as u64;
        match op.kind {
            OpKind::Read => {
                // SAFETY: the buffer is this operation's until its completion (C7).
                let bytes = unsafe { self.arena.bytes_mut(op.buf) };
                transfer::full(op.kind, bytes.len(), unit, |done| {
                    file.read_at(&mut bytes[done..], at(done))
                })
            }
            OpKind::Write => {
                // SAFETY: as above; while it is written out nobody changes it.
                let bytes = unsafe { self.arena.bytes(op.buf) };
                transfer::full(op.kind, bytes.len(), unit, |done| {
                    file.write_at(&bytes[done..], at(done))
                })
            }
            OpKind::Sync => file.sync_data().map_err(|error| kind_of(&error)),
        }
    }
}

impl Queue {
    /// The next operation: reads first, with a floor and a ceiling for writes.
    fn pick(&mut self, writers: usize) -> Option<Op> {
        let may_write = self.writing < writers && !self.writes.is_empty();
        if may_write && (self.reads.is_empty() || self.picks % WRITE_FLOOR == WRITE_FLOOR - 1) {
            self.picks = 0;
            return self.writes.pop_front();
        }
        let op = self.reads.pop_front()?;
        // Turns count only while a write waits: it is not owed those before it came.
        self.picks = if may_write { self.picks + 1 } else { 0 };
        Some(op)
    }

    fn running(&mut self, kind: OpKind) -> &mut usize {
        match kind.priority() {
            Priority::Read => &mut self.reading,
            Priority::Write => &mut self.writing,
        }
    }

    fn unfinished(&self) -> usize {
        self.reads.len() + self.writes.len() + self.reading + self.writing
    }

    fn is_idle(&self) -> bool {
        self.unfinished() == 0
    }

    fn in_flight(&self) -> usize {
        self.unfinished() + self.done.len()
    }

    fn cancel_waiting(&mut self) {
        let waiting = self.reads.drain(..).chain(self.writes.drain(..));
        self.done.extend(waiting.map(|op| failed(&op, IoErrorKind::Closed)));
    }
}

#[cfg(test)]
#[path = "psync_tests.rs"]
mod tests;
