//! Copies and sums over byte slices.
//!
//! Called by `image.rs`.

use kvtide_kernels::abi::FRAGMENT_ALIGN_BYTES;
use kvtide_kernels::checksum::term;

/// Bytes of one summed word.
const WORD_BYTES: usize = size_of::<u64>();

/// Copies `source` to `target`, fills the rest of `target` with zeros and returns the sum of all
/// its words, the first of which has payload word index `first_index`.
///
/// # Panics
///
/// If `target` is not `source` rounded up to 16 bytes.
pub(super) fn copy_and_sum(target: &mut [u8], source: &[u8], first_index: u64) -> u64 {
    assert_eq!(target.len() as u64, (source.len() as u64).next_multiple_of(FRAGMENT_ALIGN_BYTES));
    let (copied, padding) = target.split_at_mut(source.len());
    copied.copy_from_slice(source);
    padding.fill(0);
    sum(target, first_index)
}

/// Copies `source` to `target`.
///
/// # Panics
///
/// If their lengths differ.
pub(super) fn copy(target: &mut [u8], source: &[u8]) {
    target.copy_from_slice(source);
}

/// Returns the sum of the words of `bytes`, the first of which has payload word index
/// `first_index`.
///
/// # Panics
///
/// If there are not whole words.
pub(super) fn sum(bytes: &[u8], first_index: u64) -> u64 {
    let (words, rest) = bytes.as_chunks::<WORD_BYTES>();
    assert!(rest.is_empty(), "{} bytes are not whole words", bytes.len());
    let terms = words.iter().zip(first_index..);
    terms.fold(0, |total: u64, (word, index)| {
        total.wrapping_add(term(u64::from_le_bytes(*word), index))
    })
}
