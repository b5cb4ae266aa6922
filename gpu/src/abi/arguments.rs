//! The kernels' arguments: built on the host, checked once, passed by value in a launch.
//!
//! Only the constructors in `launch.rs` make them, so a body takes what they say as given.

use super::WORD_BYTES;
use super::grid::SpanGrid;
use crate::divisor::Divisor;
use core::mem::offset_of;

/// What addresses, strides and fragments on the engine's side are all multiples of.
///
/// It decides which of two kernels a launch takes; the packed side is 16-byte aligned either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineAlign {
    /// 16 bytes: fragments move by 128-bit accesses ([`Aligned16`](crate::arch::Aligned16)).
    Sixteen,
    /// 4 bytes: fragments move by 32-bit accesses ([`Aligned4`](crate::arch::Aligned4)).
    Four,
}

impl EngineAlign {
    /// The least alignment that the kernels take, in bytes.
    #[cfg(not(target_arch = "nvptx64"))]
    pub(super) const LEAST_BYTES: u64 = 4;

    /// Returns the alignment in bytes.
    pub const fn bytes(self) -> u32 {
        match self {
            Self::Sixteen => WORD_BYTES,
            Self::Four => 4,
        }
    }

    /// Reads back what a constructor found.
    const fn from_bytes(bytes: u32) -> Self {
        if bytes == WORD_BYTES { Self::Sixteen } else { Self::Four }
    }
}

/// How a plane's words fall into fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Fragments {
    /// Words of one fragment, rounded up.
    pub(crate) words: u32,
    /// 32-bit quarters of one fragment.
    pub(crate) quarters: u32,
    /// Divides a plane's word index by `words`.
    pub(crate) by_words: Divisor,
}

/// What gather and scatter share: planes of one fragment size of several chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Transfer {
    /// Device address of the `PlaneDescriptor`s: the grid's columns.
    pub(crate) planes: u64,
    /// Device address of the `ChunkDescriptor`s: the grid's rows.
    pub(crate) chunks: u64,
    /// The spans of the launch.
    pub(crate) grid: SpanGrid,
    /// How the planes' words fall into fragments.
    pub(crate) fragments: Fragments,
    /// Alignment of the engine's side, in bytes: 16 or 4.
    pub(super) align_bytes: u32,
    /// Explicit padding; 0.
    pub(super) reserved: u32,
}

/// Arguments of [`gather`](crate::kernels::gather).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct GatherArguments(pub(crate) Transfer);

impl GatherArguments {
    /// Returns which of the two kernels takes the launch.
    pub const fn engine_align(&self) -> EngineAlign {
        EngineAlign::from_bytes(self.0.align_bytes)
    }

    /// Returns the spans of the launch.
    pub const fn grid(&self) -> &SpanGrid {
        &self.0.grid
    }
}

/// Arguments of [`scatter`](crate::kernels::scatter).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub struct ScatterArguments(pub(crate) Transfer);

impl ScatterArguments {
    /// Returns which of the two kernels takes the launch.
    pub const fn engine_align(&self) -> EngineAlign {
        EngineAlign::from_bytes(self.0.align_bytes)
    }

    /// Returns the spans of the launch.
    pub const fn grid(&self) -> &SpanGrid {
        &self.0.grid
    }
}

/// The parts of every chunk that a launch is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct PartRange {
    /// First of them.
    pub(crate) start: u32,
    /// One past the last of them.
    pub(crate) end: u32,
}

/// Arguments of [`checksum`](crate::kernels::checksum).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ChecksumArguments {
    /// Device address of the `ChunkDescriptor`s: the grid's rows.
    pub(crate) chunks: u64,
    /// The grid's columns.
    pub(crate) parts: PartRange,
    /// The spans of the launch.
    pub(crate) grid: SpanGrid,
}

impl ChecksumArguments {
    /// Returns the spans of the launch.
    pub const fn grid(&self) -> &SpanGrid {
        &self.grid
    }
}

