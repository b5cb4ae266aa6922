//! The superblock: what a store is, how far it came, and whether it was closed.
//!
//! Two copies, a page each, one after the other in the file `superblock`. Which of them counts and
//! in which order they are written is `store/superblock.rs`'s matter.

use super::header::check_uuid;
use super::places::{self, FLAGS, Place, SUM};
use super::{FormatError, FormatField, PAGE_BYTES, Page, Structure, codec, group, narrow, within};
use crate::fingerprint::StoreId;
use crate::store::{ChunkShape, Epoch, Generation, StoreUuid};
use crate::units::{BlockCount, TokenCount};
use kvtide_kernels::abi::PART_COUNT_MAX;

/// Bytes of the file `superblock`: two copies.
pub const SUPERBLOCK_BYTES: u64 = 2 * PAGE_BYTES as u64;

const MAGIC_BYTES: [u8; 8] = *b"kvtideSB";
const STRUCTURE: Structure = Structure::Superblock;

/// Flag: the store was closed, and its snapshot is of its epoch.
const CLEAN: u32 = 1;

const SEQUENCE: Place<8> = FLAGS.next();
const EPOCH: Place<8> = SEQUENCE.next();
const MIN_GENERATION: Place<8> = EPOCH.next();
const SLOT_BYTES: Place<8> = MIN_GENERATION.next();
const STORE_UUID: Place<16> = SLOT_BYTES.next();
const STORE_ID: Place<16> = STORE_UUID.next();
const SLOT_COUNT: Place<4> = STORE_ID.next();
const BLOCK_TOKENS: Place<4> = SLOT_COUNT.next();
const GROUP: Place<2> = BLOCK_TOKENS.next();
const CODEC: Place<2> = GROUP.next();
const BLOCKS_PER_CHUNK: Place<2> = CODEC.next();
const PART_COUNT: Place<2> = BLOCKS_PER_CHUNK.next();
const FIELDS_END: usize = PART_COUNT.end();
const PARTS_START: usize = 1024;
const PART_BYTES: usize = size_of::<u64>();

const _: () = assert!(SEQUENCE.offset() == 16 && EPOCH.offset() == 24);
const _: () = assert!(MIN_GENERATION.offset() == 32 && SLOT_BYTES.offset() == 40);
const _: () = assert!(STORE_UUID.offset() == 48 && STORE_ID.offset() == 64);
const _: () = assert!(SLOT_COUNT.offset() == 80 && BLOCK_TOKENS.offset() == 84);
const _: () = assert!(GROUP.offset() == 88 && CODEC.offset() == 90);
const _: () = assert!(BLOCKS_PER_CHUNK.offset() == 92 && PART_COUNT.offset() == 94);
const _: () = assert!(FIELDS_END <= PARTS_START);
const _: () = assert!(PARTS_START + PART_COUNT_MAX * PART_BYTES <= SUM.offset());

/// One copy of a store's superblock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Raised by every change; the copy with the higher one counts. At least 1.
    pub sequence: u64,
    /// The last run that was begun; 0 before the first.
    pub epoch: Epoch,
    /// Whether that run was closed, so that the snapshot of its epoch counts.
    pub is_clean: bool,
    /// Slots that were written before count no more.
    pub min_generation: Generation,
    /// Number of slots: at least 1.
    pub slot_count: u32,
    /// The directory's own name, since it was made.
    pub store_uuid: StoreUuid,
    /// What the directory holds.
    pub store_id: StoreId,
    /// What its slots look like.
    pub shape: ChunkShape,
}

