//! What a store does while it serves: tasks, each a sequence of steps on the disk.
//!
//! A task hands out operations and takes their reports; whoever owns the disk submits them among
//! its own, and tells them apart by the upper half of the tag, the task's [`TagSpace`]:
//!
//! ```text
//! loop {
//!     disk.submit(task.operations(&mut store, room));
//!     if let Some(outcome) = task.outcome() { break }
//!     disk.wait(..); disk.poll(..)
//!     for report in reports of the task's space { task.finished(&mut store, report) }
//! }
//! ```
//!
//! A step's operations are submitted once all of the step before were reported as done, so that
//! the orders of `docs/disk-format.md` hold. Tasks that change the superblock take turns.
//!
//! Invariants: a failed write of the superblock or a failed sync poisons the store, and is never
//! repeated; a task that ends well did all of its steps.
//!
//! Called by the pager's disk thread; [`Task::run`] by open and close, alone on the disk.

use super::error::{StoreCall, StoreError, StoreFile};
use super::format::{PAGE_BYTES, Superblock};
use super::records::{Filter, Records};
use super::state::{Change, Store};
use super::superblock::Copy;
use crate::io::{self, Disk, IoBuffer, IoFinished, IoMemory, IoOperation, IoWork};
use crate::units::SlotIndex;
use std::collections::VecDeque;

/// The upper half of the tags of one task's operations.
///
/// Whoever owns the disk gives each task under way one of its own, and tags its own operations
/// with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct TagSpace(u32);

impl TagSpace {
    /// Names a space.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the space of a tag.
    ///
    /// ```
    /// use kvtide::store::TagSpace;
    ///
    /// let space = TagSpace::new(7);
    /// assert_eq!(TagSpace::of(space.tag(u32::MAX)), space);
    /// ```
    pub const fn of(tag: u64) -> Self {
        Self((tag >> 32) as u32)
    }

    /// Returns a tag of this space.
    pub const fn tag(self, number: u32) -> u64 {
        (self.0 as u64) << 32 | number as u64
    }

    /// Returns the lower half of a tag.
    #[expect(clippy::cast_possible_truncation, reason = "takes the lower half")]
    pub const fn number(tag: u64) -> u32 {
        tag as u32
    }
}

/// One step of a task.
#[derive(Debug)]
pub(super) enum Step {
    /// Waits for the superblock's turn, then becomes the steps of the change.
    Change(Change),
    /// Writes one copy of the superblock.
    Put { copy: Copy, page: Option<IoBuffer> },
    /// Makes a file durable.
    Sync { file: StoreFile, is_submitted: bool },
    /// Takes a change that is durable into the store.
    Commit(Box<Superblock>),
    /// Overwrites header pages with zeros.
    Erase(Erasing),
}

/// Header pages that are being overwritten with zeros.
#[derive(Debug)]
pub(super) struct Erasing {
    filter: Filter,
    /// Slots to overwrite, unless they are written anew before their turn comes.
    pending: Vec<SlotIndex>,
    /// Slots whose write under way, or what it overwrites, may match.
    awaited: Vec<SlotIndex>,
    is_begun: bool,
    buffers: Vec<IoBuffer>,
}

impl Erasing {
    pub(super) const fn new(filter: Filter) -> Self {
        Self {
            filter,
            pending: Vec::new(),
            awaited: Vec::new(),
            is_begun: false,
            buffers: Vec::new(),
        }
    }

    /// Finds the slots, once, and looks again at those that were being written.
    fn look(&mut self, store: &mut Store) {
        let records = &mut store.records;
        if !self.is_begun {
            self.is_begun = true;
            for (slot, record) in records.iter() {
                let writing = records.writing(slot);
                if writing.is_some_and(|record| self.filter.matches(slot, record))
                    || self.filter.matches(slot, record)
                {
                    self.awaited.push(slot);
                }
            }
        }
        self.awaited.retain(|&slot| {
            if records.is_busy(slot) {
                return true;
            }
            self.pending.push(slot);
            false
        });
    }

