//! Fill: writes a 16-byte pattern, zeros as a rule, to ranges of device memory.
//!
//! Page padding between parts is why: staging is used again and again, and stale bytes of one
//! tenant must not reach the disk inside another's slot.
//!
//! - **Decomposition.** A cell is one range. Page padding is up to 4,080 bytes, so that one warp
//!   mostly does a whole range; a launch of ranges that differ much in length is better split.
//! - **Geometry.** One warp a span of 16 KiB, persistent grid.
//! - **Bytes in flight.** Stores only; nothing waits for them.

use crate::abi::{FillArguments, Span};
use crate::arch::{Arch, Word};
use crate::kernels::lane::Lane;
use crate::kernels::view::RangeView;
use crate::kernels::words::{SpanWords, word_at};

/// Runs one lane of a fill.
///
/// # Safety
///
/// - every lane of the launch runs with the same arguments;
/// - the descriptors are on the device as the arguments' constructor saw them;
/// - the ranges are writable and disjoint, and nobody else touches them meanwhile.
#[inline]
pub unsafe fn run<A: Arch>(arch: A, arguments: &FillArguments) {
    // SAFETY: below are accesses to descriptors and ranges only.
    let lane = unsafe { Lane::new(arch) };
    lane.for_each_span(&arguments.grid, |span| fill_span(lane, arguments, span));
}

/// Fills one span of one range.
#[inline]
fn fill_span<A: Arch>(lane: Lane<A>, arguments: &FillArguments, span: Span) {
    let range = RangeView::new(lane, arguments.ranges, span.row);
    let Some(words) = SpanWords::of(span, range.word_count()) else { return };
    let start = range.first_byte();
    let pattern = Word { low: arguments.pattern_low, high: arguments.pattern_high };
    words.fold(
        lane.number(),
        (),
        |(), index| lane.store_tile(word_at(start, index), [pattern; 4]),
        |(), index| lane.store(word_at(start, index), pattern),
    );
}
