//! Constants of the packed chunk that host and device share.
//!
//! A packed chunk is a payload of *parts*; a part is a run of planes; a plane is the fragments of
//! the chunk's blocks in order. The host lays chunks out by these constants and the kernels rely
//! on them for aligned 16-byte accesses. Called by `kvtide::layout` and the kernels.

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

const _: () = assert!(FRAGMENT_ALIGN_BYTES.is_power_of_two());
const _: () = assert!(PART_ALIGN_BYTES.is_multiple_of(FRAGMENT_ALIGN_BYTES));
const _: () = assert!(PART_TARGET_BYTES.is_multiple_of(PART_ALIGN_BYTES));
