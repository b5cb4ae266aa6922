//! Pins, losses and eviction: how a chunk leaves the host tier, and which leaves next.
//!
//! Order of victims in a group: orphans (chunks below a lost parent, which no lookup can reach),
//! leaf before root; then the policy's order. In a full group a chunk with descendants is passed
//! over: it is set aside and becomes the next victim once they are gone, which is where strict
//! recency would put it, since it was used before all that is still ranked. (Only chunks that come
//! back because of losses can be several at a time; the last of them to come back leaves first.)
//!
//! Work is bounded: one call looks at no more than [`STEP_COUNT_MAX`] chunks and says when it
//! stopped early.

use super::chunk::{ChunkIndex, Presence};
use super::slot::{Released, SlotState};
use super::{Core, GroupState, MissReason, Refused, StoreRequest};
use crate::layout::Attention;
use crate::units::GroupIndex;

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

impl GroupState {
    /// Whether eviction must spare a chunk that has descendants.
    pub(super) fn spares_ancestors(&self) -> bool {
        matches!(self.attention, Attention::Full)
    }
}

impl Core {
    /// Evicts until `slot_count` slots of `group` are free, in one bounded step: for watermarks.
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
            let free = self.groups[at].slots.counts().free;
            if free >= slot_count {
                return Room::Ready;
            }
            match self.evict_one(at, &mut steps) {
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

    /// Evicts the next victim of the group.
    pub(super) fn evict_one(&mut self, at: usize, steps: &mut u32) -> Eviction {
        match self.evict_orphan(at, steps) {
            Eviction::Nothing => self.evict_ranked(at, steps),
            ended => ended,
        }
    }

    fn evict_ranked(&mut self, at: usize, steps: &mut u32) -> Eviction {
        loop {
            if *steps == 0 {
                return Eviction::OutOfSteps;
            }
            let group = &mut self.groups[at];
            let Some(slot) = group.policy.pop_victim() else {
                return Eviction::Nothing;
            };
            *steps -= 1;
            let victim = group.slots.chunk(slot);
            let has_children = !self.chunks.at(victim).children.is_empty();
            if victim == self.protected || (has_children && group.spares_ancestors()) {
                self.chunks.at_mut(victim).is_set_aside = true;
                continue;
            }
            self.counters.evicted += 1;
            self.leave(victim, MissReason::Evicted);
            return Eviction::Freed;
        }
    }

    /// Evicts the deepest descendant of the oldest orphaned parent.
    fn evict_orphan(&mut self, at: usize, steps: &mut u32) -> Eviction {
        let group = &self.groups[at];
        let Some(parent) = self.chunks.members(group.orphaned).next() else {
            return Eviction::Nothing;
        };
        let mut leaf = group.orphan_cursor.some().unwrap_or(parent);
        loop {
            if *steps == 0 {
                self.groups[at].orphan_cursor = leaf;
                return Eviction::OutOfSteps;
            }
            *steps -= 1;
            let Some(child) = self.chunks.first_child(leaf) else {
                break;
            };
            leaf = child;
        }
        let record = *self.chunks.at(leaf);
        let unread = SlotState::Resident { readers: 0 };
        let may_leave = record.presence == Presence::Here
            && self.groups[at].slots.state(record.slot) == unread
            && leaf != self.protected;
        if !may_leave {
            // Pinned or in flight: look at another orphan next time, and at the ranking now.
            self.groups[at].orphan_cursor = ChunkIndex::NONE;
            let orphaned = &mut self.groups[at].orphaned;
            self.chunks.unorphan(orphaned, parent);
            self.chunks.orphan(orphaned, parent);
            return Eviction::Nothing;
        }
        self.counters.evicted += 1;
        self.leave(leaf, MissReason::Evicted);
        let above = record.parent;
        let goes_on =
            above.some().is_some_and(|above| self.chunks.at(above).presence == Presence::Here);
        self.groups[at].orphan_cursor = if goes_on { above } else { ChunkIndex::NONE };
        Eviction::Freed
    }

    /// Adds a reader to a resident chunk.
    pub(super) fn pin(&mut self, index: ChunkIndex) {
        let chunk = self.chunks.at_mut(index);
        let group = &mut self.groups[usize::from(chunk.group.get())];
        if group.slots.add_reader(chunk.slot) && !std::mem::take(&mut chunk.is_set_aside) {
            group.policy.unrank(chunk.slot);
        }
    }

    /// Removes a reader. An unread chunk is ranked as just used; a drained one is forgotten.
    pub(super) fn unpin(&mut self, index: ChunkIndex) {
        let chunk = self.chunks.at_mut(index);
        let group = &mut self.groups[usize::from(chunk.group.get())];
        match group.slots.remove_reader(chunk.slot) {
            Released::StillRead => {}
            Released::Unread => group.policy.rank(chunk.slot),
            Released::Freed => {
                chunk.presence = Presence::Gone;
                chunk.parent = ChunkIndex::NONE;
                let is_orphaned = group.spares_ancestors() && !chunk.children.is_empty();
                if !is_orphaned {
                    self.retire(index);
                }
            }
        }
    }

    /// Drops a chunk whose bytes are not what was stored, or never came.
    pub(super) fn lose(&mut self, index: ChunkIndex, reason: MissReason) {
        if self.chunks.at(index).presence == Presence::Here {
            self.counters.lost += 1;
            self.leave(index, reason);
        }
    }

    /// Takes a chunk out of the host tier, as soon as its readers are gone.
    pub(super) fn leave(&mut self, index: ChunkIndex, reason: MissReason) {
        let chunk = self.chunks.at_mut(index);
        assert_eq!(chunk.presence, Presence::Here, "only a chunk that is here can leave");
        let (parent, slot, at) = (chunk.parent, chunk.slot, usize::from(chunk.group.get()));
        let group = &mut self.groups[at];
        if group.policy.is_ranked(slot) {
            group.policy.unrank(slot);
        }
        let is_free = group.slots.close(slot);
        chunk.is_set_aside = false;
        chunk.is_joined = false;
        chunk.reason = reason;
        chunk.presence = if is_free { Presence::Gone } else { Presence::Draining };
        if is_free {
            chunk.parent = ChunkIndex::NONE;
        }
        if let Some(parent) = parent.some() {
            self.chunks.disown(parent, index);
            self.child_left(at, parent);
        }
        let group = &mut self.groups[at];
        if group.orphan_cursor == index {
            group.orphan_cursor = ChunkIndex::NONE;
        }
        if group.spares_ancestors() && !self.chunks.at(index).children.is_empty() {
            self.chunks.orphan(&mut group.orphaned, index);
        } else if is_free {
            self.retire(index);
        }
    }

    /// Puts a chunk that is gone for good into the history. In a window group its children become
    /// roots, and not before: until its last reader left, a run may have gone on through it.
    fn retire(&mut self, index: ChunkIndex) {
        self.chunks.disown_all(index);
        self.chunks.remember(index);
    }

    /// Lets a parent follow its last child: into the ranking, or into the history.
    fn child_left(&mut self, at: usize, parent: ChunkIndex) {
        let group = &mut self.groups[at];
        let is_linked = self.chunks.is_linked(parent);
        let chunk = self.chunks.at_mut(parent);
        if !chunk.children.is_empty() {
            return;
        }
        match chunk.presence {
            Presence::Here => {
                if std::mem::take(&mut chunk.is_set_aside) {
                    group.policy.rank_next(chunk.slot);
                }
            }
            // Not orphaned: of a window group, or about to come back.
            _ if !is_linked => {}
            Presence::Draining => self.chunks.unorphan(&mut group.orphaned, parent),
            Presence::Gone => {
                self.chunks.unorphan(&mut group.orphaned, parent);
                self.chunks.remember(parent);
            }
            Presence::Vacant => unreachable!("a parent has a record"),
        }
    }

    /// Spares `index` from eviction while a store builds on it; ends an earlier protection.
    pub(super) fn protect(&mut self, index: ChunkIndex) {
        let former = std::mem::replace(&mut self.protected, index);
        if former == index || former == ChunkIndex::NONE {
            return;
        }
        let chunk = self.chunks.at_mut(former);
        let group = &mut self.groups[usize::from(chunk.group.get())];
        let stays_aside = group.spares_ancestors() && !chunk.children.is_empty();
        if chunk.is_set_aside && !stays_aside {
            chunk.is_set_aside = false;
            group.policy.rank_next(chunk.slot);
        }
    }
}
