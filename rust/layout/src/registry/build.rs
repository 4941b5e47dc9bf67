//! From one architecture and one form as written to checked groups.

use toml::Spanned;

use super::error::{RegistryError, Source};
use super::records::{Records, dtype_bytes, is_dtype, shape};
use super::schema::{Arch, Entry, EntryTable, Form, Group as Written};
use crate::group::{Group, Kind, OpenRows, PageShape, Read, Reads, Shard, StateRows};
use crate::{Layout, Replay};

/// Builds the layout of one architecture in one form. `anchor` is where the architecture names the
/// form's set, when the form stands in another file.
pub(super) fn layout(
    source: Source<'_>,
    records: &Records,
    arch: &Arch,
    form: &Form,
    anchor: Option<usize>,
    draft: bool,
) -> Result<Layout, RegistryError> {
    let builder = Builder { source, records, arch, form, anchor };
    let block = form.block_tokens.as_ref().map_or(arch.block_tokens, |b| *b.get_ref());
    let wanted = arch.group.iter().filter(|g| draft || !g.get_ref().draft);
    let groups = wanted.map(|g| builder.group(g, block)).collect::<Result<Vec<_>, _>>()?;
    let name = arch.name.get_ref();
    let built = Layout::with_form(name, form.name.get_ref(), block, groups);
    let layout = built.map_err(|error| {
        let group =
            arch.group.iter().find(|g| Some(g.get_ref().name.get_ref()) == error.group.as_ref());
        let start = group.map_or(arch.name.span().start, Spanned::span_start);
        source.at(start, error.to_string(), "give a value within the limit named")
    })?;
    let replay = Replay {
        model_layers: *arch.layers.get_ref(),
        bounded: arch.replay.bounded,
        extra_ids: arch.replay.extra_ids,
        tail_from: arch.replay.tail_from,
    };
    Ok(layout.with_replay(replay))
}

trait SpanStart {
    fn span_start(&self) -> usize;
}

impl<T> SpanStart for Spanned<T> {
    fn span_start(&self) -> usize {
        self.span().start
    }
}

struct Builder<'a> {
    source: Source<'a>,
    records: &'a Records,
    arch: &'a Arch,
    form: &'a Form,
    anchor: Option<usize>,
}

/// Bytes of one group in one form, before they become a group.
struct Bytes {
    page: PageShape,
    rows: Option<u32>,
    open_row: u32,
    ring_row: u32,
}

