//! What can go wrong with files and operations: errno values, in one place.

use std::io::ErrorKind;
use std::path::PathBuf;
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
    /// The system's words.
    pub reason: String,
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
    /// The file can no longer be written: its file system was mounted read-only.
    #[error("the file system is read-only")]
    ReadOnly,
    /// The file ends before the bytes that were to be read.
    #[error("the file ended {missing_bytes} bytes early")]
    EndOfFile {
        /// Bytes that were not there.
        missing_bytes: u64,
    },
    /// It took longer than `io_timeout`, and was cancelled.
    #[error("it took longer than io_timeout")]
    TimedOut,
    /// The file is not open on this disk.
    #[error("the file is not open")]
    NotOpen,
    /// Its offset or length is not whole pages. The store never submits one.
    #[error("its offset or length is not a multiple of 4,096")]
    Misaligned,
}
