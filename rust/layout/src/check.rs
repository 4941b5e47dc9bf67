//! The checks behind `Layout::new`: every number is in range, and everything tiles the block.

use std::collections::BTreeSet;

use crate::LayoutError;
use crate::group::{Group, Kind, Shard, StateRows};

/// Tokens up to which accounting is exact: 134 million.
pub const MAX_TOKENS: u64 = 1 << 27;

const MAX_BLOCK_TOKENS: u32 = 1 << 16;
const MAX_GROUPS: usize = 256;
const MAX_LAYERS: usize = 4096;
const MAX_NAME: usize = 128;
const MAX_PLANES: usize = 8;
const MAX_RECORD: u64 = 1 << 31;
const MAX_ROWS: u32 = 1 << 16;
/// With [`MAX_TOKENS`] no sum of bytes leaves 64 bits.
const MAX_OBJECT: u64 = 1 << 36;

/// What may be left out: layers may come in any order, a state group without rows is recurrent, and
/// a padded page without a size holds all entries of the block.
pub(crate) fn fill(block_tokens: u32, group: &mut Group) {
    group.layers.sort_unstable();
    if group.kind == Kind::State && group.state.is_none() {
        group.state = Some(StateRows::RECURRENT);
    }
    if group.page.align > 1 && group.page.page_entries == 0 {
        group.page.page_entries = match group.state {
            Some(rows) => rows.kept,
            None => block_tokens / group.ratio.max(1),
        };
    }
}

struct Checker<'a> {
    layout: &'a str,
    group: Option<&'a str>,
}

impl Checker<'_> {
    fn that(
        &self,
        holds: bool,
        field: &'static str,
        value: impl std::fmt::Display,
        limit: impl FnOnce() -> String,
    ) -> Result<(), LayoutError> {
        if holds {
            return Ok(());
        }
        Err(LayoutError {
            layout: self.layout.to_owned(),
            group: self.group.map(str::to_owned),
            field,
            value: value.to_string(),
            limit: limit(),
        })
    }

    fn name(&self, field: &'static str, name: &str) -> Result<(), LayoutError> {
        let fits = !name.is_empty() && name.len() <= MAX_NAME && !name.contains(char::is_control);
        self.that(fits, field, format!("{name:?}"), || {
            format!("must have 1 to {MAX_NAME} bytes without control characters")
        })
    }
}

/// Checks all groups and gives the layout's alignment in tokens.
pub(crate) fn groups(
    layout: &str,
    form: &str,
    block_tokens: u32,
    groups: &[Group],
) -> Result<u32, LayoutError> {
    let whole = Checker { layout, group: None };
    whole.name("name", layout)?;
    whole.name("form", form)?;
    whole.that(
        (1..=MAX_BLOCK_TOKENS).contains(&block_tokens),
        "block_tokens",
        block_tokens,
        || format!("must be 1 to {MAX_BLOCK_TOKENS}"),
    )?;
    whole.that((1..=MAX_GROUPS).contains(&groups.len()), "groups", groups.len(), || {
        format!("must be 1 to {MAX_GROUPS} groups")
    })?;
    let mut names = BTreeSet::new();
    let mut alignment = 1;
    for group in groups {
        let check = Checker { layout, group: Some(&group.name) };
        check.name("name", &group.name)?;
        check.that(names.insert(&group.name), "name", format!("{:?}", group.name), || {
            "is the name of an earlier group too".into()
        })?;
        self::group(&check, block_tokens, group)?;
        alignment = lcm(alignment, group.ratio);
        if let Some(open) = group.state.and_then(|s| s.open) {
            alignment = lcm(alignment, open.modulus);
        }
    }
    Ok(alignment)
}

