//! Which fields of two descriptions differ: for the one log line of a mismatch, and `explain`.

use super::super::key::hex;
use super::{Description, ShardAxis, Weights, WeightsKind};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

const NONE: &str = "none";

/// A field that differs. Prints as `dtype: "bf16" here, "fp8_e4m3" there`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldDiff {
    /// Name of the field; `axes.tp` and `extra.rope_scaling` name the entry.
    pub field: String,
    /// Its value here, as text: strings quoted, digests in hex, `none` where there is none.
    pub here: String,
    /// Its value in the other description.
    pub there: String,
}

impl fmt::Display for FieldDiff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} here, {} there", self.field, self.here, self.there)
    }
}

impl Description {
    /// The fields that differ, in canonical order; empty exactly when the descriptions are equal.
    pub fn differs(&self, other: &Self) -> Vec<FieldDiff> {
        let mut diffs = Diffs(Vec::new());
        diffs.add("format_version", &self.format_version, &other.format_version);
        diffs.add("model", &text(&self.model), &text(&other.model));
        diffs.add("revision", &text(&self.revision), &text(&other.revision));
        diffs.add("weights", &weights(&self.weights), &weights(&other.weights));
        diffs.add("adapter", &digest(&self.adapter), &digest(&other.adapter));
        diffs.add("dtype", &text(&self.dtype), &text(&other.dtype));
        diffs.add("scale_rule", &text(&self.scale_rule), &text(&other.scale_rule));
        diffs.add("layout", &digest(&self.layout), &digest(&other.layout));
        diffs.add("block_tokens", &self.block_tokens, &other.block_tokens);
        let axes = self.axes.iter().chain(&other.axes);
        for name in axes.map(|axis| &*axis.name).collect::<BTreeSet<_>>() {
            let share = |axes: &[ShardAxis]| match axes.iter().find(|axis| axis.name == name) {
                Some(axis) => format!("rank {} of {}", axis.rank, axis.size),
                None => NONE.into(),
            };
            diffs.add(format!("axes.{name}"), &share(&self.axes), &share(&other.axes));
        }
        diffs.add("hash_rule", &text(&self.hash_rule), &text(&other.hash_rule));
        for name in self.extra.keys().chain(other.extra.keys()).collect::<BTreeSet<_>>() {
            let value = |extra: &BTreeMap<String, String>| match extra.get(name) {
                Some(value) => format!("{value:?}"),
                None => NONE.into(),
            };
            diffs.add(format!("extra.{name}"), &value(&self.extra), &value(&other.extra));
        }
        diffs.0
    }
}

struct Diffs(Vec<FieldDiff>);

impl Diffs {
    fn add<T: ToString + PartialEq>(&mut self, field: impl Into<String>, here: &T, there: &T) {
        if here != there {
            let (here, there) = (here.to_string(), there.to_string());
            self.0.push(FieldDiff { field: field.into(), here, there });
        }
    }
}

fn text(text: &str) -> String {
    if text.is_empty() { NONE.into() } else { format!("{text:?}") }
}

fn digest(bytes: &[u8]) -> String {
    if bytes.is_empty() { NONE.into() } else { hex(bytes) }
}

fn weights(weights: &Weights) -> String {
    match (weights.kind, str::from_utf8(&weights.digest)) {
        (WeightsKind::Name, Ok(name)) => format!("name {name:?}"),
        (kind, _) => format!("{kind} {}", hex(&weights.digest)),
    }
}
