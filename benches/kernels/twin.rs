//! The kernels' bodies on this machine's memory, one launch a run.
//!
//! A launch has as many warps as spans, so that the lanes of a warp, which run one after the other,
//! find their span in the cache.

use crate::geometry::Geometry;
use kvtide::device::cpu::DeviceMemory;
use kvtide::layout::Part;
use kvtide::units::ByteCount;
use kvtide_kernels::abi::{
    ChecksumArguments, ChunkDescriptor, CopyArguments, CopyPair, DeviceTable, EngineAlign,
    FillArguments, FillRange, GatherArguments, JudgeArguments, PartDescriptor, PlaneDescriptor,
    ScatterArguments, SpanGrid, VERDICT_BAD, VERDICT_GOOD,
};
use kvtide_kernels::arch::host::{HostLane, run_grid};
use kvtide_kernels::arch::{Aligned16, Word};
use kvtide_kernels::checksum::{seal, sum};
use kvtide_kernels::kernels::{checksum, copy, fill, gather, judge, scatter};
use std::sync::Arc;

const KEY_LOW: u64 = 0x0123_4567_89ab_cdef;
const PATTERN: Word = Word { low: 0x5a5a_5a5a_5a5a_5a5a, high: 0xa5a5_a5a5_a5a5_a5a5 };

/// A kernel and its launch.
pub(crate) struct TimedKernel {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Twin),
}

/// All kernels.
pub(crate) const KERNELS: [TimedKernel; 6] = [
    TimedKernel { name: "gather", run: Twin::gather },
    TimedKernel { name: "fill", run: |twin| fill_ranges(&twin.fragments, PATTERN) },
    TimedKernel { name: "checksum", run: Twin::checksum },
    TimedKernel { name: "judge", run: Twin::judge },
    TimedKernel { name: "scatter", run: Twin::scatter },
    TimedKernel { name: "copy", run: Twin::copy },
];

/// One chunk with its descriptors, as a device would have them.
pub(crate) struct Twin {
    geometry: Geometry,
    engine: Arc<DeviceMemory>,
    /// The payload.
    staging: Arc<DeviceMemory>,
    /// Sums, stored sums, the count of good parts, then verdict words.
    control: Arc<DeviceMemory>,
    planes: Vec<PlaneDescriptor>,
    parts: Vec<PartDescriptor>,
    pairs: Vec<CopyPair>,
    /// The packed fragments, each a range.
    fragments: Vec<FillRange>,
    /// Names the geometry's list of blocks by its address.
    chunk: ChunkDescriptor,
}

impl Twin {
    /// Lays a chunk out in memory.
    pub(crate) fn new(geometry: Geometry) -> Self {
        let allocate =
            |bytes: usize| DeviceMemory::allocate(ByteCount::new(bytes as u64)).expect("memory");
        let engine = allocate(geometry.engine_bytes());
        let staging = allocate(geometry.payload_bytes());
        let parts: Vec<PartDescriptor> =
            geometry.packing().parts().iter().map(describe_part).collect();
        let control = allocate(parts.len() * 20 + 8);
        let part_count = parts.len() as u64;
        let chunk = ChunkDescriptor {
            payload: staging.address(),
            block_ids: address_of(&geometry.blocks),
            parts: address_of(&parts),
            sums: control.address(),
            stored_sums: control.address() + part_count * 8,
            good_parts: control.address() + part_count * 16,
            verdicts: control.address() + part_count * 16 + 8,
            key_low: KEY_LOW,
            block_count: geometry.block_count(),
            part_count: narrow(part_count),
        };
        let planes = describe_planes(&geometry, engine.address());
        let pair = |(source, target): (&u32, &u32)| CopyPair { source: *source, target: *target };
        let pairs = geometry.blocks.iter().zip(&geometry.others).map(pair).collect();
        let word_count = narrow(geometry.fragment as u64 / 16);
        let fragments = geometry.fragment_offsets().map(|offset| FillRange {
            address: staging.address() + offset,
            word_count,
            reserved: 0,
        });
        let fragments = fragments.collect();
        Self { geometry, engine, staging, control, planes, parts, pairs, fragments, chunk }
    }

