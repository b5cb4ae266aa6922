//! What plans and lookups do to the [`Model`].

use crate::model::{Model, Owner, Plan, Presence};
use kvtide::core::{GroupKeys, MissReason, PlanId, Probe, Refused};
use kvtide::key::Key;
use kvtide::layout::Attention;
use kvtide::units::{GroupIndex, Timestamp};
use std::collections::HashSet;

/// Pins that one step releases.
const RELEASE_COUNT_MAX: usize = 64;

/// Which end of a run grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Growth {
    Deeper,
    Shallower,
}

impl Model {
    /// What opening a plan answers, but for its name.
    pub(crate) fn may_open_plan(&self) -> Result<(), Refused> {
        let plan_count_max = self.plan_count_max;
        if self.plans.len() + self.dropping.len() == plan_count_max {
            return Err(Refused::PlansExhausted { plan_count_max });
        }
        Ok(())
    }

    pub(crate) fn open_plan(&mut self, id: PlanId, now: Timestamp) {
        let lease_end = now.after(self.lease_ns);
        self.plans.push(Plan { id, lease_end, runs: vec![Vec::new(); self.groups.len()] });
    }

    fn plan_at(&self, id: PlanId) -> Result<usize, Refused> {
        self.plans.iter().position(|plan| plan.id == id).ok_or(Refused::PlanLapsed)
    }

    pub(crate) fn renew_plan(&mut self, id: PlanId, now: Timestamp) -> Result<(), Refused> {
        let at = self.plan_at(id)?;
        let mut plan = self.plans.remove(at);
        plan.lease_end = now.after(self.lease_ns);
        self.plans.push(plan);
        Ok(())
    }

    pub(crate) fn extend_plan(
        &mut self,
        id: PlanId,
        group: GroupIndex,
        keys: &[Key],
        growth: Growth,
    ) -> Result<Probe, Refused> {
        let group = self.check_keys(group, keys)?;
        let at = self.plan_at(id)?;
        let mut probe = Probe { hit_count: 0, disk_hit_count: 0, miss: None };
        for key in keys {
            self.counters.probes += 1;
            if let Err(reason) = self.admit(at, group, *key, growth) {
                self.counters.misses += 1;
                probe.miss = Some(reason);
                break;
            }
            self.counters.hits += 1;
            self.counters.host_hits += 1;
            probe.hit_count += 1;
            self.pin(*key, Owner::Plan(id));
            let run = &mut self.plans[at].runs[group];
            let place = if growth == Growth::Deeper { run.len() } else { 0 };
            run.insert(place, *key);
        }
        Ok(probe)
    }

    /// Decides whether a key continues the plan's run.
    fn admit(
        &mut self,
        at: usize,
        group: usize,
        key: Key,
        growth: Growth,
    ) -> Result<(), MissReason> {
        if self.chunks.get(&key).is_some_and(|chunk| chunk.group != group) {
            return Err(MissReason::ForeignParent);
        }
        if let Some(reason) = self.peek(key) {
            return Err(reason);
        }
        let run = &self.plans[at].runs[group];
        let end = if growth == Growth::Deeper { run.last() } else { run.first() };
        let Some(end) = end.copied() else {
            return Ok(());
        };
        if self.chunk(end).presence == Presence::Draining {
            return Err(self.chunk(end).reason);
        }
        let (parent, child) = if growth == Growth::Deeper { (end, key) } else { (key, end) };
        match self.chunk(child).parent {
            Some(known) if known == parent => Ok(()),
            None if !self.groups[group].is_full && parent != child => {
                self.adopt(parent, child);
                Ok(())
            }
            _ => Err(MissReason::ForeignParent),
        }
    }

    pub(crate) fn trim_plan(
        &mut self,
        id: PlanId,
        group: GroupIndex,
        chunk_count: usize,
    ) -> Result<bool, Refused> {
        let group_count = self.groups.len();
        let at = usize::from(group.get());
        if at >= group_count {
            return Err(Refused::NoSuchGroup { group, group_count });
        }
        let plan = self.plan_at(id)?;
        for _ in 0..RELEASE_COUNT_MAX {
            if self.plans[plan].runs[at].len() <= chunk_count {
                break;
            }
            let deepest = self.plans[plan].runs[at].pop().expect("it is longer");
            self.unpin(deepest, Owner::Plan(id));
        }
        Ok(self.plans[plan].runs[at].len() <= chunk_count)
    }

    pub(crate) fn drop_plan(&mut self, id: PlanId) {
        if let Ok(at) = self.plan_at(id) {
            let plan = self.plans.remove(at);
            self.dropping.push_back(plan);
            self.release_dropped();
        }
    }

    pub(crate) fn lapse_plans(&mut self, now: Timestamp) {
        while self.plans.first().is_some_and(|plan| plan.lease_end <= now) {
            self.counters.lapsed += 1;
            let plan = self.plans.remove(0);
            self.dropping.push_back(plan);
        }
    }

