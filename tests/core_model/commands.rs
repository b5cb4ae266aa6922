//! What the public commands do to the [`Model`]: transfers, staging and what must be announced.

use crate::model::{Eviction, Model, Owner, Presence};
use kvtide::core::{
    Completion, Failure, Hop, HopFailure, LoadRequest, MissReason, Refused, Room, Stage,
    StoreRequest, TransferId,
};
use kvtide::key::Key;
use kvtide::units::{GroupIndex, Timestamp};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Store,
    Load,
}

#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    pub(crate) id: TransferId,
    /// Number of its record: what goes through all transfers goes by it.
    pub(crate) record: u32,
    pub(crate) direction: Direction,
    pub(crate) group: usize,
    pub(crate) deadline: Timestamp,
    /// The chunk of each position; none where it failed at once.
    pub(crate) chunks: Vec<Option<Key>>,
    pub(crate) stages: Vec<Stage>,
    pub(crate) is_detached: bool,
    has_announced_release: bool,
    has_announced_end: bool,
}

impl Transfer {
    pub(crate) fn has_ended(&self) -> bool {
        self.stages.iter().all(|stage| stage.is_final())
    }

    fn is_released(&self) -> bool {
        self.direction == Direction::Store && self.stages.iter().all(|stage| stage.is_released())
    }

    fn waits(&self) -> bool {
        self.stages.iter().any(|stage| matches!(stage, Stage::Queued | Stage::Joined))
    }
}

/// A hop that must be handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) hop: Hop,
    pub(crate) transfer: TransferId,
    pub(crate) position: u8,
    pub(crate) group: GroupIndex,
    pub(crate) key: Key,
}

/// What one operation must hand out.
#[derive(Debug, Default)]
pub(crate) struct Events {
    pub(crate) starts: Vec<Start>,
    pub(crate) wakes: Vec<TransferId>,
}

impl Model {
    fn check_command(&self, group: GroupIndex, keys: &[Key]) -> Result<usize, Refused> {
        let at = usize::from(group.get());
        let group_count = self.groups.len();
        if at >= group_count {
            return Err(Refused::NoSuchGroup { group, group_count });
        }
        if keys.is_empty() || keys.len() > 64 {
            return Err(Refused::KeyCount { key_count: keys.len() });
        }
        Ok(at)
    }

    pub(crate) fn check_keys(&self, group: GroupIndex, keys: &[Key]) -> Result<usize, Refused> {
        self.check_command(group, keys)
    }

    /// What a command that opens a transfer answers, but for the transfer's name.
    pub(crate) fn may_begin(&self, group: GroupIndex, keys: &[Key]) -> Result<usize, Refused> {
        let at = self.check_command(group, keys)?;
        if self.free_records.is_empty() {
            let transfer_count_max = self.transfers.len();
            return Err(Refused::TransfersExhausted { transfer_count_max });
        }
        Ok(at)
    }

    fn begin(
        &mut self,
        id: TransferId,
        direction: Direction,
        group: usize,
        deadline: Timestamp,
    ) -> Transfer {
        Transfer {
            id,
            record: self.free_records.pop_front().expect("a record is free"),
            direction,
            group,
            deadline,
            chunks: Vec::new(),
            stages: Vec::new(),
            is_detached: false,
            has_announced_release: false,
            has_announced_end: false,
        }
    }

    fn transfer_at(&self, id: TransferId) -> Option<usize> {
        self.transfers.iter().position(|transfer| transfer.id == id)
    }

    pub(crate) fn store(&mut self, request: StoreRequest<'_>, id: TransferId) {
        let at = usize::from(request.group.get());
        let is_full = self.groups[at].is_full;
        let mut transfer = self.begin(id, Direction::Store, at, request.deadline);
        let mut parent = match request.parent {
            Some(key) if self.is_here(key) && self.chunk(key).group == at => Ok(Some(key)),
            Some(_) if is_full => Err(Failure::ParentMissing),
            _ => Ok(None),
        };
        for key in request.keys {
            let placed = parent.and_then(|parent| {
                self.protect(parent);
                self.place(&transfer, parent, *key)
            });
            let (chunk, stage) = match placed {
                Ok(stage) => (Some(*key), stage),
                Err(failure) => {
                    self.counters.refusals += 1;
                    (None, Stage::Failed(failure))
                }
            };
            transfer.chunks.push(chunk);
            transfer.stages.push(stage);
            parent = match placed {
                Ok(_) => Ok(Some(*key)),
                Err(failure) if is_full => Err(failure),
                Err(_) => Ok(None),
            };
        }
        self.protect(None);
        self.transfers.push(transfer);
        self.launch();
        self.announce(id);
    }

