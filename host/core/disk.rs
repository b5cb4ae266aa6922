//! The disk tier as its caller sees it: completions, points, syncs, and what happens when a drive
//! fails.
//!
//! A copy on disk is *written* once its write has ended well, and *durable* once a sync that began
//! after that has ended well. Syncs are told apart by epochs: each slot remembers the epoch in
//! which its write ended, and a finished sync makes all epochs up to its own durable at once.
//!
//! The tier falls into stripes, each on a drive of its own as a rule. They fail one by one: what is
//! said of a stripe that takes no more writes, or is lost, is said of no other.
//!
//! Invariants: a copy on a lost stripe is never read, and never counts as one that is left; a
//! stopped stripe is handed no slot.
//!
//! Called by the pager under its lock.

use super::action::{ChunkId, DiskCompletion, DiskHop, DiskRequest};
use super::chunk::{ChunkIndex, Presence};
use super::slot::{SlotCounts, SlotState};
use super::tier::{GroupState, Tier};
use super::{Core, KEY_COUNT_MAX, MissReason, Refused};
use crate::key::Key;
use crate::units::{GroupIndex, SlotIndex, StripeIndex};

/// How far a chunk has come: what its bytes survive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StorePoint {
    /// In host memory.
    Host,
    /// On disk: survives the end of the process.
    Written,
    /// On disk, and synced since: survives a power cut.
    Durable,
}

/// Names what is written at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncMark(u64);

impl GroupState {
    /// The first lost stripe that still has copies to be given up.
    fn next_to_lose(&self) -> Option<usize> {
        let slots = &self.tier(Tier::Disk).slots;
        let mut stripes = self.stripes.iter().enumerate();
        stripes.find_map(|(at, stripe)| {
            let has_more = stripe.is_lost && stripe.lost_until < slots.stripe(at).end;
            has_more.then_some(at)
        })
    }
}

impl Core {
    /// Takes in the end of one disk hop.
    ///
    /// # Panics
    ///
    /// In builds with debug assertions, panics on a completion of a hop that is not under way; in
    /// others that poisons the core.
    pub fn complete_disk(&mut self, completion: DiskCompletion) {
        self.run_guarded(|core| {
            let index = completion.chunk.0;
            match completion.hop {
                DiskHop::Write => core.write_ended(index, completion.outcome),
                DiskHop::Read => core.read_ended(index, completion.outcome),
            }
            core.launch();
        });
    }

    /// Takes in that a hop which was completed as [`Stuck`](super::DiskFailure::Stuck) touches
    /// nothing any more.
    ///
    /// # Panics
    ///
    /// In builds with debug assertions, panics for a hop that is not stuck; in others that poisons
    /// the core.
    pub fn unstick(&mut self, request: DiskRequest) {
        self.run_guarded(|core| {
            let group = &mut core.groups[usize::from(request.group.get())];
            match request.hop {
                DiskHop::Read => group.tier_mut(Tier::Host).slots.unstick(request.slot),
                DiskHop::Write => {
                    group.tier_mut(Tier::Disk).slots.unstick(request.disk_slot);
                    core.chunks.at_mut(request.chunk.0).write.is_stuck = false;
                    core.remove_reader(request.chunk.0, Tier::Host);
                }
            }
            core.reads.may_begin = true;
            core.launch();
        });
    }

    /// Returns the disk slots of a group by use; `None` when there is no such group.
    pub fn disk_slots(&self, group: GroupIndex) -> Option<SlotCounts> {
        let group = self.groups.get(usize::from(group.get()))?;
        Some(group.tier(Tier::Disk).slots.counts())
    }

    /// Returns the slots of one stripe of a group by use; `None` when there is no such group or
    /// stripe.
    pub fn stripe_slots(&self, group: GroupIndex, stripe: StripeIndex) -> Option<SlotCounts> {
        let (at, stripe) = self.find_stripe(group, stripe)?;
        Some(self.groups[at].tier(Tier::Disk).slots.stripe_counts(stripe))
    }

    /// Begins a sync: returns a mark for all that is written by now. Call it before the sync is
    /// submitted.
    pub fn begin_sync(&mut self) -> SyncMark {
        let mark = SyncMark(self.sync_epoch);
        self.sync_epoch += 1;
        mark
    }

    /// Whether the chunk of a disk hop under way is still what its key stands for: not so once it
    /// was cleared or erased. Ask before a write is given its place in the store's order of writes,
    /// clears and erasures.
    pub fn is_current(&self, chunk: ChunkId) -> bool {
        !self.is_stale(chunk.0)
    }

    /// Takes in the success of a sync: what was written before its mark is durable.
    pub fn synced(&mut self, mark: SyncMark) {
        self.durable_epoch = self.durable_epoch.max(mark.0);
    }

    /// Returns the point that a key has reached; `None` when it is not resident.
    pub fn point(&self, key: Key) -> Option<StorePoint> {
        let index = self.find(key)?;
        let chunk = self.chunks.at(index);
        if chunk.presence != Presence::Here {
            return None;
        }
        if self.is_disk_readable(index) {
            let slot = self.slot_of(index, Tier::Disk);
            let is_durable = self.is_durable(chunk.at(), slot);
            return Some(if is_durable { StorePoint::Durable } else { StorePoint::Written });
        }
        self.is_resident(index, Tier::Host).then_some(StorePoint::Host)
    }

