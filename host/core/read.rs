//! Promotions: chunks that are on disk only are read into host memory before they are loaded.
//!
//! A load of such a chunk waits in its group's list until a host slot and a read can be had. The
//! first to get both reads; whoever else wants the chunk joins. When the read ends, each load goes
//! on from host memory, whose copy it holds from then on, so that a load larger than the whole host
//! tier works through it chunk by chunk.
//!
//! A stripe has a bounded number of reads under way. A load whose next chunk is on one that has no
//! more to give waits aside, for that stripe alone, and goes on in front of its group's others: a
//! drive that does not answer holds up the loads that need it, and no others.
//!
//! Invariants: a load that waits for a read holds its chunk and no host slot, so it cannot keep
//! another from going on; a chunk is read once at a time; a read that fails loses the disk copy, so
//! it is not tried again.
//!
//! Called by `core` alone.

use super::action::{DiskFailure, DiskHop};
use super::chunk::{ChunkIndex, Presence};
use super::evict::Eviction;
use super::slot::SlotState;
use super::tier::Tier;
use super::transfer::{Direction, Failure, Stage};
use super::{Core, KEY_COUNT_MAX, MissReason, STRIPE_COUNT_MAX};
use crate::links::List;

/// The reads under way, and what there is to read.
#[derive(Debug)]
pub(super) struct Reads {
    /// Reads under way, by stripe.
    pub(super) running_on: [u32; STRIPE_COUNT_MAX],
    /// Loads that wait for a read of the stripe to end; they take turns.
    pub(super) aside: [List; STRIPE_COUNT_MAX],
    /// The group that is looked at first the next time.
    next_group: usize,
    /// Something has happened since the last step that may let a read begin.
    pub(super) may_begin: bool,
}

impl Reads {
    /// No read, and nothing to read.
    pub(super) const NONE: Self = Self {
        running_on: [0; STRIPE_COUNT_MAX],
        aside: [List::EMPTY; STRIPE_COUNT_MAX],
        next_group: 0,
        may_begin: false,
    };

    fn is_any_aside(&self) -> bool {
        self.aside.iter().any(|aside| !aside.is_empty())
    }
}

/// What became of a load that wants a read.
enum Attempt {
    /// It reads, or need not any more, or waits aside: look at the next.
    Done,
    /// No host slot can be had in the group now.
    Blocked,
    /// The search for a host slot was cut short.
    OutOfSteps,
}

impl Core {
    /// Starts the reads that can start, in one bounded step.
    pub(super) fn launch_reads(&mut self) {
        if !self.reads.may_begin {
            return;
        }
        let (mut budget, mut steps) = (KEY_COUNT_MAX, Self::steps());
        let mut is_cut_short = self.bring_back_aside();
        let group_count = self.groups.len();
        let first = self.reads.next_group;
        self.reads.next_group = (first + 1) % group_count;
        for at in (first..group_count).chain(0..first) {
            while let Some(index) = self.groups[at].waiting_read.first() {
                let Some(position) = self.transfers.at(index).first_to_read() else {
                    self.stop_reading(index);
                    continue;
                };
                if budget == 0 {
                    is_cut_short = true;
                    break;
                }
                if self.is_due(index) {
                    break;
                }
                budget -= 1;
                match self.try_read(index, position, &mut steps) {
                    Attempt::Done => {}
                    Attempt::Blocked => break,
                    Attempt::OutOfSteps => {
                        is_cut_short = true;
                        break;
                    }
                }
            }
        }
        self.reads.may_begin = is_cut_short;
    }

    /// Lets a load go on that waited aside, for each stripe that can begin a read. Returns whether
    /// another one might, which is known once that one has begun its own.
    fn bring_back_aside(&mut self) -> bool {
        let mut has_more = false;
        for stripe in 0..STRIPE_COUNT_MAX {
            let can_read = self.reads.running_on[stripe] < self.disk_reads_max;
            let Some(index) = self.reads.aside[stripe].first().filter(|_| can_read) else {
                continue;
            };
            self.stop_reading(index);
            let at = usize::from(self.transfers.at(index).group.get());
            self.transfers.go_on_reading(&mut self.groups[at].waiting_read, index);
            has_more |= !self.reads.aside[stripe].is_empty();
        }
        has_more
    }

    /// Has the next step look once at the loads that wait for a read: what keeps host memory full
    /// may have found a place in the write queue, or been refused one, since they were blocked.
    pub(super) fn retry_reads(&mut self) {
        self.reads.may_begin |= self.is_read_wanted();
    }

    /// Whether a step may find a read to start.
    pub(super) fn can_read(&self) -> bool {
        self.reads.may_begin && self.is_read_wanted()
    }

