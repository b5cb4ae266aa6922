//! Descriptors: plain records that the host copies to the device ahead of a launch.
//!
//! Addresses are device addresses; tables are contiguous arrays of these records. What a field must
//! hold depends on the kernel, so the kernels' arguments check the descriptors they are built from.

use super::{PAGE_WORDS, WORD_BYTES};
use core::mem::offset_of;

/// One plane: where the engine keeps the fragments of its blocks, and where they go in a chunk.
///
/// Holds for chunks of any block count: it names the plane's place in its part *per block*, since
/// the fragments of a plane follow those of the planes before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct PlaneDescriptor {
    /// Device address of block 0's fragment.
    pub base_address: u64,
    /// Bytes from one block's fragment to the next block's.
    pub block_stride: u64,
    /// Index of the part that holds the plane.
    pub part: u32,
    /// Words that one block takes in the planes of this part before this one: their fragments,
    /// each rounded up to a word.
    pub words_before: u32,
}

/// One part of a payload. A table of them serves all chunks of one block count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct PartDescriptor {
    /// Payload word where the part starts: a multiple of a page's 256 words.
    pub first_word: u32,
    /// Words that its sum covers: its fragments, each rounded up to a word.
    pub word_count: u32,
}

/// One chunk: its payload in staging, the engine's blocks, and its control words.
///
/// One record serves all kernels of a store or a load; each names the fields it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ChunkDescriptor {
    /// Device address of payload byte 0: a multiple of 16. Only the parts that a launch is about
    /// need lie in memory, so it may point below a staging piece that holds later parts.
    pub payload: u64,
    /// Device address of the chunk's block ids, `u32` each, in the order of its tokens.
    pub block_ids: u64,
    /// Device address of the chunk's [`PartDescriptor`]s.
    pub parts: u64,
    /// Device address of one `u64` sum a part, zeroed before a launch first adds to it.
    pub sums: u64,
    /// Device address of one `u32` verdict word a part.
    pub verdicts: u64,
    /// Device address of one `u64` stored sum a part: the sums in the header that came along.
    pub stored_sums: u64,
    /// Device address of one `u64`: the parts judged good so far, zeroed before the first launch
    /// of judge. The chunk is good when it equals `part_count`.
    pub good_parts: u64,
    /// Low 64 bits of the chunk's key, which the stored sums include.
    pub key_low: u64,
    /// Blocks of the chunk: at least 1.
    pub block_count: u32,
    /// Parts of the chunk: 1 to 256.
    pub part_count: u32,
}

/// One fragment's way in a copy inside the planes: from block to block.
///
/// Eight-byte aligned, so that one load brings both ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C, align(8))]
pub struct CopyPair {
    /// Block to copy from.
    pub source: u32,
    /// Block to copy to; in no other pair of the launch.
    pub target: u32,
}

/// One contiguous range of device memory to fill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct FillRange {
    /// Device address of the first byte: a multiple of 16.
    pub address: u64,
    /// Words of the range: at least 1.
    pub word_count: u32,
    /// Explicit padding; 0.
    pub reserved: u32,
}

impl PartDescriptor {
    /// Returns the words from the end of the summed words to the next page.
    pub const fn padding_words(&self) -> u32 {
        self.word_count.next_multiple_of(PAGE_WORDS) - self.word_count
    }
}

impl FillRange {
    /// Returns the page padding after `part` in the payload at `payload`, if there is any.
    ///
    /// ```
    /// use kvtide_kernels::abi::{FillRange, PartDescriptor};
    ///
    /// let part = PartDescriptor { first_word: 256, word_count: 255 };
    /// let range = FillRange::padding_after(0x10_0000, &part).expect("one word of padding");
    /// assert_eq!((range.address, range.word_count), (0x10_0000 + 8192 - 16, 1));
    /// ```
    pub const fn padding_after(payload: u64, part: &PartDescriptor) -> Option<Self> {
        let word_count = part.padding_words();
        if word_count == 0 {
            return None;
        }
        let end = part.first_word as u64 + part.word_count as u64;
        Some(Self {
            address: payload.wrapping_add(end * WORD_BYTES as u64),
            word_count,
            reserved: 0,
        })
    }
}

impl CopyPair {
    /// Reads a pair as one little-endian `u64`, as a kernel loads it.
    pub(crate) const fn from_bits(bits: u64) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "the low half is the source")]
        Self { source: bits as u32, target: (bits >> 32) as u32 }
    }
}

const _: () = assert!(size_of::<PlaneDescriptor>() == 24 && align_of::<PlaneDescriptor>() == 8);
const _: () = assert!(offset_of!(PlaneDescriptor, base_address) == 0);
const _: () = assert!(offset_of!(PlaneDescriptor, block_stride) == 8);
const _: () = assert!(offset_of!(PlaneDescriptor, part) == 16);
const _: () = assert!(offset_of!(PlaneDescriptor, words_before) == 20);

const _: () = assert!(size_of::<PartDescriptor>() == 8 && align_of::<PartDescriptor>() == 4);
const _: () = assert!(offset_of!(PartDescriptor, first_word) == 0);
const _: () = assert!(offset_of!(PartDescriptor, word_count) == 4);

const _: () = assert!(size_of::<ChunkDescriptor>() == 72 && align_of::<ChunkDescriptor>() == 8);
const _: () = assert!(offset_of!(ChunkDescriptor, payload) == 0);
const _: () = assert!(offset_of!(ChunkDescriptor, block_ids) == 8);
const _: () = assert!(offset_of!(ChunkDescriptor, parts) == 16);
const _: () = assert!(offset_of!(ChunkDescriptor, sums) == 24);
const _: () = assert!(offset_of!(ChunkDescriptor, verdicts) == 32);
const _: () = assert!(offset_of!(ChunkDescriptor, stored_sums) == 40);
const _: () = assert!(offset_of!(ChunkDescriptor, good_parts) == 48);
const _: () = assert!(offset_of!(ChunkDescriptor, key_low) == 56);
const _: () = assert!(offset_of!(ChunkDescriptor, block_count) == 64);
const _: () = assert!(offset_of!(ChunkDescriptor, part_count) == 68);

const _: () = assert!(size_of::<CopyPair>() == 8 && align_of::<CopyPair>() == 8);
const _: () = assert!(offset_of!(CopyPair, source) == 0);
const _: () = assert!(offset_of!(CopyPair, target) == 4);

const _: () = assert!(size_of::<FillRange>() == 16 && align_of::<FillRange>() == 8);
const _: () = assert!(offset_of!(FillRange, address) == 0);
const _: () = assert!(offset_of!(FillRange, word_count) == 8);
