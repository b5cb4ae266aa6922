//! One lane of a running kernel: the walk over its warp's spans, and its memory.

use crate::abi::{Span, SpanGrid};
use crate::arch::{Arch, EngineAccess, Word};
use crate::kernels::fragment::Place;
use crate::kernels::words::{ROW_BYTES, tile};

/// One lane whose kernel's caller has vouched for every access that the kernel makes.
#[derive(Clone, Copy)]
pub(super) struct Lane<A> {
    arch: A,
}

impl<A: Arch> Lane<A> {
    /// Takes the caller's word for all accesses to come.
    ///
    /// # Safety
    ///
    /// Every call of a method that takes an address or a place fulfils the contract of the
    /// [`Arch`] function of the same name.
    #[inline]
    pub(super) unsafe fn new(arch: A) -> Self {
        Self { arch }
    }

    /// Returns the lane's number in its warp.
    #[inline]
    pub(super) fn number(self) -> u32 {
        self.arch.lane()
    }

    /// Runs `work` on every span of this lane's warp.
    #[inline]
    pub(super) fn for_each_span(self, grid: &SpanGrid, work: impl Fn(Span)) {
        let mut number = self.arch.warp();
        while number < grid.span_count {
            work(grid.span(number));
            number += self.arch.warp_count();
        }
    }

    /// Loads the word at `address`.
    #[inline]
    pub(super) fn load(self, address: u64) -> Word {
        // SAFETY: promised to `new`.
        unsafe { self.arch.load::<0>(address) }
    }

    /// Loads the words of this lane in the tile at `address`.
    #[inline]
    pub(super) fn load_tile(self, address: u64) -> [Word; 4] {
        // SAFETY: promised to `new`.
        let first = unsafe { self.arch.load::<0>(address) };
        // SAFETY: promised to `new`.
        let second = unsafe { self.arch.load::<{ ROW_BYTES }>(address) };
        // SAFETY: promised to `new`.
        let third = unsafe { self.arch.load::<{ 2 * ROW_BYTES }>(address) };
        // SAFETY: promised to `new`.
        let fourth = unsafe { self.arch.load::<{ 3 * ROW_BYTES }>(address) };
        [first, second, third, fourth]
    }

    /// Stores `word` at `address`.
    #[inline]
    pub(super) fn store(self, address: u64, word: Word) {
        // SAFETY: promised to `new`.
        unsafe { self.arch.store::<0>(address, word) }
    }

    /// Stores the words of this lane in the tile at `address`.
    #[inline]
    pub(super) fn store_tile(self, address: u64, words: [Word; 4]) {
        let [first, second, third, fourth] = words;
        // SAFETY: promised to `new`.
        unsafe { self.arch.store::<0>(address, first) };
        // SAFETY: promised to `new`.
        unsafe { self.arch.store::<{ ROW_BYTES }>(address, second) };
        // SAFETY: promised to `new`.
        unsafe { self.arch.store::<{ 2 * ROW_BYTES }>(address, third) };
        // SAFETY: promised to `new`.
        unsafe { self.arch.store::<{ 3 * ROW_BYTES }>(address, fourth) };
    }

    /// Loads one word of a fragment.
    #[inline]
    pub(super) fn load_from<E: EngineAccess>(self, place: Place) -> Word {
        // SAFETY: promised to `new`.
        unsafe { E::load(self.arch, place.address, place.quarters) }
    }

    /// Loads four words of fragments.
    #[inline]
    pub(super) fn load_from_each<E: EngineAccess>(self, places: [Place; 4]) -> [Word; 4] {
        tile(places, |place| self.load_from::<E>(place))
    }

    /// Stores one word of a fragment.
    #[inline]
    pub(super) fn store_to<E: EngineAccess>(self, place: Place, word: Word) {
        // SAFETY: promised to `new`.
        unsafe { E::store(self.arch, place.address, word, place.quarters) }
    }

    /// Stores four words of fragments.
    #[inline]
    pub(super) fn store_to_each<E: EngineAccess>(self, places: [Place; 4], words: [Word; 4]) {
        let [first, second, third, fourth] = words;
        let [to_first, to_second, to_third, to_fourth] = places;
        self.store_to::<E>(to_first, first);
        self.store_to::<E>(to_second, second);
        self.store_to::<E>(to_third, third);
        self.store_to::<E>(to_fourth, fourth);
    }

    /// Loads a `u32`.
    #[inline]
    pub(super) fn load_u32(self, address: u64) -> u32 {
        // SAFETY: promised to `new`.
        unsafe { self.arch.load_u32(address) }
    }

    /// Loads a `u64`.
    #[inline]
    pub(super) fn load_u64(self, address: u64) -> u64 {
        // SAFETY: promised to `new`.
        unsafe { self.arch.load_u64(address) }
    }

    /// Stores a `u32`.
    #[inline]
    pub(super) fn store_u32(self, address: u64, value: u32) {
        // SAFETY: promised to `new`.
        unsafe { self.arch.store_u32(address, value) }
    }

    /// Adds the warp's values to the `u64` at `address`.
    #[inline]
    pub(super) fn accumulate(self, address: u64, value: u64) {
        // SAFETY: promised to `new`.
        unsafe { self.arch.accumulate(address, value) }
    }
}
