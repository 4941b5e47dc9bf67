//! The superblock of an open: that of the store, or of a new one.

use super::config::Options;
use crate::disk::geometry::Geometry;
use crate::disk::namespaces::{self};
use crate::disk::superblock::{self, Superblock};
use crate::disk::tenants::{self};
use crate::disk::{MAX_CLASSES, PAGE};
use crate::error::{Error, ErrorKind, Result};
use crate::io::device::{Device, File};
use std::time::{SystemTime, UNIX_EPOCH};

/// The superblock that counts, or a fresh one in an empty device.
pub(super) fn load_superblock(
    device: &dyn Device,
    options: &Options,
) -> Result<(Superblock, bool)> {
    let broken = |error| Error::new(ErrorKind::Io, format!("cannot read the superblock: {error}"));
    let len = device.len(File::Superblock).map_err(broken)?;
    let mut copies = [[0; superblock::LEN]; 2];
    if len > 0 {
        let short = len < superblock::FILE_BYTES;
        for (copy, offset) in copies.iter_mut().zip([0, superblock::COPY_DISTANCE]) {
            if !short || offset + PAGE <= len {
                // A copy that cannot be read is one that does not count.
                if device.read_at(File::Superblock, offset, copy).is_err() {
                    copy.fill(0xFF);
                }
            }
        }
    }
    let newer = Superblock::newer(&copies[0], &copies[1]);
    if newer.is_err() && copies.iter().all(Superblock::may_be_torn) {
        // A crash before the first whole superblock leaves files without a store.
        match not_ours(device).map_err(broken)? {
            None => return create(device, options).map(|superblock| (superblock, true)),
            Some(file) if copies.iter().flatten().all(|&byte| byte == 0) => {
                return Err(Error::new(
                    ErrorKind::Incompatible,
                    format!(
                        "there is no superblock but a file `{file}`: restore the superblock of its \
                         store, or move the file away to start empty"
                    ),
                ));
            }
            Some(_) => {}
        }
    }
    let superblock = newer?;
    if superblock.devices != 1 || superblock.device != 0 {
        return Err(Error::new(
            ErrorKind::Incompatible,
            format!(
                "device {} of {}: this build opens stores of one device",
                superblock.device, superblock.devices
            ),
        ));
    }
    Ok((superblock, false))
}

/// A file that holds something although there is no superblock. A crash before the first
/// superblock leaves files that are empty or zero; this one belongs to somebody.
fn not_ours(device: &dyn Device) -> std::io::Result<Option<File>> {
    for file in [File::Data, File::Table, File::Directory, File::Tenants, File::Namespaces] {
        let mut len = device.len(file)?;
        if len > 0 && matches!(file, File::Data | File::Table) {
            return Ok(Some(file));
        }
        let mut bytes = vec![0; namespaces::COPY_BYTES as usize];
        let mut offset = 0;
        while len > 0 {
            let piece = &mut bytes[..len.min(namespaces::COPY_BYTES) as usize];
            device.read_at(file, offset, piece)?;
            if piece.iter().any(|&byte| byte != 0) {
                return Ok(Some(file));
            }
            offset += piece.len() as u64;
            len -= piece.len() as u64;
        }
    }
    Ok(None)
}

fn create(device: &dyn Device, options: &Options) -> Result<Superblock> {
    if options.read_only {
        return Err(Error::invalid("read_only: the directory holds no store yet"));
    }
    let max_disk_bytes = options.max_disk_bytes.unwrap_or(options.disk_bytes.saturating_mul(4));
    let geometry = Geometry::choose(options.disk_bytes, max_disk_bytes)?;
    let mut random = [0; 48];
    let mut filled = 0;
    while filled < random.len() {
        filled +=
            rustix::rand::getrandom(&mut random[filled..], rustix::rand::GetRandomFlags::empty())
                .map_err(|error| Error::new(ErrorKind::Io, format!("no random numbers: {error}")))?;
    }
    let (store, secret) = random.split_at(16);
    let mut superblock = Superblock {
        store: [0; 16],
        device: 0,
        devices: 1,
        secret: [0; 32],
        generation: 0,
        geometry,
        disk_bytes: options.disk_bytes,
        max_disk_bytes,
        sequence_floor: 0,
        tenant_floor: 0,
        created_at: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
        classes: [0; MAX_CLASSES],
    };
    superblock.store.copy_from_slice(store);
    superblock.secret.copy_from_slice(secret);
    let files = [
        (File::Superblock, superblock::FILE_BYTES),
        (File::Namespaces, namespaces::FILE_BYTES),
        (File::Tenants, tenants::FILE_BYTES),
        (File::Directory, 2 * geometry.directory_bytes()),
    ];
    let grow = |file, len| {
        device.grow(file, len).map_err(|error| {
            Error::new(
                ErrorKind::Io,
                format!("cannot make the {file} file of {len} bytes: {error}"),
            )
        })
    };
    for (file, len) in files {
        grow(file, len)?;
    }
    // Both copies, so that one torn write never leaves a store without a superblock.
    for generation in [1, 2] {
        superblock.generation = generation;
        let offset = (generation % 2) * superblock::COPY_DISTANCE;
        device
            .write_at(File::Superblock, offset, &superblock.encode())
            .and_then(|()| device.sync(File::Superblock))
            .map_err(|error| {
                Error::new(ErrorKind::Io, format!("cannot write the superblock: {error}"))
            })?;
    }
    Ok(superblock)
}
