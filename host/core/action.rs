//! What goes out of the core and what comes back: actions and completions.
//!
//! The caller takes actions under its lock, runs them after unlock, and reports each hop by one
//! completion. A hop that was handed out is always completed, by success or failure: its memory
//! belongs to the device until then.

use super::transfer::{Hop, TransferId};
use crate::units::{GroupIndex, SlotIndex};

/// One chunk's hop: what to move, and for whom.
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
}

/// Something to be done outside the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Make one move of bytes, then report it with [`Core::complete`](super::Core::complete).
    Start(HopRequest),
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

impl HopRequest {
    /// Returns the completion that reports this hop.
    pub const fn ended(self, outcome: Result<(), HopFailure>) -> Completion {
        let Self { hop, transfer, position, .. } = self;
        Completion { hop, transfer, position, outcome }
    }
}
