//! The core's invariants as one executable check.
//!
//! Costs time in proportion to all tables: for tests after every step, and for an operator who
//! wants to know at the end of a run.

use super::chunk::{Chunk, ChunkIndex, Presence};
use super::slot::SlotState;
use super::transfer::{Direction, Stage};
use super::{Core, GroupState};
use crate::units::SlotIndex;
use thiserror::Error;

/// An invariant of the core that does not hold, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{promise} (at {place} {number})")]
pub struct Violation {
    /// What should hold.
    pub promise: &'static str,
    /// The table in which it does not.
    pub place: &'static str,
    /// The record's number.
    pub number: u32,
}

/// Returns a violation unless the promise holds.
fn hold(holds: bool, promise: &'static str, place: &'static str, number: u32) -> Audit {
    if holds { Ok(()) } else { Err(Violation { promise, place, number }) }
}

type Audit = Result<(), Violation>;

impl Core {
    /// Checks every invariant of every table.
    ///
    /// # Errors
    ///
    /// The first [`Violation`] found.
    pub fn audit(&self) -> Result<(), Violation> {
        let counters = self.counters;
        let probes_add_up = counters.hits + counters.misses == counters.probes;
        hold(probes_add_up, "hits + misses = keys probed", "counters", 0)?;
        for (at, group) in (0..).zip(&self.groups) {
            self.audit_slots(at, group)?;
        }
        self.audit_readers()?;
        self.audit_chunks()?;
        self.audit_staging()
    }

    fn audit_slots(&self, at: u32, group: &GroupState) -> Audit {
        let counts = group.slots.counts();
        let mut used = 0;
        for number in 0..group.slots.capacity() {
            let slot = SlotIndex::new(number);
            let state = group.slots.state(slot);
            let is_ranked = group.policy.is_ranked(slot);
            if let SlotState::Free { .. } = state {
                hold(!is_ranked, "a free slot is not ranked", "slot", number)?;
                continue;
            }
            used += 1;
            let chunk = self.chunks.at(group.slots.chunk(slot));
            let is_owner = chunk.slot == slot && u32::from(chunk.group.get()) == at;
            hold(is_owner, "a used slot has one owner", "slot", number)?;
            let presence = match state {
                SlotState::Draining { .. } => Presence::Draining,
                _ => Presence::Here,
            };
            hold(chunk.presence == presence, "chunk and slot agree", "slot", number)?;
            let may_be_ranked = state == SlotState::Resident { readers: 0 };
            let is_placed = is_ranked || chunk.is_set_aside;
            hold(
                is_placed == may_be_ranked && !(is_ranked && chunk.is_set_aside),
                "exactly the unread resident slots are ranked or set aside",
                "slot",
                number,
            )?;
            let waits_for_children = group.spares_ancestors() && !chunk.children.is_empty();
            hold(
                !chunk.is_set_aside || waits_for_children,
                "only a chunk with descendants is set aside",
                "slot",
                number,
            )?;
        }
        hold(counts.used == used, "used slots are counted", "group", at)?;
        let capacity = group.slots.capacity();
        hold(counts.used + counts.free == capacity, "used + free = capacity", "group", at)
    }

    /// Counts the pins of plans and loads against the readers of every slot.
    fn audit_readers(&self) -> Audit {
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
        for number in self.transfers.live() {
            let transfer = self.transfers.at(number);
            for (chunk, stage) in transfer.chunks.iter().zip(transfer.stages()) {
                if transfer.direction == Direction::Load && !stage.is_final() {
                    pins[chunk.get()] += 1;
                }
            }
        }
        for (number, (chunk, pins)) in (0..).zip(self.chunks.records().iter().zip(pins)) {
            let readers = match self.slot_state(chunk) {
                Some(SlotState::Resident { readers } | SlotState::Draining { readers }) => readers,
                _ => 0,
            };
            hold(readers == pins, "readers are the pins of plans and loads", "chunk", number)?;
        }
        Ok(())
    }

