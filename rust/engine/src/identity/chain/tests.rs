use super::*;
use crate::identity::root;
use proptest::prelude::*;
use std::collections::HashSet;

const NAMESPACE: NamespaceDigest = NamespaceDigest::from_bytes([42; 32]);

fn tenant(salt: &[u8]) -> Root {
    root(&NAMESPACE, 0, salt, 0)
}

/// The rule as the module docs write it, with nothing but the public API of BLAKE3.
fn by_the_book(
    root: &Root,
    tokens: &[u32],
    block_tokens: usize,
    frames: &[(usize, Vec<u8>)],
) -> Vec<Key> {
    let mut last = *root.as_bytes();
    let mut keys = Vec::new();
    for (block, tokens) in tokens.chunks_exact(block_tokens).enumerate() {
        let mut message: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
        for (_, frame) in frames.iter().filter(|(other, _)| *other == block) {
            message.extend(frame);
        }
        let digest = blake3::hash(&message);
        last = *blake3::keyed_hash(NAMESPACE.as_bytes(), &[last, *digest.as_bytes()].concat())
            .as_bytes();
        keys.push(Key::from_bytes(last));
    }
    keys
}

fn framed(tag: u8, bytes: &[u8]) -> Vec<u8> {
    let mut frame = vec![tag];
    frame.extend((bytes.len() as u32).to_le_bytes());
    frame.extend(bytes);
    frame
}

proptest! {
    #[test]
    fn keys_follow_the_documented_rule(
        tokens in prop::collection::vec(any::<u32>(), 0..1200),
        block_tokens in prop_oneof![Just(1usize), Just(16), Just(64), 1usize..300],
        extra in prop::collection::vec((any::<prop::sample::Index>(),
                                        prop::collection::vec(any::<u8>(), 16..80)), 0..6),
        replayed: Option<prop::sample::Index>,
    ) {
        let blocks = tokens.len() / block_tokens;
        let extra = if blocks == 0 { vec![] } else { extra };
        let mut extra: Vec<(usize, Vec<u8>)> =
            extra.into_iter().map(|(at, bytes)| (at.index(blocks), bytes)).collect();
        extra.sort_by_key(|(block, _)| *block);
        let borrowed: Vec<(usize, &[u8])> =
            extra.iter().map(|(block, bytes)| (*block, &bytes[..])).collect();
        let mut extras = Extras::new(&borrowed).unwrap();
        let mut frames: Vec<_> =
            extra.iter().map(|(block, bytes)| (*block, framed(1, bytes))).collect();
        if let Some(at) = replayed && blocks > 0 {
            extras = extras.replayed_from(at.index(blocks));
            frames.push((at.index(blocks), framed(2, b"kvstore.replayed")));
        }
        let root = tenant(b"salt");
        let keys = chain_keys(&NAMESPACE, &root, &tokens, block_tokens, &extras).unwrap();
        prop_assert_eq!(keys, by_the_book(&root, &tokens, block_tokens, &frames));
    }

    /// A long chat: the keys of a prompt do not depend on how it came in pieces.
    #[test]
    fn a_chain_in_pieces_equals_the_chain_at_once(
        tokens in prop::collection::vec(any::<u32>(), 0..3000),
        block_tokens in 1usize..40,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
        extra in any::<[u8; 16]>(),
    ) {
        let root = tenant(b"");
        let blocks = tokens.len() / block_tokens;
        let keys: Vec<(usize, &[u8])> = (0..blocks).step_by(3).map(|b| (b, &extra[..])).collect();
        let mut extras = Extras::new(&keys).unwrap();
        if blocks > 0 {
            extras = extras.replayed_from(blocks / 2);
        }
        let at_once = chain_keys(&NAMESPACE, &root, &tokens, block_tokens, &extras).unwrap();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(blocks + 1)).collect();
        cuts.push(blocks);
        cuts.sort_unstable();
        let (mut grown, mut resumed) = (Vec::new(), Vec::new());
        let mut chain = Chain::new(&NAMESPACE, &root, block_tokens).unwrap();
        for cut in cuts {
            let from = chain.next_block();
            let piece = &tokens[from * block_tokens..cut * block_tokens];
            let extras = extras.within(from..cut);
            if let Some(parent) = resumed.last() {
                Chain::resume(&NAMESPACE, parent, from, block_tokens).unwrap()
                    .extend(piece, &extras, &mut resumed).unwrap();
            } else {
                chain.clone().extend(piece, &extras, &mut resumed).unwrap();
            }
            chain.extend(piece, &extras, &mut grown).unwrap();
        }
        prop_assert_eq!(&grown, &at_once);
        prop_assert_eq!(&resumed, &at_once);
    }
}

#[test]
fn tokens_behind_the_last_whole_block_have_no_key() {
    let root = tenant(b"");
    let keys = |n: usize| chain_keys(&NAMESPACE, &root, &vec![7; n], 16, &Extras::none()).unwrap();
    assert_eq!(keys(0), vec![]);
    assert_eq!(keys(15), vec![]);
    assert_eq!(keys(16).len(), 1);
    assert_eq!(keys(31), keys(16));
    assert_eq!(keys(32)[..1], keys(16)[..]);
}