impl Superblock {
    /// Encodes one copy.
    ///
    /// # Errors
    ///
    /// [`FormatError::Value`] for a value that a superblock cannot hold.
    pub fn encode(&self) -> Result<Page, FormatError> {
        self.validate()?;
        let blocks_per_chunk = narrow(self.shape.blocks_per_chunk().get());
        let mut page = [0; PAGE_BYTES];
        places::begin(&mut page, MAGIC_BYTES, if self.is_clean { CLEAN } else { 0 });
        SEQUENCE.write(&mut page, self.sequence.to_le_bytes());
        EPOCH.write(&mut page, u64::from(self.epoch.get()).to_le_bytes());
        MIN_GENERATION.write(&mut page, self.min_generation.get().to_le_bytes());
        SLOT_BYTES.write(&mut page, self.shape.slot().get().to_le_bytes());
        STORE_UUID.write(&mut page, self.store_uuid.to_bytes());
        STORE_ID.write(&mut page, self.store_id.to_bytes());
        SLOT_COUNT.write(&mut page, self.slot_count.to_le_bytes());
        BLOCK_TOKENS.write(&mut page, self.shape.block_tokens().get().to_le_bytes());
        GROUP.write(&mut page, u16::from(self.shape.group().get()).to_le_bytes());
        CODEC.write(&mut page, self.shape.codec().code().to_le_bytes());
        BLOCKS_PER_CHUNK.write(&mut page, blocks_per_chunk.to_le_bytes());
        PART_COUNT.write(&mut page, self.shape.part_count().to_le_bytes());
        let parts = page[PARTS_START..].as_chunks_mut::<PART_BYTES>().0;
        for (place, bytes) in parts.iter_mut().zip(self.shape.part_block_bytes()) {
            *place = bytes.to_le_bytes();
        }
        places::seal(&mut page);
        Ok(page)
    }

    /// Decodes and checks one copy.
    ///
    /// # Errors
    ///
    /// [`FormatError`]; the page's magic, sum, version, reserved bytes and ranges are checked in
    /// that order.
    pub fn decode(page: &Page) -> Result<Self, FormatError> {
        places::check(page, STRUCTURE, MAGIC_BYTES)?;
        let part_count = usize::from(PART_COUNT.u16(page));
        let parts_end = PARTS_START + part_count.min(PART_COUNT_MAX) * PART_BYTES;
        let reserved = [FIELDS_END..PARTS_START, parts_end..SUM.offset()];
        places::check_reserved(page, STRUCTURE, reserved)?;
        let flags = FLAGS.u32(page);
        if flags & !CLEAN != 0 {
            return Err(FormatError::Value { field: FormatField::Flags, value: flags.into() });
        }
        within(FormatField::PartCount, part_count as u64, 1..=PART_COUNT_MAX as u64)?;
        let parts = page[PARTS_START..parts_end].as_chunks::<PART_BYTES>().0;
        let shape = ChunkShape::new(
            group(GROUP.u16(page))?,
            codec(CODEC.u16(page))?,
            TokenCount::new(BLOCK_TOKENS.u32(page)),
            BlockCount::new(BLOCKS_PER_CHUNK.u16(page).into()),
            parts.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect(),
        )?;
        let slot_bytes = SLOT_BYTES.u64(page);
        within(FormatField::SlotBytes, slot_bytes, shape.slot().get()..=shape.slot().get())?;
        let superblock = Self {
            sequence: SEQUENCE.u64(page),
            epoch: epoch(EPOCH.u64(page))?,
            is_clean: flags & CLEAN != 0,
            min_generation: Generation::from_u64(MIN_GENERATION.u64(page)),
            slot_count: SLOT_COUNT.u32(page),
            store_uuid: StoreUuid::from_bytes(STORE_UUID.read(page)),
            store_id: StoreId::from_bytes(STORE_ID.read(page)),
            shape,
        };
        superblock.validate()?;
        Ok(superblock)
    }

    /// Checks every range that encoding and decoding share.
    fn validate(&self) -> Result<(), FormatError> {
        within(FormatField::Sequence, self.sequence, 1..=u64::MAX)?;
        within(FormatField::SlotCount, self.slot_count.into(), 1..=u32::MAX.into())?;
        // A clear between runs raises it to the first generation of the next one.
        let next = self.epoch.next().unwrap_or(self.epoch);
        if self.min_generation.epoch() > next {
            let value = self.min_generation.get();
            return Err(FormatError::Value { field: FormatField::MinGeneration, value });
        }
        check_uuid(self.store_uuid)
    }
}

/// Checks that a run's number is one.
pub(super) fn epoch(number: u64) -> Result<Epoch, FormatError> {
    u32::try_from(number)
        .ok()
        .and_then(Epoch::new)
        .ok_or(FormatError::Value { field: FormatField::Epoch, value: number })
}
