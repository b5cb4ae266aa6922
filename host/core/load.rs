//! The load command, and what both directions share: launching hops within the staging budget,
//! completions, cancelling and deadlines.
//!
//! Invariants: a hop starts only with its staging pieces reserved, and they are given back by the
//! completion that ends its use of them; a chunk that is loaded is pinned until its stage is
//! final; queued work ends at its deadline or cancel, running hops only by completion.
//!
//! Called by the pager under its lock.

use super::action::{Action, Completion, HopFailure, HopRequest, Lineage};
use super::chunk::ChunkIndex;
use super::slot::SlotState;
use super::tier::Tier;
use super::transfer::{Direction, Failure, Hop, Stage, Transfer, TransferId};
use super::{Core, KEY_COUNT_MAX, MissReason, Refused};
use crate::key::Key;
use crate::links::List;
use crate::units::{GroupIndex, Timestamp};

/// Transfers that one tick gives up: what fits in one short hold of the caller's lock.
const EXPIRED_COUNT_MAX: u32 = 16;

/// Stages after which a tick gives no further transfer up.
const EXPIRED_STAGES_MAX: usize = 4 * KEY_COUNT_MAX;

/// Chunks to be loaded into the engine's blocks.
#[derive(Clone, Copy, Debug)]
pub struct LoadRequest<'a> {
    /// The group whose blocks receive them.
    pub group: GroupIndex,
    /// 1 to 64 keys, usually of a plan that holds them resident.
    pub keys: &'a [Key],
    /// Chunks whose first hop has not begun by then are given up.
    pub deadline: Timestamp,
}

impl Core {
    /// Loads up to 64 chunks; the transfer says what became of each. A key that is not resident
    /// fails alone; one that is on disk only is read into host memory first.
    ///
    /// # Errors
    ///
    /// [`Refused::NoSuchGroup`], [`Refused::KeyCount`], [`Refused::TransfersExhausted`] and
    /// [`Refused::Poisoned`].
    pub fn load(&mut self, request: LoadRequest<'_>) -> Result<TransferId, Refused> {
        self.guarded(|core| {
            core.group_position(request.group)?;
            Refused::check_keys(request.keys)?;
            let id = core.transfers.open(Direction::Load, request.group, request.deadline)?;
            let found = core.find_many(request.keys);
            for (position, index) in found.into_iter().take(request.keys.len()).enumerate() {
                match index.filter(|index| core.is_loadable(request, *index)) {
                    Some(chunk) => core.begin_load(id.index, position, chunk),
                    None => core
                        .transfers
                        .at_mut(id.index)
                        .push(ChunkIndex::NONE, Stage::Failed(Failure::Missing)),
                }
            }
            core.launch();
            core.announce(id.index);
            Ok(id)
        })
    }

    /// Lets the next position load a readable chunk: from host memory, from where it is being
    /// filled, or by a read.
    fn begin_load(&mut self, index: u32, position: usize, chunk: ChunkIndex) {
        self.pin(chunk);
        match self.copy(chunk, Tier::Host) {
            Some(SlotState::Filling) => {
                let joiners = &mut self.chunks.at_mut(chunk).joiners;
                self.transfers.join(joiners, index, position);
                self.transfers.at_mut(index).push(chunk, Stage::Joined);
            }
            Some(SlotState::Resident { .. }) => {
                self.transfers.at_mut(index).push(chunk, Stage::Queued);
                self.hold_in_host(index, chunk);
            }
            _ => {
                self.transfers.at_mut(index).push(chunk, Stage::Queued);
                self.want_read(index, position);
            }
        }
    }

    fn is_loadable(&self, request: LoadRequest<'_>, index: ChunkIndex) -> bool {
        self.chunks.at(index).group == request.group && self.readable(index).is_ok()
    }

