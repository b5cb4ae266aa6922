//! The slab: one group's host slots, one after the other in one region.
//!
//! Who may touch a slot is decided by the core's slot states: one transfer fills it, or any number
//! read it. The slab keeps a second account of its own: whoever copies payload bytes here takes
//! [`ReadAccess`] or [`WriteAccess`] first, and gets none where another's access forbids it. So a
//! slip in the states is a failed hop, never a torn chunk. Memory that hardware reads or writes by
//! [`SlotMemory::address`] is outside that account; its operation keeps an access meanwhile.
//!
//! The header page is apart: write-behind stamps the end of a header while loads copy it. So
//! header pages are read and written word by word with atomic accesses.
//!
//! Invariants: slots never overlap; a [`SlotMemory`] keeps the slab alive.
//!
//! Called by the pager (one slab a group), devices (staging rings) and disk back ends.
#![expect(unsafe_code, reason = "hands out slices of mapped memory")]

use super::region::{Downgrade, PageKind, Region, SlabError};
use crate::units::{ByteCount, SlotIndex};
use kvtide_kernels::abi::{HEADER_PAGE_BYTES, PART_ALIGN_BYTES};
use std::fmt;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes of a slot's header page, as a length in memory.
#[expect(clippy::cast_possible_truncation, reason = "4,096 fits every target")]
pub(crate) const HEADER_BYTES: usize = HEADER_PAGE_BYTES as usize;

/// Bytes of one atomic access to a header page.
const WORD_BYTES: usize = size_of::<u64>();

/// The count of accesses that stands for one writer.
const WRITER: u32 = u32::MAX;

/// One group's host slots.
pub struct Slab {
    region: Region,
    slot_count: u32,
    slot_bytes: usize,
    /// Accesses under way by slot: a number of readers, or [`WRITER`].
    accesses: Box<[AtomicU32]>,
}

impl fmt::Debug for Slab {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Slab")
            .field("slot_count", &self.slot_count)
            .field("slot_bytes", &self.slot_bytes)
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

impl Slab {
    /// Allocates `slot_count` zeroed slots of `slot` bytes each, on 2 MiB pages where possible.
    ///
    /// Faults every page in, so that no access faults later: takes the time of writing it once, and
    /// more where a virtual machine gets the memory from its host only now.
    ///
    /// # Errors
    ///
    /// [`SlabError::Size`] without slots or for slots that are not whole pages;
    /// [`SlabError::Unavailable`] when there is not enough memory; [`SlabError::Refused`] when the
    /// kernel says so.
    ///
    /// ```
    /// use kvtide::mem::Slab;
    /// use kvtide::units::{ByteCount, SlotIndex};
    ///
    /// let slab = Slab::allocate(4, ByteCount::new(64 << 10))?;
    /// let slot = slab.slot(SlotIndex::new(3), ByteCount::new(8 << 10));
    /// let mut access = slot.write().expect("nobody else uses the slot");
    /// access.payload().fill(7);
    /// drop(access);
    /// assert_eq!(slot.read().expect("nobody writes it").payload(), [7; 4096]);
    /// # Ok::<(), kvtide::mem::SlabError>(())
    /// ```
    pub fn allocate(slot_count: u32, slot: ByteCount) -> Result<Arc<Self>, SlabError> {
        Self::allocate_for("host slab", slot_count, slot)
    }

    /// Allocates slots for `purpose`, which errors name.
    pub(crate) fn allocate_for(
        purpose: &'static str,
        slot_count: u32,
        slot: ByteCount,
    ) -> Result<Arc<Self>, SlabError> {
        let size_error = || SlabError::Size { purpose, slot_count, slot };
        let slot_bytes = usize::try_from(slot.get()).map_err(|_| size_error())?;
        let is_whole_pages = slot_bytes > 0 && slot.get().is_multiple_of(PART_ALIGN_BYTES);
        let bytes = slot
            .get()
            .checked_mul(u64::from(slot_count))
            .filter(|&bytes| is_whole_pages && bytes > 0 && i64::try_from(bytes).is_ok())
            .ok_or_else(size_error)?;
        let region = Region::map(purpose, ByteCount::new(bytes))?;
        let accesses = (0..slot_count).map(|_| AtomicU32::new(0)).collect();
        Ok(Arc::new(Self { region, slot_count, slot_bytes, accesses }))
    }

