//! The index against a model that knows no lists, no counts and no table.

mod common;

use std::collections::BTreeMap;

use common::{block, index, key};
use kvstore_index::{EntryId, Index, Released, Tier};
use proptest::prelude::*;

/// Objects 0..KEYS form a fixed binary tree: object k hangs under (k - 1) / 2.
const KEYS: u64 = 22;
const CAPACITY: usize = 16;

fn parent_of(k: u64) -> Option<u64> {
    (k > 0).then(|| (k - 1) / 2)
}

fn depth_of(k: u64) -> u16 {
    parent_of(k).map_or(0, |parent| depth_of(parent) + 1)
}

#[derive(Clone, Debug)]
enum Op {
    Insert(u64),
    Remove(u64),
    Acquire(u64),
    /// Gives the n-th reference back, of those held.
    Release(usize),
    Add(u64, Tier),
    Drop(u64, Tier),
    /// The chain that ends here, as far up as it is linked, without its first `skip` blocks.
    Touch(u64, usize),
    Relink(u64),
    Unneeded(u64, bool),
    /// Asks for a victim whose number is in the mask, and evicts it.
    Evict(Tier, u32),
}

fn op() -> impl Strategy<Value = Op> {
    let k = 0..KEYS;
    let tier = prop_oneof![Just(Tier::Host), Just(Tier::Disk)];
    prop_oneof![
        6 => k.clone().prop_map(Op::Insert),
        2 => k.clone().prop_map(Op::Remove),
        2 => k.clone().prop_map(Op::Acquire),
        3 => any::<usize>().prop_map(Op::Release),
        8 => (k.clone(), tier.clone()).prop_map(|(k, tier)| Op::Add(k, tier)),
        2 => (k.clone(), tier.clone()).prop_map(|(k, tier)| Op::Drop(k, tier)),
        5 => (k.clone(), 0..3usize).prop_map(|(k, skip)| Op::Touch(k, skip)),
        3 => k.clone().prop_map(Op::Relink),
        1 => (k, any::<bool>()).prop_map(|(k, on)| Op::Unneeded(k, on)),
        4 => (tier, prop_oneof![Just(u32::MAX), any::<u32>()])
            .prop_map(|(tier, mask)| Op::Evict(tier, mask)),
    ]
}

struct Object {
    id: EntryId,
    incarnation: u32,
    /// Incarnation of the parent that it is linked to.
    link: Option<u32>,
    resident: [bool; 2],
    first: bool,
    last_use: u32,
}

#[derive(Default)]
struct Model {
    live: BTreeMap<u64, Object>,
    /// Held references: object, incarnation, position.
    refs: Vec<(u64, u32, EntryId)>,
    /// Old to young, by tier and rank.
    queues: [[Vec<u64>; 2]; 2],
    incarnations: u32,
    now: u32,
}

impl Model {
    fn parent(&self, k: u64) -> Option<u64> {
        let link = self.live[&k].link?;
        let parent = parent_of(k)?;
        (self.live.get(&parent)?.incarnation == link).then_some(parent)
    }

    /// From the root to the parent.
    fn ancestors(&self, k: u64) -> Vec<u64> {
        let mut path: Vec<u64> =
            std::iter::successors(self.parent(k), |&k| self.parent(k)).collect();
        path.reverse();
        path
    }

    fn children(&self, k: u64) -> Vec<u64> {
        self.live.keys().copied().filter(|&c| self.parent(c) == Some(k)).collect()
    }

    fn blockers(&self, k: u64, tier: Tier) -> Vec<u64> {
        let mut children = self.children(k);
        if tier == Tier::Host {
            children.retain(|c| self.live[c].resident[0]);
        }
        children
    }

    fn refs(&self, k: u64) -> u32 {
        let incarnation = self.live[&k].incarnation;
        self.refs.iter().filter(|r| (r.0, r.1) == (k, incarnation)).count() as u32
    }

    fn leave_queue(&mut self, k: u64, tier: Tier) {
        for rank in &mut self.queues[tier as usize] {
            rank.retain(|&x| x != k);
        }
    }

