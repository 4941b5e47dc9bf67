//! Prints the golden vectors of identity, `tests/golden/identity.json`:
//!
//! `cargo run -p kvstore-engine --example identity_vectors > tests/golden/identity.json`
//!
//! Only inputs are chosen here; each output is computed by the library. A changed output is a changed
//! format: it needs a new `hash_rule` or `FORMAT_VERSION`.

#![allow(clippy::print_stdout, reason = "its output is the file")]

use kvstore_engine::identity::{
    Description, Extras, IdentityError, Key, NamespaceDigest, ObjectKind, Piece, Root, WeightsKind,
    chain_keys, foreign_key, media_extra, object_key, root, tenant_tag,
};
use serde_json::{Value, json};

fn main() -> Result<(), IdentityError> {
    let namespaces = descriptions()?;
    let namespace = namespaces[0].digest();
    let file = json!({
        "about": "golden vectors of kvstore identity; bytes in hex; rules in docs/format-identity.md",
        "namespaces": namespaces.iter().map(namespace_vector).collect::<Vec<_>>(),
        "roots": roots(&namespace),
        "tenant_tags": tags(),
        "chains": chains(&namespace)?,
        "objects": objects(&namespace),
        "foreign": foreign(&namespace)?,
    });
    println!("{file:#}");
    Ok(())
}

fn descriptions() -> Result<[Description; 4], IdentityError> {
    let plain = || {
        Description::builder()
            .model("deepseek-v4.1-flash")
            .weights(WeightsKind::Full, bytes(1, 32))
            .dtype("fp8_e4m3")
            .layout([0x22; 32])
            .block_tokens(128)
    };
    Ok([
        plain().build()?,
        plain()
            .format_version(7)
            .revision("5f0b02c75b57c5855da9ae460ce51323ea669d8a")
            .weights(WeightsKind::Hub, bytes(2, 32))
            .adapter(bytes(3, 32))
            .scale_rule("ue8m0/128")
            .axis("tp", 1, 8)
            .axis("pp", 0, 2)
            .axis("cp", 0, 1)
            .axis("dcp", 3, 4)
            .axis("dp", 2, 3)
            .extra("rope_scaling", "yarn:40")
            .extra("attention", "flash")
            .build()?,
        plain().model("modèle/é").weights(WeightsKind::Sampled, bytes(4, 16)).build()?,
        plain()
            .weights(WeightsKind::Name, *b"my-weights")
            .allow_weights_by_name()
            .block_tokens(1)
            .hash_rule("vllm:sha256_cbor:PYTHONHASHSEED=0")
            .build()?,
    ])
}

fn namespace_vector(description: &Description) -> Value {
    let weights = description.weights();
    let axes = description.axes().iter().map(|axis| json!([axis.name, axis.rank, axis.size]));
    json!({
        "format_version": description.format_version(),
        "model": description.model(),
        "revision": description.revision(),
        "weights": { "kind": weights.kind.to_string(), "digest": hex(&weights.digest) },
        "adapter": hex(description.adapter()),
        "dtype": description.dtype(),
        "scale_rule": description.scale_rule(),
        "layout": hex(description.layout()),
        "block_tokens": description.block_tokens(),
        "axes": axes.collect::<Vec<_>>(),
        "hash_rule": description.hash_rule(),
        "extra": description.extra(),
        "encoding": hex(&description.encode()),
        "digest": hex(description.digest().as_bytes()),
    })
}

fn roots(namespace: &NamespaceDigest) -> Vec<Value> {
    let cases: [(u64, &[u8], u64); 5] = [
        (0, b"", 0),
        (0, b"tenant-a", 0),
        (3, b"tenant-a", 0),
        (0, b"tenant-a", u64::MAX),
        (1 << 40, &[0; 56], 2),
    ];
    cases
        .map(|(namespace_epoch, salt, tenant_epoch)| {
            json!({
                "namespace": hex(namespace.as_bytes()),
                "namespace_epoch": namespace_epoch.to_string(), // JSON numbers end at 2^53
                "salt": hex(salt),
                "tenant_epoch": tenant_epoch.to_string(),
                "root": hex(root(namespace, namespace_epoch, salt, tenant_epoch).as_bytes()),
            })
        })
        .to_vec()
}

