//! Opening a store: the engine's options as keyword arguments.

use std::path::PathBuf;

use kvstore_engine::Store as EngineStore;
use kvstore_engine::host::arena::ArenaKind;
use kvstore_engine::store::{Options, Verify};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

use crate::border::engine;
use crate::errors::{invalid, raise};
use crate::hints::arguments;
use crate::process::opening;
use crate::sizes::{Seconds, Size, shown};
use crate::store::{Shared, Store};

arguments! {
    /// A directory, or a list of them, one per drive.
    Paths;
}

/// Opens the store in a directory, which is made if it is not there; a second open in one process
/// joins the first.
///
/// Sizes are bytes or strings like "8 GiB", times are seconds.
///
/// - host_bytes (1 GiB), disk_bytes (16 GiB): limits of all that a tier holds, index and tables
///   included. host_bytes=0 keeps nothing in host memory.
/// - max_disk_bytes (4 x disk_bytes): the largest disk_bytes of a later open; read at creation.
/// - objects: entries of the index (one per 32 KiB); disk_objects: most objects on disk (no limit).
/// - mirror_slots (65,536): slots that the workers of `store.mirror` have together, 28 bytes of
///   host_bytes each.
/// - arena ("private"): "shared" is memory that other processes can map, with views that cannot be
///   written through.
/// - verify ("crossings"): bytes are checked when they come from disk and where a view of them could
///   have been written; "always": at each lease.
/// - read_only: writes nothing; puts are rejected.
/// - write_budget_per_day: bytes that may be written to disk per day (no limit).
/// - leaf_first (True): evict leaves of the prefix tree only; False leaves holes, for comparison.
/// - io_threads (8); lock_wait (5): how long to wait for another owner; room_wait (30): how long a
///   put with ack "ssd" waits for room; read_deadline (30), close_deadline (30), lease_deadline (600).
///
/// Write-behind starts at once, but only what `ack="ssd"` or `flush` answered for is on disk for
/// sure: an end of the process without `close`, by signal or exit, may lose what was put last, and
/// nothing else. At a normal exit every store is closed.
///
/// Raises LockedError when another process owns it, IncompatibleError for another format,
/// InvalidArgument for limits that cannot be kept and StoreIOError where the file system refuses.
#[pyfunction]
#[pyo3(signature = (path, *, host_bytes=None, disk_bytes=None, max_disk_bytes=None, objects=None,
                    disk_objects=None, mirror_slots=None, arena="private", verify="crossings",
                    read_only=false, write_budget_per_day=None, leaf_first=true, io_threads=None,
                    lock_wait=None, room_wait=None, read_deadline=None, close_deadline=None,
                    lease_deadline=None))]
#[expect(clippy::too_many_arguments, reason = "keyword arguments of one Python function")]
pub(crate) fn open(
    py: Python<'_>,
    path: Paths<'_>,
    host_bytes: Option<Size<'_>>,
    disk_bytes: Option<Size<'_>>,
    max_disk_bytes: Option<Size<'_>>,
    objects: Option<u64>,
    disk_objects: Option<u64>,
    mirror_slots: Option<u64>,
    arena: &str,
    verify: &str,
    read_only: bool,
    write_budget_per_day: Option<Size<'_>>,
    leaf_first: bool,
    io_threads: Option<usize>,
    lock_wait: Option<Seconds<'_>>,
    room_wait: Option<Seconds<'_>>,
    read_deadline: Option<Seconds<'_>>,
    close_deadline: Option<Seconds<'_>>,
    lease_deadline: Option<Seconds<'_>>,
) -> PyResult<Store> {
    let size = |size: Option<Size<'_>>, field| size.map(|size| size.bytes(field)).transpose();
    let time = |time: Option<Seconds<'_>>, field, default| {
        time.map_or(Ok(default), |time| time.duration(field))
    };
    let defaults = Options::new();
    let options = Options {
        host_bytes: size(host_bytes, "host_bytes")?.unwrap_or(defaults.host_bytes),
        disk_bytes: size(disk_bytes, "disk_bytes")?.unwrap_or(defaults.disk_bytes),
        max_disk_bytes: size(max_disk_bytes, "max_disk_bytes")?,
        objects,
        disk_objects,
        mirror_slots,
        arena: match arena {
            "private" => ArenaKind::Private,
            "shared" => ArenaKind::Shared,
            _ => return Err(one_of("arena", arena, "\"private\" or \"shared\"")),
        },
        verify: match verify {
            "crossings" => Verify::Crossings,
            "always" => Verify::Always,
            _ => return Err(one_of("verify", verify, "\"crossings\" or \"always\"")),
        },
        read_only,
        write_budget_per_day: size(write_budget_per_day, "write_budget_per_day")?,
        leaf_first,
        io_threads: threads(io_threads.unwrap_or(defaults.io_threads))?,
        lock_wait: time(lock_wait, "lock_wait", defaults.lock_wait)?,
        room_wait: time(room_wait, "room_wait", defaults.room_wait)?,
        read_deadline: time(read_deadline, "read_deadline", defaults.read_deadline)?,
        close_deadline: time(close_deadline, "close_deadline", defaults.close_deadline)?,
        lease_deadline: time(lease_deadline, "lease_deadline", defaults.lease_deadline)?,
    };
    let Paths(path) = path;
    let path = one_path(&path)?;
    let opening = opening()?;
    let store = engine(py, || EngineStore::open(&path, &options))?;
    Ok(Store::new(Shared::new(store.map_err(|error| raise(&error))?, options, opening)))
}

fn one_path(path: &Bound<'_, PyAny>) -> PyResult<PathBuf> {
    let paths = if path.is_instance_of::<PyList>() || path.is_instance_of::<PyTuple>() {
        path.extract::<Vec<PathBuf>>()
    } else {
        path.extract::<PathBuf>().map(|path| vec![path])
    };
    let paths = paths.map_err(|_| {
        invalid(format!("path is {}: it takes a path, or a list with one path", shown(path)))
    })?;
    match <[PathBuf; 1]>::try_from(paths) {
        Ok([path]) => Ok(path),
        Err(paths) => Err(invalid(format!(
            "path has {} directories: this version keeps a store on one device",
            paths.len()
        ))),
    }
}

fn threads(threads: usize) -> PyResult<usize> {
    if !(1..=256).contains(&threads) {
        return Err(invalid(format!("io_threads is {threads}: it takes 1 to 256")));
    }
    Ok(threads)
}

/// The error for a word outside of a choice.
pub(crate) fn one_of(field: &str, value: &str, choice: &str) -> PyErr {
    invalid(format!("{field} is {value:?}: it takes {choice}"))
}
