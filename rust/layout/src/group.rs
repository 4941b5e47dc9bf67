//! Groups: layers of a model that keep the same kind of cache, and how their entries lie in a page.

/// How long a group's bytes are needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Needed from token 0.
    Entries,
    /// Only the rows of the last `min(N, w - 1)` tokens are needed to resume at N. The rows
    /// themselves do not depend on N, so they are kept per block.
    Window(u32),
    /// Bytes that are valid at one token only: compressor tails, recurrent state.
    State,
}

/// Who holds a group under tensor parallelism.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Shard {
    /// The same bytes on every rank (MLA, V4, index keys): one copy serves all.
    #[default]
    Replicated,
    /// Split by this many key-value heads; beyond it, heads are replicated.
    Heads(u32),
}

/// How one layer's entries of one block lie in its page.
///
/// The page holds `entries / page_entries` engine pages; each engine page holds all entries' bytes
/// of plane 0, then all of plane 1, and so on, and is padded with zeros to a multiple of `align`.
/// One plane is a format whose records are contiguous; with two (values first, scales after) the
/// page cannot be cut at an entry.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PageShape {
    /// Name of the record format, scale rule included: two writers with other bytes have other
    /// names.
    pub format: String,
    /// Bytes of one entry in each plane.
    pub planes: Vec<u32>,
    /// Entries of one engine page; 0 stands for all entries of the block.
    pub page_entries: u32,
    /// An engine page is padded to a multiple of this many bytes; 1 is no padding.
    pub align: u32,
}

impl PageShape {
    /// Contiguous records of `record` bytes without padding.
    pub fn packed(format: impl Into<String>, record: u32) -> Self {
        Self { format: format.into(), planes: vec![record], page_entries: 0, align: 1 }
    }

    /// Logical bytes of one entry: the sum over planes, without padding.
    pub fn record_bytes(&self) -> u64 {
        self.planes.iter().map(|&p| u64::from(p)).sum()
    }

    /// Bytes of the pages that hold `entries` entries, padding included.
    pub fn page_bytes(&self, entries: u64) -> u64 {
        let per_page = if self.page_entries == 0 { entries } else { u64::from(self.page_entries) };
        if entries == 0 || per_page == 0 {
            return 0;
        }
        let one = (per_page * self.record_bytes()).next_multiple_of(u64::from(self.align.max(1)));
        entries.div_ceil(per_page) * one
    }
}

/// Rows of an open pooling group: what a compressor holds of tokens whose entry is not written yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct OpenRows {
    /// Tokens per pooled entry: `N mod modulus` rows are open at N.
    pub modulus: u32,
    /// Bytes of one open row and layer.
    pub row_bytes: u32,
}

/// What a [`Kind::State`] group holds per layer at token N.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StateRows {
    /// Records kept at each N from `from` on; a checkpoint at a block end holds exactly these.
    pub kept: u32,
    /// First N at which the kept records exist.
    pub from: u32,
    /// Rows of the open pooling group; they vanish where `modulus` divides N.
    pub open: Option<OpenRows>,
    /// Bytes per layer that engines hold in HBM for one request (a ring); 0 = same as kept.
    pub ring_bytes: u32,
    /// The state is a function of the layer's inputs at the last `span` tokens; `None` means of all
    /// tokens (recurrent), so that it cannot be replayed.
    pub span: Option<u32>,
    /// The state goes into entries only, which are stored (a compressor's tail): later tokens'
    /// rows and outputs do not read it.
    pub feeds_entries_only: bool,
}

impl StateRows {
    /// A recurrent state: one record from token 1 on, which no replay brings back.
    pub const RECURRENT: Self =
        Self { kept: 1, from: 1, open: None, ring_bytes: 0, span: None, feeds_entries_only: false };
}

/// How many of a group's entries one decode step reads, in how many layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Read {
    /// Layers that read so.
    pub layers: u32,
    /// Entries that each of them reads.
    pub what: Reads,
}

