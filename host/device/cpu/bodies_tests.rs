//! The CPU device against the kernels' bodies: the same images, verdicts and memory.
//!
//! The bodies run lane by lane on the host, over staging of their own, launched with the tables
//! that a back end would copy to a GPU.
#![expect(unsafe_code, reason = "runs kernel bodies on memory of the tests")]

use super::DeviceMemory;
use super::fixture::{
    Cache, Shape, bytes_of, chunks_of, first_difference, noise, packing, shapes, shuffled_blocks,
};
use super::kernels::Level;
use crate::device::descriptors::{
    ChunkAddresses, PlaneTable, chunk_descriptor, part_table, plane_tables, zeroed_ranges,
};
use crate::device::{ChunkBlocks, HEADER_SUMS_OFFSET_BYTES};
use crate::key::Key;
use crate::layout::{Group, Packing};
use crate::mem::HEADER_BYTES;
use crate::units::{BlockId, ByteCount};
use kvtide_kernels::abi::{
    ChecksumArguments, ChunkDescriptor, DeviceTable, EngineAlign, FillArguments, FillRange,
    GatherArguments, JudgeArguments, PART_COUNT_MAX, PartDescriptor, ScatterArguments, VERDICT_BAD,
    VERDICT_GOOD,
};
use kvtide_kernels::arch::host::{HostLane, run_grid};
use kvtide_kernels::arch::{Aligned4, Aligned16, Word};
use kvtide_kernels::checksum::seal;
use kvtide_kernels::kernels::{checksum, fill, gather, judge, scatter};
use proptest::prelude::*;
use proptest::sample::Index;
use std::ops::Range;
use std::sync::Arc;

/// One chunk in the kernels' staging: its image, then its control words and block ids.
struct Piece {
    packing: Packing,
    key: Key,
    parts: Vec<PartDescriptor>,
    memory: Arc<DeviceMemory>,
}

impl Piece {
    /// Bytes after the image: a `u64` and a `u32` for each of 256 parts, a `u64`, and the ids.
    const VERDICTS: u64 = 8 * PART_COUNT_MAX as u64;
    const GOOD_PARTS: u64 = Self::VERDICTS + 4 * PART_COUNT_MAX as u64;
    const BLOCK_IDS: u64 = Self::GOOD_PARTS + 8;

    /// Takes the first bytes of the image from `image`; all control words are zeros.
    fn new(group: &Group, chunk: &ChunkBlocks, image: &[u8]) -> Self {
        let packing = packing(group, chunk);
        let control = packing.slot().get();
        let length = control + Self::BLOCK_IDS + 4 * chunk.blocks.len() as u64;
        let memory = DeviceMemory::allocate(ByteCount::new(length)).expect("a small memory");
        memory.write(0, image);
        let ids = chunk.blocks.iter().flat_map(|block| block.get().to_le_bytes());
        memory.write(control + Self::BLOCK_IDS, &ids.collect::<Vec<u8>>());
        Self { parts: part_table(&packing), packing, key: chunk.key, memory }
    }

    fn descriptor(&self) -> ChunkDescriptor {
        let control = self.memory.address() + self.packing.slot().get();
        let addresses = ChunkAddresses {
            image: self.memory.address(),
            block_ids: control + Self::BLOCK_IDS,
            parts: table(&self.parts).address,
            sums: control,
            verdicts: control + Self::VERDICTS,
            good_parts: control + Self::GOOD_PARTS,
        };
        chunk_descriptor(&self.packing, self.key, addresses)
    }

    /// Writes the gathered sums into the header page as they are stored.
    fn seal(&self) {
        let mut sums = vec![0; 8 * self.parts.len()];
        self.memory.read(self.packing.slot().get(), &mut sums);
        for sum in sums.as_chunks_mut().0 {
            *sum = seal(u64::from_le_bytes(*sum), self.key.low_u64()).to_le_bytes();
        }
        self.memory.write(HEADER_SUMS_OFFSET_BYTES, &sums);
    }

    fn image(&self) -> Vec<u8> {
        let mut image = vec![0; length(self.packing.slot())];
        self.memory.read(0, &mut image);
        image
    }

