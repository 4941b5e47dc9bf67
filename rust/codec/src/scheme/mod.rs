//! Schemes: how a block of numbers shares a scale, as data.

mod affine;
mod dense;
pub mod presets;
mod scalar;
mod scale;

use crate::element::{Cast, Element};
use crate::error::Error;

pub use scalar::Given;
pub(crate) use scalar::{Planes, decode_blocks, decode_one, encode_blocks, multiplier};
pub(crate) use scale::{bf16_addend, total as nv_total};

/// The elements that share a scale: `rows` x `cols`, where 0 stands for all of that axis.
///
/// Rows are tokens (or tokens x heads), columns are channels: `{1, 128}` is one scale per token and
/// 128 channels, `{1, 0}` one per row, `{0, 1}` one per channel, `{128, 128}` a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Block {
    /// Rows of a block.
    pub rows: usize,
    /// Columns of a block.
    pub cols: usize,
}

/// Rounding of amax to a power-of-two scale (`reference`: OCP MX 1.0, torchao's `ScaleCalculationMode`).
///
/// Each is one add, shift and subtract on the bits of amax:
/// `clamp(((bits + K) >> m) - emax, 0, 254)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PowerRule {
    /// floor(log2(amax)) - emax: the OCP text; the top of each binade saturates.
    Floor,
    /// amax rounded to the element's mantissa first: AMD Quark, compressed-tensors.
    Even,
    /// ceil(log2(amax / max)): NVIDIA, DeepSeek; never saturates.
    Rceil,
    /// ceil(log2(amax)) - emax: one step too coarse for most blocks.
    Ceil,
}

/// How a power-of-two scale is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PowerStore {
    /// One E8M0 byte.
    E8M0,
    /// Four bytes of little-endian fp32.
    F32,
}

/// A power-of-two scale rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PowerScale {
    /// Rounding of amax.
    pub rule: PowerRule,
    /// The smallest code written. A floor on amax or on the scale is a floor on the code, since the
    /// rules are monotone: amax >= 1e-4 is 105 for E4M3, scale >= 1e-4 is 114.
    pub min_code: u8,
    /// Code of an all-zero block where it differs from `min_code`.
    pub zero_code: Option<u8>,
    /// Code of a block with an infinity; `None`: as the integer rule gives it.
    pub inf_code: Option<u8>,
    /// Code of a block with a NaN (0xFF poisons it); `None`: NaN elements do not take part in amax.
    pub nan_code: Option<u8>,
    /// Stored form.
    pub store: PowerStore,
}

/// The arithmetic that makes an fp32 scale out of amax.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ScaleArith {
    /// amax / max.
    Divide,
    /// amax x fl(1 / max).
    Reciprocal,
}

/// The arithmetic that makes the quotient which is rounded to a code, in fp32.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Quotient {
    /// x / scale.
    Divide,
    /// x x fl(1 / scale).
    Reciprocal,
    /// x x fl(max / amax): `TileKernels`.
    MaxOverAmax,
    /// x x fl(fl(1 / global) / block scale): torchao's NVFP4.
    GlobalReciprocal,
}

/// A lower limit on an fp32 scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Floor {
    /// None: a zero block has scale 0.
    None,
    /// On amax.
    Amax(f32),
    /// On the scale.
    Scale(f32),
}

/// An fp32 scale amax / max.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LinearScale {
    /// What amax is divided by.
    pub max: f32,
    /// How.
    pub arith: ScaleArith,
    /// Lower limit.
    pub floor: Floor,
}

/// The direction of NVFP4's second-level fp32 scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Global {
    /// There is none.
    None,
    /// x = code x block scale x global (torchao, ModelOpt, SGLang).
    Multiplier,
    /// x = code x block scale / global (compressed-tensors, vLLM checkpoints).
    Inverse,
}

/// NVFP4's E4M3 scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NvScale {
    /// Second-level scale.
    pub global: Global,
    /// How amax is divided by 6.
    pub arith: ScaleArith,
    /// Lower limit before rounding: 0, 2^-9 (smallest subnormal), or 2^-6 (smallest normal).
    pub floor: f32,
    /// Round the scale up (cuDNN's documentation) instead of to nearest even.
    pub round_up: bool,
    /// Also try amax / 4 and keep it where its squared error is smaller.
    pub four_over_six: bool,
    /// Code of an all-zero block where it differs from the rule's.
    pub zero_code: Option<u8>,
}

/// The scale of a block.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scale {
    /// Given by the caller: one for all, or one per block along the columns. Nothing is stored.
    Given,
    /// A power of two.
    Power(PowerScale),
    /// fp32, stored little-endian.
    Linear(LinearScale),
    /// E4M3 with an optional second level.
    Nv(NvScale),
    /// (max - min) / (2^bits - 1) and the minimum, both fp16: KIVI.
    Affine,
}

