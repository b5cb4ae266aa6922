//! Places of fields in a page, sums over pages, and the bytes that stay zero.
//!
//! A [`Place`] follows the one before it, so that a structure's list of places is its layout; the
//! compile-time assertions beside each list pin the offsets that `docs/disk-format.md` gives.

use super::{FORMAT_VERSION, FormatError, PAGE_BYTES, Page, Structure};
use kvtide_kernels::checksum::term;
use std::ops::Range;

/// Bytes of one summed word.
const WORD_BYTES: usize = size_of::<u64>();

/// Sums that are kept apart, so that no addition waits for the one before.
const STRANDS: usize = 4;

/// What kind of page it is: bytes 0 to 7.
pub(super) const MAGIC: Place<8> = Place::at(0);
/// The format's version.
pub(super) const VERSION: Place<4> = MAGIC.next();
/// Flag bits, whose meaning is the structure's.
pub(super) const FLAGS: Place<4> = VERSION.next();
/// The sum of all bytes before it.
pub(super) const SUM: Place<8> = Place::at(PAGE_BYTES - 8);

/// Where a field of `N` bytes lies in a page.
#[derive(Clone, Copy)]
pub(super) struct Place<const N: usize>(usize);

impl<const N: usize> Place<N> {
    pub(super) const fn at(offset: usize) -> Self {
        Self(offset)
    }

    /// Returns the place right after this one.
    pub(super) const fn next<const M: usize>(self) -> Place<M> {
        Place(self.0 + N)
    }

    pub(super) const fn offset(self) -> usize {
        self.0
    }

    /// Returns the first byte after it.
    pub(super) const fn end(self) -> usize {
        self.0 + N
    }

    pub(super) fn read(self, bytes: &[u8]) -> [u8; N] {
        *bytes[self.0..].first_chunk().expect("a field lies inside its structure")
    }

    pub(super) fn write(self, bytes: &mut [u8], value: [u8; N]) {
        bytes[self.0..self.end()].copy_from_slice(&value);
    }
}

impl Place<2> {
    pub(super) fn u16(self, bytes: &[u8]) -> u16 {
        u16::from_le_bytes(self.read(bytes))
    }
}

impl Place<4> {
    pub(super) fn u32(self, bytes: &[u8]) -> u32 {
        u32::from_le_bytes(self.read(bytes))
    }
}

impl Place<8> {
    pub(super) fn u64(self, bytes: &[u8]) -> u64 {
        u64::from_le_bytes(self.read(bytes))
    }
}

/// Sums the 8-byte words of `bytes`, the first of which has word index `first_index`.
///
/// The definition of `gpu/src/checksum.rs` over bytes; what does not fill a word is left out.
pub(super) fn sum(bytes: &[u8], first_index: u64) -> u64 {
    let (words, _) = bytes.as_chunks::<WORD_BYTES>();
    let (blocks, rest) = words.as_chunks::<STRANDS>();
    let mut strands = [0_u64; STRANDS];
    let mut index = first_index;
    for block in blocks {
        for (strand, word) in strands.iter_mut().zip(block) {
            *strand = strand.wrapping_add(term(u64::from_le_bytes(*word), index));
            index = index.wrapping_add(1);
        }
    }
    let mut total = strands.iter().fold(0, |total: u64, strand| total.wrapping_add(*strand));
    for word in rest {
        total = total.wrapping_add(term(u64::from_le_bytes(*word), index));
        index = index.wrapping_add(1);
    }
    total
}

/// Writes a page's sum.
pub(super) fn seal(page: &mut Page) {
    let sum = sum(&page[..SUM.offset()], 0);
    SUM.write(page, sum.to_le_bytes());
}

/// Writes what every page begins with.
pub(super) fn begin(page: &mut [u8], magic: [u8; 8], flags: u32) {
    MAGIC.write(page, magic);
    VERSION.write(page, FORMAT_VERSION.to_le_bytes());
    FLAGS.write(page, flags.to_le_bytes());
}

/// Checks what all kinds of pages share: magic, sum, version.
pub(super) fn check(page: &Page, structure: Structure, magic: [u8; 8]) -> Result<(), FormatError> {
    if MAGIC.read(page) != magic {
        return Err(FormatError::Magic { structure, found: MAGIC.u64(page) });
    }
    check_sum(page, structure)?;
    match VERSION.u32(page) {
        FORMAT_VERSION => Ok(()),
        found => Err(FormatError::Version { structure, found }),
    }
}

/// Checks a page's sum.
pub(super) fn check_sum(page: &Page, structure: Structure) -> Result<(), FormatError> {
    let (stored, computed) = (SUM.u64(page), sum(&page[..SUM.offset()], 0));
    if stored == computed { Ok(()) } else { Err(FormatError::Sum { structure, stored, computed }) }
}

/// Checks that bytes which version 1 does not use are zero.
pub(super) fn check_reserved(
    page: &Page,
    structure: Structure,
    ranges: impl IntoIterator<Item = Range<usize>>,
) -> Result<(), FormatError> {
    let found = ranges.into_iter().find_map(|range| {
        let bytes = &page[range.clone()];
        // All at once, which is fast, before one by one, which says where.
        if bytes.iter().fold(0, |all, byte| all | byte) == 0 {
            return None;
        }
        let position = bytes.iter().position(|&byte| byte != 0)?;
        Some(range.start + position)
    });
    found.map_or(Ok(()), |offset| Err(FormatError::Reserved { structure, offset }))
}
