//! Copies and sums for any CPU: the plain definition, in an order that caches like.
//!
//! Called by `kernels` where nothing better is there, by tests everywhere, and for the ends that
//! the wide loops leave.

use super::Sum;
use kvtide_kernels::checksum::term;

/// Bytes of one summed word.
pub(super) const WORD_BYTES: usize = size_of::<u64>();

/// Bytes that are copied before they are summed, so that the sum reads the first cache: a multiple
/// of a word.
const PIECE_BYTES: usize = 4 << 10;

/// Sums that are kept apart, so that no addition waits for the one before.
const STRANDS: usize = 4;

/// Copies `source` to the start of `target`, fills the rest with zeros, and sums the words written
/// if asked for.
#[inline]
pub(super) fn copy(sum: Sum, target: &mut [u8], source: &[u8], first_index: u64) -> u64 {
    let (copied, padding) = target.split_at_mut(source.len());
    padding.fill(0);
    match sum {
        Sum::None => {
            copied.copy_from_slice(source);
            0
        }
        Sum::Words => copy_and_sum(target, source, first_index),
    }
}

fn copy_and_sum(target: &mut [u8], source: &[u8], first_index: u64) -> u64 {
    let mut total = 0_u64;
    let mut index = first_index;
    let mut sources = source.chunks(PIECE_BYTES);
    for piece in target.chunks_mut(PIECE_BYTES) {
        if let Some(source) = sources.next() {
            piece[..source.len()].copy_from_slice(source);
        }
        total = total.wrapping_add(sum(piece, index));
        index = index.wrapping_add((PIECE_BYTES / WORD_BYTES) as u64);
    }
    total
}

/// Sums the words of `bytes`.
#[inline]
pub(super) fn sum(bytes: &[u8], first_index: u64) -> u64 {
    let (words, _) = bytes.as_chunks::<WORD_BYTES>();
    let (blocks, rest) = words.as_chunks::<STRANDS>();
    let mut strands = [0_u64; STRANDS];
    let mut index = first_index;
    for block in blocks {
        for (strand, word) in strands.iter_mut().zip(block) {
            *strand = strand.wrapping_add(term(u64::from_le_bytes(*word), index));
            index = index.wrapping_add(1);
        }
    }
    let mut total = strands.iter().fold(0, |total: u64, strand| total.wrapping_add(*strand));
    for word in rest {
        total = total.wrapping_add(term(u64::from_le_bytes(*word), index));
        index = index.wrapping_add(1);
    }
    total
}
