//! The kernels' arguments: built on the host, checked once, passed by value in a launch.
//!
//! A constructor reads the host's copy of the descriptors that the launch is about and refuses
//! what the kernel could not honour: zero counts, misaligned addresses, dividends of 2^31 or more,
//! parts that a chunk does not have. What it cannot see is the caller's to hold: that addresses
//! point to memory, that block ids are below the pool's count, and that ids written are unique.
//! Constructors cost one pass over the descriptors.

use super::check::{
    check_below, check_chunk, check_count, check_multiple, check_payload, check_table, engine_align,
};
use super::descriptor::{ChunkDescriptor, CopyPair, FillRange, PlaneDescriptor};
use super::error::{LaunchError, LaunchField};
use super::grid::SpanGrid;
use super::{BLOCK_ID_SKIP, SPAN_WORDS, WARP_LANES, WORD_BYTES};
use crate::arch::Word;
use crate::divisor::Divisor;
use core::mem::offset_of;
use core::ops::Range;

/// A table of descriptors: the host's copy, and where the device will find it.
#[derive(Clone, Copy, Debug)]
pub struct DeviceTable<'host, T> {
    /// Device address of the first descriptor, aligned as `T` is.
    pub address: u64,
    /// The same descriptors on the host.
    pub items: &'host [T],
}

/// What addresses, strides and fragments on the engine's side are all multiples of.
///
/// It decides which of two kernels a launch takes; the packed side is 16-byte aligned either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineAlign {
    /// 16 bytes: fragments move by 128-bit accesses ([`Aligned16`](crate::arch::Aligned16)).
    Sixteen,
    /// 4 bytes: fragments move by 32-bit accesses ([`Aligned4`](crate::arch::Aligned4)).
    Four,
}

impl EngineAlign {
    /// The least alignment that the kernels take, in bytes.
    pub(super) const LEAST_BYTES: u64 = 4;

    /// Returns the alignment in bytes.
    pub const fn bytes(self) -> u32 {
        match self {
            Self::Sixteen => WORD_BYTES,
            Self::Four => 4,
        }
    }

    /// Reads back what a constructor found.
    const fn from_bytes(bytes: u32) -> Self {
        if bytes == WORD_BYTES { Self::Sixteen } else { Self::Four }
    }
}

/// How a plane's words fall into fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Fragments {
    /// Words of one fragment, rounded up.
    pub(crate) words: u32,
    /// 32-bit quarters of one fragment.
    pub(crate) quarters: u32,
    /// Divides a plane's word index by `words`.
    pub(crate) by_words: Divisor,
}

impl Fragments {
    /// Checks a fragment size, and that the words of `count` fragments can be divided.
    fn new(fragment_bytes: u32, count: u32) -> Result<Self, LaunchError> {
        check_multiple(
            LaunchField::FragmentBytes,
            u64::from(fragment_bytes),
            EngineAlign::LEAST_BYTES,
        )?;
        let words = fragment_bytes.div_ceil(WORD_BYTES);
        let value = u64::from(words) * u64::from(count);
        let limit = u64::from(Divisor::DIVIDEND_END - 1);
        let too_large = LaunchError::TooLarge { field: LaunchField::PlaneWords, value, limit };
        if value > limit {
            return Err(too_large);
        }
        let by_words = Divisor::new(words).ok_or(too_large)?;
        Ok(Self { words, quarters: fragment_bytes / 4, by_words })
    }
}

/// What gather and scatter share: planes of one fragment size of several chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Transfer {
    /// Device address of the [`PlaneDescriptor`]s: the grid's columns.
    pub(crate) planes: u64,
    /// Device address of the [`ChunkDescriptor`]s: the grid's rows.
    pub(crate) chunks: u64,
    pub(crate) grid: SpanGrid,
    pub(crate) fragments: Fragments,
    /// Bytes of the engine side's [`EngineAlign`].
    align_bytes: u32,
    /// Explicit padding; 0.
    reserved: u32,
}

