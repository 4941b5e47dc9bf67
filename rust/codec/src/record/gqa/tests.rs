//! Page shapes, the V swizzle with structured values (B6-04), and inline strides (B6-07).

use super::*;
use crate::float::{bf16_to_f32, f32_to_bf16};

/// Group g of each head has magnitude g + 1.
fn stairs(tokens: usize, heads: usize, head_dim: usize) -> Vec<u16> {
    let element = |i: usize| {
        let magnitude = (i % head_dim / 16 + 1) as f32 * 1.5;
        f32_to_bf16(if i.is_multiple_of(2) { magnitude } else { -magnitude })
    };
    (0..tokens * heads * head_dim).map(element).collect()
}

#[test]
fn nvfp4_pages_hold_k_scales_in_order_and_v_scales_swizzled() {
    let [tokens, heads, head_dim] = [8, 2, 256];
    for order in [Order::Nhd, Order::Hnd] {
        let page =
            Page::new("nvfp4.global", [tokens, heads, head_dim], order, Scales::AfterSwizzledV)
                .unwrap();
        let rows = stairs(tokens, heads, head_dim);
        let mut bytes = vec![0; page.bytes().unwrap()];
        assert_eq!(bytes.len(), 2 * tokens * heads * (head_dim / 2 + head_dim / 16));
        page.pack([&rows, &rows], [1.0, 1.0], &mut bytes).unwrap();
        let half = bytes.len() / 2;
        let codes = tokens * heads * head_dim / 2;
        let k_scales = &bytes[codes..codes + 16];
        assert!(k_scales.windows(2).all(|w| w[0] < w[1]), "16 distinct scales in order");
        // V: the first 4 bytes are scale 0 of tokens 0 to 3, then scale 1 of them.
        let v_scales = &bytes[half + codes..];
        assert_eq!(v_scales[..4], [k_scales[0]; 4]);
        assert_eq!(v_scales[4..8], [k_scales[1]; 4]);
        let mut back = [vec![0; rows.len()], vec![0; rows.len()]];
        let [k, v] = &mut back;
        page.unpack(&bytes, [1.0, 1.0], [k, v]).unwrap();
        assert_eq!(back[0], back[1]);
        let (error, energy) = rows.iter().zip(&back[1]).fold((0.0, 0.0), |(e, n), (x, y)| {
            let (x, y) = (f64::from(bf16_to_f32(*x)), f64::from(bf16_to_f32(*y)));
            (e + (x - y) * (x - y), n + x * x)
        });
        assert!((error / energy).sqrt() < 0.15);
    }
}

#[test]
fn inline_scales_widen_each_row() {
    let page =
        Page::new("fp8_e4m3.per_token_head", [4, 2, 128], Order::Nhd, Scales::Inline).unwrap();
    assert_eq!(page.stride(), Ok(132));
    assert_eq!(page.bytes(), Ok(2 * 4 * 2 * 132));
    let rows = stairs(4, 2, 128);
    let mut bytes = vec![0; page.bytes().unwrap()];
    page.pack([&rows, &rows], [1.0, 1.0], &mut bytes).unwrap();
    let scale = f32::from_le_bytes([bytes[128], bytes[129], bytes[130], bytes[131]]);
    assert_eq!(scale, 12.0 / 448.0);
    let error = page.pack([&rows, &rows], [1.0, 1.0], &mut bytes[1..]).unwrap_err();
    assert!(error.to_string().contains("page: 2111 bytes given, exactly 2112 wanted"), "{error}");
}

#[test]
fn bf16_and_static_fp8_pages_round_trip() {
    let rows = stairs(4, 2, 64);
    for (preset, bytes_per_element) in [("bf16", 2), ("fp8_e4m3.static", 1)] {
        let page = Page::new(preset, [4, 2, 64], Order::Hnd, Scales::After).unwrap();
        let mut bytes = vec![0; page.bytes().unwrap()];
        assert_eq!(bytes.len(), 2 * rows.len() * bytes_per_element);
        page.pack([&rows, &rows], [1.0, 1.0], &mut bytes).unwrap();
        let (mut k, mut v) = (vec![0; rows.len()], vec![0; rows.len()]);
        page.unpack(&bytes, [1.0, 1.0], [&mut k, &mut v]).unwrap();
        assert_eq!((&k, &v), (&rows, &rows), "{preset}: these values are exact in e4m3");
    }
}

#[test]
fn bad_scales_and_shapes_are_refused() {
    let page = Page::new("fp8_e4m3.static", [4, 1, 16], Order::Nhd, Scales::After).unwrap();
    let rows = stairs(4, 1, 16);
    let mut bytes = vec![0; page.bytes().unwrap()];
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, 0.0, -1.0] {
        let error = page.pack([&rows, &rows], [1.0, bad], &mut bytes).unwrap_err();
        assert!(error.to_string().starts_with("v_scale[0]"), "{error}");
    }
    let swizzled = |shape| Page::new("nvfp4.global", shape, Order::Nhd, Scales::AfterSwizzledV);
    assert!(swizzled([6, 1, 64]).unwrap_err().to_string().contains("tokens: 6 given"));
    assert!(swizzled([4, 1, 32]).unwrap_err().to_string().contains("scales per head: 2 given"));
    assert!(Page::new("kivi_k.int4", [32, 1, 64], Order::Nhd, Scales::After).is_err());
}
