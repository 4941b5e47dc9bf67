//! Waiting until everything put so far is on disk.

use super::open::{Shared, Store};
use crate::io::device::File;
use std::time::Instant;

impl Store {
    /// Writes what is pending and flushes the device. True if all of it was done by the deadline;
    /// what the disk tier refused stays in host memory and does not count as pending.
    pub fn flush(&self, deadline: Instant) -> bool {
        self.shared.drain_queue(deadline)
            && self.shared.device.sync(File::Data).is_ok()
            && self.shared.device.sync(File::Table).is_ok()
    }
}

impl Shared {
    /// Waits until no write is queued or on its way.
    pub(crate) fn drain_queue(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        loop {
            let idle = state.queue.is_empty() && state.dirty_bytes == 0 && state.pages.is_idle();
            if idle {
                return true;
            }
            if self.is_poisoned() {
                return false;
            }
            self.wake();
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return false;
            }
        }
    }
}
