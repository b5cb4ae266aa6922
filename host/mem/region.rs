//! One mapped region of memory, on the largest pages to be had.
//!
//! Pages of 2 MiB make reads from disk about half again as fast, since the kernel can hand the
//! drive one segment instead of 512. In order of preference: reserved huge pages (hugetlb),
//! transparent huge pages, pages of 4 KiB. What was really got is read back from the kernel after
//! every page was faulted in; anything less than 2 MiB pages is a [`Downgrade`] that says why.
//!
//! Invariants: a region is zeroed, readable, writable and resident from the start and until it is
//! dropped, so no later access faults; children of a fork do not have it and core dumps leave it
//! out. Ordinary mappings have inaccessible pages on both sides: an overrun faults.
//!
//! Called by the slab and by device memory.
#![expect(unsafe_code, reason = "maps and unmaps memory")]

use super::available::{MemoryLimit, available};
use crate::units::ByteCount;
use nix::errno::Errno;
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mmap_anonymous, mprotect, munmap};
use std::ffi::c_void;
use std::fs;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use thiserror::Error;

/// Bytes of a huge page.
pub(super) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Bytes of the smallest page, the step of faulting in by hand.
const SMALL_PAGE_BYTES: usize = 4096;

/// The pages that a region lies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageKind {
    /// Reserved 2 MiB pages, out of the pool that `vm.nr_hugepages` sets.
    HugeTlb,
    /// Ordinary memory that the kernel holds in 2 MiB pages.
    TransparentHuge,
    /// Ordinary pages, at least in part.
    Small,
}

/// Something that works, but less well than it could, and why: a line of the capability report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Downgrade {
    /// What is not as good as it could be.
    pub what: &'static str,
    /// Why.
    pub why: String,
    /// What it costs.
    pub effect: &'static str,
}

/// Why memory could not be had. Each names the bytes asked for and what they are for.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SlabError {
    /// The slots have no bytes, are not whole pages, or are more than an address space holds.
    #[error(
        "{purpose}: {slot_count} slots of {} bytes; there must be at least one slot, of a \
         multiple of 4,096 bytes, and less than 2^63 bytes in all",
        .slot.get()
    )]
    Size {
        /// What the memory is for.
        purpose: &'static str,
        /// Slots asked for.
        slot_count: u32,
        /// Bytes of one slot.
        slot: ByteCount,
    },
    /// Taking the memory would have the system kill this process or another.
    #[error(
        "{purpose}: {bytes} are needed, but {limit} leaves {available}; lower the capacity, or \
         raise the limit"
    )]
    Unavailable {
        /// What the memory is for.
        purpose: &'static str,
        /// Bytes asked for.
        bytes: ByteCount,
        /// Bytes that can be had.
        available: ByteCount,
        /// What bounds them.
        limit: MemoryLimit,
    },
    /// The kernel refused the mapping.
    #[error("{purpose}: the kernel refused {bytes} ({step}: {reason}); lower the capacity")]
    Refused {
        /// What the memory is for.
        purpose: &'static str,
        /// Bytes asked for.
        bytes: ByteCount,
        /// The call that failed.
        step: &'static str,
        /// The kernel's reason.
        reason: String,
    },
}

/// Mapped memory, owned.
#[derive(Debug)]
pub(crate) struct Region {
    base: NonNull<u8>,
    length: usize,
    /// Unmaps when dropped.
    _mapping: Mapping,
    page_kind: PageKind,
    downgrade: Option<Downgrade>,
}

// SAFETY: a region owns its mapping, whose address is valid in every thread.
unsafe impl Send for Region {}
// SAFETY: all that `&Region` gives is an address; who dereferences it answers for races.
unsafe impl Sync for Region {}

/// What is to be unmapped: the region and its inaccessible pages.
#[derive(Debug)]
struct Mapping {
    start: NonNull<c_void>,
    length: usize,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `Mapping::new`, and its owner holds no pointer into it
        // any more.
        let unmapped = unsafe { munmap(self.start, self.length) };
        debug_assert_eq!(unmapped, Ok(()), "a mapping of ours is unmapped once");
    }
}

