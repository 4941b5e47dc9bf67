//! What identity promises: no input that changes cache bytes is left out of a key.
//!
//! Each test names the field reports that it answers. The store is a map from key to payload: whatever
//! two requests share in it, they would share in every tier.

use kvstore_engine::identity::{
    Description, DescriptionBuilder, Extras, Key, NamespaceDigest, ObjectKind, Piece, Root,
    WeightsKind, chain_keys, foreign_keys, media_extra, object_key, root,
};
use std::collections::{HashMap, HashSet};

const BLOCK_TOKENS: usize = 16;

fn described() -> DescriptionBuilder {
    Description::builder()
        .model("example/model")
        .revision("5f0b02c75b57c5855da9ae460ce51323ea669d8a")
        .weights(WeightsKind::Full, [0x11; 32])
        .dtype("bf16")
        .layout(layout_of(61))
        .block_tokens(BLOCK_TOKENS as u32)
        .extra("rope_theta", "10000")
}

/// Id of a layout that differs by its number of layers.
fn layout_of(layers: u32) -> [u8; 32] {
    *blake3::hash(format!("layers={layers}").as_bytes()).as_bytes()
}

fn digest(builder: DescriptionBuilder) -> NamespaceDigest {
    builder.build().expect("a valid description").digest()
}

fn tokens(count: u32) -> Vec<u32> {
    (0..count).map(|i| i * 7 + 3).collect()
}

fn keys(namespace: &NamespaceDigest, root: &Root, extra: &[(usize, &[u8])]) -> Vec<Key> {
    let extras = Extras::new(extra).expect("valid extra keys");
    chain_keys(namespace, root, &tokens(512), BLOCK_TOKENS, &extras).expect("valid tokens")
}

fn shared(a: &[Key], b: &[Key]) -> usize {
    let a: HashSet<_> = a.iter().collect();
    b.iter().filter(|key| a.contains(key)).count()
}

/// Fingerprints as well as keys: what the index compares must differ too.
fn distinct(keys: &[Key]) -> usize {
    let fingerprints: HashSet<_> = keys.iter().map(Key::fingerprint).collect();
    assert_eq!(fingerprints.len(), keys.iter().collect::<HashSet<_>>().len());
    fingerprints.len()
}

/// B1-01: 2,000 pictures behind the same placeholder tokens are 2,000 identities, each of full width.
#[test]
fn two_pictures_never_share_a_key() {
    let namespace = digest(described());
    let root = root(&namespace, 0, b"", 0);
    let tokens = [151_655u32; BLOCK_TOKENS]; // the placeholder, once per patch
    let mut store: HashMap<Key, [u8; 32]> = HashMap::new();
    let key_of = |picture: &[u8; 32]| {
        let extra = media_extra(picture, 0);
        assert!(extra.len() * 8 >= 128 && extra.starts_with(picture), "the digest is not narrowed");
        let extra: [(usize, &[u8]); 1] = [(0, &extra)];
        let extras = Extras::new(&extra).unwrap();
        chain_keys(&namespace, &root, &tokens, BLOCK_TOKENS, &extras).unwrap()[0]
    };
    let pictures: Vec<[u8; 32]> =
        (0..2000u32).map(|i| *blake3::hash(&i.to_le_bytes()).as_bytes()).collect();
    for picture in &pictures {
        store.insert(key_of(picture), *picture);
    }
    assert_eq!(store.len(), 2000);
    assert_eq!(distinct(&store.keys().copied().collect::<Vec<_>>()), 2000);
    for picture in &pictures {
        assert_eq!(store.get(&key_of(picture)), Some(picture));
    }
    for width in 0..16 {
        let narrow: [(usize, &[u8]); 1] = [(0, &pictures[0][..width])];
        assert!(Extras::new(&narrow).is_err(), "{width} bytes");
    }
}

/// B1-01: the same pictures in other places are another prompt.
#[test]
fn two_pictures_that_change_places_are_another_prompt() {
    let namespace = digest(described());
    let root = root(&namespace, 0, b"", 0);
    let (a, b) = ([1; 32], [2; 32]);
    let pair = |first: [u8; 32], second: [u8; 32]| {
        let extras = [media_extra(&first, 0), media_extra(&second, 8)];
        keys(&namespace, &root, &[(0, &extras[0]), (0, &extras[1])])
    };
    assert_eq!(shared(&pair(a, b), &pair(b, a)), 0);
    assert_eq!(shared(&pair(a, b), &pair(a, b)), 512 / BLOCK_TOKENS);
}

