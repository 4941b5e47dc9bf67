//! Leases: a context manager over pinned objects, and their views.

use std::sync::Arc;

use kvstore_engine::store::{Item, Lease as EngineLease};
use kvstore_layout::Area;
use parking_lot::Mutex;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;

use crate::errors::{ClosedError, invalid};
use crate::layout::GroupRef;
use crate::matching::Plan;
use crate::namespace::Handle;
use crate::process::Local;
use crate::view::{View, Views};

/// Pinned objects of one plan, read and verified; a context manager, and the sequence of its
/// bodies.
///
/// `lease[i]` is the body of block i. Views that were taken keep their memory after the block (see
/// View); the lease itself gives no new ones then, nor after its deadline.
#[pyclass(frozen, module = "kvstore._core")]
pub(crate) struct Lease {
    handle: Arc<Handle>,
    plan: Py<Plan>,
    blocks: usize,
    windows: std::ops::Range<u32>,
    lease: Mutex<Option<Local<EngineLease>>>,
}

impl Lease {
    pub(crate) fn new(handle: Arc<Handle>, plan: Py<Plan>, lease: EngineLease) -> Self {
        let blocks = lease.plan().bodies.len();
        let windows = lease.plan().windows.clone();
        Self { handle, plan, blocks, windows, lease: Mutex::new(Some(Local::new(lease))) }
    }

    /// An object of the lease, by `find`; `None` when the plan has no such object.
    fn item(&self, find: impl FnOnce(&EngineLease) -> Option<&Item>) -> PyResult<Option<Item>> {
        let lease = self.lease.lock();
        let lease = lease.as_ref().ok_or_else(ended)?.get()?;
        if lease.is_over() {
            return Err(overdue());
        }
        Ok(find(lease).cloned())
    }

    fn body(&self, block: usize) -> PyResult<Item> {
        let blocks = self.blocks;
        let item = u32::try_from(block).ok().filter(|_| block < blocks);
        let Some(block) = item else {
            return Err(PyIndexError::new_err(format!(
                "block {block}: the lease has {blocks} bodies"
            )));
        };
        self.item(|lease| lease.body(block))?.ok_or_else(|| {
            invalid(format!(
                "block {block}: the worker that matched holds it, the lease has not read it"
            ))
        })
    }

    fn window_item(&self, block: u32) -> PyResult<Item> {
        self.item(|lease| lease.window(block))?.ok_or_else(|| {
            PyIndexError::new_err(format!(
                "window {block}: the lease has windows {} to {} (end excluded)",
                self.windows.start, self.windows.end
            ))
        })
    }
}

#[pymethods]
impl Lease {
    /// What was really got: a plan like that of `match`, shorter where an object failed.
    #[getter]
    fn plan(&self, py: Python<'_>) -> Py<Plan> {
        self.plan.clone_ref(py)
    }

    fn __len__(&self) -> usize {
        self.blocks
    }

    /// The body of one block; negative numbers count from the last. A block that the worker that
    /// matched holds itself ("mirror" in plan.blocks) was not read.
    fn __getitem__(&self, block: isize) -> PyResult<View> {
        let at = if block < 0 { block.wrapping_add_unsigned(self.blocks) } else { block };
        let at = usize::try_from(at).map_err(|_| {
            PyIndexError::new_err(format!("block {block}: the lease has {} bodies", self.blocks))
        })?;
        whole(&self.body(at)?, &format!("the body of block {at}"), &format!("parts({at})"))
    }

    fn __iter__<'py>(this: &Bound<'py, Self>) -> PyResult<Views<'py>> {
        Views::of(this)
    }

    /// The window object of one block of `plan.windows`.
    fn window(&self, block: u32) -> PyResult<View> {
        let name = format!("the window of block {block}");
        whole(&self.window_item(block)?, &name, &format!("parts({block}, \"window\")"))
    }

    /// The plan's checkpoint, or None.
    #[getter]
    fn checkpoint(&self) -> PyResult<Option<View>> {
        let item = self.item(EngineLease::checkpoint)?;
        item.map(|item| whole(&item, "the checkpoint", "parts(0, \"checkpoint\")")).transpose()
    }

    /// The pieces that an object is stored in, in order: most have one. area is "body", "window" or
    /// "checkpoint" (of which a plan has one, whatever the block).
    #[pyo3(signature = (block, area="body"))]
    fn parts(&self, block: u32, area: &str) -> PyResult<Vec<View>> {
        let item = match area {
            "body" => self.body(block as usize)?,
            "window" => self.window_item(block)?,
            "checkpoint" => self
                .item(EngineLease::checkpoint)?
                .ok_or_else(|| PyIndexError::new_err("the plan has no checkpoint"))?,
            _ => {
                return Err(invalid(format!(
                    "area is {area:?}: it takes \"body\", \"window\" or \"checkpoint\""
                )));
            }
        };
        pieces(&item)
    }

    /// The page of one group and owner layer in one block: zero-copy, unless it crosses a cut
    /// between parts. group is a name or an index. State groups are at the plan's checkpoint only,
    /// whatever the block.
    fn page(&self, block: u32, group: GroupRef, layer: u32) -> PyResult<View> {
        let layout = self.handle.layout();
        let index = group.index(layout)?;
        let page = layout.page(index, layer).ok_or_else(|| {
            let layers = layout.groups().get(index).map(|group| group.layers.clone());
            invalid(format!("layer {layer} owns no page of group {index}: {layers:?} do"))
        })?;
        let item = match page.area {
            Area::Body => self.body(block as usize)?,
            Area::Window => self.window_item(block)?,
            Area::Checkpoint => self
                .item(EngineLease::checkpoint)?
                .ok_or_else(|| PyIndexError::new_err("the plan has no checkpoint"))?,
        };
        let start = page.offset as usize;
        View::of(&item, start..start + page.len as usize)
    }

    /// Ends the lease: no new views. Views that were taken live on.
    fn close(&self) {
        let lease = self.lease.lock().take();
        drop(lease);
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
        format!("<Lease of {} blocks>", self.blocks)
    }
}

/// The error of a lease after its block.
pub(crate) fn ended() -> PyErr {
    ClosedError::new_err("the lease has ended: take views inside its with block, or copies")
}

/// The error of a lease after its deadline.
pub(crate) fn overdue() -> PyErr {
    ClosedError::new_err("the lease's deadline has passed: it gives no new views; lease again")
}

/// The one view of an object that is not in parts.
pub(crate) fn whole(item: &Item, name: &str, instead: &str) -> PyResult<View> {
    if item.parts() > 1 {
        return Err(invalid(format!(
            "{name} is stored in {} parts, which have no common view: use {instead}, page() or \
             get_into()",
            item.parts()
        )));
    }
    View::of(item, 0..item.len())
}

/// One view per part.
pub(crate) fn pieces(item: &Item) -> PyResult<Vec<View>> {
    let mut start = 0;
    item.part_lengths()
        .map(|len| {
            let range = start..start + len;
            start = range.end;
            View::of(item, range)
        })
        .collect()
}
