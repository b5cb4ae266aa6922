//! Checksum: sums the parts of payloads in staging, reading each word once.
//!
//! - **Decomposition.** A cell is one part of one chunk: a contiguous range, so no division inside
//!   it. A part's fragments are summed with their padding to 16; the page padding after it is not.
//!   Parts end with whole layers, so that all but a chunk's last are about equally long and few
//!   spans are empty; a launch of parts that differ much is better split.
//! - **Geometry.** One warp a span of 16 KiB, persistent grid; each span adds its sum to its part's
//!   with one atomic a warp.
//! - **Bytes in flight.** Four words are loaded before the first is used: 2 KiB a warp. No store
//!   holds the loads in place here: left to choose, ptxas saves registers and sinks two of them, so
//!   the entry has to state its bounds (`.maxntid 256`, `.minnctapersm 5`: 40 registers).
//! - **Why apart from scatter.** A part's verdict must be known before its first byte is written to
//!   the engine's blocks, so that its payload is read twice, the second time partly from cache.

use crate::abi::{ChecksumArguments, Span};
use crate::arch::Arch;
use crate::kernels::lane::Lane;
use crate::kernels::view::ChunkView;
use crate::kernels::words::{SpanWords, tile_terms, word_at, word_terms};

/// Runs one lane of a checksum.
///
/// # Safety
///
/// - every lane of the launch runs with the same arguments;
/// - the descriptors are on the device as the arguments' constructor saw them, with their tables;
/// - the summed words of the launch's parts are readable, and nobody writes them meanwhile;
/// - the sums of these parts are initialised, and nobody but checksums touches them meanwhile.
#[inline]
pub unsafe fn run<A: Arch>(arch: A, arguments: &ChecksumArguments) {
    // SAFETY: below are accesses to descriptors, payloads and sums only.
    let lane = unsafe { Lane::new(arch) };
    lane.for_each_span(&arguments.grid, |span| sum_span(lane, arguments, span));
}

/// Sums one span of one part of one chunk.
#[inline]
fn sum_span<A: Arch>(lane: Lane<A>, arguments: &ChecksumArguments, span: Span) {
    let chunk = ChunkView::new(lane, arguments.chunks, span.row);
    let part_index = arguments.parts.start + span.column;
    let part = chunk.part(part_index);
    let Some(words) = SpanWords::of(span, part.word_count()) else { return };
    let first_word = u64::from(part.first_word());
    let packed = chunk.payload_at(first_word);
    let sum = words.fold(
        lane.number(),
        0_u64,
        |sum, index| {
            let loaded = lane.load_tile(word_at(packed, index));
            sum.wrapping_add(tile_terms(loaded, first_word + u64::from(index)))
        },
        |sum, index| {
            let loaded = lane.load(word_at(packed, index));
            sum.wrapping_add(word_terms(loaded, first_word + u64::from(index)))
        },
    );
    lane.accumulate(chunk.sum_of(part_index), sum);
}
