//! Namespaces: look-ups, leases, puts of one model side and tenant.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvstore_engine::identity::{Description, WeightsKind};
use kvstore_engine::store::{
    Batch as EngineBatch, Namespace as EngineNamespace, NamespaceOptions, PutOptions,
};
use kvstore_layout::{Area, Layout as CoreLayout};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyTuple};

use crate::batch::Batch;
use crate::border::engine;
use crate::buffers::{Memory, Writable};
use crate::errors::{DivergenceError, invalid, raise};
use crate::explain::{Explanation, Usage};
use crate::hints::soon;
use crate::keyed::Keyed;
use crate::layout::Layout;
use crate::lease::Lease;
use crate::matching::{Costs, Plan};
use crate::mirror::Worker;
use crate::process::Local;
use crate::put::{self, Blocks, Bodies, ExtraKeys};
use crate::sizes::{Seconds, shown};
use crate::store::{Shared, Weights};
use crate::tokens::TokenIds;

soon! {
    /// A lease that another thread takes.
    LeaseSoon = Lease;
    /// A plan that another thread reads.
    PlanSoon = Plan;
    /// A batch that another thread puts.
    BatchSoon = Batch;
}

/// A tenant's salt: bytes, or a string.
#[derive(FromPyObject)]
pub(crate) enum Salt {
    Bytes(PyBackedBytes),
    Text(String),
}

impl Salt {
    pub(crate) fn bytes(self) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) => bytes.to_vec(),
            Self::Text(text) => text.into_bytes(),
        }
    }
}

/// What `store.namespace` was told about the model side.
pub(crate) struct Given {
    pub(crate) model: String,
    pub(crate) weights: (WeightsKind, Vec<u8>),
    pub(crate) revision: String,
    pub(crate) adapter: Option<PyBackedBytes>,
    pub(crate) dtype: Option<String>,
    pub(crate) scale_rule: Option<String>,
    pub(crate) axes: HashMap<String, (u32, u32)>,
    pub(crate) extra: HashMap<String, String>,
    pub(crate) hash_rule: Option<String>,
    pub(crate) allow_weights_by_name: bool,
}

impl Given {
    fn describe(self, layout: &CoreLayout) -> PyResult<Description> {
        let (kind, digest) = self.weights;
        let mut builder = Description::builder()
            .model(self.model)
            .revision(self.revision)
            .weights(kind, digest)
            .dtype(self.dtype.unwrap_or_else(|| formats(layout)))
            .layout(*blake3::hash(&layout.canonical()).as_bytes())
            .block_tokens(layout.block_tokens());
        if self.allow_weights_by_name {
            builder = builder.allow_weights_by_name();
        }
        if let Some(adapter) = self.adapter {
            builder = builder.adapter(adapter.to_vec());
        }
        if let Some(rule) = self.scale_rule {
            builder = builder.scale_rule(rule);
        }
        if let Some(rule) = self.hash_rule {
            builder = builder.hash_rule(rule);
        }
        for (name, (rank, size)) in self.axes {
            builder = builder.axis(name, rank, size);
        }
        for (name, value) in self.extra {
            builder = builder.extra(name, value);
        }
        builder.build().map_err(|error| invalid(error.to_string()))
    }
}

/// The record formats of a layout, each once, in order.
fn formats(layout: &CoreLayout) -> String {
    let mut formats: Vec<&str> = layout.groups().iter().map(|g| g.page.format.as_str()).collect();
    formats.sort_unstable();
    formats.dedup();
    formats.join("+")
}

