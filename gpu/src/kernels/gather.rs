//! Gather: packs the fragments of scattered blocks into payloads in staging, and sums them.
//!
//! - **Decomposition.** A cell is one plane of one chunk; the launch has all planes of one fragment
//!   size and several chunks. A plane of a chunk is contiguous on the packed side, and its blocks'
//!   fragments follow each other there, so a lane finds block and offset of its word by one exact
//!   division and loads that block's id. Fragments of another size take another launch, which adds
//!   to the same sums.
//! - **Geometry.** One warp a span of 16 KiB of the packed side, persistent grid. A tail chunk's
//!   planes end early; the warps of the spans behind them do nothing.
//! - **Bytes in flight.** Four ids, then four words, are loaded before the first store: 2 KiB a
//!   warp. Ids come from cache, so that a word costs one access to memory.
//! - **Why the sum is here.** The words are in registers, so that a store reads the engine's blocks
//!   once. The sum follows the stores, in the shadow of the next loads; each span adds its own to
//!   its part's with one atomic a warp.
//! - **4-byte path.** A lane still owns 16 packed bytes, loaded as up to four quarters: the packed
//!   side and the sum are the same as in the 16-byte path. What rounds a fragment up to 16 is
//!   written, and summed, as zeros.

use crate::abi::{GatherArguments, Span, Transfer};
use crate::arch::{Arch, EngineAccess};
use crate::kernels::fragment::PlaneFragments;
use crate::kernels::lane::Lane;
use crate::kernels::view::{ChunkView, PlaneView};
use crate::kernels::words::{SpanWords, tile, tile_indices, tile_terms, word_at, word_terms};

/// Runs one lane of a gather.
///
/// # Safety
///
/// - `E` is the way that the arguments' `engine_align` names, and every lane of the launch runs
///   with the same arguments;
/// - the descriptors are on the device as the arguments' constructor saw them, with their tables;
/// - every block id of a chunk names a block whose fragments are readable in every plane, and
///   nobody writes them meanwhile;
/// - the payload's summed words of the parts that hold the planes are writable, and nobody else
///   touches them meanwhile;
/// - the sums of these parts are initialised, and nobody but gathers touches them meanwhile.
#[inline]
pub unsafe fn run<A: Arch, E: EngineAccess>(arch: A, arguments: &GatherArguments) {
    // SAFETY: below are accesses to descriptors, blocks, payloads and sums only.
    let lane = unsafe { Lane::new(arch) };
    let transfer = &arguments.0;
    lane.for_each_span(&transfer.grid, |span| gather_span::<A, E>(lane, transfer, span));
}

/// Gathers one span of one plane of one chunk.
#[inline]
fn gather_span<A: Arch, E: EngineAccess>(lane: Lane<A>, transfer: &Transfer, span: Span) {
    let chunk = ChunkView::new(lane, transfer.chunks, span.row);
    let block_count = chunk.block_count();
    let Some(words) = SpanWords::of(span, block_count * transfer.fragments.words) else { return };
    let plane = PlaneView::new(lane, transfer.planes, span.column);
    let part = plane.part();
    let plane_word = chunk.plane_word(plane, part, block_count);
    let packed = chunk.payload_at(plane_word);
    let block_ids = chunk.block_ids();
    let fragments = PlaneFragments::<E>::new(plane, transfer.fragments);
    let locate = |index| {
        let at = fragments.split(index);
        fragments.place(chunk.block_id(block_ids, at.ordinal), at)
    };
    let sum = words.fold(
        lane.number(),
        0_u64,
        |sum, index| {
            let places = tile(tile_indices(index), locate);
            let loaded = lane.load_from_each::<E>(places);
            lane.store_tile(word_at(packed, index), loaded);
            sum.wrapping_add(tile_terms(loaded, plane_word + u64::from(index)))
        },
        |sum, index| {
            let loaded = lane.load_from::<E>(locate(index));
            lane.store(word_at(packed, index), loaded);
            sum.wrapping_add(word_terms(loaded, plane_word + u64::from(index)))
        },
    );
    lane.accumulate(chunk.sum_of(part), sum);
}
