//! Runs a core with a disk tier and plays device, disk and oracle.
//!
//! There is no second machine here to compare with: the rig knows which bytes lie in every slot of
//! both tiers, who pins what and what was lost, and checks the promises that follow after every
//! operation; [`Core::audit`] checks the tables. Which chunk is evicted is the core's choice, as
//! long as it was one that may go. `disk_events.rs` is what befalls the disk.

use crate::counted::counted;
use crate::disk_operation::{Action as Step, DiskOperation};
use crate::rig::{NODE_COUNT, group_index, path_to, pick};
use kvtide::core::{
    Action, Core, CoreConfig, DiskFailure, DiskHop, DiskRequest, Hop, HopFailure, HopRequest,
    LoadRequest, PlanId, Stage, StorePoint, StoreRequest, SyncMark, TransferId,
};
use kvtide::key::Key;
use kvtide::units::{GroupIndex, SlotIndex, StripeIndex, TenantId, Timestamp};
use std::collections::{HashMap, HashSet};

/// Steps after which a core without completions must have come to rest.
const STEP_COUNT_MAX: usize = 2_000;

/// Hops after which a core that nobody asks for anything must have come to rest.
const HOP_COUNT_MAX: usize = 10_000;

/// Tenants whose chunks a run stores.
pub(crate) const TENANT_COUNT: u64 = 3;

/// Whose a key is: runs of a prefix belong to one tenant.
pub(crate) fn tenant_of(key: Key) -> TenantId {
    TenantId::new((key.low_u64() >> 5) % TENANT_COUNT)
}

/// Bytes of one chunk: its key, and how often it was cleared or erased before they were stored.
pub(crate) type Bytes = (Key, u32);

/// A place in a tier.
pub(crate) type Place = (GroupIndex, SlotIndex);

/// A stripe of a group's disk tier.
pub(crate) type Stripe = (GroupIndex, StripeIndex);

/// What lies in a disk slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    pub(crate) bytes: Bytes,
    /// The sync that covers it; none while none that has begun does.
    pub(crate) covered_by: Option<usize>,
    /// Writes were stopped before a sync covered it.
    pub(crate) has_missed: bool,
    /// Known to be durable when it was found.
    pub(crate) is_durable: bool,
}

/// One plan: its name, and by group the chunks that it holds.
pub(crate) struct HeldPlan {
    pub(crate) id: PlanId,
    pub(crate) runs: Vec<Vec<Key>>,
    /// What of them was lost since.
    pub(crate) lost: HashSet<Key>,
}

pub(crate) struct Transfer {
    pub(crate) id: TransferId,
    pub(crate) is_store: bool,
    pub(crate) keys: Vec<Key>,
    pub(crate) stages: Vec<Stage>,
    /// Positions that were not final when their chunk was cleared or erased.
    pub(crate) cleared: HashSet<usize>,
    pub(crate) is_held: bool,
}

pub(crate) struct DiskRig {
    pub(crate) core: Core,
    pub(crate) config: CoreConfig,
    now: Timestamp,
    pub(crate) hops: Vec<(HopRequest, Key)>,
    pub(crate) disk_hops: Vec<DiskRequest>,
    /// Disk hops that were given up and may still touch their slots.
    pub(crate) stuck: Vec<DiskRequest>,
    pub(crate) transfers: Vec<Transfer>,
    pub(crate) plans: Vec<HeldPlan>,
    /// Whose bytes each slot holds.
    pub(crate) host: HashMap<Place, Bytes>,
    pub(crate) disk: HashMap<Place, Written>,
    pub(crate) syncs: Vec<(SyncMark, bool)>,
    pub(crate) unscanned: HashSet<Place>,
    /// Chunks that something other than eviction may have taken.
    pub(crate) lost: HashSet<Key>,
    /// Chunks that recovery brought, whose parents may never have been here.
    pub(crate) adopted: HashSet<Key>,
    /// Chunks whose parents were erased since they came.
    pub(crate) orphaned: HashSet<Key>,
    /// How often each key was cleared or erased.
    pub(crate) births: HashMap<Key, u32>,
    /// Stripes of groups, by what happened to them.
    pub(crate) are_writes_stopped: HashSet<Stripe>,
    pub(crate) is_disk_lost: HashSet<Stripe>,
    /// Whether completions may fail.
    may_fail: bool,
}

