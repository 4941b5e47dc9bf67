//! A namespace under a serving engine's own block keys.

use std::sync::Arc;
use std::time::Instant;

use kvstore_engine::Result as EngineResult;
use kvstore_engine::identity::Key;
use kvstore_engine::store::{
    Batch as EngineBatch, BlockAnswer, Item, MissReason, Namespace as EngineNamespace, Object,
    PutOptions,
};
use kvstore_index::Kind;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::batch::Batch;
use crate::border::engine;
use crate::buffers::Memory;
use crate::errors::{invalid, raise};
use crate::hints::{arguments, soon};
use crate::lease::{ended, overdue, pieces, whole};
use crate::matching::{Answers, at};
use crate::mirror::{Worker, joined, names};
use crate::namespace::Handle;
use crate::process::Local;
use crate::put::{self, Bodies, Rows};
use crate::sizes::{Seconds, shown};
use crate::view::{View, Views};

arguments! {
    /// Keys in one buffer, or a list of them.
    Keys;
    /// The parent of each key: an index into the same batch, -1, or a key.
    Parents;
    /// The length of each body.
    Lengths;
    /// Places for the objects of keys: one writable array, or a list of them.
    Places;
}

soon! {
    /// A lease that another thread takes.
    KeyedLeaseSoon = KeyedLease;
    /// A number of objects that another thread reads.
    CountSoon = usize;
    /// A batch that another thread puts.
    KeyedBatchSoon = Batch;
}

/// Look-ups, leases and puts under keys that a serving engine made (vLLM, SGLang, LMCache).
///
/// keys are n keys of 16 to 32 bytes in one buffer: a uint8 array [n, width], a bytes object
/// together with width, or a list of bytes objects of one length. They go through the keyed hash of
/// the namespace and the tenant, so that equal keys of two models or tenants name different objects.
/// group is the index of the KV cache group where an engine delivers groups one by one.
#[pyclass(frozen, module = "kvstore._core")]
pub(crate) struct Keyed {
    handle: Arc<Handle>,
}

impl Keyed {
    pub(crate) fn new(handle: Arc<Handle>) -> Self {
        Self { handle }
    }

    /// The store's keys for those of the caller.
    fn stored_keys(
        &self,
        py: Python<'_>,
        keys: Keys<'_>,
        width: Option<usize>,
        group: u32,
    ) -> PyResult<Vec<Key>> {
        let namespace = self.handle.engine()?;
        let keys = keys.read(width)?;
        let stored = engine(py, || namespace.foreign(&keys.bytes, keys.width, group))?;
        stored.map_err(|error| raise(&error))
    }
}

/// n keys of one width.
pub(crate) struct Read {
    pub(crate) bytes: Vec<u8>,
    width: usize,
}

impl Keys<'_> {
    pub(crate) fn read(self, width: Option<usize>) -> PyResult<Read> {
        if self.0.is_instance_of::<PyList>() || self.0.is_instance_of::<PyTuple>() {
            return self.joined(width);
        }
        let memory = Memory::of(&self.0, "keys")?;
        let found = match memory.shape[..] {
            [_, width] if memory.item == 1 => Some(width),
            [_] if memory.item > 1 => Some(memory.item),
            [_] => None,
            _ => return Err(invalid("keys: it takes a uint8 array [n, width]")),
        };
        let width = match (found, width) {
            (Some(found), Some(width)) if found != width => {
                return Err(invalid(format!("width is {width}: the keys have {found} bytes")));
            }
            (None, None) if memory.len > 0 => {
                return Err(invalid(format!(
                    "keys is one buffer of {} bytes: say the width of a key, 16 to 32",
                    memory.len
                )));
            }
            (found, width) => found.or(width).unwrap_or(32),
        };
        Ok(Read { bytes: memory.bytes().to_vec(), width })
    }

    fn joined(self, width: Option<usize>) -> PyResult<Read> {
        let mut read = Read { bytes: Vec::new(), width: width.unwrap_or(0) };
        for (at, key) in self.0.try_iter()?.enumerate() {
            let key = key?;
            let bytes = key
                .cast::<PyBytes>()
                .map_err(|_| invalid(format!("keys[{at}] is {}: it takes bytes", shown(&key))))?;
            let length = bytes.as_bytes().len();
            if read.width == 0 {
                read.width = length;
            }
            if length != read.width {
                return Err(invalid(format!(
                    "keys[{at}] has {length} bytes: the keys of one call have one width, here {}",
                    read.width
                )));
            }
            read.bytes.extend_from_slice(bytes.as_bytes());
        }
        read.width = if read.width == 0 { 32 } else { read.width };
        Ok(read)
    }
}

