//! Opening a store: the device, the superblock, recovery, the writer thread.

use super::batch::Ack;
use super::care::Care;
use super::config::Options;
use super::counters::Counters;
use super::meta::{bit, is_expired};
use super::namespace::{Namespace, NamespaceOptions};
use super::registry;
use super::room::Budget;
use super::state::{Flush, Grown, NamespaceTable, Phase, State};
use crate::disk::descriptor::{Descriptor, flag};
use crate::disk::geometry::Geometry;
use crate::disk::namespaces::{self, NamespaceRecord};
use crate::disk::pages::Pages;
use crate::disk::place::Place;
use crate::disk::recovery::{FoundSegment, Scan, Unreadable};
use crate::disk::segments::Segments;
use crate::disk::superblock::{self, Superblock};
use crate::disk::tenants::{self, Tenants};
use crate::disk::{MAX_CLASSES, PAGE};
use crate::error::{Error, ErrorKind, Result};
use crate::host::arena::{Arena, Buf};
use crate::host::prefer_huge_pages;
use crate::host::slots::Slots;
use crate::identity::Description;
use crate::io::device::{Device, File};
use crate::io::{OpenOptions, PsyncDevice};
use kvstore_index::{EntryId, Index, NewEntry, PolicyKind, Tier};
use kvstore_layout::Layout;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Page images on their way to the slot table at most.
const PAGE_BUFFERS: usize = 256;

/// What recovery found and what it left out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Recovered {
    /// Objects that can be found again.
    pub objects: u64,
    /// Descriptors of namespaces or tenants that were cleared since.
    pub cleared: u64,
    /// Descriptors past their time to live.
    pub expired: u64,
    /// Older descriptors of an object that has a newer one (INV-7).
    pub duplicates: u64,
    /// Parts whose part 0 is not there.
    pub orphan_parts: u64,
    /// Records that are no descriptor of their place: torn, damaged, foreign.
    pub damaged: u64,
    /// Objects for which the index has no room.
    pub no_room: u64,
    /// What could not be read at all (INV-5).
    pub unreadable: Unreadable,
    /// Whether the directory held no store before.
    pub created: bool,
    /// Time that all of it took.
    pub seconds: f64,
}

/// The engine behind all handles of one store.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) dir: PathBuf,
    pub(crate) arena: Arc<Arena>,
    pub(crate) device: Arc<dyn Device>,
    pub(crate) state: Mutex<State>,
    /// Held by whoever changes superblock, namespace or tenant table, so that their writes come in
    /// the order of the changes while `state` is free. Taken before `state`, never after.
    pub(crate) meta: Mutex<()>,
    /// Something has completed, or room has come free.
    pub(crate) changed: Condvar,
    pub(crate) stop: AtomicBool,
    /// The device was closed: nobody waits for what it has not completed.
    pub(crate) give_up: AtomicBool,
    poisoned: AtomicBool,
    pub(crate) handles: AtomicUsize,
    /// Prefetches that run.
    pub(crate) prefetching: AtomicUsize,
    pub(crate) care: Care,
    /// The writer, and the care of host memory.
    pub(crate) threads: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) recovered: Recovered,
    pub(crate) secret: [u8; 32],
    /// Largest object that is stored bare, and largest part, bytes.
    pub(crate) bare_limit: u64,
    pub(crate) part_limit: u64,
    /// Bytes of all segments that the disk limit allows.
    pub(crate) disk_room: u64,
    /// Host bytes that may be dirty, and that leases may pin.
    pub(crate) dirty_limit: u64,
    pub(crate) pin_limit: u64,
}

/// A store. Handles of one directory in one process share one engine.
pub struct Store {
    pub(crate) shared: Arc<Shared>,
    closed: AtomicBool,
}

