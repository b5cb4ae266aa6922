//! Pins, copies and losses: which copies may leave, and how a chunk leaves altogether.
//!
//! One rule says which copies are ranked for eviction: a copy *may leave* when it is resident, no
//! hop but its own write uses it, no hop fills host memory beside it, and its chunk is unpinned or
//! has another resident copy. [`Core::settle`] brings the ranks of a chunk in line with it after
//! every change. What is ranked and turns out to have to stay when its turn comes (it is being
//! written, or the last copy of a chunk with descendants in a full group) is set aside, and comes
//! back as the next victim once it need not stay any more.
//!
//! Invariants: pins and readers never go below zero; a chunk that is pinned or moved by a hop keeps
//! its slots; a chunk without copies is gone once nothing holds it.
//!
//! Called by the commands and completions of `core`.

use super::chunk::{ChunkIndex, Presence};
use super::slot::SlotState;
use super::tier::Tier;
use super::{Core, MissReason};
use crate::units::SlotIndex;

impl Core {
    /// Returns what the chunk's slot in a tier is doing.
    pub(super) fn copy(&self, index: ChunkIndex, tier: Tier) -> Option<SlotState> {
        let chunk = self.chunks.at(index);
        let slot = chunk.slot(tier)?;
        Some(self.groups[chunk.at()].tier(tier).slots.state(slot))
    }

    /// Whether the chunk has a copy in the tier that can be read.
    pub(super) fn is_resident(&self, index: ChunkIndex, tier: Tier) -> bool {
        matches!(self.copy(index, tier), Some(SlotState::Resident { .. }))
    }

    /// The chunk's slot in a tier in which it must have one.
    pub(super) fn slot_of(&self, index: ChunkIndex, tier: Tier) -> SlotIndex {
        self.chunks.at(index).slot(tier).expect("who uses a copy keeps its slot")
    }

    /// Whether the chunk's copy may be evicted as far as pins and hops go.
    pub(super) fn may_leave(&self, index: ChunkIndex, tier: Tier) -> bool {
        let chunk = self.chunks.at(index);
        let is_filled_beside = self.copy(index, tier.other()) == Some(SlotState::Filling);
        let is_unused = match tier {
            Tier::Host => self.readers(index, tier) == u32::from(is_filled_beside),
            Tier::Disk => self.readers(index, tier) == 0 && !is_filled_beside,
        };
        chunk.presence == Presence::Here
            && self.is_resident(index, tier)
            && is_unused
            && (chunk.pins == 0 || self.is_resident(index, tier.other()))
    }

    /// Whether a copy whose turn has come must stay: it is being written, or it is the last one of
    /// a chunk that eviction spares for its descendants.
    pub(super) fn must_stay(&self, index: ChunkIndex, tier: Tier) -> bool {
        let chunk = self.chunks.at(index);
        let has_descendants =
            self.groups[chunk.at()].spares_ancestors() && !chunk.children.is_empty();
        let is_written = self.copy(index, tier.other()) == Some(SlotState::Filling);
        is_written || (has_descendants && !self.is_resident(index, tier.other()))
    }

    /// Brings the ranks of the chunk's copies in line with what may leave.
    pub(super) fn settle(&mut self, index: ChunkIndex) {
        for tier in Tier::BOTH {
            let Some(slot) = self.chunks.at(index).slot(tier) else {
                continue;
            };
            let may_leave = self.may_leave(index, tier);
            let must_wait = self.must_stay(index, tier);
            let chunk = self.chunks.at_mut(index);
            let policy = &mut self.groups[chunk.at()].tier_mut(tier).policy;
            let is_set_aside = &mut chunk.is_set_aside[tier.number()];
            let is_ranked = policy.is_ranked(slot);
            match (may_leave, *is_set_aside) {
                (true, false) if !is_ranked => {
                    policy.rank(slot);
                    self.reads.may_begin |= tier == Tier::Host;
                }
                (true, true) if !must_wait => {
                    *is_set_aside = false;
                    policy.rank_next(slot);
                    self.reads.may_begin |= tier == Tier::Host;
                }
                (false, true) => *is_set_aside = false,
                (false, false) if is_ranked => policy.unrank(slot),
                _ => {}
            }
        }
        self.count_sole_pin(index);
    }

