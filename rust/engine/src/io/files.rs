//! The files of one device: opened, owned, and on the best path that the file system really takes.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::fs::{AtFlags, FallocateFlags, OFlags, StatxFlags};
use rustix::io::Errno;

use super::MIN_UNIT;
use super::bounce::{Bounce, units_around};
use super::device::{File, Grown, OpKind};
use super::error::{IoErrorKind, OpenError, to_io};
use super::psync::OpenOptions;
use super::{lock, transfer};
use crate::host::fork::Owned;

/// Exists only while a device is opened, to see what the file system takes.
const PROBE: &str = "probe";
/// The files whose descriptions carry the lock (C9).
const LOCKED: [File; 3] = [File::Superblock, File::Table, File::Data];
/// Metadata goes through memory of at most this size.
const BOUNCE_BYTES: usize = 1 << 20;

/// Files of one device, locked until dropped.
pub(super) struct Files {
    dir: PathBuf,
    files: [Owned; File::ALL.len()],
    /// What the file system refused, if files meant to be direct are not.
    refused: Option<String>,
    unit: u32,
    /// The last [`Grown`], 0 before.
    grown: AtomicU8,
}

impl Files {
    pub(super) fn open(dir: &Path, options: &OpenOptions) -> Result<Files, OpenError> {
        let handle = open_directory(dir)?;
        let mut files = Vec::with_capacity(File::ALL.len());
        for file in File::ALL {
            files.push(open_file(&dir.join(file.name()))?);
        }
        // INV-8: a file is only there once its directory says so.
        handle.sync_all().map_err(|error| OpenError::io(dir, error))?;
        let Ok(files) = <[Owned; File::ALL.len()]>::try_from(files) else {
            unreachable!("one open file for each of File::ALL")
        };
        let carry = LOCKED.map(|file| files[file as usize].as_fd());
        lock::acquire(dir, &carry, options.lock_wait)?;

        let unit = unit_of(&files[File::Data as usize]);
        let refused = match options.direct {
            true => probe_direct(dir, &files[File::Table as usize], unit)?,
            false => Some("buffered files were asked for".to_owned()),
        };
        let files = Files { dir: dir.to_owned(), files, refused, unit, grown: AtomicU8::new(0) };
        if files.refused.is_none() {
            for file in File::ALL.into_iter().filter(|file| file.direct()) {
                set_direct(files.file(file)).map_err(|error| files.named(file, error))?;
            }
        }
        Ok(files)
    }

    pub(super) fn file(&self, file: File) -> &fs::File {
        self.files[file as usize].file()
    }

    /// Gives the lock up. The files must not be used any more.
    pub(super) fn unlock(&self) {
        lock::release(&LOCKED.map(|file| self.files[file as usize].as_fd()));
    }

    pub(super) fn unit(&self) -> u32 {
        self.unit
    }

    pub(super) fn refused(&self) -> Option<&str> {
        self.refused.as_deref()
    }

    pub(super) fn allocation(&self) -> &'static str {
        match self.grown.load(Ordering::Relaxed) {
            0 => "none",
            1 => Grown::Allocated.as_str(),
            _ => Grown::Sparse.as_str(),
        }
    }

    pub(super) fn len(&self, file: File) -> io::Result<u64> {
        Ok(self.file(file).metadata()?.len())
    }

    pub(super) fn grow(&self, file: File, len: u64) -> io::Result<Grown> {
        let open = self.file(file);
        let stat = rustix::fs::fstat(open)?;
        let old = stat.st_size.cast_unsigned();
        if len <= old {
            let kept = stat.st_blocks.cast_unsigned() * 512;
            return Ok(if kept >= old { Grown::Allocated } else { Grown::Sparse });
        }
        let grown = extend(open, old, len).and_then(|grown| open.sync_all().map(|()| grown));
        match grown {
            Ok(grown) => {
                let mark = if grown == Grown::Allocated { 1 } else { 2 };
                self.grown.store(mark, Ordering::Relaxed);
            }
            // A growth that fails half-way may have moved the end already.
            Err(_) => open.set_len(old)?,
        }
        grown
    }

    pub(super) fn truncate(&self, file: File, len: u64) -> io::Result<()> {
        if self.len(file)? > len {
            self.file(file).set_len(len)?;
            self.file(file).sync_all()?;
        }
        Ok(())
    }

    pub(super) fn read_at(&self, file: File, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        if !self.needs_bounce(file) {
            return self.file(file).read_exact_at(bytes, offset);
        }
        let mut at = offset;
        for piece in bytes.chunks_mut(BOUNCE_BYTES) {
            let units = units_around(at, piece.len(), self.unit);
            let mut bounce = self.bounce(units.end - units.start);
            let skip = to_len(at - units.start);
            let got = self.read_up_to(file, units.start, bounce.bytes_mut())?;
            let Some(found) = bounce.bytes().get(skip..skip + piece.len()) else {
                unreachable!("units around a piece cover it")
            };
            if got < skip + piece.len() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            piece.copy_from_slice(found);
            at += piece.len() as u64;
        }
        Ok(())
    }

    pub(super) fn write_at(&self, file: File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        if !self.needs_bounce(file) {
            return self.file(file).write_all_at(bytes, offset);
        }
        let mut at = offset;
        for piece in bytes.chunks(BOUNCE_BYTES) {
            let units = units_around(at, piece.len(), self.unit);
            let mut bounce = self.bounce(units.end - units.start);
            let skip = to_len(at - units.start);
            if bounce.bytes().len() > piece.len() {
                self.read_up_to(file, units.start, bounce.bytes_mut())?;
            }
            bounce.bytes_mut()[skip..skip + piece.len()].copy_from_slice(piece);
            let open = self.file(file);
            let whole = bounce.bytes();
            transfer::full(OpKind::Write, whole.len(), self.unit as usize, |done| {
                open.write_at(&whole[done..], units.start + done as u64)
            })
            .map_err(to_io)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Reads until the buffer is full or the file ends; returns the bytes read.
    fn read_up_to(&self, file: File, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
        let open = self.file(file);
        let mut reached = 0;
        let result = transfer::full(OpKind::Read, bytes.len(), self.unit as usize, |done| {
            let moved = open.read_at(&mut bytes[done..], offset + done as u64)?;
            reached = done + moved;
            Ok(moved)
        });
        match result {
            Ok(()) | Err(IoErrorKind::Eof) => Ok(reached),
            Err(kind) => Err(to_io(kind)),
        }
    }

    fn needs_bounce(&self, file: File) -> bool {
        file.direct() && self.refused.is_none()
    }

    fn bounce(&self, len: u64) -> Bounce {
        Bounce::new(to_len(len), self.unit as usize)
    }

    fn named(&self, file: File, error: io::Error) -> OpenError {
        OpenError::io(&self.dir.join(file.name()), error)
    }
}

fn open_directory(dir: &Path) -> Result<fs::File, OpenError> {
    let named = |error| OpenError::io(dir, error);
    if !dir.exists() {
        // What is kept are the words of users: nobody else's business.
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(named)?;
        if let Some(parent) = dir.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            fs::File::open(parent).and_then(|parent| parent.sync_all()).map_err(named)?;
        }
    }
    let flags = OFlags::DIRECTORY.bits().cast_signed();
    fs::File::options().read(true).custom_flags(flags).open(dir).map_err(named)
}