    fn place(
        &mut self,
        transfer: &Transfer,
        parent: Option<Key>,
        key: Key,
    ) -> Result<Stage, Failure> {
        let at = transfer.group;
        let is_full = self.groups[at].is_full;
        let Some(chunk) = self.chunks.get(&key).cloned() else {
            return self.fill(at, parent, key);
        };
        if chunk.group != at {
            return Err(Failure::ForeignParent);
        }
        match chunk.presence {
            Presence::Draining => Err(Failure::Draining),
            Presence::Gone => {
                let depth = parent.map_or(0, |parent| self.chunk(parent).depth + 1);
                if is_full && self.has_children(key) && chunk.depth != depth {
                    return Err(Failure::ForeignParent);
                }
                self.fill(at, parent, key)
            }
            Presence::Filling | Presence::Resident => {
                if transfer.chunks.contains(&Some(key)) {
                    return Err(Failure::ForeignParent);
                }
                match (chunk.parent, parent) {
                    (known, given) if known == given => {}
                    (None, Some(given)) if !is_full => self.adopt(given, key),
                    (Some(_), None) if !is_full => {}
                    _ => return Err(Failure::ForeignParent),
                }
                if chunk.presence == Presence::Filling {
                    self.counters.joins += 1;
                    Ok(Stage::Joined)
                } else {
                    self.counters.repeats += 1;
                    Ok(Stage::Done)
                }
            }
        }
    }

    fn fill(&mut self, at: usize, parent: Option<Key>, key: Key) -> Result<Stage, Failure> {
        let is_known = self.chunks.contains_key(&key);
        if is_known {
            // While it comes back, what it left behind is orphaned no more.
            let group = &mut self.groups[at];
            if group.orphaned.contains(&key) {
                group.orphaned.retain(|lost| *lost != key);
                group.cursor = None;
            }
            self.history.retain(|gone| *gone != key);
        }
        if self.free(at) == 0 && self.evict_one(at) == Eviction::Nothing {
            if !is_known {
                if self.introduce(key, at, MissReason::Refused) {
                    self.history.push(key);
                }
                return Err(Failure::Full);
            }
            self.chunk_mut(key).reason = MissReason::Refused;
            if self.has_children(key) {
                self.groups[at].orphaned.push(key);
            } else {
                self.history.push(key);
            }
            return Err(Failure::Full);
        }
        if !is_known && !self.introduce(key, at, MissReason::NeverStored) {
            self.evict_one(at);
            if !self.introduce(key, at, MissReason::NeverStored) {
                return Err(Failure::Full);
            }
        }
        let depth = parent.map_or(0, |parent| self.chunk(parent).depth + 1);
        let chunk = self.chunk_mut(key);
        chunk.presence = Presence::Filling;
        chunk.depth = depth;
        if let Some(parent) = parent {
            self.adopt(parent, key);
        }
        self.counters.fills += 1;
        Ok(Stage::Queued)
    }

    pub(crate) fn load(&mut self, request: LoadRequest<'_>, id: TransferId) {
        let at = usize::from(request.group.get());
        let mut transfer = self.begin(id, Direction::Load, at, request.deadline);
        for key in request.keys {
            let is_loadable = self.peek(*key).is_none() && self.chunk(*key).group == at;
            if is_loadable {
                self.pin(*key, Owner::Load(id));
                transfer.chunks.push(Some(*key));
                transfer.stages.push(Stage::Queued);
            } else {
                transfer.chunks.push(None);
                transfer.stages.push(Stage::Failed(Failure::Missing));
            }
        }
        self.transfers.push(transfer);
        self.launch();
        self.announce(id);
    }