    /// Counts the chunk among those whose only readable copy is pinned in host memory, or not.
    fn count_sole_pin(&mut self, index: ChunkIndex) {
        let is_sole = self.chunks.at(index).pins > 0
            && self.chunks.at(index).presence == Presence::Here
            && self.is_resident(index, Tier::Host)
            && !self.is_resident(index, Tier::Disk);
        let chunk = self.chunks.at_mut(index);
        let was_sole = std::mem::replace(&mut chunk.is_sole_pinned, is_sole);
        let group = &mut self.groups[chunk.at()];
        group.sole_pinned += u32::from(is_sole);
        group.sole_pinned -= u32::from(was_sole);
    }

    /// Takes the chunk's copies out of their places in the ranking; [`settle`](Self::settle) puts
    /// those that may leave back as just used.
    fn unplace(&mut self, index: ChunkIndex) {
        let chunk = self.chunks.at_mut(index);
        let group = &mut self.groups[chunk.at()];
        for tier in Tier::BOTH {
            chunk.is_set_aside[tier.number()] = false;
            if let Some(slot) = chunk.slot(tier) {
                let policy = &mut group.tier_mut(tier).policy;
                if policy.is_ranked(slot) {
                    policy.unrank(slot);
                }
            }
        }
    }

    /// Makes the chunk just used in every tier.
    pub(super) fn touch(&mut self, index: ChunkIndex) {
        self.unplace(index);
        self.settle(index);
    }

    /// Keeps a readable chunk from leaving.
    pub(super) fn pin(&mut self, index: ChunkIndex) {
        let chunk = self.chunks.at_mut(index);
        chunk.pins = chunk.pins.checked_add(1).expect("pins are bounded by plans and transfers");
        if chunk.pins == 1 {
            self.settle(index);
        }
    }

    /// Ends a pin, which was a use of the chunk.
    pub(super) fn unpin(&mut self, index: ChunkIndex) {
        let chunk = self.chunks.at_mut(index);
        chunk.pins = chunk.pins.checked_sub(1).expect("a pin ends once");
        if chunk.presence == Presence::Draining {
            self.finish_leaving(index);
        } else {
            self.touch(index);
        }
    }

    /// Hops that use the chunk's copy in a tier.
    pub(super) fn readers(&self, index: ChunkIndex, tier: Tier) -> u32 {
        match self.copy(index, tier) {
            Some(SlotState::Resident { readers } | SlotState::Draining { readers }) => readers,
            _ => 0,
        }
    }

    /// Lets a hop use the chunk's copy in a tier.
    pub(super) fn add_reader(&mut self, index: ChunkIndex, tier: Tier) {
        let slot = self.slot_of(index, tier);
        let at = self.chunks.at(index).at();
        self.groups[at].tier_mut(tier).slots.add_reader(slot);
        self.settle(index);
    }

    /// Ends a hop's use of a copy.
    pub(super) fn remove_reader(&mut self, index: ChunkIndex, tier: Tier) {
        let slot = self.slot_of(index, tier);
        let at = self.chunks.at(index).at();
        self.groups[at].tier_mut(tier).slots.remove_reader(slot);
        if self.chunks.at(index).presence == Presence::Draining {
            self.finish_leaving(index);
        } else {
            self.settle(index);
        }
    }

    /// Drops a chunk whose bytes are not what was stored, or never came.
    pub(super) fn lose(&mut self, index: ChunkIndex, reason: MissReason) {
        if self.chunks.at(index).presence == Presence::Here {
            self.counters.lost += 1;
            self.leave(index, reason);
        }
    }

    /// Frees the slot of a fill that has ended without its bytes.
    pub(super) fn abandon_fill(&mut self, index: ChunkIndex, tier: Tier) {
        assert_eq!(self.copy(index, tier), Some(SlotState::Filling), "a fill ends once");
        self.free_slot(index, tier);
    }

    /// Takes the slot of a fill that was given up from its chunk, and out of use.
    pub(super) fn stick_fill(&mut self, index: ChunkIndex, tier: Tier) {
        let slot = self.slot_of(index, tier);
        let chunk = self.chunks.at_mut(index);
        self.groups[chunk.at()].tier_mut(tier).slots.stick(slot);
        chunk.take_slot(tier);
        chunk.write.has_lost_turn |= tier == Tier::Disk;
    }

    /// Frees the slot of a copy that nobody uses.
    pub(super) fn free_slot(&mut self, index: ChunkIndex, tier: Tier) {
        let slot = self.slot_of(index, tier);
        let chunk = self.chunks.at_mut(index);
        let state = self.groups[chunk.at()].tier_mut(tier);
        if state.policy.is_ranked(slot) {
            state.policy.unrank(slot);
        }
        state.slots.free(slot);
        chunk.is_set_aside[tier.number()] = false;
        chunk.take_slot(tier);
        chunk.write.has_lost_turn |= tier == Tier::Disk;
        self.reads.may_begin |= tier == Tier::Host;
    }

