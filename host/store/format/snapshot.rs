//! The index snapshot: what a store held when it was closed, in the order of recency.
//!
//! The file `index` is a header page, then pages of 63 entries of 64 bytes, each ending in 64 bytes
//! that say which snapshot and which page of it this is, and its sum: so a page that is torn, old
//! or misplaced is told from the right one. It has room for one entry a slot from the start.
//!
//! Besides the chunks that the store holds it lists the headers that *remain* in free slots, as the
//! store knows them: erasing must find those too. Of their keys and tenants only tags are left.
//!
//! A snapshot counts only if the superblock is clean and of its epoch.

use super::header::check_uuid;
use super::places::{self, FLAGS, Place, SUM};
use super::superblock::epoch;
use super::{FormatError, FormatField, PAGE_BYTES, Page, Structure, narrow, within};
use crate::key::Key;
use crate::store::{Entry, Epoch, Generation, StoreUuid};
use crate::units::{BlockCount, SlotIndex, TenantId};

/// Entries of one page.
pub const ENTRIES_PER_PAGE: usize = (PAGE_BYTES - TRAILER_BYTES) / ENTRY_BYTES;

/// Bytes of one entry.
const ENTRY_BYTES: usize = 64;

/// Bytes at the end of a page of entries.
const TRAILER_BYTES: usize = 64;

const HEADER_MAGIC: [u8; 8] = *b"kvtideIX";

const STORE_UUID: Place<16> = FLAGS.next();
const EPOCH: Place<8> = STORE_UUID.next();
const SLOT_COUNT: Place<4> = EPOCH.next();
const ENTRY_COUNT: Place<4> = SLOT_COUNT.next();
const HEADER_END: usize = ENTRY_COUNT.end();

const _: () = assert!(STORE_UUID.offset() == 16 && EPOCH.offset() == 32);
const _: () = assert!(SLOT_COUNT.offset() == 40 && ENTRY_COUNT.offset() == 44 && HEADER_END == 48);

const PAGE_STORE_UUID: Place<16> = Place::at(PAGE_BYTES - TRAILER_BYTES);
const PAGE_EPOCH: Place<8> = PAGE_STORE_UUID.next();
const PAGE_NUMBER: Place<8> = PAGE_EPOCH.next();

const _: () = assert!(ENTRIES_PER_PAGE == 63 && ENTRIES_PER_PAGE * ENTRY_BYTES == 4032);
const _: () = assert!(PAGE_EPOCH.offset() == 4048 && PAGE_NUMBER.offset() == 4056);

const KEY: Place<16> = Place::at(0);
const PARENT: Place<16> = KEY.next();
const GENERATION: Place<8> = PARENT.next();
const TENANT: Place<8> = GENERATION.next();
const SLOT: Place<4> = TENANT.next();
const DEPTH: Place<4> = SLOT.next();
const EXPIRES_S: Place<4> = DEPTH.next();
const BLOCKS: Place<2> = EXPIRES_S.next();
const ENTRY_FLAGS: Place<2> = BLOCKS.next();

const _: () = assert!(PARENT.offset() == 16 && GENERATION.offset() == 32 && TENANT.offset() == 40);
const _: () = assert!(SLOT.offset() == 48 && DEPTH.offset() == 52 && EXPIRES_S.offset() == 56);
const _: () = assert!(BLOCKS.offset() == 60 && ENTRY_FLAGS.offset() == 62);
const _: () = assert!(ENTRY_FLAGS.end() == ENTRY_BYTES);

/// Flag of an entry: the chunk follows another.
const HAS_PARENT: u16 = 1;
/// Flag of an entry: the slot is free, but a header remains in it.
const REMAINS: u16 = 2;
/// Flag of an entry: the slot is free, and nobody knows what its header page holds.
const UNKNOWN: u16 = 4;

/// Returns the bytes of the file `index` of a store of `slot_count` slots.
pub const fn index_bytes(slot_count: u32) -> u64 {
    (1 + snapshot_pages(slot_count) as u64) * PAGE_BYTES as u64
}

/// Returns the pages of `entry_count` entries, without the header page.
pub const fn snapshot_pages(entry_count: u32) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "63")]
    let entries_per_page = ENTRIES_PER_PAGE as u32;
    entry_count.div_ceil(entries_per_page)
}

/// The first page of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotHeader {
    /// The store.
    pub store_uuid: StoreUuid,
    /// The run that it was written at the end of; 0 for that of a new store, which is empty.
    pub epoch: Epoch,
    /// Slots of the store at that time: at least 1.
    pub slot_count: u32,
    /// Entries, in pages from the next on: at most the slots.
    pub entry_count: u32,
}

impl SnapshotHeader {
    /// Encodes the page.
    ///
    /// # Errors
    ///
    /// [`FormatError::Value`] for a value that it cannot hold.
    pub fn encode(&self) -> Result<Page, FormatError> {
        self.validate()?;
        let mut page = [0; PAGE_BYTES];
        places::begin(&mut page, HEADER_MAGIC, 0);
        STORE_UUID.write(&mut page, self.store_uuid.to_bytes());
        EPOCH.write(&mut page, u64::from(self.epoch.get()).to_le_bytes());
        SLOT_COUNT.write(&mut page, self.slot_count.to_le_bytes());
        ENTRY_COUNT.write(&mut page, self.entry_count.to_le_bytes());
        places::seal(&mut page);
        Ok(page)
    }

