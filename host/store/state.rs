//! An open store: its state, slot writes, read checks, and the tasks that change it.
//!
//! A plain struct that one thread drives, with no thread, clock or disk of its own.
//!
//! Invariants: no slot is written before a run was begun; no generation is given out twice; a
//! store that is poisoned gives out no write.
//!
//! Called by the pager's disk thread.

use super::error::{StoreCall, StoreError, StoreFile};
use super::files::StoreFiles;
use super::format::{Header, HeaderStamp, PAGE_BYTES, Page, SnapshotEntry, Superblock};
use super::records::{Erasure, Filter, Record, Records};
use super::superblock::Copy;
use super::task::{Claim, Erasing, Step, TagSpace, Task};
use super::verify::{Expected, ReadFault};
use super::{ChunkShape, Entry, Epoch, Generation, StoreUuid};
use crate::capability::Downgrade;
use crate::fingerprint::StoreId;
use crate::io::{FileId, IoBuffer, IoFault};
use crate::key::Key;
use crate::units::SlotIndex;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

/// A change of the superblock.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    BeginRun,
    Clear { min_generation: Generation },
    Resize { slot_count: u32, keeps_snapshot: bool },
    Close,
}

/// A write or sync that failed, after which nobody knows what is durable.
#[derive(Clone, Debug)]
struct Poison {
    file: StoreFile,
    call: StoreCall,
    fault: IoFault,
}

/// A slot write that may be submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotWrite {
    /// The write's name; comes back with [`Store::end_write`].
    pub generation: Generation,
    /// What goes to the last 64 bytes of the header page.
    pub stamp: [u8; HeaderStamp::BYTES],
}

/// What came of a slot write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landed {
    /// The slot holds the chunk; it is durable with the next sync that succeeds.
    Counts,
    /// It was written, but the store was cleared meanwhile: the slot is free.
    Cleared,
    /// It failed: the slot holds what it held, the chunk, or neither whole. Free, but not to be
    /// read.
    Failed,
}

/// One open directory of slots.
#[derive(Debug)]
pub struct Store {
    pub(super) directory: PathBuf,
    pub(super) instance: u32,
    pub(super) files: StoreFiles,
    /// As it is durable.
    pub(super) superblock: Superblock,
    pub(super) older: Copy,
    pub(super) records: Records,
    /// Slots from here on were not scanned yet.
    pub(super) scanned_to: u32,
    /// Where the newest header of each key is that the scan, or a write meanwhile, has shown.
    pub(super) newest: HashMap<Key, (SlotIndex, Generation)>,
    pub(super) downgrades: Vec<Downgrade>,
    /// Not below the superblock's, which follows.
    min_generation: Generation,
    /// The next generation's counter; `None` before the run.
    run: Option<u64>,
    /// Who changes the superblock.
    changing: Option<TagSpace>,
    poison: Option<Poison>,
}

impl Store {
    pub(super) fn new(
        (directory, instance): (PathBuf, u32),
        files: StoreFiles,
        (superblock, older): (Superblock, Copy),
        downgrades: Vec<Downgrade>,
    ) -> Self {
        Self {
            directory,
            instance,
            files,
            older,
            records: Records::new(superblock.slot_count),
            scanned_to: 0,
            newest: HashMap::new(),
            downgrades,
            min_generation: superblock.min_generation,
            run: None,
            changing: None,
            poison: None,
            superblock,
        }
    }

    /// Returns the store's directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the root that its directory lies under.
    pub fn root(&self) -> &Path {
        self.directory.ancestors().nth(2).unwrap_or(Path::new(""))
    }

    /// Returns the number of the instance that the directory is of.
    pub const fn instance(&self) -> u32 {
        self.instance
    }

    /// Returns what the store holds.
    pub const fn id(&self) -> StoreId {
        self.superblock.store_id
    }

    /// Returns the directory's own name.
    pub const fn uuid(&self) -> StoreUuid {
        self.superblock.store_uuid
    }

    /// Returns the last run that was begun.
    pub const fn epoch(&self) -> Epoch {
        self.superblock.epoch
    }

    /// Returns the number of slots.
    pub const fn slot_count(&self) -> u32 {
        self.superblock.slot_count
    }

    /// Returns what the slots look like.
    pub const fn shape(&self) -> &ChunkShape {
        &self.superblock.shape
    }

    /// Returns the file of the slots, for their reads and writes.
    pub const fn data_file(&self) -> FileId {
        self.files.data
    }

