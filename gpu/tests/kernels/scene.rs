//! A random layout with chunks, laid out in memory with the descriptors of a launch.

use crate::kernel::Kernel;
use crate::machine::Machine;
use crate::memory::{Memory, Random, Reservations, Wrong};
use kvtide_kernels::abi::{
    BLOCK_ID_SKIP, ChecksumArguments, ChunkDescriptor, DeviceTable, GatherArguments,
    JudgeArguments, PartDescriptor, PlaneDescriptor, ScatterArguments,
};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ops::Range;

/// What a scene is made from.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) planes: Vec<PlaneShape>,
    /// What base addresses, strides and gaps are multiples of, in bytes: 4 or 16.
    pub(crate) align: usize,
    /// Blocks of each chunk.
    pub(crate) block_counts: Vec<usize>,
    /// Blocks of the pool that no chunk has.
    pub(crate) spare_blocks: usize,
    /// Of the parts, the first that is in staging and that launches are about: modulo their number.
    pub(crate) first_part: usize,
    pub(crate) warp_count: u32,
    pub(crate) seed: u64,
}

/// What a plane is made from.
#[derive(Clone, Debug)]
pub(crate) struct PlaneShape {
    pub(crate) fragment: usize,
    /// Whether a new part begins with this plane.
    pub(crate) opens_part: bool,
    /// Whether its fragments lie between those of the plane before it.
    pub(crate) interleaved: bool,
    /// Bytes between fragments, in units of the alignment.
    pub(crate) gap: usize,
}

/// Sizes of fragments: any multiple of 4, rows of known models, several spans.
fn fragment() -> impl Strategy<Value = usize> {
    prop_oneof![
        4 => (1_usize..=40).prop_map(|quarters| quarters * 4),
        2 => (1_usize..=20).prop_map(|words| words * 16),
        4 => prop::sample::select(vec![132, 576, 656, 1152, 2048]),
        1 => prop::sample::select(vec![16_384, 16_388, 20_480, 36_868]),
    ]
}

/// Warps of a launch: some, or whole thread blocks as on a device.
pub(crate) fn warp_count() -> impl Strategy<Value = u32> {
    prop_oneof![3 => 1..=5_u32, 1 => prop::sample::select(vec![8_u32, 16])]
}

prop_compose! {
    /// Up to three fragment sizes, six planes and three chunks.
    pub(crate) fn shape()(
        fragments in prop::collection::vec(fragment(), 1..=3),
        planes in prop::collection::vec(
            (any::<prop::sample::Index>(), any::<[bool; 2]>(), 0..3_usize),
            1..=6,
        ),
        // Whole words throughout, as most engines have them, or what comes.
        unit in prop::sample::select(vec![4_usize, 16]),
        align in prop::sample::select(vec![4_usize, 16]),
        block_counts in prop::collection::vec(1..=40_usize, 1..=3),
        spare_blocks in 0..4_usize,
        first_part in 0..6_usize,
        warp_count in warp_count(),
        seed: u64,
    ) -> Shape {
        let planes: Vec<PlaneShape> = planes
            .into_iter()
            .map(|(size, [opens_part, interleaved], gap)| {
                let fragment = size.get(&fragments).next_multiple_of(unit);
                PlaneShape { fragment, opens_part, interleaved, gap }
            })
            .collect();
        let align = align.max(unit);
        // A few spans a plane are enough.
        let largest = planes.iter().map(|plane| plane.fragment).max().unwrap_or(4);
        let most = (96_usize << 10).div_ceil(largest);
        let block_counts = block_counts.into_iter().map(|count| count.min(most)).collect();
        Shape { planes, align, block_counts, spare_blocks, first_part, warp_count, seed }
    }
}

/// A plane of a scene. Offsets count from the memory's start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plane {
    pub(crate) base: usize,
    pub(crate) stride: usize,
    pub(crate) fragment: usize,
    pub(crate) part: usize,
    /// Packed bytes of one block in the part's planes before this one.
    bytes_before: usize,
}

impl Plane {
    /// Bytes of a packed fragment.
    pub(crate) fn packed(&self) -> usize {
        self.fragment.next_multiple_of(16)
    }

    /// Where a block's fragment lies in memory.
    pub(crate) fn block(&self, id: u32) -> Range<usize> {
        let start = self.base + id as usize * self.stride;
        start..start + self.fragment
    }
}

