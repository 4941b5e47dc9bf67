//! Little-endian fields of the fixed records.

/// Reads `N` bytes at `at`; the records are fixed arrays, so a bad offset is a bug of ours.
pub(crate) fn get<const N: usize>(record: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&record[at..at + N]);
    out
}

pub(crate) fn get_u16(record: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(get(record, at))
}

pub(crate) fn get_u32(record: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(get(record, at))
}

pub(crate) fn get_u48(record: &[u8], at: usize) -> u64 {
    let mut wide = [0; 8];
    wide[..6].copy_from_slice(&record[at..at + 6]);
    u64::from_le_bytes(wide)
}

pub(crate) fn get_u64(record: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(get(record, at))
}

pub(crate) fn put(record: &mut [u8], at: usize, bytes: &[u8]) {
    record[at..at + bytes.len()].copy_from_slice(bytes);
}

pub(crate) fn put_u48(record: &mut [u8], at: usize, value: u64) {
    record[at..at + 6].copy_from_slice(&value.to_le_bytes()[..6]);
}
