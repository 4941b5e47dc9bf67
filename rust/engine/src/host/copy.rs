//! Checksums of payloads and descriptors, and the copy that computes one on the way.

use std::sync::OnceLock;

use crc_fast::CrcAlgorithm::{Crc32Iscsi, Crc64Nvme};

use super::fold::Kernel;
pub use super::fold::Stores;

/// Piece that is copied and then summed while it is still in the L1 or L2 cache, where no kernel
/// does both at once.
const CHUNK: usize = 16 << 10;
/// Bytes that crc-fast sums faster than a kernel starts.
const SMALL: usize = 1024;
/// State of the checksum before the first byte, and what its end is inverted with.
const ONES: u64 = u64::MAX;

/// CRC-64/NVME of payload bytes (the reflected 64-bit polynomial of the NVMe specification,
/// all-ones start and final inversion).
pub fn checksum(bytes: &[u8]) -> u64 {
    crc_fast::checksum(Crc64Nvme, bytes)
}

/// Copies `src` to `dst` through the cache and returns the [`checksum`] of what was written, even
/// if `src` is memory that somebody changes meanwhile.
///
/// # Panics
/// If the lengths differ.
pub fn copy_checksum(dst: &mut [u8], src: &[u8]) -> u64 {
    copy_checksum_with(dst, src, Stores::Cached)
}

/// As [`copy_checksum`], with the stores that [`stores_for`] advises for the whole batch.
///
/// # Panics
/// If the lengths differ.
pub fn copy_checksum_with(dst: &mut [u8], src: &[u8], stores: Stores) -> u64 {
    static KERNEL: OnceLock<Option<Kernel>> = OnceLock::new();
    assert_eq!(dst.len(), src.len(), "copy between buffers of different lengths");
    match *KERNEL.get_or_init(Kernel::widest) {
        Some(kernel) if src.len() >= SMALL => copy_folding(kernel, dst, src, stores),
        _ => copy_in_chunks(dst, src),
    }
}

/// Which stores are faster for copies of `batch_bytes` in a row: around the cache when source and
/// copies together would fill it, since what is written would only drive out what is read.
pub fn stores_for(batch_bytes: u64) -> Stores {
    static CACHE: OnceLock<u64> = OnceLock::new();
    let cache = *CACHE.get_or_init(|| shared_cache_bytes().unwrap_or(32 << 20));
    if batch_bytes.saturating_mul(2) >= cache { Stores::Streaming } else { Stores::Cached }
}

/// Size of the last cache before memory.
fn shared_cache_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/cpu0/cache/index3/size").ok()?;
    Some(text.trim().strip_suffix('K')?.parse::<u64>().ok()? << 10)
}

fn copy_folding(kernel: Kernel, dst: &mut [u8], src: &[u8], stores: Stores) -> u64 {
    // Streaming stores are aligned; the bytes before go on their own.
    let head = dst.as_ptr().align_offset(Kernel::ALIGN);
    let (dst_head, dst) = dst.split_at_mut(head);
    let (src_head, src) = src.split_at(head);
    dst_head.copy_from_slice(src_head);
    let state = checksum(dst_head) ^ ONES;

    let (folded, mut residue) = kernel.fold(dst, src, state, stores);
    // The digest starts with all ones of its own: taken out of the residue, which has none.
    for byte in &mut residue[..size_of_val(&ONES)] {
        *byte = !*byte;
    }
    let tail = &mut dst[folded..];
    tail.copy_from_slice(&src[folded..]);
    let mut digest = crc_fast::Digest::new(Crc64Nvme);
    digest.update(&residue[..kernel.step]);
    digest.update(tail);
    digest.finalize()
}

fn copy_in_chunks(dst: &mut [u8], src: &[u8]) -> u64 {
    let mut digest = crc_fast::Digest::new(Crc64Nvme);
    for (to, from) in dst.chunks_mut(CHUNK).zip(src.chunks(CHUNK)) {
        to.copy_from_slice(from);
        digest.update(to);
    }
    digest.finalize()
}

