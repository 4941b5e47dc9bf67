//! Random operations on one store over a disk that fails as told, against a model of the contract:
//! exact bytes or a miss, acknowledged objects survive, counters add up, pins return to zero,
//! limits hold, memory under a lease is never reused.
//!
//! `KVSTORE_MODEL_CASES` sets the number of cases; a failed one prints its operations and seed.

mod support;

use kvstore_engine::identity::{Extras, Key};
use kvstore_engine::io::{Device, Fault, FaultDevice, FaultDisk, FaultPlan, File, OpKind, Rule};
use kvstore_engine::store::{
    Ack, Batch, BlockAnswer, Lease, Namespace, NamespaceOptions, Object, Options, PutOptions,
    Stats, Status, Store, View,
};
use kvstore_index::Kind;
use kvstore_layout::{Group, Layout};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{BLOCK_TOKENS, MIB, description, prompt};

/// Handles: two tenants of one model with windows and states, a model of large bodies, and one
/// whose bodies are in parts.
const HANDLES: usize = 4;
const DISK_OBJECTS: u64 = 60;
const PROMPTS: u32 = 4;

/// With a host tier, or without one.
fn options(host: bool) -> Options {
    Options {
        host_bytes: if host { 24 * MIB } else { 0 },
        disk_bytes: 96 * MIB,
        objects: Some(300),
        disk_objects: Some(DISK_OBJECTS),
        room_wait: Duration::from_millis(100),
        read_deadline: Duration::from_millis(200),
        close_deadline: Duration::from_millis(500),
        ..Options::new()
    }
}

fn layouts() -> [Arc<Layout>; 3] {
    let mixed = vec![
        Group::entries("kv", 64, vec![0, 1]),
        Group::window("near", 32, vec![0, 1], 96),
        Group::state("state", 5000, vec![0]),
    ];
    let entries = |record| vec![Group::entries("kv", record, vec![0, 1])];
    [("mixed", mixed), ("large", entries(2400)), ("parts", entries(20_480))]
        .map(|(name, groups)| Arc::new(Layout::new(name, BLOCK_TOKENS, groups).unwrap()))
}

fn handles(store: &Store) -> Result<Vec<Namespace>, kvstore_engine::Error> {
    let [mixed, large, parts] = layouts();
    let open = |layout: &Arc<Layout>, salt: &[u8]| {
        let description = description(layout, layout.name());
        store.namespace(layout.clone(), &description, salt, NamespaceOptions::default())
    };
    Ok(vec![open(&mixed, b"")?, open(&mixed, b"tenant")?, open(&large, b"")?, open(&parts, b"")?])
}

#[derive(Clone, Debug)]
struct Put {
    handle: usize,
    prompt: u32,
    blocks: u32,
    ack: Ack,
    variant: u8,
    /// Windows and checkpoints as well.
    all: bool,
    /// Seconds to live.
    ttl: Option<u64>,
    wait: bool,
}

#[derive(Copy, Clone, Debug)]
enum How {
    Lease,
    Into,
    Keys,
    Prefetch,
}

#[derive(Clone, Debug)]
enum Step {
    Put(Put),
    Get {
        handle: usize,
        prompt: u32,
        blocks: u32,
        how: How,
    },
    Hold {
        handle: usize,
        prompt: u32,
    },
    LetGo,
    ClearNamespace {
        handle: usize,
        erase: bool,
    },
    ClearTenant {
        erase: bool,
    },
    Flush,
    Reopen,
    Kill(u64),
    PowerCut(u64),
    /// Writes of a file hang, some puts come, and the process dies.
    Stall {
        file: File,
        puts: Vec<Put>,
        end: u64,
    },
    Inject(Rule),
    Heal,
}

fn put() -> impl Strategy<Value = Put> {
    let ack = prop_oneof![1 => Just(Ack::Host), 2 => Just(Ack::Ssd), 1 => Just(Ack::SsdFlush)];
    let ttl = prop_oneof![8 => Just(None), 1 => Just(Some(0)), 1 => Just(Some(1))];
    let place = (0..HANDLES, 0..PROMPTS, 1_u32..5);
    (place, ack, 0_u8..3, any::<bool>(), ttl, prop::bool::weighted(0.8)).prop_map(
        |((handle, prompt, blocks), ack, variant, all, ttl, wait)| Put {
            handle,
            prompt,
            blocks,
            ack,
            variant,
            all,
            ttl,
            wait,
        },
    )
}

