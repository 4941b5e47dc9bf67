//! Layouts for Python: construction, pages, accounting.

mod group;
mod registry;
mod resume;

use kvstore_layout as core;
use kvstore_layout::account::{Basis, Rank, Ranks, Tails, WindowRows};
use kvstore_layout::{Fraction, LayoutError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

pub(crate) use group::Group;
pub(crate) use registry::{Architecture, architectures, records};
pub(crate) use resume::{ResumePlan, keep, resume_plan, usage_tokens};

fn raise(error: &LayoutError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// The groups of a model with record formats, ratios, owners, windows and shard axes: enough to
/// account for each byte that its cache has, and to say where it lies.
#[pyclass(frozen, eq, module = "kvstore._core")]
#[derive(Clone, PartialEq)]
pub(crate) struct Layout {
    inner: core::Layout,
}

impl Layout {
    /// The layout itself, for the parts of this module that store with it.
    pub(crate) fn inner(&self) -> &core::Layout {
        &self.inner
    }
}

fn groups_of(groups: Vec<Group>) -> Vec<core::Group> {
    groups.into_iter().map(|g| g.inner).collect()
}

fn basis(padded: bool) -> Basis {
    if padded { Basis::Padded } else { Basis::Logical }
}

/// A number of tokens for accounting.
fn tokens(n: u64) -> PyResult<u64> {
    if n <= core::MAX_TOKENS {
        return Ok(n);
    }
    let limit = core::MAX_TOKENS;
    Err(PyValueError::new_err(format!("n = {n} tokens must be at most {limit}")))
}

fn rows(held: bool) -> WindowRows {
    if held { WindowRows::Held } else { WindowRows::Resume }
}

fn tails_of(name: &str) -> PyResult<Tails> {
    match name {
        "none" => Ok(Tails::None),
        "exact" => Ok(Tails::Exact),
        "engine" => Ok(Tails::Engine),
        other => Err(PyValueError::new_err(format!(
            "tails = {other:?} must be \"none\", \"exact\" or \"engine\""
        ))),
    }
}

/// A fractions.Fraction.
fn fraction<'py>(py: Python<'py>, value: Fraction) -> PyResult<Bound<'py, PyAny>> {
    let class = py.import("fractions")?.getattr("Fraction")?;
    class.call1((value.numerator(), value.denominator()))
}

#[pymethods]
impl Layout {
    /// A layout from groups written out by hand. form names the engine and record formats,
    /// model_layers the layers of the model where some own no cache.
    #[staticmethod]
    #[pyo3(signature = (name, block_tokens, groups, *, form="by hand", model_layers=0))]
    fn by_hand(
        name: String,
        block_tokens: u32,
        groups: Vec<Group>,
        form: &str,
        model_layers: u32,
    ) -> PyResult<Self> {
        let layout = core::Layout::with_form(name, form, block_tokens, groups_of(groups));
        let replay = core::Replay { model_layers, ..core::Replay::default() };
        Ok(Self { inner: layout.map_err(|e| raise(&e))?.with_replay(replay) })
    }

    /// A layout whose sizes, kinds and windows a serving engine tells. With split_by_group each
    /// group is an object of its own.
    #[staticmethod]
    #[pyo3(signature = (name, block_tokens, groups, *, form="opaque", split_by_group=false))]
    fn opaque(
        name: String,
        block_tokens: u32,
        groups: Vec<Group>,
        form: &str,
        split_by_group: bool,
    ) -> PyResult<Self> {
        let groups = groups_of(groups);
        let layout = core::Layout::opaque(name, form, block_tokens, groups, split_by_group);
        Ok(Self { inner: layout.map_err(|e| raise(&e))? })
    }

    /// The layout of an architecture of the registry, in its default form or the one named. With
    /// draft=True the groups of draft (MTP) layers are included. toml is the text of a user's file
    /// whose entries are added, origin its name in errors.
    #[staticmethod]
    #[pyo3(signature = (name, form=None, *, draft=false, toml=None, origin="toml"))]
    fn named(
        name: &str,
        form: Option<&str>,
        draft: bool,
        toml: Option<&str>,
        origin: &str,
    ) -> PyResult<Self> {
        let inner = registry::with(toml.map(|text| (origin, text)), |registry| {
            registry.find(name)?.layout(form, draft)
        })?;
        Ok(Self { inner })
    }

    /// The layout of a transformers configuration: an object, a dict, a config.json or a folder
    /// that holds one. block_tokens is the length of a block, a multiple of the alignment; the
    /// form's own when None. Raises kvstore.layouts.CannotPlace with the field that has no place.
    #[staticmethod]
    #[pyo3(signature = (config, *, form="transformers", dtype=None, draft=false, block_tokens=None))]
    fn from_hf_config(
        py: Python<'_>,
        config: &Bound<'_, PyAny>,
        form: &str,
        dtype: Option<&str>,
        draft: bool,
        block_tokens: Option<u32>,
    ) -> PyResult<Self> {
        let arguments = PyDict::new(py);
        arguments.set_item("block_tokens", block_tokens)?;
        arguments.set_item("form", form)?;
        arguments.set_item("dtype", dtype)?;
        arguments.set_item("draft", draft)?;
        let place = py.import("kvstore.layouts.hf")?.getattr("layout_from_config")?;
        let layout = place.call((config,), Some(&arguments))?;
        Ok(layout.cast::<Self>()?.get().clone())
    }