    fn is_read_wanted(&self) -> bool {
        let is_waiting = self.groups.iter().any(|group| !group.waiting_read.is_empty());
        is_waiting || self.reads.is_any_aside()
    }

    /// Lets a position that is queued wait until its chunk is in host memory.
    pub(super) fn want_read(&mut self, index: u32, position: usize) {
        let transfer = self.transfers.at_mut(index);
        transfer.mark_to_read(position);
        let at = usize::from(transfer.group.get());
        self.transfers.wait_for_read(&mut self.groups[at].waiting_read, index);
        self.reads.may_begin = true;
    }

    pub(super) fn stop_reading(&mut self, index: u32) {
        let transfer = self.transfers.at(index);
        let list = match transfer.aside_for {
            Some(stripe) => &mut self.reads.aside[usize::from(stripe)],
            None => &mut self.groups[usize::from(transfer.group.get())].waiting_read,
        };
        self.transfers.stop_waiting_for_read(list, index);
    }

    fn try_read(&mut self, index: u32, position: usize, steps: &mut u32) -> Attempt {
        if self.end_if_stale(index, position) {
            return Attempt::Done;
        }
        let chunk = self.transfers.at(index).chunks[position];
        let at = self.chunks.at(chunk).at();
        if self.chunks.at(chunk).presence == Presence::Here {
            match self.copy(chunk, Tier::Host) {
                Some(SlotState::Filling) => {
                    self.transfers.at_mut(index).unmark(position);
                    self.join_at(chunk, index, position, Stage::Joined);
                    return Attempt::Done;
                }
                Some(SlotState::Resident { .. }) => {
                    self.transfers.at_mut(index).unmark(position);
                    self.hold_in_host(index, chunk);
                    return Attempt::Done;
                }
                _ => {}
            }
            if self.is_disk_readable(chunk) {
                return self.begin_read(at, index, position, steps);
            }
            self.lose_disk_copy(chunk);
        }
        self.transfers.at_mut(index).unmark(position);
        self.unpin(chunk);
        self.set_stage(index, position, Stage::Failed(Failure::Disk));
        self.announce(index);
        self.close_if_over(index);
        Attempt::Done
    }

    fn begin_read(&mut self, at: usize, index: u32, position: usize, steps: &mut u32) -> Attempt {
        let chunk = self.transfers.at(index).chunks[position];
        let disk_slot = self.slot_of(chunk, Tier::Disk);
        let stripe = self.groups[at].tier(Tier::Disk).slots.stripe_of(disk_slot);
        if self.reads.running_on[stripe] >= self.disk_reads_max {
            self.stop_reading(index);
            self.transfers.wait_aside(&mut self.reads.aside[stripe], index, stripe);
            return Attempt::Done;
        }
        if self.groups[at].tier(Tier::Host).slots.counts().free == 0 {
            match self.evict_one(at, Tier::Host, steps) {
                Eviction::Freed => {}
                Eviction::Nothing => return Attempt::Blocked,
                Eviction::OutOfSteps => return Attempt::OutOfSteps,
            }
        }
        let taken = self.groups[at].tier_mut(Tier::Host).slots.take(chunk);
        let slot = taken.expect("a slot was freed");
        self.chunks.at_mut(chunk).give_slot(Tier::Host, slot);
        self.renew(chunk);
        self.add_reader(chunk, Tier::Disk);
        self.transfers.at_mut(index).unmark(position);
        self.join_at(chunk, index, position, Stage::Reading);
        self.reads.running_on[stripe] += 1;
        self.start_disk(chunk, DiskHop::Read);
        Attempt::Done
    }

    fn join_at(&mut self, chunk: ChunkIndex, index: u32, position: usize, stage: Stage) {
        let joiners = &mut self.chunks.at_mut(chunk).joiners;
        self.transfers.join(joiners, index, position);
        self.set_stage(index, position, stage);
    }

    /// Lets a queued load hold its chunk's copy in host memory, and wait for staging.
    pub(super) fn hold_in_host(&mut self, index: u32, chunk: ChunkIndex) {
        self.add_reader(chunk, Tier::Host);
        if !self.transfers.is_waiting(index) {
            self.transfers.wait(&mut self.waiting_in, index);
        }
    }

