//! The pool: open, append, fork, truncate and close sequences over one group's blocks.
//!
//! Ties the ledger (who holds which block) to the sequences (which table lists which block): each
//! entry of a table is one holder in the ledger. Called by engines, on their scheduler's thread.

use crate::table::ledger::Ledger;
use crate::table::sequences::Sequences;
use crate::table::{BlockTable, SequenceId, TableError};
use crate::units::{BlockCount, BlockId, GroupIndex, TokenCount};

/// The paged device blocks of one group and the tables of its sequences.
///
/// See the [module](crate::table) for an example. Every call costs time in proportion to the
/// blocks it touches, takes no lock and makes no syscall; lists of closed tables are used again.
#[derive(Debug)]
pub struct BlockPool {
    ledger: Ledger,
    sequences: Sequences,
    block_tokens: TokenCount,
}

/// What an append asks of the engine before it writes the new tokens.
#[must_use = "without the copy it may ask for, the sequence reads a block that was never filled"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The copy to make first, if the append would have written into a shared block.
    pub copy_on_write: Option<CopyOnWrite>,
}

/// A block to copy on the device, because it is shared and about to be written.
///
/// The copy must take effect before the device work of any later call: `source` may by then be
/// written by its last holder, or be another sequence's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyOnWrite {
    /// The shared block; the other sequences keep it.
    pub source: BlockId,
    /// The block that the sequence's table lists from now on.
    pub target: BlockId,
    /// The tokens to copy, from the start of the block.
    pub tokens: TokenCount,
}

/// What an append will take.
#[derive(Clone, Copy)]
struct Growth {
    /// Tokens of the sequence afterwards.
    tokens: u32,
    /// Blocks it needs, the copy's target among them.
    blocks: BlockCount,
    /// The shared block to copy, and the tokens in it.
    shared: Option<(BlockId, TokenCount)>,
}

impl BlockPool {
    /// Makes a pool of the blocks 0 to `block_count` - 1 of `group`, all free, each for
    /// `block_tokens` tokens.
    ///
    /// The block freed last is handed out first, as it is the likeliest to be in the device's
    /// caches; else the lowest id never used. The same calls give the same ids.
    ///
    /// # Errors
    ///
    /// [`TableError::BlockCount`] for no block or `u32::MAX` of them, [`TableError::BlockTokens`]
    /// for blocks of no token.
    pub fn new(
        group: GroupIndex,
        block_count: BlockCount,
        block_tokens: TokenCount,
    ) -> Result<Self, TableError> {
        if block_count.get() == 0 || block_count.get() == u32::MAX {
            return Err(TableError::BlockCount { block_count });
        }
        if block_tokens.get() == 0 {
            return Err(TableError::BlockTokens);
        }
        Ok(Self {
            ledger: Ledger::new(block_count),
            sequences: Sequences::new(group),
            block_tokens,
        })
    }

    /// Returns the group whose blocks these are.
    pub const fn group(&self) -> GroupIndex {
        self.sequences.group()
    }

    /// Returns how many blocks the pool has, free or used.
    pub const fn block_count(&self) -> BlockCount {
        self.ledger.block_count()
    }

    /// Returns the tokens that one block holds.
    pub const fn block_tokens(&self) -> TokenCount {
        self.block_tokens
    }

    /// Returns how many blocks no sequence holds.
    pub fn free_blocks(&self) -> BlockCount {
        self.ledger.free()
    }

    /// Returns how many blocks some sequence holds, each counted once.
    pub fn used_blocks(&self) -> BlockCount {
        BlockCount::new(self.block_count().get() - self.free_blocks().get())
    }

    /// Returns how many open sequences hold `block`; 0 when it is free.
    ///
    /// # Errors
    ///
    /// [`TableError::UnknownBlock`] for an id outside the pool.
    pub fn holders(&self, block: BlockId) -> Result<usize, TableError> {
        let block_count = self.block_count();
        let holders = self.ledger.holders(block);
        holders.ok_or(TableError::UnknownBlock { block, block_count })
    }

