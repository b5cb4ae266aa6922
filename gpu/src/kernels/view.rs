//! Descriptors as a kernel sees them: in device memory, read field by field where one is needed.

use crate::abi::{ChunkDescriptor, CopyPair, FillRange, PartDescriptor, PlaneDescriptor};
use crate::arch::Arch;
use crate::kernels::lane::Lane;
use crate::kernels::words::word_at;
use core::mem::offset_of;

/// Returns the address of item `index` of a table of `T`.
#[inline]
fn item<T>(table: u64, index: u32) -> u64 {
    table.wrapping_add(u64::from(index) * size_of::<T>() as u64)
}

/// Returns the address of pair `index` of a table of [`CopyPair`]s.
#[inline]
pub(super) fn pair_at(pairs: u64, index: u32) -> u64 {
    item::<CopyPair>(pairs, index)
}

/// A [`PlaneDescriptor`].
#[derive(Clone, Copy)]
pub(super) struct PlaneView<A> {
    lane: Lane<A>,
    address: u64,
}

impl<A: Arch> PlaneView<A> {
    #[inline]
    pub(super) fn new(lane: Lane<A>, planes: u64, index: u32) -> Self {
        Self { lane, address: item::<PlaneDescriptor>(planes, index) }
    }

    #[inline]
    pub(super) fn base_address(self) -> u64 {
        self.lane.load_u64(self.address + offset_of!(PlaneDescriptor, base_address) as u64)
    }

    #[inline]
    pub(super) fn block_stride(self) -> u64 {
        self.lane.load_u64(self.address + offset_of!(PlaneDescriptor, block_stride) as u64)
    }

    #[inline]
    pub(super) fn part(self) -> u32 {
        self.lane.load_u32(self.address + offset_of!(PlaneDescriptor, part) as u64)
    }

    #[inline]
    pub(super) fn words_before(self) -> u32 {
        self.lane.load_u32(self.address + offset_of!(PlaneDescriptor, words_before) as u64)
    }
}

/// A [`PartDescriptor`].
#[derive(Clone, Copy)]
pub(super) struct PartView<A> {
    lane: Lane<A>,
    address: u64,
}

impl<A: Arch> PartView<A> {
    #[inline]
    pub(super) fn first_word(self) -> u32 {
        self.lane.load_u32(self.address + offset_of!(PartDescriptor, first_word) as u64)
    }

    #[inline]
    pub(super) fn word_count(self) -> u32 {
        self.lane.load_u32(self.address + offset_of!(PartDescriptor, word_count) as u64)
    }
}

/// A [`ChunkDescriptor`].
#[derive(Clone, Copy)]
pub(super) struct ChunkView<A> {
    lane: Lane<A>,
    address: u64,
}

impl<A: Arch> ChunkView<A> {
    #[inline]
    pub(super) fn new(lane: Lane<A>, chunks: u64, index: u32) -> Self {
        Self { lane, address: item::<ChunkDescriptor>(chunks, index) }
    }

    #[inline]
    pub(super) fn block_count(self) -> u32 {
        self.lane.load_u32(self.address + offset_of!(ChunkDescriptor, block_count) as u64)
    }

    #[inline]
    pub(super) fn block_ids(self) -> u64 {
        self.lane.load_u64(self.address + offset_of!(ChunkDescriptor, block_ids) as u64)
    }

    #[inline]
    pub(super) fn key_low(self) -> u64 {
        self.lane.load_u64(self.address + offset_of!(ChunkDescriptor, key_low) as u64)
    }

    #[inline]
    pub(super) fn good_parts(self) -> u64 {
        self.lane.load_u64(self.address + offset_of!(ChunkDescriptor, good_parts) as u64)
    }

    /// Returns the id of the chunk's block number `ordinal`, given where [`Self::block_ids`] are.
    #[inline]
    pub(super) fn block_id(self, block_ids: u64, ordinal: u32) -> u32 {
        self.lane.load_u32(item::<u32>(block_ids, ordinal))
    }

    /// Returns the address of payload word `payload_word`.
    #[inline]
    pub(super) fn payload_at(self, payload_word: u64) -> u64 {
        let field = self.address + offset_of!(ChunkDescriptor, payload) as u64;
        word_at(self.lane.load_u64(field), payload_word)
    }

    /// Returns the payload word where `plane`, of `part`, starts in this chunk of `block_count`.
    #[inline]
    pub(super) fn plane_word(self, plane: PlaneView<A>, part: u32, block_count: u32) -> u64 {
        let before = u64::from(plane.words_before()) * u64::from(block_count);
        u64::from(self.part(part).first_word()) + before
    }

    #[inline]
    pub(super) fn part(self, part: u32) -> PartView<A> {
        let field = self.address + offset_of!(ChunkDescriptor, parts) as u64;
        let table = self.lane.load_u64(field);
        PartView { lane: self.lane, address: item::<PartDescriptor>(table, part) }
    }

    /// Returns the address of a part's sum.
    #[inline]
    pub(super) fn sum_of(self, part: u32) -> u64 {
        let field = self.address + offset_of!(ChunkDescriptor, sums) as u64;
        item::<u64>(self.lane.load_u64(field), part)
    }

    /// Returns the address of a part's stored sum.
    #[inline]
    pub(super) fn stored_sum_of(self, part: u32) -> u64 {
        let field = self.address + offset_of!(ChunkDescriptor, stored_sums) as u64;
        item::<u64>(self.lane.load_u64(field), part)
    }

    /// Returns the address of a part's verdict word.
    #[inline]
    pub(super) fn verdict_of(self, part: u32) -> u64 {
        let field = self.address + offset_of!(ChunkDescriptor, verdicts) as u64;
        item::<u32>(self.lane.load_u64(field), part)
    }
}

/// A [`FillRange`].
#[derive(Clone, Copy)]
pub(super) struct RangeView<A> {
    lane: Lane<A>,
    address: u64,
}

impl<A: Arch> RangeView<A> {
    #[inline]
    pub(super) fn new(lane: Lane<A>, ranges: u64, index: u32) -> Self {
        Self { lane, address: item::<FillRange>(ranges, index) }
    }

    #[inline]
    pub(super) fn first_byte(self) -> u64 {
        self.lane.load_u64(self.address + offset_of!(FillRange, address) as u64)
    }

    #[inline]
    pub(super) fn word_count(self) -> u32 {
        self.lane.load_u32(self.address + offset_of!(FillRange, word_count) as u64)
    }
}