impl Store {
    /// Opens the store in `dir`, which is made if it is not there.
    ///
    /// # Errors
    /// Another process owns it (the error names its pid), the file system refuses, the format is
    /// another one, a limit is too small: each with what to do about it.
    pub fn open(dir: &Path, options: &Options) -> Result<Self> {
        std::fs::create_dir_all(dir).map_err(|error| Error::io("cannot make", dir, error))?;
        let dir = dir.canonicalize().map_err(|error| Error::io("cannot open", dir, error))?;
        let shared = registry::join_or(&dir, options, || {
            let arena = Shared::arena(options)?;
            let io = OpenOptions {
                threads: options.io_threads,
                lock_wait: options.lock_wait,
                ..OpenOptions::default()
            };
            let device =
                PsyncDevice::open(&dir, arena.clone(), &io).map_err(|error| Error::open(&error))?;
            Shared::start(dir.clone(), Arc::new(device), arena, options)
        })?;
        Ok(Self { shared, closed: AtomicBool::new(false) })
    }

    /// Opens a store on a device of the caller's, with the arena that the device uses (see
    /// [`Store::arena_for`]): for tests with a fault device.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open_on(device: Arc<dyn Device>, arena: Arc<Arena>, options: &Options) -> Result<Self> {
        let shared = Shared::start(PathBuf::new(), device, arena, options)?;
        Ok(Self { shared, closed: AtomicBool::new(false) })
    }

    /// The arena that a store with these options needs.
    ///
    /// # Errors
    /// `host_bytes` does not hold the index; the kernel gives no memory.
    pub fn arena_for(options: &Options) -> Result<Arc<Arena>> {
        Shared::arena(options)
    }

    /// A namespace of this store, its record taken and written on its first use.
    ///
    /// # Errors
    /// The description is too long, or all 4,096 namespaces have objects.
    pub fn namespace(
        &self,
        layout: Arc<Layout>,
        description: &Description,
        salt: &[u8],
        options: NamespaceOptions,
    ) -> Result<Namespace> {
        self.check_open()?;
        Namespace::open(&self.shared, layout, description, salt, options)
    }

    /// What recovery found.
    pub fn recovered(&self) -> Recovered {
        self.shared.recovered
    }

    /// Directory of the store.
    pub fn dir(&self) -> &Path {
        &self.shared.dir
    }

    /// Whether this handle was closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Closes this handle; the last one closes the engine: what is pending is written, within the
    /// deadline of the options. True if everything was. A second call does nothing.
    pub fn close(&self) -> bool {
        self.close_within(self.shared.options.close_deadline)
    }

    /// The same with a deadline of the caller's: what a process can wait for at its end.
    pub fn close_within(&self, wait: Duration) -> bool {
        if self.closed.swap(true, Ordering::AcqRel) {
            return true;
        }
        if self.shared.leave() { self.shared.shut(Instant::now() + wait) } else { true }
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.is_closed() {
            return Err(Error::new(ErrorKind::Unusable, "the store is closed: open it again"));
        }
        Ok(())
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    fn arena(options: &Options) -> Result<Arc<Arena>> {
        let bytes = options.arena_bytes(index_bytes(options)?)?;
        let extent = Options::extent_bytes(bytes);
        Arena::new(options.arena, (bytes / extent * extent) as usize, extent as usize).map_err(
            |error| Error::new(ErrorKind::Io, format!("host memory of {bytes} bytes: {error}")),
        )
    }

    fn start(
        dir: PathBuf,
        device: Arc<dyn Device>,
        arena: Arc<Arena>,
        options: &Options,
    ) -> Result<Arc<Self>> {
        let began = Instant::now();
        let (superblock, created) = load_superblock(&*device, options)?;
        let mut opener = Opener {
            device: &*device,
            options,
            superblock,
            recovered: Recovered::default(),
            parts: Vec::new(),
        };
        opener.recovered.created = created;
        let state = opener.state(&arena)?;
        let mut recovered = opener.recovered;
        recovered.seconds = began.elapsed().as_secs_f64();

        let geometry = state.superblock.geometry;
        let extent = arena.extent_bytes() as u64;
        let arena_bytes = extent * u64::from(arena.extents());
        let path = device.path_in_use();
        tracing::info!(
            dir = %dir.display(), engine = path.engine, direct = path.direct, why = %path.why,
            arena = arena.backing(), objects = recovered.objects, "store opened"
        );
        let shared = Arc::new(Self {
            secret: state.superblock.secret,
            bare_limit: geometry.bare_limit().min(extent),
            part_limit: super::manifest::PART_BYTES.min(extent),
            disk_room: u64::from(state.segments.count()) * geometry.segment_bytes,
            dirty_limit: arena_bytes / 2,
            pin_limit: arena_bytes / 4 * 3,
            options: options.clone(),
            dir,
            arena,
            device,
            state: Mutex::new(state),
            meta: Mutex::new(()),
            changed: Condvar::new(),
            stop: AtomicBool::new(false),
            give_up: AtomicBool::new(false),
            poisoned: AtomicBool::new(false),
            handles: AtomicUsize::new(1),
            prefetching: AtomicUsize::new(0),
            care: Care::default(),
            threads: Mutex::new(Vec::new()),
            recovered,
        });
        shared.spawn("kvstore-writer", Self::run_writer)?;
        shared.spawn("kvstore-care", Self::run_care)?;
        shared.care.wake(0);
        Ok(shared)
    }

    fn spawn(self: &Arc<Self>, name: &str, run: fn(&Self)) -> Result<()> {
        let shared = self.clone();
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || run(&shared))
            .map_err(|error| Error::new(ErrorKind::Io, format!("no thread for {name}: {error}")))?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// Takes one more handle; false when the engine is being closed.
    pub(crate) fn join(&self) -> bool {
        self.handles
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |n| (n > 0).then_some(n + 1))
            .is_ok()
    }

    /// Gives a handle back; true for the last one.
    pub(crate) fn leave(&self) -> bool {
        self.handles.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Payload bytes that the tier of an acknowledgement holds at most.
    pub(crate) fn tier_bytes(&self, ack: Ack) -> u64 {
        match ack {
            Ack::Host => self.arena.extent_bytes() as u64 * u64::from(self.arena.extents()),
            Ack::Ssd | Ack::SsdFlush => self.disk_room,
        }
    }

    /// Wakes the writer thread.
    pub(crate) fn wake(&self) {
        self.device.wake();
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    /// From now on every call is a miss or a rejection with a reason (contract C4).
    pub(crate) fn poison(&self, why: &str) {
        tracing::error!(why, "the store is poisoned");
        self.poisoned.store(true, Ordering::Release);
        self.changed.notify_all();
    }

    /// Changes the superblock; the change counts once it is on disk (INV-8). The caller holds
    /// `meta`, and not `state`: nobody waits for this write but who asked for it.
    pub(crate) fn change_superblock(
        &self,
        _meta: &MutexGuard<'_, ()>,
        change: impl FnOnce(&mut Superblock),
    ) -> std::io::Result<()> {
        let mut next = self.state.lock().superblock.clone();
        let offset = next.next_offset();
        next.generation += 1;
        change(&mut next);
        self.device.write_at(File::Superblock, offset, &next.encode())?;
        self.device.sync(File::Superblock)?;
        self.state.lock().superblock = next;
        Ok(())
    }

    /// Writes a namespace record, both copies, and flushes it before it counts (INV-8). The caller
    /// holds `meta`, and not `state`.
    pub(crate) fn write_namespace(
        &self,
        _meta: &MutexGuard<'_, ()>,
        index: u16,
        record: &NamespaceRecord,
    ) -> Result<()> {
        let bytes = record.encode(index);
        let offset = u64::from(index) * namespaces::LEN as u64;
        for copy in [offset, namespaces::COPY_BYTES + offset] {
            self.device
                .write_at(File::Namespaces, copy, &bytes)
                .and_then(|()| self.device.sync(File::Namespaces))
                .map_err(|error| {
                    Error::io("cannot write the namespace table of", &self.dir, error)
                })?;
        }
        Ok(())
    }
}

fn index_bytes(options: &Options) -> Result<u64> {
    let objects = options.index_objects()?;
    Ok(Index::bytes_for(objects, host_objects(options)) as u64)
}

/// Objects that the host tier holds at a time, roughly.
fn host_objects(options: &Options) -> usize {
    (options.host_bytes.max(Options::STAGING) / (64 * 1024)) as usize
}

/// The superblock that counts, or a fresh one in an empty device.
fn load_superblock(device: &dyn Device, options: &Options) -> Result<(Superblock, bool)> {
    let broken = |error| Error::new(ErrorKind::Io, format!("cannot read the superblock: {error}"));
    let len = device.len(File::Superblock).map_err(broken)?;
    let mut copies = [[0; superblock::LEN]; 2];
    if len > 0 {
        let short = len < superblock::FILE_BYTES;
        for (copy, offset) in copies.iter_mut().zip([0, superblock::COPY_DISTANCE]) {
            if !short || offset + PAGE <= len {
                // A copy that cannot be read is one that does not count.
                if device.read_at(File::Superblock, offset, copy).is_err() {
                    copy.fill(0xFF);
                }
            }
        }
    }
    let newer = Superblock::newer(&copies[0], &copies[1]);
    if newer.is_err() && copies.iter().all(Superblock::may_be_torn) {
        // A crash before the first whole superblock leaves files without a store.
        match not_ours(device).map_err(broken)? {
            None => return create(device, options).map(|superblock| (superblock, true)),
            Some(file) if copies.iter().flatten().all(|&byte| byte == 0) => {
                return Err(Error::new(
                    ErrorKind::Incompatible,
                    format!(
                        "there is no superblock but a file `{file}`: restore the superblock of its \
                         store, or move the file away to start empty"
                    ),
                ));
            }
            Some(_) => {}
        }
    }
    let superblock = newer?;
    if superblock.devices != 1 || superblock.device != 0 {
        return Err(Error::new(
            ErrorKind::Incompatible,
            format!(
                "device {} of {}: this build opens stores of one device",
                superblock.device, superblock.devices
            ),
        ));
    }
    Ok((superblock, false))
}

/// A file that holds something although there is no superblock. A crash before the first
/// superblock leaves files that are empty or zero; this one belongs to somebody.
fn not_ours(device: &dyn Device) -> std::io::Result<Option<File>> {
    for file in [File::Data, File::Table, File::Directory, File::Tenants, File::Namespaces] {
        let mut len = device.len(file)?;
        if len > 0 && matches!(file, File::Data | File::Table) {
            return Ok(Some(file));
        }
        let mut bytes = vec![0; namespaces::COPY_BYTES as usize];
        let mut offset = 0;
        while len > 0 {
            let piece = &mut bytes[..len.min(namespaces::COPY_BYTES) as usize];
            device.read_at(file, offset, piece)?;
            if piece.iter().any(|&byte| byte != 0) {
                return Ok(Some(file));
            }
            offset += piece.len() as u64;
            len -= piece.len() as u64;
        }
    }
    Ok(None)
}

fn create(device: &dyn Device, options: &Options) -> Result<Superblock> {
    if options.read_only {
        return Err(Error::invalid("read_only: the directory holds no store yet"));
    }
    let max_disk_bytes = options.max_disk_bytes.unwrap_or(options.disk_bytes.saturating_mul(4));
    let geometry = Geometry::choose(options.disk_bytes, max_disk_bytes)?;
    let mut random = [0; 48];
    let mut filled = 0;
    while filled < random.len() {
        filled +=
            rustix::rand::getrandom(&mut random[filled..], rustix::rand::GetRandomFlags::empty())
                .map_err(|error| Error::new(ErrorKind::Io, format!("no random numbers: {error}")))?;
    }
    let (store, secret) = random.split_at(16);
    let mut superblock = Superblock {
        store: [0; 16],
        device: 0,
        devices: 1,
        secret: [0; 32],
        generation: 0,
        geometry,
        disk_bytes: options.disk_bytes,
        max_disk_bytes,
        sequence_floor: 0,
        tenant_floor: 0,
        created_at: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        classes: [0; MAX_CLASSES],
    };
    superblock.store.copy_from_slice(store);
    superblock.secret.copy_from_slice(secret);
    let files = [
        (File::Superblock, superblock::FILE_BYTES),
        (File::Namespaces, namespaces::FILE_BYTES),
        (File::Tenants, tenants::FILE_BYTES),
        (File::Directory, 2 * geometry.directory_bytes()),
    ];
    let grow = |file, len| {
        device.grow(file, len).map_err(|error| {
            Error::new(
                ErrorKind::Io,
                format!("cannot make the {file} file of {len} bytes: {error}"),
            )
        })
    };
    for (file, len) in files {
        grow(file, len)?;
    }
    // Both copies, so that one torn write never leaves a store without a superblock.
    for generation in [1, 2] {
        superblock.generation = generation;
        let offset = (generation % 2) * superblock::COPY_DISTANCE;
        device
            .write_at(File::Superblock, offset, &superblock.encode())
            .and_then(|()| device.sync(File::Superblock))
            .map_err(|error| {
                Error::new(ErrorKind::Io, format!("cannot write the superblock: {error}"))
            })?;
    }
    Ok(superblock)
}

/// Builds the state of a store from its device.
struct Opener<'a> {
    device: &'a dyn Device,
    options: &'a Options,
    superblock: Superblock,
    recovered: Recovered,
    /// Parts besides part 0, with the prefix of their part 0.
    parts: Vec<(EntryId, u64)>,
}

