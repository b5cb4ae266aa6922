//! Why a launch is refused before it reaches a device.
//!
//! Every variant names the field, the descriptor it is in where there is one, and the value.
//! Returned by the constructors of the kernels' arguments.

use core::error::Error;
use core::fmt;

/// A launch that no kernel could honour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LaunchError {
    /// A field that must hold something is zero.
    Zero {
        /// The field.
        field: LaunchField,
    },
    /// A field, or a product that the launch counts by, is above its limit.
    TooLarge {
        /// The field.
        field: LaunchField,
        /// Its value; `u64::MAX` for a product beyond that.
        value: u64,
        /// The largest value taken.
        limit: u64,
    },
    /// An address or size that the kernels cannot touch.
    Misaligned {
        /// The field.
        field: LaunchField,
        /// Its value.
        value: u64,
        /// What it must be a multiple of, in bytes.
        align: u64,
    },
}

impl fmt::Display for LaunchError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zero { field } => write!(formatter, "{field} is 0; state at least 1"),
            Self::TooLarge { field, value, limit } => {
                write!(
                    formatter,
                    "{field} is {value}; the limit is {limit}, so {}",
                    field.way_down()
                )
            }
            Self::Misaligned { field, value, align } => {
                write!(formatter, "{field} is {value:#x}; make it a multiple of {align} bytes")
            }
        }
    }
}

impl Error for LaunchError {}

/// A field of a launch; those of descriptors carry the descriptor's index in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LaunchField {
    /// Device address of a table of descriptors.
    TableAddress,
    /// Planes of the launch.
    PlaneCount,
    /// Chunks of the launch.
    ChunkCount,
    /// Source and target pairs of the launch.
    PairCount,
    /// Ranges of the launch.
    RangeCount,
    /// Parts of the launch.
    PartCount,
    /// One past the launch's last part.
    PartEnd,
    /// Words of the launch's longest part.
    PartWords,
    /// Bytes of one fragment.
    FragmentBytes,
    /// Words of one plane of the launch: those of a fragment times the blocks.
    PlaneWords,
    /// Work items of the launch, one warp each.
    SpanCount,
    /// Device address of block 0's fragment in a plane.
    BaseAddress {
        /// Index of the plane.
        plane: usize,
    },
    /// Bytes from one block's fragment to the next in a plane.
    BlockStride {
        /// Index of the plane.
        plane: usize,
    },
    /// Part that a plane belongs to.
    PlanePart {
        /// Index of the plane.
        plane: usize,
    },
    /// Blocks of a chunk.
    BlockCount {
        /// Index of the chunk.
        chunk: usize,
    },
    /// Parts of a chunk.
    ChunkPartCount {
        /// Index of the chunk.
        chunk: usize,
    },
    /// Device address of a chunk's payload.
    Payload {
        /// Index of the chunk.
        chunk: usize,
    },
    /// Device address of a chunk's block ids.
    BlockIds {
        /// Index of the chunk.
        chunk: usize,
    },
    /// Device address of a chunk's part descriptors.
    Parts {
        /// Index of the chunk.
        chunk: usize,
    },
    /// Device address of a chunk's sums.
    Sums {
        /// Index of the chunk.
        chunk: usize,
    },
    /// Device address of a chunk's verdict words.
    Verdicts {
        /// Index of the chunk.
        chunk: usize,
    },
    /// Device address of a chunk's stored sums.
    StoredSums {
        /// Index of the chunk.
        chunk: usize,
    },
    /// Device address of a chunk's count of good parts.
    GoodParts {
        /// Index of the chunk.
        chunk: usize,
    },
    /// Block that a pair copies from.
    SourceBlock {
        /// Index of the pair.
        pair: usize,
    },
    /// Block that a pair copies to.
    TargetBlock {
        /// Index of the pair.
        pair: usize,
    },
    /// Device address of a range.
    RangeAddress {
        /// Index of the range.
        range: usize,
    },
    /// Words of a range.
    RangeWords {
        /// Index of the range.
        range: usize,
    },
}

impl LaunchField {
    /// What to do when the field is above its limit.
    fn way_down(self) -> &'static str {
        match self {
            Self::BlockCount { .. }
            | Self::PlaneWords
            | Self::RangeWords { .. }
            | Self::PartWords => "use smaller chunks or split the range",
            Self::PlanePart { .. } | Self::PartEnd => {
                "name parts that every chunk of the launch has"
            }
            Self::ChunkPartCount { .. } => "put more planes into a part",
            Self::SourceBlock { .. } | Self::TargetBlock { .. } => {
                "name a block; the reserved id is none"
            }
            _ => "split the launch",
        }
    }
}

impl fmt::Display for LaunchField {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TableAddress => formatter.write_str("device address of a descriptor table"),
            Self::PlaneCount => formatter.write_str("plane count"),
            Self::ChunkCount => formatter.write_str("chunk count"),
            Self::PairCount => formatter.write_str("pair count"),
            Self::RangeCount => formatter.write_str("range count"),
            Self::PartCount => formatter.write_str("part count"),
            Self::PartEnd => formatter.write_str("end of the part range"),
            Self::PartWords => formatter.write_str("words of the longest part"),
            Self::FragmentBytes => formatter.write_str("fragment bytes"),
            Self::PlaneWords => formatter.write_str("words of one plane"),
            Self::SpanCount => formatter.write_str("span count"),
            Self::BaseAddress { plane } => write!(formatter, "base_address of plane {plane}"),
            Self::BlockStride { plane } => write!(formatter, "block_stride of plane {plane}"),
            Self::PlanePart { plane } => write!(formatter, "part of plane {plane}"),
            Self::BlockCount { chunk } => write!(formatter, "block_count of chunk {chunk}"),
            Self::ChunkPartCount { chunk } => write!(formatter, "part_count of chunk {chunk}"),
            Self::Payload { chunk } => write!(formatter, "payload of chunk {chunk}"),
            Self::BlockIds { chunk } => write!(formatter, "block_ids of chunk {chunk}"),
            Self::Parts { chunk } => write!(formatter, "parts of chunk {chunk}"),
            Self::Sums { chunk } => write!(formatter, "sums of chunk {chunk}"),
            Self::Verdicts { chunk } => write!(formatter, "verdicts of chunk {chunk}"),
            Self::StoredSums { chunk } => write!(formatter, "stored_sums of chunk {chunk}"),
            Self::GoodParts { chunk } => write!(formatter, "good_parts of chunk {chunk}"),
            Self::SourceBlock { pair } => write!(formatter, "source of pair {pair}"),
            Self::TargetBlock { pair } => write!(formatter, "target of pair {pair}"),
            Self::RangeAddress { range } => write!(formatter, "address of range {range}"),
            Self::RangeWords { range } => write!(formatter, "word_count of range {range}"),
        }
    }
}
