//! Every level against the plain copy and the sum's definition.

use super::{Level, Sum};
use crate::device::cpu::fixture::noise;
use kvtide_kernels::checksum;
use proptest::prelude::*;
use std::iter::repeat_n;

/// Lengths on both sides of every border: of registers, blocks of registers, and streaming.
fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![0_usize..80, 0_usize..600, 0_usize..5000, 16_300_usize..16_500]
        .prop_map(|length| length / 4 * 4)
}

fn sum_of(bytes: &[u8], first_index: u64) -> u64 {
    let words = bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().expect("whole")));
    checksum::sum(&words.collect::<Vec<_>>(), first_index)
}

#[test]
fn the_portable_level_is_always_there_and_the_best_is_the_last() {
    let levels = Level::available();
    assert_eq!(format!("{:?}", levels[0]), "portable");
    assert_eq!(levels.last(), Some(&Level::detect()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn all_levels_gather_the_same_bytes_and_sums(
        runs in prop::collection::vec((lengths(), 1_usize..7), 1..4),
        source_skew in 0_usize..70,
        target_skew in 0_usize..70,
        seed: u64,
        first_index: u64,
    ) {
        let lengths = runs.into_iter().flat_map(|(length, count)| repeat_n(length, count));
        let sources: Vec<Vec<u8>> = (0..)
            .zip(lengths)
            .map(|(number, length)| noise(seed ^ number, source_skew + length))
            .collect();
        let fragments: Vec<&[u8]> = sources.iter().map(|source| &source[source_skew..]).collect();
        let mut expected = Vec::new();
        for fragment in &fragments {
            expected.extend_from_slice(fragment);
            expected.resize(expected.len().next_multiple_of(16), 0);
        }
        let expected_sum = sum_of(&expected, first_index);
        for level in Level::available() {
            for (sum, expected_sum) in [(Sum::Words, expected_sum), (Sum::None, 0)] {
                let mut target = vec![0xAA; target_skew + expected.len() + 100];
                let place = &mut target[target_skew..];
                let total = level.gather(sum, place, first_index, fragments.iter().copied());
                prop_assert_eq!(total, expected_sum, "{:?}, {:?}", level, sum);
                prop_assert!(place[..expected.len()] == expected, "{level:?}");
                prop_assert!(place[expected.len()..].iter().all(|&byte| byte == 0xAA));
                prop_assert!(target[..target_skew].iter().all(|&byte| byte == 0xAA));
            }
            prop_assert_eq!(level.sum(&expected, first_index), expected_sum, "{:?}", level);
        }
    }

    #[test]
    fn all_levels_copy_exactly_the_bytes_given(
        length in lengths(), source_skew in 0_usize..70, target_skew in 0_usize..70, seed: u64,
    ) {
        let source = noise(seed, source_skew + length);
        for level in Level::available() {
            let mut target = vec![0xAA; target_skew + length + 100];
            level.copy(&mut target[target_skew..][..length], &source[source_skew..]);
            prop_assert!(target[target_skew..][..length] == source[source_skew..], "{level:?}");
            prop_assert!(target[..target_skew].iter().all(|&byte| byte == 0xAA), "{level:?}");
            prop_assert!(target[target_skew + length..].iter().all(|&byte| byte == 0xAA));
        }
    }
}
