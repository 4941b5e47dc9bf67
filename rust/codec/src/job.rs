//! A scheme bound to contiguous blocks of bf16: what SIMD kernels take.

use std::sync::OnceLock;

use crate::e8m0;
use crate::element::{Cast, Element, Overflow, ZeroSign};
use crate::float::{Rounding, bf16_to_f32, f32_to_bf16};
use crate::scheme::{
    Given, NvScale, Pack, Plan, Planes, Quotient, Scale, Scheme, decode_blocks, decode_one,
    encode_blocks, multiplier,
};

/// The kinds of scheme that have kernels of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Family {
    /// E4M3 or E5M2, power-of-two scale.
    Power8,
    /// E4M3 or E5M2, fp32 scale.
    Scaled8,
    /// E2M1, power-of-two scale.
    Power4,
    /// E2M1 per 16, E4M3 scale.
    Nv4,
    /// int8, fp32 scale.
    Int8,
}

/// Elements that every kernel's block is a multiple of.
const QUANTUM: usize = 32;

/// The family of a scheme on rows of `cols`, if its blocks suit the kernels.
pub(crate) fn family(scheme: &Scheme, cols: usize) -> Option<Family> {
    let block = if scheme.block.cols == 0 { cols } else { scheme.block.cols };
    let even = scheme.cast.rounding == Rounding::NearestEven;
    if scheme.block.rows != 1 || scheme.pack != Pack::Bits || block == 0 {
        return None;
    }
    let fp8 = matches!(scheme.element, Element::E4M3Fn | Element::E5M2);
    let canonical = scheme.cast == Cast::CANONICAL;
    match scheme.scale {
        Scale::Nv(nv) => {
            let plain = scheme.element == Element::E2M1
                && !nv.four_over_six
                && scheme.cast.zero != ZeroSign::ClearExact;
            (plain && block == 16 && scheme.cast.overflow == Overflow::Saturate)
                .then_some(Family::Nv4)
        }
        _ if !block.is_multiple_of(QUANTUM) => None,
        Scale::Power(_) if fp8 && canonical => Some(Family::Power8),
        Scale::Power(_)
            if scheme.element == Element::E2M1 && scheme.cast.zero != ZeroSign::ClearExact =>
        {
            Some(Family::Power4)
        }
        Scale::Linear(_) | Scale::Given if fp8 && canonical => Some(Family::Scaled8),
        Scale::Linear(_) if scheme.element == Element::Int8 => {
            (even || scheme.cast.rounding == Rounding::Truncate).then_some(Family::Int8)
        }
        _ => None,
    }
}

/// Contiguous blocks of one scheme, with what a kernel needs to know.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Job<'a> {
    pub(crate) scheme: &'a Scheme,
    pub(crate) given: Given<'a>,
    /// Elements of a block.
    pub(crate) block: usize,
    /// Bytes of a block's codes.
    pub(crate) block_bytes: usize,
    /// Blocks of a row: caller's scales repeat after them.
    pub(crate) across: usize,
    /// Write codes (or decoded words) past the cache; the destination is 64-byte aligned.
    pub(crate) stream: bool,
    plan: Plan,
}

impl<'a> Job<'a> {
    /// `row` is the plan of one row.
    pub(crate) fn new(scheme: &'a Scheme, row: &Plan, given: Given<'a>, stream: bool) -> Self {
        let block = row.block_cols;
        let block_bytes = match scheme.pack {
            Pack::Bytes => block,
            _ => block * scheme.element.bits() as usize / 8,
        };
        let plan = Plan { rows: 1, cols: block, block_rows: 1, row_bytes: block_bytes, ..*row };
        Self { scheme, given, block, block_bytes, across: row.blocks_per_row(), stream, plan }
    }

    /// Bytes of one stored scale.
    pub(crate) const fn scale_bytes(&self) -> usize {
        self.plan.scale_bytes
    }

    /// The scale that the caller gave for block `index`, 1.0 where none is taken.
    #[inline(always)]
    pub(crate) fn given_scale(&self, index: usize) -> f32 {
        match self.given.scale {
            [] => 1.0,
            [one] => *one,
            many => many[index % self.across % many.len()],
        }
    }

    fn given_of(&self, index: usize) -> Given<'a> {
        let scale = match self.given.scale.len() {
            0 | 1 => self.given.scale,
            count => {
                let at = index % self.across % count;
                &self.given.scale[at..=at]
            }
        };
        Given { scale, ..self.given }
    }

    /// Encodes block `index` by the specification.
    #[cold]
    pub(crate) fn encode_block(
        &self,
        index: usize,
        source: &[u16],
        codes: &mut [u8],
        scales: &mut [u8],
    ) {
        let planes = Planes { codes, scales, mins: &mut [] };
        let load = |i: usize| bf16_to_f32(source[i]);
        encode_blocks(self.scheme, &self.plan, load, self.given_of(index), planes);
    }

    /// Decodes block `index` by the specification.
    #[cold]
    pub(crate) fn decode_block(
        &self,
        index: usize,
        codes: &[u8],
        scales: &[u8],
        target: &mut [u16],
    ) {
        let store = |i: usize, value| target[i] = f32_to_bf16(value);
        decode_blocks(self.scheme, &self.plan, codes, scales, &[], self.given_of(index), store);
    }

    /// Encodes the blocks from `index` on by the specification.
    #[cold]
    pub(crate) fn encode_blocks(
        &self,
        index: usize,
        source: &[u16],
        codes: &mut [u8],
        scales: &mut [u8],
    ) {
        let size = self.scale_bytes();
        let blocks = source.chunks_exact(self.block).zip(codes.chunks_exact_mut(self.block_bytes));
        for (i, (source, codes)) in blocks.enumerate() {
            self.encode_block(index + i, source, codes, &mut scales[i * size..][..size]);
        }
    }

    /// Decodes the blocks from `index` on by the specification.
    #[cold]
    pub(crate) fn decode_blocks(
        &self,
        index: usize,
        codes: &[u8],
        scales: &[u8],
        target: &mut [u16],
    ) {
        let size = self.scale_bytes();
        let blocks = target.chunks_exact_mut(self.block).zip(codes.chunks_exact(self.block_bytes));
        for (i, (target, codes)) in blocks.enumerate() {
            self.decode_block(index + i, codes, &scales[i * size..][..size], target);
        }
    }

    /// The second-level scale as a multiplier.
    pub(crate) fn multiplier(&self, nv: &NvScale) -> f32 {
        multiplier(nv, self.given)
    }
}

