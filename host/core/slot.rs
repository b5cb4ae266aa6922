//! The slots of one group in the host tier: who owns each, and in which state it is.
//!
//! ```text
//! Free -> Filling -> Resident{readers} -> Draining{readers} -> Free
//!            \-> Free (fill failed)   \-> Free (no reader)
//! ```
//!
//! Invariants: used + free = capacity after every call; a slot that is not free has one owner;
//! readers never go below zero; never-used slots are handed out in ascending order.
//!
//! Called by `core` alone.

use super::chunk::ChunkIndex;
use crate::links::NONE;
use crate::units::SlotIndex;

/// What a slot is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    /// Owned by nobody; `next` is the next free slot, or [`NONE`].
    Free { next: u32 },
    /// Owned by the transfer that fills it; unreadable.
    Filling,
    /// Readable; `readers` plans and transfers hold it.
    Resident { readers: u32 },
    /// Closed to new readers; free once the last one leaves.
    Draining { readers: u32 },
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    state: SlotState,
    /// The chunk in the slot; meaningless while free.
    chunk: ChunkIndex,
}

/// Slots of one region, by use. `used + free = capacity` always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotCounts {
    /// Slots that are filling, resident or draining.
    pub used: u32,
    /// Slots that a store can take at once.
    pub free: u32,
}

/// The slots of one group.
#[derive(Debug)]
pub(crate) struct SlotPool {
    slots: Box<[Slot]>,
    /// The free slot given back last; [`NONE`] when all free slots are fresh.
    free_head: u32,
    /// Slots from here on were never used.
    fresh: u32,
    used: u32,
}

/// Whether the last reader left, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Released {
    /// Other readers remain.
    StillRead,
    /// Nobody reads a resident slot any more.
    Unread,
    /// The slot was draining and is free now.
    Freed,
}

impl SlotPool {
    /// Bytes of one slot's record.
    pub(crate) const SLOT_BYTES: usize = size_of::<Slot>();

    pub(crate) fn new(slot_count: u32) -> Self {
        let free = Slot { state: SlotState::Free { next: NONE }, chunk: ChunkIndex::NONE };
        Self {
            slots: vec![free; slot_count as usize].into_boxed_slice(),
            free_head: NONE,
            fresh: 0,
            used: 0,
        }
    }

    pub(crate) fn counts(&self) -> SlotCounts {
        SlotCounts { used: self.used, free: self.capacity() - self.used }
    }

    pub(crate) fn capacity(&self) -> u32 {
        u32::try_from(self.slots.len()).expect("built from a u32")
    }

    pub(crate) fn state(&self, slot: SlotIndex) -> SlotState {
        self.slots[slot.get() as usize].state
    }

    pub(crate) fn chunk(&self, slot: SlotIndex) -> ChunkIndex {
        self.slots[slot.get() as usize].chunk
    }

    /// Hands a free slot to `chunk`, in state Filling.
    pub(crate) fn take(&mut self, chunk: ChunkIndex) -> Option<SlotIndex> {
        let slot = if self.free_head != NONE {
            let slot = self.free_head;
            let SlotState::Free { next } = self.slots[slot as usize].state else {
                unreachable!("the free list holds free slots");
            };
            self.free_head = next;
            slot
        } else if self.fresh < self.capacity() {
            self.fresh += 1;
            self.fresh - 1
        } else {
            return None;
        };
        self.slots[slot as usize] = Slot { state: SlotState::Filling, chunk };
        self.used += 1;
        Some(SlotIndex::new(slot))
    }

    /// Makes a filling slot readable, without readers.
    pub(crate) fn filled(&mut self, slot: SlotIndex) {
        assert_eq!(self.state(slot), SlotState::Filling, "slot {slot} is not being filled");
        self.set(slot, SlotState::Resident { readers: 0 });
    }

    /// Adds a reader to a resident slot and returns whether it is the first.
    pub(crate) fn add_reader(&mut self, slot: SlotIndex) -> bool {
        let SlotState::Resident { readers } = self.state(slot) else {
            panic!("slot {slot} cannot be read: it is {:?}", self.state(slot));
        };
        let readers = readers.checked_add(1).expect("pins are bounded by plans and transfers");
        self.set(slot, SlotState::Resident { readers });
        readers == 1
    }

    /// Removes a reader; frees a draining slot when it was the last.
    pub(crate) fn remove_reader(&mut self, slot: SlotIndex) -> Released {
        match self.state(slot) {
            SlotState::Resident { readers } => {
                let readers = readers.checked_sub(1).expect("a reader leaves once");
                self.set(slot, SlotState::Resident { readers });
                if readers == 0 { Released::Unread } else { Released::StillRead }
            }
            SlotState::Draining { readers: 1 } => {
                self.free(slot);
                Released::Freed
            }
            SlotState::Draining { readers } => {
                let readers = readers.checked_sub(1).expect("a reader leaves once");
                self.set(slot, SlotState::Draining { readers });
                Released::StillRead
            }
            state @ (SlotState::Free { .. } | SlotState::Filling) => {
                panic!("slot {slot} has no reader to leave: it is {state:?}")
            }
        }
    }

