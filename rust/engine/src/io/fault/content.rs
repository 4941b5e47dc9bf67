//! Contents of one file: what a process sees, and what a power cut may leave of it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use super::random::Random;
use crate::io::error::IoErrorKind;

/// Writes that a drive keeps in its cache. Above that the oldest becomes durable by itself.
const CACHED_WRITES: usize = 1024;
/// What a device writes whole or not at all; drives differ.
const ATOMS: [usize; 2] = [512, 4096];

#[derive(Default)]
pub(super) struct Content {
    now: Sparse,
    durable: Sparse,
    /// Writes since the last sync, in order.
    cached: VecDeque<Written>,
}

struct Written {
    offset: usize,
    bytes: Vec<u8>,
}

impl Content {
    pub(super) fn bytes(&self) -> Vec<u8> {
        self.now.to_vec()
    }

    pub(super) fn len(&self) -> u64 {
        self.now.len as u64
    }

    /// Changes bytes now and durably. The file grows where it is shorter.
    pub(super) fn overwrite(&mut self, offset: usize, bytes: &[u8]) {
        self.sync();
        self.now.write(offset, bytes);
        self.durable.write(offset, bytes);
    }

    pub(super) fn set_len(&mut self, len: usize) {
        self.sync();
        self.now.set_len(len);
        self.durable.set_len(len);
    }

    pub(super) fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), IoErrorKind> {
        if self.now.read(offset, bytes) == bytes.len() { Ok(()) } else { Err(IoErrorKind::Eof) }
    }

    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.now.write(offset, bytes);
        self.cache(offset, bytes);
    }

    /// A write that has not been seen to complete.
    pub(super) fn cache(&mut self, offset: usize, bytes: &[u8]) {
        if self.cached.len() >= CACHED_WRITES
            && let Some(oldest) = self.cached.pop_front()
        {
            self.durable.write(oldest.offset, &oldest.bytes);
        }
        self.cached.push_back(Written { offset, bytes: bytes.to_vec() });
    }

    pub(super) fn sync(&mut self) {
        for Written { offset, bytes } in self.cached.drain(..) {
            self.durable.write(offset, &bytes);
        }
    }

    /// A process dies with this write in the kernel: all, nothing or some of it is done.
    pub(super) fn interrupt(&mut self, offset: usize, bytes: &[u8], random: &mut Random) {
        for (at, atom) in surviving(bytes, random) {
            self.write(offset + at, atom);
        }
    }

    /// The power goes: of each write since the last sync all, nothing or some is left.
    pub(super) fn power_cut(&mut self, random: &mut Random) {
        for Written { offset, bytes } in std::mem::take(&mut self.cached) {
            for (at, atom) in surviving(&bytes, random) {
                self.durable.write(offset + at, atom);
            }
        }
        self.now.clone_from(&self.durable);
    }
}

/// What is left of an interrupted write: pieces and their places in it.
fn surviving<'a>(bytes: &'a [u8], random: &mut Random) -> Vec<(usize, &'a [u8])> {
    let fate = random.below(3);
    let atom = ATOMS[random.below(ATOMS.len())];
    let pieces = (0..).step_by(atom).zip(bytes.chunks(atom));
    match fate {
        0 => Vec::new(),
        1 => pieces.collect(),
        _ => pieces.filter(|_| random.coin()).collect(),
    }
}

/// Bytes of a page of a [`Sparse`].
const PAGE: usize = 4096;

/// A file in memory of which only what was written takes any.
#[derive(Clone, Default)]
struct Sparse {
    pages: BTreeMap<usize, Box<[u8]>>,
    len: usize,
}

impl Sparse {
    /// Fills the front of `out` with what there is; answers how much.
    fn read(&self, offset: usize, out: &mut [u8]) -> usize {
        let found = self.len.saturating_sub(offset).min(out.len());
        for (at, range) in pieces(offset, found) {
            let piece = &mut out[range];
            match self.pages.get(&(at / PAGE)) {
                Some(page) => piece.copy_from_slice(&page[at % PAGE..][..piece.len()]),
                None => piece.fill(0),
            }
        }
        found
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.len = self.len.max(offset + bytes.len());
        for (at, range) in pieces(offset, bytes.len()) {
            let page = self.pages.entry(at / PAGE).or_insert_with(|| vec![0; PAGE].into());
            page[at % PAGE..][..range.len()].copy_from_slice(&bytes[range]);
        }
    }

    fn set_len(&mut self, len: usize) {
        self.len = len;
        self.pages.split_off(&len.div_ceil(PAGE));
        if let Some(last) = self.pages.get_mut(&(len / PAGE)) {
            last[len % PAGE..].fill(0);
        }
    }

    fn to_vec(&self) -> Vec<u8> {
        let mut out = vec![0; self.len];
        self.read(0, &mut out);
        out
    }
}

/// `len` bytes from `offset`, cut at pages: places in the file and ranges of the bytes.
fn pieces(offset: usize, len: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = offset + done;
        let piece = (PAGE - at % PAGE).min(len - done);
        let range = done..done + piece;
        done += piece;
        (piece > 0).then_some((at, range))
    })
}
