//! The part of the audit that concerns what is under way or waits: pins, readers, writes, reads and
//! staging.

use super::{Audit, hold};
use crate::core::chunk::{ChunkIndex, Presence};
use crate::core::slot::SlotState;
use crate::core::tier::Tier;
use crate::core::transfer::{Direction, Stage, Transfer};
use crate::core::write::PlaceState;
use crate::core::{Core, STRIPE_COUNT_MAX};
use crate::links::NONE;

impl Core {
    /// Counts the pins of plans and loads, and the hops that use each copy.
    pub(super) fn audit_holds(&self) -> Audit {
        let mut pins = self.pins_of_plans()?;
        let mut readers = vec![0_u32; self.chunks.records().len()];
        for number in self.transfers.live() {
            let transfer = self.transfers.at(number);
            let positions = transfer.chunks.iter().zip(transfer.stages()).enumerate();
            for (position, (chunk, stage)) in positions {
                if transfer.direction == Direction::Load && !stage.is_final() {
                    pins[chunk.get()] += 1;
                    let uses_host = match stage {
                        Stage::Queued => !transfer.is_to_read(position),
                        stage => matches!(stage, Stage::Running(_)),
                    };
                    readers[chunk.get()] += u32::from(uses_host);
                }
            }
        }
        let mut writes = [0; STRIPE_COUNT_MAX];
        let mut reads = [0; STRIPE_COUNT_MAX];
        for (number, chunk) in (0..).zip(self.chunks.records()) {
            let index = ChunkIndex::new(number);
            hold(chunk.pins == pins[index.get()], "pins are counted", "chunk", number)?;
            let is_writing = self.copy(index, Tier::Disk) == Some(SlotState::Filling);
            let disk = &self.groups[chunk.at()].tier(Tier::Disk).slots;
            let stripe = chunk.slot(Tier::Disk).map_or(0, |slot| disk.stripe_of(slot));
            writes[stripe] += u32::from(is_writing);
            let counted = self.readers(index, Tier::Host);
            let is_stuck = chunk.write.is_stuck;
            let expected = readers[index.get()] + u32::from(is_writing) + u32::from(is_stuck);
            hold(counted == expected, "readers are the hops in flight", "chunk", number)?;
            let disk_readers = self.readers(index, Tier::Disk);
            let is_read = self.copy(index, Tier::Host) == Some(SlotState::Filling);
            let is_sound = disk_readers == 0 || (disk_readers == 1 && is_read);
            hold(is_sound, "a chunk is read once, into a slot that fills", "chunk", number)?;
            reads[stripe] += disk_readers;
        }
        let write_count: u32 = writes.iter().sum();
        hold(self.write_queue.running == write_count, "writes under way are counted", "disk", 0)?;
        let by_group: u32 = self.write_queue.running_in.iter().sum();
        hold(by_group == write_count, "writes under way are counted by group", "disk", 0)?;
        let are_counted = self.write_queue.running_on == writes && self.reads.running_on == reads;
        hold(are_counted, "hops under way are counted by stripe", "disk", 0)?;
        let is_bounded = writes.iter().all(|&writes| writes <= self.disk_writes_max)
            && reads.iter().all(|&reads| reads <= self.disk_reads_max);
        hold(is_bounded, "disk hops are bounded in each stripe", "disk", 0)
    }

    fn pins_of_plans(&self) -> Result<Vec<u32>, super::Violation> {
        let mut pins = vec![0_u32; self.chunks.records().len()];
        for run in self.plans.runs() {
            let mut index = run.deepest;
            for left in (0..run.chunk_count).rev() {
                pins[index.get()] += 1;
                if left == 0 {
                    hold(index == run.first, "a run ends at its first", "chunk", index.to_u32())?;
                } else {
                    index = self.chunks.at(index).parent;
                }
            }
        }
        Ok(pins)
    }