    /// Takes the next slot to overwrite, from now on busy. One that is being written again waits
    /// for that; one that holds something else by now is done.
    fn next(&mut self, records: &mut Records) -> Option<SlotIndex> {
        while let Some(slot) = self.pending.pop() {
            if records.is_busy(slot) {
                self.awaited.push(slot);
            } else if records.get(slot).is_some_and(|record| self.filter.matches(slot, record)) {
                records.begin_erase(slot);
                return Some(slot);
            }
        }
        None
    }

    fn is_over(&self) -> bool {
        self.is_begun && self.pending.is_empty() && self.awaited.is_empty()
    }
}

/// A sequence of steps on the disk, under way among other operations.
///
/// Must be driven until [`Task::outcome`] says how it ended: dropped earlier, it keeps others from
/// changing the superblock.
#[derive(Debug)]
#[must_use = "a task does nothing until its operations are submitted"]
pub struct Task {
    space: TagSpace,
    steps: VecDeque<Step>,
    in_flight: usize,
    failure: Option<StoreError>,
    is_reported: bool,
}

impl Task {
    pub(super) fn new(space: TagSpace, steps: impl IntoIterator<Item = Step>) -> Self {
        let steps = steps.into_iter().collect();
        Self { space, steps, in_flight: 0, failure: None, is_reported: false }
    }

    /// Returns the space of the task's tags.
    pub const fn space(&self) -> TagSpace {
        self.space
    }

    /// Returns at most `room` operations to submit now. None while the task waits for reports, for
    /// slot writes under way, or for another task's turn at the superblock: ask again after each
    /// report of either.
    pub fn operations(&mut self, store: &mut Store, room: u32) -> Vec<IoOperation> {
        let mut operations = Vec::new();
        while self.failure.is_none() && self.advance(store, room, &mut operations) {}
        self.in_flight += operations.len();
        operations
    }

    /// Takes the report of one of the task's operations.
    pub fn finished(&mut self, store: &mut Store, report: IoFinished) {
        self.in_flight -= 1;
        let fault = report.outcome.err();
        let Some(step) = self.steps.front_mut() else { return };
        let failed = match step {
            Step::Put { .. } => Some((StoreFile::Superblock, StoreCall::Write)),
            Step::Sync { file, .. } => Some((*file, StoreCall::Sync)),
            Step::Erase(erasing) => {
                let slot = SlotIndex::new(TagSpace::number(report.tag));
                store.records.end_erase(slot, fault.is_none());
                erasing.buffers.extend(report.memory.and_then(IoMemory::into_buffer));
                None
            }
            Step::Change(_) | Step::Commit(_) => None,
        };
        match (fault, failed) {
            (Some(fault), Some((file, call))) => {
                store.poison(file, call, &fault);
                self.fail(store, store.io_error(file, call, fault));
            }
            (Some(fault), None) => {
                self.fail(store, store.io_error(StoreFile::Data, StoreCall::Write, fault));
            }
            (None, Some(_)) => {
                self.steps.pop_front();
            }
            (None, None) => {}
        }
        // What needs no operation is done at once, so that the outcome is there.
        while self.failure.is_none() && self.advance(store, 0, &mut Vec::new()) {}
    }

    /// Returns how the task ended, once; `None` while it is under way.
    pub fn outcome(&mut self) -> Option<Result<(), StoreError>> {
        if self.in_flight > 0 || self.is_reported {
            return None;
        }
        let outcome = match self.failure.take() {
            Some(failure) => Err(failure),
            None if self.steps.is_empty() => Ok(()),
            None => return None,
        };
        self.is_reported = true;
        Some(outcome)
    }

