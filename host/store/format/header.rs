//! A slot's header page: whose bytes the payload is, and who wrote it where and when.
//!
//! It is filled in steps. A pack writes the sealed sums of the parts, and zeros elsewhere; the
//! [`HeaderIdentity`] goes into the first 1,024 bytes once, before the slot is resident; the
//! [`HeaderStamp`] goes into the last 64 bytes when write-behind picks the chunk's disk slot, and
//! its sum covers all bytes before it. A device's copy of a resident slot never reads the stamp.

use super::places::{self, FLAGS, Place, SUM};
use super::{FormatError, FormatField, PAGE_BYTES, Page, Structure, codec, group, narrow, within};
use crate::device::HEADER_SUMS_OFFSET_BYTES;
use crate::fingerprint::Codec;
use crate::key::Key;
use crate::layout::SLOT_BYTES_MAX;
use crate::store::{Epoch, Generation, StoreUuid};
use crate::units::{BlockCount, ByteCount, GroupIndex, SlotIndex, TenantId, TokenCount};
use kvtide_kernels::abi::{HEADER_PAGE_BYTES, PART_ALIGN_BYTES, PART_COUNT_MAX};

const MAGIC_BYTES: [u8; 8] = *b"kvtideSL";
const STRUCTURE: Structure = Structure::SlotHeader;

/// Flag: the chunk follows another.
const HAS_PARENT: u32 = 1;

const KEY: Place<16> = FLAGS.next();
const PARENT: Place<16> = KEY.next();
const PAYLOAD_BYTES: Place<8> = PARENT.next();
const TENANT: Place<8> = PAYLOAD_BYTES.next();
const RECOMPUTE_US: Place<8> = TENANT.next();
const EXPIRES_S: Place<4> = RECOMPUTE_US.next();
const DEPTH: Place<4> = EXPIRES_S.next();
const TOKENS: Place<4> = DEPTH.next();
const GROUP: Place<2> = TOKENS.next();
const BLOCKS: Place<2> = GROUP.next();
const CODEC: Place<2> = BLOCKS.next();
const PART_COUNT: Place<2> = CODEC.next();
const IDENTITY_END: usize = PART_COUNT.end();

#[expect(clippy::cast_possible_truncation, reason = "1,024")]
const SUMS_START: usize = HEADER_SUMS_OFFSET_BYTES as usize;
const SUM_BYTES: usize = size_of::<u64>();
const SUMS_END: usize = SUMS_START + PART_COUNT_MAX * SUM_BYTES;

const STORE_UUID: Place<16> = Place::at(PAGE_BYTES - HeaderStamp::BYTES);
const GENERATION: Place<8> = STORE_UUID.next();
const WRITTEN_S: Place<8> = GENERATION.next();
const SLOT: Place<4> = WRITTEN_S.next();

const _: () = assert!(KEY.offset() == 16 && PARENT.offset() == 32 && PAYLOAD_BYTES.offset() == 48);
const _: () = assert!(TENANT.offset() == 56 && RECOMPUTE_US.offset() == 64);
const _: () = assert!(EXPIRES_S.offset() == 72 && DEPTH.offset() == 76 && TOKENS.offset() == 80);
const _: () = assert!(GROUP.offset() == 84 && BLOCKS.offset() == 86 && CODEC.offset() == 88);
const _: () = assert!(PART_COUNT.offset() == 90 && IDENTITY_END <= HeaderIdentity::BYTES);
const _: () = assert!(SUMS_START == HeaderIdentity::BYTES && SUMS_END == 3072);
const _: () = assert!(STORE_UUID.offset() == 4032 && GENERATION.offset() == 4048);
const _: () = assert!(WRITTEN_S.offset() == 4056 && SLOT.offset() == 4064 && SLOT.end() == 4068);
const _: () = assert!(SUM.offset() == 4088 && SUM.end() == PAGE_BYTES);
const _: () = assert!(PAGE_BYTES as u64 == HEADER_PAGE_BYTES);