    /// Decodes and checks the page.
    ///
    /// # Errors
    ///
    /// [`FormatError`]; the page's magic, sum, version, reserved bytes and ranges are checked in
    /// that order.
    pub fn decode(page: &Page) -> Result<Self, FormatError> {
        let structure = Structure::SnapshotHeader;
        places::check(page, structure, HEADER_MAGIC)?;
        let reserved = HEADER_END..SUM.offset();
        places::check_reserved(page, structure, [reserved])?;
        within(FormatField::Flags, FLAGS.u32(page).into(), 0..=0)?;
        let header = Self {
            store_uuid: StoreUuid::from_bytes(STORE_UUID.read(page)),
            epoch: epoch(EPOCH.u64(page))?,
            slot_count: SLOT_COUNT.u32(page),
            entry_count: ENTRY_COUNT.u32(page),
        };
        header.validate()?;
        Ok(header)
    }

    /// Returns the entries of page `number`, which counts from 1.
    pub fn entries_of_page(&self, number: u32) -> usize {
        let before = (number.saturating_sub(1) as usize).saturating_mul(ENTRIES_PER_PAGE);
        (self.entry_count as usize).saturating_sub(before).min(ENTRIES_PER_PAGE)
    }

    fn validate(&self) -> Result<(), FormatError> {
        check_uuid(self.store_uuid)?;
        within(FormatField::SlotCount, self.slot_count.into(), 1..=u32::MAX.into())?;
        within(FormatField::EntryCount, self.entry_count.into(), 0..=self.slot_count.into())
    }
}

/// What a snapshot says of one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotEntry {
    /// It holds a chunk.
    Chunk(Entry),
    /// It is free, but a chunk's header remains in it.
    Remains {
        /// The slot.
        slot: SlotIndex,
        /// The write that put it there.
        generation: Generation,
        /// The low 32 bits of its key.
        key_tag: u32,
        /// Its tenant, folded to 32 bits.
        tenant_tag: u32,
    },
    /// It is free, and its header page may hold anything: a write of it failed.
    Unknown {
        /// The slot.
        slot: SlotIndex,
    },
}

impl SnapshotEntry {
    /// Returns the slot.
    pub const fn slot(&self) -> SlotIndex {
        match *self {
            Self::Chunk(Entry { slot, .. })
            | Self::Remains { slot, .. }
            | Self::Unknown { slot } => slot,
        }
    }

    fn encode(&self) -> Result<[u8; ENTRY_BYTES], FormatError> {
        let mut bytes = [0; ENTRY_BYTES];
        SLOT.write(&mut bytes, self.slot().get().to_le_bytes());
        match self {
            Self::Chunk(entry) => encode_chunk(entry, &mut bytes)?,
            Self::Remains { generation, key_tag, tenant_tag, slot: _ } => {
                KEY.write(&mut bytes, u128::from(*key_tag).to_le_bytes());
                GENERATION.write(&mut bytes, generation.get().to_le_bytes());
                TENANT.write(&mut bytes, u64::from(*tenant_tag).to_le_bytes());
                ENTRY_FLAGS.write(&mut bytes, REMAINS.to_le_bytes());
            }
            Self::Unknown { .. } => ENTRY_FLAGS.write(&mut bytes, UNKNOWN.to_le_bytes()),
        }
        Ok(bytes)
    }

    /// Decodes the entry that starts at byte `offset` of its page.
    fn decode(bytes: &[u8; ENTRY_BYTES], offset: usize) -> Result<Self, FormatError> {
        let slot = SlotIndex::new(SLOT.u32(bytes));
        let flags = ENTRY_FLAGS.u16(bytes);
        let generation = Generation::from_u64(GENERATION.u64(bytes));
        if flags != UNKNOWN && generation.epoch() == Epoch::default() {
            let value = generation.get();
            return Err(FormatError::Value { field: FormatField::Generation, value });
        }
        #[expect(clippy::cast_possible_truncation, reason = "more than a tag is refused below")]
        let entry = match flags {
            0 | HAS_PARENT => return decode_chunk(bytes, flags).map(Self::Chunk),
            REMAINS => Self::Remains {
                slot,
                generation,
                key_tag: Key::from_bytes(KEY.read(bytes)).low_u64() as u32,
                tenant_tag: TENANT.u64(bytes) as u32,
            },
            UNKNOWN => Self::Unknown { slot },
            _ => {
                return Err(FormatError::Value { field: FormatField::Flags, value: flags.into() });
            }
        };
        let used = entry.encode()?;
        match used.iter().zip(bytes).position(|(used, found)| used != found) {
            None => Ok(entry),
            Some(position) => Err(FormatError::Reserved {
                structure: Structure::SnapshotPage,
                offset: offset + position,
            }),
        }
    }
}