    /// Gives up what of the transfer is still queued. Running hops end by their completions.
    ///
    /// A transfer that has ended is left alone.
    pub fn cancel(&mut self, transfer: TransferId) {
        if self.transfers.get(transfer).is_some() {
            self.run_guarded(|core| {
                core.give_up(transfer.index, Failure::Cancelled);
                core.launch();
            });
        }
    }

    /// Lets go of a transfer: its record is freed once it has ended.
    pub fn detach(&mut self, transfer: TransferId) {
        if self.transfers.get(transfer).is_some() {
            self.run_guarded(|core| {
                core.transfers.at_mut(transfer.index).is_detached = true;
                core.close_if_over(transfer.index);
            });
        }
    }

    /// Returns the stage of each chunk of a transfer, in the order of its keys; `None` once it has
    /// ended and its owner has let go of it.
    pub fn stages(&self, transfer: TransferId) -> Option<&[Stage]> {
        self.transfers.get(transfer).map(Transfer::stages)
    }

    /// Takes in the end of one hop.
    ///
    /// # Panics
    ///
    /// In builds with debug assertions, panics on a completion of a hop that is not under way; in
    /// others that poisons the core.
    pub fn complete(&mut self, completion: Completion) {
        self.run_guarded(|core| {
            let position = usize::from(completion.position);
            let index = completion.transfer.index;
            let stage = core.stages(completion.transfer).and_then(|stages| stages.get(position));
            assert_eq!(
                stage,
                Some(&Stage::Running(completion.hop)),
                "a hop ended that was not under way: {completion:?}"
            );
            let is_stale = core.is_stale(core.transfers.at(index).chunks[position]);
            match completion.outcome {
                _ if is_stale => core.hop_cleared(index, position, completion.hop),
                Ok(()) => core.hop_succeeded(index, position, completion.hop),
                Err(failure) => core.hop_failed(index, position, completion.hop, failure),
            }
            core.launch();
            core.announce(index);
            core.close_if_over(index);
        });
    }

    fn hop_succeeded(&mut self, index: u32, position: usize, hop: Hop) {
        let chunk = self.transfers.at(index).chunks[position];
        match hop {
            Hop::Pack => self.start(index, position, Hop::OutLink),
            Hop::InLink => self.start(index, position, Hop::Unpack),
            Hop::OutLink => {
                self.return_staging(index);
                self.counters.stored += 1;
                self.fill_ended(chunk);
                self.set_stage(index, position, Stage::Done);
                self.end_joined(chunk, Ok(()));
            }
            Hop::Unpack => {
                self.return_staging(index);
                self.counters.loaded += 1;
                self.let_go(chunk);
                self.set_stage(index, position, Stage::Done);
            }
        }
    }

    /// Makes a filled host slot readable.
    fn fill_ended(&mut self, chunk: ChunkIndex) {
        let slot = self.slot_of(chunk, Tier::Host);
        let at = self.chunks.at(chunk).at();
        self.groups[at].tier_mut(Tier::Host).slots.filled(slot);
        self.settle(chunk);
        self.wish_after_fill(chunk);
    }

    /// Ends a load's use of a chunk and of its host copy.
    pub(super) fn let_go(&mut self, chunk: ChunkIndex) {
        self.remove_reader(chunk, Tier::Host);
        self.unpin(chunk);
    }

    fn hop_failed(&mut self, index: u32, position: usize, hop: Hop, failure: HopFailure) {
        self.return_staging(index);
        let chunk = self.transfers.at(index).chunks[position];
        let failure = match failure {
            HopFailure::Device => Failure::Device,
            HopFailure::Checksum => Failure::Checksum,
        };
        match hop {
            Hop::Pack | Hop::OutLink => {
                self.end_joined(chunk, Err(failure));
                self.counters.lost += u64::from(self.fill_failed(chunk, MissReason::Lost));
            }
            Hop::InLink | Hop::Unpack => {
                if failure == Failure::Checksum {
                    self.lose(chunk, MissReason::Lost);
                }
                self.let_go(chunk);
            }
        }
        self.set_stage(index, position, Stage::Failed(failure));
    }

