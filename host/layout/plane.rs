//! Planes, and what the bytes of their fragments are.
//!
//! A plane is plain data until its group is built; a built group hands out only checked planes.
//! The texts that `Display` prints here for element types, inner orders and contents enter the
//! store id (see `digest.rs`), so they never change once released.

use super::ENGINE_ALIGN_BYTES;
use super::error::{LayoutError, LayoutField, Place};
use super::packing::SLOT_BYTES_MAX;
use crate::units::{BlockCount, ByteCount, GroupIndex};
use std::fmt;

/// Type of one element of a fragment, as the engine stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ElementType {
    /// bfloat16, 2 bytes.
    Bf16,
    /// IEEE half precision, 2 bytes.
    F16,
    /// IEEE single precision, 4 bytes.
    F32,
    /// 8-bit float with 4 exponent and 3 mantissa bits.
    F8E4m3,
    /// 8-bit float with 5 exponent and 2 mantissa bits.
    F8E5m2,
    /// Signed 8-bit integer.
    I8,
    /// Unsigned bytes: also rows of mixed content, such as FP8 latents with their scales inline.
    U8,
}

impl ElementType {
    /// Returns the bytes of one element.
    pub const fn bytes(self) -> ByteCount {
        ByteCount::new(match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
            Self::F8E4m3 | Self::F8E5m2 | Self::I8 | Self::U8 => 1,
        })
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::F32 => "f32",
            Self::F8E4m3 => "f8_e4m3",
            Self::F8E5m2 => "f8_e5m2",
            Self::I8 => "i8",
            Self::U8 => "u8",
        })
    }
}

/// Order of the dimensions inside a fragment, outermost first.
///
/// kvtide copies fragments whole and never looks inside; the order keeps bytes of one order from
/// being read as another, since both may have the same size. Letters in parentheses are vLLM's
/// names (`vllm/v1/kv_cache_layout.py`): L layers, B blocks, H heads, N tokens, C channels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InnerOrder {
    /// `[tokens, heads, dim]`, of K or V alone: NHD.
    TokensHeads,
    /// `[heads, tokens, dim]`, of K or V alone: HND.
    HeadsTokens,
    /// `[2, tokens, heads, dim]`: `FlashInfer`'s NHD page.
    KvTokensHeads,
    /// `[2, heads, tokens, dim]`: `FlashInfer`'s HND page.
    KvHeadsTokens,
    /// `[tokens, heads, 2 * dim]` (LBNHC).
    TokensHeadsKv,
    /// `[heads, tokens, 2 * dim]` (LBHNC).
    HeadsTokensKv,
    /// `[tokens, row]`: one latent row a token, shared by all heads.
    Latent,
    /// `[layers, tokens, heads, 2 * dim]` (BLNHC).
    LayersTokensHeadsKv,
    /// `[layers, heads, tokens, 2 * dim]` (BLHNC).
    LayersHeadsTokensKv,
    /// `[heads, layers, tokens, 2 * dim]` (BHLNC).
    HeadsLayersTokensKv,
    /// Any other order, by the engine's own name for it; bytes are shared only under one name.
    Other(Box<str>),
}

impl fmt::Display for InnerOrder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::TokensHeads => "tokens_heads",
            Self::HeadsTokens => "heads_tokens",
            Self::KvTokensHeads => "kv_tokens_heads",
            Self::KvHeadsTokens => "kv_heads_tokens",
            Self::TokensHeadsKv => "tokens_heads_kv",
            Self::HeadsTokensKv => "heads_tokens_kv",
            Self::Latent => "latent",
            Self::LayersTokensHeadsKv => "layers_tokens_heads_kv",
            Self::LayersHeadsTokensKv => "layers_heads_tokens_kv",
            Self::HeadsLayersTokensKv => "heads_layers_tokens_kv",
            Self::Other(name) => return write!(formatter, "other:{name}"),
        })
    }
}

/// What a plane holds of its layer. The order of the variants is the order of packing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum PlaneContent {
    /// Keys alone.
    Key,
    /// Values alone.
    Value,
    /// Keys and values in one fragment.
    KeyValue,
    /// Latent rows (MLA), from which keys and values are computed.
    Latent,
    /// All layers of the group in one fragment; the plane's layer is the first of them.
    CrossLayer,
    /// Anything else, told apart by the engine's own number: indexer keys, scales kept apart, or
    /// one head of a layer whose heads are arrays of their own.
    Other(u16),
}

