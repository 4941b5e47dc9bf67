//! A layout: the checked groups of a model, and where each page lies in its object.

use std::collections::BTreeSet;

use crate::check;
use crate::group::{Group, Kind};
use crate::{LayoutError, canonical};

/// A group starts at a multiple of this many bytes in its object.
pub const GROUP_ALIGN: u64 = 64;
/// A page starts at a multiple of this many bytes in its group.
pub const PAGE_ALIGN: u64 = 8;

/// Which object a page belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Area {
    /// The block's pages of all `entries` groups.
    Body,
    /// The block's pages of all `window` groups.
    Window,
    /// All `state` bytes at one block end.
    Checkpoint,
}

impl Area {
    /// All areas.
    pub const ALL: [Self; 3] = [Self::Body, Self::Window, Self::Checkpoint];

    /// The area in which groups of this kind live.
    pub fn of(kind: Kind) -> Self {
        match kind {
            Kind::Entries => Self::Body,
            Kind::Window(_) => Self::Window,
            Kind::State => Self::Checkpoint,
        }
    }
}

/// Place of one group's page of one layer in its object, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Page {
    /// The object.
    pub area: Area,
    /// First byte.
    pub offset: u64,
    /// Length, padding of the engine's page format included.
    pub len: u64,
}

/// How a resumed request may be replayed, and how deep the model is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Replay {
    /// Layers of the model, those included that own no cache; 0 = one more than the highest owner.
    pub model_layers: u32,
    /// Tokens of a bounded replay (V4.1: 128); `None` where the model was not made for one.
    pub bounded: Option<u32>,
    /// Token ids needed before the first recomputed token (V4.1's Engram: 3).
    pub extra_ids: u32,
    /// Layers from here on run on the last window of a prompt only (V4.1's decoder: 21).
    pub tail_from: Option<u32>,
}

/// The groups of a model with record formats, ratios, owners, windows and shard axes: enough to
/// account for each byte.
///
/// The body is the pages of all `entries` groups in the order of the groups, inside a group by
/// ascending owner layer; window and checkpoint are laid out alike. A group starts at a multiple
/// of 64 bytes, its pages follow at multiples of 8; nothing else is padded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    name: String,
    form: String,
    block_tokens: u32,
    alignment: u32,
    groups: Vec<Group>,
    starts: Vec<u64>,
    sizes: [u64; 3],
    split_by_group: bool,
    replay: Replay,
}

impl Layout {
    /// A layout by hand. Layer lists are sorted; a state group without rows is taken as recurrent.
    ///
    /// # Errors
    ///
    /// Names group, field, value and limit: an empty or double name, no layers or a layer twice, a
    /// record of 0 bytes, a ratio that does not divide the block, a window below 2 tokens, engine
    /// pages that do not tile the block, an object beyond 64 GiB.
    pub fn new(
        name: impl Into<String>,
        block_tokens: u32,
        groups: Vec<Group>,
    ) -> Result<Self, LayoutError> {
        Self::with_form(name, "by hand", block_tokens, groups)
    }

    /// A layout whose sizes, kinds and windows an engine tells: records are opaque bytes, and with
    /// `split_by_group` each group is an object of its own (vLLM, SGLang, LMCache deliver so).
    ///
    /// # Errors
    ///
    /// As [`Layout::new`].
    pub fn opaque(
        name: impl Into<String>,
        form: impl Into<String>,
        block_tokens: u32,
        groups: Vec<Group>,
        split_by_group: bool,
    ) -> Result<Self, LayoutError> {
        Self::with_form(name, form, block_tokens, groups).map(|l| l.with_split(split_by_group))
    }

