//! Transfers: at most 64 chunks of one ticket on their way out or in, and the table of them.
//!
//! ```text
//! store: Queued -> Running(Pack) -> Running(OutLink) -> Done   (Joined: it is being filled)
//! load:  Queued -> Running(InLink) -> Running(Unpack) -> Done  any of them -> Failed(why)
//!        Queued -> Reading -> Queued  when the chunk is on disk only
//! ```
//!
//! Invariants: a stage that is Done or Failed is final; a running stage ends only by its
//! completion, because the device may still touch the memory; an ended transfer stays readable
//! until its owner lets go of it; no transfer waits twice for one chunk.
//!
//! Called by `core` alone; stages and failures are public.

use super::chunk::ChunkIndex;
use super::{KEY_COUNT_MAX, Refused};
use crate::links::{Links, List};
use crate::units::{GroupIndex, Timestamp};
use thiserror::Error;

/// Positions of one transfer.
#[expect(clippy::cast_possible_truncation, reason = "it is 64")]
const POSITIONS: u32 = KEY_COUNT_MAX as u32;

/// One move of bytes that the core asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hop {
    /// Gather a chunk's fragments into staging and sum them.
    Pack,
    /// Copy a packed chunk from staging to its host slot.
    OutLink,
    /// Copy a chunk from its host slot to staging.
    InLink,
    /// Verify a chunk in staging and scatter it into the engine's blocks.
    Unpack,
}

/// Where one chunk of a transfer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Waits for staging, or for a host slot to be read into.
    Queued,
    /// The chunk is being read from disk.
    Reading,
    /// The hop is under way.
    Running(Hop),
    /// The same key is being filled for another transfer: a store ends as that does, a load goes on
    /// from there.
    Joined,
    /// Stored to the host tier, or loaded.
    Done,
    /// Ended without its bytes.
    Failed(Failure),
}

impl Stage {
    /// Whether the stage is final.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Done | Self::Failed(_))
    }

    /// Whether nothing of the chunk is under way yet.
    const fn is_waiting(self) -> bool {
        matches!(self, Self::Queued | Self::Joined)
    }

    /// Whether a store at this stage reads the engine's blocks no more.
    pub const fn is_released(self) -> bool {
        !matches!(self, Self::Queued | Self::Running(Hop::Pack))
    }
}

/// Why one chunk of a transfer ended without its bytes. Each is a miss, never an error of the
/// engine's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
#[non_exhaustive]
pub enum Failure {
    /// No slot or record is free and nothing can be evicted: all is pinned, in flight, or an
    /// ancestor of what is.
    #[error("there is no room, and everything that could make some is pinned or in flight")]
    Full,
    /// Too many chunks had to be passed over to find a victim; asking again goes on from there.
    #[error("no victim was found within one step; call make_room_for, then store again")]
    Busy,
    /// The key was lost while pinned and its slot is not free yet.
    #[error("the chunk's former slot still has readers")]
    Draining,
    /// The chunk before it is not stored, so no lookup could reach it.
    #[error("the chunk's parent is not stored; store the prefix from its first missing chunk")]
    ParentMissing,
    /// The key is stored under another parent: the keys given are not one chain.
    #[error("the key is known under another parent; keys must be consecutive chunks of one prefix")]
    ForeignParent,
    /// A load named a chunk that is not resident.
    #[error("the chunk is not resident")]
    Missing,
    /// The deadline passed before its first hop began.
    #[error("the deadline passed before the transfer could begin")]
    Deadline,
    /// Its owner cancelled it before its first hop began.
    #[error("the transfer was cancelled")]
    Cancelled,
    /// The device failed the hop.
    #[error("the device failed during the transfer")]
    Device,
    /// The bytes did not match their checksum; the chunk is lost and nothing was written.
    #[error("the chunk's bytes do not match their checksum")]
    Checksum,
    /// The chunk could not be read from disk; it is lost there.
    #[error("the chunk could not be read from disk")]
    Disk,
    /// It was cleared or erased while it was under way. The blocks of a load may hold some of it.
    #[error("the chunk was cleared or erased while the transfer was under way")]
    Cleared,
    /// An internal invariant was found broken while it was under way; nothing is served any more.
    #[error("the pager is poisoned: an internal invariant was found broken; open another one")]
    Poisoned,
}

/// Names a transfer until it has ended and its owner has let go of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TransferId {
    pub(super) index: u32,
    generation: u32,
}

/// What a transfer moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Store,
    Load,
}

/// The points of a transfer for which its waiters are woken, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Announced {
    Nothing,
    Released,
    Ended,
}