    /// Returns which pages the slab lies on.
    pub fn page_kind(&self) -> PageKind {
        self.region.page_kind()
    }

    /// Returns why the slab does not lie on 2 MiB pages; none where it does, or is smaller than
    /// one.
    pub fn downgrade(&self) -> Option<&Downgrade> {
        self.region.downgrade()
    }

    /// Returns the bytes of one slot: a multiple of 4 KiB.
    pub fn slot_bytes(&self) -> ByteCount {
        ByteCount::new(self.slot_bytes as u64)
    }

    /// Returns the number of slots.
    pub fn slot_count(&self) -> u32 {
        self.slot_count
    }

    /// Returns the memory of all slots, for whoever registers it: first address and bytes.
    pub fn memory(&self) -> (*mut u8, ByteCount) {
        (self.region.base().as_ptr(), ByteCount::new(self.region.length() as u64))
    }

    /// Returns the first `length` bytes of a slot: header page and payload.
    ///
    /// # Panics
    ///
    /// If there is no such slot, or `length` is not a multiple of 4 KiB from the header page's to
    /// the slot's: the core hands out slots that exist, and packings fit them.
    pub fn slot(self: &Arc<Self>, slot: SlotIndex, length: ByteCount) -> SlotMemory {
        assert!(slot.get() < self.slot_count, "slot {slot} of {}", self.slot_count);
        assert!(
            (HEADER_PAGE_BYTES..=self.slot_bytes as u64).contains(&length.get())
                && length.get().is_multiple_of(PART_ALIGN_BYTES),
            "{} bytes of a slot of {}",
            length.get(),
            self.slot_bytes
        );
        let length = usize::try_from(length.get()).expect("at most a slot, which is mapped");
        SlotMemory { slab: Arc::clone(self), index: slot.get() as usize, length }
    }
}

/// The bytes of one slot that one chunk fills. Keeps the slab alive.
pub struct SlotMemory {
    slab: Arc<Slab>,
    index: usize,
    length: usize,
}

impl fmt::Debug for SlotMemory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SlotMemory")
            .field("index", &self.index)
            .field("length", &self.length)
            .finish_non_exhaustive()
    }
}

impl SlotMemory {
    /// Returns the address of the header page: a multiple of 4 KiB.
    pub fn address(&self) -> *mut u8 {
        // In bounds by the assertions of `Slab::slot`; wrapping, so that no proof is needed here.
        self.slab.region.base().as_ptr().wrapping_add(self.index * self.slab.slot_bytes)
    }

    /// Returns the bytes of header page and payload together.
    pub fn length(&self) -> ByteCount {
        ByteCount::new(self.length as u64)
    }

    /// Returns the words of the header page from `offset` bytes on, `length` bytes of them.
    fn header(&self, offset: usize, length: usize) -> &[AtomicU64] {
        assert!(
            offset.is_multiple_of(WORD_BYTES) && length.is_multiple_of(WORD_BYTES),
            "{length} bytes at byte {offset} are not whole words of a header page"
        );
        assert!(
            length <= HEADER_BYTES && offset <= HEADER_BYTES - length,
            "{length} bytes at byte {offset} of a header page"
        );
        #[expect(clippy::cast_ptr_alignment, reason = "a slot starts at a multiple of 4 KiB")]
        let words = self.address().cast::<AtomicU64>();
        // SAFETY: the words are the slot's header page, which is mapped and initialised while
        // `self` holds the slab, aligned, and accessed only through this function.
        let header = unsafe { slice::from_raw_parts(words, HEADER_BYTES / WORD_BYTES) };
        &header[offset / WORD_BYTES..][..length / WORD_BYTES]
    }

