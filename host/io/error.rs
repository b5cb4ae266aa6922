//! What can go wrong with files and operations: errno values, in one place.

use nix::errno::Errno;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use thiserror::Error;

/// The call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileCall {
    /// Making a directory.
    CreateDirectory,
    /// Listing a directory.
    List,
    /// Opening a file.
    Open,
    /// Locking a file.
    Lock,
    /// Reserving blocks.
    Allocate,
    /// Cutting a file.
    Truncate,
    /// Asking for length, blocks, times or room.
    Status,
    /// Making entries durable.
    SyncDirectory,
    /// Removing a file or directory.
    Remove,
}

impl FileCall {
    const fn verb(self) -> &'static str {
        match self {
            Self::CreateDirectory => "make the directory",
            Self::List => "list",
            Self::Open => "open",
            Self::Lock => "lock",
            Self::Allocate => "reserve room for",
            Self::Truncate => "cut",
            Self::Status => "look at",
            Self::SyncDirectory => "make durable",
            Self::Remove => "remove",
        }
    }
}

/// A call on a file or directory that failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("cannot {} {}: {reason}", .call.verb(), .path.display())]
pub struct FileError {
    /// What was tried.
    pub call: FileCall,
    /// On what.
    pub path: PathBuf,
    /// What kind of failure it is.
    pub kind: ErrorKind,
    /// The system's number, where it has one.
    pub errno: Option<i32>,
    /// The system's words.
    pub reason: String,
}

/// What the system says when a drive, or what leads to it, fails or is full.
const DRIVE_ERRORS: [Errno; 14] = [
    Errno::EIO,
    Errno::ENXIO,
    Errno::ENODEV,
    Errno::ENOMEDIUM,
    Errno::EREMOTEIO,
    Errno::EUCLEAN,
    Errno::EROFS,
    Errno::ENOSPC,
    Errno::EDQUOT,
    Errno::ETIMEDOUT,
    Errno::ESTALE,
    Errno::ENOTCONN,
    Errno::ESHUTDOWN,
    Errno::EHOSTDOWN,
];

impl FileError {
    /// Returns whether the drive is to blame, which fails, is read-only or full, and not what was
    /// asked for, such as a path that leads nowhere.
    pub fn is_of_drive(&self) -> bool {
        let errno = self.errno.map(Errno::from_raw);
        errno.is_some_and(|errno| DRIVE_ERRORS.contains(&errno))
    }

    /// Reports a failed call. A quota without room is a lack of room like any other.
    pub(super) fn new(call: FileCall, path: &Path, error: &io::Error) -> Self {
        let kind = match error.kind() {
            ErrorKind::QuotaExceeded => ErrorKind::StorageFull,
            kind => kind,
        };
        let reason = match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::ELOOP) => "it is a symbolic link, which is never followed".to_owned(),
            _ => error.to_string(),
        };
        Self { call, path: path.to_owned(), kind, errno: error.raw_os_error(), reason }
    }
}

/// Why an operation did not move its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum IoFault {
    /// The drive or the kernel failed it.
    #[error("the drive failed it: {reason}")]
    Drive {
        /// The system's number.
        errno: i32,
        /// The system's words.
        reason: String,
    },
    /// The file system or a quota has no room for a write.
    #[error("there is no room on the file system: {reason}")]
    NoSpace {
        /// The system's words.
        reason: String,
    },
    /// The file cannot be written: it was opened read-only, or its file system became so.
    #[error("the file or its file system is read-only")]
    ReadOnly,
    /// The file ends before the bytes that were to be read.
    #[error("the file ended {missing_bytes} bytes early")]
    EndOfFile {
        /// Bytes that were not there.
        missing_bytes: u64,
    },
    /// It took longer than `io_timeout`, or waited for its start on a disk whose every place is
    /// lost to such operations.
    ///
    /// Without memory in the report the kernel still holds the operation: it may yet read or write
    /// its range of the file, which must not be used again until the disk was shut.
    #[error("it took longer than io_timeout")]
    TimedOut,
    /// The kernel reported a number of bytes that cannot be: more than asked for, or a write of
    /// less than one page.
    #[error("the kernel reported {reported_bytes} bytes of {asked_bytes}")]
    Miscounted {
        /// Bytes asked for.
        asked_bytes: u64,
        /// Bytes reported.
        reported_bytes: u64,
    },
    /// The memory that a read was to fill is held for reading only. The store never submits one.
    #[error("its memory is held for reading only")]
    MemoryNotWritable,
    /// The file is not open on this disk.
    #[error("the file is not open")]
    NotOpen,
    /// Its offset or length is not whole pages. The store never submits one.
    #[error("its offset or length is not a multiple of 4,096")]
    Misaligned,
}

impl IoFault {
    /// Says what an errno of a read, write or sync means. Every one ends here.
    pub(super) fn from_errno(errno: Errno) -> Self {
        let reason = errno.desc().to_owned();
        match errno {
            Errno::ENOSPC | Errno::EDQUOT => Self::NoSpace { reason },
            Errno::EROFS => Self::ReadOnly,
            _ => Self::Drive { errno: errno as i32, reason },
        }
    }
}

/// Returns whether a transfer that ended with `errno` moved nothing and may be tried again at once.
///
/// A ring cancels what a thread submitted and had not begun when the thread ends.
pub(super) fn is_transient(errno: Errno) -> bool {
    matches!(errno, Errno::EAGAIN | Errno::EINTR | Errno::ECANCELED)
}

#[cfg(test)]
mod tests {
    use super::{Errno, FileCall, FileError, Path};

    #[test]
    fn a_drive_is_to_blame_for_its_own_failures_and_for_no_wrong_path() {
        let is_of_drive = |errno: Errno| {
            FileError::new(FileCall::Open, Path::new("data"), &errno.into()).is_of_drive()
        };
        for errno in [Errno::EIO, Errno::ENODEV, Errno::EROFS, Errno::ENOSPC, Errno::EDQUOT] {
            assert!(is_of_drive(errno), "{errno}");
        }
        for errno in [Errno::ENOENT, Errno::EACCES, Errno::EPERM, Errno::ELOOP, Errno::ENOTDIR] {
            assert!(!is_of_drive(errno), "{errno}");
        }
    }
}