    /// Returns the verdict word of each part, and whether the count says that all are good.
    fn verdicts(&self) -> (Vec<u32>, bool) {
        let control = self.packing.slot().get();
        let mut words = vec![0; 4 * self.parts.len()];
        self.memory.read(control + Self::VERDICTS, &mut words);
        let words = words.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word));
        let mut good_parts = [0; 8];
        self.memory.read(control + Self::GOOD_PARTS, &mut good_parts);
        let all_good = u64::from_le_bytes(good_parts) == self.parts.len() as u64;
        (words.collect(), all_good)
    }
}

/// Launches over several chunks of one group.
struct Launches<'pieces> {
    planes: Vec<PlaneTable>,
    pieces: &'pieces [Piece],
    chunks: Vec<ChunkDescriptor>,
    warp_count: u32,
}

impl<'pieces> Launches<'pieces> {
    /// Describes the planes once, by the whole chunk, for chunks of any block count.
    fn new(group: &Group, pieces: &'pieces [Piece], warp_count: u32) -> Self {
        let whole_chunk = Packing::new(group, group.blocks_per_chunk()).expect("a chunk");
        let planes = plane_tables(group, &whole_chunk);
        let chunks = pieces.iter().map(Piece::descriptor).collect();
        Self { planes, pieces, chunks, warp_count }
    }

    /// Packs the images, and returns how the launches reached the blocks.
    fn pack(&self) -> Vec<EngineAlign> {
        self.zero();
        let aligns = self.planes.iter().map(|planes| self.gather(planes)).collect();
        self.pieces.iter().for_each(Piece::seal);
        aligns
    }

    /// Verifies the images, and scatters their good parts.
    fn unpack(&self) {
        self.checksum();
        self.judge();
        for planes in &self.planes {
            self.scatter(planes);
        }
    }

    fn zero(&self) {
        let ranges: Vec<FillRange> = self
            .pieces
            .iter()
            .flat_map(|piece| zeroed_ranges(&piece.parts, piece.memory.address()))
            .collect();
        let arguments = FillArguments::new(table(&ranges), Word::default()).expect("a launch");
        // SAFETY: the ranges lie in the pieces, apart from one another, and only this thread uses
        // the pieces.
        run_grid(self.warp_count, |lane| unsafe { fill::run(lane, &arguments) });
    }

    fn gather(&self, planes: &PlaneTable) -> EngineAlign {
        let (chunks, fragment_bytes) = (table(&self.chunks), planes.fragment_bytes);
        let arguments =
            GatherArguments::new(table(&planes.planes), chunks, fragment_bytes).expect("a launch");
        let run = match arguments.engine_align() {
            EngineAlign::Sixteen => gather::run::<HostLane, Aligned16>,
            EngineAlign::Four => gather::run::<HostLane, Aligned4>,
        };
        // SAFETY: the pieces and the group's memory hold all that the descriptors name, and only
        // this thread uses them.
        run_grid(self.warp_count, |lane| unsafe { run(lane, &arguments) });
        arguments.engine_align()
    }

    fn checksum(&self) {
        let parts = self.pieces.iter().flat_map(|piece| &piece.parts);
        let words_max = parts.map(|part| part.word_count).max().expect("a part");
        let arguments = ChecksumArguments::new(table(&self.chunks), self.part_range(), words_max)
            .expect("a launch");
        // SAFETY: as for gather.
        run_grid(self.warp_count, |lane| unsafe { checksum::run(lane, &arguments) });
    }

    fn judge(&self) {
        let arguments =
            JudgeArguments::new(table(&self.chunks), self.part_range()).expect("a launch");
        // SAFETY: as for gather.
        run_grid(self.warp_count, |lane| unsafe { judge::run(lane, &arguments) });
    }

