//! Opening a disk: which back end it gets, and why.
//!
//! Called by the pager and the `kvtide` program.

use super::Disk;
use super::psync::Psync;
use super::real::RealDisk;
use super::uring::Uring;
use crate::capability::Downgrade;
use crate::units::ByteCount;
use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit};
use std::fs;
use std::io;
use std::time::Duration;
use thiserror::Error;

/// Operations under way at a time unless asked otherwise: what reads of single pages need, as a
/// scan of headers makes them. Those of slots fill the drive at 8 and fewer, and are bounded by
/// their bytes besides (docs/measurements.md, "Disks").
pub const DEFAULT_DISK_DEPTH: u32 = 64;

/// Bytes under way unless asked otherwise: 16 slots of 2 MiB. More gain nothing
/// (docs/measurements.md, "Disks"), and keep a read waiting behind them on the drive.
pub const DEFAULT_DISK_DEPTH_BYTES: ByteCount = ByteCount::new(32 << 20);

/// Most operations under way at a time.
pub const DISK_DEPTH_MAX: u32 = 1024;

/// Most operations under way at a time on all drives together: what a ring has room for.
pub const DISK_PLACE_COUNT_MAX: u32 = 8192;

/// How long an operation may take unless asked otherwise.
pub const DEFAULT_IO_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest time that an operation may be given.
pub const IO_TIMEOUT_MAX: Duration = Duration::from_hours(1);

/// Threads for each drive of the back end without `io_uring`, however deep the disk.
const PSYNC_THREAD_COUNT_MAX: u32 = 16;

/// Who moves the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DiskBackend {
    /// `io_uring` where the system lets us, threads otherwise.
    #[default]
    Auto,
    /// `io_uring`, or an error.
    Uring,
    /// Threads with a blocking system call each.
    Psync,
}

/// How a disk is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    /// Who moves the bytes.
    pub backend: DiskBackend,
    /// How long an operation may take before it is given up; at most [`IO_TIMEOUT_MAX`].
    pub io_timeout: Duration,
    /// Operations under way at a time on each drive, from 1 to [`DISK_DEPTH_MAX`]. A file system
    /// counts as a drive.
    pub depth: u32,
    /// Bytes under way on a drive at which no further operation begins there, however few
    /// operations they are.
    pub depth_bytes: ByteCount,
    /// Drives that its files will lie on, at least 1: with `depth` for each, a drive that does not
    /// answer takes no place from another. The files of more drives share the places.
    pub drive_count: u32,
}

impl Default for DiskOptions {
    fn default() -> Self {
        Self {
            backend: DiskBackend::Auto,
            io_timeout: DEFAULT_IO_TIMEOUT,
            depth: DEFAULT_DISK_DEPTH,
            depth_bytes: DEFAULT_DISK_DEPTH_BYTES,
            drive_count: 1,
        }
    }
}

/// Why a disk cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DiskError {
    /// No depth, or too much.
    #[error("a disk depth of {depth}; it must be from 1 to {DISK_DEPTH_MAX}")]
    Depth {
        /// The depth asked for.
        depth: u32,
    },
    /// No drives, or more operations on all of them than there is room for.
    #[error(
        "a disk depth of {depth} on each of {drive_count} drives; give at least 1 drive, and at \
         most {DISK_PLACE_COUNT_MAX} operations on all together"
    )]
    Places {
        /// The depth asked for.
        depth: u32,
        /// The drives asked for.
        drive_count: u32,
    },
    /// No bytes under way.
    #[error("a disk depth of 0 bytes, at which no operation ever begins")]
    DepthBytes,
    /// No time for an operation, or too much.
    #[error("an io_timeout of {io_timeout:?}; it must be above 0 and at most {IO_TIMEOUT_MAX:?}")]
    IoTimeout {
        /// The time asked for.
        io_timeout: Duration,
    },
    /// `io_uring` was asked for, and the system refuses it.
    #[error("io_uring is refused ({reason}); allow it, or let the back end be chosen")]
    Uring {
        /// The system's words.
        reason: String,
    },
    /// The system refuses threads.
    #[error("the disk's threads cannot be started: {reason}")]
    Threads {
        /// The system's words.
        reason: String,
    },
}

