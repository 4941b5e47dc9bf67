//! KIVI's asymmetric integers: code = round((x - min) / scale), scale = (max - min) / (2^bits - 1).
//!
//! Scale and minimum are fp16 and the arithmetic is fp16 step by step, as its `PyTorch` path
//! computes. That code divides 0 by 0 in a constant group; here such a group has scale 0 and codes 0,
//! so that it decodes to its minimum.

use super::scalar::{Codes, Planes, cells};
use super::{Plan, Scheme};
use crate::float::{f16_to_f32, f32_to_f16};

/// One fp16 arithmetic step: fp32 arithmetic on fp16 operands, rounded once more. Exact for one
/// addition, subtraction, multiplication or division, since 24 >= 2 x 11 + 2.
fn half(value: f32) -> f32 {
    f16_to_f32(f32_to_f16(value))
}

pub(super) fn encode(
    scheme: &Scheme,
    plan: &Plan,
    load: impl Fn(usize) -> f32 + Copy,
    out: Planes<'_>,
) {
    let Planes { codes, scales, mins } = out;
    let places = Codes::new(scheme, plan);
    let levels = scheme.element.largest();
    codes.fill(0);
    for cell in cells(plan) {
        let at = |(r, c): (usize, usize)| half(load(r * plan.cols + c));
        let (mut min, mut max) = (f32::INFINITY, f32::NEG_INFINITY);
        for value in cell.each().map(at) {
            min = min.min(value);
            max = max.max(value);
        }
        let scale = half(half(max - min) / levels);
        scales[cell.index * 2..][..2].copy_from_slice(&f32_to_f16(scale).to_le_bytes());
        mins[cell.index * 2..][..2].copy_from_slice(&f32_to_f16(min).to_le_bytes());
        if scale == 0.0 {
            continue;
        }
        for (r, c) in cell.each() {
            let quotient = half(half(at((r, c)) - min) / scale);
            places.put(codes, r, c, scheme.element.encode(quotient, scheme.cast));
        }
    }
}

pub(super) fn decode(
    scheme: &Scheme,
    plan: &Plan,
    codes: &[u8],
    scales: &[u8],
    mins: &[u8],
    mut store: impl FnMut(usize, f32),
) {
    let places = Codes::new(scheme, plan);
    let number = |bytes: &[u8], index: usize| {
        f16_to_f32(u16::from_le_bytes([bytes[index * 2], bytes[index * 2 + 1]]))
    };
    for cell in cells(plan) {
        let (scale, min) = (number(scales, cell.index), number(mins, cell.index));
        for (r, c) in cell.each() {
            let code = scheme.element.decode(places.get(codes, r, c));
            store(r * plan.cols + c, half(half(code * scale) + min));
        }
    }
}
