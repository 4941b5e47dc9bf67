//! The arguments of a put, checked, and the objects that they are.

use std::collections::BTreeMap;

use kvstore_engine::identity::{Extras, Key};
use kvstore_engine::store::{Ack, Object, PutOptions, Reason, Status};
use kvstore_engine::{Error, Result as EngineResult};
use kvstore_index::Kind;
use kvstore_layout::{Area, Layout};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

use crate::buffers::Memory;
use crate::errors::invalid;
use crate::hints::arguments;
use crate::namespace::Handle;
use crate::open::one_of;
use crate::sizes::{Seconds, shown};

arguments! {
    /// Bodies of consecutive blocks.
    Bodies;
    /// A dict of objects by block, or by number of tokens.
    Blocks;
    /// A dict of extra keys by block.
    ExtraKeys;
}

/// What every item of a put gets once a panic has closed the engine's door.
pub(crate) const POISONED: Status = Status::Rejected(Reason::Closing);

/// How a put is done.
pub(crate) fn options(ack: Option<&str>, ttl: Option<Seconds<'_>>) -> PyResult<PutOptions> {
    let ack = match ack {
        None | Some("host") => Ack::Host,
        Some("ssd") => Ack::Ssd,
        Some("ssd+flush") => Ack::SsdFlush,
        Some(other) => return Err(one_of("ack", other, "\"host\", \"ssd\" or \"ssd+flush\"")),
    };
    let ttl = ttl.map(|ttl| ttl.duration("ttl")).transpose()?;
    Ok(PutOptions { ack, ttl, ..PutOptions::default() })
}

/// Refuses hints until a policy reads one.
pub(crate) fn refuse_hint(hint: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
    match hint {
        None => Ok(()),
        Some(hint) => Err(invalid(format!(
            "hint is {}: it takes None, no policy of this version reads hints",
            shown(hint)
        ))),
    }
}

/// Extra keys by block, ascending.
pub(crate) struct Extra(Vec<(usize, Vec<u8>)>);

impl ExtraKeys<'_> {
    pub(crate) fn read(given: Option<Self>) -> PyResult<Extra> {
        let Some(given) = given else { return Ok(Extra(Vec::new())) };
        let mut keys = BTreeMap::new();
        for (block, value) in entries(&given.0, "extra_keys", "bytes, or a list of bytes")? {
            let block = block.extract::<usize>().map_err(|_| {
                invalid(format!("extra_keys: {} is no block number", shown(&block)))
            })?;
            let several = value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>();
            let each = if several { value.try_iter()?.collect() } else { Ok(vec![value]) };
            let each: Vec<_> = each?;
            let each = each.iter().map(|key| match key.cast::<PyBytes>() {
                Ok(key) => Ok(key.as_bytes().to_vec()),
                Err(_) => Err(invalid(format!(
                    "extra_keys[{block}] is {}: it takes bytes, or a list of bytes",
                    shown(key)
                ))),
            });
            keys.insert(block, each.collect::<PyResult<Vec<_>>>()?);
        }
        let keys = keys.into_iter();
        Ok(Extra(keys.flat_map(|(at, keys)| keys.into_iter().map(move |key| (at, key))).collect()))
    }
}

impl Extra {
    /// Runs `use_extras` on them.
    pub(crate) fn with<T>(
        &self,
        use_extras: impl FnOnce(Extras<'_>) -> EngineResult<T>,
    ) -> EngineResult<T> {
        let keys: Vec<(usize, &[u8])> = self.0.iter().map(|(at, key)| (*at, &key[..])).collect();
        use_extras(Extras::new(&keys).map_err(Error::identity)?)
    }
}

/// The bytes of consecutive bodies, or of the bodies of a keyed put.
pub(crate) enum Rows {
    /// One behind the other in one buffer, of these lengths.
    Joined(Memory, Vec<usize>),
    /// Each in its own.
    Each(Vec<Memory>),
}

impl Rows {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Joined(_, lengths) => lengths.len(),
            Self::Each(rows) => rows.len(),
        }
    }

    /// The bytes of each row.
    pub(crate) fn all(&self) -> Vec<&[u8]> {
        match self {
            Self::Joined(memory, lengths) => {
                let mut rest = memory.bytes();
                let row = lengths.iter().map(|&length| {
                    let (row, after) = rest.split_at(length);
                    rest = after;
                    row
                });
                row.collect()
            }
            Self::Each(rows) => rows.iter().map(Memory::bytes).collect(),
        }
    }

    /// Rows of a sequence, or of an array whose first axis counts them.
    pub(crate) fn read(given: &Bound<'_, PyAny>, field: &str) -> PyResult<Self> {
        if given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>() {
            let rows = given.try_iter()?.enumerate();
            let rows = rows.map(|(at, row)| Memory::of(&row?, &format!("{field}[{at}]")));
            return Ok(Self::Each(rows.collect::<PyResult<_>>()?));
        }
        let memory = Memory::of(given, field)?;
        if memory.item != 1 {
            return Err(invalid(format!(
                "{field} has items of type {}: it takes bytes (view it as uint8)",
                memory.format
            )));
        }
        match memory.shape[..] {
            [rows, length] => Ok(Self::Joined(memory, vec![length; rows])),
            _ => Err(invalid(format!(
                "{field} has {} dimensions: it takes [blocks, bytes], or a list of bytes-like \
                 objects",
                memory.shape.len()
            ))),
        }
    }
}