/// Opens the disk of this machine. Its files are opened by name later.
///
/// ```
/// use kvtide::io::{Disk, DiskOptions, IoBuffer, IoMemory, IoOperation, IoWork, OpenMode, run};
/// use std::time::Duration;
///
/// let path = std::env::temp_dir().join(format!("kvtide-example-{}", std::process::id()));
/// let mut disk = kvtide::io::open_disk(&DiskOptions::default())?;
/// let file = disk.open(&path, OpenMode::Create)?.file;
/// let mut page = IoBuffer::zeroed(1);
/// page.bytes_mut().fill(7);
/// let work = IoWork::Write { offset: 8192, memory: IoMemory::Buffer(page) };
/// let written = run(&mut *disk, vec![IoOperation { tag: 1, file, work }]);
/// assert_eq!(written[0].outcome, Ok(()));
/// assert_eq!(disk.length(file)?.get(), 12288);
/// disk.remove_file(&path)?;
/// assert_eq!(disk.shut(Duration::from_secs(1)).leaked_operations, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`DiskError`].
pub fn open_disk(options: &DiskOptions) -> Result<Box<dyn Disk>, DiskError> {
    let &DiskOptions { backend, io_timeout, depth, depth_bytes, drive_count } = options;
    if !(1..=DISK_DEPTH_MAX).contains(&depth) {
        return Err(DiskError::Depth { depth });
    }
    if drive_count == 0 || depth.saturating_mul(drive_count) > DISK_PLACE_COUNT_MAX {
        return Err(DiskError::Places { depth, drive_count });
    }
    if depth_bytes.get() == 0 {
        return Err(DiskError::DepthBytes);
    }
    if io_timeout.is_zero() || io_timeout > IO_TIMEOUT_MAX {
        return Err(DiskError::IoTimeout { io_timeout });
    }
    let refusal = match backend {
        DiskBackend::Psync => None,
        DiskBackend::Auto | DiskBackend::Uring => {
            match Uring::new(depth, drive_count, io_timeout) {
                Ok(uring) => return Ok(Box::new(RealDisk::new(uring, io_timeout, depth_bytes))),
                Err(error) => Some(refusal(&error)),
            }
        }
    };
    if backend == DiskBackend::Uring {
        return Err(DiskError::Uring { reason: refusal.unwrap_or_default() });
    }
    let downgrade = refusal.map(|why| Downgrade {
        what: "io_uring",
        why,
        effect: "disk operations run on threads, with a system call and a switch each: more CPU \
                 time, and those that a drive does not answer cannot be called back",
    });
    let depth = depth.min(PSYNC_THREAD_COUNT_MAX);
    let psync = Psync::new(depth, drive_count, io_timeout, downgrade)
        .map_err(|error| DiskError::Threads { reason: error.to_string() })?;
    Ok(Box::new(RealDisk::new(psync, io_timeout, depth_bytes)))
}

/// Says why `io_uring` is refused, and by whom where that can be told.
fn refusal(error: &io::Error) -> String {
    let setting = fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    let setting = setting.as_deref().map_or("0", str::trim);
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EPERM) if setting != "0" => {
            format!("{error}; kernel.io_uring_disabled is {setting}")
        }
        Some(Errno::EPERM) => format!("{error}; a seccomp or container profile forbids it"),
        Some(Errno::ENOMEM) => format!("{error}; {}", memlock_limit()),
        Some(Errno::ENOSYS) => format!("{error}; the kernel or a sandbox does not have it"),
        _ => error.to_string(),
    }
}

/// Says what bounds the memory that the kernel pins for us, and how to raise it.
pub(super) fn memlock_limit() -> String {
    match getrlimit(Resource::RLIMIT_MEMLOCK) {
        Ok((limit, _)) => format!(
            "RLIMIT_MEMLOCK is {}, raise it above the host tier's bytes (LimitMEMLOCK= of a \
             service, or ulimit -l)",
            ByteCount::new(limit)
        ),
        Err(errno) => format!("RLIMIT_MEMLOCK cannot be read: {errno}"),
    }
}