/// A part of one chunk, by its place in the payload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) offset: usize,
    pub(crate) summed: usize,
}

/// A chunk of a scene. Offsets count from the memory's start.
#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    pub(crate) ids: Vec<u32>,
    pub(crate) parts: Vec<Part>,
    /// The staging piece, which holds the payload from byte `staged` on.
    piece: usize,
    staged: usize,
    pub(crate) key_low: u64,
    pub(crate) sums: usize,
    pub(crate) verdicts: usize,
    pub(crate) stored_sums: usize,
    pub(crate) good_parts: usize,
    ids_at: usize,
    parts_at: usize,
}

impl Chunk {
    /// Where a part's summed bytes lie in memory.
    pub(crate) fn summed(&self, part: usize) -> Range<usize> {
        let Part { offset, summed } = self.parts[part];
        let start = self.payload_byte(offset);
        start..start + summed
    }

    /// Where a part's page padding lies in memory.
    pub(crate) fn padding(&self, part: usize) -> Range<usize> {
        let end = self.summed(part).end;
        end..end + self.parts[part].summed.next_multiple_of(4096) - self.parts[part].summed
    }

    /// Where the fragment of block number `ordinal` lies in memory, its rounding included.
    pub(crate) fn packed_fragment(&self, plane: &Plane, ordinal: usize) -> Range<usize> {
        let in_part = plane.bytes_before * self.ids.len() + plane.packed() * ordinal;
        let start = self.payload_byte(self.parts[plane.part].offset + in_part);
        start..start + plane.packed()
    }

    /// Where payload byte `offset` lies in memory.
    fn payload_byte(&self, offset: usize) -> usize {
        self.piece + offset - self.staged
    }
}

/// One launch that copies: planes of one fragment size.
pub(crate) struct Launch {
    pub(crate) planes: Vec<Plane>,
    /// Where their descriptors lie.
    pub(crate) table: usize,
}

/// A layout, chunks and descriptors in memory.
pub(crate) struct Scene {
    pub(crate) memory: Memory,
    pub(crate) random: Random,
    pub(crate) planes: Vec<Plane>,
    pub(crate) chunks: Vec<Chunk>,
    pub(crate) parts: Range<usize>,
    pub(crate) warp_count: u32,
    /// Blocks of the pool.
    pub(crate) pool: usize,
    planes_at: usize,
    chunks_at: usize,
    /// Room for a table of 8-byte aligned records, 16 bytes for each block and each part.
    pub(crate) table_at: usize,
    far: Option<Far>,
}

/// Blocks far apart on the device, with large ids: what a block's number in the scene stands for.
struct Far {
    /// Where the arrays of planes start in the memory; on the device they lie side by side.
    arrays: Vec<usize>,
    stride: u64,
}

impl Far {
    /// Address of block 0 of the first array.
    const START: u64 = 1 << 40;

    /// Bytes from an array to the next.
    const ARRAY_BYTES: u64 = 1 << 18;

    /// Returns the id of block `number`: from the ends and the middle of all ids.
    fn id(number: u32) -> u32 {
        match number % 4 {
            0 => BLOCK_ID_SKIP - 1 - number,
            1 => number,
            2 => (1 << 31) - number,
            _ => (1 << 31) + number,
        }
    }

    /// Returns where a plane that starts at `base` in memory has block 0 on the device.
    fn base_address(&self, base: usize) -> u64 {
        let array = self.arrays.partition_point(|start| *start <= base) - 1;
        let inside = (base - self.arrays[array]) as u64;
        Self::START + array as u64 * Self::ARRAY_BYTES + inside
    }
}

impl Scene {
    /// Lays a shape out for both machines.
    pub(crate) fn on_both(shape: &Shape) -> [Self; 2] {
        Machine::both().map(|machine| Self::new(shape, machine))
    }