impl Mapping {
    fn new(length: usize, access: ProtFlags, flags: MapFlags) -> Result<Self, Errno> {
        let size = NonZeroUsize::new(length).ok_or(Errno::EINVAL)?;
        let flags = flags | MapFlags::MAP_PRIVATE;
        // SAFETY: the kernel chooses the address, so that nothing mapped is replaced.
        let start = unsafe { mmap_anonymous(None, size, access, flags) }?;
        Ok(Self { start, length })
    }
}

impl Region {
    /// Maps at least `length` zeroed bytes for `purpose`, faulted in.
    ///
    /// # Errors
    ///
    /// [`SlabError::Unavailable`] and [`SlabError::Refused`].
    pub(crate) fn map(purpose: &'static str, length: ByteCount) -> Result<Self, SlabError> {
        let refused = |step: &'static str, reason: &str| SlabError::Refused {
            purpose,
            bytes: length,
            step,
            reason: reason.to_owned(),
        };
        let wanted = usize::try_from(length.get())
            .ok()
            .filter(|&bytes| bytes <= isize::MAX as usize - 2 * HUGE_PAGE_BYTES)
            .ok_or_else(|| refused("mmap", "more than the address space"))?;
        let is_large = wanted >= HUGE_PAGE_BYTES;
        let page_bytes = if is_large { HUGE_PAGE_BYTES } else { SMALL_PAGE_BYTES };
        let bytes = wanted.next_multiple_of(page_bytes);
        if is_large && let Some(region) = Self::map_reserved(bytes) {
            return Ok(region);
        }
        if let Some((available, limit)) = available()
            && bytes as u64 > available.get()
        {
            let bytes = ByteCount::new(bytes as u64);
            return Err(SlabError::Unavailable { purpose, bytes, available, limit });
        }
        let mut region =
            Self::map_ordinary(bytes).map_err(|(step, errno)| refused(step, errno.desc()))?;
        let advised = if is_large { region.advise(MmapAdvise::MADV_HUGEPAGE) } else { Ok(()) };
        region.fault_in().map_err(|errno| refused("MADV_POPULATE_WRITE", errno.desc()))?;
        if is_large {
            region.see_what_was_got(advised);
        }
        Ok(region)
    }

    /// Maps reserved huge pages, if there are enough.
    fn map_reserved(length: usize) -> Option<Self> {
        let flags = MapFlags::MAP_HUGETLB | MapFlags::MAP_HUGE_2MB;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let mapping = Mapping::new(length, access, flags).ok()?;
        let base = mapping.start.cast();
        let page_kind = PageKind::HugeTlb;
        let mut region = Self { base, length, _mapping: mapping, page_kind, downgrade: None };
        region.keep_private();
        // Without this call a page that a control group refuses would kill us when touched.
        region.advise(MmapAdvise::MADV_POPULATE_WRITE).ok()?;
        Some(region)
    }

    /// Maps ordinary pages at a multiple of 2 MiB, with inaccessible pages on both sides.
    fn map_ordinary(length: usize) -> Result<Self, (&'static str, Errno)> {
        // Room for the alignment, and for at least one small page before and after.
        let total = length + 2 * HUGE_PAGE_BYTES;
        let mapping = Mapping::new(total, ProtFlags::PROT_NONE, MapFlags::MAP_NORESERVE)
            .map_err(|errno| ("mmap", errno))?;
        let start = mapping.start.cast::<u8>();
        let skipped = (start.addr().get() + SMALL_PAGE_BYTES).next_multiple_of(HUGE_PAGE_BYTES)
            - start.addr().get();
        debug_assert!(skipped + length < total, "a page after the region is inaccessible");
        // SAFETY: `skipped` is at most 2 MiB, so inside the mapping.
        let base = unsafe { start.add(skipped) };
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: the range is inside the mapping, to which nobody else has a pointer.
        unsafe { mprotect(base.cast(), length, access) }.map_err(|errno| ("mprotect", errno))?;
        let page_kind = PageKind::Small;
        let mut region = Self { base, length, _mapping: mapping, page_kind, downgrade: None };
        region.keep_private();
        Ok(region)
    }

    /// Gives the kernel advice that leaves the bytes as they are.
    fn advise(&mut self, advice: MmapAdvise) -> Result<(), Errno> {
        // SAFETY: the range is the region, and none of our kinds of advice changes its bytes.
        unsafe { madvise(self.base.cast(), self.length, advice) }
    }

    /// Keeps the region out of children and core dumps. Old kernels and sandboxes may refuse; a
    /// child is refused every call anyway, and a dump is only larger.
    fn keep_private(&mut self) {
        let _ = self.advise(MmapAdvise::MADV_DONTFORK);
        let _ = self.advise(MmapAdvise::MADV_DONTDUMP);
    }

    /// Faults every page in, so that no access faults later and a lack of memory shows now.
    fn fault_in(&mut self) -> Result<(), Errno> {
        match self.advise(MmapAdvise::MADV_POPULATE_WRITE) {
            // Before Linux 5.14: by hand.
            Err(Errno::EINVAL | Errno::ENOSYS) => {
                for offset in (0..self.length).step_by(SMALL_PAGE_BYTES) {
                    // SAFETY: the offset is below the region's length.
                    let page = unsafe { self.base.add(offset) };
                    // SAFETY: the page is writable, and nobody else has a pointer to it.
                    unsafe { page.write_volatile(0) };
                }
                Ok(())
            }
            populated => populated,
        }
    }

    /// Reads back from the kernel which pages the region lies on.
    fn see_what_was_got(&mut self, advised: Result<(), Errno>) {
        let smaps = fs::read_to_string("/proc/self/smaps").ok();
        let huge_bytes = smaps.and_then(|text| huge_bytes(&text, self.base.addr().get()));
        let why = match (huge_bytes, advised) {
            (Some(bytes), _) if bytes >= self.length as u64 => {
                self.page_kind = PageKind::TransparentHuge;
                return;
            }
            (_, Err(errno)) => format!("no hugetlb pages; MADV_HUGEPAGE: {}", errno.desc()),
            (None, Ok(())) => "no hugetlb pages; /proc/self/smaps does not tell about \
                               transparent ones"
                .to_owned(),
            (Some(bytes), Ok(())) => {
                let setting = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
                format!(
                    "no hugetlb pages; {} of {} are on transparent ones \
                     (transparent_hugepage/enabled: {}); set vm.nr_hugepages, or defragment",
                    ByteCount::new(bytes),
                    ByteCount::new(self.length as u64),
                    setting.as_deref().unwrap_or("unknown").trim(),
                )
            }
        };
        self.downgrade = Some(Downgrade {
            what: "2 MiB pages",
            why,
            effect: "disk reads at about two thirds of their rate, and more TLB misses in copies",
        });
    }

    /// Returns the first byte's address: a multiple of 2 MiB.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Returns the bytes: at least those asked for.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Returns which pages the region lies on.
    pub(crate) fn page_kind(&self) -> PageKind {
        self.page_kind
    }

    /// Returns why it does not lie on 2 MiB pages; none where it does, or is smaller than one.
    pub(crate) fn downgrade(&self) -> Option<&Downgrade> {
        self.downgrade.as_ref()
    }
}

/// Finds the bytes on transparent huge pages of the mapping that starts at `address`.
///
/// `/proc/self/smaps` is one line `start-end ...` in hexadecimal for each mapping, each followed by
/// `Name: value kB` lines (`man 5 proc_pid_smaps`). The inaccessible pages around a region keep
/// the kernel from merging it with others.
pub(super) fn huge_bytes(smaps: &str, address: usize) -> Option<u64> {
    let start = format!("{address:x}-");
    let fields = smaps.lines().skip_while(|line| !line.starts_with(&start)).skip(1);
    let line = fields
        .take_while(|line| line.starts_with(|first: char| first.is_ascii_uppercase()))
        .find_map(|line| line.strip_prefix("AnonHugePages:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}
