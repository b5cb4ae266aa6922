//! Recovery: what an earlier run left on disk is taken in, and what is on disk is told in the order
//! that the next run needs.
//!
//! Every disk slot is *unscanned* at first: neither hit nor free. The caller names what it finds,
//! in any order and at most 64 chunks a call, the coldest first as far as that is known; then, or
//! in between, it frees the slots in which nothing was found, and says of each stripe when it is
//! over, since writes wait for slots that may yet turn out to be free. A chunk found before its
//! parent hangs below a record without copies; no lookup reaches it until the parent comes, by
//! adoption or by a store, and eviction takes it first. Of a chunk found twice one copy is kept.
//!
//! Called by the pager under its lock.

use super::action::Lineage;
use super::chunk::{ChunkIndex, Presence};
use super::slot::SlotState;
use super::tier::{Tier, TierState};
use super::{Core, KEY_COUNT_MAX, Refused};
use crate::key::Key;
use crate::units::{GroupIndex, SlotIndex, StripeIndex, TenantTag};

/// Slots that one call of [`Core::free_disk_slots`] looks at.
const FREED_COUNT_MAX: u32 = 4096;

/// A chunk on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundChunk {
    /// Its key.
    pub key: Key,
    /// The chunk before it; `None` for a root.
    pub parent: Option<Key>,
    /// Chunks before it.
    pub depth: u32,
    /// Whose it is.
    pub tenant: TenantTag,
    /// Where it is.
    pub disk_slot: SlotIndex,
    /// Whether it is known to survive a power cut.
    pub is_durable: bool,
}

impl Core {
    /// Takes in up to 64 chunks that were found on disk, each as just used.
    ///
    /// What contradicts what is known is skipped and counted, and its slot is left to
    /// [`free_disk_slots`](Core::free_disk_slots): a slot that is owned or free already, a key that
    /// has a disk copy or another parent, depth or tenant, a key of another group.
    ///
    /// # Errors
    ///
    /// [`Refused::NoSuchGroup`], [`Refused::NoSuchDiskSlot`], [`Refused::KeyCount`] and
    /// [`Refused::Poisoned`]; then nothing was taken in.
    pub fn adopt_disk(&mut self, group: GroupIndex, found: &[FoundChunk]) -> Result<(), Refused> {
        self.guarded(|core| {
            let at = core.group_position(group)?;
            if found.is_empty() || found.len() > KEY_COUNT_MAX {
                return Err(Refused::KeyCount { key_count: found.len() });
            }
            for chunk in found {
                core.check_disk_slots(group, chunk.disk_slot, 1)?;
            }
            for chunk in found {
                if core.adopt(at, group, chunk).is_some() {
                    core.counters.adopted += 1;
                } else {
                    core.counters.adoptions_skipped += 1;
                }
            }
            core.launch();
            Ok(())
        })
    }

    /// Moves a chunk that was found in `older` to where the store has a newer write of it, whose
    /// tenant it has from now on. Returns whether it moved; otherwise nothing changes: the chunk is
    /// not in `older` any more, or is being read there, or the other slot is not unscanned, or is
    /// lost.
    ///
    /// # Errors
    ///
    /// [`Refused::NoSuchGroup`], [`Refused::NoSuchDiskSlot`] and [`Refused::Poisoned`].
    pub fn move_disk(
        &mut self,
        group: GroupIndex,
        found: &FoundChunk,
        older: SlotIndex,
    ) -> Result<bool, Refused> {
        self.guarded(|core| {
            let newer = found.disk_slot;
            let at = core.check_disk_slots(group, older, 1)?;
            core.check_disk_slots(group, newer, 1)?;
            let is_there = |index: &ChunkIndex| {
                core.chunks.at(*index).slot(Tier::Disk) == Some(older)
                    && core.copy(*index, Tier::Disk) == Some(SlotState::Resident { readers: 0 })
            };
            let disk = core.groups[at].tier(Tier::Disk);
            let is_unknown =
                disk.slots.state(newer) == SlotState::Unscanned && !core.groups[at].is_lost(newer);
            let Some(index) = core.find(found.key).filter(is_there).filter(|_| is_unknown) else {
                return Ok(false);
            };
            let written_in = core.groups[at].written_in[older.get() as usize];
            core.free_slot(index, Tier::Disk);
            core.groups[at].tier_mut(Tier::Disk).slots.adopt(newer, index);
            core.groups[at].written_in[newer.get() as usize] = written_in;
            core.chunks.at_mut(index).give_slot(Tier::Disk, newer);
            core.chunks.at_mut(index).tenant = found.tenant;
            core.renew(index);
            core.settle(index);
            Ok(true)
        })
    }

