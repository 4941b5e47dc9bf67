//! Opening a store: the device, the superblock, recovery, the writer thread.

use super::batch::Ack;
use super::care::Care;
use super::config::Options;
use super::create::load_superblock;
use super::namespace::{Namespace, NamespaceOptions};
use super::opener::Opener;
use super::registry;
use super::state::State;
use crate::disk::namespaces::{self, NamespaceRecord};
use crate::disk::recovery::Unreadable;
use crate::disk::superblock::Superblock;
use crate::error::{Error, ErrorKind, Result};
use crate::host::arena::Arena;
use crate::identity::Description;
use crate::io::device::{Device, File};
use crate::io::{OpenOptions, PsyncDevice};
use crate::mirror::Mirror;
use kvstore_index::Index;
use kvstore_layout::Layout;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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

    /// The memory of the host tier, for whoever registers it with a device (cudaHostRegister): see
    /// [`Arena::view_range`]. Holding it keeps it mapped.
    ///
    /// # Errors
    /// A closed store.
    pub fn arena(&self) -> Result<Arc<Arena>> {
        self.check_open()?;
        Ok(self.shared.arena.clone())
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

/// Memory of the index and the mirror.
fn index_bytes(options: &Options) -> Result<u64> {
    let index = Index::bytes_for(options.index_objects()?, host_objects(options));
    Ok((index + Mirror::bytes_for(options.mirror_limit()?)) as u64)
}

/// Objects that the host tier holds at a time, roughly.
pub(super) fn host_objects(options: &Options) -> usize {
    (options.host_bytes.max(Options::STAGING) / (64 * 1024)) as usize
}
