//! What goes out of the core and what comes back: actions and completions.
//!
//! The caller takes actions under its lock, runs them after unlock, and reports each hop by one
//! completion. A hop that was handed out is always completed, by success or failure: its memory
//! belongs to the device or the disk until then.

use super::chunk::ChunkIndex;
use super::transfer::{Hop, TransferId};
use crate::key::Key;
use crate::units::{GroupIndex, SlotIndex, TenantTag};

/// Where a chunk stands in its prefix, and whose it is: what its slot's header page says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lineage {
    /// The chunk before it; `None` for a root, and in a window group where that one is not known.
    pub parent: Option<Key>,
    /// Chunks before it.
    pub depth: u32,
    /// Whose it is: of who stored it first.
    pub tenant: TenantTag,
}

/// One chunk's hop between the device and its host slot: what to move, and for whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HopRequest {
    /// The move to make.
    pub hop: Hop,
    /// The transfer it belongs to.
    pub transfer: TransferId,
    /// The chunk's position in the transfer, 0 to 63: which of the engine's block ids, and which
    /// staging pieces.
    pub position: u8,
    /// The chunk's group.
    pub group: GroupIndex,
    /// The chunk's host slot.
    pub slot: SlotIndex,
    /// Where the chunk stands in its prefix.
    pub lineage: Lineage,
}

/// One move of bytes between a host slot and a disk slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DiskHop {
    /// Write a host slot to its disk slot.
    Write,
    /// Read a disk slot into its host slot and check that it is what the store wrote there.
    Read,
}

/// Names a chunk while a disk hop of it is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ChunkId(pub(super) ChunkIndex);

/// One chunk's hop between the host and the disk tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskRequest {
    /// The move to make.
    pub hop: DiskHop,
    /// The chunk, until the hop is completed.
    pub chunk: ChunkId,
    /// The chunk's group.
    pub group: GroupIndex,
    /// The chunk's key.
    pub key: Key,
    /// The chunk's host slot.
    pub slot: SlotIndex,
    /// The chunk's disk slot.
    pub disk_slot: SlotIndex,
}

/// Something to be done outside the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Make one move of bytes, then report it with [`Core::complete`](super::Core::complete).
    Start(HopRequest),
    /// Write or read one slot, then report it with
    /// [`Core::complete_disk`](super::Core::complete_disk).
    Disk(DiskRequest),
    /// Tell whoever waits for the transfer to look at its stages: it reached the released point,
    /// or it ended.
    Wake {
        /// The transfer to look at.
        transfer: TransferId,
    },
}

/// How a hop failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HopFailure {
    /// The device could not make the move; the bytes at the source are untouched.
    Device,
    /// The bytes do not match their checksum (unpack only); nothing was written.
    Checksum,
}

/// How a disk hop failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DiskFailure {
    /// The drive could not make the move.
    Drive,
    /// There is no space left for the slot.
    NoSpace,
    /// What was read is not what the store wrote there for this chunk.
    Mismatch,
    /// What it wrote or was to read was cleared in the meantime: nothing is wrong with the drive.
    Cleared,
    /// It was given up, and may still touch its memory and its disk slot: neither is used again
    /// until [`Core::unstick`](super::Core::unstick).
    Stuck,
}

/// The end of one hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The move that ended.
    pub hop: Hop,
    /// The transfer it belongs to.
    pub transfer: TransferId,
    /// The chunk's position in the transfer.
    pub position: u8,
    /// How it ended.
    pub outcome: Result<(), HopFailure>,
}

/// The end of one disk hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskCompletion {
    /// The move that ended.
    pub hop: DiskHop,
    /// The chunk that was moved.
    pub chunk: ChunkId,
    /// How it ended.
    pub outcome: Result<(), DiskFailure>,
}

impl HopRequest {
    /// Returns the completion that reports this hop.
    pub const fn ended(self, outcome: Result<(), HopFailure>) -> Completion {
        let Self { hop, transfer, position, .. } = self;
        Completion { hop, transfer, position, outcome }
    }
}

impl DiskRequest {
    /// Returns the completion that reports this hop.
    pub const fn ended(self, outcome: Result<(), DiskFailure>) -> DiskCompletion {
        let Self { hop, chunk, .. } = self;
        DiskCompletion { hop, chunk, outcome }
    }
}
