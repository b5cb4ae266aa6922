//! The core's invariants as one executable check.
//!
//! Costs time in proportion to all tables: for tests after every step, and for an operator who
//! wants to know at the end of a run.

use super::Core;
use super::chunk::{Chunk, ChunkIndex, Presence};
use super::slot::SlotState;
use super::tier::{GroupState, Tier};
use crate::units::SlotIndex;
use thiserror::Error;

mod hops;

/// An invariant of the core that does not hold, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{promise} (at {place} {number})")]
pub struct Violation {
    /// What should hold.
    pub promise: &'static str,
    /// The table in which it does not.
    pub place: &'static str,
    /// The record's number.
    pub number: u32,
}

/// Returns a violation unless the promise holds.
fn hold(holds: bool, promise: &'static str, place: &'static str, number: u32) -> Audit {
    if holds { Ok(()) } else { Err(Violation { promise, place, number }) }
}

type Audit = Result<(), Violation>;

impl Core {
    /// Checks every invariant of every table.
    ///
    /// # Errors
    ///
    /// The first [`Violation`] found.
    pub fn audit(&self) -> Result<(), Violation> {
        let counters = self.counters;
        let probes_add_up = counters.hits + counters.misses == counters.probes
            && counters.host_hits + counters.disk_hits == counters.hits;
        hold(probes_add_up, "hits of both tiers + misses = keys probed", "counters", 0)?;
        for (at, group) in (0..).zip(&self.groups) {
            for tier in Tier::BOTH {
                self.audit_slots(at, group, tier)?;
            }
        }
        self.audit_holds()?;
        self.audit_chunks()?;
        self.audit_writes()?;
        self.audit_transfers()
    }

    fn audit_slots(&self, at: u32, group: &GroupState, tier: Tier) -> Audit {
        let slots = &group.tier(tier).slots;
        let mut end = 0;
        for stripe in 0..slots.stripe_count() {
            hold(slots.stripe(stripe).start == end, "stripes leave no gap", "group", at)?;
            end = slots.stripe(stripe).end;
            self.audit_stripe(at, group, tier, stripe)?;
        }
        hold(end == slots.capacity(), "every slot is of a stripe", "group", at)?;
        let counts = slots.counts();
        let adds_up = counts.used + counts.free + counts.unscanned == slots.capacity();
        hold(adds_up, "used + free + unscanned = capacity", "group", at)
    }

    fn audit_stripe(&self, at: u32, group: &GroupState, tier: Tier, stripe: usize) -> Audit {
        let slots = &group.tier(tier).slots;
        let counts = slots.stripe_counts(stripe);
        let is_over = |number| {
            let lost =
                group.stripes.get(stripe).filter(|stripe| tier == Tier::Disk && stripe.is_lost);
            lost.is_some_and(|stripe| number < stripe.lost_until)
        };
        let (mut used, mut unscanned, mut free) = (0, 0, 0);
        for number in slots.stripe(stripe) {
            let slot = SlotIndex::new(number);
            let state = slots.state(slot);
            if let SlotState::Free { .. } | SlotState::Unscanned | SlotState::Stuck = state {
                let is_ranked = group.tier(tier).policy.is_ranked(slot);
                hold(!is_ranked, "only slots of chunks are ranked", "slot", number)?;
                unscanned += u32::from(state == SlotState::Unscanned);
                used += u32::from(state == SlotState::Stuck);
                free += u32::from(matches!(state, SlotState::Free { .. }));
                continue;
            }
            used += 1;
            let is_resident = matches!(state, SlotState::Resident { .. });
            hold(!is_resident || !is_over(number), "what is lost is given up", "slot", number)?;
            let index = slots.chunk(slot);
            let chunk = self.chunks.at(index);
            let is_owner = chunk.slot(tier) == Some(slot) && u32::from(chunk.group.get()) == at;
            hold(is_owner, "a used slot has one owner", "slot", number)?;
            self.audit_rank(index, tier, slot)?;
        }
        hold(counts.used == used, "used slots are counted", "group", at)?;
        hold(counts.free == free, "free slots are counted", "group", at)?;
        hold(counts.unscanned == unscanned, "unscanned slots are counted", "group", at)
    }

    /// Checks that a copy is ranked or set aside exactly when it may leave.
    fn audit_rank(&self, index: ChunkIndex, tier: Tier, slot: SlotIndex) -> Audit {
        let number = slot.get();
        let chunk = self.chunks.at(index);
        let state = self.copy(index, tier);
        let fits = match chunk.presence {
            Presence::Here => true,
            Presence::Draining => !matches!(state, Some(SlotState::Resident { .. })),
            Presence::Gone | Presence::Vacant => false,
        };
        hold(fits, "chunk and slot agree", "slot", number)?;
        let is_ranked = self.groups[chunk.at()].tier(tier).policy.is_ranked(slot);
        let is_set_aside = chunk.is_set_aside[tier.number()];
        let is_filled_beside = self.copy(index, tier.other()) == Some(SlotState::Filling);
        let is_written = is_filled_beside && tier == Tier::Host;
        let is_unread = state == Some(SlotState::Resident { readers: u32::from(is_written) });
        let is_last = !self.is_resident(index, tier.other());
        let may_leave = chunk.presence == Presence::Here
            && is_unread
            && is_filled_beside == is_written
            && (chunk.pins == 0 || !is_last);
        hold(
            (is_ranked || is_set_aside) == may_leave && !(is_ranked && is_set_aside),
            "exactly the copies that may leave are ranked or set aside",
            "slot",
            number,
        )?;
        let spares = self.groups[chunk.at()].spares_ancestors();
        let waits_for_children = spares && !chunk.children.is_empty() && is_last;
        hold(
            !is_set_aside || waits_for_children || is_written,
            "only what is written and the last copy of a chunk with descendants are set aside",
            "slot",
            number,
        )
    }

