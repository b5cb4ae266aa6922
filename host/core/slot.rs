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
