//! Opening a store: lock it, check that it is the right one, make or resize it, learn what it
//! holds. And closing it.
//!
//! Has the disk for itself. The orders of writes and syncs are those of `docs/disk-format.md`.
//!
//! Called by the pager's disk thread, before it serves and when it ends.

use super::directory::{
    self, Attempt, Claimed, FoundStore, RootLock, attempt, lock_tries, path, wait_a_step,
};
use super::error::{StoreError, StoreFile};
use super::files::StoreFiles;
use super::format::{SUPERBLOCK_BYTES, index_bytes};
use super::opener::Opener;
use super::reclaim::Reclaim;
use super::snapshot::ScanReason;
use super::state::{Change, Store};
use super::survey::{Holder, lock};
use super::task::{Step, TagSpace, Task};
use super::{ChunkShape, Entry, StoreUuid};
use crate::capability::Downgrade;
use crate::fingerprint::StoreId;
use crate::io::{Disk, OpenMode, OpenedFile};
use crate::units::ByteCount;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The space of tasks that have the disk for themselves.
pub(super) const ALONE: TagSpace = TagSpace::new(0);

/// How long a store, or a root, that is in use is waited for by default.
pub const DEFAULT_LOCK_WAIT: Duration = Duration::from_secs(5);

/// Which store to open, and how.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// The directory of all stores on one file system.
    pub root: PathBuf,
    /// Which of several directories of one store id; `None`: the first that nobody has, or a new
    /// one.
    pub instance: Option<u32>,
    /// Which of them is taken, or made, before any other unless somebody has it: the number that
    /// the same engine has under other roots.
    pub preferred_instance: Option<u32>,
    /// What the store holds.
    pub store_id: StoreId,
    /// What its slots look like.
    pub shape: ChunkShape,
    /// Number of slots: at least 1.
    pub slot_count: u32,
    /// Most bytes of blocks that all stores under the root may take up; `None`: what the file
    /// system has.
    pub capacity: Option<ByteCount>,
    /// Whether stores that nobody has may be removed to make room.
    pub reclaim: Reclaim,
    /// How long a store, or the root, that is in use is waited for.
    pub lock_wait: Duration,
    /// The uuid of a store that is made.
    pub new_uuid: StoreUuid,
}

impl StoreOptions {
    /// Fills in the rest: any instance, no capacity but the file system's, oldest stores reclaimed
    /// first, 5 s for locks, a random uuid.
    pub fn new(
        root: impl Into<PathBuf>,
        store_id: StoreId,
        shape: ChunkShape,
        slot_count: u32,
    ) -> Self {
        Self {
            root: root.into(),
            instance: None,
            preferred_instance: None,
            store_id,
            shape,
            slot_count,
            capacity: None,
            reclaim: Reclaim::default(),
            lock_wait: DEFAULT_LOCK_WAIT,
            new_uuid: StoreUuid::random(),
        }
    }

    /// Returns the bytes of a file at its final size.
    pub(super) fn file_bytes(&self, file: StoreFile, slot_count: u32) -> ByteCount {
        ByteCount::new(match file {
            StoreFile::Superblock => SUPERBLOCK_BYTES,
            StoreFile::Index => index_bytes(slot_count),
            StoreFile::Data => u64::from(slot_count) * self.shape.slot().get(),
        })
    }

    fn check(&self) -> Result<(), StoreError> {
        let slot = self.shape.slot();
        if self.slot_count == 0 {
            return Err(StoreError::NoSlots);
        }
        let bytes = u64::from(self.slot_count).checked_mul(slot.get());
        match bytes.filter(|&bytes| i64::try_from(bytes).is_ok()) {
            Some(_) => Ok(()),
            None => Err(StoreError::TooManySlots { slot_count: self.slot_count, slot }),
        }
    }
}

/// What an open store holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// These chunks, in the order of recency, the coldest first.
    Ready(Vec<Entry>),
    /// Whatever [`Store::scan`] finds.
    ScanNeeded(ScanReason),
}

/// A store that was opened.
#[derive(Debug)]
pub struct Opened {
    /// The store.
    pub store: Store,
    /// What it holds.
    pub recovery: Recovery,
    /// Whether it was made.
    pub is_new: bool,
    /// Stores that were removed to make room for it.
    pub reclaimed: Vec<FoundStore>,
}

/// How a store was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloseReport {
    /// Whether the next open takes the snapshot over, and need not scan.
    pub is_clean: bool,
    /// Chunks of the snapshot; 0 where none was written.
    pub chunks: u32,
}

impl Store {
    /// Opens a store, or makes it.
    ///
    /// Nothing else may be under way on the disk. Writes nothing to a store that it does not make
    /// or resize; a run begins with [`Store::begin_run`].
    ///
    /// # Errors
    ///
    /// [`StoreError::Locked`] when it is in use; [`StoreError::NoRoom`];
    /// [`StoreError::SuperblockDamaged`], [`StoreError::Version`], [`StoreError::ForeignStore`],
    /// [`StoreError::ForeignFile`], [`StoreError::SlotBytes`] and [`StoreError::Shape`] for a
    /// directory that holds something else, which is left as it is; [`StoreError::NoSlots`],
    /// [`StoreError::TooManySlots`]; [`StoreError::File`] and [`StoreError::Io`].
    pub fn open(disk: &mut dyn Disk, options: &StoreOptions) -> Result<Opened, StoreError> {
        options.check()?;
        let (lock, claimed) = claim(disk, options)?;
        let opened = open_claimed(disk, options, claimed);
        lock.release(disk);
        opened
    }

