//! One line of a trace.

use serde_json::{Map, Value};

use super::Request;
use crate::hash::IdMap;

/// Blocks of one request: 2^24 of 64 tokens are a billion tokens. A damaged run must not take all
/// memory.
const MAX_BLOCKS: usize = 1 << 24;

/// RAGPulse's lists of components, in prompt order.
const COMPONENTS: [&str; 5] = ["sys_prompt", "passages_ids", "history", "web_search", "user_input"];

/// From component ids to chain ids: the same component behind another prefix is another block.
#[derive(Default)]
pub(super) struct Rekey {
    chains: IdMap<(u64, u64), u64>,
}

impl Rekey {
    fn chain(&mut self, components: &[u64]) -> Vec<u64> {
        let mut parent = u64::MAX;
        let ids = components.iter().map(|&component| {
            let next = self.chains.len() as u64;
            parent = *self.chains.entry((parent, component)).or_insert(next);
            parent
        });
        ids.collect()
    }
}

/// Reads a line, or says which field is wrong and why.
pub(super) fn parse(text: &[u8], rekey: &mut Rekey) -> Result<Request, String> {
    let value: Value =
        serde_json::from_slice(text).map_err(|error| format!("not JSON: {error}"))?;
    let Value::Object(fields) = value else {
        return Err(format!("must be a JSON object, not {}", kind(&value)));
    };
    Ok(Request {
        timestamp_ms: timestamp(&fields)?,
        input_length: unsigned(field(&fields, "input_length")?, &"input_length")?,
        output_length: unsigned(field(&fields, "output_length")?, &"output_length")?,
        blocks: blocks(&fields, rekey)?,
    })
}

fn field<'a>(fields: &'a Map<String, Value>, name: &str) -> Result<&'a Value, String> {
    fields.get(name).ok_or_else(|| format!("{name}: missing"))
}

/// A number is milliseconds, a string seconds.
fn timestamp(fields: &Map<String, Value>) -> Result<f64, String> {
    let value = field(fields, "timestamp")?;
    let ms = match value {
        Value::Number(ms) => ms.as_f64(),
        Value::String(seconds) => seconds.parse::<f64>().ok().map(|seconds| seconds * 1e3),
        _ => None,
    };
    ms.filter(|ms| ms.is_finite()).ok_or_else(|| {
        format!("timestamp: must be milliseconds or a string of seconds, not {}", brief(value))
    })
}

fn blocks(fields: &Map<String, Value>, rekey: &mut Rekey) -> Result<Vec<u64>, String> {
    match (fields.get("hash_ids"), fields.get("runs")) {
        (Some(Value::Object(lists)), None) => {
            let mut components = Vec::new();
            for name in COMPONENTS {
                if let Some(ids) = lists.get(name) {
                    components.extend(ids_of(ids, &format!("hash_ids.{name}"))?);
                }
            }
            match lists.keys().find(|name| !COMPONENTS.contains(&name.as_str())) {
                Some(name) => Err(format!("hash_ids.{name}: must be one of {COMPONENTS:?}")),
                None => Ok(rekey.chain(&components)),
            }
        }
        (Some(ids), None) => ids_of(ids, "hash_ids"),
        (None, Some(runs)) => expand(runs),
        (Some(_), Some(_)) => Err("hash_ids and runs: one of them, not both".to_owned()),
        (None, None) => Err("hash_ids or runs: missing".to_owned()),
    }
}

fn ids_of(value: &Value, name: &str) -> Result<Vec<u64>, String> {
    let ids = array(value, name)?;
    if ids.len() > MAX_BLOCKS {
        return Err(format!("{name}: {} blocks, at most {MAX_BLOCKS} are read", ids.len()));
    }
    ids.iter().enumerate().map(|(i, id)| unsigned(id, &format_args!("{name}[{i}]"))).collect()
}

fn expand(value: &Value) -> Result<Vec<u64>, String> {
    let mut blocks = Vec::new();
    for (i, run) in array(value, "runs")?.iter().enumerate() {
        let name = format!("runs[{i}]");
        let [first, count] = array(run, &name)?.as_slice() else {
            return Err(format!("{name}: must be [first, count], not {}", brief(run)));
        };
        let first = unsigned(first, &format_args!("{name}[0]"))?;
        let count = unsigned(count, &format_args!("{name}[1]"))?;
        let total = (blocks.len() as u64).saturating_add(count);
        if total > MAX_BLOCKS as u64 {
            return Err(format!("{name}: {total} blocks so far, at most {MAX_BLOCKS} are read"));
        }
        let end = first.checked_add(count).ok_or_else(|| {
            format!("{name}: {first} + {count} is above the largest id {}", u64::MAX)
        })?;
        blocks.extend(first..end);
    }
    Ok(blocks)
}

fn array<'a>(value: &'a Value, name: &str) -> Result<&'a Vec<Value>, String> {
    value.as_array().ok_or_else(|| format!("{name}: must be a list, not {}", brief(value)))
}

fn unsigned(value: &Value, name: &dyn std::fmt::Display) -> Result<u64, String> {
    value
        .as_u64()
        .ok_or_else(|| format!("{name}: must be an integer of at least 0, not {}", brief(value)))
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The value itself if it is short.
fn brief(value: &Value) -> String {
    match value {
        Value::Array(_) | Value::Object(_) => kind(value).to_owned(),
        value => {
            let mut text = value.to_string();
            if text.len() > 40 {
                text.truncate(text.floor_char_boundary(40));
                text.push('…');
            }
            text
        }
    }
}