/// Under what one key hangs, as the caller says it.
enum Given {
    Root,
    Index(usize),
    Key(Vec<u8>),
}

/// The same with keys of this namespace.
enum Parent {
    Root,
    Index(usize),
    Key(Key),
}

impl Parents<'_> {
    fn read(self, count: usize) -> PyResult<Vec<Given>> {
        let parents = self.0.try_iter()?.enumerate();
        let parents: Vec<_> =
            parents.map(|(at, parent)| one_parent(at, &parent?)).collect::<PyResult<_>>()?;
        if parents.len() != count {
            return Err(invalid(format!("parents has {} items for {count} keys", parents.len())));
        }
        Ok(parents)
    }
}

fn one_parent(at: usize, parent: &Bound<'_, PyAny>) -> PyResult<Given> {
    let wrong = || {
        invalid(format!(
            "parents[{at}] is {}: it takes the index of an earlier key of this batch, -1 (the root), \
             or a key as bytes",
            shown(parent)
        ))
    };
    if let Ok(key) = parent.cast::<PyBytes>() {
        return Ok(Given::Key(key.as_bytes().to_vec()));
    }
    match parent.extract::<i64>().map_err(|_| wrong())? {
        -1 => Ok(Given::Root),
        // Parents come before their children, so that none is accepted without its parent.
        index => match usize::try_from(index) {
            Ok(index) if index < at => Ok(Given::Index(index)),
            _ => Err(wrong()),
        },
    }
}

/// Where the objects of keys are copied to.
enum Out {
    /// Rows of one array.
    Rows(Memory, usize),
    Each(Vec<Memory>),
}

impl Places<'_> {
    fn read(self, count: usize) -> PyResult<Out> {
        let out = if self.0.is_instance_of::<PyList>() || self.0.is_instance_of::<PyTuple>() {
            let each = self.0.try_iter()?.enumerate();
            let each = each.map(|(at, place)| Memory::of(&place?, &format!("out[{at}]")));
            Out::Each(each.collect::<PyResult<_>>()?)
        } else {
            let memory = Memory::of(&self.0, "out")?;
            match memory.shape[..] {
                [rows, _] if rows > 0 => {
                    let row = memory.len / rows;
                    Out::Rows(memory, row)
                }
                _ => {
                    return Err(invalid("out: it takes an array [n, bytes], or a list of buffers"));
                }
            }
        };
        let places = match &out {
            Out::Rows(memory, _) => memory.shape[0],
            Out::Each(each) => each.len(),
        };
        if places != count {
            return Err(invalid(format!("out has {places} places for {count} keys")));
        }
        Ok(out)
    }
}

impl Out {
    fn places(&mut self) -> PyResult<Vec<&mut [u8]>> {
        match self {
            Self::Rows(memory, row) => {
                Ok(memory.bytes_mut("out")?.chunks_exact_mut((*row).max(1)).collect())
            }
            Self::Each(each) => {
                let each = each.iter_mut().enumerate();
                each.map(|(at, memory)| memory.bytes_mut(&format!("out[{at}]"))).collect()
            }
        }
    }
}

