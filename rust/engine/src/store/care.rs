//! Background care of host memory: first touch ahead of use, and a slow re-check of idle objects.
//!
//! First touch of fresh memory is slow (0.2 to 2 GB/s where a hypervisor lends it), so a thread
//! stays a little ahead of the extents in use; never all of the arena, and never inside `open`.
//! The same thread re-checks idle host objects at a bounded rate (contract C1): memory that nobody
//! else can write is trusted, but not for ever.

use super::meta::bit;
use super::open::Shared;
use super::state::State;
use crate::host::copy::checksum;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Extents that are touched ahead of use.
const AHEAD: u32 = 2;
/// Pause between two turns of the scrubber.
const PAUSE: Duration = Duration::from_secs(1);
/// Entries that one turn looks at, and payload bytes that it checks: 1 MiB/s costs a core 0.01 %.
const LOOKS: usize = 4096;
const BYTES: u64 = 1 << 20;

/// What wakes the thread.
#[derive(Default)]
pub(crate) struct Care {
    /// Extents that should have been touched.
    wanted: Mutex<u32>,
    more: Condvar,
}

impl Care {
    /// Host memory grew into another extent, or the engine stops.
    pub(crate) fn wake(&self, used_extents: u32) {
        let mut wanted = self.wanted.lock();
        *wanted = (*wanted).max(used_extents.saturating_add(AHEAD));
        self.more.notify_one();
    }
}

impl Shared {
    /// The thread.
    pub(crate) fn run_care(&self) {
        let mut touched = 0;
        let mut cursor = 0;
        while !self.stop.load(Ordering::Acquire) {
            let (target, paused) = {
                let mut wanted = self.care.wanted.lock();
                let idle = *wanted <= touched;
                let paused = idle && self.care.more.wait_for(&mut wanted, PAUSE).timed_out();
                ((*wanted).min(self.arena.extents()), paused)
            };
            if touched < target {
                self.arena.populate(touched);
                touched += 1;
            } else if paused {
                cursor = self.scrub(cursor);
            }
        }
    }

    /// One turn over idle host objects from slab position `cursor`; the answer is the next one.
    pub(crate) fn scrub(&self, cursor: usize) -> usize {
        let mut bytes = 0;
        for position in cursor..cursor + LOOKS {
            let mut state = self.state.lock();
            if position >= state.index.capacity() {
                return 0;
            }
            let Some((id, slot)) = state.idle_host_object(position) else { continue };
            let (length, expected) = (state.index[id].length, state.index[id].checksum);
            let buf = state.slots.buf(slot, length);
            state.index.acquire(id);
            state.scrubbing = true;
            drop(state);
            // SAFETY: the reference keeps the slot; it is whole and no view of it is exposed, and
            // an export takes a reference first, which `idle_host_object` saw none of. A view
            // exported meanwhile can only make this check fail, which costs a host copy.
            let good = checksum(unsafe { self.arena.bytes(buf) }) == expected;
            let mut state = self.state.lock();
            if !good && state.slots.exposed(slot) == 0 {
                state.drop_bad_host(id, slot);
            }
            state.scrubbing = false;
            state.release(id);
            state.free_orphan(slot);
            // Somebody may want the room of just this object.
            self.changed.notify_all();
            bytes += u64::from(length);
            if bytes >= BYTES {
                return position + 1;
            }
        }
        cursor + LOOKS
    }
}

impl State {
    /// The object at a slab position, if it is whole in host memory and nobody uses it.
    fn idle_host_object(
        &self,
        position: usize,
    ) -> Option<(kvstore_index::EntryId, crate::host::slots::SlotId)> {
        let id = self.index.at(position)?;
        let slot = self.host_of(id)?;
        let idle = self.index.refs(id) == 0
            && self.has(id, bit::HOST)
            && self.slots.exposed(slot) == 0
            && !self.slots.suspect(slot);
        idle.then_some((id, slot))
    }
}
