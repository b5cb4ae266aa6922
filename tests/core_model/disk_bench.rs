//! A core with one full group on disk, and short ways to drive it: for single promises.

use kvtide::core::{
    Action, Core, CoreConfig, Counters, DiskFailure, DiskRequest, GroupConfig, HopRequest,
    LoadRequest, PlanId, Room, SlotCounts, Stage, StoreRequest, TransferId,
};
use kvtide::key::Key;
use kvtide::layout::Attention;
use kvtide::units::{GroupIndex, SlotIndex, StripeIndex, TenantId, Timestamp};

pub(crate) const GROUP: GroupIndex = GroupIndex::new(0);
/// The first stripe, and the only one of a bench that says nothing of stripes.
pub(crate) const STRIPE: StripeIndex = StripeIndex::new(0);
pub(crate) const NOW: Timestamp = Timestamp::new(0);
pub(crate) const TENANT: TenantId = TenantId::new(0);

/// A core with one full group on disk, and short ways to drive it.
pub(crate) struct DiskBench {
    pub(crate) core: Core,
    /// Hops and disk hops that were handed out and not ended.
    pub(crate) hops: Vec<HopRequest>,
    pub(crate) disk_hops: Vec<DiskRequest>,
}

pub(crate) fn key(number: u128) -> Key {
    Key::from_u128(number << 40 | number)
}

pub(crate) fn keys<const COUNT: usize>(numbers: [u128; COUNT]) -> [Key; COUNT] {
    numbers.map(key)
}

impl DiskBench {
    /// A core whose disk is fresh.
    pub(crate) fn new(slot_count: u32, disk_slot_count: u32) -> Self {
        Self::with(slot_count, disk_slot_count, |_| {})
    }

    pub(crate) fn with(
        slot_count: u32,
        disk_slot_count: u32,
        change: impl FnOnce(&mut CoreConfig),
    ) -> Self {
        Self::striped(slot_count, &[disk_slot_count], change)
    }

    /// A core whose disk is fresh, in several stripes.
    pub(crate) fn striped(
        slot_count: u32,
        disk_slot_counts: &[u32],
        change: impl FnOnce(&mut CoreConfig),
    ) -> Self {
        let mut bench = Self::unscanned_stripes(slot_count, disk_slot_counts, change);
        let disk_slot_count = disk_slot_counts.iter().sum();
        let freed = bench.core.free_disk_slots(GROUP, SlotIndex::new(0), disk_slot_count);
        assert_eq!(freed, Ok(disk_slot_count));
        bench
    }

    /// A core of whose disk nothing is known.
    pub(crate) fn unscanned(
        slot_count: u32,
        disk_slot_count: u32,
        change: impl FnOnce(&mut CoreConfig),
    ) -> Self {
        Self::unscanned_stripes(slot_count, &[disk_slot_count], change)
    }

    /// A core of whose disk, in several stripes, nothing is known; without slots there is none.
    pub(crate) fn unscanned_stripes(
        slot_count: u32,
        disk_slot_counts: &[u32],
        change: impl FnOnce(&mut CoreConfig),
    ) -> Self {
        let attention = Attention::Full;
        let there = disk_slot_counts.iter().copied().filter(|count| *count > 0);
        let disk_slot_counts = there.collect();
        let group = GroupConfig { slot_count, attention, pieces_per_chunk: 1, disk_slot_counts };
        let mut config = CoreConfig::new(vec![group]);
        change(&mut config);
        let core = Core::new(&config).expect("the sizes work");
        Self { core, hops: Vec::new(), disk_hops: Vec::new() }
    }

    pub(crate) fn take_actions(&mut self) {
        let mut actions = Vec::new();
        self.core.take_actions(&mut actions);
        for action in actions {
            match action {
                Action::Start(hop) => self.hops.push(hop),
                Action::Disk(request) => self.disk_hops.push(request),
                _ => {}
            }
        }
        assert_eq!(self.core.audit(), Ok(()));
    }

