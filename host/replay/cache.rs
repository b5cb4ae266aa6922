//! What a cache must do to be replayed against, and the keys it sees.

use super::request::{BlockNumber, Request};
use crate::key::Key;
use crate::units::{BlockCount, ChunkCount};

/// What one request did to a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestOutcome {
    /// Blocks of the longest cached run from the request's first block, before anything is stored.
    pub hits: BlockCount,
    /// Chunks that left the cache while the request's were stored; may be over its block count.
    pub evictions: ChunkCount,
}

/// A cache of chunks that requests run through; one trace block is one chunk.
pub trait ChunkCache {
    /// Why a request could not run; no request of a valid trace is a reason.
    type Error;

    /// Runs one request: counts the hits of its leading run, then touches or stores all its
    /// chunks from the last to the first.
    ///
    /// # Errors
    ///
    /// When the cache is broken; the replay ends.
    fn run(&mut self, request: &Request) -> Result<RequestOutcome, Self::Error>;
}

/// Returns the key of a trace block: the trace's own name for it, one to one.
pub(super) fn key_of(request: &Request, block: BlockNumber) -> Key {
    Key::from_u128(u128::from(request.scope().get()) << 64 | u128::from(block.get()))
}
