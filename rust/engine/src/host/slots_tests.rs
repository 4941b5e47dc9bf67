use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

const EXTENT: u32 = 64 << 10;
const STRIDES: [u32; 5] = [4 << 10, 8 << 10, 12 << 10, 20 << 10, 64 << 10];

#[test]
fn the_fullest_extent_is_used_first() {
    let mut slots = Slots::new(3, EXTENT);
    let ids: Vec<SlotId> = (0..12).map(|_| slots.alloc(16 << 10).unwrap()).collect();
    let extent = |id: &SlotId| slots.buf(*id, 1).extent;
    assert_eq!(ids.iter().map(extent).collect::<Vec<_>>(), [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]);
    for emptier in &ids[..3] {
        slots.free(*emptier);
    }
    slots.free(ids[5]);
    assert_eq!(slots.alloc(16 << 10), Some(ids[5]));
    assert_eq!(slots.alloc(16 << 10), Some(ids[0]));
}

#[test]
fn a_stride_above_the_extent_has_no_slot() {
    let mut slots = Slots::new(2, EXTENT);
    assert_eq!(slots.alloc(EXTENT + SLOT_ALIGN), None);
    assert_eq!(slots.free_extents(), 2);
}

#[test]
fn the_cheapest_extent_of_another_class_is_drained() {
    let mut slots = Slots::new(4, EXTENT);
    let mine = slots.alloc(8 << 10).unwrap();
    let large = slots.alloc(64 << 10).unwrap();
    let small: Vec<SlotId> = (0..5).map(|_| slots.alloc(4 << 10).unwrap()).collect();
    let other = slots.alloc(32 << 10).unwrap();

    assert_eq!(slots.drain_candidate(8 << 10, &mut |_| true), Some(slots.extent(small[0])));
    assert_eq!(slots.drain_candidate(8 << 10, &mut |id| id != small[4]), Some(slots.extent(other)));
    slots.expose(other);
    assert_eq!(slots.drain_candidate(8 << 10, &mut |id| id != small[4]), Some(slots.extent(large)));
    assert_eq!(slots.drain_candidate(8 << 10, &mut |id| id == mine || id == other), None);
    assert_eq!(slots.unexpose(other), 0);
    assert_eq!(slots.drain_candidate(8 << 10, &mut |id| id == other), Some(slots.extent(other)));
}

#[test]
fn a_reused_slot_forgets_its_last_owner() {
    let mut slots = Slots::new(1, EXTENT);
    let id = slots.alloc(EXTENT).unwrap();
    assert_eq!(slots.owner(id), NO_OWNER);
    slots.set_owner(id, 7);
    slots.set_suspect(id, true);
    assert_eq!((slots.owner(id), slots.suspect(id)), (7, true));
    slots.free(id);
    let again = slots.alloc(EXTENT).unwrap();
    assert_eq!((slots.owner(again), slots.suspect(again)), (NO_OWNER, false));
}

#[test]
#[should_panic(expected = "freed under 1 live views")]
fn memory_under_a_view_is_not_freed() {
    let mut slots = Slots::new(1, EXTENT);
    let id = slots.alloc(EXTENT).unwrap();
    slots.expose(id);
    slots.free(id);
}

#[test]
#[should_panic(expected = "is not a live slot")]
fn a_slot_is_freed_once() {
    let mut slots = Slots::new(2, EXTENT);
    let id = slots.alloc(4 << 10).unwrap();
    slots.free(id);
    slots.free(id);
}

#[derive(Clone, Debug)]
enum Step {
    Alloc(usize),
    Free(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..STRIDES.len()).prop_map(Step::Alloc),
        2 => any::<usize>().prop_map(Step::Free),
    ]
}

proptest! {
    /// Against a list of live byte ranges: no two overlap, nothing leaks, counts are those of the
    /// list, and an allocation fails only when neither its class nor the arena has room.
    #[test]
    fn slots_agree_with_a_list_of_ranges(
        extents in 1u32..6,
        steps in proptest::collection::vec(step(), 1..300),
    ) {
        let mut slots = Slots::new(extents, EXTENT);
        let mut live: BTreeMap<SlotId, u32> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Alloc(class) => {
                    let stride = STRIDES[class];
                    let room = slots.free_slots(stride) > 0 || slots.free_extents() > 0;
                    let id = slots.alloc(stride);
                    prop_assert_eq!(id.is_some(), room);
                    if let Some(id) = id {
                        prop_assert_eq!(live.insert(id, stride), None);
                    }
                }
                Step::Free(pick) if !live.is_empty() => {
                    let id = *live.keys().nth(pick % live.len()).unwrap();
                    live.remove(&id);
                    slots.free(id);
                }
                Step::Free(_) => {}
            }
            agree(&slots, extents, &live)?;
        }
        for id in live.into_keys() {
            slots.free(id);
        }
        prop_assert_eq!(slots.free_extents(), extents);
        prop_assert_eq!(slots.used_bytes(), 0);
        prop_assert_eq!(slots.strides().count(), 0);
    }
}

fn agree(slots: &Slots, extents: u32, live: &BTreeMap<SlotId, u32>) -> Result<(), TestCaseError> {
    let mut pages = BTreeSet::new();
    let mut owners: BTreeMap<u32, u32> = BTreeMap::new();
    for (&id, &stride) in live {
        prop_assert_eq!(slots.stride(id), stride);
        let buf = slots.buf(id, stride);
        prop_assert!(buf.extent < extents && buf.offset + buf.len <= EXTENT);
        prop_assert_eq!(*owners.entry(buf.extent).or_insert(stride), stride);
        for page in 0..stride / SLOT_ALIGN {
            prop_assert!(pages.insert((buf.extent, buf.offset / SLOT_ALIGN + page)), "overlap");
        }
    }
    prop_assert_eq!(slots.used_bytes(), live.values().map(|&stride| u64::from(stride)).sum());
    prop_assert_eq!(slots.free_extents() as usize, extents as usize - owners.len());
    for stride in STRIDES {
        let mine = owners.values().filter(|&&owner| owner == stride).count();
        prop_assert_eq!(slots.extents_of(stride) as usize, mine);
        let used = live.values().filter(|&&slot| slot == stride).count();
        let room = mine * (EXTENT / stride) as usize;
        prop_assert_eq!(slots.free_slots(stride) as usize, room - used);
    }
    let listed: BTreeSet<SlotId> = (0..extents).flat_map(|extent| slots.live_in(extent)).collect();
    prop_assert_eq!(listed, live.keys().copied().collect());
    Ok(())
}
