//! The Python extension module `kvstore._core`: glue without logic.

use pyo3::prelude::*;

/// The compiled part of the `kvstore` package.
#[pymodule]
mod _core {}
