//! Blocks inside one row, codes of 8 or 4 bits in order: the same specification over slices.
//!
//! A run of the block is converted to fp32 on the stack, and the loop over it is made once for each
//! element format, so that the compiler sees constants.

use super::scalar::{
    Divisor, Given, Planes, divide_by, keeps_nan_in_amax, larger, squared_error, stored_scale,
};
use super::{Pack, Plan, Scale, Scheme};
use crate::element::{Cast, Element};

/// Elements of a run.
const RUN: usize = 128;

/// Whether a scheme's codes are whole bytes or pairs of nibbles.
pub(super) fn suits(scheme: &Scheme) -> bool {
    let even = scheme.block.cols.is_multiple_of(2) && scheme.block.cols > 0;
    match (scheme.pack, scheme.element.bits()) {
        (Pack::Bytes, _) | (Pack::Bits, 8) => true,
        (Pack::Bits, 4) => even,
        _ => false,
    }
}

/// Bytes of codes for some elements.
fn bytes(scheme: &Scheme, elements: usize) -> usize {
    if scheme.pack == Pack::Bits && scheme.element.bits() == 4 { elements / 2 } else { elements }
}

/// Calls `$body` with `$element` bound to a constant.
macro_rules! with_constant {
    ($value:expr, $element:ident => $body:expr) => {
        match $value {
            Element::E4M3Fn => {
                const ELEMENT: Element = Element::E4M3Fn;
                let $element = ELEMENT;
                $body
            }
            Element::E5M2 => {
                const ELEMENT: Element = Element::E5M2;
                let $element = ELEMENT;
                $body
            }
            Element::E2M1 => {
                const ELEMENT: Element = Element::E2M1;
                let $element = ELEMENT;
                $body
            }
            Element::Int8 => {
                const ELEMENT: Element = Element::Int8;
                let $element = ELEMENT;
                $body
            }
            $element => $body,
        }
    };
}

pub(super) fn encode(
    scheme: &Scheme,
    plan: &Plan,
    load: impl Fn(usize) -> f32 + Copy,
    given: Given<'_>,
    out: Planes<'_>,
) {
    let Planes { codes: all_codes, scales, .. } = out;
    let (block, across) = (plan.block_cols, plan.blocks_per_row());
    let keep_nan = keeps_nan_in_amax(scheme);
    let needs_amax = scheme.scale != Scale::Given;
    let mut buffer = [0f32; RUN];
    for index in 0..plan.rows * across {
        let first = index * block;
        let mut amax = 0;
        let fill = |buffer: &mut [f32; RUN], start: usize| {
            let run = RUN.min(first + block - start);
            for (i, value) in buffer[..run].iter_mut().enumerate() {
                *value = load(start + i);
            }
            run
        };
        if needs_amax {
            for start in (first..first + block).step_by(RUN) {
                let run = fill(&mut buffer, start);
                amax = buffer[..run].iter().fold(amax, |most, x| larger(most, *x, keep_nan));
            }
        }
        let stored = &mut scales[index * plan.scale_bytes..][..plan.scale_bytes];
        let error = |divisor| squared_error(scheme, divisor, (first..first + block).map(load));
        let divisor = divide_by(scheme, given, index % across, amax, stored, error);
        for start in (first..first + block).step_by(RUN) {
            // A block of one run is still in the buffer.
            let run = if needs_amax && block <= RUN { block } else { fill(&mut buffer, start) };
            let at = bytes(scheme, start);
            let codes = &mut all_codes[at..at + bytes(scheme, run)];
            match divisor {
                Some(divisor) => encode_run(scheme, divisor, &buffer[..run], codes),
                None => codes.fill(0),
            }
        }
    }
}

fn encode_run(scheme: &Scheme, divisor: Divisor, values: &[f32], codes: &mut [u8]) {
    let quotient = scheme.quotient;
    if scheme.cast == Cast::CANONICAL {
        with_constant!(scheme.element, element => {
            encode_each(values, codes, |x| element.encode(divisor.apply(quotient, x), Cast::CANONICAL));
        });
    } else {
        let (element, cast) = (scheme.element, scheme.cast);
        encode_each(values, codes, |x| element.encode(divisor.apply(quotient, x), cast));
    }
}

#[inline(always)]
fn encode_each(values: &[f32], codes: &mut [u8], code: impl Fn(f32) -> u8) {
    if values.len() == codes.len() {
        for (byte, x) in codes.iter_mut().zip(values) {
            *byte = code(*x);
        }
    } else {
        for (byte, pair) in codes.iter_mut().zip(values.chunks_exact(2)) {
            *byte = code(pair[0]) | code(pair[1]) << 4;
        }
    }
}

pub(super) fn decode(
    scheme: &Scheme,
    plan: &Plan,
    codes: &[u8],
    scales: &[u8],
    given: Given<'_>,
    mut store: impl FnMut(usize, f32),
) {
    let (block, across) = (plan.block_cols, plan.blocks_per_row());
    let values = scheme.element.values();
    let nibbles = bytes(scheme, 2) == 1;
    for index in 0..plan.rows * across {
        let stored = &scales[index * plan.scale_bytes..][..plan.scale_bytes];
        let scale = stored_scale(scheme, stored, index % across, given);
        let at = bytes(scheme, index * block);
        let codes = &codes[at..at + bytes(scheme, block)];
        if nibbles {
            for (i, code) in codes.iter().enumerate() {
                store(index * block + 2 * i, values[usize::from(code & 0xF)] * scale);
                store(index * block + 2 * i + 1, values[usize::from(code >> 4)] * scale);
            }
        } else {
            for (i, code) in codes.iter().enumerate() {
                store(index * block + i, values[usize::from(*code)] * scale);
            }
        }
    }
}
