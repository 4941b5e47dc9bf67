//! Layouts, their groups and resume plans for Python.

use kvstore_layout as core;
use kvstore_layout::LayoutError;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

fn raise(error: &LayoutError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// Layers of a model that keep the same kind of cache, and the bytes of one entry.
///
/// kind is "entries" (needed from token 0), "window" (with window=w: the rows of the last w - 1
/// tokens) or "state" (valid at one token only). record is the bytes of one entry and layer, or a
/// list of planes when the page holds all values first and all scales after. layers are the owner
/// layers. heads is the number of key-value heads that split the group over ranks, 0 = replicated.
#[pyclass(frozen, eq, from_py_object, module = "kvstore._core")]
#[derive(Clone, PartialEq)]
pub(crate) struct Group {
    inner: core::Group,
}

/// One record, or the bytes per entry of several planes.
#[derive(FromPyObject)]
enum Record {
    Packed(u32),
    Planes(Vec<u32>),
}

#[pymethods]
impl Group {
    #[new]
    #[pyo3(signature = (name, record, layers, *, kind="entries", window=None, ratio=1,
                        format="opaque", page_entries=0, align=1, heads=0, draft=false,
                        elements=0, span=None, feeds_entries_only=false))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments of one Python constructor")]
    fn new(
        name: String,
        record: Record,
        layers: Vec<u32>,
        kind: &str,
        window: Option<u32>,
        ratio: u32,
        format: &str,
        page_entries: u32,
        align: u32,
        heads: u32,
        draft: bool,
        elements: u32,
        span: Option<u32>,
        feeds_entries_only: bool,
    ) -> PyResult<Self> {
        let planes = match record {
            Record::Packed(bytes) => vec![bytes],
            Record::Planes(planes) => planes,
        };
        let mut inner = match (kind, window) {
            ("entries", None) => core::Group::entries(name, 0, layers),
            ("window", Some(w)) => core::Group::window(name, 0, layers, w),
            ("state", None) => core::Group::state(name, 0, layers),
            ("window", None) => {
                return Err(PyValueError::new_err(format!(
                    "group {name:?}: kind \"window\" needs window = its size in tokens"
                )));
            }
            ("entries" | "state", Some(w)) => {
                return Err(PyValueError::new_err(format!(
                    "group {name:?}: window = {w} belongs to kind \"window\", not to {kind:?}"
                )));
            }
            _ => {
                return Err(PyValueError::new_err(format!(
                    "group {name:?}: kind = {kind:?} must be \"entries\", \"window\" or \"state\""
                )));
            }
        };
        inner.ratio = ratio;
        inner.page = core::PageShape { format: format.to_owned(), planes, page_entries, align };
        inner.shard = if heads == 0 { core::Shard::Replicated } else { core::Shard::Heads(heads) };
        inner.draft = draft;
        inner.elements = elements;
        if let Some(state) = &mut inner.state {
            state.span = span;
            state.feeds_entries_only = feeds_entries_only;
        }
        Ok(Self { inner })
    }

    /// Name, unique in its layout.
    #[getter]
    fn name(&self) -> &str {
        &self.inner.name
    }

    /// "entries", "window" or "state".
    #[getter]
    fn kind(&self) -> &'static str {
        match self.inner.kind {
            core::Kind::Entries => "entries",
            core::Kind::Window(_) => "window",
            core::Kind::State => "state",
        }
    }

    /// Window in tokens, or None.
    #[getter]
    fn window(&self) -> Option<u32> {
        match self.inner.kind {
            core::Kind::Window(w) => Some(w),
            core::Kind::Entries | core::Kind::State => None,
        }
    }

    /// Owner layers, ascending.
    #[getter]
    fn layers(&self) -> Vec<u32> {
        self.inner.layers.clone()
    }

    /// Tokens per entry.
    #[getter]
    fn ratio(&self) -> u32 {
        self.inner.ratio
    }

    /// Logical bytes of one entry and layer.
    #[getter]
    fn record_bytes(&self) -> u64 {
        self.inner.record_bytes()
    }

    /// Bytes per entry of each plane of the page.
    #[getter]
    fn planes(&self) -> Vec<u32> {
        self.inner.page.planes.clone()
    }

    /// Name of the record format, scale rule included.
    #[getter]
    fn format(&self) -> &str {
        &self.inner.page.format
    }

    /// Entries of one engine page; 0 = all of the block.
    #[getter]
    fn page_entries(&self) -> u32 {
        self.inner.page.page_entries
    }

    /// Engine pages are padded to a multiple of this many bytes.
    #[getter]
    fn align(&self) -> u32 {
        self.inner.page.align
    }

    /// Key-value heads that split the group over ranks; 0 = the same on every rank.
    #[getter]
    fn heads(&self) -> u32 {
        match self.inner.shard {
            core::Shard::Replicated => 0,
            core::Shard::Heads(heads) => heads,
        }
    }

    /// Belongs to draft (MTP) layers.
    #[getter]
    fn draft(&self) -> bool {
        self.inner.draft
    }

    /// Numbers cached per entry and layer; 0 = not known.
    #[getter]
    fn elements(&self) -> u32 {
        self.inner.elements
    }

    fn __repr__(&self) -> String {
        let g = &self.inner;
        format!(
            "Group({:?}, {}, {} layers, kind={:?}, ratio={})",
            g.name,
            g.record_bytes(),
            g.layers.len(),
            self.kind(),
            g.ratio
        )
    }
}

/// The groups of a model with record formats, ratios, owners, windows and shard axes: enough to
/// account for each byte that its cache has, and to say where it lies.
#[pyclass(frozen, eq, module = "kvstore._core")]
#[derive(PartialEq)]
pub(crate) struct Layout {
    inner: core::Layout,
}

impl Layout {
    /// The layout itself, for the parts of this module that store with it.
    #[expect(dead_code, reason = "the store's namespace takes it")]
    pub(crate) fn inner(&self) -> &core::Layout {
        &self.inner
    }
}

fn groups_of(groups: Vec<Group>) -> Vec<core::Group> {
    groups.into_iter().map(|g| g.inner).collect()
}

#[pymethods]
impl Layout {
    /// A layout from groups written out by hand.
    #[staticmethod]
    fn by_hand(name: String, block_tokens: u32, groups: Vec<Group>) -> PyResult<Self> {
        let layout = core::Layout::new(name, block_tokens, groups_of(groups));
        Ok(Self { inner: layout.map_err(|e| raise(&e))? })
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
enum GroupRef {
    Index(usize),
    Name(String),
}

impl GroupRef {
    fn index(self, layout: &core::Layout) -> PyResult<usize> {
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
