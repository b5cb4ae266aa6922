//! Random layouts over memory of their own, and images made the plain way: the oracles of tests.
#![expect(unsafe_code, reason = "packs and unpacks memory of the tests")]

use super::DeviceMemory;
use super::image::{GroupImages, matches_sums};
use super::kernels::Level;
use crate::device::{ChunkBlocks, HEADER_SUMS_OFFSET_BYTES, Ready};
use crate::key::Key;
use crate::layout::{
    Attention, ElementType, Group, GroupBuilder, InnerOrder, Layout, Packing, Paging, Plane,
    PlaneContent,
};
use crate::mem::HEADER_BYTES;
use crate::units::{BlockCount, BlockId, ByteCount, GroupIndex, TokenCount};
use kvtide_kernels::checksum;
use proptest::prelude::*;
use std::sync::Arc;

/// A layout to be built over memory that is not there yet.
#[derive(Clone, Debug)]
pub(super) struct Shape {
    pub(super) blocks_per_chunk: u32,
    pub(super) block_count: u32,
    /// Bytes before the first plane: a multiple of 4.
    pub(super) skew: u64,
    /// Sets of planes that interleave block by block, each with bytes left free after each block.
    pub(super) sets: Vec<(Vec<u64>, u64)>,
}

impl Shape {
    /// Whole planes without gaps.
    pub(super) fn plain(blocks_per_chunk: u32, block_count: u32, fragments: &[u64]) -> Self {
        let sets = fragments.iter().map(|&fragment| (vec![fragment], 0)).collect();
        Self { blocks_per_chunk, block_count, skew: 0, sets }
    }

    /// Returns the planes relative to the memory's start, and one past their last byte.
    fn planes(&self) -> (Vec<Plane>, u64) {
        let mut planes = Vec::new();
        let mut start = self.skew;
        for (fragments, gap) in &self.sets {
            let stride = fragments.iter().sum::<u64>() + gap;
            let mut base_address = start;
            for &fragment in fragments {
                let number = u32::try_from(planes.len()).expect("few planes");
                let block_stride = ByteCount::new(stride);
                let fragment = ByteCount::new(fragment);
                let content = if number % 2 == 0 { PlaneContent::Key } else { PlaneContent::Value };
                let layer = number / 2;
                planes.push(Plane { layer, content, base_address, block_stride, fragment });
                base_address += fragment.get();
            }
            start += stride * u64::from(self.block_count);
        }
        (planes, start)
    }

    /// Returns the memory that the planes and as much again after them need.
    pub(super) fn memory(&self) -> Arc<DeviceMemory> {
        let (_, end) = self.planes();
        DeviceMemory::allocate(ByteCount::new(end + 64)).expect("a small memory")
    }

    /// Builds the layout over a memory: one group.
    pub(super) fn layout(&self, memory: &DeviceMemory) -> Layout {
        self.layout_at(memory.address())
    }

    /// Builds the layout over the memory at an address.
    pub(super) fn layout_at(&self, address: u64) -> Layout {
        let paging = Paging {
            block_tokens: TokenCount::new(16),
            blocks_per_chunk: BlockCount::new(self.blocks_per_chunk),
            block_count: BlockCount::new(self.block_count),
            attention: Attention::Full,
        };
        let mut group = GroupBuilder::new(paging, ElementType::U8, InnerOrder::TokensHeads);
        for plane in self.planes().0 {
            let base_address = address + plane.base_address;
            group = group.plane(Plane { base_address, ..plane });
        }
        Layout::builder().group(group).build().expect("shapes are valid")
    }
}

/// Layouts with odd rows, odd starts, interleaved planes and gaps.
pub(super) fn shapes() -> impl Strategy<Value = Shape> {
    let odd = prop::sample::select(vec![4_u64, 12, 132, 576, 656, 1152, 2052, 4096, 16388]);
    let fragment = prop_oneof![odd, (1_u64..4200).prop_map(|words| words * 4), Just(65536)];
    let gap = prop_oneof![Just(0), (0_u64..40).prop_map(|words| words * 4)];
    let set = (prop::collection::vec(fragment, 1..4), gap);
    (1_u32..5, 1_u32..8, 0_u64..20, prop::collection::vec(set, 1..4)).prop_map(
        |(blocks_per_chunk, block_count, skew, sets)| Shape {
            blocks_per_chunk,
            block_count,
            skew: skew * 4,
            sets,
        },
    )
}

/// A group over memory full of noise.
pub(super) struct Cache {
    pub(super) memory: Arc<DeviceMemory>,
    pub(super) layout: Layout,
    pub(super) images: GroupImages,
}

impl Cache {
    /// Lays a shape out and fills the memory.
    pub(super) fn new(shape: &Shape, seed: u64) -> Self {
        let memory = shape.memory();
        let layout = shape.layout(&memory);
        let images = GroupImages::new(&layout.groups()[0]).expect("addresses of this machine");
        let cache = Self { memory, layout, images };
        cache.fill(seed);
        cache
    }

    /// Fills the memory with noise.
    pub(super) fn fill(&self, seed: u64) {
        self.memory.write(0, &noise(seed, bytes_of(&self.memory).len()));
    }

    pub(super) fn group(&self) -> &Group {
        &self.layout.groups()[0]
    }

    /// Packs into a piece that an earlier chunk left full of `stale` bytes.
    pub(super) fn pack(&self, level: Level, chunk: &ChunkBlocks, stale: u8) -> Vec<u8> {
        let packing = packing(self.group(), chunk);
        let mut payload = vec![stale; usize::try_from(packing.payload().get()).expect("small")];
        // SAFETY: the blocks lie in `self.memory`, which only this thread uses.
        let header = unsafe { self.images.pack(level, chunk, &packing, &mut payload) };
        [&header[..], &payload].concat()
    }