#[test]
fn a_key_depends_on_every_token_before_its_end_and_on_none_behind() {
    let root = tenant(b"");
    let tokens: Vec<u32> = (0..64).collect();
    let base = chain_keys(&NAMESPACE, &root, &tokens, 16, &Extras::none()).unwrap();
    for at in 0..64 {
        let mut changed = tokens.clone();
        changed[at] ^= 1 << 31;
        let keys = chain_keys(&NAMESPACE, &root, &changed, 16, &Extras::none()).unwrap();
        for block in 0..4 {
            assert_eq!(keys[block] == base[block], block < at / 16, "token {at}, block {block}");
        }
    }
}

/// One mark: the marked block and all below it have other keys, those before it the same, and no
/// bytes of a caller give the marked key.
#[test]
fn a_replayed_block_cannot_be_imitated() {
    let root = tenant(b"");
    let tokens: Vec<u32> = (0..64).collect();
    let exact = chain_keys(&NAMESPACE, &root, &tokens, 16, &Extras::none()).unwrap();
    let marked =
        chain_keys(&NAMESPACE, &root, &tokens, 16, &Extras::none().replayed_from(2)).unwrap();
    assert_eq!(exact[..2], marked[..2]);
    assert_ne!(exact[2], marked[2]);
    assert_ne!(exact[3], marked[3]);
    let mark = framed(2, b"kvstore.replayed");
    for imitation in [&b"kvstore.replayed"[..], &mark, &framed(1, &mark)] {
        let extra = [(2, imitation)];
        let extras = Extras::new(&extra).unwrap();
        let keys = chain_keys(&NAMESPACE, &root, &tokens, 16, &extras).unwrap();
        assert_ne!(keys[2], marked[2]);
    }
}

/// Two splits of the same bytes into extra keys, or between tokens and extra keys, are two identities.
#[test]
fn frames_cannot_be_moved_against_each_other() {
    let root = tenant(b"");
    let tokens = [1u32; 16];
    let keys = |extra: &[(usize, &[u8])]| {
        chain_keys(&NAMESPACE, &root, &tokens, 16, &Extras::new(extra).unwrap()).unwrap()[0]
    };
    let bytes: Vec<u8> = (0..64).collect();
    let inner = [bytes[..16].to_vec(), framed(1, &bytes[16..32])].concat();
    let keys = [
        keys(&[]),
        keys(&[(0, &bytes[..32])]),
        keys(&[(0, &bytes[..16]), (0, &bytes[16..32])]),
        keys(&[(0, &bytes[16..32]), (0, &bytes[..16])]),
        keys(&[(0, &bytes[..16])]),
        keys(&[(0, &inner)]),
        keys(&[(0, &bytes[..16]), (0, &bytes[..16])]),
    ];
    assert_eq!(HashSet::from(keys).len(), keys.len());
}

#[test]
fn each_replayed_child_is_the_marked_key_below_its_exact_parent() {
    let root = tenant(b"");
    let tokens: Vec<u32> = (0..70).collect();
    let extra: [(usize, &[u8]); 2] = [(1, &[8; 16]), (4, &[9; 16])];
    let extras = Extras::new(&extra).unwrap();
    let keys = chain_keys(&NAMESPACE, &root, &tokens, 16, &extras).unwrap();
    let children = replayed_children(&NAMESPACE, &root, &keys, &tokens, 16, &extras).unwrap();
    for (block, child) in children.iter().enumerate() {
        let marked =
            chain_keys(&NAMESPACE, &root, &tokens, 16, &extras.replayed_from(block)).unwrap();
        assert_eq!(*child, marked[block]);
    }
    assert_eq!(children.len(), 4);
    let error = replayed_children(&NAMESPACE, &root, &keys[1..], &tokens, 16, &extras).unwrap_err();
    assert_eq!(error.to_string(), "keys is 3: the tokens have 4 whole blocks");
}

#[test]
fn block_sizes_and_block_numbers_outside_their_range_are_refused() {
    let root = tenant(b"");
    for block_tokens in [0, 65_537] {
        let error = Chain::new(&NAMESPACE, &root, block_tokens).unwrap_err();
        assert!(error.to_string().contains(&format!("block_tokens is {block_tokens}")), "{error}");
    }
    let parent = Key::from_bytes([1; 32]);
    assert!(Chain::resume(&NAMESPACE, &parent, 0, 16).is_err());
    let mut keys = Vec::new();
    let mut chain = Chain::resume(&NAMESPACE, &parent, usize::MAX, 16).unwrap();
    assert!(chain.extend(&[0; 16], &Extras::none(), &mut keys).is_err());
    assert!(keys.is_empty());
}

#[test]
fn a_refused_extra_key_leaves_the_chain_as_it_was() {
    let mut chain = Chain::new(&NAMESPACE, &tenant(b""), 16).unwrap();
    let extra: [(usize, &[u8]); 1] = [(9, &[8; 16])];
    let mut keys = Vec::new();
    let error = chain.extend(&[1; 32], &Extras::new(&extra).unwrap(), &mut keys).unwrap_err();
    assert!(error.to_string().contains("extra_keys[9] is block 9"), "{error}");
    assert_eq!((chain.next_block(), keys.len()), (0, 0));
}

#[test]
fn a_chain_does_not_print_its_root() {
    let chain = Chain::new(&NAMESPACE, &Root::from_bytes([0xab; 32]), 16).unwrap();
    let text = format!("{chain:?}");
    assert!(!text.contains("171") && !text.contains("abab"), "{text}");
}
