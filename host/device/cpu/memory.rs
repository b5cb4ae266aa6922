//! Host memory that plays an engine's device memory.
//!
//! Reads and writes go through a lock that packs and unpacks take too, so that a slip in the
//! engine's ordering gives old or new bytes, never undefined behaviour, and no caller needs unsafe
//! code. The lock orders nothing else: when a block may be touched is for events to say, as on a
//! GPU. An engine with memory of its own opens the device with
//! [`open_foreign`](super::CpuDevice::open_foreign).
//!
//! Called by engines, tests and the CPU device.
#![expect(unsafe_code, reason = "hands out slices of mapped memory")]

use crate::mem::{PageKind, Region, SlabError};
use crate::units::ByteCount;
use std::ops::Range;
use std::slice;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// One region of device memory, zeroed at first.
#[derive(Debug)]
pub struct DeviceMemory {
    region: Region,
    length: ByteCount,
    access: RwLock<()>,
}

impl DeviceMemory {
    /// Allocates `length` zeroed bytes, on 2 MiB pages where possible.
    ///
    /// # Errors
    ///
    /// [`SlabError::Unavailable`] when there is not enough memory; [`SlabError::Refused`] when the
    /// kernel says so, or for no bytes at all.
    pub fn allocate(length: ByteCount) -> Result<Arc<Self>, SlabError> {
        let region = Region::map("device memory", length)?;
        // Layouts name this memory by number.
        let _ = region.base().as_ptr().expose_provenance();
        Ok(Arc::new(Self { region, length, access: RwLock::new(()) }))
    }

    /// Returns the first byte's address, for planes: a multiple of 4 KiB.
    pub fn address(&self) -> u64 {
        self.region.base().addr().get() as u64
    }

    /// Returns the bytes.
    pub fn length(&self) -> ByteCount {
        self.length
    }

    /// Returns which pages the memory lies on.
    pub fn page_kind(&self) -> PageKind {
        self.region.page_kind()
    }

    /// Copies the bytes from `offset` on into `bytes`.
    ///
    /// # Panics
    ///
    /// If they end after the memory.
    pub fn read(&self, offset: u64, bytes: &mut [u8]) {
        let range = self.range(offset, bytes.len());
        let _nobody_writes = self.shared();
        let (base, length) = (self.region.base().as_ptr(), self.region.length());
        // SAFETY: the region is mapped and initialised while `self` lives; all who write it hold
        // the lock alone.
        let memory = unsafe { slice::from_raw_parts(base, length) };
        bytes.copy_from_slice(&memory[range]);
    }

    /// Copies `bytes` to the bytes from `offset` on.
    ///
    /// # Panics
    ///
    /// If they end after the memory.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        let range = self.range(offset, bytes.len());
        let _nobody_else = self.exclusive();
        let (base, length) = (self.region.base().as_ptr(), self.region.length());
        // SAFETY: as in `read`; the lock is held alone.
        let memory = unsafe { slice::from_raw_parts_mut(base, length) };
        memory[range].copy_from_slice(bytes);
    }

    /// Checks a range, before the lock is taken.
    fn range(&self, offset: u64, length: usize) -> Range<usize> {
        let end = offset.checked_add(length as u64).filter(|&end| end <= self.length.get());
        let range = end.and_then(|end| Some(narrow(offset)?..narrow(end)?));
        let bytes = self.length.get();
        range.unwrap_or_else(|| panic!("{length} bytes at {offset} of {bytes} of device memory"))
    }

    /// Keeps writers out.
    pub(super) fn shared(&self) -> RwLockReadGuard<'_, ()> {
        self.access.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps everybody else out.
    pub(super) fn exclusive(&self) -> RwLockWriteGuard<'_, ()> {
        self.access.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn narrow(bytes: u64) -> Option<usize> {
    usize::try_from(bytes).ok()
}
