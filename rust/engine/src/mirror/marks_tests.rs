use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const LIMIT: usize = 24;

/// A fingerprint for a number. Few homes, so that runs of the table are long and wrap around.
fn block(n: u8) -> Fingerprint {
    let mut bytes = [0; 16];
    bytes[0] = n;
    bytes[7] = [0x00, 0xFF, 0x80][usize::from(n) % 3];
    bytes[15] = 1;
    Fingerprint(bytes)
}

#[derive(Clone, Debug)]
enum Step {
    Join(u8, usize),
    /// Cleans up that many slots and no more.
    Leave(u8, usize),
    Insert(u8, u8, u8),
    Remove(u8, u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let worker = 0..4_u8;
    let step = prop_oneof![
        1 => (worker.clone(), 1..12_usize).prop_map(|(id, slots)| Step::Join(id, slots)),
        1 => (worker.clone(), 0..12_usize).prop_map(|(id, most)| Step::Leave(id, most)),
        8 => (worker.clone(), 0..20_u8, 0..12_u8).prop_map(|(id, n, at)| Step::Insert(id, n, at)),
        3 => (worker, 0..20_u8).prop_map(|(id, n)| Step::Remove(id, n)),
    ];
    proptest::collection::vec(step, 0..200)
}

/// What the mirror should hold: by worker its slots, and the block of each that has one.
#[derive(Default)]
struct Model {
    live: BTreeMap<u8, (Worker, usize, BTreeMap<usize, u8>)>,
    /// Lost workers that still take slots.
    leaving: BTreeMap<u8, usize>,
}

impl Model {
    fn used(&self) -> usize {
        self.live.values().map(|(_, slots, _)| slots).sum::<usize>()
            + self.leaving.values().sum::<usize>()
    }

    fn leave(&mut self, id: u8, most: usize) -> bool {
        let slots = self.live.remove(&id).map(|(_, slots, _)| slots);
        let left = slots.or_else(|| self.leaving.remove(&id)).unwrap_or(0).saturating_sub(most);
        if left > 0 {
            self.leaving.insert(id, left);
        }
        left == 0
    }
}

fn agree(mirror: &Mirror, model: &Model, old: &[Worker]) -> Result<(), TestCaseError> {
    for n in 0..20 {
        let mut any = false;
        for (worker, _, marks) in model.live.values() {
            let slot = marks.iter().find(|(_, held)| **held == n).map(|(slot, _)| *slot);
            prop_assert_eq!(mirror.slot_of(*worker, &block(n)), slot);
            any |= slot.is_some();
        }
        prop_assert_eq!(mirror.holds(&block(n)), any);
        for worker in old {
            prop_assert_eq!(mirror.slot_of(*worker, &block(n)), None);
        }
    }
    let stats = mirror.stats();
    let marks: usize = model.live.values().map(|(_, _, marks)| marks.len()).sum();
    prop_assert_eq!((stats.marks, stats.workers), (marks as u64, model.live.len() as u64));
    prop_assert_eq!(stats.slots, model.used() as u64);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn marks_follow_the_model(steps in steps()) {
        let (mut mirror, mut model, mut old) = (Mirror::new(LIMIT), Model::default(), Vec::new());
        for step in steps {
            match step {
                Step::Join(id, slots) => {
                    old.extend(model.live.get(&id).map(|(worker, ..)| *worker));
                    prop_assert!(mirror.leave(id, None, LIMIT));
                    model.leave(id, LIMIT);
                    let left = LIMIT - model.used();
                    match mirror.join(id, slots) {
                        Ok(worker) => {
                            prop_assert!(slots <= left);
                            model.live.insert(id, (worker, slots, BTreeMap::new()));
                        }
                        Err(no) => {
                            prop_assert!(slots > left);
                            prop_assert_eq!(no, NoSlots { left, limit: LIMIT });
                        }
                    }
                }
                Step::Leave(id, most) => {
                    old.extend(model.live.get(&id).map(|(worker, ..)| *worker));
                    prop_assert_eq!(mirror.leave(id, None, most), model.leave(id, most));
                }
                Step::Insert(id, n, at) => {
                    if let Some((worker, slots, marks)) = model.live.get_mut(&id) {
                        prop_assert_eq!(mirror.slots_of(*worker), Some(*slots));
                        let slot = usize::from(at) % *slots;
                        mirror.insert(*worker, &block(n), slot);
                        marks.retain(|_, held| *held != n);
                        marks.insert(slot, n);
                    }
                }
                Step::Remove(id, n) => {
                    if let Some((worker, _, marks)) = model.live.get_mut(&id) {
                        let before = marks.len();
                        marks.retain(|_, held| *held != n);
                        let gone = mirror.remove(*worker, &block(n));
                        prop_assert_eq!(gone, marks.len() < before);
                    }
                }
            }
            agree(&mirror, &model, &old)?;
        }
    }
}

#[test]
fn a_worker_that_was_replaced_ends_nobody() {
    let mut mirror = Mirror::new(LIMIT);
    let old = mirror.join(3, 4).unwrap();
    assert!(mirror.leave(3, None, LIMIT));
    let new = mirror.join(3, 4).unwrap();
    mirror.insert(new, &block(1), 2);
    assert!(mirror.leave(3, Some(old.epoch()), LIMIT));
    assert_eq!((mirror.slots_of(old), mirror.slot_of(new, &block(1))), (None, Some(2)));
    assert_eq!(mirror.stats().stale, 1);
}