    /// Returns where a slot starts in the file of the slots, in bytes.
    pub const fn slot_offset(&self, slot: SlotIndex) -> u64 {
        slot.get() as u64 * self.superblock.shape.slot().get()
    }

    /// Returns what works less well than it could, each once.
    pub fn downgrades(&self) -> &[Downgrade] {
        &self.downgrades
    }

    /// Returns the write whose chunk a slot's header page holds; `None` where that is unknown or
    /// nothing.
    pub fn generation(&self, slot: SlotIndex) -> Option<Generation> {
        let record = self.records.get(slot)?;
        let is_known = record != Record::UNKNOWN && record != Record::EMPTY;
        (is_known && record.generation >= self.min_generation).then_some(record.generation)
    }

    /// Takes note that a slot does not hold what was written: until it is written anew, nobody
    /// knows what it holds.
    pub fn forget(&mut self, slot: SlotIndex) {
        if slot.get() < self.slot_count() && !self.records.is_busy(slot) {
            self.records.set(slot, Record::UNKNOWN);
        }
    }

    /// Whether a slot's header page is being written, by a slot write or an erasure.
    pub fn is_writing(&self, slot: SlotIndex) -> bool {
        self.records.is_busy(slot)
    }

    /// Whether slots may be written: a run was begun, and nothing failed that forbids it.
    pub const fn is_running(&self) -> bool {
        self.run.is_some() && self.poison.is_none()
    }

    /// Whether every slot's content is known: the snapshot was taken over, or the scan is over.
    pub const fn is_recovered(&self) -> bool {
        self.scanned_to == self.superblock.slot_count
    }

    /// Returns why the store takes no more writes, if it does not.
    pub fn poisoned(&self) -> Option<StoreError> {
        let Poison { file, call, fault } = self.poison.clone()?;
        Some(StoreError::Poisoned { directory: self.directory.clone(), file, call, fault })
    }

    /// Begins a run: until this task is done, no slot may be written. Does nothing if one was
    /// begun.
    pub fn begin_run(&self, space: TagSpace) -> Task {
        Task::new(space, [Step::Change(Change::BeginRun)])
    }

    /// Drops everything at once, and durably when the task is done.
    ///
    /// From now on no slot counts that was written so far, nor one whose write is under way.
    pub fn clear(&mut self, space: TagSpace) -> Task {
        let min_generation = self.next_generation();
        self.min_generation = min_generation;
        self.newest.clear();
        Task::new(space, [Step::Change(Change::Clear { min_generation })])
    }

    /// Returns a bound: every slot write named so far has a smaller generation, no later one has.
    pub fn next_generation(&self) -> Generation {
        let next_epoch = self.superblock.epoch.next().unwrap_or(Epoch::MAX);
        let next = match self.run {
            Some(counter) => Generation::new(self.superblock.epoch, counter),
            None => Generation::new(next_epoch, 0),
        };
        next.unwrap_or(self.min_generation).max(self.min_generation)
    }

    /// Drops what an erasure names and was written so far, durably when the task is done: header
    /// pages are overwritten with zeros, also those in free slots, then the file is synced.
    ///
    /// Whoever calls it drops the chunks from its index first. While zeros are on their way into a
    /// slot, [`begin_write`](Store::begin_write) refuses it. By keys or by tenant, one chunk in
    /// 2^32 may go that was not meant: a miss.
    ///
    /// # Errors
    ///
    /// [`StoreError::Scanning`] before the scan is over, [`StoreError::NoSuchSlot`].
    pub fn erase(&self, space: TagSpace, erasure: &Erasure) -> Result<Task, StoreError> {
        self.erase_before(space, erasure, self.next_generation())
    }

    /// The same, of what was written before a bound of [`next_generation`](Store::next_generation),
    /// for what had to wait for the scan. Slots that are named are erased whatever they hold.
    ///
    /// # Errors
    ///
    /// As [`Store::erase`].
    pub fn erase_before(
        &self,
        space: TagSpace,
        erasure: &Erasure,
        before: Generation,
    ) -> Result<Task, StoreError> {
        if !self.is_recovered() {
            return Err(StoreError::Scanning);
        }
        if let Erasure::Slots(slots) = erasure {
            slots.iter().try_for_each(|&slot| self.check_slot(slot))?;
        }
        // Overwriting is a slot write: a snapshot would not know of it.
        let begin_run = Step::Change(Change::BeginRun);
        let erase = Step::Erase(Erasing::new(Filter::new(erasure, before)));
        let sync = Step::Sync { file: StoreFile::Data, is_submitted: false };
        Ok(Task::new(space, [begin_run, erase, sync]))
    }

