//! The memory that slots are written from and read into: places of one slot each, on pages of
//! 2 MiB or of 4 KiB.
//!
//! Invariant: the bytes of a place belong to whoever took it until they come back.
//!
//! Called by the contenders that run in this process.

use crate::Failure;
use crate::work::{HEADER_BYTES, Workload, fill};
use kvtide::io::{IoBuffer, IoMemory, SlotPages};
use kvtide::mem::{PageKind, Slab, SlotMemory};
use kvtide::units::{ByteCount, SlotIndex};
use std::fs;
use std::sync::{Arc, Mutex, MutexGuard};

/// The pages that places lie on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pages {
    /// Of 2 MiB, in a slab.
    Huge,
    /// Of 4 KiB, from the allocator.
    Small,
}

/// How many places a contender uses in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// As many as the workload has: more than the processor's caches hold.
    Wide,
    /// No more than its operations under way need, which stay in the processor's caches.
    Narrow,
}

/// What an operation does with a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    /// The place is written to a file.
    WriteOut,
    /// The place is filled from a file.
    Fill,
}

/// What slots are written from and read into.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Each place holds the payload of its number.
    pub(crate) sources: Places,
    /// Each place holds what was last read into it.
    pub(crate) targets: Places,
}

impl Memory {
    /// Allocates all places of a workload, and fills the sources.
    pub(crate) fn allocate(workload: &Workload, pages: Pages) -> Result<Self, Failure> {
        let sources = Places::allocate(workload, pages)?;
        for place in 0..workload.place_count {
            sources.change(place, |payload| fill(place, payload));
        }
        Ok(Self { sources, targets: Places::allocate(workload, pages)? })
    }

    /// Returns whether place `target` holds, byte for byte, what place `source` does.
    pub(crate) fn is_equal(&self, target: u32, source: u32) -> bool {
        self.targets.view(target, |read| self.sources.view(source, |written| read == written))
    }
}

/// Names the pages of memory that nobody asked the kernel to put on large ones.
pub(crate) fn small_pages() -> &'static str {
    let setting = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    if setting.is_ok_and(|setting| setting.contains("[always]")) {
        "2 MiB pages where the kernel likes (transparent huge pages are always on)"
    } else {
        "4 KiB pages"
    }
}

/// Places of one slot each.
#[derive(Debug)]
pub(crate) enum Places {
    /// Slots of a slab.
    Slab(Arc<Slab>),
    /// Buffers; none while an operation has it.
    Buffers(Vec<Mutex<Option<IoBuffer>>>),
}

impl Places {
    /// Allocates all places of a workload and touches every page.
    fn allocate(workload: &Workload, pages: Pages) -> Result<Self, Failure> {
        let slot = ByteCount::new(workload.slot_bytes as u64);
        if pages == Pages::Huge {
            return Ok(Self::Slab(Slab::allocate(workload.place_count, slot)?));
        }
        let page_count = workload.slot_bytes / HEADER_BYTES;
        let buffer = |_| {
            let mut buffer = IoBuffer::zeroed(page_count);
            buffer.bytes_mut().fill(1);
            Mutex::new(Some(buffer))
        };
        Ok(Self::Buffers((0..workload.place_count).map(buffer).collect()))
    }

    /// Returns the slab; `None` for buffers.
    pub(crate) fn slab(&self) -> Option<&Arc<Slab>> {
        match self {
            Self::Slab(slab) => Some(slab),
            Self::Buffers(_) => None,
        }
    }

    /// Names the pages that the places really lie on.
    pub(crate) fn page_kind(&self) -> &'static str {
        match self {
            Self::Buffers(_) => small_pages(),
            Self::Slab(slab) => match slab.page_kind() {
                PageKind::HugeTlb => "reserved 2 MiB pages",
                PageKind::TransparentHuge => "transparent 2 MiB pages",
                PageKind::Small => "4 KiB pages, for want of 2 MiB pages",
            },
        }
    }

    /// Lets `visit` read a place's payload.
    pub(crate) fn view<T>(&self, place: u32, visit: impl FnOnce(&[u8]) -> T) -> T {
        match self {
            Self::Slab(slab) => {
                let slot = whole(slab, place);
                let access = slot.read().expect("a place is read by those who did not give it");
                visit(access.payload())
            }
            Self::Buffers(buffers) => {
                visit(&here(&mut lock(buffers, place)).bytes()[HEADER_BYTES..])
            }
        }
    }

    /// Lets `visit` change a place's payload.
    pub(crate) fn change<T>(&self, place: u32, visit: impl FnOnce(&mut [u8]) -> T) -> T {
        match self {
            Self::Slab(slab) => {
                let slot = whole(slab, place);
                let mut access = slot.write().expect("a place is changed by its only user");
                visit(access.payload())
            }
            Self::Buffers(buffers) => {
                visit(&mut here(&mut lock(buffers, place)).bytes_mut()[HEADER_BYTES..])
            }
        }
    }

    /// Writes two words at the start of a place's header page.
    pub(crate) fn write_header(&self, place: u32, words: [u64; 2]) {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&words[0].to_le_bytes());
        bytes[8..].copy_from_slice(&words[1].to_le_bytes());
        match self {
            Self::Slab(slab) => whole(slab, place).write_header(0, &bytes),
            Self::Buffers(buffers) => {
                here(&mut lock(buffers, place)).bytes_mut()[..16].copy_from_slice(&bytes);
            }
        }
    }

    /// Reads the two words at the start of a place's header page.
    pub(crate) fn read_header(&self, place: u32) -> [u64; 2] {
        let mut bytes = [0; 16];
        match self {
            Self::Slab(slab) => whole(slab, place).read_header(0, &mut bytes),
            Self::Buffers(buffers) => {
                bytes.copy_from_slice(&here(&mut lock(buffers, place)).bytes()[..16]);
            }
        }
        let mut words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        std::array::from_fn(|_| words.next().expect("16 bytes are two words"))
    }

    /// Takes a place for an operation of a disk.
    pub(crate) fn take(&self, place: u32, purpose: Use) -> IoMemory {
        match self {
            Self::Slab(slab) => {
                let slot = whole(slab, place);
                let pages = match purpose {
                    Use::WriteOut => SlotPages::to_write_out(slot),
                    Use::Fill => SlotPages::to_fill(slot),
                };
                IoMemory::Slot(pages.expect("a place is taken by one operation at a time"))
            }
            Self::Buffers(buffers) => {
                let buffer = lock(buffers, place).take();
                IoMemory::Buffer(buffer.expect("a place is taken by one operation at a time"))
            }
        }
    }

    /// Gives back what an operation used.
    pub(crate) fn give_back(&self, place: u32, memory: IoMemory) {
        // The hold on a slot ends by being dropped.
        if let Self::Buffers(buffers) = self {
            *lock(buffers, place) = memory.into_buffer();
        }
    }
}

fn whole(slab: &Arc<Slab>, place: u32) -> SlotMemory {
    slab.slot(SlotIndex::new(place), slab.slot_bytes())
}

fn lock(buffers: &[Mutex<Option<IoBuffer>>], place: u32) -> MutexGuard<'_, Option<IoBuffer>> {
    buffers[place as usize].lock().expect("no user of a place panics")
}

fn here(buffer: &mut Option<IoBuffer>) -> &mut IoBuffer {
    buffer.as_mut().expect("no operation has the place")
}
