//! Epochs of cleared tenants: 65,536 records of 16 bytes, kept twice, on device 0.

use super::bytes::{get_u32, get_u48, put, put_u48};
use crate::host::copy::crc32c;
use std::collections::HashMap;

/// Records of the table.
pub const COUNT: usize = 65_536;
/// Bytes of one record.
pub const LEN: usize = 16;
/// Bytes of one copy of the table.
pub const COPY_BYTES: u64 = (COUNT * LEN) as u64;
/// Bytes of the file.
pub const FILE_BYTES: u64 = 2 * COPY_BYTES;
/// Records of one page.
pub const PER_PAGE: usize = super::PAGE as usize / LEN;

/// The table in memory: position and epoch per tenant tag, and the floor of all others.
#[derive(Debug, Default)]
pub struct Tenants {
    by_tag: HashMap<u32, (u32, u64)>,
    /// Tag of each position up to the last one in use. A position keeps its tag for good, since a
    /// write of its page must not take the record of another away.
    slots: Vec<Option<u32>>,
    /// Positions below the last one that are free.
    holes: Vec<u32>,
    /// Records of which neither copy is whole.
    pub damaged: u64,
    /// Epoch of every tenant without a record.
    pub floor: u64,
}

/// What a clear must write before it counts.
#[derive(Debug, PartialEq, Eq)]
pub enum TenantWrite {
    /// The page with this number.
    Page(usize),
    /// The table was full: the floor has risen, every page is empty now, and the superblock
    /// carries the new floor *before* the pages go.
    Floor,
}

impl Tenants {
    /// Epoch of `tag`: its own record's, else the floor. What has no tenant has none.
    pub fn epoch(&self, tag: u32) -> u64 {
        if tag == 0 {
            return 0;
        }
        self.by_tag.get(&tag).map_or(self.floor, |&(_, epoch)| epoch.max(self.floor))
    }

    /// Highest epoch in the table.
    pub fn highest(&self) -> u64 {
        self.by_tag.values().map(|&(_, epoch)| epoch).max().unwrap_or(0).max(self.floor)
    }

    /// Sets the epoch of `tag`; the answer says what has to be on disk before it counts.
    pub fn set(&mut self, tag: u32, epoch: u64) -> TenantWrite {
        if let Some((slot, old)) = self.by_tag.get_mut(&tag) {
            *old = epoch;
            return TenantWrite::Page(*slot as usize / PER_PAGE);
        }
        let slot = match self.holes.pop() {
            Some(hole) => hole as usize,
            None if self.slots.len() < COUNT => {
                self.slots.push(None);
                self.slots.len() - 1
            }
            None => {
                self.floor = epoch.max(self.highest());
                self.by_tag.clear();
                self.slots.clear();
                return TenantWrite::Floor;
            }
        };
        self.slots[slot] = Some(tag);
        self.by_tag.insert(tag, (slot as u32, epoch));
        TenantWrite::Page(slot / PER_PAGE)
    }

    /// The bytes of page `page`.
    pub fn page(&self, page: usize) -> [u8; super::PAGE as usize] {
        let mut out = [0; super::PAGE as usize];
        for (i, tag) in self.slots.iter().enumerate().skip(page * PER_PAGE).take(PER_PAGE) {
            let Some(tag) = tag else { continue };
            let record = &mut out[(i % PER_PAGE) * LEN..][..LEN];
            put(record, 0, &tag.to_le_bytes());
            put_u48(record, 4, self.by_tag[tag].1);
            record[10] = 1;
            let crc = check(record, i);
            put(record, 12, &crc.to_le_bytes());
        }
        out
    }

