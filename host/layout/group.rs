//! One KV group: how it pages tokens and where its planes lie.
//!
//! A built [`Group`] has passed every check, its planes are sorted by layer and content, and it
//! never changes. Built by [`LayoutBuilder`](super::LayoutBuilder); read by the packing map, the
//! fingerprint and the core.

use super::error::{LayoutError, LayoutField, Place};
use super::packing::Packing;
use super::plane::{ElementType, InnerOrder, Plane, check_disjoint};
use super::{PLANE_COUNT_MAX, Shard};
use crate::units::{BlockCount, BlockId, GroupIndex, TokenCount};

/// Which earlier tokens a group's layers attend to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Attention {
    /// All of them.
    #[default]
    Full,
    /// The last `tokens` only.
    Window {
        /// Length of the window; at least 1.
        tokens: TokenCount,
    },
}

/// How a group cuts tokens into blocks and blocks into chunks.
///
/// Plain data that the engine states; checked when the layout is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Paging {
    /// Tokens of one block.
    pub block_tokens: TokenCount,
    /// Blocks packed into one chunk: 1 to 65,535.
    pub blocks_per_chunk: BlockCount,
    /// Blocks of the engine's pool for this group: its ids are below this.
    pub block_count: BlockCount,
    /// Which earlier tokens the group's layers attend to.
    pub attention: Attention,
}

/// Collects what a group states; [`LayoutBuilder::build`](super::LayoutBuilder::build) checks it.
///
/// The [constructors for known caches](super::engines) return one; an engine with a cache of its
/// own adds the planes itself:
///
/// ```
/// use kvtide::layout::{
///     Attention, ElementType, GroupBuilder, InnerOrder, Layout, Paging, Plane, PlaneContent,
/// };
/// use kvtide::units::{BlockCount, ByteCount, TokenCount};
///
/// let paging = Paging {
///     block_tokens: TokenCount::new(16),
///     blocks_per_chunk: BlockCount::new(16),
///     block_count: BlockCount::new(1024),
///     attention: Attention::Full,
/// };
/// // Pages of 2 MiB that hold 32 KiB of K and 32 KiB of V a layer, and room to spare.
/// let mut group = GroupBuilder::new(paging, ElementType::Bf16, InnerOrder::HeadsTokens);
/// for (content, offset) in [(PlaneContent::Key, 0), (PlaneContent::Value, 32 << 10)] {
///     for layer in 0..30_u32 {
///         group = group.plane(Plane {
///             layer,
///             content,
///             base_address: 0x7f00_0000_0000 + u64::from(layer) * (64 << 10) + offset,
///             block_stride: ByteCount::new(2 << 20),
///             fragment: ByteCount::new(32 << 10),
///         });
///     }
/// }
/// let layout = Layout::builder().group(group).build()?;
/// assert_eq!(layout.groups()[0].planes().len(), 60);
/// # Ok::<(), kvtide::layout::LayoutError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a group takes part in a layout only once it is given to the LayoutBuilder"]
pub struct GroupBuilder {
    paging: Paging,
    element_type: ElementType,
    inner_order: InnerOrder,
    planes: Vec<Plane>,
}

impl GroupBuilder {
    /// Starts a group without planes.
    pub const fn new(paging: Paging, element_type: ElementType, inner_order: InnerOrder) -> Self {
        Self { paging, element_type, inner_order, planes: Vec::new() }
    }

    /// Adds one plane; the order of the calls does not matter.
    pub fn plane(mut self, plane: Plane) -> Self {
        self.planes.push(plane);
        self
    }

    /// Replaces the inner order, such as NHD by HND.
    pub fn inner_order(mut self, inner_order: InnerOrder) -> Self {
        self.inner_order = inner_order;
        self
    }

    /// Checks everything and fixes the group's place in its layout.
    pub(super) fn build(mut self, index: GroupIndex, shard: Shard) -> Result<Group, LayoutError> {
        let chunk_tokens = check_paging(index, &self.paging)?;
        if matches!(&self.inner_order, InnerOrder::Other(name) if name.is_empty()) {
            return Err(LayoutError::Zero {
                place: Place::of_group(index),
                field: LayoutField::InnerOrder,
            });
        }
        self.planes.sort_by_key(Plane::name);
        check_planes(index, self.paging.block_count, &self.planes)?;
        let group = Group {
            index,
            shard,
            paging: self.paging,
            chunk_tokens,
            element_type: self.element_type,
            inner_order: self.inner_order,
            planes: self.planes,
        };
        Packing::new(&group, group.blocks_per_chunk())?;
        Ok(group)
    }
}

