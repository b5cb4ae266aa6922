//! What must hold after every operation on a core with a disk tier.

use crate::disk_rig::{DiskRig, HeldPlan, Place, Written};
use crate::rig::{NODE_COUNT, group_index, key_of, parent_of};
use kvtide::core::{DiskHop, DiskRequest, Failure, Hop, HopRequest, MissReason, Stage, StorePoint};
use kvtide::key::Key;
use kvtide::layout::Attention;
use kvtide::units::{GroupIndex, StripeIndex};

impl DiskRig {
    /// Checks every promise that can be seen from outside.
    pub(crate) fn check(&mut self) {
        self.check_slots();
        self.check_points();
        self.check_plans();
        self.check_families();
        self.check_stages();
    }

    pub(crate) fn start(&mut self, hop: HopRequest) {
        let transfer = self.transfers.iter().find(|known| known.id == hop.transfer);
        let transfer = transfer.expect("a hop belongs to a transfer");
        let key = transfer.keys[usize::from(hop.position)];
        let is_dropped = transfer.cleared.contains(&usize::from(hop.position));
        assert!(!is_dropped, "no hop begins for what was cleared or erased");
        let is_fill = matches!(hop.hop, Hop::Pack | Hop::OutLink);
        assert_eq!(is_fill, transfer.is_store);
        let place = (hop.group, hop.slot);
        if is_fill {
            self.assert_host_idle(place);
            if hop.hop == Hop::OutLink {
                self.host.remove(&place);
            }
        } else {
            let bytes = self.host.get(&place).copied();
            assert_eq!(bytes, Some(self.bytes_of(key)), "a load finds its bytes");
        }
        self.hops.push((hop, key));
    }

    /// Checks that nothing else moves bytes out of or into a host slot that is to be filled.
    fn assert_host_idle(&self, place: Place) {
        let is_place = |(hop, _): &&(HopRequest, Key)| (hop.group, hop.slot) == place;
        assert!(self.hops.iter().find(is_place).is_none(), "a slot in flight is not reused");
        let mut disk_hops = self.disk_hops.iter().chain(&self.stuck);
        let is_used = disk_hops.any(|hop| (hop.group, hop.slot) == place);
        assert!(!is_used, "a slot that is written or read into is not reused");
    }

    pub(crate) fn start_disk(&mut self, request: DiskRequest) {
        let (place, disk_place) =
            ((request.group, request.slot), (request.group, request.disk_slot));
        let stuck_writes = self.stuck.iter().filter(|hop| hop.hop == DiskHop::Write);
        let is_busy = self
            .disk_hops
            .iter()
            .chain(stuck_writes.clone())
            .any(|hop| (hop.group, hop.disk_slot) == disk_place);
        let is_written = |hop: &DiskRequest| (hop.group, hop.slot) == place;
        let is_rewritten = request.hop == DiskHop::Write && stuck_writes.clone().any(is_written);
        assert!(!is_rewritten, "a host slot is not stamped while a write may still read it");
        assert!(!is_busy, "a disk slot has one hop at a time");
        assert!(!self.unscanned.contains(&disk_place), "an unscanned slot is left alone");
        let stripe = self.stripe_of(disk_place);
        assert!(!self.is_disk_lost.contains(&stripe), "a lost stripe is left alone");
        let bytes = self.bytes_of(request.key);
        match request.hop {
            DiskHop::Write => {
                assert!(!self.are_writes_stopped.contains(&stripe), "no write after a stop");
                assert_eq!(self.host.get(&place), Some(&bytes), "what is written is there");
                self.disk.remove(&disk_place);
            }
            DiskHop::Read => {
                self.assert_host_idle(place);
                let written = self.disk.get(&disk_place).map(|written| written.bytes);
                assert_eq!(written, Some(bytes), "what is read is there");
                self.host.remove(&place);
            }
        }
        self.disk_hops.push(request);
        let is_there = |hop: &DiskRequest| self.stripe_of((hop.group, hop.disk_slot)).1 == stripe.1;
        let there: Vec<DiskHop> =
            self.disk_hops.iter().filter(|hop| is_there(hop)).map(|hop| hop.hop).collect();
        let running = |hop| there.iter().filter(|running| **running == hop).count();
        assert!(running(DiskHop::Write) <= self.config.disk_writes_max as usize);
        assert!(running(DiskHop::Read) <= self.config.disk_reads_max as usize);
    }

