//! The slots of a store: every header, what the index says of them, and with `--payload` every
//! part against its sum.
//!
//! The store is locked; nothing is written.

use crate::check::{Findings, Kind};
use crate::progress;
use crate::stores::now_s;
use kvtide::io::{Disk, IoBuffer, IoFault, IoFinished, IoMemory, IoOperation, IoWork};
use kvtide::key::Key;
use kvtide::store::format::SnapshotEntry;
use kvtide::store::{Entry, Finding, ReadFault, Scanned, Standing, Store, Survey, TagSpace};
use kvtide::units::{ByteCount, SlotIndex};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const SCAN: TagSpace = TagSpace::new(1);
const PAYLOADS: TagSpace = TagSpace::new(2);

/// Slots whose findings are taken over at a time.
const BATCH_SLOTS: usize = 1024;

/// Memory of payloads under way at a time, but at least one slot.
const PAYLOAD_MEMORY_BYTES: u64 = 64 << 20;

/// How long a report is waited for before it is asked for again.
const WAIT: Duration = Duration::from_millis(100);

/// What a store's slots hold.
pub(crate) struct Checked {
    pub(crate) slot_count: u32,
    /// Valid chunks whose life is not over, as the next open finds them.
    pub(crate) resident: Vec<(Key, SlotIndex)>,
    pub(crate) expired_count: u64,
    /// Slots with an older write of a chunk that is elsewhere too.
    pub(crate) older_count: u32,
    /// Slots with a chunk from before the store was cleared.
    pub(crate) cleared_count: u32,
    /// Bytes compared with sums.
    pub(crate) payload: ByteCount,
    /// Slots whose content must not be offered.
    pub(crate) damaged: BTreeSet<SlotIndex>,
}

/// What headers say.
#[derive(Default)]
struct Headers {
    /// The newest write of each chunk.
    newest: BTreeMap<SlotIndex, Entry>,
    /// Slots with older writes of those.
    older: BTreeSet<SlotIndex>,
    cleared_count: u32,
}

/// Checks the slots of a store; `name` is for the progress bar.
pub(crate) fn check_slots(
    disk: &mut dyn Disk,
    store: &mut Store,
    survey: &Survey,
    findings: &mut Findings,
    (name, with_payload): (&str, bool),
) -> Checked {
    let mut check = SlotCheck {
        survey,
        findings,
        headers: Headers::default(),
        listed: listed(&survey.standing),
        damaged: BTreeSet::new(),
    };
    check.scan(disk, store, name);
    check.compare_with_index(store);
    let payload = if with_payload { check.payloads(disk, store, name) } else { 0 };
    check.finish(store.slot_count(), ByteCount::new(payload))
}

/// Returns what the index says of each slot; `None` without one that counts.
fn listed(standing: &Standing) -> Option<BTreeMap<SlotIndex, SnapshotEntry>> {
    let Standing::Clean(listed) = standing else { return None };
    Some(listed.iter().map(|entry| (entry.slot(), *entry)).collect())
}

struct SlotCheck<'check> {
    survey: &'check Survey,
    findings: &'check mut Findings,
    headers: Headers,
    listed: Option<BTreeMap<SlotIndex, SnapshotEntry>>,
    damaged: BTreeSet<SlotIndex>,
}

