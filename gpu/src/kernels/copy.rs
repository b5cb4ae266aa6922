//! Copy: copies the fragments of blocks to other blocks of the same planes, for copy on write.
//!
//! - **Decomposition.** A cell is one plane; its words are those of all pairs' fragments, one after
//!   the other, as if they were packed. A lane finds its pair by one exact division and loads both
//!   ids at once.
//! - **Geometry.** One warp a span of 16 KiB of those words, persistent grid. Planes of another
//!   fragment size take another launch.
//! - **Bytes in flight.** Four pairs of ids, then four words, are loaded before the first store:
//!   2 KiB a warp.
//! - **Order.** None between pairs: no target may be in another pair of the launch.
//! - **4-byte path.** Copies the fragment's quarters and no byte more.

use crate::abi::{CopyArguments, CopyPair, Span};
use crate::arch::{Arch, EngineAccess};
use crate::kernels::fragment::{Place, PlaneFragments};
use crate::kernels::lane::Lane;
use crate::kernels::view::{PlaneView, pair_at};
use crate::kernels::words::{SpanWords, tile, tile_indices};

/// Runs one lane of a copy.
///
/// # Safety
///
/// - `E` is the way that the arguments' `engine_align` names, and every lane of the launch runs
///   with the same arguments;
/// - the descriptors are on the device as the arguments' constructor saw them;
/// - every source names a block whose fragments are readable in every plane, and nobody writes
///   them meanwhile;
/// - every target names a block whose fragments are writable in every plane, is in no other pair
///   of the launch, and nobody else touches them meanwhile.
#[inline]
pub unsafe fn run<A: Arch, E: EngineAccess>(arch: A, arguments: &CopyArguments) {
    // SAFETY: below are accesses to descriptors and blocks only.
    let lane = unsafe { Lane::new(arch) };
    lane.for_each_span(&arguments.grid, |span| copy_span::<A, E>(lane, arguments, span));
}

/// A word's place in the source block and in the target block.
#[derive(Clone, Copy)]
struct Way {
    source: Place,
    target: Place,
}

/// Copies one span of one plane.
#[inline]
fn copy_span<A: Arch, E: EngineAccess>(lane: Lane<A>, arguments: &CopyArguments, span: Span) {
    let Some(words) = SpanWords::of(span, arguments.plane_words) else { return };
    let plane = PlaneView::new(lane, arguments.planes, span.column);
    let fragments = PlaneFragments::<E>::new(plane, arguments.fragments);
    let way = |index| {
        let at = fragments.split(index);
        let pair = CopyPair::from_bits(lane.load_u64(pair_at(arguments.pairs, at.ordinal)));
        Way { source: fragments.place(pair.source, at), target: fragments.place(pair.target, at) }
    };
    words.fold(
        lane.number(),
        (),
        |(), index| {
            let ways = tile(tile_indices(index), way);
            let loaded = lane.load_from_each::<E>(tile(ways, |way| way.source));
            lane.store_to_each::<E>(tile(ways, |way| way.target), loaded);
        },
        |(), index| {
            let way = way(index);
            let loaded = lane.load_from::<E>(way.source);
            lane.store_to::<E>(way.target, loaded);
        },
    );
}
