//! The Python extension module `kvstore._core`: glue without logic.

mod codec;
mod layout;
mod sim;

use pyo3::prelude::*;

/// The compiled part of the `kvstore` package.
#[pymodule]
mod _core {
    #[pymodule_export]
    use super::codec::codec;
    #[pymodule_export]
    use super::layout::{
        Architecture, Group, Layout, ResumePlan, architectures, keep, records, resume_plan,
        usage_tokens,
    };
    #[pymodule_export]
    use super::sim::{Trace, read_trace, simulate, trace_info};
}