impl DiskRig {
    pub(crate) fn new(config: &CoreConfig, may_fail: bool) -> Self {
        let groups = (0_u8..).map(GroupIndex::new).zip(&config.groups);
        let unscanned = groups.flat_map(|(group, sizes)| {
            (0..sizes.disk_slot_counts.iter().sum()).map(move |slot| (group, SlotIndex::new(slot)))
        });
        Self {
            core: Core::new(config).expect("the sizes work"),
            config: config.clone(),
            now: Timestamp::new(0),
            hops: Vec::new(),
            disk_hops: Vec::new(),
            stuck: Vec::new(),
            transfers: Vec::new(),
            plans: Vec::new(),
            host: HashMap::new(),
            disk: HashMap::new(),
            syncs: Vec::new(),
            unscanned: unscanned.collect(),
            lost: HashSet::new(),
            adopted: HashSet::new(),
            orphaned: HashSet::new(),
            births: HashMap::new(),
            are_writes_stopped: HashSet::new(),
            is_disk_lost: HashSet::new(),
            may_fail,
        }
    }

    pub(crate) fn run(&mut self, operation: &DiskOperation) {
        let DiskOperation { action, numbers: [first, second, third] } = *operation;
        let group = first % self.config.groups.len();
        match action {
            Step::Store => self.store(group, second, third),
            Step::Load => self.load(group, second, third),
            Step::Plan => self.plan(group, second, third),
            Step::DropPlan => self.drop_plan(second),
            Step::Complete => self.complete(second, third),
            Step::CompleteDisk => self.complete_disk(second, third),
            Step::Cancel => {
                if let Some(transfer) = self.transfers.get(second % self.transfers.len().max(1)) {
                    self.core.cancel(transfer.id);
                }
            }
            Step::Detach => self.detach(second),
            Step::Tick => self.tick(third as u64 % 15),
            Step::MakeRoom => {
                let room = self
                    .core
                    .make_room(group_index(group), u32::try_from(third % 5).expect("small"));
                room.expect("the group is there");
            }
            Step::Flush => self.core.flush(),
            Step::BeginSync => self.begin_sync(),
            Step::Synced => self.synced(second),
            Step::StopWrites => self.stop_writes(group, second),
            Step::StopDisk => self.stop_disk(group, second),
            Step::Clear => self.clear(),
            Step::EraseKeys => self.erase_keys(group, second, third),
            Step::EraseTenant => self.erase_tenant(second),
            Step::Adopt => self.adopt(group, second, third),
            Step::FreeDisk => self.free_disk(group, second, third),
        }
        self.settle();
    }

    fn store(&mut self, group: usize, node: usize, length: usize) {
        let path = path_to(group, node % NODE_COUNT);
        let length = if length.is_multiple_of(4) { path.len() } else { 1 + length % 8 };
        let mut first = path.len() - length.min(path.len());
        let deadline = self.deadline(length + node);
        // One request for each run of chunks of one tenant.
        for keys in path[first..].chunk_by(|one, next| tenant_of(*one) == tenant_of(*next)) {
            let parent = first.checked_sub(1).map(|above| path[above]);
            let (group, tenant) = (group_index(group), tenant_of(keys[0]));
            first += keys.len();
            if let Ok(id) = self.core.store(StoreRequest { group, parent, keys, tenant, deadline })
            {
                self.open(id, true, keys);
                self.settle();
            }
        }
    }

    fn load(&mut self, group: usize, node: usize, count: usize) {
        let path = path_to(group, node % NODE_COUNT);
        let keys = &path[path.len().saturating_sub(1 + count % 8)..];
        let deadline = self.deadline(count + node);
        let request = LoadRequest { group: group_index(group), keys, deadline };
        if let Ok(id) = self.core.load(request) {
            self.open(id, false, keys);
        }
    }

    fn open(&mut self, id: TransferId, is_store: bool, keys: &[Key]) {
        self.transfers.push(Transfer {
            id,
            is_store,
            keys: keys.to_vec(),
            stages: vec![Stage::Queued; keys.len()],
            cleared: HashSet::new(),
            is_held: true,
        });
    }

    /// Deadlines come with failures: a run without them must need none.
    fn deadline(&self, number: usize) -> Timestamp {
        if self.may_fail && number.is_multiple_of(4) {
            self.now.after(number as u64 % 20 + 1)
        } else {
            Timestamp::NEVER
        }
    }

