//! Pages of grouped-query attention: K and V of `tokens` x `heads` x `head_dim`.
//!
//! A page is the K side, then the V side. A side is its codes, then its scales unless they are
//! inline. Codes run token by token (NHD) or head by head (HND), as vLLM's strides say.

use crate::error::{Error, exact};
use crate::level::kernels;
use crate::rows::Rows;
use crate::scheme::{Given, Global, Scale, Scheme, presets};
use crate::swizzle;

/// Scale bytes of one head that are held on the stack.
const MOST_SCALES: usize = 64;

/// Order of rows in a side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Token, head, channel.
    Nhd,
    /// Head, token, channel.
    Hnd,
}

/// Where the scales of a row stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scales {
    /// After all codes of the side, in the order of the rows.
    After,
    /// After the row's codes: the row's stride is codes and scales together.
    Inline,
    /// As [`Scales::After`], those of V swizzled 4 tokens x 4 groups for the SM100 reader.
    AfterSwizzledV,
}

/// A page shape.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    scheme: Option<Scheme>,
    tokens: usize,
    heads: usize,
    head_dim: usize,
    order: Order,
    scales: Scales,
}

/// Bytes of a row.
struct Row {
    rows: Option<Rows>,
    codes: usize,
    scales: usize,
}

impl Page {
    /// A page of `preset`'s codes, or of bf16 for `"bf16"`.
    ///
    /// # Errors
    /// An unknown or unsuitable preset (its scales must belong to single rows), a head that does not
    /// divide into blocks, tokens or groups that do not divide by 4 where V is swizzled.
    pub fn new(
        preset: &str,
        [tokens, heads, head_dim]: [usize; 3],
        order: Order,
        scales: Scales,
    ) -> Result<Self, Error> {
        let scheme = match preset {
            "bf16" => None,
            _ => Some(presets::named(preset)?.scheme),
        };
        let page = Self { scheme, tokens, heads, head_dim, order, scales };
        for (what, given) in [("tokens", tokens), ("heads", heads), ("head_dim", head_dim)] {
            if given == 0 {
                let (given, wanted) = ("0".to_owned(), "at least 1".to_owned());
                return Err(Error::Argument { what, given, wanted });
            }
        }
        if scheme.is_some_and(|s| s.block.rows != 1 || s.scale == Scale::Affine) {
            return Err(Error::Argument {
                what: "preset",
                given: preset.to_owned(),
                wanted: "a scheme whose scales belong to single rows".to_owned(),
            });
        }
        let row = page.row()?;
        if row.scales > MOST_SCALES {
            let given = format!("{head_dim} ({} bytes of scales)", row.scales);
            let wanted = format!("at most {MOST_SCALES} bytes of scales per head");
            return Err(Error::Argument { what: "head_dim", given, wanted });
        }
        if scales == Scales::AfterSwizzledV {
            for (what, given) in [("tokens", tokens), ("scales per head", row.scales)] {
                if given == 0 || !given.is_multiple_of(4) {
                    let by = "the 4x4 swizzle of V scales".to_owned();
                    return Err(Error::Multiple { what, given, multiple: 4, by });
                }
            }
        }
        Ok(page)
    }

    fn row(&self) -> Result<Row, Error> {
        let Some(scheme) = &self.scheme else {
            return Ok(Row { rows: None, codes: 2 * self.head_dim, scales: 0 });
        };
        let rows = Rows::new(scheme, self.head_dim, kernels())?;
        Ok(Row { codes: rows.code_bytes, scales: rows.scale_bytes, rows: Some(rows) })
    }

    /// Bytes of a page.
    ///
    /// # Errors
    /// A head that does not divide into blocks.
    pub fn bytes(&self) -> Result<usize, Error> {
        let row = self.row()?;
        Ok(2 * self.tokens * self.heads * (row.codes + row.scales))
    }

    /// Distance between the rows of a side.
    ///
    /// # Errors
    /// As [`Page::bytes`].
    pub fn stride(&self) -> Result<usize, Error> {
        let row = self.row()?;
        Ok(if self.scales == Scales::Inline { row.codes + row.scales } else { row.codes })
    }

    /// Elements of one side.
    #[must_use]
    pub const fn elements(&self) -> usize {
        self.tokens * self.heads * self.head_dim
    }

    const fn place(&self, token: usize, head: usize) -> usize {
        match self.order {
            Order::Nhd => token * self.heads + head,
            Order::Hnd => head * self.tokens + token,
        }
    }

    /// Position in a side's scale plane of scale `s` of (token, head).
    fn scale_place(
        &self,
        row: &Row,
        value_side: bool,
        token: usize,
        head: usize,
        s: usize,
    ) -> usize {
        let (token, s) = if value_side && self.scales == Scales::AfterSwizzledV {
            swizzle::four_by_four(token, s, row.scales)
        } else {
            (token, s)
        };
        self.place(token, head) * row.scales + s
    }