    /// A layout in a named form: the engine and record formats whose bytes it describes.
    ///
    /// # Errors
    ///
    /// As [`Layout::new`].
    pub fn with_form(
        name: impl Into<String>,
        form: impl Into<String>,
        block_tokens: u32,
        mut groups: Vec<Group>,
    ) -> Result<Self, LayoutError> {
        let (name, form) = (name.into(), form.into());
        for group in &mut groups {
            check::fill(block_tokens, group);
        }
        let alignment = check::groups(&name, &form, block_tokens, &groups)?;
        let (starts, sizes) = place(block_tokens, &groups);
        check::sizes(&name, sizes)?;
        let (split_by_group, replay) = (false, Replay::default());
        Ok(Self {
            name,
            form,
            block_tokens,
            alignment,
            groups,
            starts,
            sizes,
            split_by_group,
            replay,
        })
    }

    /// The same layout with blocks of another length.
    ///
    /// # Errors
    ///
    /// A length that is no positive multiple of [`Layout::alignment`], or one that the pages of a
    /// group do not tile.
    pub fn with_block_tokens(self, block_tokens: u32) -> Result<Self, LayoutError> {
        let alignment = self.alignment;
        if block_tokens == 0 || !block_tokens.is_multiple_of(alignment) {
            return Err(LayoutError {
                layout: self.name,
                group: None,
                field: "block_tokens",
                value: block_tokens.to_string(),
                limit: format!(
                    "must be a positive multiple of the layout's alignment, {alignment}"
                ),
            });
        }
        Self::with_form(self.name, self.form, block_tokens, self.groups)
            .map(|layout| layout.with_split(self.split_by_group).with_replay(self.replay))
    }

    /// The same layout with one object per group and block instead of one per area and block.
    #[must_use]
    pub fn with_split(mut self, split_by_group: bool) -> Self {
        self.split_by_group = split_by_group;
        self
    }

    /// The same layout with the model's replay facts.
    #[must_use]
    pub fn with_replay(mut self, replay: Replay) -> Self {
        self.replay = replay;
        self
    }

    /// Name of the architecture; not part of [`Layout::canonical`].
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The engine and record formats whose bytes these are.
    pub fn form(&self) -> &str {
        &self.form
    }

    /// Tokens of one block.
    pub fn block_tokens(&self) -> u32 {
        self.block_tokens
    }

    /// Tokens to whose multiples a resume point is rounded down: the least common multiple of all
    /// ratios and open pooling groups (V4: 128, V4.1: 2). It divides [`Layout::block_tokens`].
    pub fn alignment(&self) -> u32 {
        self.alignment
    }

    /// The groups, in their order in the objects.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// The model's replay facts.
    pub fn replay(&self) -> Replay {
        self.replay
    }

    /// Layers of the model: as told, else one more than the highest owner layer.
    pub fn model_layers(&self) -> u32 {
        let owners = self.groups.iter().filter(|g| !g.draft).flat_map(|g| &g.layers);
        let highest = owners.max().map_or(0, |l| l + 1);
        if self.replay.model_layers == 0 { highest } else { self.replay.model_layers }
    }

    /// Bytes of one block's body; 0 when the layout has no `entries` group.
    pub fn body_bytes(&self) -> u64 {
        self.area_bytes(Area::Body)
    }

    /// Bytes of one block's window object; 0 when the layout has no `window` group.
    pub fn window_bytes(&self) -> u64 {
        self.area_bytes(Area::Window)
    }

    /// Bytes of a checkpoint at a block end; 0 when no state is left there.
    pub fn checkpoint_bytes(&self) -> u64 {
        self.area_bytes(Area::Checkpoint)
    }

    /// Bytes of one object of this area.
    pub fn area_bytes(&self, area: Area) -> u64 {
        self.sizes[area as usize]
    }

    /// The bytes of one whole group in its object: offset of its first page and length.
    pub fn group_page(&self, group: usize) -> Option<Page> {
        let (g, &offset) = (self.groups.get(group)?, self.starts.get(group)?);
        let len = group_len(g.page_bytes(self.block_tokens), g.layers.len());
        Some(Page { area: Area::of(g.kind), offset, len })
    }

