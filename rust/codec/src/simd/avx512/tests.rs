use super::*;

/// Every significand of bf16 and one in 499 of fp32; all of them were compared once.
#[test]
fn quotients_are_rounded_as_divisions() {
    let Some(s) = Avx512::<false>::new() else { return };
    for bits in (0..1 << 23).step_by(499).chain([1, (1 << 23) - 1]) {
        let scale = f32::from_bits((127 << 23) | bits);
        for first in (0..128).step_by(16) {
            let x = |i: u16| (127 << 7) | (first + i);
            let words: [u16; 16] = std::array::from_fn(|i| x(i as u16));
            let (by, reciprocal) = (s.splat_float(scale), s.splat_float(1.0 / scale));
            let mut found = [0.0; 16];
            s.store_floats(s.quotient(s.widen(&words), by, reciprocal), &mut found);
            let wanted = words.map(|x| f32::from_bits(u32::from(x) << 16) / scale);
            assert_eq!(found, wanted, "scale {scale:e}");
        }
    }
}
