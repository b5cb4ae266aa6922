//! Disks: files on one machine's drives, opened synchronously and read and written asynchronously.
//!
//! A [`Disk`] knows files, offsets and memory; it knows nothing of slots, headers or stores. What
//! it does falls into two traits:
//!
//! - [`Files`]: directories, opening, locking, allocating, truncating. Synchronous, for open, close
//!   and change of size; every call is one system call or a few.
//! - [`Disk`]: reads, writes and data syncs, many at a time, submitted in batches and reported in
//!   any order.
//!
//! ```text
//!             store/                  what a byte means
//!   Files: open, lock, allocate ...     |   Disk: submit -> poll
//!             io/                     where the bytes go
//!   uring (one ring)  |  psync (threads)  |  test back ends
//! ```
//!
//! | file | what |
//! |---|---|
//! | `error.rs`, `memory.rs` | faults and errors; the memory of operations |
//! | `open.rs` | [`open_disk`]: which back end this machine gets, and why |
//! | `real.rs` | the disk over an engine: what both real back ends do alike |
//! | `files.rs`, `direct.rs` | files of the operating system; whether they bear `O_DIRECT` |
//! | `transfer.rs`, `waiting.rs` | what an answer of the kernel means; who begins next |
//! | `uring/`, `psync.rs` | the engines |
//! | `sim/` | a simulated disk, for tests (feature `testing`) |
//!
//! Invariants:
//!
//! - the memory of an operation belongs to it from [`Disk::submit`] until its [`IoFinished`] hands
//!   it back; one that the kernel does not let go of in time is reported without its memory, which
//!   lives until the kernel does, or for ever;
//! - every operation that was taken in is reported exactly once: within `io_timeout` of its start
//!   plus the time that a cancel takes (a tenth of that, at most 1 s); one that waits for its start
//!   waits as long as others of its drive end, and for `io_timeout` once none do;
//! - operations under way are bounded for each drive, that is file system, so that one which does
//!   not answer takes no place from another;
//! - a short transfer is resumed by the back end, so that an operation moved all its bytes or
//!   failed; a result is never taken for success without comparing it with the length;
//! - operations are unordered: who needs an order submits the second after the first is reported;
//! - a sync that is reported as done covers every write of its file reported before it was
//!   submitted.
//!
//! One thread at a time owns a disk; only its [`DiskWaker`] is shared. Called by `store` and the
//! pager's disk thread.

use crate::capability::Downgrade;
use crate::mem::Slab;
use crate::units::ByteCount;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

mod direct;
mod error;
mod files;
mod memory;
mod open;
mod psync;
mod real;
#[cfg(any(test, feature = "testing"))]
pub mod sim;
#[cfg(test)]
mod tests;
mod transfer;
mod uring;
mod waiting;

pub use error::{FileCall, FileError, IoFault};
pub use memory::{IoBuffer, IoMemory, SlotPages, SlotWatch};
pub use open::{
    DEFAULT_DISK_DEPTH, DEFAULT_DISK_DEPTH_BYTES, DEFAULT_IO_TIMEOUT, DISK_DEPTH_MAX,
    DISK_PLACE_COUNT_MAX, DiskBackend, DiskError, DiskOptions, IO_TIMEOUT_MAX, open_disk,
};

/// Offsets, lengths and memory of every operation are multiples of this, in bytes.
pub const IO_ALIGN_BYTES: u64 = 4096;

/// Names an open file of one disk until it is closed. Never reused while the disk lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct FileId(u32);

impl FileId {
    /// Wraps a number that a back end has given out.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// What [`Files::open`] found or made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenedFile {
    /// The file's name from now on.
    pub file: FileId,
    /// Its length when it was opened.
    pub length: ByteCount,
    /// Why reads and writes go through the page cache; `None` with `O_DIRECT`.
    pub buffered: Option<Downgrade>,
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// It must exist.
    Existing,
    /// It must exist, and is never written.
    ReadOnly,
    /// It is made, empty and for its owner only, if it does not exist.
    Create,
}