    fn scatter(&self, planes: &PlaneTable) {
        let (chunks, fragment_bytes) = (table(&self.chunks), planes.fragment_bytes);
        let arguments =
            ScatterArguments::new(table(&planes.planes), chunks, fragment_bytes).expect("a launch");
        let run = match arguments.engine_align() {
            EngineAlign::Sixteen => scatter::run::<HostLane, Aligned16>,
            EngineAlign::Four => scatter::run::<HostLane, Aligned4>,
        };
        // SAFETY: as for gather, and no block is in two chunks.
        run_grid(self.warp_count, |lane| unsafe { run(lane, &arguments) });
    }

    /// Returns all parts, which are as many in each chunk.
    fn part_range(&self) -> Range<u32> {
        0..self.chunks[0].part_count
    }
}

/// Names a table that the bodies may read where it is.
fn table<T>(items: &[T]) -> DeviceTable<'_, T> {
    DeviceTable { address: items.as_ptr().expose_provenance() as u64, items }
}

fn length(bytes: ByteCount) -> usize {
    usize::try_from(bytes.get()).expect("small")
}

/// Layouts whose chunks have several parts about as often as one.
fn shapes_of_parts() -> impl Strategy<Value = Shape> {
    let long = prop::sample::select(vec![128_u64 << 10, (128 << 10) + 132, 300 << 10]);
    let sets = prop::collection::vec(long.prop_map(|fragment| (vec![fragment; 2], 12)), 0..4);
    (shapes(), sets, 0..3_usize).prop_map(|(mut shape, long_sets, at)| {
        let at = at.min(shape.sets.len());
        shape.sets.splice(at..at, long_sets);
        shape
    })
}

/// What happened to an image on its way.
#[derive(Clone, Copy, Debug)]
enum Damage {
    None,
    /// A byte of the payload is another: of a fragment, its rounding or a part's padding.
    Payload,
    /// A byte of a stored sum is.
    Sum,
    /// The chunk is taken for another.
    Key,
}

impl Damage {
    /// Does it, and returns which parts are bad now.
    fn strike(
        self,
        packing: &Packing,
        key: &mut Key,
        image: &mut [u8],
        at: Index,
        flip: u8,
    ) -> Vec<usize> {
        let parts = packing.parts();
        let number = at.index(parts.len());
        let part = &parts[number];
        match self {
            Self::None => Vec::new(),
            Self::Payload => {
                let byte = at.index(length(part.length()));
                image[HEADER_BYTES + length(part.offset()) + byte] ^= flip;
                if byte < length(part.summed()) { vec![number] } else { Vec::new() }
            }
            Self::Sum => {
                let sums = usize::try_from(HEADER_SUMS_OFFSET_BYTES).expect("small");
                image[sums + 8 * number + at.index(8)] ^= flip;
                vec![number]
            }
            Self::Key => {
                *key = Key::from_u128(key.to_u128() ^ u128::from(flip));
                (0..parts.len()).collect()
            }
        }
    }
}

/// Copies the fragments of a part from one copy of the memory at `address` to another.
fn keep_part(
    group: &Group,
    (chunk, part): (&ChunkBlocks, usize),
    address: u64,
    before: &[u8],
    memory: &mut [u8],
) {
    for plane in packing(group, chunk).parts()[part].planes() {
        let plane = &group.planes()[plane];
        for block in chunk.blocks.iter().filter(|&&block| block != BlockId::SKIP) {
            let base = plane.base_address - address;
            let start = base + u64::from(block.get()) * plane.block_stride.get();
            let start = length(ByteCount::new(start));
            let fragment = start..start + length(plane.fragment);
            memory[fragment.clone()].copy_from_slice(&before[fragment]);
        }
    }
}

/// Gives chunks other blocks of the pool, and lets the last of them be skipped now and then.
fn move_blocks(shape: &Shape, seed: u64, chunks: &mut [ChunkBlocks], skip: Index) {
    let elsewhere = shuffled_blocks(shape, seed);
    let mut blocks: Vec<&mut BlockId> =
        chunks.iter_mut().flat_map(|chunk| &mut chunk.blocks).collect();
    for block in &mut blocks {
        **block = BlockId::new(elsewhere[block.get() as usize]);
    }
    let at = skip.index(2 * blocks.len());
    if let Some(block) = blocks.get_mut(at) {
        **block = BlockId::SKIP;
    }
}