    pub(crate) fn start_store(&mut self, parent: Option<Key>, keys: &[Key]) -> TransferId {
        self.start_store_for(TENANT, parent, keys)
    }

    pub(crate) fn start_store_for(
        &mut self,
        tenant: TenantId,
        parent: Option<Key>,
        keys: &[Key],
    ) -> TransferId {
        let deadline = Timestamp::NEVER;
        let request = StoreRequest { group: GROUP, parent, keys, tenant, deadline };
        let transfer = self.core.store(request).expect("a transfer is free");
        self.take_actions();
        transfer
    }

    pub(crate) fn start_load(&mut self, keys: &[Key]) -> TransferId {
        let request = LoadRequest { group: GROUP, keys, deadline: Timestamp::NEVER };
        let transfer = self.core.load(request).expect("a transfer is free");
        self.take_actions();
        transfer
    }

    /// Ends all device hops well, until none is left.
    pub(crate) fn finish_hops(&mut self) {
        self.take_actions();
        while let Some(hop) = self.hops.pop() {
            self.core.complete(hop.ended(Ok(())));
            self.take_actions();
        }
    }

    /// Ends the disk hops that are out, in their order.
    pub(crate) fn end_disk(&mut self, outcome: Result<(), DiskFailure>) -> Vec<DiskRequest> {
        self.take_actions();
        let ended = std::mem::take(&mut self.disk_hops);
        for request in &ended {
            self.core.complete_disk(request.ended(outcome));
        }
        self.take_actions();
        ended
    }

    /// Ends everything well and lets the core come to rest.
    pub(crate) fn finish(&mut self) {
        for _ in 0..10_000 {
            self.finish_hops();
            self.end_disk(Ok(()));
            if self.core.has_backlog() {
                self.core.tick(NOW).expect("the core is sound");
            } else if self.hops.is_empty() && self.disk_hops.is_empty() {
                return;
            }
        }
        panic!("the core does not come to rest");
    }

    /// Stores chunks, but leaves what the disk has to do.
    pub(crate) fn store_in_host(&mut self, parent: Option<Key>, keys: &[Key]) -> Vec<Stage> {
        let transfer = self.start_store(parent, keys);
        self.finish_hops();
        self.stages(transfer)
    }

    pub(crate) fn store(&mut self, parent: Option<Key>, keys: &[Key]) -> Vec<Stage> {
        let stages = self.store_in_host(parent, keys);
        self.finish();
        stages
    }

    pub(crate) fn load(&mut self, keys: &[Key]) -> Vec<Stage> {
        let transfer = self.start_load(keys);
        self.finish();
        self.stages(transfer)
    }

    /// Says what became of a transfer and lets go of it.
    pub(crate) fn stages(&mut self, transfer: TransferId) -> Vec<Stage> {
        let stages = self.core.stages(transfer).expect("it is held").to_vec();
        self.core.detach(transfer);
        stages
    }

    pub(crate) fn plan(&mut self, keys: &[Key]) -> PlanId {
        let plan = self.core.open_plan(NOW).expect("a plan is free");
        let probe = self.core.extend_plan(plan, GROUP, keys).expect("the plan is open");
        assert_eq!(probe.hit_count as usize, keys.len());
        plan
    }

    /// Evicts all copies in host memory that can be evicted.
    pub(crate) fn empty_host(&mut self) {
        while self.core.make_room(GROUP, u32::MAX) == Ok(Room::MoreWork) {}
        self.take_actions();
    }

    pub(crate) fn used(&self) -> (u32, u32) {
        let used = |slots: Option<SlotCounts>| slots.expect("the group is there").used;
        (used(self.core.slots(GROUP)), used(self.core.disk_slots(GROUP)))
    }

    pub(crate) fn counters(&self) -> Counters {
        self.core.counters()
    }
}
