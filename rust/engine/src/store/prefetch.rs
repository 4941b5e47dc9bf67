//! Bringing what a match found from disk to host memory, ahead of need.

use super::batch::{Batch, Reason, Status};
use super::counters::MissReason;
use super::lease::objects_of;
use super::matching::Match;
use super::namespace::Namespace;
use super::open::Shared;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Prefetches that run at a time; one more is `Busy` (contract C6).
const MOST: usize = 8;
/// Objects read at a time.
const AT_ONCE: usize = 32;

impl Namespace {
    /// Starts to read the objects of a match into host memory, in the plan's order; one status per
    /// object: `Stored` (in host memory now), `Rejected` (not to be had), `Cancelled`.
    /// Where host memory keeps nothing this does nothing.
    pub fn prefetch(self: &Arc<Self>, found: &Match, deadline: Instant) -> Arc<Batch> {
        let objects: Vec<_> = objects_of(&found.plan, &found.held, self.block_tokens()).collect();
        let batch = Batch::new(objects.len());
        if objects.is_empty() {
            return batch;
        }
        let refuse = |from: usize, status: Status| {
            for item in from..objects.len() {
                batch.settle(item, status);
            }
        };
        if !self.shared.options.keeps_host() {
            refuse(0, Status::Rejected(Reason::NoSpace));
            return batch;
        }
        let Some(place) = Place::take(&self.shared) else {
            refuse(0, Status::Busy);
            return batch;
        };
        let (namespace, found, sink) = (self.clone(), found.clone(), batch.clone());
        let wanted = objects.clone();
        let thread = std::thread::Builder::new().name("kvstore-prefetch".into()).spawn(move || {
            let _place = place;
            let mut item = 0;
            for chunk in wanted.chunks(AT_ONCE) {
                let results = if sink.is_cancelled() {
                    Vec::new()
                } else {
                    namespace.read_items(&found, chunk, deadline)
                };
                let mut results = results.into_iter();
                for _ in chunk {
                    sink.settle(
                        item,
                        results.next().map_or(Status::Cancelled, |r| status(r.1.err())),
                    );
                    item += 1;
                }
            }
        });
        if thread.is_err() {
            refuse(0, Status::Busy);
        }
        batch
    }
}

/// One of the prefetches that may run.
struct Place(Arc<Shared>);

impl Place {
    fn take(shared: &Arc<Shared>) -> Option<Self> {
        let more = |running| (running < MOST).then_some(running + 1);
        let running = &shared.prefetching;
        running.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(Self(shared.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.prefetching.fetch_sub(1, Ordering::AcqRel);
    }
}

fn status(missed: Option<MissReason>) -> Status {
    match missed {
        None => Status::Stored,
        Some(MissReason::Pinned) => Status::Rejected(Reason::Pinned),
        Some(MissReason::Timeout) => Status::Busy,
        Some(MissReason::Cleared) => Status::Rejected(Reason::Cleared),
        Some(_) => Status::Rejected(Reason::NoSpace),
    }
}