/// The bf16 words of E2M1's 16 codes under one scale, their low bytes and their high bytes.
#[derive(Debug, Clone, Copy)]
#[repr(align(32))]
pub(crate) struct Fp4Values {
    pub(crate) low: [u8; 16],
    pub(crate) high: [u8; 16],
}

/// For each stored code of a scale.
pub(crate) type Fp4Table = [Fp4Values; 256];

/// Fills a table by the specification; `scale` decodes a stored code.
pub(crate) fn fp4_table(scale: impl Fn(u8) -> f32) -> Fp4Table {
    let mut table = [Fp4Values { low: [0; 16], high: [0; 16] }; 256];
    for (stored, values) in (0u8..=255).zip(table.iter_mut()) {
        let scale = scale(stored);
        for code in 0u8..16 {
            let word = f32_to_bf16(decode_one(Element::E2M1, code, scale));
            let i = usize::from(code);
            [values.low[i], values.high[i]] = word.to_le_bytes();
        }
    }
    table
}

/// The table of power-of-two scales.
pub(crate) fn fp4_power_table() -> &'static Fp4Table {
    static TABLE: OnceLock<Box<Fp4Table>> = OnceLock::new();
    TABLE.get_or_init(|| Box::new(fp4_table(e8m0::decode)))
}

/// The table of E4M3 scales without a second level.
pub(crate) fn fp4_nv_table() -> &'static Fp4Table {
    static TABLE: OnceLock<Box<Fp4Table>> = OnceLock::new();
    TABLE.get_or_init(|| Box::new(fp4_table(|code| Element::E4M3Fn.decode(code))))
}

/// The smallest fp32 scale that kernels divide by or multiply with, and the largest: between them
/// neither the reciprocal nor a product of the kernels leaves fp32's normal range.
#[inline(always)]
#[expect(
    clippy::manual_range_contains,
    reason = "stays a call inside functions with target features"
)]
pub(crate) fn ordinary(scale: f32) -> bool {
    const SMALLEST: f32 = f32::from_bits(27 << 23); // 2^-100
    const LARGEST: f32 = f32::from_bits(227 << 23); // 2^100
    scale >= SMALLEST && scale <= LARGEST
}

/// Whether kernels may divide `amax` and what is below it by `scale` through the reciprocal: nothing
/// that matters on the way leaves fp32's normal range.
#[inline(always)]
#[expect(
    clippy::manual_range_contains,
    reason = "stays a call inside functions with target features"
)]
pub(crate) fn divides(amax: f32, scale: f32) -> bool {
    const SMALLEST: f32 = f32::from_bits(67 << 23); // 2^-60
    const LARGEST: f32 = f32::from_bits(187 << 23); // 2^60
    scale >= SMALLEST && scale <= LARGEST && amax <= scale * LARGEST
}

/// For each E4M3 scale code and each of E2M1's first seven magnitudes, the largest bf16 magnitude
/// that still gets it: eight low bytes, then eight high bytes.
pub(crate) type NvSteps = [[u8; 16]; 256];

/// The steps of a rule without a second level, searched in the specification once per rule.
pub(crate) fn nv_steps(quotient: Quotient, cast: Cast) -> Option<&'static NvSteps> {
    static TABLES: [OnceLock<Box<NvSteps>>; 6] = [const { OnceLock::new() }; 6];
    let rounding = match cast.rounding {
        Rounding::NearestEven => 0,
        Rounding::NearestTowardZero => 1,
        Rounding::NearestAway => 2,
        Rounding::Truncate => return None,
    };
    let divide = quotient == Quotient::Divide;
    let table = TABLES[rounding * 2 + usize::from(divide)].get_or_init(|| {
        let mut table = Box::new([[0; 16]; 256]);
        for (scale, row) in (0u8..0x7F).zip(table.iter_mut()).skip(1) {
            let scale = Element::E4M3Fn.decode(scale);
            let code = |magnitude: u16| {
                let x = bf16_to_f32(magnitude);
                let quotient = if divide { x / scale } else { x * (1.0 / scale) };
                Element::E2M1.encode(quotient, cast)
            };
            for step in 0u8..7 {
                // Codes grow with magnitudes: the first finite one above the step.
                let (mut low, mut high) = (0u16, 0x7F80u16);
                while low < high {
                    let middle = low + (high - low) / 2;
                    if code(middle) > step { high = middle } else { low = middle + 1 }
                }
                let i = usize::from(step);
                [row[i], row[8 + i]] = (low - 1).to_le_bytes();
            }
        }
        table
    });
    Some(table)
}
