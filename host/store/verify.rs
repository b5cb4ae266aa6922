//! Whether bytes that were read are those that were written: header against slot, key and store;
//! payload against the sums in its header.
//!
//! Pure functions. Called by the store for each read, by scans, scrubs and `kvtide check`.

use super::format::{FormatError, Header, PAGE_BYTES, Page};
use super::{ChunkShape, Epoch, Generation, StoreUuid};
use crate::key::Key;
use crate::units::{BlockCount, ByteCount, SlotIndex};
use kvtide_kernels::checksum::seal;
use thiserror::Error;

/// Why a slot does not hold what was looked for. Always a miss, never an error of the engine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ReadFault {
    /// Its first page is no header.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// It was written for another store.
    #[error("it is of store {found}")]
    StoreUuid {
        /// That store.
        found: StoreUuid,
    },
    /// It was written for another slot.
    #[error("it was written for slot {found}")]
    Slot {
        /// That slot.
        found: SlotIndex,
    },
    /// It holds another chunk.
    #[error("it holds chunk {found}")]
    Key {
        /// That chunk's key.
        found: Key,
    },
    /// It is of another write than the last one.
    #[error("it is of generation {found}, not {expected}")]
    Generation {
        /// The last write.
        expected: Generation,
        /// The write that it is of.
        found: Generation,
    },
    /// It was written before the store was cleared.
    #[error("it is of generation {found}, which was cleared")]
    Cleared {
        /// Its write.
        found: Generation,
    },
    /// It is of a run that was never begun.
    #[error("it is of run {found}, which was never begun")]
    Epoch {
        /// That run.
        found: Epoch,
    },
    /// Group, codec, blocks, parts or payload are not those of a chunk of this store.
    #[error("{blocks} blocks in {} payload bytes are no chunk of this store", .payload.get())]
    Shape {
        /// Its blocks.
        blocks: BlockCount,
        /// Bytes of its payload.
        payload: ByteCount,
    },
    /// The image ends before the chunk does.
    #[error("the image has {found} bytes of {expected}")]
    Length {
        /// Bytes of header page and payload.
        expected: u64,
        /// Bytes given.
        found: u64,
    },
    /// A part's bytes changed since they were packed.
    #[error("part {part} does not match its sum")]
    Part {
        /// The first such part.
        part: u16,
    },
}

/// What a slot must be to count.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'store> {
    /// The store.
    pub store_uuid: StoreUuid,
    /// What its slots look like.
    pub shape: &'store ChunkShape,
    /// The slot.
    pub slot: SlotIndex,
    /// The least generation that counts.
    pub min_generation: Generation,
    /// The last run.
    pub epoch: Epoch,
}

impl Expected<'_> {
    /// Decodes a header page and checks that it is one of this slot of this store.
    ///
    /// # Errors
    ///
    /// [`ReadFault`], but none of [`ReadFault::Length`] and [`ReadFault::Part`].
    pub fn header(&self, page: &Page) -> Result<Header, ReadFault> {
        let header = Header::decode(page)?;
        let Header { identity, stamp } = &header;
        if stamp.store_uuid != self.store_uuid {
            return Err(ReadFault::StoreUuid { found: stamp.store_uuid });
        }
        if stamp.slot != self.slot {
            return Err(ReadFault::Slot { found: stamp.slot });
        }
        let fits = identity.group == self.shape.group()
            && identity.codec == self.shape.codec()
            && identity.blocks <= self.shape.blocks_per_chunk()
            && identity.part_count == self.shape.part_count()
            && identity.payload == self.shape.payload(identity.blocks);
        if !fits {
            let (blocks, payload) = (identity.blocks, identity.payload);
            return Err(ReadFault::Shape { blocks, payload });
        }
        let found = stamp.generation;
        if found < self.min_generation {
            return Err(ReadFault::Cleared { found });
        }
        if found.epoch() > self.epoch {
            return Err(ReadFault::Epoch { found: found.epoch() });
        }
        Ok(header)
    }

    /// Verifies a whole slot's image: its header page, and every part against its sum.
    ///
    /// `image` may be longer than the chunk.
    ///
    /// # Errors
    ///
    /// [`ReadFault`].
    pub fn verify(&self, image: &[u8]) -> Result<Header, ReadFault> {
        let found = image.len() as u64;
        let Some((page, payload)) = image.split_first_chunk::<PAGE_BYTES>() else {
            return Err(ReadFault::Length { expected: PAGE_BYTES as u64, found });
        };
        let header = self.header(page)?;
        let identity = &header.identity;
        let length = identity.payload.get();
        if (payload.len() as u64) < length {
            return Err(ReadFault::Length { expected: PAGE_BYTES as u64 + length, found });
        }
        let sums = Header::part_sums(page, identity.part_count);
        for ((part, sum), place) in (0..).zip(sums).zip(self.shape.parts(identity.blocks)) {
            let (offset, summed) = place;
            let bytes = &payload[index(offset)..][..index(summed)];
            let found = super::format::part_sum(bytes, offset);
            if seal(found, identity.key.low_u64()) != sum {
                return Err(ReadFault::Part { part });
            }
        }
        Ok(header)
    }
}

/// Narrows a place inside an image.
fn index(bytes: ByteCount) -> usize {
    usize::try_from(bytes.get()).expect("a place inside a slice")
}
