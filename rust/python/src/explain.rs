//! Answers for people: why a prompt hits no more, and what it is billed as.

use kvstore_engine::identity::FieldDiff;
use kvstore_engine::store::Explanation as Explained;
use kvstore_layout::{Usage as Counted, usage};
use pyo3::prelude::*;

use crate::errors::invalid;

/// Prompt, hit and miss tokens, in whole units.
#[pyclass(frozen, eq, module = "kvstore._core")]
#[derive(PartialEq)]
pub(crate) struct Usage(Counted);

impl Usage {
    pub(crate) fn of(tokens: u32, matched: u32, usable: u32, unit: u32) -> PyResult<Self> {
        if unit == 0 {
            return Err(invalid("unit is 0: it takes at least 1 token"));
        }
        Ok(Self(usage(tokens, matched, usable, unit)))
    }
}

#[pymethods]
impl Usage {
    /// Tokens of the prompt.
    #[getter]
    fn prompt_tokens(&self) -> u32 {
        self.0.prompt_tokens
    }

    /// Tokens that come from the store: a multiple of the unit, at most prompt_tokens - 1.
    #[getter]
    fn hit_tokens(&self) -> u32 {
        self.0.hit_tokens
    }

    /// The rest.
    #[getter]
    fn miss_tokens(&self) -> u32 {
        self.0.miss_tokens
    }

    /// The first unit that differs from what is stored; None when all of it is stored.
    #[getter]
    fn first_difference(&self) -> Option<u32> {
        self.0.first_difference
    }

    fn __repr__(&self) -> String {
        let Counted { prompt_tokens, hit_tokens, miss_tokens, first_difference } = self.0;
        let first_difference = first_difference.map_or("None".into(), |unit| unit.to_string());
        format!(
            "Usage(prompt_tokens={prompt_tokens}, hit_tokens={hit_tokens}, \
             miss_tokens={miss_tokens}, first_difference={first_difference})"
        )
    }
}

/// A field of the namespace description that differs.
#[pyclass(frozen, eq, module = "kvstore._core")]
#[derive(Clone, PartialEq)]
pub(crate) struct FieldDifference(FieldDiff);

#[pymethods]
impl FieldDifference {
    /// Name of the field; "axes.tp" and "extra.rope" name the entry.
    #[getter]
    fn field(&self) -> &str {
        &self.0.field
    }

    /// Its value in this namespace, as text.
    #[getter]
    fn here(&self) -> &str {
        &self.0.here
    }

    /// Its value in the other one.
    #[getter]
    fn there(&self) -> &str {
        &self.0.there
    }

    fn __repr__(&self) -> String {
        self.0.to_string()
    }
}

/// Why a prompt hits no more than it does. Asking counts no look-up.
#[pyclass(frozen, module = "kvstore._core")]
pub(crate) struct Explanation(pub(crate) Explained);

#[pymethods]
impl Explanation {
    /// Tokens of the prompt.
    #[getter]
    fn tokens(&self) -> u32 {
        self.0.tokens
    }

    /// Tokens whose entries are stored without a hole.
    #[getter]
    fn matched(&self) -> u32 {
        self.0.matched
    }

    /// Tokens from which the prompt can go on.
    #[getter]
    fn usable(&self) -> u32 {
        self.0.usable
    }

    /// The first block that cannot be used; None when every whole block can.
    #[getter]
    fn block(&self) -> Option<u32> {
        self.0.missing.map(|(block, _)| block)
    }

    /// Why: the reason of a miss.
    #[getter]
    fn reason(&self) -> Option<&'static str> {
        self.0.missing.map(|(_, reason)| reason.name())
    }

    /// Fields in which the nearest namespace with objects differs, where this one has none.
    #[getter]
    fn differs(&self) -> Vec<FieldDifference> {
        self.0.differs.iter().cloned().map(FieldDifference).collect()
    }

    /// All of it in one sentence.
    fn __str__(&self) -> String {
        let Explained { tokens, matched, usable, missing, differs } = &self.0;
        let mut text = format!("{usable} of {tokens} tokens can be used, {matched} are stored");
        if let Some((block, reason)) = missing {
            text += &format!("; block {block} is a miss: {}", reason.name());
        }
        if !differs.is_empty() {
            let fields: Vec<_> = differs.iter().map(ToString::to_string).collect();
            text += "; nothing is stored in this namespace, the nearest differs in ";
            text += &fields.join(", ");
        }
        text
    }

    fn __repr__(&self) -> String {
        format!("<Explanation: {}>", self.__str__())
    }
}
