//! What befalls the disk of a [`DiskRig`]: syncs, stripes that are stopped or lost, clears and
//! erasures, and what recovery finds.

use crate::disk_rig::{DiskRig, Place, Stripe, TENANT_COUNT, Written, tenant_of};
use crate::rig::{NODE_COUNT, group_index, key_of, parent_of, path_to, pick};
use kvtide::core::{FoundChunk, MissReason, StorePoint};
use kvtide::key::Key;
use kvtide::units::{SlotIndex, StripeIndex, TenantId};
use std::collections::HashSet;
use std::ops::Range;

impl DiskRig {
    pub(crate) fn begin_sync(&mut self) {
        let number = self.syncs.len();
        for written in self.disk.values_mut().filter(|written| written.covered_by.is_none()) {
            written.covered_by = Some(number);
        }
        self.syncs.push((self.core.begin_sync(), false));
    }

    pub(crate) fn synced(&mut self, number: usize) {
        if let Some(number) = pick(&(0..self.syncs.len()).collect::<Vec<_>>(), number) {
            self.core.synced(self.syncs[number].0);
            // A sync that has succeeded covers what earlier ones would have.
            for sync in &mut self.syncs[..=number] {
                sync.1 = true;
            }
        }
    }

    /// What is not durable by now has missed its sync: a later one, of other groups, is none of it.
    pub(crate) fn stop_writes(&mut self, group: usize, number: usize) {
        let Some(stripe) = self.pick_stripe(group, number) else { return };
        self.core.stop_writes(stripe.0, stripe.1);
        self.end_writes(stripe);
    }

    fn end_writes(&mut self, stripe: Stripe) {
        if !self.are_writes_stopped.insert(stripe) {
            return;
        }
        let slots = self.slots_of(stripe);
        let syncs = &self.syncs;
        let is_of_stripe =
            |(group, slot): &Place| *group == stripe.0 && slots.contains(&slot.get());
        for (_, written) in self.disk.iter_mut().filter(|(place, _)| is_of_stripe(place)) {
            written.has_missed |= !written.covered_by.is_some_and(|sync| syncs[sync].1);
        }
    }

    /// Gives a stripe up. What is on the others stays.
    pub(crate) fn stop_disk(&mut self, group: usize, number: usize) {
        let Some(stripe) = self.pick_stripe(group, number) else { return };
        let elsewhere: Vec<Key> = self.held_outside(stripe);
        self.core.stop_disk(stripe.0, stripe.1);
        for key in elsewhere {
            let reason = self.core.peek(key);
            assert_ne!(
                reason,
                Some(MissReason::Lost),
                "a stripe is lost without what is elsewhere"
            );
        }
        self.end_writes(stripe);
        self.is_disk_lost.insert(stripe);
        let copies = self.disk.iter().filter(|(place, _)| self.stripe_of(**place) == stripe);
        let lost: Vec<Key> = copies.map(|(_, written)| written.bytes.0).collect();
        self.lost.extend(lost);
    }

    /// The chunks of a stripe's group that can be read from disk, and not from this stripe.
    fn held_outside(&self, stripe: Stripe) -> Vec<Key> {
        let is_there = |(place, _): &(&Place, &Written)| self.stripe_of(**place) == stripe;
        let on_stripe = self.disk.iter().filter(is_there);
        let on_stripe: HashSet<Key> = on_stripe.map(|(_, written)| written.bytes.0).collect();
        let of_group = self.disk.iter().filter(|(place, _)| place.0 == stripe.0);
        let held = of_group.map(|(_, written)| written.bytes.0);
        let elsewhere = held.filter(|key| !on_stripe.contains(key));
        elsewhere.filter(|key| self.core.point(*key) > Some(StorePoint::Host)).collect()
    }

    /// The stripe that a disk slot is of.
    pub(crate) fn stripe_of(&self, (group, slot): Place) -> Stripe {
        let counts = &self.config.groups[usize::from(group.get())].disk_slot_counts;
        let mut end = 0;
        let stripe = counts.iter().position(|count| {
            end += count;
            slot.get() < end
        });
        let stripe = u8::try_from(stripe.expect("the slot is there")).expect("few stripes");
        (group, StripeIndex::new(stripe))
    }

    /// The slots of a stripe.
    pub(crate) fn slots_of(&self, (group, stripe): Stripe) -> Range<u32> {
        let counts = &self.config.groups[usize::from(group.get())].disk_slot_counts;
        let stripe = usize::from(stripe.get());
        let first: u32 = counts[..stripe].iter().sum();
        first..first + counts[stripe]
    }

    fn pick_stripe(&self, group: usize, number: usize) -> Option<Stripe> {
        let stripe_count = self.config.groups[group].disk_slot_counts.len();
        let stripe = pick(&(0..stripe_count).collect::<Vec<_>>(), number)?;
        let stripe = StripeIndex::new(u8::try_from(stripe).expect("few stripes"));
        Some((group_index(group), stripe))
    }

