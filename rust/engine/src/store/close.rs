//! The end of an engine: bounded in time, and the same whoever asks for it.

use super::batch::{Reason, Status};
use super::open::Shared;
use super::state::Phase;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long the device may take for what is in flight when the deadline has passed.
const LAST_CALL: Duration = Duration::from_secs(5);

impl Shared {
    /// Writes what is pending, stops the writer and closes the device. True if everything was
    /// written.
    pub(crate) fn shut(&self) -> bool {
        let deadline = Instant::now() + self.options.close_deadline;
        {
            let mut state = self.state.lock();
            if state.phase != Phase::Open {
                return true;
            }
            state.phase = Phase::Closing;
        }
        let written = self.drain_queue(deadline);
        {
            let mut state = self.state.lock();
            state.phase = Phase::Closed;
            state.drain = None;
            // Nobody waits for what was not written in time.
            let waiting: Vec<_> = state.tickets.keys().copied().collect();
            for id in waiting {
                state.settle(id, Status::Rejected(Reason::Closing));
            }
            state.queue.clear();
        }
        self.stop.store(true, Ordering::Release);
        self.wake();
        let closed = self.device.close(Instant::now() + LAST_CALL);
        self.wake();
        self.care.wake(0);
        for thread in std::mem::take(&mut *self.threads.lock()) {
            let _panicked_is_poisoned = thread.join();
        }
        self.changed.notify_all();
        written && closed
    }
}