/// What a chunk is: the first 1,024 bytes of its header page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderIdentity {
    /// The chunk's key.
    pub key: Key,
    /// The key of the chunk before it in its prefix; `None` for a root.
    pub parent: Option<Key>,
    /// Its group.
    pub group: GroupIndex,
    /// How its fragments are stored.
    pub codec: Codec,
    /// Chunks before it in its prefix.
    pub depth: u32,
    /// Its blocks: 1 to 65,535.
    pub blocks: BlockCount,
    /// Its tokens: at least 1.
    pub tokens: TokenCount,
    /// Bytes of the payload, padding included: a multiple of 4 KiB.
    pub payload: ByteCount,
    /// Parts of the payload: 1 to 256.
    pub part_count: u16,
    /// Whose it is.
    pub tenant: TenantId,
    /// When its life ends, in seconds since 1970; 0: never.
    pub expires_s: u32,
    /// What it would cost to compute it anew, in microseconds; 0: unknown.
    pub recompute_us: u64,
}

impl HeaderIdentity {
    /// Bytes that it has in the header page, from its first on.
    pub const BYTES: usize = 1024;

    /// Encodes what goes to the start of the header page.
    ///
    /// # Errors
    ///
    /// [`FormatError::Value`] for a value that a header cannot hold.
    pub fn encode(&self) -> Result<[u8; Self::BYTES], FormatError> {
        self.validate()?;
        let mut bytes = [0; Self::BYTES];
        let flags = if self.parent.is_some() { HAS_PARENT } else { 0 };
        places::begin(&mut bytes, MAGIC_BYTES, flags);
        KEY.write(&mut bytes, self.key.to_bytes());
        PARENT.write(&mut bytes, self.parent.map_or([0; Key::BYTES], Key::to_bytes));
        PAYLOAD_BYTES.write(&mut bytes, self.payload.get().to_le_bytes());
        TENANT.write(&mut bytes, self.tenant.get().to_le_bytes());
        RECOMPUTE_US.write(&mut bytes, self.recompute_us.to_le_bytes());
        EXPIRES_S.write(&mut bytes, self.expires_s.to_le_bytes());
        DEPTH.write(&mut bytes, self.depth.to_le_bytes());
        TOKENS.write(&mut bytes, self.tokens.get().to_le_bytes());
        GROUP.write(&mut bytes, u16::from(self.group.get()).to_le_bytes());
        BLOCKS.write(&mut bytes, narrow(self.blocks.get()).to_le_bytes());
        CODEC.write(&mut bytes, self.codec.code().to_le_bytes());
        PART_COUNT.write(&mut bytes, self.part_count.to_le_bytes());
        Ok(bytes)
    }

    fn decode(page: &Page) -> Result<Self, FormatError> {
        let flags = FLAGS.u32(page);
        if flags & !HAS_PARENT != 0 {
            return Err(FormatError::Value { field: FormatField::Flags, value: flags.into() });
        }
        let parent = Key::from_bytes(PARENT.read(page));
        let has_parent = flags & HAS_PARENT != 0;
        if !has_parent && parent != Key::from_u128(0) {
            let value = parent.low_u64();
            return Err(FormatError::Value { field: FormatField::Parent, value });
        }
        let identity = Self {
            key: Key::from_bytes(KEY.read(page)),
            parent: has_parent.then_some(parent),
            group: group(GROUP.u16(page))?,
            codec: codec(CODEC.u16(page))?,
            depth: DEPTH.u32(page),
            blocks: BlockCount::new(BLOCKS.u16(page).into()),
            tokens: TokenCount::new(TOKENS.u32(page)),
            payload: ByteCount::new(PAYLOAD_BYTES.u64(page)),
            part_count: PART_COUNT.u16(page),
            tenant: TenantId::new(TENANT.u64(page)),
            expires_s: EXPIRES_S.u32(page),
            recompute_us: RECOMPUTE_US.u64(page),
        };
        identity.validate()?;
        Ok(identity)
    }

    /// Checks every range that encoding and decoding share.
    fn validate(&self) -> Result<(), FormatError> {
        let payload = self.payload.get();
        let payload_max = SLOT_BYTES_MAX - HEADER_PAGE_BYTES;
        within(FormatField::PayloadBytes, payload, PART_ALIGN_BYTES..=payload_max)?;
        if !payload.is_multiple_of(PART_ALIGN_BYTES) {
            let field = FormatField::PayloadBytes;
            return Err(FormatError::Value { field, value: payload });
        }
        within(FormatField::Tokens, self.tokens.get().into(), 1..=u32::MAX.into())?;
        group(self.group.get().into())?;
        within(FormatField::Blocks, self.blocks.get().into(), 1..=u16::MAX.into())?;
        let part_count = u64::from(self.part_count);
        within(FormatField::PartCount, part_count, 1..=PART_COUNT_MAX as u64)
    }
}