fn tags() -> Vec<Value> {
    let cases: [(u8, &[u8]); 4] = [(1, b""), (1, b"tenant-a"), (1, b"tenant-b"), (2, b"tenant-a")];
    cases
        .map(|(secret, salt)| {
            let secret = [secret; 32];
            json!({ "secret": hex(&secret), "salt": hex(salt), "tag": tenant_tag(&secret, salt) })
        })
        .to_vec()
}

fn chains(namespace: &NamespaceDigest) -> Result<Vec<Value>, IdentityError> {
    let media = media_extra(&[0x33; 32], 20);
    let (short, long) = (bytes(5, 16), bytes(6, 100));
    let cases: [Chain<'_>; 8] = [
        (16, 70, &[], None),
        (64, 200, &[], None),
        (1, 5, &[], None),
        (7, 21, &[], None),
        (300, 600, &[], None),
        (16, 64, &[(1, &media), (3, &short), (3, &long)], None),
        (16, 64, &[], Some(2)),
        (16, 48, &[(0, &short), (1, &media)], Some(1)),
    ];
    cases.into_iter().map(|case| chain_vector(namespace, case)).collect()
}

/// block_tokens, number of tokens, extra keys, block marked as replayed
type Chain<'a> = (usize, u32, &'a [(usize, &'a [u8])], Option<usize>);

fn chain_vector(namespace: &NamespaceDigest, case: Chain<'_>) -> Result<Value, IdentityError> {
    let (block_tokens, count, extra, replayed_from) = case;
    let root = root(namespace, 0, b"tenant-a", 0);
    let tokens: Vec<u32> = (0..count).map(|i| i.wrapping_mul(2_654_435_761) >> (i % 20)).collect();
    let extras = Extras::new(extra)?;
    let extras = replayed_from.map_or(extras, |block| extras.replayed_from(block));
    let keys = chain_keys(namespace, &root, &tokens, block_tokens, &extras)?;
    let extra = extra.iter().map(|(block, bytes)| json!([block, hex(bytes)]));
    Ok(json!({
        "namespace": hex(namespace.as_bytes()),
        "root": hex(root.as_bytes()),
        "block_tokens": block_tokens,
        "tokens": tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(" "),
        "extra_keys": extra.collect::<Vec<_>>(),
        "replayed_from": replayed_from,
        "keys": keys.iter().map(|key| hex(key.as_bytes())).collect::<Vec<_>>(),
    }))
}

fn objects(namespace: &NamespaceDigest) -> Vec<Value> {
    let block = Key::from_bytes(std::array::from_fn(|i| 7 * i as u8));
    let kinds = [
        ("body", ObjectKind::Body),
        ("window", ObjectKind::Window),
        ("checkpoint", ObjectKind::Checkpoint),
    ];
    let pieces = [None, Some(0), Some(1), Some(65_536)];
    let cases = kinds.into_iter().flat_map(|kind| pieces.map(|part| (kind, part)));
    cases
        .map(|((name, kind), part)| {
            let piece = part.map_or(Piece::Bare, Piece::Part);
            let key = object_key(namespace, &block, kind, piece);
            json!({
                "namespace": hex(namespace.as_bytes()),
                "block": hex(block.as_bytes()),
                "kind": name,
                "part": part,
                "key": hex(key.as_bytes()),
                "fingerprint": hex(&key.fingerprint()),
            })
        })
        .collect()
}

fn foreign(namespace: &NamespaceDigest) -> Result<Vec<Value>, IdentityError> {
    let root: Root = root(namespace, 0, b"tenant-a", 0);
    let cases = [(16, 0), (20, 0), (32, 0), (32, 1), (32, u32::MAX)];
    let vector = |(width, group)| {
        let foreign = bytes(8, width);
        let key = foreign_key(namespace, &root, &foreign, group)?;
        Ok(json!({
            "namespace": hex(namespace.as_bytes()),
            "root": hex(root.as_bytes()),
            "foreign": hex(&foreign),
            "group": group,
            "key": hex(key.as_bytes()),
        }))
    };
    cases.into_iter().map(vector).collect()
}

/// `count` bytes that differ by `seed`.
fn bytes(seed: u8, count: u8) -> Vec<u8> {
    (0..count).map(|i| i.wrapping_mul(37).wrapping_add(seed)).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
