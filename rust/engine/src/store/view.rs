//! Bytes of a lease as others see them: zero-copy, and kept alive by whoever looks.
//!
//! torch writes through DLPack's read-only flag and through `frombuffer`. So an object that leaves
//! a `private` arena by buffer protocol or DLPack is *exposed* while such a view lives (contract
//! C1): hits get a verified copy from disk, and an object that is not on disk yet hands out a copy.

use super::lease::Item;
use super::meta::bit;
use super::read::Held;
use super::state::State;
use std::sync::Arc;

impl Held {
    /// Flags of the object now; a removed one counts as not on disk.
    fn flags_now(&self, state: &State) -> u8 {
        self.id().filter(|&id| !state.index.is_dead(id)).map_or(0, |id| state.index[id].flags)
    }

    /// The payload, for the engine's own code.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the slot is pinned by `self` and whole. Nobody writes a whole slot, except a
        // foreign view of an exposed one, which `fetch` hands to nobody; a reader that came before
        // the exposure verifies what it copies.
        unsafe { self.shared.arena.bytes(self.buf) }
    }
}

/// How a view's memory is held.
enum Memory {
    /// In the arena, behind a pin; `exposed` if it was counted as such.
    Pinned { held: Arc<Held>, exposed: bool },
    /// A copy of the view's own.
    Copied(Box<[u8]>),
}

/// A range of an object's bytes. The memory lives as long as the view (contract C6).
pub struct View {
    memory: Memory,
    start: usize,
    len: usize,
}

impl View {
    /// Bytes `range` of an item, for Rust callers: the slice is read-only by its type.
    /// `None` when the range is outside, or lies in more than one part: [`View::joined`] copies.
    pub fn of(item: &Item, range: std::ops::Range<usize>) -> Option<Self> {
        let mut start = range.start.checked_add(item.skip)?;
        let len = range.end.checked_sub(range.start)?;
        for held in &item.parts {
            let part = held.length as usize;
            if start < part || (len == 0 && start == part) {
                return (start + len <= part).then(|| Self {
                    memory: Memory::Pinned { held: held.clone(), exposed: false },
                    start,
                    len,
                });
            }
            start -= part;
        }
        None
    }

    /// Bytes `range` of an item, copied together from as many parts as it touches.
    pub fn joined(item: &Item, range: std::ops::Range<usize>) -> Option<Self> {
        if range.end > item.len() || range.start > range.end {
            return None;
        }
        let mut out = Vec::with_capacity(range.len());
        let mut at = 0;
        for (number, held) in item.parts.iter().enumerate() {
            let bytes = &held.bytes()[if number == 0 { item.skip } else { 0 }..];
            let from = range.start.clamp(at, at + bytes.len()) - at;
            let to = range.end.clamp(at, at + bytes.len()) - at;
            out.extend_from_slice(&bytes[from..to]);
            at += bytes.len();
        }
        let len = out.len();
        Some(Self { memory: Memory::Copied(out.into()), start: 0, len })
    }

    /// The same bytes for foreign code (buffer protocol, DLPack), which may write them.
    pub fn export(item: &Item, range: std::ops::Range<usize>) -> Option<Self> {
        let mut view = Self::of(item, range)?;
        let Memory::Pinned { held, exposed } = &mut view.memory else { return Some(view) };
        if !held.shared.views_are_writable() || held.is_private() {
            return Some(view);
        }
        let mut state = held.shared.state.lock();
        // A write of its own bytes to another segment must not see them change.
        let moving = held.id().is_some_and(|id| state.moves.contains_key(&id));
        if held.flags_now(&state) & bit::READY != 0 && !moving {
            state.slots.expose(held.slot);
            *exposed = true;
            drop(state);
            return Some(view);
        }
        drop(state);
        let copy: Box<[u8]> = view.as_slice().into();
        let len = copy.len();
        Some(Self { memory: Memory::Copied(copy), start: 0, len })
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        match &self.memory {
            Memory::Pinned { held, .. } => &held.bytes()[self.start..self.start + self.len],
            Memory::Copied(bytes) => &bytes[self.start..self.start + self.len],
        }
    }

    /// Address of the bytes for foreign code: in a `shared` arena that of the read-only mapping.
    pub fn foreign_ptr(&self) -> *const u8 {
        match &self.memory {
            Memory::Pinned { held, .. } => {
                held.shared.arena.view_ptr(held.buf).wrapping_add(self.start)
            }
            Memory::Copied(bytes) => bytes.as_ptr().wrapping_add(self.start),
        }
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether these are the store's own bytes, not a copy.
    pub fn is_zero_copy(&self) -> bool {
        matches!(self.memory, Memory::Pinned { .. })
    }
}

impl Drop for View {
    fn drop(&mut self) {
        if let Memory::Pinned { held, exposed: true } = &self.memory {
            let mut state = held.shared.state.lock();
            if state.slots.unexpose(held.slot) == 0 {
                // Verified once before it is trusted again.
                state.slots.set_suspect(held.slot, true);
            }
        }
    }
}
