//! The scan: what a store holds, from the headers of all its slots.
//!
//! After a run that was not closed. A step machine like a [`Task`](super::Task), in the background
//! of other operations: a slot that was not scanned yet is neither a hit nor reused. Headers are
//! reported in ascending order of slots; of several with one key the newest counts.
//!
//! Invariants: every slot is reported exactly once; nothing is written, so a second scan after a
//! power cut finds the same.
//!
//! Called by the pager's disk thread.

use super::Entry;
use super::format::Header;
use super::records::Record;
use super::state::Store;
use super::task::TagSpace;
use super::verify::ReadFault;
use crate::io::{IoBuffer, IoFault, IoFinished, IoMemory, IoOperation, IoWork};
use crate::units::SlotIndex;
use std::collections::{HashMap, VecDeque};

/// Slots whose headers may be read ahead of the first that was not reported.
const WINDOW_SLOTS: u32 = 1024;

/// What the scan found in a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scanned {
    /// The slot. Free, unless it holds a chunk or could not be read.
    pub slot: SlotIndex,
    /// What it holds.
    pub finding: Finding,
}

/// What a header page says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finding {
    /// A chunk.
    Chunk {
        /// The chunk.
        entry: Entry,
        /// The slot reported before that has an older write of the same key. It is free now, if
        /// the chunk is still there.
        replaces: Option<SlotIndex>,
    },
    /// A chunk of which another slot has a newer write.
    Older {
        /// That slot.
        newer: SlotIndex,
    },
    /// Nothing: never written, or erased.
    Blank,
    /// A chunk from before the store was cleared.
    Cleared,
    /// Something that is no chunk of this store.
    Refused(ReadFault),
    /// It could not be read; better not used.
    Unreadable(IoFault),
}

/// How far a scan came, in slots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScanProgress {
    /// Slots reported.
    pub scanned: u32,
    /// Slots of the store.
    pub slots: u32,
    /// Of those scanned, slots with a chunk.
    pub chunks: u32,
    /// Slots with an older write of a chunk that is elsewhere too.
    pub older: u32,
    /// Slots with a chunk from before the store was cleared.
    pub cleared: u32,
    /// Slots with something that is no chunk of this store: torn, rotten or foreign.
    pub refused: u32,
    /// Slots that could not be read.
    pub unreadable: u32,
}

/// What came of one read: the header page, not looked at yet.
type Probe = Result<IoBuffer, IoFault>;

/// A scan of all headers under way.
#[derive(Debug)]
#[must_use = "a scan does nothing until its operations are submitted"]
pub struct Scan {
    space: TagSpace,
    /// The next slot to be read.
    next: u32,
    in_flight: u32,
    /// What was read from the first slot on that was not reported.
    probes: VecDeque<Option<Probe>>,
    buffers: Vec<IoBuffer>,
    progress: ScanProgress,
}

impl Store {
    /// Begins to scan all headers; `None` for a store that is recovered.
    ///
    /// A scan that is dropped is begun anew by the next one, from the first slot that was not
    /// reported.
    pub fn scan(&self, space: TagSpace) -> Option<Scan> {
        let progress = ScanProgress {
            scanned: self.scanned_to,
            slots: self.slot_count(),
            ..ScanProgress::default()
        };
        (!self.is_recovered()).then(|| Scan {
            space,
            next: self.scanned_to,
            in_flight: 0,
            probes: VecDeque::new(),
            buffers: Vec::new(),
            progress,
        })
    }
}

impl Scan {
    /// Returns the space of the scan's tags.
    pub const fn space(&self) -> TagSpace {
        self.space
    }

    /// Returns how far it came.
    pub const fn progress(&self) -> ScanProgress {
        self.progress
    }

    /// Returns the reads under way.
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether every slot was reported.
    pub const fn is_done(&self) -> bool {
        self.progress.scanned == self.progress.slots
    }