    /// Makes every slot write durable that was reported before the task's operation is submitted.
    pub fn sync(&self, space: TagSpace) -> Task {
        Task::new(space, [Step::Sync { file: StoreFile::Data, is_submitted: false }])
    }

    /// Writes the superblock that counts over the copy that does not: after this task both are
    /// whole, and say the same. For a store whose other copy was found damaged.
    ///
    /// # Errors
    ///
    /// [`StoreError::Format`] for a superblock that cannot be encoded, which cannot be opened
    /// either.
    pub fn mend_superblock(&self, space: TagSpace) -> Result<Task, StoreError> {
        let mut buffer = IoBuffer::zeroed(1);
        buffer.bytes_mut().copy_from_slice(&self.superblock.encode()?);
        let put = Step::Put { copy: self.older, page: Some(buffer) };
        let sync = Step::Sync { file: StoreFile::Superblock, is_submitted: false };
        Ok(Task::new(space, [put, sync]))
    }

    /// Whether the header that was last seen in a slot is the one that a snapshot's entry tells of.
    /// A slot that does not exist disagrees.
    pub fn agrees(&self, entry: &SnapshotEntry) -> bool {
        let told = Record::of_snapshot(entry);
        told == Record::UNKNOWN || self.records.get(entry.slot()) == Some(told)
    }

    /// Names the write of a chunk into a slot, whose header page's first 4,032 bytes are `start`.
    ///
    /// The caller writes the stamp behind them and submits the slot, header page and payload in one
    /// write to [`data_file`](Store::data_file) at [`slot_offset`](Store::slot_offset), and calls
    /// [`end_write`](Store::end_write) with its report. A slot has one write at a time.
    ///
    /// # Errors
    ///
    /// [`StoreError::Poisoned`], [`StoreError::NoRun`], [`StoreError::NoSuchSlot`],
    /// [`StoreError::Scanning`] for a slot that the scan has not come to,
    /// [`StoreError::SlotBusy`], [`StoreError::Exhausted`], and [`StoreError::Unfit`] for a header
    /// that this store would not read back.
    pub fn begin_write(
        &mut self,
        slot: SlotIndex,
        start: &[u8; HeaderStamp::OFFSET_BYTES],
        written_s: u64,
    ) -> Result<SlotWrite, StoreError> {
        if let Some(poisoned) = self.poisoned() {
            return Err(poisoned);
        }
        let counter = self.run.ok_or(StoreError::NoRun)?;
        self.check_slot(slot)?;
        if slot.get() >= self.scanned_to {
            return Err(StoreError::Scanning);
        }
        if self.records.is_busy(slot) {
            return Err(StoreError::SlotBusy { slot });
        }
        let generation =
            Generation::new(self.superblock.epoch, counter).ok_or(StoreError::Exhausted)?;
        let stamp = HeaderStamp { store_uuid: self.uuid(), generation, written_s, slot };
        let stamp = stamp.encode(start)?;
        let mut page = [0; PAGE_BYTES];
        page[..HeaderStamp::OFFSET_BYTES].copy_from_slice(start);
        page[HeaderStamp::OFFSET_BYTES..].copy_from_slice(&stamp);
        let header =
            self.expected(slot).header(&page).map_err(|fault| StoreError::Unfit { slot, fault })?;
        self.run = Some(counter + 1);
        self.records.begin_write(slot, Record::of_entry(&Entry::of_header(&header)));
        if !self.is_recovered() {
            self.newest.insert(header.identity.key, (slot, generation));
        }
        Ok(SlotWrite { generation, stamp })
    }

    /// Takes the report of a slot write.
    pub fn end_write(&mut self, slot: SlotIndex, outcome: &Result<(), IoFault>) -> Landed {
        let Some(record) = self.records.end_write(slot) else { return Landed::Failed };
        if outcome.is_err() {
            self.records.set(slot, Record::UNKNOWN);
            Landed::Failed
        } else if record.generation < self.min_generation {
            let is_gone = record.generation < self.superblock.min_generation;
            self.records.set(slot, if is_gone { Record::EMPTY } else { record });
            Landed::Cleared
        } else {
            self.records.set(slot, record);
            Landed::Counts
        }
    }

