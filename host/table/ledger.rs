//! The ledger of a pool's blocks: how many tables hold each, and which ids are free.
//!
//! Invariants: an id is either held (count of at least 1) or free, never both; counts are never
//! clamped, so a count that would go below zero panics instead. Called by `BlockPool` only, which
//! never shows it an id that a table does not hold.
//!
//! An id freed last is handed out first, as its memory is the likeliest to be in the device's
//! caches and TLB; else the lowest id never used. Memory grows with the most blocks ever in use.

use crate::units::{BlockCount, BlockId};

/// Counts the holders of each block and hands out the free ones.
#[derive(Debug)]
pub(super) struct Ledger {
    block_count: u32,
    /// Holders by id, for every id that was ever handed out.
    holders: Vec<usize>,
    /// Ids with no holder, the one freed last at the end.
    freed: Vec<BlockId>,
    /// One past the highest id that was ever handed out: the length of `holders`.
    fresh: u32,
}

impl Ledger {
    /// Starts with `block_count` free blocks.
    pub(super) const fn new(block_count: BlockCount) -> Self {
        Self { block_count: block_count.get(), holders: Vec::new(), freed: Vec::new(), fresh: 0 }
    }

    /// Returns how many blocks there are.
    pub(super) const fn block_count(&self) -> BlockCount {
        BlockCount::new(self.block_count)
    }

    /// Returns how many blocks are free.
    pub(super) fn free(&self) -> BlockCount {
        let freed = u32::try_from(self.freed.len()).expect("ids in the list are distinct u32s");
        BlockCount::new(self.block_count - self.fresh + freed)
    }

    /// Returns how many tables hold `block`; `None` when no such block exists.
    pub(super) fn holders(&self, block: BlockId) -> Option<usize> {
        let known = block.get() < self.block_count;
        known.then(|| self.holders.get(index(block)).copied().unwrap_or(0))
    }

    /// Hands out a free block to its first holder; the caller has checked that one is free.
    pub(super) fn allocate(&mut self) -> BlockId {
        if let Some(block) = self.freed.pop() {
            let holders = &mut self.holders[index(block)];
            assert_eq!(*holders, 0, "block {block} was free and held");
            *holders = 1;
            return block;
        }
        assert!(self.fresh < self.block_count, "no block is free");
        let block = BlockId::new(self.fresh);
        self.holders.push(1);
        self.fresh += 1;
        block
    }

    /// Adds a holder to `block`, which has one.
    pub(super) fn share(&mut self, block: BlockId) {
        let holders = &mut self.holders[index(block)];
        assert_ne!(*holders, 0, "block {block} was shared but not held");
        *holders += 1;
    }

    /// Takes a holder from `block`; without one left, the block is free.
    pub(super) fn give_up(&mut self, block: BlockId) {
        let holders = &mut self.holders[index(block)];
        assert_ne!(*holders, 0, "block {block} was given up but not held");
        *holders -= 1;
        if *holders == 0 {
            self.freed.push(block);
        }
    }
}

/// Where the holders of `block` are counted.
fn index(block: BlockId) -> usize {
    usize::try_from(block.get()).expect("a usize holds a u32")
}
