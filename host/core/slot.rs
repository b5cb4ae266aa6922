//! The slots of one group in one tier: who owns each, and in which state it is.
//!
//! ```text
//! Unscanned -> Free -> Filling -> Resident{readers} -> Draining{readers} -> Free
//!       \                 \-> Free (fill failed)  \-> Free (no reader)
//!        \-> Resident (adopted: what an earlier run left there)
//! Filling -> Stuck -> Free (its hop was given up, and ended after all)
//! ```
//!
//! Readers are the hops that use the copy. Who merely wants the chunk to stay pins the chunk, not
//! its slot.
//!
//! Invariants: used + free + unscanned = capacity after every call; a used slot has one owner;
//! readers never go below zero; only a slot without readers becomes free; never-used slots are
//! handed out in ascending order.
//!
//! Called by `core` alone.

use super::chunk::ChunkIndex;
use crate::links::NONE;
use crate::units::SlotIndex;

/// What a slot is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    /// Not known yet: neither hit nor free, until recovery says what is in it.
    Unscanned,
    /// Owned by nobody; `next` is the next free slot, or [`NONE`].
    Free { next: u32 },
    /// Owned by the hop that fills it; unreadable.
    Filling,
    /// Readable; `readers` hops use it.
    Resident { readers: u32 },
    /// Closed to new readers; free once its chunk is no longer held.
    Draining { readers: u32 },
    /// Owned by no chunk, and still not free: a hop that was given up may yet touch it.
    Stuck,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    state: SlotState,
    /// The chunk in the slot; meaningless while nobody owns it.
    chunk: ChunkIndex,
}

/// Slots of one region, by use. `used + free + unscanned = capacity` always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SlotCounts {
    /// Slots that are filling, resident, draining or stuck.
    pub used: u32,
    /// Slots that can be taken at once.
    pub free: u32,
    /// Slots that recovery has not looked at yet; none in the host tier.
    pub unscanned: u32,
}

/// The slots of one group in one tier.
#[derive(Debug)]
pub(crate) struct SlotPool {
    slots: Box<[Slot]>,
    /// The free slot handed out next; [`NONE`] when all free slots are fresh.
    free_head: u32,
    /// The last of the free slots that are not fresh; meaningless when there is none.
    free_tail: u32,
    /// Slots from here on were never used.
    fresh: u32,
    used: u32,
    unscanned: u32,
}

impl SlotPool {
    /// Bytes of one slot's record.
    pub(crate) const SLOT_BYTES: usize = size_of::<Slot>();

    /// Makes a pool of free slots.
    pub(crate) fn new(slot_count: u32) -> Self {
        let free = Slot { state: SlotState::Free { next: NONE }, chunk: ChunkIndex::NONE };
        Self {
            slots: vec![free; slot_count as usize].into_boxed_slice(),
            free_head: NONE,
            free_tail: NONE,
            fresh: 0,
            used: 0,
            unscanned: 0,
        }
    }

    /// Makes a pool of slots of which nothing is known yet.
    pub(crate) fn unscanned(slot_count: u32) -> Self {
        let mut pool = Self::new(slot_count);
        for slot in &mut pool.slots {
            slot.state = SlotState::Unscanned;
        }
        pool.fresh = slot_count;
        pool.unscanned = slot_count;
        pool
    }

    pub(crate) fn counts(&self) -> SlotCounts {
        let free = self.capacity() - self.used - self.unscanned;
        SlotCounts { used: self.used, free, unscanned: self.unscanned }
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

    /// Hands an unscanned slot to the chunk that was found in it, in state Resident.
    pub(crate) fn adopt(&mut self, slot: SlotIndex, chunk: ChunkIndex) {
        assert_eq!(self.state(slot), SlotState::Unscanned, "slot {slot} is known");
        self.unscanned -= 1;
        self.used += 1;
        self.slots[slot.get() as usize] = Slot { state: SlotState::Resident { readers: 0 }, chunk };
    }

    /// Makes an unscanned slot free, to be handed out after those that are free already. Returns
    /// whether it was unscanned.
    pub(crate) fn free_unscanned(&mut self, slot: SlotIndex) -> bool {
        if self.state(slot) != SlotState::Unscanned {
            return false;
        }
        self.unscanned -= 1;
        self.set(slot, SlotState::Free { next: NONE });
        if self.free_head == NONE {
            self.free_head = slot.get();
        } else {
            self.set(SlotIndex::new(self.free_tail), SlotState::Free { next: slot.get() });
        }
        self.free_tail = slot.get();
        true
    }

    /// Makes a filling slot readable, without readers.
    pub(crate) fn filled(&mut self, slot: SlotIndex) {
        assert_eq!(self.state(slot), SlotState::Filling, "slot {slot} is not being filled");
        self.set(slot, SlotState::Resident { readers: 0 });
    }

    /// Adds a reader to a readable slot.
    pub(crate) fn add_reader(&mut self, slot: SlotIndex) {
        let SlotState::Resident { readers } = self.state(slot) else {
            panic!("slot {slot} cannot be read: it is {:?}", self.state(slot));
        };
        let readers = readers.checked_add(1).expect("readers are bounded by transfers");
        self.set(slot, SlotState::Resident { readers });
    }

    /// Removes a reader.
    pub(crate) fn remove_reader(&mut self, slot: SlotIndex) {
        let fewer = |readers: u32| readers.checked_sub(1).expect("a reader leaves once");
        let state = match self.state(slot) {
            SlotState::Resident { readers } => SlotState::Resident { readers: fewer(readers) },
            SlotState::Draining { readers } => SlotState::Draining { readers: fewer(readers) },
            state => panic!("slot {slot} has no reader to leave: it is {state:?}"),
        };
        self.set(slot, state);
    }

    /// Closes a resident slot to new readers.
    pub(crate) fn close(&mut self, slot: SlotIndex) {
        let SlotState::Resident { readers } = self.state(slot) else {
            panic!("slot {slot} cannot be closed: it is {:?}", self.state(slot));
        };
        self.set(slot, SlotState::Draining { readers });
    }

    /// Frees a used slot that nobody reads; a filling one once its hop has ended.
    pub(crate) fn free(&mut self, slot: SlotIndex) {
        let is_unread = matches!(
            self.state(slot),
            SlotState::Filling
                | SlotState::Resident { readers: 0 }
                | SlotState::Draining { readers: 0 }
        );
        assert!(is_unread, "slot {slot} cannot be freed: it is {:?}", self.state(slot));
        if self.free_head == NONE {
            self.free_tail = slot.get();
        }
        self.set(slot, SlotState::Free { next: self.free_head });
        self.free_head = slot.get();
        self.used = self.used.checked_sub(1).expect("a used slot is freed once");
    }

    /// Takes a filling slot out of use, because its hop was given up and may still touch it.
    pub(crate) fn stick(&mut self, slot: SlotIndex) {
        assert_eq!(self.state(slot), SlotState::Filling, "slot {slot} is not being filled");
        self.set(slot, SlotState::Stuck);
    }

    /// Frees a stuck slot: nothing touches it any more.
    pub(crate) fn unstick(&mut self, slot: SlotIndex) {
        assert_eq!(self.state(slot), SlotState::Stuck, "slot {slot} is not stuck");
        self.set(slot, SlotState::Filling);
        self.free(slot);
    }

    fn set(&mut self, slot: SlotIndex, state: SlotState) {
        self.slots[slot.get() as usize].state = state;
    }
}

#[cfg(test)]
mod tests;
