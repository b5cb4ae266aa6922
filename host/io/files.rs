//! Directories and files of the operating system: what every real back end opens, locks and sizes
//! the same way.
//!
//! Files are opened past the page cache (`O_DIRECT`), for their owner only, and never through a
//! symbolic link. Where a file system or drive does not bear that, the file is opened through the
//! page cache and says so.
//!
//! Invariants: an [`OpenFile`] is closed when the last operation that uses it ended, and its lock
//! goes before its descriptor; ids are never reused.
//!
//! Called by [`real`](super::real).

use super::direct::refuse_unfit;
use super::{DirectoryEntry, EntryKind, FileCall, FileError, FileId, Lock, OpenMode, Space};
use crate::capability::Downgrade;
use crate::units::ByteCount;
use nix::dir::{Dir, Type};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, OFlag, fallocate};
use nix::sys::stat::Mode;
use nix::sys::statvfs::statvfs;
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Tries again of a call that a signal interrupted before it did anything.
const RETRY_COUNT_MAX: u32 = 16;

/// Bytes of the unit in which `stat` counts blocks, whatever the file system's are.
const STAT_BLOCK_BYTES: u64 = 512;

/// What a file lies on, as far as places are shared: the file system's device number (`man 2
/// stat`). What no drive can be told of shares places with its like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct DriveId(u64);

/// An open file. Closed, and its lock let go, when the last owner drops it.
#[derive(Debug)]
pub(super) struct OpenFile {
    id: FileId,
    handle: File,
    path: PathBuf,
    is_writable: bool,
    drive: DriveId,
    /// Its place in a ring's table of files.
    pub(super) place: Option<u32>,
}

impl OpenFile {
    /// Returns its name.
    pub(super) fn id(&self) -> FileId {
        self.id
    }

    /// Returns the descriptor, with its handle's lifetime.
    pub(super) fn handle(&self) -> &File {
        &self.handle
    }

    /// Returns what it lies on.
    pub(super) fn drive(&self) -> DriveId {
        self.drive
    }

    /// Returns whether it may be written.
    pub(super) fn is_writable(&self) -> bool {
        self.is_writable
    }
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        // A ring's table or a forked child may keep the descriptor's file for a while; the lock
        // must not wait for them. On a file without a lock this does nothing.
        let _ = self.handle.unlock();
    }
}

/// The open files of one disk.
#[derive(Debug, Default)]
pub(super) struct RealFiles {
    open: BTreeMap<FileId, Arc<OpenFile>>,
    next: u32,
}

impl RealFiles {
    /// Opens a file, without adding it yet; also returns its length, and why it is buffered.
    pub(super) fn open(
        &mut self,
        path: &Path,
        mode: OpenMode,
    ) -> Result<(OpenFile, ByteCount, Option<Downgrade>), FileError> {
        let failed = |error: &io::Error| FileError::new(FileCall::Open, path, error);
        let direct = open_with(path, mode, OFlag::O_DIRECT);
        let (handle, buffered) = match direct {
            Ok(handle) => {
                let buffered = refuse_unfit(&handle).map_err(|error| failed(&error))?;
                (handle, buffered)
            }
            Err(error) if error.raw_os_error() == Some(Errno::EINVAL as i32) => {
                let handle =
                    open_with(path, mode, OFlag::empty()).map_err(|error| failed(&error))?;
                (handle, Some("the file system refuses it (EINVAL)".to_owned()))
            }
            Err(error) => return Err(failed(&error)),
        };
        let metadata = handle.metadata().map_err(|error| failed(&error))?;
        if !metadata.is_file() {
            return Err(failed(&io::Error::new(ErrorKind::InvalidInput, "it is no regular file")));
        }
        let buffered = buffered.map(|why| Downgrade {
            what: "O_DIRECT",
            why: format!("{}: {why}", path.display()),
            effect: "every byte is copied once more, and the page cache takes memory",
        });
        let file = self.name(handle, path, mode != OpenMode::ReadOnly);
        Ok((file, ByteCount::new(metadata.len()), buffered))
    }

    /// Gives a handle the next id.
    pub(super) fn name(&mut self, handle: File, path: &Path, is_writable: bool) -> OpenFile {
        let id = FileId::new(self.next);
        self.next = self.next.checked_add(1).expect("fewer than 2^32 files are opened");
        let drive = handle.metadata().map(|metadata| DriveId(metadata.dev())).unwrap_or_default();
        OpenFile { id, handle, path: path.to_owned(), is_writable, drive, place: None }
    }

    /// Adds an opened file.
    pub(super) fn add(&mut self, file: OpenFile) {
        self.open.insert(file.id, Arc::new(file));
    }

