//! What is in a directory, without changing it: for whoever looks after stores, whatever state
//! they are in and whoever has them.
//!
//! A store's lock is asked for with the root's lock held, as [`Store::open`] does, so that an
//! engine that opens its store meanwhile waits for the root a moment and never finds its store
//! taken by a look at it.
//!
//! Invariants: nothing is written; a store that somebody has is only read, and what is read while
//! its superblock changes is read anew.
//!
//! Called by `kvtide inspect`, `kvtide check` and `kvtide gc`.

use super::Entry;
use super::as_found::AsFound;
use super::directory::{FoundStore, RootLock, lock_tries, none_if_absent, path, wait_a_step};
use super::error::{StoreError, StoreFile};
use super::files::StoreFiles;
use super::format::{SnapshotEntry, SnapshotHeader, Superblock, index_bytes};
use super::snapshot::ScanReason;
use super::state::Store;
use super::superblock::{Copy, SuperblockCopies};
use crate::io::{Disk, FileId, Lock, OpenMode};
use crate::units::ByteCount;
use std::path::Path;
use std::time::Duration;

/// A file that is not there: no disk gives this name out, operations on it fail, closing it does
/// nothing.
const ABSENT: FileId = FileId::new(u32::MAX);

/// How often a superblock that changes under the look is read.
const TRY_COUNT: u32 = 8;

/// Who has a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The process's id, where the system tells.
    pub process: Option<u32>,
}

/// What [`Store::open`] would make of a directory, for the one who serves what its name says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It would take the snapshot over: these chunks, in the order of recency, the coldest first;
    /// then what remains in other slots.
    Clean(Vec<SnapshotEntry>),
    /// It would scan all headers.
    ScanNeeded(ScanReason),
    /// It would make it anew: it was never finished, or is half removed.
    Unfinished,
    /// It would refuse it: [`StoreError::SuperblockDamaged`], [`StoreError::Version`],
    /// [`StoreError::ForeignStore`], [`StoreError::ForeignFile`], or [`StoreError::Io`].
    Refused(StoreError),
}

impl Standing {
    /// Returns the chunks that the snapshot lists, in the order of recency, the coldest first;
    /// `None` without a snapshot that counts.
    pub fn chunks(&self) -> Option<impl Iterator<Item = &Entry>> {
        let Self::Clean(listed) = self else { return None };
        Some(listed.iter().filter_map(|entry| match entry {
            SnapshotEntry::Chunk(entry) => Some(entry),
            SnapshotEntry::Remains { .. } | SnapshotEntry::Unknown { .. } => None,
        }))
    }
}

/// What is in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// Who has the store; what the rest says may change at any time then.
    pub held_by: Option<Holder>,
    /// Both copies of the superblock.
    pub superblock: SuperblockCopies,
    /// What would become of it.
    pub standing: Standing,
    /// Bytes that the superblock counts and the file of the slots does not have.
    pub data_missing: ByteCount,
}

/// What [`Store::examine`] is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading alone: the store's files are not writable.
    Read,
    /// Mending it too.
    Repair,
}

/// Looks at a store, which is left as it is and to whoever has it or wants it.
///
/// Nothing else may be under way on the disk.
///
/// # Errors
///
/// [`StoreError::File`], [`StoreError::Io`] where the superblock cannot be read, and
/// [`StoreError::Locked`] when the root's lock is not to be had within `lock_wait`.
pub fn survey(
    disk: &mut dyn Disk,
    found: &FoundStore,
    lock_wait: Duration,
) -> Result<Survey, StoreError> {
    let held_by = holder(disk, found, lock_wait)?;
    let files = open_files(disk, &found.directory, OpenMode::ReadOnly)?;
    let surveyed = survey_files(disk, found, files, held_by);
    files.close(disk);
    Ok(surveyed?.0)
}

/// Returns who has a store, if somebody does.
fn holder(
    disk: &mut dyn Disk,
    found: &FoundStore,
    lock_wait: Duration,
) -> Result<Option<Holder>, StoreError> {
    let root = RootLock::take_existing(disk, found.root(), lock_wait)?;
    let held_by = holder_under_root(disk, &found.directory);
    if let Some(root) = root {
        root.release(disk);
    }
    held_by
}

