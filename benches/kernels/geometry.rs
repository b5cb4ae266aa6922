//! One chunk of shuffled blocks, and the bytes that it should pack to.

use crate::support::{fill, shuffle};
use kvtide::layout::{
    Attention, ElementType, GroupBuilder, InnerOrder, Layout, Packing, Paging, Plane, PlaneContent,
};
use kvtide::units::{BlockCount, BlockId, ByteCount, TokenCount};

/// Planes of the layout: keys and values of four layers.
const PLANES: u32 = 8;

/// Bytes of the chunk in one plane, or a little less: 16 MiB in all, more than a cache holds.
const PLANE_BYTES: usize = 2 << 20;

/// A layout of dense planes with twice the blocks that the chunk has.
pub(crate) struct Geometry {
    /// Bytes of a fragment: a multiple of 16.
    pub(crate) fragment: usize,
    /// The chunk's blocks, in the order of its tokens.
    pub(crate) blocks: Vec<u32>,
    /// As many other blocks.
    pub(crate) others: Vec<u32>,
    packing: Packing,
}

impl Geometry {
    /// Lays out a chunk of fragments of so many bytes.
    pub(crate) fn new(fragment: usize) -> Self {
        let count = u32::try_from(PLANE_BYTES / fragment).expect("few blocks");
        let mut blocks: Vec<u32> = (0..2 * count).collect();
        shuffle(&mut blocks);
        let others = blocks.split_off(count as usize);
        // Packing does not depend on where the engine's memory is.
        let layout = lay_out(fragment, count, 4096);
        let packing = Packing::new(&layout.groups()[0], BlockCount::new(count));
        Self { fragment, blocks, others, packing: packing.expect("a small chunk") }
    }

    /// Returns the layout of an engine whose memory starts at an address.
    pub(crate) fn layout_at(&self, address: u64) -> Layout {
        lay_out(self.fragment, self.block_count(), address)
    }

    /// Returns the packing of the whole chunk.
    pub(crate) const fn packing(&self) -> &Packing {
        &self.packing
    }

    /// Returns the chunk's blocks.
    pub(crate) fn block_count(&self) -> u32 {
        u32::try_from(self.blocks.len()).expect("few blocks")
    }

    /// Returns the chunk's blocks as a device takes them.
    pub(crate) fn block_ids(&self) -> Box<[BlockId]> {
        self.blocks.iter().copied().map(BlockId::new).collect()
    }

    /// Returns the bytes of the engine's memory.
    pub(crate) fn engine_bytes(&self) -> usize {
        PLANES as usize * self.plane_bytes()
    }

    /// Returns the bytes that a copy of the chunk moves: its fragments.
    pub(crate) fn copied_bytes(&self) -> u64 {
        (PLANES as usize * self.blocks.len() * self.fragment) as u64
    }

    /// Returns the payload's bytes, page padding included.
    pub(crate) fn payload_bytes(&self) -> usize {
        usize::try_from(self.packing.payload().get()).expect("a small chunk")
    }

    /// Returns an engine's memory full of noise.
    pub(crate) fn noise(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.engine_bytes()];
        fill(&mut bytes);
        bytes
    }

    /// Packs the chunk in the plainest way.
    pub(crate) fn pack(&self, engine: &[u8]) -> Vec<u8> {
        let mut payload = vec![0; self.payload_bytes()];
        self.for_each_fragment(|packed, block| {
            let source = &engine[block..][..self.fragment];
            payload[packed..][..self.fragment].copy_from_slice(source);
        });
        payload
    }

    /// Unpacks the chunk in the plainest way.
    pub(crate) fn unpack(&self, payload: &[u8], engine: &mut [u8]) {
        self.for_each_fragment(|packed, block| {
            let source = &payload[packed..][..self.fragment];
            engine[block..][..self.fragment].copy_from_slice(source);
        });
    }

    /// Copies the chunk's blocks to the others in the plainest way.
    pub(crate) fn copy(&self, engine: &mut [u8]) {
        for plane in engine.chunks_exact_mut(self.plane_bytes()) {
            for (source, target) in self.blocks.iter().zip(&self.others) {
                let [source, target] = [source, target].map(|id| *id as usize * self.fragment);
                plane.copy_within(source..source + self.fragment, target);
            }
        }
    }

    /// Returns each fragment's place in the payload.
    pub(crate) fn fragment_offsets(&self) -> impl Iterator<Item = u64> {
        let of_plane = move |plane| {
            let blocks = 0..self.block_count();
            blocks.map(move |number| self.packing.fragment_offset(plane, number).get())
        };
        (0..PLANES as usize).flat_map(of_plane)
    }

    /// Calls `visit` with each fragment's place in the payload and in the engine's memory.
    fn for_each_fragment(&self, mut visit: impl FnMut(usize, usize)) {
        for plane in 0..PLANES as usize {
            for (number, id) in (0..).zip(&self.blocks) {
                let packed = self.packing.fragment_offset(plane, number).get();
                let packed = usize::try_from(packed).expect("a small chunk");
                visit(packed, plane * self.plane_bytes() + *id as usize * self.fragment);
            }
        }
    }

    /// Returns the bytes of all blocks in one plane.
    fn plane_bytes(&self) -> usize {
        (self.blocks.len() + self.others.len()) * self.fragment
    }
}

/// Lays out dense planes one after the other.
fn lay_out(fragment: usize, blocks_per_chunk: u32, address: u64) -> Layout {
    let paging = Paging {
        block_tokens: TokenCount::new(16),
        blocks_per_chunk: BlockCount::new(blocks_per_chunk),
        block_count: BlockCount::new(2 * blocks_per_chunk),
        attention: Attention::Full,
    };
    let fragment = fragment as u64;
    let mut group = GroupBuilder::new(paging, ElementType::U8, InnerOrder::TokensHeads);
    for number in 0..PLANES {
        let content =
            if number.is_multiple_of(2) { PlaneContent::Key } else { PlaneContent::Value };
        let before = u64::from(number) * u64::from(2 * blocks_per_chunk) * fragment;
        group = group.plane(Plane {
            layer: number / 2,
            content,
            base_address: address + before,
            block_stride: ByteCount::new(fragment),
            fragment: ByteCount::new(fragment),
        });
    }
    Layout::builder().group(group).build().expect("a plain layout")
}
