//! Groups for Python.

use kvstore_layout as core;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Layers of a model that keep the same kind of cache, and the bytes of one entry.
///
/// kind is "entries" (needed from token 0), "window" (with window=w: the rows of the last w - 1
/// tokens) or "state" (valid at one token only). record is the bytes of one entry and layer, or a
/// list of planes when the page holds all values first and all scales after. layers are the owner
/// layers. heads is the number of key-value heads that split the group over ranks, 0 = replicated.
/// reads are (layers, most) pairs: so many layers read at most so many entries in a decode step,
/// None = all.
#[pyclass(frozen, eq, from_py_object, module = "kvstore._core")]
#[derive(Clone, PartialEq)]
pub(crate) struct Group {
    pub(super) inner: core::Group,
}

/// One record, or the bytes per entry of several planes.
#[derive(FromPyObject)]
enum Record {
    Packed(u32),
    Planes(Vec<u32>),
}

fn kind_of(name: &str, kind: &str, window: Option<u32>) -> PyResult<core::Kind> {
    let message = match (kind, window) {
        ("entries", None) => return Ok(core::Kind::Entries),
        ("window", Some(w)) => return Ok(core::Kind::Window(w)),
        ("state", None) => return Ok(core::Kind::State),
        ("window", None) => "kind \"window\" needs window = its size in tokens".to_owned(),
        ("entries" | "state", Some(w)) => {
            format!("window = {w} belongs to kind \"window\", not to {kind:?}")
        }
        _ => format!("kind = {kind:?} must be \"entries\", \"window\" or \"state\""),
    };
    Err(PyValueError::new_err(format!("group {name:?}: {message}")))
}

#[pymethods]
impl Group {
    #[new]
    #[pyo3(signature = (name, record, layers, *, kind="entries", window=None, ratio=1,
                        format="opaque", page_entries=0, align=1, heads=0, draft=false,
                        elements=0, span=None, feeds_entries_only=false, reads=Vec::new()))]
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
        reads: Vec<(u32, Option<u32>)>,
    ) -> PyResult<Self> {
        let planes = match record {
            Record::Packed(bytes) => vec![bytes],
            Record::Planes(planes) => planes,
        };
        let kind = kind_of(&name, kind, window)?;
        let mut inner = core::Group::entries(name, 0, layers);
        inner.kind = kind;
        inner.ratio = ratio;
        inner.page = core::PageShape { format: format.to_owned(), planes, page_entries, align };
        inner.shard = if heads == 0 { core::Shard::Replicated } else { core::Shard::Heads(heads) };
        inner.draft = draft;
        inner.elements = elements;
        if kind == core::Kind::State {
            let recurrent = core::StateRows::RECURRENT;
            inner.state = Some(core::StateRows { span, feeds_entries_only, ..recurrent });
        }
        let reads = reads.into_iter().map(|(layers, most)| core::Read {
            layers,
            what: most.map_or(core::Reads::All, core::Reads::AtMost),
        });
        inner.reads = reads.collect();
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