    /// Frees those of the `count` disk slots from `first` on of which nothing is known, at most
    /// 4,096 a call. They are handed out in the order in which they were freed. Returns how many
    /// became free.
    ///
    /// # Errors
    ///
    /// [`Refused::NoSuchGroup`], [`Refused::NoSuchDiskSlot`] and [`Refused::Poisoned`].
    pub fn free_disk_slots(
        &mut self,
        group: GroupIndex,
        first: SlotIndex,
        count: u32,
    ) -> Result<u32, Refused> {
        self.guarded(|core| {
            let count = count.min(FREED_COUNT_MAX);
            let at = core.check_disk_slots(group, first, count)?;
            let slots = &mut core.groups[at].tier_mut(Tier::Disk).slots;
            let mut freed = 0;
            for slot in first.get()..first.get() + count {
                freed += u32::from(slots.free_unscanned(SlotIndex::new(slot)));
            }
            core.launch();
            Ok(freed)
        })
    }

    /// Ends the recovery of a stripe of a group: what is unscanned now, because it could not be
    /// read, is not used in this run, and writes wait for it no longer. Nothing waits for a stripe
    /// that does not exist.
    ///
    /// # Errors
    ///
    /// [`Refused::NoSuchGroup`] and [`Refused::Poisoned`].
    pub fn end_recovery(&mut self, group: GroupIndex, stripe: StripeIndex) -> Result<(), Refused> {
        self.guarded(|core| {
            core.group_position(group)?;
            if let Some((at, stripe)) = core.find_stripe(group, stripe) {
                let group = &mut core.groups[at];
                let counts = group.tier(Tier::Disk).slots.stripe_counts(stripe);
                group.stripes[stripe].unreadable = counts.unscanned;
                core.launch();
            }
            Ok(())
        })
    }

    /// Whether disk slots may yet turn out to be free. Nothing more comes of a lost stripe.
    pub(super) fn is_recovering(&self, at: usize) -> bool {
        let group = &self.groups[at];
        let slots = &group.tier(Tier::Disk).slots;
        group.stripes.iter().enumerate().any(|(at, stripe)| {
            !stripe.is_lost && slots.stripe_counts(at).unscanned > stripe.unreadable
        })
    }

