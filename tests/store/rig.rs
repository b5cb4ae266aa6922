//! One store on a simulated drive, driven as the pager's disk thread does, with its oracle.

use super::oracle::{Oracle, image, store_id};
use crate::support::shape;
use kvtide::io::sim::{SimDisk, SimDrive};
use kvtide::io::{Disk, IoBuffer, IoFault, IoFinished, IoMemory, IoOperation, IoWork};
use kvtide::store::format::HeaderStamp;
use kvtide::store::{
    CloseReport, Entry, Erasure, Finding, Opened, Recovery, Store, StoreCall, StoreError,
    StoreFile, StoreOptions, StoreUuid, TagSpace, Task,
};
use kvtide::units::{SlotIndex, TenantId};
use std::collections::BTreeMap;
use std::time::Duration;

/// Where all stores of these tests are.
pub(crate) const ROOT: &str = "/kv";

const TASK: TagSpace = TagSpace::new(1);
const SLOTS: TagSpace = TagSpace::new(2);
const SCAN: TagSpace = TagSpace::new(3);

pub(crate) fn options(slot_count: u32) -> StoreOptions {
    let mut options = StoreOptions::new(ROOT, store_id(1), shape(), slot_count);
    options.new_uuid = StoreUuid::from_bytes([7; 16]);
    options.lock_wait = Duration::from_millis(100);
    options
}

/// A store, its disk, and what it should hold.
pub(crate) struct Rig {
    pub(crate) store: Store,
    pub(crate) disk: SimDisk,
    /// The chunks by slot, as an index would have them.
    pub(crate) index: BTreeMap<SlotIndex, Entry>,
    /// Slot writes that were submitted: what an entry of them would be.
    under_way: BTreeMap<SlotIndex, Entry>,
    /// Whether opening it took a scan.
    pub(crate) is_scanned: bool,
}

impl Rig {
    /// Opens the store, scans it if need be, and checks what it says it holds.
    pub(crate) fn open(
        drive: &SimDrive,
        seed: u64,
        slot_count: u32,
        oracle: &Oracle,
    ) -> Result<Self, StoreError> {
        Self::open_with(drive, seed, &options(slot_count), oracle)
    }

    pub(crate) fn open_with(
        drive: &SimDrive,
        seed: u64,
        options: &StoreOptions,
        oracle: &Oracle,
    ) -> Result<Self, StoreError> {
        let mut rig = Self::open_unchecked(drive, seed, options)?;
        assert!(rig.is_scanned || !oracle.must_scan, "a snapshot was taken after an unclean run");
        oracle.check(&mut rig)?;
        Ok(rig)
    }

    /// Opens the store and scans it if need be.
    pub(crate) fn open_unchecked(
        drive: &SimDrive,
        seed: u64,
        options: &StoreOptions,
    ) -> Result<Self, StoreError> {
        let mut disk = drive.disk(seed);
        let Opened { store, recovery, .. } = Store::open(&mut disk, options)?;
        let (index, under_way) = (BTreeMap::new(), BTreeMap::new());
        let mut rig = Self { store, disk, index, under_way, is_scanned: false };
        match recovery {
            Recovery::Ready(entries) => {
                for entry in entries {
                    assert!(rig.index.insert(entry.slot, entry).is_none(), "{entry:?} twice");
                }
            }
            Recovery::ScanNeeded(_) => rig.scan()?,
        }
        assert!(rig.store.is_recovered());
        Ok(rig)
    }

    /// Scans all slots, as a disk thread does that has nothing else to do.
    pub(crate) fn scan(&mut self) -> Result<(), StoreError> {
        self.is_scanned = true;
        let mut scan = self.store.scan(SCAN).expect("the store is not recovered");
        let mut next = 0;
        while !scan.is_done() {
            let depth = self.disk.depth();
            let reads = scan.operations(&self.store, depth);
            self.disk.submit(reads);
            for report in self.wait() {
                scan.finished(report);
            }
            for scanned in scan.take(&mut self.store, 3) {
                assert_eq!(scanned.slot, SlotIndex::new(next), "slots come in order, each once");
                next += 1;
                if let Finding::Unreadable(fault) = scanned.finding {
                    return Err(self.data_error(StoreCall::Read, fault));
                }
                if let Finding::Chunk { entry, replaces } = scanned.finding {
                    if let Some(older) = replaces {
                        let older = self.index.remove(&older).expect("it was reported before");
                        assert!(older.key == entry.key && older.generation < entry.generation);
                    }
                    let other = self.index.values().find(|other| other.key == entry.key);
                    assert_eq!(other, None, "two slots hold one key");
                    self.index.insert(entry.slot, entry);
                }
            }
        }
        let chunks = usize::try_from(scan.progress().chunks).expect("few chunks");
        assert_eq!((next, chunks), (self.store.slot_count(), self.index.len()));
        Ok(())
    }

    fn data_error(&self, call: StoreCall, fault: IoFault) -> StoreError {
        let directory = self.store.directory().to_owned();
        StoreError::Io { directory, file: StoreFile::Data, call, fault }
    }

    fn wait(&mut self) -> Vec<IoFinished> {
        let mut reports = Vec::new();
        self.disk.poll(&mut reports);
        if reports.is_empty() {
            self.disk.wait(Duration::from_secs(1));
            self.disk.poll(&mut reports);
        }
        reports
    }

