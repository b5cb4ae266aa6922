//! Plans: what a lookup found, pinned until it is used, dropped, or its lease ends.
//!
//! A plan holds one *run* a group: consecutive chunks of one prefix, each pinned once. Because a
//! chunk knows its parent, a run is two ends and a count, whatever its length. Pins are taken and
//! released at most 64 a call, deepest chunk first on release, so that the policy sees the prefix
//! as used leaf before root.
//!
//! Invariants: every chunk of a run is pinned by it exactly once; a plan that is being dropped
//! accepts no command; the pins of a dropped or lapsed plan are released by the following steps.
//!
//! Called by [`Lookup`](super::Lookup) and the pager.

use super::chunk::{ChunkIndex, Presence};
use super::tier::Tier;
use super::{Core, KEY_COUNT_MAX, MissReason, Refused};
use crate::key::Key;
use crate::layout::GROUP_COUNT_MAX;
use crate::links::{Links, List};
use crate::units::{GroupIndex, Timestamp};

/// Host slots of a group, at most, that pins of chunks without a disk copy leave to others.
const RESERVED_COUNT_MAX: u32 = 64;

/// Names a plan until it is dropped or lapses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PlanId {
    index: u32,
    generation: u32,
}

/// What one step of a lookup found: the leading keys that hit, and why the next one did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Leading keys that are resident; all of them are pinned now.
    pub hit_count: u32,
    /// Those of them that are on disk only at this time.
    pub disk_hit_count: u32,
    /// Why the key after them missed; `None` when all hit.
    pub miss: Option<MissReason>,
}

/// Consecutive pinned chunks of one group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) first: ChunkIndex,
    pub(super) deepest: ChunkIndex,
    pub(super) chunk_count: u32,
    /// Those of them that were on disk only when they were pinned, as far as is known.
    disk_count: u32,
}

impl Run {
    const EMPTY: Self =
        Self { first: ChunkIndex::NONE, deepest: ChunkIndex::NONE, chunk_count: 0, disk_count: 0 };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlanState {
    Free,
    Open,
    Dropping,
}

#[derive(Clone, Debug)]
struct Plan {
    generation: u32,
    state: PlanState,
    lease_end: Timestamp,
    runs: [Run; GROUP_COUNT_MAX],
}

/// The plans, in preallocated records.
#[derive(Debug)]
pub(super) struct PlanTable {
    plans: Box<[Plan]>,
    /// Members: free, leased or dropping records; never two of them.
    links: Links,
    free: List,
    /// Open plans, the one that lapses next in front: all leases last equally long.
    leased: List,
    dropping: List,
}

impl PlanTable {
    pub(super) fn new(plan_count_max: u32) -> Self {
        let vacant = Plan {
            generation: 0,
            state: PlanState::Free,
            lease_end: Timestamp::NEVER,
            runs: [Run::EMPTY; GROUP_COUNT_MAX],
        };
        let mut links = Links::new(plan_count_max);
        let mut free = List::EMPTY;
        for index in 0..plan_count_max {
            links.push_back(&mut free, index);
        }
        let plans = vec![vacant; plan_count_max as usize].into_boxed_slice();
        Self { plans, links, free, leased: List::EMPTY, dropping: List::EMPTY }
    }

    pub(super) fn bytes(&self) -> usize {
        self.plans.len() * (size_of::<Plan>() + Links::NODE_BYTES)
    }

    fn open(&mut self, lease_end: Timestamp) -> Result<PlanId, Refused> {
        let plan_count_max = self.plans.len();
        let index = self.free.first().ok_or(Refused::PlansExhausted { plan_count_max })?;
        self.links.remove(&mut self.free, index);
        self.links.push_back(&mut self.leased, index);
        let plan = &mut self.plans[index as usize];
        plan.state = PlanState::Open;
        plan.lease_end = lease_end;
        Ok(PlanId { index, generation: plan.generation })
    }

    fn get_mut(&mut self, id: PlanId) -> Result<&mut Plan, Refused> {
        let plan = self.plans.get_mut(id.index as usize).ok_or(Refused::PlanLapsed)?;
        let is_open = plan.generation == id.generation && plan.state == PlanState::Open;
        if is_open { Ok(plan) } else { Err(Refused::PlanLapsed) }
    }