    /// Starts first hops in the order of the transfers, as long as the first in the queue fits.
    pub(crate) fn launch(&mut self) {
        for (side, direction) in [Direction::Store, Direction::Load].into_iter().enumerate() {
            let hop = if side == 0 { Hop::Pack } else { Hop::InLink };
            while let Some((at, position)) = self.first_queued(direction) {
                let pieces = self.groups[self.transfers[at].group].pieces;
                if self.staging[side] < pieces {
                    break;
                }
                self.staging[side] -= pieces;
                self.start(at, position, hop);
            }
        }
    }

    fn first_queued(&self, direction: Direction) -> Option<(usize, usize)> {
        self.transfers.iter().enumerate().find_map(|(at, transfer)| {
            let queued = transfer.stages.iter().position(|stage| *stage == Stage::Queued)?;
            (transfer.direction == direction).then_some((at, queued))
        })
    }

    fn start(&mut self, at: usize, position: usize, hop: Hop) {
        let transfer = &mut self.transfers[at];
        transfer.stages[position] = Stage::Running(hop);
        self.events.starts.push(Start {
            hop,
            transfer: transfer.id,
            position: u8::try_from(position).expect("64 at most"),
            group: GroupIndex::new(u8::try_from(transfer.group).expect("8 at most")),
            key: transfer.chunks[position].expect("a chunk that runs is there"),
        });
    }

    pub(crate) fn complete(&mut self, completion: Completion) {
        let at = self.transfer_at(completion.transfer).expect("it is under way");
        let position = usize::from(completion.position);
        let key = self.transfers[at].chunks[position].expect("a chunk that runs is there");
        let owner = Owner::Load(completion.transfer);
        let stage = match (completion.outcome, completion.hop) {
            (Ok(()), Hop::Pack) => {
                self.start(at, position, Hop::OutLink);
                None
            }
            (Ok(()), Hop::InLink) => {
                self.start(at, position, Hop::Unpack);
                None
            }
            (Ok(()), Hop::OutLink) => {
                self.counters.stored += 1;
                self.chunk_mut(key).presence = Presence::Resident;
                self.rank(key);
                Some(Stage::Done)
            }
            (Ok(()), Hop::Unpack) => {
                self.counters.loaded += 1;
                self.unpin(key, owner);
                Some(Stage::Done)
            }
            (Err(failure), hop) => {
                let is_load = matches!(hop, Hop::InLink | Hop::Unpack);
                let is_lost = !is_load || failure == HopFailure::Checksum;
                if is_lost && self.is_here(key) {
                    self.counters.lost += 1;
                    self.lose(key, MissReason::Lost);
                }
                if is_load {
                    self.unpin(key, owner);
                }
                Some(Stage::Failed(match failure {
                    HopFailure::Device => Failure::Device,
                    HopFailure::Checksum => Failure::Checksum,
                }))
            }
        };
        if let Some(stage) = stage {
            let side = usize::from(self.transfers[at].direction == Direction::Load);
            self.staging[side] += self.groups[self.transfers[at].group].pieces;
            self.transfers[at].stages[position] = stage;
            if self.transfers[at].direction == Direction::Store {
                self.end_joined(key, stage);
            }
        }
        self.launch();
        self.announce(completion.transfer);
        self.close_if_over(completion.transfer);
    }

    /// Ends whatever waits for the fill of the chunk as that fill ended.
    fn end_joined(&mut self, key: Key, end: Stage) {
        for id in self.in_record_order() {
            let at = self.transfer_at(id).expect("it was there");
            let transfer = &mut self.transfers[at];
            let mut has_changed = false;
            for (stage, chunk) in transfer.stages.iter_mut().zip(&transfer.chunks) {
                if *stage == Stage::Joined && *chunk == Some(key) {
                    *stage = end;
                    has_changed = true;
                }
            }
            if has_changed {
                self.announce(id);
                self.close_if_over(id);
            }
        }
    }

