//! Slabs cut into pieces that the kernel takes as registered buffers.
//!
//! A registered buffer has at most 1 GiB, and the kernel keeps it as one segment a huge page only
//! if it begins with one. So a piece begins at a multiple of 2 MiB and ends with a slot, and the
//! next begins at the last multiple of 2 MiB that is not after the next slot:
//!
//! ```text
//!   slots    |    0    |    1    |    2    |    3    |    4    |
//!   2 MiB    |     |     |     |     |     |     |     |     |
//!   pieces   |<-- slots 0 and 1 -->|
//!                                |<---- slots 2 and 3 ------>|
//!                                                          |<- slot 4
//! ```
//!
//! Pieces overlap by less than 2 MiB, so that every slot lies in one piece whole, whatever its
//! size; only slots above 1 GiB less 2 MiB may find none.
//!
//! Called by the ring's engine.

use std::ops::Range;

/// Bytes of a huge page.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Bytes of a piece: what the kernel takes as one buffer.
pub(super) const PIECE_BYTES_MAX: usize = 1 << 30;

/// Buffers that one ring takes.
pub(super) const PIECE_COUNT_MAX: usize = 1 << 14;

/// A piece, in addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// What is registered.
    pub(super) memory: Range<usize>,
    /// Where its first whole slot starts.
    pub(super) slots_start: usize,
}

/// Cuts the slots that begin at `base`.
pub(super) fn cut(base: usize, slot_bytes: usize, slot_count: usize) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut slot = 0;
    while slot < slot_count {
        let slots_start = slot * slot_bytes;
        let start = slots_start - slots_start % HUGE_PAGE_BYTES;
        let fitting = (start + PIECE_BYTES_MAX - slots_start) / slot_bytes;
        slot = slot_count.min(slot + fitting.max(1));
        if fitting > 0 {
            let memory = base + start..base + slot * slot_bytes;
            pieces.push(Piece { memory, slots_start: base + slots_start });
        }
    }
    pieces
}

/// Registered pieces, found by address.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    /// Sorted by `slots_start`; the index is the buffer's.
    pieces: Vec<Piece>,
}

impl Pieces {
    /// Sorts pieces of any slabs, and leaves out those that a ring has no room for.
    pub(super) fn new(mut pieces: Vec<Piece>) -> Self {
        pieces.sort_by_key(|piece| piece.slots_start);
        pieces.truncate(PIECE_COUNT_MAX);
        Self { pieces }
    }

    /// Returns the pieces in the order in which they are registered.
    pub(super) fn as_slice(&self) -> &[Piece] {
        &self.pieces
    }

    /// Returns the buffer that has all of `length` bytes at `address`, if they lie in one slot.
    pub(super) fn find(&self, address: usize, length: usize) -> Option<u16> {
        let after = self.pieces.partition_point(|piece| piece.slots_start <= address);
        let index = after.checked_sub(1)?;
        let end = address.checked_add(length)?;
        (end <= self.pieces[index].memory.end)
            .then(|| u16::try_from(index).expect("fewer than 2^14 pieces"))
    }
}

#[cfg(test)]
mod tests {
    use super::{HUGE_PAGE_BYTES, PIECE_BYTES_MAX, Piece, Pieces, cut};
    use proptest::prelude::*;

    const BASE: usize = 64 * HUGE_PAGE_BYTES;

    proptest! {
        #[test]
        fn every_slot_that_can_be_lies_in_the_piece_that_is_found_for_it(
            slot_pages in prop_oneof![1_usize..2000, 200_000_usize..300_000],
            slot_count in 1_usize..3000,
            chosen in any::<prop::sample::Index>(),
        ) {
            let slot_bytes = slot_pages * 4096;
            let pieces = Pieces::new(cut(BASE, slot_bytes, slot_count));
            for Piece { memory, slots_start } in pieces.as_slice() {
                prop_assert!(memory.start.is_multiple_of(HUGE_PAGE_BYTES));
                prop_assert!(memory.len() <= PIECE_BYTES_MAX);
                prop_assert!(memory.end <= BASE + slot_bytes * slot_count);
                prop_assert!((slots_start - memory.start) < HUGE_PAGE_BYTES);
            }
            let slot = BASE + chosen.index(slot_count) * slot_bytes;
            match pieces.find(slot, slot_bytes) {
                Some(index) => {
                    let memory = &pieces.as_slice()[usize::from(index)].memory;
                    prop_assert!(memory.start <= slot && slot + slot_bytes <= memory.end);
                }
                None => prop_assert!(slot_bytes > PIECE_BYTES_MAX - HUGE_PAGE_BYTES),
            }
            prop_assert_eq!(pieces.find(BASE + slot_bytes * slot_count, 4096), None);
            prop_assert_eq!(pieces.find(BASE - 4096, 4096), None);
        }
    }

    #[test]
    fn slots_with_a_header_page_leave_nothing_out() {
        // 2 MiB and a header page: no slot but the first begins at a multiple of 2 MiB below 1 GiB.
        let slot_bytes = HUGE_PAGE_BYTES + 4096;
        let pieces = cut(BASE, slot_bytes, 1100);
        let counts: Vec<usize> = pieces
            .iter()
            .map(|piece| (piece.memory.end - piece.slots_start) / slot_bytes)
            .collect();
        assert_eq!(counts, [511, 510, 79]);
    }

    #[test]
    fn memory_of_several_slabs_is_told_apart() {
        let far = BASE + (1 << 40);
        let mut pieces = cut(far, 8192, 4);
        pieces.extend(cut(BASE, 4096, 2));
        let pieces = Pieces::new(pieces);
        assert_eq!(pieces.find(BASE + 4096, 4096), Some(0));
        assert_eq!(pieces.find(far + 3 * 8192, 8192), Some(1));
        assert_eq!(pieces.find(BASE + 8192, 4096), None);
    }
}
