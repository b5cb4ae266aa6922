//! Reading and writing the index snapshot: how a store that was closed is open at once.
//!
//! Both have the disk for themselves, and move pieces of 1 MiB, as many at a time as the disk
//! likes, so that neither holds the whole file in memory. Reading decodes one piece while the disk
//! reads the next ones.
//!
//! Invariants: a snapshot is taken over whole or not at all; every entry's slot exists and is named
//! once; what was cleared since is left out.
//!
//! Called by open and close.

use super::error::{StoreCall, StoreError, StoreFile};
use super::format::{
    ENTRIES_PER_PAGE, FormatError, FormatField, PAGE_BYTES, SnapshotEntry, SnapshotHeader,
    SnapshotPage, snapshot_pages,
};
use super::read_ahead::{PIECE_PAGES, pieces_max, read_ahead};
use super::records::{Record, Records};
use super::state::Store;
use super::{Entry, StoreUuid};
use crate::io::{self, Disk, FileId, IoBuffer, IoFault, IoFinished, IoMemory, IoOperation, IoWork};
use thiserror::Error;

/// Why a store must be scanned.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ScanReason {
    /// The last run was not closed.
    #[error("the last run was not closed")]
    Unclean,
    /// The snapshot is of another run than the superblock.
    #[error("the index is of run {found}, the superblock of run {expected}")]
    OtherEpoch {
        /// The superblock's.
        expected: u32,
        /// The snapshot's.
        found: u32,
    },
    /// The snapshot is damaged.
    #[error("the index is damaged: {0}")]
    Damaged(#[from] FormatError),
    /// The snapshot could not be read.
    #[error("the index could not be read: {0}")]
    Unreadable(#[from] IoFault),
    /// A file was shorter than it should be.
    #[error("a file of the store was cut")]
    Cut,
}

/// Reads a few pages of a file at once.
pub(super) fn read_pages(
    disk: &mut dyn Disk,
    file: FileId,
    first_page: u64,
    page_count: u32,
) -> Result<IoBuffer, IoFault> {
    let memory = IoMemory::Buffer(IoBuffer::zeroed(page_count as usize));
    let work = IoWork::Read { offset: first_page * PAGE_BYTES as u64, memory };
    let report = io::run(disk, vec![IoOperation { tag: 0, file, work }]).pop();
    let IoFinished { outcome, memory, .. } = report.ok_or(IoFault::NotOpen)?;
    outcome?;
    memory.and_then(IoMemory::into_buffer).ok_or(IoFault::NotOpen)
}

/// Writes buffers, each at its offset.
pub(super) fn write_buffers(
    disk: &mut dyn Disk,
    file: FileId,
    buffers: Vec<(u64, IoBuffer)>,
) -> Result<(), IoFault> {
    let operations = buffers.into_iter().zip(0..).map(|((offset, buffer), tag)| {
        let memory = IoMemory::Buffer(buffer);
        IoOperation { tag, file, work: IoWork::Write { offset, memory } }
    });
    io::run(disk, operations.collect()).into_iter().try_for_each(|report| report.outcome)
}

/// Reads the snapshot's first page.
pub(super) fn read_header(disk: &mut dyn Disk, file: FileId) -> Result<SnapshotHeader, ScanReason> {
    let buffer = read_pages(disk, file, 0, 1)?;
    let page = buffer.bytes().first_chunk().ok_or(IoFault::NotOpen)?;
    Ok(SnapshotHeader::decode(page)?)
}

/// Makes a buffer of the first page of a snapshot.
pub(super) fn header_buffer(header: &SnapshotHeader) -> Result<IoBuffer, FormatError> {
    let mut buffer = IoBuffer::zeroed(1);
    buffer.bytes_mut().copy_from_slice(&header.encode()?);
    Ok(buffer)
}

impl Store {
    /// Takes the snapshot over: the chunks in the order of recency, coldest first.
    pub(super) fn load_snapshot(
        &mut self,
        disk: &mut dyn Disk,
        header: &SnapshotHeader,
    ) -> Result<Vec<Entry>, ScanReason> {
        let loaded = self.try_load(disk, header);
        if loaded.is_ok() {
            self.scanned_to = self.slot_count();
        } else {
            self.records = Records::new(self.slot_count());
        }
        loaded
    }

    fn try_load(
        &mut self,
        disk: &mut dyn Disk,
        header: &SnapshotHeader,
    ) -> Result<Vec<Entry>, ScanReason> {
        let (expected, found) = (self.epoch().get(), header.epoch.get());
        if expected != found {
            return Err(ScanReason::OtherEpoch { expected, found });
        }
        let (index, page_count) = (self.files.index, snapshot_pages(header.entry_count));
        let mut entries = Vec::new();
        let mut page_entries = Vec::with_capacity(ENTRIES_PER_PAGE);
        let mut number = 0;
        read_ahead(disk, index, 1, page_count, |piece| {
            let (pages, _) = piece.as_chunks();
            entries.reserve(pages.len() * ENTRIES_PER_PAGE);
            for page in pages {
                number += 1;
                let decoder =
                    SnapshotPage { store_uuid: header.store_uuid, epoch: header.epoch, number };
                page_entries.clear();
                decoder.decode(page, header.entries_of_page(number), &mut page_entries)?;
                for entry in &page_entries {
                    self.take_entry(entry, header.slot_count, &mut entries)?;
                }
            }
            Ok::<_, ScanReason>(())
        })?;
        Ok(entries)
    }

    /// Takes one entry over.
    fn take_entry(
        &mut self,
        entry: &SnapshotEntry,
        slot_count: u32,
        entries: &mut Vec<Entry>,
    ) -> Result<(), FormatError> {
        let (slot, record) = (entry.slot(), Record::of_snapshot(entry));
        let is_free = self.records.get(slot) == Some(Record::EMPTY);
        if slot.get() >= slot_count || !is_free {
            let value = slot.get().into();
            return Err(FormatError::Value { field: FormatField::Slot, value });
        }
        if record != Record::UNKNOWN && record.generation.epoch() > self.epoch() {
            let value = record.generation.get();
            return Err(FormatError::Value { field: FormatField::Generation, value });
        }
        if record.generation < self.min_generation() {
            return Ok(());
        }
        self.records.set(slot, record);
        if let SnapshotEntry::Chunk(entry) = entry {
            entries.push(*entry);
        }
        Ok(())
    }

    /// Writes a snapshot of this run: the chunks that `entries` names, then what remains in other
    /// slots. Chunks that the records do not know as they are named are left out. Returns the
    /// number of chunks.
    pub(super) fn write_snapshot(
        &self,
        disk: &mut dyn Disk,
        entries: impl IntoIterator<Item = Entry>,
    ) -> Result<u32, StoreError> {
        let mut is_chunk = vec![false; self.slot_count() as usize];
        let mut writer = SnapshotWriter::new(self, pieces_max(disk));
        let mut chunk_count = 0;
        for entry in entries {
            let is_held = self.records.get(entry.slot) == Some(Record::of_entry(&entry));
            let Some(is_chunk) = is_chunk.get_mut(entry.slot.get() as usize) else { continue };
            if is_held && !*is_chunk {
                *is_chunk = true;
                chunk_count += 1;
                writer.push(disk, SnapshotEntry::Chunk(entry))?;
            }
        }
        for ((slot, record), is_chunk) in self.records.iter().zip(is_chunk) {
            if let Some(remains) = record.to_snapshot(slot).filter(|_| !is_chunk) {
                writer.push(disk, remains)?;
            }
        }
        writer.finish(disk)?;
        Ok(chunk_count)
    }
}

/// Entries on their way into the file `index`.
struct SnapshotWriter<'store> {
    store: &'store Store,
    store_uuid: StoreUuid,
    page: Vec<SnapshotEntry>,
    entry_count: u32,
    /// Pages encoded so far.
    page_count: u32,
    /// Pieces to be written, the last of which may not be full.
    pieces: Vec<(u64, IoBuffer)>,
    pieces_max: usize,
}

