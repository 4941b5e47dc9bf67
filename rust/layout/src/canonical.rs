//! The canonical encoding that the layout id is a hash of.
//!
//! Every field is framed: numbers are 8 bytes little-endian, strings and lists carry their length
//! in front, options a tag. So the encoding can be parsed without knowing its length, and no two
//! layouts with other bytes encode alike.

use crate::Layout;
use crate::group::{Group, Kind, Shard, StateRows};

const MAGIC: &[u8; 8] = b"kvlayout";
const VERSION: u64 = 1;

struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, value: impl Into<u64>) {
        self.0.extend_from_slice(&value.into().to_le_bytes());
    }

    fn text(&mut self, value: &str) {
        self.number(value.len() as u64);
        self.0.extend_from_slice(value.as_bytes());
    }

    fn list(&mut self, values: &[u32]) {
        self.number(values.len() as u64);
        for &value in values {
            self.number(value);
        }
    }
}

pub(crate) fn encode(layout: &Layout) -> Vec<u8> {
    let mut out = Writer(MAGIC.to_vec());
    out.number(VERSION);
    out.text(layout.form());
    out.number(layout.block_tokens());
    out.number(u64::from(layout.split_by_group()));
    out.number(layout.groups().len() as u64);
    for group in layout.groups() {
        encode_group(&mut out, group);
    }
    out.0
}

fn encode_group(out: &mut Writer, group: &Group) {
    match group.kind {
        Kind::Entries => out.number(0u64),
        Kind::Window(w) => {
            out.number(1u64);
            out.number(w);
        }
        Kind::State => out.number(2u64),
    }
    out.list(&group.layers);
    out.number(group.ratio);
    out.text(&group.page.format);
    out.list(&group.page.planes);
    out.number(group.page.page_entries);
    out.number(group.page.align);
    match group.shard {
        Shard::Replicated => out.number(0u64),
        Shard::Heads(heads) => out.number(heads),
    }
    out.number(u64::from(group.draft));
    encode_state(out, group.state.as_ref());
}

fn encode_state(out: &mut Writer, state: Option<&StateRows>) {
    let Some(state) = state else { return out.number(0u64) };
    out.number(1u64);
    out.number(state.kept);
    out.number(state.from);
    let open = state.open.map_or((0, 0), |open| (open.modulus, open.row_bytes));
    out.number(open.0);
    out.number(open.1);
}
