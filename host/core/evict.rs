//! Eviction: which copy leaves a tier next.
//!
//! Order of victims in a group and tier: orphans (chunks below a lost parent, which no lookup can
//! reach), leaf before root; then the policy's order. In a full group a chunk with descendants is
//! passed over: it is set aside and becomes the next victim once they are gone, which is where
//! strict recency would put it, since it was used before all that is still ranked. (Only chunks
//! that come back because of losses can be several at a time; the last of them to come back leaves
//! first.)
//!
//! Work is bounded: one call looks at no more than [`STEP_COUNT_MAX`] chunks and says when it
//! stopped early.

use super::chunk::ChunkIndex;
use super::slot::SlotState;
use super::tier::Tier;
use super::{Core, MissReason, Refused, StoreRequest};
use crate::units::{GroupIndex, SlotIndex};

/// Chunks that one search for victims looks at before it gives the lock back.
const STEP_COUNT_MAX: u32 = 256;

/// What [`Core::make_room`] and [`Core::make_room_for`] reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// As many slots as asked for are free.
    Ready,
    /// The step ended early: unlock, and call again.
    MoreWork,
    /// Nothing else can be evicted now; `free` slots are all there is.
    Exhausted {
        /// Slots that are free.
        free: u32,
    },
}

/// How one search for a victim ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Eviction {
    /// A slot became free.
    Freed,
    /// Every chunk is pinned, in flight or has descendants that are.
    Nothing,
    /// The search was cut short.
    OutOfSteps,
}

impl Core {
    /// Evicts until `slot_count` host slots of `group` are free, in one bounded step: for
    /// watermarks.
    ///
    /// # Errors
    ///
    /// [`Refused::NoSuchGroup`] and [`Refused::Poisoned`].
    pub fn make_room(&mut self, group: GroupIndex, slot_count: u32) -> Result<Room, Refused> {
        self.guarded(|core| {
            let at = core.group_position(group)?;
            Ok(core.evict_until(at, slot_count))
        })
    }

    /// Evicts what a store of `request` would have to, sparing the chunk that it builds on, in
    /// one bounded step.
    ///
    /// A store evicts by itself; calling this first, until it no longer answers
    /// [`Room::MoreWork`], keeps each hold of the lock short when long prefixes have to leave.
    ///
    /// # Errors
    ///
    /// As [`Core::store`].
    pub fn make_room_for(&mut self, request: StoreRequest<'_>) -> Result<Room, Refused> {
        self.guarded(|core| {
            let at = core.group_position(request.group)?;
            Refused::check_keys(request.keys)?;
            let Ok(parent) = core.resolve_parent(at, request.parent) else {
                // The store will be refused for want of its parent: nothing to make room for.
                return Ok(Room::Ready);
            };
            let need = core.slot_need(request.keys);
            core.protect(need.deepest_here.unwrap_or(parent));
            let room = core.evict_until(at, need.slot_count);
            core.protect(ChunkIndex::NONE);
            Ok(room)
        })
    }

    fn evict_until(&mut self, at: usize, slot_count: u32) -> Room {
        let mut steps = STEP_COUNT_MAX;
        loop {
            let free = self.groups[at].tier(Tier::Host).slots.counts().free;
            if free >= slot_count {
                return Room::Ready;
            }
            match self.evict_one(at, Tier::Host, &mut steps) {
                Eviction::Freed => {}
                Eviction::Nothing => return Room::Exhausted { free },
                Eviction::OutOfSteps => return Room::MoreWork,
            }
        }
    }

    /// Steps that a command may spend on finding victims.
    pub(super) const fn steps() -> u32 {
        STEP_COUNT_MAX
    }

    /// Frees a slot of the tier by evicting the next victim of the group.
    pub(super) fn evict_one(&mut self, at: usize, tier: Tier, steps: &mut u32) -> Eviction {
        match self.evict_stale(at, tier, steps) {
            Eviction::Nothing => {}
            ended => return ended,
        }
        match self.evict_orphan(at, tier, steps) {
            Eviction::Nothing => {}
            ended => return ended,
        }
        match self.evict_ranked(at, tier, steps) {
            Eviction::Nothing if tier == Tier::Host => self.evict_unwritten(at, steps),
            ended => ended,
        }
    }