    fn check_slots(&self) {
        for (group, sizes) in (0_u8..).map(GroupIndex::new).zip(&self.config.groups) {
            let host = self.core.slots(group).expect("the group is there");
            assert_eq!(host.used + host.free, sizes.slot_count);
            let disk = self.core.disk_slots(group).expect("the group is there");
            let unscanned = self.unscanned.iter().filter(|(at, _)| *at == group).count();
            assert_eq!(disk.unscanned as usize, unscanned);
            let slot_count: u32 = sizes.disk_slot_counts.iter().sum();
            assert_eq!(disk.used + disk.free + disk.unscanned, slot_count);
            for (stripe, count) in (0..).map(StripeIndex::new).zip(&sizes.disk_slot_counts) {
                let slots = self.core.stripe_slots(group, stripe).expect("the stripe is there");
                assert_eq!(slots.used + slots.free + slots.unscanned, *count);
            }
        }
        let counters = self.core.counters();
        assert_eq!(counters.host_hits + counters.disk_hits + counters.misses, counters.probes);
    }

    /// A chunk is resident where its bytes are, and durable once a sync has covered them.
    fn check_points(&self) {
        for group in 0..self.config.groups.len() {
            let index = group_index(group);
            for node in 0..NODE_COUNT {
                let key = key_of(group, node);
                let point = self.core.point(key);
                assert_eq!(point.is_some(), self.core.peek(key).is_none(), "{key:?}: {point:?}");
                let bytes = self.bytes_of(key);
                let is_at = |at: GroupIndex| at == index;
                match point {
                    None => {}
                    Some(StorePoint::Host) => {
                        let mut places = self.host.iter();
                        let is_there = places.any(|((at, _), held)| is_at(*at) && *held == bytes);
                        assert!(is_there, "what is in host memory is there");
                    }
                    Some(point) => {
                        let is_copy = |place: &Place, written: &Written| {
                            is_at(place.0)
                                && written.bytes == bytes
                                && !self.is_disk_lost.contains(&self.stripe_of(*place))
                        };
                        let mut durable = self
                            .disk
                            .iter()
                            .filter(|(place, written)| is_copy(place, written))
                            .map(|(_, written)| self.is_durable(written))
                            .peekable();
                        assert!(durable.peek().is_some(), "what is written is on disk");
                        // Former copies may lie in slots that are free again.
                        let is_durable = point == StorePoint::Durable;
                        assert!(durable.any(|known| known == is_durable), "{key:?} is {point:?}");
                    }
                }
            }
        }
    }

    fn is_durable(&self, written: &Written) -> bool {
        let is_synced = written.covered_by.is_some_and(|sync| self.syncs[sync].1);
        written.is_durable || (is_synced && !written.has_missed)
    }

    /// What a plan holds stays, unless it was lost: what comes back after that the plan does not
    /// hold.
    fn check_plans(&mut self) {
        for HeldPlan { runs, lost, .. } in &mut self.plans {
            for key in runs.iter().flatten() {
                let Some(reason) = self.core.peek(*key) else {
                    continue;
                };
                let was_lost = lost.contains(key) || self.lost.contains(key);
                assert!(was_lost, "{key:?} is pinned and {reason:?}");
                lost.insert(*key);
            }
        }
    }

    /// In a full group, eviction takes a chunk's last copy only when no descendant has one.
    fn check_families(&mut self) {
        for (group, sizes) in self.config.groups.iter().enumerate() {
            if sizes.attention != Attention::Full {
                continue;
            }
            for node in 0..NODE_COUNT {
                let key = key_of(group, node);
                let Some(parent) = parent_of(group, node).map(|above| key_of(group, above)) else {
                    continue;
                };
                let is_spared = self.core.peek(parent) != Some(MissReason::Evicted);
                // One that is being stored may hang below an erased parent too.
                let is_here = self.core.peek(key).is_none();
                if !is_here && self.core.peek(key) != Some(MissReason::Filling) {
                    self.orphaned.remove(&key);
                }
                let may_be_orphan = self.adopted.contains(&key) || self.orphaned.contains(&key);
                assert!(
                    is_spared || !is_here || may_be_orphan,
                    "{parent:?} was evicted before {key:?}"
                );
            }
        }
    }

    fn check_stages(&mut self) {
        let core = &self.core;
        for transfer in &mut self.transfers {
            let Some(stages) = core.stages(transfer.id) else {
                assert!(!transfer.is_held, "a transfer goes when it is let go of");
                continue;
            };
            for (position, (known, now)) in transfer.stages.iter().zip(stages).enumerate() {
                assert!(!known.is_final() || known == now, "a final stage does not change");
                if transfer.cleared.contains(&position) && now.is_final() {
                    assert_eq!(*now, Stage::Failed(Failure::Cleared));
                }
            }
            transfer.stages = stages.to_vec();
        }
        self.transfers.retain(|transfer| core.stages(transfer.id).is_some());
    }
}
