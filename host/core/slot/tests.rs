//! The slot pool against a map of the slots in use.

use super::{SlotPool, SlotState};
use crate::core::chunk::ChunkIndex;
use crate::units::SlotIndex;
use proptest::prelude::*;
use std::collections::BTreeMap;

const CAPACITY: u32 = 5;

/// Slots of the stripes of a pool with several.
const STRIPES: [u32; 3] = [1, 3, 1];

/// One slot that is known and not free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Unscanned,
    Filling,
    Resident(u32),
    Draining(u32),
}

fn check(pool: &SlotPool, model: &BTreeMap<u32, (Use, ChunkIndex)>) {
    let counts = pool.counts();
    let unscanned = model.values().filter(|(in_use, _)| *in_use == Use::Unscanned).count();
    assert_eq!(counts.unscanned as usize, unscanned);
    assert_eq!(counts.used as usize, model.len() - unscanned);
    assert_eq!(counts.used + counts.free + counts.unscanned, CAPACITY);
    for number in 0..CAPACITY {
        let slot = SlotIndex::new(number);
        let state = pool.state(slot);
        let Some((in_use, owner)) = model.get(&number) else {
            assert!(matches!(state, SlotState::Free { .. }));
            continue;
        };
        let expected = match *in_use {
            Use::Unscanned => SlotState::Unscanned,
            Use::Filling => SlotState::Filling,
            Use::Resident(readers) => SlotState::Resident { readers },
            Use::Draining(readers) => SlotState::Draining { readers },
        };
        assert_eq!(state, expected);
        let is_owner = *in_use == Use::Unscanned || pool.chunk(slot) == *owner;
        assert!(is_owner, "a slot keeps its owner until it is free");
    }
}

/// Runs one step on a slot in use; returns its next use, none when it is free.
fn step(pool: &mut SlotPool, slot: SlotIndex, owner: ChunkIndex, in_use: Use, choice: u8) -> Use {
    match (in_use, choice) {
        (Use::Unscanned, _) => {
            pool.adopt(slot, owner);
            Use::Resident(0)
        }
        (Use::Filling, _) => {
            pool.filled(slot);
            Use::Resident(0)
        }
        (Use::Resident(readers), 1) if readers > 0 => {
            pool.remove_reader(slot);
            Use::Resident(readers - 1)
        }
        (Use::Resident(readers), 2) => {
            pool.close(slot);
            Use::Draining(readers)
        }
        (Use::Resident(readers), _) => {
            pool.add_reader(slot);
            Use::Resident(readers + 1)
        }
        (Use::Draining(readers), _) => {
            pool.remove_reader(slot);
            Use::Draining(readers - 1)
        }
    }
}

proptest! {
    #[test]
    fn slots_follow_their_states_and_are_never_owned_twice(
        is_scanned in any::<bool>(),
        is_striped in any::<bool>(),
        steps in prop::collection::vec((0..CAPACITY, 0..4_u8), 0..200),
    ) {
        let mut pool = SlotPool::new(CAPACITY);
        let mut model = BTreeMap::new();
        if !is_scanned {
            pool = SlotPool::unscanned(if is_striped { &STRIPES } else { &[CAPACITY] });
            model.extend((0..CAPACITY).map(|slot| (slot, (Use::Unscanned, ChunkIndex::NONE))));
        }
        for (number_of_step, (number, choice)) in (0..).zip(steps) {
            let slot = SlotIndex::new(number);
            let owner = ChunkIndex::new(number_of_step);
            let state = model.get(&number).copied();
            match state {
                None => {
                    prop_assert!(!pool.free_unscanned(slot), "a free slot is known");
                    let taken = pool.take(owner).expect("this slot is free");
                    let former = model.insert(taken.get(), (Use::Filling, owner));
                    prop_assert!(former.is_none(), "only a free slot is handed out");
                }
                Some((Use::Unscanned, _)) if choice == 0 => {
                    prop_assert!(pool.free_unscanned(slot));
                    model.remove(&number);
                }
                Some((Use::Filling | Use::Resident(0) | Use::Draining(0), _))
                    if choice == 0 || state.is_some_and(|(it, _)| it == Use::Draining(0)) =>
                {
                    pool.free(slot);
                    model.remove(&number);
                }
                Some((in_use, known)) => {
                    let owner = if in_use == Use::Unscanned { owner } else { known };
                    let next = step(&mut pool, slot, owner, in_use, choice);
                    model.insert(number, (next, owner));
                }
            }
            check(&pool, &model);
        }
        while pool.counts().free > 0 {
            let taken = pool.take(ChunkIndex::new(0)).expect("what is free can be taken");
            let former = model.insert(taken.get(), (Use::Filling, ChunkIndex::new(0)));
            prop_assert!(former.is_none(), "only a free slot is handed out");
        }
        prop_assert_eq!(pool.take(ChunkIndex::new(0)), None);
    }
}

fn taken(pool: &mut SlotPool) -> SlotIndex {
    pool.take(ChunkIndex::new(7)).expect("a slot is free")
}