#[pymethods]
impl Keyed {
    /// How many keys are stored from the first on, and where. worker is one of `store.mirror` that
    /// asks for itself: what it holds is present, stored or not.
    #[pyo3(name = "match", signature = (keys, *, width=None, group=0, worker=None))]
    fn match_(
        &self,
        py: Python<'_>,
        keys: Keys<'_>,
        width: Option<usize>,
        group: u32,
        worker: Option<&Bound<'_, Worker>>,
    ) -> PyResult<KeyedMatch> {
        let namespace = self.handle.engine()?;
        let worker = worker.map(|worker| worker.get().0);
        let keys = keys.read(width)?;
        let count = keys.bytes.len() / keys.width.max(1);
        let nothing = || vec![BlockAnswer::Miss(MissReason::IoError); count];
        let found = engine(py, || {
            let keys = namespace.foreign(&keys.bytes, keys.width, group)?;
            let poisoned = namespace.is_poisoned();
            Ok(if poisoned { nothing() } else { namespace.match_keys_for(worker, &keys) })
        });
        let blocks = match found {
            Ok(blocks) => blocks.map_err(|error| raise(&error))?,
            Err(panicked) => {
                namespace.poison(&panicked.0);
                nothing()
            }
        };
        Ok(KeyedMatch(Arc::new(blocks)))
    }