    /// Starts what can start, in one bounded step: writes, first hops and reads.
    pub(super) fn launch(&mut self) {
        self.launch_cleaning();
        // Reads first: a write may take the disk slot of a copy that gives a read its host slot.
        self.launch_reads();
        self.launch_writes();
        self.launch_hops();
    }

    /// Starts first hops, in the order of their transfers, while staging lasts.
    fn launch_hops(&mut self) {
        let mut budget = KEY_COUNT_MAX;
        for direction in [Direction::Store, Direction::Load] {
            while let Some(index) = self.waiting(direction).first() {
                let pieces = self.pieces(index);
                let Some(position) = self.transfers.at(index).first_queued() else {
                    self.stop_waiting(index);
                    continue;
                };
                if budget > 0 && self.end_if_stale(index, position) {
                    budget -= 1;
                    continue;
                }
                // What the last tick had no time to give up must not begin.
                if *self.staging(direction) < pieces || budget == 0 || self.is_due(index) {
                    break;
                }
                budget -= 1;
                *self.staging(direction) -= pieces;
                let hop = match direction {
                    Direction::Store => Hop::Pack,
                    Direction::Load => Hop::InLink,
                };
                self.start(index, position, hop);
            }
        }
    }

    /// Whether a step would find something to launch or to release.
    pub(super) fn can_launch(&self) -> bool {
        let out = self.waiting_out.first().map(|index| (index, self.staging_out));
        let into = self.waiting_in.first().map(|index| (index, self.staging_in));
        [out, into].into_iter().flatten().any(|(index, free)| free >= self.pieces(index))
    }

    fn start(&mut self, index: u32, position: usize, hop: Hop) {
        let transfer = self.transfers.at_mut(index);
        transfer.advance(position, Stage::Running(hop));
        let (chunk, group) = (transfer.chunks[position], transfer.group);
        self.actions.push(Action::Start(HopRequest {
            hop,
            transfer: self.transfers.id(index),
            position: u8::try_from(position).expect("a transfer has at most 64 chunks"),
            group,
            slot: self.slot_of(chunk, Tier::Host),
            lineage: self.lineage(chunk),
        }));
    }

    /// Where a chunk stands in its prefix.
    pub(super) fn lineage(&self, index: ChunkIndex) -> Lineage {
        let chunk = self.chunks.at(index);
        let parent = chunk.parent.some().map(|parent| self.chunks.at(parent).key);
        Lineage { parent, depth: chunk.depth, tenant: chunk.tenant }
    }

    /// Ends everything of a transfer that has not begun, and what waited for it. Returns how many
    /// stages that were.
    pub(super) fn give_up(&mut self, index: u32, failure: Failure) -> usize {
        let mut ended = 0;
        for position in 0..self.transfers.at(index).stages().len() {
            match self.transfers.at(index).stages()[position] {
                Stage::Queued | Stage::Joined => {
                    ended += self.give_up_at(index, position, failure);
                }
                // The bytes are on their way: it ends with the read.
                Stage::Reading => self.transfers.at_mut(index).given_up = Some(failure),
                Stage::Running(_) | Stage::Done | Stage::Failed(_) => {}
            }
        }
        self.announce(index);
        self.close_if_over(index);
        ended
    }

    /// Ends a position that waits, and what waited for it; as cleared, if its chunk was. Returns
    /// how many stages that were.
    pub(super) fn give_up_at(&mut self, index: u32, position: usize, failure: Failure) -> usize {
        let transfer = self.transfers.at(index);
        let (chunk, direction) = (transfer.chunks[position], transfer.direction);
        let is_stale = self.is_stale(chunk);
        let failure = if is_stale { Failure::Cleared } else { failure };
        let mut ended = 1;
        match (transfer.stages()[position], direction) {
            (Stage::Joined, _) => {
                let joiners = &mut self.chunks.at_mut(chunk).joiners;
                self.transfers.leave_joiners(joiners, index, position);
                if direction == Direction::Load {
                    self.unpin(chunk);
                }
            }
            (_, Direction::Store) => {
                ended += self.end_joined(chunk, Err(failure));
                let reason = if is_stale { MissReason::Cleared } else { MissReason::Refused };
                self.fill_failed(chunk, reason);
            }
            (_, Direction::Load) => self.give_up_load(index, position),
        }
        self.set_stage(index, position, Stage::Failed(failure));
        ended
    }