    fn renew(&mut self, id: PlanId, lease_end: Timestamp) -> Result<(), Refused> {
        self.get_mut(id)?.lease_end = lease_end;
        self.links.remove(&mut self.leased, id.index);
        self.links.push_back(&mut self.leased, id.index);
        Ok(())
    }

    fn start_dropping(&mut self, index: u32) {
        self.plans[index as usize].state = PlanState::Dropping;
        self.links.remove(&mut self.leased, index);
        self.links.push_back(&mut self.dropping, index);
    }

    fn finish_dropping(&mut self, index: u32) {
        let plan = &mut self.plans[index as usize];
        plan.state = PlanState::Free;
        plan.generation = plan.generation.wrapping_add(1);
        self.links.remove(&mut self.dropping, index);
        self.links.push_back(&mut self.free, index);
    }

    /// The plan that lapses next, and when.
    pub(super) fn next_lapse(&self) -> Option<(u32, Timestamp)> {
        let index = self.leased.first()?;
        Some((index, self.plans[index as usize].lease_end))
    }

    pub(super) fn is_dropping(&self) -> bool {
        !self.dropping.is_empty()
    }

    /// Returns the runs of all plans that still hold pins.
    pub(super) fn runs(&self) -> impl Iterator<Item = Run> + '_ {
        self.plans.iter().filter(|plan| plan.state != PlanState::Free).flat_map(|plan| plan.runs)
    }
}

/// Which end of a run the keys of a step continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Growth {
    /// Each key follows the one before it, from the run's deepest chunk on.
    Deeper,
    /// Each key precedes the one before it, from the run's first chunk on.
    Shallower,
}

impl Core {
    /// Opens a plan without pins.
    ///
    /// # Errors
    ///
    /// [`Refused::PlansExhausted`] and [`Refused::Poisoned`].
    pub fn open_plan(&mut self, now: Timestamp) -> Result<PlanId, Refused> {
        let lease_end = now.after(self.lease_ns);
        self.guarded(|core| core.plans.open(lease_end))
    }

    /// Pins the leading keys of `keys` that are resident, behind the chunks that the plan holds.
    ///
    /// `keys` are consecutive chunks of one prefix, at most 64, the first one following the
    /// deepest chunk of the plan's run in `group` (or any chunk, while the run is empty). Probing
    /// stops at the first key that is not resident; the keys after it count as not asked for.
    ///
    /// Cost: one overlapped index probe a key, no allocation.
    ///
    /// # Errors
    ///
    /// [`Refused::PlanLapsed`], [`Refused::NoSuchGroup`], [`Refused::KeyCount`] and
    /// [`Refused::Poisoned`].
    pub fn extend_plan(
        &mut self,
        plan: PlanId,
        group: GroupIndex,
        keys: &[Key],
    ) -> Result<Probe, Refused> {
        self.guarded(|core| core.grow(plan, group, keys, Growth::Deeper))
    }

    /// Pins the leading keys of `keys` that are resident, before the chunks that the plan holds.
    ///
    /// For window groups, whose lookup goes from the boundary towards the root: `keys` run from
    /// deep to shallow, the first one being the parent of the run's first chunk.
    ///
    /// # Errors
    ///
    /// As [`Core::extend_plan`].
    pub fn extend_plan_back(
        &mut self,
        plan: PlanId,
        group: GroupIndex,
        keys: &[Key],
    ) -> Result<Probe, Refused> {
        self.guarded(|core| core.grow(plan, group, keys, Growth::Shallower))
    }

    /// Says why a lookup would miss a key; `None` when it is resident. Pins and counts nothing.
    pub fn peek(&self, key: Key) -> Option<MissReason> {
        match self.index.find(key, self.chunks.records()) {
            None => Some(MissReason::NeverStored),
            Some(index) => self.readable(index).err(),
        }
    }

    /// Checks that a chunk has a copy that can be read.
    pub(super) fn readable(&self, index: ChunkIndex) -> Result<(), MissReason> {
        let chunk = self.chunks.at(index);
        if self.is_stale(index) {
            return Err(MissReason::Cleared);
        }
        let is_readable = || self.is_resident(index, Tier::Host) || self.is_disk_readable(index);
        match chunk.presence {
            Presence::Draining | Presence::Gone => Err(chunk.reason),
            Presence::Vacant => unreachable!("the index names records in use"),
            Presence::Here if is_readable() => Ok(()),
            Presence::Here if self.is_resident(index, Tier::Disk) => Err(MissReason::Lost),
            Presence::Here => Err(MissReason::Filling),
        }
    }

