//! The disk over an engine: what every real back end does alike.
//!
//! ```text
//!   submit -> check -> waiting -> engine -> kernel
//!                 \        \          \
//!   poll   <-------+--------+----------+  ready
//! ```
//!
//! An engine has a number of places, so many for each drive: an operation takes one from its start
//! to its report, or to its end where the kernel does not let go of it. Files of one file system
//! are on one drive. So a drive that does not answer takes no place from another. Large operations
//! leave places free: so many bytes under way are enough for any drive, where small ones need many
//! places. An operation that waits for a place is given up only when every place that its drive may
//! have is lost in that way, and it has waited for `io_timeout`: so a slow drive works off its
//! queue, and a dead one ends every operation.
//!
//! Invariants: every operation that was checked is in `waiting`, in the engine or in `ready`, and
//! in one of them only; dropping the disk frees no memory that the kernel still uses.
//!
//! Called by [`open_disk`](super::open_disk) and tests, as [`Disk`].

use super::files::{self, DriveId, OpenFile, RealFiles};
use super::transfer::Transfer;
use super::waiting::WaitingDrives;
use super::{
    DirectoryEntry, Disk, DiskWaker, FileError, FileId, Files, IoFault, IoFinished, IoOperation,
    Lock, OpenMode, OpenedFile, ShutReport, Space,
};
use crate::capability::Downgrade;
use crate::mem::Slab;
use crate::units::ByteCount;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What an engine has to do on one drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    /// Transfers that may be started now.
    pub(super) free_places: u32,
    /// Bytes of the transfers that are started, and neither ended nor given up.
    pub(super) bytes_under_way: u64,
}

/// What moves the bytes.
///
/// An engine owns a transfer, and so its memory, from [`start`](Engine::start) until the kernel is
/// done with it. It reports one that takes longer than `io_timeout` without its memory, and counts
/// it until the kernel lets go.
pub(super) trait Engine: Debug + Send {
    /// Names the back end.
    fn name(&self) -> &'static str;

    /// Returns what works less well than it could.
    fn downgrades(&self) -> Vec<Downgrade>;

    /// Registers memory in place of what was registered before.
    fn register(&mut self, slabs: &[Arc<Slab>]);

    /// Learns of a file that was opened.
    fn opened(&mut self, file: &mut OpenFile);

    /// Takes over a file that was closed, until nothing uses it.
    fn closed(&mut self, file: Arc<OpenFile>);

    /// Returns how many operations are best under way at a time on each drive.
    fn depth(&self) -> u32;

    /// Returns what is to be done on a drive, and what room there is for more.
    fn load(&self, drive: DriveId) -> Load;

    /// Takes a transfer for the next [`flush`](Engine::flush). There must be room.
    fn start(&mut self, transfer: Transfer, now: Instant);

    /// Hands the kernel what was started.
    fn flush(&mut self);

    /// Appends what ended, and what took too long.
    fn reap(&mut self, now: Instant, ready: &mut Vec<IoFinished>);

    /// Returns whether every place that a drive may have is held by an operation that was given up.
    fn is_stuck(&self, drive: DriveId) -> bool;

    /// Sleeps until something ended or is overdue, a waker says so, or `timeout` is over.
    fn wait(&mut self, timeout: Duration);

    /// Returns what ends a wait.
    fn waker(&self) -> Arc<dyn DiskWaker>;

    /// Returns how many transfers are started and not ended, those reported without their memory
    /// included.
    fn under_way(&self) -> u32;

    /// Stops. Keeps what the kernel may still use, and returns how many transfers that are.
    fn stop(&mut self) -> u32;
}

/// Files and operations of one machine's drives, through an engine.
#[derive(Debug)]
pub(super) struct RealDisk<E: Engine> {
    files: RealFiles,
    waiting: WaitingDrives,
    /// Reports that [`poll`](Disk::poll) has not handed out.
    ready: Vec<IoFinished>,
    engine: E,
    io_timeout: Duration,
    /// Bytes under way on a drive at which nothing more begins there.
    depth_bytes: u64,
    is_shut: bool,
}

impl<E: Engine> RealDisk<E> {
    /// Makes a disk without files.
    pub(super) fn new(engine: E, io_timeout: Duration, depth_bytes: ByteCount) -> Self {
        Self {
            files: RealFiles::default(),
            waiting: WaitingDrives::default(),
            ready: Vec::new(),
            engine,
            io_timeout,
            depth_bytes: depth_bytes.get(),
            is_shut: false,
        }
    }

    /// Starts what has room.
    fn begin(&mut self, now: Instant) {
        for (drive, waiting) in self.waiting.iter_mut() {
            let mut load = self.engine.load(drive);
            while load.free_places > 0
                && load.bytes_under_way < self.depth_bytes
                && let Some(transfer) = waiting.pop()
            {
                load.free_places -= 1;
                load.bytes_under_way += transfer.length();
                self.engine.start(transfer, now);
            }
        }
        self.engine.flush();
    }

    /// Collects what ended, gives up what takes too long, and starts what has room.
    fn turn(&mut self) {
        let now = Instant::now();
        self.engine.reap(now, &mut self.ready);
        if let Some(limit) = now.checked_sub(self.io_timeout) {
            let engine = &self.engine;
            let stuck = self.waiting.iter_mut().filter(|(drive, _)| engine.is_stuck(*drive));
            for (_, waiting) in stuck {
                let timed_out = |transfer: Transfer| transfer.finish(Err(IoFault::TimedOut));
                waiting.take_older(limit, |transfer| self.ready.push(timed_out(transfer)));
            }
        }
        self.begin(now);
    }

