//! The golden vectors of identity, from their inputs in the file to their outputs in the file.
//!
//! `examples/identity_vectors.rs` wrote them, `tests/python/test_identity_vectors.py` computes them a
//! second time. B2-02: keys are the same in every process and on every machine.

use kvstore_engine::identity::{
    Description, Extras, Key, NamespaceDigest, ObjectKind, Piece, Root, WeightsKind, chain_keys,
    foreign_key, foreign_keys, object_key, root, tenant_tag,
};
use serde_json::Value;

const FILE: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/identity.json"));

/// The vectors under `name`; there are some.
fn vectors(name: &str) -> Vec<Value> {
    let mut file: Value = serde_json::from_str(FILE).expect("the golden file is JSON");
    let Value::Array(vectors) = file[name].take() else { panic!("no {name} in the golden file") };
    assert!(!vectors.is_empty(), "{name}");
    vectors
}

fn text<'a>(vector: &'a Value, name: &str) -> &'a str {
    vector[name].as_str().unwrap_or_else(|| panic!("no text {name} in {vector}"))
}

fn number<T: TryFrom<u64>>(value: &Value) -> T {
    let number = value.as_u64().and_then(|number| T::try_from(number).ok());
    number.unwrap_or_else(|| panic!("{value} is no number of this size"))
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}

fn bytes(vector: &Value, name: &str) -> Vec<u8> {
    unhex(text(vector, name))
}

fn bytes32(vector: &Value, name: &str) -> [u8; 32] {
    bytes(vector, name).try_into().unwrap_or_else(|_| panic!("{name} has 32 bytes"))
}

fn namespace(vector: &Value) -> NamespaceDigest {
    NamespaceDigest::from_bytes(bytes32(vector, "namespace"))
}

fn key(vector: &Value, name: &str) -> Key {
    Key::from_bytes(bytes32(vector, name))
}

fn described(vector: &Value) -> Description {
    let weights = &vector["weights"];
    let kind = match text(weights, "kind") {
        "full" => WeightsKind::Full,
        "hub" => WeightsKind::Hub,
        "cached" => WeightsKind::Cached,
        "sampled" => WeightsKind::Sampled,
        "name" => WeightsKind::Name,
        other => panic!("weights kind {other}"),
    };
    let mut builder = Description::builder()
        .format_version(number(&vector["format_version"]))
        .model(text(vector, "model"))
        .revision(text(vector, "revision"))
        .weights(kind, bytes(weights, "digest"))
        .allow_weights_by_name()
        .dtype(text(vector, "dtype"))
        .scale_rule(text(vector, "scale_rule"))
        .layout(bytes32(vector, "layout"))
        .block_tokens(number(&vector["block_tokens"]))
        .hash_rule(text(vector, "hash_rule"));
    if !text(vector, "adapter").is_empty() {
        builder = builder.adapter(bytes(vector, "adapter"));
    }
    for axis in vector["axes"].as_array().unwrap() {
        builder = builder.axis(axis[0].as_str().unwrap(), number(&axis[1]), number(&axis[2]));
    }
    for (name, value) in vector["extra"].as_object().unwrap() {
        builder = builder.extra(name, value.as_str().unwrap());
    }
    builder.build().unwrap()
}

#[test]
fn descriptions_encode_to_the_golden_bytes_and_back() {
    for vector in vectors("namespaces") {
        let description = described(&vector);
        assert_eq!(description.encode(), bytes(&vector, "encoding"));
        assert_eq!(description.digest().as_bytes(), &bytes32(&vector, "digest"));
        assert_eq!(Description::decode(&bytes(&vector, "encoding")), Ok(description));
    }
}

#[test]
fn roots_and_tenant_tags_are_the_golden_ones() {
    for vector in vectors("roots") {
        let epoch = |name| text(&vector, name).parse().unwrap();
        let salt = bytes(&vector, "salt");
        let root =
            root(&namespace(&vector), epoch("namespace_epoch"), &salt, epoch("tenant_epoch"));
        assert_eq!(root.as_bytes(), &bytes32(&vector, "root"));
    }
    for vector in vectors("tenant_tags") {
        let tag = tenant_tag(&bytes32(&vector, "secret"), &bytes(&vector, "salt"));
        assert_eq!(tag, number::<u32>(&vector["tag"]));
    }
}

#[test]
fn chains_are_the_golden_ones() {
    for vector in vectors("chains") {
        let tokens: Vec<u32> =
            text(&vector, "tokens").split(' ').map(|token| token.parse().unwrap()).collect();
        let extra = vector["extra_keys"].as_array().unwrap();
        let extra: Vec<(usize, Vec<u8>)> =
            extra.iter().map(|it| (number(&it[0]), unhex(it[1].as_str().unwrap()))).collect();
        let extra: Vec<(usize, &[u8])> = extra.iter().map(|(at, it)| (*at, &it[..])).collect();
        let mut extras = Extras::new(&extra).unwrap();
        if !vector["replayed_from"].is_null() {
            extras = extras.replayed_from(number(&vector["replayed_from"]));
        }
        let block_tokens = number(&vector["block_tokens"]);
        let root = Root::from_bytes(bytes32(&vector, "root"));
        let keys = chain_keys(&namespace(&vector), &root, &tokens, block_tokens, &extras).unwrap();
        let golden = vector["keys"].as_array().unwrap();
        let golden: Vec<Vec<u8>> = golden.iter().map(|it| unhex(it.as_str().unwrap())).collect();
        assert_eq!(keys.iter().map(|it| it.as_bytes().to_vec()).collect::<Vec<_>>(), golden);
    }
}

#[test]
fn object_keys_are_the_golden_ones() {
    for vector in vectors("objects") {
        let kind = match text(&vector, "kind") {
            "body" => ObjectKind::Body,
            "window" => ObjectKind::Window,
            "checkpoint" => ObjectKind::Checkpoint,
            other => panic!("kind {other}"),
        };
        let piece = match &vector["part"] {
            Value::Null => Piece::Bare,
            part => Piece::Part(number(part)),
        };
        let got = object_key(&namespace(&vector), &key(&vector, "block"), kind, piece);
        assert_eq!(got, key(&vector, "key"));
        assert_eq!(got.fingerprint().to_vec(), bytes(&vector, "fingerprint"));
    }
}

#[test]
fn foreign_keys_are_the_golden_ones() {
    for vector in vectors("foreign") {
        let (namespace, root) = (namespace(&vector), Root::from_bytes(bytes32(&vector, "root")));
        let (foreign, group) = (bytes(&vector, "foreign"), number(&vector["group"]));
        let golden = key(&vector, "key");
        assert_eq!(foreign_key(&namespace, &root, &foreign, group), Ok(golden));
        let twice = [&foreign[..], &foreign].concat();
        let keys = foreign_keys(&namespace, &root, &twice, foreign.len(), group);
        assert_eq!(keys, Ok(vec![golden; 2]));
    }
}
