//! Looking after a store: what `kvstore inspect`, `check` and `clear` are made of.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use kvstore_engine::identity::Description;
use kvstore_engine::store::{CheckReport, Damage, Inspection, Options};
use kvstore_index::Kind;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::border::engine;
use crate::errors::{invalid, raise};
use crate::hints::Snapshot;
use crate::store::Store;

type Dict<'py> = PyResult<Snapshot<'py>>;

/// How often a check tells how far it is.
const EVERY: Duration = Duration::from_millis(100);

/// Limits with which the store in a directory can be opened without changing it: a dict of
/// `disk_bytes` and `objects`. Nothing is opened, and nothing is made where no store is.
#[pyfunction]
pub(crate) fn existing_limits(py: Python<'_>, path: PathBuf) -> Dict<'_> {
    let options =
        engine(py, move || Options::of_existing(&path))?.map_err(|error| raise(&error))?;
    let dict = PyDict::new(py);
    dict.set_item("disk_bytes", options.disk_bytes)?;
    dict.set_item("objects", options.objects)?;
    Ok(dict.into())
}

/// Reads every object on disk and compares it with its checksum; with repair those that fail are
/// removed. progress is called now and then with objects done and in all.
///
/// Gives `objects` and `bytes` read, `removed`, and `damaged`: a dict per object that failed, of
/// `kind`, `namespace`, `segment`, `slot`, `bytes`, `key` (32 hex digits) and `why`.
#[pyfunction]
#[pyo3(signature = (store, *, repair=false, progress=None))]
pub(crate) fn check<'py>(
    py: Python<'py>,
    store: &Store,
    repair: bool,
    progress: Option<Py<PyAny>>,
) -> Dict<'py> {
    let store = store.engine()?;
    let mut told = Instant::now();
    let mut failed: PyResult<()> = Ok(());
    let outcome = &mut failed;
    let report = engine(py, move || {
        store.check(repair, |done, of| {
            let Some(progress) = progress.as_ref().filter(|_| told.elapsed() >= EVERY) else {
                return;
            };
            told = Instant::now();
            if outcome.is_ok() {
                *outcome = Python::attach(|py| progress.call1(py, (done, of)).map(|_| ()));
            }
        })
    })?;
    failed?;
    checked(py, &report.map_err(|error| raise(&error))?)
}

fn checked<'py>(py: Python<'py>, report: &CheckReport) -> Dict<'py> {
    let damaged = report.damaged.iter().map(|damage| damage_dict(py, damage));
    let dict = PyDict::new(py);
    dict.set_item("objects", report.objects)?;
    dict.set_item("bytes", report.bytes)?;
    dict.set_item("removed", report.removed)?;
    dict.set_item("damaged", PyList::new(py, damaged.collect::<PyResult<Vec<_>>>()?)?)?;
    Ok(dict.into())
}

fn damage_dict<'py>(py: Python<'py>, damage: &Damage) -> Dict<'py> {
    let dict = PyDict::new(py);
    dict.set_item(
        "kind",
        match damage.kind {
            Kind::Body => "body",
            Kind::Window => "window",
            Kind::Checkpoint => "checkpoint",
        },
    )?;
    dict.set_item("namespace", damage.namespace)?;
    dict.set_item("segment", damage.place.segment)?;
    dict.set_item("slot", damage.place.slot)?;
    dict.set_item("bytes", damage.length)?;
    dict.set_item("key", hex(&damage.fingerprint))?;
    dict.set_item("why", &damage.why)?;
    Ok(dict.into())
}

/// What a store is made of: identity, limits, classes, segments and namespaces, in dicts.
#[pyfunction]
pub(crate) fn inspect<'py>(py: Python<'py>, store: &Store) -> Dict<'py> {
    let store = store.engine()?;
    let found: Inspection = engine(py, || store.inspect())?;
    let dict = PyDict::new(py);
    dict.set_item("store", hex(&found.store))?;
    dict.set_item("version", found.version)?;
    dict.set_item("created_at", found.created_at)?;
    dict.set_item("generation", found.generation)?;
    dict.set_item("sequence", found.sequence)?;
    dict.set_item("segment_bytes", found.segment_bytes)?;
    dict.set_item("disk_bytes", found.disk_bytes)?;
    dict.set_item("max_disk_bytes", found.max_disk_bytes)?;
    dict.set_item("classes", &found.classes)?;
    let segments = PyList::empty(py);
    for segment in &found.segments {
        let row = PyDict::new(py);
        row.set_item("segment", segment.segment)?;
        row.set_item("phase", segment.phase)?;
        row.set_item("stride", segment.stride)?;
        row.set_item("generation", segment.generation)?;
        row.set_item("slots", segment.slots)?;
        row.set_item("live", segment.live)?;
        segments.append(row)?;
    }
    dict.set_item("segments", segments)?;
    let namespaces = PyList::empty(py);
    for namespace in &found.namespaces {
        let row = PyDict::new(py);
        row.set_item("index", namespace.index)?;
        row.set_item("digest", hex(&namespace.digest))?;
        row.set_item("epoch", namespace.epoch)?;
        row.set_item("objects", namespace.objects)?;
        let description = namespace.description.as_ref();
        row.set_item("description", description.map(|d| described(py, d)).transpose()?)?;
        namespaces.append(row)?;
    }
    dict.set_item("namespaces", namespaces)?;
    Ok(dict.into())
}

fn described<'py>(py: Python<'py>, description: &Description) -> Dict<'py> {
    let weights = description.weights();
    let dict = PyDict::new(py);
    dict.set_item("model", description.model())?;
    dict.set_item("revision", description.revision())?;
    dict.set_item("weights", format!("{}:{}", weights.kind, hex(&weights.digest)))?;
    dict.set_item("adapter", hex(description.adapter()))?;
    dict.set_item("dtype", description.dtype())?;
    dict.set_item("scale_rule", description.scale_rule())?;
    dict.set_item("layout", hex(description.layout()))?;
    dict.set_item("block_tokens", description.block_tokens())?;
    let axes = PyDict::new(py);
    for axis in description.axes() {
        axes.set_item(&axis.name, (axis.rank, axis.size))?;
    }
    dict.set_item("axes", axes)?;
    Ok(dict.into())
}

/// Makes everything in the namespaces whose digest begins with these hex digits unreachable; the
/// number of objects. All namespaces begin with "". erase=True also overwrites them.
#[pyfunction]
#[pyo3(signature = (store, digest, *, erase=false))]
pub(crate) fn clear_namespaces(
    py: Python<'_>,
    store: &Store,
    digest: &str,
    erase: bool,
) -> PyResult<u64> {
    let store = store.engine()?;
    let wanted = digest.to_ascii_lowercase();
    let found: Vec<[u8; 32]> = engine(py, || store.inspect())?
        .namespaces
        .iter()
        .map(|namespace| namespace.digest)
        .filter(|digest| hex(digest).starts_with(&wanted))
        .collect();
    if found.is_empty() && !wanted.is_empty() {
        return Err(invalid(format!("no namespace of this store has a digest with {digest:?}")));
    }
    let mut objects = 0;
    for digest in &found {
        objects +=
            engine(py, || store.clear_namespace(digest, erase))?.map_err(|error| raise(&error))?;
    }
    Ok(objects)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
