//! Entries come, are referenced, and go exactly once.

mod common;

use common::{block, evict_to, find, index, key, put};
use kvstore_index::{Fingerprint, Full, Index, Kind, NewEntry, PolicyKind, Released, Tier};
use proptest::prelude::*;

#[test]
fn a_removed_entry_lives_until_its_last_reference() {
    let mut index = index(1);
    let id = put(&mut index, 1, None, 0);
    index.set_slot(id, Tier::Host, Some(7));
    index.set_slot(id, Tier::Disk, Some((1 << 40) - 2));
    index.acquire(id);
    index.acquire(id);
    assert!(index.remove(id).is_none());
    assert!(index.is_dead(id));
    assert_eq!(find(&index, 1), None);
    assert_eq!(index.insert(&block(2, None, 0)), Err(Full { capacity: 1 }));
    assert!(matches!(index.release(id), Released::Live));
    let Released::Freed(freed) = index.release(id) else { panic!("the last reference") };
    assert_eq!((freed.host, freed.disk), (Some(7), Some((1 << 40) - 2)));
    assert_eq!(*freed.entry.fingerprint(), key(1));
    assert!(index.insert(&block(2, None, 0)).is_ok());
}

#[test]
fn an_entry_says_what_was_put() {
    let mut index = index(4);
    let new = NewEntry {
        fingerprint: key(5),
        checksum: u64::MAX,
        parent_prefix: 9,
        sequence: (1 << 48) - 1,
        length: u32::MAX,
        tenant: 3,
        expires_at: 4,
        namespace: 4095,
        depth: u16::MAX,
        class: 63,
        kind: Kind::Checkpoint,
        flags: 0xff,
    };
    let id = index.insert(&new).unwrap();
    let entry = &mut index[id];
    assert_eq!(
        (entry.sequence(), entry.depth(), entry.kind()),
        ((1 << 48) - 1, u16::MAX, Kind::Checkpoint)
    );
    assert_eq!((entry.parent_prefix(), entry.checksum, entry.length), (9, u64::MAX, u32::MAX));
    assert_eq!((entry.tenant, entry.expires_at, entry.namespace), (3, 4, 4095));
    assert_eq!((entry.class, entry.flags), (63, 0xff));
    entry.set_sequence(17);
    assert_eq!((entry.sequence(), entry.depth()), (17, u16::MAX));
    assert_eq!(index.slot(id, Tier::Host), None);
    assert_eq!(index.slot(id, Tier::Disk), None);
}

#[test]
fn an_entry_counts_more_references_than_a_byte_holds() {
    let mut index = index(2);
    let id = put(&mut index, 1, None, 0);
    let mut held = 0;
    // Up and down across the limit of a byte at several heights.
    for goal in [254, 253, 255, 254, 256, 255, 257, 250, 1000, 255, 1000, 1] {
        while held < goal {
            index.acquire(id);
            held += 1;
            assert_eq!(index.refs(id), held);
        }
        while held > goal {
            assert!(matches!(index.release(id), Released::Live));
            held -= 1;
            assert_eq!(index.refs(id), held);
        }
    }
    assert!(matches!(index.release(id), Released::LastOfLive));
    assert_eq!(evict_to(&mut index, 0), [1]);
}

#[test]
#[should_panic(expected = "release of an unreferenced entry")]
fn a_reference_is_given_back_once() {
    let mut index = index(2);
    let id = put(&mut index, 1, None, 0);
    index.acquire(id);
    index.release(id);
    index.release(id);
}

#[test]
fn a_pinned_entry_is_no_victim() {
    let mut index = index(4);
    let id = put(&mut index, 1, None, 0);
    index.acquire(id);
    assert_eq!(index.victim(Tier::Host, &mut |_, _| true), None);
    index.release(id);
    assert_eq!(index.victim(Tier::Host, &mut |_, _| true).map(|victim| victim.id), Some(id));
}

