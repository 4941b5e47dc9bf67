//! What the engine's integration tests share: small stores and self-identifying payloads.
#![allow(dead_code, reason = "each test binary uses its own share")]

use kvstore_engine::identity::{Description, Extras, Key, WeightsKind};
use kvstore_engine::io::{Device, FaultDevice, FaultDisk, FaultPlan};
use kvstore_engine::store::{
    Ack, Batch, Namespace, NamespaceOptions, Object, Options, PutOptions, Status, Store,
};
use kvstore_index::Kind;
use kvstore_layout::{Group, Layout};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const BLOCK_TOKENS: u32 = 64;

/// A store small enough for tests: 32 MiB of host memory, 256 MiB of disk.
pub(crate) fn options() -> Options {
    Options {
        host_bytes: 32 * MIB,
        disk_bytes: 256 * MIB,
        objects: Some(20_000),
        lock_wait: Duration::from_secs(5),
        room_wait: Duration::from_secs(10),
        read_deadline: Duration::from_secs(10),
        close_deadline: Duration::from_secs(10),
        ..Options::new()
    }
}

/// One entries group with `record` bytes per token.
pub(crate) fn layout(record: u32) -> Arc<Layout> {
    let groups = vec![Group::entries("kv", record, vec![0, 1])];
    Arc::new(Layout::new("test", BLOCK_TOKENS, groups).expect("a valid layout"))
}

pub(crate) fn description(layout: &Layout, model: &str) -> Description {
    Description::builder()
        .model(model)
        .weights(WeightsKind::Full, [7; 32])
        .dtype("bf16")
        .layout(*blake3::hash(&layout.canonical()).as_bytes())
        .block_tokens(layout.block_tokens())
        .build()
        .expect("a valid description")
}

pub(crate) fn namespace(store: &Store, layout: &Arc<Layout>, model: &str) -> Namespace {
    salted(store, layout, model, b"")
}

pub(crate) fn salted(store: &Store, layout: &Arc<Layout>, model: &str, salt: &[u8]) -> Namespace {
    store
        .namespace(layout.clone(), &description(layout, model), salt, NamespaceOptions::default())
        .expect("a namespace")
}

/// Tokens of a prompt: two prompts with one seed share as many tokens as the shorter has.
pub(crate) fn prompt(seed: u32, blocks: u32) -> Vec<u32> {
    (0..blocks * BLOCK_TOKENS).map(|i| seed.wrapping_mul(7_919).wrapping_add(i * 31)).collect()
}

/// Bytes that name their key: whoever reads others can say whose they are.
pub(crate) fn payload(key: &Key, len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    let mut reader = blake3::Hasher::new_keyed(key.as_bytes()).finalize_xof();
    reader.fill(&mut out);
    out
}

/// Puts the bodies of blocks `first..` of a prompt.
pub(crate) fn put(ns: &Namespace, tokens: &[u32], first: usize, ack: Ack) -> Arc<Batch> {
    let keys = ns.keys(tokens, &Extras::none()).expect("keys");
    let len = ns.layout().body_bytes() as usize;
    let bodies: Vec<Vec<u8>> = keys.iter().map(|key| payload(key, len)).collect();
    let objects: Vec<Object<'_>> = (first..keys.len())
        .map(|i| Object {
            block: keys[i],
            kind: Kind::Body,
            parent: i.checked_sub(1).map(|before| keys[before]),
            after: (i > first).then(|| i - first - 1),
            depth: i as u32,
            replayed: false,
            unneeded: false,
            data: &bodies[i],
            cuts: &[],
        })
        .collect();
    ns.put_objects(&objects, PutOptions { ack, ..PutOptions::default() })
}

pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

pub(crate) fn put_and_wait(ns: &Namespace, tokens: &[u32], ack: Ack) -> Vec<Status> {
    let batch = put(ns, tokens, 0, ack);
    assert!(batch.wait(soon()), "a put ends within its bound");
    batch.status()
}

/// Leases a prompt and checks every byte; the answer is the number of blocks got.
pub(crate) fn check(ns: &Namespace, tokens: &[u32]) -> usize {
    let mut longer = tokens.to_vec();
    longer.push(0);
    let found = ns.match_tokens(&longer, &Extras::none(), false, None).expect("a match");
    let lease = ns.lease(&found);
    let blocks = lease.plan().bodies.len();
    for block in lease.plan().bodies.clone() {
        let item = lease.body(block).expect("a body of the plan");
        let view = kvstore_engine::store::View::joined(item, 0..item.len()).expect("a view");
        let wanted = payload(&found.keys[block as usize], item.len());
        assert!(view.as_slice() == wanted, "block {block} has other bytes");
    }
    blocks
}

pub(crate) fn open(dir: &Path, options: &Options) -> Store {
    Store::open(dir, options).expect("the store opens")
}

/// A store on a disk that fails as told.
pub(crate) struct Rig {
    pub(crate) disk: Arc<FaultDisk>,
    pub(crate) device: Arc<FaultDevice>,
    pub(crate) store: Store,
}

/// Options of a small store on a fault disk, which is held in memory: five segments.
pub(crate) fn few_segments() -> Options {
    Options {
        host_bytes: 24 * MIB,
        disk_bytes: 96 * MIB,
        objects: Some(2_000),
        room_wait: Duration::from_secs(5),
        close_deadline: Duration::from_secs(5),
        ..options()
    }
}

pub(crate) fn rig(options: &Options, plan: FaultPlan) -> Rig {
    rig_on(FaultDisk::new(), options, plan)
}

/// A new life on a disk; the store before was closed or killed.
pub(crate) fn rig_on(disk: Arc<FaultDisk>, options: &Options, plan: FaultPlan) -> Rig {
    let arena = Store::arena_for(options).expect("an arena");
    let device = Arc::new(FaultDevice::new(disk.clone(), arena.clone(), plan));
    let store = open_on(device.clone(), arena, options).expect("the store opens");
    Rig { disk, device, store }
}

pub(crate) fn open_on(
    device: Arc<dyn Device>,
    arena: Arc<kvstore_engine::host::Arena>,
    options: &Options,
) -> kvstore_engine::Result<Store> {
    Store::open_on(device, arena, options)
}

/// Waits until something is so.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let give_up = soon();
    while !is_so() {
        assert!(Instant::now() < give_up, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Items of all puts that were answered, by whatever.
pub(crate) fn answered(store: &Store) -> u64 {
    let c = store.stats().counters;
    let rejected: u64 = c.puts_rejected.values().sum();
    c.puts_stored + c.puts_exists + c.puts_busy + c.puts_cancelled + rejected
}

/// A body by itself, below the root.
pub(crate) fn one_body(block: Key, data: &[u8]) -> Object<'_> {
    Object {
        block,
        kind: Kind::Body,
        parent: None,
        after: None,
        depth: 0,
        replayed: false,
        unneeded: false,
        data,
        cuts: &[],
    }
}
