//! Files of a real store with flipped bits, overwritten ranges and cut ends: an open that says what
//! is wrong, or misses; never a wrong byte, never a panic, and nothing cleared comes back
//! (B2-07, B2-09, B2-19). `KVSTORE_IMAGE_CASES` sets the number of images, `KVSTORE_SEED` the seed.

#![allow(clippy::print_stderr, reason = "a seed, a count and the reason of a skip are for people")]

mod support;

use kvstore_engine::ErrorKind;
use kvstore_engine::identity::{Extras, Key};
use kvstore_engine::io::File;
use kvstore_engine::store::{Ack, Namespace, Options, Store};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use support::*;

/// Bytes per token and layer of the models, the last in parts.
const MODELS: [(&str, u32); 3] = [("a", 64), ("b", 1000), ("parts", 36_864)];
const PROMPTS: u32 = 4;

fn small() -> Options {
    Options { disk_bytes: 96 * MIB, ..options() }
}

fn models(store: &Store) -> Option<Vec<Namespace>> {
    let open = |(model, record)| {
        let layout = layout(record);
        let description = description(&layout, model);
        store.namespace(layout, &description, b"", Default::default()).ok()
    };
    MODELS.into_iter().map(open).collect()
}

fn tenant(store: &Store) -> Option<Namespace> {
    let layout = layout(64);
    store.namespace(layout.clone(), &description(&layout, "a"), b"salt", Default::default()).ok()
}

fn blocks_of(model: usize) -> u32 {
    if model == 2 { 1 } else { 4 }
}

/// Contents of all files of a store, and what must not be found in it.
struct Image {
    files: BTreeMap<&'static str, Vec<u8>>,
    /// Keys of a namespace and of a tenant from before their clear.
    cleared: [Vec<Key>; 2],
}

/// A store with three classes, parts, a cleared namespace and a cleared tenant. Its slot table is
/// that from before the clears: descriptors that only the epochs keep out.
fn image() -> Image {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), &small());
    let handles = models(&store).unwrap();
    let salted = tenant(&store).unwrap();
    let cleared_prompt = prompt(77, 4);
    for (model, ns) in handles.iter().enumerate() {
        for seed in 0..PROMPTS {
            put_and_wait(ns, &prompt(seed, blocks_of(model)), Ack::Ssd);
        }
    }
    put_and_wait(&handles[1], &cleared_prompt, Ack::Ssd);
    put_and_wait(&salted, &cleared_prompt, Ack::Ssd);
    let cleared =
        [&handles[1], &salted].map(|ns| ns.keys(&cleared_prompt, &Extras::none()).unwrap());
    assert!(store.flush(soon()));
    let table = fs::read(dir.path().join(File::Table.name())).unwrap();
    handles[1].clear(false).unwrap();
    store.clear_tenant(b"salt", false).unwrap();
    assert!(store.close());
    let read = |file: File| (file.name(), fs::read(dir.path().join(file.name())).unwrap());
    let mut files: BTreeMap<_, _> = File::ALL.map(read).into();
    files.insert(File::Table.name(), table);
    Image { files, cleared }
}

/// Chance by seed (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((word ^ word >> 31) % end as u64) as usize
    }
}

/// Places of a file worth a fault: where it is not empty.
fn busy(bytes: &[u8]) -> Vec<usize> {
    (0..bytes.len())
        .step_by(512)
        .filter(|&at| bytes[at..].iter().take(512).any(|&b| b != 0))
        .collect()
}

