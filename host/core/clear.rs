//! Clearing: everything that is stored is dropped at once, and its slots step by step.
//!
//! Each chunk and each transfer remembers the epoch in which it began. [`Core::clear`] begins a new
//! epoch: from then on chunks of an earlier one are *stale*: not found by any command, so that
//! their keys can be stored again at once, as new chunks. A sweep then gives up the transfers and
//! goes through the slots of all tiers; an eviction that comes before it sweeps first.
//!
//! A stale chunk whose key is stored again loses its name in the index and is forgotten when its
//! slots are free.
//!
//! Invariants: after the sweep no stale chunk is here and every older transfer is marked, so that
//! epochs may be numbered with 8 bits: of the 256th clear within one sweep that sweep is finished
//! first, in one long hold.
//!
//! Called by the pager under its lock.

use super::chunk::{ChunkIndex, Presence};
use super::evict::Eviction;
use super::slot::SlotState;
use super::tier::Tier;
use super::transfer::{Failure, Hop, Stage};
use super::{Core, KEY_COUNT_MAX, MissReason};
use crate::key::Key;
use crate::units::SlotIndex;

/// Slots and transfer records that one step of the sweep looks at.
const LOOK_COUNT_MAX: u32 = 1024;

/// Transfers that one step of the sweep gives up.
const GIVEN_UP_COUNT_MAX: u32 = 16;

/// How far the sweep has come.
#[derive(Debug)]
pub(super) struct Sweep {
    /// The transfer record that is looked at next.
    transfer: u32,
    /// Clears since a sweep was finished.
    clear_count: u8,
}

impl Sweep {
    /// A sweep that has nothing to do.
    pub(super) const fn finished(transfer_count_max: u32) -> Self {
        Self { transfer: transfer_count_max, clear_count: 0 }
    }
}

impl Core {
    /// Drops everything that is stored: from now on none of it is found, loaded or written.
    ///
    /// Transfers under way end as [`Failure::Cleared`], those with a hop in flight when that
    /// completes. Plans hold nothing any more that can be loaded. The same keys can be stored again
    /// at once. Slots become free in this and the following steps.
    ///
    /// What recovery finds on disk afterwards is the caller's to judge: the core cannot tell what
    /// was there before.
    pub fn clear(&mut self) {
        self.run_guarded(|core| {
            while core.sweep.clear_count == u8::MAX {
                core.sweep_some();
            }
            core.sweep.clear_count += 1;
            core.sweep.transfer = 0;
            core.epoch = core.epoch.wrapping_add(1);
            for group in &mut core.groups {
                for tier in &mut group.tiers {
                    tier.swept_until = 0;
                }
            }
            core.sweep_some();
            core.launch();
        });
    }

    /// Whether a chunk was stored before the last clear.
    pub(super) fn is_stale(&self, index: ChunkIndex) -> bool {
        self.chunks.at(index).epoch != self.epoch
    }

    /// Whether a transfer began before the last clear.
    pub(super) fn is_over(&self, index: u32) -> bool {
        let transfer = self.transfers.at(index);
        transfer.is_cleared || transfer.epoch != self.epoch
    }

    /// Finds the chunk of a key, if it is not stale.
    pub(super) fn find(&self, key: Key) -> Option<ChunkIndex> {
        self.index.find(key, self.chunks.records()).filter(|index| !self.is_stale(*index))
    }

    /// Finds the chunks of up to 64 keys that are not stale.
    pub(super) fn find_many(&self, keys: &[Key]) -> [Option<ChunkIndex>; KEY_COUNT_MAX] {
        let mut found = [None; KEY_COUNT_MAX];
        self.index.find_many(keys, self.chunks.records(), &mut found);
        found.map(|found| found.filter(|index| !self.is_stale(*index)))
    }

    /// Takes the name of a stale chunk away, because its key comes back.
    pub(super) fn forget_stale(&mut self, key: Key) {
        let found = self.index.find(key, self.chunks.records());
        let Some(index) = found.filter(|index| self.is_stale(*index)) else {
            return;
        };
        self.index.remove(key, index);
        self.chunks.unname(index);
    }

