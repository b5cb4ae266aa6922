//! The shape of a store's slots: where each part of a chunk lies, for chunks of any block count.
//!
//! What of a [`Packing`] is needed to verify a slot's image without the layout that it came from,
//! so that `kvtide check` works on a directory alone. Every plane's share of a part grows with the
//! blocks, so one number a part says it all: the bytes that one block has in it.
//!
//! Invariants: 1 to 256 parts; a whole chunk's slot is at most 1 GiB. Equal to the packing's parts
//! for every block count (tested).
//!
//! Called by the format (the superblock holds it), open and verification.

use crate::fingerprint::Codec;
use crate::layout::{Group, Packing, SLOT_BYTES_MAX};
use crate::store::format::{FormatError, FormatField};
use crate::units::{BlockCount, ByteCount, GroupIndex, TokenCount};
use kvtide_kernels::abi::{
    FRAGMENT_ALIGN_BYTES, HEADER_PAGE_BYTES, PART_ALIGN_BYTES, PART_COUNT_MAX,
};

/// The largest share of a block in a part, in bytes: what keeps every sum below within 64 bits.
const PART_BLOCK_BYTES_MAX: u64 = SLOT_BYTES_MAX;

/// What every slot of a store holds: chunks of one group, cut into these parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkShape {
    group: GroupIndex,
    codec: Codec,
    block_tokens: TokenCount,
    blocks_per_chunk: BlockCount,
    part_block_bytes: Box<[u64]>,
    slot: ByteCount,
}

impl ChunkShape {
    /// Derives the shape of a group's chunks.
    ///
    /// ```
    /// # use kvtide::fingerprint::Codec;
    /// # use kvtide::layout::engines::{LatentCache, LayerBase};
    /// # use kvtide::layout::{Attention, ElementType, Layout, Packing, Paging};
    /// # use kvtide::units::{BlockCount, ByteCount, TokenCount};
    /// use kvtide::store::ChunkShape;
    ///
    /// # let paging = Paging {
    /// #     block_tokens: TokenCount::new(64),
    /// #     blocks_per_chunk: BlockCount::new(4),
    /// #     block_count: BlockCount::new(100),
    /// #     attention: Attention::Full,
    /// # };
    /// # let row = ByteCount::new(1152);
    /// # let cache = LatentCache { paging, element_type: ElementType::Bf16, row };
    /// # let layers = [LayerBase { layer: 0, base_address: 4096 }];
    /// # let layout = Layout::builder().group(cache.rows(&layers)).build()?;
    /// let group = &layout.groups()[0];
    /// let shape = ChunkShape::of_group(group, Codec::Raw);
    /// assert_eq!(shape.slot(), Packing::new(group, group.blocks_per_chunk())?.slot());
    /// # Ok::<(), kvtide::layout::LayoutError>(())
    /// ```
    pub fn of_group(group: &Group, codec: Codec) -> Self {
        let blocks = group.blocks_per_chunk();
        let packing = whole_chunk(group);
        let block_bytes = |summed: u64| summed / u64::from(blocks.get());
        let parts = packing.parts().iter().map(|part| block_bytes(part.summed().get()));
        Self {
            group: group.index(),
            codec,
            block_tokens: group.block_tokens(),
            blocks_per_chunk: blocks,
            part_block_bytes: parts.collect(),
            slot: packing.slot(),
        }
    }

    /// Makes a shape out of its numbers.
    ///
    /// # Errors
    ///
    /// [`FormatError::Value`] with the first number that cannot be.
    pub(in crate::store) fn new(
        group: GroupIndex,
        codec: Codec,
        block_tokens: TokenCount,
        blocks_per_chunk: BlockCount,
        part_block_bytes: Box<[u64]>,
    ) -> Result<Self, FormatError> {
        let refuse = |field, value| Err(FormatError::Value { field, value });
        if block_tokens.get() == 0 {
            return refuse(FormatField::BlockTokens, 0);
        }
        if !(1..=u16::MAX.into()).contains(&blocks_per_chunk.get()) {
            return refuse(FormatField::BlocksPerChunk, blocks_per_chunk.get().into());
        }
        if !(1..=PART_COUNT_MAX).contains(&part_block_bytes.len()) {
            return refuse(FormatField::PartCount, part_block_bytes.len() as u64);
        }
        let is_wrong = |&&bytes: &&u64| {
            bytes == 0
                || !bytes.is_multiple_of(FRAGMENT_ALIGN_BYTES)
                || bytes > PART_BLOCK_BYTES_MAX
        };
        if let Some(&bytes) = part_block_bytes.iter().find(is_wrong) {
            return refuse(FormatField::PartBlockBytes, bytes);
        }
        let mut shape = Self {
            group,
            codec,
            block_tokens,
            blocks_per_chunk,
            part_block_bytes,
            slot: ByteCount::new(0),
        };
        // At most 256 parts of 65,535 times 1 GiB each: far below 2^63.
        let slot = HEADER_PAGE_BYTES + shape.payload(blocks_per_chunk).get();
        if slot > SLOT_BYTES_MAX {
            return refuse(FormatField::SlotBytes, slot);
        }
        shape.slot = ByteCount::new(slot);
        Ok(shape)
    }

