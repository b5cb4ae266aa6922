//! Clearing and erasing: everything that is stored, the chunks of a tenant, or single chunks are
//! dropped at once, and what they leave behind step by step.
//!
//! A chunk that was dropped and is still here, or still held, is *stale*: not found by any command,
//! so that its key can be stored again at once, as a new chunk. Single chunks leave within the
//! command. [`Core::clear`] and [`Core::erase_tenant`] begin a new *epoch* instead: each chunk
//! remembers the epoch in which it came, and is stale if it came before a clear, or before the
//! erasure of its tenant. A *sweep* then ends what of the transfers waits for stale chunks, and goes
//! through the slots of all tiers: stale chunks leave, all others come into the current epoch, so
//! that after a sweep nobody need know what was cleared or erased before it.
//!
//! A stale chunk whose key is stored again loses its name in the index and is forgotten when its
//! slots are free. Children that it still has then belong to the new one, and go over to it one by
//! one as they are met.
//!
//! Invariants: no hop begins for a stale chunk; after a sweep every chunk that is here is of the
//! current epoch, so that epochs may be numbered with 8 bits: the 256th clear within one sweep first
//! finishes that sweep, in one long hold, and an erasure asks to be called again.
//!
//! Called by the pager under its lock.

use super::chunk::{Chunk, ChunkIndex, Presence};
use super::evict::Eviction;
use super::slot::SlotState;
use super::tier::Tier;
use super::transfer::{Failure, Hop, Stage};
use super::{Core, KEY_COUNT_MAX, MissReason, Refused};
use crate::key::Key;
use crate::units::{SlotIndex, TenantId, TenantTag};

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
    is_running: bool,
    /// The transfer record that is looked at next.
    transfer: u32,
    /// Epochs begun since a sweep was finished.
    epoch_count: u8,
    /// The epoch that the last clear among them began.
    cleared: Option<u8>,
    /// The tenants erased since that clear, each with the epoch that its last erasure began.
    tenants: Vec<(TenantTag, u8)>,
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
    fn covers(&self, chunk: &Chunk, now: u8) -> bool {
        let age = |epoch: u8| now.wrapping_sub(epoch);
        let is_older = |epoch: u8| age(chunk.epoch) > age(epoch);
        let mut tenants = self.tenants.iter();
        self.cleared.is_some_and(is_older)
            || tenants.any(|&(tenant, epoch)| tenant == chunk.tenant && is_older(epoch))
    }

    /// Whether the tenant's erasure can be remembered, with an epoch of its own.
    fn has_room_for(&self, tenant: TenantTag) -> bool {
        let is_known = self.tenants.iter().any(|(known, _)| *known == tenant);
        self.epoch_count < u8::MAX && (is_known || self.tenants.len() < TENANT_COUNT_MAX)
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
            while core.sweep.epoch_count == u8::MAX {
                core.sweep_some();
            }
            core.begin_epoch();
            core.sweep.cleared = Some(core.epoch);
            core.sweep.tenants.clear();
            core.sweep_some();
            core.launch();
        });
    }

    /// Drops what is stored of a tenant, as [`clear`](Core::clear) drops everything; all else stays.
    ///
    /// Returns false when so much was erased lately that a step of the sweep had to be done first:
    /// call it again. Chunks below those that go are orphans, and the first victims.
    ///
    /// Of tenants numbered from 2^32 on it may take another's chunks too, one tenant in 2^32.
    ///
    /// # Errors
    ///
    /// [`Refused::Poisoned`].
    pub fn erase_tenant(&mut self, tenant: TenantId) -> Result<bool, Refused> {
        self.guarded(|core| {
            let tenant = tenant.tag();
            let has_room = core.sweep.has_room_for(tenant);
            if has_room {
                core.begin_epoch();
                core.sweep.tenants.retain(|(known, _)| *known != tenant);
                core.sweep.tenants.push((tenant, core.epoch));
            }
            core.sweep_some();
            core.launch();
            Ok(has_room)
        })
    }

    /// Drops up to 64 chunks, as [`clear`](Core::clear) drops everything; all else stays. A key that
    /// is not stored is left alone. Chunks below those that go are orphans, and the first victims.
    ///
    /// # Errors
    ///
    /// [`Refused::KeyCount`] and [`Refused::Poisoned`].
    pub fn erase_keys(&mut self, keys: &[Key]) -> Result<(), Refused> {
        self.guarded(|core| {
            Refused::check_keys(keys)?;
            for key in keys {
                if let Some(index) = core.find(*key) {
                    core.drop_chunk(index);
                }
            }
            core.sweep.is_running = true;
            core.sweep.transfer = 0;
            core.sweep_some();
            core.launch();
            Ok(())
        })
    }

    /// Begins an epoch, whose sweep goes through everything.
    fn begin_epoch(&mut self) {
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

    /// Whether a chunk was cleared or erased since it was stored. One that is gone is not: nothing
    /// of it is left.
    pub(super) fn is_stale(&self, index: ChunkIndex) -> bool {
        let chunk = self.chunks.at(index);
        let was_dropped = || chunk.epoch != self.epoch && self.sweep.covers(chunk, self.epoch);
        match chunk.presence {
            Presence::Gone | Presence::Vacant => false,
            Presence::Draining => chunk.reason == MissReason::Cleared || was_dropped(),
            Presence::Here => was_dropped(),
        }
    }

    /// Takes a chunk that is not stale into the current epoch: also whenever it gets a slot, which
    /// the sweep may have been past already.
    pub(super) fn renew(&mut self, index: ChunkIndex) {
        debug_assert!(!self.is_stale(index), "what was dropped does not become new");
        self.chunks.at_mut(index).epoch = self.epoch;
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

    /// Takes the name of a stale chunk away, because its key comes back: also of one that has left
    /// since, in favour of what comes.
    pub(super) fn forget_stale(&mut self, key: Key) {
        let Some(index) = self.index.find(key, self.chunks.records()) else {
            return;
        };
        let presence = self.chunks.at(index).presence;
        assert!(presence == Presence::Gone || self.is_stale(index), "a key names one chunk");
        self.index.remove(key, index);
        self.chunks.unname(index);
    }

    /// Whether a chunk hangs below the stale record of a key that was stored again as `parent`, and
    /// so belongs below that.
    pub(super) fn is_below_stale_twin(&self, parent: ChunkIndex, child: ChunkIndex) -> bool {
        let known = self.chunks.at(child).parent;
        known != parent
            && known != ChunkIndex::NONE
            && parent != ChunkIndex::NONE
            && self.chunks.at(known).key == self.chunks.at(parent).key
    }

    /// Lets such a chunk go over to `parent`; returns whether it could. A pinned one stays where it
    /// is, since plans walk up to what they pinned.
    pub(super) fn leave_stale_twin(&mut self, parent: ChunkIndex, child: ChunkIndex) -> bool {
        let Chunk { parent: twin, pins, depth, .. } = *self.chunks.at(child);
        let at = self.chunks.at(child).at();
        let has_moved = depth != self.chunks.depth_below(parent);
        if pins > 0 || (has_moved && self.groups[at].spares_ancestors()) {
            return false;
        }
        self.chunks.disown(twin, child);
        self.chunks.adopt(parent, child);
        self.child_left(at, twin);
        self.groups[at].reset_orphan_cursors();
        true
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
    fn drop_chunk(&mut self, index: ChunkIndex) {
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

    /// Ends a position whose hop completed after its chunk was cleared or erased.
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

    /// Ends a position that waits for staging or a read, if its chunk is stale. Returns whether it
    /// was.
    pub(super) fn end_if_stale(&mut self, index: u32, position: usize) -> bool {
        let is_stale = self.is_stale(self.transfers.at(index).chunks[position]);
        if is_stale {
            self.give_up_at(index, position, Failure::Cleared);
            self.announce(index);
            self.close_if_over(index);
        }
        is_stale
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
}
