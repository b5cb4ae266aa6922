//! The files of a store out of fuzzer bytes.
//!
//! Two bytes say how many pages are the superblock's (0 to 2) and the index's (0 to 3), and how
//! many sectors of 512 bytes the file of the slots lacks at its end. Then come pages: of the
//! superblock, of the index, and all others of the slots. A page is a choice, whose lowest bit has
//! the page's sum made right, a length of two bytes, as many bytes for its beginning, and 64 bytes
//! for its end. So a page of a few fields takes a few bytes, and mutations find the fields.

use kvtide_kernels::checksum;

const PAGE_BYTES: usize = 4096;
const END_BYTES: usize = 64;
const SECTOR_BYTES: usize = 512;

/// Pages of an image at most: of the slots, 16.
const PAGES_MAX: usize = 21;

/// The bytes of each file.
pub struct Image {
    pub superblock: Vec<u8>,
    pub index: Vec<u8>,
    pub data: Vec<u8>,
}

impl Image {
    pub fn parse(bytes: &[u8]) -> Self {
        let (&[counts, cut], mut rest) = bytes.split_first_chunk().unwrap_or((&[0; 2], &[]));
        let mut pages = Vec::new();
        while !rest.is_empty() && pages.len() < PAGES_MAX {
            pages.push(next_page(&mut rest));
        }
        let mut take = |count: usize| -> Vec<u8> {
            let count = count.min(pages.len());
            pages.drain(..count).flatten().collect()
        };
        let superblock = take(usize::from(counts & 3).min(2));
        let index = take(usize::from(counts >> 2 & 3));
        let mut data = take(PAGES_MAX);
        data.truncate(data.len().saturating_sub(usize::from(cut) * SECTOR_BYTES));
        Self { superblock, index, data }
    }
}

fn next_page(rest: &mut &[u8]) -> [u8; PAGE_BYTES] {
    let mut page = [0; PAGE_BYTES];
    let head = take(rest, 3);
    let choice = head.first().copied().unwrap_or_default();
    let length =
        head.get(1..3).map_or(0, |bytes| usize::from(bytes[0]) | usize::from(bytes[1]) << 8);
    let beginning = take(rest, length.min(PAGE_BYTES - END_BYTES));
    page[..beginning.len()].copy_from_slice(beginning);
    let end = take(rest, END_BYTES);
    page[PAGE_BYTES - END_BYTES..][..end.len()].copy_from_slice(end);
    if choice & 1 == 1 {
        let words = page[..PAGE_BYTES - 8].as_chunks::<8>().0;
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        page[PAGE_BYTES - 8..].copy_from_slice(&checksum::sum(&words, 0).to_le_bytes());
    }
    page
}

/// Takes up to `count` bytes off the front.
fn take<'bytes>(rest: &mut &'bytes [u8], count: usize) -> &'bytes [u8] {
    let (taken, left) = rest.split_at(count.min(rest.len()));
    *rest = left;
    taken
}
