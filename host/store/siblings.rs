//! Stores beside one that is open: of the same store id, in other instances below its root.
//!
//! Engines that ran side by side leave them, and so do engines that ran one after another while
//! the lock of the first outlived it. What is dropped from an open store for good must not come
//! back with one of them: those that nobody has are removed with it. Those in use are for whoever
//! has them to drop from.
//!
//! Invariants: a store that somebody has is left as it is; what a store held that was removed is
//! gone after a power cut as well.
//!
//! Called by the pager's disk thread.

use super::directory::{RootLock, directory, find_store, instances};
use super::error::StoreError;
use super::reclaim::{HeldStore, remove};
use super::state::Store;
use crate::io::Disk;
use std::path::{Path, PathBuf};

/// What became of the stores beside one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Siblings {
    /// In use, and so left as they are.
    pub held: Vec<HeldStore>,
    /// Directories that may still hold what they held, and why.
    pub failed: Vec<(PathBuf, StoreError)>,
}

impl Store {
    /// Removes the stores of the same id in other instances below this one's root that nobody has
    /// open, durably once this returns.
    ///
    /// Other operations may be under way on the disk. Takes the time that the file system takes to
    /// remove their files, and waits for nothing else.
    ///
    /// # Errors
    ///
    /// [`StoreError::Locked`] when somebody has the root at the moment: ask again.
    /// [`StoreError::File`] when the root cannot be looked at. What cannot be removed is no error
    /// but among [`Siblings::failed`].
    pub fn remove_siblings(&self, disk: &mut dyn Disk) -> Result<Siblings, StoreError> {
        let lock = RootLock::ask(disk, self.root())?;
        let siblings = self.remove_under_root(disk);
        lock.release(disk);
        siblings
    }

    /// As [`remove_siblings`](Store::remove_siblings); the root's lock is held.
    fn remove_under_root(&self, disk: &mut dyn Disk) -> Result<Siblings, StoreError> {
        let mut siblings = Siblings::default();
        let instances = instances(disk, self.root())?;
        for instance in instances.into_iter().filter(|&instance| instance != self.instance()) {
            let directory = directory(self.root(), instance, self.id());
            match remove_sibling(disk, &directory) {
                Ok(None) => {}
                Ok(Some(held)) => siblings.held.push(held),
                Err(error) => siblings.failed.push((directory, error)),
            }
        }
        Ok(siblings)
    }
}

/// Removes the store in a directory, if there is one that nobody has; returns one that somebody
/// has.
fn remove_sibling(disk: &mut dyn Disk, directory: &Path) -> Result<Option<HeldStore>, StoreError> {
    let Some(store) = find_store(disk, directory)? else { return Ok(None) };
    let held_by = remove(disk, &store)?;
    if held_by.is_none() {
        let (directory, bytes) = (directory.display(), store.bytes);
        tracing::warn!(%directory, %bytes, "removed a store beside one that was dropped from");
    }
    Ok(held_by.map(|holder| HeldStore { store, holder }))
}