fn rule() -> impl Strategy<Value = Rule> {
    let loud = prop_oneof![
        Just(Fault::Errno(libc::EIO)),
        Just(Fault::Errno(libc::ENOSPC)),
        Just(Fault::Broken(libc::EIO)),
        Just(Fault::Short),
        Just(Fault::Stuck),
    ];
    let silent = prop_oneof![
        Just(Fault::Partial),
        Just(Fault::Lost),
        Just(Fault::FlipBit),
        Just(Fault::Misdirect(4096)),
        Just(Fault::Misdirect(-8192)),
    ];
    let payload = prop_oneof![Just(File::Data), Just(File::Table)];
    let meta = prop_oneof![
        Just(File::Superblock),
        Just(File::Namespaces),
        Just(File::Tenants),
        Just(File::Directory)
    ];
    let kind =
        prop_oneof![2 => Just(OpKind::Read), 3 => Just(OpKind::Write), 1 => Just(OpKind::Sync)];
    let transfer = prop_oneof![Just(OpKind::Read), Just(OpKind::Write)];
    prop_oneof![
        4 => (payload.clone(), kind, loud).prop_map(|(f, k, fault)| Rule::once(f, k, fault)),
        3 => (payload, transfer, silent).prop_map(|(f, k, fault)| Rule::once(f, k, fault)),
        1 => meta.prop_map(|f| Rule::once(f, OpKind::Write, Fault::Errno(libc::EIO))),
        1 => Just(Rule {
            count: 12,
            ..Rule::once(File::Data, OpKind::Write, Fault::Errno(libc::EIO))
        }),
    ]
    .prop_flat_map(|rule| (0_u64..4).prop_map(move |skip| rule.after(skip)))
}

fn stall() -> impl Strategy<Value = Step> {
    let file = prop_oneof![Just(File::Data), Just(File::Table)];
    let hasty = put().prop_map(|put| Put { wait: false, ..put });
    (file, prop::collection::vec(hasty, 1..4), any::<u64>())
        .prop_map(|(file, puts, end)| Step::Stall { file, puts, end })
}

fn step() -> impl Strategy<Value = Step> {
    let how = prop_oneof![4 => Just(How::Lease), 1 => Just(How::Into), 1 => Just(How::Keys), 1 => Just(How::Prefetch)];
    prop_oneof![
        16 => put().prop_map(Step::Put),
        8 => (0..HANDLES, 0..PROMPTS, 1_u32..5, how)
            .prop_map(|(handle, prompt, blocks, how)| Step::Get { handle, prompt, blocks, how }),
        2 => (0..HANDLES, 0..PROMPTS).prop_map(|(handle, prompt)| Step::Hold { handle, prompt }),
        2 => Just(Step::LetGo),
        1 => (0..HANDLES, any::<bool>())
            .prop_map(|(handle, erase)| Step::ClearNamespace { handle, erase }),
        1 => any::<bool>().prop_map(|erase| Step::ClearTenant { erase }),
        1 => Just(Step::Flush),
        1 => Just(Step::Reopen),
        2 => any::<u64>().prop_map(Step::Kill),
        1 => any::<u64>().prop_map(Step::PowerCut),
        2 => stall(),
        3 => rule().prop_map(Step::Inject),
        1 => Just(Step::Heal),
    ]
}

/// What the model knows of one object.
#[derive(Clone, Debug, Default)]
struct Known {
    /// Variants that a read may give now.
    may: BTreeSet<u8>,
    /// Variants ever put.
    ever: BTreeSet<u8>,
    /// Level at which it was acknowledged and must be there, losses apart.
    level: Option<Ack>,
    /// A clear has made it unreachable for good.
    cleared: bool,
}

/// Object of the model: key of its block, and kind.
type Name = ([u8; 32], u8);

struct Held {
    lease: Lease,
    bytes: Vec<(u32, Vec<u8>)>,
}

/// One store, its disk, and the model of both.
struct World {
    options: Options,
    disk: Arc<FaultDisk>,
    device: Arc<FaultDevice>,
    store: Store,
    handles: Vec<Namespace>,
    known: BTreeMap<Name, (usize, Known)>,
    held: Vec<Held>,
    batches: Vec<Arc<Batch>>,
    /// Items put in this life of the store.
    items: u64,
    /// A fault that nobody reports has hit payloads or descriptors in this life.
    tainted: bool,
    lives: u64,
    seed: u64,
}

type Outcome = Result<(), TestCaseError>;

