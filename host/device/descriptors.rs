//! A layout as the kernels read it: descriptors of planes, parts and chunks.
//!
//! Pure functions of a group, a packing and the addresses that a device chose; what they return is
//! copied to the device ahead of a launch.
//!
//! Invariants: tables of planes serve the group's chunks of any block count, tables of parts all
//! chunks of one; no number is cut, since a slot is at most 1 GiB.
//!
//! Called by the back ends that run the kernels.

use super::HEADER_SUMS_OFFSET_BYTES;
use crate::key::Key;
use crate::layout::{Group, Packing};
use crate::units::ByteCount;
use kvtide_kernels::abi::{
    ChunkDescriptor, FillRange, HEADER_PAGE_BYTES, PAGE_WORDS, PartDescriptor, PlaneDescriptor,
    WORD_BYTES,
};
use std::collections::BTreeMap;

/// A group's planes of one fragment size: what one gather or scatter copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PlaneTable {
    /// Bytes of each plane's fragments.
    pub(crate) fragment_bytes: u32,
    /// The planes in the order of packing, so that those of consecutive parts are a slice.
    pub(crate) planes: Vec<PlaneDescriptor>,
}

/// Where a device keeps what the kernels need of one chunk: device addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkAddresses {
    /// The slot image in its staging piece: a multiple of 16.
    pub(crate) image: u64,
    /// The block ids, `u32` each, in the order of the chunk's tokens.
    pub(crate) block_ids: u64,
    /// The [`part_table`] of the chunk's block count.
    pub(crate) parts: u64,
    /// One `u64` sum a part.
    pub(crate) sums: u64,
    /// One `u32` verdict word a part.
    pub(crate) verdicts: u64,
    /// One `u64`: the parts judged good so far.
    pub(crate) good_parts: u64,
}

/// Returns a group's planes by fragment size, the smallest first.
///
/// `packing` may be that of any block count: the split into parts is the same for all.
pub(crate) fn plane_tables(group: &Group, packing: &Packing) -> Vec<PlaneTable> {
    let mut tables: BTreeMap<u32, Vec<PlaneDescriptor>> = BTreeMap::new();
    for (part, members) in (0..).zip(packing.parts()) {
        let mut words_before = 0;
        for index in members.planes() {
            let plane = &group.planes()[index];
            let base_address = plane.base_address;
            let block_stride = plane.block_stride.get();
            let descriptor = PlaneDescriptor { base_address, block_stride, part, words_before };
            tables.entry(narrow(plane.fragment.get())).or_default().push(descriptor);
            words_before += words(packing.fragment_stride(index));
        }
    }
    let table = |(fragment_bytes, planes)| PlaneTable { fragment_bytes, planes };
    tables.into_iter().map(table).collect()
}

/// Returns the parts of all chunks of a packing's block count.
pub(crate) fn part_table(packing: &Packing) -> Vec<PartDescriptor> {
    let parts = packing.parts().iter();
    parts
        .map(|part| PartDescriptor {
            first_word: words(part.offset()),
            word_count: words(part.summed()),
        })
        .collect()
}

/// Describes one chunk of a packing's block count.
///
/// Its stored sums are those in the image's header page.
pub(crate) fn chunk_descriptor(
    packing: &Packing,
    key: Key,
    addresses: ChunkAddresses,
) -> ChunkDescriptor {
    let ChunkAddresses { image, block_ids, parts, sums, verdicts, good_parts } = addresses;
    ChunkDescriptor {
        payload: image + HEADER_PAGE_BYTES,
        block_ids,
        parts,
        sums,
        verdicts,
        stored_sums: image + HEADER_SUMS_OFFSET_BYTES,
        good_parts,
        key_low: key.low_u64(),
        block_count: packing.blocks().get(),
        part_count: narrow(packing.parts().len() as u64),
    }
}

/// Returns what a pack zeroes in the image at `image` that its gathers do not write: the header
/// page, and the page padding after parts.
pub(crate) fn zeroed_ranges(parts: &[PartDescriptor], image: u64) -> Vec<FillRange> {
    let header = FillRange { address: image, word_count: PAGE_WORDS, reserved: 0 };
    let payload = image + HEADER_PAGE_BYTES;
    let padding = parts.iter().filter_map(|part| FillRange::padding_after(payload, part));
    [header].into_iter().chain(padding).collect()
}

/// Returns whole words.
fn words(bytes: ByteCount) -> u32 {
    narrow(bytes.get() / u64::from(WORD_BYTES))
}

/// Narrows a number of something inside a slot.
fn narrow(count: u64) -> u32 {
    u32::try_from(count).expect("a slot is at most 1 GiB")
}