    fn grow(
        &mut self,
        id: PlanId,
        group: GroupIndex,
        keys: &[Key],
        growth: Growth,
    ) -> Result<Probe, Refused> {
        let at = self.group_position(group)?;
        Refused::check_keys(keys)?;
        let mut run = self.plans.get_mut(id)?.runs[at];
        let mut found = [None; KEY_COUNT_MAX];
        // Stale ones too: they say why they miss.
        self.index.find_many(keys, self.chunks.records(), &mut found);
        let mut probe = Probe { hit_count: 0, disk_hit_count: 0, miss: None };
        for index in found.into_iter().take(keys.len()) {
            match self.admit_to_run(at, run, index, growth) {
                Ok(index) => {
                    let is_on_disk_only = !self.is_resident(index, Tier::Host);
                    self.pin(index);
                    run.join(index, growth);
                    run.disk_count += u32::from(is_on_disk_only);
                    probe.disk_hit_count += u32::from(is_on_disk_only);
                    probe.hit_count += 1;
                }
                Err(reason) => {
                    probe.miss = Some(reason);
                    break;
                }
            }
        }
        let missed = u64::from(probe.miss.is_some());
        self.counters.hits += u64::from(probe.hit_count);
        self.counters.disk_hits += u64::from(probe.disk_hit_count);
        self.counters.host_hits += u64::from(probe.hit_count - probe.disk_hit_count);
        self.counters.misses += missed;
        self.counters.probes += u64::from(probe.hit_count) + missed;
        self.plans.get_mut(id)?.runs[at] = run;
        Ok(probe)
    }

    /// Decides whether a probed chunk continues the run, and links it to its neighbour in a
    /// window group, where an older chunk may have left and come back.
    fn admit_to_run(
        &mut self,
        at: usize,
        run: Run,
        found: Option<ChunkIndex>,
        growth: Growth,
    ) -> Result<ChunkIndex, MissReason> {
        let index = found.ok_or(MissReason::NeverStored)?;
        if usize::from(self.chunks.at(index).group.get()) != at {
            return Err(MissReason::ForeignParent);
        }
        self.readable(index)?;
        self.check_reserve(at, index)?;
        if run.chunk_count == 0 {
            return Ok(index);
        }
        let (end, parent, child) = match growth {
            Growth::Deeper => (run.deepest, run.deepest, index),
            Growth::Shallower => (run.first, index, run.first),
        };
        // Lost since the plan pinned it: it has no family any more, and nothing to load.
        if self.chunks.at(end).presence == Presence::Draining {
            return Err(self.chunks.at(end).reason);
        }
        if self.is_stale(end) {
            return Err(MissReason::Cleared);
        }
        if self.chunks.at(child).parent == parent {
            return Ok(index);
        }
        if self.is_below_stale_twin(parent, child) {
            let has_left = self.leave_stale_twin(parent, child);
            return if has_left { Ok(index) } else { Err(MissReason::Cleared) };
        }
        let is_window = !self.groups[at].spares_ancestors();
        let is_root = self.chunks.at(child).parent == ChunkIndex::NONE;
        if !(is_window && is_root && parent != child) {
            return Err(MissReason::ForeignParent);
        }
        self.chunks.adopt(parent, child);
        Ok(index)
    }

    /// Checks that a pin leaves enough host slots for promotions. Chunks that are in host memory
    /// alone cannot leave while they are pinned; were all slots theirs, no chunk on disk could be
    /// loaded until some plan ends.
    fn check_reserve(&self, at: usize, index: ChunkIndex) -> Result<(), MissReason> {
        let group = &self.groups[at];
        let slot_count = group.tier(Tier::Host).slots.capacity();
        let has_disk = group.has_disk();
        let is_sole = self.chunks.at(index).pins == 0 && !self.is_resident(index, Tier::Disk);
        let reserve = (slot_count / 4).clamp(1, RESERVED_COUNT_MAX);
        let is_refused = has_disk && is_sole && group.sole_pinned + reserve >= slot_count;
        if is_refused { Err(MissReason::Pinned) } else { Ok(()) }
    }