fn bytes_of(block: &Key, kind: Kind, variant: u8, len: u64) -> Vec<u8> {
    let mut hasher = blake3::Hasher::new_keyed(block.as_bytes());
    hasher.update(&[kind as u8, variant]);
    let mut out = vec![0; len as usize];
    hasher.finalize_xof().fill(&mut out);
    out
}

fn start(
    disk: &Arc<FaultDisk>,
    seed: u64,
    options: &Options,
) -> (Arc<FaultDevice>, Result<Store, TestCaseError>) {
    let arena = Store::arena_for(options).unwrap();
    let plan = FaultPlan { seed, ..FaultPlan::default() };
    let device = Arc::new(FaultDevice::new(disk.clone(), arena.clone(), plan));
    let store = Store::open_on(device.clone(), arena, options);
    (device, store.map_err(|error| TestCaseError::fail(format!("open: {error}"))))
}

impl World {
    fn new(seed: u64, options: Options) -> Result<Self, TestCaseError> {
        let disk = FaultDisk::new();
        let (device, store) = start(&disk, seed, &options);
        let store = store?;
        let handles = handles(&store).map_err(|error| TestCaseError::fail(error.to_string()))?;
        Ok(Self {
            options,
            disk,
            device,
            store,
            handles,
            known: BTreeMap::new(),
            held: Vec::new(),
            batches: Vec::new(),
            items: 0,
            tainted: false,
            lives: 0,
            seed,
        })
    }

    fn keys(&self, handle: usize, seed: u32, blocks: u32) -> Vec<Key> {
        self.handles[handle].keys(&prompt(seed, blocks), &Extras::none()).unwrap()
    }

    fn size(&self, handle: usize, kind: Kind) -> u64 {
        let layout = self.handles[handle].layout();
        match kind {
            Kind::Body => layout.body_bytes(),
            Kind::Window => layout.window_bytes(),
            Kind::Checkpoint => layout.checkpoint_bytes(),
        }
    }

    fn step(&mut self, step: &Step) -> Outcome {
        match step {
            Step::Put(put) => self.put(put),
            Step::Get { handle, prompt, blocks, how } => {
                self.get(*handle, *prompt, *blocks, *how)?;
            }
            Step::Hold { handle, prompt } => self.hold(*handle, *prompt)?,
            Step::LetGo => {
                if !self.held.is_empty() {
                    let held = self.held.remove(0);
                    assert_held(&held)?;
                }
            }
            Step::ClearNamespace { handle, erase } => {
                let cleared = self.handles[*handle].clear(*erase).is_ok();
                let layout = self.handles[*handle].layout().name().to_owned();
                let same: Vec<usize> = (0..HANDLES)
                    .filter(|&other| self.handles[other].layout().name() == layout)
                    .collect();
                self.cleared(&same, cleared);
            }
            Step::ClearTenant { erase } => {
                let cleared = self.store.clear_tenant(b"tenant", *erase).is_ok();
                self.cleared(&[1], cleared);
            }
            Step::Flush => {
                self.store.flush(Instant::now() + Duration::from_millis(200));
            }
            Step::Reopen => self.reopen(None)?,
            Step::Kill(seed) => self.reopen(Some((*seed, false)))?,
            Step::PowerCut(seed) => self.reopen(Some((*seed, true)))?,
            Step::Stall { file, puts, end } => {
                self.device.inject(Rule::always(*file, OpKind::Write, Fault::Stuck));
                puts.iter().for_each(|put| self.put(put));
                std::thread::sleep(Duration::from_millis(10));
                self.reopen(Some((*end, false)))?;
            }
            Step::Inject(rule) => {
                let silent = matches!(
                    rule.fault,
                    Fault::Partial | Fault::Lost | Fault::FlipBit | Fault::Misdirect(_)
                );
                if silent {
                    self.tainted = true;
                }
                self.device.inject(*rule);
            }
            Step::Heal => {
                self.device.heal();
                self.device.release();
            }
        }
        self.limits()
    }

