//! The packing map: where each fragment of a chunk lies in the chunk's payload.
//!
//! Plane-major: planes by layer and content, blocks in order inside a plane. Each fragment starts
//! at a multiple of 16 bytes, each part at a multiple of 4 KiB. A pure function of a group and a
//! block count; `docs/packing.md` states the rule and works examples. Called by the core (slot
//! sizes), the devices (descriptors) and the store (part reads).

use super::PLANE_COUNT_MAX;
use super::error::{LayoutError, LayoutField, Place};
use super::group::Group;
use super::plane::Plane;
use crate::units::{BlockCount, ByteCount};
use kvtide_kernels::abi::{
    FRAGMENT_ALIGN_BYTES, HEADER_PAGE_BYTES, PART_ALIGN_BYTES, PART_COUNT_MAX, PART_TARGET_BYTES,
};
use std::ops::{Range, RangeInclusive};

/// The most bytes a slot may have, header page and payload together: 1 GiB.
pub const SLOT_BYTES_MAX: u64 = 1 << 30;

// Why plain arithmetic suffices below: even if every fragment of a group's planes had the most
// bytes that a plane may state, a payload of the most blocks stays far below 2^63.
const _: () = assert!(
    (SLOT_BYTES_MAX as u128) * (PLANE_COUNT_MAX as u128) * (u16::MAX as u128) < 1_u128 << 63
);
const _: () = assert!(SLOT_BYTES_MAX.is_multiple_of(PART_ALIGN_BYTES));

/// A contiguous run of planes inside a payload: the unit of checksum, pipelining and events.
///
/// It holds whole layers, so that its event says that these layers are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    planes: Range<usize>,
    layers: RangeInclusive<u32>,
    offset: ByteCount,
    summed: ByteCount,
}

impl Part {
    /// Returns the planes, as a range of [`Group::planes`].
    pub fn planes(&self) -> Range<usize> {
        self.planes.clone()
    }

    /// Returns the first and last layer; layers of other groups may lie between them. A
    /// cross-layer plane counts as its first layer.
    pub fn layers(&self) -> RangeInclusive<u32> {
        self.layers.clone()
    }

    /// Returns where the part starts in the payload: a multiple of 4 KiB.
    pub const fn offset(&self) -> ByteCount {
        self.offset
    }

    /// Returns the bytes that its checksum covers: its fragments, each rounded up to 16.
    pub const fn summed(&self) -> ByteCount {
        self.summed
    }

    /// Returns the bytes up to the next part or the payload's end: a multiple of 4 KiB.
    pub const fn length(&self) -> ByteCount {
        ByteCount::new(self.summed.get().next_multiple_of(PART_ALIGN_BYTES))
    }
}

/// Where every fragment, plane and part of one chunk lies.
///
/// ```
/// use kvtide::layout::engines::{KeyValueCache, LayerBase};
/// use kvtide::layout::{Attention, ElementType, Layout, Packing, Paging};
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
/// let bases = [0x10_0000_0000, 0x20_0000_0000];
/// let layers = [0, 1].map(|layer| LayerBase { layer, base_address: bases[layer as usize] });
/// let layout = Layout::builder().group(cache.fused_in_heads(&layers)).build()?;
///
/// let packing = Packing::new(&layout.groups()[0], BlockCount::new(2))?;
/// assert_eq!(packing.parts().len(), 2);
/// assert_eq!(packing.fragment_offset(1, 1).get(), 3 * 512 * 1024);
/// assert_eq!(packing.slot().get(), 4096 + 4 * 512 * 1024);
/// # Ok::<(), kvtide::layout::LayoutError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packing {
    blocks: BlockCount,
    planes: Vec<PackedPlane>,
    parts: Vec<Part>,
    payload: ByteCount,
}

/// One plane's place in a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PackedPlane {
    offset: u64,
    fragment: u64,
    fragment_stride: u64,
}

impl Packing {
    /// Maps a chunk of `blocks` blocks.
    ///
    /// The split into parts is that of the whole chunk, so a tail chunk has the same layers in
    /// the same parts, and never more bytes.
    ///
    /// # Errors
    ///
    /// [`LayoutError::ChunkBlocks`] unless there are 1 to `blocks_per_chunk` blocks.
    pub fn new(group: &Group, blocks: BlockCount) -> Result<Self, LayoutError> {
        let blocks_per_chunk = group.blocks_per_chunk();
        if blocks.get() == 0 || blocks > blocks_per_chunk {
            return Err(LayoutError::ChunkBlocks {
                group: group.index(),
                blocks,
                blocks_per_chunk,
            });
        }
        let mut packing = Self {
            blocks,
            planes: Vec::with_capacity(group.planes().len()),
            parts: Vec::new(),
            payload: ByteCount::new(0),
        };
        for planes in split_into_parts(group.planes(), blocks_per_chunk) {
            packing.push_part(group.planes(), planes);
        }
        let slot = packing.slot().get();
        if slot > SLOT_BYTES_MAX {
            return Err(LayoutError::TooLarge {
                place: Place::of_group(group.index()),
                field: LayoutField::Slot,
                value: slot,
                limit: SLOT_BYTES_MAX,
            });
        }
        Ok(packing)
    }