    pub(crate) const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    pub(crate) const fn part_count(&self) -> u64 {
        self.parts.len() as u64
    }

    /// Brings all memory into the state that any kernel may be timed in: the chunk packed, summed
    /// and judged good.
    pub(crate) fn prepare(&self) {
        self.control.write(0, &vec![0; self.parts.len() * 20 + 8]);
        self.gather();
        let sealed: Vec<u8> =
            self.sums().into_iter().flat_map(|sum| seal(sum, KEY_LOW).to_le_bytes()).collect();
        self.control.write(self.part_count() * 8, &sealed);
        self.judge();
        assert_eq!(self.verdicts(), vec![VERDICT_GOOD; self.parts.len()]);
    }

    /// Runs each kernel once and compares what it wrote with a naive reference.
    pub(crate) fn verify(&self) {
        let noise = self.geometry.noise();
        let packed = self.geometry.pack(&noise);
        self.engine.write(0, &noise);
        self.staging.write(0, &vec![0xff; packed.len()]);
        self.prepare();
        let padding = |part: &PartDescriptor| FillRange::padding_after(self.chunk.payload, part);
        let padding: Vec<FillRange> = self.parts.iter().filter_map(padding).collect();
        if !padding.is_empty() {
            fill_ranges(&padding, Word { low: 0, high: 0 });
        }
        assert!(self.payload() == packed, "gather and fill of padding");
        self.verify_sums(&packed);

        let mut expected = vec![0; noise.len()];
        self.engine.write(0, &expected);
        self.geometry.unpack(&packed, &mut expected);
        self.scatter();
        assert!(self.blocks() == expected, "scatter");

        self.engine.write(0, &noise);
        expected.copy_from_slice(&noise);
        self.geometry.copy(&mut expected);
        self.copy();
        assert!(self.blocks() == expected, "copy");

        fill_ranges(&self.fragments, PATTERN);
        let pattern = [PATTERN.low.to_le_bytes(), PATTERN.high.to_le_bytes()].concat();
        let filled = pattern.repeat(self.geometry.engine_bytes() / 16);
        assert!(self.payload() == self.geometry.pack(&filled), "fill");
    }

    /// Compares the sums of gather and checksum with the plain definition, and the verdicts on
    /// them and on one that is wrong.
    fn verify_sums(&self, packed: &[u8]) {
        let words: Vec<u64> =
            packed.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let sum_part = |part: &PartDescriptor| {
            let first = part.first_word as usize * 2;
            sum(&words[first..first + part.word_count as usize * 2], first as u64)
        };
        let expected: Vec<u64> = self.parts.iter().map(sum_part).collect();
        assert_eq!(self.sums(), expected, "the sums of gather");
        self.control.write(0, &vec![0; self.parts.len() * 8]);
        self.checksum();
        assert_eq!(self.sums(), expected, "the sums of checksum");
        self.control.write(0, &expected[0].wrapping_add(1).to_le_bytes());
        self.judge();
        assert_eq!(self.verdicts()[0], VERDICT_BAD);
        self.control.write(0, &expected[0].to_le_bytes());
        self.judge();
        assert_eq!(self.verdicts(), vec![VERDICT_GOOD; self.parts.len()]);
    }

    fn gather(&self) {
        let arguments =
            GatherArguments::new(table(&self.planes), self.chunks(), self.fragment_bytes())
                .expect("a launch that the kernel can honour");
        assert_eq!(arguments.engine_align(), EngineAlign::Sixteen);
        // SAFETY: the descriptors name memory of `self` that only this thread uses.
        launch(arguments.grid(), |lane| unsafe {
            gather::run::<HostLane, Aligned16>(lane, &arguments);
        });
    }

    fn scatter(&self) {
        let arguments =
            ScatterArguments::new(table(&self.planes), self.chunks(), self.fragment_bytes())
                .expect("a launch that the kernel can honour");
        assert_eq!(arguments.engine_align(), EngineAlign::Sixteen);
        // SAFETY: the descriptors name memory of `self` that only this thread uses; no id is twice.
        launch(arguments.grid(), |lane| unsafe {
            scatter::run::<HostLane, Aligned16>(lane, &arguments);
        });
    }