/// B1-02, B1-03: an adapter's contents are in the namespace; its name is not, so a reload in place is
/// a change and going back to the old contents gives the hits back.
#[test]
fn keys_follow_the_contents_of_an_adapter() {
    let of = |adapter: Option<[u8; 32]>| {
        let namespace = digest(match adapter {
            Some(contents) => described().adapter(contents),
            None => described(),
        });
        keys(&namespace, &root(&namespace, 0, b"salt", 0), &[])
    };
    let first = of(Some([1; 32]));
    assert_eq!(shared(&first, &of(Some([2; 32]))), 0);
    assert_eq!(shared(&first, &of(None)), 0);
    assert_eq!(shared(&first, &of(Some([1; 32]))), 512 / BLOCK_TOKENS);
}

/// B1-04: requests that differ in exactly one of salt, adapter, media, embeddings share nothing, by
/// tokens and by an engine's own hashes; without tokens there is no key at all.
#[test]
fn requests_that_differ_in_one_input_share_nothing() {
    let base = digest(described());
    let adapted = digest(described().adapter([5; 32]));
    let (media, embeddings) = (media_extra(&[6; 32], 0), [7; 32]);
    let requests: [Vec<Key>; 5] = [
        keys(&base, &root(&base, 0, b"", 0), &[]),
        keys(&base, &root(&base, 0, b"tenant", 0), &[]),
        keys(&adapted, &root(&adapted, 0, b"", 0), &[]),
        keys(&base, &root(&base, 0, b"", 0), &[(0, &media)]),
        keys(&base, &root(&base, 0, b"", 0), &[(0, &embeddings)]),
    ];
    assert_eq!(distinct(&requests.concat()), 5 * 512 / BLOCK_TOKENS);

    let foreign = |namespace: &NamespaceDigest, salt: &[u8]| {
        let root = root(namespace, 0, salt, 0);
        foreign_keys(namespace, &root, &[0x5a; 320], 32, 0).unwrap()[0]
    };
    let foreign = [foreign(&base, b""), foreign(&base, b"tenant"), foreign(&adapted, b"")];
    assert_eq!(distinct(&foreign), 3);

    let no_tokens =
        chain_keys(&base, &root(&base, 0, b"", 0), &[], BLOCK_TOKENS, &Extras::none()).unwrap();
    assert_eq!(no_tokens, []);
}

/// B1-04: an extra key cuts its own block and all behind it, and leaves the blocks before shared.
#[test]
fn an_extra_key_leaves_the_prefix_before_it_shared() {
    let namespace = digest(described());
    let root = root(&namespace, 0, b"", 0);
    let media = media_extra(&[6; 32], 80);
    let (without, with) = (keys(&namespace, &root, &[]), keys(&namespace, &root, &[(5, &media)]));
    assert_eq!(without[..5], with[..5]);
    assert_eq!(shared(&without, &with), 5);
}

/// B1-05: two tenants share nothing, and nothing of the salt can be read in what is made from it.
#[test]
fn two_tenants_share_nothing() {
    let namespace = digest(described());
    let salt = b"tenant-a/secret-salt";
    let a = keys(&namespace, &root(&namespace, 0, salt, 0), &[]);
    let b = keys(&namespace, &root(&namespace, 0, b"tenant-b/secret-salt", 0), &[]);
    assert_eq!(shared(&a, &b), 0);
    assert_eq!(shared(&a, &keys(&namespace, &root(&namespace, 0, salt, 0), &[])), a.len());
    let printed = format!("{:?} {a:?}", root(&namespace, 0, salt, 0));
    let in_hex: String = salt.iter().map(|byte| format!("{byte:02x}")).collect();
    for length in 4..=salt.len() {
        let text = std::str::from_utf8(&salt[..length]).unwrap();
        assert!(!printed.contains(text) && !printed.contains(&in_hex[..2 * length]));
    }
}

/// B1-06: the same model in another number format is an empty cache and one line that says so.
#[test]
fn another_dtype_or_scale_rule_is_an_empty_cache_that_is_named() {
    let stored = described().build().unwrap();
    for (changed, line) in [
        (described().dtype("fp8_e4m3"), "dtype: \"bf16\" here, \"fp8_e4m3\" there"),
        (described().scale_rule("ue8m0"), "scale_rule: \"none\" here, \"ue8m0\" there"),
    ] {
        let changed = changed.build().unwrap();
        assert_ne!(stored.digest(), changed.digest());
        let [diff] = &stored.differs(&changed)[..] else { panic!("one field differs") };
        assert_eq!(diff.to_string(), line);
    }
}