    pub(crate) fn clear(&mut self) {
        self.core.clear();
        self.drop_keys(|_| true);
    }

    pub(crate) fn erase_keys(&mut self, group: usize, node: usize, count: usize) {
        let path = path_to(group, node % NODE_COUNT);
        let keys = &path[path.len().saturating_sub(1 + count % 8)..];
        self.core.erase_keys(keys).expect("at most 64 keys");
        self.drop_keys(|key| keys.contains(&key));
    }

    /// Erases a tenant; one that must wait for the sweep comes back for it.
    pub(crate) fn erase_tenant(&mut self, number: usize) {
        let tenant = TenantId::new(number as u64 % TENANT_COUNT);
        while !self.core.erase_tenant(tenant).expect("the core is sound") {
            self.settle();
        }
        self.drop_keys(|key| tenant_of(key) == tenant);
    }

    /// Takes note that some keys were cleared or erased: nothing of them is a hit from now on, and
    /// all else is what it was.
    fn drop_keys(&mut self, is_dropped: impl Fn(Key) -> bool) {
        for transfer in &mut self.transfers {
            // What the command has ended already is seen by the next look.
            let open = transfer.keys.iter().zip(&transfer.stages).enumerate();
            let open = open.filter(|(_, (key, stage))| is_dropped(**key) && !stage.is_final());
            transfer.cleared.extend(open.map(|(position, _)| position));
            assert!(self.core.stages(transfer.id).is_some() || !transfer.is_held);
        }
        for group in 0..self.config.groups.len() {
            for node in 0..NODE_COUNT {
                let key = key_of(group, node);
                if parent_of(group, node).is_some_and(|above| is_dropped(key_of(group, above))) {
                    self.orphaned.insert(key);
                }
                if is_dropped(key) {
                    *self.births.entry(key).or_default() += 1;
                    self.lost.insert(key);
                    assert!(self.core.peek(key).is_some(), "nothing that was dropped is a hit");
                    assert_eq!(self.core.point(key), None);
                }
            }
        }
    }

    /// Lets recovery find a chunk in an unscanned slot, or what cannot be.
    pub(crate) fn adopt(&mut self, group: usize, node: usize, number: usize) {
        let index = group_index(group);
        let slot_count = self.disk_slot_count(group) as usize;
        if slot_count == 0 {
            return;
        }
        let node = node % NODE_COUNT;
        let disk_slot = SlotIndex::new(u32::try_from(number % slot_count).expect("small"));
        let key = key_of(group, node);
        let parent = parent_of(group, node).map(|above| key_of(group, above));
        let depth = u32::try_from(path_to(group, node).len() - 1).expect("small");
        let is_wrong = number.is_multiple_of(7);
        let depth = depth + u32::from(is_wrong);
        let is_durable = number.is_multiple_of(2);
        let before = self.core.counters();
        let tenant = tenant_of(key).tag();
        let found = FoundChunk { key, parent, depth, tenant, disk_slot, is_durable };
        self.core.adopt_disk(index, &[found]).expect("the slot is there");
        let after = self.core.counters();
        assert_eq!(
            after.adopted + after.adoptions_skipped,
            before.adopted + before.adoptions_skipped + 1
        );
        if after.adopted > before.adopted {
            let place = (index, disk_slot);
            assert!(self.unscanned.remove(&place), "only an unscanned slot is adopted");
            let bytes = self.bytes_of(key);
            let has_missed = self.are_writes_stopped.contains(&self.stripe_of(place));
            let written = Written { bytes, covered_by: None, is_durable, has_missed };
            self.disk.insert(place, written);
            self.adopted.insert(key);
            // A write that waits may take its slot at once.
            if let Some(point) = self.core.point(key).filter(|point| *point > StorePoint::Host) {
                assert_eq!(point == StorePoint::Durable, is_durable, "{key:?} is {point:?}");
            }
        }
    }

    fn disk_slot_count(&self, group: usize) -> u32 {
        self.config.groups[group].disk_slot_counts.iter().sum()
    }

    pub(crate) fn free_disk(&mut self, group: usize, first: usize, count: usize) {
        let slot_count = self.disk_slot_count(group);
        let first = u32::try_from(first).expect("small") % (slot_count + 1);
        let count = u32::try_from(count % 64).expect("small").min(slot_count - first);
        let index = group_index(group);
        let freed = self.core.free_disk_slots(index, SlotIndex::new(first), count);
        let before = self.unscanned.len();
        for slot in first..first + count {
            self.unscanned.remove(&(index, SlotIndex::new(slot)));
        }
        assert_eq!(freed.expect("the slots are there") as usize, before - self.unscanned.len());
    }
}