/// How codes stand in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pack {
    /// Each row densely, least significant bits first: E2M1's even element in the low nibble, four
    /// FP6 codes in three bytes. A row is padded with zero bits to a whole byte.
    Bits,
    /// One code per byte (torchao's FP6).
    Bytes,
    /// KIVI's keys: int32 words along the rows, row r of a word's group in bits `bits x r`.
    WordsAlongRows,
}

/// A complete scheme.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scheme {
    /// Element format.
    pub element: Element,
    /// Elements that share a scale.
    pub block: Block,
    /// Scale rule.
    pub scale: Scale,
    /// Arithmetic of the quotient.
    pub quotient: Quotient,
    /// Rounding of the quotient.
    pub cast: Cast,
    /// Order in memory.
    pub pack: Pack,
}

/// Bytes that a scheme needs for a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sizes {
    /// Codes.
    pub codes: usize,
    /// Scales.
    pub scales: usize,
    /// Minima (affine schemes only).
    pub mins: usize,
}

/// A scheme bound to a shape: block counts and strides, checked once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) block_rows: usize,
    pub(crate) block_cols: usize,
    /// Bytes of one row of codes ([`Pack::WordsAlongRows`]: of one row of words).
    pub(crate) row_bytes: usize,
    /// Bytes of one stored scale.
    pub(crate) scale_bytes: usize,
}

impl Plan {
    pub(crate) const fn blocks_per_row(&self) -> usize {
        self.cols.div_ceil(self.block_cols)
    }

    pub(crate) const fn block_rows_total(&self) -> usize {
        self.rows / self.block_rows
    }
}

impl Scheme {
    /// Bytes of one stored scale.
    #[must_use]
    pub const fn scale_bytes(&self) -> usize {
        match self.scale {
            Scale::Given => 0,
            Scale::Power(PowerScale { store: PowerStore::E8M0, .. }) | Scale::Nv(_) => 1,
            Scale::Affine => 2,
            Scale::Power(_) | Scale::Linear(_) => 4,
        }
    }

    /// Rows that one row of stored codes covers: more than 1 only where words run along the rows.
    #[must_use]
    pub const fn rows_per_word(&self) -> usize {
        match self.pack {
            Pack::WordsAlongRows => 32 / self.element.bits() as usize,
            _ => 1,
        }
    }

    /// Bytes of codes, scales and minima for `rows` x `cols`.
    ///
    /// # Errors
    /// [`Error::Multiple`] where the shape does not divide into blocks.
    pub fn sizes(&self, rows: usize, cols: usize) -> Result<Sizes, Error> {
        let plan = self.plan(rows, cols)?;
        let blocks = plan.block_rows_total() * plan.blocks_per_row();
        let scales = blocks * plan.scale_bytes;
        Ok(Sizes {
            codes: rows / self.rows_per_word() * plan.row_bytes,
            scales,
            mins: if self.scale == Scale::Affine { scales } else { 0 },
        })
    }

    /// Average bits per element, scales included, for rows of `cols` elements.
    ///
    /// # Errors
    /// As [`Scheme::sizes`].
    pub fn bits_per_element(&self, rows: usize, cols: usize) -> Result<f64, Error> {
        let sizes = self.sizes(rows, cols)?;
        let bytes = sizes.codes + sizes.scales + sizes.mins;
        // Sizes of buffers are far below 2^53.
        Ok(bytes as f64 * 8.0 / (rows * cols).max(1) as f64)
    }

    pub(crate) fn plan(&self, rows: usize, cols: usize) -> Result<Plan, Error> {
        let by =
            || format!("blocks of {}x{} {}", self.block.rows, self.block.cols, self.element.name());
        let whole = |what, given: usize, block: usize| match block {
            0 => Ok(given.max(1)),
            _ if given.is_multiple_of(block) => Ok(block),
            _ => Err(Error::Multiple { what, given, multiple: block, by: by() }),
        };
        let block_rows = whole("rows", rows, self.block.rows)?;
        let block_cols = whole("cols", cols, self.block.cols)?;
        let per_word = self.rows_per_word();
        if !rows.is_multiple_of(per_word) {
            let by = format!("int32 words of {per_word} rows");
            return Err(Error::Multiple { what: "rows", given: rows, multiple: per_word, by });
        }
        let row_bytes = match self.pack {
            Pack::Bits => (cols * self.element.bits() as usize).div_ceil(8),
            Pack::Bytes => cols,
            Pack::WordsAlongRows => cols * 4,
        };
        Ok(Plan { rows, cols, block_rows, block_cols, row_bytes, scale_bytes: self.scale_bytes() })
    }
}
