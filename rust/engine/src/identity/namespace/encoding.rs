//! The canonical encoding of a description: what the digest covers and a namespace record keeps.
//!
//! Four bytes `kvn1` (ASCII), then these twelve fields, all of them, in this order, and nothing behind:
//!
//! | field | value |
//! | --- | --- |
//! | `format_version` | u32 |
//! | `model` | text |
//! | `revision` | text, empty for none |
//! | `weights` | u8 kind (1 full, 2 hub, 3 cached, 4 sampled, 5 name), then the digest |
//! | `adapter` | digest, empty for none |
//! | `dtype` | text |
//! | `scale_rule` | text |
//! | `layout` | 32 bytes |
//! | `block_tokens` | u32 |
//! | `axes` | for each axis, ascending by name: u8 length of the name, name, u32 rank, u32 size |
//! | `hash_rule` | text |
//! | `extra` | for each entry, ascending by name: u8 length of the name, name, u16 length, value |
//!
//! A field is: u8 length of its name, its name (ASCII), u16 length of its value, its value. Integers are
//! little-endian, text is UTF-8, names compare byte by byte. Axes have a size of at least 2.
//!
//! Everything has a length or a fixed size, so bytes can be read in one way only and two descriptions
//! never encode alike; order, presence and sizes are fixed, so one description has one encoding.

use super::{Description, IdentityError, MAX_ENCODED_BYTES, ShardAxis, Weights, WeightsKind};
use std::collections::BTreeMap;

const MAGIC: &[u8; 4] = b"kvn1";

impl Description {
    /// The canonical encoding, at most [`MAX_ENCODED_BYTES`].
    pub fn encode(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        for (name, value) in self.fields() {
            push_name(&mut out, name);
            push_value(&mut out, &value);
        }
        out
    }

    /// Reads a canonical encoding; weights of kind `name` are taken, since they were allowed when the
    /// record was written.
    ///
    /// # Errors
    /// [`IdentityError::Malformed`] with the offset, for anything that [`encode`](Self::encode) does
    /// not write: an unknown or misplaced field, a wrong size, text that is no UTF-8, entries out of
    /// order, bytes behind the last field. [`IdentityError::Invalid`] for values outside their range.
    pub fn decode(bytes: &[u8]) -> Result<Self, IdentityError> {
        if bytes.len() > MAX_ENCODED_BYTES {
            let problem = format!("{} bytes, the limit is {MAX_ENCODED_BYTES}", bytes.len());
            return Err(IdentityError::Malformed { offset: MAX_ENCODED_BYTES, problem });
        }
        let mut reader = Reader { bytes, at: 0 };
        if reader.array::<4>()? != *MAGIC {
            return Err(IdentityError::Malformed { offset: 0, problem: "no kvn1 encoding".into() });
        }
        let description = Self {
            format_version: u32::from_le_bytes(reader.field("format_version")?.rest()?),
            model: reader.field("model")?.text()?,
            revision: reader.field("revision")?.text()?,
            weights: weights(reader.field("weights")?)?,
            adapter: reader.field("adapter")?.take_rest().to_vec(),
            dtype: reader.field("dtype")?.text()?,
            scale_rule: reader.field("scale_rule")?.text()?,
            layout: reader.field("layout")?.rest()?,
            block_tokens: u32::from_le_bytes(reader.field("block_tokens")?.rest()?),
            axes: axes(reader.field("axes")?)?,
            hash_rule: reader.field("hash_rule")?.text()?,
            extra: extra(reader.field("extra")?)?,
        };
        reader.end()?;
        description.check()?;
        Ok(description)
    }

