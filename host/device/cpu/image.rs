//! Slot images: built out of an engine's blocks, and verified and written back to them.
//!
//! What a pack and an unpack do to bytes, without threads, queues or events. Every byte of an
//! image is written by its pack, padding as zeros: what an earlier chunk left in the piece never
//! reaches a slot.
//!
//! Called by the CPU device.
#![expect(unsafe_code, reason = "reads and writes the engine's blocks by address")]

#[cfg(test)]
mod tests;

use super::kernels::{Level, Sum};
use crate::device::{ChunkBlocks, DeviceError, HEADER_SUMS_OFFSET_BYTES, Misuse};
use crate::key::Key;
use crate::layout::{Group, Packing, Part};
use crate::mem::HEADER_BYTES;
use crate::units::{BlockCount, BlockId, ByteCount};
use kvtide_kernels::checksum::seal;
use std::borrow::Cow;
use std::ptr;
use std::slice;

/// Bytes of one summed word.
const WORD_BYTES: usize = size_of::<u64>();

/// Where the sealed sums begin in a header page.
#[expect(clippy::cast_possible_truncation, reason = "below 4,096")]
const SUMS_OFFSET: usize = HEADER_SUMS_OFFSET_BYTES as usize;

/// A header page.
pub(super) type Header = [u8; HEADER_BYTES];

/// One group's planes, as numbers of this machine, and how its chunks are packed.
#[derive(Debug)]
pub(super) struct GroupImages {
    group: Group,
    planes: Vec<PlaneBytes>,
    whole_chunk: Packing,
}

/// One plane's place in memory.
#[derive(Clone, Copy, Debug)]
struct PlaneBytes {
    base: usize,
    block_stride: usize,
    fragment: usize,
}

impl PlaneBytes {
    /// Returns the address of a block's fragment.
    fn fragment(self, block: BlockId) -> *mut u8 {
        ptr::with_exposed_provenance_mut(self.base + block.get() as usize * self.block_stride)
    }
}

impl GroupImages {
    /// Takes over a group whose planes lie in this machine's memory.
    ///
    /// # Errors
    ///
    /// [`DeviceError::PlaneOutside`] where an address is more than this machine has.
    pub(super) fn new(group: &Group) -> Result<Self, DeviceError> {
        let narrow = |bytes: u64| usize::try_from(bytes).ok();
        let planes = group.planes().iter().enumerate().map(|(index, plane)| {
            let (_, end) = plane_range(group, index);
            narrow(end)
                .and_then(|_| {
                    Some(PlaneBytes {
                        base: narrow(plane.base_address)?,
                        block_stride: narrow(plane.block_stride.get())?,
                        fragment: narrow(plane.fragment.get())?,
                    })
                })
                .ok_or_else(|| plane_outside(group, index))
        });
        let whole_chunk = Packing::new(group, group.blocks_per_chunk())
            .expect("a group is built only if its whole chunk can be packed");
        Ok(Self { planes: planes.collect::<Result<_, _>>()?, group: group.clone(), whole_chunk })
    }

    /// Returns the bytes of the largest image.
    pub(super) fn image_max(&self) -> ByteCount {
        self.whole_chunk.slot()
    }

    /// Checks that the blocks are those of a chunk of this group.
    pub(super) fn check(&self, chunk: &ChunkBlocks, may_skip: bool) -> Result<(), Misuse> {
        let blocks_per_chunk = self.group.blocks_per_chunk();
        let block_count = chunk.blocks.len();
        if block_count == 0 || block_count > blocks_per_chunk.get() as usize {
            return Err(Misuse::ChunkBlocks { block_count, blocks_per_chunk });
        }
        let is_good = |block: BlockId| {
            block < BlockId::new(self.group.block_count().get())
                || may_skip && block == BlockId::SKIP
        };
        match chunk.blocks.iter().find(|&&block| !is_good(block)) {
            Some(&block) => Err(Misuse::BlockId { block, block_count: self.group.block_count() }),
            None => Ok(()),
        }
    }