    /// The block keys that the store makes of these, 32 bytes each in one piece: what `store.mirror`
    /// knows blocks by.
    #[pyo3(signature = (keys, *, width=None, group=0))]
    fn block_keys<'py>(
        &self,
        py: Python<'py>,
        keys: Keys<'_>,
        width: Option<usize>,
        group: u32,
    ) -> PyResult<Bound<'py, PyBytes>> {
        Ok(joined(py, &self.stored_keys(py, keys, width, group)?))
    }

    /// Which tiers hold the object of each key at this moment, of "mirror" (some worker's HBM),
    /// "host" and "disk". No look-up: it counts nothing, and asks for each key by itself.
    #[pyo3(signature = (keys, *, width=None, group=0))]
    fn tiers(
        &self,
        py: Python<'_>,
        keys: Keys<'_>,
        width: Option<usize>,
        group: u32,
    ) -> PyResult<Vec<Vec<&'static str>>> {
        let keys = self.stored_keys(py, keys, width, group)?;
        let namespace = self.handle.engine()?;
        Ok(names(&engine(py, || namespace.tiers(&keys))?))
    }

    /// Pins, reads and verifies the objects of keys, from the first to the last that can be given.
    #[pyo3(signature = (keys, *, width=None, group=0))]
    fn lease(
        &self,
        py: Python<'_>,
        keys: Keys<'_>,
        width: Option<usize>,
        group: u32,
    ) -> PyResult<KeyedLease> {
        let namespace = self.handle.engine()?;
        let keys = keys.read(width)?;
        let leased = engine(py, || {
            let keys = namespace.foreign(&keys.bytes, keys.width, group)?;
            Ok(namespace.lease_keys(&keys))
        });
        let (items, missed) = match leased {
            Ok(leased) => leased.map_err(|error| raise(&error))?,
            Err(panicked) => {
                namespace.poison(&panicked.0);
                (Vec::new(), Some(MissReason::IoError))
            }
        };
        let deadline = Instant::now() + self.handle.store.options.lease_deadline;
        let count = items.len();
        Ok(KeyedLease { items: Mutex::new(Some(Local::new(items))), count, missed, deadline })
    }

    /// `lease` in another thread.
    #[pyo3(signature = (keys, *, width=None, group=0))]
    fn lease_async<'py>(
        this: &Bound<'py, Self>,
        keys: Keys<'py>,
        width: Option<usize>,
        group: u32,
    ) -> PyResult<KeyedLeaseSoon<'py>> {
        let named = named(this.py(), width, group)?;
        KeyedLeaseSoon::call(this, "lease", (keys.0,), Some(&named))
    }

    /// Copies the objects of keys into writable memory, each into its place, from the first to the
    /// last that can be given; the number of those. out is one uint8 array [n, bytes], or a list of
    /// writable buffers of the objects' lengths.
    #[pyo3(signature = (keys, out, *, width=None, group=0))]
    fn get_into(
        &self,
        py: Python<'_>,
        keys: Keys<'_>,
        out: Places<'_>,
        width: Option<usize>,
        group: u32,
    ) -> PyResult<usize> {
        let namespace = self.handle.engine()?;
        let keys = keys.read(width)?;
        let count = keys.bytes.len() / keys.width.max(1);
        let mut out = out.read(count)?;
        let mut places = out.places()?;
        let given = engine(py, || {
            let keys = namespace.foreign(&keys.bytes, keys.width, group)?;
            namespace.get_keys_into(&keys, &mut places)
        });
        match given {
            Ok(given) => given.map(|(given, _)| given).map_err(|error| raise(&error)),
            Err(panicked) => {
                namespace.poison(&panicked.0);
                Ok(0)
            }
        }
    }

    /// `get_into` in another thread.
    #[pyo3(signature = (keys, out, *, width=None, group=0))]
    fn get_into_async<'py>(
        this: &Bound<'py, Self>,
        keys: Keys<'py>,
        out: Places<'py>,
        width: Option<usize>,
        group: u32,
    ) -> PyResult<CountSoon<'py>> {
        let named = named(this.py(), width, group)?;
        CountSoon::call(this, "get_into", (keys.0, out.0), Some(&named))
    }

    /// Stores the bodies of keys. The bytes are copied before this returns.
    ///
    /// bodies is a uint8 array [n, bytes], a list of bytes-like objects, or one buffer together with
    /// the length of each body. parents[i] says under what key i hangs, which is what eviction goes
    /// by: the index of an earlier key of this batch, -1 (the root), or a key of an earlier put, as
    /// bytes. Without parents the keys of group 0 hang under the root, and those of other groups
    /// under group 0's object of the same key; a parent given as a key is one of group 0. A key
    /// whose parent in this batch was not accepted gets its parent's status. ack and ttl are those
    /// of `Namespace.put`.
    #[pyo3(signature = (keys, bodies, *, parents=None, lengths=None, width=None, group=0, ack=None,
                        ttl=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of one Python method")]
    fn put(
        &self,
        py: Python<'_>,
        keys: Keys<'_>,
        bodies: Bodies<'_>,
        parents: Option<Parents<'_>>,
        lengths: Option<Lengths<'_>>,
        width: Option<usize>,
        group: u32,
        ack: Option<&str>,
        ttl: Option<Seconds<'_>>,
    ) -> PyResult<Batch> {
        let namespace = self.handle.engine()?;
        let options = put::options(ack, ttl)?;
        let keys = keys.read(width)?;
        let count = keys.bytes.len() / keys.width.max(1);
        let bodies = rows(bodies, lengths)?;
        if bodies.len() != count {
            return Err(invalid(format!("bodies has {} items for {count} keys", bodies.len())));
        }
        if let Some(at) = bodies.all().iter().position(|body| body.is_empty()) {
            return Err(invalid(format!("bodies[{at}] is empty: an object has at least one byte")));
        }
        let given = parents.map(|parents| parents.read(count)).transpose()?;
        let batch = engine(py, || {
            let options = PutOptions { epochs: Some(namespace.epochs()), ..options };
            let parents = match given {
                Some(given) => resolve(namespace, given)?,
                None if group == 0 => (0..count).map(|_| Parent::Root).collect(),
                None => {
                    let firsts = namespace.foreign(&keys.bytes, keys.width, 0)?;
                    firsts.into_iter().map(Parent::Key).collect()
                }
            };
            let keys = namespace.foreign(&keys.bytes, keys.width, group)?;
            let objects = objects(namespace, &keys, &parents, &bodies);
            Ok(namespace.put_objects(&objects, options))
        });
        let batch = match batch {
            Ok(batch) => batch.map_err(|error| raise(&error))?,
            Err(panicked) => {
                namespace.poison(&panicked.0);
                EngineBatch::settled(count, put::POISONED)
            }
        };
        self.handle.check_divergence(namespace)?;
        Ok(Batch::new(batch, (0..count as u32).map(|item| ("body", item)).collect()))
    }

    /// `put` in another thread. The objects must not change until it has returned.
    #[pyo3(signature = (keys, bodies, *, parents=None, lengths=None, width=None, group=0, ack=None,
                        ttl=None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of one Python method")]
    fn put_async<'py>(
        this: &Bound<'py, Self>,
        keys: Keys<'py>,
        bodies: Bodies<'py>,
        parents: Option<Parents<'py>>,
        lengths: Option<Lengths<'py>>,
        width: Option<usize>,
        group: u32,
        ack: Option<&str>,
        ttl: Option<Seconds<'py>>,
    ) -> PyResult<KeyedBatchSoon<'py>> {
        let named = named(this.py(), width, group)?;
        named.set_item("parents", parents.map(|parents| parents.0))?;
        named.set_item("lengths", lengths.map(|lengths| lengths.0))?;
        named.set_item("ack", ack)?;
        named.set_item("ttl", ttl.map(|ttl| ttl.0))?;
        KeyedBatchSoon::call(this, "put", (keys.0, bodies.0), Some(&named))
    }

    fn __repr__(&self) -> String {
        format!("<Keyed namespace of {}>", self.handle.layout().name())
    }
}

