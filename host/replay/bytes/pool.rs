//! The emulated engine's pool of device blocks, shared by its workers.
//!
//! A request takes all its blocks at once and waits until they are free. Whoever waits is served in
//! the order of asking, and whoever holds blocks asks for no more: so no two requests can hold what
//! the other needs, and a long request is not overtaken for ever.
//!
//! Invariant: a block is held by at most one request.

use crate::table::{BlockPool, SequenceId, TableError};
use crate::units::{BlockCount, BlockId, GroupIndex, TokenCount};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Blocks of one token, since a request's are counted in blocks.
const BLOCK_TOKENS: TokenCount = TokenCount::new(1);

#[derive(Debug)]
pub(super) struct DevicePool {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    blocks: BlockPool,
    /// The number that the next request to ask will have.
    next_number: u64,
    /// The number of the request that is served next.
    served_number: u64,
}

/// The blocks of one request; free again once it is dropped.
#[derive(Debug)]
pub(super) struct HeldBlocks<'pool> {
    pool: &'pool DevicePool,
    sequence: SequenceId,
    blocks: Vec<BlockId>,
}

impl DevicePool {
    pub(super) fn new(block_count: BlockCount) -> Result<Self, TableError> {
        let blocks = BlockPool::new(GroupIndex::new(0), block_count, BLOCK_TOKENS)?;
        let state = State { blocks, next_number: 0, served_number: 0 };
        Ok(Self { state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Takes `count` blocks at once, after everybody who asked before.
    ///
    /// # Errors
    ///
    /// [`TableError::OutOfBlocks`] when the whole pool has fewer.
    pub(super) fn take(&self, count: BlockCount) -> Result<HeldBlocks<'_>, TableError> {
        let mut state = self.lock();
        let (needed, free) = (count, state.blocks.block_count());
        if needed > free {
            return Err(TableError::OutOfBlocks { needed, free });
        }
        let number = state.next_number;
        state.next_number += 1;
        while state.served_number != number || state.blocks.free_blocks() < count {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.served_number += 1;
        let sequence = state.blocks.open();
        let _no_copy = state.blocks.append(sequence, TokenCount::new(count.get()))?;
        let blocks = state.blocks.table(sequence)?.blocks().to_vec();
        drop(state);
        // The next in line may find enough as well.
        self.changed.notify_all();
        Ok(HeldBlocks { pool: self, sequence, blocks })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldBlocks<'_> {
    /// Returns the blocks, one a chunk.
    pub(super) fn ids(&self) -> &[BlockId] {
        &self.blocks
    }
}

impl Drop for HeldBlocks<'_> {
    fn drop(&mut self) {
        let closed = self.pool.lock().blocks.close(self.sequence);
        debug_assert!(closed.is_ok(), "the sequence was opened for this request alone");
        self.pool.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::{BlockCount, DevicePool, TableError};
    use std::collections::HashSet;
    use std::sync::Mutex;

    #[test]
    fn requests_that_do_not_fit_together_take_turns_and_never_share_a_block() {
        let pool = DevicePool::new(BlockCount::new(10)).unwrap();
        let held = Mutex::new(HashSet::new());
        std::thread::scope(|scope| {
            for worker in 0..4_u32 {
                let (pool, held) = (&pool, &held);
                scope.spawn(move || {
                    for turn in 0..500 {
                        let count = 1 + (worker * 3 + turn) % 10;
                        let blocks = pool.take(BlockCount::new(count)).unwrap();
                        assert_eq!(blocks.ids().len(), count as usize);
                        for block in blocks.ids() {
                            assert!(held.lock().unwrap().insert(*block), "{block} is held twice");
                        }
                        for block in blocks.ids() {
                            held.lock().unwrap().remove(block);
                        }
                    }
                });
            }
        });
        assert_eq!(pool.lock().blocks.free_blocks(), BlockCount::new(10));
    }

    #[test]
    fn a_request_larger_than_the_pool_is_refused_at_once() {
        let pool = DevicePool::new(BlockCount::new(4)).unwrap();
        let refused = pool.take(BlockCount::new(5)).unwrap_err();
        let (needed, free) = (BlockCount::new(5), BlockCount::new(4));
        assert_eq!(refused, TableError::OutOfBlocks { needed, free });
        assert_eq!(pool.take(BlockCount::new(4)).unwrap().ids().len(), 4);
    }
}
