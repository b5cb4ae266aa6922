//! Scrubbing: reads every slot on disk in turn, at a budget of bytes, and gives up what rotted
//! before anybody asks for it.
//!
//! One slot at a time, whole, into a buffer of the scrubber's own. A slot that is written anew
//! while it is read is passed over: the generation says so. A fault of the drive is no rot: the
//! next load finds out.
//!
//! Called by the disk thread.

use super::group::{GroupStore, Service};
use crate::io::{IoBuffer, IoFinished, IoMemory, IoOperation, IoWork};
use crate::store::{Generation, ReadFault, TagSpace};
use crate::units::{ByteCount, SlotIndex};
use std::time::{Duration, Instant};

/// Slots that one look for the next chunk passes over at most.
const SLOTS_PER_LOOK: u32 = 4096;

/// A slot that is being read.
#[derive(Clone, Copy, Debug)]
struct Reading {
    store: usize,
    slot: SlotIndex,
    generation: Generation,
}

/// A slot that does not hold what was written.
#[derive(Debug)]
pub(super) struct Rotten {
    pub(super) store: usize,
    pub(super) slot: SlotIndex,
    pub(super) fault: ReadFault,
}

/// Where the scrubbing of a disk tier is.
#[derive(Debug)]
pub(super) struct Scrubber {
    space: TagSpace,
    bytes_per_second: u64,
    due: Instant,
    /// The store and slot that are looked at next.
    store: usize,
    slot: u32,
    buffer: Option<IoBuffer>,
    reading: Option<Reading>,
}

impl Scrubber {
    /// Makes a scrubber with tags of its own; a budget of 0 never reads.
    pub(super) fn new(space: TagSpace, budget: ByteCount, now: Instant) -> Self {
        Self {
            space,
            bytes_per_second: budget.get(),
            due: now,
            store: 0,
            slot: 0,
            buffer: None,
            reading: None,
        }
    }

    pub(super) fn space(&self) -> TagSpace {
        self.space
    }

    pub(super) fn is_reading(&self) -> bool {
        self.reading.is_some()
    }

    /// How long until the next read is due.
    pub(super) fn until_due(&self, now: Instant) -> Duration {
        if self.bytes_per_second == 0 || self.is_reading() {
            return Duration::MAX;
        }
        self.due.saturating_duration_since(now)
    }

    /// Returns the next read, if it is due.
    pub(super) fn operation(&mut self, stores: &[GroupStore], now: Instant) -> Option<IoOperation> {
        if self.bytes_per_second == 0 || self.is_reading() || now < self.due {
            return None;
        }
        let Some(reading) = self.next_chunk(stores) else {
            // Nothing in sight: look again when a slot's worth of time is over.
            self.spend(now, stores.first()?.store.shape().slot());
            return None;
        };
        let store = &stores[reading.store].store;
        let slot_bytes = store.shape().slot();
        self.spend(now, slot_bytes);
        let memory = IoMemory::Buffer(self.take_buffer(slot_bytes));
        self.reading = Some(reading);
        let work = IoWork::Read { offset: store.slot_offset(reading.slot), memory };
        Some(IoOperation { tag: self.space.tag(0), file: store.data_file(), work })
    }

    fn spend(&mut self, now: Instant, bytes: ByteCount) {
        let nanoseconds = u128::from(bytes.get()) * 1_000_000_000;
        let nanoseconds = nanoseconds.div_ceil(u128::from(self.bytes_per_second));
        self.due = now + Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX));
    }

    /// Takes the buffer, if it is as long as a slot.
    fn take_buffer(&mut self, slot: ByteCount) -> IoBuffer {
        let pages = usize::try_from(slot.get() / crate::io::IO_ALIGN_BYTES)
            .expect("a slot is at most 1 GiB");
        let fits = |buffer: &IoBuffer| buffer.bytes().len() as u64 == slot.get();
        self.buffer.take().filter(fits).unwrap_or_else(|| IoBuffer::zeroed(pages))
    }

    /// Finds the next slot with a chunk, within a bounded look.
    fn next_chunk(&mut self, stores: &[GroupStore]) -> Option<Reading> {
        for _ in 0..SLOTS_PER_LOOK {
            let GroupStore { store: held, service, .. } = stores.get(self.store)?;
            let is_read = *service != Service::Lost;
            let (store, slot) = (self.store, SlotIndex::new(self.slot));
            let is_last = self.slot + 1 >= held.slot_count() || !is_read;
            if is_last {
                self.store = (store + 1) % stores.len();
            }
            self.slot = if is_last { 0 } else { self.slot + 1 };
            if let Some(generation) = held.generation(slot).filter(|_| is_read) {
                return Some(Reading { store, slot, generation });
            }
        }
        None
    }

    /// Takes in the end of its read; returns the slot if it is not what was written.
    pub(super) fn finished(&mut self, stores: &[GroupStore], report: IoFinished) -> Option<Rotten> {
        let Reading { store: number, slot, generation } = self.reading.take()?;
        let buffer = report.memory.and_then(IoMemory::into_buffer)?;
        let store = &stores[number].store;
        let is_same = store.generation(slot) == Some(generation) && !store.is_writing(slot);
        let verified = store.expected(slot).verify(buffer.bytes());
        self.buffer = Some(buffer);
        if report.outcome.is_err() || !is_same {
            return None;
        }
        let fault = match verified {
            Ok(header) if header.stamp.generation == generation => return None,
            Ok(header) => {
                ReadFault::Generation { expected: generation, found: header.stamp.generation }
            }
            Err(fault) => fault,
        };
        Some(Rotten { store: number, slot, fault })
    }
}
