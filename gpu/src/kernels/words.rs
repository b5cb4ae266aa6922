//! The words of one span, and how the lanes of a warp share them.
//!
//! Lanes stand side by side: word `i` of the range is lane `i % 32`'s. Four such rows are a *tile*,
//! which a lane moves at once; what is left at the end of a range goes row by row.

use crate::abi::{SPAN_WORDS, Span, TILE_WORDS, WARP_LANES, WORD_BYTES};
use crate::arch::Word;

/// Bytes from one word of a lane to its next: one row of the warp.
pub(super) const ROW_BYTES: u64 = (WARP_LANES * WORD_BYTES) as u64;

/// The words of a cell that one span covers; empty behind the cell's end.
#[derive(Clone, Copy)]
pub(super) struct SpanWords {
    start: u32,
    end: u32,
}

impl SpanWords {
    /// Returns what `span` covers of a cell of `word_count` words, if anything.
    ///
    /// All lanes of a warp get the same answer.
    #[inline]
    pub(super) fn of(span: Span, word_count: u32) -> Option<Self> {
        let start = span.ordinal * SPAN_WORDS;
        let end = word_count.min(start + SPAN_WORDS);
        (start < end).then_some(Self { start, end })
    }

    /// Folds over the words of lane `lane`: `four` takes the index of the first of four words a row
    /// apart, `one` that of one word.
    #[inline]
    pub(super) fn fold<T>(
        self,
        lane: u32,
        initial: T,
        four: impl Fn(T, u32) -> T,
        one: impl Fn(T, u32) -> T,
    ) -> T {
        let mut folded = initial;
        let mut index = self.start + lane;
        while index + (TILE_WORDS - WARP_LANES) < self.end {
            folded = four(folded, index);
            index += TILE_WORDS;
        }
        while index < self.end {
            folded = one(folded, index);
            index += WARP_LANES;
        }
        folded
    }
}

/// Returns the indices of a lane's words in a tile whose first is `index`.
#[inline]
pub(super) fn tile_indices(index: u32) -> [u32; 4] {
    [index, index + WARP_LANES, index + 2 * WARP_LANES, index + 3 * WARP_LANES]
}

/// Applies `map` to each of a tile's four, in order.
#[inline]
pub(super) fn tile<T, U>(items: [T; 4], map: impl Fn(T) -> U) -> [U; 4] {
    let [first, second, third, fourth] = items;
    [map(first), map(second), map(third), map(fourth)]
}

/// Returns the address of the word `index` words after `start`.
#[inline]
pub(super) fn word_at(start: u64, index: impl Into<u64>) -> u64 {
    start.wrapping_add(index.into().wrapping_mul(u64::from(WORD_BYTES)))
}

/// Returns what a lane's words in a tile add to the sum, the first being payload word
/// `payload_word`.
#[inline]
pub(super) fn tile_terms(words: [Word; 4], payload_word: u64) -> u64 {
    let rows = u64::from(WARP_LANES);
    let [first, second, third, fourth] = words;
    word_terms(first, payload_word)
        .wrapping_add(word_terms(second, payload_word + rows))
        .wrapping_add(word_terms(third, payload_word + 2 * rows))
        .wrapping_add(word_terms(fourth, payload_word + 3 * rows))
}

/// Returns what payload word `payload_word` adds to the sum, which counts in halves of it.
#[inline]
pub(super) fn word_terms(word: Word, payload_word: u64) -> u64 {
    word.terms(payload_word * 2)
}
