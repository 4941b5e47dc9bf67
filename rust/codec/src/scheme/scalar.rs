//! The scalar specification: every scheme, every source, one block at a time.
//!
//! SIMD levels must give the same bytes; whatever they do not cover ends here.

use super::{Pack, Plan, PowerStore, Quotient, Scale, Scheme, affine, dense, scale};
use crate::e8m0;
use crate::element::Element;

/// Caller's scales, checked: each finite and positive.
#[derive(Debug, Clone, Copy, Default)]
pub struct Given<'a> {
    /// For [`Scale::Given`]: one scale, or one per block along the columns.
    pub scale: &'a [f32],
    /// For NVFP4 with a second level: that number, in the direction the scheme says.
    pub global: Option<f32>,
}

/// Output planes of an encode: codes, stored scales, minima.
#[derive(Debug)]
pub(crate) struct Planes<'a> {
    pub(crate) codes: &'a mut [u8],
    pub(crate) scales: &'a mut [u8],
    pub(crate) mins: &'a mut [u8],
}

/// What a block's numbers are divided by, as each family wants it.
#[derive(Clone, Copy)]
pub(super) struct Divisor {
    scale: f32,
    /// fl(1 / scale), or the scheme's other factor, where it multiplies.
    factor: f32,
}

impl Divisor {
    fn new(quotient: Quotient, scale: f32, other: f32) -> Self {
        let factor = match quotient {
            Quotient::Divide => 1.0,
            Quotient::Reciprocal => 1.0 / scale,
            Quotient::MaxOverAmax | Quotient::GlobalReciprocal => other,
        };
        Self { scale, factor }
    }

    #[inline]
    pub(super) fn apply(self, quotient: Quotient, value: f32) -> f32 {
        match quotient {
            Quotient::Divide => value / self.scale,
            _ => value * self.factor,
        }
    }
}

/// Where one block lies in the matrix.
#[derive(Clone, Copy)]
pub(super) struct Cell {
    pub(super) row: usize,
    pub(super) col: usize,
    pub(super) rows: usize,
    pub(super) cols: usize,
    pub(super) index: usize,
    pub(super) block_col: usize,
}

impl Cell {
    /// Row and column of each element, row by row.
    pub(super) fn each(self) -> impl Iterator<Item = (usize, usize)> {
        (self.row..self.row + self.rows)
            .flat_map(move |r| (self.col..self.col + self.cols).map(move |c| (r, c)))
    }
}

pub(super) fn cells(plan: &Plan) -> impl Iterator<Item = Cell> + use<> {
    let plan = *plan;
    let across = plan.blocks_per_row();
    (0..plan.block_rows_total()).flat_map(move |block_row| {
        (0..across).map(move |block_col| Cell {
            row: block_row * plan.block_rows,
            col: block_col * plan.block_cols,
            rows: plan.block_rows,
            cols: plan.block_cols,
            index: block_row * across + block_col,
            block_col,
        })
    })
}

/// Writes and reads single codes in the order that [`Pack`] says. Destinations must be zero.
#[derive(Clone, Copy)]
pub(super) struct Codes {
    pack: Pack,
    bits: usize,
    row_bytes: usize,
}

impl Codes {
    pub(super) fn new(scheme: &Scheme, plan: &Plan) -> Self {
        let bits = match scheme.pack {
            Pack::Bytes => 8,
            _ => scheme.element.bits() as usize,
        };
        Self { pack: scheme.pack, bits, row_bytes: plan.row_bytes }
    }

    #[inline]
    fn place(self, row: usize, col: usize) -> (usize, usize) {
        match self.pack {
            Pack::WordsAlongRows => {
                let per_word = 32 / self.bits;
                let bit = row % per_word * self.bits;
                (row / per_word * self.row_bytes + col * 4 + bit / 8, bit % 8)
            }
            _ => (row * self.row_bytes + col * self.bits / 8, col * self.bits % 8),
        }
    }

    #[inline]
    pub(super) fn put(self, codes: &mut [u8], row: usize, col: usize, code: u8) {
        let (byte, shift) = self.place(row, col);
        if shift == 0 && self.bits == 8 {
            codes[byte] = code;
            return;
        }
        let wide = u16::from(code) << shift;
        codes[byte] |= (wide & 0xFF) as u8;
        if shift + self.bits > 8 {
            codes[byte + 1] |= (wide >> 8) as u8;
        }
    }

