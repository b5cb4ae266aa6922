//! Pages of a file in their order, read ahead of whoever takes them, so that the drive reads while
//! the processor decodes.
//!
//! Pieces of 1 MiB, as many at a time as the disk likes and never more than 16, whose memory is
//! used again.
//!
//! Invariants: pieces are handed out in ascending order, each once, until the first that could not
//! be read or was refused; nothing is under way any more when that is over, however it ended.
//!
//! Has the disk for itself. Called by the snapshot's reading.

use super::format::PAGE_BYTES;
use crate::io::{Disk, FileId, IoBuffer, IoFault, IoMemory, IoOperation, IoWork};
use std::collections::VecDeque;
use std::time::Duration;

/// Pages of one operation.
pub(super) const PIECE_PAGES: u32 = 256;

/// Operations under way at a time, at most: what bounds the memory.
const PIECES_MAX: u32 = 16;

/// How long one wait for the disk lasts at most.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// Returns how many pieces are best under way at a time.
pub(super) fn pieces_max(disk: &dyn Disk) -> u32 {
    PIECES_MAX.min(disk.depth().max(1))
}

/// Reads `page_count` pages of a file from `first_page` on, and hands them to `take` in pieces.
///
/// # Errors
///
/// The fault of the first piece that could not be read, or what `take` refused one with.
pub(super) fn read_ahead<E: From<IoFault>>(
    disk: &mut dyn Disk,
    file: FileId,
    first_page: u32,
    page_count: u32,
    take: impl FnMut(&[u8]) -> Result<(), E>,
) -> Result<(), E> {
    let mut pieces = Pieces {
        file,
        next: first_page,
        end: first_page + page_count,
        begun: 0,
        taken: 0,
        arrived: VecDeque::new(),
        spare: Vec::new(),
        in_flight: 0,
    };
    let outcome = pieces.hand_out(disk, take);
    while pieces.in_flight > 0 {
        pieces.collect(disk);
    }
    outcome
}

/// Pieces of a file between the first that was not taken and the last that was asked for.
struct Pieces {
    file: FileId,
    /// The next page to be asked for.
    next: u32,
    end: u32,
    /// Pieces asked for, and pieces taken, so far: their numbers are their tags.
    begun: u64,
    taken: u64,
    /// What came of each piece, from the first that was not taken on.
    arrived: VecDeque<Option<Result<IoBuffer, IoFault>>>,
    spare: Vec<IoBuffer>,
    in_flight: u32,
}

impl Pieces {
    fn hand_out<E: From<IoFault>>(
        &mut self,
        disk: &mut dyn Disk,
        mut take: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        loop {
            self.begin(disk);
            let Some(first) = self.arrived.front_mut() else { return Ok(()) };
            let Some(read) = first.take() else {
                self.collect(disk);
                continue;
            };
            self.arrived.pop_front();
            self.taken += 1;
            let buffer = read?;
            take(buffer.bytes())?;
            self.spare.push(buffer);
        }
    }

    /// Asks for what there is room for.
    fn begin(&mut self, disk: &mut dyn Disk) {
        let mut reads = Vec::new();
        while self.next < self.end && self.arrived.len() < pieces_max(disk) as usize {
            let pages = PIECE_PAGES.min(self.end - self.next);
            // Only the last piece is shorter.
            let spare = self.spare.pop().filter(|_| pages == PIECE_PAGES);
            let buffer = spare.unwrap_or_else(|| IoBuffer::zeroed(pages as usize));
            let offset = u64::from(self.next) * PAGE_BYTES as u64;
            let work = IoWork::Read { offset, memory: IoMemory::Buffer(buffer) };
            reads.push(IoOperation { tag: self.begun, file: self.file, work });
            self.arrived.push_back(None);
            self.begun += 1;
            self.next += pages;
            self.in_flight += 1;
        }
        if !reads.is_empty() {
            disk.submit(reads);
        }
    }

