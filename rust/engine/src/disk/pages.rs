//! Which pages of the slot table have changes that are not on disk yet.
//!
//! A page has at most one write in flight (INV-2); changes meanwhile mark it dirty again and go
//! with the next image. That is the group commit: whatever came while a page was on its way
//! shares one write.

use kvstore_index::EntryId;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// How long a page whose write failed waits for the next attempt.
const PAUSE: Duration = Duration::from_millis(20);

/// A page of the slot table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PageId {
    /// Segment whose slots it describes.
    pub segment: u32,
    /// Page of the segment's region, 64 slots each.
    pub page: u32,
}

/// What a page's next image settles.
#[derive(Debug, Default)]
pub struct Settles {
    /// Freed slots, with the generation they were freed in; free once the image is on disk.
    pub cooled: Vec<(u32, u32)>,
    /// Index entries whose descriptor is in the image for the first time.
    pub committed: Vec<EntryId>,
}

#[derive(Debug, Default)]
struct Page {
    queued: bool,
    in_flight: bool,
    /// Failed writes in a row.
    failures: u32,
    next: Settles,
}

/// Dirty pages of one device.
#[derive(Debug, Default)]
pub struct Pages {
    pages: HashMap<PageId, Page>,
    queue: VecDeque<PageId>,
    /// Pages whose write failed, and when the first of them did.
    parked: Vec<PageId>,
    parked_at: Option<Instant>,
    /// Nothing is written: the store is open for reading only.
    frozen: bool,
}

impl Pages {
    /// From now on slots that are freed stay as they are on disk.
    pub fn freeze(&mut self) {
        self.frozen = true;
    }

    /// The slot was freed: the next image is without its descriptor.
    pub fn cool(&mut self, id: PageId, slot: u32, generation: u32) {
        if self.frozen {
            return;
        }
        self.dirty(id).next.cooled.push((slot, generation));
    }

    /// The entry's payload is on disk: the next image has its descriptor (INV-1).
    pub fn commit(&mut self, id: PageId, entry: EntryId) {
        self.dirty(id).next.committed.push(entry);
    }

    fn dirty(&mut self, id: PageId) -> &mut Page {
        let page = self.pages.entry(id).or_default();
        if !page.queued && !page.in_flight {
            page.queued = true;
            self.queue.push_back(id);
        }
        page
    }

    /// The next page to write; from now on it is in flight.
    pub fn start(&mut self) -> Option<(PageId, Settles)> {
        let id = self.queue.pop_front()?;
        let page = self.pages.get_mut(&id)?;
        page.queued = false;
        page.in_flight = true;
        Some((id, std::mem::take(&mut page.next)))
    }

    /// The write of a page is over. When it failed, what it should have settled goes with the
    /// next image, after a pause.
    pub fn finish(&mut self, id: PageId, failed: Option<Settles>) {
        let Some(page) = self.pages.get_mut(&id) else { return };
        page.in_flight = false;
        if let Some(mut settles) = failed {
            page.next.cooled.append(&mut settles.cooled);
            page.next.committed.append(&mut settles.committed);
            page.failures += 1;
            page.queued = true;
            self.parked.push(id);
            self.parked_at.get_or_insert_with(Instant::now);
            return;
        }
        page.failures = 0;
        if page.next.cooled.is_empty() && page.next.committed.is_empty() {
            self.pages.remove(&id);
        } else {
            page.queued = true;
            self.queue.push_back(id);
        }
    }

    /// Failed writes of a page in a row.
    pub fn failures(&self, id: PageId) -> u32 {
        self.pages.get(&id).map_or(0, |page| page.failures)
    }

    /// Whether some page waits for another attempt.
    pub fn is_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Queues the pages whose pause is over.
    pub fn retry(&mut self, now: Instant) {
        if self.parked_at.is_some_and(|at| now.duration_since(at) >= PAUSE) {
            self.parked_at = None;
            self.queue.extend(self.parked.drain(..));
        }
    }

    /// Whether any page is dirty or on its way.
    pub fn is_idle(&self) -> bool {
        self.pages.is_empty()
    }

    /// Pages that wait for a write.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::disk::test_entries;

    const A: PageId = PageId { segment: 0, page: 0 };

    #[test]
    fn a_page_has_one_write_in_flight_and_changes_meanwhile_go_with_the_next() {
        let [one, two, three] = test_entries();
        let mut pages = Pages::default();
        pages.commit(A, one);
        pages.commit(A, two);
        let (id, first) = pages.start().unwrap();
        assert_eq!((id, first.committed.as_slice()), (A, &[one, two][..]));
        pages.commit(A, three);
        pages.cool(A, 9, 1);
        assert!(pages.start().is_none(), "the page is on its way");
        pages.finish(A, None);
        let (_, second) = pages.start().unwrap();
        assert_eq!(second.committed, [three]);
        assert_eq!(second.cooled, [(9, 1)]);
        pages.finish(A, None);
        assert!(pages.is_idle());
    }

    #[test]
    fn what_a_failed_write_should_have_settled_is_not_lost() {
        let mut pages = Pages::default();
        pages.cool(A, 1, 1);
        let (_, settles) = pages.start().unwrap();
        pages.finish(A, Some(settles));
        pages.cool(A, 2, 1);
        assert!(pages.start().is_none(), "a failed page pauses");
        assert_eq!(pages.failures(A), 1);
        pages.retry(Instant::now() + PAUSE);
        let mut cooled = pages.start().unwrap().1.cooled;
        cooled.sort_unstable();
        assert_eq!(cooled, [(1, 1), (2, 1)]);
        pages.finish(A, None);
        assert!(pages.is_idle() && !pages.is_parked());
    }
}
