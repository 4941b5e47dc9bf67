//! Checksums of payloads and descriptors, and the copy that computes one on the way.

use crc_fast::CrcAlgorithm::{Crc32Iscsi, Crc64Nvme};

/// Piece that is copied and then summed while it is still in the L1 or L2 cache.
const CHUNK: usize = 16 << 10;

/// CRC-64/NVME of payload bytes (the reflected 64-bit polynomial of the NVMe specification,
/// all-ones start and final inversion).
pub fn checksum(bytes: &[u8]) -> u64 {
    crc_fast::checksum(Crc64Nvme, bytes)
}

/// Copies `src` to `dst` and returns the [`checksum`] of what was copied.
///
/// # Panics
/// If the lengths differ.
pub fn copy_checksum(dst: &mut [u8], src: &[u8]) -> u64 {
    assert_eq!(dst.len(), src.len(), "copy between buffers of different lengths");
    let mut digest = crc_fast::Digest::new(Crc64Nvme);
    for (to, from) in dst.chunks_mut(CHUNK).zip(src.chunks(CHUNK)) {
        to.copy_from_slice(from);
        // What was written, not what was read: `src` may be memory that a caller changes.
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

    proptest! {
        #[test]
        fn copying_sums_what_it_copies(
            bytes in proptest::collection::vec(any::<u8>(), 0..3 * CHUNK + 100),
            skip in 0usize..70,
            shift in 0usize..70,
        ) {
            let src = bytes.get(skip..).unwrap_or_default();
            let mut room = vec![0xAA; shift + src.len() + 1];
            let (dst, guard) = room[shift..].split_at_mut(src.len());
            prop_assert_eq!(copy_checksum(dst, src), checksum(src));
            prop_assert_eq!(dst, src);
            prop_assert_eq!(guard, [0xAA]);
            prop_assert!(room[..shift].iter().all(|&byte| byte == 0xAA));
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