/// Packs chunks both ways and returns how the launches reached the blocks.
fn assert_same_images(cache: &Cache, chunks: &[ChunkBlocks], warp_count: u32) -> Vec<EngineAlign> {
    let group = cache.group();
    let staged = |chunk| {
        let stale = noise(1, length(packing(group, chunk).slot()));
        Piece::new(group, chunk, &stale)
    };
    let pieces: Vec<Piece> = chunks.iter().map(staged).collect();
    let aligns = Launches::new(group, &pieces, warp_count).pack();
    for (chunk, piece) in chunks.iter().zip(&pieces) {
        for level in Level::available() {
            let at = first_difference(&cache.pack(level, chunk, 0xAA), &piece.image());
            assert_eq!(at, None, "{level:?}");
        }
    }
    aligns
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn the_kernels_pack_the_same_images(
        shape in shapes_of_parts(), seed: u64, key: u128, warp_count in 1_u32..6,
    ) {
        let cache = Cache::new(&shape, seed);
        assert_same_images(&cache, &chunks_of(&shape, seed, key), warp_count);
    }

    #[test]
    fn the_kernels_give_the_same_verdict_and_write_the_same_bytes(
        shape in shapes_of_parts(), seed: u64, key: u128, warp_count in 1_u32..6, skip: Index,
        damage in prop::sample::select(
            vec![Damage::None, Damage::Payload, Damage::Sum, Damage::Key]
        ),
        struck: Index, at: Index, flip in 1_u8..,
    ) {
        let cache = Cache::new(&shape, seed);
        let group = cache.group();
        let mut chunks = chunks_of(&shape, seed, key);
        let mut images: Vec<Vec<u8>> =
            chunks.iter().map(|chunk| cache.pack(Level::detect(), chunk, 0xAA)).collect();
        let struck = struck.index(chunks.len());
        let map = packing(group, &chunks[struck]);
        let bad = damage.strike(&map, &mut chunks[struck].key, &mut images[struck], at, flip);
        move_blocks(&shape, !seed, &mut chunks, skip);
        cache.fill(!seed);
        let before = bytes_of(&cache.memory);

        let staged = chunks.iter().zip(&images);
        let pieces: Vec<Piece> =
            staged.clone().map(|(chunk, image)| Piece::new(group, chunk, image)).collect();
        Launches::new(group, &pieces, warp_count).unpack();
        let by_kernels = bytes_of(&cache.memory);

        for level in Level::available() {
            cache.memory.write(0, &before);
            for (number, ((chunk, image), piece)) in staged.clone().zip(&pieces).enumerate() {
                let is_bad = |part| number == struck && bad.contains(&part);
                let verdict = |part| if is_bad(part) { VERDICT_BAD } else { VERDICT_GOOD };
                let verdicts = (0..piece.parts.len()).map(verdict).collect();
                let matches = cache.matches(level, chunk, image);
                prop_assert_eq!(piece.verdicts(), (verdicts, matches), "{:?}", level);
                cache.scatter(level, chunk, image);
            }
            // Of a chunk with a bad part the CPU device writes nothing, the kernels its good parts.
            let mut expected = bytes_of(&cache.memory);
            for &part in &bad {
                let place = (&chunks[struck], part);
                keep_part(group, place, cache.memory.address(), &before, &mut expected);
            }
            let at = first_difference(&by_kernels, &expected);
            prop_assert_eq!(at, None, "{:?}", level);
        }
    }
}

#[test]
fn both_ways_to_reach_fragments_make_the_same_images() {
    let aligned = Shape::plain(3, 7, &[4096, 656, 4096, 132]);
    let skewed = Shape { skew: 4, ..aligned.clone() };
    let pack = |shape| assert_same_images(&Cache::new(shape, 1), &chunks_of(shape, 1, 7), 2);
    assert_eq!(pack(&aligned), [EngineAlign::Four, EngineAlign::Sixteen, EngineAlign::Sixteen]);
    assert_eq!(pack(&skewed), [EngineAlign::Four; 3]);
}