    /// Returns the packing of a chunk that passed [`GroupImages::check`].
    pub(super) fn packing(&self, chunk: &ChunkBlocks) -> Cow<'_, Packing> {
        let blocks = u32::try_from(chunk.blocks.len()).expect("checked when submitted");
        if blocks == self.group.blocks_per_chunk().get() {
            return Cow::Borrowed(&self.whole_chunk);
        }
        let tail = Packing::new(&self.group, BlockCount::new(blocks));
        Cow::Owned(tail.expect("a tail was checked to have 1 to blocks_per_chunk blocks"))
    }

    /// Builds the image of a checked chunk: its payload in `payload`, its header page as returned.
    ///
    /// # Safety
    ///
    /// Every fragment of the chunk's blocks is valid for reads, and nobody writes it meanwhile.
    pub(super) unsafe fn pack(
        &self,
        level: Level,
        chunk: &ChunkBlocks,
        packing: &Packing,
        payload: &mut [u8],
    ) -> Header {
        let mut header = [0; HEADER_BYTES];
        let sums = header[SUMS_OFFSET..].as_chunks_mut::<WORD_BYTES>().0;
        for (part, sealed) in packing.parts().iter().zip(sums) {
            let bytes = &mut payload[length(part.offset())..][..length(part.length())];
            // SAFETY: the caller answers for the fragments.
            let sum = unsafe { self.pack_part(level, chunk, part, bytes) };
            *sealed = seal(sum, chunk.key.low_u64()).to_le_bytes();
        }
        header
    }

    /// Gathers one part into its bytes of the payload and returns its sum.
    ///
    /// # Safety
    ///
    /// As of [`GroupImages::pack`].
    unsafe fn pack_part(
        &self,
        level: Level,
        chunk: &ChunkBlocks,
        part: &Part,
        bytes: &mut [u8],
    ) -> u64 {
        let (summed, padding) = bytes.split_at_mut(length(part.summed()));
        let fragments = part.planes().flat_map(|plane| {
            chunk.blocks.iter().map(move |&block| {
                // SAFETY: the caller answers for the fragments of checked blocks.
                unsafe { self.fragment(plane, block) }
            })
        });
        padding.fill(0);
        level.gather(Sum::Words, summed, part.offset().get() / WORD_BYTES as u64, fragments)
    }

    /// Writes the fragments of a checked chunk out of its payload.
    ///
    /// # Safety
    ///
    /// Every fragment of the chunk's blocks is valid for writes, and nobody else touches it
    /// meanwhile.
    pub(super) unsafe fn scatter(
        &self,
        level: Level,
        chunk: &ChunkBlocks,
        packing: &Packing,
        payload: &[u8],
    ) {
        level.scatter((0..self.planes.len()).flat_map(|plane| {
            let stride = length(packing.fragment_stride(plane));
            let packed = &payload[length(packing.plane_offset(plane))..];
            let blocks = chunk.blocks.iter().zip(packed.chunks_exact(stride));
            blocks.filter(|&(&block, _)| block != BlockId::SKIP).map(move |(&block, source)| {
                // SAFETY: the caller answers for the fragments of checked blocks.
                let target = unsafe { self.fragment_mut(plane, block) };
                (&source[..target.len()], target)
            })
        }));
    }

    /// Returns a block's fragment to read.
    ///
    /// # Safety
    ///
    /// The fragment is valid for reads, and nobody writes it while it is borrowed.
    unsafe fn fragment(&self, plane: usize, block: BlockId) -> &[u8] {
        let plane = self.planes[plane];
        // SAFETY: as of this function.
        unsafe { slice::from_raw_parts(plane.fragment(block), plane.fragment) }
    }

    /// Returns a block's fragment to write.
    ///
    /// # Safety
    ///
    /// The fragment is valid for writes, and nobody else touches it while it is borrowed.
    #[expect(clippy::mut_from_ref, reason = "the bytes are the engine's, not those of `self`")]
    unsafe fn fragment_mut(&self, plane: usize, block: BlockId) -> &mut [u8] {
        let plane = self.planes[plane];
        // SAFETY: as of this function.
        unsafe { slice::from_raw_parts_mut(plane.fragment(block), plane.fragment) }
    }
}

/// Whether every part of a payload matches its sum in the header page, sealed with the key.
pub(super) fn matches_sums(
    level: Level,
    key: Key,
    packing: &Packing,
    header: &Header,
    payload: &[u8],
) -> bool {
    let sums = header[SUMS_OFFSET..].as_chunks::<WORD_BYTES>().0;
    packing.parts().iter().zip(sums).all(|(part, sealed)| {
        let bytes = &payload[length(part.offset())..][..length(part.summed())];
        let sum = level.sum(bytes, part.offset().get() / WORD_BYTES as u64);
        seal(sum, key.low_u64()) == u64::from_le_bytes(*sealed)
    })
}

/// Returns a plane's first address and one past its last.
pub(super) fn plane_range(group: &Group, index: usize) -> (u64, u64) {
    let plane = &group.planes()[index];
    let strides = u64::from(group.block_count().get() - 1);
    let end = plane.base_address + strides * plane.block_stride.get() + plane.fragment.get();
    (plane.base_address, end)
}

/// Says that a plane is not where the device can reach it.
pub(super) fn plane_outside(group: &Group, index: usize) -> DeviceError {
    let (address, end) = plane_range(group, index);
    DeviceError::PlaneOutside { group: group.index(), plane: index, address, end }
}

/// Narrows a number of bytes that lie inside an image, which is at most 1 GiB.
fn length(bytes: ByteCount) -> usize {
    usize::try_from(bytes.get()).expect("an image is at most 1 GiB")
}
