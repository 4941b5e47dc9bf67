//! Every decoder on arbitrary bytes, always; `fuzz/` searches longer with the same entry.

#[path = "../../../fuzz/decoders.rs"]
mod decoders;

use decoders::decode_all;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    #[test]
    fn no_decoder_panics(kind in 0u8..6, bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
        decode_all(&[&[kind][..], &bytes].concat());
    }
}

/// Frames that are almost right: one byte of a valid one changed, at every place.
#[test]
fn no_changed_frame_panics() {
    use kvstore_codec::lossless::{Packer, bound};
    let words: Vec<u16> = (0..500u32).map(|i| (i * i % 977) as u16).collect();
    let mut packer = Packer::new().unwrap();
    let mut frame = vec![0; bound(words.len())];
    let length = packer.encode(&words, &mut frame).unwrap();
    for place in 0..length {
        for flip in [1, 0x80, 0xFF] {
            let mut changed = vec![4];
            changed.extend_from_slice(&frame[..length]);
            changed[1 + place] ^= flip;
            decode_all(&changed);
        }
    }
}
