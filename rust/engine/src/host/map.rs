//! Memory mappings that unmap themselves.

use std::ffi::c_void;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// A range of address space that belongs to this value alone.
pub(super) struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the value is an address range; who may touch which byte is decided above it.
unsafe impl Send for Mapping {}
// SAFETY: as above, all methods take `&self` and only pass addresses on.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Takes `len` bytes of address space at a multiple of `align`, without memory behind it.
    ///
    /// `len` must be a multiple of the page size, `align` a power of two that is one too.
    pub(super) fn reserve(len: usize, align: usize) -> io::Result<Mapping> {
        let whole = len.checked_add(align).ok_or(io::ErrorKind::OutOfMemory)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice replaces nothing.
        let start = unsafe {
            rustix::mm::mmap_anonymous(ptr::null_mut(), whole, ProtFlags::empty(), flags)?
        };
        let head = start.cast::<u8>().align_offset(align);
        let base = start.cast::<u8>().wrapping_add(head);
        let unmap = |at: *mut u8, len: usize| {
            if len > 0 {
                // SAFETY: the piece is part of the mapping just made and not of the part kept.
                // A failure leaves address space behind, no memory.
                let _ = unsafe { rustix::mm::munmap(at.cast(), len) };
            }
        };
        unmap(start.cast(), head);
        unmap(base.wrapping_add(len), align - head);
        let base = NonNull::new(base).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping { base, len })
    }

    /// Puts anonymous memory of this process behind the range.
    pub(super) fn back_with_anonymous(&self) -> io::Result<()> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the range is ours, so what FIXED replaces is our own reservation.
        unsafe { rustix::mm::mmap_anonymous(self.address(), self.len, access, flags)? };
        Ok(())
    }

    /// Puts the start of a file behind the range, shared with all who map it.
    pub(super) fn back_with_file(&self, fd: BorrowedFd<'_>, access: ProtFlags) -> io::Result<()> {
        let flags = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: the range is ours, so what FIXED replaces is our own reservation.
        unsafe { rustix::mm::mmap(self.address(), self.len, access, flags, fd, 0)? };
        Ok(())
    }

    /// Advises the kernel about `len` bytes from `offset`.
    ///
    /// Only advice that keeps contents is for this type: the caller passes no `DONTNEED`.
    pub(super) fn advise(&self, offset: usize, len: usize, advice: Advice) -> io::Result<()> {
        assert!(offset <= self.len && len <= self.len - offset, "advice outside of the mapping");
        // SAFETY: the range is ours and the advice changes no contents.
        unsafe { rustix::mm::madvise(self.base.as_ptr().add(offset).cast(), len, advice)? };
        Ok(())
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn address(&self) -> *mut c_void {
        self.base.as_ptr().cast()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is ours and nobody who holds an address outlives the owner. Unmapping
        // a whole mapping can only fail for a wrong range, which would be a bug to ignore here.
        let _ = unsafe { rustix::mm::munmap(self.address(), self.len) };
    }
}

/// Asks for huge pages in memory that somebody else allocated and has not touched yet, in whole
/// huge pages of it. Where the kernel has none the memory works as well, slower.
pub(crate) fn prefer_huge_pages(start: *const u8, len: usize) {
    const HUGE: usize = 2 << 20;
    let head = start.align_offset(HUGE);
    let Some(whole) = len.checked_sub(head).map(|rest| rest / HUGE * HUGE) else { return };
    if whole == 0 {
        return;
    }
    let at = start.wrapping_add(head).cast_mut().cast();
    // SAFETY: the advice changes no contents; a wrong range is refused by the kernel.
    let _ = unsafe { rustix::mm::madvise(at, whole, Advice::LinuxHugepage) };
}
