//! The arena: all payload memory of the host tier, reserved once and touched as it is used.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::mm::{Advice, ProtFlags};

use super::fork::Owned;
use super::map::Mapping;

const HUGE_PAGE: usize = 2 << 20;
const MIN_EXTENT: usize = 64 << 10;

/// What stands behind an arena.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum ArenaKind {
    /// Anonymous memory with transparent huge pages, the fastest that a default Linux gives.
    /// Views are the same memory, so foreign code can write through them.
    Private,
    /// A memfd that other processes can map, in huge pages where the system allows it, with a
    /// second mapping for views that nobody can write through.
    Shared,
}

/// A place in the arena: `len` bytes at `offset` of `extent`.
///
/// Never a slice: the bytes belong to whoever holds the slot, or to the I/O while one is in
/// flight, and the type system does not see either.
#[derive(Copy, Clone, Debug, Eq, PartialEq, Hash)]
pub struct Buf {
    /// Extent number.
    pub extent: u32,
    /// First byte inside the extent.
    pub offset: u32,
    /// Length in bytes.
    pub len: u32,
}

/// Memory for payloads, in extents of equal size. Unmapped when the last holder lets it go.
///
/// A forked child has no mapping of it (`MADV_DONTFORK`), and it is left out of core dumps.
pub struct Arena {
    memory: Mapping,
    view: Option<Mapping>,
    memfd: Option<Owned>,
    extent_bytes: usize,
    extents: u32,
    kind: ArenaKind,
    backing: &'static str,
}

impl Arena {
    /// Reserves `bytes`, a multiple of `extent_bytes`, which is a power of two from 64 KiB (2 MiB
    /// and up where huge pages matter). Touches none of it.
    ///
    /// # Errors
    /// `InvalidInput` for sizes outside of these rules, else what the kernel says.
    pub fn new(kind: ArenaKind, bytes: usize, extent_bytes: usize) -> io::Result<Arc<Arena>> {
        let extents = check_sizes(bytes, extent_bytes)?;
        let (memory, view, memfd, backing) = match kind {
            ArenaKind::Private => private(bytes)?,
            ArenaKind::Shared => shared(bytes)?,
        };
        for mapping in [Some(&memory), view.as_ref()].into_iter().flatten() {
            mapping.advise(0, bytes, Advice::LinuxDontFork)?;
            mapping.advise(0, bytes, Advice::LinuxDontDump)?;
        }
        Ok(Arc::new(Arena { memory, view, memfd, extent_bytes, extents, kind, backing }))
    }

    /// Bytes of one extent.
    pub fn extent_bytes(&self) -> usize {
        self.extent_bytes
    }

    /// Number of extents.
    pub fn extents(&self) -> u32 {
        self.extents
    }

    /// The kind asked for.
    pub fn kind(&self) -> ArenaKind {
        self.kind
    }

    /// What the system gave: `private-thp`, `private-4k`, `memfd-hugetlb`, `memfd-thp` or
    /// `memfd-4k`.
    pub fn backing(&self) -> &'static str {
        self.backing
    }

    /// The descriptor that other processes map, of a `Shared` arena. Sealed: they can neither
    /// change its size nor map it for writing.
    pub fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.memfd.as_ref().map(Owned::as_fd)
    }

    /// First touch of one extent, keeping what is in it; meant for a background thread.
    ///
    /// Returns whether the kernel did it: one older than 5.14 cannot, and then each page is
    /// touched by its first use. (Writing a byte per page from here would race with that use.)
    pub fn populate(&self, extent: u32) -> bool {
        assert!(extent < self.extents, "extent {extent} of an arena of {}", self.extents);
        let offset = extent as usize * self.extent_bytes;
        self.memory.advise(offset, self.extent_bytes, Advice::LinuxPopulateWrite).is_ok()
    }

    /// Address of a buffer for the engine and its I/O.
    ///
    /// # Panics
    /// If the buffer is not inside one extent: a broken invariant of the caller.
    pub fn ptr(&self, buf: Buf) -> *mut u8 {
        self.memory.base().as_ptr().wrapping_add(self.position(buf))
    }

    /// Address of a buffer for views that leave the engine: in the read-only mapping of a
    /// `Shared` arena, the memory itself of a `Private` one.
    ///
    /// # Panics
    /// As [`Arena::ptr`].
    pub fn view_ptr(&self, buf: Buf) -> *const u8 {
        let base = self.view.as_ref().unwrap_or(&self.memory).base();
        base.as_ptr().wrapping_add(self.position(buf))
    }

    /// Address and bytes of the memory that views are in, all of it: for whoever registers it with
    /// a device. It stays in place as long as the arena lives.
    pub fn view_range(&self) -> (*const u8, usize) {
        let base = self.view.as_ref().unwrap_or(&self.memory).base();
        (base.as_ptr(), self.extents as usize * self.extent_bytes)
    }

    /// The bytes of a buffer, to read.
    ///
    /// # Safety
    /// Until the slice is gone nobody writes these bytes: the caller holds the slot (a pin or
    /// sole ownership), and no read from a device into it is in flight.
    ///
    /// # Panics
    /// As [`Arena::ptr`].
    pub unsafe fn bytes(&self, buf: Buf) -> &[u8] {
        // SAFETY: `ptr` checked that the range is mapped; it lives as long as `self`; the caller
        // promises that nobody writes it.
        unsafe { std::slice::from_raw_parts(self.ptr(buf), buf.len as usize) }
    }

    /// The bytes of a buffer, to write.
    ///
    /// # Safety
    /// Until the slice is gone the caller is the only one who reads or writes these bytes: the
    /// slot is its own, not exposed to any view, and no I/O on it is in flight.
    ///
    /// # Panics
    /// As [`Arena::ptr`].
    #[allow(clippy::mut_from_ref, reason = "ownership of the bytes is the slot's, not the arena's")]
    pub unsafe fn bytes_mut(&self, buf: Buf) -> &mut [u8] {
        // SAFETY: `ptr` checked that the range is mapped; it lives as long as `self`; the caller
        // promises to be alone with it.
        unsafe { std::slice::from_raw_parts_mut(self.ptr(buf), buf.len as usize) }
    }

    fn position(&self, buf: Buf) -> usize {
        let Buf { extent, offset, len } = buf;
        let end = u64::from(offset) + u64::from(len);
        assert!(
            extent < self.extents && end <= self.extent_bytes as u64,
            "{buf:?} is outside of an arena of {} extents of {} bytes",
            self.extents,
            self.extent_bytes,
        );
        extent as usize * self.extent_bytes + offset as usize
    }
}

