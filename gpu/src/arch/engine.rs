//! The two ways to touch the engine's side of a copy.
//!
//! The packed side is 16-byte aligned by construction. The engine's fragments need not be: rows of
//! 132 bytes, or a base inside a page, leave 4 bytes. A kernel that touches blocks is generic over
//! the way, and the host picks by what its planes have in common
//! ([`EngineAlign`](crate::abi::EngineAlign)).

use super::{Arch, Word};

/// Moves one word between a lane and a fragment.
pub trait EngineAccess {
    /// Returns how many quarters of word `word` lie in a fragment of `fragment_quarters`: 1 to 4.
    fn quarters(fragment_quarters: u32, word: u32) -> u32;

    /// Loads the first `quarters` of the word at `address`; the others read as zeros.
    ///
    /// # Safety
    ///
    /// - `address` and `quarters` are multiples of what the way states;
    /// - the `4 * quarters` bytes there are readable, initialised, and written by nobody else
    ///   meanwhile.
    unsafe fn load<A: Arch>(arch: A, address: u64, quarters: u32) -> Word;

    /// Stores the first `quarters` of `word` at `address`; 0 stores nothing.
    ///
    /// # Safety
    ///
    /// - `address` and `quarters` are multiples of what the way states;
    /// - the `4 * quarters` bytes there are writable, and touched by nobody else meanwhile.
    unsafe fn store<A: Arch>(arch: A, address: u64, word: Word, quarters: u32);
}

/// Whole words: addresses are multiples of 16 bytes, and fragments of 4 quarters.
#[derive(Clone, Copy, Debug)]
pub struct Aligned16;

impl EngineAccess for Aligned16 {
    #[inline]
    fn quarters(_fragment_quarters: u32, _word: u32) -> u32 {
        4
    }

    #[inline]
    unsafe fn load<A: Arch>(arch: A, address: u64, _quarters: u32) -> Word {
        // SAFETY: a whole word is readable here, by the caller's word.
        unsafe { arch.load::<0>(address) }
    }

    #[inline]
    unsafe fn store<A: Arch>(arch: A, address: u64, word: Word, quarters: u32) {
        // SAFETY: a whole word is writable here unless `quarters` is 0, by the caller's word.
        unsafe { arch.store_if(address, word, quarters != 0) }
    }
}

/// Quarters of words: addresses are multiples of 4 bytes, and fragments of 1 quarter.
#[derive(Clone, Copy, Debug)]
pub struct Aligned4;

impl EngineAccess for Aligned4 {
    #[inline]
    fn quarters(fragment_quarters: u32, word: u32) -> u32 {
        (fragment_quarters - word * 4).min(4)
    }

    #[inline]
    unsafe fn load<A: Arch>(arch: A, address: u64, quarters: u32) -> Word {
        // SAFETY: the same contract, by the caller's word.
        unsafe { arch.load_quarters(address, quarters) }
    }

    #[inline]
    unsafe fn store<A: Arch>(arch: A, address: u64, word: Word, quarters: u32) {
        // SAFETY: the same contract, by the caller's word.
        unsafe { arch.store_quarters(address, word, quarters) }
    }
}