    fn in_record_order(&self) -> Vec<TransferId> {
        let mut transfers: Vec<&Transfer> = self.transfers.iter().collect();
        transfers.sort_unstable_by_key(|transfer| transfer.record);
        transfers.into_iter().map(|transfer| transfer.id).collect()
    }

    /// A store wakes once when its blocks are released before its end, any transfer at its end.
    fn announce(&mut self, id: TransferId) {
        let at = self.transfer_at(id).expect("it is under way");
        let transfer = &mut self.transfers[at];
        if transfer.has_ended() {
            if !std::mem::replace(&mut transfer.has_announced_end, true) {
                self.events.wakes.push(id);
            }
        } else if transfer.is_released()
            && !std::mem::replace(&mut transfer.has_announced_release, true)
        {
            self.events.wakes.push(id);
        }
    }

    fn close_if_over(&mut self, id: TransferId) {
        let at = self.transfer_at(id).expect("it is under way");
        let transfer = &self.transfers[at];
        if transfer.has_ended() && transfer.is_detached {
            self.free_records.push_back(transfer.record);
            self.transfers.remove(at);
        }
    }

    pub(crate) fn cancel(&mut self, id: TransferId) {
        if self.transfer_at(id).is_some() {
            self.give_up(id, Failure::Cancelled);
            self.launch();
        }
    }

    pub(crate) fn detach(&mut self, id: TransferId) {
        if let Some(at) = self.transfer_at(id) {
            self.transfers[at].is_detached = true;
            self.close_if_over(id);
        }
    }

    pub(crate) fn stages(&self, id: TransferId) -> Option<&[Stage]> {
        self.transfer_at(id).map(|at| &*self.transfers[at].stages)
    }

    /// Ends what has not begun; a hop under way goes on.
    fn give_up(&mut self, id: TransferId, failure: Failure) {
        let at = self.transfer_at(id).expect("it is under way");
        let end = Stage::Failed(failure);
        for position in 0..self.transfers[at].stages.len() {
            let at = self.transfer_at(id).expect("it does not end before its last chunk");
            let transfer = &mut self.transfers[at];
            let stage = transfer.stages[position];
            if !matches!(stage, Stage::Queued | Stage::Joined) {
                continue;
            }
            transfer.stages[position] = end;
            let key = transfer.chunks[position].expect("a chunk that waits is there");
            match (stage, transfer.direction) {
                (Stage::Joined, _) => {}
                (_, Direction::Load) => self.unpin(key, Owner::Load(id)),
                (_, Direction::Store) => {
                    self.lose(key, MissReason::Refused);
                    self.end_joined(key, end);
                }
            }
        }
        self.announce(id);
        self.close_if_over(id);
    }

    /// Lets time pass, and says when the next tick is due.
    pub(crate) fn tick(&mut self, now: Timestamp) -> Timestamp {
        for id in self.in_record_order() {
            let at = self.transfer_at(id);
            let transfer = at.map(|at| &self.transfers[at]);
            if transfer.is_some_and(|transfer| transfer.waits() && transfer.deadline <= now) {
                self.give_up(id, Failure::Deadline);
            }
        }
        self.lapse_plans(now);
        self.release_dropped();
        self.launch();
        let deadlines = self.transfers.iter().filter(|transfer| transfer.waits());
        let leases = self.plans.iter().map(|plan| plan.lease_end);
        let due = deadlines.map(|transfer| transfer.deadline).chain(leases).min();
        if self.dropping.is_empty() { due.unwrap_or(Timestamp::NEVER) } else { now }
    }

    pub(crate) fn make_room(
        &mut self,
        group: GroupIndex,
        slot_count: usize,
    ) -> Result<Room, Refused> {
        let at = usize::from(group.get());
        let group_count = self.groups.len();
        if at >= group_count {
            return Err(Refused::NoSuchGroup { group, group_count });
        }
        while self.free(at) < slot_count {
            if self.evict_one(at) == Eviction::Nothing {
                let free = u32::try_from(self.free(at)).expect("a few slots");
                return Ok(Room::Exhausted { free });
            }
        }
        Ok(Room::Ready)
    }
}
