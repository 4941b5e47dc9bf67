//! What a put answers: one status per item, and a way to wait for all of them.

use parking_lot::{Condvar, Mutex};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// What a put promises when it answers `Stored` (contract C8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ack {
    /// In host memory: survives nothing.
    #[default]
    Host,
    /// Payload and descriptor writes completed: survives `kill -9`.
    Ssd,
    /// Flushed as well: survives a power cut.
    SsdFlush,
}

/// Why a put was not taken (contract C2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// Larger than the tier that was asked for can hold at all.
    TooLarge,
    /// All 64 size classes are taken and none is near enough.
    NoClass,
    /// No room, and nothing that may be evicted for it.
    NoSpace,
    /// Leases hold the room.
    Pinned,
    /// Admission keeps it out of the disk tier.
    Admission,
    /// The write budget of the day is used up.
    Endurance,
    /// The store is closing.
    Closing,
    /// The namespace or tenant was cleared after the keys were made.
    Cleared,
    /// The store, or its device, takes no writes.
    ReadOnly,
}

impl Reason {
    /// The word in statuses and counters.
    pub fn name(self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::NoClass => "no_class",
            Self::NoSpace => "no_space",
            Self::Pinned => "pinned",
            Self::Admission => "admission",
            Self::Endurance => "endurance",
            Self::Closing => "closing",
            Self::Cleared => "cleared",
            Self::ReadOnly => "read_only",
        }
    }

    /// All reasons, for counters.
    pub const ALL: [Self; 9] = [
        Self::TooLarge,
        Self::NoClass,
        Self::NoSpace,
        Self::Pinned,
        Self::Admission,
        Self::Endurance,
        Self::Closing,
        Self::Cleared,
        Self::ReadOnly,
    ];
}

/// Answer for one item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Not settled yet.
    Pending,
    /// Stored at the asked level.
    Stored,
    /// Was there before, now at the asked level; the first writer's bytes stay.
    Exists,
    /// Not taken, and why.
    Rejected(Reason),
    /// A queue is full: try again later.
    Busy,
    /// The caller cancelled before the write was submitted; host memory may still hold it.
    Cancelled,
}

#[derive(Debug)]
struct Inner {
    status: Vec<Status>,
    pending: usize,
    cancelled: bool,
}

/// Statuses of one put, in the order of its items.
#[derive(Debug)]
pub struct Batch {
    inner: Mutex<Inner>,
    settled: Condvar,
    event: OnceLock<Option<OwnedFd>>,
}

impl Batch {
    pub(crate) fn new(items: usize) -> Arc<Self> {
        Arc::new(Self {
            inner: Mutex::new(Inner {
                status: vec![Status::Pending; items],
                pending: items,
                cancelled: false,
            }),
            settled: Condvar::new(),
            event: OnceLock::new(),
        })
    }

    /// Settles one item; only the first answer counts.
    pub(crate) fn settle(&self, item: usize, status: Status) {
        let mut inner = self.inner.lock();
        if inner.status[item] != Status::Pending {
            return;
        }
        inner.status[item] = status;
        inner.pending -= 1;
        if inner.pending == 0 {
            self.settled.notify_all();
            if let Some(Some(event)) = self.event.get() {
                signal(event);
            }
        }
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.inner.lock().status.len()
    }

    /// Whether the put had no items.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether every item is settled.
    pub fn done(&self) -> bool {
        self.inner.lock().pending == 0
    }

    /// Statuses now.
    pub fn status(&self) -> Vec<Status> {
        self.inner.lock().status.clone()
    }

    /// Waits until every item is settled or the deadline; the answer is [`Batch::done`].
    pub fn wait(&self, deadline: Instant) -> bool {
        let mut inner = self.inner.lock();
        while inner.pending > 0 {
            if self.settled.wait_until(&mut inner, deadline).timed_out() {
                return inner.pending == 0;
            }
        }
        true
    }

    /// Gives up on what is not submitted yet. Items already on their way go on and settle by
    /// themselves (contract C7: a cancel only detaches).
    pub fn cancel(&self) {
        self.inner.lock().cancelled = true;
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.inner.lock().cancelled
    }

    /// A descriptor that becomes readable when every item is settled.
    pub fn event(&self) -> std::io::Result<BorrowedFd<'_>> {
        let event = self.event.get_or_init(|| {
            use rustix::event::{EventfdFlags, eventfd};
            eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).ok()
        });
        let event = event.as_ref().ok_or_else(|| {
            std::io::Error::other("no eventfd: the process has no file descriptor left")
        })?;
        if self.done() {
            signal(event);
        }
        Ok(event.as_fd())
    }
}

/// Makes the eventfd readable. A counter that is full is readable already.
fn signal(event: &OwnedFd) {
    let _already_readable = rustix::io::write(event, &1_u64.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn an_item_settles_once_and_the_batch_when_all_have() {
        let batch = Batch::new(2);
        batch.settle(0, Status::Stored);
        batch.settle(0, Status::Busy);
        assert!(!batch.wait(Instant::now() + Duration::from_millis(1)));
        let waiter = batch.clone();
        let thread =
            std::thread::spawn(move || waiter.wait(Instant::now() + Duration::from_secs(10)));
        batch.settle(1, Status::Rejected(Reason::NoSpace));
        assert!(thread.join().unwrap());
        assert_eq!(batch.status(), [Status::Stored, Status::Rejected(Reason::NoSpace)]);
    }

    #[test]
    fn the_event_is_readable_once_all_are_settled_whenever_it_was_asked_for() {
        for early in [true, false] {
            let batch = Batch::new(1);
            if early {
                let event = batch.event().unwrap();
                assert_eq!(rustix::io::read(event, &mut [0; 8]), Err(rustix::io::Errno::AGAIN));
            }
            batch.settle(0, Status::Exists);
            assert_eq!(rustix::io::read(batch.event().unwrap(), &mut [0; 8]), Ok(8));
        }
    }
}
