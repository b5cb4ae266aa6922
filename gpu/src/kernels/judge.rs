//! Judge: compares the sums of parts with the stored ones and writes the verdicts.
//!
//! - **Decomposition.** One lane a part. A warp has 32 parts of one chunk, so that the chunk's
//!   count of good parts grows by one atomic a warp; a chunk has at most 256 parts.
//! - **Geometry.** One warp a chunk for up to 32 parts: a launch of microseconds, bound by the
//!   latency of two dependent loads, whose point is that no verdict waits for the host.
//! - **Bytes in flight.** Two sums a lane; nothing to tune.
//! - **Verdicts.** A part is good when its sum plus the low half of the chunk's key is the stored
//!   sum ([`seal`]), which fails for a payload under a wrong key. A chunk is good when its count of
//!   good parts equals its parts. Both fail safe: zeroed memory reads as not good, and so does what
//!   judge never reached.

use crate::abi::{JudgeArguments, Span, VERDICT_BAD, VERDICT_GOOD, WARP_LANES};
use crate::arch::Arch;
use crate::checksum::seal;
use crate::kernels::lane::Lane;
use crate::kernels::view::ChunkView;

/// Runs one lane of a judge.
///
/// # Safety
///
/// - every lane of the launch runs with the same arguments;
/// - the descriptors are on the device as the arguments' constructor saw them;
/// - the sums and stored sums of the launch's parts are initialised, and nobody writes them
///   meanwhile;
/// - the verdict words of these parts are writable, the chunks' counts of good parts initialised,
///   and nobody else touches them meanwhile.
#[inline]
pub unsafe fn run<A: Arch>(arch: A, arguments: &JudgeArguments) {
    // SAFETY: below are accesses to descriptors, sums, verdict words and counts only.
    let lane = unsafe { Lane::new(arch) };
    lane.for_each_span(&arguments.grid, |span| judge_span(lane, arguments, span));
}

/// Judges 32 parts of one chunk.
#[inline]
fn judge_span<A: Arch>(lane: Lane<A>, arguments: &JudgeArguments, span: Span) {
    let chunk = ChunkView::new(lane, arguments.chunks, span.row);
    let part = arguments.parts.start + span.ordinal * WARP_LANES + lane.number();
    let mut good = false;
    if part < arguments.parts.end {
        let sum = lane.load_u64(chunk.sum_of(part));
        let stored_sum = lane.load_u64(chunk.stored_sum_of(part));
        good = seal(sum, chunk.key_low()) == stored_sum;
        lane.store_u32(chunk.verdict_of(part), if good { VERDICT_GOOD } else { VERDICT_BAD });
    }
    lane.accumulate(chunk.good_parts(), u64::from(good));
}