impl Transfer {
    fn new(
        planes: DeviceTable<'_, PlaneDescriptor>,
        chunks: DeviceTable<'_, ChunkDescriptor>,
        fragment_bytes: u32,
    ) -> Result<Self, LaunchError> {
        let plane_count = check_table(&planes, LaunchField::PlaneCount)?;
        let chunk_count = check_table(&chunks, LaunchField::ChunkCount)?;
        let mut block_count_max = 0;
        let mut part_end = u32::MAX;
        for (index, chunk) in chunks.items.iter().enumerate() {
            check_chunk(index, chunk)?;
            check_payload(index, chunk)?;
            check_multiple(LaunchField::BlockIds { chunk: index }, chunk.block_ids, 4)?;
            block_count_max = chunk.block_count.max(block_count_max);
            part_end = chunk.part_count.min(part_end);
        }
        for (index, plane) in planes.items.iter().enumerate() {
            check_below(LaunchField::PlanePart { plane: index }, plane.part, part_end)?;
        }
        let fragments = Fragments::new(fragment_bytes, block_count_max)?;
        let spans = (fragments.words * block_count_max).div_ceil(SPAN_WORDS);
        Ok(Self {
            planes: planes.address,
            chunks: chunks.address,
            grid: SpanGrid::new(chunk_count, plane_count, spans)?,
            fragments,
            align_bytes: engine_align(planes.items, fragment_bytes)?.bytes(),
            reserved: 0,
        })
    }
}

/// Arguments of [`gather`](crate::kernels::gather).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct GatherArguments(pub(crate) Transfer);

impl GatherArguments {
    /// Checks a gather of `planes`, all of `fragment_bytes`, of `chunks`.
    ///
    /// Of a chunk it uses `payload`, `block_ids`, `parts`, `sums` and the counts.
    ///
    /// # Errors
    ///
    /// [`LaunchError`] naming the field that the kernel could not honour.
    pub fn new(
        planes: DeviceTable<'_, PlaneDescriptor>,
        chunks: DeviceTable<'_, ChunkDescriptor>,
        fragment_bytes: u32,
    ) -> Result<Self, LaunchError> {
        for (chunk, descriptor) in chunks.items.iter().enumerate() {
            check_multiple(LaunchField::Sums { chunk }, descriptor.sums, 8)?;
        }
        Ok(Self(Transfer::new(planes, chunks, fragment_bytes)?))
    }

    /// Returns which of the two kernels takes the launch.
    pub const fn engine_align(&self) -> EngineAlign {
        EngineAlign::from_bytes(self.0.align_bytes)
    }

    /// Returns the spans of the launch.
    pub const fn grid(&self) -> &SpanGrid {
        &self.0.grid
    }
}

/// Arguments of [`scatter`](crate::kernels::scatter).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct ScatterArguments(pub(crate) Transfer);

impl ScatterArguments {
    /// Checks a scatter of `planes`, all of `fragment_bytes`, of `chunks`.
    ///
    /// Of a chunk it uses `payload`, `block_ids`, `parts`, `verdicts` and the counts.
    ///
    /// # Errors
    ///
    /// [`LaunchError`] naming the field that the kernel could not honour.
    pub fn new(
        planes: DeviceTable<'_, PlaneDescriptor>,
        chunks: DeviceTable<'_, ChunkDescriptor>,
        fragment_bytes: u32,
    ) -> Result<Self, LaunchError> {
        for (chunk, descriptor) in chunks.items.iter().enumerate() {
            check_multiple(LaunchField::Verdicts { chunk }, descriptor.verdicts, 4)?;
        }
        Ok(Self(Transfer::new(planes, chunks, fragment_bytes)?))
    }

    /// Returns which of the two kernels takes the launch.
    pub const fn engine_align(&self) -> EngineAlign {
        EngineAlign::from_bytes(self.0.align_bytes)
    }

    /// Returns the spans of the launch.
    pub const fn grid(&self) -> &SpanGrid {
        &self.0.grid
    }
}

/// The parts of every chunk that a launch is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct PartRange {
    /// First of them.
    pub(crate) start: u32,
    /// One past the last of them.
    pub(crate) end: u32,
}

impl PartRange {
    /// Checks that every chunk has the parts, and the chunks besides.
    fn new(range: &Range<u32>, chunks: &[ChunkDescriptor]) -> Result<Self, LaunchError> {
        let mut part_end = u32::MAX;
        for (index, chunk) in chunks.iter().enumerate() {
            check_chunk(index, chunk)?;
            part_end = chunk.part_count.min(part_end);
        }
        if range.is_empty() {
            return Err(LaunchError::Zero { field: LaunchField::PartCount });
        }
        check_below(LaunchField::PartEnd, range.end, part_end + 1)?;
        Ok(Self { start: range.start, end: range.end })
    }

    /// Returns the number of parts.
    const fn count(self) -> u32 {
        self.end - self.start
    }
}

/// Arguments of [`checksum`](crate::kernels::checksum).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ChecksumArguments {
    /// Device address of the [`ChunkDescriptor`]s: the grid's rows.
    pub(crate) chunks: u64,
    /// The grid's columns.
    pub(crate) parts: PartRange,
    pub(crate) grid: SpanGrid,
}