    /// The same layout with blocks of another length: a positive multiple of the alignment.
    fn with_block_tokens(&self, block_tokens: u32) -> PyResult<Self> {
        let inner = self.inner.clone().with_block_tokens(block_tokens);
        Ok(Self { inner: inner.map_err(|e| raise(&e))? })
    }

    /// Name of the architecture.
    #[getter]
    fn name(&self) -> &str {
        self.inner.name()
    }

    /// The engine and record formats whose bytes these are.
    #[getter]
    fn form(&self) -> &str {
        self.inner.form()
    }

    /// Tokens of one block.
    #[getter]
    fn block_tokens(&self) -> u32 {
        self.inner.block_tokens()
    }

    /// Tokens to whose multiples a resume point is rounded down.
    #[getter]
    fn alignment(&self) -> u32 {
        self.inner.alignment()
    }

    /// The groups, in their order in the objects.
    #[getter]
    fn groups(&self) -> Vec<Group> {
        self.inner.groups().iter().map(|g| Group { inner: g.clone() }).collect()
    }

    /// Bytes of one block's body.
    #[getter]
    fn body_bytes(&self) -> u64 {
        self.inner.body_bytes()
    }

    /// Bytes of one block's window object; 0 without window groups.
    #[getter]
    fn window_bytes(&self) -> u64 {
        self.inner.window_bytes()
    }

    /// Bytes of a checkpoint at a block end; 0 without state there.
    #[getter]
    fn checkpoint_bytes(&self) -> u64 {
        self.inner.checkpoint_bytes()
    }

    /// Whether each group is an object of its own.
    #[getter]
    fn split_by_group(&self) -> bool {
        self.inner.split_by_group()
    }

    /// Layers of the model.
    #[getter]
    fn model_layers(&self) -> u32 {
        self.inner.model_layers()
    }

    /// Layers that own entries.
    #[getter]
    fn owner_layers(&self) -> u32 {
        self.inner.owner_layers()
    }

    /// The largest window in tokens; 0 without window groups.
    #[getter]
    fn max_window(&self) -> u32 {
        self.inner.max_window()
    }

    /// Tokens of a bounded replay, or None where the model was not made for one.
    #[getter]
    fn bounded_replay_tokens(&self) -> Option<u32> {
        self.inner.replay().bounded
    }

    /// (area, offset, length) in bytes of one group's page of one owner layer; area is "body",
    /// "window" or "checkpoint". group is a name or an index. None when the layer owns no page.
    fn page(&self, group: GroupRef, layer: u32) -> PyResult<Option<(&'static str, u64, u64)>> {
        let index = group.index(&self.inner)?;
        Ok(self.inner.page(index, layer).map(|page| (area_name(page.area), page.offset, page.len)))
    }