/// One object of a put, before keys are known.
struct Piece<'a> {
    block: u32,
    kind: Kind,
    unneeded: bool,
    data: &'a [u8],
}

/// A stretch of a prompt that is put, checked against its layout.
pub(crate) struct Stretch<'a> {
    handle: &'a Handle,
    first_block: u32,
    bodies: Option<Rows>,
    windows: BTreeMap<u32, Memory>,
    checkpoints: BTreeMap<u32, Memory>,
    replayed_from: Option<u32>,
}

impl<'a> Stretch<'a> {
    /// Checks the arguments of a put of a prompt with `whole` whole blocks.
    pub(crate) fn read(
        handle: &'a Handle,
        whole: usize,
        bodies: Option<Bodies<'_>>,
        first_block: u32,
        windows: Option<Blocks<'_>>,
        checkpoints: Option<Blocks<'_>>,
        replayed_from: Option<u32>,
    ) -> PyResult<Self> {
        let layout = handle.layout();
        if layout.split_by_group() {
            return Err(invalid(
                "this layout keeps each group as an object of its own: put it with ns.keyed",
            ));
        }
        let bodies = bodies.map(|bodies| Rows::read(&bodies.0, "bodies")).transpose()?;
        let bodies = bodies.filter(|bodies| bodies.len() > 0);
        if let Some(bodies) = &bodies {
            for (at, body) in bodies.all().iter().enumerate() {
                let field = format!("bodies[{at}]");
                check_length(&field, body.len(), layout.body_bytes(), "body_bytes", layout)?;
            }
            if first_block as usize + bodies.len() > whole {
                return Err(invalid(format!(
                    "bodies has {} blocks from first_block = {first_block}: token_ids has {whole} \
                     whole blocks of {} tokens",
                    bodies.len(),
                    layout.block_tokens()
                )));
            }
        }
        let mut read_windows = BTreeMap::new();
        for (block, value) in objects(windows, "windows")? {
            let block = number(&block, "windows", "block")?;
            if block as usize >= whole {
                return Err(invalid(format!(
                    "windows[{block}]: token_ids has {whole} whole blocks"
                )));
            }
            let field = format!("windows[{block}]");
            let memory = Memory::of(&value, &field)?;
            check_length(&field, memory.len, layout.window_bytes(), "window_bytes", layout)?;
            read_windows.insert(block, memory);
        }
        let mut read_checkpoints = BTreeMap::new();
        for (tokens, value) in objects(checkpoints, "checkpoints")? {
            let tokens = number(&tokens, "checkpoints", "number of tokens")?;
            let block = layout.block_tokens();
            if tokens == 0 || !tokens.is_multiple_of(block) || (tokens / block) as usize > whole {
                return Err(invalid(format!(
                    "checkpoints[{tokens}]: a checkpoint is at the end of a whole block, a multiple \
                     of {block} up to {}",
                    whole * block as usize
                )));
            }
            let field = format!("checkpoints[{tokens}]");
            let memory = Memory::of(&value, &field)?;
            let length = layout.checkpoint_bytes();
            check_length(&field, memory.len, length, "checkpoint_bytes", layout)?;
            read_checkpoints.insert(tokens / block - 1, memory);
        }
        Ok(Self {
            handle,
            first_block,
            bodies,
            windows: read_windows,
            checkpoints: read_checkpoints,
            replayed_from,
        })
    }

