//! Token ids from any integer buffer, any CPU tensor, or a list that is converted once.

use kvstore_engine::identity::{Token, token_ids};
use pyo3::prelude::*;
use pyo3::types::{PyInt, PySequence, PyString};

use crate::buffers::{Memory, Number};
use crate::errors::invalid;
use crate::hints::arguments;
use crate::sizes::shown;

arguments! {
    /// One prompt: a one-dimensional integer buffer or CPU tensor, or a list of integers. `None` is
    /// the prompt without tokens.
    TokenIds;
}

impl TokenIds<'_> {
    /// The ids as the chain hashes them.
    pub(crate) fn ids(self) -> PyResult<Vec<u32>> {
        if self.0.is_none() {
            return Ok(Vec::new());
        }
        let has_memory = Memory::is_of(&self.0)?;
        let is_text = self.0.is_instance_of::<PyString>();
        if !has_memory && !is_text && self.0.cast::<PySequence>().is_ok() {
            return self.0.try_iter()?.enumerate().map(|(at, id)| one(at, &id?)).collect();
        }
        if !has_memory {
            return Err(invalid(format!(
                "token_ids is {}: it takes a list of integers, an integer buffer or a CPU tensor",
                shown(&self.0)
            )));
        }
        let memory = Memory::of(&self.0, "token_ids")?;
        let number = memory.number;
        if memory.shape.len() != 1 {
            return Err(invalid(format!(
                "token_ids has {} dimensions: it takes one prompt of one dimension (of a batch, one \
                 row)",
                memory.shape.len()
            )));
        }
        let ids = self.0.py().detach(|| match number {
            Number::Unsigned(1) => convert(&memory.items::<u8>()),
            Number::Unsigned(2) => convert(&memory.items::<u16>()),
            Number::Unsigned(4) => convert(&memory.items::<u32>()),
            Number::Unsigned(8) => convert(&memory.items::<u64>()),
            Number::Signed(1) => convert(&widened(&memory.items::<i8>())),
            Number::Signed(2) => convert(&widened(&memory.items::<i16>())),
            Number::Signed(4) => convert(&memory.items::<i32>()),
            Number::Signed(8) => convert(&memory.items::<i64>()),
            _ => Ok(None),
        });
        ids.map_err(invalid)?.ok_or_else(|| {
            invalid(format!(
                "token_ids has items of type {}: it takes integers of 8 to 64 bits in this \
                 machine's byte order",
                memory.format
            ))
        })
    }
}

fn convert<T: Token>(tokens: &[T]) -> Result<Option<Vec<u32>>, String> {
    token_ids(tokens).map(Some).map_err(|error| error.to_string())
}

fn widened<T: Copy + Into<i32>>(tokens: &[T]) -> Vec<i32> {
    tokens.iter().map(|&token| token.into()).collect()
}

fn one(at: usize, id: &Bound<'_, PyAny>) -> PyResult<u32> {
    id.extract::<u32>().map_err(|error| {
        let whole = id.is_instance_of::<PyInt>() || id.hasattr("__index__").unwrap_or(false);
        let why = if whole { "a token id is 0 to 4294967295" } else { "a token id is an integer" };
        let error_value = invalid(format!("token_ids[{at}] is {}: {why}", shown(id)));
        error_value.set_cause(id.py(), Some(error));
        error_value
    })
}
