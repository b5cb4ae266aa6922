//! The caches that engines really have, as groups.
//!
//! Each method states where K and V lie and returns a [`GroupBuilder`]; several may be combined
//! in one layout. Sizes that pass 2^64 saturate, and the build refuses them with the plane named.
//! Called by engine authors; shapes are those of vLLM (`vllm/v1/kv_cache_layout.py`),
//! `FlashInfer` (its paged KV cache) and `DeepSeek` (MLA). Shapes are written outermost first.
//!
//! A hybrid model has one group per block size or window. Groups may lie in one pool: their
//! block ids are apart, so their planes may share addresses.
//!
//! ```
//! use kvtide::layout::engines::{KeyValueCache, LayerBase};
//! use kvtide::layout::{Attention, ElementType, Layout, Paging};
//! use kvtide::units::{BlockCount, TokenCount};
//!
//! let full = KeyValueCache {
//!     paging: Paging {
//!         block_tokens: TokenCount::new(16),
//!         blocks_per_chunk: BlockCount::new(16),
//!         block_count: BlockCount::new(4096),
//!         attention: Attention::Full,
//!     },
//!     element_type: ElementType::Bf16,
//!     kv_heads: 8,
//!     head_dim: 128,
//! };
//! let window = KeyValueCache {
//!     paging: Paging {
//!         block_tokens: TokenCount::new(32),
//!         blocks_per_chunk: BlockCount::new(4),
//!         attention: Attention::Window { tokens: TokenCount::new(1024) },
//!         ..full.paging
//!     },
//!     kv_heads: 4,
//!     ..full
//! };
//! // One pool, two groups: layer 0 (full) and layer 1 (window) use the same pages.
//! let page = |layer| LayerBase { layer, base_address: 0x7f00_0000_0000 };
//! let layout = Layout::builder()
//!     .group(full.fused_in_blocks(&[page(0)]))
//!     .group(window.fused_in_blocks(&[page(1)]))
//!     .build()?;
//! assert_eq!(layout.groups()[0].chunk_tokens().get(), 256);
//! assert_eq!(layout.groups()[1].chunk_tokens().get(), 128);
//! # Ok::<(), kvtide::layout::LayoutError>(())
//! ```

use super::group::{GroupBuilder, Paging};
use super::plane::{ElementType, InnerOrder, Plane, PlaneContent};
use crate::units::ByteCount;

/// A layer and the device address where its cache starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerBase {
    /// Layer, by its number in the whole model.
    pub layer: u32,
    /// Device address of block 0.
    pub base_address: u64,
}

/// A layer whose K and V are tensors of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyValueBase {
    /// Layer, by its number in the whole model.
    pub layer: u32,
    /// Device address of block 0 of the keys.
    pub key_address: u64,
    /// Device address of block 0 of the values.
    pub value_address: u64,
}

/// A cache of keys and values per head: multi-head and grouped-query attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyValueCache {
    /// How tokens are paged.
    pub paging: Paging,
    /// Type of the elements.
    pub element_type: ElementType,
    /// KV heads of this shard.
    pub kv_heads: u32,
    /// Elements of one head's key, and of its value.
    pub head_dim: u32,
}

impl KeyValueCache {
    /// K and V in separate tensors, each `[blocks, tokens, heads, dim]`.
    ///
    /// ```
    /// use kvtide::layout::engines::{KeyValueBase, KeyValueCache};
    /// use kvtide::layout::{Attention, ElementType, Layout, Paging};
    /// use kvtide::units::{BlockCount, TokenCount};
    ///
    /// let cache = KeyValueCache {
    ///     paging: Paging {
    ///         block_tokens: TokenCount::new(16),
    ///         blocks_per_chunk: BlockCount::new(16),
    ///         block_count: BlockCount::new(1024),
    ///         attention: Attention::Full,
    ///     },
    ///     element_type: ElementType::Bf16,
    ///     kv_heads: 8,
    ///     head_dim: 128,
    /// };
    /// let layer = KeyValueBase {
    ///     layer: 0,
    ///     key_address: 0x10_0000_0000,
    ///     value_address: 0x20_0000_0000,
    /// };
    /// let layout = Layout::builder().group(cache.separate(&[layer])).build()?;
    /// assert_eq!(layout.groups()[0].planes()[1].fragment.get(), 16 * 8 * 128 * 2);
    /// # Ok::<(), kvtide::layout::LayoutError>(())
    /// ```
    pub fn separate(&self, layers: &[KeyValueBase]) -> GroupBuilder {
        let fragment = self.head_bytes();
        let planes = layers.iter().flat_map(|base| {
            [(PlaneContent::Key, base.key_address), (PlaneContent::Value, base.value_address)]
                .map(|(content, address)| dense_plane(base.layer, content, address, fragment))
        });
        self.group(InnerOrder::TokensHeads, planes)
    }

    /// K and V stacked in one tensor a layer, `[2, blocks, tokens, heads, dim]`, as in vLLM's
    /// `FlashAttention` cache.
    ///
    /// The values start behind `block_count` blocks of keys, so the count must be the tensor's
    /// own, blocks that the engine never hands out included.
    pub fn stacked(&self, layers: &[LayerBase]) -> GroupBuilder {
        let blocks = u64::from(self.paging.block_count.get());
        let values_offset = self.head_bytes().saturating_mul(blocks);
        let split: Vec<KeyValueBase> = layers
            .iter()
            .map(|base| KeyValueBase {
                layer: base.layer,
                key_address: base.base_address,
                value_address: base.base_address.saturating_add(values_offset),
            })
            .collect();
        self.separate(&split)
    }

