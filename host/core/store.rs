//! The store command: reserves slots for the chunks of a prefix that are not stored yet and sends
//! them on their way.
//!
//! Chunks are taken root first. A chunk that is resident in host memory is done at once; one that
//! is being filled is joined; any other gets a record and a host slot, if need be a victim's. Once
//! one chunk of a full group is refused, those after it are too: no lookup could reach them.
//!
//! Called by the pager under its lock.

use super::chunk::{ChunkIndex, Presence};
use super::evict::Eviction;
use super::slot::SlotState;
use super::tier::Tier;
use super::transfer::{Direction, Failure, Stage, TransferId};
use super::{Core, MissReason, Refused};
use crate::key::Key;
use crate::units::{GroupIndex, TenantId, TenantTag, Timestamp};

/// Chunks to be stored: consecutive ones of a single prefix.
#[derive(Clone, Copy, Debug)]
pub struct StoreRequest<'a> {
    /// The group whose blocks hold them.
    pub group: GroupIndex,
    /// The chunk before the first one; `None` when that is a root.
    pub parent: Option<Key>,
    /// 1 to 64 keys, root first.
    pub keys: &'a [Key],
    /// Whose they are. A chunk that is stored already stays whose it was.
    pub tenant: TenantId,
    /// Chunks whose first hop has not begun by then are given up.
    pub deadline: Timestamp,
}

/// A chunk that is to be stored.
#[derive(Clone, Copy, Debug)]
struct NewChunk {
    group: GroupIndex,
    key: Key,
    tenant: TenantTag,
}

/// What a store would need.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotNeed {
    /// The deepest of the leading keys that are here: what the first missing one builds on.
    pub(super) deepest_here: Option<ChunkIndex>,
    /// Keys that have no slot yet.
    pub(super) slot_count: u32,
}

impl Core {
    /// Stores up to 64 consecutive chunks; the transfer says what became of each.
    ///
    /// # Errors
    ///
    /// [`Refused::NoSuchGroup`], [`Refused::KeyCount`], [`Refused::TransfersExhausted`] and
    /// [`Refused::Poisoned`]. What concerns single chunks (no room, parent missing) is a stage of
    /// the transfer instead: see [`Failure`].
    pub fn store(&mut self, request: StoreRequest<'_>) -> Result<TransferId, Refused> {
        self.guarded(|core| core.begin_store(request))
    }

    fn begin_store(&mut self, request: StoreRequest<'_>) -> Result<TransferId, Refused> {
        let at = self.group_position(request.group)?;
        Refused::check_keys(request.keys)?;
        let id = self.transfers.open(Direction::Store, request.group, request.deadline)?;
        let mut parent = self.resolve_parent(at, request.parent);
        let found = self.find_many(request.keys);
        let mut steps = Self::steps();
        for (key, found) in request.keys.iter().zip(found) {
            let placed = parent.and_then(|parent| {
                self.protect(parent);
                let new =
                    NewChunk { group: request.group, key: *key, tenant: request.tenant.tag() };
                self.place(id.index, parent, new, found, &mut steps)
            });
            let (chunk, stage) = placed.unwrap_or_else(|failure| {
                self.counters.refusals += 1;
                (ChunkIndex::NONE, Stage::Failed(failure))
            });
            self.transfers.at_mut(id.index).push(chunk, stage);
            parent = match placed {
                Err(_) if !self.groups[at].spares_ancestors() => Ok(ChunkIndex::NONE),
                placed => placed.map(|(chunk, _)| chunk),
            };
        }
        self.protect(ChunkIndex::NONE);
        if self.transfers.at(id.index).first_queued().is_some() {
            self.transfers.wait(&mut self.waiting_out, id.index);
        }
        self.launch();
        self.announce(id.index);
        Ok(id)
    }

    /// Finds the chunk that the first key follows. A full group must have it; a window group goes
    /// on without.
    pub(super) fn resolve_parent(
        &self,
        at: usize,
        parent: Option<Key>,
    ) -> Result<ChunkIndex, Failure> {
        let Some(key) = parent else {
            return Ok(ChunkIndex::NONE);
        };
        let here = self.find(key).filter(|index| {
            let chunk = self.chunks.at(*index);
            chunk.presence == Presence::Here && usize::from(chunk.group.get()) == at
        });
        match here {
            Some(index) => Ok(index),
            None if self.groups[at].spares_ancestors() => Err(Failure::ParentMissing),
            None => Ok(ChunkIndex::NONE),
        }
    }