    /// Returns a group's chunks that are resident on disk, the one that is evicted next first and
    /// those that are pinned or in use last: what a snapshot holds, in the order in which
    /// [`adopt_disk`](Core::adopt_disk) wants it back.
    ///
    /// Costs time in proportion to the slots: for the close of a store.
    pub fn disk_entries(&self, group: GroupIndex) -> impl Iterator<Item = FoundChunk> + '_ {
        let group = self.groups.get(usize::from(group.get()));
        group.into_iter().flat_map(move |group| {
            let tier = group.tier(Tier::Disk);
            let all = || {
                (0..tier.slots.capacity()).map(SlotIndex::new).filter(|slot| {
                    let state = tier.slots.state(*slot);
                    matches!(state, SlotState::Resident { .. })
                })
            };
            let is_set_aside = |slot: &SlotIndex| {
                self.chunks.at(tier.slots.chunk(*slot)).is_set_aside[Tier::Disk.number()]
            };
            let ranked = std::iter::successors(tier.policy.victim_after(None), |slot| {
                tier.policy.victim_after(Some(*slot))
            });
            let unplaced =
                all().filter(move |slot| !is_set_aside(slot) && !tier.policy.is_ranked(*slot));
            let slots = all().filter(is_set_aside).chain(ranked).chain(unplaced);
            slots.filter_map(|slot| self.disk_entry(slot, tier))
        })
    }

    fn disk_entry(&self, disk_slot: SlotIndex, tier: &TierState) -> Option<FoundChunk> {
        let index = tier.slots.chunk(disk_slot);
        if self.is_stale(index) || !self.is_disk_readable(index) {
            return None;
        }
        let chunk = self.chunks.at(index);
        let lineage = self.lineage(index);
        let is_durable = self.is_durable(chunk.at(), disk_slot);
        let Lineage { parent, depth, tenant } = lineage;
        Some(FoundChunk { key: chunk.key, parent, depth, tenant, disk_slot, is_durable })
    }

    /// Takes in one chunk; `None` when it does not fit what is known.
    fn adopt(&mut self, at: usize, group: GroupIndex, found: &FoundChunk) -> Option<()> {
        let disk = self.groups[at].tier(Tier::Disk);
        let is_unknown = disk.slots.state(found.disk_slot) == SlotState::Unscanned;
        let is_root = found.parent.is_none();
        let spares_ancestors = self.groups[at].spares_ancestors();
        let is_odd = spares_ancestors && is_root != (found.depth == 0);
        let is_lost = self.groups[at].is_lost(found.disk_slot);
        if !is_unknown || is_odd || is_lost || found.parent == Some(found.key) {
            return None;
        }
        let index = match self.find(found.key) {
            Some(index) => {
                self.check_found(group, index, found)?;
                if self.chunks.at(index).presence == Presence::Gone {
                    self.bring_back(at, index);
                }
                index
            }
            None => self.take_record(found.key, group)?,
        };
        let Some(parent) = self.parent_of_found(at, group, found) else {
            self.file_gone(at, index);
            return None;
        };
        if self.is_below_stale_twin(parent, index) && !self.leave_stale_twin(parent, index) {
            self.file_gone(at, parent);
            return None;
        }
        self.link_found(at, index, parent, found);
        Some(())
    }

    /// Checks a chunk that is known already against what was found.
    fn check_found(&self, group: GroupIndex, index: ChunkIndex, found: &FoundChunk) -> Option<()> {
        let chunk = self.chunks.at(index);
        let spares_ancestors = self.groups[chunk.at()].spares_ancestors();
        let is_bound = chunk.presence == Presence::Here || !chunk.children.is_empty();
        let has_moved = spares_ancestors && is_bound && chunk.depth != found.depth;
        let is_other = match chunk.presence {
            Presence::Here => {
                let known = chunk.parent.some().map(|parent| self.chunks.at(parent).key);
                let differs = known != found.parent && (spares_ancestors || known.is_some());
                differs || chunk.tenant != found.tenant || chunk.slot(Tier::Disk).is_some()
            }
            Presence::Gone => false,
            Presence::Draining | Presence::Vacant => true,
        };
        (chunk.group == group && !has_moved && !is_other).then_some(())
    }

    /// Finds the record below which the chunk belongs, or makes one without copies. A record that
    /// is gone is in no list until [`file_gone`](Self::file_gone). In a window group a chunk whose
    /// parent is not here is a root.
    fn parent_of_found(
        &mut self,
        at: usize,
        group: GroupIndex,
        found: &FoundChunk,
    ) -> Option<ChunkIndex> {
        let Some(key) = found.parent else {
            return Some(ChunkIndex::NONE);
        };
        let spares_ancestors = self.groups[at].spares_ancestors();
        let known = self.find(key);
        if !spares_ancestors {
            let here = known.filter(|parent| {
                let chunk = self.chunks.at(*parent);
                let is_above = chunk.depth.checked_add(1) == Some(found.depth);
                chunk.presence == Presence::Here && chunk.group == group && is_above
            });
            return Some(here.unwrap_or(ChunkIndex::NONE));
        }
        let Some(index) = known else {
            let index = self.take_record(key, group)?;
            self.chunks.at_mut(index).depth = found.depth - 1;
            return Some(index);
        };
        let chunk = self.chunks.at(index);
        let is_bound = chunk.presence == Presence::Here || !chunk.children.is_empty();
        let fits = chunk.group == group
            && chunk.presence != Presence::Draining
            && (!is_bound || chunk.depth.checked_add(1) == Some(found.depth));
        if !fits {
            return None;
        }
        if chunk.presence == Presence::Gone {
            self.bring_back(at, index);
            self.chunks.at_mut(index).depth = found.depth - 1;
        }
        Some(index)
    }

    /// Files a record that has no copies, if it has none: with its children, or in the history.
    fn file_gone(&mut self, at: usize, index: ChunkIndex) {
        if index == ChunkIndex::NONE || self.chunks.at(index).presence != Presence::Gone {
            return;
        }
        if self.chunks.at(index).children.is_empty() {
            self.chunks.remember(index);
        } else {
            self.chunks.orphan(&mut self.groups[at].orphaned, index);
        }
    }

    /// Gives a chunk its disk copy, below its parent.
    fn link_found(&mut self, at: usize, index: ChunkIndex, parent: ChunkIndex, found: &FoundChunk) {
        let was_here = self.chunks.at(index).presence == Presence::Here;
        self.unwish(index);
        let slot = found.disk_slot;
        let durable_until = self.groups[at].stripe_of(slot).durable_until;
        let durable = self.durable_epoch.min(durable_until);
        let written_in = if found.is_durable { durable } else { self.sync_epoch };
        let epoch = self.epoch;
        let group = &mut self.groups[at];
        group.tier_mut(Tier::Disk).slots.adopt(slot, index);
        group.written_in[slot.get() as usize] = written_in;
        let chunk = self.chunks.at_mut(index);
        chunk.give_slot(Tier::Disk, slot);
        chunk.presence = Presence::Here;
        chunk.epoch = epoch;
        if !was_here {
            chunk.depth = found.depth;
            chunk.tenant = found.tenant;
        }
        if chunk.parent != parent && parent != ChunkIndex::NONE {
            self.chunks.adopt(parent, index);
        }
        self.file_gone(at, parent);
        self.settle(index);
    }
}