    /// Lists the open sequences: what to close when the engine has lost count.
    pub fn sequences(&self) -> impl Iterator<Item = (SequenceId, &BlockTable)> {
        self.sequences.iter()
    }

    /// Returns the table of a sequence.
    ///
    /// # Errors
    ///
    /// [`TableError::UnknownSequence`] or [`TableError::OtherGroup`] for an id that is not open
    /// here.
    pub fn table(&self, sequence: SequenceId) -> Result<&BlockTable, TableError> {
        self.sequences.get(sequence)
    }

    /// Returns how many free blocks an append of `tokens` tokens takes now, a copy on write
    /// included: exactly what the append would take, so that a scheduler can admit first.
    ///
    /// # Errors
    ///
    /// [`TableError::TooManyTokens`] when the sequence's tokens would overflow;
    /// [`TableError::UnknownSequence`] or [`TableError::OtherGroup`] for an id that is not open
    /// here.
    pub fn blocks_needed(
        &self,
        sequence: SequenceId,
        tokens: TokenCount,
    ) -> Result<BlockCount, TableError> {
        Ok(self.growth(sequence, tokens)?.blocks)
    }

    /// Opens a sequence of no tokens. It holds no block yet.
    pub fn open(&mut self) -> SequenceId {
        let list = self.sequences.spare_list();
        self.sequences.open(BlockTable::new(self.block_tokens, list))
    }

    /// Makes room for `tokens` more tokens: all of it or, on an error, none.
    ///
    /// The new tokens' places are [`BlockTable::block_of`] from the old token count on. A shared
    /// block that is partly filled is replaced by one of the sequence's own, and the answer says
    /// what to copy into it before the new tokens are written.
    ///
    /// # Errors
    ///
    /// [`TableError::OutOfBlocks`] when too few blocks are free;
    /// [`TableError::TooManyTokens`] when the sequence's tokens would overflow;
    /// [`TableError::UnknownSequence`] or [`TableError::OtherGroup`] for an id that is not open
    /// here.
    pub fn append(
        &mut self,
        sequence: SequenceId,
        tokens: TokenCount,
    ) -> Result<Appended, TableError> {
        let growth = self.growth(sequence, tokens)?;
        let (needed, free) = (growth.blocks, self.free_blocks());
        if needed > free {
            return Err(TableError::OutOfBlocks { needed, free });
        }
        let table = self.sequences.get_mut(sequence)?;
        let copy_on_write = growth.shared.map(|(source, tokens)| {
            let target = self.ledger.allocate();
            table.replace_last(target);
            self.ledger.give_up(source);
            CopyOnWrite { source, target, tokens }
        });
        table.grow(growth.tokens, || self.ledger.allocate());
        Ok(Appended { copy_on_write })
    }

    /// Opens a sequence with all the tokens of another; they share every block.
    ///
    /// Takes no free block. Whichever of the two appends first into a shared, partly filled block
    /// copies it.
    ///
    /// # Errors
    ///
    /// [`TableError::UnknownSequence`] or [`TableError::OtherGroup`] for an id that is not open
    /// here.
    pub fn fork(&mut self, sequence: SequenceId) -> Result<SequenceId, TableError> {
        let tokens = self.sequences.get(sequence)?.tokens();
        self.fork_prefix(sequence, tokens)
    }

    /// Opens a sequence with the first `tokens` tokens of another; they share those blocks.
    ///
    /// Takes no free block. A prefix that ends inside a block shares that block too, and the
    /// fork's next append copies it.
    ///
    /// # Errors
    ///
    /// [`TableError::BeyondEnd`] when the other has fewer tokens; [`TableError::Dropped`] when it
    /// has dropped the block at the cut;
    /// [`TableError::UnknownSequence`] or [`TableError::OtherGroup`] for an id that is not open
    /// here.
    pub fn fork_prefix(
        &mut self,
        sequence: SequenceId,
        tokens: TokenCount,
    ) -> Result<SequenceId, TableError> {
        self.check_cut(sequence, tokens)?;
        let mut fork = BlockTable::new(self.block_tokens, self.sequences.spare_list());
        fork.share_from(self.sequences.get(sequence)?, tokens.get());
        for &block in fork.held_blocks() {
            self.ledger.share(block);
        }
        Ok(self.sequences.open(fork))
    }