    /// The page of one group and owner layer, or `None` when there is no such group or the layer
    /// owns none of its pages.
    pub fn page(&self, group: usize, layer: u32) -> Option<Page> {
        let (g, start) = (self.groups.get(group)?, self.starts.get(group)?);
        let rank = g.layers.binary_search(&layer).ok()? as u64;
        let len = g.page_bytes(self.block_tokens);
        let offset = start + rank * len.next_multiple_of(PAGE_ALIGN);
        Some(Page { area: Area::of(g.kind), offset, len })
    }

    /// Index of the group of this name.
    pub fn group_index(&self, name: &str) -> Option<usize> {
        self.groups.iter().position(|g| g.name == name)
    }

    /// The largest window in tokens; 0 without `window` groups.
    pub fn max_window(&self) -> u32 {
        let windows = self.groups.iter().filter_map(|g| match g.kind {
            Kind::Window(w) => Some(w),
            Kind::Entries | Kind::State => None,
        });
        windows.max().unwrap_or(0)
    }

    /// Whether a resume point needs a checkpoint: state bytes that are left at a block end.
    pub fn has_state(&self) -> bool {
        self.checkpoint_bytes() > 0
    }

    /// Whether each group is an object of its own (`split="group"`).
    pub fn split_by_group(&self) -> bool {
        self.split_by_group
    }

    /// Offsets in the body at which a layer's page starts, ascending, the first being 0. Parts are
    /// cut here where possible.
    pub fn page_cuts(&self) -> Vec<u64> {
        self.area_cuts(Area::Body)
    }

    /// Offsets at which a page starts in this area's object, ascending.
    pub fn area_cuts(&self, area: Area) -> Vec<u64> {
        let groups = self.groups.iter().enumerate().filter(|(_, g)| Area::of(g.kind) == area);
        let pages = groups
            .flat_map(|(i, g)| g.layers.iter().filter_map(move |&layer| self.page(i, layer)))
            .filter(|page| page.len > 0);
        pages.map(|page| page.offset).collect()
    }

    /// The bytes that the layout id is a hash of. Self-delimiting: no two layouts with other bytes
    /// encode alike. Names of layout and groups, and what only accounting reads, are left out.
    pub fn canonical(&self) -> Vec<u8> {
        canonical::encode(self)
    }

    /// Tokens that must be recomputed over stored entries to rebuild every window and state
    /// exactly: per layer the tokens its window or state reaches back, summed, since each layer's
    /// rows depend on that many more tokens of the layer below. `None` where a state is recurrent.
    pub fn exact_replay_tokens(&self) -> Option<u64> {
        self.replay_tokens_below(u32::MAX)
    }

    /// The same, for the layers below `layer` only (V4.1's encoder: 20).
    pub fn replay_tokens_below(&self, layer: u32) -> Option<u64> {
        let live = || self.groups.iter().filter(|g| !g.draft);
        let owners: BTreeSet<u32> = live().flat_map(|g| g.layers.iter().copied()).collect();
        owners.range(..layer).try_fold(0u64, |sum, owner| {
            let reach = live().filter(|g| g.layers.binary_search(owner).is_ok());
            let deepest =
                reach.map(Group::reach).try_fold(0, |max, reach| reach.map(|r| r.max(max)))?;
            Some(sum + u64::from(deepest))
        })
    }
}

fn group_len(page: u64, layers: usize) -> u64 {
    match layers as u64 {
        0 => 0,
        n => (n - 1) * page.next_multiple_of(PAGE_ALIGN) + page,
    }
}

/// Start of each group in its object, and the sizes of body, window and checkpoint.
fn place(block_tokens: u32, groups: &[Group]) -> (Vec<u64>, [u64; 3]) {
    let mut sizes = [0u64; 3];
    let starts = groups.iter().map(|group| {
        let end = &mut sizes[Area::of(group.kind) as usize];
        let len = group_len(group.page_bytes(block_tokens), group.layers.len());
        let start = end.next_multiple_of(GROUP_ALIGN);
        if len > 0 {
            *end = start + len;
        }
        start
    });
    (starts.collect(), sizes)
}

#[cfg(test)]
mod tests;
