//! A crash after every single step of one small history (B2-03): what is found afterwards is whole
//! or absent, nothing acknowledged is missing, nothing cleared is back, and nothing is left over.

mod support;

use kvstore_engine::identity::{Extras, Key};
use kvstore_engine::io::{
    Completion, Device, FaultDevice, FaultDisk, FaultPlan, File, Grown, Op, OpKind, PathInUse, Rule,
};
use kvstore_engine::store::{
    Ack, Namespace, NamespaceOptions, Object, PutOptions, Status, Store, View,
};
use kvstore_index::Kind;
use kvstore_layout::{Group, Layout};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;
use support::*;

/// How the end comes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// After the n-th operation has completed, with nothing in flight.
    After,
    /// With the n-th operation in flight: all, nothing or some of it is done.
    During,
    /// As `During`, by the power.
    Power,
}

/// A device whose process dies at one operation.
struct Fuse {
    inner: FaultDevice,
    disk: Arc<FaultDisk>,
    end: End,
    /// Operations begun so far, and the one at which it ends.
    begun: AtomicU64,
    last: u64,
}

impl Fuse {
    /// Counts an operation; true if the end comes with it.
    fn burns(&self) -> bool {
        self.begun.fetch_add(1, Ordering::SeqCst) + 1 == self.last
    }

    fn die(&self) {
        match self.end {
            End::After | End::During => self.disk.kill(self.last),
            End::Power => self.disk.power_cut(self.last),
        }
    }

    /// A synchronous step: a metadata write is done as a whole or, in flight, in part.
    fn step<R>(&self, write: Option<File>, step: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        let burns = self.burns();
        if burns && self.end != End::After {
            if let Some(file) = write {
                let torn = kvstore_engine::io::Fault::Broken(libc::EIO);
                self.inner.inject(Rule::once(file, OpKind::Write, torn));
                let _torn = step();
            }
            self.die();
            return Err(io::Error::other("the process is dead"));
        }
        let done = step();
        if burns {
            self.die();
        }
        done
    }
}

impl Device for Fuse {
    fn submit(&self, ops: &[Op]) -> usize {
        let taken = self.inner.submit(ops);
        if self.end != End::After && (0..taken).filter(|_| self.burns()).count() > 0 {
            self.die();
        }
        taken
    }

    fn complete(&self, out: &mut Vec<Completion>, deadline: Instant) -> usize {
        let count = self.inner.complete(out, deadline);
        if self.end == End::After && (0..count).filter(|_| self.burns()).count() > 0 {
            self.die();
        }
        count
    }

