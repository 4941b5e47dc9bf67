//! Transfers with a fault.

use std::io;

use super::content::Content;
use super::plan::Fault;
use super::random::Random;
use crate::io::error::{IoErrorKind, kind_of};

/// Reads as the fault wants it.
pub(super) fn read(
    content: &Content,
    offset: usize,
    bytes: &mut [u8],
    fault: Option<Fault>,
    random: &mut Random,
) -> Result<(), IoErrorKind> {
    let half = bytes.len() / 2;
    match fault {
        None | Some(Fault::Short | Fault::Stuck) => content.read(offset, bytes),
        Some(Fault::Errno(errno)) => Err(errno_kind(errno)),
        Some(Fault::Broken(errno)) => {
            content.read(offset, &mut bytes[..half])?;
            Err(errno_kind(errno))
        }
        Some(Fault::Partial) => content.read(offset, &mut bytes[..half]),
        Some(Fault::Lost) => Ok(()),
        Some(Fault::Misdirect(by)) => content.read(aside(offset, by), bytes),
        Some(Fault::FlipBit) => {
            content.read(offset, bytes)?;
            flip(bytes, random);
            Ok(())
        }
    }
}

/// Writes as the fault wants it.
pub(super) fn write(
    content: &mut Content,
    offset: usize,
    bytes: &[u8],
    fault: Option<Fault>,
    random: &mut Random,
) -> Result<(), IoErrorKind> {
    let half = &bytes[..bytes.len() / 2];
    match fault {
        None | Some(Fault::Short | Fault::Stuck) => content.write(offset, bytes),
        Some(Fault::Errno(errno)) => return Err(errno_kind(errno)),
        Some(Fault::Broken(errno)) => {
            content.write(offset, half);
            return Err(errno_kind(errno));
        }
        Some(Fault::Partial) => content.write(offset, half),
        Some(Fault::Lost) => {}
        Some(Fault::Misdirect(by)) => content.write(aside(offset, by), bytes),
        Some(Fault::FlipBit) => {
            let mut bytes = bytes.to_vec();
            flip(&mut bytes, random);
            content.write(offset, &bytes);
        }
    }
    Ok(())
}

/// Syncs as the fault wants it.
pub(super) fn sync(content: &mut Content, fault: Option<Fault>) -> Result<(), IoErrorKind> {
    match fault {
        Some(Fault::Errno(errno) | Fault::Broken(errno)) => Err(errno_kind(errno)),
        Some(Fault::Lost | Fault::Partial) => Ok(()),
        _ => {
            content.sync();
            Ok(())
        }
    }
}

fn flip(bytes: &mut [u8], random: &mut Random) {
    if !bytes.is_empty() {
        let at = random.below(bytes.len());
        bytes[at] ^= 1 << random.below(8);
    }
}

fn errno_kind(errno: i32) -> IoErrorKind {
    kind_of(&io::Error::from_raw_os_error(errno))
}

fn aside(offset: usize, by: i64) -> usize {
    offset.saturating_add_signed(isize::try_from(by).unwrap_or(0))
}
