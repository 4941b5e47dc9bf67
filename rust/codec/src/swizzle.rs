//! Scale layouts: linear, the 128x4 tiles that Blackwell's tensor cores read, and vLLM's 4x4 of V.

use crate::error::{Error, exact};

/// A layout of a [rows, groups] plane of one-byte scales.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleLayout {
    /// Row-major.
    Linear,
    /// tcgen05's: tiles of 128 rows x 4 groups of 512 bytes each, row r of a tile at
    /// `(r mod 32) x 16 + r / 32 x 4`; rows padded to 128 and groups to 4 with zeros.
    Tiles128x4,
    /// vLLM's V scales on SM100: 4 tokens x 4 groups are transposed within a head.
    Four4,
}

/// (token, group) of vLLM's 4x4 swizzle of `groups` scales per token.
#[must_use]
pub const fn four_by_four(token: usize, group: usize, groups: usize) -> (usize, usize) {
    let quarter = groups / 4;
    (token / 4 * 4 + group / quarter, group % quarter * 4 + token % 4)
}

impl ScaleLayout {
    /// The layout of a name: `linear`, `128x4`, `4x4`.
    ///
    /// # Errors
    /// [`Error::Unknown`].
    pub fn named(name: &str) -> Result<Self, Error> {
        match name {
            "linear" => Ok(Self::Linear),
            "128x4" => Ok(Self::Tiles128x4),
            "4x4" => Ok(Self::Four4),
            _ => Err(Error::Unknown {
                kind: "scale layout",
                given: name.to_owned(),
                known: "linear, 128x4, 4x4".to_owned(),
            }),
        }
    }

    /// Bytes of the plane.
    #[must_use]
    pub const fn bytes(self, rows: usize, groups: usize) -> usize {
        match self {
            Self::Tiles128x4 => rows.next_multiple_of(128) * groups.next_multiple_of(4),
            _ => rows * groups,
        }
    }

    const fn position(self, row: usize, group: usize, groups: usize) -> usize {
        match self {
            Self::Linear => row * groups + group,
            Self::Tiles128x4 => {
                let tile = row / 128 * groups.div_ceil(4) + group / 4;
                tile * 512 + row % 32 * 16 + row % 128 / 32 * 4 + group % 4
            }
            Self::Four4 => {
                let (row, group) = four_by_four(row, group, groups);
                row * groups + group
            }
        }
    }

    fn check(self, linear: usize, laid: usize, rows: usize, groups: usize) -> Result<(), Error> {
        let shape = || format!("{rows} rows of {groups} scales");
        if self == Self::Four4 {
            for (what, given) in [("rows", rows), ("groups", groups)] {
                if !given.is_multiple_of(4) {
                    let by = "the 4x4 layout".to_owned();
                    return Err(Error::Multiple { what, given, multiple: 4, by });
                }
            }
        }
        exact("linear scales", linear, rows * groups, "bytes", shape)?;
        exact("laid out scales", laid, self.bytes(rows, groups), "bytes", shape)
    }

    /// Lays row-major scales out; padding is zero.
    ///
    /// # Errors
    /// Buffers that do not fit the shape, shapes that do not divide by 4 where the layout asks.
    pub fn apply(
        self,
        linear: &[u8],
        rows: usize,
        groups: usize,
        out: &mut [u8],
    ) -> Result<(), Error> {
        self.check(linear.len(), out.len(), rows, groups)?;
        out.fill(0);
        for (index, byte) in linear.iter().enumerate() {
            out[self.position(index / groups, index % groups, groups)] = *byte;
        }
        Ok(())
    }

    /// Gathers row-major scales back.
    ///
    /// # Errors
    /// As [`ScaleLayout::apply`].
    pub fn undo(
        self,
        laid: &[u8],
        rows: usize,
        groups: usize,
        linear: &mut [u8],
    ) -> Result<(), Error> {
        self.check(linear.len(), laid.len(), rows, groups)?;
        for (index, byte) in linear.iter_mut().enumerate() {
            *byte = laid[self.position(index / groups, index % groups, groups)];
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiles_place_rows_as_the_tensor_core_reads_them() {
        let (rows, groups) = (130, 5);
        let linear: Vec<u8> = (0..rows * groups).map(|i| (i % 251) as u8).collect();
        let layout = ScaleLayout::Tiles128x4;
        let mut out = vec![0xEE; layout.bytes(rows, groups)];
        layout.apply(&linear, rows, groups, &mut out).unwrap();
        assert_eq!(out.len(), 256 * 8);
        let at = |row: usize, group: usize| linear[row * groups + group];
        assert_eq!(out[1], at(0, 1));
        assert_eq!(out[16], at(1, 0));
        assert_eq!(out[4], at(32, 0));
        assert_eq!(out[512], at(0, 4), "the second tile of groups");
        assert_eq!(out[513], 0, "padding");
        assert_eq!(out[1024 + 16], at(129, 0), "the second tile of rows");
        let mut back = vec![0; linear.len()];
        layout.undo(&out, rows, groups, &mut back).unwrap();
        assert_eq!(back, linear);
    }

    #[test]
    fn four_by_four_is_a_permutation_that_transposes() {
        let (rows, groups) = (8, 8);
        let linear: Vec<u8> = (0..64).collect();
        let mut out = [0; 64];
        ScaleLayout::Four4.apply(&linear, rows, groups, &mut out).unwrap();
        // The first four bytes are group 0 of tokens 0 to 3.
        assert_eq!(out[..4], [0, 8, 16, 24]);
        let mut sorted = out;
        sorted.sort_unstable();
        assert_eq!(sorted.to_vec(), linear);
        let mut back = [0; 64];
        ScaleLayout::Four4.undo(&out, rows, groups, &mut back).unwrap();
        assert_eq!(back.to_vec(), linear);
        let error = ScaleLayout::Four4.apply(&linear[..24], 6, 4, &mut out[..24]).unwrap_err();
        assert!(error.to_string().contains("rows: 6 given"), "{error}");
    }
}