impl Opener<'_> {
    fn state(&mut self, arena: &Arc<Arena>) -> Result<State> {
        let limit = self.apply_limits()?;
        let mut slots = Slots::new(arena.extents(), arena.extent_bytes() as u32);
        let page_buffers = page_buffers(&mut slots);
        let namespaces = self.namespaces()?;
        let tenants = self.tenants()?;
        let policy = if self.options.leaf_first { PolicyKind::LeafLru } else { PolicyKind::Lru };
        let index =
            Index::new(self.options.index_objects()?, host_objects(self.options), [policy, policy]);
        for (start, len) in index.regions() {
            prefer_huge_pages(start, len);
        }
        let mut state = State {
            phase: Phase::Open,
            index,
            slots,
            pins: Vec::new(),
            scrubbing: false,
            verifying: Vec::new(),
            orphans: HashSet::new(),
            pinned_bytes: 0,
            superblock: self.superblock.clone(),
            segments: Segments::new(self.superblock.geometry, limit),
            pages: Pages::default(),
            page_buffers,
            namespaces,
            tenants,
            sequence: 0,
            queue: VecDeque::new(),
            dirty_bytes: 0,
            writing_bytes: 0,
            tickets: HashMap::new(),
            flushing: Vec::new(),
            flush: Flush::default(),
            syncs_in_flight: 0,
            sync_failed: false,
            in_flight: HashMap::new(),
            readings: HashMap::new(),
            next_token: 0,
            sets: HashMap::new(),
            classes_of: HashMap::new(),
            gates: HashMap::new(),
            gated: HashSet::new(),
            head_of: HashMap::new(),
            after_slot: HashMap::new(),
            expiry: BinaryHeap::new(),
            disk_objects: 0,
            drain: None,
            moves: HashMap::new(),
            spared: None,
            grown: Grown::default(),
            outbox: VecDeque::new(),
            budget: self.options.write_budget_per_day.map(Budget::per_day),
            errors_in_row: 0,
            quarantined: false,
            writer_over: false,
            keeps_host: self.options.keeps_host(),
            counters: Counters::default(),
        };
        if self.options.read_only {
            state.pages.freeze();
        }
        self.recover(&mut state)?;
        Ok(state)
    }

    /// Takes over the limits of this open; the answer is the number of segments in use.
    fn apply_limits(&mut self) -> Result<u32> {
        let geometry = self.superblock.geometry;
        let disk_bytes = self.options.disk_bytes;
        if disk_bytes > self.superblock.max_disk_bytes {
            return Err(Error::invalid(format!(
                "disk_bytes is {disk_bytes}, this store was created for at most {} (max_disk_bytes)",
                self.superblock.max_disk_bytes
            )));
        }
        let limit = geometry.segments_for(disk_bytes)?;
        if disk_bytes != self.superblock.disk_bytes && !self.options.read_only {
            let shrink = |file, each: u64| {
                self.device.truncate(file, u64::from(limit) * each).map_err(|error| {
                    Error::new(ErrorKind::Io, format!("cannot shrink the {file} file: {error}"))
                })
            };
            // The table first: without descriptors nobody misses the data.
            shrink(File::Table, geometry.table_stride())?;
            shrink(File::Data, geometry.segment_bytes)?;
            self.superblock.disk_bytes = disk_bytes;
            let offset = self.superblock.next_offset();
            self.superblock.generation += 1;
            self.device
                .write_at(File::Superblock, offset, &self.superblock.encode())
                .and_then(|()| self.device.sync(File::Superblock))
                .map_err(|error| {
                    Error::new(ErrorKind::Io, format!("cannot write the superblock: {error}"))
                })?;
        }
        Ok(limit)
    }

    fn namespaces(&self) -> Result<NamespaceTable> {
        let mut table = NamespaceTable::new();
        let copies = self.both(File::Namespaces, namespaces::COPY_BYTES);
        for index in 0..namespaces::COUNT {
            let at = index * namespaces::LEN;
            let record = |copy: &[u8]| -> [u8; namespaces::LEN] {
                copy[at..at + namespaces::LEN].try_into().unwrap_or([0; namespaces::LEN])
            };
            let (a, b) = (record(&copies[0]), record(&copies[1]));
            if let Some(found) = NamespaceRecord::newer(&a, &b, index as u16) {
                table.by_digest.insert(found.digest, index as u16);
                table.records[index] = Some(found);
            } else if a.iter().chain(&b).any(|&byte| byte != 0) {
                table.damaged.insert(index);
            }
        }
        Ok(table)
    }

    fn tenants(&self) -> Result<Tenants> {
        let [a, b] = self.both(File::Tenants, tenants::COPY_BYTES);
        Ok(Tenants::load(&a, &b, self.superblock.tenant_floor))
    }

    /// Both copies of a table; what cannot be read is no record, and not an empty one either.
    fn both(&self, file: File, copy_bytes: u64) -> [Vec<u8>; 2] {
        [0, copy_bytes].map(|offset| {
            let mut bytes = vec![0; copy_bytes as usize];
            if self.device.read_at(file, offset, &mut bytes).is_err() {
                for (number, page) in (0..).zip(bytes.chunks_exact_mut(PAGE as usize)) {
                    if self.device.read_at(file, offset + number * PAGE, page).is_err() {
                        page.fill(0xFF);
                    }
                }
            }
            bytes
        })
    }

    /// Reads the slot table and fills index and segments (INV-5).
    fn recover(&mut self, state: &mut State) -> Result<()> {
        let geometry = self.superblock.geometry;
        let table_len = self.device.len(File::Table).map_err(|error| {
            Error::new(ErrorKind::Io, format!("cannot read the slot table: {error}"))
        })?;
        let data_len = self.device.len(File::Data).map_err(|error| {
            Error::new(ErrorKind::Io, format!("cannot read the data file: {error}"))
        })?;
        let in_table = table_len / geometry.table_stride();
        let in_data = data_len / geometry.segment_bytes;
        let present = in_table.min(in_data).min(u64::from(state.segments.count())) as u32;
        if in_table > u64::from(present) && !self.options.read_only {
            // Descriptors without data: a segment that is made there later starts with none.
            let len = u64::from(present) * geometry.table_stride();
            self.device.truncate(File::Table, len).map_err(|error| {
                Error::new(ErrorKind::Io, format!("cannot shorten the slot table: {error}"))
            })?;
        }
        state.grown.segments = present;

        let epochs = state.namespaces.records.iter().flatten().map(|r| r.epoch).max();
        state.sequence =
            [epochs, Some(state.tenants.highest()), Some(self.superblock.sequence_floor)]
                .into_iter()
                .flatten()
                .max()
                .unwrap_or(0);
        if state.tenants.damaged > 0 {
            // The new floor is above every descriptor, so those are read once more.
            self.scan(present, |_, segment| {
                let highest = segment.descriptors.iter().map(|(_, d)| d.sequence).max();
                state.sequence = state.sequence.max(highest.unwrap_or(0));
            });
            self.mend_tenants(state)?;
        }
        // Segment by segment: the descriptors of a whole store are more than its index.
        self.scan(present, |this, segment| this.adopt(state, &segment));
        self.gather_sets(state);
        state.index.settle();
        self.keep_to_limit(state);
        self.recovered.objects = state.index.len() as u64;
        Ok(())
    }

    /// Some tenant's epoch is lost. What it had before must not come back, so all tenants without
    /// a record of their own start again.
    fn mend_tenants(&mut self, state: &mut State) -> Result<()> {
        let floor = state.next_sequence();
        state.tenants.floor = floor;
        tracing::warn!(records = state.tenants.damaged, floor, "the tenant table is damaged");
        if self.options.read_only {
            return Ok(());
        }
        let failed = |error| Error::new(ErrorKind::Io, format!("cannot mend the tenants: {error}"));
        let next = &mut self.superblock;
        let offset = next.next_offset();
        next.generation += 1;
        next.tenant_floor = floor;
        self.device
            .write_at(File::Superblock, offset, &next.encode())
            .and_then(|()| self.device.sync(File::Superblock))
            .map_err(failed)?;
        state.superblock = next.clone();
        for copy in [0, tenants::COPY_BYTES] {
            for page in 0..tenants::COUNT / tenants::PER_PAGE {
                let offset = copy + page as u64 * PAGE;
                self.device
                    .write_at(File::Tenants, offset, &state.tenants.page(page))
                    .map_err(failed)?;
            }
            self.device.sync(File::Tenants).map_err(failed)?;
        }
        Ok(())
    }

    /// Reads segments `0..present` of the slot table.
    fn scan(&mut self, present: u32, mut found: impl FnMut(&mut Self, FoundSegment)) {
        let classes = self.superblock.classes;
        let mut scan = Scan {
            device: self.device,
            number: 0,
            store: self.superblock.store,
            geometry: self.superblock.geometry,
            classes: &classes,
            unreadable: Unreadable::default(),
        };
        scan.run(0..present, |segment| found(self, segment));
        self.recovered.unreadable = scan.unreadable;
    }

    /// Whether a descriptor still counts; else the counter of its reason.
    fn is_alive(&self, state: &State, d: &Descriptor) -> Result<(), fn(&mut Recovered)> {
        let record =
            state.namespaces.records.get(usize::from(d.namespace)).and_then(Option::as_ref);
        let Some(record) = record else { return Err(|r| r.cleared += 1) };
        if d.sequence < record.epoch || d.sequence < state.tenants.epoch(d.tenant) {
            return Err(|r| r.cleared += 1);
        }
        if is_expired(d.expires_at) {
            return Err(|r| r.expired += 1);
        }
        Ok(())
    }

    /// Takes over what one segment holds.
    fn adopt(&mut self, state: &mut State, segment: &FoundSegment) {
        let Some(class) = segment.class else {
            state.segments.remember(segment.segment, segment.generation);
            return;
        };
        let mut stale = segment.stale.clone();
        self.recovered.damaged += segment.stale.len() as u64;
        let mut owners = Vec::new();
        for (slot, d) in &segment.descriptors {
            state.sequence = state.sequence.max(d.sequence);
            match self.admit(state, d, &mut owners, &mut stale) {
                Ok(id) => owners.push((*slot, id)),
                Err(count) => {
                    count(&mut self.recovered);
                    stale.push(*slot);
                }
            }
        }
        let owned: Vec<u32> = owners.iter().map(|&(slot, _)| slot).collect();
        let stride = u64::from(state.superblock.classes[usize::from(class)]);
        state.segments.adopt(segment.segment, class, stride, segment.generation, &owned, &stale);
        for (slot, id) in owners {
            let place = Place { device: 0, segment: segment.segment, slot };
            state.segments.set_owner(segment.segment, slot, id);
            state.index.set_slot(id, Tier::Disk, Some(place.pack()));
            state.disk_objects += 1;
            if !is_other_part(state.index[id].flags) {
                state.index.add_resident(id, Tier::Disk);
            }
        }
        if self.options.read_only {
            return;
        }
        for slot in stale {
            // INV-2: not empty, without a live descriptor: a page without it goes out first.
            let place = Place { device: 0, segment: segment.segment, slot };
            state.pages.cool(State::page_of(place), slot, segment.generation);
        }
    }

    /// An index entry for a descriptor that counts. An older one of the same object gives way
    /// (INV-7), be it in a segment that is adopted already or among those of this one (`owners`).
    fn admit(
        &mut self,
        state: &mut State,
        d: &Descriptor,
        owners: &mut Vec<(u32, EntryId)>,
        stale: &mut Vec<u32>,
    ) -> Result<EntryId, fn(&mut Recovered)> {
        self.is_alive(state, d)?;
        if let Some(older) = state.index.find(&d.fingerprint) {
            if state.index[older].sequence() >= d.sequence {
                return Err(|r| r.duplicates += 1);
            }
            self.recovered.duplicates += 1;
            self.parts.retain(|&(id, _)| id != older);
            match owners.iter().position(|&(_, id)| id == older) {
                Some(at) => {
                    stale.push(owners.swap_remove(at).0);
                    state.forget(older);
                }
                None => state.remove(older, super::batch::Reason::NoSpace),
            }
        }
        let id = insert(state, d).ok_or((|r| r.no_room += 1) as fn(&mut Recovered))?;
        if is_other_part(d.flags) {
            self.parts.push((id, d.parent_prefix));
        }
        Ok(id)
    }

    /// A power cut may bring evicted objects back: more than the limit allows.
    fn keep_to_limit(&self, state: &mut State) {
        let Some(most) = self.options.disk_objects.filter(|_| !self.options.read_only) else {
            return;
        };
        let going = |state: &State| state.after_slot.values().map(Vec::len).sum::<usize>() as u64;
        while state.disk_objects - going(state) > most && state.evict_one_of(None) {}
    }

    /// Puts parts under their part 0; parts without one are dropped.
    fn gather_sets(&mut self, state: &mut State) {
        let mut heads: HashMap<u64, EntryId> = HashMap::new();
        for (id, entry) in state.index.iter() {
            if entry.flags & flag::HEAD != 0 {
                heads.insert(entry.fingerprint().prefix(), id);
            }
        }
        let mut parts = std::mem::take(&mut self.parts);
        for &head in heads.values() {
            state.sets.insert(head, Vec::new());
        }
        parts.sort_by_key(|&(id, _)| state.index[id].sequence());
        for (id, prefix) in parts {
            match heads.get(&prefix) {
                Some(&head) => {
                    state.head_of.insert(id, head);
                    state.sets.entry(head).or_default().push(id);
                    state.note_class(id);
                }
                None => {
                    self.recovered.orphan_parts += 1;
                    state.remove(id, super::batch::Reason::NoSpace);
                }
            }
        }
    }
}

