//! The TOML form of architectures, records and forms, as serde reads it. Values that can be wrong
//! carry their place in the text.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

/// One file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    pub(super) arch: Vec<Spanned<Arch>>,
    #[serde(default)]
    pub(super) record: Vec<Spanned<Record>>,
    #[serde(default)]
    pub(super) form_set: Vec<FormSet>,
}

/// A named record format: one entry's bytes, and how entries lie in a page.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Record {
    pub(super) name: Spanned<String>,
    pub(super) planes: Vec<u32>,
    #[serde(default = "one")]
    pub(super) align: u32,
    pub(super) source: String,
}

fn one() -> u32 {
    1
}

/// Forms that several families share.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FormSet {
    pub(super) name: String,
    pub(super) form: Vec<Form>,
}

/// The bytes of each group in one engine.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Form {
    pub(super) name: Spanned<String>,
    pub(super) block_tokens: Option<Spanned<u32>>,
    /// Record of every group that `records` does not name.
    pub(super) all: Option<Spanned<String>>,
    /// Record by role or group name.
    #[serde(default)]
    pub(super) records: BTreeMap<String, Spanned<Entry>>,
    #[serde(default)]
    pub(super) source: String,
}

/// The record of one group in one form: a name, or a table.
#[derive(Debug, Clone, Deserialize)]
#[serde(
    untagged,
    expecting = "a record name, or a table of record or planes, page_entries, align, rows, open_bytes"
)]
pub(super) enum Entry {
    Name(String),
    Table(EntryTable),
}

/// A record with the shape of the engine's pages.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EntryTable {
    pub(super) record: Option<String>,
    pub(super) planes: Option<Vec<u32>>,
    pub(super) page_entries: Option<u32>,
    pub(super) align: Option<u32>,
    /// State groups: rows kept, in place of the group's.
    pub(super) rows: Option<u32>,
    /// State groups: bytes of an open row, in place of the group's.
    pub(super) open_bytes: Option<u32>,
}

/// One architecture.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Arch {
    pub(super) name: Spanned<String>,
    #[serde(default)]
    pub(super) aliases: Vec<String>,
    pub(super) title: Option<String>,
    #[serde(default)]
    pub(super) family: String,
    #[serde(default)]
    pub(super) released: Option<String>,
    #[serde(default)]
    pub(super) mechanism: String,
    #[serde(default)]
    pub(super) after: Option<String>,
    pub(super) layers: Spanned<u32>,
    #[serde(default)]
    pub(super) draft_layers: u32,
    #[serde(default = "block_64")]
    pub(super) block_tokens: u32,
    pub(super) source: String,
    #[serde(default)]
    pub(super) confidence: String,
    /// Names of shared form sets.
    #[serde(default)]
    pub(super) forms: Vec<Spanned<String>>,
    pub(super) default_form: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) form: Vec<Form>,
    pub(super) group: Vec<Spanned<Group>>,
    #[serde(default)]
    pub(super) replay: ReplayTable,
    pub(super) weights: Option<Weights>,
    #[serde(default)]
    pub(super) counterfactual: bool,
}

fn block_64() -> u32 {
    64
}

/// Weights of the model, for what fits beside them.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Weights {
    pub(super) billions: f64,
    pub(super) bytes_per_parameter: f64,
    pub(super) source: String,
}

/// Replay facts.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplayTable {
    pub(super) bounded: Option<u32>,
    #[serde(default)]
    pub(super) extra_ids: u32,
    pub(super) tail_from: Option<u32>,
}

/// One group of layers.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Group {
    pub(super) name: Spanned<String>,
    /// What forms call its record; else the group's name, or "kv" with heads.
    pub(super) role: Option<String>,
    pub(super) kind: Option<Spanned<String>>,
    pub(super) window: Option<Spanned<u32>>,
    pub(super) layers: Spanned<Layers>,
    pub(super) ratio: Option<Spanned<u32>>,
    pub(super) elements: Option<Spanned<u32>>,
    pub(super) heads: Option<Spanned<u32>>,
    pub(super) dim: Option<Spanned<u32>>,
    pub(super) value_dim: Option<Spanned<u32>>,
    /// Key-value heads that split a group given by `elements` or `parts`.
    pub(super) split_heads: Option<u32>,
    /// Parts of fixed types, for groups whose bytes no form changes.
    pub(super) parts: Option<Vec<Part>>,
    #[serde(default)]
    pub(super) draft: bool,
    #[serde(default)]
    pub(super) reads: Vec<ReadTable>,
    pub(super) rows: Option<u32>,
    pub(super) from: Option<u32>,
    pub(super) open: Option<OpenTable>,
    pub(super) ring: Option<RingTable>,
    pub(super) span: Option<u32>,
    #[serde(default)]
    pub(super) feeds_entries_only: bool,
}

/// Elements of one fixed type.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Part {
    pub(super) elements: Spanned<u32>,
    pub(super) dtype: Spanned<String>,
}

/// The open pooling group of a compressor.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OpenTable {
    pub(super) every: u32,
    pub(super) elements: u32,
}

/// The ring of rows that engines hold.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RingTable {
    pub(super) rows: u32,
    pub(super) elements: u32,
}

/// Layers that read a group's entries in a decode step; without `most` all of them.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadTable {
    pub(super) layers: u32,
    pub(super) most: Option<u32>,
}

/// Owner layers: a list, or runs like "0-2, 6-74/4", the ones after a "!" taken out.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged, expecting = "a list of layers, or runs like \"0-2, 6-74/4\"")]
pub(super) enum Layers {
    List(Vec<u32>),
    Runs(String),
}

impl Layers {
    /// The layers in full, or what is wrong with the text.
    pub(super) fn expand(&self) -> Result<Vec<u32>, String> {
        match self {
            Self::List(list) => Ok(list.clone()),
            Self::Runs(text) => {
                let (with, without) = text.split_once('!').unwrap_or((text, ""));
                let out = expand_runs(without)?;
                Ok(expand_runs(with)?.into_iter().filter(|layer| !out.contains(layer)).collect())
            }
        }
    }
}

const MAX_LAYER: u32 = 4096;

fn expand_runs(text: &str) -> Result<Vec<u32>, String> {
    let runs = text.split(',').map(str::trim).filter(|run| !run.is_empty());
    runs.map(expand_run).collect::<Result<Vec<_>, _>>().map(|runs| runs.concat())
}

fn expand_run(run: &str) -> Result<Vec<u32>, String> {
    let number = |text: &str| {
        let parsed = text.trim().parse::<u32>().ok().filter(|&n| n < MAX_LAYER);
        parsed.ok_or_else(|| format!("{text:?} is not a layer number below {MAX_LAYER}"))
    };
    let (range, step) = match run.split_once('/') {
        Some((range, step)) => (range, number(step)?.max(1)),
        None => (run, 1),
    };
    let (first, last) = match range.split_once('-') {
        Some((first, last)) => (number(first)?, number(last)?),
        None => (number(range)?, number(range)?),
    };
    if first > last {
        return Err(format!("run {run:?} ends before it begins"));
    }
    Ok((first..=last).step_by(step as usize).collect())
}