/// One checked KV group: layers that share block ids, block tokens, window and chunk size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    index: GroupIndex,
    shard: Shard,
    paging: Paging,
    chunk_tokens: TokenCount,
    element_type: ElementType,
    inner_order: InnerOrder,
    planes: Vec<Plane>,
}

impl Group {
    /// Returns the group's index in its layout.
    pub const fn index(&self) -> GroupIndex {
        self.index
    }

    /// Returns the shard of the layout that the group belongs to.
    pub const fn shard(&self) -> Shard {
        self.shard
    }

    /// Returns the tokens of one block.
    pub const fn block_tokens(&self) -> TokenCount {
        self.paging.block_tokens
    }

    /// Returns the blocks of one whole chunk: 1 to 65,535.
    pub const fn blocks_per_chunk(&self) -> BlockCount {
        self.paging.blocks_per_chunk
    }

    /// Returns the tokens of one whole chunk.
    pub const fn chunk_tokens(&self) -> TokenCount {
        self.chunk_tokens
    }

    /// Returns the blocks of the engine's pool; ids are below it.
    pub const fn block_count(&self) -> BlockCount {
        self.paging.block_count
    }

    /// Returns which earlier tokens the layers attend to.
    pub const fn attention(&self) -> Attention {
        self.paging.attention
    }

    /// Returns the type of the elements in every fragment.
    pub const fn element_type(&self) -> ElementType {
        self.element_type
    }

    /// Returns the order of the dimensions inside every fragment.
    pub const fn inner_order(&self) -> &InnerOrder {
        &self.inner_order
    }

    /// Returns the planes in the order of packing: by layer, then by content.
    pub fn planes(&self) -> &[Plane] {
        &self.planes
    }

    /// Checks that a block id names a block of this group; [`BlockId::SKIP`] does not.
    ///
    /// # Errors
    ///
    /// [`LayoutError::BlockIdOutOfRange`] at or above the block count.
    #[inline]
    pub const fn check_block_id(&self, block_id: BlockId) -> Result<(), LayoutError> {
        if block_id.get() < self.paging.block_count.get() {
            return Ok(());
        }
        Err(LayoutError::BlockIdOutOfRange {
            group: self.index,
            block_id,
            block_count: self.paging.block_count,
        })
    }
}

/// Checks a group's counts and returns the tokens of a whole chunk.
fn check_paging(index: GroupIndex, paging: &Paging) -> Result<TokenCount, LayoutError> {
    let place = Place::of_group(index);
    let block_tokens = u64::from(paging.block_tokens.get());
    let blocks_per_chunk = u64::from(paging.blocks_per_chunk.get());
    let block_count = u64::from(paging.block_count.get());
    // Every id is below the count, and one past the last id must not read as BlockId::SKIP.
    let block_count_max = u64::from(BlockId::SKIP.get() - 1);
    let window_tokens = match paging.attention {
        Attention::Full => None,
        Attention::Window { tokens } => Some(u64::from(tokens.get())),
    };
    let token_max = u64::from(u32::MAX);
    for (field, value, limit) in [
        (LayoutField::BlockTokens, block_tokens, token_max),
        (LayoutField::BlocksPerChunk, blocks_per_chunk, u64::from(u16::MAX)),
        (LayoutField::BlockCount, block_count, block_count_max),
        (LayoutField::ChunkTokens, block_tokens * blocks_per_chunk, token_max),
        (LayoutField::WindowTokens, window_tokens.unwrap_or(1), token_max),
    ] {
        if value == 0 {
            return Err(LayoutError::Zero { place, field });
        }
        if value > limit {
            return Err(LayoutError::TooLarge { place, field, value, limit });
        }
    }
    Ok(TokenCount::new(paging.block_tokens.get() * paging.blocks_per_chunk.get()))
}

/// Checks sorted planes one by one and against each other.
fn check_planes(
    index: GroupIndex,
    block_count: BlockCount,
    planes: &[Plane],
) -> Result<(), LayoutError> {
    if planes.is_empty() {
        return Err(LayoutError::NoPlanes { group: index });
    }
    if planes.len() > PLANE_COUNT_MAX {
        return Err(LayoutError::TooLarge {
            place: Place::of_group(index),
            field: LayoutField::PlaneCount,
            value: planes.len() as u64,
            limit: PLANE_COUNT_MAX as u64,
        });
    }
    for plane in planes {
        plane.check(index, block_count)?;
    }
    for pair in planes.windows(2) {
        if pair[0].name() == pair[1].name() {
            return Err(LayoutError::DuplicatePlane {
                place: Place::of_plane(index, pair[0].name()),
            });
        }
    }
    for (at, first) in planes.iter().enumerate() {
        for second in &planes[at + 1..] {
            check_disjoint(index, block_count, first, second)?;
        }
    }
    Ok(())
}