/// What a directory entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Anything else, symbolic links included: never followed.
    Other,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Its name, without a path; entries whose names are not UTF-8 are not ours and are left out.
    pub name: String,
    /// What it is.
    pub kind: EntryKind,
}

/// Room on a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Space {
    /// Bytes of the whole file system.
    pub total: ByteCount,
    /// Bytes that this user may still take.
    pub available: ByteCount,
}

/// The state of a lock that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// The file is this disk's now, until it is closed.
    Taken,
    /// Somebody else has it; `process` is who, where the system tells.
    Held {
        /// The owner's process id.
        process: Option<u32>,
    },
}

/// Directories and files. Paths are absolute or relative to the process, and never follow a
/// symbolic link in their last step.
pub trait Files {
    /// Makes a directory and those above it, for their owner only. One that exists is left as it
    /// is.
    ///
    /// # Errors
    ///
    /// [`FileError`].
    fn create_directory(&mut self, path: &Path) -> Result<(), FileError>;

    /// Lists a directory, sorted by name.
    ///
    /// # Errors
    ///
    /// [`FileError`].
    fn list(&mut self, path: &Path) -> Result<Vec<DirectoryEntry>, FileError>;

    /// Makes the entries of a directory durable.
    ///
    /// # Errors
    ///
    /// [`FileError`].
    fn sync_directory(&mut self, path: &Path) -> Result<(), FileError>;

    /// Removes a file; one that does not exist is fine.
    ///
    /// # Errors
    ///
    /// [`FileError`].
    fn remove_file(&mut self, path: &Path) -> Result<(), FileError>;

    /// Removes an empty directory; one that does not exist is fine.
    ///
    /// # Errors
    ///
    /// [`FileError`].
    fn remove_directory(&mut self, path: &Path) -> Result<(), FileError>;

    /// Opens a file for reads and writes past the page cache.
    ///
    /// # Errors
    ///
    /// [`FileError`]; with its kind `NotFound` when it must exist and does not.
    fn open(&mut self, path: &Path, mode: OpenMode) -> Result<OpenedFile, FileError>;

    /// Closes a file, and lets its lock go once no operation uses it any more.
    fn close(&mut self, file: FileId);

    /// Asks for the only lock on a file, without waiting.
    ///
    /// # Errors
    ///
    /// [`FileError`].
    fn lock(&mut self, file: FileId) -> Result<Lock, FileError>;

    /// Reserves blocks for the first `length` bytes of a file, which grows to it if it is shorter.
    /// Returns the downgrade when the file system cannot reserve, and the file was only extended.
    ///
    /// # Errors
    ///
    /// [`FileError`]; with its kind `StorageFull` when there is no room.
    fn allocate(&mut self, file: FileId, length: ByteCount)
    -> Result<Option<Downgrade>, FileError>;

    /// Cuts a file to `length` bytes.
    ///
    /// # Errors
    ///
    /// [`FileError`].
    fn truncate(&mut self, file: FileId, length: ByteCount) -> Result<(), FileError>;

    /// Returns the file's length.
    ///
    /// # Errors
    ///
    /// [`FileError`].
    fn length(&mut self, file: FileId) -> Result<ByteCount, FileError>;

    /// Returns the bytes of blocks that a file takes up, holes left out; 0 for one that does not
    /// exist.
    ///
    /// # Errors
    ///
    /// [`FileError`].
    fn allocated(&mut self, path: &Path) -> Result<ByteCount, FileError>;

    /// Returns when a file was last written, in seconds since 1970; 0 for one that does not exist.
    ///
    /// # Errors
    ///
    /// [`FileError`].
    fn modified_s(&mut self, path: &Path) -> Result<u64, FileError>;

    /// Returns the room on the file system that `path` lies on.
    ///
    /// # Errors
    ///
    /// [`FileError`].
    fn space(&mut self, path: &Path) -> Result<Space, FileError>;
}

