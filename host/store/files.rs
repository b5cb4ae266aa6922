//! A store's three files, open.
//!
//! Called by the opening of stores, by surveys and by the store itself.

use super::error::StoreFile;
use crate::io::{Disk, FileId};

/// The open files of a store.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoreFiles {
    pub(super) superblock: FileId,
    pub(super) data: FileId,
    pub(super) index: FileId,
}

impl StoreFiles {
    pub(super) const fn get(self, file: StoreFile) -> FileId {
        match file {
            StoreFile::Superblock => self.superblock,
            StoreFile::Data => self.data,
            StoreFile::Index => self.index,
        }
    }

    pub(super) const fn all(self) -> [FileId; 3] {
        [self.data, self.superblock, self.index]
    }

    /// Closes all of them; the lock goes with the data file, so that one last.
    pub(super) fn close(self, disk: &mut dyn Disk) {
        disk.close(self.superblock);
        disk.close(self.index);
        disk.close(self.data);
    }
}
