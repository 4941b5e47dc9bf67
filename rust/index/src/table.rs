//! From fingerprint to slab position: a flat open-addressing table of 32-bit words.
//!
//! A word is a slab position plus one in its low bits and, in the bits that the capacity leaves
//! over, a tag from the fingerprint, so that a probe seldom reads an entry in vain (8 tag bits at
//! 10 million objects). An empty word is 0, so that a new table is memory nobody has touched. The
//! home is the fingerprint's prefix scaled to the table (multiply-shift), so the size need not be a
//! power of two. Linear probing; a deletion shifts the run back, so there are no tombstones and the
//! table never ages.

use crate::Fingerprint;
use crate::entry::EntryId;
use crate::slab::Slab;

const EMPTY: u32 = 0;

/// Keys in flight at once in [`Table::find_batch`]: enough loads to hide memory behind each other.
const LANES: usize = 32;

pub(crate) struct Table {
    words: Vec<u32>,
    id_bits: u32,
    tag_mask: u32,
}

impl Table {
    /// A table that holds `capacity` objects at a load of at most 0.7.
    pub(crate) fn new(capacity: usize) -> Table {
        let id_bits = usize::BITS - capacity.leading_zeros();
        let tag_mask = (u64::from(u32::MAX) << id_bits) as u32;
        Table { words: vec![EMPTY; Table::words_for(capacity)], id_bits, tag_mask }
    }

    const fn words_for(capacity: usize) -> usize {
        capacity + capacity / 7 * 3 + 8
    }

    pub(crate) const fn bytes_for(capacity: usize) -> usize {
        Table::words_for(capacity) * size_of::<u32>()
    }

    pub(crate) fn region(&self) -> (*const u8, usize) {
        (self.words.as_ptr().cast(), self.memory_bytes())
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.words.capacity() * size_of::<u32>()
    }

    #[inline]
    fn home(&self, prefix: u64) -> usize {
        ((u128::from(prefix) * self.words.len() as u128) >> 64) as usize
    }

    #[inline]
    fn line_after(&self, at: usize) -> usize {
        (at + 64 / size_of::<u32>()).min(self.words.len() - 1)
    }

    #[inline]
    fn next(&self, at: usize) -> usize {
        if at + 1 == self.words.len() { 0 } else { at + 1 }
    }

    /// The tag where it stands in a word; the home uses the high bits of the prefix, this the low.
    #[inline]
    fn tag(&self, prefix: u64) -> u32 {
        (prefix << self.id_bits) as u32
    }

    #[inline]
    fn word(&self, prefix: u64, id: EntryId) -> u32 {
        self.tag(prefix) | (id.0 + 1)
    }

    /// The position in a word that is not empty.
    #[inline]
    fn id(&self, word: u32) -> EntryId {
        EntryId((word & !self.tag_mask) - 1)
    }

    /// The first word at or behind `at` that is empty or carries the prefix's tag.
    #[inline]
    fn probe(&self, prefix: u64, mut at: usize) -> (usize, Option<EntryId>) {
        let tag = self.tag(prefix);
        loop {
            let word = self.words[at];
            if word == EMPTY {
                return (at, None);
            }
            if (word ^ tag) & self.tag_mask == 0 {
                return (at, Some(self.id(word)));
            }
            at = self.next(at);
        }
    }

    #[inline]
    fn find_from(
        &self,
        prefix: u64,
        mut at: usize,
        mut is_it: impl FnMut(EntryId) -> bool,
    ) -> Option<EntryId> {
        loop {
            let (place, candidate) = self.probe(prefix, at);
            let id = candidate?;
            if is_it(id) {
                return Some(id);
            }
            at = self.next(place);
        }
    }

    pub(crate) fn find(&self, slab: &Slab, key: &Fingerprint) -> Option<EntryId> {
        let prefix = key.prefix();
        self.find_from(prefix, self.home(prefix), |id| slab.entry(id).fingerprint == *key)
    }

    /// An entry whose fingerprint begins with these 8 bytes.
    pub(crate) fn find_prefix(&self, slab: &Slab, prefix: u64) -> Option<EntryId> {
        self.find_from(prefix, self.home(prefix), |id| {
            slab.entry(id).fingerprint.prefix() == prefix
        })
    }

    /// `out[i] = find(keys[i])`. Works in passes over [`LANES`] keys, each pass one independent
    /// load a key, so that the cache misses of a pass overlap.
    pub(crate) fn find_batch(
        &self,
        slab: &Slab,
        keys: &[Fingerprint],
        out: &mut [Option<EntryId>],
    ) {
        for (keys, out) in keys.chunks(LANES).zip(out.chunks_mut(LANES)) {
            let mut at = [0; LANES];
            let mut seen = [0; LANES];
            for ((key, at), seen) in keys.iter().zip(&mut at).zip(&mut seen) {
                *at = self.home(key.prefix());
                // A run often reaches into the next cache line.
                *seen = self.words[*at] ^ self.words[self.line_after(*at)];
            }
            // The words are in cache now; the loads above must not be folded into the probes.
            std::hint::black_box(&seen);
            let mut candidate = [None; LANES];
            for ((key, at), candidate) in keys.iter().zip(&mut at).zip(&mut candidate) {
                (*at, *candidate) = self.probe(key.prefix(), *at);
            }
            let mut found = [Fingerprint([0; 16]); LANES];
            for (candidate, found) in candidate.iter().zip(&mut found) {
                if let Some(id) = candidate {
                    *found = slab.entry(*id).fingerprint;
                }
            }
            for (lane, (key, out)) in keys.iter().zip(out).enumerate() {
                *out = match candidate[lane] {
                    Some(id) if found[lane] == *key => Some(id),
                    Some(_) => self.find_from(key.prefix(), self.next(at[lane]), |id| {
                        slab.entry(id).fingerprint == *key
                    }),
                    None => None,
                };
            }
        }
    }

    /// Adds an entry whose fingerprint is absent.
    pub(crate) fn insert(&mut self, key: &Fingerprint, id: EntryId) {
        let mut at = self.home(key.prefix());
        while self.words[at] != EMPTY {
            at = self.next(at);
        }
        self.words[at] = self.word(key.prefix(), id);
    }

    /// Removes an entry that is present, and shifts those behind it back over the hole.
    pub(crate) fn remove(&mut self, slab: &Slab, key: &Fingerprint, id: EntryId) {
        let word = self.word(key.prefix(), id);
        let mut hole = self.home(key.prefix());
        while self.words[hole] != word {
            assert!(self.words[hole] != EMPTY, "{id:?} is not in the table");
            hole = self.next(hole);
        }
        let size = self.words.len();
        let distance =
            |from: usize, to: usize| if to >= from { to - from } else { to + size - from };
        let mut at = hole;
        loop {
            at = self.next(at);
            let word = self.words[at];
            if word == EMPTY {
                break;
            }
            let home = self.home(slab.entry(self.id(word)).fingerprint.prefix());
            // It may move back as far as its home.
            if distance(home, at) >= distance(hole, at) {
                self.words[hole] = word;
                hole = at;
            }
        }
        self.words[hole] = EMPTY;
    }
}