    /// Checks who waits for a write, and in which order.
    pub(super) fn audit_writes(&self) -> Audit {
        let mut taken = 0;
        for (number, place) in (0..).zip(self.write_queue.places()) {
            if place.state == PlaceState::Free {
                continue;
            }
            taken += 1;
            let chunk = self.chunks.at(place.chunk);
            let waits = chunk.write.place == number
                && chunk.presence == Presence::Here
                && chunk.slot(Tier::Disk).is_none();
            hold(waits, "who waits for a write is here and has none", "place", number)?;
            let is_filling = self.copy(place.chunk, Tier::Host) == Some(SlotState::Filling);
            let agrees = is_filling == (place.state == PlaceState::Filling);
            hold(agrees, "a place knows whether its chunk is filling", "place", number)?;
        }
        hold(taken == self.write_queue.taken(), "places are counted", "write queue", 0)?;
        let held = self.chunks.records().iter().filter(|chunk| chunk.write.place != NONE).count();
        hold(held == taken as usize, "each place has one chunk", "write queue", 0)?;
        for at in 0..self.groups.len() {
            let mut is_behind = vec![false; self.chunks.records().len()];
            for place in self.write_queue.queued(at) {
                is_behind[place.chunk.get()] = true;
                hold(
                    self.is_after_parent(place.chunk, &is_behind),
                    "no chunk is queued before its unwritten parent",
                    "chunk",
                    place.chunk.to_u32(),
                )?;
            }
        }
        Ok(())
    }

    /// Whether a queued chunk comes after its parent, unless that one lost its turn since.
    fn is_after_parent(&self, index: ChunkIndex, is_behind: &[bool]) -> bool {
        self.unwritten_parent(index).is_none_or(|parent| {
            is_behind[parent.get()] || self.chunks.at(parent).write.has_lost_turn
        })
    }

    /// Checks stages, who waits for what, and staging.
    pub(super) fn audit_transfers(&self) -> Audit {
        let mut running = [0_u32; 2];
        for number in self.transfers.live() {
            let transfer = self.transfers.at(number);
            let group = &self.groups[usize::from(transfer.group.get())];
            let side = usize::from(transfer.direction == Direction::Load);
            let hops = transfer.stages().iter().filter(|stage| matches!(stage, Stage::Running(_)));
            running[side] += group.pieces_per_chunk * hops.map(|_| 1).sum::<u32>();
            for position in 0..transfer.stages().len() {
                self.audit_position(number, transfer, position)?;
            }
            let is_queued = transfer.first_queued().is_some();
            hold(
                !is_queued || self.transfers.is_waiting(number),
                "a transfer with queued chunks waits for staging",
                "transfer",
                number,
            )?;
            let is_to_read = transfer.first_to_read().is_some();
            hold(
                !is_to_read || self.transfers.is_waiting_for_read(number),
                "a transfer with chunks to read waits for that",
                "transfer",
                number,
            )?;
        }
        let [out, into] = running;
        let adds_up = out + self.staging_out == self.staging_out_pieces
            && into + self.staging_in == self.staging_in_pieces;
        hold(adds_up, "staging pieces in use and free add up", "staging", 0)?;
        self.audit_reads()
    }

    fn audit_position(&self, number: u32, transfer: &Transfer, position: usize) -> Audit {
        let stage = transfer.stages()[position];
        let chunk = transfer.chunks[position].some();
        let waits = chunk.is_some_and(|chunk| {
            let joiners = self.chunks.at(chunk).joiners;
            self.transfers.joiners(joiners).any(|joiner| joiner == (number, position))
        });
        let is_joined = matches!(stage, Stage::Joined | Stage::Reading);
        hold(waits == is_joined, "what is joined waits for its chunk", "transfer", number)?;
        let is_filling =
            chunk.is_some_and(|chunk| self.copy(chunk, Tier::Host) == Some(SlotState::Filling));
        hold(is_filling || !is_joined, "what is joined is being filled", "transfer", number)?;
        let is_load = transfer.direction == Direction::Load;
        let may_read = stage == Stage::Queued && is_load;
        hold(
            may_read || !transfer.is_to_read(position),
            "only queued loads wait for a read",
            "transfer",
            number,
        )
    }

    /// Checks that no load waits for a read that could begin without anybody knowing.
    fn audit_reads(&self) -> Audit {
        for (at, group) in (0..).zip(&self.groups) {
            let Some(first) = group.waiting_read.first() else {
                continue;
            };
            let is_to_begin = self.transfers.at(first).first_to_read().is_some()
                && !self.is_due(first)
                && group.tier(Tier::Host).slots.counts().free > 0;
            hold(
                !is_to_begin || self.reads.may_begin,
                "a read that can begin is known to",
                "group",
                at,
            )?;
        }
        for (stripe, aside) in (0..).zip(self.reads.aside) {
            let is_to_begin =
                !aside.is_empty() && self.reads.running_on[stripe as usize] < self.disk_reads_max;
            hold(
                !is_to_begin || self.reads.may_begin,
                "a read that waits for its stripe is known to once it can begin",
                "stripe",
                stripe,
            )?;
        }
        Ok(())
    }
}
