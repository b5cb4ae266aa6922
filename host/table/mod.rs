//! Block tables for engines that have none: which device block holds which token.
//!
//! A [`BlockPool`] keeps the books of one group's device blocks: which ids are free, and for each
//! open sequence a [`BlockTable`], its map from logical block to block id. It touches no memory
//! of the device; the engine writes, reads and copies where the tables say.
//!
//! Forked sequences share blocks. A shared block is never written: the first append into a shared
//! block that is partly filled moves the sequence to a block of its own and says what to copy
//! ([`CopyOnWrite`]).
//!
//! Invariants, after every call, failed or not:
//!
//! - `used_blocks + free_blocks = block_count`, and an id is never handed out while in use;
//! - a block's holders are exactly the open tables that list it, each once;
//! - a table lists `tokens` divided by `block_tokens`, rounded up, blocks; those that a window has
//!   passed ([`BlockPool::drop_before`]) read [`BlockId::SKIP`](crate::units::BlockId::SKIP);
//! - a call that fails has changed nothing.
//!
//! The pool owns the tables and an engine holds [`SequenceId`]s, so no block is lost by dropping a
//! handle ([`BlockPool::sequences`] lists what is open), and a closed sequence's id is an error
//! for ever: it is never reused.
//!
//! The next call may hand out a block that this one freed, so device work must take effect in the
//! order of the calls it belongs to; work on one stream does.
//!
//! Anything that must keep blocks alive is a sequence. To keep a prefix for later prompts, or the
//! blocks of a store until they are released, fork it and close the fork when done.
//!
//! ```
//! use kvtide::table::{BlockPool, TableError};
//! use kvtide::units::{BlockCount, GroupIndex, TokenCount};
//!
//! let block_tokens = TokenCount::new(16);
//! let mut pool = BlockPool::new(GroupIndex::new(0), BlockCount::new(64), block_tokens)?;
//!
//! // Prefill: 20 tokens take two blocks, the second partly filled.
//! let greedy = pool.open();
//! let appended = pool.append(greedy, TokenCount::new(20))?;
//! assert_eq!(appended.copy_on_write, None);
//! assert_eq!(pool.table(greedy)?.blocks().len(), 2);
//!
//! // A second sample of the same prompt costs no block until it writes into a shared one.
//! let sampled = pool.fork(greedy)?;
//! let next = TokenCount::new(1);
//! assert_eq!(pool.used_blocks(), BlockCount::new(2));
//! assert_eq!(pool.blocks_needed(sampled, next)?, BlockCount::new(1));
//!
//! if let Some(copy) = pool.append(sampled, next)?.copy_on_write {
//!     // The engine copies the first 4 tokens of block `copy.source` into `copy.target` ...
//!     assert_eq!(copy.tokens, TokenCount::new(4));
//! }
//! // ... and then writes the new token here.
//! let at = pool.table(sampled)?.block_of(TokenCount::new(20));
//! let own = pool.table(sampled)?.blocks()[1];
//! assert_eq!(at, Some((own, TokenCount::new(4))));
//!
//! pool.close(greedy)?;
//! pool.close(sampled)?;
//! assert_eq!(pool.free_blocks(), BlockCount::new(64));
//! # Ok::<(), TableError>(())
//! ```

mod block_table;
mod error;
mod ledger;
mod pool;
mod sequences;
#[cfg(test)]
mod tests;

pub use block_table::BlockTable;
pub use error::TableError;
pub use pool::{Appended, BlockPool, CopyOnWrite};
pub use sequences::SequenceId;