/// Reads a weights fingerprint: bytes, or a pair of kind and digest.
pub(crate) fn weights(Weights(given): Weights<'_>) -> PyResult<(WeightsKind, Vec<u8>)> {
    let wrong = || {
        invalid(format!(
            "weights is {}: it takes 32 bytes (BLAKE3 of all tensor bytes), or a pair of \"full\", \
             \"hub\", \"cached\", \"sampled\" or \"name\" and a digest",
            shown(&given)
        ))
    };
    if let Ok(pair) = given.cast::<PyTuple>() {
        let (kind, digest) = pair.extract::<(String, Salt)>().map_err(|_| wrong())?;
        let kind = match kind.as_str() {
            "full" => WeightsKind::Full,
            "hub" => WeightsKind::Hub,
            "cached" => WeightsKind::Cached,
            "sampled" => WeightsKind::Sampled,
            "name" => WeightsKind::Name,
            _ => return Err(wrong()),
        };
        return Ok((kind, digest.bytes()));
    }
    let digest = given.cast::<PyBytes>().map_err(|_| wrong())?.as_bytes();
    if digest.len() != 32 {
        return Err(invalid(format!(
            "weights has {} bytes: a full fingerprint has 32 (for other kinds give a pair of kind \
             and digest)",
            digest.len()
        )));
    }
    Ok((WeightsKind::Full, digest.to_vec()))
}

/// A namespace of an open store; plans and leases hold it.
pub(crate) struct Handle {
    namespace: Local<Arc<EngineNamespace>>,
    layout: Py<Layout>,
    cuts: [Vec<u64>; 3],
    deterministic: bool,
    pub(crate) store: Arc<Shared>,
}

impl Handle {
    /// The engine's namespace, as long as its store is open and this is its process.
    pub(crate) fn engine(&self) -> PyResult<&Arc<EngineNamespace>> {
        self.store.engine()?;
        self.namespace.get()
    }

    pub(crate) fn layout(&self) -> &CoreLayout {
        self.layout.get().inner()
    }

    /// Where objects of an area are cut into parts if possible.
    pub(crate) fn cuts(&self, area: Area) -> &[u64] {
        &self.cuts[area as usize]
    }

    /// Raises what a put with other bytes is in a deterministic namespace.
    pub(crate) fn check_divergence(&self, namespace: &EngineNamespace) -> PyResult<()> {
        if self.deterministic && namespace.take_divergence() {
            return Err(DivergenceError::new_err(
                "deterministic namespace: a put of a present key has other bytes",
            ));
        }
        Ok(())
    }

    /// A plan's match, if it is one of this namespace.
    fn found<'a>(&self, plan: &'a Plan) -> PyResult<&'a kvstore_engine::store::Match> {
        let (handle, found) = plan.of();
        let mine = self.namespace.get()?;
        if !mine.is_same(handle.namespace.get()?) {
            return Err(invalid("plan: it was made by another namespace; match again in this one"));
        }
        Ok(found)
    }
}

/// One model side and one tenant of a store. Made by `store.namespace`.
#[pyclass(frozen, module = "kvstore._core")]
pub(crate) struct Namespace {
    handle: Arc<Handle>,
}

impl Namespace {
    pub(crate) fn open(
        py: Python<'_>,
        store: &Arc<Shared>,
        layout: Py<Layout>,
        given: Given,
        salt: &[u8],
        ttl: Option<Duration>,
        deterministic: bool,
    ) -> PyResult<Self> {
        let core = layout.get().inner();
        let description = given.describe(core)?;
        let (inner, shared) = (Arc::new(core.clone()), store.engine()?);
        let options = NamespaceOptions { ttl, deterministic };
        let namespace = engine(py, || shared.namespace(inner, &description, salt, options))?
            .map_err(|error| raise(&error))?;
        let cuts = [Area::Body, Area::Window, Area::Checkpoint].map(|area| core.area_cuts(area));
        let namespace = Local::new(Arc::new(namespace));
        let handle = Handle { namespace, layout, cuts, deterministic, store: store.clone() };
        Ok(Self { handle: Arc::new(handle) })
    }
}

#[pymethods]
impl Namespace {
    /// The layout of its objects.
    #[getter]
    fn layout(&self, py: Python<'_>) -> Py<Layout> {
        self.handle.layout.clone_ref(py)
    }

    /// Tokens of a block.
    #[getter]
    fn block_tokens(&self) -> u32 {
        self.handle.layout().block_tokens()
    }