    /// Releases pins of dropped plans, group by group, from the deepest chunk on.
    pub(crate) fn release_dropped(&mut self) {
        let mut budget = RELEASE_COUNT_MAX;
        while let Some(plan) = self.dropping.front_mut() {
            let id = plan.id;
            let Some(run) = plan.runs.iter_mut().find(|run| !run.is_empty()) else {
                self.dropping.pop_front();
                continue;
            };
            let deepest = run.pop().expect("it is not empty");
            self.unpin(deepest, Owner::Plan(id));
            budget -= 1;
            if budget == 0 {
                return;
            }
        }
    }

    pub(crate) fn is_open(&self, id: PlanId) -> bool {
        self.plan_at(id).is_ok()
    }

    /// The chunks that a plan holds in a group.
    pub(crate) fn run_of(&self, id: PlanId, group: usize) -> Vec<Key> {
        self.plan_at(id).map_or(Vec::new(), |at| self.plans[at].runs[group].clone())
    }

    /// The longest prefix over all groups, by its definition.
    pub(crate) fn longest_prefix(&self, groups: &[GroupKeys<'_>], unit: u32) -> u32 {
        let is_held = |boundary: u32| {
            groups.iter().enumerate().all(|(at, group)| {
                let needed = needed_chunks(group, boundary);
                needed.end <= group.keys.len() && self.is_chain(at, &group.keys[needed])
            })
        };
        let longest =
            groups[0].chunk_tokens.get() * u32::try_from(groups[0].keys.len()).expect("short");
        (0..=longest / unit).map(|units| units * unit).rev().find(|end| is_held(*end)).unwrap_or(0)
    }

    /// Whether the keys are resident and each is the parent of the next, as far as is known.
    fn is_chain(&self, group: usize, keys: &[Key]) -> bool {
        let are_resident = keys.iter().all(|key| self.peek(*key).is_none());
        are_resident
            && keys.windows(2).all(|pair| {
                let known = self.chunk(pair[1]).parent;
                known == Some(pair[0]) || (known.is_none() && !self.groups[group].is_full)
            })
    }

    /// The longest prefix over all groups, in the steps that a lookup takes: full groups from the
    /// root until the first miss, then window groups from the boundary towards the root; whenever
    /// the boundary falls, all groups are cut back to it, full ones first. Returns the boundary
    /// and the chunks that each group holds.
    pub(crate) fn lookup(
        &mut self,
        id: PlanId,
        groups: &[GroupKeys<'_>],
        unit: u32,
    ) -> (u32, Vec<std::ops::Range<usize>>) {
        let tokens = |group: &GroupKeys<'_>| {
            u32::try_from(group.keys.len()).expect("short") * group.chunk_tokens.get()
        };
        let mut boundary = groups.iter().map(tokens).min().expect("a group");
        boundary -= boundary % unit;
        let mut held: Vec<std::ops::Range<usize>> = vec![0..0; groups.len()];
        let mut probed: Vec<HashSet<usize>> = vec![HashSet::new(); groups.len()];
        let is_window = |at: &usize| matches!(groups[*at].attention, Attention::Window { .. });
        let (windows, full): (Vec<usize>, Vec<usize>) = (0..groups.len()).partition(is_window);
        'again: loop {
            for at in full.iter().chain(&windows).copied() {
                let wanted = needed_chunks(&groups[at], boundary);
                let index = GroupIndex::new(u8::try_from(at).expect("8 at most"));
                if held[at].end > wanted.end && !held[at].is_empty() {
                    let kept = wanted.end.max(held[at].start);
                    self.trim_plan(id, index, kept - held[at].start).expect("the plan is open");
                    held[at].end = kept;
                    continue 'again;
                }
                if is_window(&at) && held[at].is_empty() {
                    held[at] = wanted.end..wanted.end;
                }
                let growth = if is_window(&at) { Growth::Shallower } else { Growth::Deeper };
                let next = match growth {
                    Growth::Deeper if held[at].end < wanted.end => held[at].end,
                    Growth::Shallower if held[at].start > wanted.start => held[at].start - 1,
                    _ => continue,
                };
                assert!(probed[at].insert(next), "each key is probed at most once");
                let key = [groups[at].keys[next]];
                let probe = self.extend_plan(id, index, &key, growth).expect("the plan is open");
                if probe.miss.is_some() {
                    let tokens =
                        u32::try_from(next).expect("short") * groups[at].chunk_tokens.get();
                    boundary = boundary.min(tokens - tokens % unit);
                    continue 'again;
                }
                match growth {
                    Growth::Deeper => held[at].end += 1,
                    Growth::Shallower => held[at].start -= 1,
                }
                continue 'again;
            }
            return (boundary, held);
        }
    }
}

/// The chunks of a group that a prefix of `boundary` tokens needs.
pub(crate) fn needed_chunks(group: &GroupKeys<'_>, boundary: u32) -> std::ops::Range<usize> {
    let chunk_tokens = group.chunk_tokens.get();
    let start = match group.attention {
        Attention::Full => 0,
        Attention::Window { tokens } => boundary.saturating_sub(tokens.get()) / chunk_tokens,
    };
    start as usize..(boundary / chunk_tokens) as usize
}