    fn copy(&self) {
        let arguments =
            CopyArguments::new(table(&self.planes), table(&self.pairs), self.fragment_bytes())
                .expect("a launch that the kernel can honour");
        assert_eq!(arguments.engine_align(), EngineAlign::Sixteen);
        // SAFETY: the descriptors name memory of `self` that only this thread uses; no target is
        // twice or a source.
        launch(arguments.grid(), |lane| unsafe {
            copy::run::<HostLane, Aligned16>(lane, &arguments);
        });
    }

    fn checksum(&self) {
        let words_max = self.parts.iter().map(|part| part.word_count).max().unwrap_or(0);
        let arguments = ChecksumArguments::new(self.chunks(), 0..self.chunk.part_count, words_max)
            .expect("a launch that the kernel can honour");
        // SAFETY: the descriptors name memory of `self` that only this thread uses.
        launch(arguments.grid(), |lane| unsafe { checksum::run(lane, &arguments) });
    }

    fn judge(&self) {
        let arguments = JudgeArguments::new(self.chunks(), 0..self.chunk.part_count)
            .expect("a launch that the kernel can honour");
        // SAFETY: the descriptors name memory of `self` that only this thread uses.
        launch(arguments.grid(), |lane| unsafe { judge::run(lane, &arguments) });
    }

    fn chunks(&self) -> DeviceTable<'_, ChunkDescriptor> {
        table(std::slice::from_ref(&self.chunk))
    }

    fn fragment_bytes(&self) -> u32 {
        narrow(self.geometry.fragment as u64)
    }

    fn sums(&self) -> Vec<u64> {
        let mut bytes = vec![0; self.parts.len() * 8];
        self.control.read(0, &mut bytes);
        bytes.as_chunks::<8>().0.iter().map(|sum| u64::from_le_bytes(*sum)).collect()
    }

    fn verdicts(&self) -> Vec<u32> {
        let mut bytes = vec![0; self.parts.len() * 4];
        self.control.read(self.part_count() * 16 + 8, &mut bytes);
        bytes.as_chunks::<4>().0.iter().map(|verdict| u32::from_le_bytes(*verdict)).collect()
    }

    fn payload(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.geometry.payload_bytes()];
        self.staging.read(0, &mut bytes);
        bytes
    }

    fn blocks(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.geometry.engine_bytes()];
        self.engine.read(0, &mut bytes);
        bytes
    }
}

/// Fills ranges of a twin's staging.
fn fill_ranges(ranges: &[FillRange], pattern: Word) {
    let arguments =
        FillArguments::new(table(ranges), pattern).expect("a launch that the kernel can honour");
    // SAFETY: the ranges are disjoint parts of a twin's staging, which only this thread uses.
    launch(arguments.grid(), |lane| unsafe { fill::run(lane, &arguments) });
}

/// Runs a launch with a warp a span.
fn launch(grid: &SpanGrid, body: impl Fn(HostLane)) {
    run_grid(grid.span_count(), body);
}

/// Names a table that lies in this process's memory.
fn table<T>(items: &[T]) -> DeviceTable<'_, T> {
    DeviceTable { address: address_of(items), items }
}

fn address_of<T>(items: &[T]) -> u64 {
    items.as_ptr().expose_provenance() as u64
}

fn describe_part(part: &Part) -> PartDescriptor {
    PartDescriptor {
        first_word: narrow(part.offset().get() / 16),
        word_count: narrow(part.summed().get() / 16),
    }
}

fn describe_planes(geometry: &Geometry, address: u64) -> Vec<PlaneDescriptor> {
    let layout = geometry.layout_at(address);
    let (planes, packing) = (layout.groups()[0].planes(), geometry.packing());
    let parts = (0_u32..).zip(packing.parts());
    let describe = parts.flat_map(|(number, part)| {
        part.planes().map(move |plane| {
            let before = packing.plane_offset(plane).get() - part.offset().get();
            PlaneDescriptor {
                base_address: planes[plane].base_address,
                block_stride: planes[plane].block_stride.get(),
                part: number,
                words_before: narrow(before / u64::from(geometry.block_count()) / 16),
            }
        })
    });
    describe.collect()
}

fn narrow(count: u64) -> u32 {
    u32::try_from(count).expect("a small chunk")
}
