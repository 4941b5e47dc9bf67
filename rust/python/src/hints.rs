//! Types of arguments and results as the stubs name them: those that Rust types do not say.

use pyo3::BoundObject;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

/// Newtypes over any object, named `kvstore.types.NAME` in the stubs.
macro_rules! arguments {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone)]
        pub(crate) struct $name<'py>(pub(crate) pyo3::Bound<'py, pyo3::PyAny>);

        impl<'py> pyo3::FromPyObject<'_, 'py> for $name<'py> {
            type Error = std::convert::Infallible;
            const INPUT_TYPE: pyo3::inspect::PyStaticExpr =
                pyo3::type_hint_identifier!("kvstore.types", stringify!($name));

            fn extract(object: pyo3::Borrowed<'_, 'py, pyo3::PyAny>) -> Result<Self, Self::Error> {
                Ok(Self(object.to_owned()))
            }
        }
    )*};
}

/// Results that are made by Python code.
macro_rules! results {
    ($($(#[$doc:meta])* $name:ident = $hint:expr;)*) => {$(
        $(#[$doc])*
        pub(crate) struct $name<'py>(pub(crate) pyo3::Bound<'py, pyo3::PyAny>);

        impl<'py> pyo3::IntoPyObject<'py> for $name<'py> {
            type Target = pyo3::PyAny;
            type Output = pyo3::Bound<'py, pyo3::PyAny>;
            type Error = std::convert::Infallible;
            const OUTPUT_TYPE: pyo3::inspect::PyStaticExpr = $hint;

            fn into_pyobject(self, _py: pyo3::Python<'py>) -> Result<Self::Output, Self::Error> {
                Ok(self.0)
            }
        }
    )*};
}

/// Results of the `_async` twins: a coroutine that runs the method in another thread.
macro_rules! soon {
    ($($(#[$doc:meta])* $name:ident = $result:ty;)*) => {
        crate::hints::results! {$(
            $(#[$doc])*
            $name = pyo3::type_hint_subscript!(
                pyo3::type_hint_identifier!("collections.abc", "Coroutine"),
                pyo3::type_hint_identifier!("typing", "Any"),
                pyo3::type_hint_identifier!("typing", "Any"),
                <$result as pyo3::IntoPyObject<'static>>::OUTPUT_TYPE
            );
        )*}
        $(
            impl<'py> $name<'py> {
                fn call(
                    object: &pyo3::Bound<'py, pyo3::PyAny>,
                    method: &str,
                    arguments: impl pyo3::IntoPyObject<'py, Target = pyo3::types::PyTuple>,
                    named: Option<&pyo3::Bound<'py, pyo3::types::PyDict>>,
                ) -> pyo3::PyResult<Self> {
                    crate::hints::in_thread(object, method, arguments, named).map(Self)
                }
            }
        )*
    };
}

/// `asyncio.to_thread(object.method, *arguments, **named)`.
pub(crate) fn in_thread<'py>(
    object: &Bound<'py, PyAny>,
    method: &str,
    arguments: impl IntoPyObject<'py, Target = PyTuple>,
    named: Option<&Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = object.py();
    let arguments = arguments.into_pyobject(py).map_err(Into::into)?.into_bound();
    let call = PyTuple::new(py, [object.getattr(method)?])?.add(arguments)?;
    py.import("asyncio")?.getattr("to_thread")?.call(call.cast::<PyTuple>()?, named)
}

/// Results of `__iter__`: the items of a sequence, each made when its turn comes.
macro_rules! iterators {
    ($($(#[$doc:meta])* $name:ident = $item:ty;)*) => {
        crate::hints::results! {$(
            $(#[$doc])*
            $name = pyo3::type_hint_subscript!(
                pyo3::type_hint_identifier!("collections.abc", "Iterator"),
                <$item as pyo3::IntoPyObject<'static>>::OUTPUT_TYPE
            );
        )*}
        $(
            impl<'py> $name<'py> {
                fn over(sequence: &pyo3::Bound<'py, pyo3::PyAny>) -> pyo3::PyResult<Self> {
                    crate::hints::iterate(sequence).map(Self)
                }
            }
        )*
    };
}

/// An iterator that asks a sequence for item 0, 1, 2 and so on.
pub(crate) fn iterate<'py>(sequence: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the object is alive and this thread holds the interpreter; the result is a new
    // reference, or null with an exception set.
    unsafe {
        let iterator = ffi::PySeqIter_New(sequence.as_ptr());
        Bound::from_owned_ptr_or_err(sequence.py(), iterator)
    }
}

pub(crate) use {arguments, iterators, results, soon};

results! {
    /// A dict by name.
    Snapshot = pyo3::type_hint_subscript!(
        pyo3::type_hint_identifier!("builtins", "dict"),
        pyo3::type_hint_identifier!("builtins", "str"),
        pyo3::type_hint_identifier!("typing", "Any")
    );
    /// A DLPack capsule.
    Capsule = pyo3::type_hint_identifier!("typing_extensions", "CapsuleType");
}

impl<'py> From<Bound<'py, PyDict>> for Snapshot<'py> {
    fn from(dict: Bound<'py, PyDict>) -> Self {
        Self(dict.into_any())
    }
}