    /// Evicts a copy of a chunk that has another.
    pub(super) fn evict_copy(&mut self, index: ChunkIndex, tier: Tier) {
        match tier {
            Tier::Host => self.counters.host_copies_evicted += 1,
            Tier::Disk => self.counters.disk_copies_evicted += 1,
        }
        self.free_slot(index, tier);
        self.settle(index);
    }

    /// Takes a chunk out of every tier, as soon as nothing holds it.
    pub(super) fn leave(&mut self, index: ChunkIndex, reason: MissReason) {
        self.unplace(index);
        let chunk = self.chunks.at_mut(index);
        assert_eq!(chunk.presence, Presence::Here, "only a chunk that is here can leave");
        chunk.presence = Presence::Draining;
        chunk.reason = reason;
        let (parent, at) = (chunk.parent, chunk.at());
        self.count_sole_pin(index);
        self.drop_write(index);
        for tier in Tier::BOTH {
            if let Some(SlotState::Resident { .. }) = self.copy(index, tier) {
                let slot = self.slot_of(index, tier);
                self.groups[at].tier_mut(tier).slots.close(slot);
            }
        }
        let is_gone = self.free_unheld(index);
        if let Some(parent) = parent.some() {
            self.chunks.disown(parent, index);
            self.child_left(at, parent);
        }
        let group = &mut self.groups[at];
        group.skip_orphan(index);
        if group.spares_ancestors() && !self.chunks.at(index).children.is_empty() {
            self.chunks.orphan(&mut group.orphaned, index);
        } else if is_gone {
            self.retire(index);
        }
    }

    /// Frees the slots of a draining chunk if nothing holds it; returns whether it is gone.
    fn free_unheld(&mut self, index: ChunkIndex) -> bool {
        let is_unused = |tier: &Tier| {
            matches!(self.copy(index, *tier), None | Some(SlotState::Draining { readers: 0 }))
        };
        if self.chunks.at(index).pins > 0 || !Tier::BOTH.iter().all(is_unused) {
            return false;
        }
        for tier in Tier::BOTH {
            if self.chunks.at(index).slot(tier).is_some() {
                self.free_slot(index, tier);
            }
        }
        let chunk = self.chunks.at_mut(index);
        assert!(chunk.joiners.is_empty(), "who waits for a fill ends with it");
        chunk.presence = Presence::Gone;
        chunk.parent = ChunkIndex::NONE;
        true
    }

    /// Lets a draining chunk go once nothing holds it.
    pub(super) fn finish_leaving(&mut self, index: ChunkIndex) {
        if !self.free_unheld(index) {
            return;
        }
        let chunk = self.chunks.at(index);
        let is_orphaned = self.groups[chunk.at()].spares_ancestors() && !chunk.children.is_empty();
        if !is_orphaned {
            self.retire(index);
        }
    }

    /// Puts a chunk that is gone for good into the history. In a window group its children become
    /// roots, and not before: until nothing held it, a run may have gone on through it.
    fn retire(&mut self, index: ChunkIndex) {
        self.chunks.disown_all(index);
        self.chunks.remember(index);
    }

    /// Lets a parent follow its last child: into the ranking, or into the history.
    pub(super) fn child_left(&mut self, at: usize, parent: ChunkIndex) {
        let is_linked = self.chunks.is_linked(parent);
        let chunk = self.chunks.at(parent);
        if !chunk.children.is_empty() {
            return;
        }
        let orphaned = &mut self.groups[at].orphaned;
        match chunk.presence {
            Presence::Here => self.settle(parent),
            // Not orphaned: of a window group, or about to come back.
            _ if !is_linked => {}
            Presence::Draining => self.chunks.unorphan(orphaned, parent),
            Presence::Gone => {
                self.chunks.unorphan(orphaned, parent);
                self.chunks.remember(parent);
            }
            Presence::Vacant => unreachable!("a parent has a record"),
        }
    }

    /// Spares `index` from eviction while a store builds on it; ends an earlier protection.
    pub(super) fn protect(&mut self, index: ChunkIndex) {
        let former = std::mem::replace(&mut self.protected, index);
        if former != index && former != ChunkIndex::NONE {
            self.settle(former);
        }
    }
}