impl<'store> SnapshotWriter<'store> {
    fn new(store: &'store Store, pieces_max: u32) -> Self {
        Self {
            store,
            store_uuid: store.uuid(),
            page: Vec::with_capacity(ENTRIES_PER_PAGE),
            entry_count: 0,
            page_count: 0,
            pieces: Vec::new(),
            pieces_max: pieces_max as usize,
        }
    }

    fn push(&mut self, disk: &mut dyn Disk, entry: SnapshotEntry) -> Result<(), StoreError> {
        self.page.push(entry);
        self.entry_count += 1;
        if self.page.len() == ENTRIES_PER_PAGE { self.end_page(disk) } else { Ok(()) }
    }

    /// Encodes the entries of one page, and writes what is full once there is enough of it.
    fn end_page(&mut self, disk: &mut dyn Disk) -> Result<(), StoreError> {
        let position = self.page_count % PIECE_PAGES;
        if position == 0 {
            if self.pieces.len() == self.pieces_max {
                self.flush(disk)?;
            }
            let offset = u64::from(self.page_count + 1) * PAGE_BYTES as u64;
            self.pieces.push((offset, IoBuffer::zeroed(PIECE_PAGES as usize)));
        }
        self.page_count += 1;
        let encoder = SnapshotPage {
            store_uuid: self.store_uuid,
            epoch: self.store.epoch(),
            number: self.page_count,
        };
        let page = encoder.encode(&self.page)?;
        self.page.clear();
        if let Some((_, piece)) = self.pieces.last_mut() {
            piece.bytes_mut()[position as usize * PAGE_BYTES..][..PAGE_BYTES]
                .copy_from_slice(&page);
        }
        Ok(())
    }

    fn finish(mut self, disk: &mut dyn Disk) -> Result<(), StoreError> {
        if !self.page.is_empty() {
            self.end_page(disk)?;
        }
        self.cut_last_piece();
        let header = SnapshotHeader {
            store_uuid: self.store_uuid,
            epoch: self.store.epoch(),
            slot_count: self.store.slot_count(),
            entry_count: self.entry_count,
        };
        self.pieces.push((0, header_buffer(&header)?));
        self.flush(disk)
    }

    /// Leaves out the pages of the last piece that are not used, so that nothing is written past
    /// the file's end.
    fn cut_last_piece(&mut self) {
        let used = (self.page_count % PIECE_PAGES) as usize;
        if used > 0
            && let Some((_, piece)) = self.pieces.last_mut()
        {
            let mut cut = IoBuffer::zeroed(used);
            let length = cut.bytes().len();
            cut.bytes_mut().copy_from_slice(&piece.bytes()[..length]);
            *piece = cut;
        }
    }

    fn flush(&mut self, disk: &mut dyn Disk) -> Result<(), StoreError> {
        let pieces = std::mem::take(&mut self.pieces);
        write_buffers(disk, self.store.files.index, pieces)
            .map_err(|fault| self.store.io_error(StoreFile::Index, StoreCall::Write, fault))
    }
}