    /// By block: the body, its window, its checkpoint.
    fn pieces(&self) -> Vec<Piece<'_>> {
        let needed = self.needed_windows();
        let bodies = self.bodies.iter().flat_map(Rows::all);
        let bodies = (self.first_block..).zip(bodies).map(|(block, data)| Piece {
            block,
            kind: Kind::Body,
            unneeded: false,
            data,
        });
        let windows = self.windows.iter().map(|(&block, memory)| Piece {
            block,
            kind: Kind::Window,
            unneeded: !needed.iter().any(|blocks| blocks.contains(&block)),
            data: memory.bytes(),
        });
        let checkpoints = self.checkpoints.iter().map(|(&block, memory)| Piece {
            block,
            kind: Kind::Checkpoint,
            unneeded: false,
            data: memory.bytes(),
        });
        let mut pieces: Vec<_> = bodies.chain(windows).chain(checkpoints).collect();
        pieces.sort_by_key(|piece| (piece.block, piece.kind as u8));
        pieces
    }

    /// Blocks whose windows a resume point of this put needs: the last `max_window - 1` tokens
    /// before each checkpoint, or before its last block's end where the layout has no state.
    fn needed_windows(&self) -> Vec<std::ops::Range<u32>> {
        let layout = self.handle.layout();
        let last_body = self.bodies.iter().map(|rows| self.first_block + rows.len() as u32 - 1);
        let last = last_body.into_iter().chain(self.windows.keys().copied()).max();
        let points: Vec<u32> = if layout.has_state() {
            self.checkpoints.keys().copied().collect()
        } else {
            last.into_iter().collect()
        };
        let reach = u64::from(layout.max_window().saturating_sub(1));
        let block = u64::from(layout.block_tokens());
        let first = |end: u32| ((u64::from(end) + 1) * block).saturating_sub(reach) / block;
        points.into_iter().map(|end| first(end) as u32..end + 1).collect()
    }

    /// Kind and number of each item, in the order of the statuses.
    pub(crate) fn items(&self) -> Vec<(&'static str, u32)> {
        let name = |piece: &Piece<'_>| match piece.kind {
            Kind::Body => ("body", piece.block),
            Kind::Window => ("window", piece.block),
            Kind::Checkpoint => {
                ("checkpoint", (piece.block + 1) * self.handle.layout().block_tokens())
            }
        };
        self.pieces().iter().map(name).collect()
    }

    /// The objects under the keys of the prompt's blocks.
    pub(crate) fn objects<'b>(&'b self, keys: &[Key]) -> Vec<Object<'b>> {
        let has_bodies = self.handle.layout().body_bytes() > 0;
        let mut body: Option<(u32, usize)> = None;
        let mut objects = Vec::new();
        for (item, piece) in self.pieces().into_iter().enumerate() {
            let Piece { block, kind, unneeded, data } = piece;
            let before = block.checked_sub(1);
            let (above, after) = match kind {
                Kind::Body => (before, body.filter(|(above, _)| Some(*above) == before)),
                _ => (has_bodies.then_some(block), body.filter(|(own, _)| *own == block)),
            };
            objects.push(Object {
                block: keys[block as usize],
                kind,
                parent: above.map(|block| keys[block as usize]),
                after: after.map(|(_, item)| item),
                depth: block,
                replayed: self.replayed_from.is_some_and(|from| block >= from),
                unneeded,
                data,
                cuts: self.handle.cuts(match kind {
                    Kind::Body => Area::Body,
                    Kind::Window => Area::Window,
                    Kind::Checkpoint => Area::Checkpoint,
                }),
            });
            if kind == Kind::Body {
                body = Some((block, item));
            }
        }
        objects
    }
}

fn objects<'py>(
    given: Option<Blocks<'py>>,
    field: &str,
) -> PyResult<Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
    given.map_or_else(|| Ok(Vec::new()), |given| entries(&given.0, field, "a bytes-like object"))
}

fn entries<'py>(
    given: &Bound<'py, PyAny>,
    field: &str,
    values: &str,
) -> PyResult<Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
    let dict = given.cast::<PyDict>().map_err(|_| {
        invalid(format!("{field} is {}: it takes a dict of {values}", shown(given)))
    })?;
    Ok(dict.iter().collect())
}

fn number(key: &Bound<'_, PyAny>, field: &str, what: &str) -> PyResult<u32> {
    key.extract().map_err(|_| invalid(format!("{field}: {} is no {what}", shown(key))))
}

fn check_length(
    field: &str,
    length: usize,
    limit: u64,
    name: &str,
    layout: &Layout,
) -> PyResult<()> {
    if length as u64 == limit && limit > 0 {
        return Ok(());
    }
    Err(invalid(format!(
        "{field} has {length} bytes: {name} of layout {} is {limit}",
        layout.name()
    )))
}
