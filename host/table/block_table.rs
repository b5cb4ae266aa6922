//! A sequence's map from position to block: what an attention kernel is launched with.
//!
//! Invariant: a table lists exactly as many blocks as its tokens need, all distinct. Engines read
//! tables; only `BlockPool` changes them.

use crate::units::{BlockId, TokenCount};

/// The blocks of one sequence, in token order.
///
/// Lives in its [`BlockPool`](crate::table::BlockPool), which lends it by
/// [`BlockPool::table`](crate::table::BlockPool::table).
#[derive(Debug, PartialEq, Eq)]
pub struct BlockTable {
    tokens: u32,
    block_tokens: u32,
    blocks: Vec<BlockId>,
}

impl BlockTable {
    /// Makes a table of no tokens out of an empty list.
    pub(super) const fn new(block_tokens: TokenCount, list: Vec<BlockId>) -> Self {
        Self {
            tokens: 0,
            block_tokens: block_tokens.get(),
            blocks: list,
        }
    }

    /// Returns the tokens of the sequence so far.
    pub const fn tokens(&self) -> TokenCount {
        TokenCount::new(self.tokens)
    }

    /// Returns the blocks in token order; only the last may be partly filled.
    ///
    /// A block that several tables list is shared, and read only.
    pub fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }

    /// Returns the block that holds the token at `position`, and the token's offset in it; `None`
    /// at or beyond the sequence's end.
    pub fn block_of(&self, position: TokenCount) -> Option<(BlockId, TokenCount)> {
        if position.get() >= self.tokens {
            return None;
        }
        let logical = usize::try_from(position.get() / self.block_tokens).ok()?;
        let offset = TokenCount::new(position.get() % self.block_tokens);
        Some((*self.blocks.get(logical)?, offset))
    }

    /// Returns the last block and its tokens when it has room for more.
    pub(super) fn partial_block(&self) -> Option<(BlockId, TokenCount)> {
        let filled = self.tokens % self.block_tokens;
        let block = *self.blocks.last()?;
        (filled > 0).then_some((block, TokenCount::new(filled)))
    }

    /// Returns how many blocks `tokens` tokens fill, the last maybe partly.
    pub(super) const fn blocks_for(&self, tokens: u32) -> u32 {
        tokens.div_ceil(self.block_tokens)
    }

    /// Puts `block` in the place of the last block.
    pub(super) fn replace_last(&mut self, block: BlockId) {
        let last = self.blocks.last_mut();
        *last.expect("only a table with a partial block is asked") = block;
    }

    /// Grows to `tokens` tokens with the blocks that `allocate` returns.
    pub(super) fn grow(&mut self, tokens: u32, allocate: impl FnMut() -> BlockId) {
        let added = self.blocks_for(tokens) - self.blocks_for(self.tokens);
        self.blocks
            .extend(std::iter::repeat_with(allocate).take(length(added)));
        self.tokens = tokens;
    }

    /// Cuts to `tokens` tokens and hands the blocks beyond to `give_up`, the last first.
    pub(super) fn cut(&mut self, tokens: u32, give_up: impl FnMut(BlockId)) {
        let kept = length(self.blocks_for(tokens));
        self.blocks.drain(kept..).rev().for_each(give_up);
        self.tokens = tokens;
    }

    /// Fills an empty table with the first `tokens` tokens of `source`.
    pub(super) fn share_from(&mut self, source: &Self, tokens: u32) {
        let shared = length(source.blocks_for(tokens));
        self.blocks.extend_from_slice(&source.blocks[..shared]);
        self.tokens = tokens;
    }

    /// Empties the table and returns its list.
    pub(super) fn take_blocks(&mut self) -> Vec<BlockId> {
        self.tokens = 0;
        std::mem::take(&mut self.blocks)
    }
}

/// The length of a list of `blocks` blocks.
fn length(blocks: u32) -> usize {
    usize::try_from(blocks).expect("a usize holds a u32")
}
