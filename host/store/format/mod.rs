//! The only code that knows what a byte on disk means: format version 1 of stores.
//!
//! Plain encoding and decoding over byte slices, without any I/O. `docs/disk-format.md` has the
//! tables and worked dumps; a test holds the two together. All integers are little-endian.
//!
//! | file | page of 4,096 bytes |
//! |---|---|
//! | `header.rs` | a slot's header page: [`HeaderIdentity`], part sums, [`HeaderStamp`] |
//! | `superblock.rs` | [`Superblock`]: one of the two copies in a store's `superblock` |
//! | `snapshot.rs` | [`SnapshotHeader`] and the pages of [`SnapshotEntry`] in a store's `index` |
//! | `places.rs` | fields' places, sums, reserved bytes |
//! | `error.rs` | [`FormatError`] |
//!
//! What all versions of all pages keep, so that any version can tell that a page is of another:
//! magic in bytes 0 to 7, version in bytes 8 to 11, and in the last 8 bytes the position-keyed sum
//! (`gpu/src/checksum.rs`, from word index 0) of the 511 words before it.
//!
//! Decoding checks, in this order: magic, sum, version, reserved zeros, then every field's range.
//! Encoding checks the same ranges, so that nothing is written that would not be read back.
//!
//! Invariants: decoding never panics and never allocates by a number that it read.
//!
//! Called by the rest of `store`, the `kvtide` program and the fuzz targets.

mod error;
mod header;
mod places;
mod snapshot;
mod superblock;

pub use error::{FormatError, FormatField, Structure};
pub use header::{Header, HeaderIdentity, HeaderStamp};
pub use snapshot::{
    ENTRIES_PER_PAGE, SnapshotEntry, SnapshotHeader, SnapshotPage, index_bytes, snapshot_pages,
};
pub use superblock::{SUPERBLOCK_BYTES, Superblock};

use crate::fingerprint::Codec;
use crate::layout::GROUP_COUNT_MAX;
use crate::units::{ByteCount, GroupIndex};

/// The version of the format that this build writes and reads.
pub const FORMAT_VERSION: u32 = 1;

/// Bytes of every page that this module encodes.
pub const PAGE_BYTES: usize = 4096;

/// One page.
pub type Page = [u8; PAGE_BYTES];

/// Checks that a group is one of the 8 that a layout may have.
fn group(number: u16) -> Result<GroupIndex, FormatError> {
    u8::try_from(number)
        .ok()
        .filter(|&index| usize::from(index) < GROUP_COUNT_MAX)
        .map(GroupIndex::new)
        .ok_or(FormatError::Value { field: FormatField::Group, value: number.into() })
}

/// Checks that a codec is one that this build knows.
fn codec(code: u16) -> Result<Codec, FormatError> {
    [Codec::Raw]
        .into_iter()
        .find(|codec| codec.code() == code)
        .ok_or(FormatError::Value { field: FormatField::Codec, value: code.into() })
}

/// Sums the bytes of a part that starts at `offset` of its payload: fragments rounded up to 16
/// bytes, unsealed.
pub(super) fn part_sum(bytes: &[u8], offset: ByteCount) -> u64 {
    places::sum(bytes, offset.get() / size_of::<u64>() as u64)
}

/// Narrows a number that was validated, or is so by its type's invariant.
fn narrow(number: u32) -> u16 {
    u16::try_from(number).expect("a validated number of at most 65,535")
}

/// Checks a number against its range.
fn within(
    field: FormatField,
    value: u64,
    range: std::ops::RangeInclusive<u64>,
) -> Result<(), FormatError> {
    if range.contains(&value) { Ok(()) } else { Err(FormatError::Value { field, value }) }
}