    /// Opens a plan, or extends one, along a path.
    fn plan(&mut self, group: usize, node: usize, number: usize) {
        if number.is_multiple_of(2) || self.plans.is_empty() {
            let Ok(id) = self.core.open_plan(self.now) else {
                return;
            };
            let runs = vec![Vec::new(); self.config.groups.len()];
            self.plans.push(HeldPlan { id, runs, lost: HashSet::new() });
        }
        let index = self.plans.len() - 1 - number % self.plans.len();
        let path = path_to(group, node % NODE_COUNT);
        let held = self.plans[index].runs[group].last().copied();
        let start =
            held.map_or(0, |held| path.iter().position(|key| *key == held).map_or(0, |at| at + 1));
        let keys = &path[start..];
        if keys.is_empty() {
            return;
        }
        let points: Vec<Option<StorePoint>> =
            keys.iter().map(|key| self.core.point(*key)).collect();
        let plan = &mut self.plans[index];
        let Ok(probe) = self.core.extend_plan(plan.id, group_index(group), keys) else {
            return;
        };
        let hit_count = probe.hit_count as usize;
        assert!(points[..hit_count].iter().all(Option::is_some), "only what is resident is a hit");
        plan.runs[group].extend_from_slice(&keys[..hit_count]);
        // What is lost from now on is lost again.
        for key in &keys[..hit_count] {
            self.lost.remove(key);
        }
    }

    fn drop_plan(&mut self, number: usize) {
        if !self.plans.is_empty() {
            let plan = self.plans.swap_remove(number % self.plans.len());
            self.core.drop_plan(plan.id);
        }
    }

    fn complete(&mut self, number: usize, outcome: usize) {
        if self.hops.is_empty() {
            return;
        }
        let (hop, key) = self.hops.swap_remove(number % self.hops.len());
        let outcome = match outcome % 16 {
            0 if self.may_fail => Err(HopFailure::Device),
            1 if self.may_fail => Err(HopFailure::Checksum),
            _ => Ok(()),
        };
        let place = (hop.group, hop.slot);
        match hop.hop {
            Hop::OutLink if outcome.is_ok() => {
                let born = self.born(hop, key);
                self.host.insert(place, (key, born));
            }
            Hop::InLink => {
                assert_eq!(self.host[&place].0, key, "a load reads its own bytes");
            }
            _ => {}
        }
        if outcome.is_err() {
            self.lost.insert(key);
        }
        self.core.complete(hop.ended(outcome));
    }

    /// Bytes of a key that are stored now.
    pub(crate) fn bytes_of(&self, key: Key) -> Bytes {
        (key, self.births.get(&key).copied().unwrap_or(0))
    }

    /// How often the key was dropped before the hop's transfer began.
    fn born(&self, hop: HopRequest, key: Key) -> u32 {
        let transfer = self.transfers.iter().find(|transfer| transfer.id == hop.transfer);
        let transfer = transfer.expect("a transfer under way is known");
        let was_dropped = transfer.cleared.contains(&usize::from(hop.position));
        self.bytes_of(key).1 - u32::from(was_dropped)
    }

    /// Ends a disk hop after all that was given up.
    fn unstick(&mut self) {
        let Some(request) = self.stuck.pop() else { return };
        if request.hop == DiskHop::Write {
            let bytes = self.host[&(request.group, request.slot)];
            assert_eq!(bytes.0, request.key, "a host slot is not touched while it may be written");
        }
        self.core.unstick(request);
    }