    /// Takes a file out of the open ones.
    pub(super) fn remove(&mut self, file: FileId) -> Option<Arc<OpenFile>> {
        self.open.remove(&file)
    }

    /// Takes every file out of the open ones.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = Arc<OpenFile>> {
        std::mem::take(&mut self.open).into_values()
    }

    /// Returns an open file.
    pub(super) fn get(&self, file: FileId) -> Option<Arc<OpenFile>> {
        self.open.get(&file).cloned()
    }

    /// Returns an open file, for `call`.
    fn find(&self, file: FileId, call: FileCall) -> Result<&OpenFile, FileError> {
        self.open.get(&file).map(AsRef::as_ref).ok_or_else(|| {
            let error = io::Error::new(ErrorKind::InvalidInput, "the file is not open");
            FileError::new(call, Path::new(&format!("file {}", file.get())), &error)
        })
    }

    /// Asks for the only lock.
    pub(super) fn lock(&self, file: FileId) -> Result<Lock, FileError> {
        let file = self.find(file, FileCall::Lock)?;
        let failed = |error: &io::Error| FileError::new(FileCall::Lock, &file.path, error);
        match file.handle.try_lock() {
            Ok(()) => Ok(Lock::Taken),
            Err(TryLockError::WouldBlock) => {
                let metadata = file.handle.metadata().map_err(|error| failed(&error))?;
                let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
                Ok(Lock::Held { process: lock_owner(&locks, &metadata) })
            }
            Err(TryLockError::Error(error)) => Err(failed(&error)),
        }
    }

    /// Reserves blocks for the first `length` bytes.
    pub(super) fn allocate(
        &self,
        file: FileId,
        length: ByteCount,
    ) -> Result<Option<Downgrade>, FileError> {
        let file = self.find(file, FileCall::Allocate)?;
        let failed = |error: &io::Error| FileError::new(FileCall::Allocate, &file.path, error);
        let former = file.handle.metadata().map_err(|error| failed(&error))?.len();
        let Ok(bytes) = i64::try_from(length.get()) else {
            return Err(failed(&ErrorKind::FileTooLarge.into()));
        };
        match reserve(&file.handle, bytes) {
            Ok(()) => Ok(None),
            Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => {
                if former < length.get() {
                    file.handle.set_len(length.get()).map_err(|error| failed(&error))?;
                }
                Ok(Some(Downgrade {
                    what: "reserved blocks",
                    why: format!("{}: the file system has no fallocate", file.path.display()),
                    effect: "a write can fail later for want of room",
                }))
            }
            Err(errno) => {
                // Blocks that were found before room ran out go back. Should that fail too, then
                // the file is longer than it was, which is no worse than what is reported.
                let _ = file.handle.set_len(former);
                Err(failed(&errno.into()))
            }
        }
    }

    /// Cuts a file.
    pub(super) fn truncate(&self, file: FileId, length: ByteCount) -> Result<(), FileError> {
        let file = self.find(file, FileCall::Truncate)?;
        let cut = file.handle.set_len(length.get());
        cut.map_err(|error| FileError::new(FileCall::Truncate, &file.path, &error))
    }

    /// Returns a file's length.
    pub(super) fn length(&self, file: FileId) -> Result<ByteCount, FileError> {
        let file = self.find(file, FileCall::Status)?;
        let metadata = file.handle.metadata();
        let metadata =
            metadata.map_err(|error| FileError::new(FileCall::Status, &file.path, &error))?;
        Ok(ByteCount::new(metadata.len()))
    }
}

/// Makes a directory and those above it.
pub(super) fn create_directory(path: &Path) -> Result<(), FileError> {
    let failed = |error: &io::Error| FileError::new(FileCall::CreateDirectory, path, error);
    let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|error| failed(&error))?;
    // A symbolic link to a directory is left alone above, but is no directory of ours.
    let metadata = fs::symlink_metadata(path).map_err(|error| failed(&error))?;
    if metadata.is_dir() { Ok(()) } else { Err(failed(&Errno::ELOOP.into())) }
}

/// Lists a directory, sorted by name.
pub(super) fn list(path: &Path) -> Result<Vec<DirectoryEntry>, FileError> {
    let failed = |error: &io::Error| FileError::new(FileCall::List, path, error);
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let directory = Dir::open(path, flags, Mode::empty()).map_err(|errno| failed(&errno.into()))?;
    let mut entries = Vec::new();
    for entry in directory {
        let entry = entry.map_err(|errno| failed(&errno.into()))?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        if matches!(name, "." | "..") {
            continue;
        }
        let kind = match entry.file_type() {
            Some(Type::File) => EntryKind::File,
            Some(Type::Directory) => EntryKind::Directory,
            Some(_) => EntryKind::Other,
            None => entry_kind(&path.join(name)).map_err(|error| failed(&error))?,
        };
        entries.push(DirectoryEntry { name: name.to_owned(), kind });
    }
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(entries)
}