#[derive(Clone, Debug)]
pub(super) struct Transfer {
    generation: u32,
    pub(super) is_live: bool,
    pub(super) direction: Direction,
    pub(super) group: GroupIndex,
    pub(super) deadline: Timestamp,
    pub(super) chunk_count: u8,
    pub(super) chunks: [ChunkIndex; KEY_COUNT_MAX],
    stages: [Stage; KEY_COUNT_MAX],
    /// Chunks that are queued or joined: what a deadline can still end.
    waiting_count: u8,
    final_count: u8,
    /// Its owner let go: the record is free once the last stage is final.
    pub(super) is_detached: bool,
    /// The last point for which a wake went out.
    pub(super) announced: Announced,
    /// Bit `i`: position `i` is queued for a read, and holds no host slot.
    to_read: u64,
    /// The stripe whose reads it waits for aside from its group's others.
    pub(super) aside_for: Option<u8>,
    /// Why it was given up while some of it was being read.
    pub(super) given_up: Option<Failure>,
}

impl Transfer {
    const VACANT: Self = Self {
        generation: 0,
        is_live: false,
        direction: Direction::Store,
        group: GroupIndex::new(0),
        deadline: Timestamp::NEVER,
        chunk_count: 0,
        chunks: [ChunkIndex::NONE; KEY_COUNT_MAX],
        stages: [Stage::Queued; KEY_COUNT_MAX],
        waiting_count: 0,
        final_count: 0,
        is_detached: false,
        announced: Announced::Nothing,
        to_read: 0,
        aside_for: None,
        given_up: None,
    };

    pub(super) fn stages(&self) -> &[Stage] {
        &self.stages[..usize::from(self.chunk_count)]
    }

    /// Whether one of its chunks is `chunk`.
    pub(super) fn holds(&self, chunk: ChunkIndex) -> bool {
        self.chunks[..usize::from(self.chunk_count)].contains(&chunk)
    }

    pub(super) fn push(&mut self, chunk: ChunkIndex, stage: Stage) {
        let position = usize::from(self.chunk_count);
        self.chunks[position] = chunk;
        self.stages[position] = stage;
        self.chunk_count += 1;
        self.waiting_count += u8::from(stage.is_waiting());
        self.final_count += u8::from(stage.is_final());
    }

    /// Moves a chunk to its next stage.
    ///
    /// # Panics
    ///
    /// Panics when its stage is final.
    pub(super) fn advance(&mut self, position: usize, stage: Stage) {
        let former = std::mem::replace(&mut self.stages[position], stage);
        assert!(!former.is_final(), "a final stage does not change");
        self.waiting_count -= u8::from(former.is_waiting());
        self.waiting_count += u8::from(stage.is_waiting());
        self.final_count += u8::from(stage.is_final());
    }

    /// The first position that waits for staging.
    pub(super) fn first_queued(&self) -> Option<usize> {
        let mut stages = self.stages().iter().enumerate();
        let is_queued = |(position, stage): (usize, &Stage)| {
            *stage == Stage::Queued && !self.is_to_read(position)
        };
        stages.position(is_queued)
    }

    /// The first position that is queued for a read.
    pub(super) fn first_to_read(&self) -> Option<usize> {
        (self.to_read != 0).then(|| self.to_read.trailing_zeros() as usize)
    }

    pub(super) fn is_to_read(&self, position: usize) -> bool {
        self.to_read >> position & 1 == 1
    }

    pub(super) fn mark_to_read(&mut self, position: usize) {
        self.to_read |= 1 << position;
    }

    pub(super) fn unmark(&mut self, position: usize) {
        self.to_read &= !(1 << position);
    }

    /// The point that the transfer has reached.
    pub(super) fn reached(&self) -> Announced {
        let is_store = self.direction == Direction::Store;
        if self.has_ended() {
            Announced::Ended
        } else if is_store && self.stages().iter().all(|stage| stage.is_released()) {
            Announced::Released
        } else {
            Announced::Nothing
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.final_count == self.chunk_count
    }

    /// Whether it exists and a deadline could still end some of it.
    pub(super) fn can_expire(&self) -> bool {
        self.is_live && self.waiting_count > 0
    }
}

/// The transfers under way, in preallocated records.
#[derive(Debug)]
pub(super) struct TransferTable {
    transfers: Box<[Transfer]>,
    /// Members: free records, or those that wait for staging; never both.
    links: Links,
    free: List,
    /// Members: transfers of which some positions wait for a read, by group or aside.
    read_links: Links,
    /// Members: joined or reading positions, [`KEY_COUNT_MAX`] a transfer, by the chunk that they
    /// wait for.
    joins: Links,
}

impl TransferTable {
    pub(super) fn new(transfer_count_max: u32) -> Self {
        let mut links = Links::new(transfer_count_max);
        let mut free = List::EMPTY;
        for index in 0..transfer_count_max {
            links.push_back(&mut free, index);
        }
        let transfers = vec![Transfer::VACANT; transfer_count_max as usize].into_boxed_slice();
        let read_links = Links::new(transfer_count_max);
        let joins = Links::new(transfer_count_max * POSITIONS);
        Self { transfers, links, free, read_links, joins }
    }

