//! Which store a disk slot of the core lies in, and back.
//!
//! The core numbers the disk slots of a group through all stripes, one after the other; each store
//! numbers its own from 0. This is the only place that knows both.
//!
//! Called by the opening of the tier and by the disk thread.

use crate::units::{GroupIndex, SlotIndex, StripeIndex};

/// What one store is in the tier: a group's part of one stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) group: GroupIndex,
    pub(super) stripe: StripeIndex,
    /// Disk slots of the group in the stripes before this one.
    pub(super) first_slot: u32,
    pub(super) slot_count: u32,
}

impl Place {
    /// Returns the disk slot that a slot of the store is in the tier.
    pub(super) const fn disk_slot(&self, slot: SlotIndex) -> SlotIndex {
        SlotIndex::new(self.first_slot + slot.get())
    }

    /// Returns the slot of the store that a disk slot is; `None` where it lies in another store.
    pub(super) fn slot(&self, disk_slot: SlotIndex) -> Option<SlotIndex> {
        let slot = disk_slot.get().checked_sub(self.first_slot)?;
        (slot < self.slot_count).then_some(SlotIndex::new(slot))
    }
}

/// Returns the number of the store among `places` that holds a disk slot of a group, and the slot
/// in it.
///
/// # Panics
///
/// For a slot that no store has: the core was told of theirs only.
pub(super) fn find(
    places: impl IntoIterator<Item = Place>,
    group: GroupIndex,
    disk_slot: SlotIndex,
) -> (usize, SlotIndex) {
    let found = places.into_iter().enumerate().find_map(|(store, place)| {
        let slot = place.slot(disk_slot).filter(|_| place.group == group)?;
        Some((store, slot))
    });
    found.expect("the core knows the slots of the stores, and no others")
}

#[cfg(test)]
mod tests {
    use super::{GroupIndex, Place, SlotIndex, StripeIndex, find};

    /// Two stripes of two groups, stripe by stripe.
    fn places() -> [Place; 4] {
        let place = |group, stripe, first_slot, slot_count| Place {
            group: GroupIndex::new(group),
            stripe: StripeIndex::new(stripe),
            first_slot,
            slot_count,
        };
        [place(0, 0, 0, 3), place(1, 0, 0, 2), place(0, 1, 3, 1), place(1, 1, 2, 5)]
    }

    #[test]
    fn every_disk_slot_lies_in_one_store_and_leads_back() {
        for (group, slot_count) in [(0, 4), (1, 7)] {
            let group = GroupIndex::new(group);
            for number in 0..slot_count {
                let disk_slot = SlotIndex::new(number);
                let (store, slot) = find(places(), group, disk_slot);
                let place = places()[store];
                assert_eq!(place.group, group);
                assert!(slot.get() < place.slot_count);
                assert_eq!(place.disk_slot(slot), disk_slot);
                let of_group = places().into_iter().filter(|place| place.group == group);
                assert_eq!(of_group.filter_map(|place| place.slot(disk_slot)).count(), 1);
            }
        }
    }

    #[test]
    #[should_panic(expected = "no others")]
    fn a_slot_that_no_store_has_is_found_in_none() {
        find(places(), GroupIndex::new(0), SlotIndex::new(4));
    }
}
