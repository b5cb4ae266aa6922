//! The stores that `inspect`, `check` and `gc` are told of: a root's, or one.
//!
//! Called by those commands.

use crate::error::CliError;
use kvtide::io::{Disk, DiskOptions, EntryKind, FileCall, FileError, open_disk};
use kvtide::store::{FoundStore, LOCK_NAME, find_store, find_stores};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// How long the lock of a root is waited for: an engine that opens its store has it for a moment.
pub(crate) const LOCK_WAIT: Duration = Duration::from_secs(5);

/// Operations under way at a time: as many as make a drive read headers at its best rate.
const DEPTH: u32 = 64;

/// What the command line names.
pub(crate) struct Target {
    pub(crate) disk: Box<dyn Disk>,
    /// The directory, absolute.
    pub(crate) directory: PathBuf,
    /// The stores in it; it alone, where it is one store's.
    pub(crate) stores: Vec<FoundStore>,
}

impl Target {
    /// Finds the stores of a directory; none only where it is a root.
    pub(crate) fn find(given: &Path) -> Result<Self, CliError> {
        let directory = std::path::absolute(given).map_err(|error| FileError {
            call: FileCall::List,
            path: given.to_owned(),
            kind: ErrorKind::InvalidInput,
            errno: error.raw_os_error(),
            reason: error.to_string(),
        })?;
        let mut disk = open_disk(&DiskOptions { depth: DEPTH, ..DiskOptions::default() })?;
        let entries = disk.list(&directory)?;
        let stores = match find_store(&mut *disk, &directory)? {
            Some(store) => vec![store],
            None => find_stores(&mut *disk, &directory)?,
        };
        let is_lock = |entry: &kvtide::io::DirectoryEntry| {
            entry.kind == EntryKind::File && entry.name == LOCK_NAME
        };
        if stores.is_empty() && !entries.iter().any(is_lock) {
            return Err(CliError::NoStore { path: directory });
        }
        Ok(Self { disk, directory, stores })
    }

    /// Whether the directory is one store's.
    pub(crate) fn is_one_store(&self) -> bool {
        self.stores.first().is_some_and(|store| store.directory == self.directory)
    }
}

/// Names a store by its place in the directory that was given.
pub(crate) fn name(store: &FoundStore, directory: &Path) -> String {
    let name = store.directory.strip_prefix(directory).unwrap_or(&store.directory);
    if name == Path::new("") { ".".to_owned() } else { name.display().to_string() }
}

/// Returns the time, in seconds since 1970.
pub(crate) fn now_s() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    // A clock before 1970 was not set.
    since.map_or(0, |since| since.as_secs())
}
