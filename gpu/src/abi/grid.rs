//! How a launch is cut into spans, and how many thread blocks it asks for.
//!
//! A launch is a table of cells, rows by columns (chunks by planes, say), each of so many spans.
//! Spans are numbered across the whole launch; a warp takes every `warp_count`-th one and finds its
//! cell by two exact divisions. Cells of one launch have the same number of spans, that of the
//! largest; a warp that lands behind the end of a smaller one goes on at once.

use super::{THREADS_PER_BLOCK, WARP_LANES};
use crate::divisor::Divisor;
use core::mem::offset_of;
use core::num::NonZeroU32;

/// The spans of one launch, and where each lies. Part of every kernel's arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SpanGrid {
    /// Spans of the launch: 1 to 2^31 - 1.
    pub(crate) span_count: u32,
    /// Spans of one cell.
    pub(crate) spans_per_cell: u32,
    /// Columns of one row.
    pub(crate) column_count: u32,
    /// Explicit padding; 0.
    pub(super) reserved: u32,
    /// Divides by `spans_per_cell`.
    pub(super) by_spans: Divisor,
    /// Divides by `column_count`.
    pub(super) by_columns: Divisor,
}

const _: () = assert!(size_of::<SpanGrid>() == 32 && align_of::<SpanGrid>() == 4);
const _: () = assert!(offset_of!(SpanGrid, span_count) == 0);
const _: () = assert!(offset_of!(SpanGrid, spans_per_cell) == 4);
const _: () = assert!(offset_of!(SpanGrid, column_count) == 8);
const _: () = assert!(offset_of!(SpanGrid, by_spans) == 16);
const _: () = assert!(offset_of!(SpanGrid, by_columns) == 24);

/// Where one span lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// Row of its cell.
    pub(crate) row: u32,
    /// Column of its cell.
    pub(crate) column: u32,
    /// Its number inside the cell.
    pub(crate) ordinal: u32,
}

impl SpanGrid {
    /// The most spans a launch may have: dividends stay exact.
    pub const SPAN_COUNT_MAX: u32 = Divisor::DIVIDEND_END - 1;

    /// Returns the spans of the launch, one warp's work each.
    pub const fn span_count(&self) -> u32 {
        self.span_count
    }

    /// Returns the thread blocks to launch: a warp for each span, but at most `thread_blocks_max`.
    ///
    /// The grid is persistent: fewer warps than spans take several each, so the cap is free to
    /// follow what the device holds at once, or to leave room beside a decode step.
    pub const fn geometry(&self, thread_blocks_max: NonZeroU32) -> LaunchGeometry {
        let wanted = self.span_count.div_ceil(LaunchGeometry::WARPS_PER_THREAD_BLOCK);
        let capped = wanted < thread_blocks_max.get();
        LaunchGeometry { thread_blocks: if capped { wanted } else { thread_blocks_max.get() } }
    }

    /// Finds span `number`, which is below the span count.
    #[inline]
    pub(crate) const fn span(&self, number: u32) -> Span {
        let cell = self.by_spans.quotient(number);
        let row = self.by_columns.quotient(cell);
        Span {
            row,
            column: cell - row * self.column_count,
            ordinal: number - cell * self.spans_per_cell,
        }
    }
}

/// Thread blocks of one launch, each of [`THREADS_PER_BLOCK`] threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchGeometry {
    thread_blocks: u32,
}

impl LaunchGeometry {
    /// Warps of one thread block.
    pub const WARPS_PER_THREAD_BLOCK: u32 = THREADS_PER_BLOCK / WARP_LANES;

    /// Returns the thread blocks: at least 1.
    pub const fn thread_blocks(self) -> u32 {
        self.thread_blocks
    }

    /// Returns the threads of the launch's thread blocks: one dimension.
    pub const fn threads_per_block(self) -> u32 {
        THREADS_PER_BLOCK
    }

    /// Returns the warps of the launch: at most 7 more than it has spans.
    pub const fn warp_count(self) -> u32 {
        self.thread_blocks * Self::WARPS_PER_THREAD_BLOCK
    }
}