    /// Lets go of what a queued load holds: its chunk, and the host copy unless it waits for one.
    fn give_up_load(&mut self, index: u32, position: usize) {
        let transfer = self.transfers.at_mut(index);
        let chunk = transfer.chunks[position];
        if transfer.is_to_read(position) {
            transfer.unmark(position);
            self.unpin(chunk);
        } else {
            self.let_go(chunk);
        }
    }

    /// Moves a position to its next stage.
    pub(super) fn set_stage(&mut self, index: u32, position: usize, stage: Stage) {
        self.transfers.at_mut(index).advance(position, stage);
    }

    /// Wakes whoever waits for a transfer that has reached a further point.
    pub(super) fn announce(&mut self, index: u32) {
        let transfer = self.transfers.at_mut(index);
        let reached = transfer.reached();
        if reached > transfer.announced {
            transfer.announced = reached;
            self.actions.push(Action::Wake { transfer: self.transfers.id(index) });
        }
    }

    /// Frees the record of an ended transfer that nobody holds, and its place in the queue.
    pub(super) fn close_if_over(&mut self, index: u32) {
        if !self.transfers.at(index).has_ended() {
            return;
        }
        if self.transfers.is_waiting(index) {
            self.stop_waiting(index);
        }
        if self.transfers.is_waiting_for_read(index) {
            self.stop_reading(index);
        }
        if self.transfers.at(index).is_detached {
            self.transfers.close(index);
        }
    }

    fn stop_waiting(&mut self, index: u32) {
        match self.transfers.at(index).direction {
            Direction::Store => self.transfers.stop_waiting(&mut self.waiting_out, index),
            Direction::Load => self.transfers.stop_waiting(&mut self.waiting_in, index),
        }
    }

    fn waiting(&self, direction: Direction) -> List {
        match direction {
            Direction::Store => self.waiting_out,
            Direction::Load => self.waiting_in,
        }
    }

    fn staging(&mut self, direction: Direction) -> &mut u32 {
        match direction {
            Direction::Store => &mut self.staging_out,
            Direction::Load => &mut self.staging_in,
        }
    }

    pub(super) fn return_staging(&mut self, index: u32) {
        let pieces = self.pieces(index);
        *self.staging(self.transfers.at(index).direction) += pieces;
    }

    fn pieces(&self, index: u32) -> u32 {
        self.groups[usize::from(self.transfers.at(index).group.get())].pieces_per_chunk
    }

    /// Whether a transfer's deadline has passed: nothing of it may begin.
    pub(super) fn is_due(&self, index: u32) -> bool {
        self.transfers.at(index).deadline <= self.latest_tick
    }

    /// Gives up what passed its deadline, in one bounded step, and returns the next deadline of
    /// work that waits: `now` when more has passed its own.
    pub(super) fn expire(&mut self, now: Timestamp) -> Timestamp {
        self.latest_tick = now;
        let (mut transfers_left, mut ended) = (EXPIRED_COUNT_MAX, 0);
        let mut next = Timestamp::NEVER;
        for index in 0..self.transfer_count_max {
            let transfer = self.transfers.at(index);
            if !transfer.can_expire() {
                continue;
            }
            let is_over_budget = transfers_left == 0 || ended >= EXPIRED_STAGES_MAX;
            if transfer.deadline > now || is_over_budget {
                next = next.min(transfer.deadline.max(now));
                continue;
            }
            transfers_left -= 1;
            ended += self.give_up(index, Failure::Deadline);
        }
        next
    }
}
