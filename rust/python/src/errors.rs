//! Engine errors as the exceptions of `kvstore.errors`.

use kvstore_engine::{Error, ErrorKind};
use pyo3::import_exception;
use pyo3::prelude::*;

import_exception!(kvstore.errors, ClosedError);
import_exception!(kvstore.errors, DivergenceError);
import_exception!(kvstore.errors, ForkedError);
import_exception!(kvstore.errors, IncompatibleError);
import_exception!(kvstore.errors, InvalidArgument);
import_exception!(kvstore.errors, LimitError);
import_exception!(kvstore.errors, LockedError);
import_exception!(kvstore.errors, StoreIOError);

/// The exception for an engine's error.
pub(crate) fn raise(error: &Error) -> PyErr {
    let message = error.to_string();
    match error.kind() {
        ErrorKind::InvalidArgument => InvalidArgument::new_err(message),
        ErrorKind::Locked => LockedError::new_err((message, error.owner())),
        ErrorKind::Incompatible => IncompatibleError::new_err(message),
        ErrorKind::Io => StoreIOError::new_err(message),
        ErrorKind::Limit => LimitError::new_err(message),
        _ => ClosedError::new_err(message),
    }
}

/// A wrong argument: field, value and limit.
pub(crate) fn invalid(message: impl Into<String>) -> PyErr {
    InvalidArgument::new_err(message.into())
}
