//! No input that changes cache bytes is left out of what a store compares, on disk as in memory.

use std::sync::{Arc, Mutex};

use kvstore_engine::identity::{Description, DescriptionBuilder, Extras, WeightsKind, media_extra};
use kvstore_engine::store::{Ack, Namespace, NamespaceOptions, PutOptions, Status, Store};
use kvstore_index::Kind;
use kvstore_layout::Layout;

use crate::common;
use crate::support::*;
use crate::tools::*;

fn described(layout: &Layout) -> DescriptionBuilder {
    Description::builder()
        .model("example/model")
        .revision("5f0b02c75b57c5855da9ae460ce51323ea669d8a")
        .weights(WeightsKind::Full, [0x11; 32])
        .dtype("bf16")
        .layout(*blake3::hash(&layout.canonical()).as_bytes())
        .block_tokens(layout.block_tokens())
        .extra("rope_theta", "10000")
}

fn of(store: &Store, layout: &Arc<Layout>, builder: DescriptionBuilder, salt: &[u8]) -> Namespace {
    let description = builder.build().expect("a valid description");
    let options = NamespaceOptions::default();
    store.namespace(layout.clone(), &description, salt, options).expect("a namespace")
}

/// B1-01: 500 pictures behind the same placeholder tokens: each gets its own bytes back, after a
/// restart as well.
#[test]
fn two_pictures_never_share_an_object() {
    let dir = tempfile::tempdir().unwrap();
    let layout = layout(8);
    let placeholders = [151_655; BLOCK_TOKENS as usize];
    let key_of = |ns: &Namespace, picture: u32| {
        let extra = media_extra(blake3::hash(&picture.to_le_bytes()).as_bytes(), 0);
        let extras: [(usize, &[u8]); 1] = [(0, &extra)];
        ns.keys(&placeholders, &Extras::new(&extras).unwrap()).unwrap()
    };
    for restarted in [false, true] {
        let store = open(dir.path(), &options());
        let ns = namespace(&store, &layout, "a");
        for picture in 0..500 {
            let keys = key_of(&ns, picture);
            let data = payload(&keys[0], layout.body_bytes() as usize);
            if restarted {
                let mut got = vec![0; data.len()];
                assert_eq!(ns.get_keys_into(&keys, &mut [&mut got]).unwrap(), (1, None));
                assert!(got == data, "picture {picture}");
            } else {
                let put = PutOptions { ack: Ack::Ssd, ..PutOptions::default() };
                let batch = ns.put_objects(&[object(&keys, 0, Kind::Body, &data)], put);
                assert!(batch.wait(soon()));
                assert_eq!(batch.status(), [Status::Stored]);
            }
        }
        assert_eq!(blocks_of(&ns, &placeholders), 0, "without a picture");
        at_rest(&store);
    }
}

/// B1-02, B1-03, B1-06, B1-07, B1-10: whatever field of the model side changes, nothing hits on a
/// reopened directory, the log names the field, the old data is left alone, and the old description
/// has it all back.
#[test]
fn a_change_of_any_field_is_an_empty_cache_that_says_why() {
    type Change = fn(DescriptionBuilder) -> DescriptionBuilder;
    let changes: [(&str, Change); 11] = [
        ("adapter", |b| b.adapter([1; 32])),
        ("adapter", |b| b.adapter([2; 32])),
        ("dtype", |b| b.dtype("fp8_e4m3")),
        ("model", |b| b.model("example/other")),
        ("revision", |b| b.revision("0000000000000000000000000000000000000000")),
        ("rope_theta", |b| b.extra("rope_theta", "1000000")),
        ("weights", |b| b.weights(WeightsKind::Full, [0x12; 32])),
        ("weights", |b| b.weights(WeightsKind::Sampled, [0x11; 32])),
        ("scale_rule", |b| b.scale_rule("amax")),
        ("tp", |b| b.axis("tp", 0, 2)),
        ("format_version", |b| b.format_version(99)),
    ];
    let dir = tempfile::tempdir().unwrap();
    let layout = layout(8);
    let tokens = prompt(1, 8);
    {
        let store = open(dir.path(), &options());
        put_and_wait(&of(&store, &layout, described(&layout), b""), &tokens, Ack::Ssd);
    }
    for (field, change) in changes {
        let store = open(dir.path(), &options());
        let changed = change(described(&layout).clone_without(field));
        let log = logged(|| {
            let ns = of(&store, &layout, changed, b"");
            assert_eq!(blocks_of(&ns, &tokens), 0, "{field}");
            assert_eq!(check(&ns, &tokens), 0, "{field}");
        });
        assert!(log.iter().any(|line| line.contains(&format!("{field}: "))), "{field}: {log:?}");
        let ns = of(&store, &layout, described(&layout), b"");
        assert_eq!(check(&ns, &tokens), 8, "{field}: the old description");
        at_rest(&store);
    }
}

/// The builder refuses an extra field twice, so the one that changes is left out first.
trait WithoutField {
    fn clone_without(self, field: &str) -> Self;
}

impl WithoutField for DescriptionBuilder {
    fn clone_without(self, field: &str) -> Self {
        if field != "rope_theta" {
            return self;
        }
        let layout = layout(8);
        Description::builder()
            .model("example/model")
            .revision("5f0b02c75b57c5855da9ae460ce51323ea669d8a")
            .weights(WeightsKind::Full, [0x11; 32])
            .dtype("bf16")
            .layout(*blake3::hash(&layout.canonical()).as_bytes())
            .block_tokens(layout.block_tokens())
    }
}

