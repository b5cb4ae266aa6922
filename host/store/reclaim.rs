//! Room: what a root's stores take up, and which of them go when it is needed.
//!
//! A root's capacity is counted in blocks in use, over all stores of all instances, idle ones of
//! models that nobody serves any more included. When a store does not fit, those that nobody has
//! locked are removed, the one that was written least recently first.
//!
//! Called by open with the root's lock held, and by `kvtide gc`.

use super::directory::{FoundStore, RootLock, find_stores, none_if_absent, path};
use super::error::{StoreError, StoreFile};
use crate::io::{Disk, Lock, OpenMode};
use crate::units::ByteCount;
use std::path::Path;
use std::time::Duration;

/// Whether stores that nobody has may be removed to make room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reclaim {
    /// The one that was written least recently goes first.
    #[default]
    OldestFirst,
    /// None goes: a store that does not fit is refused.
    Off,
}

/// What a collection did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Stores that were removed, in that order.
    pub stores: Vec<FoundStore>,
    /// Bytes of blocks that the root's stores still take up.
    pub left: ByteCount,
}

/// Removes stores that nobody has until a root's take up at most `target`, the one that was
/// written least recently first. Those in use stay, whatever they take up.
///
/// # Errors
///
/// [`StoreError::File`], and [`StoreError::Locked`] when the root's lock is not to be had within
/// `lock_wait`.
pub fn collect(
    disk: &mut dyn Disk,
    root: &Path,
    target: ByteCount,
    lock_wait: Duration,
) -> Result<Reclaimed, StoreError> {
    let lock = RootLock::take(disk, root, lock_wait)?;
    let collected = reclaim_until(disk, root, |_, used| Ok(used <= target.get()));
    lock.release(disk);
    collected
}

/// Makes room for `needed` more bytes under a root, whose lock is held.
pub(super) fn make_room(
    disk: &mut dyn Disk,
    root: &Path,
    needed: ByteCount,
    capacity: Option<ByteCount>,
    reclaim: Reclaim,
) -> Result<Vec<FoundStore>, StoreError> {
    let mut available = 0;
    let mut fits = |disk: &mut dyn Disk, used: u64| {
        let under_capacity = capacity.map_or(u64::MAX, |bytes| bytes.get().saturating_sub(used));
        available = disk.space(root)?.available.get().min(under_capacity);
        Ok(needed.get() <= available)
    };
    let reclaimed = match reclaim {
        Reclaim::OldestFirst => reclaim_until(disk, root, &mut fits)?.stores,
        Reclaim::Off => {
            let used = used(&find_stores(disk, root)?);
            fits(disk, used)?;
            Vec::new()
        }
    };
    if needed.get() > available {
        let available = ByteCount::new(available);
        return Err(StoreError::NoRoom { root: root.to_owned(), needed, available });
    }
    Ok(reclaimed)
}

/// Removes stores that nobody has until `is_enough`, which is told what is in use.
fn reclaim_until(
    disk: &mut dyn Disk,
    root: &Path,
    mut is_enough: impl FnMut(&mut dyn Disk, u64) -> Result<bool, StoreError>,
) -> Result<Reclaimed, StoreError> {
    let mut found = find_stores(disk, root)?;
    found.sort_by_key(|store| (store.modified_s, store.instance, store.store_id));
    let mut used = used(&found);
    let mut stores = Vec::new();
    for store in found {
        if is_enough(disk, used)? {
            break;
        }
        if remove(disk, &store)? {
            used = used.saturating_sub(store.bytes.get());
            let (directory, bytes) = (store.directory.display(), store.bytes);
            tracing::warn!(%directory, %bytes, "reclaimed a store that nobody had open");
            stores.push(store);
        }
    }
    // What the last one left.
    is_enough(disk, used)?;
    Ok(Reclaimed { stores, left: ByteCount::new(used) })
}

fn used(stores: &[FoundStore]) -> u64 {
    stores.iter().fold(0, |sum, store| sum.saturating_add(store.bytes.get()))
}

/// Removes a store that nobody has; `false` where somebody does. The root's lock is held.
///
/// The data goes first, durably: a directory without it is known to hold nothing.
fn remove(disk: &mut dyn Disk, store: &FoundStore) -> Result<bool, StoreError> {
    let directory = &store.directory;
    let data = path(directory, StoreFile::Data);
    let opened = none_if_absent(disk.open(&data, OpenMode::Existing))?;
    if let Some(opened) = &opened {
        let locked = disk.lock(opened.file);
        if !matches!(locked, Ok(Lock::Taken)) {
            disk.close(opened.file);
            return locked.map(|_| false).map_err(StoreError::from);
        }
    }
    let removed = remove_files(disk, directory);
    if let Some(opened) = opened {
        disk.close(opened.file);
    }
    removed.map(|()| true)
}

fn remove_files(disk: &mut dyn Disk, directory: &Path) -> Result<(), StoreError> {
    disk.remove_file(&path(directory, StoreFile::Data))?;
    disk.sync_directory(directory)?;
    disk.remove_file(&path(directory, StoreFile::Index))?;
    disk.remove_file(&path(directory, StoreFile::Superblock))?;
    disk.sync_directory(directory)?;
    // Directories that are not empty stay: the bytes are freed all the same.
    let is_removed = disk.list(directory)?.is_empty();
    if is_removed {
        disk.remove_directory(directory)?;
    }
    if let Some(instance) = directory.parent().filter(|_| is_removed) {
        disk.sync_directory(instance)?;
        if disk.list(instance)?.is_empty() {
            disk.remove_directory(instance)?;
        }
    }
    Ok(())
}