/// The entries that one layer reads of a group in one decode step at N tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reads {
    /// All entries.
    All,
    /// At most this many entries (top-k, a candidate pool, a window).
    AtMost(u32),
}

/// Layers that keep the same kind of cache.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Group {
    /// Name, unique in the layout.
    pub name: String,
    /// How long its bytes are needed.
    pub kind: Kind,
    /// Owner layers, ascending. Layers that only read another layer's cache are not listed.
    pub layers: Vec<u32>,
    /// Tokens per entry. 1 for state groups.
    pub ratio: u32,
    /// Bytes of an entry, and how entries lie in a page.
    pub page: PageShape,
    /// Exactly for [`Kind::State`]: what is held at token N.
    pub state: Option<StateRows>,
    /// Who holds it under tensor parallelism.
    pub shard: Shard,
    /// Belongs to draft (MTP) layers.
    pub draft: bool,
    /// Numbers cached per entry and layer; 0 = not known (opaque layouts).
    pub elements: u32,
    /// What a decode step reads. Empty = each owner layer reads all entries, or the whole window.
    pub reads: Vec<Read>,
}

impl Group {
    fn new(name: impl Into<String>, kind: Kind, record: u32, layers: Vec<u32>) -> Self {
        Self {
            name: name.into(),
            kind,
            layers,
            ratio: 1,
            page: PageShape::packed("opaque", record),
            state: None,
            shard: Shard::default(),
            draft: false,
            elements: 0,
            reads: Vec::new(),
        }
    }

    /// An `entries` group: one record of `record` bytes per token and owner layer.
    pub fn entries(name: impl Into<String>, record: u32, layers: Vec<u32>) -> Self {
        Self::new(name, Kind::Entries, record, layers)
    }

    /// A `window(w)` group: one record per token and owner layer, of which the last `w - 1` matter.
    pub fn window(name: impl Into<String>, record: u32, layers: Vec<u32>, w: u32) -> Self {
        Self::new(name, Kind::Window(w), record, layers)
    }

    /// A recurrent `state` group: `bytes` per owner layer, valid at one token.
    pub fn state(name: impl Into<String>, bytes: u32, layers: Vec<u32>) -> Self {
        let mut group = Self::new(name, Kind::State, bytes, layers);
        group.state = Some(StateRows::RECURRENT);
        group
    }

    /// The same group with one entry per `ratio` tokens.
    #[must_use]
    pub fn with_ratio(mut self, ratio: u32) -> Self {
        self.ratio = ratio;
        self
    }

    /// The same group with another page shape.
    #[must_use]
    pub fn with_page(mut self, page: PageShape) -> Self {
        self.page = page;
        self
    }

    /// Logical bytes of one entry (of one kept row in a state group).
    pub fn record_bytes(&self) -> u64 {
        self.page.record_bytes()
    }

    /// Entries of one layer in `tokens` tokens that start at a multiple of the ratio.
    pub fn entries_in(&self, tokens: u64) -> u64 {
        tokens / u64::from(self.ratio.max(1))
    }

    /// Bytes of this group's page of one layer: of a block of `block_tokens`, or of a checkpoint.
    pub fn page_bytes(&self, block_tokens: u32) -> u64 {
        match (self.kind, &self.state) {
            (Kind::State, Some(state)) => self.page.page_bytes(u64::from(state.kept)),
            (Kind::State, None) => 0,
            _ => self.page.page_bytes(self.entries_in(u64::from(block_tokens))),
        }
    }

    /// Tokens of its own layer's input that the group's bytes at a block end reach back to: w for a
    /// window, the span of a state that has bytes there; `None` where no replay over a bounded span
    /// brings them back.
    pub fn reach(&self) -> Option<u32> {
        match (self.kind, &self.state) {
            (Kind::Window(w), _) => Some(w),
            (Kind::State, Some(state)) if state.kept == 0 => Some(0),
            (Kind::State, Some(state)) => state.span,
            (Kind::State, None) => None,
            (Kind::Entries, _) => Some(0),
        }
    }
}
