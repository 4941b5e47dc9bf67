//! Where stored objects alone let a prompt go on.

use super::Have;
use crate::Layout;

/// First block whose window object is needed to resume at the end of block `end - 1`.
pub(super) fn first_window_block(layout: &Layout, end: u32) -> u32 {
    let reach = u64::from(layout.max_window().saturating_sub(1));
    let tokens = u64::from(end) * u64::from(layout.block_tokens());
    u32::try_from(tokens.saturating_sub(reach) / u64::from(layout.block_tokens())).unwrap_or(end)
}

/// Walks block ends from the top down to those at which every window object is there. Each block's
/// window is asked for at most once.
pub(super) struct Points<'a> {
    layout: &'a Layout,
    have: &'a Have<'a>,
    /// Block windows in `known..` up to the last asked end are there.
    known: u32,
    next: u32,
}

impl<'a> Points<'a> {
    pub(super) fn below(layout: &'a Layout, have: &'a Have<'a>, top: u32) -> Self {
        Self { layout, have, known: top, next: top }
    }
}

impl Iterator for Points<'_> {
    type Item = u32;

    /// The next lower block end, in blocks, at which all windows are there.
    fn next(&mut self) -> Option<u32> {
        while self.next > 0 {
            let end = self.next;
            if self.layout.window_bytes() == 0 {
                self.next = end - 1;
                return Some(end);
            }
            let first = first_window_block(self.layout, end);
            let absent = (first..self.known.min(end)).rev().find(|&b| !(self.have.window)(b));
            match absent {
                Some(block) => {
                    self.known = block;
                    self.next = block;
                }
                None => {
                    self.known = first.min(self.known);
                    self.next = end - 1;
                    return Some(end);
                }
            }
        }
        None
    }
}