    /// Cuts a sequence to its first `tokens` tokens, as when speculated tokens are refused.
    ///
    /// Blocks wholly beyond the cut are given up, and are free when no other sequence holds them.
    ///
    /// # Errors
    ///
    /// [`TableError::BeyondEnd`] when the sequence has fewer tokens; [`TableError::Dropped`] when
    /// it has dropped the block at the cut;
    /// [`TableError::UnknownSequence`] or [`TableError::OtherGroup`] for an id that is not open
    /// here.
    pub fn truncate(&mut self, sequence: SequenceId, tokens: TokenCount) -> Result<(), TableError> {
        self.check_cut(sequence, tokens)?;
        let table = self.sequences.get_mut(sequence)?;
        table.cut(tokens.get(), |block| self.ledger.give_up(block));
        Ok(())
    }

    /// Drops the blocks wholly before `position`, which the window of a window group has passed.
    ///
    /// They are given up as by [`BlockPool::truncate`]; the tokens still count, and the dropped
    /// places in the table read [`BlockId::SKIP`]. Without effect where they are dropped already.
    ///
    /// # Errors
    ///
    /// [`TableError::BeyondEnd`] when the sequence has fewer tokens;
    /// [`TableError::UnknownSequence`] or [`TableError::OtherGroup`] for an id that is not open
    /// here.
    pub fn drop_before(
        &mut self,
        sequence: SequenceId,
        position: TokenCount,
    ) -> Result<(), TableError> {
        self.check_within(sequence, position)?;
        let table = self.sequences.get_mut(sequence)?;
        table.drop_before(position.get(), |block| self.ledger.give_up(block));
        Ok(())
    }

    /// Closes a sequence: its blocks are given up, and its id is refused from now on.
    ///
    /// # Errors
    ///
    /// [`TableError::UnknownSequence`] or [`TableError::OtherGroup`] for an id that is not open
    /// here, such as one that was closed before.
    pub fn close(&mut self, sequence: SequenceId) -> Result<(), TableError> {
        self.sequences.close(sequence, |block| self.ledger.give_up(block))
    }

    /// Works out what an append takes, without taking it.
    fn growth(&self, sequence: SequenceId, added: TokenCount) -> Result<Growth, TableError> {
        let table = self.sequences.get(sequence)?;
        let held = table.tokens();
        let too_many = TableError::TooManyTokens { sequence, tokens: held, added };
        let tokens = held.get().checked_add(added.get()).ok_or(too_many)?;
        let writes = added.get() > 0;
        let shared = table
            .partial_block()
            .filter(|&(block, _)| writes && self.ledger.holders(block) > Some(1));
        // No overflow: blocks of one token are never partial, larger ones are at most 2^31.
        let grown = table.blocks_for(tokens) - table.blocks_for(held.get());
        Ok(Growth { tokens, blocks: BlockCount::new(grown + u32::from(shared.is_some())), shared })
    }

    /// Refuses to cut a sequence beyond its end or inside its dropped blocks.
    fn check_cut(&self, sequence: SequenceId, asked: TokenCount) -> Result<(), TableError> {
        self.check_within(sequence, asked)?;
        let kept_from = self.sequences.get(sequence)?.kept_from();
        if asked >= kept_from {
            return Ok(());
        }
        Err(TableError::Dropped { sequence, asked, kept_from })
    }

    /// Refuses a token count beyond the end of a sequence.
    fn check_within(&self, sequence: SequenceId, asked: TokenCount) -> Result<(), TableError> {
        let tokens = self.sequences.get(sequence)?.tokens();
        if asked <= tokens {
            return Ok(());
        }
        Err(TableError::BeyondEnd { sequence, asked, tokens })
    }
}
