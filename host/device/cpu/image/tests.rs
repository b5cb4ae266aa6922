//! Images against the packing map and the sum's definition, byte by byte.
#![expect(unsafe_code, reason = "packs and unpacks memory of the tests")]

use super::{GroupImages, SUMS_OFFSET, matches_sums};
use crate::device::cpu::DeviceMemory;
use crate::device::cpu::fixture::{
    Shape, bytes_of, chunk, expected_image, expected_memory, noise, packing, shapes,
};
use crate::device::cpu::kernels::Level;
use crate::device::{ChunkBlocks, Misuse};
use crate::key::Key;
use crate::layout::{Group, Layout};
use crate::mem::HEADER_BYTES;
use crate::units::{BlockCount, BlockId};
use proptest::prelude::*;
use std::sync::Arc;

/// A group over memory full of noise.
struct Cache {
    memory: Arc<DeviceMemory>,
    layout: Layout,
    images: GroupImages,
}

impl Cache {
    fn new(shape: &Shape, seed: u64) -> Self {
        let memory = shape.memory();
        let layout = shape.layout(&memory);
        let images = GroupImages::new(&layout.groups()[0]).expect("addresses of this machine");
        let cache = Self { memory, layout, images };
        cache.fill(seed);
        cache
    }

    fn fill(&self, seed: u64) {
        self.memory.write(0, &noise(seed, bytes_of(&self.memory).len()));
    }

    fn group(&self) -> &Group {
        &self.layout.groups()[0]
    }

    /// Packs into a piece that an earlier chunk left full of `stale` bytes.
    fn pack(&self, level: Level, chunk: &ChunkBlocks, stale: u8) -> Vec<u8> {
        let packing = packing(self.group(), chunk);
        let mut payload = vec![stale; usize::try_from(packing.payload().get()).expect("small")];
        // SAFETY: the blocks lie in `self.memory`, which only this thread uses.
        let header = unsafe { self.images.pack(level, chunk, &packing, &mut payload) };
        [&header[..], &payload].concat()
    }

    fn matches(&self, level: Level, chunk: &ChunkBlocks, image: &[u8]) -> bool {
        let (header, payload) = image.split_first_chunk::<HEADER_BYTES>().expect("an image");
        matches_sums(level, chunk.key, &packing(self.group(), chunk), header, payload)
    }

    fn scatter(&self, level: Level, chunk: &ChunkBlocks, image: &[u8]) {
        let packing = packing(self.group(), chunk);
        // SAFETY: the blocks lie in `self.memory`, which only this thread uses.
        unsafe { self.images.scatter(level, chunk, &packing, &image[HEADER_BYTES..]) }
    }
}

/// Chooses a chunk of a shape: its blocks in any order, each once.
fn chunk_of(shape: &Shape, seed: u64, key: u128) -> ChunkBlocks {
    let mut blocks: Vec<u32> = (0..shape.block_count).collect();
    let order = noise(seed, 8 * blocks.len());
    blocks.sort_by_key(|&block| order[8 * block as usize]);
    let most = shape.blocks_per_chunk.min(shape.block_count) as usize;
    blocks.truncate(1 + usize::from(order[1]) % most);
    chunk(key, &blocks)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn every_byte_of_an_image_is_as_the_packing_map_says(
        shape in shapes(), seed: u64, key: u128, stale in 1_u8..,
    ) {
        let cache = Cache::new(&shape, seed);
        let chunk = chunk_of(&shape, seed, key);
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
        let mut chunk = chunk_of(&shape, seed, key);
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
        let chunk = chunk_of(&shape, seed, key);
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

fn first_difference(one: &[u8], other: &[u8]) -> Option<usize> {
    one.iter().zip(other).position(|(one, other)| one != other)
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
