//! Images against the packing map and the sum's definition, byte by byte.

use super::SUMS_OFFSET;
use crate::device::Misuse;
use crate::device::cpu::fixture::{
    Cache, Shape, bytes_of, chunk, chunks_of, expected_image, expected_memory, first_difference,
    packing, shapes,
};
use crate::device::cpu::kernels::Level;
use crate::key::Key;
use crate::mem::HEADER_BYTES;
use crate::units::{BlockCount, BlockId};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn every_byte_of_an_image_is_as_the_packing_map_says(
        shape in shapes(), seed: u64, key: u128, stale in 1_u8..,
    ) {
        let cache = Cache::new(&shape, seed);
        let chunk = chunks_of(&shape, seed, key).remove(0);
        let (memory, address) = (bytes_of(&cache.memory), cache.memory.address());
        let expected = expected_image(cache.group(), &chunk, &memory, address);
        for level in Level::available() {
            let image = cache.pack(level, &chunk, stale);
            let at = first_difference(&image, &expected);
            prop_assert_eq!(at, None, "{:?}", level);
            prop_assert!(cache.matches(level, &chunk, &image), "{level:?}");
        }
    }

    #[test]
    fn scatter_writes_the_fragments_and_not_one_byte_beside_them(
        shape in shapes(), seed: u64, key: u128, skip: prop::sample::Index,
    ) {
        let cache = Cache::new(&shape, seed);
        let mut chunk = chunks_of(&shape, seed, key).remove(0);
        let image = cache.pack(Level::detect(), &chunk, 0xAA);
        let at = skip.index(2 * chunk.blocks.len());
        if let Some(block) = chunk.blocks.get_mut(at) {
            *block = BlockId::SKIP;
        }
        for level in Level::available() {
            cache.fill(!seed);
            let mut expected = bytes_of(&cache.memory);
            let address = cache.memory.address();
            expected_memory(cache.group(), &chunk, &image, &mut expected, address);
            cache.scatter(level, &chunk, &image);
            let at = first_difference(&bytes_of(&cache.memory), &expected);
            prop_assert_eq!(at, None, "{:?}", level);
        }
    }

    #[test]
    fn a_changed_byte_of_a_fragment_or_a_sum_or_another_key_never_matches(
        shape in shapes(), seed: u64, key: u128, at: prop::sample::Index, flip in 1_u8..,
    ) {
        let cache = Cache::new(&shape, seed);
        let chunk = chunks_of(&shape, seed, key).remove(0);
        let image = cache.pack(Level::detect(), &chunk, 0xAA);
        let map = packing(cache.group(), &chunk);
        let part = &map.parts()[at.index(map.parts().len())];
        let offset = usize::try_from(part.offset().get()).expect("small");
        let summed = usize::try_from(part.summed().get()).expect("small");
        let mut changed_byte = image.clone();
        changed_byte[HEADER_BYTES + offset + at.index(summed)] ^= flip;
        let mut changed_sum = image.clone();
        changed_sum[SUMS_OFFSET + at.index(8 * map.parts().len())] ^= flip;
        let mut other = chunk.clone();
        other.key = Key::from_u128(key ^ u128::from(flip));
        for level in Level::available() {
            prop_assert!(!cache.matches(level, &chunk, &changed_byte), "{level:?}");
            prop_assert!(!cache.matches(level, &chunk, &changed_sum), "{level:?}");
            prop_assert!(!cache.matches(level, &other, &image), "{level:?}");
            prop_assert!(cache.matches(level, &chunk, &image), "{level:?}");
        }
    }
}

#[test]
fn blocks_that_the_group_does_not_have_are_refused() {
    let cache = Cache::new(&Shape::plain(2, 3, &[64]), 1);
    let check = |blocks: &[u32], may_skip| cache.images.check(&chunk(1, blocks), may_skip);
    let block_count = BlockCount::new(3);
    let skip = BlockId::SKIP;
    assert_eq!(check(&[0, 2], false), Ok(()));
    assert_eq!(check(&[2, skip.get()], true), Ok(()));
    let refused = |block| Err(Misuse::BlockId { block, block_count });
    assert_eq!(check(&[2, skip.get()], false), refused(skip));
    assert_eq!(check(&[3], true), refused(BlockId::new(3)));
    let blocks_per_chunk = BlockCount::new(2);
    let miscounted = |block_count| Err(Misuse::ChunkBlocks { block_count, blocks_per_chunk });
    assert_eq!(check(&[], true), miscounted(0));
    assert_eq!(check(&[0, 1, 2], true), miscounted(3));
}