    fn put(&mut self, put: &Put) {
        let Put { handle, variant, ack, .. } = *put;
        let keys = self.keys(handle, put.prompt, put.blocks);
        let mut names: Vec<(usize, Kind)> = (0..keys.len()).map(|b| (b, Kind::Body)).collect();
        if put.all && handle < 2 {
            names.extend((0..keys.len()).map(|b| (b, Kind::Window)));
            names.push((keys.len() - 1, Kind::Checkpoint));
        }
        let payloads: Vec<Vec<u8>> = names
            .iter()
            .map(|&(b, kind)| bytes_of(&keys[b], kind, variant, self.size(handle, kind)))
            .collect();
        let objects: Vec<Object<'_>> = names
            .iter()
            .zip(&payloads)
            .map(|(&(b, kind), data)| Object {
                block: keys[b],
                kind,
                parent: if kind == Kind::Body {
                    b.checked_sub(1).map(|b| keys[b])
                } else {
                    Some(keys[b])
                },
                after: if kind == Kind::Body { b.checked_sub(1) } else { Some(b) },
                depth: b as u32,
                replayed: false,
                unneeded: kind == Kind::Window && b + 2 < keys.len(),
                data,
                cuts: &[],
            })
            .collect();
        let ttl = put.ttl.map(Duration::from_secs);
        self.items += objects.len() as u64;
        let batch = self.handles[handle]
            .put_objects(&objects, PutOptions { ack, ttl, ..PutOptions::default() });
        if put.wait {
            batch.wait(Instant::now() + Duration::from_millis(200));
        }
        for (status, &(b, kind)) in batch.status().into_iter().zip(&names) {
            let name = (*keys[b].as_bytes(), kind as u8);
            let (_, known) = self.known.entry(name).or_insert_with(|| (handle, Known::default()));
            known.ever.insert(variant);
            let lasting = put.ttl.is_none() && !self.tainted;
            match status {
                Status::Stored => {
                    known.may = BTreeSet::from([variant]);
                    known.level = lasting.then_some(ack);
                }
                // Present at this level; the first one may have a time to live of its own.
                Status::Exists => known.level = known.level.map(|level| level.max(ack)),
                // Host memory may have it all the same, and a late answer is not waited for.
                _ => {
                    known.may.insert(variant);
                    known.level = None;
                }
            }
        }
        self.batches.push(batch);
    }

    /// Bytes that were read of an object are one of those that were put.
    fn exact(&self, handle: usize, block: &Key, kind: Kind, bytes: &[u8]) -> Outcome {
        let name = (*block.as_bytes(), kind as u8);
        let Some((_, known)) = self.known.get(&name) else {
            return Err(TestCaseError::fail(format!("a hit of what was never put: {name:?}")));
        };
        prop_assert!(!known.cleared, "a hit of what was cleared: handle {handle} {kind:?}");
        let size = self.size(handle, kind);
        let found = known.may.iter().any(|&v| bytes_of(block, kind, v, size) == bytes);
        prop_assert!(found, "other bytes: handle {handle} {kind:?}, {known:?}");
        Ok(())
    }

    fn get(&mut self, handle: usize, seed: u32, blocks: u32, how: How) -> Outcome {
        let mut tokens = prompt(seed, blocks);
        tokens.push(0);
        let ns = &self.handles[handle];
        let found = ns.match_tokens(&tokens, &Extras::none(), false, None).unwrap();
        let began = Instant::now();
        match how {
            How::Lease => {
                let lease = ns.lease(&found);
                for (block, bytes) in leased(&lease) {
                    self.exact(handle, &found.keys[block as usize], Kind::Body, &bytes)?;
                }
                for block in lease.plan().windows.clone() {
                    let item = lease.window(block).expect("a window of the plan");
                    let view = View::joined(item, 0..item.len()).unwrap();
                    let key = &found.keys[block as usize];
                    self.exact(handle, key, Kind::Window, view.as_slice())?;
                }
                if let Some(item) = lease.checkpoint() {
                    let block = lease.plan().checkpoint.unwrap() / BLOCK_TOKENS - 1;
                    let view = View::joined(item, 0..item.len()).unwrap();
                    let key = &found.keys[block as usize];
                    self.exact(handle, key, Kind::Checkpoint, view.as_slice())?;
                }
            }
            How::Into => {
                let mut out = vec![0; ns.bytes_of(&found) as usize];
                let plan = ns.get_into(&found, &mut out).unwrap();
                let size = self.size(handle, Kind::Body) as usize;
                for (at, block) in plan.bodies.enumerate() {
                    let bytes = &out[at * size..(at + 1) * size];
                    self.exact(handle, &found.keys[block as usize], Kind::Body, bytes)?;
                }
            }
            How::Keys => {
                let (items, missed) = ns.lease_keys(&found.keys);
                prop_assert!(items.len() == found.keys.len() || missed.is_some());
                for (item, key) in items.iter().zip(&found.keys) {
                    let view = View::joined(item, 0..item.len()).unwrap();
                    self.exact(handle, key, Kind::Body, view.as_slice())?;
                }
            }
            How::Prefetch => {
                // By reference count: a prefetch goes on in a thread of its own.
                let ns = Arc::new(handles(&self.store).unwrap().swap_remove(handle));
                let batch = ns.prefetch(&found, Instant::now() + Duration::from_millis(500));
                prop_assert!(batch.wait(Instant::now() + Duration::from_secs(30)));
            }
        }
        // Far above the deadlines, but a read that waits without a bound shows.
        prop_assert!(began.elapsed() < Duration::from_secs(30), "a read ends at its deadline");
        Ok(())
    }

