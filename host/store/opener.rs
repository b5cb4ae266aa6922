//! What a directory is, once its files are open and locked: a store to be opened, one that was
//! never finished, or something that is better left alone.
//!
//! Invariants: nothing is written before that is decided; a directory that is refused is as it was.
//!
//! Called by open.

use super::as_found::AsFound;
use super::directory::{Claimed, FoundStore};
use super::error::{StoreCall, StoreError, StoreFile};
use super::files::StoreFiles;
use super::format::{SnapshotHeader, Superblock};
use super::open::{ALONE, Opened, Recovery, StoreOptions, note};
use super::reclaim::make_room;
use super::snapshot::{ScanReason, header_buffer, write_buffers};
use super::state::{Change, Store};
use super::superblock::Copy;
use super::task::{Step, Task};
use super::{Epoch, Generation};
use crate::capability::Downgrade;
use crate::io::{self, Disk, IoBuffer, IoFault, IoOperation, IoWork};
use crate::units::ByteCount;
use std::io::ErrorKind;
use std::path::Path;

/// A directory whose files are open.
pub(super) struct Opener<'open> {
    pub(super) disk: &'open mut dyn Disk,
    pub(super) options: &'open StoreOptions,
    pub(super) claimed: Claimed,
    pub(super) files: StoreFiles,
    /// Of superblock, data and index, when they were opened.
    pub(super) lengths: [ByteCount; 3],
    pub(super) downgrades: Vec<Downgrade>,
}