/// As [`holder`]; the root's lock is held.
pub(super) fn holder_under_root(
    disk: &mut dyn Disk,
    directory: &Path,
) -> Result<Option<Holder>, StoreError> {
    let opened = disk.open(&path(directory, StoreFile::Data), OpenMode::ReadOnly);
    let Some(data) = none_if_absent(opened)? else { return Ok(None) };
    let held_by = lock(disk, data.file);
    disk.close(data.file);
    held_by
}

/// Takes the lock on a file of slots, or says who has it.
pub(super) fn lock(disk: &mut dyn Disk, data: FileId) -> Result<Option<Holder>, StoreError> {
    Ok(match disk.lock(data)? {
        Lock::Taken => None,
        Lock::Held { process } => Some(Holder { process }),
    })
}

impl Store {
    /// Opens a store as it lies, whatever it holds, and keeps others from it: to be scanned, and
    /// mended with [`mend_superblock`](Store::mend_superblock), [`erase`](Store::erase),
    /// [`begin_run`](Store::begin_run). Nothing of it counts as known, whatever its snapshot says;
    /// [`close`](Store::close) or [`abandon`](Store::abandon) it.
    ///
    /// No store comes with the survey where somebody has it all of `lock_wait`, and where
    /// [`Store::open`] would not take it as it is. Nothing else may be under way on the disk.
    ///
    /// # Errors
    ///
    /// As [`survey`].
    pub fn examine(
        disk: &mut dyn Disk,
        found: &FoundStore,
        access: Access,
        lock_wait: Duration,
    ) -> Result<(Survey, Option<Self>), StoreError> {
        let mode = match access {
            Access::Read => OpenMode::ReadOnly,
            Access::Repair => OpenMode::Existing,
        };
        let (files, held_by) = claim(disk, found, mode, lock_wait)?;
        let surveyed = survey_files(disk, found, files, held_by);
        match surveyed {
            Ok((survey, Some(superblock))) if held_by.is_none() => {
                let place = (found.directory.clone(), found.instance);
                let store = Self::new(place, files, superblock, Vec::new());
                Ok((survey, Some(store)))
            }
            refused => {
                files.close(disk);
                Ok((refused?.0, None))
            }
        }
    }
}

/// Opens a store's files and takes its lock, unless somebody has it all the time: a process that
/// was killed has it until the kernel has ended its operations.
fn claim(
    disk: &mut dyn Disk,
    found: &FoundStore,
    mode: OpenMode,
    lock_wait: Duration,
) -> Result<(StoreFiles, Option<Holder>), StoreError> {
    let mut left = lock_tries(lock_wait);
    loop {
        left -= 1;
        let root = RootLock::take_existing(disk, found.root(), lock_wait)?;
        let locked = open_locked(disk, &found.directory, mode);
        if let Some(root) = root {
            root.release(disk);
        }
        match locked {
            Ok((files, Some(_))) if left > 0 => files.close(disk),
            locked => return locked,
        }
        wait_a_step(disk);
    }
}

/// Opens a store's files, and takes its lock if nobody has it.
fn open_locked(
    disk: &mut dyn Disk,
    directory: &Path,
    mode: OpenMode,
) -> Result<(StoreFiles, Option<Holder>), StoreError> {
    let files = open_files(disk, directory, mode)?;
    if files.data == ABSENT {
        return Ok((files, None));
    }
    let there = files.all().into_iter().filter(|file| *file != ABSENT);
    let mut held_by = None;
    for file in there {
        match lock(disk, file) {
            Ok(None) => {}
            // Of the files beside the data file: an operation of a process that is gone.
            Ok(holder) => held_by = held_by.or(holder),
            Err(error) => {
                files.close(disk);
                return Err(error);
            }
        }
    }
    Ok((files, held_by))
}

/// Opens those files of a store that are there.
fn open_files(
    disk: &mut dyn Disk,
    directory: &Path,
    mode: OpenMode,
) -> Result<StoreFiles, StoreError> {
    let mut files = StoreFiles { superblock: ABSENT, data: ABSENT, index: ABSENT };
    let places = [
        (StoreFile::Superblock, &mut files.superblock),
        (StoreFile::Data, &mut files.data),
        (StoreFile::Index, &mut files.index),
    ];
    let opened = places.into_iter().try_for_each(|(file, place)| {
        if let Some(opened) = none_if_absent(disk.open(&path(directory, file), mode))? {
            *place = opened.file;
        }
        Ok(())
    });
    if opened.is_err() {
        files.close(disk);
    }
    opened.map(|()| files)
}

