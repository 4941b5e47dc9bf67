//! The end of an engine: bounded in time, and the same whoever asks for it.

use super::batch::{Reason, Status};
use super::open::Shared;
use super::state::Phase;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long the device may take for what is in flight when the deadline has passed.
const LAST_CALL: Duration = Duration::from_secs(5);

impl Shared {
    /// Writes what is pending until `deadline`, stops the writer and closes the device. True if
    /// everything was written.
    pub(crate) fn shut(&self, deadline: Instant) -> bool {
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
            state.queue.clear();
            state.settle_all(Status::Rejected(Reason::Closing));
        }
        self.stop.store(true, Ordering::Release);
        self.wake();
        let last_call = LAST_CALL.min(self.options.close_deadline);
        self.writer_is_over(Instant::now() + last_call);
        let closed = self.device.close(Instant::now() + last_call);
        // What the device still has in its hands is its own from now on (contract C7).
        self.give_up.store(true, Ordering::Release);
        self.wake();
        self.care.wake(0);
        let over = self.writer_is_over(Instant::now() + last_call);
        for thread in std::mem::take(&mut *self.threads.lock()).into_iter().filter(|_| over) {
            let _panicked_is_poisoned = thread.join();
        }
        self.changed.notify_all();
        written && closed && over
    }

    /// Waits for the end of the writer thread. It may hang in a call to the device for good: then
    /// the thread keeps what it needs alive by itself.
    fn writer_is_over(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        while !state.writer_over {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return state.writer_over;
            }
        }
        true
    }

    /// The writer's last act: the sequence number from which the next open goes on.
    pub(crate) fn write_last_superblock(&self) {
        let (sequence, quarantined) = {
            let state = self.state.lock();
            (state.sequence, state.quarantined)
        };
        if self.options.read_only || quarantined {
            return;
        }
        let written =
            self.change_superblock(&self.meta.lock(), |next| next.sequence_floor = sequence);
        if let Err(error) = written {
            tracing::warn!(%error, "the last superblock was not written");
        }
    }
}