    fn hold(&mut self, handle: usize, seed: u32) -> Outcome {
        let mut tokens = prompt(seed, 4);
        tokens.push(0);
        let ns = &self.handles[handle];
        let found = ns.match_tokens(&tokens, &Extras::none(), false, None).unwrap();
        let lease = ns.lease(&found);
        let bytes = leased(&lease);
        for (block, bytes) in &bytes {
            self.exact(handle, &found.keys[*block as usize], Kind::Body, bytes)?;
        }
        self.held.push(Held { lease, bytes });
        Ok(())
    }

    /// Objects of these handles were cleared; for good only if the epoch is on disk.
    fn cleared(&mut self, handles: &[usize], for_good: bool) {
        for (handle, known) in self.known.values_mut() {
            if handles.contains(handle) {
                known.level = None;
                known.cleared |= for_good;
            }
        }
    }

    /// Ends this life of the store and begins the next.
    fn reopen(&mut self, end: Option<(u64, bool)>) -> Outcome {
        let (on_disk, before) = (self.on_disk(), losses(&self.store.stats()));
        if let Some((seed, power)) = end {
            if power { self.disk.power_cut(seed) } else { self.disk.kill(seed) }
        }
        self.device.heal();
        self.device.release();
        let began = Instant::now();
        let written = self.store.close();
        prop_assert!(began.elapsed() < Duration::from_secs(60), "close ends in time");
        let stats = self.store.stats();
        prop_assert!(!stats.poisoned, "a panic in the engine");
        for batch in self.batches.drain(..) {
            prop_assert!(batch.done(), "an item without an answer: {:?}", batch.status());
        }
        self.counters(&stats)?;
        let lost = losses(&stats);

        self.lives += 1;
        let (device, store) = start(&self.disk, self.seed.wrapping_add(self.lives), &self.options);
        self.device = device;
        self.store = store?;
        self.handles =
            handles(&self.store).map_err(|error| TestCaseError::fail(error.to_string()))?;
        // Recovery itself may evict, down to the limit.
        let lost = lost + losses(&self.store.stats());
        let power = end.is_some_and(|(_, power)| power);
        let report = self.store.check(power || self.tainted, |_, _| ()).unwrap();
        if power || self.tainted {
            // What was damaged is off the disk before the next kill.
            prop_assert!(self.store.flush(Instant::now() + Duration::from_secs(30)));
        } else {
            prop_assert_eq!(report.damaged, [], "INV-2: {:?}", self.store.recovered());
        }
        // If nothing went meanwhile, exactly what was on disk is there.
        let strict = if before == lost { on_disk } else { BTreeSet::new() };
        self.survivors(end, written, lost, &strict, &stats)
    }

    /// Acknowledged bodies that are on disk now, as far as a look-up can tell.
    fn on_disk(&self) -> BTreeSet<Name> {
        let is_there = |(name, (handle, known)): (&Name, &(usize, Known))| {
            let due = known.level.is_some() && name.1 == Kind::Body as u8;
            let key = [Key::from_bytes(name.0)];
            (due && self.handles[*handle].match_keys(&key) == [BlockAnswer::Disk]).then_some(*name)
        };
        self.known.iter().filter_map(is_there).collect()
    }

