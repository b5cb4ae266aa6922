//! Where a word of a plane lies in the engine's blocks.

use crate::abi::{BLOCK_ID_SKIP, Fragments};
use crate::arch::{Arch, EngineAccess};
use crate::kernels::view::PlaneView;
use crate::kernels::words::word_at;
use core::marker::PhantomData;

/// One word of a fragment, or what there is of it.
#[derive(Clone, Copy)]
pub(super) struct Place {
    /// Address of the word.
    pub(super) address: u64,
    /// Quarters of it that are the fragment's: 1 to 4; 0 for a block that is to be skipped.
    pub(super) quarters: u32,
}

/// A word of a plane, split into a block and a word of its fragment.
#[derive(Clone, Copy)]
pub(super) struct WordInFragment {
    /// Number of the block in the chunk, or of the pair in a copy.
    pub(super) ordinal: u32,
    /// Word of the fragment.
    word: u32,
}

/// The fragments of one plane on the engine's side.
#[derive(Clone, Copy)]
pub(super) struct PlaneFragments<E> {
    base_address: u64,
    block_stride: u64,
    fragments: Fragments,
    access: PhantomData<E>,
}

impl<E: EngineAccess> PlaneFragments<E> {
    /// Reads where the plane's fragments lie.
    #[inline]
    pub(super) fn new<A: Arch>(plane: PlaneView<A>, fragments: Fragments) -> Self {
        Self {
            base_address: plane.base_address(),
            block_stride: plane.block_stride(),
            fragments,
            access: PhantomData,
        }
    }

    /// Splits word `index` of the plane.
    #[inline]
    pub(super) fn split(&self, index: u32) -> WordInFragment {
        let ordinal = self.fragments.by_words.quotient(index);
        WordInFragment { ordinal, word: index - ordinal * self.fragments.words }
    }

    /// Returns where the word is in block `block_id`.
    #[inline]
    pub(super) fn place(&self, block_id: u32, at: WordInFragment) -> Place {
        // Wraps for the skipped block, whose address is never used.
        let block = u64::from(block_id).wrapping_mul(self.block_stride);
        let address = word_at(self.base_address.wrapping_add(block), at.word);
        Place { address, quarters: E::quarters(self.fragments.quarters, at.word) }
    }

    /// Returns where the word is in block `block_id`; nowhere if the block is to be skipped.
    #[inline]
    pub(super) fn place_unless_skipped(&self, block_id: u32, at: WordInFragment) -> Place {
        let place = self.place(block_id, at);
        let skipped = block_id == BLOCK_ID_SKIP;
        Place { quarters: if skipped { 0 } else { place.quarters }, ..place }
    }
}