    /// Does the whole task at once. Nothing else may be under way on the disk, nor any slot write.
    ///
    /// # Errors
    ///
    /// [`StoreError`], as [`Task::outcome`].
    pub fn run(mut self, store: &mut Store, disk: &mut dyn Disk) -> Result<(), StoreError> {
        loop {
            let operations = self.operations(store, disk.depth());
            let is_stuck = operations.is_empty();
            for report in io::run(disk, operations) {
                self.finished(store, report);
            }
            if let Some(outcome) = self.outcome() {
                return outcome;
            }
            if is_stuck {
                return Err(StoreError::Busy);
            }
        }
    }

    /// Moves on by one step or some operations; `false` where there is nothing to do for now.
    fn advance(&mut self, store: &mut Store, room: u32, operations: &mut Vec<IoOperation>) -> bool {
        if let Some(poisoned) = store.poisoned().filter(|_| !self.steps.is_empty()) {
            self.fail(store, poisoned);
            return false;
        }
        let files = store.files;
        match self.steps.front_mut() {
            None => false,
            Some(Step::Change(change)) => match store.claim(self.space, *change) {
                Err(error) => {
                    self.fail(store, error);
                    false
                }
                Ok(Claim::Waits) => false,
                Ok(Claim::Nothing) => self.steps.pop_front().is_some(),
                Ok(Claim::Put(next)) => {
                    self.begin_change(store, next);
                    true
                }
            },
            Some(Step::Put { copy, page }) => {
                if room > 0
                    && let Some(page) = page.take()
                {
                    let (offset, memory) = (copy.offset_bytes(), IoMemory::Buffer(page));
                    let work = IoWork::Write { offset, memory };
                    let tag = self.space.tag(0);
                    operations.push(IoOperation { tag, file: files.superblock, work });
                }
                false
            }
            Some(Step::Sync { file, is_submitted }) => {
                if room > 0 && !*is_submitted {
                    *is_submitted = true;
                    let (tag, file) = (self.space.tag(0), files.get(*file));
                    operations.push(IoOperation { tag, file, work: IoWork::Sync });
                }
                false
            }
            Some(Step::Commit(_)) => {
                if let Some(Step::Commit(next)) = self.steps.pop_front() {
                    store.commit(*next);
                }
                true
            }
            Some(Step::Erase(erasing)) => {
                erasing.look(store);
                let free = (room as usize).saturating_sub(self.in_flight);
                while operations.len() < free
                    && let Some(slot) = erasing.next(&mut store.records)
                {
                    let buffer = erasing.buffers.pop().unwrap_or_else(|| IoBuffer::zeroed(1));
                    let (offset, memory) = (store.slot_offset(slot), IoMemory::Buffer(buffer));
                    let work = IoWork::Write { offset, memory };
                    let tag = self.space.tag(slot.get());
                    operations.push(IoOperation { tag, file: files.data, work });
                }
                let is_over = erasing.is_over() && self.in_flight == 0 && operations.is_empty();
                is_over && self.steps.pop_front().is_some()
            }
        }
    }

    /// Puts the writes of a change in the place of the step that waited for it.
    fn begin_change(&mut self, store: &mut Store, next: Box<Superblock>) {
        self.steps.pop_front();
        let page = match next.encode() {
            Ok(page) => page,
            Err(error) => return self.fail(store, error.into()),
        };
        let put = |copy| {
            let mut buffer = IoBuffer::zeroed(1);
            buffer.bytes_mut()[..PAGE_BYTES].copy_from_slice(&page);
            Step::Put { copy, page: Some(buffer) }
        };
        let sync = || Step::Sync { file: StoreFile::Superblock, is_submitted: false };
        let (older, newer) = (store.older, store.older.other());
        let steps = [put(older), sync(), put(newer), sync(), Step::Commit(next)];
        for step in steps.into_iter().rev() {
            self.steps.push_front(step);
        }
    }

    fn fail(&mut self, store: &mut Store, error: StoreError) {
        store.release(self.space);
        self.failure.get_or_insert(error);
    }
}

/// Whether a change of the superblock may begin.
#[derive(Debug)]
pub(super) enum Claim {
    /// Another task's change is under way.
    Waits,
    /// It is made already.
    Nothing,
    /// Write this.
    Put(Box<Superblock>),
}
