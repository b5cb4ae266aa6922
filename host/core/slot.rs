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
//! The slots of the disk tier fall into stripes, one after the other in number. Each has its own
//! free slots; the next one comes from the stripe of which the largest share is free, so that
//! stripes of different sizes fill up together.
//!
//! Invariants: used + free + unscanned = capacity after every call, in each stripe and in all; a
//! used slot has one owner; readers never go below zero; only a slot without readers becomes free;
//! never-used slots of a stripe are handed out in ascending order; none of a stopped stripe is.
//!
//! Called by `core` alone.

use super::chunk::ChunkIndex;
use crate::links::NONE;
use crate::units::SlotIndex;
use std::ops::Range;

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
    /// Slots that nobody owns: can be taken at once, unless their stripe takes no more writes.
    pub free: u32,
    /// Slots that recovery has not looked at yet; none in the host tier.
    pub unscanned: u32,
}

/// A run of a pool's slots with free ones of its own: a stripe of the disk tier, or all of host
/// memory.
#[derive(Debug)]
struct Stripe {
    slots: Range<u32>,
    /// The free slot handed out next; [`NONE`] when all free slots are fresh.
    free_head: u32,
    /// The last of the free slots that are not fresh; meaningless when there is none.
    free_tail: u32,
    /// Slots from here on were never used.
    fresh: u32,
    used: u32,
    unscanned: u32,
    /// No slot of it is handed out any more.
    is_stopped: bool,
}

impl Stripe {
    fn counts(&self) -> SlotCounts {
        let free = self.slot_count() - self.used - self.unscanned;
        SlotCounts { used: self.used, free, unscanned: self.unscanned }
    }

    fn slot_count(&self) -> u32 {
        self.slots.end - self.slots.start
    }

    /// Whether a larger share of its slots is free than of the other's.
    fn is_emptier(&self, other: &Self) -> bool {
        let scaled = |free: u32, slots: u32| u64::from(free) * u64::from(slots);
        let (own, others) = (self.counts().free, other.counts().free);
        scaled(own, other.slot_count()) > scaled(others, self.slot_count())
    }
}

/// The slots of one group in one tier.
#[derive(Debug)]
pub(crate) struct SlotPool {
    slots: Box<[Slot]>,
    /// In the order of their slots, without gaps.
    stripes: Vec<Stripe>,
}

impl SlotPool {
    /// Bytes of one slot's record.
    pub(crate) const SLOT_BYTES: usize = size_of::<Slot>();

    /// Makes a pool of free slots, in one stripe.
    pub(crate) fn new(slot_count: u32) -> Self {
        Self::with_stripes(&[slot_count], SlotState::Free { next: NONE })
    }

    /// Makes a pool of slots of which nothing is known yet, so many in each stripe.
    pub(crate) fn unscanned(slot_counts: &[u32]) -> Self {
        let mut pool = Self::with_stripes(slot_counts, SlotState::Unscanned);
        for stripe in &mut pool.stripes {
            stripe.fresh = stripe.slots.end;
            stripe.unscanned = stripe.slot_count();
        }
        pool
    }

    fn with_stripes(slot_counts: &[u32], state: SlotState) -> Self {
        let mut stripes = Vec::with_capacity(slot_counts.len());
        let mut end = 0;
        for slot_count in slot_counts {
            let slots = end..end + slot_count;
            end = slots.end;
            stripes.push(Stripe {
                free_head: NONE,
                free_tail: NONE,
                fresh: slots.start,
                used: 0,
                unscanned: 0,
                is_stopped: false,
                slots,
            });
        }
        let slot = Slot { state, chunk: ChunkIndex::NONE };
        Self { slots: vec![slot; end as usize].into_boxed_slice(), stripes }
    }

    /// Counts the slots of all stripes.
    pub(crate) fn counts(&self) -> SlotCounts {
        let mut sum = SlotCounts::default();
        for SlotCounts { used, free, unscanned } in self.stripes.iter().map(Stripe::counts) {
            sum.used += used;
            sum.free += free;
            sum.unscanned += unscanned;
        }
        sum
    }

    /// Counts the slots of one stripe.
    pub(crate) fn stripe_counts(&self, stripe: usize) -> SlotCounts {
        self.stripes[stripe].counts()
    }

    pub(crate) fn stripe_count(&self) -> usize {
        self.stripes.len()
    }

