//! Devices: they hold the engine's blocks, pack and unpack chunks, and copy them over the link.
//!
//! A [`Device`] runs one hop at a time for each chunk it is given and reports its end. It knows the
//! engine's layout; it knows nothing of keys being stored, slots being evicted or who waits.
//!
//! Between the engine's blocks and the host lie two rings of staging pieces, *out* and *in*. A
//! piece holds the image of one slot: the header page, in which the device keeps the parts' sealed
//! sums at [`HEADER_SUMS_OFFSET_BYTES`], and the payload. So one contiguous copy moves a chunk over
//! the link, and the sums travel with the bytes they guard.
//!
//! ```text
//! store:  blocks --Pack--> staging out --OutLink--> host slot
//! load:   host slot --InLink--> staging in --Unpack--> blocks
//! ```
//!
//! The contract with the engine:
//!
//! - a pack reads its blocks only after the engine's event, and never after it has been reported;
//! - an in-link waits on nothing of the engine; an unpack writes its blocks only after the engine's
//!   event, only bytes that matched their sums, and never after it has been reported;
//! - an event that was never recorded orders nothing, as on CUDA: what was recorded last when the
//!   engine asked is what is waited for, since the pager [captures](Device::capture) it then.
//!
//! Invariants: operations of one hop begin in the order of submission; every operation submitted is
//! reported exactly once, unless the device is given up on; the memory of an operation belongs to
//! it until it is reported.
//!
//! Called by the pager's device thread.
//!
//! | folder | back end |
//! |---|---|
//! | [`cpu`] | host memory and threads |

pub mod cpu;
#[cfg_attr(not(test), expect(dead_code, reason = "no back end but tests runs the kernels"))]
mod descriptors;

use crate::core::Hop;
use crate::key::Key;
use crate::mem::SlotMemory;
use crate::units::{BlockCount, BlockId, ByteCount, GroupIndex};
use kvtide_kernels::abi::{HEADER_PAGE_BYTES, PART_COUNT_MAX};
use std::fmt::Debug;
use std::time::Duration;
use thiserror::Error;

/// Where the sealed sums of a chunk's parts begin in its header page, in bytes; one `u64` a part.
pub const HEADER_SUMS_OFFSET_BYTES: u64 = 1024;

const _: () =
    assert!(HEADER_SUMS_OFFSET_BYTES + 8 * PART_COUNT_MAX as u64 + 64 <= HEADER_PAGE_BYTES);

/// An event of the engine: a driver's event for a GPU, one of the device's own for the CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct EventHandle(u64);

impl EventHandle {
    /// Wraps the driver's handle.
    pub const fn new(handle: u64) -> Self {
        Self(handle)
    }

    /// Returns the driver's handle.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// When the engine's blocks may be touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// At once.
    Now,
    /// Once the work that is recorded in the event now has ended. Recording it again or destroying
    /// it later changes nothing.
    After(EventHandle),
}

/// Number of a piece in one of the staging rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct PieceIndex(u32);

impl PieceIndex {
    /// Wraps a piece's number.
    pub const fn new(index: u32) -> Self {
        Self(index)
    }

    /// Returns the piece's number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// The engine's side of a pack or unpack: one chunk's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkBlocks {
    /// The blocks' group.
    pub group: GroupIndex,
    /// The chunk's key, whose low half seals the sums.
    pub key: Key,
    /// 1 to `blocks_per_chunk` ids in token order. [`BlockId::SKIP`] in an unpack: verify the
    /// fragments, but do not write them.
    pub blocks: Box<[BlockId]>,
    /// When the blocks may be touched.
    pub ready: Ready,
}

/// One hop of one chunk.
#[derive(Debug)]
pub struct Operation {
    /// Comes back with the report.
    pub tag: u64,
    /// The staging piece: of the out ring for a pack or out-link, of the in ring otherwise.
    pub piece: PieceIndex,
    /// What to do.
    pub work: Work,
}

/// What an operation does.
#[derive(Debug)]
pub enum Work {
    /// Build the slot image in the piece: zeros in the header page but for the sealed sums,
    /// fragments, zeros in all padding.
    Pack(ChunkBlocks),
    /// Copy the image from the piece to the slot. Fails for a slot of another length than the
    /// image: more would carry what an earlier chunk left in the piece.
    OutLink {
        /// The slot, as long as the image.
        slot: SlotMemory,
    },
    /// Copy the image from the slot to the piece.
    InLink {
        /// The slot, as long as the image.
        slot: SlotMemory,
    },
    /// Verify every part in the piece, then scatter the fragments: all parts, or none.
    Unpack(ChunkBlocks),
}

impl Work {
    /// Returns the hop that this is.
    pub const fn hop(&self) -> Hop {
        match self {
            Self::Pack(_) => Hop::Pack,
            Self::OutLink { .. } => Hop::OutLink,
            Self::InLink { .. } => Hop::InLink,
            Self::Unpack(_) => Hop::Unpack,
        }
    }
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// As it should.
    Done,
    /// A part did not match its sum (unpack only): nothing was written.
    Mismatch,
    /// The device failed it, or another operation was using its piece or slot. The engine's blocks
    /// are as they were, or, for an unpack, undefined.
    Failed,
}