fn group(check: &Checker<'_>, block_tokens: u32, group: &Group) -> Result<(), LayoutError> {
    check.that(
        (1..=MAX_LAYERS).contains(&group.layers.len()),
        "layers",
        group.layers.len(),
        || format!("must be 1 to {MAX_LAYERS} owner layers"),
    )?;
    let twice = group.layers.windows(2).find(|pair| pair[0] == pair[1]);
    check.that(twice.is_none(), "layers", twice.map_or(0, |pair| pair[0]), || {
        "this layer is listed twice".into()
    })?;
    check.that(
        group.ratio >= 1 && block_tokens.is_multiple_of(group.ratio),
        "ratio",
        group.ratio,
        || format!("must be 1 or more and divide block_tokens = {block_tokens}"),
    )?;
    if let Kind::Window(w) = group.kind {
        check.that(w >= 2, "window", w, || "must be 2 tokens or more".into())?;
    }
    let readers = group.reads.iter().map(|read| u64::from(read.layers)).sum::<u64>();
    check.that(readers <= MAX_LAYERS as u64, "reads", readers, || {
        format!("must be at most {MAX_LAYERS} reading layers")
    })?;
    if let Shard::Heads(heads) = group.shard {
        check.that(heads >= 1, "heads", heads, || "must be 1 or more".into())?;
    }
    state(check, block_tokens, group)?;
    page(check, block_tokens, group)
}

fn page(check: &Checker<'_>, block_tokens: u32, group: &Group) -> Result<(), LayoutError> {
    let (shape, record) = (&group.page, group.page.record_bytes());
    check.name("format", &shape.format)?;
    check.that(
        (1..=MAX_PLANES).contains(&shape.planes.len()),
        "planes",
        shape.planes.len(),
        || format!("must be 1 to {MAX_PLANES} planes"),
    )?;
    check.that(!shape.planes.contains(&0), "planes", 0, || {
        "each plane must have 1 byte or more per entry".into()
    })?;
    check.that((1..=MAX_RECORD).contains(&record), "record", record, || {
        format!("must be 1 to {MAX_RECORD} bytes")
    })?;
    check.that(
        shape.align >= 1 && shape.align.is_power_of_two() || shape.align == 576,
        "align",
        shape.align,
        || "must be a power of two, or 576 (vLLM's V4 pages)".into(),
    )?;
    let entries = match (group.kind, group.state) {
        (Kind::State, Some(rows)) => u64::from(rows.kept),
        _ => group.entries_in(u64::from(block_tokens)),
    };
    let tiles = shape.page_entries == 0 || entries.is_multiple_of(u64::from(shape.page_entries));
    check.that(tiles, "page_entries", shape.page_entries, || {
        format!("must divide the {entries} entries of one layer and block")
    })?;
    let bytes = group.page_bytes(block_tokens);
    check.that(bytes <= MAX_OBJECT, "page", bytes, || format!("must be at most {MAX_OBJECT} bytes"))
}

fn state(check: &Checker<'_>, block_tokens: u32, group: &Group) -> Result<(), LayoutError> {
    let Some(rows) = group.state else { return Ok(()) };
    check.that(group.kind == Kind::State, "state", "rows", || {
        "only a group of kind state has them".into()
    })?;
    check.that(group.ratio == 1, "ratio", group.ratio, || "must be 1 in a state group".into())?;
    check
        .that(rows.kept <= MAX_ROWS, "kept", rows.kept, || format!("must be at most {MAX_ROWS}"))?;
    check.that(rows.span != Some(0), "span", 0, || "must be 1 token or more".into())?;
    let Some(open) = rows.open else { return Ok(()) };
    check.that(
        open.modulus >= 1 && block_tokens.is_multiple_of(open.modulus),
        "modulus",
        open.modulus,
        || format!("must be 1 or more and divide block_tokens = {block_tokens}"),
    )?;
    let rows = u64::from(open.modulus) * u64::from(open.row_bytes);
    let all = rows * group.layers.len() as u64;
    check
        .that(all <= MAX_OBJECT, "open rows", all, || format!("must be at most {MAX_OBJECT} bytes"))
}

/// No object may be so large that offsets and sums could leave 64 bits.
pub(crate) fn sizes(layout: &str, sizes: [u64; 3]) -> Result<(), LayoutError> {
    let check = Checker { layout, group: None };
    for (field, size) in ["body_bytes", "window_bytes", "checkpoint_bytes"].into_iter().zip(sizes) {
        check.that(size <= MAX_OBJECT, field, size, || format!("must be at most {MAX_OBJECT}"))?;
    }
    Ok(())
}

fn lcm(a: u32, b: u32) -> u32 {
    let (mut x, mut y) = (a, b.max(1));
    while y != 0 {
        (x, y) = (y, x % y);
    }
    a / x * b.max(1)
}