/// Damages a file in place; the answer says how.
fn damage(path: &Path, bytes: &[u8], busy: &[usize], random: &mut Random) -> String {
    let file = fs::File::options().write(true).open(path).unwrap();
    let at = busy[random.below(busy.len())] + random.below(512);
    let at = at.min(bytes.len() - 1);
    match random.below(6) {
        0 => {
            let len = random.below(bytes.len());
            file.set_len(len as u64).unwrap();
            format!("cut to {len}")
        }
        1 => {
            let len = random.below(8192).min(bytes.len() - at);
            file.write_all_at(&vec![0xA5; len], at as u64).unwrap();
            format!("{len} bytes overwritten at {at}")
        }
        2 => {
            let from = busy[random.below(busy.len())];
            let to = busy[random.below(busy.len())];
            let len = 4096.min(bytes.len() - from.max(to));
            file.write_all_at(&bytes[from..from + len], to as u64).unwrap();
            format!("{len} bytes of {from} at {to}")
        }
        flips => {
            for _ in 0..flips {
                let at = (busy[random.below(busy.len())] + random.below(512)).min(bytes.len() - 1);
                file.write_all_at(&[bytes[at] ^ 1 << random.below(8)], at as u64).unwrap();
            }
            format!("{flips} bits flipped around {at}")
        }
    }
}

/// Reads everything; exact or a miss, and what was cleared a miss.
fn assert_harmless(store: &Store, image: &Image, what: &str) {
    let _ = store.check(false, |_, _| ()).unwrap();
    let Some(handles) = models(store) else { return };
    for (model, ns) in handles.iter().enumerate() {
        for seed in 0..PROMPTS {
            check(ns, &prompt(seed, blocks_of(model)));
        }
    }
    for (ns, keys) in [&handles[1], &tenant(store).unwrap()].into_iter().zip(&image.cleared) {
        // By the old keys, and by those that the handle makes now.
        let (items, _) = ns.lease_keys(keys);
        assert!(items.is_empty(), "{what}: a cleared block is back");
        assert_eq!(check(ns, &prompt(77, 4)), 0, "{what}: a cleared prompt is back");
    }
    // It still works.
    let wrote = put_and_wait(&handles[0], &prompt(500, 2), Ack::Ssd);
    assert_eq!(check(&handles[0], &prompt(500, 2)), 2, "{what}: {wrote:?}");
    let stats = store.stats();
    assert!(!stats.poisoned, "{what}: a panic in the engine");
    assert_eq!(stats.pins, 0, "{what}");
}

/// B2-07, B2-09, B2-19, C1, C4.
#[test]
fn damaged_files_give_an_error_that_says_so_or_misses() {
    let time = || std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let seed = std::env::var("KVSTORE_SEED").map_or_else(|_| time(), |n| n.parse().unwrap());
    let cases = std::env::var("KVSTORE_IMAGE_CASES").map_or(90, |n| n.parse().expect("a number"));
    eprintln!("KVSTORE_SEED={seed}");
    let mut random = Random(seed);
    let image = image();
    let dir = tempfile::tempdir().unwrap();
    let (mut opened, mut refused) = (0, 0);
    for case in 0..cases {
        for (name, bytes) in &image.files {
            fs::write(dir.path().join(name), bytes).unwrap();
        }
        // Every file has its turn, and sometimes another one as well.
        let names: Vec<_> = image.files.keys().copied().collect();
        let mut what = format!("case {case}");
        let mut hit = vec![names[case % names.len()]];
        if random.below(3) == 0 {
            hit.push(names[random.below(names.len())]);
        }
        for name in hit {
            let bytes = &image.files[name];
            let how = damage(&dir.path().join(name), bytes, &busy(bytes), &mut random);
            what = format!("{what}, {name}: {how}");
        }
        match Store::open(dir.path(), &small()) {
            Ok(store) => {
                opened += 1;
                assert_harmless(&store, &image, &what);
                assert!(store.close(), "{what}");
                // What was written to a damaged store is found again.
                let store = open(dir.path(), &small());
                let handles = models(&store).unwrap();
                assert_eq!(check(&handles[0], &prompt(500, 2)), 2, "{what}: after a restart");
                assert_harmless(&store, &image, &what);
            }
            Err(error) => {
                refused += 1;
                assert_eq!(error.kind(), ErrorKind::Incompatible, "{what}: {error}");
                assert!(error.to_string().len() > 10, "{what}: {error}");
            }
        }
    }
    eprintln!("{opened} images opened, {refused} refused");
    assert!(opened > cases / 2);
}
