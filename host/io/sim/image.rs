//! The bytes of one file at one time, and how a write reaches them in part.
//!
//! Pages that were never written are not kept and read as zeros, so a reserved file of any size
//! costs nothing. Writes are whole pages, as every operation is; lengths may be anything.

use super::random::Random;
use crate::io::IO_ALIGN_BYTES;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// What a drive writes whole or, when the power goes, in part.
pub(super) const SECTOR_BYTES: usize = 512;

const PAGE_BYTES: usize = 4096;
const _: () = assert!(PAGE_BYTES as u64 == IO_ALIGN_BYTES);

type Page = [u8; PAGE_BYTES];

/// A change of a file.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// Bytes written: whole pages.
    Write { offset: u64, bytes: Vec<u8> },
    /// Blocks reserved from the start, the length raised to them.
    Allocate { length: u64 },
    /// The length set.
    Truncate { length: u64 },
}

/// A file's bytes, length, blocks and time.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Image {
    length: u64,
    /// Bytes from the start that have blocks whether written or not: whole pages.
    reserved: u64,
    pub(super) modified_s: u64,
    /// Written pages by number.
    pages: BTreeMap<u64, Box<Page>>,
}

impl fmt::Debug for Image {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Image")
            .field("length", &self.length)
            .field("reserved", &self.reserved)
            .field("pages", &self.pages.len())
            .finish_non_exhaustive()
    }
}

/// Returns the numbers of the pages that `length` bytes from `offset` on lie in.
fn page_range(offset: u64, length: u64) -> Range<u64> {
    offset / IO_ALIGN_BYTES..(offset + length).div_ceil(IO_ALIGN_BYTES)
}

impl Image {
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Returns the bytes of all blocks.
    pub(super) fn allocated(&self) -> u64 {
        let first = self.reserved / IO_ALIGN_BYTES;
        self.reserved + self.pages.range(first..).count() as u64 * IO_ALIGN_BYTES
    }

    /// Returns the bytes of blocks that a change takes and that the file does not have.
    pub(super) fn new_blocks(&self, change: &Change) -> u64 {
        let (pages, length) = match change {
            Change::Write { offset, bytes } => {
                (page_range(*offset, bytes.len() as u64), bytes.len() as u64)
            }
            Change::Allocate { length } => (page_range(0, *length), *length),
            Change::Truncate { .. } => return 0,
        };
        if length == 0 {
            return 0;
        }
        let pages = pages.start.max(self.reserved / IO_ALIGN_BYTES)..pages.end;
        let had = self.pages.range(pages.start..pages.end.max(pages.start)).count() as u64;
        pages.end.saturating_sub(pages.start).saturating_sub(had) * IO_ALIGN_BYTES
    }

    /// Returns `length` bytes from `offset` on, zeros where nothing was written. Both are whole
    /// pages.
    pub(super) fn read(&self, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        for (page, target) in
            page_range(offset, length as u64).zip(bytes.chunks_exact_mut(PAGE_BYTES))
        {
            if let Some(source) = self.pages.get(&page) {
                target.copy_from_slice(source.as_slice());
            }
        }
        bytes
    }

    /// Returns all bytes.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let length = usize::try_from(self.length).expect("a file that a test looks at whole");
        let mut bytes = self.read(0, length.next_multiple_of(PAGE_BYTES));
        bytes.truncate(length);
        bytes
    }

    /// Carries a change out.
    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::Write { offset, bytes } => {
                self.write(*offset, bytes);
                self.length = self.length.max(offset + bytes.len() as u64);
            }
            Change::Allocate { length } => {
                self.reserved = self.reserved.max(length.next_multiple_of(IO_ALIGN_BYTES));
                self.length = self.length.max(*length);
            }
            Change::Truncate { length } => self.truncate(*length),
        }
    }

    /// Writes whole pages, whatever the length.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let (pages, rest) = bytes.as_chunks::<PAGE_BYTES>();
        debug_assert!(rest.is_empty() && offset.is_multiple_of(IO_ALIGN_BYTES));
        for (number, page) in page_range(offset, bytes.len() as u64).zip(pages) {
            self.pages.insert(number, Box::new(*page));
        }
    }

    fn truncate(&mut self, length: u64) {
        let end = length.next_multiple_of(IO_ALIGN_BYTES);
        self.reserved = self.reserved.min(end);
        drop(self.pages.split_off(&(end / IO_ALIGN_BYTES)));
        if let Some(page) = self.pages.get_mut(&(length / IO_ALIGN_BYTES)) {
            let kept = usize::try_from(length % IO_ALIGN_BYTES).expect("inside a page");
            page[kept..].fill(0);
        }
        self.length = length;
    }

    /// Flips bits of one byte; one that was never written becomes `mask`.
    pub(super) fn flip(&mut self, offset: u64, mask: u8) {
        let page = self.pages.entry(offset / IO_ALIGN_BYTES).or_insert_with(|| Box::new([0; _]));
        page[usize::try_from(offset % IO_ALIGN_BYTES).expect("inside a page")] ^= mask;
    }

    /// Carries a change out as far as `random` says: what is left of one that nobody was promised.
    /// `tears` says whether a sector may be left half written.
    pub(super) fn apply_in_part(&mut self, change: &Change, tears: bool, random: &mut Random) {
        let Change::Write { offset, bytes } = change else {
            if random.coin() {
                self.apply(change);
            }
            return;
        };
        let mut mixed = self.read(*offset, bytes.len());
        if !mix(&mut mixed, bytes, tears, random) {
            return;
        }
        let length = self.length;
        self.apply(&Change::Write { offset: *offset, bytes: mixed });
        // The new length is as unsure as the bytes: without it those behind the old are not there.
        if self.length > length && random.coin() {
            self.truncate(length);
        }
    }
}

/// Overlays the sectors of `old` with those of `new` that `random` picks; with `tears` some of the
/// others get a part of theirs. Returns false when nothing was picked.
///
/// Real drives lose writes whole, keep a beginning or an end, or lose any sectors; each of these
/// is drawn often, because drawing each sector by itself would hardly ever leave a write whole.
pub(super) fn mix(old: &mut [u8], new: &[u8], tears: bool, random: &mut Random) -> bool {
    let (sectors, _) = new.as_chunks::<SECTOR_BYTES>();
    let shape = random.below(5);
    let boundary = random.index(sectors.len() + 1);
    for (index, (target, sector)) in
        old.as_chunks_mut::<SECTOR_BYTES>().0.iter_mut().zip(sectors).enumerate()
    {
        let (is_new, may_tear) = match shape {
            0 => (false, false),
            1 => (true, false),
            2 => (index < boundary, index == boundary),
            3 => (index >= boundary, index + 1 == boundary),
            _ => (random.coin(), true),
        };
        if is_new {
            *target = *sector;
        } else if tears && may_tear {
            let point = random.index(SECTOR_BYTES);
            let range = if random.coin() { 0..point } else { point..SECTOR_BYTES };
            target[range.clone()].copy_from_slice(&sector[range]);
        }
    }
    shape != 0
}
