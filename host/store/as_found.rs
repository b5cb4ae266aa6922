//! What a directory's files say, read as they lie: a store, one that was never finished, or
//! something that is better left alone.
//!
//! Invariants: nothing is written, nor made durable.
//!
//! Called by open and by survey.

use super::StoreUuid;
use super::error::{StoreCall, StoreError, StoreFile};
use super::files::StoreFiles;
use super::format::{Header, PAGE_BYTES, SUPERBLOCK_BYTES, SnapshotHeader, Superblock};
use super::snapshot::{ScanReason, read_header, read_pages};
use super::superblock::SuperblockCopies;
use crate::fingerprint::StoreId;
use crate::io::{Disk, IoFault};
use crate::units::ByteCount;
use std::path::Path;

/// Slots that must hold no header before a directory is taken for one that was never finished.
const SLOTS_LOOKED_AT: u64 = 16;

/// Pages of which the same must hold where nobody knows how large slots are.
const PAGES_LOOKED_AT: u64 = 1024;

/// The open files of a directory.
pub(super) struct AsFound<'open> {
    pub(super) disk: &'open mut dyn Disk,
    pub(super) directory: &'open Path,
    pub(super) files: StoreFiles,
    /// Of superblock, data and index; 0 for one that is not there.
    pub(super) lengths: [ByteCount; 3],
    /// Bytes of a slot of what should be here; `None` where only the directory's name is known.
    pub(super) slot: Option<ByteCount>,
}

impl AsFound<'_> {
    /// Reads both copies of the superblock.
    pub(super) fn read_copies(&mut self) -> Result<SuperblockCopies, StoreError> {
        let [length, ..] = self.lengths;
        let bytes = length.get().min(SUPERBLOCK_BYTES);
        let pages = u32::try_from(bytes / PAGE_BYTES as u64).expect("at most two");
        if pages == 0 {
            return Ok(SuperblockCopies::decode(&[]));
        }
        let buffer = read_pages(self.disk, self.files.superblock, 0, pages)
            .map_err(|fault| self.unreadable(StoreFile::Superblock, fault))?;
        Ok(SuperblockCopies::decode(buffer.bytes()))
    }

    /// Returns the copy of the superblock that counts; `None` for a store that was never finished.
    pub(super) fn superblock(
        &mut self,
        copies: &SuperblockCopies,
    ) -> Result<Option<Superblock>, StoreError> {
        let directory = self.directory.to_owned();
        if let Some(found) = copies.other_version() {
            return Err(StoreError::Version { directory, found });
        }
        match copies.current() {
            Ok(superblock) => Ok(Some(superblock.clone())),
            // A superblock is written last: one that never was whole means that nothing else was.
            Err(_) if copies.has_blank() && !self.has_header()? => Ok(None),
            Err((first, second)) => Err(StoreError::SuperblockDamaged { directory, first, second }),
        }
    }

    /// Checks that a superblock is that of the store which should be here.
    pub(super) fn check_id(
        &self,
        superblock: &Superblock,
        expected: StoreId,
    ) -> Result<(), StoreError> {
        let (directory, found) = (self.directory.to_owned(), superblock.store_id);
        if expected == found {
            Ok(())
        } else {
            Err(StoreError::ForeignStore { directory, expected, found })
        }
    }

    /// Checks that the other files are of the same store, and returns what the index says.
    pub(super) fn check_files(
        &mut self,
        superblock: &Superblock,
    ) -> Result<Result<SnapshotHeader, ScanReason>, StoreError> {
        let expected = superblock.store_uuid;
        let snapshot = read_header(self.disk, self.files.index);
        let of_index = snapshot.as_ref().ok().map(|header| header.store_uuid);
        // A slot that cannot be read is a miss, no reason to refuse the others.
        let of_data = self.header(0).unwrap_or(None);
        for (file, uuid) in [(StoreFile::Index, of_index), (StoreFile::Data, of_data)] {
            if let Some(found) = uuid.filter(|&uuid| uuid != expected) {
                let directory = self.directory.to_owned();
                return Err(StoreError::ForeignFile { directory, file, expected, found });
            }
        }
        Ok(snapshot)
    }

    /// Whether one of the first slots holds a header: slots that were never written are handed out
    /// in ascending order, so a store that was used has some there, torn and erased ones aside.
    fn has_header(&mut self) -> Result<bool, StoreError> {
        let (step_pages, count) = match self.slot {
            Some(slot) => (slot.get() / PAGE_BYTES as u64, SLOTS_LOOKED_AT),
            None => (1, PAGES_LOOKED_AT),
        };
        for number in 0..count {
            match self.header(number * step_pages) {
                Ok(None) => {}
                Ok(Some(_)) => return Ok(true),
                Err(fault) => return Err(self.unreadable(StoreFile::Data, fault)),
            }
        }
        Ok(false)
    }

    /// Returns the uuid in the header that a page of the slots holds, if it holds one.
    fn header(&mut self, page: u64) -> Result<Option<StoreUuid>, IoFault> {
        let [_, length, _] = self.lengths;
        if length.get() / PAGE_BYTES as u64 <= page {
            return Ok(None);
        }
        let buffer = read_pages(self.disk, self.files.data, page, 1)?;
        let header = buffer.bytes().first_chunk().and_then(|page| Header::decode(page).ok());
        Ok(header.map(|header| header.stamp.store_uuid))
    }

    fn unreadable(&self, file: StoreFile, fault: IoFault) -> StoreError {
        let (directory, call) = (self.directory.to_owned(), StoreCall::Read);
        StoreError::Io { directory, file, call, fault }
    }
}
