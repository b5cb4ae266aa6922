//! Why a store cannot be opened, or does not do what it is asked.

use super::format::FormatError;
use super::ids::StoreUuid;
use crate::fingerprint::StoreId;
use crate::io::{FileError, IoFault};
use crate::units::{ByteCount, SlotIndex};
use std::fmt;
use std::path::PathBuf;
use thiserror::Error;

/// A file of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreFile {
    /// What the store is, and how far it came.
    Superblock,
    /// The slots.
    Data,
    /// What the store held when it was closed.
    Index,
}

impl StoreFile {
    /// Returns the file's name in its directory.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Superblock => "superblock",
            Self::Data => "data",
            Self::Index => "index",
        }
    }
}

impl fmt::Display for StoreFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// What was done with a file of a store, as errors name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StoreCall {
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Making durable.
    Sync,
}

impl fmt::Display for StoreCall {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Sync => "make durable",
        })
    }
}

/// Why a store cannot be opened, or does not do what it is asked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A call on a file or directory failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file of the store could not be read, written or made durable.
    #[error("cannot {call} {file} in {}: {fault}", .directory.display())]
    Io {
        /// The store's directory.
        directory: PathBuf,
        /// The file.
        file: StoreFile,
        /// What was tried.
        call: StoreCall,
        /// What happened.
        fault: IoFault,
    },
    /// A value that the disk format cannot hold.
    #[error(transparent)]
    Format(#[from] FormatError),
    /// Another process has it.
    #[error(
        "{} is in use{}; end that process, or name another instance or root",
        .path.display(),
        .process.map(|process| format!(" by process {process}")).unwrap_or_default()
    )]
    Locked {
        /// The store's directory, or the root.
        path: PathBuf,
        /// The process's id, where the system tells.
        process: Option<u32>,
    },
    /// The directory's superblock is gone or damaged in both copies, but there may be data.
    #[error(
        "{}: no copy of the superblock is good ({first}; {second}), so nothing in it can be \
         trusted; copy the directory away if you want to look into it, and remove it",
        .directory.display()
    )]
    SuperblockDamaged {
        /// The store's directory.
        directory: PathBuf,
        /// What is wrong with the first copy.
        first: FormatError,
        /// What is wrong with the second copy.
        second: FormatError,
    },
    /// Another version of kvtide wrote the store.
    #[error(
        "{}: its format is version {found}, this build reads {}; use the kvtide that wrote it, or \
         remove the directory",
        .directory.display(),
        super::format::FORMAT_VERSION
    )]
    Version {
        /// The store's directory.
        directory: PathBuf,
        /// The version.
        found: u32,
    },
    /// The directory holds something else than its name says.
    #[error(
        "{}: its superblock is of store {found}, not {expected}; it was moved or copied here, so \
         put it back or remove it",
        .directory.display()
    )]
    ForeignStore {
        /// The store's directory.
        directory: PathBuf,
        /// What it should hold.
        expected: StoreId,
        /// What it holds.
        found: StoreId,
    },
    /// A file is of another store than the superblock.
    #[error(
        "{}: {file} is of store {found}, the superblock of {expected}; files of two stores were \
         mixed, so put them back or remove the directory",
        .directory.display()
    )]
    ForeignFile {
        /// The store's directory.
        directory: PathBuf,
        /// The file.
        file: StoreFile,
        /// The superblock's uuid.
        expected: StoreUuid,
        /// The file's.
        found: StoreUuid,
    },
    /// The store's slots are of another size.
    #[error(
        "{}: its slots have {} bytes, chunks of this layout need {}; the store id should have told \
         them apart, so remove the directory",
        .directory.display(),
        .found.get(),
        .expected.get()
    )]
    SlotBytes {
        /// The store's directory.
        directory: PathBuf,
        /// Bytes that a slot needs.
        expected: ByteCount,
        /// Bytes that it has.
        found: ByteCount,
    },
    /// The store's slots are of the right size but of another inner order.
    #[error(
        "{}: parts, blocks or codec of its chunks are not those of this layout; the store id \
         should have told them apart, so remove the directory",
        .directory.display()
    )]
    Shape {
        /// The store's directory.
        directory: PathBuf,
    },
    /// No slots were asked for.
    #[error("slot_count is 0; give at least 1")]
    NoSlots,
    /// More bytes than a file may have.
    #[error("slot_count is {slot_count}; slots of {} bytes make more than 2^63", .slot.get())]
    TooManySlots {
        /// Slots asked for.
        slot_count: u32,
        /// Bytes of one.
        slot: ByteCount,
    },
    /// The store does not fit.
    #[error(
        "{}: {needed} more are needed, {available} are available, and stores {} take up {kept}; \
         give each engine a share of the capacity, raise it, free the file system, or let idle \
         stores be reclaimed (`reclaim`, `kvtide gc`)",
        .root.display(),
        in_use_by(.holders)
    )]
    NoRoom {
        /// The root.
        root: PathBuf,
        /// Bytes that the store takes besides those that it has.
        needed: ByteCount,
        /// Bytes that are free, under the capacity and on the file system.
        available: ByteCount,
        /// Bytes of stores below the root that stay: those in use, and with
        /// [`Reclaim::Off`](super::Reclaim::Off) all others.
        kept: ByteCount,
        /// The processes that have them, where the system tells; ascending. Nobody is asked with
        /// [`Reclaim::Off`](super::Reclaim::Off).
        holders: Vec<u32>,
    },
    /// An earlier write of the superblock or a sync failed, so that nobody knows what is durable.
    #[error(
        "{} takes no more writes: cannot {call} {file}: {fault}; check the drive, then open it \
         anew",
        .directory.display()
    )]
    Poisoned {
        /// The store's directory.
        directory: PathBuf,
        /// The file.
        file: StoreFile,
        /// What failed.
        call: StoreCall,
        /// How.
        fault: IoFault,
    },
    /// A slot write before `begin_run` is done.
    #[error("no run was begun, so no slot may be written")]
    NoRun,
    /// The scan has not come to the slot yet, or an erasure was asked for before it is over.
    #[error("the store is still being scanned; wait for the scan")]
    Scanning,
    /// A task that was to have the store for itself does not.
    #[error("another task or slot write of the store is under way; let it end first")]
    Busy,
    /// The slot does not exist.
    #[error("slot {slot} of a store of {slot_count}")]
    NoSuchSlot {
        /// The slot.
        slot: SlotIndex,
        /// Slots of the store.
        slot_count: u32,
    },
    /// The slot is being written or erased.
    #[error("slot {slot} is being written or erased; take another, or wait")]
    SlotBusy {
        /// The slot.
        slot: SlotIndex,
    },
    /// A header page that would not be read back from this slot.
    #[error("slot {slot} would be written with a header that does not fit: {fault}")]
    Unfit {
        /// The slot.
        slot: SlotIndex,
        /// What does not fit.
        fault: super::verify::ReadFault,
    },
    /// The run's counter, or the runs, are used up.
    #[error(
        "every generation was given out; close the store, and if that does not help, remove it"
    )]
    Exhausted,
}

/// Says who has the stores that stay.
fn in_use_by(holders: &[u32]) -> String {
    match holders {
        [] => "there".to_owned(),
        [one] => format!("in use by process {one}"),
        many => {
            let names: Vec<String> = many.iter().map(u32::to_string).collect();
            format!("in use by processes {}", names.join(", "))
        }
    }
}
