//! What one decode step reads.

use crate::Layout;
use crate::group::{Group, Kind, Reads};

impl Group {
    /// Bytes of this group that one decode step at N tokens reads. State groups count nothing: their
    /// rows are written and read once a token, whatever N is.
    pub fn read_bytes(&self, n: u64) -> u64 {
        let entries = match self.kind {
            Kind::Entries => self.entries_in(n),
            Kind::Window(w) => self.entries_in(n.min(u64::from(w))),
            Kind::State => return 0,
        };
        if self.reads.is_empty() {
            return self.layers.len() as u64 * entries * self.record_bytes();
        }
        let reads = self.reads.iter().map(|read| {
            let each = match read.what {
                Reads::All => entries,
                Reads::AtMost(most) => entries.min(u64::from(most)),
            };
            u128::from(read.layers) * u128::from(each)
        });
        let bytes = reads.sum::<u128>() * u128::from(self.record_bytes());
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

impl Layout {
    /// Cache bytes that one decode step at N tokens reads, draft groups left out.
    pub fn read_bytes(&self, n: u64) -> u64 {
        self.groups().iter().filter(|g| !g.draft).map(|g| g.read_bytes(n)).sum()
    }
}
