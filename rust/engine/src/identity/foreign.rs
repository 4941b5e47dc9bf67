//! Keys that a serving engine made (vLLM, SGLang, LMCache): opaque bytes, put under the same root.
//!
//! A foreign hash may leave out the salt, the model or the format, and may be narrower than a key. So it
//! names nothing here by itself: it goes through the keyed hash of the namespace together with the
//! tenant's root, and with the group where the engine delivers groups one by one. The message has 128
//! bytes, two compressions that fit the SIMD lanes:
//!
//! | bytes | what |
//! | --- | --- |
//! | 16 | `kvstore-foreign1` (ASCII) |
//! | 32 | root of the tenant |
//! | 4 | group index, u32 little-endian (0 where groups are not split) |
//! | 4 | length n of the key, u32 little-endian |
//! | n | the key, 16 to 32 bytes |
//! | 72 - n | zero |
//!
//! The result takes the place of a chain's key(i): it names the bare body, and object keys are made
//! from it. Nothing in it says what its parent is; the caller does.

use super::lanes::{Lanes, MAX_LANES};
use super::{IdentityError, Key, NamespaceDigest, Root};
use std::ops::RangeInclusive;

/// Length that a foreign key may have, bytes.
pub const FOREIGN_KEY_BYTES: RangeInclusive<usize> = 16..=32;

const LABEL: &[u8; 16] = b"kvstore-foreign1";
const MESSAGE_BYTES: usize = 128;
const KEY_AT: usize = 56;

/// The key of one foreign key in `group`.
///
/// # Errors
/// As [`foreign_keys`].
pub fn foreign_key(
    namespace: &NamespaceDigest,
    root: &Root,
    key: &[u8],
    group: u32,
) -> Result<Key, IdentityError> {
    let mut message = message(root, group, check_width(key.len())?);
    message[KEY_AT..][..key.len()].copy_from_slice(key);
    let mut out = [[0; 32]];
    Lanes::keyed(namespace.as_bytes()).hash_each(&[message], &mut out);
    Ok(Key::from_bytes(out[0]))
}

/// The keys of n foreign keys that lie one behind the other in `keys`, `width` bytes each.
///
/// # Errors
/// [`IdentityError::Invalid`] when `width` is not in [`FOREIGN_KEY_BYTES`], or the buffer is no
/// multiple of it.
pub fn foreign_keys(
    namespace: &NamespaceDigest,
    root: &Root,
    keys: &[u8],
    width: usize,
    group: u32,
) -> Result<Vec<Key>, IdentityError> {
    let blank = message(root, group, check_width(width)?);
    if !keys.len().is_multiple_of(width) {
        let limit = format!("the buffer holds whole keys of {width} bytes");
        return Err(IdentityError::invalid("keys", &format!("{} bytes long", keys.len()), limit));
    }
    let lanes = Lanes::keyed(namespace.as_bytes());
    let mut messages = [blank; MAX_LANES];
    let mut digests = [[0; 32]; MAX_LANES];
    let mut out = Vec::with_capacity(keys.len() / width);
    for keys in keys.chunks(MAX_LANES * width) {
        let count = keys.len() / width;
        for (message, key) in messages.iter_mut().zip(keys.chunks_exact(width)) {
            message[KEY_AT..][..width].copy_from_slice(key);
        }
        lanes.hash_each(&messages[..count], &mut digests[..count]);
        out.extend(digests[..count].iter().copied().map(Key::from_bytes));
    }
    Ok(out)
}

/// The message of a key of `width` zero bytes.
fn message(root: &Root, group: u32, width: u32) -> [u8; MESSAGE_BYTES] {
    let mut message = [0; MESSAGE_BYTES];
    message[..16].copy_from_slice(LABEL);
    message[16..48].copy_from_slice(root.as_bytes());
    message[48..52].copy_from_slice(&group.to_le_bytes());
    message[52..KEY_AT].copy_from_slice(&width.to_le_bytes());
    message
}

fn check_width(width: usize) -> Result<u32, IdentityError> {
    if !FOREIGN_KEY_BYTES.contains(&width) {
        return Err(IdentityError::invalid(
            "key width",
            &width,
            "a foreign key has 16 to 32 bytes",
        ));
    }
    Ok(width as u32) // at most 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    const NAMESPACE: NamespaceDigest = NamespaceDigest::from_bytes([3; 32]);
    const ROOT: Root = Root::from_bytes([5; 32]);

    proptest! {
        /// One key at a time, in batches of any size, and by the public keyed hash of the documented
        /// message: the same.
        #[test]
        fn a_batch_equals_single_keys_and_the_documented_message(
            bytes in prop::collection::vec(any::<u8>(), 0..40 * 32),
            width in FOREIGN_KEY_BYTES,
            group: u32,
        ) {
            let bytes = &bytes[..bytes.len() - bytes.len() % width];
            let batch = foreign_keys(&NAMESPACE, &ROOT, bytes, width, group).unwrap();
            prop_assert_eq!(batch.len(), bytes.len() / width);
            for (key, got) in bytes.chunks_exact(width).zip(batch) {
                let mut message = b"kvstore-foreign1".to_vec();
                message.extend(ROOT.as_bytes());
                message.extend(group.to_le_bytes());
                message.extend((width as u32).to_le_bytes());
                message.extend(key);
                message.resize(128, 0);
                let wanted = blake3::keyed_hash(NAMESPACE.as_bytes(), &message);
                prop_assert_eq!(got.as_bytes(), wanted.as_bytes());
                prop_assert_eq!(foreign_key(&NAMESPACE, &ROOT, key, group).unwrap(), got);
            }
        }
    }

    /// B1-04, B1-05: an engine's own hash is not trusted to hold the salt or the model.
    #[test]
    fn one_foreign_key_differs_by_namespace_root_group_and_length() {
        let other_namespace = NamespaceDigest::from_bytes([4; 32]);
        let other_root = Root::from_bytes([6; 32]);
        let keys = [
            foreign_key(&NAMESPACE, &ROOT, &[0; 16], 0),
            foreign_key(&NAMESPACE, &ROOT, &[0; 17], 0),
            foreign_key(&NAMESPACE, &ROOT, &[0; 32], 0),
            foreign_key(&NAMESPACE, &ROOT, &[0; 16], 1),
            foreign_key(&NAMESPACE, &other_root, &[0; 16], 0),
            foreign_key(&other_namespace, &ROOT, &[0; 16], 0),
        ];
        let distinct: HashSet<Key> = keys.iter().map(|key| *key.as_ref().unwrap()).collect();
        assert_eq!(distinct.len(), keys.len());
    }

    #[test]
    fn a_width_outside_16_to_32_and_a_torn_buffer_are_refused() {
        for width in [0, 1, 15, 33] {
            let error = foreign_keys(&NAMESPACE, &ROOT, &[0; 330], width, 0).unwrap_err();
            assert!(error.to_string().starts_with(&format!("key width is {width}:")), "{error}");
        }
        let error = foreign_keys(&NAMESPACE, &ROOT, &[0; 33], 16, 0).unwrap_err();
        assert!(error.to_string().contains("33 bytes long"), "{error}");
        assert_eq!(foreign_keys(&NAMESPACE, &ROOT, &[], 16, 0), Ok(vec![]));
    }
}
