//! A sequence's map from position to block: what an attention kernel is launched with.
//!
//! Invariant: a table lists exactly as many blocks as its tokens need, all distinct but for the
//! dropped ones at the front, which read [`BlockId::SKIP`]. Engines read tables; only `BlockPool`
//! changes them.

use crate::units::{BlockId, TokenCount};

/// The blocks of one sequence, in token order.
///
/// Lives in its [`BlockPool`](crate::table::BlockPool), which lends it by
/// [`BlockPool::table`](crate::table::BlockPool::table).
#[derive(Debug, PartialEq, Eq)]
pub struct BlockTable {
    tokens: u32,
    block_tokens: u32,
    /// Blocks at the front that a window has passed.
    dropped: u32,
    blocks: Vec<BlockId>,
}

impl BlockTable {
    /// Makes a table of no tokens out of an empty list.
    pub(super) const fn new(block_tokens: TokenCount, list: Vec<BlockId>) -> Self {
        Self { tokens: 0, block_tokens: block_tokens.get(), dropped: 0, blocks: list }
    }

    /// Returns the tokens of the sequence so far.
    pub const fn tokens(&self) -> TokenCount {
        TokenCount::new(self.tokens)
    }

    /// Returns the blocks in token order; only the last may be partly filled.
    ///
    /// A block that several tables list is shared, and read only. Places before
    /// [`BlockTable::kept_from`] read [`BlockId::SKIP`].
    pub fn blocks(&self) -> &[BlockId] {
        &self.blocks
    }

    /// Returns the first position that has a block: 0 unless
    /// [`BlockPool::drop_before`](crate::table::BlockPool::drop_before) dropped any.
    pub const fn kept_from(&self) -> TokenCount {
        TokenCount::new(self.dropped * self.block_tokens)
    }

    /// Returns the block that holds the token at `position`, and the token's offset in it; `None`
    /// before [`BlockTable::kept_from`] and from the sequence's end on.
    pub fn block_of(&self, position: TokenCount) -> Option<(BlockId, TokenCount)> {
        if position < self.kept_from() || position >= self.tokens() {
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
        self.blocks.extend(std::iter::repeat_with(allocate).take(length(added)));
        self.tokens = tokens;
    }

    /// Returns the blocks that the table holds: all but the dropped ones.
    pub(super) fn held_blocks(&self) -> &[BlockId] {
        &self.blocks[length(self.dropped)..]
    }

    /// Drops the blocks wholly before `position` and hands them to `give_up`, the last first.
    pub(super) fn drop_before(&mut self, position: u32, mut give_up: impl FnMut(BlockId)) {
        let passed = self.dropped.max(position / self.block_tokens);
        let places = &mut self.blocks[length(self.dropped)..length(passed)];
        for place in places.iter_mut().rev() {
            give_up(std::mem::replace(place, BlockId::SKIP));
        }
        self.dropped = passed;
    }

    /// Cuts to `tokens` tokens, all dropped ones among them, and hands the blocks beyond to
    /// `give_up`, the last first.
    pub(super) fn cut(&mut self, tokens: u32, give_up: impl FnMut(BlockId)) {
        let kept = length(self.blocks_for(tokens));
        self.blocks.drain(kept..).rev().for_each(give_up);
        self.tokens = tokens;
    }

    /// Fills an empty table with the first `tokens` tokens of `source`, all dropped ones among
    /// them.
    pub(super) fn share_from(&mut self, source: &Self, tokens: u32) {
        let shared = length(source.blocks_for(tokens));
        self.blocks.extend_from_slice(&source.blocks[..shared]);
        self.dropped = source.dropped;
        self.tokens = tokens;
    }

    /// Ends the table: hands its blocks to `give_up`, the last first, and returns the empty list.
    pub(super) fn finish(&mut self, give_up: impl FnMut(BlockId)) -> Vec<BlockId> {
        self.cut(self.kept_from().get(), give_up);
        let mut list = std::mem::take(&mut self.blocks);
        list.clear();
        list
    }
}

/// The length of a list of `blocks` blocks.
fn length(blocks: u32) -> usize {
    usize::try_from(blocks).expect("a usize holds a u32")
}