    /// Appends one part at the payload's end.
    fn push_part(&mut self, planes: &[Plane], range: Range<usize>) {
        let members = &planes[range.clone()];
        let offset = self.payload;
        let mut end = offset.get();
        for plane in members {
            self.planes.push(PackedPlane {
                offset: end,
                fragment: plane.fragment.get(),
                fragment_stride: fragment_stride(plane),
            });
            end += plane_bytes(plane, self.blocks);
        }
        let part = Part {
            planes: range,
            layers: members[0].layer..=members[members.len() - 1].layer,
            offset,
            summed: ByteCount::new(end - offset.get()),
        };
        self.payload = ByteCount::new(offset.get() + part.length().get());
        self.parts.push(part);
    }

    /// Returns the blocks of the chunk.
    pub const fn blocks(&self) -> BlockCount {
        self.blocks
    }

    /// Returns the parts in order: 1 to 256; they tile the payload.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Returns where a plane starts in the payload: that of its block 0.
    ///
    /// # Panics
    ///
    /// If `plane` is not an index of [`Group::planes`].
    pub fn plane_offset(&self, plane: usize) -> ByteCount {
        ByteCount::new(self.planes[plane].offset)
    }

    /// Returns the bytes from one block's fragment to the next in a packed plane: the fragment
    /// rounded up to 16.
    ///
    /// # Panics
    ///
    /// If `plane` is not an index of [`Group::planes`].
    pub fn fragment_stride(&self, plane: usize) -> ByteCount {
        ByteCount::new(self.planes[plane].fragment_stride)
    }

    /// Returns where the fragment of the chunk's block number `block` starts in the payload.
    ///
    /// # Panics
    ///
    /// If `plane` is not an index of [`Group::planes`], or `block` not below
    /// [`Packing::blocks`].
    pub fn fragment_offset(&self, plane: usize, block: u32) -> ByteCount {
        assert!(block < self.blocks.get(), "block {block} of a chunk of {} blocks", self.blocks);
        let packed = self.planes[plane];
        ByteCount::new(packed.offset + u64::from(block) * packed.fragment_stride)
    }

    /// Returns the bytes of the payload, padding included: a multiple of 4 KiB.
    pub const fn payload(&self) -> ByteCount {
        self.payload
    }

    /// Returns the bytes of the payload that are zeros between fragments and after parts.
    pub fn padding(&self) -> ByteCount {
        let blocks = u64::from(self.blocks.get());
        let fragments: u64 = self.planes.iter().map(|plane| plane.fragment * blocks).sum();
        ByteCount::new(self.payload.get() - fragments)
    }

    /// Returns the bytes of the slot that the chunk fills: header page and payload.
    pub const fn slot(&self) -> ByteCount {
        ByteCount::new(HEADER_PAGE_BYTES + self.payload.get())
    }
}

/// Returns a plane's fragment rounded up to 16 bytes.
const fn fragment_stride(plane: &Plane) -> u64 {
    plane.fragment.get().next_multiple_of(FRAGMENT_ALIGN_BYTES)
}

/// Returns the packed bytes of `blocks` fragments of a plane.
fn plane_bytes(plane: &Plane, blocks: BlockCount) -> u64 {
    fragment_stride(plane) * u64::from(blocks.get())
}

/// Splits planes into parts of whole layers: a part ends with the layer that brings it to the
/// target or beyond; the last part holds the rest.
///
/// The target is 512 KiB, or the 256th of all bytes where that is more. At most 256 parts follow:
/// all parts but the last hold a 256th or more.
fn split_into_parts(planes: &[Plane], blocks: BlockCount) -> Vec<Range<usize>> {
    let bytes_of =
        |planes: &[Plane]| -> u64 { planes.iter().map(|plane| plane_bytes(plane, blocks)).sum() };
    let share = bytes_of(planes).div_ceil(PART_COUNT_MAX as u64);
    let target = share.max(PART_TARGET_BYTES);
    let mut parts = Vec::new();
    let (mut start, mut end, mut bytes) = (0, 0, 0);
    for layer in planes.chunk_by(|one, next| one.layer == next.layer) {
        end += layer.len();
        bytes += bytes_of(layer);
        if bytes >= target {
            parts.push(start..end);
            (start, bytes) = (end, 0);
        }
    }
    if start < end {
        parts.push(start..end);
    }
    parts
}