    /// Lays a shape out.
    pub(crate) fn new(shape: &Shape, machine: Machine) -> Self {
        let mut random = Random::new(shape.seed);
        let mut reservations = Reservations::default();
        let pool = shape.block_counts.iter().sum::<usize>() + shape.spare_blocks;
        let planes = lay_planes(shape, pool, &mut reservations);
        let part_count = planes.iter().map(|plane| plane.part).max().unwrap_or(0) + 1;
        let parts = shape.first_part % part_count..part_count;
        let mut ids: Vec<u32> = (0..u32::try_from(pool).expect("a small pool")).collect();
        random.shuffle(&mut ids);
        let mut chunks = Vec::new();
        for &count in &shape.block_counts {
            let ids = ids.split_off(ids.len() - count);
            let key_low = random.next();
            chunks.push(lay_chunk(&planes, ids, key_low, parts.start, &mut reservations));
        }
        let planes_at = reservations.reserve(planes.len() * 24, 8);
        let chunks_at = reservations.reserve(chunks.len() * 72, 8);
        let records = pool + chunks.len() * part_count;
        let table_at = reservations.reserve(records * 16, 8);
        let memory = reservations.build(machine, &mut random);
        let mut scene = Self {
            memory,
            random,
            planes,
            chunks,
            parts,
            warp_count: shape.warp_count,
            pool,
            planes_at,
            chunks_at,
            table_at,
            far: None,
        };
        scene.write_tables();
        scene
    }

    /// Writes ids and descriptors, as a host does ahead of a launch.
    pub(crate) fn write_tables(&mut self) {
        for chunk in &self.chunks {
            let ids: Vec<u32> = chunk.ids.iter().map(|id| self.device_id(*id)).collect();
            self.memory.write_u32s(chunk.ids_at, &ids);
            let parts: Vec<u32> = part_descriptors(chunk)
                .iter()
                .flat_map(|part| [part.first_word, part.word_count])
                .collect();
            self.memory.write_u32s(chunk.parts_at, &parts);
        }
        for launch in self.launches() {
            for (index, plane) in self.plane_descriptors(&launch).into_iter().enumerate() {
                let at = launch.table + index * 24;
                self.memory.write_u64s(at, &[plane.base_address, plane.block_stride]);
                self.memory.write_u32s(at + 16, &[plane.part, plane.words_before]);
            }
        }
        for (index, chunk) in self.chunk_descriptors().into_iter().enumerate() {
            let at = self.chunks_at + index * 72;
            let fields = [
                chunk.payload,
                chunk.block_ids,
                chunk.parts,
                chunk.sums,
                chunk.verdicts,
                chunk.stored_sums,
                chunk.good_parts,
                chunk.key_low,
            ];
            self.memory.write_u64s(at, &fields);
            self.memory.write_u32s(at + 64, &[chunk.block_count, chunk.part_count]);
        }
    }

    /// Moves the blocks far apart on the device, `stride` bytes from id to id.
    pub(crate) fn spread_blocks(&mut self, stride: u64) {
        let starts = self.planes.iter().filter(|plane| self.memory.has_reservation(plane.base));
        let arrays: Vec<Plane> = starts.copied().collect();
        let far = Far { arrays: arrays.iter().map(|plane| plane.base).collect(), stride };
        for Plane { base, stride, .. } in arrays {
            let number = |index| u32::try_from(index).expect("a small pool");
            let address =
                |index| far.base_address(base) + u64::from(Far::id(number(index))) * far.stride;
            self.memory.spread(base, stride, address);
        }
        self.far = Some(far);
        self.write_tables();
    }

    /// Returns the id that a device knows block `id` by.
    pub(crate) fn device_id(&self, id: u32) -> u32 {
        if self.far.is_none() || id == BLOCK_ID_SKIP { id } else { Far::id(id) }
    }

    /// Zeroes the sums and counts that launches of this scene's parts add to.
    pub(crate) fn zero_control(&mut self) {
        for chunk in self.chunks.clone() {
            for part in self.parts.clone() {
                self.memory.write_u64s(chunk.sums + part * 8, &[0]);
            }
            self.memory.write_u64s(chunk.good_parts, &[0]);
        }
    }

    /// Turns some ids into the one to skip.
    pub(crate) fn skip_some_blocks(&mut self) {
        for chunk in &mut self.chunks {
            for id in &mut chunk.ids {
                if self.random.below(4) == 0 {
                    *id = BLOCK_ID_SKIP;
                }
            }
        }
        self.write_tables();
    }