    fn check(&self, page: usize, given: &[f32; 2], sides: [usize; 2]) -> Result<(), Error> {
        let shape = || format!("{} tokens, {} heads of {}", self.tokens, self.heads, self.head_dim);
        exact("page", page, self.bytes()?, "bytes", shape)?;
        exact("keys", sides[0], self.elements(), "elements", shape)?;
        exact("values", sides[1], self.elements(), "elements", shape)?;
        let bad = |v: f32| !(v.is_finite() && v > 0.0);
        if let Some(index) = given.iter().position(|v| bad(*v)) {
            let what = ["k_scale", "v_scale"][index];
            return Err(Error::Scale { what, index: 0, value: given[index] });
        }
        Ok(())
    }

    /// The scale of a side in the form that its scheme takes; 1.0 where it takes none.
    fn given<'a>(&self, scale: &'a f32) -> Result<Given<'a>, Error> {
        let takes = match self.scheme.map(|s| s.scale) {
            Some(Scale::Given) => {
                return Ok(Given { scale: std::slice::from_ref(scale), global: None });
            }
            Some(Scale::Nv(nv)) => nv.global != Global::None,
            _ => false,
        };
        if !takes && *scale != 1.0 {
            return Err(Error::Argument {
                what: "k_scale, v_scale",
                given: scale.to_string(),
                wanted: "1.0: this scheme stores its own scales".to_owned(),
            });
        }
        Ok(Given { scale: &[], global: takes.then_some(*scale) })
    }

    /// Packs bf16 keys and values, each [tokens, heads, `head_dim`].
    ///
    /// `scales` are `k_scale` and `v_scale`: what static fp8 divides by, NVFP4's second level; 1.0
    /// for schemes that take none.
    ///
    /// # Errors
    /// Buffers of another length, or scales that are not finite and above zero.
    pub fn pack(&self, sides: [&[u16]; 2], scales: [f32; 2], page: &mut [u8]) -> Result<(), Error> {
        self.check(page.len(), &scales, sides.map(<[u16]>::len))?;
        let row = self.row()?;
        let half = page.len() / 2;
        let mut stored = [0u8; MOST_SCALES];
        let stored = &mut stored[..row.scales];
        for (side, elements) in sides.into_iter().enumerate() {
            let given = self.given(&scales[side])?;
            let out = &mut page[side * half..][..half];
            let (stride, planes) = (self.stride()?, self.tokens * self.heads * row.codes);
            for (index, values) in elements.chunks_exact(self.head_dim).enumerate() {
                let (token, head) = (index / self.heads, index % self.heads);
                let at = self.place(token, head) * stride;
                let codes = &mut out[at..at + row.codes];
                let Some(rows) = &row.rows else {
                    for (bytes, bits) in codes.chunks_exact_mut(2).zip(values) {
                        bytes.copy_from_slice(&bits.to_le_bytes());
                    }
                    continue;
                };
                rows.encode(values, given, codes, stored);
                if self.scales == Scales::Inline {
                    out[at + row.codes..at + stride].copy_from_slice(stored);
                    continue;
                }
                for (s, byte) in stored.iter().enumerate() {
                    out[planes + self.scale_place(&row, side == 1, token, head, s)] = *byte;
                }
            }
        }
        Ok(())
    }

    /// Unpacks a page to bf16 keys and values.
    ///
    /// # Errors
    /// As [`Page::pack`].
    pub fn unpack(
        &self,
        page: &[u8],
        scales: [f32; 2],
        sides: [&mut [u16]; 2],
    ) -> Result<(), Error> {
        self.check(page.len(), &scales, [sides[0].len(), sides[1].len()])?;
        let row = self.row()?;
        let half = page.len() / 2;
        let mut stored = [0u8; MOST_SCALES];
        let stored = &mut stored[..row.scales];
        for (side, elements) in sides.into_iter().enumerate() {
            let given = self.given(&scales[side])?;
            let input = &page[side * half..][..half];
            let (stride, planes) = (self.stride()?, self.tokens * self.heads * row.codes);
            for (index, values) in elements.chunks_exact_mut(self.head_dim).enumerate() {
                let (token, head) = (index / self.heads, index % self.heads);
                let at = self.place(token, head) * stride;
                let codes = &input[at..at + row.codes];
                let Some(rows) = &row.rows else {
                    for (bits, bytes) in values.iter_mut().zip(codes.chunks_exact(2)) {
                        *bits = u16::from_le_bytes([bytes[0], bytes[1]]);
                    }
                    continue;
                };
                if self.scales == Scales::Inline {
                    stored.copy_from_slice(&input[at + row.codes..at + stride]);
                } else {
                    for (s, byte) in stored.iter_mut().enumerate() {
                        *byte = input[planes + self.scale_place(&row, side == 1, token, head, s)];
                    }
                }
                rows.decode(codes, stored, given, values);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