    /// Takes reports in, and waits for them if there are none.
    fn collect(&mut self, disk: &mut dyn Disk) {
        let mut finished = Vec::new();
        disk.poll(&mut finished);
        if finished.is_empty() {
            return disk.wait(WAIT_MAX);
        }
        for report in finished {
            self.in_flight -= 1;
            let buffer = report.memory.and_then(IoMemory::into_buffer);
            let read = report.outcome.and_then(|()| buffer.ok_or(IoFault::NotOpen));
            let place = report.tag.checked_sub(self.taken).and_then(|at| usize::try_from(at).ok());
            if let Some(place) = place.and_then(|place| self.arrived.get_mut(place)) {
                *place = Some(read);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::snapshot::write_buffers;
    use super::{PAGE_BYTES, PIECE_PAGES, PIECES_MAX, read_ahead};
    use crate::io::sim::{SimDisk, SimDrive};
    use crate::io::{Disk, FileId, Files, IoBuffer, IoFault, OpenMode};
    use std::path::Path;

    /// Makes a file of which each page begins with its number.
    fn numbered(seed: u64, page_count: u32) -> (SimDisk, FileId) {
        let mut disk = SimDrive::new(seed).disk(seed);
        disk.create_directory(Path::new("/kv")).expect("an empty drive");
        let file = disk.open(Path::new("/kv/pages"), OpenMode::Create).expect("a directory").file;
        let mut buffer = IoBuffer::zeroed(page_count as usize);
        for (page, number) in
            buffer.bytes_mut().as_chunks_mut::<PAGE_BYTES>().0.iter_mut().zip(0_u32..)
        {
            page[..4].copy_from_slice(&number.to_le_bytes());
        }
        write_buffers(&mut disk, file, vec![(0, buffer)]).expect("a drive that works");
        (disk, file)
    }

    /// Reads ahead until `refused`, and returns the numbers of the pages before that.
    fn read(
        disk: &mut SimDisk,
        file: FileId,
        (first_page, page_count): (u32, u32),
        refused: u32,
    ) -> (Vec<u32>, Result<(), IoFault>) {
        let mut numbers = Vec::new();
        let outcome = read_ahead(disk, file, first_page, page_count, |piece| {
            for page in piece.as_chunks::<PAGE_BYTES>().0 {
                let number = u32::from_le_bytes(*page.first_chunk().expect("a page"));
                if number == refused {
                    return Err(IoFault::NotOpen);
                }
                numbers.push(number);
            }
            Ok(())
        });
        let mut stray = Vec::new();
        disk.poll(&mut stray);
        assert!(stray.is_empty(), "{} reads were left under way", stray.len());
        (numbers, outcome)
    }

    #[test]
    fn pages_come_in_order_and_whole_however_the_disk_orders_its_reads() {
        let window = PIECES_MAX * PIECE_PAGES;
        for (seed, page_count) in (1..).zip([1, 255, 256, 257, 1000, window, window + 600]) {
            let (mut disk, file) = numbered(seed, page_count + 1);
            let (numbers, outcome) = read(&mut disk, file, (1, page_count), u32::MAX);
            assert_eq!(outcome, Ok(()));
            assert!(numbers.into_iter().eq(1..=page_count), "{page_count} pages");
        }
        let (mut disk, file) = numbered(1, 1);
        assert_eq!(read(&mut disk, file, (1, 0), u32::MAX), (Vec::new(), Ok(())));
    }

    #[test]
    fn nothing_is_handed_out_behind_what_was_refused_or_not_read() {
        for seed in 0..20 {
            let (mut disk, file) = numbered(seed, 2000);
            let (numbers, outcome) = read(&mut disk, file, (0, 2000), 700);
            assert!(numbers.into_iter().eq(0..700));
            assert_eq!(outcome, Err(IoFault::NotOpen));
            // The file ends in the last piece but one.
            let (numbers, outcome) = read(&mut disk, file, (0, 2100), u32::MAX);
            assert!(numbers.into_iter().eq(0..1792));
            assert!(matches!(outcome, Err(IoFault::EndOfFile { .. })), "{outcome:?}");
        }
    }
}
