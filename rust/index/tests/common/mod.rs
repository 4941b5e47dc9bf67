//! Keys and entries for the tests.

#![allow(dead_code, reason = "each test binary uses its part")]

use kvstore_index::{EntryId, Fingerprint, Index, Kind, NewEntry, PolicyKind, Tier};

/// A well-spread fingerprint for a number (splitmix64); number 0 has one too.
pub(crate) fn key(n: u64) -> Fingerprint {
    let mix = |n: u64| {
        let z = n.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    };
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&mix(n).to_le_bytes());
    bytes[8..].copy_from_slice(&mix(!n).to_le_bytes());
    Fingerprint(bytes)
}

/// Block `n` below block `parent`.
pub(crate) fn block(n: u64, parent: Option<u64>, depth: u16) -> NewEntry {
    NewEntry {
        fingerprint: key(n),
        checksum: n,
        parent_prefix: parent.map_or(0, |parent| key(parent).prefix()),
        sequence: n,
        length: 4096,
        tenant: 0,
        expires_at: 0,
        namespace: 0,
        depth,
        class: 0,
        kind: Kind::Body,
        flags: 0,
    }
}

pub(crate) fn index(capacity: usize) -> Index {
    Index::new(capacity, capacity, [PolicyKind::LeafLru; 2])
}

/// Inserts a host-resident block.
pub(crate) fn put(index: &mut Index, n: u64, parent: Option<u64>, depth: u16) -> EntryId {
    let id = index.insert(&block(n, parent, depth)).unwrap();
    index.add_resident(id, Tier::Host);
    id
}

/// Evicts from the host tier until `keep` objects are left; gives the numbers in order.
pub(crate) fn evict_to(index: &mut Index, keep: usize) -> Vec<u64> {
    let mut gone = Vec::new();
    while index.len() > keep {
        let victim = index.victim(Tier::Host, &mut |_, _| true).expect("a victim");
        assert!(victim.along.is_empty());
        gone.push(index[victim.id].checksum);
        assert!(index.remove(victim.id).is_some());
    }
    gone
}

pub(crate) fn find(index: &Index, n: u64) -> Option<EntryId> {
    index.find(&key(n))
}