impl SlotCheck<'_> {
    /// Reads all headers.
    fn scan(&mut self, disk: &mut dyn Disk, store: &mut Store, name: &str) {
        let Some(mut scan) = store.scan(SCAN) else { return };
        let bar = progress::checking_headers(name, store.slot_count().into());
        while !scan.is_done() {
            disk.submit(scan.operations(store, disk.depth()));
            for report in wait_for_reports(disk) {
                scan.finished(report);
            }
            let batch = scan.take(store, BATCH_SLOTS);
            bar.inc(batch.len() as u64);
            for scanned in batch {
                self.take(scanned);
            }
        }
    }

    fn take(&mut self, Scanned { slot, finding }: Scanned) {
        match finding {
            Finding::Chunk { entry, replaces } => {
                self.headers.newest.insert(slot, entry);
                if let Some(older) = replaces {
                    self.headers.newest.remove(&older);
                    self.headers.older.insert(older);
                }
            }
            Finding::Older { .. } => {
                self.headers.older.insert(slot);
            }
            Finding::Cleared => self.headers.cleared_count += 1,
            Finding::Refused(fault) => self.add_damage(Kind::Header, slot, &fault),
            // That the file is too short was said once.
            Finding::Unreadable(IoFault::EndOfFile { .. })
                if self.survey.data_missing.get() > 0 => {}
            Finding::Unreadable(fault) => self.add_damage(Kind::Unreadable, slot, &fault),
            // Blank.
            _ => {}
        }
    }

    /// Adds a damaged slot.
    fn add_damage(&mut self, kind: Kind, slot: SlotIndex, what: &dyn ToString) {
        let key = self.key(slot);
        self.findings.add_slot(kind, slot, key, what);
        self.damaged.insert(slot);
    }

    /// Returns whose slot it is, by its header or else by the index.
    fn key(&self, slot: SlotIndex) -> Option<Key> {
        let of_header = self.headers.newest.get(&slot).map(|entry| entry.key);
        let of_index = || match self.listed.as_ref()?.get(&slot)? {
            SnapshotEntry::Chunk(entry) => Some(entry.key),
            _ => None,
        };
        of_header.or_else(of_index)
    }

    /// Compares the index of a closed store with the headers.
    fn compare_with_index(&mut self, store: &Store) {
        let Some(listed) = &self.listed else { return };
        for (&slot, entry) in listed {
            let header = self.headers.newest.get(&slot);
            let key = match entry {
                SnapshotEntry::Chunk(entry) => Some(entry.key),
                _ => None,
            };
            let is_same = match (entry, header) {
                (SnapshotEntry::Chunk(entry), Some(header)) => entry == header,
                _ => store.agrees(entry),
            };
            if !is_same && !self.damaged.contains(&slot) {
                let what = "the index tells of a chunk that the slot's header is not of";
                self.findings.add_slot(Kind::Index, slot, key, &what);
            }
        }
        let valid = self.headers.newest.keys().chain(&self.headers.older);
        for &slot in valid.filter(|slot| !listed.contains_key(slot)) {
            let key = self.headers.newest.get(&slot).map(|entry| entry.key);
            let what = "the index does not tell of the chunk that is there";
            self.findings.add_slot(Kind::Index, slot, key, &what);
        }
    }

    /// Reads every slot with a valid header, and compares its parts with their sums. Returns the
    /// bytes compared.
    fn payloads(&mut self, disk: &mut dyn Disk, store: &Store, name: &str) -> u64 {
        let slot_bytes = store.shape().slot().get();
        let slots: Vec<SlotIndex> =
            self.headers.newest.keys().chain(&self.headers.older).copied().collect();
        let bar = progress::checking_payloads(name, slots.len() as u64 * slot_bytes);
        let fits = u32::try_from(PAYLOAD_MEMORY_BYTES / slot_bytes).unwrap_or(u32::MAX);
        let depth = disk.depth().min(fits).max(1) as usize;
        let page_count = usize::try_from(slot_bytes / 4096).expect("a slot of 1 GiB at most");
        let mut buffers: Vec<IoBuffer> = Vec::new();
        let (mut next, mut in_flight, mut compared) = (slots.iter(), 0_usize, 0);
        loop {
            let reads = next.by_ref().take(depth - in_flight).map(|&slot| {
                let buffer = buffers.pop().unwrap_or_else(|| IoBuffer::zeroed(page_count));
                let (offset, memory) = (store.slot_offset(slot), IoMemory::Buffer(buffer));
                let work = IoWork::Read { offset, memory };
                IoOperation { tag: PAYLOADS.tag(slot.get()), file: store.data_file(), work }
            });
            let reads: Vec<IoOperation> = reads.collect();
            in_flight += reads.len();
            if in_flight == 0 {
                return compared;
            }
            disk.submit(reads);
            for IoFinished { tag, outcome, memory } in wait_for_reports(disk) {
                in_flight -= 1;
                bar.inc(slot_bytes);
                let buffer = memory.and_then(IoMemory::into_buffer);
                let image = outcome.map(|()| buffer.as_ref().map_or(&[][..], IoBuffer::bytes));
                #[expect(clippy::cast_possible_truncation, reason = "the lower half is the slot")]
                let slot = SlotIndex::new(tag as u32);
                compared += self.verify(store, slot, image);
                buffers.extend(buffer);
            }
        }
    }

    /// Verifies one slot's image; returns the bytes compared.
    fn verify(&mut self, store: &Store, slot: SlotIndex, image: Result<&[u8], IoFault>) -> u64 {
        let image = match image {
            Ok(image) => image,
            Err(fault) => {
                self.add_damage(Kind::Unreadable, slot, &fault);
                return 0;
            }
        };
        match store.expected(slot).verify(image) {
            Ok(header) => header.identity.payload.get(),
            Err(fault @ ReadFault::Part { .. }) => {
                self.add_damage(Kind::Payload, slot, &fault);
                0
            }
            Err(fault) => {
                self.add_damage(Kind::Header, slot, &fault);
                0
            }
        }
    }

    fn finish(self, slot_count: u32, payload: ByteCount) -> Checked {
        let Self { headers, listed, damaged, .. } = self;
        let now_s = now_s();
        let is_told = |slot: &SlotIndex, entry: &Entry| {
            let told = listed.as_ref().map(|listed| listed.get(slot));
            told.is_none_or(|told| told == Some(&SnapshotEntry::Chunk(*entry)))
        };
        let found = headers.newest.iter();
        let (expired, resident): (Vec<_>, Vec<_>) = found
            .filter(|(slot, entry)| !damaged.contains(slot) && is_told(slot, entry))
            .partition(|(_, entry)| entry.is_expired(now_s));
        Checked {
            slot_count,
            resident: resident.into_iter().map(|(slot, entry)| (entry.key, *slot)).collect(),
            expired_count: expired.len() as u64,
            older_count: u32::try_from(headers.older.len()).unwrap_or(u32::MAX),
            cleared_count: headers.cleared_count,
            payload,
            damaged,
        }
    }
}

fn wait_for_reports(disk: &mut dyn Disk) -> Vec<IoFinished> {
    let mut reports = Vec::new();
    disk.poll(&mut reports);
    while reports.is_empty() {
        disk.wait(WAIT);
        disk.poll(&mut reports);
    }
    reports
}