impl Opener<'_> {
    /// Opens or makes the store, or says why not.
    pub(super) fn open(&mut self) -> Result<Opened, StoreError> {
        if self.claimed.is_new {
            return self.create();
        }
        // What will be seen is made durable first: nobody may act on a change that a power cut
        // would take back.
        if self.lengths[0].get() > 0 {
            self.sync(StoreFile::Superblock)?;
        }
        let copies = self.as_found().read_copies()?;
        match self.as_found().superblock(&copies)? {
            Some(superblock) => self.open_established(superblock, copies.older()),
            None => self.create(),
        }
    }

    /// Returns the files as they were when they were opened.
    fn as_found(&mut self) -> AsFound<'_> {
        let directory = &self.claimed.directory;
        let slot = Some(self.options.shape.slot());
        AsFound { disk: self.disk, directory, files: self.files, lengths: self.lengths, slot }
    }

    /// Makes the store: files, an empty snapshot, and the superblock last.
    fn create(&mut self) -> Result<Opened, StoreError> {
        let options = self.options;
        if self.lengths[1].get() > 0 {
            self.disk.truncate(self.files.data, ByteCount::new(0))?;
        }
        let files = [StoreFile::Superblock, StoreFile::Data, StoreFile::Index];
        let bytes = files.map(|file| options.file_bytes(file, options.slot_count).get());
        let reclaimed = self.make_room(ByteCount::new(bytes.iter().sum()))?;
        for (file, bytes) in files.into_iter().zip(bytes) {
            self.allocate(file, ByteCount::new(bytes))?;
        }
        let superblock = Superblock {
            sequence: 1,
            epoch: Epoch::default(),
            is_clean: true,
            min_generation: Generation::NONE,
            slot_count: options.slot_count,
            store_uuid: options.new_uuid,
            store_id: options.store_id,
            shape: options.shape.clone(),
        };
        let snapshot = SnapshotHeader {
            store_uuid: superblock.store_uuid,
            epoch: superblock.epoch,
            slot_count: superblock.slot_count,
            entry_count: 0,
        };
        self.write(StoreFile::Index, 0, header_buffer(&snapshot)?)?;
        self.sync(StoreFile::Data)?;
        self.sync(StoreFile::Index)?;
        self.sync(StoreFile::Superblock)?;
        self.sync_directories()?;
        let page = superblock.encode()?;
        for copy in [Copy::First, Copy::Second] {
            let mut buffer = IoBuffer::zeroed(1);
            buffer.bytes_mut().copy_from_slice(&page);
            self.write(StoreFile::Superblock, copy.offset_bytes(), buffer)?;
            self.sync(StoreFile::Superblock)?;
        }
        let mut store = self.store(superblock, Copy::First);
        store.scanned_to = store.slot_count();
        Ok(Opened { store, recovery: Recovery::Ready(Vec::new()), is_new: true, reclaimed })
    }

    /// Opens a store that is one, if it is the right one.
    fn open_established(
        &mut self,
        superblock: Superblock,
        older: Copy,
    ) -> Result<Opened, StoreError> {
        self.check_identity(&superblock)?;
        let snapshot = self.as_found().check_files(&superblock)?;
        let is_cut = self.fit_files(superblock.slot_count)?;
        let is_clean = superblock.is_clean;
        let mut store = self.store(superblock, older);
        let loaded = match snapshot {
            _ if is_cut => Err(ScanReason::Cut),
            _ if !is_clean => Err(ScanReason::Unclean),
            Ok(header) => store.load_snapshot(self.disk, &header),
            Err(reason) => Err(reason),
        };
        let mut recovery = loaded.map_or_else(Recovery::ScanNeeded, Recovery::Ready);
        if let Recovery::ScanNeeded(reason) = &recovery {
            let directory = store.directory().display();
            if *reason == ScanReason::Unclean {
                tracing::info!(%directory, %reason, "to be scanned");
            } else {
                tracing::warn!(%directory, %reason, "to be scanned");
            }
        }
        let reclaimed = self.resize(&mut store, &mut recovery)?;
        Ok(Opened { store, recovery, is_new: false, reclaimed })
    }

    /// Checks that the superblock is that of the store which was asked for.
    fn check_identity(&mut self, superblock: &Superblock) -> Result<(), StoreError> {
        let expected = self.options.store_id;
        self.as_found().check_id(superblock, expected)?;
        let directory = self.claimed.directory.clone();
        let (expected, found) = (self.options.shape.slot(), superblock.shape.slot());
        if expected != found {
            return Err(StoreError::SlotBytes { directory, expected, found });
        }
        if self.options.shape != superblock.shape {
            return Err(StoreError::Shape { directory });
        }
        Ok(())
    }

    /// Gives data and index the length that the superblock says: cuts off what a change of size
    /// left when the power went, and replaces what is missing by zeros. Returns whether something
    /// was.
    fn fit_files(&mut self, slot_count: u32) -> Result<bool, StoreError> {
        let [_, data, index] = self.lengths;
        let mut is_cut = false;
        for (file, length) in [(StoreFile::Data, data), (StoreFile::Index, index)] {
            let bytes = self.options.file_bytes(file, slot_count);
            if length > bytes {
                self.disk.truncate(self.files.get(file), bytes)?;
            } else if length < bytes {
                is_cut = true;
                self.allocate(file, bytes)?;
                self.sync(file)?;
            }
        }
        Ok(is_cut)
    }

    /// Changes the number of slots to the one asked for.
    fn resize(
        &mut self,
        store: &mut Store,
        recovery: &mut Recovery,
    ) -> Result<Vec<FoundStore>, StoreError> {
        let (old, new) = (store.slot_count(), self.options.slot_count);
        let change = |keeps_snapshot| {
            let change = Change::Resize { slot_count: new, keeps_snapshot };
            Task::new(ALONE, [Step::Change(change)])
        };
        let mut reclaimed = Vec::new();
        let files = [StoreFile::Data, StoreFile::Index];
        let bytes = |file, count| self.options.file_bytes(file, count);
        if new > old {
            let growth = files.map(|file| bytes(file, new).get() - bytes(file, old).get());
            reclaimed = self.make_room(ByteCount::new(growth.iter().sum()))?;
            for file in files {
                self.allocate(file, bytes(file, new))?;
                self.sync(file)?;
            }
            change(true).run(store, self.disk)?;
        } else if new < old {
            change(false).run(store, self.disk)?;
            for file in files {
                self.disk.truncate(self.files.get(file), bytes(file, new))?;
            }
        }
        store.records.resize(new);
        if let Recovery::Ready(entries) = recovery {
            entries.retain(|entry| entry.slot.get() < new);
            store.scanned_to = new;
        }
        Ok(reclaimed)
    }

    fn make_room(&mut self, needed: ByteCount) -> Result<Vec<FoundStore>, StoreError> {
        let StoreOptions { root, capacity, reclaim, .. } = self.options;
        make_room(self.disk, root, needed, *capacity, *reclaim)
    }

    fn allocate(&mut self, file: StoreFile, bytes: ByteCount) -> Result<(), StoreError> {
        let downgrade = self.disk.allocate(self.files.get(file), bytes)?;
        note(&mut self.downgrades, downgrade);
        Ok(())
    }

    fn write(&mut self, file: StoreFile, offset: u64, buffer: IoBuffer) -> Result<(), StoreError> {
        let written = write_buffers(self.disk, self.files.get(file), vec![(offset, buffer)]);
        written.map_err(|fault| self.io_error(file, StoreCall::Write, fault))
    }

    fn sync(&mut self, file: StoreFile) -> Result<(), StoreError> {
        let sync = IoOperation { tag: 0, file: self.files.get(file), work: IoWork::Sync };
        let synced =
            io::run(self.disk, vec![sync]).into_iter().try_for_each(|report| report.outcome);
        synced.map_err(|fault| self.io_error(file, StoreCall::Sync, fault))
    }

    /// Makes the directory's entries durable, and all entries on the way to it: a store that nobody
    /// finds after a power cut has lost everything.
    ///
    /// Directories above the root that this user may not read are left out: whoever made them has
    /// made them durable, or has to.
    fn sync_directories(&mut self) -> Result<(), StoreError> {
        let directory = self.claimed.directory.clone();
        for path in directory.ancestors() {
            let path = if path == Path::new("") { Path::new(".") } else { path };
            match self.disk.sync_directory(path) {
                Err(error) if error.kind == ErrorKind::PermissionDenied => {}
                synced => synced?,
            }
        }
        Ok(())
    }

    fn store(&mut self, superblock: Superblock, older: Copy) -> Store {
        let place = (self.claimed.directory.clone(), self.claimed.instance);
        let downgrades = std::mem::take(&mut self.downgrades);
        Store::new(place, self.files, (superblock, older), downgrades)
    }

    fn io_error(&self, file: StoreFile, call: StoreCall, fault: IoFault) -> StoreError {
        let directory = self.claimed.directory.clone();
        StoreError::Io { directory, file, call, fault }
    }
}
