//! The sweep: what was cleared, or erased with its tenant, leaves step by step.
//!
//! It ends what of the transfers waits for stale chunks, then goes through the slots of all tiers:
//! stale chunks leave, all others come into the current epoch, so that after it nobody need know
//! what was cleared or erased before. What is cleared or erased meanwhile makes it begin anew.
//! After a clear, when nearly everything is stale, an eviction that comes before it sweeps first.
//!
//! Invariants: a step is bounded; after the sweep every chunk that is here is of the current epoch,
//! so that epochs may be numbered with 8 bits: the 256th clear within one sweep first finishes
//! that, in one long hold, and an erasure asks to be called again.
//!
//! Called by `core` alone.

use super::chunk::{Chunk, ChunkIndex, Presence};
use super::evict::Eviction;
use super::slot::SlotState;
use super::tier::Tier;
use super::transfer::{Failure, Stage};
use super::{Core, MissReason};
use crate::units::{SlotIndex, TenantTag};

/// Tenants that may be erased within one sweep.
const TENANT_COUNT_MAX: usize = 64;

/// What one step of the sweep may cost: looks at 1,024 free slots, at 256 chunks, or 64 chunks that
/// leave.
const STEP_COST_MAX: u32 = 1024;

/// The cost of a look at a slot or at the record of a transfer.
const LOOK_COST: u32 = 1;

/// The cost of a look at a chunk.
const CHUNK_COST: u32 = 4;

/// The cost of a chunk that leaves, or of a position that ends.
const LEAVE_COST: u32 = 16;

/// What was dropped since a sweep was finished, and how far this one has come.
#[derive(Debug)]
pub(super) struct Sweep {
    pub(super) is_running: bool,
    /// The transfer record that is looked at next.
    pub(super) transfer: u32,
    /// Epochs begun since a sweep was finished.
    pub(super) epoch_count: u8,
    /// The epoch that the last clear among them began.
    pub(super) cleared: Option<u8>,
    /// The tenants erased since that clear, each with the epoch that its last erasure began.
    pub(super) tenants: Vec<(TenantTag, u8)>,
}

impl Sweep {
    /// A sweep that has nothing to do.
    pub(super) fn finished() -> Self {
        Self {
            is_running: false,
            transfer: 0,
            epoch_count: 0,
            cleared: None,
            tenants: Vec::with_capacity(TENANT_COUNT_MAX),
        }
    }

    /// Whether a chunk of an earlier epoch than `now` was dropped since it came.
    pub(super) fn covers(&self, chunk: &Chunk, now: u8) -> bool {
        let age = |epoch: u8| now.wrapping_sub(epoch);
        let is_older = |epoch: u8| age(chunk.epoch) > age(epoch);
        let mut tenants = self.tenants.iter();
        self.cleared.is_some_and(is_older)
            || tenants.any(|&(tenant, epoch)| tenant == chunk.tenant && is_older(epoch))
    }

    /// Whether the tenant's erasure can be remembered, with an epoch of its own.
    pub(super) fn has_room_for(&self, tenant: TenantTag) -> bool {
        let is_known = self.tenants.iter().any(|(known, _)| *known == tenant);
        self.epoch_count < u8::MAX && (is_known || self.tenants.len() < TENANT_COUNT_MAX)
    }
}

impl Core {
    /// Begins an epoch, whose sweep goes through everything.
    pub(super) fn begin_epoch(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        self.sweep.epoch_count += 1;
        self.sweep.is_running = true;
        self.sweep.transfer = 0;
        for group in &mut self.groups {
            for tier in &mut group.tiers {
                tier.swept_until = 0;
            }
        }
    }

    /// Takes a chunk that is not stale into the current epoch: also whenever it gets a slot, which
    /// the sweep may have been past already.
    pub(super) fn renew(&mut self, index: ChunkIndex) {
        debug_assert!(!self.is_stale(index), "what was dropped does not become new");
        self.chunks.at_mut(index).epoch = self.epoch;
    }

