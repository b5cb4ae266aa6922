//! The store command: reserves slots for the chunks of a prefix that are not stored yet and sends
//! them on their way.
//!
//! Chunks are taken root first. A chunk that is resident is done at once; one that another
//! transfer fills is joined; any other gets a record and a slot, if need be a victim's. Once one
//! chunk of a full group is refused, those after it are too: no lookup could reach them.
//!
//! Called by the pager under its lock.

use super::chunk::{ChunkIndex, Presence};
use super::evict::Eviction;
use super::slot::SlotState;
use super::transfer::{Direction, Failure, Stage, TransferId};
use super::{Core, KEY_COUNT_MAX, MissReason, Refused};
use crate::key::Key;
use crate::units::{GroupIndex, Timestamp};

/// Chunks to be stored: consecutive ones of a single prefix.
#[derive(Clone, Copy, Debug)]
pub struct StoreRequest<'a> {
    /// The group whose blocks hold them.
    pub group: GroupIndex,
    /// The chunk before the first one; `None` when that is a root.
    pub parent: Option<Key>,
    /// 1 to 64 keys, root first.
    pub keys: &'a [Key],
    /// Chunks whose first hop has not begun by then are given up.
    pub deadline: Timestamp,
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
        let mut found = [None; KEY_COUNT_MAX];
        self.index.find_many(request.keys, self.chunks.records(), &mut found);
        let mut steps = Self::steps();
        for (key, found) in request.keys.iter().zip(found) {
            let placed = parent.and_then(|parent| {
                self.protect(parent);
                self.place(id.index, parent, *key, found, &mut steps)
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
        let here = self.index.find(key, self.chunks.records()).filter(|index| {
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
        let mut found = [None; KEY_COUNT_MAX];
        self.index.find_many(keys, self.chunks.records(), &mut found);
        let found = &found[..keys.len()];
        let presence = |index: &ChunkIndex| self.chunks.at(*index).presence;
        let is_here = |index: &ChunkIndex| presence(index) == Presence::Here;
        let has_slot =
            |index: &&ChunkIndex| is_here(index) || presence(index) == Presence::Draining;
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
        key: Key,
        found: Option<ChunkIndex>,
        steps: &mut u32,
    ) -> Result<(ChunkIndex, Stage), Failure> {
        let group = self.transfers.at(transfer).group;
        // This very call may have recycled a record found before it, or stored the key already.
        let is_current = |index: &ChunkIndex| self.chunks.at(*index).key == key;
        let found =
            found.filter(is_current).or_else(|| self.index.find(key, self.chunks.records()));
        let Some(index) = found else {
            return self.fill(group, parent, key, None, steps);
        };
        let chunk = self.chunks.at(index);
        if chunk.group != group {
            return Err(Failure::ForeignParent);
        }
        match chunk.presence {
            Presence::Draining => Err(Failure::Draining),
            Presence::Gone => {
                self.check_depth(group, parent, index)?;
                self.fill(group, parent, key, Some(index), steps)
            }
            // A prefix holds a chunk once: a transfer must not wait for itself, nor a chunk follow
            // itself.
            Presence::Here if self.transfers.at(transfer).holds(index) => {
                Err(Failure::ForeignParent)
            }
            Presence::Here => {
                self.check_parent(group, parent, index)?;
                Ok((index, self.repeat(index)))
            }
            Presence::Vacant => unreachable!("the index names records in use"),
        }
    }

    /// Joins a fill under way, or reports a resident chunk as stored.
    fn repeat(&mut self, index: ChunkIndex) -> Stage {
        let chunk = self.chunks.at_mut(index);
        let slots = &self.groups[usize::from(chunk.group.get())].slots;
        if slots.state(chunk.slot) == SlotState::Filling {
            chunk.is_joined = true;
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
        group: GroupIndex,
        parent: ChunkIndex,
        key: Key,
        gone: Option<ChunkIndex>,
        steps: &mut u32,
    ) -> Result<(ChunkIndex, Stage), Failure> {
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
        let slot = self.groups[at].slots.take(index).expect("a slot was freed");
        let depth = self.chunks.depth_below(parent);
        let chunk = self.chunks.at_mut(index);
        chunk.depth = depth;
        chunk.slot = slot;
        chunk.presence = Presence::Here;
        if parent != ChunkIndex::NONE {
            self.chunks.adopt(parent, index);
        }
        self.counters.fills += 1;
        Ok((index, Stage::Queued))
    }

    /// Frees a slot of the group if none is free.
    fn free_one(&mut self, at: usize, steps: &mut u32) -> Result<(), Failure> {
        if self.groups[at].slots.counts().free > 0 {
            return Ok(());
        }
        match self.evict_one(at, steps) {
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
        if let Some(index) = self.chunks.take(key, group, &mut self.index) {
            return Ok(index);
        }
        match self.evict_one(at, steps) {
            Eviction::OutOfSteps => Err(Failure::Busy),
            Eviction::Freed | Eviction::Nothing => {
                self.chunks.take(key, group, &mut self.index).ok_or(Failure::Full)
            }
        }
    }

    /// Takes a gone chunk's record out of the list it is in.
    fn bring_back(&mut self, at: usize, index: ChunkIndex) {
        if self.chunks.at(index).children.is_empty() {
            self.chunks.recall(index);
        } else {
            let group = &mut self.groups[at];
            self.chunks.unorphan(&mut group.orphaned, index);
            group.orphan_cursor = ChunkIndex::NONE;
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
        if let Some(index) = self.chunks.take(key, group, &mut self.index) {
            self.chunks.at_mut(index).reason = MissReason::Refused;
            self.chunks.remember(index);
        }
    }
}