    /// The table from its two copies; of two valid records of one position the higher epoch
    /// counts, since epochs only rise.
    pub fn load(a: &[u8], b: &[u8], floor: u64) -> Self {
        let mut this = Self { floor, ..Self::default() };
        for i in 0..COUNT {
            let record = |copy: &[u8]| {
                let mut record = [0; LEN];
                record.copy_from_slice(copy.get(i * LEN..(i + 1) * LEN)?);
                Some(record)
            };
            let records = [record(a), record(b)];
            let whole = records
                .iter()
                .flatten()
                .filter(|r| r[10] == 1 && get_u32(*r, 12) == check(*r, i))
                .map(|r| (get_u32(r, 0), get_u48(r, 4)));
            let Some((tag, epoch)) = whole.max_by_key(|&(_, epoch)| epoch) else {
                let written = records.iter().flatten().any(|r| r.iter().any(|&byte| byte != 0));
                this.damaged += u64::from(written);
                continue;
            };
            let old = this.by_tag.get(&tag).map_or(floor, |&(_, old)| old);
            if epoch > old {
                this.holes.extend(this.slots.len() as u32..i as u32);
                this.slots.resize(i, None);
                this.slots.push(Some(tag));
                if let Some((slot, _)) = this.by_tag.insert(tag, (i as u32, epoch)) {
                    this.slots[slot as usize] = None;
                    this.holes.push(slot);
                }
            }
        }
        this
    }
}

fn check(record: &[u8], position: usize) -> u32 {
    let mut covered = [0; 16];
    covered[..12].copy_from_slice(&record[..12]);
    covered[12..].copy_from_slice(&(position as u32).to_le_bytes());
    crc32c(&covered)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(tenants: &Tenants) -> Vec<u8> {
        (0..COUNT / PER_PAGE).flat_map(|page| tenants.page(page)).collect()
    }

    #[test]
    fn epochs_survive_a_reload_and_a_torn_copy() {
        let mut tenants = Tenants::default();
        for tag in 1..=600 {
            assert_eq!(
                tenants.set(tag, u64::from(tag) * 3),
                TenantWrite::Page((tag as usize - 1) / 256)
            );
        }
        let good = image(&tenants);
        let mut torn = good.clone();
        torn[..4096].fill(0xEE);
        for (a, b) in [(&good, &torn), (&torn, &good)] {
            let loaded = Tenants::load(a, b, 0);
            for tag in 1..=600 {
                assert_eq!(loaded.epoch(tag), u64::from(tag) * 3);
            }
            assert_eq!(loaded.epoch(601), 0);
        }
    }

    #[test]
    fn a_damaged_record_takes_no_other_one_along() {
        let mut tenants = Tenants::default();
        for tag in 1..=600 {
            tenants.set(tag, u64::from(tag) * 3);
        }
        let mut bytes = image(&tenants);
        bytes[5 * LEN] ^= 1;
        let mut loaded = Tenants::load(&bytes, &bytes, 0);
        assert_eq!((loaded.damaged, loaded.epoch(6)), (1, 0));
        assert_eq!(loaded.set(301, 5000), TenantWrite::Page(1));
        bytes[4096..8192].copy_from_slice(&loaded.page(1));
        // The free position is used again.
        assert_eq!(loaded.set(6, 6000), TenantWrite::Page(0));
        bytes[..4096].copy_from_slice(&loaded.page(0));
        let again = Tenants::load(&bytes, &bytes, 0);
        for tag in 1..=600 {
            let epoch = match tag {
                6 => 6000,
                301 => 5000,
                _ => u64::from(tag) * 3,
            };
            assert_eq!(again.epoch(tag), epoch, "tag {tag}");
        }
    }

    #[test]
    fn a_full_table_raises_the_floor_of_all_tenants() {
        let mut tenants = Tenants::default();
        for tag in 1..=COUNT as u32 {
            tenants.set(tag, 10);
        }
        assert_eq!(tenants.set(70_000, 11), TenantWrite::Floor);
        for tag in [1, 5, 70_000, 80_000] {
            assert_eq!(tenants.epoch(tag), 11);
        }
        assert_eq!(tenants.set(5, 12), TenantWrite::Page(0));
        assert_eq!((tenants.epoch(5), tenants.epoch(6)), (12, 11));
        assert_eq!(tenants.epoch(0), 0, "what has no tenant stays");
    }
}