#[test]
fn never_used_slots_are_handed_out_in_ascending_order() {
    let mut pool = SlotPool::new(3);
    let first = taken(&mut pool);
    pool.free(first);
    let order: Vec<u32> = (0..3).map(|_| taken(&mut pool).get()).collect();
    assert_eq!(order, [0, 1, 2], "one that was used before them");
}

#[test]
fn scanned_slots_are_handed_out_in_the_order_of_the_scan() {
    let mut pool = SlotPool::unscanned(&[6]);
    assert_eq!(pool.take(ChunkIndex::new(7)), None, "an unscanned slot is not free");
    for slot in 0..4 {
        assert!(pool.free_unscanned(SlotIndex::new(slot)));
    }
    let first = taken(&mut pool);
    pool.free(first);
    assert!(pool.free_unscanned(SlotIndex::new(5)));
    let order: Vec<u32> = (0..5).map(|_| taken(&mut pool).get()).collect();
    assert_eq!(order, [0, 1, 2, 3, 5], "one that was used before them");
}

/// A pool with so many free slots in each stripe.
fn striped(slot_counts: &[u32]) -> SlotPool {
    let mut pool = SlotPool::unscanned(slot_counts);
    for slot in 0..pool.capacity() {
        assert!(pool.free_unscanned(SlotIndex::new(slot)));
    }
    pool
}

#[test]
fn the_next_slot_is_of_the_stripe_with_the_largest_share_free() {
    let mut pool = striped(&[2, 4]);
    let order: Vec<u32> = (0..6).map(|_| taken(&mut pool).get()).collect();
    assert_eq!(order, [0, 2, 3, 1, 4, 5], "the first of several that are as empty");
    assert_eq!(pool.take(ChunkIndex::new(7)), None);
}

#[test]
fn a_stopped_stripe_hands_out_no_slot_and_takes_back_its_own() {
    let mut pool = striped(&[3, 2]);
    let first = taken(&mut pool);
    assert_eq!(pool.stripe_of(first), 0);
    pool.stop(0);
    pool.free(first);
    assert_eq!(pool.stripe_counts(0).free, 3);
    let order: Vec<u32> = (0..2).map(|_| taken(&mut pool).get()).collect();
    assert_eq!(order, [3, 4]);
    assert_eq!(pool.take(ChunkIndex::new(7)), None);
    assert_eq!(pool.counts().free, 3, "free and used slots add up all the same");
}

#[test]
fn every_slot_is_of_the_stripe_whose_slots_it_is_among() {
    let pool = SlotPool::unscanned(&STRIPES);
    let stripes: Vec<usize> = (0..5).map(|slot| pool.stripe_of(SlotIndex::new(slot))).collect();
    assert_eq!(stripes, [0, 1, 1, 1, 2]);
    assert_eq!((pool.stripe(0), pool.stripe(1), pool.stripe(2)), (0..1, 1..4, 4..5));
}

#[test]
#[should_panic(expected = "a reader leaves once")]
fn readers_never_go_below_zero() {
    let mut pool = SlotPool::new(1);
    let slot = taken(&mut pool);
    pool.filled(slot);
    pool.remove_reader(slot);
}

#[test]
#[should_panic(expected = "cannot be read")]
fn a_filling_slot_has_no_readers() {
    let mut pool = SlotPool::new(1);
    let slot = taken(&mut pool);
    pool.add_reader(slot);
}

#[test]
#[should_panic(expected = "cannot be read")]
fn a_draining_slot_takes_no_new_reader() {
    let mut pool = SlotPool::new(1);
    let slot = taken(&mut pool);
    pool.filled(slot);
    pool.close(slot);
    pool.add_reader(slot);
}

#[test]
#[should_panic(expected = "cannot be freed")]
fn a_slot_with_a_reader_is_not_freed() {
    let mut pool = SlotPool::new(1);
    let slot = taken(&mut pool);
    pool.filled(slot);
    pool.add_reader(slot);
    pool.free(slot);
}

#[test]
#[should_panic(expected = "cannot be freed")]
fn a_slot_is_freed_once() {
    let mut pool = SlotPool::new(1);
    let slot = taken(&mut pool);
    pool.free(slot);
    pool.free(slot);
}

#[test]
#[should_panic(expected = "is not being filled")]
fn a_slot_is_filled_once() {
    let mut pool = SlotPool::new(1);
    let slot = taken(&mut pool);
    pool.filled(slot);
    pool.filled(slot);
}

#[test]
#[should_panic(expected = "is known")]
fn a_slot_is_adopted_once() {
    let mut pool = SlotPool::unscanned(&[1]);
    pool.adopt(SlotIndex::new(0), ChunkIndex::new(1));
    pool.adopt(SlotIndex::new(0), ChunkIndex::new(2));
}

#[test]
#[should_panic(expected = "cannot be freed")]
fn a_slot_that_drains_is_not_freed_under_its_last_reader() {
    let mut pool = SlotPool::new(1);
    let slot = taken(&mut pool);
    pool.filled(slot);
    pool.add_reader(slot);
    pool.close(slot);
    pool.free(slot);
}
