//! The KV of an emulated model: bytes that say which key, plane and place they belong to.
//!
//! A fragment is filled with little-endian 64-bit words; a last half word is the low half of its
//! word. Word `i` of a fragment is `scramble(seed + i * STEP)`, with
//!
//! ```text
//! seed     = mix(mix(key high) ^ key low ^ (plane + 1) * STEP)
//! scramble = one round of xor-shift and odd multiplication
//! ```
//!
//! and `mix` and `STEP` those of the chunk checksum. Both maps are one to one, so at one place two
//! fragments agree in a word only if their seeds are equal, which chance gives one pair in 2^64.
//! Hence a comparison of the whole fragment sees every byte that is not the right one: fragments of
//! another key, of another plane or of an earlier time, fragments moved by any distance (`STEP` is
//! odd), half-copied ones, and ones that were never written, since blocks are filled with
//! [`POISON`] before a load.
//!
//! Costs one multiplication for 8 bytes. Called by the emulated engine.

use crate::key::Key;
use kvtide_kernels::checksum::{STEP, mix};

/// What a block is filled with before it is loaded: no byte of it may be there afterwards.
pub(super) const POISON: u8 = 0xdb;

const WORD_BYTES: usize = size_of::<u64>();

/// Odd, as in `SplitMix64`.
const MULTIPLIER: u64 = 0xbf58_476d_1ce4_e5b9;

/// A byte that is not what its place says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    /// Position in the fragment.
    pub(super) offset: usize,
    pub(super) expected: u8,
    pub(super) found: u8,
}

/// The content of one fragment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pattern {
    seed: u64,
}

impl Pattern {
    /// Returns what the fragment of `key` in the plane at position `plane` holds.
    pub(super) fn new(key: Key, plane: usize) -> Self {
        let plane_term = (plane as u64 + 1).wrapping_mul(STEP);
        Self { seed: mix(mix(key.high_u64()) ^ key.low_u64() ^ plane_term) }
    }

    /// Word number `index` of the fragment.
    fn word(self, index: u64) -> [u8; WORD_BYTES] {
        let mut word = self.seed.wrapping_add(index.wrapping_mul(STEP));
        word = (word ^ (word >> 32)).wrapping_mul(MULTIPLIER);
        (word ^ (word >> 29)).to_le_bytes()
    }

    /// Writes the fragment.
    pub(super) fn write(self, fragment: &mut [u8]) {
        let (words, rest) = fragment.as_chunks_mut::<WORD_BYTES>();
        let mut index = 0;
        for word in words {
            *word = self.word(index);
            index += 1;
        }
        rest.copy_from_slice(&self.word(index)[..rest.len()]);
    }

    /// Compares all of a fragment with what it should hold.
    pub(super) fn compare(self, fragment: &[u8]) -> Result<(), Difference> {
        let (words, rest) = fragment.as_chunks::<WORD_BYTES>();
        let mut difference = 0;
        let mut index = 0;
        for word in words {
            difference |= u64::from_le_bytes(*word) ^ u64::from_le_bytes(self.word(index));
            index += 1;
        }
        if difference == 0 && *rest == self.word(index)[..rest.len()] {
            return Ok(());
        }
        Err(self.first_difference(fragment))
    }

    /// Finds the first wrong byte of a fragment that has one.
    fn first_difference(self, fragment: &[u8]) -> Difference {
        let mut expected = vec![0; fragment.len()];
        self.write(&mut expected);
        let pairs = expected.into_iter().zip(fragment.iter().copied());
        let different = pairs.enumerate().find(|(_, (expected, found))| expected != found);
        let (offset, (expected, found)) = different.expect("the comparison found one");
        Difference { offset, expected, found }
    }
}

#[cfg(test)]
mod tests {
    use super::{POISON, Pattern};
    use crate::key::Key;
    use proptest::prelude::*;

    fn fragment(key: u128, plane: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![POISON; length];
        Pattern::new(Key::from_u128(key), plane).write(&mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn a_fragment_is_its_own_and_no_other(
            key in any::<u128>(),
            other in any::<u128>(),
            plane in 0..200_usize,
            other_plane in 0..200_usize,
            quarters in 1..600_usize,
        ) {
            let length = 4 * quarters;
            let pattern = Pattern::new(Key::from_u128(key), plane);
            prop_assert_eq!(pattern.compare(&fragment(key, plane, length)), Ok(()));
            if (key, plane) != (other, other_plane) {
                prop_assert!(pattern.compare(&fragment(other, other_plane, length)).is_err());
            }
            // Keys of a trace are small numbers that differ by one.
            let next = fragment(key.wrapping_add(1), plane, length);
            prop_assert!(pattern.compare(&next).is_err());
            let above = fragment(key ^ 1 << 64, plane, length);
            prop_assert!(pattern.compare(&above).is_err());
            prop_assert!(pattern.compare(&vec![POISON; length]).is_err());
            prop_assert!(pattern.compare(&vec![0; length]).is_err());
        }

        #[test]
        fn the_first_wrong_byte_is_named(
            key in any::<u128>(),
            quarters in 1..600_usize,
            place in any::<prop::sample::Index>(),
            flipped in 1..=u8::MAX,
        ) {
            let mut bytes = fragment(key, 3, 4 * quarters);
            let offset = place.index(bytes.len());
            let expected = bytes[offset];
            bytes[offset] ^= flipped;
            let difference = Pattern::new(Key::from_u128(key), 3).compare(&bytes).unwrap_err();
            prop_assert_eq!(difference.offset, offset);
            prop_assert_eq!(difference.expected, expected);
            prop_assert_eq!(difference.found, expected ^ flipped);
        }

        #[test]
        fn shifted_and_half_copied_fragments_are_seen(
            key in any::<u128>(),
            quarters in 4..600_usize,
            place in any::<prop::sample::Index>(),
        ) {
            let bytes = fragment(key, 0, 4 * quarters);
            let pattern = Pattern::new(Key::from_u128(key), 0);
            let distance = 1 + place.index(bytes.len() - 1);
            let mut rotated = bytes.clone();
            rotated.rotate_left(distance);
            prop_assert!(pattern.compare(&rotated).is_err());
            let mut half = bytes;
            let copied = place.index(half.len() - 8);
            half[copied..].fill(POISON);
            prop_assert!(pattern.compare(&half).is_err());
        }
    }
}
