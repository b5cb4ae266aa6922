//! The launch contract: how the host builds a kernel's arguments, and what it refuses.
//!
//! A constructor reads the host's copy of the descriptors that the launch is about and refuses
//! what the kernel could not honour: zero counts, misaligned addresses, dividends of 2^31 or more,
//! parts that a chunk does not have. What it cannot see is the caller's to hold: that addresses
//! point to memory, that block ids are below the pool's count, and that ids written are unique.
//! Constructors cost one pass over the descriptors. Host only: a device gets arguments ready made.

use super::arguments::{
    ChecksumArguments, CopyArguments, EngineAlign, FillArguments, Fragments, GatherArguments,
    JudgeArguments, PartRange, ScatterArguments, Transfer,
};
use super::check::{
    check_below, check_chunk, check_count, check_multiple, check_payload, check_table, engine_align,
};
use super::descriptor::{ChunkDescriptor, CopyPair, FillRange, PlaneDescriptor};
use super::error::{LaunchError, LaunchField};
use super::grid::SpanGrid;
use super::{BLOCK_ID_SKIP, SPAN_WORDS, WARP_LANES, WORD_BYTES};
use crate::arch::Word;
use crate::divisor::Divisor;
use core::ops::Range;

/// A table of descriptors: the host's copy, and where the device will find it.
#[derive(Clone, Copy, Debug)]
pub struct DeviceTable<'host, T> {
    /// Device address of the first descriptor, aligned as `T` is.
    pub address: u64,
    /// The same descriptors on the host.
    pub items: &'host [T],
}

impl SpanGrid {
    /// Cuts a launch of `row_count` by `column_count` cells.
    ///
    /// # Errors
    ///
    /// [`LaunchError::Zero`] if one of the three is 0, [`LaunchError::TooLarge`] if their product
    /// is above [`SpanGrid::SPAN_COUNT_MAX`].
    fn new(row_count: u32, column_count: u32, spans_per_cell: u32) -> Result<Self, LaunchError> {
        let cell_count = u64::from(row_count) * u64::from(column_count);
        let value = cell_count.saturating_mul(u64::from(spans_per_cell));
        if value == 0 {
            return Err(LaunchError::Zero { field: LaunchField::SpanCount });
        }
        let limit = u64::from(Self::SPAN_COUNT_MAX);
        let too_large = LaunchError::TooLarge { field: LaunchField::SpanCount, value, limit };
        let span_count = u32::try_from(value).map_err(|_| too_large)?;
        if span_count > Self::SPAN_COUNT_MAX {
            return Err(too_large);
        }
        Ok(Self {
            span_count,
            spans_per_cell,
            column_count,
            reserved: 0,
            by_spans: Divisor::new(spans_per_cell).ok_or(too_large)?,
            by_columns: Divisor::new(column_count).ok_or(too_large)?,
        })
    }
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
}

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
}