/// Checksum of two pieces in a row, from the checksums of each and the second's length in bytes.
pub fn combine(first: u64, second: u64, second_len: u64) -> u64 {
    crc_fast::checksum_combine(Crc64Nvme, first, second, second_len)
}

/// CRC-32C of a small record, such as a descriptor: the processor's own instruction where there
/// is one, since set-up costs more than the sum for 60 bytes.
pub fn crc32c(bytes: &[u8]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("sse4.2") {
        // SAFETY: the processor has SSE 4.2.
        return unsafe { crc32c_sse42(bytes) };
    }
    #[allow(clippy::cast_possible_truncation, reason = "a 32-bit checksum in the low half")]
    let sum = crc_fast::checksum(Crc32Iscsi, bytes) as u32;
    sum
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.2")]
fn crc32c_sse42(bytes: &[u8]) -> u32 {
    use std::arch::x86_64::{_mm_crc32_u8, _mm_crc32_u64};
    let (words, rest) = bytes.as_chunks::<8>();
    let sum = words
        .iter()
        .fold(u64::from(u32::MAX), |sum, word| _mm_crc32_u64(sum, u64::from_le_bytes(*word)));
    #[allow(clippy::cast_possible_truncation, reason = "the instruction keeps the high half zero")]
    let sum = rest.iter().fold(sum as u32, |sum, &byte| _mm_crc32_u8(sum, byte));
    !sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn check_values_of_the_catalogue() {
        assert_eq!(checksum(b"123456789"), 0xAE8B_1486_0A79_9888);
        assert_eq!(crc32c(b"123456789"), 0xE306_9283);
        assert_eq!(crc32c(b""), 0);
    }

    type Copy = Box<dyn Fn(&mut [u8], &[u8]) -> u64>;

    /// All ways to copy, on this processor.
    fn copies() -> Vec<Copy> {
        let mut copies: Vec<Copy> = vec![Box::new(copy_checksum), Box::new(copy_in_chunks)];
        for stores in [Stores::Cached, Stores::Streaming] {
            copies.push(Box::new(move |dst, src| copy_checksum_with(dst, src, stores)));
            for kernel in Kernel::all().into_iter().flatten() {
                copies.push(Box::new(move |dst, src| {
                    let room = kernel.step + Kernel::ALIGN;
                    if src.len() < room {
                        return copy_checksum(dst, src);
                    }
                    copy_folding(kernel, dst, src, stores)
                }));
            }
        }
        copies
    }

    #[test]
    fn batches_larger_than_the_cache_go_around_it() {
        assert_eq!(stores_for(4096), Stores::Cached);
        assert_eq!(stores_for(u64::MAX), Stores::Streaming);
    }

    proptest! {
        #[test]
        fn copying_sums_what_it_copies(
            bytes in proptest::collection::vec(any::<u8>(), 0..3 * CHUNK + 100),
            skip in 0usize..70,
            shift in 0usize..70,
        ) {
            let src = bytes.get(skip..).unwrap_or_default();
            for copy in copies() {
                let mut room = vec![0xAA; shift + src.len() + 1];
                let (dst, guard) = room[shift..].split_at_mut(src.len());
                prop_assert_eq!(copy(dst, src), checksum(src));
                prop_assert_eq!(dst, src);
                prop_assert_eq!(guard, [0xAA]);
                prop_assert!(room[..shift].iter().all(|&byte| byte == 0xAA));
            }
        }

        #[test]
        fn pieces_combine(bytes in proptest::collection::vec(any::<u8>(), 0..5000), cut in 0usize..5000) {
            let (first, second) = bytes.split_at(cut.min(bytes.len()));
            let whole = combine(checksum(first), checksum(second), second.len() as u64);
            prop_assert_eq!(whole, checksum(&bytes));
        }

        #[test]
        fn crc32c_agrees_with_the_reference(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(u64::from(crc32c(&bytes)), crc_fast::checksum(Crc32Iscsi, &bytes));
        }
    }
}
