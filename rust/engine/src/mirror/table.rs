//! From fingerprint to the marks that carry it: flat open addressing over 64-bit words.
//!
//! A word is a mark's number plus one, and above it 32 bits of the fingerprint, so that a probe
//! seldom reads a mark in vain. The home comes from the high bits of the fingerprint's prefix
//! (multiply-shift), the tag from the low ones. A fingerprint may be in the table several times, once
//! per mark. Deletion shifts the run back, so there are no tombstones.

const EMPTY: u64 = 0;

pub(super) struct Table {
    words: Vec<u64>,
}

impl Table {
    /// A table for `marks` marks, at a load of at most 0.7; memory that nobody has touched yet.
    pub(super) fn new(marks: usize) -> Self {
        Self { words: vec![EMPTY; Self::words_for(marks)] }
    }

    pub(super) const fn bytes_for(marks: usize) -> usize {
        Self::words_for(marks) * size_of::<u64>()
    }

    const fn words_for(marks: usize) -> usize {
        marks + marks / 7 * 3 + 8
    }

    /// The first mark of `prefix`, in the order of the run, that `is_it` takes.
    pub(super) fn find(&self, prefix: u64, mut is_it: impl FnMut(u32) -> bool) -> Option<u32> {
        let mut at = self.home(prefix);
        while self.words[at] != EMPTY {
            let (mark, tag) = unpack(self.words[at]);
            if tag == prefix as u32 && is_it(mark) {
                return Some(mark);
            }
            at = self.next(at);
        }
        None
    }

    /// Adds a mark that is absent. The caller keeps the number of marks within what the table was
    /// made for, so an empty word is always there.
    pub(super) fn insert(&mut self, prefix: u64, mark: u32) {
        let mut at = self.home(prefix);
        while self.words[at] != EMPTY {
            at = self.next(at);
        }
        self.words[at] = pack(prefix, mark);
    }

    /// Removes a mark that is present; `prefix_of` says the prefix of the others.
    pub(super) fn remove(&mut self, prefix: u64, mark: u32, prefix_of: impl Fn(u32) -> u64) {
        let word = pack(prefix, mark);
        let mut hole = self.home(prefix);
        while self.words[hole] != word {
            assert!(self.words[hole] != EMPTY, "mark {mark} is not in the mirror's table");
            hole = self.next(hole);
        }
        let size = self.words.len();
        let distance =
            |from: usize, to: usize| if to >= from { to - from } else { to + size - from };
        let mut at = self.next(hole);
        while self.words[at] != EMPTY {
            let home = self.home(prefix_of(unpack(self.words[at]).0));
            // It may move back as far as its home.
            if distance(home, at) >= distance(hole, at) {
                self.words[hole] = self.words[at];
                hole = at;
            }
            at = self.next(at);
        }
        self.words[hole] = EMPTY;
    }

    fn home(&self, prefix: u64) -> usize {
        ((u128::from(prefix) * self.words.len() as u128) >> 64) as usize
    }

    fn next(&self, at: usize) -> usize {
        if at + 1 == self.words.len() { 0 } else { at + 1 }
    }
}

fn pack(prefix: u64, mark: u32) -> u64 {
    prefix << 32 | (u64::from(mark) + 1)
}

/// Mark and tag of a word that is not empty.
fn unpack(word: u64) -> (u32, u32) {
    (word as u32 - 1, (word >> 32) as u32)
}
