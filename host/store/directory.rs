//! Where stores lie under a root, which of them a process takes, and who else may.
//!
//! ```text
//! <root>/lock
//! <root>/<instance>/<store id>/{superblock,data,index}
//! ```
//!
//! Whoever makes, opens, resizes or removes a store holds the root's lock meanwhile, so that two
//! processes never decide on one directory at a time. A store's own lock is on its data file, for
//! as long as it is open.
//!
//! Called by open, reclaim, siblings and survey.

use super::error::{StoreError, StoreFile};
use super::open::StoreOptions;
use crate::fingerprint::StoreId;
use crate::io::{Disk, EntryKind, FileError, FileId, Lock, OpenMode, OpenedFile};
use crate::units::ByteCount;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a lock is waited for before it is asked for again.
const LOCK_STEP: Duration = Duration::from_millis(50);

/// The name of a root's lock: what tells a root from another directory.
pub const LOCK_NAME: &str = "lock";

/// A store's place under a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundStore {
    /// The number of its instance.
    pub instance: u32,
    /// What it holds, by its directory's name.
    pub store_id: StoreId,
    /// Its directory.
    pub directory: PathBuf,
    /// Bytes of blocks that its files take up.
    pub bytes: ByteCount,
    /// When its slots or its superblock were last written, in seconds since 1970.
    pub modified_s: u64,
}

impl FoundStore {
    /// Returns the root that it lies under.
    pub fn root(&self) -> &Path {
        self.directory.ancestors().nth(2).unwrap_or(Path::new(""))
    }
}

/// Returns the directory of a store.
pub(super) fn directory(root: &Path, instance: u32, store_id: StoreId) -> PathBuf {
    root.join(instance.to_string()).join(store_id.to_string())
}

/// Returns the path of a store's file.
pub(super) fn path(directory: &Path, file: StoreFile) -> PathBuf {
    directory.join(file.name())
}

/// Lists the stores under a root, by instance and name. A root that does not exist has none.
///
/// # Errors
///
/// [`StoreError::File`].
pub fn find_stores(disk: &mut dyn Disk, root: &Path) -> Result<Vec<FoundStore>, StoreError> {
    let mut found = Vec::new();
    for instance in instances(disk, root)? {
        let folder = root.join(instance.to_string());
        for store_id in directories(disk, &folder)?.iter().filter_map(|name| name.parse().ok()) {
            found.push(look_at(disk, root, instance, store_id)?);
        }
    }
    Ok(found)
}

/// Looks at the directory of one store, `<root>/<instance>/<store id>`; `None` where its path does
/// not end like that, or nothing is there.
///
/// # Errors
///
/// [`StoreError::File`].
pub fn find_store(disk: &mut dyn Disk, directory: &Path) -> Result<Option<FoundStore>, StoreError> {
    let mut names = directory.ancestors().map(|path| path.file_name()?.to_str());
    let (Some(store_id), Some(instance)) = (names.next().flatten(), names.next().flatten()) else {
        return Ok(None);
    };
    let (Ok(store_id), Some(instance)) = (store_id.parse(), instance_number(instance)) else {
        return Ok(None);
    };
    let Some(root) = directory.ancestors().nth(2) else { return Ok(None) };
    match none_if_absent(disk.list(directory))? {
        Some(_) => look_at(disk, root, instance, store_id).map(Some),
        None => Ok(None),
    }
}

/// Returns the size and age of one store.
pub(super) fn look_at(
    disk: &mut dyn Disk,
    root: &Path,
    instance: u32,
    store_id: StoreId,
) -> Result<FoundStore, StoreError> {
    let directory = directory(root, instance, store_id);
    let (mut bytes, mut modified_s) = (0_u64, 0);
    for file in [StoreFile::Superblock, StoreFile::Data, StoreFile::Index] {
        let path = path(&directory, file);
        bytes = bytes.saturating_add(disk.allocated(&path)?.get());
        modified_s = disk.modified_s(&path)?.max(modified_s);
    }
    Ok(FoundStore { instance, store_id, directory, bytes: ByteCount::new(bytes), modified_s })
}