/// One read, write or sync.
#[derive(Debug)]
pub struct IoOperation {
    /// Comes back with the report.
    pub tag: u64,
    /// The file.
    pub file: FileId,
    /// What to do.
    pub work: IoWork,
}

/// What an operation does. Offsets and lengths are multiples of [`IO_ALIGN_BYTES`].
#[derive(Debug)]
pub enum IoWork {
    /// Fill `memory` from the bytes at `offset`.
    Read {
        /// First byte in the file.
        offset: u64,
        /// What to fill.
        memory: IoMemory,
    },
    /// Write `memory` to the bytes at `offset`.
    Write {
        /// First byte in the file.
        offset: u64,
        /// What to write.
        memory: IoMemory,
    },
    /// Make the file's data durable (`fdatasync`).
    Sync,
}

/// The report of one operation's end.
#[derive(Debug)]
pub struct IoFinished {
    /// The operation's tag.
    pub tag: u64,
    /// Whether it moved all its bytes.
    pub outcome: Result<(), IoFault>,
    /// The memory, back from the disk; `None` for a sync, and for an operation that the kernel
    /// still holds ([`IoFault::TimedOut`]).
    pub memory: Option<IoMemory>,
}

/// How a disk was shut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShutReport {
    /// Operations that the kernel still holds; their memory stays allocated on purpose.
    pub leaked_operations: u32,
}

/// Ends the wait of a disk's thread, from any thread.
pub trait DiskWaker: Debug + Send + Sync {
    /// Ends the current or next [`Disk::wait`].
    fn wake(&self);
}

/// Reads and writes many ranges at a time.
pub trait Disk: Files + Debug + Send {
    /// Names the back end in reports.
    fn name(&self) -> &'static str;

    /// Returns what works less well on this machine than it could, each once.
    fn downgrades(&self) -> Vec<Downgrade>;

    /// Tells the disk which memory most operations will use, so that it can be registered with the
    /// kernel. Slots of other memory work too, a little slower. A refusal is a downgrade.
    fn register(&mut self, slots: &[Arc<Slab>]);

    /// Returns how many operations are best under way at a time on each drive.
    fn depth(&self) -> u32;

    /// Takes operations in and starts them; those over a drive's [`depth`](Disk::depth), or over
    /// the bytes that a disk bounds, wait inside. What waits for one drive holds up no other. Reads
    /// and syncs begin before writes that wait, which get every sixteenth place all the same. Every
    /// outcome, refusals included, comes by [`poll`](Disk::poll).
    fn submit(&mut self, operations: Vec<IoOperation>);

    /// Appends the reports that came in since the last call, and gives up operations that took
    /// longer than the disk's `io_timeout`.
    fn poll(&mut self, finished: &mut Vec<IoFinished>);

    /// Blocks until something may have finished, somebody wakes the disk, or `timeout` is over.
    fn wait(&mut self, timeout: Duration);

    /// Returns what ends [`wait`](Disk::wait) from another thread.
    fn waker(&self) -> Arc<dyn DiskWaker>;

    /// Finishes the operations that were taken in, at most for `timeout`, and closes every file.
    /// What the kernel still holds then is leaked: its memory, and its file with the lock. What was
    /// not reported by then is not reported any more. A disk that is dropped is shut with its
    /// `io_timeout`.
    fn shut(self: Box<Self>, timeout: Duration) -> ShutReport;
}

/// Waits for the operations of `operations` and returns their reports, sorted by tag: for open,
/// close and other work that has the disk for itself.
///
/// Nothing else may be under way on the disk.
pub fn run(disk: &mut dyn Disk, operations: Vec<IoOperation>) -> Vec<IoFinished> {
    let count = operations.len();
    let mut finished = Vec::with_capacity(count);
    disk.submit(operations);
    loop {
        disk.poll(&mut finished);
        if finished.len() >= count {
            break;
        }
        disk.wait(Duration::from_millis(100));
    }
    finished.sort_by_key(|report| report.tag);
    finished
}