    /// Whether the sweep has work left.
    pub(super) fn is_sweeping(&self) -> bool {
        self.sweep.is_running
    }

    /// Does one bounded step of the sweep.
    pub(super) fn sweep_some(&mut self) {
        if !self.is_sweeping() {
            return;
        }
        let mut budget = STEP_COST_MAX;
        while self.sweep.transfer < self.transfer_count_max {
            if budget == 0 {
                return;
            }
            let index = self.sweep.transfer;
            self.sweep.transfer += 1;
            budget = budget.saturating_sub(LOOK_COST);
            if self.transfers.at(index).is_live {
                budget = budget.saturating_sub(self.end_stale(index));
            }
        }
        for at in 0..self.groups.len() {
            for tier in Tier::BOTH {
                while self.is_unswept(at, tier) {
                    if budget == 0 {
                        return;
                    }
                    budget = budget.saturating_sub(self.sweep_slot(at, tier));
                }
            }
        }
        self.sweep.is_running = false;
        self.sweep.epoch_count = 0;
        self.sweep.cleared = None;
        self.sweep.tenants.clear();
    }

    fn is_unswept(&self, at: usize, tier: Tier) -> bool {
        let state = self.groups[at].tier(tier);
        state.swept_until < state.slots.capacity()
    }

    /// Ends what of a transfer waits for stale chunks; what is being moved ends by its completion.
    /// Returns what that cost.
    fn end_stale(&mut self, index: u32) -> u32 {
        let mut cost = 0;
        for position in 0..self.transfers.at(index).stages().len() {
            let transfer = self.transfers.at(index);
            if !matches!(transfer.stages()[position], Stage::Queued | Stage::Joined) {
                continue;
            }
            let is_stale = self.is_stale(transfer.chunks[position]);
            cost += if is_stale { LEAVE_COST } else { CHUNK_COST };
            if is_stale {
                self.give_up_at(index, position, Failure::Cleared);
            }
        }
        if cost > 0 {
            self.announce(index);
            self.close_if_over(index);
        }
        cost
    }

    /// Looks at the next slot of a tier: its chunk leaves, or is of the current epoch from now on.
    /// Returns what that cost.
    fn sweep_slot(&mut self, at: usize, tier: Tier) -> u32 {
        let state = self.groups[at].tier_mut(tier);
        let slot = SlotIndex::new(state.swept_until);
        state.swept_until += 1;
        let is_owned = !matches!(
            state.slots.state(slot),
            SlotState::Free { .. } | SlotState::Unscanned | SlotState::Stuck
        );
        if !is_owned {
            return LOOK_COST;
        }
        let index = state.slots.chunk(slot);
        if self.is_stale(index) {
            self.drop_chunk(index);
            LEAVE_COST
        } else {
            self.renew(index);
            CHUNK_COST
        }
    }

    /// Drops a chunk that was cleared or erased: what still holds it ends as that.
    pub(super) fn drop_chunk(&mut self, index: ChunkIndex) {
        match self.chunks.at(index).presence {
            Presence::Here => {
                self.counters.cleared += 1;
                self.leave(index, MissReason::Cleared);
            }
            Presence::Draining | Presence::Gone => {
                self.chunks.at_mut(index).reason = MissReason::Cleared;
            }
            Presence::Vacant => unreachable!("the index and slots name records in use"),
        }
    }

    /// Frees a slot of the tier by sweeping it further, before anything is evicted: after a clear,
    /// when nearly all of it is stale.
    pub(super) fn evict_stale(&mut self, at: usize, tier: Tier, steps: &mut u32) -> Eviction {
        if self.sweep.cleared.is_none() {
            return Eviction::Nothing;
        }
        let free = self.groups[at].tier(tier).slots.counts().free;
        while self.is_unswept(at, tier) {
            if *steps == 0 {
                return Eviction::OutOfSteps;
            }
            *steps -= 1;
            self.sweep_slot(at, tier);
            if self.groups[at].tier(tier).slots.counts().free > free {
                return Eviction::Freed;
            }
        }
        Eviction::Nothing
    }
}