    /// Returns reads to submit now, so that at most `depth` are under way.
    pub fn operations(&mut self, store: &Store, depth: u32) -> Vec<IoOperation> {
        let end = self.progress.scanned.saturating_add(WINDOW_SLOTS).min(self.progress.slots);
        let count = depth.saturating_sub(self.in_flight).min(end.saturating_sub(self.next));
        let first = self.next;
        self.next += count;
        self.in_flight += count;
        let read = |slot: u32| {
            self.probes.push_back(None);
            let buffer = self.buffers.pop().unwrap_or_else(|| IoBuffer::zeroed(1));
            let offset = store.slot_offset(SlotIndex::new(slot));
            let work = IoWork::Read { offset, memory: IoMemory::Buffer(buffer) };
            IoOperation { tag: self.space.tag(slot), file: store.data_file(), work }
        };
        (first..first + count).map(read).collect()
    }

    /// Takes the report of one of the scan's reads.
    ///
    /// Costs next to nothing, so that the drive soon gets the next reads: pages are looked at when
    /// they are [taken](Self::take).
    pub fn finished(&mut self, report: IoFinished) {
        self.in_flight -= 1;
        let buffer = report.memory.and_then(IoMemory::into_buffer);
        let probe = report.outcome.and_then(|()| buffer.ok_or(IoFault::NotOpen));
        let position = TagSpace::number(report.tag).wrapping_sub(self.progress.scanned);
        if let Some(place) = self.probes.get_mut(position as usize) {
            *place = Some(probe);
        }
    }

    /// Returns what was found in the next slots, at most `count`, in ascending order.
    pub fn take(&mut self, store: &mut Store, count: usize) -> Vec<Scanned> {
        let mut batch = Vec::new();
        while batch.len() < count {
            let Some(probe) = self.probes.pop_front_if(|probe| probe.is_some()).flatten() else {
                break;
            };
            let slot = SlotIndex::new(self.progress.scanned);
            let finding = judge(store, slot, &probe);
            self.buffers.extend(probe);
            self.count(&finding);
            self.progress.scanned += 1;
            store.scanned_to = self.progress.scanned;
            batch.push(Scanned { slot, finding });
        }
        if store.is_recovered() {
            store.newest = HashMap::new();
        }
        batch
    }

    fn count(&mut self, finding: &Finding) {
        let progress = &mut self.progress;
        match finding {
            Finding::Chunk { replaces, .. } => {
                progress.chunks += 1;
                if replaces.is_some() {
                    progress.chunks -= 1;
                    progress.older += 1;
                }
            }
            Finding::Older { .. } => progress.older += 1,
            Finding::Cleared => progress.cleared += 1,
            Finding::Refused(_) => progress.refused += 1,
            Finding::Unreadable(_) => progress.unreadable += 1,
            Finding::Blank => {}
        }
    }
}

/// Decides what a slot holds, and takes it into the store's records.
fn judge(store: &mut Store, slot: SlotIndex, probe: &Probe) -> Finding {
    let page = match probe {
        Ok(buffer) => buffer.bytes().first_chunk().expect("a buffer has a page"),
        Err(fault) => {
            store.records.set(slot, Record::UNKNOWN);
            return Finding::Unreadable(fault.clone());
        }
    };
    if Header::is_blank(page) {
        return Finding::Blank;
    }
    let entry = match store.expected(slot).header(page) {
        Ok(header) => Entry::of_header(&header),
        Err(ReadFault::Cleared { .. }) => return Finding::Cleared,
        Err(fault) => {
            // It may count yet: a run that was never begun may come to be, and what was misread
            // once may be read well by the next scan. An erasure has to see to it.
            store.records.set(slot, Record::UNKNOWN);
            return Finding::Refused(fault);
        }
    };
    store.records.set(slot, Record::of_entry(&entry));
    let older = store.newest.get(&entry.key).copied();
    if let Some((newer, generation)) = older
        && generation > entry.generation
    {
        return Finding::Older { newer };
    }
    store.newest.insert(entry.key, (slot, entry.generation));
    // Only while that slot was not written anew.
    let is_there = |&(older, generation): &(SlotIndex, _)| {
        !store.records.is_busy(older)
            && store.records.get(older).is_some_and(|record| record.generation == generation)
    };
    let replaces = older.filter(is_there).map(|(slot, _)| slot);
    Finding::Chunk { entry, replaces }
}