#[test]
fn a_put_parent_gets_its_children_back_by_relink() {
    let mut index = index(8);
    let head = put(&mut index, 0, None, 0);
    let child = put(&mut index, 1, Some(0), 1);
    index.remove(head);
    assert_eq!(index.parent(child), None);
    // The very position of the removed parent is used again, by the same key even.
    let head = put(&mut index, 0, None, 0);
    assert_eq!((index.parent(child), index.children(head, Tier::Host)), (None, 0));
    index.relink(child, head);
    assert_eq!((index.parent(child), index.children(head, Tier::Host)), (Some(head), 1));
    index.relink(child, head);
    assert_eq!(index.children(head, Tier::Host), 1);
    assert_eq!(evict_to(&mut index, 0), [1, 0]);
}

#[test]
fn relink_believes_only_the_named_parent() {
    let mut index = index(8);
    let stranger = put(&mut index, 7, None, 0);
    let child = put(&mut index, 1, Some(0), 1);
    index.relink(child, stranger);
    assert_eq!((index.parent(child), index.children(stranger, Tier::Disk)), (None, 0));
}

#[test]
fn a_disk_leaf_with_host_children_is_not_a_leaf() {
    let mut index = index(8);
    let head = put(&mut index, 0, None, 0);
    index.add_resident(head, Tier::Disk);
    let child = put(&mut index, 1, Some(0), 1);
    assert_eq!(index.victim(Tier::Disk, &mut |_, _| true), None);
    index.drop_resident(child, Tier::Host);
    index.remove(child);
    assert_eq!(index.victim(Tier::Disk, &mut |_, _| true).map(|victim| victim.id), Some(head));
}

#[test]
fn a_host_copy_keeps_its_parent_on_disk() {
    let mut index = index(8);
    let head = put(&mut index, 0, None, 0);
    let child = put(&mut index, 1, Some(0), 1);
    for id in [head, child] {
        index.add_resident(id, Tier::Disk);
    }
    let wants_head = |index: &mut Index| index.victim(Tier::Disk, &mut |id, _| id == head);
    assert_eq!(wants_head(&mut index), None);
    index.drop_resident(child, Tier::Host);
    let victim = wants_head(&mut index).unwrap();
    assert_eq!((victim.id, victim.along), (head, vec![child]));
}

#[test]
fn what_goes_along_is_named_children_first() {
    let mut index = index(8);
    let chain: Vec<_> = (0..4).map(|n| put(&mut index, n, n.checked_sub(1), 0)).collect();
    let victim = index.victim(Tier::Host, &mut |_, entry| entry.checksum == 0).unwrap();
    assert_eq!((victim.id, victim.along), (chain[0], vec![chain[3], chain[2], chain[1]]));
}

#[test]
fn a_subtree_is_what_hangs_below() {
    let mut index = index(64);
    // 0 - 1 - 2 - 3, 1 - 4 - 5, 6
    for (n, parent) in
        [(0, None), (1, Some(0)), (2, Some(1)), (3, Some(2)), (4, Some(1)), (5, Some(4)), (6, None)]
    {
        put(&mut index, n, parent, 0);
    }
    let below = |index: &Index, roots: &[u64]| {
        let roots: Vec<_> = roots.iter().map(|&n| find(index, n).unwrap()).collect();
        let mut all: Vec<u64> =
            index.subtree(&roots).into_iter().map(|id| index[id].checksum).collect();
        all.sort_unstable();
        all
    };
    assert_eq!(below(&index, &[1]), [1, 2, 3, 4, 5]);
    assert_eq!(below(&index, &[4, 2, 3]), [2, 3, 4, 5]);
    assert_eq!(below(&index, &[6]), [6]);
    assert_eq!(below(&index, &[]), [0u64; 0]);
}

#[test]
fn a_recovered_index_is_ordered_by_sequence_and_tree() {
    let mut index = index(64);
    // Children before parents, sequences as they were put: 0 - 1 - 2 and 10 - 11, then 3 under 0.
    let descriptors = [
        (2, Some(1), 3),
        (11, Some(10), 5),
        (3, Some(0), 6),
        (1, Some(0), 2),
        (10, None, 4),
        (0, None, 1),
    ];
    for (n, parent, sequence) in descriptors {
        let id = index.insert(&NewEntry { sequence, ..block(n, parent, 0) }).unwrap();
        index.add_resident(id, Tier::Disk);
    }
    index.settle();
    let mut gone = Vec::new();
    while let Some(victim) = index.victim(Tier::Disk, &mut |_, _| true) {
        gone.push(index[victim.id].checksum);
        index.remove(victim.id);
    }
    assert_eq!(gone, [2, 1, 11, 10, 3, 0]);
}

