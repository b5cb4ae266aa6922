//! Looking at a store without having it: what its files say, and whether every slot is sound.
//!
//! Opens files for reading only and takes no lock, so a store that is in use may change meanwhile:
//! then a slot that is being written is reported as unsound.
//!
//! Invariants: nothing is written; nothing of the layout is needed, the superblock says it all.
//!
//! Called by tests that hold a store against what should be in it; `survey.rs` is for programs that
//! look after stores.

use super::directory::{none_if_absent, path};
use super::error::{StoreCall, StoreError, StoreFile};
use super::format::{Header, PAGE_BYTES, SnapshotHeader, Superblock};
use super::snapshot::{ScanReason, read_header, read_pages};
use super::superblock::SuperblockCopies;
use super::verify::{Expected, ReadFault};
use crate::io::{self, Disk, FileId, IoBuffer, IoFault, IoMemory, IoOperation, IoWork, OpenMode};
use crate::units::{ByteCount, SlotIndex};
use std::path::{Path, PathBuf};

/// Bytes of slots that are read at a time.
const WINDOW_BYTES: u64 = 64 << 20;

/// What the files of a store say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// The store's directory.
    pub directory: PathBuf,
    /// Both copies of the superblock; a file that is not there counts as zeros.
    pub copies: SuperblockCopies,
    /// The first page of the index.
    pub snapshot: Result<SnapshotHeader, ScanReason>,
    /// Length of the file of the slots; 0 where there is none.
    pub data: ByteCount,
}

/// What a check found in a slot.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SlotCheck {
    /// A chunk whose bytes are those that were packed.
    Sound(Box<Header>),
    /// Never written, or erased.
    Blank,
    /// A chunk from before the store was cleared.
    Cleared,
    /// Something else than a sound chunk of this slot.
    Unsound(ReadFault),
    /// It could not be read.
    Unreadable(IoFault),
}

/// Reads what the files of a store say.
///
/// # Errors
///
/// [`StoreError::File`]; [`StoreError::Io`] for a superblock that cannot be read.
pub fn inspect(disk: &mut dyn Disk, directory: &Path) -> Result<Inspection, StoreError> {
    let copies = inspect_superblock(disk, directory)?;
    let mut snapshot = Err(ScanReason::Unreadable(IoFault::NotOpen));
    if let Some((file, _)) = open(disk, directory, StoreFile::Index)? {
        snapshot = read_header(disk, file);
        disk.close(file);
    }
    let mut data = ByteCount::new(0);
    if let Some((file, length)) = open(disk, directory, StoreFile::Data)? {
        data = length;
        disk.close(file);
    }
    Ok(Inspection { directory: directory.to_owned(), copies, snapshot, data })
}

/// Reads every slot of a store and verifies it: header and payload. `report` is told of each, in
/// ascending order. Returns the superblock that the slots were held against.
///
/// Nothing else may be under way on the disk.
///
/// # Errors
///
/// [`StoreError::File`], [`StoreError::Io`]; [`StoreError::SuperblockDamaged`] and
/// [`StoreError::Version`] where there is nothing to hold the slots against.
pub fn check(
    disk: &mut dyn Disk,
    directory: &Path,
    report: &mut dyn FnMut(SlotIndex, SlotCheck),
) -> Result<Superblock, StoreError> {
    let copies = inspect_superblock(disk, directory)?;
    let owned = || directory.to_owned();
    if let Some(found) = copies.other_version() {
        return Err(StoreError::Version { directory: owned(), found });
    }
    let superblock = copies.current().map_err(|(first, second)| StoreError::SuperblockDamaged {
        directory: owned(),
        first,
        second,
    })?;
    if let Some((file, _)) = open(disk, directory, StoreFile::Data)? {
        check_slots(disk, file, superblock, report);
        disk.close(file);
    }
    Ok(superblock.clone())
}

fn open(
    disk: &mut dyn Disk,
    directory: &Path,
    file: StoreFile,
) -> Result<Option<(FileId, ByteCount)>, StoreError> {
    let opened = none_if_absent(disk.open(&path(directory, file), OpenMode::ReadOnly))?;
    Ok(opened.map(|opened| (opened.file, opened.length)))
}

fn inspect_superblock(
    disk: &mut dyn Disk,
    directory: &Path,
) -> Result<SuperblockCopies, StoreError> {
    let Some((file, length)) = open(disk, directory, StoreFile::Superblock)? else {
        return Ok(SuperblockCopies::decode(&[]));
    };
    let read = match length.get() / PAGE_BYTES as u64 {
        0 => Ok(None),
        1 => read_pages(disk, file, 0, 1).map(Some),
        _ => read_pages(disk, file, 0, 2).map(Some),
    };
    disk.close(file);
    let buffer = read.map_err(|fault| StoreError::Io {
        directory: directory.to_owned(),
        file: StoreFile::Superblock,
        call: StoreCall::Read,
        fault,
    })?;
    Ok(SuperblockCopies::decode(buffer.as_ref().map_or(&[], IoBuffer::bytes)))
}

fn check_slots(
    disk: &mut dyn Disk,
    file: FileId,
    superblock: &Superblock,
    report: &mut dyn FnMut(SlotIndex, SlotCheck),
) {
    let slot_bytes = superblock.shape.slot().get();
    let pages = usize::try_from(slot_bytes / PAGE_BYTES as u64).expect("a slot is at most 1 GiB");
    let depth = u64::from(disk.depth());
    let at_a_time = u32::try_from((WINDOW_BYTES / slot_bytes).clamp(1, depth.max(1)))
        .expect("at most the depth");
    for first in (0..superblock.slot_count).step_by(at_a_time as usize) {
        let end = first.saturating_add(at_a_time).min(superblock.slot_count);
        let reads = (first..end).map(|slot| {
            let memory = IoMemory::Buffer(IoBuffer::zeroed(pages));
            let work = IoWork::Read { offset: u64::from(slot) * slot_bytes, memory };
            IoOperation { tag: slot.into(), file, work }
        });
        let reports = io::run(disk, reads.collect());
        for (slot, finished) in (first..end).map(SlotIndex::new).zip(reports) {
            let buffer = finished.memory.and_then(IoMemory::into_buffer);
            let found = match (finished.outcome, buffer) {
                (Ok(()), Some(buffer)) => check_slot(superblock, slot, buffer.bytes()),
                (Ok(()), None) => SlotCheck::Unreadable(IoFault::NotOpen),
                (Err(fault), _) => SlotCheck::Unreadable(fault),
            };
            report(slot, found);
        }
    }
}

fn check_slot(superblock: &Superblock, slot: SlotIndex, image: &[u8]) -> SlotCheck {
    let expected = Expected {
        store_uuid: superblock.store_uuid,
        shape: &superblock.shape,
        slot,
        min_generation: superblock.min_generation,
        epoch: superblock.epoch,
    };
    if image.first_chunk().is_some_and(Header::is_blank) {
        return SlotCheck::Blank;
    }
    match expected.verify(image) {
        Ok(header) => SlotCheck::Sound(Box::new(header)),
        Err(ReadFault::Cleared { .. }) => SlotCheck::Cleared,
        Err(fault) => SlotCheck::Unsound(fault),
    }
}
