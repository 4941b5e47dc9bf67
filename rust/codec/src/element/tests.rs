//! Exhaustive over bf16 and fp16 against a slow nearest-code search, and the reports of section B6.

use super::*;
use crate::float::{bf16_to_f32, f16_to_f32};

const FLOATS: [Element; 7] = [
    Element::E4M3Fn,
    Element::E5M2,
    Element::E4M3Fnuz,
    Element::E5M2Fnuz,
    Element::E2M1,
    Element::E2M3,
    Element::E3M2,
];

/// Non-negative finite values in code order, one step past the largest for the overflow tie.
fn ladder(element: Element) -> Vec<f64> {
    let codes = 0..(1u16 << (element.bits() - 1));
    let finite = codes.map(|c| f64::from(element.decode(c as u8))).take_while(|v| v.is_finite());
    finite.collect()
}

/// Nearest code by exact comparison in f64, ties to the even code.
fn nearest(ladder: &[f64], magnitude: f64) -> u8 {
    let above = ladder.partition_point(|v| *v < magnitude);
    if above == ladder.len() {
        return (ladder.len() - 1) as u8;
    }
    if above == 0 {
        return 0;
    }
    let (low, high) = (magnitude - ladder[above - 1], ladder[above] - magnitude);
    let up = high < low || (high == low && above % 2 == 0);
    (if up { above } else { above - 1 }) as u8
}

#[test]
fn all_half_precision_patterns_round_to_the_nearest_code() {
    for element in FLOATS {
        let ladder = ladder(element);
        let sign_bit = 1u8 << (element.bits() - 1);
        let unsigned_zero = matches!(element, Element::E4M3Fnuz | Element::E5M2Fnuz);
        for convert in [bf16_to_f32, f16_to_f32] {
            for bits in 0..=u16::MAX {
                let value = convert(bits);
                if value.is_nan() {
                    continue;
                }
                let mut wanted = nearest(&ladder, f64::from(value.abs()));
                if value.is_sign_negative() && !(unsigned_zero && wanted == 0) {
                    wanted |= sign_bit;
                }
                let code = element.encode(value, Cast::CANONICAL);
                assert_eq!(code, wanted, "{} of {value:e} ({bits:#06x})", element.name());
            }
        }
    }
}

#[test]
fn every_finite_code_encodes_back_to_itself() {
    for element in Element::ALL {
        let codes = 1u16 << element.bits();
        for code in (0..codes).map(|c| c as u8) {
            let value = element.decode(code);
            if value.is_finite() {
                assert_eq!(element.encode(value, Cast::CANONICAL), code, "{}", element.name());
            }
        }
    }
}

#[test]
fn e4m3_above_its_largest_follows_the_stated_policy() {
    let saturate = |x| Element::E4M3Fn.encode(x, Cast::CANONICAL);
    let given = [448.0, 464.0, 465.0, 1e10, -1e10, f32::INFINITY, f32::NAN, -f32::NAN];
    assert_eq!(given.map(saturate), [0x7E, 0x7E, 0x7E, 0x7E, 0xFE, 0x7E, 0x7F, 0x7F]);
    let special = Cast { overflow: Overflow::Special, ..Cast::CANONICAL };
    assert_eq!(Element::E4M3Fn.encode(464.0, special), 0x7E);
    assert_eq!(Element::E4M3Fn.encode(464.1, special), 0x7F);
    assert_eq!(Element::E5M2.encode(f32::INFINITY, special), 0x7C);
    assert_eq!(Element::E5M2.encode(f32::INFINITY, Cast::CANONICAL), 0x7B);
    assert_eq!(Element::E4M3Fnuz.encode(1e9, special), 0x80);
}

#[test]
fn fnuz_bytes_are_half_of_ocp_bytes() {
    assert_eq!(Element::E4M3Fn.decode(0x38), 1.0);
    assert_eq!(Element::E4M3Fnuz.decode(0x38), 0.5);
    assert_eq!(Element::E4M3Fn.decode(0x80).to_bits(), (-0.0f32).to_bits());
    assert!(Element::E4M3Fnuz.decode(0x80).is_nan());
}

#[test]
fn fp4_ties_follow_the_rule() {
    let ties = [0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0];
    let with =
        |rounding| ties.map(|x| Element::E2M1.encode(x, Cast { rounding, ..Cast::CANONICAL }));
    assert_eq!(with(Rounding::NearestEven), [0, 2, 2, 4, 4, 6, 6]);
    assert_eq!(with(Rounding::NearestTowardZero), [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(with(Rounding::NearestAway), [1, 2, 3, 4, 5, 6, 7]);
    let above = f32::from_bits(0.25f32.to_bits() + 1);
    assert_eq!(Element::E2M1.encode(above, Cast::CANONICAL), 1);
    let clear = Cast { zero: ZeroSign::Clear, ..Cast::CANONICAL };
    assert_eq!(Element::E2M1.encode(-0.1, clear), 0);
    assert_eq!(Element::E2M1.encode(-0.1, Cast::CANONICAL), 8);
}

#[test]
fn integers_round_truncate_and_clamp() {
    let int8 =
        |x, rounding| Element::Int8.encode(x, Cast { rounding, ..Cast::CANONICAL }).cast_signed();
    assert_eq!(int8(2.5, Rounding::NearestEven), 2);
    assert_eq!(int8(-2.5, Rounding::NearestAway), -3);
    assert_eq!(int8(2.5, Rounding::NearestTowardZero), 2);
    assert_eq!(int8(-2.9, Rounding::Truncate), -2);
    assert_eq!(int8(-1e9, Rounding::NearestEven), -128);
    assert_eq!(int8(f32::NAN, Rounding::NearestEven), 0);
    assert_eq!(Element::Int4.encode(-3.0, Cast::CANONICAL), 0xD);
    assert_eq!(Element::Int4.decode(0xD), -3.0);
    assert_eq!(Element::Int2.decode(2), -2.0);
}
