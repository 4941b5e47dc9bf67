//! The Python extension module `kvstore._core`: glue without logic.
//!
//! Every call that copies or waits detaches from the interpreter first; engine threads never call
//! into Python. Handles remember their process and refuse to work in a forked child, before they
//! touch a lock that nobody there will release ([`process`]). A panic of the engine becomes a miss
//! ([`border`]).

mod arena;
mod batch;
mod border;
mod buffers;
mod care;
mod codec;
mod digest;
mod dlpack;
mod errors;
mod explain;
mod hints;
mod keyed;
mod layout;
mod lease;
mod matching;
mod mirror;
mod namespace;
mod open;
mod process;
mod put;
mod sim;
mod sizes;
mod stats;
mod store;
mod tokens;
mod view;

use pyo3::prelude::*;

/// The compiled part of the `kvstore` package.
#[pymodule]
mod _core {
    #[pymodule_export]
    use super::arena::ArenaRange;
    #[pymodule_export]
    use super::batch::{Batch, Status, Statuses};
    #[pymodule_export]
    use super::care::{check, clear_namespaces, existing_limits, inspect};
    #[pymodule_export]
    use super::codec::codec;
    #[pymodule_export]
    use super::digest::Blake3;
    #[pymodule_export]
    use super::explain::{Explanation, FieldDifference, Usage};
    #[pymodule_export]
    use super::keyed::{Keyed, KeyedLease, KeyedMatch};
    #[pymodule_export]
    use super::layout::{
        Architecture, Group, Layout, ResumePlan, architectures, keep, records, resume_plan,
        usage_tokens,
    };
    #[pymodule_export]
    use super::lease::Lease;
    #[pymodule_export]
    use super::matching::{Answers, Plan};
    #[pymodule_export]
    use super::mirror::{Mirror, Worker};
    #[pymodule_export]
    use super::namespace::Namespace;
    #[pymodule_export]
    use super::open::open;
    #[pymodule_export]
    use super::process::close_all;
    #[pymodule_export]
    use super::sim::{Trace, capacity_blocks, read_trace, simulate, trace_info};
    #[pymodule_export]
    use super::sizes::parse_size;
    #[pymodule_export]
    use super::store::Store;
    #[pymodule_export]
    use super::view::View;
}
