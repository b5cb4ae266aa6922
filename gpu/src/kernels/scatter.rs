//! Scatter: writes the good parts of payloads in staging to scattered blocks.
//!
//! - **Decomposition and geometry.** Those of [`gather`](super::gather), the other way round.
//! - **Gate.** A span first reads its part's verdict word; unless that is [`VERDICT_GOOD`], it ends
//!   there. So bytes that failed, or that nobody judged, never reach the engine's blocks, without a
//!   round trip to the host.
//! - **Skipped blocks.** The id [`BLOCK_ID_SKIP`](crate::abi::BLOCK_ID_SKIP) stands for a block
//!   that the engine has already: its fragments are part of the sum, but are not written. The store
//!   is predicated rather than branched around, so that a lane's four loads stay in flight.
//! - **Bytes in flight.** Four words are loaded before the first store: 2 KiB a warp.
//! - **4-byte path.** Stores only the quarters that are the fragment's: what rounds it up to 16 in
//!   the payload never leaves it, since the bytes behind a fragment are the engine's.

use crate::abi::{ScatterArguments, Span, Transfer, VERDICT_GOOD};
use crate::arch::{Arch, EngineAccess};
use crate::kernels::fragment::PlaneFragments;
use crate::kernels::lane::Lane;
use crate::kernels::view::{ChunkView, PlaneView};
use crate::kernels::words::{SpanWords, tile, tile_indices, word_at};

/// Runs one lane of a scatter.
///
/// # Safety
///
/// - `E` is the way that the arguments' `engine_align` names, and every lane of the launch runs
///   with the same arguments;
/// - the descriptors are on the device as the arguments' constructor saw them, with their tables;
/// - the verdict words of the parts that hold the planes are initialised, and the summed words of
///   those judged good are readable; nobody writes either meanwhile;
/// - every block id of a chunk is `BLOCK_ID_SKIP` or, if a part is good, names a block whose
///   fragments are writable in every plane; no block is named twice in the launch, and nobody else
///   touches one meanwhile.
#[inline]
pub unsafe fn run<A: Arch, E: EngineAccess>(arch: A, arguments: &ScatterArguments) {
    // SAFETY: below are accesses to descriptors, verdict words, payloads and blocks only.
    let lane = unsafe { Lane::new(arch) };
    let transfer = &arguments.0;
    lane.for_each_span(&transfer.grid, |span| scatter_span::<A, E>(lane, transfer, span));
}

/// Scatters one span of one plane of one chunk.
#[inline]
fn scatter_span<A: Arch, E: EngineAccess>(lane: Lane<A>, transfer: &Transfer, span: Span) {
    let chunk = ChunkView::new(lane, transfer.chunks, span.row);
    let block_count = chunk.block_count();
    let Some(words) = SpanWords::of(span, block_count * transfer.fragments.words) else { return };
    let plane = PlaneView::new(lane, transfer.planes, span.column);
    let part = plane.part();
    if lane.load_u32(chunk.verdict_of(part)) != VERDICT_GOOD {
        return;
    }
    let packed = chunk.payload_at(chunk.plane_word(plane, part, block_count));
    let block_ids = chunk.block_ids();
    let fragments = PlaneFragments::<E>::new(plane, transfer.fragments);
    let locate = |index| {
        let at = fragments.split(index);
        fragments.place_unless_skipped(chunk.block_id(block_ids, at.ordinal), at)
    };
    words.fold(
        lane.number(),
        (),
        |(), index| {
            let places = tile(tile_indices(index), locate);
            let loaded = lane.load_tile(word_at(packed, index));
            lane.store_to_each::<E>(places, loaded);
        },
        |(), index| {
            let loaded = lane.load(word_at(packed, index));
            lane.store_to::<E>(locate(index), loaded);
        },
    );
}