fn check_sizes(bytes: usize, extent_bytes: usize) -> io::Result<u32> {
    let invalid = |message: String| Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    if !extent_bytes.is_power_of_two() || !(MIN_EXTENT..=1 << 31).contains(&extent_bytes) {
        return invalid(format!(
            "extent_bytes {extent_bytes} is not a power of two from {MIN_EXTENT} to {}",
            1u32 << 31
        ));
    }
    if bytes == 0 || !bytes.is_multiple_of(extent_bytes) {
        return invalid(format!(
            "arena bytes {bytes} is not a positive multiple of extent_bytes {extent_bytes}"
        ));
    }
    match u32::try_from(bytes / extent_bytes) {
        Ok(extents) => Ok(extents),
        Err(_) => invalid(format!("arena bytes {bytes} are more than 2^32 extents")),
    }
}

type Parts = (Mapping, Option<Mapping>, Option<Owned>, &'static str);

fn private(bytes: usize) -> io::Result<Parts> {
    let memory = Mapping::reserve(bytes, HUGE_PAGE)?;
    memory.back_with_anonymous()?;
    let huge = memory.advise(0, bytes, Advice::LinuxHugepage).is_ok() && setting_allows("enabled");
    Ok((memory, None, None, if huge { "private-thp" } else { "private-4k" }))
}

fn shared(bytes: usize) -> io::Result<Parts> {
    let sealable = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    if bytes.is_multiple_of(HUGE_PAGE) {
        // Mapping it reserves all pages at once, so a pool too small is an error here and not a
        // SIGBUS at first touch.
        let huge = sealable | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
        if let Ok((memory, view, memfd)) = map_twice(bytes, huge) {
            return Ok((memory, Some(view), Some(memfd), "memfd-hugetlb"));
        }
    }
    let (memory, view, memfd) = map_twice(bytes, sealable)?;
    let advised = memory.advise(0, bytes, Advice::LinuxHugepage).is_ok()
        && view.advise(0, bytes, Advice::LinuxHugepage).is_ok();
    let huge = advised && setting_allows("shmem_enabled");
    Ok((memory, Some(view), Some(memfd), if huge { "memfd-thp" } else { "memfd-4k" }))
}

fn map_twice(bytes: usize, flags: MemfdFlags) -> io::Result<(Mapping, Mapping, Owned)> {
    let memfd = Owned::open(|| Ok(rustix::fs::memfd_create("kvstore-arena", flags)?.into()))?;
    rustix::fs::ftruncate(&memfd, bytes as u64)?;
    let memory = Mapping::reserve(bytes, HUGE_PAGE)?;
    memory.back_with_file(memfd.as_fd(), ProtFlags::READ | ProtFlags::WRITE)?;
    // A client that shrank the file would kill us with SIGBUS, one that wrote it would change
    // bytes we trust. Kernels before 5.1 know no FUTURE_WRITE; the sizes are sealed anyway.
    let sizes = SealFlags::SHRINK | SealFlags::GROW;
    rustix::fs::fcntl_add_seals(&memfd, sizes)?;
    let _ = rustix::fs::fcntl_add_seals(&memfd, SealFlags::FUTURE_WRITE);
    let view = Mapping::reserve(bytes, HUGE_PAGE)?;
    view.back_with_file(memfd.as_fd(), ProtFlags::READ)?;
    Ok((memory, view, memfd))
}

/// Whether a setting of transparent huge pages lets advised memory have them.
fn setting_allows(setting: &str) -> bool {
    let path = format!("/sys/kernel/mm/transparent_hugepage/{setting}");
    let chosen = std::fs::read_to_string(path).unwrap_or_default();
    !chosen.is_empty() && !["[never]", "[deny]"].iter().any(|no| chosen.contains(no))
}
