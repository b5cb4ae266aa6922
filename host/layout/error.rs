//! Why a layout is refused.
//!
//! Every variant names the group, the plane where there is one, the field and the value. Returned
//! by [`LayoutBuilder::build`](super::LayoutBuilder::build) and by the checks of a built layout.

use super::plane::PlaneName;
use crate::units::{BlockCount, BlockId, ByteCount, GroupIndex};
use std::fmt;

/// A layout, or a question to one, that cannot be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// A layout has 1 to [`GROUP_COUNT_MAX`](super::GROUP_COUNT_MAX) groups.
    #[error("group count is {group_count}; state 1 to {max} groups", max = super::GROUP_COUNT_MAX)]
    GroupCount {
        /// Groups that the builder was given.
        group_count: usize,
    },
    /// A rank is not one of its ranks; no ranks at all included.
    #[error("{field} is {rank} of {ranks}; ranks count from 0 and there is at least 1")]
    RankOutOfRange {
        /// [`LayoutField::TensorRank`] or [`LayoutField::PipelineRank`].
        field: LayoutField,
        /// This rank.
        rank: u32,
        /// Ranks along that axis.
        ranks: u32,
    },
    /// A group without planes holds no KV.
    #[error("{}: has no planes; add at least one", Place::of_group(*.group))]
    NoPlanes {
        /// The group.
        group: GroupIndex,
    },
    /// A field that must hold something is zero or empty.
    #[error("{place}: {field} is zero or empty; state it")]
    Zero {
        /// Where.
        place: Place,
        /// The field.
        field: LayoutField,
    },
    /// A field is above its limit.
    #[error("{place}: {field} is {value}; the limit is {limit}, so {}", .field.way_down())]
    TooLarge {
        /// Where.
        place: Place,
        /// The field.
        field: LayoutField,
        /// Its value.
        value: u64,
        /// The largest value taken.
        limit: u64,
    },
    /// An address or size that the 4-byte copy path cannot touch.
    #[error(
        "{place}: {field} is {value}; make it a multiple of {align} bytes",
        align = super::ENGINE_ALIGN_BYTES
    )]
    Misaligned {
        /// Where.
        place: Place,
        /// The field.
        field: LayoutField,
        /// Its value.
        value: u64,
    },
    /// Fragments of one plane would overlap each other.
    #[error(
        "{place}: block_stride is {block_stride_bytes}, below fragment {fragment_bytes}; \
         a block's fragment must end before the next block's begins",
        block_stride_bytes = .block_stride.get(),
        fragment_bytes = .fragment.get()
    )]
    StrideBelowFragment {
        /// Where.
        place: Place,
        /// Distance between two blocks' fragments.
        block_stride: ByteCount,
        /// Bytes of one fragment.
        fragment: ByteCount,
    },
    /// The last block's fragment would end past 2^64.
    #[error(
        "{place}: base_address {base_address:#x} plus {block_count} blocks of stride {} passes \
         2^64; check all three",
        .block_stride.get()
    )]
    AddressOverflow {
        /// Where.
        place: Place,
        /// Address of block 0's fragment.
        base_address: u64,
        /// Distance between two blocks' fragments.
        block_stride: ByteCount,
        /// Blocks of the group.
        block_count: BlockCount,
    },
    /// Two planes of a group hold the same thing.
    #[error("{place}: stated twice; a layer holds each content once in a group")]
    DuplicatePlane {
        /// The plane.
        place: Place,
    },
    /// Two planes of a group share a byte, so that a load of one would overwrite the other.
    #[error("{place}: fragments overlap those of {other}; check base_address and block_stride")]
    PlanesOverlap {
        /// The plane at the lower address.
        place: Place,
        /// The plane that it runs into.
        other: PlaneName,
    },
    /// Two planes of a group interleave with unequal strides; only equal strides are compared
    /// fragment by fragment.
    #[error(
        "{place}: its address range meets that of {other}, but their block_stride differ ({} and \
         {}); planes that interleave must have one stride",
        .block_stride.get(),
        .other_stride.get()
    )]
    StridesDiffer {
        /// The plane at the lower address.
        place: Place,
        /// The plane whose range it meets.
        other: PlaneName,
        /// Stride of the plane at the lower address.
        block_stride: ByteCount,
        /// Stride of the other plane.
        other_stride: ByteCount,
    },
    /// A block id outside its group's pool.
    #[error("{}: block_id is {block_id}; ids end at block_count {block_count}",
        Place::of_group(*.group))]
    BlockIdOutOfRange {
        /// The group.
        group: GroupIndex,
        /// The id.
        block_id: BlockId,
        /// Ids are below this.
        block_count: BlockCount,
    },
    /// A chunk of no blocks, or of more than its group packs together.
    #[error("{}: blocks is {blocks}; a chunk has 1 to blocks_per_chunk {blocks_per_chunk}",
        Place::of_group(*.group))]
    ChunkBlocks {
        /// The group.
        group: GroupIndex,
        /// Blocks asked for.
        blocks: BlockCount,
        /// The most there are.
        blocks_per_chunk: BlockCount,
    },
}

/// Where in a layout an error lies: a group, or one of its planes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The group, by its index.
    pub group: GroupIndex,
    /// The plane; `None` where the group itself is meant.
    pub plane: Option<PlaneName>,
}

impl Place {
    /// Names a whole group.
    pub(super) const fn of_group(group: GroupIndex) -> Self {
        Self { group, plane: None }
    }

    /// Names one plane of a group.
    pub(super) const fn of_plane(group: GroupIndex, plane: PlaneName) -> Self {
        Self { group, plane: Some(plane) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "group {}", self.group)?;
        match self.plane {
            Some(plane) => write!(formatter, ", {plane}"),
            None => Ok(()),
        }
    }
}

/// A field of a layout, as errors name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LayoutField {
    /// Tokens of one block.
    BlockTokens,
    /// Blocks of one whole chunk.
    BlocksPerChunk,
    /// Blocks of the group's pool.
    BlockCount,
    /// Tokens of one whole chunk.
    ChunkTokens,
    /// Tokens of a window group's window.
    WindowTokens,
    /// Name of an inner order that kvtide does not list.
    InnerOrder,
    /// Planes of the group.
    PlaneCount,
    /// Address of block 0's fragment.
    BaseAddress,
    /// Bytes from one block's fragment to the next.
    BlockStride,
    /// Bytes of one fragment.
    Fragment,
    /// Bytes of one whole chunk's slot: header page and payload.
    Slot,
    /// This rank of the tensor-parallel ranks.
    TensorRank,
    /// This rank of the pipeline-parallel ranks.
    PipelineRank,
}

impl LayoutField {
    /// Says how to come below the limit.
    const fn way_down(self) -> &'static str {
        match self {
            Self::Slot | Self::ChunkTokens => "lower blocks_per_chunk",
            Self::PlaneCount => "split the layers over several groups",
            _ => "lower it",
        }
    }
}

impl fmt::Display for LayoutField {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::BlockTokens => "block_tokens",
            Self::BlocksPerChunk => "blocks_per_chunk",
            Self::BlockCount => "block_count",
            Self::ChunkTokens => "chunk_tokens",
            Self::WindowTokens => "window tokens",
            Self::InnerOrder => "inner_order",
            Self::PlaneCount => "plane count",
            Self::BaseAddress => "base_address",
            Self::BlockStride => "block_stride",
            Self::Fragment => "fragment",
            Self::Slot => "slot bytes of a chunk",
            Self::TensorRank => "tensor_rank",
            Self::PipelineRank => "pipeline_rank",
        })
    }
}