    fn join_queue(&mut self, k: u64, tier: Tier) {
        let first = self.live[&k].first;
        let behind = self.parent(k).filter(|p| self.live[p].first == first);
        let rank = &mut self.queues[tier as usize][usize::from(!first)];
        match behind.and_then(|p| rank.iter().position(|&x| x == p)) {
            Some(at) => rank.insert(at, k),
            None => rank.push(k),
        }
    }

    fn touch(&mut self, chain: &[u64]) {
        for &k in chain.iter().rev() {
            self.live.get_mut(&k).unwrap().last_use = self.now;
            let first = self.live[&k].first;
            for tier in Tier::ALL {
                if self.live[&k].resident[tier as usize] {
                    self.leave_queue(k, tier);
                    self.queues[tier as usize][usize::from(!first)].push(k);
                }
            }
        }
    }

    fn victim(&self, tier: Tier, mask: u32) -> Option<(u64, Vec<u64>)> {
        let mut passed: Vec<u64> = Vec::new();
        for &k in self.queues[tier as usize].iter().flatten() {
            let stays = |c: &u64| !passed.contains(c);
            if self.refs(k) > 0 || self.blockers(k, tier).iter().any(stays) {
                continue;
            }
            if mask >> k & 1 == 1 {
                let path = |&p: &u64| self.ancestors(p).into_iter().skip_while(|&a| a != k);
                let below = |p: &u64| {
                    path(p).next().is_some() && path(p).skip(1).all(|a| passed.contains(&a))
                };
                let along = passed.iter().copied().filter(below).collect();
                return Some((k, along));
            }
            if tier == Tier::Host || !self.live[&k].resident[0] {
                passed.push(k);
            }
        }
        None
    }

    fn remove(&mut self, k: u64) {
        for tier in Tier::ALL {
            self.leave_queue(k, tier);
        }
        self.live.remove(&k);
    }
}