    /// Says what a store of these keys would need.
    pub(super) fn slot_need(&self, keys: &[Key]) -> SlotNeed {
        let found = self.find_many(keys);
        let found = &found[..keys.len()];
        let is_here = |index: &ChunkIndex| self.chunks.at(*index).presence == Presence::Here;
        // One that is draining takes no other slot: its store is refused.
        let has_slot = |index: &&ChunkIndex| {
            let chunk = self.chunks.at(**index);
            chunk.presence == Presence::Draining || chunk.slot(Tier::Host).is_some()
        };
        let leading = found.iter().map_while(|found| found.filter(is_here));
        let with_slot = found.iter().flatten().filter(has_slot).count();
        SlotNeed {
            deepest_here: leading.last(),
            slot_count: u32::try_from(keys.len() - with_slot).expect("at most 64 keys"),
        }
    }

    /// Decides what becomes of the transfer's next chunk, below `parent`.
    fn place(
        &mut self,
        transfer: u32,
        parent: ChunkIndex,
        new: NewChunk,
        found: Option<ChunkIndex>,
        steps: &mut u32,
    ) -> Result<(ChunkIndex, Stage), Failure> {
        let NewChunk { group, key, .. } = new;
        // This very call may have recycled a record found before it, or stored the key already.
        let is_current = |index: &ChunkIndex| self.chunks.at(*index).key == key;
        let Some(index) = found.filter(is_current).or_else(|| self.find(key)) else {
            return self.fill(new, parent, None, steps);
        };
        let chunk = self.chunks.at(index);
        if chunk.group != group {
            return Err(Failure::ForeignParent);
        }
        match chunk.presence {
            Presence::Draining => Err(Failure::Draining),
            Presence::Gone => {
                self.check_depth(group, parent, index)?;
                self.fill(new, parent, Some(index), steps)
            }
            // A prefix holds a chunk once: a transfer must not wait for itself, nor a chunk follow
            // itself.
            Presence::Here if self.transfers.at(transfer).holds(index) => {
                Err(Failure::ForeignParent)
            }
            Presence::Here => {
                self.check_parent(group, parent, index)?;
                if self.chunks.at(index).slot(Tier::Host).is_none() {
                    return self.fill_beside_disk(index, steps);
                }
                Ok((index, self.repeat(transfer, index)))
            }
            Presence::Vacant => unreachable!("the index names records in use"),
        }
    }

    /// Joins a fill under way with the transfer's next position, or reports a resident chunk as
    /// stored.
    fn repeat(&mut self, transfer: u32, index: ChunkIndex) -> Stage {
        if self.copy(index, Tier::Host) == Some(SlotState::Filling) {
            let position = usize::from(self.transfers.at(transfer).chunk_count);
            let joiners = &mut self.chunks.at_mut(index).joiners;
            self.transfers.join(joiners, transfer, position);
            self.counters.joins += 1;
            Stage::Joined
        } else {
            self.counters.repeats += 1;
            Stage::Done
        }
    }

    /// Checks that a stored chunk has the parent that the caller says, so that a walk from leaf
    /// to root always follows one prefix.
    fn check_parent(
        &mut self,
        group: GroupIndex,
        parent: ChunkIndex,
        index: ChunkIndex,
    ) -> Result<(), Failure> {
        let known = self.chunks.at(index).parent;
        if known == parent {
            return Ok(());
        }
        if self.is_below_stale_twin(parent, index) {
            let has_left = self.leave_stale_twin(parent, index);
            return if has_left { Ok(()) } else { Err(Failure::Draining) };
        }
        // In a window group either of the two may have been absent when the other was stored.
        if self.groups[usize::from(group.get())].spares_ancestors() {
            return Err(Failure::ForeignParent);
        }
        if known == ChunkIndex::NONE {
            self.chunks.adopt(parent, index);
        }
        if known == ChunkIndex::NONE || parent == ChunkIndex::NONE {
            Ok(())
        } else {
            Err(Failure::ForeignParent)
        }
    }

    /// Checks that a lost parent comes back where it was, so that it never follows one of its own
    /// descendants.
    fn check_depth(
        &self,
        group: GroupIndex,
        parent: ChunkIndex,
        index: ChunkIndex,
    ) -> Result<(), Failure> {
        let chunk = self.chunks.at(index);
        let has_moved = chunk.depth != self.chunks.depth_below(parent);
        let is_bound =
            self.groups[usize::from(group.get())].spares_ancestors() && !chunk.children.is_empty();
        if is_bound && has_moved { Err(Failure::ForeignParent) } else { Ok(()) }
    }