impl Builder<'_> {
    fn group(&self, written: &Spanned<Written>, block: u32) -> Result<Group, RegistryError> {
        let group = written.get_ref();
        let name = group.name.get_ref();
        let kind = self.kind(group)?;
        let layers = self.layers(group)?;
        let ratio = group.ratio.as_ref().map_or(1, |r| *r.get_ref());
        if let Some(written) = &group.ratio
            && (ratio == 0 || !block.is_multiple_of(ratio))
        {
            return Err(self.source.on(
                written,
                format!("group {name:?}: ratio = {ratio} does not divide block_tokens = {block}"),
                format!("use a divisor of {block}, or set block_tokens to a multiple of {ratio}"),
            ));
        }
        let (elements, shard) = self.elements(group)?;
        let bytes = self.bytes(written, elements)?;
        let state = (kind == Kind::State).then(|| StateRows {
            kept: bytes.rows.or(group.rows).unwrap_or(1),
            from: group.from.unwrap_or(1),
            open: group.open.map(|o| OpenRows { modulus: o.every, row_bytes: bytes.open_row }),
            ring_bytes: group.ring.map_or(0, |ring| ring.rows.saturating_mul(bytes.ring_row)),
            span: group.span,
            feeds_entries_only: group.feeds_entries_only,
        });
        let reads = group.reads.iter().map(|read| Read {
            layers: read.layers,
            what: read.most.map_or(Reads::All, Reads::AtMost),
        });
        Ok(Group {
            name: name.clone(),
            kind,
            layers,
            ratio,
            page: bytes.page,
            state,
            shard,
            draft: group.draft,
            elements,
            reads: reads.collect(),
        })
    }

    fn kind(&self, group: &Written) -> Result<Kind, RegistryError> {
        let name = group.name.get_ref();
        let kind = group.kind.as_ref().map_or("entries", |k| k.get_ref().as_str());
        match (kind, &group.window) {
            ("entries", None) => Ok(Kind::Entries),
            ("window", Some(w)) => Ok(Kind::Window(*w.get_ref())),
            ("state", None) => Ok(Kind::State),
            ("window", None) => Err(self.source.on(
                group.kind.as_ref().unwrap_or(&group.name),
                format!("group {name:?}: kind = \"window\" without a size"),
                "add window = <tokens>, the current one included",
            )),
            ("entries" | "state", Some(w)) => Err(self.source.on(
                w,
                format!("group {name:?}: window = {} in a group of kind {kind:?}", w.get_ref()),
                "set kind = \"window\", or remove window",
            )),
            (other, _) => Err(self.source.on(
                group.kind.as_ref().unwrap_or(&group.name),
                format!("group {name:?}: kind = {other:?} is unknown"),
                "use \"entries\", \"window\" or \"state\"",
            )),
        }
    }

    fn layers(&self, group: &Written) -> Result<Vec<u32>, RegistryError> {
        let name = group.name.get_ref();
        let layers = group.layers.get_ref().expand().map_err(|what| {
            let mend = "write a list like [0, 1], or runs like \"0-2, 6-74/4\"";
            self.source.on(&group.layers, format!("group {name:?}: layers: {what}"), mend)
        })?;
        let (main, draft) = (*self.arch.layers.get_ref(), self.arch.draft_layers);
        let limit = if group.draft { main.saturating_add(draft) } else { main };
        if let Some(beyond) = layers.iter().find(|&&layer| layer >= limit) {
            let (what, mend) = if group.draft {
                ("draft_layers", "raise draft_layers, or name an owner below them")
            } else {
                ("layers", "raise layers, or name an owner below it")
            };
            let what = format!(
                "group {name:?}: owner layer {beyond} does not exist: the architecture's {what} end at {limit}"
            );
            return Err(self.source.on(&group.layers, what, mend));
        }
        Ok(layers)
    }

    /// Elements of one entry, and how they split over tensor ranks.
    fn elements(&self, group: &Written) -> Result<(u32, Shard), RegistryError> {
        let name = group.name.get_ref();
        let split = group.split_heads.map_or(Shard::Replicated, Shard::Heads);
        if let Some(parts) = &group.parts {
            let elements = parts.iter().map(|p| *p.elements.get_ref());
            return Ok((elements.fold(0, u32::saturating_add), split));
        }
        match (&group.elements, &group.heads, &group.dim) {
            (Some(elements), None, None) => Ok((*elements.get_ref(), split)),
            (None, Some(heads), Some(dim)) => {
                let value = group.value_dim.as_ref().map_or(*dim.get_ref(), |v| *v.get_ref());
                let both = dim.get_ref().saturating_add(value);
                Ok((heads.get_ref().saturating_mul(both), Shard::Heads(*heads.get_ref())))
            }
            _ => Err(self.source.on(
                &group.name,
                format!("group {name:?}: the numbers of one entry are not given, or given twice"),
                "give elements, or heads and dim (K and V), or parts",
            )),
        }
    }

    fn bytes(&self, written: &Spanned<Written>, elements: u32) -> Result<Bytes, RegistryError> {
        let group = written.get_ref();
        let (name, form) = (group.name.get_ref(), self.form.name.get_ref());
        let role = group.role.as_deref().unwrap_or(if group.heads.is_some() { "kv" } else { name });
        let entry = self.form.records.get(name).or_else(|| self.form.records.get(role));
        if let Some(entry) = entry {
            let table = match entry.get_ref() {
                Entry::Name(name) => {
                    EntryTable { record: Some(name.clone()), ..Default::default() }
                }
                Entry::Table(table) => table.clone(),
            };
            return self.table(group, elements, &table, self.in_form(entry));
        }
        if group.parts.is_some() {
            return self.parts(group);
        }
        if let Some(all) = &self.form.all {
            let table = EntryTable { record: Some(all.get_ref().clone()), ..Default::default() };
            return self.table(group, elements, &table, self.in_form(all));
        }
        Err(self.source.at(
            self.in_form(&self.form.name),
            format!("form {form:?} has no record for group {name:?}"),
            format!("add records.{role} = <record>, or all = <record>"),
        ))
    }

    /// Place of a value of the form: in this file, or where this file names its set.
    fn in_form<T>(&self, value: &Spanned<T>) -> usize {
        self.anchor.unwrap_or(value.span().start)
    }

    fn table(
        &self,
        group: &Written,
        elements: u32,
        table: &EntryTable,
        at: usize,
    ) -> Result<Bytes, RegistryError> {
        let name = group.name.get_ref();
        let dtype = table.record.as_deref().filter(|record| is_dtype(record));
        let sized = |what: &str, elements: u32| match dtype {
            Some(dtype) => dtype_bytes(dtype, elements).ok_or_else(|| {
                let what =
                    format!("group {name:?}: {elements} {what} of {dtype} do not fill bytes");
                self.source.at(at, what, "use an even number of elements, or a named record")
            }),
            None => Ok(0),
        };
        let mut page = match (&table.planes, &table.record) {
            (Some(planes), record) => PageShape {
                planes: planes.clone(),
                ..PageShape::packed(record.as_deref().unwrap_or("planes"), 0)
            },
            (None, Some(record)) if dtype.is_some() => {
                PageShape::packed(record, sized("elements", elements)?)
            }
            (None, Some(record)) => match self.records.get(record) {
                Some(format) => shape(format),
                None => {
                    return Err(self.source.at(
                        at,
                        format!("group {name:?}: record {record:?} is unknown"),
                        format!("add [[record]], or use one like {}", self.records.near(record)),
                    ));
                }
            },
            (None, None) => {
                let what = format!("group {name:?}: neither record nor planes");
                return Err(self.source.at(at, what, "give one of them"));
            }
        };
        page.page_entries = table.page_entries.unwrap_or(page.page_entries);
        page.align = table.align.unwrap_or(page.align);
        let open_row = match (table.open_bytes, group.open) {
            (Some(bytes), _) => bytes,
            (None, Some(open)) => sized("open elements", open.elements)?,
            (None, None) => 0,
        };
        let ring_row = group.ring.map_or(Ok(0), |ring| sized("ring elements", ring.elements))?;
        Ok(Bytes { page, rows: table.rows, open_row, ring_row })
    }

    fn parts(&self, group: &Written) -> Result<Bytes, RegistryError> {
        let mut planes = Vec::new();
        let mut names: Vec<&str> = Vec::new();
        for part in group.parts.iter().flatten() {
            let (dtype, elements) = (part.dtype.get_ref(), *part.elements.get_ref());
            let bytes = dtype_bytes(dtype, elements).ok_or_else(|| {
                let what = format!("{elements} elements of {dtype:?} have no whole bytes");
                let mend = format!("use a type like {}", self.records.near(dtype));
                self.source.on(&part.dtype, what, mend)
            })?;
            planes.push(bytes);
            names.push(dtype);
        }
        let page = PageShape { planes, ..PageShape::packed(names.join("+"), 0) };
        Ok(Bytes { page, rows: None, open_row: 0, ring_row: 0 })
    }
}