    /// Writes `bytes` into the header page from `offset` on. A reader of the same bytes sees each
    /// word old or new.
    ///
    /// # Panics
    ///
    /// If `offset` or the number of bytes is not a multiple of 8, or they end after the page.
    pub fn write_header(&self, offset: usize, bytes: &[u8]) {
        let (words, _) = bytes.as_chunks::<WORD_BYTES>();
        for (target, word) in self.header(offset, bytes.len()).iter().zip(words) {
            target.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
    }

    /// Reads `bytes` out of the header page from `offset` on.
    ///
    /// # Panics
    ///
    /// If `offset` or the number of bytes is not a multiple of 8, or they end after the page.
    pub fn read_header(&self, offset: usize, bytes: &mut [u8]) {
        let source = self.header(offset, bytes.len());
        let (words, _) = bytes.as_chunks_mut::<WORD_BYTES>();
        for (word, source) in words.iter_mut().zip(source) {
            *word = source.load(Ordering::Relaxed).to_ne_bytes();
        }
    }

    /// Begins to read the payload; none while somebody writes it.
    pub fn read(&self) -> Option<ReadAccess<'_>> {
        let add_reader = |count: u32| count.checked_add(1).filter(|&count| count != WRITER);
        self.accesses()
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, add_reader)
            .ok()
            .map(|_| ReadAccess { slot: self })
    }

    /// Begins to write the payload; none while somebody reads or writes it.
    pub fn write(&self) -> Option<WriteAccess<'_>> {
        self.accesses()
            .compare_exchange(0, WRITER, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| WriteAccess { slot: self })
    }

    fn accesses(&self) -> &AtomicU32 {
        &self.slab.accesses[self.index]
    }

    /// Returns the payload's first address and bytes.
    fn payload(&self) -> (*mut u8, usize) {
        (self.address().wrapping_add(HEADER_BYTES), self.length - HEADER_BYTES)
    }
}

/// A read of a slot's payload under way: nobody writes it meanwhile.
#[derive(Debug)]
pub struct ReadAccess<'slot> {
    slot: &'slot SlotMemory,
}

impl ReadAccess<'_> {
    /// Returns the payload.
    pub fn payload(&self) -> &[u8] {
        let (address, length) = self.slot.payload();
        // SAFETY: the range lies in the slot (asserted by `Slab::slot`), is mapped while the slot
        // is borrowed and always initialised; the count of readers keeps writers out.
        unsafe { slice::from_raw_parts(address, length) }
    }
}

impl Drop for ReadAccess<'_> {
    fn drop(&mut self) {
        self.slot.accesses().fetch_sub(1, Ordering::Release);
    }
}

/// A write of a slot's payload under way: nobody else reads or writes it meanwhile.
#[derive(Debug)]
pub struct WriteAccess<'slot> {
    slot: &'slot SlotMemory,
}

impl WriteAccess<'_> {
    /// Returns the payload.
    pub fn payload(&mut self) -> &mut [u8] {
        let (address, length) = self.slot.payload();
        // SAFETY: the range lies in the slot (asserted by `Slab::slot`), is mapped while the slot
        // is borrowed and always initialised; WRITER keeps all others out.
        unsafe { slice::from_raw_parts_mut(address, length) }
    }
}

impl Drop for WriteAccess<'_> {
    fn drop(&mut self) {
        self.slot.accesses().store(0, Ordering::Release);
    }
}

/// An access to a whole slot by hardware, which reads or writes it by [`SlotMemory::address`].
///
/// Lasts until it is dropped. A hold to write keeps all others out, of the payload; the header page
/// is apart, as ever.
#[derive(Debug)]
pub struct SlotHold {
    slot: SlotMemory,
    is_write: bool,
}

impl SlotHold {
    /// Begins to read the slot; none while somebody writes it.
    pub fn to_read(slot: SlotMemory) -> Option<Self> {
        std::mem::forget(slot.read()?);
        Some(Self { slot, is_write: false })
    }

    /// Begins to write the slot; none while somebody reads or writes it.
    pub fn to_write(slot: SlotMemory) -> Option<Self> {
        std::mem::forget(slot.write()?);
        Some(Self { slot, is_write: true })
    }

    /// Returns the slot.
    pub fn slot(&self) -> &SlotMemory {
        &self.slot
    }

    /// Returns whether the hold is one to write.
    pub fn is_write(&self) -> bool {
        self.is_write
    }
}

impl Drop for SlotHold {
    fn drop(&mut self) {
        // The accesses that were forgotten when it began.
        if self.is_write {
            drop(WriteAccess { slot: &self.slot });
        } else {
            drop(ReadAccess { slot: &self.slot });
        }
    }
}