impl fmt::Display for PlaneContent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Key => "key",
            Self::Value => "value",
            Self::KeyValue => "key_value",
            Self::Latent => "latent",
            Self::CrossLayer => "cross_layer",
            Self::Other(number) => return write!(formatter, "other:{number}"),
        })
    }
}

/// Name of a plane inside its group; planes are packed in the order of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlaneName {
    /// Layer, by its number in the whole model, whichever pipeline rank holds it.
    pub layer: u32,
    /// What the plane holds of it.
    pub content: PlaneContent,
}

impl fmt::Display for PlaneName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} of layer {}", self.content, self.layer)
    }
}

/// One strided device array that holds one fragment per block.
///
/// The fragment of block `b` lies at `base_address + b * block_stride`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plane {
    /// Layer, by its number in the whole model.
    pub layer: u32,
    /// What the fragments hold of it.
    pub content: PlaneContent,
    /// Device address of block 0's fragment.
    pub base_address: u64,
    /// Bytes from one block's fragment to the next block's.
    pub block_stride: ByteCount,
    /// Contiguous bytes of one block.
    pub fragment: ByteCount,
}

impl Plane {
    /// Returns the plane's name inside its group.
    pub const fn name(&self) -> PlaneName {
        PlaneName { layer: self.layer, content: self.content }
    }

    /// Returns one past the last byte of the last block; past 2^64 only in an unchecked plane.
    fn end_address(&self, block_count: BlockCount) -> u128 {
        let strides = u128::from(block_count.get().saturating_sub(1));
        u128::from(self.base_address)
            + strides * u128::from(self.block_stride.get())
            + u128::from(self.fragment.get())
    }

    /// Checks the plane by itself: sizes, alignment and addresses.
    pub(super) fn check(
        &self,
        group: GroupIndex,
        block_count: BlockCount,
    ) -> Result<(), LayoutError> {
        let place = Place::of_plane(group, self.name());
        for (field, value) in [
            (LayoutField::Fragment, self.fragment.get()),
            (LayoutField::BlockStride, self.block_stride.get()),
            (LayoutField::BaseAddress, self.base_address),
        ] {
            if value == 0 {
                return Err(LayoutError::Zero { place, field });
            }
            if field == LayoutField::Fragment && value > SLOT_BYTES_MAX {
                return Err(LayoutError::TooLarge { place, field, value, limit: SLOT_BYTES_MAX });
            }
            if !value.is_multiple_of(ENGINE_ALIGN_BYTES) {
                return Err(LayoutError::Misaligned { place, field, value });
            }
        }
        if self.block_stride < self.fragment {
            return Err(LayoutError::StrideBelowFragment {
                place,
                block_stride: self.block_stride,
                fragment: self.fragment,
            });
        }
        if self.end_address(block_count) > u128::from(u64::MAX) {
            return Err(LayoutError::AddressOverflow {
                place,
                base_address: self.base_address,
                block_stride: self.block_stride,
                block_count,
            });
        }
        Ok(())
    }
}

/// Checks that no fragment of `first` shares a byte with one of `second`, both checked alone.
///
/// Exact where the ranges are apart and where the strides are equal, as in K and V fused per
/// block. Interleaved planes of unequal strides are refused: no engine has them, and a refusal
/// cannot corrupt.
pub(super) fn check_disjoint(
    group: GroupIndex,
    block_count: BlockCount,
    first: &Plane,
    second: &Plane,
) -> Result<(), LayoutError> {
    let (low, high) =
        if first.base_address <= second.base_address { (first, second) } else { (second, first) };
    if low.end_address(block_count) <= u128::from(high.base_address) {
        return Ok(());
    }
    let place = Place::of_plane(group, low.name());
    let other = high.name();
    if low.block_stride != high.block_stride {
        return Err(LayoutError::StridesDiffer {
            place,
            other,
            block_stride: low.block_stride,
            other_stride: high.block_stride,
        });
    }
    // Some block of `low` starts `offset` before `high`'s block 0, and the block after it starts
    // `stride - offset` after; all other pairs of blocks repeat one of these two or lie further
    // apart. Both blocks of `low` exist where it matters: the ranges meet, so the first does, and
    // were it the last, meeting would mean that it runs into `high`.
    let stride = low.block_stride.get();
    let offset = (high.base_address - low.base_address) % stride;
    let runs_into_high = offset < low.fragment.get();
    let high_runs_into_next = stride - offset < high.fragment.get();
    if runs_into_high || high_runs_into_next {
        return Err(LayoutError::PlanesOverlap { place, other });
    }
    Ok(())
}
