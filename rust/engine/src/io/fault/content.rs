//! Contents of one file: what a process sees, and what a power cut may leave of it.

use super::random::Random;
use crate::io::error::IoErrorKind;

/// Writes that a drive keeps in its cache. Above that the oldest becomes durable by itself.
const CACHED_WRITES: usize = 1024;
/// What a device writes whole or not at all; drives differ.
const ATOMS: [usize; 2] = [512, 4096];

#[derive(Default)]
pub(super) struct Content {
    now: Vec<u8>,
    durable: Vec<u8>,
    /// Writes since the last sync, in order.
    cached: Vec<Written>,
}

struct Written {
    offset: usize,
    bytes: Vec<u8>,
}

impl Content {
    pub(super) fn bytes(&self) -> &[u8] {
        &self.now
    }

    pub(super) fn len(&self) -> u64 {
        self.now.len() as u64
    }

    /// Changes what is there now and what is durable alike.
    pub(super) fn at_rest(&mut self, change: impl Fn(&mut Vec<u8>)) {
        self.sync();
        change(&mut self.now);
        change(&mut self.durable);
    }

    pub(super) fn set_len(&mut self, len: usize) {
        self.at_rest(|bytes| bytes.resize(len, 0));
    }

    pub(super) fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), IoErrorKind> {
        let found = self.now.get(offset..).unwrap_or_default();
        let len = found.len().min(bytes.len());
        bytes[..len].copy_from_slice(&found[..len]);
        if len == bytes.len() { Ok(()) } else { Err(IoErrorKind::Eof) }
    }

    pub(super) fn write(&mut self, offset: usize, bytes: &[u8]) {
        put(&mut self.now, offset, bytes);
        self.cache(offset, bytes);
    }

    /// A write that has not been seen to complete.
    pub(super) fn cache(&mut self, offset: usize, bytes: &[u8]) {
        if self.cached.len() >= CACHED_WRITES {
            let oldest = self.cached.remove(0);
            put(&mut self.durable, oldest.offset, &oldest.bytes);
        }
        self.cached.push(Written { offset, bytes: bytes.to_vec() });
    }

    pub(super) fn sync(&mut self) {
        for Written { offset, bytes } in self.cached.drain(..) {
            put(&mut self.durable, offset, &bytes);
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
                put(&mut self.durable, offset + at, atom);
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

fn put(file: &mut Vec<u8>, offset: usize, bytes: &[u8]) {
    let end = offset + bytes.len();
    if file.len() < end {
        file.resize(end, 0);
    }
    file[offset..end].copy_from_slice(bytes);
}