/// Arguments of [`judge`](crate::kernels::judge).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct JudgeArguments {
    /// Device address of the `ChunkDescriptor`s: the grid's rows.
    pub(crate) chunks: u64,
    /// Cut into spans of one part a lane.
    pub(crate) parts: PartRange,
    /// The spans of the launch.
    pub(crate) grid: SpanGrid,
}

impl JudgeArguments {
    /// Returns the spans of the launch: each of 32 parts.
    pub const fn grid(&self) -> &SpanGrid {
        &self.grid
    }
}

/// Arguments of [`copy`](crate::kernels::copy).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct CopyArguments {
    /// Device address of the `PlaneDescriptor`s: the grid's columns.
    pub(crate) planes: u64,
    /// Device address of the `CopyPair`s.
    pub(crate) pairs: u64,
    /// The spans of the launch.
    pub(crate) grid: SpanGrid,
    /// How the planes' words fall into fragments.
    pub(crate) fragments: Fragments,
    /// Words to copy in each plane: those of a fragment times the pairs.
    pub(crate) plane_words: u32,
    /// Alignment of the engine's side, in bytes: 16 or 4.
    pub(super) align_bytes: u32,
}

impl CopyArguments {
    /// Returns which of the two kernels takes the launch.
    pub const fn engine_align(&self) -> EngineAlign {
        EngineAlign::from_bytes(self.align_bytes)
    }

    /// Returns the spans of the launch.
    pub const fn grid(&self) -> &SpanGrid {
        &self.grid
    }
}

/// Arguments of [`fill`](crate::kernels::fill).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct FillArguments {
    /// Device address of the `FillRange`s: the grid's rows.
    pub(crate) ranges: u64,
    /// Bytes 0 to 7 of the pattern.
    pub(crate) pattern_low: u64,
    /// Bytes 8 to 15 of the pattern.
    pub(crate) pattern_high: u64,
    /// The spans of the launch.
    pub(crate) grid: SpanGrid,
}

impl FillArguments {
    /// Returns the spans of the launch.
    pub const fn grid(&self) -> &SpanGrid {
        &self.grid
    }
}

const _: () = assert!(size_of::<Fragments>() == 16 && align_of::<Fragments>() == 4);
const _: () = assert!(offset_of!(Fragments, quarters) == 4);
const _: () = assert!(offset_of!(Fragments, by_words) == 8);

const _: () = assert!(size_of::<Transfer>() == 72 && align_of::<Transfer>() == 8);
const _: () = assert!(size_of::<GatherArguments>() == 72 && size_of::<ScatterArguments>() == 72);
const _: () = assert!(offset_of!(Transfer, chunks) == 8);
const _: () = assert!(offset_of!(Transfer, grid) == 16);
const _: () = assert!(offset_of!(Transfer, fragments) == 48);
const _: () = assert!(offset_of!(Transfer, align_bytes) == 64);

const _: () = assert!(size_of::<ChecksumArguments>() == 48);
const _: () = assert!(offset_of!(ChecksumArguments, parts) == 8);
const _: () = assert!(offset_of!(ChecksumArguments, grid) == 16);

const _: () = assert!(size_of::<JudgeArguments>() == 48);
const _: () = assert!(offset_of!(JudgeArguments, parts) == 8);
const _: () = assert!(offset_of!(JudgeArguments, grid) == 16);

const _: () = assert!(size_of::<CopyArguments>() == 72);
const _: () = assert!(offset_of!(CopyArguments, pairs) == 8);
const _: () = assert!(offset_of!(CopyArguments, grid) == 16);
const _: () = assert!(offset_of!(CopyArguments, fragments) == 48);
const _: () = assert!(offset_of!(CopyArguments, plane_words) == 64);
const _: () = assert!(offset_of!(CopyArguments, align_bytes) == 68);

const _: () = assert!(size_of::<FillArguments>() == 56);
const _: () = assert!(offset_of!(FillArguments, pattern_low) == 8);
const _: () = assert!(offset_of!(FillArguments, pattern_high) == 16);
const _: () = assert!(offset_of!(FillArguments, grid) == 24);
