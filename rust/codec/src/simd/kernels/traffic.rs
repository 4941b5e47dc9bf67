//! The traffic of a decode without its arithmetic.

use super::decode::PIECE;
use super::{Simd, part, part_mut};
use crate::traffic::LINE;

/// Lines of `source`, each as often as `target` is larger; streamed to two places in turn, as
/// decodes do.
#[inline(always)]
pub(in crate::simd) fn traffic<S: Simd>(s: S, source: &[u8], target: &mut [u16], stream: bool) {
    if source.is_empty() {
        return;
    }
    let times = 2 * target.len() / source.len();
    // Words of the results of one line, and lines of a piece.
    let words = times * LINE / 2;
    let lines = if words < PIECE { PIECE / words } else { 1 };
    let pairs = if stream { source.len() / LINE / 2 / lines } else { 0 };
    let half = pairs * lines;
    let mut i = 0;
    while i < 2 * pairs {
        let mut line = i / 2 * lines + i % 2 * half;
        let end = line + lines;
        while line < end {
            let y = part_mut(target, line * words, words);
            match times {
                2 => repeat::<S, 2>(s, part(source, line * LINE, LINE), y, stream),
                4 => repeat::<S, 4>(s, part(source, line * LINE, LINE), y, stream),
                _ => repeat::<S, 0>(s, part(source, line * LINE, LINE), y, stream),
            }
            line += 1;
        }
        i += 1;
    }
    let mut line = 2 * half;
    while line < source.len() / LINE {
        let y = part_mut(target, line * words, words);
        repeat::<S, 0>(s, part(source, line * LINE, LINE), y, stream);
        line += 1;
    }
    if stream {
        s.fence();
    }
}

/// One line, `TIMES` times or, for 0, as often as it fits.
#[inline(always)]
fn repeat<S: Simd, const TIMES: usize>(s: S, line: &[u8], target: &mut [u16], stream: bool) {
    let times = if TIMES == 0 { target.len() / (LINE / 2) } else { TIMES };
    let first = s.load_whole(part(line, 0, 2 * S::LANES));
    let last = s.load_whole(part(line, LINE - 2 * S::LANES, 2 * S::LANES));
    let mut i = 0;
    while i < times {
        s.store(first, part_mut(target, i * (LINE / 2), S::LANES), stream);
        if S::LANES < LINE / 2 {
            s.store(last, part_mut(target, i * (LINE / 2) + S::LANES, S::LANES), stream);
        }
        i += 1;
    }
}
