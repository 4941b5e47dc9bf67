//! Waiting until everything put so far is on disk.

use super::open::{Shared, Store};
use std::time::Instant;

impl Store {
    /// Writes what is pending and flushes the device. True if all of it was done by the deadline;
    /// what the disk tier refused stays in host memory and does not count as pending.
    pub fn flush(&self, deadline: Instant) -> bool {
        self.shared.drain_queue(deadline)
            && (self.shared.options.read_only || self.shared.flush_device(deadline))
    }
}

impl Shared {
    /// Waits until no write is queued or on its way, and nobody waits for a flush.
    pub(crate) fn drain_queue(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        self.wake();
        loop {
            let idle = state.queue.is_empty()
                && state.dirty_bytes == 0
                && state.pages.is_idle()
                && state.flushing.is_empty();
            if idle {
                return true;
            }
            if self.is_poisoned() || self.changed.wait_until(&mut state, deadline).timed_out() {
                return false;
            }
        }
    }

    /// Makes durable what has completed. The writer does it, so that a device that hangs keeps
    /// nobody beyond the deadline.
    fn flush_device(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        let round = state.want_flush();
        self.wake();
        loop {
            if let Some(done) = state.flushed(round) {
                return done;
            }
            if state.writer_over
                || self.is_poisoned()
                || self.changed.wait_until(&mut state, deadline).timed_out()
            {
                return false;
            }
        }
    }
}
