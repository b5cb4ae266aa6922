//! The open sequences of a pool, found by an id that is never reused.
//!
//! Invariants: an id names one sequence for the life of the pool; once closed it is refused. Lists
//! of closed tables are kept and used again, so that opening and closing in a steady state
//! allocates nothing. Called by `BlockPool` only.

use std::fmt;

use crate::table::{BlockTable, TableError};
use crate::units::{BlockId, GroupIndex};

/// Names a sequence of one block pool; given by `BlockPool::open` and the forks.
///
/// Valid in that pool until the sequence is closed, then refused for ever. The pool of another
/// group refuses it too; pools of one group (one a device, say) do not tell their ids apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceId {
    /// Counts the sequences that the pool has opened; 64 bits do not wrap.
    serial: u64,
    slot: usize,
    group: GroupIndex,
}

impl fmt::Display for SequenceId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "sequence {} of group {}", self.serial, self.group)
    }
}

/// Place of an open sequence, or vacant.
#[derive(Debug)]
struct Slot {
    /// Serial of the open sequence; `None` when vacant.
    serial: Option<u64>,
    table: BlockTable,
}

/// The open sequences of one group.
#[derive(Debug)]
pub(super) struct Sequences {
    group: GroupIndex,
    slots: Vec<Slot>,
    /// Indices of the vacant slots.
    vacant: Vec<usize>,
    /// Emptied lists of closed tables.
    spare: Vec<Vec<BlockId>>,
    next_serial: u64,
}

impl Sequences {
    /// Starts with no open sequence.
    pub(super) const fn new(group: GroupIndex) -> Self {
        Self { group, slots: Vec::new(), vacant: Vec::new(), spare: Vec::new(), next_serial: 0 }
    }

    /// Returns the group that the sequences belong to.
    pub(super) const fn group(&self) -> GroupIndex {
        self.group
    }

    /// Returns an empty list, with the room of a closed table's where there is one.
    pub(super) fn spare_list(&mut self) -> Vec<BlockId> {
        self.spare.pop().unwrap_or_default()
    }

    /// Opens a sequence with this table.
    pub(super) fn open(&mut self, table: BlockTable) -> SequenceId {
        let serial = self.next_serial;
        self.next_serial += 1;
        let opened = Slot { serial: Some(serial), table };
        let slot = if let Some(slot) = self.vacant.pop() {
            self.slots[slot] = opened;
            slot
        } else {
            self.slots.push(opened);
            self.slots.len() - 1
        };
        self.id(serial, slot)
    }

    /// Closes a sequence and hands its blocks to `give_up`, the last first.
    pub(super) fn close(
        &mut self,
        sequence: SequenceId,
        give_up: impl FnMut(BlockId),
    ) -> Result<(), TableError> {
        let slot = self.locate(sequence)?;
        self.slots[slot].serial = None;
        self.vacant.push(slot);
        let list = self.slots[slot].table.finish(give_up);
        self.spare.push(list);
        Ok(())
    }

    /// Returns the table of an open sequence.
    pub(super) fn get(&self, sequence: SequenceId) -> Result<&BlockTable, TableError> {
        let slot = self.locate(sequence)?;
        Ok(&self.slots[slot].table)
    }

    /// Returns the table of an open sequence, to change it.
    pub(super) fn get_mut(&mut self, sequence: SequenceId) -> Result<&mut BlockTable, TableError> {
        let slot = self.locate(sequence)?;
        Ok(&mut self.slots[slot].table)
    }

    /// Lists the open sequences by slot.
    pub(super) fn iter(&self) -> impl Iterator<Item = (SequenceId, &BlockTable)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(index, slot)| Some((self.id(slot.serial?, index), &slot.table)))
    }

    /// Finds the slot of an open sequence.
    fn locate(&self, sequence: SequenceId) -> Result<usize, TableError> {
        let group = self.group;
        if sequence.group != group {
            return Err(TableError::OtherGroup { sequence, group });
        }
        let slot = self.slots.get(sequence.slot);
        if slot.is_none_or(|slot| slot.serial != Some(sequence.serial)) {
            return Err(TableError::UnknownSequence { sequence });
        }
        Ok(sequence.slot)
    }

    const fn id(&self, serial: u64, slot: usize) -> SequenceId {
        SequenceId { serial, slot, group: self.group }
    }
}

#[cfg(test)]
mod tests {
    use super::Sequences;
    use crate::table::BlockTable;
    use crate::units::{BlockId, GroupIndex, TokenCount};

    #[test]
    fn a_closed_sequence_leaves_its_slot_and_its_list_to_the_next() {
        let mut sequences = Sequences::new(GroupIndex::new(0));
        let mut room = 0;
        for _ in 0..100 {
            let list = sequences.spare_list();
            assert_eq!(list.capacity(), room, "the list of the sequence before");
            let sequence = sequences.open(BlockTable::new(TokenCount::new(1), list));
            let table = sequences.get_mut(sequence).unwrap();
            table.grow(64, || BlockId::new(0));
            sequences.close(sequence, |_| ()).unwrap();
            room = sequences.spare[0].capacity();
        }
        assert_eq!(sequences.slots.len(), 1);
        assert_eq!(sequences.spare.len(), 1);
    }
}