    #[inline]
    pub(super) fn get(self, codes: &[u8], row: usize, col: usize) -> u8 {
        let (byte, shift) = self.place(row, col);
        if self.bits == 8 {
            return codes[byte];
        }
        let mut wide = u16::from(codes[byte]);
        if shift + self.bits > 8 {
            wide |= u16::from(codes[byte + 1]) << 8;
        }
        ((wide >> shift) & ((1 << self.bits) - 1)) as u8
    }
}

/// Encodes all blocks of a plan. `load(i)` gives element i, row-major; lengths were checked.
pub(crate) fn encode_blocks(
    scheme: &Scheme,
    plan: &Plan,
    load: impl Fn(usize) -> f32 + Copy,
    given: Given<'_>,
    out: Planes<'_>,
) {
    if scheme.scale == Scale::Affine {
        return affine::encode(scheme, plan, load, out);
    }
    if plan.block_rows == 1 && dense::suits(scheme) {
        return dense::encode(scheme, plan, load, given, out);
    }
    let places = Codes::new(scheme, plan);
    out.codes.fill(0);
    for cell in cells(plan) {
        let at = |(r, c): (usize, usize)| load(r * plan.cols + c);
        let put = |codes: &mut [u8], (r, c), code| places.put(codes, r, c, code);
        let stored = &mut out.scales[cell.index * plan.scale_bytes..][..plan.scale_bytes];
        encode_block(scheme, given, cell.block_col, || cell.each(), at, out.codes, put, stored);
    }
}

/// Encodes one block: `each` lists its elements, `at` reads one, `put` writes one code.
#[inline]
#[expect(clippy::too_many_arguments, reason = "one block, its elements and its two destinations")]
fn encode_block<I: Copy, E: Iterator<Item = I>>(
    scheme: &Scheme,
    given: Given<'_>,
    block_col: usize,
    each: impl Fn() -> E,
    at: impl Fn(I) -> f32,
    codes: &mut [u8],
    put: impl Fn(&mut [u8], I, u8),
    stored: &mut [u8],
) {
    let keep_nan = keeps_nan_in_amax(scheme);
    let amax = each().fold(0, |most, i| larger(most, at(i), keep_nan));
    let divisor = divide_by(scheme, given, block_col, amax, stored, |divisor| {
        squared_error(scheme, divisor, each().map(&at))
    });
    each().for_each(|i| {
        let code = match divisor {
            Some(divisor) => {
                scheme.element.encode(divisor.apply(scheme.quotient, at(i)), scheme.cast)
            }
            None => 0,
        };
        put(codes, i, code);
    });
}

/// The larger magnitude, as fp32 bits.
#[inline]
pub(super) fn larger(most: u32, value: f32, keep_nan: bool) -> u32 {
    let magnitude = value.to_bits() & 0x7FFF_FFFF;
    if magnitude > 0x7F80_0000 && !keep_nan { most } else { most.max(magnitude) }
}

/// Stores a block's scale and gives what its numbers are divided by; `None` where all codes are 0.
///
/// `error` is the sum of squared errors under a divisor, which 4-over-6 compares.
#[inline]
pub(super) fn divide_by(
    scheme: &Scheme,
    given: Given<'_>,
    block_col: usize,
    amax: u32,
    stored: &mut [u8],
    error: impl Fn(Divisor) -> f32,
) -> Option<Divisor> {
    match scheme.scale {
        Scale::Given => {
            let scale = given.scale[block_col % given.scale.len()];
            Some(Divisor::new(scheme.quotient, scale, 1.0 / scale))
        }
        Scale::Power(power) => {
            let code = scale::power_of_two_code(&power, scheme.element, amax);
            // A writer that gives an infinite block 0xFF has divided by infinity.
            let infinite = code == e8m0::NAN && amax == 0x7F80_0000;
            let value = if infinite { f32::INFINITY } else { e8m0::decode(code) };
            match power.store {
                PowerStore::E8M0 => stored[0] = code,
                PowerStore::F32 => stored.copy_from_slice(&e8m0::decode(code).to_le_bytes()),
            }
            // Poisoned, and no code can say so: zeros, the scale alone is NaN.
            let hidden = value.is_nan() && scheme.element.bits() < 8;
            (!hidden).then(|| Divisor::new(scheme.quotient, value, 1.0 / value))
        }
        Scale::Linear(linear) => {
            let (value, amax) = scale::linear_scale(&linear, f32::from_bits(amax));
            stored.copy_from_slice(&value.to_le_bytes());
            (value != 0.0).then(|| Divisor::new(scheme.quotient, value, linear.max / amax))
        }
        Scale::Nv(nv) => {
            let multiplier = multiplier(&nv, given);
            let amax = f32::from_bits(amax);
            let mut chosen = nv_divisor(scheme, &nv, amax, 6.0, multiplier);
            if nv.four_over_six && amax.is_finite() {
                let other = nv_divisor(scheme, &nv, amax, 4.0, multiplier);
                if error(other.1) < error(chosen.1) {
                    chosen = other;
                }
            }
            stored[0] = chosen.0;
            let usable = chosen.1.scale != 0.0 && !chosen.1.scale.is_nan();
            usable.then_some(chosen.1)
        }
        Scale::Affine => unreachable!("affine schemes are encoded by their own module"),
    }
}