    /// The bytes that the layout id is a hash of.
    fn canonical<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.inner.canonical())
    }

    /// The layout as a small table for people.
    fn describe(&self) -> String {
        self.inner.describe()
    }

    /// Bytes per token of all entries groups, as an exact fraction.
    #[pyo3(signature = (*, padded=false))]
    fn bytes_per_token<'py>(&self, py: Python<'py>, padded: bool) -> PyResult<Bound<'py, PyAny>> {
        fraction(py, self.inner.bytes_per_token(basis(padded)))
    }

    /// Numbers cached per token over all layers, as an exact fraction.
    fn elements_per_token<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        fraction(py, self.inner.elements_per_token())
    }

    /// Entries per token over all owner layers, as an exact fraction.
    fn entries_per_token<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        fraction(py, self.inner.entries_per_token())
    }

    /// Bytes of all entries groups at n tokens.
    #[pyo3(signature = (n, *, padded=false))]
    fn entry_bytes(&self, n: u64, padded: bool) -> PyResult<u64> {
        let n = tokens(n)?;
        Ok(self.inner.entry_bytes(n, basis(padded)))
    }

    /// Bytes of all window groups at n tokens: min(n, w - 1) rows, or min(n, w) with held=True.
    #[pyo3(signature = (n, *, padded=false, held=false))]
    fn window_bytes_at(&self, n: u64, padded: bool, held: bool) -> PyResult<u64> {
        let n = tokens(n)?;
        Ok(self.inner.window_bytes_at(n, basis(padded), rows(held)))
    }

    /// Bytes of all state groups at n tokens, open pooling groups included.
    #[pyo3(signature = (n, *, padded=false))]
    fn state_bytes(&self, n: u64, padded: bool) -> PyResult<u64> {
        let n = tokens(n)?;
        Ok(self.inner.state_bytes(n, basis(padded)))
    }

    /// Bytes of all state groups as engines hold them for a running request.
    fn ring_bytes(&self) -> u64 {
        self.inner.ring_bytes()
    }

    /// Bytes that one request of n tokens occupies: entries, held windows and rings.
    #[pyo3(signature = (n, *, padded=false))]
    fn request_bytes(&self, n: u64, padded: bool) -> PyResult<u64> {
        let n = tokens(n)?;
        Ok(self.inner.request_bytes(n, basis(padded)))
    }

    /// Bytes of each group at n tokens, as a list in group order.
    #[pyo3(signature = (n, *, padded=false, held=false))]
    fn group_bytes(&self, n: u64, padded: bool, held: bool) -> PyResult<Vec<u64>> {
        let n = tokens(n)?;
        let groups = self.inner.groups().iter();
        Ok(groups.map(|g| g.bytes_at(n, basis(padded), rows(held))).collect())
    }

    /// Bytes of one layer over all groups at n tokens.
    #[pyo3(signature = (layer, n, *, padded=false))]
    fn layer_bytes(&self, layer: u32, n: u64, padded: bool) -> PyResult<u64> {
        let n = tokens(n)?;
        Ok(self.inner.layer_bytes(layer, n, basis(padded)))
    }

    /// Bytes of each group that rank (tp, pp, cp) of a deployment of sizes (tp, pp, cp) holds.
    #[pyo3(signature = (n, sizes, rank=(0, 0, 0), *, padded=false))]
    fn rank_bytes(
        &self,
        n: u64,
        sizes: (u32, u32, u32),
        rank: (u32, u32, u32),
        padded: bool,
    ) -> PyResult<Vec<u64>> {
        let sizes = Ranks { tp: sizes.0, pp: sizes.1, cp: sizes.2 };
        let rank = Rank { tp: rank.0, pp: rank.1, cp: rank.2 };
        let bytes = self.inner.rank_bytes(tokens(n)?, sizes, rank, basis(padded));
        bytes.map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Copies of each group's bytes that tp tensor ranks hold.
    fn tp_copies(&self, tp: u32) -> PyResult<Vec<u32>> {
        self.inner.tp_copies(tp).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Bytes of one resume point besides the entries. tails is "none", "exact" or "engine".
    #[pyo3(signature = (*, windows=true, tails="exact", padded=false))]
    fn resume_point_bytes(&self, windows: bool, tails: &str, padded: bool) -> PyResult<u64> {
        Ok(self.inner.resume_point_bytes(windows, tails_of(tails)?, basis(padded)))
    }

    /// Bytes stored per token with a resume point every `interval` tokens, as an exact fraction;
    /// None = entries only.
    #[pyo3(signature = (interval, *, windows=true, tails="exact", padded=false))]
    fn persistent_per_token<'py>(
        &self,
        py: Python<'py>,
        interval: Option<u32>,
        windows: bool,
        tails: &str,
        padded: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        if interval == Some(0) {
            return Err(PyValueError::new_err("interval = 0 must be 1 token or more"));
        }
        let (tails, basis) = (tails_of(tails)?, basis(padded));
        fraction(py, self.inner.persistent_per_token(interval, windows, tails, basis))
    }

    /// Cache bytes that one decode step at n tokens reads.
    fn read_bytes(&self, n: u64) -> PyResult<u64> {
        let n = tokens(n)?;
        Ok(self.inner.read_bytes(n))
    }

    /// The same by group, in group order.
    fn group_read_bytes(&self, n: u64) -> PyResult<Vec<u64>> {
        let n = tokens(n)?;
        Ok(self.inner.groups().iter().map(|g| g.read_bytes(n)).collect())
    }

    /// Tokens to recompute over stored entries to rebuild windows and states exactly, or None where
    /// a state is recurrent. below counts the layers below one layer only.
    #[pyo3(signature = (*, below=None))]
    fn exact_replay_tokens(&self, below: Option<u32>) -> Option<u64> {
        self.inner.replay_tokens_below(below.unwrap_or(u32::MAX))
    }

    fn __hash__(&self) -> u64 {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        self.inner.canonical().hash(&mut hasher);
        hasher.finish()
    }

    fn __repr__(&self) -> String {
        let l = &self.inner;
        format!(
            "<Layout {} ({}): {} tokens a block, body {} B, window {} B, checkpoint {} B>",
            l.name(),
            l.form(),
            l.block_tokens(),
            l.body_bytes(),
            l.window_bytes(),
            l.checkpoint_bytes()
        )
    }
}

/// A group by name or by index.
#[derive(FromPyObject)]
pub(crate) enum GroupRef {
    Index(usize),
    Name(String),
}

impl GroupRef {
    /// Its index in a layout.
    pub(crate) fn index(self, layout: &core::Layout) -> PyResult<usize> {
        match self {
            Self::Index(index) => Ok(index),
            Self::Name(name) => layout.group_index(&name).ok_or_else(|| {
                let names: Vec<_> = layout.groups().iter().map(|g| g.name.as_str()).collect();
                PyValueError::new_err(format!("group = {name:?} must be one of {names:?}"))
            }),
        }
    }
}

fn area_name(area: core::Area) -> &'static str {
    match area {
        core::Area::Body => "body",
        core::Area::Window => "window",
        core::Area::Checkpoint => "checkpoint",
    }
}