impl ChecksumArguments {
    /// Checks a sum over `parts` of each of `chunks`.
    ///
    /// `part_words_max` is the largest `word_count` among the chunks' descriptors of these parts;
    /// words beyond it would not be summed, so that such a part would be judged bad. Of a chunk it
    /// uses `payload`, `parts`, `sums` and `part_count`.
    ///
    /// # Errors
    ///
    /// [`LaunchError`] naming the field that the kernel could not honour.
    pub fn new(
        chunks: DeviceTable<'_, ChunkDescriptor>,
        parts: Range<u32>,
        part_words_max: u32,
    ) -> Result<Self, LaunchError> {
        let chunk_count = check_table(&chunks, LaunchField::ChunkCount)?;
        for (chunk, descriptor) in chunks.items.iter().enumerate() {
            check_payload(chunk, descriptor)?;
            check_multiple(LaunchField::Sums { chunk }, descriptor.sums, 8)?;
        }
        let parts = PartRange::new(&parts, chunks.items)?;
        check_count(LaunchField::PartWords, u64::from(part_words_max))?;
        let spans = part_words_max.div_ceil(SPAN_WORDS);
        let grid = SpanGrid::new(chunk_count, parts.count(), spans)?;
        Ok(Self { chunks: chunks.address, parts, grid })
    }

    /// Returns the spans of the launch.
    pub const fn grid(&self) -> &SpanGrid {
        &self.grid
    }
}

/// Arguments of [`judge`](crate::kernels::judge).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct JudgeArguments {
    /// Device address of the [`ChunkDescriptor`]s: the grid's rows.
    pub(crate) chunks: u64,
    /// Cut into spans of one part a lane.
    pub(crate) parts: PartRange,
    pub(crate) grid: SpanGrid,
}

impl JudgeArguments {
    /// Checks a verdict over `parts` of each of `chunks`.
    ///
    /// Of a chunk it uses `sums`, `stored_sums`, `verdicts`, `good_parts`, `key_low` and
    /// `part_count`.
    ///
    /// # Errors
    ///
    /// [`LaunchError`] naming the field that the kernel could not honour.
    pub fn new(
        chunks: DeviceTable<'_, ChunkDescriptor>,
        parts: Range<u32>,
    ) -> Result<Self, LaunchError> {
        let chunk_count = check_table(&chunks, LaunchField::ChunkCount)?;
        for (chunk, descriptor) in chunks.items.iter().enumerate() {
            check_multiple(LaunchField::Sums { chunk }, descriptor.sums, 8)?;
            check_multiple(LaunchField::StoredSums { chunk }, descriptor.stored_sums, 8)?;
            check_multiple(LaunchField::GoodParts { chunk }, descriptor.good_parts, 8)?;
            check_multiple(LaunchField::Verdicts { chunk }, descriptor.verdicts, 4)?;
        }
        let parts = PartRange::new(&parts, chunks.items)?;
        let grid = SpanGrid::new(chunk_count, 1, parts.count().div_ceil(WARP_LANES))?;
        Ok(Self { chunks: chunks.address, parts, grid })
    }

    /// Returns the spans of the launch: each of 32 parts.
    pub const fn grid(&self) -> &SpanGrid {
        &self.grid
    }
}

/// Arguments of [`copy`](crate::kernels::copy).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CopyArguments {
    /// Device address of the [`PlaneDescriptor`]s: the grid's columns.
    pub(crate) planes: u64,
    /// Device address of the [`CopyPair`]s.
    pub(crate) pairs: u64,
    pub(crate) grid: SpanGrid,
    pub(crate) fragments: Fragments,
    /// Words to copy in each plane: those of a fragment times the pairs.
    pub(crate) plane_words: u32,
    /// Bytes of the engine side's [`EngineAlign`].
    align_bytes: u32,
}

