//! A snapshot of a store as nested dicts.

use std::collections::BTreeMap;

use kvstore_engine::store::{Counters, MissReason, Recovered, Stats};
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyDict};

type Dict<'py> = PyResult<Bound<'py, PyDict>>;

/// Makes a dict of the named fields of a struct.
macro_rules! fields {
    ($py:expr, $of:expr, $($field:ident),*) => {{
        let dict = PyDict::new($py);
        $(dict.set_item(stringify!($field), $of.$field)?;)*
        dict
    }};
}

pub(crate) fn dict<'py>(py: Python<'py>, stats: &Stats) -> Dict<'py> {
    let dict = fields!(py, stats, objects, pins, in_flight, queued_writes, poisoned);
    let host = &stats.host;
    dict.set_item(
        "host",
        fields!(py, host, limit, arena, index, used, pinned, dirty, kind, backing),
    )?;
    let mirror = &stats.mirror;
    let marks = fields!(py, mirror, limit, bytes, workers, slots, marks, stale);
    dict.set_item("mirror", marks)?;
    let disk = &stats.disk;
    let tier = fields!(
        py,
        disk,
        limit,
        segment_bytes,
        segments,
        segments_free,
        objects,
        logical,
        slots,
        descriptors,
        fixed,
        quarantined
    );
    tier.set_item("classes", (&disk.classes).into_py_dict(py)?)?;
    let path = &disk.path;
    tier.set_item("path", fields!(py, path, engine, direct, unit, allocation))?;
    tier.set_item("path_why", &path.why)?;
    dict.set_item("disk", tier)?;
    dict.set_item("counters", counters(py, &stats.counters)?)?;
    dict.set_item("recovered", recovered(py, &stats.recovered)?)?;
    Ok(dict)
}

fn counters<'py>(py: Python<'py>, counters: &Counters) -> Dict<'py> {
    let dict = fields!(
        py,
        counters,
        lookups,
        hits_mirror,
        hits_host,
        hits_disk,
        reads_asked,
        reads_given,
        leases_overdue,
        puts_stored,
        puts_exists,
        puts_busy,
        puts_cancelled,
        puts_divergent,
        evicted_host,
        evicted_disk,
        evicted,
        expired,
        failed_checks,
        io_errors,
        no_space_evictions,
        bytes_read,
        bytes_written,
        pages_written,
        segments_drained,
        objects_moved
    );
    dict.set_item("misses", reasons(py, &counters.misses)?)?;
    dict.set_item("reads_missed", reasons(py, &counters.reads_missed)?)?;
    dict.set_item("puts_rejected", (&counters.puts_rejected).into_py_dict(py)?)?;
    Ok(dict)
}

fn reasons<'py>(py: Python<'py>, reasons: &BTreeMap<MissReason, u64>) -> Dict<'py> {
    reasons.iter().map(|(reason, count)| (reason.name(), *count)).into_py_dict(py)
}

fn recovered<'py>(py: Python<'py>, recovered: &Recovered) -> Dict<'py> {
    let dict = fields!(
        py,
        recovered,
        objects,
        cleared,
        expired,
        duplicates,
        orphan_parts,
        damaged,
        no_room,
        created,
        seconds
    );
    let unreadable = &recovered.unreadable;
    dict.set_item("unreadable", fields!(py, unreadable, table_pages, directory_pages))?;
    Ok(dict)
}