/// A superblock that counts, and the copy that does not.
type Counts = (Superblock, Copy);

/// Looks at a store's open files, again while they change under the look.
fn survey_files(
    disk: &mut dyn Disk,
    found: &FoundStore,
    files: StoreFiles,
    held_by: Option<Holder>,
) -> Result<(Survey, Option<Counts>), StoreError> {
    let mut left = TRY_COUNT;
    loop {
        left -= 1;
        let copies = as_found(disk, found, files)?.read_copies()?;
        // Lengths after the superblock: files grow before it counts more.
        let mut opened = as_found(disk, found, files)?;
        let (standing, counts) = standing(&mut opened, found, &copies);
        let data_missing = counts.as_ref().map_or(0, |(superblock, _)| {
            data_bytes(superblock).saturating_sub(opened.lengths[1].get())
        });
        let is_torn = held_by.is_some() && (copies.first.is_err() || copies.second.is_err());
        let is_steady = !is_torn && opened.read_copies()? == copies;
        if is_steady || left == 0 {
            let data_missing = ByteCount::new(data_missing);
            let survey = Survey { held_by, superblock: copies, standing, data_missing };
            return Ok((survey, counts));
        }
        wait_a_step(disk);
    }
}

/// Returns the files with the lengths that they have now.
fn as_found<'open>(
    disk: &'open mut dyn Disk,
    found: &'open FoundStore,
    files: StoreFiles,
) -> Result<AsFound<'open>, StoreError> {
    let mut lengths = [ByteCount::new(0); 3];
    for (file, length) in [files.superblock, files.data, files.index].into_iter().zip(&mut lengths)
    {
        if file != ABSENT {
            *length = disk.length(file)?;
        }
    }
    Ok(AsFound { disk, directory: &found.directory, files, lengths, slot: None })
}

/// Decides what would become of a store, and returns the superblock of one that would be opened.
fn standing(
    opened: &mut AsFound<'_>,
    found: &FoundStore,
    copies: &SuperblockCopies,
) -> (Standing, Option<Counts>) {
    if opened.files.data == ABSENT {
        return (Standing::Unfinished, None);
    }
    let superblock = match opened.superblock(copies) {
        Ok(Some(superblock)) => superblock,
        Ok(None) => return (Standing::Unfinished, None),
        Err(refused) => return (Standing::Refused(refused), None),
    };
    let snapshot = match opened.check_id(&superblock, found.store_id) {
        Ok(()) => opened.check_files(&superblock),
        Err(refused) => Err(refused),
    };
    match snapshot {
        Ok(snapshot) => {
            let listed = listed(opened, found, (&superblock, copies.older()), snapshot);
            let standing = listed.map_or_else(Standing::ScanNeeded, Standing::Clean);
            (standing, Some((superblock, copies.older())))
        }
        Err(refused) => (Standing::Refused(refused), None),
    }
}

/// Returns what a store's snapshot lists, if it would be taken over.
fn listed(
    opened: &mut AsFound<'_>,
    found: &FoundStore,
    (superblock, older): (&Superblock, Copy),
    snapshot: Result<SnapshotHeader, ScanReason>,
) -> Result<Vec<SnapshotEntry>, ScanReason> {
    let [_, data, index] = opened.lengths.map(ByteCount::get);
    if data < data_bytes(superblock) || index < index_bytes(superblock.slot_count) {
        return Err(ScanReason::Cut);
    }
    if !superblock.is_clean {
        return Err(ScanReason::Unclean);
    }
    let place = (found.directory.clone(), found.instance);
    let mut store = Store::new(place, opened.files, (superblock.clone(), older), Vec::new());
    let entries = store.load_snapshot(opened.disk, &snapshot?)?;
    let mut is_chunk = vec![false; superblock.slot_count as usize];
    for entry in &entries {
        is_chunk[entry.slot.get() as usize] = true;
    }
    let rest = store.records.iter().zip(is_chunk).filter(|(_, is_chunk)| !is_chunk);
    let rest = rest.filter_map(|((slot, record), _)| record.to_snapshot(slot));
    Ok(entries.into_iter().map(SnapshotEntry::Chunk).chain(rest).collect())
}

fn data_bytes(superblock: &Superblock) -> u64 {
    u64::from(superblock.slot_count).saturating_mul(superblock.shape.slot().get())
}
