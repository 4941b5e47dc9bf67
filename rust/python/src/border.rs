//! The border to the engine: without the interpreter's lock, and no panic crosses it (contract C4).

use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::prelude::*;

use crate::errors::ClosedError;

/// What a caught panic said.
pub(crate) struct Panicked(pub(crate) String);

impl From<Panicked> for PyErr {
    fn from(panicked: Panicked) -> Self {
        ClosedError::new_err(format!(
            "the engine has failed and answers misses from now on: {}",
            panicked.0
        ))
    }
}

/// Runs an engine call while other Python threads run.
pub(crate) fn engine<T: Send>(
    py: Python<'_>,
    call: impl FnOnce() -> T + Send,
) -> Result<T, Panicked> {
    py.detach(|| {
        catch_unwind(AssertUnwindSafe(call)).map_err(|payload| {
            let said = payload
                .downcast_ref::<&str>()
                .map(|text| (*text).to_owned())
                .or_else(|| payload.downcast_ref::<String>().cloned());
            Panicked(said.unwrap_or_else(|| "a panic without a message".to_owned()))
        })
    })
}