/// Whether a NaN element makes the block's amax NaN, or is left out of it.
pub(crate) const fn keeps_nan_in_amax(scheme: &Scheme) -> bool {
    match scheme.scale {
        Scale::Power(power) => power.nan_code.is_some(),
        // torch's amax, which these follow, carries NaN.
        _ => true,
    }
}

/// The second-level scale as a multiplier.
pub(crate) fn multiplier(nv: &super::NvScale, given: Given<'_>) -> f32 {
    match (nv.global, given.global) {
        (super::Global::Inverse, Some(inverse)) => 1.0 / inverse,
        (super::Global::Multiplier, Some(multiplier)) => multiplier,
        _ => 1.0,
    }
}

/// The scale code of a block and its divisor.
fn nv_divisor(
    scheme: &Scheme,
    nv: &super::NvScale,
    amax: f32,
    divisor: f32,
    multiplier: f32,
) -> (u8, Divisor) {
    let (code, value) = scale::nv_scale(nv, amax, divisor, multiplier);
    let other = (1.0 / multiplier) / Element::E4M3Fn.decode(code);
    (code, Divisor::new(scheme.quotient, value, other))
}

/// Sum of squared differences in element order, fp32: what 4-over-6 compares.
pub(super) fn squared_error(
    scheme: &Scheme,
    divisor: Divisor,
    values: impl Iterator<Item = f32>,
) -> f32 {
    values.fold(0.0, |sum, x| {
        let decoded = if divisor.scale == 0.0 {
            0.0
        } else {
            let code = scheme.element.encode(divisor.apply(scheme.quotient, x), scheme.cast);
            scheme.element.decode(code) * divisor.scale
        };
        let difference = decoded - x;
        sum + difference * difference
    })
}

/// Decodes all blocks of a plan to fp32, handed to `store(i, value)` in block order.
pub(crate) fn decode_blocks(
    scheme: &Scheme,
    plan: &Plan,
    codes: &[u8],
    scales: &[u8],
    mins: &[u8],
    given: Given<'_>,
    mut store: impl FnMut(usize, f32),
) {
    if scheme.scale == Scale::Affine {
        return affine::decode(scheme, plan, codes, scales, mins, store);
    }
    if plan.block_rows == 1 && dense::suits(scheme) {
        return dense::decode(scheme, plan, codes, scales, given, store);
    }
    let places = Codes::new(scheme, plan);
    for cell in cells(plan) {
        let stored = &scales[cell.index * plan.scale_bytes..][..plan.scale_bytes];
        let scale = stored_scale(scheme, stored, cell.block_col, given);
        for (r, c) in cell.each() {
            let code = places.get(codes, r, c);
            store(r * plan.cols + c, decode_one(scheme.element, code, scale));
        }
    }
}

/// One code times its scale.
#[inline]
pub(crate) fn decode_one(element: Element, code: u8, scale: f32) -> f32 {
    element.values()[usize::from(code)] * scale
}

/// The fp32 number that a block's codes are multiplied by.
#[inline]
pub(crate) fn stored_scale(
    scheme: &Scheme,
    stored: &[u8],
    block_col: usize,
    given: Given<'_>,
) -> f32 {
    match scheme.scale {
        Scale::Given => given.scale[block_col % given.scale.len()],
        Scale::Power(power) if power.store == PowerStore::E8M0 => e8m0::decode(stored[0]),
        Scale::Nv(nv) => scale::total(&nv, stored[0], multiplier(&nv, given)),
        _ => f32::from_le_bytes([stored[0], stored[1], stored[2], stored[3]]),
    }
}