    /// Gives every chunk other blocks: those of the same number, in another order.
    pub(crate) fn move_blocks(&mut self) {
        let mut ids: Vec<u32> = self.chunks.iter().flat_map(|chunk| chunk.ids.clone()).collect();
        self.random.shuffle(&mut ids);
        for chunk in &mut self.chunks {
            chunk.ids = ids.split_off(ids.len() - chunk.ids.len());
        }
        self.write_tables();
    }

    /// Returns a launch's chunk descriptors.
    pub(crate) fn chunk_descriptors(&mut self) -> Vec<ChunkDescriptor> {
        let memory = &mut self.memory;
        let mut descriptors = Vec::new();
        for chunk in &self.chunks {
            descriptors.push(ChunkDescriptor {
                payload: memory.address(chunk.piece).wrapping_sub(chunk.staged as u64),
                block_ids: memory.address(chunk.ids_at),
                parts: memory.address(chunk.parts_at),
                sums: memory.address(chunk.sums),
                verdicts: memory.address(chunk.verdicts),
                stored_sums: memory.address(chunk.stored_sums),
                good_parts: memory.address(chunk.good_parts),
                key_low: chunk.key_low,
                block_count: u32::try_from(chunk.ids.len()).expect("small"),
                part_count: u32::try_from(chunk.parts.len()).expect("small"),
            });
        }
        descriptors
    }

    /// Returns the launches that copy: the planes in staging, by fragment size.
    pub(crate) fn launches(&self) -> Vec<Launch> {
        let resident = || self.planes.iter().filter(|plane| self.parts.contains(&plane.part));
        let sizes: BTreeSet<usize> = resident().map(|plane| plane.fragment).collect();
        let mut table = self.planes_at;
        let mut launches = Vec::new();
        for size in sizes {
            let planes: Vec<Plane> =
                resident().filter(|plane| plane.fragment == size).copied().collect();
            let bytes = planes.len() * 24;
            launches.push(Launch { planes, table });
            table += bytes;
        }
        launches
    }

    /// Returns the descriptors of a launch's planes.
    pub(crate) fn plane_descriptors(&mut self, launch: &Launch) -> Vec<PlaneDescriptor> {
        let mut descriptors = Vec::new();
        for plane in &launch.planes {
            let near = (self.memory.address(plane.base), plane.stride as u64);
            let far = self.far.as_ref().map(|far| (far.base_address(plane.base), far.stride));
            let (base_address, block_stride) = far.unwrap_or(near);
            descriptors.push(PlaneDescriptor {
                base_address,
                block_stride,
                part: u32::try_from(plane.part).expect("small"),
                words_before: u32::try_from(plane.bytes_before / 16).expect("small"),
            });
        }
        descriptors
    }

    /// Gathers all planes of the scene's parts, one launch a fragment size.
    pub(crate) fn gather(&mut self) -> Result<(), Wrong> {
        let mut pieces: Vec<usize> = self.chunks.iter().map(|chunk| chunk.piece).collect();
        for launch in self.launches() {
            let (planes, chunks) = (self.plane_descriptors(&launch), self.chunk_descriptors());
            let planes = self.table(launch.table, &planes);
            let chunks = self.table(self.chunks_at, &chunks);
            let size = u32::try_from(launch.planes[0].fragment).expect("small");
            let arguments = GatherArguments::new(planes, chunks, size);
            self.launch(&arguments.expect("a launch that the kernel can honour"), &pieces)?;
            pieces.clear();
        }
        Ok(())
    }

    /// Scatters all planes of the scene's parts, one launch a fragment size.
    pub(crate) fn scatter(&mut self) -> Result<(), Wrong> {
        let blocks: Vec<usize> = self.planes.iter().map(|plane| plane.base).collect();
        for launch in self.launches() {
            let (planes, chunks) = (self.plane_descriptors(&launch), self.chunk_descriptors());
            let planes = self.table(launch.table, &planes);
            let chunks = self.table(self.chunks_at, &chunks);
            let size = u32::try_from(launch.planes[0].fragment).expect("small");
            let arguments = ScatterArguments::new(planes, chunks, size);
            self.launch(&arguments.expect("a launch that the kernel can honour"), &blocks)?;
        }
        Ok(())
    }