/// Asks for an entry's kind where the directory does not tell.
fn entry_kind(path: &Path) -> io::Result<EntryKind> {
    let kind = fs::symlink_metadata(path)?.file_type();
    Ok(match (kind.is_file(), kind.is_dir()) {
        (true, _) => EntryKind::File,
        (_, true) => EntryKind::Directory,
        _ => EntryKind::Other,
    })
}

/// Makes the entries of a directory durable.
pub(super) fn sync_directory(path: &Path) -> Result<(), FileError> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW;
    let directory = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path);
    let synced = directory.and_then(|directory| directory.sync_all());
    synced.map_err(|error| FileError::new(FileCall::SyncDirectory, path, &error))
}

/// Removes a file, if there is one.
pub(super) fn remove_file(path: &Path) -> Result<(), FileError> {
    removed(path, fs::remove_file(path))
}

/// Removes an empty directory, if there is one.
pub(super) fn remove_directory(path: &Path) -> Result<(), FileError> {
    removed(path, fs::remove_dir(path))
}

fn removed(path: &Path, result: io::Result<()>) -> Result<(), FileError> {
    match result {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(FileError::new(FileCall::Remove, path, &error))
        }
        _ => Ok(()),
    }
}

/// Returns the bytes of blocks that a file takes up.
pub(super) fn allocated(path: &Path) -> Result<ByteCount, FileError> {
    let blocks = status(path)?.map_or(0, |metadata| metadata.blocks());
    Ok(ByteCount::new(blocks.saturating_mul(STAT_BLOCK_BYTES)))
}

/// Returns when a file was last written.
pub(super) fn modified_s(path: &Path) -> Result<u64, FileError> {
    let seconds = status(path)?.map_or(0, |metadata| metadata.mtime());
    // A time before 1970 is a clock that was not set.
    Ok(u64::try_from(seconds).unwrap_or(0))
}

fn status(path: &Path) -> Result<Option<Metadata>, FileError> {
    match fs::symlink_metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FileError::new(FileCall::Status, path, &error)),
    }
}

/// Returns the room on a path's file system.
pub(super) fn space(path: &Path) -> Result<Space, FileError> {
    let room =
        statvfs(path).map_err(|errno| FileError::new(FileCall::Status, path, &errno.into()))?;
    let bytes = |blocks: u64| ByteCount::new(blocks.saturating_mul(room.fragment_size()));
    Ok(Space { total: bytes(room.blocks()), available: bytes(room.blocks_available()) })
}

fn open_with(path: &Path, mode: OpenMode, flags: OFlag) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(mode != OpenMode::ReadOnly)
        .create(mode == OpenMode::Create)
        .truncate(false)
        .mode(0o600)
        .custom_flags((flags | OFlag::O_NOFOLLOW).bits())
        .open(path)
}

/// Reserves blocks for a file's first `bytes` bytes.
fn reserve(handle: &File, bytes: i64) -> Result<(), Errno> {
    if bytes == 0 {
        return Ok(());
    }
    let mut retry_count = 0;
    loop {
        match fallocate(handle, FallocateFlags::empty(), 0, bytes) {
            Err(Errno::EINTR) if retry_count < RETRY_COUNT_MAX => retry_count += 1,
            reserved => return reserved,
        }
    }
}

/// Finds who has the lock on a file.
///
/// `/proc/locks` is a line a lock, `1: FLOCK  ADVISORY  WRITE 4521 fe:00:131090 0 EOF`, with the
/// owner and then device and inode, the device in hexadecimal (`man 5 proc_locks`). Owners in other
/// process namespaces are hidden, or 0. Waiting ones begin with `1: ->`.
pub(super) fn lock_owner(locks: &str, metadata: &Metadata) -> Option<u32> {
    let (major, minor) =
        (nix::sys::stat::major(metadata.dev()), nix::sys::stat::minor(metadata.dev()));
    let place = format!("{major:02x}:{minor:02x}:{}", metadata.ino());
    locks.lines().find_map(|line| {
        let mut fields = line.split_ascii_whitespace().skip(1);
        let is_flock = fields.next() == Some("FLOCK");
        let owner = fields.nth(2)?;
        let is_ours = is_flock && fields.next() == Some(place.as_str());
        owner.parse().ok().filter(|&process: &u32| is_ours && process != 0)
    })
}