fn named<'py>(py: Python<'py>, width: Option<usize>, group: u32) -> PyResult<Bound<'py, PyDict>> {
    let named = PyDict::new(py);
    named.set_item("width", width)?;
    named.set_item("group", group)?;
    Ok(named)
}

/// The bodies of a keyed put.
fn rows(Bodies(bodies): Bodies<'_>, lengths: Option<Lengths<'_>>) -> PyResult<Rows> {
    let Some(lengths) = lengths else { return Rows::read(&bodies, "bodies") };
    let lengths = lengths.0.extract::<Vec<usize>>().map_err(|_| {
        invalid(format!("lengths is {}: it takes the bytes of each body", shown(&lengths.0)))
    })?;
    if bodies.is_instance_of::<PyList>() || bodies.is_instance_of::<PyTuple>() {
        return Err(invalid("lengths: a list of bodies has its own lengths; leave it out"));
    }
    let memory = Memory::of(&bodies, "bodies")?;
    let sum = lengths.iter().try_fold(0_usize, |sum, &length| sum.checked_add(length));
    if sum != Some(memory.len) {
        return Err(invalid(format!(
            "bodies has {} bytes: lengths add up to {}",
            memory.len,
            sum.map_or("more".to_owned(), |sum| sum.to_string())
        )));
    }
    Ok(Rows::Joined(memory, lengths))
}

/// Parents given as keys, under the namespace's hash.
fn resolve(namespace: &EngineNamespace, given: Vec<Given>) -> EngineResult<Vec<Parent>> {
    let resolve = |parent| match parent {
        Given::Root => Ok(Parent::Root),
        Given::Index(index) => Ok(Parent::Index(index)),
        Given::Key(key) => Ok(Parent::Key(namespace.foreign(&key, key.len(), 0)?[0])),
    };
    given.into_iter().map(resolve).collect()
}

fn objects<'a>(
    namespace: &EngineNamespace,
    keys: &[Key],
    parents: &[Parent],
    bodies: &'a Rows,
) -> Vec<Object<'a>> {
    let stored: Vec<Key> = parents
        .iter()
        .filter_map(|parent| if let Parent::Key(key) = parent { Some(*key) } else { None })
        .collect();
    let mut depths = namespace.depths(&stored).into_iter();
    let mut objects: Vec<Object<'a>> = Vec::with_capacity(keys.len());
    for ((key, parent), data) in keys.iter().zip(parents).zip(bodies.all()) {
        let (parent, after, depth) = match parent {
            Parent::Root => (None, None, 0),
            Parent::Index(index) => (Some(keys[*index]), Some(*index), objects[*index].depth + 1),
            Parent::Key(key) => {
                let depth = depths.next().flatten();
                (Some(*key), None, depth.map_or(0, |depth| depth + 1))
            }
        };
        objects.push(Object {
            block: *key,
            kind: Kind::Body,
            parent,
            after,
            depth,
            replayed: false,
            unneeded: false,
            data,
            cuts: &[],
        });
    }
    objects
}