/// The report of one operation's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finished {
    /// The operation's tag.
    pub tag: u64,
    /// How it ended.
    pub outcome: Outcome,
}

/// The staging rings of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Staging {
    /// Pieces of the ring from the device.
    pub out_pieces: u32,
    /// Pieces of the ring to the device.
    pub in_pieces: u32,
    /// Bytes of one piece: at least those of the largest slot.
    pub piece: ByteCount,
}

/// Why a device cannot be opened or take work.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The memory for the staging rings is not to be had.
    #[error(
        "staging: {bytes} could not be allocated; change staging_out_pieces or staging_in_pieces: \
         {reason}"
    )]
    StagingMemory {
        /// Bytes of both rings.
        bytes: ByteCount,
        /// What was in the way.
        reason: String,
    },
    /// A plane of the layout does not lie in the memory that was given with it.
    #[error(
        "group {group}, plane {plane}: the bytes from {address:#x} to {end:#x} are not inside any \
         memory given to the device"
    )]
    PlaneOutside {
        /// The plane's group.
        group: GroupIndex,
        /// The plane's position in its group.
        plane: usize,
        /// The plane's first address.
        address: u64,
        /// One past its last address.
        end: u64,
    },
    /// A thread of the device could not be started.
    #[error("thread {name} could not be started: {reason}")]
    Thread {
        /// The thread's name.
        name: String,
        /// The system's reason.
        reason: String,
    },
    /// An event handle that the device does not know.
    #[error("event {handle:#x} is not one of this device's; create events with the device")]
    UnknownEvent {
        /// The handle.
        handle: u64,
    },
    /// A stream of the engine whose work panicked: nothing after it runs.
    #[error("the stream failed: work launched in it panicked, and nothing after it runs")]
    StreamFailed,
    /// An operation that cannot be. The pager never submits one.
    #[error("operation {tag}: {misuse}")]
    Operation {
        /// The operation's tag.
        tag: u64,
        /// What is wrong with it.
        misuse: Misuse,
    },
    /// A pager has the device already.
    #[error("the device serves another pager; close that one, or open a device for each")]
    InUse,
    /// The device was given up on.
    #[error("the device is lost: an operation did not end within device_timeout")]
    Lost,
}

/// What is wrong with an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Misuse {
    /// The ring has no such piece.
    #[error("piece {} of a ring of {pieces}", .piece.get())]
    Piece {
        /// The piece.
        piece: PieceIndex,
        /// Pieces of the ring.
        pieces: u32,
    },
    /// The layout has no such group.
    #[error("group {group} is not in the layout")]
    Group {
        /// The group.
        group: GroupIndex,
    },
    /// No blocks, or more than a chunk has.
    #[error("{block_count} blocks; a chunk has 1 to {blocks_per_chunk}")]
    ChunkBlocks {
        /// Blocks given.
        block_count: usize,
        /// Blocks of a whole chunk.
        blocks_per_chunk: BlockCount,
    },
    /// A block that the group does not have, or [`BlockId::SKIP`] in a pack.
    #[error("block {block}; the group has {block_count} blocks")]
    BlockId {
        /// The block.
        block: BlockId,
        /// Blocks of the group.
        block_count: BlockCount,
    },
    /// More bytes than a piece has.
    #[error("a slot of {} bytes; a piece has {}", .slot.get(), .piece.get())]
    SlotLength {
        /// Bytes of the slot.
        slot: ByteCount,
        /// Bytes of a piece.
        piece: ByteCount,
    },
}

/// Packs, copies and unpacks chunks.
pub trait Device: Debug + Send + Sync {
    /// Names the back end in reports.
    fn name(&self) -> &'static str;

    /// Returns the staging rings.
    fn staging(&self) -> Staging;

    /// Takes the device for one pager, and returns whether no other has it: two would take each
    /// other's reports and staging pieces, and so each other's bytes.
    fn claim(&self) -> bool;

    /// Gives the device back for another pager.
    fn release(&self);

    /// Takes hold of what is recorded in the engine's event now, and returns an event that means
    /// just that, whatever the engine does with its own. It lasts until it is
    /// [forgotten](Device::forget).
    ///
    /// # Errors
    ///
    /// [`DeviceError::UnknownEvent`].
    fn capture(&self, event: EventHandle) -> Result<EventHandle, DeviceError>;

    /// Lets go of a captured event; what waits for it goes on waiting.
    fn forget(&self, captured: EventHandle);

    /// Takes in operations, each hop's in the given order. Returns without waiting for anything.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Lost`], [`DeviceError::UnknownEvent`] and [`DeviceError::Operation`]; then
    /// none of them was taken in.
    fn submit(&self, operations: Vec<Operation>) -> Result<(), DeviceError>;

    /// Appends the reports that came in since the last call.
    fn poll(&self, finished: &mut Vec<Finished>);

    /// Blocks until something may have finished, [`wake`](Device::wake) is called, or `timeout`
    /// is over.
    fn wait(&self, timeout: Duration);

    /// Ends the current or next [`wait`](Device::wait), from any thread.
    fn wake(&self);

    /// Gives up on operations under way: none of them begins any more, none is reported. What ended
    /// before may still be polled. Memory that one may still touch stays allocated, for ever where
    /// its end cannot be seen.
    fn abandon(&self);
}