fn open_file(path: &Path) -> Result<Owned, OpenError> {
    let mut options = fs::File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    Owned::open(|| options.open(path)).map_err(|error| OpenError::io(path, error))
}

/// The unit that places and lengths keep: what the file system says, and never below 4 KiB.
fn unit_of(file: &Owned) -> u32 {
    let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN);
    let said = stat.map_or(0, |stat| stat.stx_dio_offset_align);
    // Slots of the arena are aligned to 4 KiB. Memory alignment above that is unheard of, and
    // would show in the probe.
    if said.is_power_of_two() { said.max(MIN_UNIT) } else { MIN_UNIT }
}

fn set_direct(file: &fs::File) -> io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    Ok(rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT)?)
}

/// Writes and reads two units around the page cache. The reason where the file system refuses:
/// some take the flag and fail the transfer, so asking is not enough.
fn probe_direct(dir: &Path, table: &Owned, unit: u32) -> Result<Option<String>, OpenError> {
    let path = dir.join(PROBE);
    let mut options = fs::File::options();
    options.read(true).write(true).create(true).truncate(true).mode(0o600);
    let file = options.open(&path).map_err(|error| OpenError::io(&path, error))?;
    fs::remove_file(&path).map_err(|error| OpenError::io(&path, error))?;
    let is_full = |error: &io::Error| error.kind() == io::ErrorKind::StorageFull;
    let took = match direct_round_trip(&file, unit) {
        // A store on a full file system is still one to open.
        Err(error) if is_full(&error) && table.file().metadata().is_ok_and(|m| m.len() > 0) => {
            direct_in_place(table.file(), unit)
        }
        took => took,
    };
    match took {
        Ok(true) => Ok(None),
        Ok(false) => Ok(Some("direct I/O read other bytes than it wrote".to_owned())),
        Err(error) if is_full(&error) => Err(OpenError::io(dir, error)),
        Err(error) => Ok(Some(format!("direct I/O is refused: {error}"))),
    }
}

/// Writes the first unit of a file again as it is, where a file system has no room for another.
fn direct_in_place(file: &fs::File, unit: u32) -> io::Result<bool> {
    let flags = rustix::fs::fcntl_getfl(file)?;
    rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT)?;
    let mut bounce = Bounce::new(unit as usize, MIN_UNIT as usize);
    let took = file
        .read_exact_at(bounce.bytes_mut(), 0)
        .and_then(|()| file.write_all_at(bounce.bytes(), 0))
        .map(|()| true);
    rustix::fs::fcntl_setfl(file, flags)?;
    took
}

fn direct_round_trip(file: &fs::File, unit: u32) -> io::Result<bool> {
    set_direct(file)?;
    let len = unit as usize;
    let mut bounce = Bounce::new(2 * len, MIN_UNIT as usize);
    let pattern = || (0..=u8::MAX).cycle().step_by(7);
    bounce.bytes_mut().iter_mut().zip(pattern()).for_each(|(byte, value)| *byte = value);
    file.write_all_at(&bounce.bytes()[..len], 0)?;
    file.write_all_at(&bounce.bytes()[len..], u64::from(unit))?;
    bounce.bytes_mut().fill(0);
    file.read_exact_at(bounce.bytes_mut(), 0)?;
    Ok(bounce.bytes().iter().zip(pattern()).all(|(byte, value)| *byte == value))
}

/// Sets space aside from `old` to `len`, where the file system can.
fn extend(file: &fs::File, old: u64, len: u64) -> io::Result<Grown> {
    loop {
        return match rustix::fs::fallocate(file, FallocateFlags::empty(), old, len - old) {
            Ok(()) => Ok(Grown::Allocated),
            Err(Errno::INTR) => continue,
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.set_len(len).map(|()| Grown::Sparse),
            Err(errno) => Err(errno.into()),
        };
    }
}

/// A length that is known to be that of a buffer.
fn to_len(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