    /// K and V side by side in each head's row, `[blocks, heads, tokens, 2 * dim]` a layer:
    /// vLLM's LBHNC.
    ///
    /// ```
    /// use kvtide::layout::engines::{KeyValueCache, LayerBase};
    /// use kvtide::layout::{Attention, ElementType, Layout, Paging};
    /// use kvtide::units::{BlockCount, TokenCount};
    ///
    /// let cache = KeyValueCache {
    ///     paging: Paging {
    ///         block_tokens: TokenCount::new(128),
    ///         blocks_per_chunk: BlockCount::new(2),
    ///         block_count: BlockCount::new(512),
    ///         attention: Attention::Full,
    ///     },
    ///     element_type: ElementType::Bf16,
    ///     kv_heads: 8,
    ///     head_dim: 128,
    /// };
    /// let layer = LayerBase { layer: 0, base_address: 0x10_0000_0000 };
    /// let layout = Layout::builder().group(cache.fused_in_heads(&[layer])).build()?;
    /// assert_eq!(layout.groups()[0].planes()[0].fragment.get(), 8 * 128 * 2 * 128 * 2);
    /// # Ok::<(), kvtide::layout::LayoutError>(())
    /// ```
    pub fn fused_in_heads(&self, layers: &[LayerBase]) -> GroupBuilder {
        self.fused(InnerOrder::HeadsTokensKv, layers)
    }

    /// K, then V in each block, `[blocks, 2, tokens, heads, dim]` a layer: `FlashInfer`'s NHD.
    ///
    /// For its HND, `[blocks, 2, heads, tokens, dim]`, replace the inner order by
    /// [`InnerOrder::KvHeadsTokens`].
    pub fn fused_in_blocks(&self, layers: &[LayerBase]) -> GroupBuilder {
        self.fused(InnerOrder::KvTokensHeads, layers)
    }

    /// All layers of a block contiguous, `[blocks, layers, heads, tokens, 2 * dim]`: vLLM's BLHNC.
    ///
    /// One plane, so one part and one event for all layers: loads cannot overlap with compute.
    pub fn cross_layer(&self, first: LayerBase, layer_count: u32) -> GroupBuilder {
        let fragment = self.head_bytes().saturating_mul(2).saturating_mul(u64::from(layer_count));
        let plane =
            dense_plane(first.layer, PlaneContent::CrossLayer, first.base_address, fragment);
        self.group(InnerOrder::LayersHeadsTokensKv, [plane])
    }

    /// One plane of both K and V a layer.
    fn fused(&self, inner_order: InnerOrder, layers: &[LayerBase]) -> GroupBuilder {
        let fragment = self.head_bytes().saturating_mul(2);
        let planes = layers.iter().map(|base| {
            dense_plane(base.layer, PlaneContent::KeyValue, base.base_address, fragment)
        });
        self.group(inner_order, planes)
    }

    /// Bytes of the keys, or of the values, of one block in one layer.
    fn head_bytes(&self) -> u64 {
        u64::from(self.paging.block_tokens.get())
            .saturating_mul(u64::from(self.kv_heads))
            .saturating_mul(u64::from(self.head_dim))
            .saturating_mul(self.element_type.bytes().get())
    }

    /// Gathers planes into a group.
    fn group(
        &self,
        inner_order: InnerOrder,
        planes: impl IntoIterator<Item = Plane>,
    ) -> GroupBuilder {
        let group = GroupBuilder::new(self.paging, self.element_type, inner_order);
        planes.into_iter().fold(group, GroupBuilder::plane)
    }
}

/// A cache of one latent row a token (MLA), `[blocks, tokens, row]` a layer.
///
/// Rows of `DeepSeek` models hold 576 elements: 1,152 bytes in bf16, 576 in FP8. With its scales
/// and unquantised part inline, an FP8 row has 656 bytes, of element type [`ElementType::U8`].
///
/// ```
/// use kvtide::layout::engines::{LatentCache, LayerBase};
/// use kvtide::layout::{Attention, ElementType, Layout, Paging};
/// use kvtide::units::{BlockCount, ByteCount, TokenCount};
///
/// let cache = LatentCache {
///     paging: Paging {
///         block_tokens: TokenCount::new(64),
///         blocks_per_chunk: BlockCount::new(4),
///         block_count: BlockCount::new(1024),
///         attention: Attention::Full,
///     },
///     element_type: ElementType::U8,
///     row: ByteCount::new(656),
/// };
/// let layer = LayerBase { layer: 0, base_address: 0x10_0000_0000 };
/// let layout = Layout::builder().group(cache.rows(&[layer])).build()?;
/// assert_eq!(layout.groups()[0].planes()[0].fragment.get(), 64 * 656);
/// # Ok::<(), kvtide::layout::LayoutError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatentCache {
    /// How tokens are paged.
    pub paging: Paging,
    /// Type of the elements.
    pub element_type: ElementType,
    /// Bytes of one token's row in one layer.
    pub row: ByteCount,
}

impl LatentCache {
    /// One plane of rows a layer.
    pub fn rows(&self, layers: &[LayerBase]) -> GroupBuilder {
        let fragment = self.row.get().saturating_mul(u64::from(self.paging.block_tokens.get()));
        let group = GroupBuilder::new(self.paging, self.element_type, InnerOrder::Latent);
        layers
            .iter()
            .map(|base| dense_plane(base.layer, PlaneContent::Latent, base.base_address, fragment))
            .fold(group, GroupBuilder::plane)
    }
}

/// A plane whose blocks follow each other without gaps.
const fn dense_plane(layer: u32, content: PlaneContent, base_address: u64, fragment: u64) -> Plane {
    Plane {
        layer,
        content,
        base_address,
        block_stride: ByteCount::new(fragment),
        fragment: ByteCount::new(fragment),
    }
}