fn encode_chunk(entry: &Entry, bytes: &mut [u8; ENTRY_BYTES]) -> Result<(), FormatError> {
    let blocks = entry.blocks.get();
    within(FormatField::Blocks, blocks.into(), 1..=u16::MAX.into())?;
    let flags = if entry.parent.is_some() { HAS_PARENT } else { 0 };
    KEY.write(bytes, entry.key.to_bytes());
    PARENT.write(bytes, entry.parent.map_or([0; Key::BYTES], Key::to_bytes));
    GENERATION.write(bytes, entry.generation.get().to_le_bytes());
    TENANT.write(bytes, entry.tenant.get().to_le_bytes());
    DEPTH.write(bytes, entry.depth.to_le_bytes());
    EXPIRES_S.write(bytes, entry.expires_s.to_le_bytes());
    BLOCKS.write(bytes, narrow(blocks).to_le_bytes());
    ENTRY_FLAGS.write(bytes, flags.to_le_bytes());
    Ok(())
}

fn decode_chunk(bytes: &[u8; ENTRY_BYTES], flags: u16) -> Result<Entry, FormatError> {
    let parent = Key::from_bytes(PARENT.read(bytes));
    if flags != HAS_PARENT && parent != Key::from_u128(0) {
        let value = parent.low_u64();
        return Err(FormatError::Value { field: FormatField::Parent, value });
    }
    let blocks = BLOCKS.u16(bytes);
    within(FormatField::Blocks, blocks.into(), 1..=u16::MAX.into())?;
    Ok(Entry {
        slot: SlotIndex::new(SLOT.u32(bytes)),
        key: Key::from_bytes(KEY.read(bytes)),
        parent: (flags == HAS_PARENT).then_some(parent),
        generation: Generation::from_u64(GENERATION.u64(bytes)),
        tenant: TenantId::new(TENANT.u64(bytes)),
        depth: DEPTH.u32(bytes),
        blocks: BlockCount::new(blocks.into()),
        expires_s: EXPIRES_S.u32(bytes),
    })
}

/// One page of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotPage {
    /// The store.
    pub store_uuid: StoreUuid,
    /// The snapshot's epoch.
    pub epoch: Epoch,
    /// Which page of the snapshot, from 1; it starts at 4,096 times that in the file.
    pub number: u32,
}

impl SnapshotPage {
    /// Encodes at most 63 entries.
    ///
    /// # Errors
    ///
    /// [`FormatError::Value`] for a value that a page cannot hold, more entries included.
    pub fn encode(&self, entries: &[SnapshotEntry]) -> Result<Page, FormatError> {
        let entry_count = entries.len() as u64;
        within(FormatField::EntryCount, entry_count, 0..=ENTRIES_PER_PAGE as u64)?;
        let mut page = [0; PAGE_BYTES];
        for (entry, place) in entries.iter().zip(page.as_chunks_mut::<ENTRY_BYTES>().0) {
            *place = entry.encode()?;
        }
        PAGE_STORE_UUID.write(&mut page, self.store_uuid.to_bytes());
        PAGE_EPOCH.write(&mut page, u64::from(self.epoch.get()).to_le_bytes());
        PAGE_NUMBER.write(&mut page, u64::from(self.number).to_le_bytes());
        places::seal(&mut page);
        Ok(page)
    }

    /// Decodes and checks a page that should hold `entry_count` entries of this page's snapshot,
    /// and appends them.
    ///
    /// # Errors
    ///
    /// [`FormatError`]; the page's sum, uuid, epoch, number, reserved bytes and each entry are
    /// checked in that order.
    pub fn decode(
        &self,
        page: &Page,
        entry_count: usize,
        entries: &mut Vec<SnapshotEntry>,
    ) -> Result<(), FormatError> {
        let structure = Structure::SnapshotPage;
        let entry_count = entry_count.min(ENTRIES_PER_PAGE);
        places::check_sum(page, structure)?;
        let uuid = StoreUuid::from_bytes(PAGE_STORE_UUID.read(page));
        if uuid != self.store_uuid {
            let value = uuid.low_u64();
            return Err(FormatError::Value { field: FormatField::StoreUuid, value });
        }
        let epoch = u64::from(self.epoch.get());
        within(FormatField::Epoch, PAGE_EPOCH.u64(page), epoch..=epoch)?;
        let number = u64::from(self.number);
        within(FormatField::PageNumber, PAGE_NUMBER.u64(page), number..=number)?;
        let unused = entry_count * ENTRY_BYTES..PAGE_STORE_UUID.offset();
        places::check_reserved(page, structure, [unused, PAGE_NUMBER.end()..SUM.offset()])?;
        entries.reserve(entry_count);
        let encoded = &page.as_chunks::<ENTRY_BYTES>().0[..entry_count];
        for (offset, bytes) in (0..).step_by(ENTRY_BYTES).zip(encoded) {
            entries.push(SnapshotEntry::decode(bytes, offset)?);
        }
        Ok(())
    }
}
