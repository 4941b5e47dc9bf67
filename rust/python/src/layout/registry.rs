//! The registry of architectures for Python.

use kvstore_layout as core;
use kvstore_layout::registry::{Registry, RegistryError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::Layout;

pub(super) fn raise(error: &RegistryError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

/// The built-in registry, or that and a user's TOML text.
pub(super) fn with<T>(
    toml: Option<(&str, &str)>,
    use_it: impl FnOnce(&Registry) -> Result<T, RegistryError>,
) -> PyResult<T> {
    let result = match toml {
        None => use_it(Registry::built_in()),
        Some((origin, text)) => {
            Registry::with_file(origin, text).and_then(|registry| use_it(&registry))
        }
    };
    result.map_err(|error| raise(&error))
}

/// One architecture of the registry: what is known about it, and its layouts by form.
#[pyclass(frozen, module = "kvstore._core")]
pub(crate) struct Architecture {
    inner: core::registry::Architecture,
}

#[pymethods]
impl Architecture {
    /// Name.
    #[getter]
    fn name(&self) -> &str {
        &self.inner.name
    }

    /// Other names of the same cache.
    #[getter]
    fn aliases(&self) -> Vec<String> {
        self.inner.aliases.clone()
    }

    /// Name as people write it.
    #[getter]
    fn title(&self) -> &str {
        &self.inner.title
    }

    /// Family.
    #[getter]
    fn family(&self) -> &str {
        &self.inner.family
    }

    /// Day of release, year first; empty when not known.
    #[getter]
    fn released(&self) -> &str {
        &self.inner.released
    }

    /// Attention mechanism in a few words.
    #[getter]
    fn mechanism(&self) -> &str {
        &self.inner.mechanism
    }

    /// The predecessor that its factors are compared with.
    #[getter]
    fn after(&self) -> Option<String> {
        self.inner.after.clone()
    }

    /// Layers of the model, draft layers left out.
    #[getter]
    fn layers(&self) -> u32 {
        self.inner.layers
    }

    /// Where the numbers are from.
    #[getter]
    fn source(&self) -> &str {
        &self.inner.source
    }

    /// "H", "M" or "L": how sure they are.
    #[getter]
    fn confidence(&self) -> &str {
        &self.inner.confidence
    }

    /// Not a model that was released.
    #[getter]
    fn counterfactual(&self) -> bool {
        self.inner.counterfactual
    }

    /// Weights as (parameters in billions, bytes per parameter, source), where known.
    #[getter]
    fn weights(&self) -> Option<(f64, f64, String)> {
        let weights = self.inner.weights.as_ref()?;
        Some((weights.billions, weights.bytes_per_parameter, weights.source.clone()))
    }

    /// The form that stands for it in tables.
    #[getter]
    fn default_form(&self) -> &str {
        &self.inner.default_form
    }

    /// Forms and their sources.
    #[getter]
    fn forms(&self) -> Vec<(String, String)> {
        self.inner.forms().map(|(name, source)| (name.to_owned(), source.to_owned())).collect()
    }

    /// Its layout in a form, the default one when None. With draft=True the groups of draft (MTP)
    /// layers are included.
    #[pyo3(signature = (form=None, *, draft=false))]
    fn layout(&self, form: Option<&str>, draft: bool) -> PyResult<Layout> {
        let layout = self.inner.layout(form, draft).map_err(|error| raise(&error))?;
        Ok(Layout { inner: layout })
    }

    fn __repr__(&self) -> String {
        format!("<Architecture {}: {}>", self.inner.name, self.inner.mechanism)
    }
}

/// All architectures of the registry, in its order. toml is the text of a user's file whose entries
/// are added, origin its name in errors.
#[pyfunction]
#[pyo3(signature = (toml=None, *, origin="toml"))]
pub(crate) fn architectures(toml: Option<&str>, origin: &str) -> PyResult<Vec<Architecture>> {
    with(toml.map(|text| (origin, text)), |registry| {
        let all = registry.architectures().iter();
        Ok(all.map(|inner| Architecture { inner: inner.clone() }).collect())
    })
}

/// All named record formats as (name, bytes per entry of each plane, source).
#[pyfunction]
pub(crate) fn records() -> Vec<(String, Vec<u32>, String)> {
    let all = Registry::built_in().records();
    all.map(|r| (r.name.clone(), r.planes.clone(), r.source.clone())).collect()
}
