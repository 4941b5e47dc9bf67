//! The Python extension module `kvstore._core`: glue without logic.

mod layout;

use pyo3::prelude::*;

/// The compiled part of the `kvstore` package.
#[pymodule]
mod _core {
    #[pymodule_export]
    use super::layout::{Group, Layout};
}