/// What was logged by this thread.
fn logged(work: impl FnOnce()) -> Vec<String> {
    let lines = Arc::new(Mutex::new(Vec::new()));
    tracing::subscriber::with_default(Lines(lines.clone()), work);
    let lines = lines.lock().unwrap();
    lines.clone()
}

/// Keeps each event's message.
struct Lines(Arc<Mutex<Vec<String>>>);

impl tracing::Subscriber for Lines {
    fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        struct Text(String);
        impl tracing::field::Visit for Text {
            fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                self.0 += &format!("{}={value:?} ", field.name());
            }
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

/// B1-05: tenants with other salts share nothing, after a restart as well, and no salt is found in
/// any file or in the log.
#[test]
fn tenants_share_nothing_and_their_salts_are_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let layout = layout(8);
    let tokens = prompt(1, 8);
    let salts: [&[u8]; 3] = [b"", b"the salt of tenant alpha", b"the salt of tenant omega"];
    let log = logged(|| {
        for (number, salt) in salts.iter().enumerate() {
            let store = open(dir.path(), &options());
            for other in &salts[number..] {
                let ns = salted(&store, &layout, "a", other);
                assert_eq!(check(&ns, &tokens), 0);
            }
            let ns = salted(&store, &layout, "a", salt);
            assert_eq!(put_and_wait(&ns, &tokens, Ack::Ssd), [Status::Stored; 8]);
            if !salt.is_empty() {
                assert_eq!(store.clear_tenant(salt, false).unwrap(), 8);
                assert_eq!(check(&ns, &tokens), 0);
                assert_eq!(put_and_wait(&ns, &tokens, Ack::Ssd), [Status::Stored; 8]);
            }
        }
    });
    let store = open(dir.path(), &options());
    for salt in salts {
        assert_eq!(check(&salted(&store, &layout, "a", salt), &tokens), 8);
    }
    drop(store);
    let has = |bytes: &[u8], part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        let bytes = std::fs::read(&path).unwrap();
        assert!(!has(&bytes, b"salt of tenant"), "{} names a salt", path.display());
    }
    assert!(log.iter().all(|line| !line.contains("salt of tenant")), "{log:?}");
}

/// B1-15: each rank of a 2 x 2 x 2 grid stores and gets its own; ranks of a replicated cache name no
/// axis and share one object.
#[test]
fn every_rank_has_its_own_objects() {
    let dir = tempfile::tempdir().unwrap();
    let layout = layout(8);
    let tokens = prompt(1, 4);
    for restarted in [false, true] {
        let store = open(dir.path(), &options());
        for rank in 0..8 {
            let axes = [("tp", rank & 1), ("pp", rank >> 1 & 1), ("cp", rank >> 2)];
            let description =
                axes.into_iter().fold(described(&layout), |d, (name, rank)| d.axis(name, rank, 2));
            let ns = of(&store, &layout, description, b"");
            assert_eq!(check(&ns, &tokens), if restarted { 4 } else { 0 }, "rank {rank}");
            put_and_wait(&ns, &tokens, Ack::Ssd);
        }
        assert_eq!(store.stats().objects, 32);
        for _rank in 0..8 {
            let ns = of(&store, &layout, described(&layout).model("replicated"), b"");
            put_and_wait(&ns, &tokens, Ack::Ssd);
        }
        assert_eq!(store.stats().objects, 36, "one copy serves all ranks");
        assert_eq!(
            put_and_wait(
                &of(&store, &layout, described(&layout).model("replicated"), b""),
                &tokens,
                Ack::Ssd
            ),
            [Status::Exists; 4]
        );
        let ns = of(&store, &layout, described(&layout).model("replicated"), b"");
        ns.clear(false).unwrap();
    }
}

/// B2-02: three fresh processes compute the same keys, each for a store of its own.
#[test]
fn keys_are_the_same_in_every_process() {
    let mut all = Vec::new();
    for _ in 0..3 {
        let dir = tempfile::tempdir().unwrap();
        let output = common::command("say_keys").env(DIR, dir.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = said.lines().find_map(|line| line.split_once("keys: ").map(|p| p.1.to_owned()));
        all.push(line.expect("the keys"));
    }
    let dir = tempfile::tempdir().unwrap();
    all.push(said_keys(dir.path()));
    assert!(all.iter().all(|line| *line == all[0]), "{all:?}");
    assert!(all[0].len() > 64 * 8);
}

fn said_keys(dir: &std::path::Path) -> String {
    let store = open(dir, &options());
    let layout = layout(8);
    let ns = of(&store, &layout, described(&layout), b"a tenant");
    keys(&ns, &prompt(1, 8)).iter().map(|key| format!("{:02x?}", key.as_bytes())).collect()
}

pub(crate) fn say_keys(dir: &std::path::Path) {
    println!("keys: {}", said_keys(dir));
}

/// A namespace has at most 960 bytes of description; more is refused with the number, and nothing
/// is taken.
#[test]
fn a_description_too_long_to_keep_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &options());
    let layout = layout(8);
    let long = "x".repeat(980);
    let said = match described(&layout).extra("note", long).build() {
        Err(error) => error.to_string(),
        Ok(description) => {
            let options = NamespaceOptions::default();
            let error = store.namespace(layout, &description, b"", options).err();
            error.expect("it is too long").to_string()
        }
    };
    assert!(said.contains("960"), "{said}");
    assert!(store.inspect().namespaces.is_empty());
}