    /// What was acknowledged is there, but for losses that were counted (C8).
    fn survivors(
        &mut self,
        end: Option<(u64, bool)>,
        written: bool,
        lost: u64,
        strict: &BTreeSet<Name>,
        stats: &Stats,
    ) -> Outcome {
        let least = match end {
            None if written => Ack::Ssd,
            Some((_, true)) => Ack::SsdFlush,
            _ => Ack::Ssd,
        };
        let mut missing = Vec::new();
        for (name, (handle, known)) in &mut self.known {
            known.may.clone_from(&known.ever);
            let due = known.level.take().filter(|&level| level >= least);
            if name.1 != Kind::Body as u8 || due.is_none() {
                continue;
            }
            let answer = self.handles[*handle].match_keys(&[Key::from_bytes(name.0)]);
            if matches!(answer[0], BlockAnswer::Disk | BlockAnswer::Host) {
                known.level = due;
            } else {
                let was_on_disk = strict.contains(name);
                prop_assert!(self.tainted || !was_on_disk, "gone: {handle} {due:?}, end {end:?}");
                missing.push((*handle, due));
            }
        }
        prop_assert!(
            self.tainted || missing.len() as u64 <= lost,
            "gone: {missing:?}; counted: {lost}; end {end:?}; before {stats:?}; {:?}",
            self.store.recovered()
        );
        self.tainted = false;
        self.items = 0;
        Ok(())
    }

    /// C10: everything counted adds up.
    fn counters(&self, stats: &Stats) -> Outcome {
        let c = &stats.counters;
        let sum = |misses: &BTreeMap<_, u64>| misses.values().sum::<u64>();
        prop_assert_eq!(c.lookups, c.hits_host + c.hits_disk + sum(&c.misses));
        prop_assert_eq!(c.reads_asked, c.reads_given + sum(&c.reads_missed));
        let rejected: u64 = c.puts_rejected.values().sum();
        let answered = c.puts_stored + c.puts_exists + c.puts_busy + c.puts_cancelled + rejected;
        prop_assert_eq!(answered, self.items, "each item is answered once");
        Ok(())
    }

    /// No limit is exceeded at any moment.
    fn limits(&self) -> Outcome {
        let stats = self.store.stats();
        prop_assert!(!stats.poisoned, "a panic in the engine");
        prop_assert!(stats.disk.objects <= DISK_OBJECTS, "{:?}", stats.disk);
        let files: u64 = File::ALL.iter().map(|&file| self.device.len(file).unwrap()).sum();
        prop_assert!(files <= self.options.disk_bytes, "{files} bytes of files");
        prop_assert!(stats.host.used <= stats.host.arena);
        prop_assert!(stats.host.pinned <= stats.host.arena / 4 * 3);
        let host = stats.host.arena + stats.host.index;
        prop_assert!(self.options.host_bytes == 0 || host <= self.options.host_bytes);
        Ok(())
    }

    /// Everything that was held is still there, and nothing stays pinned.
    fn end(mut self) -> Outcome {
        for held in std::mem::take(&mut self.held) {
            assert_held(&held)?;
        }
        self.device.heal();
        self.device.release();
        self.store.flush(Instant::now() + Duration::from_secs(2));
        let give_up = Instant::now() + Duration::from_secs(10);
        while self.store.stats().pins > 0 && Instant::now() < give_up {
            std::thread::sleep(Duration::from_millis(5));
        }
        let stats = self.store.stats();
        prop_assert_eq!((stats.pins, stats.host.pinned), (0, 0));
        self.reopen(None)?;
        self.store.close();
        Ok(())
    }
}

/// Bodies of a lease.
fn leased(lease: &Lease) -> Vec<(u32, Vec<u8>)> {
    let copy = |block| {
        let item = lease.body(block).expect("a body of the plan");
        View::joined(item, 0..item.len()).unwrap().as_slice().to_vec()
    };
    lease.plan().bodies.clone().map(|block| (block, copy(block))).collect()
}

/// C6: memory under a lease is never reused.
fn assert_held(held: &Held) -> Outcome {
    prop_assert!(leased(&held.lease) == held.bytes, "leased bytes have changed");
    Ok(())
}

/// Objects that left the disk tier for a reason that was counted.
fn losses(stats: &Stats) -> u64 {
    let c = &stats.counters;
    c.evicted + c.evicted_disk + c.failed_checks + c.expired + c.io_errors
}

/// C1, C2, C6, C8, C10, INV-2.
#[test]
fn any_history_gives_exact_bytes_or_misses_and_keeps_what_it_acknowledged() {
    let cases = std::env::var("KVSTORE_MODEL_CASES").map_or(40, |n| n.parse().expect("a number"));
    let config =
        Config { cases, max_shrink_iters: 60, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let histories = (any::<u64>(), any::<bool>(), prop::collection::vec(step(), 20..70));
    runner
        .run(&histories, |(seed, host, steps)| {
            let mut world = World::new(seed, options(host))?;
            for step in &steps {
                world.step(step)?;
            }
            world.end()
        })
        .unwrap();
}