    /// Evicts, when nothing else can leave host memory, a chunk that cannot be written although its
    /// descendants were: that may orphan them, as any failed write may. Without it such chunks
    /// could take all of host memory, and nothing on disk could be loaded any more.
    ///
    /// Looks at a few slots a call, and goes on from there the next time.
    fn evict_unwritten(&mut self, at: usize, steps: &mut u32) -> Eviction {
        if self.groups[at].tier(Tier::Disk).slots.capacity() == 0 {
            return Eviction::Nothing;
        }
        let slot_count = self.groups[at].tier(Tier::Host).slots.capacity();
        for _ in 0..slot_count.min(*steps) {
            *steps -= 1;
            let slot = SlotIndex::new(self.groups[at].unwritten_cursor);
            self.groups[at].unwritten_cursor = (slot.get() + 1) % slot_count;
            let slots = &self.groups[at].tier(Tier::Host).slots;
            let index = slots.chunk(slot);
            let is_resident = matches!(slots.state(slot), SlotState::Resident { readers: 0 });
            if !is_resident || !self.chunks.at(index).is_set_aside[Tier::Host.number()] {
                continue;
            }
            if self.is_unwritable(index) {
                self.lose(index, MissReason::Lost);
                return Eviction::Freed;
            }
            // Perhaps the queue was full when its turn came.
            if !self.write_queue.is_full() {
                self.set_aside(index, Tier::Host);
            }
        }
        Eviction::Nothing
    }

    /// Whether a chunk was passed over for descendants that are on disk only, and cannot be
    /// written itself.
    fn is_unwritable(&self, index: ChunkIndex) -> bool {
        let chunk = self.chunks.at(index);
        let is_child_on_disk = self
            .chunks
            .first_child(index)
            .is_some_and(|child| self.copy(child, Tier::Host).is_none());
        (chunk.write.has_failed || !self.writes(chunk.at()))
            && is_child_on_disk
            && index != self.protected
    }

    fn evict_ranked(&mut self, at: usize, tier: Tier, steps: &mut u32) -> Eviction {
        loop {
            if *steps == 0 {
                return Eviction::OutOfSteps;
            }
            let state = self.groups[at].tier_mut(tier);
            let Some(slot) = state.policy.pop_victim() else {
                return Eviction::Nothing;
            };
            *steps -= 1;
            let victim = state.slots.chunk(slot);
            if self.is_resident(victim, Tier::Disk) && !self.is_disk_readable(victim) {
                // What it has on disk is none: it comes back as the next victim without it.
                self.chunks.at_mut(victim).is_set_aside[tier.number()] = true;
                self.lose_disk_copy(victim);
                continue;
            }
            if self.is_resident(victim, tier.other()) {
                self.evict_copy(victim, tier);
                return Eviction::Freed;
            }
            if victim == self.protected || self.must_stay(victim, tier) {
                self.set_aside(victim, tier);
                continue;
            }
            self.counters.evicted += 1;
            self.leave(victim, MissReason::Evicted);
            return Eviction::Freed;
        }
    }

    /// Passes a chunk over that must stay. Once it is on disk it may leave host memory.
    fn set_aside(&mut self, index: ChunkIndex, tier: Tier) {
        self.chunks.at_mut(index).is_set_aside[tier.number()] = true;
        if tier == Tier::Host && !self.chunks.at(index).write.has_failed {
            self.wish(index);
        }
    }

    /// Evicts the deepest descendant of the oldest orphaned parent, from every tier, if the tier
    /// has a copy of it.
    fn evict_orphan(&mut self, at: usize, tier: Tier, steps: &mut u32) -> Eviction {
        let group = &self.groups[at];
        let Some(parent) = self.chunks.members(group.orphaned).next() else {
            return Eviction::Nothing;
        };
        let mut leaf = group.tier(tier).orphan_cursor.some().unwrap_or(parent);
        loop {
            if *steps == 0 {
                self.groups[at].tier_mut(tier).orphan_cursor = leaf;
                return Eviction::OutOfSteps;
            }
            *steps -= 1;
            let Some(child) = self.chunks.first_child(leaf) else {
                break;
            };
            leaf = child;
        }
        if !self.may_vanish(leaf, tier) {
            // Pinned, in flight or in the other tier: look at another orphan next time, and at the
            // ranking now.
            let group = &mut self.groups[at];
            group.tier_mut(tier).orphan_cursor = ChunkIndex::NONE;
            self.chunks.unorphan(&mut group.orphaned, parent);
            self.chunks.orphan(&mut group.orphaned, parent);
            return Eviction::Nothing;
        }
        self.counters.evicted += 1;
        let above = self.chunks.at(leaf).parent;
        self.leave(leaf, MissReason::Evicted);
        let goes_on = above.some().is_some_and(|above| self.chunks.at(above).presence.is_here());
        self.groups[at].tier_mut(tier).orphan_cursor =
            if goes_on { above } else { ChunkIndex::NONE };
        Eviction::Freed
    }

    /// Whether an orphan may leave every tier at once, and frees a slot of this one.
    fn may_vanish(&self, index: ChunkIndex, tier: Tier) -> bool {
        let chunk = self.chunks.at(index);
        let is_free = |tier: &Tier| chunk.slot(*tier).is_none() || self.may_leave(index, *tier);
        index != self.protected
            && chunk.pins == 0
            && chunk.slot(tier).is_some()
            && Tier::BOTH.iter().all(is_free)
    }
}