    fn slot_state(&self, chunk: &Chunk) -> Option<SlotState> {
        let owns_slot = matches!(chunk.presence, Presence::Here | Presence::Draining);
        owns_slot.then(|| self.groups[usize::from(chunk.group.get())].slots.state(chunk.slot))
    }

    fn audit_chunks(&self) -> Audit {
        let mut named = 0;
        let mut remembered = 0;
        for (number, chunk) in (0..).zip(self.chunks.records()) {
            let index = ChunkIndex::new(number);
            if chunk.presence == Presence::Vacant {
                continue;
            }
            named += 1;
            let found = self.index.find(chunk.key, self.chunks.records());
            hold(found == Some(index), "the index names every record", "chunk", number)?;
            self.audit_family(index, chunk)?;
            let is_history = chunk.presence == Presence::Gone && chunk.children.is_empty();
            remembered += u32::from(is_history);
        }
        hold(self.index.length() == named, "the index names nothing else", "index", 0)?;
        for index in self.chunks.history() {
            let chunk = self.chunks.at(index);
            let belongs = chunk.presence == Presence::Gone && chunk.children.is_empty();
            hold(belongs, "history holds gone chunks", "chunk", index.to_u32())?;
            remembered = remembered.wrapping_sub(1);
        }
        hold(remembered == 0, "every gone chunk without children is history", "index", 0)?;
        for group in &self.groups {
            for index in self.chunks.members(group.orphaned) {
                let chunk = self.chunks.at(index);
                let belongs = chunk.presence != Presence::Here && !chunk.children.is_empty();
                hold(belongs, "orphaned parents are gone", "chunk", index.to_u32())?;
            }
        }
        Ok(())
    }

    fn audit_family(&self, index: ChunkIndex, chunk: &Chunk) -> Audit {
        let number = index.to_u32();
        let group = &self.groups[usize::from(chunk.group.get())];
        for child in self.chunks.members(chunk.children) {
            let child_chunk = self.chunks.at(child);
            let belongs = child_chunk.parent == index
                && child_chunk.presence == Presence::Here
                && child_chunk.group == chunk.group;
            hold(belongs, "children are here and know their parent", "chunk", child.to_u32())?;
            let is_deeper = child_chunk.depth == self.chunks.depth_below(index);
            hold(
                is_deeper || !group.spares_ancestors(),
                "a child is one deeper than its parent",
                "chunk",
                child.to_u32(),
            )?;
        }
        let is_child = chunk.presence == Presence::Here && chunk.parent != ChunkIndex::NONE;
        let has_children = !chunk.children.is_empty();
        let is_orphaned =
            group.spares_ancestors() && chunk.presence != Presence::Here && has_children;
        let is_history = chunk.presence == Presence::Gone && !has_children;
        hold(
            self.chunks.is_linked(index) == (is_child || is_orphaned || is_history),
            "a chunk is in the list that its state says",
            "chunk",
            number,
        )?;
        hold(
            group.spares_ancestors() || chunk.presence != Presence::Gone || !has_children,
            "a window group keeps no children of gone chunks",
            "chunk",
            number,
        )
    }

    fn audit_staging(&self) -> Audit {
        let mut running = [0_u32; 2];
        for number in self.transfers.live() {
            let transfer = self.transfers.at(number);
            let group = &self.groups[usize::from(transfer.group.get())];
            let side = usize::from(transfer.direction == Direction::Load);
            let hops = transfer.stages().iter().filter(|stage| matches!(stage, Stage::Running(_)));
            running[side] += group.pieces_per_chunk * hops.map(|_| 1).sum::<u32>();
            let is_queued = transfer.first_queued().is_some();
            hold(
                !is_queued || self.transfers.is_waiting(number),
                "a transfer with queued chunks waits for staging",
                "transfer",
                number,
            )?;
        }
        let [out, into] = running;
        let adds_up = out + self.staging_out == self.staging_out_pieces
            && into + self.staging_in == self.staging_in_pieces;
        hold(adds_up, "staging pieces in use and free add up", "staging", 0)
    }
}