    /// Closes the store, so that the next open need not scan.
    ///
    /// `entries` are the chunks that it holds, in the order of recency, the coldest first. All
    /// slot writes and tasks have ended, and nothing else is under way on the disk. No snapshot is
    /// written where the scan is not over or writes are still out: the next open scans.
    ///
    /// # Errors
    ///
    /// [`StoreError::Poisoned`], [`StoreError::Io`]: the next open scans. The files are closed
    /// whatever happens.
    pub fn close(
        mut self,
        disk: &mut dyn Disk,
        entries: impl IntoIterator<Item = Entry>,
    ) -> Result<CloseReport, StoreError> {
        let report = self.close_run(disk, entries);
        self.files.close(disk);
        report
    }

    /// Closes the files and nothing else: the next open scans, if a run was begun.
    pub fn abandon(self, disk: &mut dyn Disk) {
        self.files.close(disk);
    }

    fn close_run(
        &mut self,
        disk: &mut dyn Disk,
        entries: impl IntoIterator<Item = Entry>,
    ) -> Result<CloseReport, StoreError> {
        if let Some(poisoned) = self.poisoned() {
            return Err(poisoned);
        }
        if self.superblock.is_clean && !self.has_run() {
            return Ok(CloseReport { is_clean: true, chunks: 0 });
        }
        self.sync(ALONE).run(self, disk)?;
        if !self.is_recovered() || self.records.has_writes() {
            return Ok(CloseReport { is_clean: false, chunks: 0 });
        }
        let chunks = self.write_snapshot(disk, entries)?;
        let sync = Step::Sync { file: StoreFile::Index, is_submitted: false };
        Task::new(ALONE, [sync, Step::Change(Change::Close)]).run(self, disk)?;
        Ok(CloseReport { is_clean: true, chunks })
    }
}

/// Takes the root's lock and a store's, waiting for both.
fn claim(disk: &mut dyn Disk, options: &StoreOptions) -> Result<(RootLock, Claimed), StoreError> {
    let StoreOptions { root, instance, store_id, lock_wait, .. } = options;
    let tries = lock_tries(*lock_wait);
    let mut process = None;
    for left in (0..tries).rev() {
        let lock = RootLock::take(disk, root, *lock_wait)?;
        // An instance is added only once those that there are were waited for.
        match attempt(disk, options, left == 0) {
            Ok(Attempt::Claimed(claimed)) => return Ok((lock, *claimed)),
            Ok(Attempt::Held { process: holder }) => process = holder,
            Err(error) => {
                lock.release(disk);
                return Err(error);
            }
        }
        lock.release(disk);
        wait_a_step(disk);
    }
    let instance = instance.unwrap_or_default();
    let path = directory::directory(root, instance, *store_id);
    Err(StoreError::Locked { path, process })
}

/// Opens the other files, and hands all of them to an [`Opener`].
fn open_claimed(
    disk: &mut dyn Disk,
    options: &StoreOptions,
    claimed: Claimed,
) -> Result<Opened, StoreError> {
    let mut open = |file, before: &[&OpenedFile]| {
        disk.open(&path(&claimed.directory, file), OpenMode::Create).inspect_err(|_| {
            for opened in before {
                disk.close(opened.file);
            }
        })
    };
    let superblock = open(StoreFile::Superblock, &[&claimed.data])?;
    let index = open(StoreFile::Index, &[&superblock, &claimed.data])?;
    let files =
        StoreFiles { superblock: superblock.file, data: claimed.data.file, index: index.file };
    let mut downgrades = Vec::new();
    for opened in [&claimed.data, &superblock, &index] {
        note(&mut downgrades, opened.buffered.clone());
    }
    let lengths = [superblock.length, claimed.data.length, index.length];
    let locked = lock_others(disk, options, &claimed.directory, files);
    let opened =
        locked.and_then(|()| Opener { disk, options, claimed, files, lengths, downgrades }.open());
    if opened.is_err() {
        files.close(disk);
    }
    opened
}

/// Locks the files beside the data file. Whoever has that has these, unless the kernel still
/// carries out an operation on them of a process that is gone: it would land on top of what is
/// written here.
fn lock_others(
    disk: &mut dyn Disk,
    options: &StoreOptions,
    directory: &Path,
    files: StoreFiles,
) -> Result<(), StoreError> {
    for file in [StoreFile::Superblock, StoreFile::Index] {
        let mut tries_left = lock_tries(options.lock_wait);
        while let Some(Holder { process }) = lock(disk, files.get(file))? {
            tries_left -= 1;
            if tries_left == 0 {
                return Err(StoreError::Locked { path: path(directory, file), process });
            }
            wait_a_step(disk);
        }
    }
    Ok(())
}

/// Adds a downgrade once.
pub(super) fn note(downgrades: &mut Vec<Downgrade>, downgrade: Option<Downgrade>) {
    if let Some(downgrade) = downgrade.filter(|downgrade| !downgrades.contains(downgrade)) {
        downgrades.push(downgrade);
    }
}