/// How many keys are stored from the first on, and where.
#[pyclass(frozen, module = "kvstore._core")]
pub(crate) struct KeyedMatch(Arc<Vec<BlockAnswer>>);

#[pymethods]
impl KeyedMatch {
    /// Keys that are stored, or held by the worker that asked, from the first on without a hole.
    #[getter]
    fn matched(&self) -> usize {
        self.0.iter().take_while(|block| !matches!(block, BlockAnswer::Miss(_))).count()
    }

    /// One answer per key: "mirror" (the worker that asked holds it), "host", "disk", or the reason of
    /// a miss.
    #[getter]
    fn blocks(&self) -> Answers {
        Answers(self.0.clone())
    }

    /// Keys whose object the worker that asked holds itself.
    #[getter]
    fn mirror_blocks(&self) -> usize {
        self.0.iter().filter(|&&block| block == BlockAnswer::Mirror).count()
    }

    /// Keys whose object is in host memory.
    #[getter]
    fn host_blocks(&self) -> usize {
        self.0.iter().filter(|&&block| block == BlockAnswer::Host).count()
    }

    /// Keys whose object is on disk only.
    #[getter]
    fn disk_blocks(&self) -> usize {
        self.0.iter().filter(|&&block| block == BlockAnswer::Disk).count()
    }

    fn __repr__(&self) -> String {
        format!("<KeyedMatch: {} of {} keys>", self.matched(), self.0.len())
    }
}

/// Pinned objects of keys, from the first on; a context manager and a sequence like Lease.
#[pyclass(frozen, module = "kvstore._core")]
pub(crate) struct KeyedLease {
    items: Mutex<Option<Local<Vec<Item>>>>,
    count: usize,
    missed: Option<MissReason>,
    deadline: Instant,
}

impl KeyedLease {
    fn item(&self, index: isize) -> PyResult<Item> {
        let items = self.items.lock();
        let items = items.as_ref().ok_or_else(ended)?.get()?;
        if Instant::now() >= self.deadline {
            return Err(overdue());
        }
        at(items, index).cloned()
    }
}

#[pymethods]
impl KeyedLease {
    /// Number of objects that were given.
    fn __len__(&self) -> usize {
        self.count
    }

    /// The object of key i.
    fn __getitem__(&self, index: isize) -> PyResult<View> {
        let item = self.item(index)?;
        whole(&item, &format!("the object of key {index}"), &format!("parts({index})"))
    }

    fn __iter__<'py>(this: &Bound<'py, Self>) -> PyResult<Views<'py>> {
        Views::of(this)
    }

    /// The pieces that the object of key i is stored in, in order: most have one.
    fn parts(&self, index: isize) -> PyResult<Vec<View>> {
        pieces(&self.item(index)?)
    }

    /// Why the key after the last one could not be given; None when all were.
    #[getter]
    fn missed(&self) -> Option<&'static str> {
        self.missed.map(MissReason::name)
    }

    /// Ends the lease: no new views. Views that were taken live on.
    fn close(&self) {
        let items = self.items.lock().take();
        drop(items);
    }

    fn __enter__(this: PyRef<'_, Self>) -> PyRef<'_, Self> {
        this
    }

    #[pyo3(signature = (kind=None, error=None, traceback=None))]
    fn __exit__(
        &self,
        kind: Option<Bound<'_, PyAny>>,
        error: Option<Bound<'_, PyAny>>,
        traceback: Option<Bound<'_, PyAny>>,
    ) {
        let _exceptions_pass = (kind, error, traceback);
        self.close();
    }

    fn __repr__(&self) -> String {
        format!("<KeyedLease of {} objects>", self.count)
    }
}