    /// Returns the group whose chunks the store holds.
    pub const fn group(&self) -> GroupIndex {
        self.group
    }

    /// Returns how fragments are stored.
    pub const fn codec(&self) -> Codec {
        self.codec
    }

    /// Returns the tokens of one block.
    pub const fn block_tokens(&self) -> TokenCount {
        self.block_tokens
    }

    /// Returns the blocks of a whole chunk.
    pub const fn blocks_per_chunk(&self) -> BlockCount {
        self.blocks_per_chunk
    }

    /// Returns the bytes of every slot, header page included.
    pub const fn slot(&self) -> ByteCount {
        self.slot
    }

    /// Returns the parts of every chunk: 1 to 256.
    pub const fn part_count(&self) -> u16 {
        #[expect(clippy::cast_possible_truncation, reason = "at most 256 parts")]
        let part_count = self.part_block_bytes.len() as u16;
        part_count
    }

    /// Returns the bytes that one block has in each part, padding of fragments included.
    pub fn part_block_bytes(&self) -> &[u64] {
        &self.part_block_bytes
    }

    /// Returns each part of a chunk of `blocks` blocks: where it starts in the payload, and how
    /// many bytes its sum covers.
    pub fn parts(&self, blocks: BlockCount) -> impl Iterator<Item = (ByteCount, ByteCount)> + '_ {
        let mut end = 0;
        self.part_block_bytes.iter().map(move |block_bytes| {
            let (offset, summed) = (end, block_bytes * u64::from(blocks.get()));
            end = (offset + summed).next_multiple_of(PART_ALIGN_BYTES);
            (ByteCount::new(offset), ByteCount::new(summed))
        })
    }

    /// Returns the bytes of the payload of a chunk of `blocks` blocks, padding included.
    pub fn payload(&self, blocks: BlockCount) -> ByteCount {
        let lengths = self
            .part_block_bytes
            .iter()
            .map(|bytes| (bytes * u64::from(blocks.get())).next_multiple_of(PART_ALIGN_BYTES));
        ByteCount::new(lengths.sum())
    }
}

/// Packs a whole chunk of a group.
fn whole_chunk(group: &Group) -> Packing {
    Packing::new(group, group.blocks_per_chunk())
        .expect("a group is built only if its whole chunk can be packed")
}

#[cfg(test)]
mod tests {
    use super::ChunkShape;
    use crate::fingerprint::Codec;
    use crate::layout::engines::{LatentCache, LayerBase};
    use crate::layout::{Attention, ElementType, Layout, Packing, Paging};
    use crate::units::{BlockCount, ByteCount, TokenCount};

    #[test]
    fn parts_are_those_of_the_packing_for_every_block_count() {
        for (row, layer_count) in [(1152, 61), (132, 61), (132, 3), (65_536, 2), (576, 300)] {
            let paging = Paging {
                block_tokens: TokenCount::new(16),
                blocks_per_chunk: BlockCount::new(16),
                block_count: BlockCount::new(64),
                attention: Attention::Full,
            };
            let cache =
                LatentCache { paging, element_type: ElementType::U8, row: ByteCount::new(row) };
            let layers: Vec<_> = (0..layer_count)
                .map(|layer| LayerBase { layer, base_address: u64::from(layer + 1) << 32 })
                .collect();
            let layout = Layout::builder().group(cache.rows(&layers)).build().expect("a layout");
            let group = &layout.groups()[0];
            let shape = ChunkShape::of_group(group, Codec::Raw);
            for blocks in (1..=16).map(BlockCount::new) {
                let packing = Packing::new(group, blocks).expect("blocks of a chunk");
                let packed = packing.parts().iter().map(|part| (part.offset(), part.summed()));
                assert!(shape.parts(blocks).eq(packed), "row {row}, {blocks} blocks");
                assert_eq!(shape.payload(blocks), packing.payload());
            }
        }
    }
}