    /// Chunks of a plan's run that were on disk only when they were pinned.
    pub(super) fn disk_count(&self, plan: PlanId, at: usize) -> u32 {
        let plan = &self.plans.plans[plan.index as usize];
        plan.runs[at].disk_count
    }

    /// Releases pins of the plan's run in `group`, deepest first, until it holds at most
    /// `chunk_count` chunks. One call releases at most 64; returns whether it is done.
    ///
    /// # Errors
    ///
    /// As [`Core::extend_plan`].
    pub fn trim_plan(
        &mut self,
        plan: PlanId,
        group: GroupIndex,
        chunk_count: u32,
    ) -> Result<bool, Refused> {
        self.guarded(|core| {
            let at = core.group_position(group)?;
            let mut run = core.plans.get_mut(plan)?.runs[at];
            let surplus = run.chunk_count.saturating_sub(chunk_count);
            let mut budget = KEY_COUNT_MAX;
            core.release(&mut run, surplus, &mut budget);
            core.plans.get_mut(plan)?.runs[at] = run;
            Ok(run.chunk_count <= chunk_count)
        })
    }

    /// Lets the plan live for another lease from `now`.
    ///
    /// # Errors
    ///
    /// [`Refused::PlanLapsed`] and [`Refused::Poisoned`].
    pub fn renew_plan(&mut self, plan: PlanId, now: Timestamp) -> Result<(), Refused> {
        let lease_end = now.after(self.lease_ns);
        self.guarded(|core| core.plans.renew(plan, lease_end))
    }

    /// Gives the plan up. Its pins go in this and the following steps; a plan that has lapsed is
    /// left alone.
    pub fn drop_plan(&mut self, plan: PlanId) {
        let dropped = self.guarded(|core| {
            core.plans.get_mut(plan)?;
            core.plans.start_dropping(plan.index);
            core.release_dropped();
            Ok(())
        });
        // A lapsed plan has no pins left to give up, a poisoned core hands nothing out any more.
        debug_assert!(matches!(dropped, Ok(()) | Err(Refused::PlanLapsed | Refused::Poisoned)));
    }

    /// Ends the plans whose lease is over, at most 64 a call.
    pub(super) fn lapse_plans(&mut self, now: Timestamp) {
        for _ in 0..KEY_COUNT_MAX {
            match self.plans.next_lapse() {
                Some((index, lease_end)) if lease_end <= now => {
                    self.plans.start_dropping(index);
                    self.counters.lapsed += 1;
                }
                _ => return,
            }
        }
    }

    /// Releases up to 64 pins of dropped plans, oldest drop first.
    pub(super) fn release_dropped(&mut self) {
        let mut budget = KEY_COUNT_MAX;
        while let Some(index) = self.plans.dropping.first() {
            for at in 0..self.groups.len() {
                let mut run = self.plans.plans[index as usize].runs[at];
                let chunk_count = run.chunk_count;
                self.release(&mut run, chunk_count, &mut budget);
                self.plans.plans[index as usize].runs[at] = run;
                if budget == 0 {
                    return;
                }
            }
            self.plans.finish_dropping(index);
        }
    }

    /// Unpins up to `surplus` chunks of the run from its deepest on, within the budget.
    fn release(&mut self, run: &mut Run, surplus: u32, budget: &mut usize) {
        for _ in 0..surplus {
            if *budget == 0 {
                return;
            }
            *budget -= 1;
            let deepest = run.deepest;
            let above = self.chunks.at(deepest).parent;
            run.chunk_count -= 1;
            let is_on_disk_only = !self.is_resident(deepest, Tier::Host);
            run.disk_count = run.disk_count.saturating_sub(u32::from(is_on_disk_only));
            run.disk_count = run.disk_count.min(run.chunk_count);
            if run.chunk_count == 0 {
                *run = Run::EMPTY;
            } else {
                run.deepest = above;
            }
            self.unpin(deepest);
        }
    }
}

impl Run {
    fn join(&mut self, index: ChunkIndex, growth: Growth) {
        if self.chunk_count == 0 || growth == Growth::Shallower {
            self.first = index;
        }
        if self.chunk_count == 0 || growth == Growth::Deeper {
            self.deepest = index;
        }
        self.chunk_count += 1;
    }
}