/// Returns the numbers of a root's instances, ascending.
pub(super) fn instances(disk: &mut dyn Disk, root: &Path) -> Result<Vec<u32>, StoreError> {
    let names = directories(disk, root)?;
    let mut numbers: Vec<u32> = names.iter().filter_map(|name| instance_number(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// Reads the name of an instance's directory: one text a number, so that no two are one instance.
fn instance_number(name: &str) -> Option<u32> {
    name.parse().ok().filter(|number: &u32| number.to_string() == name)
}

/// Returns the names of the directories in one; none where it does not exist.
fn directories(disk: &mut dyn Disk, path: &Path) -> Result<Vec<String>, FileError> {
    let entries = none_if_absent(disk.list(path))?.unwrap_or_default();
    let directories = entries.into_iter().filter(|entry| entry.kind == EntryKind::Directory);
    Ok(directories.map(|entry| entry.name).collect())
}

/// Tells a file or directory that does not exist from one that cannot be reached.
pub(super) fn none_if_absent<T>(found: Result<T, FileError>) -> Result<Option<T>, FileError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// How often a lock is asked for within a time.
pub(super) fn lock_tries(wait: Duration) -> u32 {
    let steps = wait.as_millis().div_ceil(LOCK_STEP.as_millis());
    u32::try_from(steps).unwrap_or(u32::MAX).saturating_add(1)
}

/// Lets a moment pass before a lock is asked for again.
pub(super) fn wait_a_step(disk: &mut dyn Disk) {
    disk.wait(LOCK_STEP);
}

/// The root's lock: held while stores are made, opened, resized or removed.
#[derive(Debug)]
#[must_use = "must be released"]
pub(super) struct RootLock(FileId);

impl RootLock {
    /// Takes the lock of a root, which is made if it does not exist.
    pub(super) fn take(
        disk: &mut dyn Disk,
        root: &Path,
        wait: Duration,
    ) -> Result<Self, StoreError> {
        disk.create_directory(root)?;
        let OpenedFile { file, .. } = disk.open(&root.join(LOCK_NAME), OpenMode::Create)?;
        Self::wait_for(disk, root, file, wait)
    }

    /// Takes the lock of a root without making anything; `None` where it has none, so that nobody
    /// can hold it.
    pub(super) fn take_existing(
        disk: &mut dyn Disk,
        root: &Path,
        wait: Duration,
    ) -> Result<Option<Self>, StoreError> {
        let opened = disk.open(&root.join(LOCK_NAME), OpenMode::ReadOnly);
        let Some(opened) = none_if_absent(opened)? else { return Ok(None) };
        Self::wait_for(disk, root, opened.file, wait).map(Some)
    }

    /// Asks once for the lock of a root below which stores are open, so that it is there.
    pub(super) fn ask(disk: &mut dyn Disk, root: &Path) -> Result<Self, StoreError> {
        let OpenedFile { file, .. } = disk.open(&root.join(LOCK_NAME), OpenMode::ReadOnly)?;
        Self::wait_for(disk, root, file, Duration::ZERO)
    }

    fn wait_for(
        disk: &mut dyn Disk,
        root: &Path,
        file: FileId,
        wait: Duration,
    ) -> Result<Self, StoreError> {
        let mut tries_left = lock_tries(wait);
        loop {
            tries_left -= 1;
            let refused = match disk.lock(file) {
                Ok(Lock::Taken) => return Ok(Self(file)),
                Ok(Lock::Held { process }) if tries_left == 0 => {
                    StoreError::Locked { path: root.to_owned(), process }
                }
                Ok(Lock::Held { .. }) => {
                    wait_a_step(disk);
                    continue;
                }
                Err(error) => error.into(),
            };
            disk.close(file);
            return Err(refused);
        }
    }

    pub(super) fn release(self, disk: &mut dyn Disk) {
        disk.close(self.0);
    }
}

/// A store's data file, open and locked.
#[derive(Clone, Debug)]
pub(super) struct Claimed {
    pub(super) instance: u32,
    pub(super) directory: PathBuf,
    pub(super) data: OpenedFile,
    /// Whether the directory had no data file before.
    pub(super) is_new: bool,
}

/// What came of asking for a store once.
pub(super) enum Attempt {
    Claimed(Box<Claimed>),
    /// Each store that would do is in use.
    Held {
        process: Option<u32>,
    },
}

/// Tries to lock an existing data file; `None` where there is none.
fn lock_existing(
    disk: &mut dyn Disk,
    root: &Path,
    instance: u32,
    store_id: StoreId,
) -> Result<Option<Attempt>, StoreError> {
    let directory = directory(root, instance, store_id);
    let opened = disk.open(&path(&directory, StoreFile::Data), OpenMode::Existing);
    let Some(data) = none_if_absent(opened)? else { return Ok(None) };
    let is_new = false;
    claim(disk, Claimed { instance, directory, data, is_new }).map(Some)
}

/// Locks a data file that was opened.
fn claim(disk: &mut dyn Disk, claimed: Claimed) -> Result<Attempt, StoreError> {
    let file = claimed.data.file;
    match disk.lock(file) {
        Ok(Lock::Taken) => Ok(Attempt::Claimed(Box::new(claimed))),
        Ok(Lock::Held { process }) => {
            disk.close(file);
            Ok(Attempt::Held { process })
        }
        Err(error) => {
            disk.close(file);
            Err(error.into())
        }
    }
}

/// Makes a store's directory and its data file, and locks it.
///
/// What is left of a store whose data file is gone goes first: it describes nothing any more.
pub(super) fn claim_new(
    disk: &mut dyn Disk,
    root: &Path,
    instance: u32,
    store_id: StoreId,
) -> Result<Attempt, StoreError> {
    let directory = directory(root, instance, store_id);
    disk.create_directory(&directory)?;
    disk.remove_file(&path(&directory, StoreFile::Superblock))?;
    disk.remove_file(&path(&directory, StoreFile::Index))?;
    disk.sync_directory(&directory)?;
    let data = disk.open(&path(&directory, StoreFile::Data), OpenMode::Create)?;
    claim(disk, Claimed { instance, directory, data, is_new: true })
}

/// Asks once for the store of an instance, or for the preferred one, which is made if it is not
/// there, or for the first by number that nobody has.
///
/// `may_add` says whether an instance is added where all that there are are in use.
pub(super) fn attempt(
    disk: &mut dyn Disk,
    options: &StoreOptions,
    may_add: bool,
) -> Result<Attempt, StoreError> {
    let StoreOptions { ref root, store_id, instance, preferred_instance, .. } = *options;
    let candidates = if let Some(instance) = instance {
        vec![instance]
    } else {
        let others = instances(disk, root)?.into_iter();
        let others = others.filter(|number| preferred_instance != Some(*number));
        preferred_instance.into_iter().chain(others).collect()
    };
    let mut held = None;
    let mut taken = Vec::new();
    for instance in candidates {
        match lock_existing(disk, root, instance, store_id)? {
            Some(Attempt::Held { process }) => {
                held.get_or_insert(process);
                taken.push(instance);
            }
            Some(claimed) => return Ok(claimed),
            None if preferred_instance == Some(instance) => {
                return claim_new(disk, root, instance, store_id);
            }
            None => {}
        }
    }
    match held {
        Some(process) if !may_add || instance.is_some() => Ok(Attempt::Held { process }),
        _ => {
            let free = (0..u32::MAX).find(|number| !taken.contains(number)).unwrap_or(u32::MAX);
            claim_new(disk, root, instance.unwrap_or(free), store_id)
        }
    }
}