    /// Returns the slots of a stripe.
    pub(crate) fn stripe(&self, stripe: usize) -> Range<u32> {
        self.stripes[stripe].slots.clone()
    }

    /// Returns the stripe that a slot is of.
    pub(crate) fn stripe_of(&self, slot: SlotIndex) -> usize {
        self.stripes.partition_point(|stripe| stripe.slots.end <= slot.get())
    }

    /// Hands out no slot of a stripe any more.
    pub(crate) fn stop(&mut self, stripe: usize) {
        self.stripes[stripe].is_stopped = true;
    }

    pub(crate) fn is_stopped(&self, stripe: usize) -> bool {
        self.stripes[stripe].is_stopped
    }

    /// Returns the stripe to take the next slot from: of those that are not stopped, and that
    /// `may_take` allows, the one with the largest share of its slots free; the first of several.
    pub(crate) fn emptiest(&self, may_take: impl Fn(usize) -> bool) -> Option<usize> {
        let mut emptiest: Option<(usize, &Stripe)> = None;
        for (at, stripe) in self.stripes.iter().enumerate() {
            let can_take = !stripe.is_stopped && stripe.counts().free > 0 && may_take(at);
            if can_take && emptiest.is_none_or(|(_, other)| stripe.is_emptier(other)) {
                emptiest = Some((at, stripe));
            }
        }
        emptiest.map(|(at, _)| at)
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

    /// Hands a free slot of the emptiest stripe to `chunk`, in state Filling.
    pub(crate) fn take(&mut self, chunk: ChunkIndex) -> Option<SlotIndex> {
        let stripe = self.emptiest(|_| true)?;
        self.take_in(stripe, chunk)
    }

    /// Hands a free slot of a stripe to `chunk`, in state Filling.
    pub(crate) fn take_in(&mut self, stripe: usize, chunk: ChunkIndex) -> Option<SlotIndex> {
        let stripe = &mut self.stripes[stripe];
        let slot = if stripe.free_head != NONE {
            let slot = stripe.free_head;
            let SlotState::Free { next } = self.slots[slot as usize].state else {
                unreachable!("the free list holds free slots");
            };
            stripe.free_head = next;
            slot
        } else if stripe.fresh < stripe.slots.end {
            stripe.fresh += 1;
            stripe.fresh - 1
        } else {
            return None;
        };
        self.slots[slot as usize] = Slot { state: SlotState::Filling, chunk };
        stripe.used += 1;
        Some(SlotIndex::new(slot))
    }

    /// Hands an unscanned slot to the chunk that was found in it, in state Resident.
    pub(crate) fn adopt(&mut self, slot: SlotIndex, chunk: ChunkIndex) {
        assert_eq!(self.state(slot), SlotState::Unscanned, "slot {slot} is known");
        let stripe = self.stripe_mut(slot);
        stripe.unscanned -= 1;
        stripe.used += 1;
        self.slots[slot.get() as usize] = Slot { state: SlotState::Resident { readers: 0 }, chunk };
    }

    /// Makes an unscanned slot free, to be handed out after those of its stripe that are free
    /// already. Returns whether it was unscanned.
    pub(crate) fn free_unscanned(&mut self, slot: SlotIndex) -> bool {
        if self.state(slot) != SlotState::Unscanned {
            return false;
        }
        let stripe = self.stripe_mut(slot);
        stripe.unscanned -= 1;
        let tail = std::mem::replace(&mut stripe.free_tail, slot.get());
        let is_first = stripe.free_head == NONE;
        if is_first {
            stripe.free_head = slot.get();
        }
        self.set(slot, SlotState::Free { next: NONE });
        if !is_first {
            self.set(SlotIndex::new(tail), SlotState::Free { next: slot.get() });
        }
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
        let stripe = self.stripe_mut(slot);
        if stripe.free_head == NONE {
            stripe.free_tail = slot.get();
        }
        let next = std::mem::replace(&mut stripe.free_head, slot.get());
        stripe.used = stripe.used.checked_sub(1).expect("a used slot is freed once");
        self.set(slot, SlotState::Free { next });
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

    fn stripe_mut(&mut self, slot: SlotIndex) -> &mut Stripe {
        let stripe = self.stripe_of(slot);
        &mut self.stripes[stripe]
    }

    fn set(&mut self, slot: SlotIndex, state: SlotState) {
        self.slots[slot.get() as usize].state = state;
    }
}

#[cfg(test)]
mod tests;
