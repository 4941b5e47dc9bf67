//! The limits that an existing store asks for, read without opening it.

use super::config::Options;
use crate::disk::DESCRIPTOR;
use crate::disk::superblock::{COPY_DISTANCE, LEN, Superblock};
use crate::error::{Error, ErrorKind, Result};
use crate::io::device::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

impl Options {
    /// Options that leave the store in `dir` as it is: its own limit, an index with room for all
    /// it can hold, no host tier. For whoever looks after a store without being its user.
    ///
    /// # Errors
    /// The directory holds no store, or none that this build can read.
    pub fn of_existing(dir: &Path) -> Result<Self> {
        let path = dir.join(File::Superblock.name());
        let file = std::fs::File::open(&path).map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Error::new(
                ErrorKind::InvalidArgument,
                format!("{} holds no store: there is no {}", dir.display(), path.display()),
            ),
            _ => Error::io("cannot read", &path, error),
        })?;
        let copy = |offset| {
            let mut copy = [0; LEN];
            // A copy that cannot be read is one that does not count.
            if file.read_exact_at(&mut copy, offset).is_err() {
                copy.fill(0xFF);
            }
            copy
        };
        let superblock = Superblock::newer(&copy(0), &copy(COPY_DISTANCE))?;
        let table = dir.join(File::Table.name());
        let slots = std::fs::metadata(&table)
            .map_err(|error| Error::io("cannot read", &table, error))?
            .len()
            / DESCRIPTOR;
        Ok(Self {
            host_bytes: 0,
            disk_bytes: superblock.disk_bytes,
            objects: Some(slots.clamp(1, u64::from(u32::MAX) - 1)),
            ..Self::new()
        })
    }
}