    /// Takes in the end of a read.
    pub(super) fn read_ended(&mut self, index: ChunkIndex, outcome: Result<(), DiskFailure>) {
        let is_reading = self.copy(index, Tier::Host) == Some(SlotState::Filling)
            && self.readers(index, Tier::Disk) == 1;
        assert!(is_reading, "a read ended that was not under way");
        let disk_slot = self.slot_of(index, Tier::Disk);
        let group = &self.groups[self.chunks.at(index).at()];
        self.reads.running_on[group.tier(Tier::Disk).slots.stripe_of(disk_slot)] -= 1;
        self.reads.may_begin = true;
        let is_wanted = self.chunks.at(index).presence == Presence::Here && !self.is_stale(index);
        let has_failed = match outcome {
            Ok(()) | Err(DiskFailure::Cleared) => false,
            // A slot that was erased in the meantime holds something else by right.
            Err(DiskFailure::Mismatch) => is_wanted,
            Err(DiskFailure::Drive | DiskFailure::NoSpace | DiskFailure::Stuck) => true,
        };
        self.counters.read_failures += u64::from(has_failed);
        if outcome.is_ok() && is_wanted {
            self.counters.promoted += 1;
            let slot = self.slot_of(index, Tier::Host);
            let at = self.chunks.at(index).at();
            self.groups[at].tier_mut(Tier::Host).slots.filled(slot);
            self.end_disk_read(index);
            self.end_joined(index, Ok(()));
            return;
        }
        let failure = match outcome {
            _ if self.is_stale(index) => Failure::Cleared,
            Err(DiskFailure::Mismatch) => Failure::Checksum,
            Err(DiskFailure::Drive | DiskFailure::NoSpace | DiskFailure::Stuck) => Failure::Disk,
            Ok(()) | Err(DiskFailure::Cleared) => Failure::Cleared,
        };
        // Lost before its waiters are told: none of them shall wait for another read of it.
        if outcome == Err(DiskFailure::Stuck) {
            self.stick_fill(index, Tier::Host);
        } else {
            self.abandon_fill(index, Tier::Host);
        }
        let waiters = self.take_joiners(index);
        if is_wanted {
            self.lose(index, MissReason::Lost);
        }
        self.end_waiters(index, waiters, Err(failure));
        self.end_disk_read(index);
    }

    /// Ends a read's use of the disk copy, and frees one that was lost in the meantime.
    fn end_disk_read(&mut self, index: ChunkIndex) {
        self.remove_reader(index, Tier::Disk);
        let is_here = self.chunks.at(index).presence == Presence::Here;
        if is_here && self.copy(index, Tier::Disk) == Some(SlotState::Draining { readers: 0 }) {
            self.free_slot(index, Tier::Disk);
            self.settle(index);
        }
    }

    fn take_joiners(&mut self, chunk: ChunkIndex) -> List {
        std::mem::replace(&mut self.chunks.at_mut(chunk).joiners, List::EMPTY)
    }

    /// Ends the wait for the fill of `chunk`: stores end with it, loads go on with the copy that
    /// there is, or end. Returns how many have ended.
    pub(super) fn end_joined(&mut self, chunk: ChunkIndex, outcome: Result<(), Failure>) -> usize {
        let waiters = self.take_joiners(chunk);
        self.end_waiters(chunk, waiters, outcome)
    }

    fn end_waiters(
        &mut self,
        chunk: ChunkIndex,
        mut waiters: List,
        outcome: Result<(), Failure>,
    ) -> usize {
        let mut ended = 0;
        while let Some((index, position)) = self.transfers.pop_joiner(&mut waiters) {
            match self.transfers.at(index).direction {
                Direction::Store => {
                    let stage = outcome.map_or_else(Stage::Failed, |()| Stage::Done);
                    self.set_stage(index, position, stage);
                }
                Direction::Load => self.resume_load(index, position, chunk, outcome),
            }
            self.announce(index);
            self.close_if_over(index);
            ended += 1;
        }
        ended
    }

    /// Lets a load that waited for a fill go on, or end.
    fn resume_load(
        &mut self,
        index: u32,
        position: usize,
        chunk: ChunkIndex,
        outcome: Result<(), Failure>,
    ) {
        let transfer = self.transfers.at(index);
        let is_reading = transfer.stages()[position] == Stage::Reading;
        let given_up = if self.is_stale(chunk) {
            Some(Failure::Cleared)
        } else if is_reading && transfer.deadline <= self.latest_tick {
            Some(Failure::Deadline)
        } else {
            transfer.given_up
        };
        let failure = match (given_up, outcome) {
            (Some(failure), _) => Some(failure),
            (None, Err(failure)) if !self.is_disk_readable(chunk) => Some(failure),
            _ => None,
        };
        if let Some(failure) = failure {
            self.unpin(chunk);
            self.set_stage(index, position, Stage::Failed(failure));
        } else {
            self.set_stage(index, position, Stage::Queued);
            if outcome.is_ok() {
                self.hold_in_host(index, chunk);
            } else {
                self.want_read(index, position);
            }
        }
    }
}