/// Which write of which store put a chunk where: the last 64 bytes of its header page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderStamp {
    /// The store.
    pub store_uuid: StoreUuid,
    /// The write.
    pub generation: Generation,
    /// When it was submitted, in seconds since 1970.
    pub written_s: u64,
    /// The slot that it is for.
    pub slot: SlotIndex,
}

impl HeaderStamp {
    /// Bytes that it has at the end of the header page, the page's sum included.
    pub const BYTES: usize = 64;

    /// Where it begins in the header page, in bytes.
    pub const OFFSET_BYTES: usize = PAGE_BYTES - Self::BYTES;

    /// Encodes what goes to the end of the header page, behind `start`, which its sum covers.
    ///
    /// # Errors
    ///
    /// [`FormatError::Value`] for a value that a header cannot hold.
    pub fn encode(
        &self,
        start: &[u8; Self::OFFSET_BYTES],
    ) -> Result<[u8; Self::BYTES], FormatError> {
        self.validate()?;
        let mut page = [0; PAGE_BYTES];
        page[..Self::OFFSET_BYTES].copy_from_slice(start);
        STORE_UUID.write(&mut page, self.store_uuid.to_bytes());
        GENERATION.write(&mut page, self.generation.get().to_le_bytes());
        WRITTEN_S.write(&mut page, self.written_s.to_le_bytes());
        SLOT.write(&mut page, self.slot.get().to_le_bytes());
        places::seal(&mut page);
        let mut bytes = [0; Self::BYTES];
        bytes.copy_from_slice(&page[Self::OFFSET_BYTES..]);
        Ok(bytes)
    }

    fn decode(page: &Page) -> Result<Self, FormatError> {
        let stamp = Self {
            store_uuid: StoreUuid::from_bytes(STORE_UUID.read(page)),
            generation: Generation::from_u64(GENERATION.u64(page)),
            written_s: WRITTEN_S.u64(page),
            slot: SlotIndex::new(SLOT.u32(page)),
        };
        stamp.validate()?;
        Ok(stamp)
    }

    fn validate(&self) -> Result<(), FormatError> {
        check_uuid(self.store_uuid)?;
        if self.generation.epoch() == Epoch::default() {
            let value = self.generation.get();
            return Err(FormatError::Value { field: FormatField::Generation, value });
        }
        Ok(())
    }
}

/// Checks that a uuid names a store.
pub(super) fn check_uuid(uuid: StoreUuid) -> Result<(), FormatError> {
    if uuid == StoreUuid::from_bytes([0; StoreUuid::BYTES]) {
        return Err(FormatError::Value { field: FormatField::StoreUuid, value: 0 });
    }
    Ok(())
}

/// A whole header page: what the chunk is, and which write put it there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the chunk is.
    pub identity: HeaderIdentity,
    /// Which write of which store put it where.
    pub stamp: HeaderStamp,
}

impl Header {
    /// Decodes and checks a header page.
    ///
    /// # Errors
    ///
    /// [`FormatError`]; the page's magic, sum, version, reserved bytes and ranges are checked in
    /// that order.
    ///
    /// ```
    /// use kvtide::store::format::{FormatError, Header};
    ///
    /// // A slot that was never written.
    /// assert!(matches!(Header::decode(&[0; 4096]), Err(FormatError::Magic { found: 0, .. })));
    /// ```
    pub fn decode(page: &Page) -> Result<Self, FormatError> {
        places::check(page, STRUCTURE, MAGIC_BYTES)?;
        let sums = usize::from(PART_COUNT.u16(page)).min(PART_COUNT_MAX);
        places::check_reserved(
            page,
            STRUCTURE,
            [
                IDENTITY_END..SUMS_START,
                SUMS_START + sums * SUM_BYTES..STORE_UUID.offset(),
                SLOT.end()..SUM.offset(),
            ],
        )?;
        Ok(Self { identity: HeaderIdentity::decode(page)?, stamp: HeaderStamp::decode(page)? })
    }

    /// Whether a page is all zeros: that of a slot that was never used, or was erased.
    pub fn is_blank(page: &Page) -> bool {
        *page == [0; PAGE_BYTES]
    }

    /// Returns the sealed sums of a page's first `part_count` parts, at most 256.
    pub fn part_sums(page: &Page, part_count: u16) -> impl Iterator<Item = u64> + '_ {
        let (sums, _) = page[SUMS_START..SUMS_END].as_chunks::<SUM_BYTES>();
        sums.iter().take(part_count.into()).map(|sum| u64::from_le_bytes(*sum))
    }
}