impl CopyArguments {
    /// Checks a copy of `pairs` in each of `planes`, all of `fragment_bytes`.
    ///
    /// That no target is in another pair of the launch is the caller's to hold: pairs run in any
    /// order.
    ///
    /// # Errors
    ///
    /// [`LaunchError`] naming the field that the kernel could not honour.
    pub fn new(
        planes: DeviceTable<'_, PlaneDescriptor>,
        pairs: DeviceTable<'_, CopyPair>,
        fragment_bytes: u32,
    ) -> Result<Self, LaunchError> {
        let plane_count = check_table(&planes, LaunchField::PlaneCount)?;
        let pair_count = check_table(&pairs, LaunchField::PairCount)?;
        for (pair, ids) in pairs.items.iter().enumerate() {
            check_below(LaunchField::SourceBlock { pair }, ids.source, BLOCK_ID_SKIP)?;
            check_below(LaunchField::TargetBlock { pair }, ids.target, BLOCK_ID_SKIP)?;
        }
        let fragments = Fragments::new(fragment_bytes, pair_count)?;
        let plane_words = fragments.words * pair_count;
        Ok(Self {
            planes: planes.address,
            pairs: pairs.address,
            grid: SpanGrid::new(1, plane_count, plane_words.div_ceil(SPAN_WORDS))?,
            fragments,
            plane_words,
            align_bytes: engine_align(planes.items, fragment_bytes)?.bytes(),
        })
    }

    /// Returns which of the two kernels takes the launch.
    pub const fn engine_align(&self) -> EngineAlign {
        EngineAlign::from_bytes(self.align_bytes)
    }

    /// Returns the spans of the launch.
    pub const fn grid(&self) -> &SpanGrid {
        &self.grid
    }
}

/// Arguments of [`fill`](crate::kernels::fill).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct FillArguments {
    /// Device address of the [`FillRange`]s: the grid's rows.
    pub(crate) ranges: u64,
    pub(crate) pattern_low: u64,
    pub(crate) pattern_high: u64,
    pub(crate) grid: SpanGrid,
}

impl FillArguments {
    /// Checks a fill of `ranges` with `pattern`.
    ///
    /// # Errors
    ///
    /// [`LaunchError`] naming the field that the kernel could not honour.
    pub fn new(ranges: DeviceTable<'_, FillRange>, pattern: Word) -> Result<Self, LaunchError> {
        let range_count = check_table(&ranges, LaunchField::RangeCount)?;
        let mut words_max = 0;
        for (range, filled) in ranges.items.iter().enumerate() {
            let align = u64::from(WORD_BYTES);
            check_multiple(LaunchField::RangeAddress { range }, filled.address, align)?;
            check_count(LaunchField::RangeWords { range }, u64::from(filled.word_count))?;
            words_max = filled.word_count.max(words_max);
        }
        Ok(Self {
            ranges: ranges.address,
            pattern_low: pattern.low,
            pattern_high: pattern.high,
            grid: SpanGrid::new(range_count, 1, words_max.div_ceil(SPAN_WORDS))?,
        })
    }

    /// Returns the spans of the launch.
    pub const fn grid(&self) -> &SpanGrid {
        &self.grid
    }
}

const _: () = assert!(size_of::<Fragments>() == 16 && align_of::<Fragments>() == 4);
const _: () = assert!(offset_of!(Fragments, quarters) == 4);
const _: () = assert!(offset_of!(Fragments, by_words) == 8);

const _: () = assert!(size_of::<Transfer>() == 72 && align_of::<Transfer>() == 8);
const _: () = assert!(size_of::<GatherArguments>() == 72 && size_of::<ScatterArguments>() == 72);
const _: () = assert!(offset_of!(Transfer, chunks) == 8);
const _: () = assert!(offset_of!(Transfer, grid) == 16);
const _: () = assert!(offset_of!(Transfer, fragments) == 48);
const _: () = assert!(offset_of!(Transfer, align_bytes) == 64);

const _: () = assert!(size_of::<ChecksumArguments>() == 48);
const _: () = assert!(offset_of!(ChecksumArguments, parts) == 8);
const _: () = assert!(offset_of!(ChecksumArguments, grid) == 16);

const _: () = assert!(size_of::<JudgeArguments>() == 48);
const _: () = assert!(offset_of!(JudgeArguments, parts) == 8);
const _: () = assert!(offset_of!(JudgeArguments, grid) == 16);

const _: () = assert!(size_of::<CopyArguments>() == 72);
const _: () = assert!(offset_of!(CopyArguments, pairs) == 8);
const _: () = assert!(offset_of!(CopyArguments, grid) == 16);
const _: () = assert!(offset_of!(CopyArguments, fragments) == 48);
const _: () = assert!(offset_of!(CopyArguments, plane_words) == 64);
const _: () = assert!(offset_of!(CopyArguments, align_bytes) == 68);

const _: () = assert!(size_of::<FillArguments>() == 56);
const _: () = assert!(offset_of!(FillArguments, pattern_low) == 8);
const _: () = assert!(offset_of!(FillArguments, pattern_high) == 16);
const _: () = assert!(offset_of!(FillArguments, grid) == 24);