    /// Submits the write of a chunk, unless the store or the disk refuses.
    pub(crate) fn begin_write(
        &mut self,
        oracle: &mut Oracle,
        slot: u32,
        chunk: u64,
        tenant: TenantId,
    ) -> Result<(), StoreError> {
        let slot = SlotIndex::new(slot);
        let mut image = image(chunk, tenant);
        let start = image.first_chunk().expect("an image has a header page");
        let write = self.store.begin_write(slot, start, 1_790_000_000)?;
        image[HeaderStamp::OFFSET_BYTES..4096].copy_from_slice(&write.stamp);
        let entry = oracle.begin_write(slot, chunk, tenant, write.generation);
        let mut buffer = IoBuffer::zeroed(image.len() / 4096);
        buffer.bytes_mut().copy_from_slice(&image);
        let offset = self.store.slot_offset(slot);
        let work = IoWork::Write { offset, memory: IoMemory::Buffer(buffer) };
        let (tag, file) = (SLOTS.tag(slot.get()), self.store.data_file());
        self.disk.submit(vec![IoOperation { tag, file, work }]);
        self.index.remove(&slot);
        self.under_way.insert(slot, entry);
        Ok(())
    }

    fn end_write(&mut self, oracle: &mut Oracle, report: IoFinished) -> Result<(), StoreError> {
        let slot = SlotIndex::new(u32::try_from(report.tag & 0xffff_ffff).expect("32 bits"));
        let entry = self.under_way.remove(&slot).expect("it was submitted");
        let landed = self.store.end_write(slot, &report.outcome);
        if oracle.end_write(&entry, &report.outcome, landed) {
            let older = self.index.values().find(|other| other.key == entry.key).copied();
            if let Some(older) = older {
                self.index.remove(&older.slot);
            }
            self.index.insert(slot, entry);
        }
        report.outcome.map_err(|fault| self.data_error(StoreCall::Write, fault))
    }

    /// Waits for all slot writes under way; the first that fails is the error.
    pub(crate) fn drain(&mut self, oracle: &mut Oracle) -> Result<(), StoreError> {
        let mut drained = Ok(());
        while !self.under_way.is_empty() {
            for report in self.wait() {
                let ended = self.end_write(oracle, report);
                drained = drained.and(ended);
            }
        }
        drained
    }

    /// Drives a task to its end, among the slot writes under way.
    fn drive(&mut self, oracle: &mut Oracle, mut task: Task) -> Result<(), StoreError> {
        let mut written = Ok(());
        loop {
            let operations = task.operations(&mut self.store, 2);
            self.disk.submit(operations);
            if let Some(outcome) = task.outcome() {
                return outcome.and(written);
            }
            for report in self.wait() {
                if TagSpace::of(report.tag) == SLOTS {
                    written = written.and(self.end_write(oracle, report));
                } else {
                    task.finished(&mut self.store, report);
                }
            }
        }
    }

    pub(crate) fn begin_run(&mut self, oracle: &mut Oracle) -> Result<(), StoreError> {
        let task = self.store.begin_run(TASK);
        let begun = self.drive(oracle, task);
        oracle.must_scan |= begun.is_ok();
        begun
    }

    pub(crate) fn sync(&mut self, oracle: &mut Oracle) -> Result<(), StoreError> {
        let written = oracle.written();
        let task = self.store.sync(TASK);
        self.drive(oracle, task)?;
        oracle.synced(&written);
        Ok(())
    }

    pub(crate) fn clear(&mut self, oracle: &mut Oracle) -> Result<(), StoreError> {
        oracle.clear_begins();
        self.index.clear();
        let task = self.store.clear(TASK);
        self.drive(oracle, task)?;
        oracle.cleared();
        Ok(())
    }

    pub(crate) fn erase(
        &mut self,
        oracle: &mut Oracle,
        erasure: &Erasure,
    ) -> Result<(), StoreError> {
        let erased = oracle.erase_begins(erasure);
        self.index.retain(|_, entry| !erased.contains(&entry.generation));
        let task = self.store.erase(TASK, erasure)?;
        self.drive(oracle, task)?;
        oracle.must_scan = true;
        self.index.retain(|_, entry| !erased.contains(&entry.generation));
        oracle.erased(erased);
        Ok(())
    }

    /// Reads a slot's bytes.
    pub(crate) fn read(&mut self, slot: SlotIndex) -> Result<Vec<u8>, StoreError> {
        let pages = usize::try_from(self.store.shape().slot().get() / 4096).expect("few pages");
        let memory = IoMemory::Buffer(IoBuffer::zeroed(pages));
        let work = IoWork::Read { offset: self.store.slot_offset(slot), memory };
        let (tag, file) = (SLOTS.tag(slot.get()), self.store.data_file());
        let operation = IoOperation { tag, file, work };
        let report = kvtide::io::run(&mut self.disk, vec![operation]).pop().expect("one report");
        report.outcome.map_err(|fault| self.data_error(StoreCall::Read, fault))?;
        let buffer = report.memory.and_then(IoMemory::into_buffer).expect("a buffer");
        Ok(buffer.bytes().to_vec())
    }

    /// Closes the store with the chunks of the index.
    pub(crate) fn close(mut self, oracle: &mut Oracle) -> Result<CloseReport, StoreError> {
        self.drain(oracle)?;
        let written = oracle.written();
        // From now on the snapshot may be there, or not yet.
        oracle.must_scan = false;
        let entries: Vec<Entry> = self.index.values().copied().collect();
        let report = self.store.close(&mut self.disk, entries)?;
        oracle.synced(&written);
        Ok(report)
    }
}