    fn complete_disk(&mut self, number: usize, outcome: usize) {
        if outcome.is_multiple_of(5) {
            self.unstick();
        }
        if self.disk_hops.is_empty() {
            return;
        }
        let request = self.disk_hops.swap_remove(number % self.disk_hops.len());
        let outcome = match outcome % 12 {
            0 if self.may_fail => Err(DiskFailure::Drive),
            1 if self.may_fail => Err(DiskFailure::NoSpace),
            2 if self.may_fail => Err(DiskFailure::Mismatch),
            3 if self.may_fail => Err(DiskFailure::Cleared),
            4 if self.may_fail => Err(DiskFailure::Stuck),
            _ => Ok(()),
        };
        if outcome == Err(DiskFailure::Stuck) {
            self.stuck.push(request);
        }
        let (place, disk_place) =
            ((request.group, request.slot), (request.group, request.disk_slot));
        match (request.hop, outcome) {
            (DiskHop::Write, Ok(())) => {
                let bytes = self.host[&place];
                assert_eq!(bytes.0, request.key, "a host slot is not touched while it is written");
                let has_missed = self.are_writes_stopped.contains(&self.stripe_of(disk_place));
                let written = Written { bytes, covered_by: None, is_durable: false, has_missed };
                self.disk.insert(disk_place, written);
            }
            (DiskHop::Read, Ok(())) => {
                let bytes = self.disk[&disk_place].bytes;
                assert_eq!(bytes.0, request.key, "a disk slot is not touched while it is read");
                self.host.insert(place, bytes);
            }
            (DiskHop::Write, Err(_)) => {}
            (DiskHop::Read, Err(_)) => {
                self.lost.insert(request.key);
            }
        }
        self.core.complete_disk(request.ended(outcome));
    }

    fn detach(&mut self, number: usize) {
        if let Some(transfer) = pick(&(0..self.transfers.len()).collect::<Vec<_>>(), number) {
            self.core.detach(self.transfers[transfer].id);
            self.transfers[transfer].is_held = false;
        }
    }

    fn tick(&mut self, passed: u64) {
        self.now = self.now.after(passed);
        let due = self.core.tick(self.now).expect("the core is sound");
        assert_eq!(due <= self.now, self.core.has_backlog(), "a tick says whether it left work");
        // Plans lapse: forget those that have.
        let (core, now) = (&mut self.core, self.now);
        self.plans.retain(|plan| core.renew_plan(plan.id, now).is_ok());
    }

    /// Takes the actions in and checks every promise.
    pub(crate) fn settle(&mut self) {
        let mut actions = Vec::new();
        self.core.take_actions(&mut actions);
        for action in actions {
            match action {
                Action::Start(hop) => self.start(hop),
                Action::Disk(request) => self.start_disk(request),
                Action::Wake { transfer } => {
                    assert!(self.transfers.iter().any(|known| known.id == transfer));
                }
                other => panic!("an action that nobody knows: {other:?}"),
            }
        }
        assert_eq!(self.core.audit(), Ok(()));
        assert!(!self.core.is_poisoned());
        self.check();
    }

    /// Lets the core work until it comes to rest.
    fn rest(&mut self) {
        for _ in 0..STEP_COUNT_MAX {
            if !self.core.has_backlog() {
                return;
            }
            self.tick(0);
            self.settle();
        }
        panic!("the core does not come to rest");
    }

    /// Ends everything that is under way; nothing may hang.
    pub(crate) fn drain(&mut self) {
        self.may_fail = false;
        while !self.stuck.is_empty() {
            self.unstick();
            self.settle();
        }
        while !self.plans.is_empty() {
            self.drop_plan(0);
            self.settle();
        }
        for group in 0..self.config.groups.len() {
            if !self.unscanned.iter().any(|(at, _)| *at == group_index(group)) {
                continue;
            }
            self.free_disk(group, 0, 63);
            self.settle();
        }
        self.rest();
        let mut hop_count = 0;
        for _ in 0..100 {
            while !self.hops.is_empty() || !self.disk_hops.is_empty() {
                hop_count += 1;
                assert!(hop_count < HOP_COUNT_MAX, "hops go on without end");
                self.complete(0, 2);
                self.settle();
                self.complete_disk(0, 3);
                self.settle();
                self.rest();
            }
            // Time passes by itself for every caller, and what waits is tried again.
            self.tick(0);
            self.settle();
        }
        // What has no deadline has ended; what has one is given up.
        for transfer in &self.transfers {
            let stages = self.core.stages(transfer.id).expect("it is known");
            assert!(stages.iter().all(|stage| stage.is_final()), "{stages:?} hangs");
        }
        self.rest();
        self.core.flush();
        loop {
            self.settle();
            self.rest();
            if self.disk_hops.is_empty() {
                break;
            }
            self.complete_disk(0, 3);
        }
        assert_eq!(self.core.unwritten(), 0, "a flush comes to its end");
        counted("core steps with a disk tier", self.core.counters().steps);
    }
}