#[test]
fn a_long_recovered_chain_is_found_from_its_tail() {
    let chain: Vec<_> = (0..5000)
        .map(|n| block(10_000 + n, n.checked_sub(1).map(|n| 10_000 + n), n as u16))
        .collect();
    let mut recovered = index(5000);
    for new in chain.iter().rev() {
        let id = recovered.insert(new).unwrap();
        recovered.add_resident(id, Tier::Host);
    }
    recovered.settle();
    // Were parents older than their children, the walk would end before it met the only leaf.
    assert_eq!(evict_to(&mut recovered, 4998), [14_999, 14_998]);
}

#[test]
fn what_the_host_tier_needs_besides_comes_back() {
    let mut index = Index::new(8, 1, [PolicyKind::LeafLru; 2]);
    let before = index.memory_bytes();
    for n in 0..1000 {
        // A parent that is only on disk, its child in the host tier; the parent goes first.
        let parent = index.insert(&block(2 * n, None, 0)).unwrap();
        index.add_resident(parent, Tier::Disk);
        let child = put(&mut index, 2 * n + 1, Some(2 * n), 1);
        index.set_slot(child, Tier::Host, Some(n));
        index.remove(if n % 2 == 0 { parent } else { child });
        index.remove(if n % 2 == 0 { child } else { parent });
    }
    assert_eq!(index.memory_bytes(), before);
}

#[test]
fn settling_keeps_what_was_used_since() {
    let mut index = index(64);
    let old = put(&mut index, 1, None, 0);
    put(&mut index, 2, None, 0);
    index.touch_chain(&[old]);
    index.settle();
    assert_eq!(evict_to(&mut index, 0), [2, 1]);
}

#[test]
fn plain_lru_takes_the_head_of_a_chain_first() {
    let mut index = Index::new(8, 8, [PolicyKind::Lru; 2]);
    for n in 0..3 {
        put(&mut index, n, n.checked_sub(1), n as u16);
    }
    let chain: Vec<_> = (0..3).filter_map(|n| find(&index, n)).collect();
    index.touch_chain(&chain);
    assert_eq!(evict_to(&mut index, 0), [0, 1, 2]);
}

#[test]
fn memory_is_known_before_it_is_reserved() {
    let index = Index::new(100_000, 1_000, [PolicyKind::LeafLru; 2]);
    assert_eq!(index.memory_bytes(), Index::bytes_for(100_000, 1_000));
    assert!(Index::bytes_for(1_000_000, 0) <= 94 * 1_000_000);
}

proptest! {
    /// Keys that agree in their first eight bytes (a build that cut them) are other objects still.
    #[test]
    fn equal_prefixes_are_distinct_objects(
        ops in prop::collection::vec((0u8..3, 0u8..64, any::<bool>()), 1..300)
    ) {
        let key = |prefix: u8, rest: u8| {
            let mut bytes = [0; 16];
            (bytes[7], bytes[8]) = (prefix.wrapping_mul(100), rest);
            Fingerprint(bytes)
        };
        let mut index = index(64);
        let mut model = std::collections::BTreeMap::new();
        for (prefix, rest, add) in ops {
            let fingerprint = key(prefix, rest);
            prop_assert_eq!(index.find(&fingerprint), model.get(&(prefix, rest)).copied());
            if !add {
                if let Some(id) = model.remove(&(prefix, rest)) {
                    index.remove(id);
                }
            } else if !model.contains_key(&(prefix, rest))
                && let Ok(id) = index.insert(&NewEntry { fingerprint, ..block(0, None, 0) })
            {
                model.insert((prefix, rest), id);
            }
            let (keys, ids): (Vec<_>, Vec<_>) =
                model.iter().map(|(&(prefix, rest), &id)| (key(prefix, rest), Some(id))).unzip();
            let mut found = vec![None; keys.len()];
            index.find_batch(&keys, &mut found);
            prop_assert_eq!(found, ids);
        }
    }
}