    /// Whether every part of an image is good.
    pub(super) fn matches(&self, level: Level, chunk: &ChunkBlocks, image: &[u8]) -> bool {
        let (header, payload) = image.split_first_chunk::<HEADER_BYTES>().expect("an image");
        matches_sums(level, chunk.key, &packing(self.group(), chunk), header, payload)
    }

    /// Writes all fragments of an image, good or not.
    pub(super) fn scatter(&self, level: Level, chunk: &ChunkBlocks, image: &[u8]) {
        let packing = packing(self.group(), chunk);
        // SAFETY: the blocks lie in `self.memory`, which only this thread uses.
        unsafe { self.images.scatter(level, chunk, &packing, &image[HEADER_BYTES..]) }
    }
}

/// Returns `length` bytes that look random and differ by seed.
pub(super) fn noise(seed: u64, length: usize) -> Vec<u8> {
    let word = |index| checksum::mix(checksum::STEP.wrapping_mul(seed).wrapping_add(index));
    (0..).flat_map(|index| word(index).to_le_bytes()).take(length).collect()
}

/// Returns all bytes of a memory.
pub(super) fn bytes_of(memory: &DeviceMemory) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(memory.length().get()).expect("it is mapped")];
    memory.read(0, &mut bytes);
    bytes
}

/// Names a chunk of group 0.
pub(super) fn chunk(key: u128, blocks: &[u32]) -> ChunkBlocks {
    ChunkBlocks {
        group: GroupIndex::new(0),
        key: Key::from_u128(key),
        blocks: blocks.iter().copied().map(BlockId::new).collect(),
        ready: Ready::Now,
    }
}

/// Returns the ids of a shape's blocks in an order that differs by seed.
pub(super) fn shuffled_blocks(shape: &Shape, seed: u64) -> Vec<u32> {
    let mut blocks: Vec<u32> = (0..shape.block_count).collect();
    blocks.sort_by_cached_key(|&block| {
        checksum::mix(checksum::STEP.wrapping_mul(seed) ^ u64::from(block))
    });
    blocks
}

/// Chooses 1 to 3 chunks of a shape: blocks in any order, each once in all of them.
pub(super) fn chunks_of(shape: &Shape, seed: u64, key: u128) -> Vec<ChunkBlocks> {
    let mut blocks = shuffled_blocks(shape, seed);
    let mut chunks = Vec::new();
    for (random, number) in noise(!seed, 3).into_iter().zip(0..) {
        let most = blocks.len().min(shape.blocks_per_chunk as usize);
        if most > 0 {
            let rest = blocks.split_off(1 + usize::from(random) % most);
            chunks.push(chunk(key.wrapping_add(number), &blocks));
            blocks = rest;
        }
    }
    chunks
}

/// Builds a chunk's image byte by byte out of a copy of the memory that starts at `address`.
pub(super) fn expected_image(
    group: &Group,
    chunk: &ChunkBlocks,
    memory: &[u8],
    address: u64,
) -> Vec<u8> {
    let packing = packing(group, chunk);
    let mut image = vec![0; index(packing.slot().get())];
    for (at, plane) in group.planes().iter().enumerate() {
        for (number, block) in (0..).zip(&chunk.blocks) {
            let stride = plane.block_stride.get();
            let source = plane.base_address - address + u64::from(block.get()) * stride;
            let target = HEADER_BYTES + index(packing.fragment_offset(at, number).get());
            let length = index(plane.fragment.get());
            image[target..][..length].copy_from_slice(&memory[index(source)..][..length]);
        }
    }
    for (at, part) in packing.parts().iter().enumerate() {
        let start = HEADER_BYTES + index(part.offset().get());
        let words: Vec<u64> = image[start..][..index(part.summed().get())]
            .chunks(8)
            .map(|word| u64::from_le_bytes(word.try_into().expect("parts are whole words")))
            .collect();
        let sum = checksum::sum(&words, part.offset().get() / 8);
        let sealed = checksum::seal(sum, chunk.key.low_u64());
        let target = index(HEADER_SUMS_OFFSET_BYTES) + 8 * at;
        image[target..][..8].copy_from_slice(&sealed.to_le_bytes());
    }
    image
}

/// Writes a chunk's fragments byte by byte out of its image into a copy of the memory.
pub(super) fn expected_memory(
    group: &Group,
    chunk: &ChunkBlocks,
    image: &[u8],
    memory: &mut [u8],
    address: u64,
) {
    let packing = packing(group, chunk);
    for (at, plane) in group.planes().iter().enumerate() {
        for (number, block) in (0..).zip(&chunk.blocks) {
            if *block != BlockId::SKIP {
                let stride = plane.block_stride.get();
                let target = plane.base_address - address + u64::from(block.get()) * stride;
                let source = HEADER_BYTES + index(packing.fragment_offset(at, number).get());
                let length = index(plane.fragment.get());
                memory[index(target)..][..length].copy_from_slice(&image[source..][..length]);
            }
        }
    }
}

pub(super) fn packing(group: &Group, chunk: &ChunkBlocks) -> Packing {
    let blocks = u32::try_from(chunk.blocks.len()).expect("few blocks");
    Packing::new(group, BlockCount::new(blocks)).expect("a chunk of the group")
}

fn index(bytes: u64) -> usize {
    usize::try_from(bytes).expect("inside a test's memory")
}

/// Returns where two images or memories differ first.
pub(super) fn first_difference(one: &[u8], other: &[u8]) -> Option<usize> {
    one.iter().zip(other).position(|(one, other)| one != other)
}