    /// Closes a slot: free at once without readers, else once the last one leaves.
    ///
    /// Returns whether it is free.
    pub(crate) fn close(&mut self, slot: SlotIndex) -> bool {
        match self.state(slot) {
            SlotState::Filling | SlotState::Resident { readers: 0 } => {
                self.free(slot);
                true
            }
            SlotState::Resident { readers } => {
                self.set(slot, SlotState::Draining { readers });
                false
            }
            state @ (SlotState::Free { .. } | SlotState::Draining { .. }) => {
                panic!("slot {slot} cannot be closed: it is {state:?}")
            }
        }
    }

    fn free(&mut self, slot: SlotIndex) {
        self.set(slot, SlotState::Free { next: self.free_head });
        self.free_head = slot.get();
        self.used = self.used.checked_sub(1).expect("a used slot is freed once");
    }

    fn set(&mut self, slot: SlotIndex, state: SlotState) {
        self.slots[slot.get() as usize].state = state;
    }
}

#[cfg(test)]
mod tests {
    use super::{Released, SlotPool, SlotState};
    use crate::core::chunk::ChunkIndex;
    use crate::units::SlotIndex;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const CAPACITY: u32 = 5;

    /// One slot that is not free.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Use {
        Filling,
        Resident(u32),
        Draining(u32),
    }

    fn check(pool: &SlotPool, model: &BTreeMap<u32, (Use, ChunkIndex)>) {
        let counts = pool.counts();
        assert_eq!(counts.used as usize, model.len());
        assert_eq!(counts.used + counts.free, CAPACITY);
        for number in 0..CAPACITY {
            let slot = SlotIndex::new(number);
            let state = pool.state(slot);
            let Some((in_use, owner)) = model.get(&number) else {
                assert!(matches!(state, SlotState::Free { .. }));
                continue;
            };
            let expected = match *in_use {
                Use::Filling => SlotState::Filling,
                Use::Resident(readers) => SlotState::Resident { readers },
                Use::Draining(readers) => SlotState::Draining { readers },
            };
            assert_eq!(state, expected);
            assert_eq!(pool.chunk(slot), *owner, "a slot keeps its owner until it is free");
        }
    }

    proptest! {
        #[test]
        fn slots_follow_their_states_and_are_never_owned_twice(
            steps in prop::collection::vec((0..CAPACITY, 0..3_u8), 0..200),
        ) {
            let mut pool = SlotPool::new(CAPACITY);
            let mut model = BTreeMap::new();
            for (step, (number, choice)) in (0..).zip(steps) {
                let slot = SlotIndex::new(number);
                let state = model.get(&number).map(|(in_use, _)| *in_use);
                let next = match (state, choice) {
                    (None, _) => {
                        let owner = ChunkIndex::new(step);
                        let taken = pool.take(owner).expect("this slot is free");
                        let former = model.insert(taken.get(), (Use::Filling, owner));
                        prop_assert!(former.is_none(), "only a free slot is handed out");
                        check(&pool, &model);
                        continue;
                    }
                    (Some(Use::Filling), 0) => {
                        prop_assert!(pool.close(slot));
                        None
                    }
                    (Some(Use::Filling), _) => {
                        pool.filled(slot);
                        Some(Use::Resident(0))
                    }
                    (Some(Use::Resident(readers)), 0) => {
                        prop_assert_eq!(pool.close(slot), readers == 0);
                        (readers > 0).then_some(Use::Draining(readers))
                    }
                    (Some(Use::Resident(readers)), 1) if readers > 0 => {
                        let last = readers == 1;
                        let released = if last { Released::Unread } else { Released::StillRead };
                        prop_assert_eq!(pool.remove_reader(slot), released);
                        Some(Use::Resident(readers - 1))
                    }
                    (Some(Use::Resident(readers)), _) => {
                        prop_assert_eq!(pool.add_reader(slot), readers == 0);
                        Some(Use::Resident(readers + 1))
                    }
                    (Some(Use::Draining(readers)), _) => {
                        let last = readers == 1;
                        let released = if last { Released::Freed } else { Released::StillRead };
                        prop_assert_eq!(pool.remove_reader(slot), released);
                        (!last).then_some(Use::Draining(readers - 1))
                    }
                };
                match next {
                    Some(next) => model.get_mut(&number).expect("it is in use").0 = next,
                    None => drop(model.remove(&number)),
                }
                check(&pool, &model);
            }
            while model.len() < CAPACITY as usize {
                let taken = pool.take(ChunkIndex::new(0)).expect("used + free = capacity");
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
        pool.close(first);
        let order: Vec<u32> = (0..3).map(|_| taken(&mut pool).get()).collect();
        assert_eq!(order, [0, 1, 2], "one that was used before them");
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
        pool.add_reader(slot);
        pool.close(slot);
        pool.add_reader(slot);
    }

    #[test]
    #[should_panic(expected = "cannot be closed")]
    fn a_slot_is_freed_once() {
        let mut pool = SlotPool::new(1);
        let slot = taken(&mut pool);
        pool.close(slot);
        pool.close(slot);
    }

    #[test]
    #[should_panic(expected = "is not being filled")]
    fn a_slot_is_filled_once() {
        let mut pool = SlotPool::new(1);
        let slot = taken(&mut pool);
        pool.filled(slot);
        pool.filled(slot);
    }
}
