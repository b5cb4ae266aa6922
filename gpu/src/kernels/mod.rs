//! The kernels' bodies, one kernel a file, generic over the machine they run on.
//!
//! | kernel | moves | used in |
//! |---|---|---|
//! | [`gather`] | scattered blocks to a packed payload, and sums it | store |
//! | [`fill`] | zeros to the page padding between parts | store |
//! | [`checksum`] | nothing; sums a packed payload | load |
//! | [`judge`] | nothing; compares sums with the stored ones | load |
//! | [`scatter`] | good parts of a packed payload to scattered blocks | load |
//! | [`copy`] | blocks to blocks inside the planes | copy on write |
//!
//! # Shape
//!
//! All share one shape. A launch is cut into spans ([`SpanGrid`](crate::abi::SpanGrid)), one warp's
//! work each: 16 KiB of the packed side, long enough that finding one's place is cheap, short
//! enough that a single chunk fills a device. The grid is persistent: a warp goes from span to
//! span, so the number of thread blocks is free to be capped.
//!
//! Inside a span the lanes of a warp stand side by side, 16 bytes each, so that a warp's access is
//! 512 contiguous bytes on the packed side. Each lane has four 128-bit loads in flight before its
//! first store: 2 KiB a warp, 80 KiB on a multiprocessor that holds 40 warps, where a memory of
//! 4.8 TB/s needs about 25. No shared memory and no barrier.
//!
//! # Unsafety
//!
//! A body touches memory that descriptors name, so `run` is unsafe, and its `# Safety` section is
//! the whole of what a caller vouches for. Inside, that word is passed on once, where the body
//! makes its lane; the rest reads as plain code.

pub mod checksum;
pub mod copy;
pub mod fill;
pub mod gather;
pub mod judge;
pub mod scatter;

#[cfg(target_arch = "nvptx64")]
pub mod entry;

mod fragment;
mod lane;
mod view;
mod words;