    /// Whether the sweep has work left.
    pub(super) fn is_sweeping(&self) -> bool {
        self.sweep.clear_count > 0
    }

    /// Does one bounded step of the sweep.
    pub(super) fn sweep_some(&mut self) {
        if !self.is_sweeping() {
            return;
        }
        let mut looks = LOOK_COUNT_MAX;
        let mut transfers_left = GIVEN_UP_COUNT_MAX;
        while self.sweep.transfer < self.transfer_count_max {
            if looks == 0 || transfers_left == 0 {
                return;
            }
            looks -= 1;
            let index = self.sweep.transfer;
            self.sweep.transfer += 1;
            if self.transfers.at(index).is_live && self.is_over(index) {
                transfers_left -= 1;
                self.transfers.at_mut(index).is_cleared = true;
                self.give_up(index, Failure::Cleared);
            }
        }
        let mut budget = KEY_COUNT_MAX;
        for at in 0..self.groups.len() {
            for tier in Tier::BOTH {
                while self.is_unswept(at, tier) {
                    if looks == 0 || budget == 0 {
                        return;
                    }
                    looks -= 1;
                    budget -= usize::from(self.sweep_slot(at, tier));
                }
            }
        }
        self.sweep.clear_count = 0;
    }

    fn is_unswept(&self, at: usize, tier: Tier) -> bool {
        let state = self.groups[at].tier(tier);
        state.swept_until < state.slots.capacity()
    }

    /// Looks at the next slot of a tier; returns whether a chunk had to leave.
    fn sweep_slot(&mut self, at: usize, tier: Tier) -> bool {
        let state = self.groups[at].tier_mut(tier);
        let slot = SlotIndex::new(state.swept_until);
        state.swept_until += 1;
        let is_owned = !matches!(
            state.slots.state(slot),
            SlotState::Free { .. } | SlotState::Unscanned | SlotState::Stuck
        );
        if !is_owned {
            return false;
        }
        let index = state.slots.chunk(slot);
        let must_leave = self.is_stale(index) && self.chunks.at(index).presence == Presence::Here;
        if must_leave {
            self.counters.cleared += 1;
            self.leave(index, MissReason::Cleared);
        }
        must_leave
    }

    /// Frees a slot of the tier by sweeping it further, before anything is evicted.
    pub(super) fn evict_stale(&mut self, at: usize, tier: Tier, steps: &mut u32) -> Eviction {
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

    /// Ends a position whose hop completed after everything was cleared.
    pub(super) fn hop_cleared(&mut self, index: u32, position: usize, hop: Hop) {
        self.return_staging(index);
        let chunk = self.transfers.at(index).chunks[position];
        match hop {
            Hop::Pack | Hop::OutLink => {
                self.end_joined(chunk, Err(Failure::Cleared));
                self.fill_failed(chunk, MissReason::Cleared);
            }
            Hop::InLink | Hop::Unpack => self.let_go(chunk),
        }
        self.set_stage(index, position, Stage::Failed(Failure::Cleared));
    }

    /// Frees the host slot of a store's chunk that did not come, and gives the chunk up if it has
    /// no other copy. Returns whether it left.
    pub(super) fn fill_failed(&mut self, chunk: ChunkIndex, reason: MissReason) -> bool {
        self.abandon_fill(chunk, Tier::Host);
        match self.chunks.at(chunk).presence {
            Presence::Here if self.chunks.at(chunk).slot(Tier::Disk).is_none() => {
                self.leave(chunk, reason);
                return true;
            }
            Presence::Here => self.settle(chunk),
            _ => self.finish_leaving(chunk),
        }
        false
    }

    /// Whether a transfer is due to be given up: nothing of it may begin.
    pub(super) fn is_due(&self, index: u32) -> bool {
        self.transfers.at(index).deadline <= self.latest_tick || self.is_over(index)
    }
}
