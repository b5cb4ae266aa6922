//! The position-keyed sum that guards a packed chunk against accidents.
//!
//! The payload is read as little-endian 64-bit words. Word `w` at payload word index `i` adds
//! `mix(w + i * STEP)` modulo 2^64, where `mix` is a bijection and `STEP` is odd. Hence:
//!
//! - any change inside one word changes the sum (bijection);
//! - words that swap places change it (each index adds another multiple of `STEP`);
//! - lanes may add in any order, and sums of parts add up to the chunk's, so that a kernel can sum
//!   while it copies.
//!
//! What is stored is [`seal`]: the sum plus the low half of the chunk's key, so that a payload
//! under the wrong key fails too. The sum guards against accidents, not against forgers.
//!
//! # Vectors
//!
//! | words (from word index 0) | sum |
//! |---|---|
//! | none | `0x0000000000000000` |
//! | `0` | `0x0000000000000000` |
//! | `1` | `0x4179b061e0c0e0d0` |
//! | `0, 0` | `0x4e17cf67001b3979` |
//! | `1, 2, 3, 4` | `0xc45583bccde5941e` |

/// What one position adds before mixing: 2^64 divided by the golden ratio, odd.
pub const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Odd multiplier of both rounds of [`mix`].
pub const MULTIPLIER: u64 = 0xd6e8_feb8_6659_fd93;

/// Maps a word to another, one to one, so that close words land far apart.
///
/// Two rounds of xor-shift and odd multiplication, each invertible.
#[inline]
pub const fn mix(word: u64) -> u64 {
    let mut mixed = word;
    mixed ^= mixed >> 32;
    mixed = mixed.wrapping_mul(MULTIPLIER);
    mixed ^= mixed >> 32;
    mixed = mixed.wrapping_mul(MULTIPLIER);
    mixed ^ (mixed >> 32)
}

/// Returns what `word` at payload word index `index` adds to the sum.
#[inline]
pub const fn term(word: u64, index: u64) -> u64 {
    mix(word.wrapping_add(index.wrapping_mul(STEP)))
}

/// Sums `words` whose first has payload word index `first_index`.
///
/// The plain definition, word by word: the oracle of every faster one.
///
/// ```
/// use kvtide_kernels::checksum::sum;
///
/// let whole = sum(&[1, 2, 3, 4], 0);
/// assert_eq!(whole, 0xc455_83bc_cde5_941e);
/// assert_eq!(whole, sum(&[1, 2], 0).wrapping_add(sum(&[3, 4], 2)));
/// ```
#[inline]
pub fn sum(words: &[u64], first_index: u64) -> u64 {
    let mut total = 0_u64;
    let mut index = first_index;
    for &word in words {
        total = total.wrapping_add(term(word, index));
        index = index.wrapping_add(1);
    }
    total
}

/// Returns the stored form of `sum` for a chunk whose key's low half is `key_low`.
#[inline]
pub const fn seal(sum: u64, key_low: u64) -> u64 {
    sum.wrapping_add(key_low)
}

#[cfg(test)]
mod tests {
    use super::{MULTIPLIER, mix, seal, sum};
    use proptest::prelude::*;

    /// Inverse of `MULTIPLIER` modulo 2^64 by Newton's iteration.
    fn inverse(odd: u64) -> u64 {
        (0..6).fold(odd, |guess, _| guess.wrapping_mul(2_u64.wrapping_sub(odd.wrapping_mul(guess))))
    }

    fn unmix(mixed: u64) -> u64 {
        let back = inverse(MULTIPLIER);
        let mut word = mixed;
        word ^= word >> 32;
        word = word.wrapping_mul(back);
        word ^= word >> 32;
        word = word.wrapping_mul(back);
        word ^ (word >> 32)
    }

    #[test]
    fn published_vectors_hold() {
        let vectors: [(&[u64], u64); 5] = [
            (&[], 0),
            (&[0], 0),
            (&[1], 0x4179_b061_e0c0_e0d0),
            (&[0, 0], 0x4e17_cf67_001b_3979),
            (&[1, 2, 3, 4], 0xc455_83bc_cde5_941e),
        ];
        for (words, expected) in vectors {
            assert_eq!(sum(words, 0), expected, "{words:x?}: {:#018x}", sum(words, 0));
        }
        assert_eq!(seal(u64::MAX, 2), 1);
    }

    proptest! {
        #[test]
        fn mix_has_an_inverse(word: u64) {
            prop_assert_eq!(unmix(mix(word)), word);
        }

        #[test]
        fn a_change_inside_one_word_is_always_seen(
            words in prop::collection::vec(any::<u64>(), 1..64),
            at: prop::sample::Index,
            flip in 1_u64..,
            first_index in 0_u64..1 << 40,
        ) {
            let mut changed = words.clone();
            changed[at.index(words.len())] ^= flip;
            prop_assert_ne!(sum(&words, first_index), sum(&changed, first_index));
        }

        #[test]
        fn sums_of_parts_add_up_to_the_whole(
            words in prop::collection::vec(any::<u64>(), 0..64),
            at: prop::sample::Index,
            first_index in 0_u64..1 << 40,
        ) {
            let cut = at.index(words.len() + 1);
            let (head, tail) = words.split_at(cut);
            let parts = sum(head, first_index).wrapping_add(sum(tail, first_index + cut as u64));
            prop_assert_eq!(sum(&words, first_index), parts);
        }

        #[test]
        fn words_that_swap_places_are_seen(first: u64, second: u64) {
            prop_assume!(first != second);
            prop_assert_ne!(sum(&[first, second], 0), sum(&[second, first], 0));
        }
    }
}