    /// Sums the scene's parts.
    pub(crate) fn checksum(&mut self) -> Result<(), Wrong> {
        let chunks = self.chunk_descriptors();
        let parts = self.part_range();
        let in_launch = self.chunks.iter().flat_map(|chunk| &chunk.parts[self.parts.clone()]);
        let words_max = in_launch.map(|part| part.summed / 16).max().expect("a part");
        let words_max = u32::try_from(words_max).expect("small");
        let chunks = self.table(self.chunks_at, &chunks);
        let arguments = ChecksumArguments::new(chunks, parts, words_max);
        self.launch(&arguments.expect("a launch that the kernel can honour"), &[])
    }

    /// Judges the scene's parts.
    pub(crate) fn judge(&mut self) -> Result<(), Wrong> {
        let chunks = self.chunk_descriptors();
        let parts = self.part_range();
        let arguments = JudgeArguments::new(self.table(self.chunks_at, &chunks), parts);
        let verdicts: Vec<usize> = self.chunks.iter().map(|chunk| chunk.verdicts).collect();
        self.launch(&arguments.expect("a launch that the kernel can honour"), &verdicts)
    }

    /// Runs a kernel, which only writes the reservations that `outputs` lie in.
    pub(crate) fn launch(&mut self, kernel: &impl Kernel, outputs: &[usize]) -> Result<(), Wrong> {
        self.memory.launch(kernel, outputs, self.warp_count, &mut self.random)
    }

    /// Names a table of descriptors in memory.
    pub(crate) fn table<'host, T>(
        &mut self,
        at: usize,
        items: &'host [T],
    ) -> DeviceTable<'host, T> {
        DeviceTable { address: self.memory.address(at), items }
    }

    fn part_range(&self) -> Range<u32> {
        let at = |part| u32::try_from(part).expect("small");
        at(self.parts.start)..at(self.parts.end)
    }
}

/// Returns the descriptors of a chunk's parts.
pub(crate) fn part_descriptors(chunk: &Chunk) -> Vec<PartDescriptor> {
    let words = |bytes: usize| u32::try_from(bytes / 16).expect("small");
    let describe = |part: &Part| PartDescriptor {
        first_word: words(part.offset),
        word_count: words(part.summed),
    };
    chunk.parts.iter().map(describe).collect()
}

/// Lays planes out in arrays of their own, or between the fragments of the one before.
fn lay_planes(shape: &Shape, pool: usize, reservations: &mut Reservations) -> Vec<Plane> {
    let mut planes: Vec<Plane> = Vec::new();
    let (mut part, mut bytes_before) = (0, 0);
    let arrays = shape.planes.chunk_by(|_, next| next.interleaved);
    for array in arrays {
        let space = |plane: &PlaneShape| plane.fragment + plane.gap * shape.align;
        let used: usize = array.iter().map(space).sum();
        let stride = used.next_multiple_of(shape.align);
        let mut base = reservations.reserve(stride * pool, shape.align);
        for plane in array {
            if plane.opens_part && !planes.is_empty() {
                (part, bytes_before) = (part + 1, 0);
            }
            // An interleaved plane starts where the one before ends, aligned or not.
            let laid = Plane { base, stride, fragment: plane.fragment, part, bytes_before };
            bytes_before += laid.packed();
            base += space(plane);
            planes.push(laid);
        }
    }
    planes
}

/// Packs a chunk by the rule of `docs/packing.md` and reserves what it needs.
fn lay_chunk(
    planes: &[Plane],
    ids: Vec<u32>,
    key_low: u64,
    first_part: usize,
    reservations: &mut Reservations,
) -> Chunk {
    let mut parts: Vec<Part> = Vec::new();
    let mut end = 0;
    for members in planes.chunk_by(|one, next| one.part == next.part) {
        let summed = members.iter().map(Plane::packed).sum::<usize>() * ids.len();
        parts.push(Part { offset: end, summed });
        end += summed.next_multiple_of(4096);
    }
    let staged = parts[first_part].offset;
    Chunk {
        piece: reservations.reserve(end - staged, 16),
        staged,
        key_low,
        sums: reservations.reserve(parts.len() * 8, 8),
        verdicts: reservations.reserve(parts.len() * 4, 4),
        stored_sums: reservations.reserve(parts.len() * 8, 8),
        good_parts: reservations.reserve(8, 8),
        ids_at: reservations.reserve(ids.len() * 4, 4),
        parts_at: reservations.reserve(parts.len() * 8, 4),
        ids,
        parts,
    }
}