    fn wake(&self) {
        self.inner.wake();
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn capacity(&self) -> usize {
        self.inner.capacity()
    }

    fn len(&self, file: File) -> io::Result<u64> {
        self.inner.len(file)
    }

    fn grow(&self, file: File, len: u64) -> io::Result<Grown> {
        self.step(None, || self.inner.grow(file, len))
    }

    fn truncate(&self, file: File, len: u64) -> io::Result<()> {
        self.step(None, || self.inner.truncate(file, len))
    }

    fn sync(&self, file: File) -> io::Result<()> {
        self.step(None, || self.inner.sync(file))
    }

    fn read_at(&self, file: File, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(file, offset, bytes)
    }

    fn write_at(&self, file: File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.step(Some(file), || self.inner.write_at(file, offset, bytes))
    }

    fn path_in_use(&self) -> PathInUse {
        self.inner.path_in_use()
    }

    fn close(&self, deadline: Instant) -> bool {
        self.inner.close(deadline)
    }
}

fn mixed() -> Arc<Layout> {
    let groups = vec![
        Group::entries("kv", 64, vec![0, 1]),
        Group::window("near", 32, vec![0, 1], 96),
        Group::state("state", 5000, vec![0]),
    ];
    Arc::new(Layout::new("mixed", BLOCK_TOKENS, groups).unwrap())
}

fn parts() -> Arc<Layout> {
    layout(20_480)
}

/// What a history has promised by the time it ended.
#[derive(Default)]
struct Promised {
    /// Prompts of model, seed and blocks that were acknowledged, and how.
    acked: Vec<(&'static str, u32, u32, Ack)>,
    /// Block keys that must not be found again.
    cleared: Vec<Key>,
    /// Operations that it took.
    steps: u64,
}

fn open_ns(store: &Store, model: &str) -> Option<Namespace> {
    let layout = if model == "parts" { parts() } else { mixed() };
    let description = description(&layout, model);
    store.namespace(layout, &description, b"", NamespaceOptions::default()).ok()
}

/// Bodies, and in the mixed model all windows and the checkpoint at the end.
fn put_all(ns: &Namespace, tokens: &[u32], ack: Ack) -> bool {
    let keys = ns.keys(tokens, &Extras::none()).unwrap();
    let mut names: Vec<(usize, Kind)> = (0..keys.len()).map(|b| (b, Kind::Body)).collect();
    if ns.layout().has_state() {
        names.extend((0..keys.len()).map(|b| (b, Kind::Window)));
        names.push((keys.len() - 1, Kind::Checkpoint));
    }
    let sizes = |kind| match kind {
        Kind::Body => ns.layout().body_bytes(),
        Kind::Window => ns.layout().window_bytes(),
        Kind::Checkpoint => ns.layout().checkpoint_bytes(),
    };
    let payloads: Vec<Vec<u8>> =
        names.iter().map(|&(b, kind)| payload(&keys[b], sizes(kind) as usize)).collect();
    let objects: Vec<Object<'_>> = names
        .iter()
        .zip(&payloads)
        .map(|(&(b, kind), data)| {
            let body = kind == Kind::Body;
            Object {
                block: keys[b],
                kind,
                parent: if body { b.checked_sub(1).map(|b| keys[b]) } else { Some(keys[b]) },
                after: if body { b.checked_sub(1) } else { Some(b) },
                depth: b as u32,
                replayed: false,
                unneeded: false,
                data,
                cuts: &[],
            }
        })
        .collect();
    let batch = ns.put_objects(&objects, PutOptions { ack, ..PutOptions::default() });
    assert!(batch.wait(soon()), "a put ends: {:?}", batch.status());
    batch.status().iter().all(|status| matches!(status, Status::Stored | Status::Exists))
}

/// Create, store bare objects, parts, windows and a checkpoint, register classes, clear, store
/// again, close.
fn history(disk: &Arc<FaultDisk>, end: End, last: u64) -> Promised {
    let mut promised = Promised::default();
    let arena = Store::arena_for(&few_segments()).unwrap();
    let plan = FaultPlan { seed: last, capacity: 1, ..FaultPlan::default() };
    let device = Arc::new(Fuse {
        inner: FaultDevice::new(disk.clone(), arena.clone(), plan),
        disk: disk.clone(),
        end,
        begun: AtomicU64::new(0),
        last,
    });
    if let Ok(store) = open_on(device.clone(), arena, &few_segments()) {
        live(&store, &mut promised);
        store.close();
        assert!(!store.stats().poisoned);
        assert_eq!(store.stats().pins, 0);
    }
    promised.steps = device.begun.load(Ordering::SeqCst);
    promised
}

fn live(store: &Store, promised: &mut Promised) {
    let (Some(a), Some(b)) = (open_ns(store, "a"), open_ns(store, "parts")) else { return };
    if put_all(&a, &prompt(1, 2), Ack::Ssd) {
        promised.acked.push(("a", 1, 2, Ack::Ssd));
    }
    if put_all(&b, &prompt(2, 2), Ack::SsdFlush) {
        promised.acked.push(("parts", 2, 2, Ack::SsdFlush));
    }
    let old = a.keys(&prompt(1, 2), &Extras::none()).unwrap();
    // From its begin on a clear may have happened; once it has returned, it has.
    promised.acked.retain(|&(model, ..)| model != "a");
    if a.clear(false).is_ok() {
        promised.cleared = old;
    }
    if put_all(&a, &prompt(3, 1), Ack::SsdFlush) {
        promised.acked.push(("a", 3, 1, Ack::SsdFlush));
    }
    if put_all(&b, &prompt(4, 1), Ack::Ssd) {
        promised.acked.push(("parts", 4, 1, Ack::Ssd));
    }
}

/// Reads what a lease gives of a prompt, all kinds of objects.
fn read(ns: &Namespace, tokens: &[u32]) -> u32 {
    let mut longer = tokens.to_vec();
    longer.push(0);
    let found = ns.match_tokens(&longer, &Extras::none(), false, None).unwrap();
    let lease = ns.lease(&found);
    let plan = lease.plan().clone();
    let bodies = plan.bodies.clone().map(|block| (block, lease.body(block)));
    let windows = plan.windows.clone().map(|block| (block, lease.window(block)));
    let state = plan.checkpoint.map(|n| (n / BLOCK_TOKENS - 1, lease.checkpoint()));
    for (block, item) in bodies.chain(windows).chain(state) {
        let item = item.expect("an object of the plan");
        let view = View::joined(item, 0..item.len()).unwrap();
        let wanted = payload(&found.keys[block as usize], item.len());
        assert!(view.as_slice() == wanted, "other bytes in block {block}");
    }
    plan.bodies.len() as u32
}

fn survives(end: End, ack: Ack) -> bool {
    ack == Ack::SsdFlush || end != End::Power
}

fn assert_whole(disk: &Arc<FaultDisk>, end: End, last: u64, promised: &Promised) {
    let what = format!("{end:?} step {last}");
    let life = rig_on(disk.clone(), &few_segments(), FaultPlan::default());
    let report = life.store.check(true, |_, _| ()).unwrap();
    if end != End::Power {
        assert_eq!(report.damaged, [], "{what}: {:?}", life.store.recovered());
    }
    let a = open_ns(&life.store, "a").unwrap();
    let b = open_ns(&life.store, "parts").unwrap();
    for (seed, blocks) in [(1, 2), (3, 1)] {
        read(&a, &prompt(seed, blocks));
    }
    for (seed, blocks) in [(2, 2), (4, 1)] {
        read(&b, &prompt(seed, blocks));
    }
    for &(model, seed, blocks, ack) in &promised.acked {
        let ns = if model == "a" { &a } else { &b };
        let got = read(ns, &prompt(seed, blocks));
        assert!(got == blocks || !survives(end, ack), "{what}: {got} of {model} {seed}");
    }
    for key in &promised.cleared {
        let (items, _) = a.lease_keys(&[*key]);
        assert!(items.is_empty(), "{what}: a cleared block is back");
    }
    // Used bytes are those of the objects, and each has its slot.
    assert!(life.store.flush(soon()), "{what}");
    let stats = life.store.stats();
    let live: u64 = life.store.inspect().segments.iter().map(|s| u64::from(s.live)).sum();
    assert_eq!((stats.objects, live), (stats.disk.objects, stats.disk.objects), "{what}");
    assert_eq!((stats.pins, stats.host.dirty), (0, 0), "{what}");
    assert!(life.store.close());

    // What was left over is gone for good.
    let life = rig_on(disk.clone(), &few_segments(), FaultPlan::default());
    let again = life.store.recovered();
    let left_over = again.orphan_parts + again.cleared + again.damaged + again.duplicates;
    assert_eq!((left_over, again.objects), (0, stats.disk.objects), "{what}: {again:?}");
}

fn crash_everywhere(end: End) {
    let whole = history(&FaultDisk::new(), end, u64::MAX);
    assert_eq!((whole.acked.len(), whole.cleared.len()), (3, 2), "the history is as planned");
    assert!(whole.steps > 30, "{} steps", whole.steps);
    for last in 1..=whole.steps {
        let disk = FaultDisk::new();
        let promised = history(&disk, end, last);
        assert_whole(&disk, end, last, &promised);
    }
}

/// B2-03, C8.
#[test]
fn a_crash_after_any_step_leaves_whole_objects_or_none() {
    crash_everywhere(End::After);
}

/// B2-03, C8, with a write cut off in the middle.
#[test]
fn a_crash_during_any_step_leaves_whole_objects_or_none() {
    crash_everywhere(End::During);
}

/// B2-03, B2-04, C8.
#[test]
fn a_power_cut_during_any_step_leaves_whole_objects_or_none() {
    crash_everywhere(End::Power);
}
