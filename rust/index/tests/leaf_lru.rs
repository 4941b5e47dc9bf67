//! Leaf-first LRU is exact: the victim is the leaf of the oldest look-up, deepest first.

mod common;

use std::collections::BTreeMap;

use common::{evict_to, find, index, put};
use kvstore_index::{EntryId, Index, Tier};
use proptest::prelude::*;

/// A chain through a tree with three children a node: the choices from the root down.
type Path = Vec<u8>;

fn number(path: &[u8]) -> u64 {
    path.iter().fold(1, |n, &choice| n * 4 + u64::from(choice) + 1)
}

/// Look-up number and depth by path; no order but that.
#[derive(Default)]
struct Model(BTreeMap<Path, u64>);

impl Model {
    fn is_leaf(&self, path: &[u8]) -> bool {
        !self.0.keys().any(|other| other.len() == path.len() + 1 && other.starts_with(path))
    }

    fn victim(&self, pinned: &[u8]) -> Option<&Path> {
        self.0
            .iter()
            .filter(|(path, _)| self.is_leaf(path) && path[..] != *pinned)
            .min_by_key(|(path, tick)| (**tick, std::cmp::Reverse(path.len())))
            .map(|(path, _)| path)
    }
}

/// One request: touches the longest cached prefix, then stores the rest at a fixed capacity.
fn request(index: &mut Index, model: &mut Model, path: &[u8], tick: u64, capacity: usize) {
    let prefixes: Vec<&[u8]> = (1..=path.len()).map(|n| &path[..n]).collect();
    let cached: Vec<EntryId> =
        prefixes.iter().map_while(|prefix| find(index, number(prefix))).collect();
    let hits = prefixes.iter().take_while(|prefix| model.0.contains_key(**prefix)).count();
    assert_eq!(cached.len(), hits);
    index.touch_chain(&cached);
    for prefix in &prefixes[..hits] {
        model.0.insert(prefix.to_vec(), tick);
    }
    for depth in hits..path.len() {
        let (parent, prefix) = (&path[..depth], prefixes[depth]);
        let pin = find(index, number(parent));
        if let Some(id) = pin {
            index.acquire(id);
        }
        if model.0.len() == capacity {
            let victim = index.victim(Tier::Host, &mut |_, _| true);
            let expected = model.victim(parent).cloned();
            assert_eq!(
                victim.as_ref().map(|victim| index[victim.id].checksum),
                expected.as_deref().map(number)
            );
            if let Some(victim) = victim {
                index.remove(victim.id);
            }
            if let Some(expected) = &expected {
                model.0.remove(expected);
            }
        }
        let fits = model.0.len() < capacity;
        if fits {
            put(index, number(prefix), (depth > 0).then(|| number(parent)), depth as u16);
            model.0.insert(prefix.to_vec(), tick);
        }
        if let Some(id) = pin {
            index.release(id);
        }
        if !fits {
            break;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn evicts_the_leaf_of_the_oldest_look_up(
        paths in prop::collection::vec(prop::collection::vec(0u8..3, 1..7), 1..60),
        capacity in 1usize..24,
    ) {
        let (mut index, mut model) = (index(32), Model::default());
        for (tick, path) in paths.iter().enumerate() {
            request(&mut index, &mut model, path, tick as u64, capacity);
        }
    }
}

/// Field report: thousands of chunks resident, usable prefix 0, because the head of a prefix that
/// was stored in several batches was evicted before its tail.
#[test]
fn a_prefix_stored_in_batches_loses_its_tail_first() {
    let mut index = index(256);
    for batch in 0..8u64 {
        index.touch_chain(&[]);
        for n in batch * 16..(batch + 1) * 16 {
            put(&mut index, n, n.checked_sub(1), n as u16);
        }
    }
    for filler in 1000..1032 {
        index.touch_chain(&[]);
        put(&mut index, filler, None, 0);
    }
    let gone = evict_to(&mut index, 128);
    assert_eq!(gone, (96..128).rev().collect::<Vec<_>>());
    assert!((0..96).all(|n| find(&index, n).is_some()));
}

#[test]
fn a_common_head_outlives_both_tails() {
    let mut index = index(64);
    for n in 0..4 {
        put(&mut index, n, n.checked_sub(1), n as u16);
    }
    for tail in [100, 200] {
        index.touch_chain(&[]);
        for n in 0..4 {
            put(&mut index, tail + n, Some(if n == 0 { 3 } else { tail + n - 1 }), 4 + n as u16);
        }
    }
    let gone = evict_to(&mut index, 0);
    assert_eq!(gone, [103, 102, 101, 100, 203, 202, 201, 200, 3, 2, 1, 0]);
}

#[test]
fn a_put_into_an_old_chain_renews_all_of_it() {
    let mut index = index(64);
    put(&mut index, 0, None, 0);
    put(&mut index, 1, Some(0), 1);
    index.touch_chain(&[]);
    put(&mut index, 10, None, 0);
    index.touch_chain(&[]);
    put(&mut index, 2, Some(1), 2);
    assert_eq!(evict_to(&mut index, 0), [10, 2, 1, 0]);
}

#[test]
fn unneeded_windows_are_the_first_victims() {
    let mut index = index(64);
    put(&mut index, 0, None, 0);
    index.touch_chain(&[]);
    put(&mut index, 1, None, 0);
    let window = put(&mut index, 2, Some(1), 0);
    index.set_unneeded(window, true);
    assert!(index.is_unneeded(window));
    assert_eq!(evict_to(&mut index, 0), [2, 0, 1]);
}

#[test]
fn a_search_for_a_victim_is_bounded() {
    let mut index = index(5000);
    for n in 0..5000 {
        put(&mut index, n, None, 0);
    }
    let mut asked = 0;
    let victim = index.victim(Tier::Host, &mut |_, entry| {
        asked += 1;
        entry.checksum == 4999
    });
    assert_eq!((victim, asked), (None, 4096));
}