    /// Stops all further writes to a stripe of a group, because a sync failed or its drive takes
    /// none. Its copies are read on, and leave by eviction as any other. Once it was the last,
    /// what waits for its write is dropped and counted, in this and the following steps.
    pub fn stop_writes(&mut self, group: GroupIndex, stripe: StripeIndex) {
        self.run_guarded(|core| {
            if let Some((at, stripe)) = core.find_stripe(group, stripe) {
                core.end_writes(at, stripe);
                core.reads.may_begin = true;
                core.launch();
            }
        });
    }

    /// Gives up a stripe of a group, because its drive is gone: no copy on it is read any more, and
    /// all are lost, in this and the following steps. Hops under way end by their completions.
    pub fn stop_disk(&mut self, group: GroupIndex, stripe: StripeIndex) {
        self.run_guarded(|core| {
            if let Some((at, stripe)) = core.find_stripe(group, stripe) {
                core.end_writes(at, stripe);
                core.groups[at].stripes[stripe].is_lost = true;
                core.reads.may_begin = true;
                core.lose_disk_copies();
                core.launch();
            }
        });
    }

    /// Gives up what a disk slot holds, because it is not what was written there. A slot without a
    /// resident chunk is left alone. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// [`Refused::NoSuchGroup`], [`Refused::NoSuchDiskSlot`] and [`Refused::Poisoned`].
    pub fn lose_disk_slot(&mut self, group: GroupIndex, slot: SlotIndex) -> Result<bool, Refused> {
        self.guarded(|core| {
            let at = core.check_disk_slots(group, slot, 1)?;
            let slots = &core.groups[at].tier(Tier::Disk).slots;
            let is_resident = matches!(slots.state(slot), SlotState::Resident { .. });
            if is_resident {
                core.lose_disk_copy(slots.chunk(slot));
                core.launch();
            }
            Ok(is_resident)
        })
    }

    fn end_writes(&mut self, at: usize, stripe: usize) {
        let group = &mut self.groups[at];
        if !group.tier(Tier::Disk).slots.is_stopped(stripe) {
            group.tier_mut(Tier::Disk).slots.stop(stripe);
            group.stripes[stripe].durable_until = self.durable_epoch;
        }
    }

    /// Finds a stripe of a group.
    pub(super) fn find_stripe(
        &self,
        group: GroupIndex,
        stripe: StripeIndex,
    ) -> Option<(usize, usize)> {
        let (at, stripe) = (usize::from(group.get()), usize::from(stripe.get()));
        let is_there = self.groups.get(at).is_some_and(|group| stripe < group.stripes.len());
        is_there.then_some((at, stripe))
    }

    /// Whether what was written to a disk slot is durable.
    pub(super) fn is_durable(&self, at: usize, slot: SlotIndex) -> bool {
        let group = &self.groups[at];
        let durable_until = group.stripe_of(slot).durable_until;
        group.written_in[slot.get() as usize] <= self.durable_epoch.min(durable_until)
    }

    /// Whether the chunk's copy on disk can be read.
    pub(super) fn is_disk_readable(&self, index: ChunkIndex) -> bool {
        let chunk = self.chunks.at(index);
        let Some(slot) = chunk.slot(Tier::Disk) else { return false };
        let group = &self.groups[chunk.at()];
        let state = group.tier(Tier::Disk).slots.state(slot);
        matches!(state, SlotState::Resident { .. }) && !group.is_lost(slot)
    }

    /// Whether a lost stripe still has copies to be given up.
    pub(super) fn is_losing(&self) -> bool {
        self.groups.iter().any(|group| group.next_to_lose().is_some())
    }

    /// Gives up copies on lost stripes, in one bounded step.
    pub(super) fn lose_disk_copies(&mut self) {
        let mut budget = KEY_COUNT_MAX;
        for at in 0..self.groups.len() {
            while budget > 0
                && let Some(stripe) = self.groups[at].next_to_lose()
            {
                budget -= 1;
                let slot = SlotIndex::new(self.groups[at].stripes[stripe].lost_until);
                self.groups[at].stripes[stripe].lost_until += 1;
                let slots = &self.groups[at].tier(Tier::Disk).slots;
                if let SlotState::Resident { .. } = slots.state(slot) {
                    self.lose_disk_copy(slots.chunk(slot));
                }
            }
        }
    }

    /// Gives up a chunk's resident copy on disk, and the chunk with it if that was its last. A read
    /// under way keeps the slot until it ends.
    pub(super) fn lose_disk_copy(&mut self, index: ChunkIndex) {
        let chunk = self.chunks.at(index);
        if chunk.presence != Presence::Here {
            return;
        }
        if chunk.slot(Tier::Host).is_none() {
            return self.lose(index, MissReason::Lost);
        }
        let (at, slot) = (chunk.at(), self.slot_of(index, Tier::Disk));
        if self.copy(index, Tier::Disk) == Some(SlotState::Resident { readers: 0 }) {
            self.free_slot(index, Tier::Disk);
        } else {
            self.groups[at].tier_mut(Tier::Disk).slots.close(slot);
        }
        self.settle(index);
    }

    /// Checks that a group has `count` disk slots from `first` on.
    pub(super) fn check_disk_slots(
        &self,
        group: GroupIndex,
        first: SlotIndex,
        count: u32,
    ) -> Result<usize, Refused> {
        let at = self.group_position(group)?;
        let disk_slot_count = self.groups[at].tier(Tier::Disk).slots.capacity();
        match first.get().checked_add(count) {
            Some(end) if end <= disk_slot_count => Ok(at),
            _ => Err(Refused::NoSuchDiskSlot { group, first, count, disk_slot_count }),
        }
    }
}