/// B1-07: each change of version, model side or geometry is an empty cache, and the field is named.
#[test]
fn any_change_on_the_model_side_is_an_empty_cache_that_is_named() {
    let stored = described().axis("tp", 0, 2).build().unwrap();
    let namespace = stored.digest();
    let old = keys(&namespace, &root(&namespace, 0, b"", 0), &[]);
    let base = || described().axis("tp", 0, 2);
    for (changed, field) in [
        (base().format_version(2), "format_version"),
        (base().revision("main"), "revision"),
        (base().model("example/other"), "model"),
        (base().weights(WeightsKind::Full, [0x12; 32]), "weights"),
        (base().weights(WeightsKind::Sampled, [0x11; 32]), "weights"),
        (base().extra("rope_theta", "1000000"), "extra.rope_theta"),
        (base().extra("rope_scaling", "yarn"), "extra.rope_scaling"),
        (base().extra("attention", "flash"), "extra.attention"),
        (base().block_tokens(32), "block_tokens"),
        (described().axis("tp", 0, 4), "axes.tp"),
        (described(), "axes.tp"),
        (base().layout(layout_of(60)), "layout"),
        (base().hash_rule("vllm:sha256_cbor:0"), "hash_rule"),
    ] {
        let changed = changed.build().unwrap();
        let fields: Vec<_> = stored.differs(&changed).into_iter().map(|diff| diff.field).collect();
        assert_eq!(fields, [field]);
        let namespace = changed.digest();
        let new = keys(&namespace, &root(&namespace, 0, b"", 0), &[]);
        assert_eq!(shared(&old, &new), 0, "{field}");
    }
}

/// B1-10: an epoch makes all older keys unreachable at once, without touching an object.
#[test]
fn an_epoch_makes_older_keys_unreachable() {
    let namespace = digest(described());
    let at = |namespace_epoch, tenant_epoch| {
        keys(&namespace, &root(&namespace, namespace_epoch, b"salt", tenant_epoch), &[])
    };
    let all = [at(1, 1), at(2, 1), at(1, 2), at(2, 2)].concat();
    assert_eq!(distinct(&all), all.len());
    assert_eq!(shared(&at(1, 1), &at(1, 1)), 512 / BLOCK_TOKENS);
}

/// B1-15: in a 2 x 2 x 2 grid of ranks each has its own objects, and replicated ranks share one when
/// their axis is left out.
#[test]
fn each_rank_of_a_grid_has_its_own_objects() {
    let mut store: HashMap<Key, (u32, u32, u32)> = HashMap::new();
    let key_of = |tp, pp, cp| {
        let namespace = digest(described().axis("tp", tp, 2).axis("pp", pp, 2).axis("cp", cp, 2));
        keys(&namespace, &root(&namespace, 0, b"", 0), &[])[0]
    };
    let ranks = || (0..8).map(|rank| (rank & 1, rank >> 1 & 1, rank >> 2));
    for (tp, pp, cp) in ranks() {
        store.insert(key_of(tp, pp, cp), (tp, pp, cp));
    }
    assert_eq!(distinct(&store.keys().copied().collect::<Vec<_>>()), 8);
    for (tp, pp, cp) in ranks() {
        assert_eq!(store.get(&key_of(tp, pp, cp)), Some(&(tp, pp, cp)));
    }
    let replicated = |pp| digest(described().axis("pp", pp, 2)); // rank of tp left out
    assert_eq!(replicated(0), replicated(0));
    assert_ne!(replicated(0), replicated(1));
}

/// All objects of a prompt have keys of their own.
#[test]
fn no_two_objects_of_a_prompt_share_a_key() {
    let namespace = digest(described());
    let blocks = keys(&namespace, &root(&namespace, 0, b"", 0), &[]);
    let mut all = Vec::new();
    for block in &blocks {
        all.push(object_key(&namespace, block, ObjectKind::Body, Piece::Bare));
        for kind in [ObjectKind::Body, ObjectKind::Window, ObjectKind::Checkpoint] {
            all.extend((0..4).map(|part| object_key(&namespace, block, kind, Piece::Part(part))));
        }
    }
    assert_eq!(distinct(&all), blocks.len() * 13);
}
