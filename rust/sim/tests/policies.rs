//! The policies against independent code, on traces that are always there.

mod common;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use common::{load, replay, synthetic};

/// Plain LRU that touches each request from tail to head and stores the rest at capacity, with one
/// stamp per block and no tree. Gives hits and writes.
fn lru_tail_to_head(requests: &[Vec<u64>], capacity: usize) -> (u64, u64) {
    let mut stamps = HashMap::<u64, u64>::new();
    let mut blocks = BTreeMap::<u64, u64>::new();
    let mut now = 0;
    let (mut hits, mut writes) = (0, 0);
    for chain in requests {
        let hit = chain.iter().take_while(|id| stamps.contains_key(id)).count();
        hits += hit as u64;
        // Head youngest: the stamps of one request fall along the chain.
        now += chain.len() as u64;
        for (depth, &id) in chain.iter().enumerate() {
            if depth >= hit {
                if stamps.len() == capacity {
                    let (&oldest, &victim) = blocks.first_key_value().unwrap();
                    // All that is left is this chain: its own parent is no victim.
                    if depth > 0 && victim == chain[depth - 1] {
                        break;
                    }
                    blocks.remove(&oldest);
                    stamps.remove(&victim);
                }
                writes += 1;
            }
            let stamp = now - depth as u64;
            if let Some(before) = stamps.insert(id, stamp) {
                blocks.remove(&before);
            }
            blocks.insert(stamp, id);
        }
    }
    (hits, writes)
}

#[test]
fn leaf_lru_is_lru_touched_tail_to_head() {
    let requests = synthetic();
    let trace = load(&requests);
    for capacity in [1, 2, 5, 10, 20, 40, 80, 160, 320, 640, 1280, 5000] {
        let outcome = replay(&trace, "leaf-lru", &capacity.to_string());
        let (hits, writes) = lru_tail_to_head(&requests, capacity);
        assert_eq!((outcome.blocks_hit, outcome.blocks_written), (hits, writes), "at {capacity}");
    }
}

#[test]
fn leaf_lru_is_lru_touched_tail_to_head_on_mooncake() {
    let Some(path) = common::shared("mooncake_conversation.jsonl.gz") else { return };
    let requests = common::chains(&path, Some(4000));
    let trace = load(&requests);
    for capacity in [700, 3_000, 12_000] {
        let outcome = replay(&trace, "leaf-lru", &capacity.to_string());
        let (hits, writes) = lru_tail_to_head(&requests, capacity);
        assert_eq!((outcome.blocks_hit, outcome.blocks_written), (hits, writes), "at {capacity}");
    }
}

/// MIN with bypass block by block: after each request, keep the `capacity` blocks of the cache and
/// the request that are used soonest; any block may go, holes included.
fn any_block_min(requests: &[Vec<u64>], capacity: usize) -> (u64, u64) {
    let mut uses = HashMap::<u64, Vec<usize>>::new();
    for (n, chain) in requests.iter().enumerate().rev() {
        for &id in chain {
            uses.entry(id).or_default().push(n);
        }
    }
    let mut cache = BTreeSet::<(usize, usize, u64)>::new();
    let (mut hits, mut writes) = (0, 0);
    for (n, chain) in requests.iter().enumerate() {
        let before: HashSet<u64> = cache.iter().map(|&(_, _, id)| id).collect();
        hits += chain.iter().take_while(|id| before.contains(id)).count() as u64;
        cache.retain(|&(next, _, _)| next != n);
        for (depth, &id) in chain.iter().enumerate() {
            let uses = uses.get_mut(&id).unwrap();
            uses.pop();
            if let Some(&next) = uses.last() {
                cache.insert((next, depth, id));
            }
        }
        while cache.len() > capacity {
            cache.pop_last();
        }
        writes += cache.iter().filter(|(_, _, id)| !before.contains(id)).count() as u64;
    }
    (hits, writes)
}

#[test]
fn the_optimum_is_the_best_of_any_blocks() {
    let requests = synthetic();
    let trace = load(&requests);
    for capacity in [1, 2, 5, 10, 20, 40, 80, 160, 320, 640, 1280, 5000] {
        let outcome = replay(&trace, "optimum", &capacity.to_string());
        let (hits, writes) = any_block_min(&requests, capacity);
        assert_eq!((outcome.blocks_hit, outcome.blocks_written), (hits, writes), "at {capacity}");
        for policy in ["leaf-lru", "lru"] {
            assert!(replay(&trace, policy, &capacity.to_string()).blocks_hit <= hits);
        }
    }
}

#[test]
fn a_store_that_holds_all_hits_all_that_was_seen() {
    let requests = synthetic();
    let trace = load(&requests);
    let info = trace.info();
    let seen_before = info.blocks_requested - u64::from(info.unique_blocks);
    for policy in ["leaf-lru", "lru", "optimum"] {
        for capacity in ["100%", "4000000000"] {
            assert_eq!(replay(&trace, policy, capacity).blocks_hit, seen_before, "{policy}");
        }
        if policy != "optimum" {
            let outcome = replay(&trace, policy, "100%");
            assert_eq!(outcome.blocks_written, u64::from(info.unique_blocks));
        }
    }
}

#[test]
fn plain_lru_leaves_holes() {
    // Four slots hold a chain of four; one more block pushes out the head, and all is lost.
    let trace = load(&[vec![1, 2, 3, 4], vec![9], vec![1, 2, 3, 4]]);
    assert_eq!(replay(&trace, "lru", "4").blocks_hit, 0);
    assert_eq!(replay(&trace, "leaf-lru", "4").blocks_hit, 3);
}

#[test]
fn a_prompt_larger_than_the_store_keeps_its_head() {
    let long: Vec<u64> = (0..10).collect();
    let trace = load(&[long.clone(), long]);
    let outcome = replay(&trace, "leaf-lru", "4");
    assert_eq!((outcome.blocks_hit, outcome.blocks_written), (4, 4));
}

#[test]
fn ratios_of_nothing_are_defined() {
    let trace = load(&[]);
    let outcome = replay(&trace, "leaf-lru", "1%");
    assert_eq!((outcome.requests, outcome.capacity_blocks), (0, 1));
    assert_eq!((outcome.hit_ratio(), outcome.bytes_written_per_byte_hit()), (0.0, None));
}