    /// Gives the key a slot to be filled, under its parent.
    fn fill(
        &mut self,
        new: NewChunk,
        parent: ChunkIndex,
        gone: Option<ChunkIndex>,
        steps: &mut u32,
    ) -> Result<(ChunkIndex, Stage), Failure> {
        let NewChunk { group, key, tenant } = new;
        let at = usize::from(group.get());
        // A record that comes back must not be recycled by the evictions that make room for it.
        if let Some(index) = gone {
            self.bring_back(at, index);
        }
        let room = self.free_one(at, steps);
        let index = match (room, gone) {
            (Err(failure), Some(index)) => {
                self.put_back(at, index);
                return Err(failure);
            }
            (Err(failure), None) => {
                self.remember_refusal(group, key);
                return Err(failure);
            }
            (Ok(()), Some(index)) => index,
            (Ok(()), None) => self.record_for(at, group, key, steps)?,
        };
        let slots = &mut self.groups[at].tier_mut(Tier::Host).slots;
        let slot = slots.take(index).expect("a slot was freed");
        let (depth, epoch) = (self.chunks.depth_below(parent), self.epoch);
        let chunk = self.chunks.at_mut(index);
        chunk.depth = depth;
        chunk.tenant = tenant;
        chunk.epoch = epoch;
        chunk.write.has_lost_turn = !chunk.children.is_empty();
        chunk.give_slot(Tier::Host, slot);
        chunk.presence = Presence::Here;
        if parent != ChunkIndex::NONE {
            self.chunks.adopt(parent, index);
        }
        self.counters.fills += 1;
        Ok((index, Stage::Queued))
    }

    /// Gives a chunk that is on disk only a host slot to be filled.
    fn fill_beside_disk(
        &mut self,
        index: ChunkIndex,
        steps: &mut u32,
    ) -> Result<(ChunkIndex, Stage), Failure> {
        let at = self.chunks.at(index).at();
        self.free_one(at, steps)?;
        let slots = &mut self.groups[at].tier_mut(Tier::Host).slots;
        let slot = slots.take(index).expect("a slot was freed");
        self.chunks.at_mut(index).give_slot(Tier::Host, slot);
        self.renew(index);
        self.settle(index);
        self.counters.fills += 1;
        Ok((index, Stage::Queued))
    }

    /// Frees a slot of the group if none is free.
    fn free_one(&mut self, at: usize, steps: &mut u32) -> Result<(), Failure> {
        if self.groups[at].tier(Tier::Host).slots.counts().free > 0 {
            return Ok(());
        }
        match self.evict_one(at, Tier::Host, steps) {
            Eviction::Freed => Ok(()),
            Eviction::Nothing => Err(Failure::Full),
            Eviction::OutOfSteps => Err(Failure::Busy),
        }
    }

    /// Takes a record for a new key. An eviction yields one when lost parents hold all others.
    fn record_for(
        &mut self,
        at: usize,
        group: GroupIndex,
        key: Key,
        steps: &mut u32,
    ) -> Result<ChunkIndex, Failure> {
        loop {
            if let Some(index) = self.take_record(key, group) {
                return Ok(index);
            }
            match self.evict_one(at, Tier::Host, steps) {
                Eviction::Freed => {}
                Eviction::OutOfSteps => return Err(Failure::Busy),
                Eviction::Nothing => return Err(Failure::Full),
            }
        }
    }

    /// Takes a record for a key that has none; it is in no list yet.
    pub(super) fn take_record(&mut self, key: Key, group: GroupIndex) -> Option<ChunkIndex> {
        self.forget_stale(key);
        let epoch = self.epoch;
        let index = self.chunks.take(key, group, &mut self.index)?;
        self.chunks.at_mut(index).epoch = epoch;
        Some(index)
    }

    /// Takes a gone chunk's record out of the list it is in.
    pub(super) fn bring_back(&mut self, at: usize, index: ChunkIndex) {
        if self.chunks.at(index).children.is_empty() {
            self.chunks.recall(index);
        } else {
            let group = &mut self.groups[at];
            self.chunks.unorphan(&mut group.orphaned, index);
            group.reset_orphan_cursors();
        }
    }

    /// Undoes [`bring_back`](Self::bring_back).
    fn put_back(&mut self, at: usize, index: ChunkIndex) {
        self.chunks.at_mut(index).reason = MissReason::Refused;
        if self.chunks.at(index).children.is_empty() {
            self.chunks.remember(index);
        } else {
            self.chunks.orphan(&mut self.groups[at].orphaned, index);
        }
    }

    /// Remembers that a key was refused, so that a lookup can say so.
    fn remember_refusal(&mut self, group: GroupIndex, key: Key) {
        if let Some(index) = self.take_record(key, group) {
            self.chunks.at_mut(index).reason = MissReason::Refused;
            self.chunks.remember(index);
        }
    }
}