    /// Every field by name with its value's bytes, in canonical order.
    fn fields(&self) -> [(&'static str, Vec<u8>); 12] {
        let mut weights = vec![self.weights.kind as u8];
        weights.extend(&self.weights.digest);
        let mut axes = Vec::new();
        for axis in &self.axes {
            push_name(&mut axes, &axis.name);
            axes.extend(axis.rank.to_le_bytes());
            axes.extend(axis.size.to_le_bytes());
        }
        let mut extra = Vec::new();
        for (name, value) in &self.extra {
            push_name(&mut extra, name);
            push_value(&mut extra, value.as_bytes());
        }
        [
            ("format_version", self.format_version.to_le_bytes().to_vec()),
            ("model", self.model.clone().into_bytes()),
            ("revision", self.revision.clone().into_bytes()),
            ("weights", weights),
            ("adapter", self.adapter.clone()),
            ("dtype", self.dtype.clone().into_bytes()),
            ("scale_rule", self.scale_rule.clone().into_bytes()),
            ("layout", self.layout.to_vec()),
            ("block_tokens", self.block_tokens.to_le_bytes().to_vec()),
            ("axes", axes),
            ("hash_rule", self.hash_rule.clone().into_bytes()),
            ("extra", extra),
        ]
    }

    /// Refuses what a namespace record cannot hold, and names what takes most of it.
    pub(super) fn check_length(&self) -> Result<(), IdentityError> {
        let fields = self.fields();
        let each = |(name, value): &(&str, Vec<u8>)| 1 + name.len() + 2 + value.len();
        let length = MAGIC.len() + fields.iter().map(each).sum::<usize>();
        if length <= MAX_ENCODED_BYTES {
            return Ok(());
        }
        let single = fields.iter().filter(|(name, _)| *name != "extra");
        let sizes = single.map(|(name, value)| ((*name).to_owned(), value.len()));
        let extra = self.extra.iter().map(|(name, value)| (format!("extra.{name}"), value.len()));
        let (longest, longest_length) =
            sizes.chain(extra).max_by_key(|(_, length)| *length).unwrap_or_default();
        let limit = MAX_ENCODED_BYTES;
        Err(IdentityError::TooLong { length, limit, longest, longest_length })
    }
}

/// Appends u8 length and name; names have at most 255 bytes (`Description::check`).
fn push_name(out: &mut Vec<u8>, name: &str) {
    out.push(u8::try_from(name.len()).expect("names were checked"));
    out.extend(name.as_bytes());
}

/// Appends u16 length and value. A longer value never gets out: `check_length` refuses the whole.
fn push_value(out: &mut Vec<u8>, value: &[u8]) {
    out.extend(u16::try_from(value.len()).unwrap_or(u16::MAX).to_le_bytes());
    out.extend(value);
}

fn weights(mut value: Reader<'_>) -> Result<Weights, IdentityError> {
    let [code] = value.array()?;
    let kind = WeightsKind::ALL.into_iter().find(|kind| *kind as u8 == code);
    let kind =
        kind.ok_or_else(|| value.malformed(format!("weights kind {code}, known are 1 to 5")))?;
    Ok(Weights { kind, digest: value.take_rest().to_vec() })
}

fn axes(mut value: Reader<'_>) -> Result<Vec<ShardAxis>, IdentityError> {
    let mut axes: Vec<ShardAxis> = Vec::new();
    while !value.is_empty() {
        let name = value.name()?;
        if axes.last().is_some_and(|last| *last.name >= *name) {
            return Err(value.malformed(format!("axis {name:?} is not in ascending order")));
        }
        let rank = u32::from_le_bytes(value.array()?);
        let size = u32::from_le_bytes(value.array()?);
        if size < 2 {
            return Err(
                value.malformed(format!("axis {name:?} has size {size}, at least 2 is kept"))
            );
        }
        axes.push(ShardAxis { name, rank, size });
    }
    Ok(axes)
}

fn extra(mut value: Reader<'_>) -> Result<BTreeMap<String, String>, IdentityError> {
    let mut extra: BTreeMap<String, String> = BTreeMap::new();
    while !value.is_empty() {
        let name = value.name()?;
        if extra.last_key_value().is_some_and(|(last, _)| *last >= name) {
            return Err(value.malformed(format!("extra {name:?} is not in ascending order")));
        }
        let text = value.value()?.text()?;
        extra.insert(name, text);
    }
    Ok(extra)
}

/// The rest of an encoding, or of one value in it; `at` counts from the start of the encoding.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn malformed(&self, problem: String) -> IdentityError {
        IdentityError::Malformed { offset: self.at, problem }
    }

    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], IdentityError> {
        let Some((taken, rest)) = self.bytes.split_at_checked(length) else {
            let left = self.bytes.len();
            return Err(self.malformed(format!("{length} bytes expected, {left} left")));
        };
        self.bytes = rest;
        self.at += length;
        Ok(taken)
    }

    fn take_rest(self) -> &'a [u8] {
        self.bytes
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], IdentityError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    /// All that is left, which has exactly `N` bytes.
    fn rest<const N: usize>(mut self) -> Result<[u8; N], IdentityError> {
        let array = self.array()?;
        self.end()?;
        Ok(array)
    }

    fn end(&self) -> Result<(), IdentityError> {
        match self.bytes.len() {
            0 => Ok(()),
            more => Err(self.malformed(format!("{more} bytes more than the format has"))),
        }
    }

    fn text(self) -> Result<String, IdentityError> {
        match str::from_utf8(self.bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(error) => Err(self.malformed(format!("text is no UTF-8: {error}"))),
        }
    }

    /// u8 length and name.
    fn name(&mut self) -> Result<String, IdentityError> {
        let [length] = self.array()?;
        let at = self.at;
        Reader { bytes: self.take(usize::from(length))?, at }.text()
    }

    /// u16 length and value.
    fn value(&mut self) -> Result<Self, IdentityError> {
        let length = u16::from_le_bytes(self.array()?);
        let at = self.at;
        Ok(Reader { bytes: self.take(usize::from(length))?, at })
    }

    /// The value of the next field, which is `name`.
    fn field(&mut self, name: &str) -> Result<Self, IdentityError> {
        let at = self.at;
        let found = self.name()?;
        if found != name {
            let problem = format!("field {found:?} where {name:?} stands");
            return Err(IdentityError::Malformed { offset: at, problem });
        }
        self.value()
    }
}
