//! Why a replay with real bytes cannot begin, or ended early.

use crate::core::Violation;
use crate::device::DeviceError;
use crate::fingerprint::FingerprintError;
use crate::layout::LayoutError;
use crate::mem::{MemoryLimit, SlabError};
use crate::pager::{OpenError, RequestError};
use crate::table::TableError;
use crate::units::{BlockCount, ByteCount, TokenCount};
use thiserror::Error;

/// Why a replay with real bytes cannot begin, or ended early. Wrong bytes are no error but a
/// [finding](super::ByteReport::first_wrong).
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ByteReplayError {
    /// A setting of 0.
    #[error("{field}: is 0; give at least 1")]
    Zero {
        /// The setting.
        field: &'static str,
    },
    /// The device pool does not hold the longest request.
    #[error(
        "the device pool of {device_blocks} blocks ({device_pool}) does not hold the longest \
         request of {request_blocks} blocks ({request}); give it that much at least"
    )]
    DevicePoolTooSmall {
        /// Blocks of the pool.
        device_blocks: BlockCount,
        /// Bytes of those.
        device_pool: ByteCount,
        /// Blocks of the longest request.
        request_blocks: BlockCount,
        /// Bytes of those.
        request: ByteCount,
    },
    /// A request has more tokens than can be counted.
    #[error(
        "the longest request has {request_blocks} blocks of {block_tokens} tokens, over 2^32 \
         tokens in all; lower the tokens of a block"
    )]
    TooManyTokens {
        /// Blocks of the longest request.
        request_blocks: BlockCount,
        /// Tokens of a block.
        block_tokens: TokenCount,
    },
    /// Taking the memory would have the system kill this process or another.
    #[error(
        "the host tier takes {host_tier}, the device pool {device_pool} and staging {staging}, but \
         {limit} leaves {available}; lower the bytes per token, the tokens of a block or the \
         capacity"
    )]
    TooMuchMemory {
        /// Bytes of the host tier.
        host_tier: ByteCount,
        /// Bytes of the device pool.
        device_pool: ByteCount,
        /// Bytes of both staging rings.
        staging: ByteCount,
        /// Bytes that can be had.
        available: ByteCount,
        /// What bounds them.
        limit: MemoryLimit,
    },
    /// The geometry cannot be laid out.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The device pool cannot be made.
    #[error(transparent)]
    Pool(#[from] TableError),
    /// The device pool's memory is not to be had.
    #[error(transparent)]
    Memory(#[from] SlabError),
    /// The device cannot be opened.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The pager cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The pager refused a request as a whole.
    #[error("request {request}: {source}")]
    Request {
        /// The request's position in the trace, from 0.
        request: u64,
        /// Why.
        source: RequestError,
    },
    /// An internal invariant of the pager does not hold.
    #[error("an internal invariant of the pager does not hold: {0}")]
    Audit(#[from] Violation),
    /// The pager could not end what was under way.
    #[error("the pager closed with transfers under way: the device did not end them in time")]
    NotDrained,
    /// The disk tier's label is no label.
    #[error("the disk tier: {0}")]
    Label(#[from] FingerprintError),
    /// A worker could not be started.
    #[error("a thread for requests could not be started: {reason}")]
    Thread {
        /// The system's reason.
        reason: String,
    },
}
