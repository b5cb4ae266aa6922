//! What a directory's files say, read as they lie: a store, one that was never finished, or
//! something that is better left alone.
//!
//! Invariants: nothing is written, nor made durable.
//!
//! Called by open and by survey.

use super::StoreUuid;
use super::error::{StoreCall, StoreError, StoreFile};
use super::format::{Header, PAGE_BYTES, SUPERBLOCK_BYTES, SnapshotHeader, Superblock};
use super::snapshot::{ScanReason, read_header, read_pages};
use super::store::StoreFiles;
use super::superblock::SuperblockCopies;
use crate::fingerprint::StoreId;
use crate::io::{Disk, IoBuffer};
use crate::units::ByteCount;
use std::path::Path;

/// The open files of a directory.
pub(super) struct AsFound<'open> {
    pub(super) disk: &'open mut dyn Disk,
    pub(super) directory: &'open Path,
    pub(super) files: StoreFiles,
    /// Of superblock, data and index; 0 for one that is not there.
    pub(super) lengths: [ByteCount; 3],
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
        let buffers = read_pages(self.disk, self.files.superblock, 0, pages).map_err(|fault| {
            let (directory, call) = (self.directory.to_owned(), StoreCall::Read);
            StoreError::Io { directory, file: StoreFile::Superblock, call, fault }
        })?;
        Ok(SuperblockCopies::decode(buffers.first().map_or(&[], IoBuffer::bytes)))
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
            Err(_) if copies.has_blank() && self.first_header().is_none() => Ok(None),
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
        let of_data = self.first_header();
        for (file, uuid) in [(StoreFile::Index, of_index), (StoreFile::Data, of_data)] {
            if let Some(found) = uuid.filter(|&uuid| uuid != expected) {
                let directory = self.directory.to_owned();
                return Err(StoreError::ForeignFile { directory, file, expected, found });
            }
        }
        Ok(snapshot)
    }

    /// Returns the uuid in the first slot's header, if it holds one.
    ///
    /// Slots that were never written are handed out in ascending order, so a store that was used
    /// has one there, unless it is torn.
    fn first_header(&mut self) -> Option<StoreUuid> {
        let [_, length, _] = self.lengths;
        if length.get() < PAGE_BYTES as u64 {
            return None;
        }
        let buffers = read_pages(self.disk, self.files.data, 0, 1).ok()?;
        let header = Header::decode(buffers.first()?.bytes().first_chunk()?).ok()?;
        Some(header.stamp.store_uuid)
    }
}