fn apply(op: &Op, index: &mut Index, model: &mut Model) {
    match *op {
        Op::Insert(k) => {
            if model.live.contains_key(&k) {
                return;
            }
            let dead: std::collections::BTreeSet<u32> = model
                .refs
                .iter()
                .filter(|r| model.live.get(&r.0).is_none_or(|o| o.incarnation != r.1))
                .map(|r| r.1)
                .collect();
            let full = model.live.len() + dead.len() == CAPACITY;
            let result = index.insert(&block(k, parent_of(k), depth_of(k)));
            assert_eq!(result.is_err(), full);
            let Ok(id) = result else { return };
            model.incarnations += 1;
            let link = parent_of(k).and_then(|p| model.live.get(&p)).map(|p| p.incarnation);
            let new = Object {
                id,
                incarnation: model.incarnations,
                link,
                resident: [false; 2],
                first: false,
                last_use: model.now,
            };
            model.live.insert(k, new);
            if model.parent(k).is_some_and(|p| model.live[&p].last_use != model.now) {
                model.touch(&model.ancestors(k));
            }
        }
        Op::Remove(k) => {
            if let Some(object) = model.live.get(&k) {
                let (id, handle) = (object.id, index.handle(object.id));
                let freed = index.remove(id);
                assert_eq!(freed.is_some(), model.refs(k) == 0);
                assert_eq!(index.resolve(handle), None);
                model.remove(k);
            }
        }
        Op::Acquire(k) => {
            if let Some(object) = model.live.get(&k) {
                index.acquire(object.id);
                model.refs.push((k, object.incarnation, object.id));
            }
        }
        Op::Release(n) => {
            if model.refs.is_empty() {
                return;
            }
            let (k, incarnation, id) = model.refs.swap_remove(n % model.refs.len());
            let last = !model.refs.iter().any(|r| (r.0, r.1) == (k, incarnation));
            let live = model.live.get(&k).is_some_and(|o| o.incarnation == incarnation);
            match index.release(id) {
                Released::Live => assert!(!last),
                Released::LastOfLive => assert!(last && live),
                Released::Freed(freed) => {
                    assert!(last && !live);
                    assert_eq!(freed.entry.checksum, k);
                }
            }
        }
        Op::Add(k, tier) => {
            if let Some(object) = model.live.get_mut(&k) {
                index.add_resident(object.id, tier);
                if !std::mem::replace(&mut object.resident[tier as usize], true) {
                    model.join_queue(k, tier);
                }
            }
        }
        Op::Drop(k, tier) => {
            if let Some(object) = model.live.get_mut(&k) {
                index.drop_resident(object.id, tier);
                object.resident[tier as usize] = false;
                model.leave_queue(k, tier);
            }
        }
        Op::Touch(k, skip) => {
            let mut chain = Vec::new();
            if model.live.contains_key(&k) {
                chain = model.ancestors(k);
                chain.push(k);
            }
            let ids: Vec<EntryId> = chain.iter().map(|k| model.live[k].id).collect();
            // What is left out is above the chain, and counts as used all the same.
            index.touch_chain(&ids[skip.min(ids.len().saturating_sub(1))..]);
            model.now += 1;
            model.touch(&chain);
        }
        Op::Relink(k) => {
            let Some(parent) = parent_of(k).filter(|p| model.live.contains_key(p)) else { return };
            if !model.live.contains_key(&k) {
                return;
            }
            index.relink(model.live[&k].id, model.live[&parent].id);
            if model.parent(k).is_none() {
                let link = model.live[&parent].incarnation;
                model.live.get_mut(&k).unwrap().link = Some(link);
                if model.live[&parent].last_use <= model.live[&k].last_use {
                    model.touch(&model.ancestors(k));
                }
            }
        }
        Op::Unneeded(k, on) => {
            if let Some(object) = model.live.get_mut(&k) {
                index.set_unneeded(object.id, on);
                if std::mem::replace(&mut object.first, on) != on {
                    for tier in Tier::ALL {
                        if model.live[&k].resident[tier as usize] {
                            model.leave_queue(k, tier);
                            model.join_queue(k, tier);
                        }
                    }
                }
            }
        }
        Op::Evict(tier, mask) => {
            let victim = index.victim(tier, &mut |_, entry| mask >> entry.checksum & 1 == 1);
            let expected = model.victim(tier, mask);
            let got = victim.clone().map(|victim| {
                let along = victim.along.iter().map(|&id| index[id].checksum).collect();
                (index[victim.id].checksum, along)
            });
            assert_eq!(got, expected);
            let Some(victim) = victim else { return };
            for id in victim.along.into_iter().chain([victim.id]) {
                let k = index[id].checksum;
                let blockers = model.blockers(k, tier);
                assert!(blockers.is_empty(), "{k} leaves before its children {blockers:?}");
                index.drop_resident(id, tier);
                model.leave_queue(k, tier);
                let object = model.live.get_mut(&k).unwrap();
                object.resident[tier as usize] = false;
                if object.resident == [false; 2] {
                    assert!(index.remove(id).is_some());
                    model.remove(k);
                }
            }
        }
    }
}

fn compare(index: &Index, model: &Model) {
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    let mut found = vec![None; keys.len()];
    index.find_batch(&keys, &mut found);
    assert_eq!(index.len(), model.live.len());
    assert_eq!(index.iter().count(), model.live.len());
    for (k, found) in (0..KEYS).zip(found) {
        assert_eq!(index.find(&key(k)), found);
        let Some(object) = model.live.get(&k) else {
            assert_eq!(found, None);
            continue;
        };
        assert_eq!(found, Some(object.id));
        let id = object.id;
        assert_eq!(index[id].checksum, k);
        assert_eq!(index.resolve(index.handle(id)), Some(id));
        assert_eq!(index.parent(id), model.parent(k).map(|p| model.live[&p].id));
        assert_eq!(index.refs(id), model.refs(k));
        assert_eq!(index.last_use(id), object.last_use);
        for tier in Tier::ALL {
            assert_eq!(index.is_resident(id, tier), object.resident[tier as usize]);
            assert_eq!(index.children(id, tier), model.blockers(k, tier).len() as u32);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn behaves_like_the_model(ops in prop::collection::vec(op(), 1..200)) {
        let (mut index, mut model) = (index(CAPACITY), Model::default());
        for op in &ops {
            apply(op, &mut index, &mut model);
            compare(&index, &model);
        }
    }
}
