//! What host and device must agree on byte for byte: the packed chunk's constants, the descriptors
//! that the host writes for a launch, and each kernel's arguments.
//!
//! A packed chunk is a payload of *parts*; a part is a run of planes; a plane is the fragments of
//! the chunk's blocks in order. The host lays chunks out by these constants and the kernels rely
//! on them for aligned 16-byte accesses.
//!
//! Descriptors are plain data that the host fills in. Arguments exist only checked: their
//! constructors read the descriptors that a launch is about and refuse what a kernel could not
//! honour, so that a kernel body checks nothing. All are `repr(C)`, little-endian, without implicit
//! padding. Called by `kvtide::layout`, the host's devices and the kernels.

mod arguments;
#[cfg(not(target_arch = "nvptx64"))]
mod check;
mod descriptor;
#[cfg(not(target_arch = "nvptx64"))]
mod error;
mod grid;
#[cfg(not(target_arch = "nvptx64"))]
mod launch;
#[cfg(not(target_arch = "nvptx64"))]
mod signature;

pub use arguments::{
    ChecksumArguments, CopyArguments, EngineAlign, FillArguments, GatherArguments, JudgeArguments,
    ScatterArguments,
};
pub(crate) use arguments::{Fragments, Transfer};
pub use descriptor::{ChunkDescriptor, CopyPair, FillRange, PartDescriptor, PlaneDescriptor};
#[cfg(not(target_arch = "nvptx64"))]
pub use error::{LaunchError, LaunchField};
pub(crate) use grid::Span;
pub use grid::{LaunchGeometry, SpanGrid};
#[cfg(not(target_arch = "nvptx64"))]
pub use launch::DeviceTable;
#[cfg(not(target_arch = "nvptx64"))]
pub use signature::{ArgumentField, KERNELS, KernelSignature};

/// Alignment of every fragment inside a packed chunk, in bytes: one 128-bit access.
pub const FRAGMENT_ALIGN_BYTES: u64 = 16;

/// Alignment of every part and of the payload's end, in bytes: one page, one logical block of the
/// largest sector size in use.
pub const PART_ALIGN_BYTES: u64 = 4096;

/// Bytes of the header page that precedes a payload in its slot.
pub const HEADER_PAGE_BYTES: u64 = 4096;

/// Length from which a part stops taking further planes, in bytes.
pub const PART_TARGET_BYTES: u64 = 512 * 1024;

/// The most parts a chunk may have: their sums fill one header page.
pub const PART_COUNT_MAX: usize = 256;

/// Block id that is never a block: in a load, "verify this fragment but do not write it".
pub const BLOCK_ID_SKIP: u32 = u32::MAX;

/// Bytes of a word, the unit in which kernels move and count: one 128-bit access.
pub const WORD_BYTES: u32 = 16;

/// Words of a page, to which parts are aligned.
pub const PAGE_WORDS: u32 = 256;

/// Lanes of a warp.
pub const WARP_LANES: u32 = 32;

/// Words that one lane has in flight: four loads are issued before the first store.
pub const WORDS_IN_FLIGHT: u32 = 4;

/// Words that one warp has in flight.
pub const TILE_WORDS: u32 = WORDS_IN_FLIGHT * WARP_LANES;

/// Words of a span, the work item of one warp: 16 KiB.
pub const SPAN_WORDS: u32 = 8 * TILE_WORDS;

/// Threads of one thread block, as every kernel is launched.
///
/// Eight warps: five such thread blocks of 48 registers a thread fill a multiprocessor of 65,536
/// registers to 40 warps, whose 2 KiB each are 80 KiB in flight.
pub const THREADS_PER_BLOCK: u32 = 256;

/// Verdict word of a part that nobody has judged yet: what zeroed device memory reads as.
pub const VERDICT_NONE: u32 = 0;

/// Verdict word of a part whose sum is the stored one: the only word that lets scatter write.
pub const VERDICT_GOOD: u32 = 1;

/// Verdict word of a part whose sum is not the stored one.
pub const VERDICT_BAD: u32 = 2;

const _: () = assert!(FRAGMENT_ALIGN_BYTES.is_power_of_two());
const _: () = assert!(PART_ALIGN_BYTES.is_multiple_of(FRAGMENT_ALIGN_BYTES));
const _: () = assert!(PART_TARGET_BYTES.is_multiple_of(PART_ALIGN_BYTES));
const _: () = assert!(WORD_BYTES as u64 == FRAGMENT_ALIGN_BYTES);
const _: () = assert!((PAGE_WORDS * WORD_BYTES) as u64 == PART_ALIGN_BYTES);
const _: () = assert!(SPAN_WORDS * WORD_BYTES == 16 * 1024);
const _: () = assert!(THREADS_PER_BLOCK.is_multiple_of(WARP_LANES));
// Kernels read the payload's little-endian words, and the host the kernels' words, as they lie.
const _: () = assert!(cfg!(target_endian = "little"));
