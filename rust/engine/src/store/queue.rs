//! What waits to be written, and who waits for it.

use super::batch::{Ack, Reason};
use super::meta::{bit, stride_of};
use super::state::{State, Ticket};
use kvstore_index::{EntryId, Tier};

impl State {
    /// Queues the write of an object that is whole in host memory, its host-only ancestors first:
    /// a child is not written before its parent is at least submitted.
    pub(crate) fn queue_write(&mut self, id: EntryId) {
        let mut chain = vec![id];
        let mut at = id;
        while let Some(parent) = self.index.parent(at) {
            let settled =
                self.index.is_resident(parent, Tier::Disk) || self.has(parent, bit::QUEUED);
            if settled || !self.has(parent, bit::HOST) {
                break;
            }
            chain.push(parent);
            at = parent;
        }
        for id in chain.into_iter().rev() {
            if self.has(id, bit::QUEUED) || self.index[id].flags & (bit::READY | bit::COMMIT) != 0 {
                continue;
            }
            self.set(id, bit::QUEUED);
            self.index.acquire(id);
            self.dirty_bytes += u64::from(stride_of(self.index[id].length));
            self.queue.push_back(id);
        }
    }

    /// Removes and returns the tickets of an object that ask for `ack` or less.
    pub(super) fn take_tickets(&mut self, id: EntryId, ack: Ack) -> Vec<Ticket> {
        let Some(all) = self.tickets.get_mut(&id) else { return Vec::new() };
        let (now, later) = std::mem::take(all).into_iter().partition(|t| t.ack <= ack);
        *all = later;
        now
    }

    /// Makes room in the index: the least valuable object of the larger tier leaves.
    pub(super) fn evict_any(&mut self) -> bool {
        if self.drop_expired() {
            return true;
        }
        for tier in [Tier::Disk, Tier::Host] {
            if let Some(victim) = self.index.victim(tier, &mut |_, _| true) {
                for id in victim.along.into_iter().chain([victim.id]) {
                    self.counters.evicted += 1;
                    self.remove(id, Reason::NoSpace);
                }
                return true;
            }
        }
        false
    }
}
