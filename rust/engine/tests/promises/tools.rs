//! Helpers of all themes: objects of each kind, a store on a device that fails, sums of counters.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvstore_engine::identity::{Extras, Key};
use kvstore_engine::io::fault::{FaultDevice, FaultDisk, FaultPlan};
use kvstore_engine::store::{Ack, Match, Namespace, Object, Options, PutOptions, Status, Store};
use kvstore_index::Kind;

use crate::support::*;

/// Directory that a role works in.
pub(crate) const DIR: &str = "KVSTORE_TEST_DIR";

/// Roles by name.
pub(crate) fn play(role: &str) {
    let dir = PathBuf::from(std::env::var_os(DIR).unwrap_or_default());
    match role {
        "store_and_exit" => crate::restart::store_and_exit(&dir),
        "store_and_wait" => crate::restart::store_and_wait(&dir),
        "say_keys" => crate::identity::say_keys(&dir),
        "full_at_creation" => crate::file_systems::full_at_creation(),
        "full_later" => crate::file_systems::full_later(),
        "read_only_mount" => crate::file_systems::read_only_mount(),
        "open_often" => crate::file_systems::open_often(),
        "own_store" => crate::opening::own(&dir, ""),
        "own_and_write" => crate::opening::own(&dir, "write"),
        "own_and_fork" => crate::opening::own(&dir, "fork"),
        "own_and_share" => crate::opening::own(&dir, "share"),
        "fill_host_memory" => crate::capacity::fill_host_memory(&dir),
        "open_a_million" => crate::restart::open_a_million(&dir),
        other => panic!("no role {other}"),
    }
}

/// A body, window or checkpoint of block `at`, hung where it belongs.
pub(crate) fn object<'a>(keys: &[Key], at: usize, kind: Kind, data: &'a [u8]) -> Object<'a> {
    let body = kind == Kind::Body;
    Object {
        block: keys[at],
        kind,
        parent: if body { at.checked_sub(1).map(|before| keys[before]) } else { Some(keys[at]) },
        after: None,
        depth: at as u32 + u32::from(!body),
        replayed: false,
        unneeded: false,
        data,
        cuts: &[],
    }
}

/// Puts one object and waits for its answer.
pub(crate) fn put_one(ns: &Namespace, object: Object<'_>, ack: Ack) -> Status {
    let batch = ns.put_objects(&[object], PutOptions { ack, ..PutOptions::default() });
    assert!(batch.wait(soon()), "a put ends within its bound");
    batch.status()[0]
}

pub(crate) fn keys(ns: &Namespace, tokens: &[u32]) -> Vec<Key> {
    ns.keys(tokens, &Extras::none()).expect("keys")
}

/// A match of a prompt and one token more, so that all of its blocks may be used.
pub(crate) fn matched(ns: &Namespace, tokens: &[u32]) -> Match {
    let longer: Vec<u32> = tokens.iter().copied().chain([0]).collect();
    ns.match_tokens(&longer, &Extras::none(), false, None).expect("a match")
}

/// Blocks of a prompt that a match finds from its start; reads nothing.
pub(crate) fn blocks_of(ns: &Namespace, tokens: &[u32]) -> usize {
    matched(ns, tokens).plan.bodies.len()
}

/// A store on a device that fails as told.
pub(crate) fn on(
    disk: &Arc<FaultDisk>,
    plan: FaultPlan,
    options: &Options,
) -> (Store, Arc<FaultDevice>) {
    let arena = Store::arena_for(options).expect("an arena");
    let device = Arc::new(FaultDevice::new(disk.clone(), arena.clone(), plan));
    let store = Store::open_on(device.clone(), arena, options).expect("the store opens");
    (store, device)
}

/// C10: look-ups, reads and puts add up, whatever happened; the answer is all puts.
pub(crate) fn adds_up(store: &Store) -> u64 {
    let c = store.stats().counters;
    let misses: u64 = c.misses.values().sum();
    assert_eq!(c.lookups, c.hits_mirror + c.hits_host + c.hits_disk + misses, "{c:?}");
    let missed: u64 = c.reads_missed.values().sum();
    assert_eq!(c.reads_asked, c.reads_given + missed, "{c:?}");
    let rejected: u64 = c.puts_rejected.values().sum();
    c.puts_stored + c.puts_exists + c.puts_busy + c.puts_cancelled + rejected
}

/// Nothing is held, queued or on its way, and the counters add up.
pub(crate) fn at_rest(store: &Store) {
    assert!(store.flush(soon()), "what is pending is written");
    // A read that its reader gave up ends by itself (C7).
    let (mut stats, late) = (store.stats(), soon());
    while stats.in_flight > 0 && Instant::now() < late {
        std::thread::sleep(Duration::from_millis(5));
        stats = store.stats();
    }
    assert_eq!((stats.pins, stats.host.pinned), (0, 0), "no pin is left");
    assert_eq!((stats.in_flight, stats.queued_writes, stats.host.dirty), (0, 0, 0), "{stats:?}");
    assert!(!stats.poisoned);
    assert!(stats.host.used <= stats.host.arena);
    adds_up(store);
}

/// Bytes that the files of a directory take on disk.
pub(crate) fn du(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let files = std::fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry"));
    files.map(|file| file.metadata().expect("metadata").blocks() * 512).sum()
}

/// Resident memory of this process, bytes.
pub(crate) fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

/// Says why a test did not run here.
pub(crate) fn skip(reason: &str) {
    println!("skipped: {reason}");
}
