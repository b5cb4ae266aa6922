//! What a block pool refuses, and why. Returned by every fallible call of `BlockPool`.

use crate::table::SequenceId;
use crate::units::{BlockCount, BlockId, GroupIndex, TokenCount};

/// Why a block pool refused a call. A refused call has changed nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The pool would hold no block, or ids up to the reserved one.
    #[error("block_count is {block_count}: give 1 to {}", u32::MAX - 1)]
    BlockCount {
        /// What was asked for.
        block_count: BlockCount,
    },
    /// A block would hold no token.
    #[error("block_tokens is 0: give the tokens that one block holds, at least 1")]
    BlockTokens,
    /// An append needs more blocks than are free.
    #[error(
        "the append needs {needed} free blocks but {free} are free: \
         close or truncate a sequence, or append fewer tokens"
    )]
    OutOfBlocks {
        /// Blocks that the whole append takes.
        needed: BlockCount,
        /// Blocks that are free.
        free: BlockCount,
    },
    /// The sequence was closed, or is another pool's.
    #[error("{sequence} is not open in this pool: it was closed, or belongs to another pool")]
    UnknownSequence {
        /// The id that was given.
        sequence: SequenceId,
    },
    /// The sequence belongs to the pool of another group.
    #[error("{sequence} was given to the pool of group {group}: use the pool that opened it")]
    OtherGroup {
        /// The id that was given.
        sequence: SequenceId,
        /// Group of the pool that was called.
        group: GroupIndex,
    },
    /// A position lies beyond the tokens of a sequence.
    #[error("{sequence} holds {tokens} tokens but {asked} were asked for: give at most {tokens}")]
    BeyondEnd {
        /// The sequence.
        sequence: SequenceId,
        /// Tokens that the call named.
        asked: TokenCount,
        /// Tokens that the sequence holds.
        tokens: TokenCount,
    },
    /// A cut lies before the first position that still has a block.
    #[error(
        "{sequence} dropped its blocks before token {kept_from} but a cut at {asked} was asked \
         for: cut at {kept_from} or later, or open a new sequence"
    )]
    Dropped {
        /// The sequence.
        sequence: SequenceId,
        /// Tokens that the call named.
        asked: TokenCount,
        /// First position that still has a block.
        kept_from: TokenCount,
    },
    /// A sequence would hold more tokens than a `TokenCount` can say.
    #[error(
        "{sequence} holds {tokens} tokens and cannot take {added} more: \
         a sequence holds at most {}",
        u32::MAX
    )]
    TooManyTokens {
        /// The sequence.
        sequence: SequenceId,
        /// Tokens that it holds.
        tokens: TokenCount,
        /// Tokens to append.
        added: TokenCount,
    },
    /// The id is none of the pool's blocks.
    #[error("block {block} is not in this pool: its ids are 0 to {}", block_count.get() - 1)]
    UnknownBlock {
        /// The id that was given.
        block: BlockId,
        /// Blocks of the pool.
        block_count: BlockCount,
    },
}
