//! What a kernel body may ask of the machine it runs on.
//!
//! A body is generic over [`Arch`], so that one text compiles to PTX and to a twin that runs on the
//! host lane by lane. Hence the one rule for a primitive: a run of one lane after the other must
//! be able to honour it. Sums over a warp are therefore [`Arch::accumulate`], which adds to memory,
//! and never a value that a lane gets back from the others.
//!
//! Addresses are plain `u64`: those of the machine that runs the body. Nothing here or in a body
//! allocates, panics or uses `std`. Called by the bodies in [`kernels`](crate::kernels).

mod engine;
#[cfg(not(target_arch = "nvptx64"))]
pub mod host;
#[cfg(target_arch = "nvptx64")]
pub mod nvptx;

pub use engine::{Aligned4, Aligned16, EngineAccess};

use crate::checksum::term;

/// What one 128-bit access moves: two little-endian 64-bit words of the payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C, align(16))]
pub struct Word {
    /// Bytes 0 to 7.
    pub low: u64,
    /// Bytes 8 to 15.
    pub high: u64,
}

const _: () = assert!(size_of::<Word>() == crate::abi::WORD_BYTES as usize);

impl Word {
    /// Returns what the word adds to the position-keyed sum as the payload's 64-bit words `index`
    /// and `index + 1`.
    #[inline]
    pub const fn terms(self, index: u64) -> u64 {
        term(self.low, index).wrapping_add(term(self.high, index.wrapping_add(1)))
    }
}

/// One lane of a launch, and its access to memory.
///
/// Every access is done once, in the order of the calls, and never moved across another.
pub trait Arch: Copy {
    /// Returns the lane's number in its warp: 0 to 31.
    fn lane(self) -> u32;

    /// Returns the warp's number in the launch.
    fn warp(self) -> u32;

    /// Returns the warps of the launch.
    fn warp_count(self) -> u32;

    /// Loads the word at `address + OFFSET_BYTES`.
    ///
    /// # Safety
    ///
    /// - `address + OFFSET_BYTES` is a multiple of 16;
    /// - its 16 bytes are readable, initialised, and written by nobody else meanwhile.
    unsafe fn load<const OFFSET_BYTES: u64>(self, address: u64) -> Word;

    /// Stores `word` at `address + OFFSET_BYTES`.
    ///
    /// # Safety
    ///
    /// - `address + OFFSET_BYTES` is a multiple of 16;
    /// - its 16 bytes are writable, and touched by nobody else meanwhile.
    unsafe fn store<const OFFSET_BYTES: u64>(self, address: u64, word: Word);

    /// Stores `word` at `address` if `enabled`, without a branch on the device.
    ///
    /// # Safety
    ///
    /// As [`Arch::store`] if `enabled`; none otherwise.
    unsafe fn store_if(self, address: u64, word: Word, enabled: bool);

    /// Loads the first `quarters` of a word's four 32-bit quarters; the others read as zeros.
    ///
    /// # Safety
    ///
    /// - `quarters` is at most 4;
    /// - `address` is a multiple of 4;
    /// - the `4 * quarters` bytes there are readable, initialised, and written by nobody else
    ///   meanwhile.
    unsafe fn load_quarters(self, address: u64, quarters: u32) -> Word;

    /// Stores the first `quarters` of a word's four 32-bit quarters; the bytes after them stay.
    ///
    /// # Safety
    ///
    /// - `quarters` is at most 4;
    /// - `address` is a multiple of 4;
    /// - the `4 * quarters` bytes there are writable, and touched by nobody else meanwhile.
    unsafe fn store_quarters(self, address: u64, word: Word, quarters: u32);

    /// Loads a `u32`.
    ///
    /// # Safety
    ///
    /// - `address` is a multiple of 4;
    /// - its 4 bytes are readable, initialised, and written by nobody else meanwhile.
    unsafe fn load_u32(self, address: u64) -> u32;

    /// Loads a `u64`.
    ///
    /// # Safety
    ///
    /// - `address` is a multiple of 8;
    /// - its 8 bytes are readable, initialised, and written by nobody else meanwhile.
    unsafe fn load_u64(self, address: u64) -> u64;

    /// Stores a `u32`.
    ///
    /// # Safety
    ///
    /// - `address` is a multiple of 4;
    /// - its 4 bytes are writable, and touched by nobody else meanwhile.
    unsafe fn store_u32(self, address: u64, value: u32);

    /// Adds the `value`s of the warp's lanes to the `u64` at `address`, modulo 2^64.
    ///
    /// On a device: a sum over the warp, then one atomic addition, so that other warps may add to
    /// the same place. On the host: one plain addition a lane.
    ///
    /// # Safety
    ///
    /// - all lanes of the warp make the call, with the same address;
    /// - `address` is a multiple of 8;
    /// - its 8 bytes are readable, writable, initialised, and touched meanwhile by nobody but other
    ///   calls of this function.
    unsafe fn accumulate(self, address: u64, value: u64);
}