    pub(super) fn bytes(&self) -> usize {
        let links = (2 + KEY_COUNT_MAX) * Links::NODE_BYTES;
        self.transfers.len() * (size_of::<Transfer>() + links)
    }

    /// Takes a record for a transfer without chunks yet.
    pub(super) fn open(
        &mut self,
        direction: Direction,
        group: GroupIndex,
        deadline: Timestamp,
    ) -> Result<TransferId, Refused> {
        let transfer_count_max = self.transfers.len();
        let index = self.free.first().ok_or(Refused::TransfersExhausted { transfer_count_max })?;
        self.links.remove(&mut self.free, index);
        let transfer = &mut self.transfers[index as usize];
        let generation = transfer.generation;
        *transfer = Transfer { generation, ..Transfer::VACANT };
        transfer.is_live = true;
        transfer.direction = direction;
        transfer.group = group;
        transfer.deadline = deadline;
        Ok(TransferId { index, generation })
    }

    /// Frees the record of a transfer that has ended.
    pub(super) fn close(&mut self, index: u32) {
        let transfer = &mut self.transfers[index as usize];
        assert!(transfer.has_ended(), "a transfer under way keeps its record");
        transfer.is_live = false;
        transfer.generation = transfer.generation.wrapping_add(1);
        self.links.push_back(&mut self.free, index);
    }

    pub(super) fn get(&self, id: TransferId) -> Option<&Transfer> {
        let transfer = self.transfers.get(id.index as usize)?;
        (transfer.is_live && transfer.generation == id.generation).then_some(transfer)
    }

    pub(super) fn at(&self, index: u32) -> &Transfer {
        &self.transfers[index as usize]
    }

    pub(super) fn at_mut(&mut self, index: u32) -> &mut Transfer {
        &mut self.transfers[index as usize]
    }

    pub(super) fn id(&self, index: u32) -> TransferId {
        TransferId { index, generation: self.at(index).generation }
    }

    /// Returns the numbers of the transfers that exist, ended ones included.
    pub(super) fn live(&self) -> impl Iterator<Item = u32> + '_ {
        (0_u32..)
            .zip(self.transfers.iter())
            .filter_map(|(index, transfer)| transfer.is_live.then_some(index))
    }

    /// Lets a position of a transfer wait for the chunk of `joiners`.
    pub(super) fn join(&mut self, joiners: &mut List, index: u32, position: usize) {
        let position = u32::try_from(position).expect("at most 64 positions");
        self.joins.push_back(joiners, index * POSITIONS + position);
    }

    /// Takes the position that waits longest out of `joiners`.
    pub(super) fn pop_joiner(&mut self, joiners: &mut List) -> Option<(u32, usize)> {
        let node = joiners.first()?;
        self.joins.remove(joiners, node);
        Some((node / POSITIONS, (node % POSITIONS) as usize))
    }

    /// Takes a position out of `joiners`, because it waits no longer.
    pub(super) fn leave_joiners(&mut self, joiners: &mut List, index: u32, position: usize) {
        let position = u32::try_from(position).expect("at most 64 positions");
        self.joins.remove(joiners, index * POSITIONS + position);
    }

    /// Returns the positions that wait for the chunk of `joiners`.
    pub(super) fn joiners(&self, joiners: List) -> impl Iterator<Item = (u32, usize)> + '_ {
        let members = self.joins.members(joiners);
        members.map(|node| (node / POSITIONS, (node % POSITIONS) as usize))
    }

    pub(super) fn wait(&mut self, waiting: &mut List, index: u32) {
        self.links.push_back(waiting, index);
    }

    pub(super) fn stop_waiting(&mut self, waiting: &mut List, index: u32) {
        self.links.remove(waiting, index);
    }

    /// Lets a transfer wait for a read, if it does not yet.
    pub(super) fn wait_for_read(&mut self, waiting: &mut List, index: u32) {
        if !self.read_links.is_linked(index) {
            self.read_links.push_back(waiting, index);
        }
    }

    pub(super) fn stop_waiting_for_read(&mut self, waiting: &mut List, index: u32) {
        self.read_links.remove(waiting, index);
        self.at_mut(index).aside_for = None;
    }

    /// Lets a transfer that waits in no list wait for the reads of a stripe.
    pub(super) fn wait_aside(&mut self, aside: &mut List, index: u32, stripe: usize) {
        self.read_links.push_back(aside, index);
        let stripe = u8::try_from(stripe).expect("a tier has at most 16 stripes");
        self.at_mut(index).aside_for = Some(stripe);
    }

    /// Lets a transfer that waits in no list wait in front of all others.
    pub(super) fn go_on_reading(&mut self, waiting: &mut List, index: u32) {
        self.read_links.push_front(waiting, index);
    }

    pub(super) fn is_waiting_for_read(&self, index: u32) -> bool {
        self.read_links.is_linked(index)
    }

    pub(super) fn is_waiting(&self, index: u32) -> bool {
        self.at(index).is_live && self.links.is_linked(index)
    }
}
