//! The memory of disk operations: pages of host slots, and page-aligned buffers.
//!
//! Invariants: addresses and lengths are multiples of [`IO_ALIGN_BYTES`]; memory lives, and the
//! slab's account of accesses knows of it, until the value is dropped, which a back end does only
//! after the kernel reported the operation's end.
//!
//! Called by disk back ends, the store and the pager's disk thread.
#![expect(unsafe_code, reason = "allocates aligned pages and hands their addresses to the kernel")]

use super::IO_ALIGN_BYTES;
use crate::mem::{SlotHold, SlotMemory};
use crate::units::ByteCount;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of one atomic access to a slot's pages.
const WORD_BYTES: usize = size_of::<u64>();

/// What an operation reads into or writes from.
#[derive(Debug)]
pub enum IoMemory {
    /// Pages of a host slot.
    Slot(SlotPages),
    /// A buffer of its own.
    Buffer(IoBuffer),
}

impl IoMemory {
    /// Returns the first address: a multiple of [`IO_ALIGN_BYTES`].
    pub fn address(&self) -> *mut u8 {
        match self {
            Self::Slot(pages) => pages.address(),
            Self::Buffer(buffer) => buffer.base.as_ptr(),
        }
    }

    /// Returns the bytes: a multiple of [`IO_ALIGN_BYTES`], at least one page.
    pub fn length(&self) -> ByteCount {
        match self {
            Self::Slot(pages) => pages.length(),
            Self::Buffer(buffer) => ByteCount::new(buffer.length as u64),
        }
    }

    /// Returns whether a read may fill it: pages of a slot must be held to be filled.
    pub fn is_writable(&self) -> bool {
        match self {
            Self::Slot(pages) => pages.hold.is_write(),
            Self::Buffer(_) => true,
        }
    }

    /// Copies `bytes` to the start of the memory: what a read does that the processor carries out.
    ///
    /// # Panics
    ///
    /// If there are more bytes than memory or not whole words of 8, or if the memory is pages of a
    /// slot that is held to be written out.
    pub fn copy_from(&mut self, bytes: &[u8]) {
        match self {
            Self::Slot(pages) => pages.copy_from(bytes),
            Self::Buffer(buffer) => buffer.bytes_mut()[..bytes.len()].copy_from_slice(bytes),
        }
    }

    /// Copies the start of the memory to `bytes`: what a write does that the processor carries
    /// out.
    ///
    /// # Panics
    ///
    /// If there are more bytes than memory or not whole words of 8.
    pub fn copy_to(&self, bytes: &mut [u8]) {
        match self {
            Self::Slot(pages) => pages.copy_to(bytes),
            Self::Buffer(buffer) => bytes.copy_from_slice(&buffer.bytes()[..bytes.len()]),
        }
    }

    /// Returns the buffer; `None` for pages of a slot.
    pub fn into_buffer(self) -> Option<IoBuffer> {
        match self {
            Self::Slot(_) => None,
            Self::Buffer(buffer) => Some(buffer),
        }
    }
}

/// Pages of one host slot, header page included, held for a disk's operation.
///
/// Clones of one hold may be under way together, for parts of the slot that do not overlap.
#[derive(Clone, Debug)]
pub struct SlotPages {
    hold: Arc<SlotHold>,
    range: Range<usize>,
    /// Whether the hold keeps readers out.
    fills: bool,
}

impl SlotPages {
    /// Holds a whole slot that is to be written to a file; `None` while somebody writes it.
    pub fn to_write_out(slot: SlotMemory) -> Option<Self> {
        SlotHold::to_read(slot).map(|hold| Self::whole(hold, false))
    }

    /// Holds a whole slot that is to be filled from a file; `None` while anybody uses it.
    pub fn to_fill(slot: SlotMemory) -> Option<Self> {
        SlotHold::to_write(slot).map(|hold| Self::whole(hold, true))
    }

    fn whole(hold: SlotHold, fills: bool) -> Self {
        let length = usize::try_from(hold.slot().length().get()).expect("a slot is mapped");
        Self { hold: Arc::new(hold), range: 0..length, fills }
    }