    /// Returns how long nothing needs to be looked at.
    fn quiet(&self) -> Duration {
        let stuck = self.waiting.oldest().filter(|(drive, _)| self.engine.is_stuck(*drive));
        match stuck.map(|(_, oldest)| oldest).min() {
            Some(oldest) => (oldest + self.io_timeout).saturating_duration_since(Instant::now()),
            None => Duration::MAX,
        }
    }

    /// Finishes what is under way, at most for `timeout`, and stops the engine.
    fn stop(&mut self, timeout: Duration) -> ShutReport {
        let started = Instant::now();
        loop {
            self.turn();
            let is_idle = self.waiting.is_empty() && self.engine.under_way() == 0;
            let left = timeout.saturating_sub(started.elapsed());
            if is_idle || left.is_zero() {
                break;
            }
            self.engine.wait(left.min(self.quiet()));
        }
        for file in self.files.take_all() {
            self.engine.closed(file);
        }
        self.is_shut = true;
        ShutReport { leaked_operations: self.engine.stop() }
    }
}

#[cfg(test)]
impl<E: Engine> RealDisk<E> {
    /// Opens what is no regular file, such as a pipe whose reads hang.
    pub(super) fn adopt(&mut self, handle: std::fs::File) -> FileId {
        let mut file = self.files.name(handle, Path::new("adopted"), true);
        self.engine.opened(&mut file);
        let id = file.id();
        self.files.add(file);
        id
    }

    /// Returns the engine.
    pub(super) fn engine(&self) -> &E {
        &self.engine
    }
}

impl<E: Engine> Drop for RealDisk<E> {
    fn drop(&mut self) {
        if !self.is_shut {
            self.stop(self.io_timeout);
        }
    }
}

impl<E: Engine> Disk for RealDisk<E> {
    fn name(&self) -> &'static str {
        self.engine.name()
    }

    fn downgrades(&self) -> Vec<Downgrade> {
        self.engine.downgrades()
    }

    fn register(&mut self, slots: &[Arc<Slab>]) {
        self.engine.register(slots);
    }

    fn depth(&self) -> u32 {
        self.engine.depth()
    }

    fn submit(&mut self, operations: Vec<IoOperation>) {
        let now = Instant::now();
        for operation in operations {
            let file = self.files.get(operation.file);
            match Transfer::new(operation, file) {
                Ok(transfer) => self.waiting.push(now, transfer),
                Err(refused) => self.ready.push(refused),
            }
        }
        self.begin(now);
    }

    fn poll(&mut self, finished: &mut Vec<IoFinished>) {
        self.turn();
        finished.append(&mut self.ready);
    }

    fn wait(&mut self, timeout: Duration) {
        let timeout = if self.ready.is_empty() { timeout } else { Duration::ZERO };
        self.engine.wait(timeout.min(self.quiet()));
    }

    fn waker(&self) -> Arc<dyn DiskWaker> {
        self.engine.waker()
    }

    fn shut(mut self: Box<Self>, timeout: Duration) -> ShutReport {
        self.stop(timeout)
    }
}

impl<E: Engine> Files for RealDisk<E> {
    fn create_directory(&mut self, path: &Path) -> Result<(), FileError> {
        files::create_directory(path)
    }

    fn list(&mut self, path: &Path) -> Result<Vec<DirectoryEntry>, FileError> {
        files::list(path)
    }

    fn sync_directory(&mut self, path: &Path) -> Result<(), FileError> {
        files::sync_directory(path)
    }

    fn remove_file(&mut self, path: &Path) -> Result<(), FileError> {
        files::remove_file(path)
    }

    fn remove_directory(&mut self, path: &Path) -> Result<(), FileError> {
        files::remove_directory(path)
    }

    fn open(&mut self, path: &Path, mode: OpenMode) -> Result<OpenedFile, FileError> {
        let (mut file, length, buffered) = self.files.open(path, mode)?;
        self.engine.opened(&mut file);
        let opened = OpenedFile { file: file.id(), length, buffered };
        self.files.add(file);
        Ok(opened)
    }

    fn close(&mut self, file: FileId) {
        if let Some(file) = self.files.remove(file) {
            self.engine.closed(file);
        }
    }

    fn lock(&mut self, file: FileId) -> Result<Lock, FileError> {
        self.files.lock(file)
    }

    fn allocate(
        &mut self,
        file: FileId,
        length: ByteCount,
    ) -> Result<Option<Downgrade>, FileError> {
        self.files.allocate(file, length)
    }

    fn truncate(&mut self, file: FileId, length: ByteCount) -> Result<(), FileError> {
        self.files.truncate(file, length)
    }

    fn length(&mut self, file: FileId) -> Result<ByteCount, FileError> {
        self.files.length(file)
    }

    fn allocated(&mut self, path: &Path) -> Result<ByteCount, FileError> {
        files::allocated(path)
    }

    fn modified_s(&mut self, path: &Path) -> Result<u64, FileError> {
        files::modified_s(path)
    }

    fn space(&mut self, path: &Path) -> Result<Space, FileError> {
        files::space(path)
    }
}