    /// Digest of its description, 32 bytes.
    #[getter]
    fn digest<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        Ok(PyBytes::new(py, self.handle.namespace.get()?.digest().as_bytes()))
    }

    /// The same namespace under a serving engine's own block keys.
    #[getter]
    fn keyed(&self) -> Keyed {
        Keyed::new(self.handle.clone())
    }

    /// Looks a prompt up: what is stored, and from where it goes on. Pins nothing: a hint until a
    /// lease has verified it.
    ///
    /// extra_keys says what besides the tokens decides the bytes of a block (media, embeddings):
    /// {block: bytes or list of bytes}, each of at least 16 bytes. allow_approximate admits chains
    /// that were stored after a bounded replay, and plans that make one. costs is a pair: what
    /// recomputing a token and reading a byte cost; without it the plan with the fewest tokens to
    /// compute wins. worker is one of `store.mirror` that asks for itself: the blocks that it holds
    /// are present, stored or not, and neither a lease nor get_into reads them.
    #[pyo3(name = "match", signature = (token_ids, extra_keys=None, allow_approximate=false,
                                        costs=None, worker=None))]
    fn match_(
        &self,
        py: Python<'_>,
        token_ids: TokenIds<'_>,
        extra_keys: Option<ExtraKeys<'_>>,
        allow_approximate: bool,
        costs: Option<Costs<'_>>,
        worker: Option<&Bound<'_, Worker>>,
    ) -> PyResult<Plan> {
        let namespace = self.handle.engine()?;
        let tokens = token_ids.ids()?;
        let extra_keys = ExtraKeys::read(extra_keys)?;
        let costs = costs.map(Costs::read).transpose()?;
        let worker = worker.map(|worker| worker.get().0);
        let count = u32::try_from(tokens.len()).unwrap_or(u32::MAX);
        let found = engine(py, || {
            if namespace.is_poisoned() {
                return Ok(namespace.nothing(count, costs));
            }
            extra_keys.with(|extras| {
                namespace.match_for(worker, &tokens, &extras, allow_approximate, costs)
            })
        });
        let found = match found {
            Ok(found) => found.map_err(|error| raise(&error))?,
            Err(panicked) => {
                namespace.poison(&panicked.0);
                namespace.nothing(count, costs)
            }
        };
        Ok(Plan::found(self.handle.clone(), found))
    }

    /// Pins, reads and verifies what a plan names. Where an object cannot be given the plan is made
    /// again on what is left: `lease.plan` is the answer.
    fn lease(&self, py: Python<'_>, plan: &Bound<'_, Plan>) -> PyResult<Lease> {
        let namespace = self.handle.engine()?;
        let found = self.handle.found(plan.get())?;
        let lease = engine(py, || namespace.lease(found)).or_else(|panicked| {
            namespace.poison(&panicked.0);
            engine(py, || namespace.lease(&namespace.nothing(found.tokens, None)))
        })?;
        let got = Py::new(py, plan.get().got(lease.plan().clone(), lease.missed()))?;
        Ok(Lease::new(self.handle.clone(), got, lease))
    }

    /// `lease` in another thread.
    fn lease_async<'py>(
        this: &Bound<'py, Self>,
        plan: Bound<'py, Plan>,
    ) -> PyResult<LeaseSoon<'py>> {
        LeaseSoon::call(this, "lease", (plan,), None)
    }

    /// Copies what a plan names into writable memory: the bodies in order, then the windows, then
    /// the checkpoint, without gaps (plan.read_bytes in all). Copy and check are one pass. The
    /// answer is the plan that was really got; bytes behind its objects are undefined.
    fn get_into(
        &self,
        py: Python<'_>,
        plan: &Bound<'_, Plan>,
        out: Writable<'_>,
    ) -> PyResult<Plan> {
        let namespace = self.handle.engine()?;
        let found = self.handle.found(plan.get())?;
        let Writable(out) = out;
        let mut memory = Memory::of(&out, "out")?;
        let bytes = memory.bytes_mut("out")?;
        let got = match engine(py, || namespace.get_into(found, bytes)) {
            Ok(got) => got.map_err(|error| raise(&error))?,
            Err(panicked) => {
                namespace.poison(&panicked.0);
                namespace.nothing(found.tokens, None).plan
            }
        };
        Ok(plan.get().got(got, &[]))
    }

    /// `get_into` in another thread.
    fn get_into_async<'py>(
        this: &Bound<'py, Self>,
        plan: Bound<'py, Plan>,
        out: Writable<'py>,
    ) -> PyResult<PlanSoon<'py>> {
        PlanSoon::call(this, "get_into", (plan, out.0), None)
    }

    /// Stores blocks of a prompt. The bytes are copied before this returns.
    ///
    /// token_ids begins at token 0; bodies[j] is block first_block + j: one C-contiguous uint8
    /// array [blocks, body_bytes], or a sequence of bytes-like objects of exactly that length, or
    /// None. windows is {block: bytes-like}, checkpoints {tokens: bytes-like}. extra_keys as in
    /// `match`. replayed_from is the first block that was stored after a bounded replay (as
    /// plan.replayed_from of a chain that goes on).
    ///
    /// ack is "host" (the default: in host memory, write-behind starts at once), "ssd" (survives a
    /// kill) or "ssd+flush" (survives a power cut). ttl is the life in seconds, by default the
    /// namespace's.
    ///
    /// The batch has one status per item: by block, the body, its window, its checkpoint. A block
    /// whose parent was not accepted gets its parent's status, and so do windows and checkpoints of
    /// a block that was not accepted.
    #[pyo3(signature = (token_ids, bodies, first_block=0, windows=None, checkpoints=None,
                        extra_keys=None, replayed_from=None, hint=None, ack=None, ttl=None))]
    #[expect(clippy::too_many_arguments, reason = "arguments of one Python method")]
    fn put(
        &self,
        py: Python<'_>,
        token_ids: TokenIds<'_>,
        bodies: Option<Bodies<'_>>,
        first_block: u32,
        windows: Option<Blocks<'_>>,
        checkpoints: Option<Blocks<'_>>,
        extra_keys: Option<ExtraKeys<'_>>,
        replayed_from: Option<u32>,
        hint: Option<&Bound<'_, PyAny>>,
        ack: Option<&str>,
        ttl: Option<Seconds<'_>>,
    ) -> PyResult<Batch> {
        let namespace = self.handle.engine()?;
        put::refuse_hint(hint)?;
        let tokens = token_ids.ids()?;
        let options = put::options(ack, ttl)?;
        let extra_keys = ExtraKeys::read(extra_keys)?;
        let whole = tokens.len() / self.block_tokens() as usize;
        let stretch = put::Stretch::read(
            &self.handle,
            whole,
            bodies,
            first_block,
            windows,
            checkpoints,
            replayed_from,
        )?;
        let items = stretch.items();
        let count = items.len();
        let batch = engine(py, || {
            let options = PutOptions { epochs: Some(namespace.epochs()), ..options };
            let keys = extra_keys.with(|extras| {
                let marked = replayed_from.map(|block| extras.replayed_from(block as usize));
                namespace.keys(&tokens, &marked.unwrap_or(extras))
            })?;
            Ok(namespace.put_objects(&stretch.objects(&keys), options))
        });
        let batch = match batch {
            Ok(batch) => batch.map_err(|error| raise(&error))?,
            Err(panicked) => {
                namespace.poison(&panicked.0);
                EngineBatch::settled(count, put::POISONED)
            }
        };
        self.handle.check_divergence(namespace)?;
        Ok(Batch::new(batch, items))
    }

    /// `put` in another thread. The objects must not change until it has returned.
    #[pyo3(signature = (token_ids, bodies, first_block=0, windows=None, checkpoints=None,
                        extra_keys=None, replayed_from=None, hint=None, ack=None, ttl=None))]
    #[expect(clippy::too_many_arguments, reason = "arguments of one Python method")]
    fn put_async<'py>(
        this: &Bound<'py, Self>,
        token_ids: TokenIds<'py>,
        bodies: Option<Bodies<'py>>,
        first_block: u32,
        windows: Option<Blocks<'py>>,
        checkpoints: Option<Blocks<'py>>,
        extra_keys: Option<ExtraKeys<'py>>,
        replayed_from: Option<u32>,
        hint: Option<Bound<'py, PyAny>>,
        ack: Option<&str>,
        ttl: Option<Seconds<'py>>,
    ) -> PyResult<BatchSoon<'py>> {
        let arguments = (
            token_ids.0,
            bodies.map(|bodies| bodies.0),
            first_block,
            windows.map(|windows| windows.0),
            checkpoints.map(|checkpoints| checkpoints.0),
            extra_keys.map(|keys| keys.0),
            replayed_from,
            hint,
            ack,
            ttl.map(|ttl| ttl.0),
        );
        BatchSoon::call(this, "put", arguments, None)
    }

    /// Starts to bring what a plan names from disk to host memory, and returns at once; deadline is
    /// in seconds (the store's read_deadline). One status per object: "stored" is in host memory
    /// now.
    #[pyo3(signature = (plan, deadline=None))]
    fn prefetch(
        &self,
        py: Python<'_>,
        plan: &Bound<'_, Plan>,
        deadline: Option<Seconds<'_>>,
    ) -> PyResult<Batch> {
        let namespace = self.handle.engine()?;
        let found = self.handle.found(plan.get())?;
        let deadline = deadline.map(|deadline| deadline.duration("deadline")).transpose()?;
        let deadline = Instant::now() + deadline.unwrap_or(self.handle.store.options.read_deadline);
        let bodies = found.plan.bodies.clone().map(|block| ("body", block));
        let windows = found.plan.windows.clone().map(|block| ("window", block));
        let checkpoint = found.plan.checkpoint.map(|tokens| ("checkpoint", tokens));
        let items: Vec<_> = bodies.chain(windows).chain(checkpoint).collect();
        let batch = engine(py, || namespace.prefetch(found, deadline))?;
        Ok(Batch::new(batch, items))
    }

    /// Why a prompt hits no more: the block, the reason, and the fields of the namespace that
    /// differ from the nearest one that has objects. Counts no look-up.
    #[pyo3(signature = (token_ids, extra_keys=None))]
    fn explain(
        &self,
        py: Python<'_>,
        token_ids: TokenIds<'_>,
        extra_keys: Option<ExtraKeys<'_>>,
    ) -> PyResult<Explanation> {
        let namespace = self.handle.engine()?;
        let tokens = token_ids.ids()?;
        let extra_keys = ExtraKeys::read(extra_keys)?;
        let explained =
            engine(py, || extra_keys.with(|extras| namespace.explain(&tokens, &extras)))?;
        explained.map(Explanation).map_err(|error| raise(&error))
    }

    /// Prompt, hit and miss tokens of a prompt in whole units, as an API bills them. Counts no
    /// look-up; `plan.usage()` does the same for a plan.
    #[pyo3(signature = (token_ids, unit=64, extra_keys=None))]
    fn usage(
        &self,
        py: Python<'_>,
        token_ids: TokenIds<'_>,
        unit: u32,
        extra_keys: Option<ExtraKeys<'_>>,
    ) -> PyResult<Usage> {
        let Explanation(explained) = self.explain(py, token_ids, extra_keys)?;
        Usage::of(explained.tokens, explained.matched, explained.usable, unit)
    }

    /// The keys of all whole blocks of a prompt, 32 bytes each, in one bytes object.
    #[pyo3(signature = (token_ids, extra_keys=None))]
    fn keys<'py>(
        &self,
        py: Python<'py>,
        token_ids: TokenIds<'py>,
        extra_keys: Option<ExtraKeys<'py>>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let namespace = self.handle.engine()?;
        let tokens = token_ids.ids()?;
        let extra_keys = ExtraKeys::read(extra_keys)?;
        let keys = engine(py, || extra_keys.with(|extras| namespace.keys(&tokens, &extras)))?
            .map_err(|error| raise(&error))?;
        let bytes: Vec<u8> = keys.iter().flat_map(|key| *key.as_bytes()).collect();
        Ok(PyBytes::new(py, &bytes))
    }

    /// Makes everything stored in this namespace unreachable, by any tenant; the number of objects.
    /// erase=True also overwrites them.
    #[pyo3(signature = (erase=false))]
    fn clear(&self, py: Python<'_>, erase: bool) -> PyResult<u64> {
        let namespace = self.handle.engine()?;
        engine(py, || namespace.clear(erase))?.map_err(|error| raise(&error))
    }

    fn __repr__(&self) -> String {
        format!("<Namespace of {}>", self.handle.layout().name())
    }
}