    /// Returns some of the pages, under the same hold.
    ///
    /// # Panics
    ///
    /// If `range`, in bytes from the first of these pages, is empty, is not whole pages or ends
    /// after them.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> Self {
        let align = usize::try_from(IO_ALIGN_BYTES).expect("4,096 fits every target");
        assert!(
            range.start < range.end
                && range.end <= self.range.len()
                && range.start.is_multiple_of(align)
                && range.end.is_multiple_of(align),
            "bytes {range:?} of {} are not whole pages of it",
            self.range.len()
        );
        let start = self.range.start;
        let range = start + range.start..start + range.end;
        Self { hold: Arc::clone(&self.hold), range, fills: self.fills }
    }

    /// Returns the slot.
    pub fn slot(&self) -> &SlotMemory {
        self.hold.slot()
    }

    fn address(&self) -> *mut u8 {
        self.hold.slot().address().wrapping_add(self.range.start)
    }

    fn length(&self) -> ByteCount {
        ByteCount::new(self.range.len() as u64)
    }

    /// Returns the first `length` bytes as words.
    fn words(&self, length: usize) -> &[AtomicU64] {
        assert!(
            length <= self.range.len() && length.is_multiple_of(WORD_BYTES),
            "{length} bytes of {} are not whole words of them",
            self.range.len()
        );
        #[expect(clippy::cast_ptr_alignment, reason = "pages start at a multiple of 4 KiB")]
        let words = self.address().cast::<AtomicU64>();
        // SAFETY: the words lie in the slot, which is mapped, initialised and aligned while the
        // hold lasts. Header pages and other pages of a hold are only accessed by atomics as here;
        // whoever writes a payload otherwise is kept out by the hold, and so is whoever reads it
        // when the hold is to fill the slot, without which nothing is stored below.
        unsafe { slice::from_raw_parts(words, length / WORD_BYTES) }
    }

    fn copy_from(&self, bytes: &[u8]) {
        assert!(self.fills, "a slot that is held to be written out is not filled");
        let (words, _) = bytes.as_chunks::<WORD_BYTES>();
        for (target, word) in self.words(bytes.len()).iter().zip(words) {
            target.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
    }

    fn copy_to(&self, bytes: &mut [u8]) {
        let source = self.words(bytes.len());
        let (words, _) = bytes.as_chunks_mut::<WORD_BYTES>();
        for (word, source) in words.iter_mut().zip(source) {
            *word = source.load(Ordering::Relaxed).to_ne_bytes();
        }
    }
}

/// Zeroed pages of its own, for headers, superblocks and snapshots.
pub struct IoBuffer {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: the pages belong to the buffer alone.
unsafe impl Send for IoBuffer {}

// SAFETY: shared access only reads.
unsafe impl Sync for IoBuffer {}

impl fmt::Debug for IoBuffer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("IoBuffer").field("length", &self.length).finish_non_exhaustive()
    }
}

impl IoBuffer {
    /// Allocates zeroed pages.
    ///
    /// ```
    /// use kvtide::io::IoBuffer;
    ///
    /// let mut buffer = IoBuffer::zeroed(2);
    /// buffer.bytes_mut()[4096] = 7;
    /// assert_eq!((buffer.bytes().len(), buffer.bytes()[4096]), (8192, 7));
    /// ```
    ///
    /// # Panics
    ///
    /// If `page_count` is 0 or more than the address space holds. Aborts without memory.
    pub fn zeroed(page_count: usize) -> Self {
        let layout = Self::layout(page_count);
        // SAFETY: the layout is not of zero bytes, by the assertion in `layout`.
        let base = unsafe { alloc_zeroed(layout) };
        let base = NonNull::new(base).unwrap_or_else(|| handle_alloc_error(layout));
        Self { base, length: layout.size() }
    }

    fn layout(page_count: usize) -> Layout {
        assert!(page_count > 0, "a buffer of no pages");
        let align = usize::try_from(IO_ALIGN_BYTES).expect("4,096 fits every target");
        let bytes = page_count.checked_mul(align).expect("pages that fit the address space");
        Layout::from_size_align(bytes, align).expect("pages that fit the address space")
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the allocation is of that length, initialised, and borrowed with `self`.
        unsafe { slice::from_raw_parts(self.base.as_ptr(), self.length) }
    }

    /// Returns the bytes to be changed.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the allocation is of that length, initialised, and borrowed with `self` alone.
        unsafe { slice::from_raw_parts_mut(self.base.as_ptr(), self.length) }
    }
}

impl Drop for IoBuffer {
    fn drop(&mut self) {
        let align = usize::try_from(IO_ALIGN_BYTES).expect("4,096 fits every target");
        let layout = Self::layout(self.length / align);
        // SAFETY: allocated by `zeroed` with the same layout, and freed only here.
        unsafe { dealloc(self.base.as_ptr(), layout) };
    }
}