/// An index entry for a recovered object.
fn insert(state: &mut State, d: &Descriptor) -> Option<EntryId> {
    let new = NewEntry {
        fingerprint: d.fingerprint,
        checksum: d.checksum,
        // A part belongs to its set, not to the prefix tree.
        parent_prefix: if is_other_part(d.flags) { 0 } else { d.parent_prefix },
        sequence: d.sequence,
        length: d.length,
        tenant: d.tenant,
        expires_at: d.expires_at,
        namespace: d.namespace,
        depth: d.depth,
        class: d.class,
        kind: d.kind,
        flags: d.flags | bit::COMMIT | bit::READY,
    };
    let id = state.index.insert(&new).ok()?;
    state.namespaces.objects[usize::from(d.namespace)] += 1;
    if d.expires_at != 0 {
        let handle = state.index.handle(id);
        state.expiry.push(std::cmp::Reverse((d.expires_at, handle)));
    }
    Some(id)
}

fn is_other_part(flags: u8) -> bool {
    flags & (flag::PART | flag::HEAD) == flag::PART
}

/// Memory for page images, out of the arena so that direct I/O can use it.
fn page_buffers(slots: &mut Slots) -> Vec<Buf> {
    (0..PAGE_BUFFERS)
        .map_while(|_| {
            let slot = slots.alloc(PAGE as u32)?;
            Some(slots.buf(slot, PAGE as u32))
        })
        .collect()
}