    fn audit_chunks(&self) -> Audit {
        let mut named = 0;
        let mut remembered = 0;
        for (number, chunk) in (0..).zip(self.chunks.records()) {
            let index = ChunkIndex::new(number);
            if chunk.presence == Presence::Vacant {
                continue;
            }
            let found = self.index.find(chunk.key, self.chunks.records());
            let is_found = found == Some(index);
            named += u32::from(chunk.is_named);
            hold(is_found == chunk.is_named, "the index names a record or not", "chunk", number)?;
            let is_swept = !self.is_sweeping() && chunk.presence == Presence::Here;
            let is_new = chunk.epoch == self.epoch;
            hold(is_new || !is_swept, "a sweep leaves the current epoch only", "chunk", number)?;
            self.audit_copies(index, chunk)?;
            self.audit_family(index, chunk)?;
            let is_history = chunk.presence == Presence::Gone && chunk.children.is_empty();
            remembered += u32::from(is_history);
        }
        hold(self.index.length() == named, "the index names nothing else", "index", 0)?;
        for index in self.chunks.history() {
            let chunk = self.chunks.at(index);
            let belongs = chunk.presence == Presence::Gone && chunk.children.is_empty();
            hold(belongs, "history holds gone chunks", "chunk", index.to_u32())?;
            remembered = remembered.wrapping_sub(1);
        }
        hold(remembered == 0, "every gone chunk without children is history", "index", 0)?;
        for (at, group) in (0..).zip(&self.groups) {
            let is_sole = |chunk: &&Chunk| chunk.is_sole_pinned && chunk.at() == at as usize;
            let sole_pinned = self.chunks.records().iter().filter(is_sole).count();
            let is_counted = group.sole_pinned as usize == sole_pinned;
            hold(is_counted, "sole pinned copies are counted", "group", at)?;
            for index in self.chunks.members(group.orphaned) {
                let chunk = self.chunks.at(index);
                let belongs = chunk.presence != Presence::Here && !chunk.children.is_empty();
                hold(belongs, "orphaned parents are gone", "chunk", index.to_u32())?;
            }
        }
        Ok(())
    }

    /// Checks that a chunk has the copies that its presence says.
    fn audit_copies(&self, index: ChunkIndex, chunk: &Chunk) -> Audit {
        let number = index.to_u32();
        let copies = Tier::BOTH.map(|tier| self.copy(index, tier));
        let has_copy = copies
            .iter()
            .flatten()
            .any(|state| matches!(state, SlotState::Filling | SlotState::Resident { .. }));
        let fits = match chunk.presence {
            Presence::Here => has_copy,
            Presence::Draining => chunk.pins > 0 || copies.iter().any(Option::is_some),
            Presence::Gone => copies == [None, None] && chunk.pins == 0,
            Presence::Vacant => false,
        };
        hold(fits, "a chunk has the copies that its presence says", "chunk", number)?;
        let is_sole = chunk.presence == Presence::Here
            && chunk.pins > 0
            && self.is_resident(index, Tier::Host)
            && !self.is_resident(index, Tier::Disk);
        hold(chunk.is_sole_pinned == is_sole, "sole pinned copies are marked", "chunk", number)
    }

    fn audit_family(&self, index: ChunkIndex, chunk: &Chunk) -> Audit {
        let number = index.to_u32();
        let group = &self.groups[usize::from(chunk.group.get())];
        for child in self.chunks.members(chunk.children) {
            let child_chunk = self.chunks.at(child);
            let belongs = child_chunk.parent == index
                && child_chunk.presence == Presence::Here
                && child_chunk.group == chunk.group;
            hold(belongs, "children are here and know their parent", "chunk", child.to_u32())?;
            let is_deeper = child_chunk.depth == self.chunks.depth_below(index);
            hold(
                is_deeper || !group.spares_ancestors(),
                "a child is one deeper than its parent",
                "chunk",
                child.to_u32(),
            )?;
        }
        let is_child = chunk.presence == Presence::Here && chunk.parent != ChunkIndex::NONE;
        let has_children = !chunk.children.is_empty();
        let is_orphaned =
            group.spares_ancestors() && chunk.presence != Presence::Here && has_children;
        let is_history = chunk.presence == Presence::Gone && !has_children;
        hold(
            self.chunks.is_linked(index) == (is_child || is_orphaned || is_history),
            "a chunk is in the list that its state says",
            "chunk",
            number,
        )?;
        hold(
            group.spares_ancestors() || chunk.presence != Presence::Gone || !has_children,
            "a window group keeps no children of gone chunks",
            "chunk",
            number,
        )
    }
}