    /// Checks the header page that was read with a slot's payload, or part of it: that it is the
    /// one which the last write put there, for that key. The payload is for the device, or
    /// [`verify`](Store::verify), to check.
    ///
    /// # Errors
    ///
    /// [`ReadFault`]: the chunk is lost.
    pub fn check_read(&self, slot: SlotIndex, key: Key, page: &Page) -> Result<Header, ReadFault> {
        let header = self.expected(slot).header(page)?;
        self.check_identity(slot, key, header)
    }

    /// Verifies a whole slot's image for a key: as [`check_read`](Store::check_read), and every
    /// part against its sum.
    ///
    /// # Errors
    ///
    /// [`ReadFault`]: the chunk is lost.
    pub fn verify(&self, slot: SlotIndex, key: Key, image: &[u8]) -> Result<Header, ReadFault> {
        let header = self.expected(slot).verify(image)?;
        self.check_identity(slot, key, header)
    }

    /// Returns what a slot's header must be to count.
    pub const fn expected(&self, slot: SlotIndex) -> Expected<'_> {
        Expected {
            store_uuid: self.superblock.store_uuid,
            shape: &self.superblock.shape,
            slot,
            min_generation: self.min_generation,
            epoch: self.superblock.epoch,
        }
    }

    fn check_identity(
        &self,
        slot: SlotIndex,
        key: Key,
        header: Header,
    ) -> Result<Header, ReadFault> {
        let found = header.stamp.generation;
        if header.identity.key != key {
            return Err(ReadFault::Key { found: header.identity.key });
        }
        match self.records.get(slot) {
            Some(record) if record.generation == found => Ok(header),
            record => {
                let expected = record.unwrap_or(Record::EMPTY).generation;
                Err(ReadFault::Generation { expected, found })
            }
        }
    }

    fn check_slot(&self, slot: SlotIndex) -> Result<(), StoreError> {
        let slot_count = self.slot_count();
        if slot.get() < slot_count {
            Ok(())
        } else {
            Err(StoreError::NoSuchSlot { slot, slot_count })
        }
    }

    pub(super) const fn min_generation(&self) -> Generation {
        self.min_generation
    }

    pub(super) const fn has_run(&self) -> bool {
        self.run.is_some()
    }

    /// Gives the superblock to a task, if it is free, and says what is to be written.
    pub(super) fn claim(&mut self, space: TagSpace, change: Change) -> Result<Claim, StoreError> {
        if self.changing.is_some() {
            return Ok(Claim::Waits);
        }
        let mut next = Box::new(self.superblock.clone());
        next.sequence += 1;
        match change {
            Change::BeginRun if self.run.is_some() => return Ok(Claim::Nothing),
            Change::BeginRun => {
                next.epoch = next.epoch.next().ok_or(StoreError::Exhausted)?;
                next.is_clean = false;
            }
            Change::Clear { min_generation } => {
                next.min_generation = next.min_generation.max(min_generation);
            }
            Change::Resize { slot_count, keeps_snapshot } => {
                next.slot_count = slot_count;
                next.is_clean &= keeps_snapshot;
            }
            Change::Close => next.is_clean = true,
        }
        self.changing = Some(space);
        Ok(Claim::Put(next))
    }

    /// Takes a change over that both copies have.
    pub(super) fn commit(&mut self, next: Superblock) {
        if next.epoch > self.superblock.epoch {
            self.run = Some(0);
        }
        // Not before: an erasure that comes in between still has to know where the chunks lie.
        if next.min_generation > self.superblock.min_generation {
            self.records.forget_before(next.min_generation);
        }
        self.superblock = next;
        self.changing = None;
    }

    /// Lets the superblock go, if the task has it.
    pub(super) fn release(&mut self, space: TagSpace) {
        if self.changing == Some(space) {
            self.changing = None;
        }
    }

    /// Forbids all writes from now on.
    pub(super) fn poison(&mut self, file: StoreFile, call: StoreCall, fault: &IoFault) {
        let directory = self.directory.display();
        tracing::error!(%directory, %file, %call, %fault, "the store takes no more writes");
        self.poison.get_or_insert(Poison { file, call, fault: fault.clone() });
    }

    pub(super) fn io_error(&self, file: StoreFile, call: StoreCall, fault: IoFault) -> StoreError {
        StoreError::Io { directory: self.directory.clone(), file, call, fault }
    }
}
