//! Room: what a root's stores take up, and which of them go when it is needed.
//!
//! A root's capacity is counted in blocks in use, over all stores of all instances, idle ones of
//! models that nobody serves any more included. When a store does not fit, those that nobody has
//! locked are removed, the one that was written least recently first.
//!
//! Called by open and siblings with the root's lock held, and by `kvtide gc`.

use super::directory::{FoundStore, RootLock, find_stores, none_if_absent, path};
use super::error::{StoreError, StoreFile};
use super::survey::{Holder, holder_under_root, lock};
use crate::io::{Disk, FileId, OpenMode};
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

/// A store that is in use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldStore {
    /// The store.
    pub store: FoundStore,
    /// Who has it.
    pub holder: Holder,
}

/// What a collection did, or would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Stores that were removed, in that order.
    pub stores: Vec<FoundStore>,
    /// Older stores that were passed over, because they are in use.
    pub held: Vec<HeldStore>,
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
    let collected = reclaim_until(disk, root, reclaim_one, |_, used| Ok(used <= target.get()));
    lock.release(disk);
    collected
}

/// Keeps a root within a capacity that was lowered: where its stores take up more, removes those
/// that nobody has, as [`collect`] does, unless they are to stay. Returns what they take up then.
///
/// # Errors
///
/// As [`collect`].
pub fn keep_within(
    disk: &mut dyn Disk,
    root: &Path,
    capacity: ByteCount,
    reclaim: Reclaim,
    lock_wait: Duration,
) -> Result<ByteCount, StoreError> {
    let used = used(&find_stores(disk, root)?);
    if used <= capacity.get() || reclaim == Reclaim::Off {
        return Ok(ByteCount::new(used));
    }
    collect(disk, root, capacity, lock_wait).map(|collected| collected.left)
}

/// Tells what [`collect`] would do now, and does nothing.
///
/// # Errors
///
/// As [`collect`].
pub fn plan_collection(
    disk: &mut dyn Disk,
    root: &Path,
    target: ByteCount,
    lock_wait: Duration,
) -> Result<Reclaimed, StoreError> {
    let lock = RootLock::take_existing(disk, root, lock_wait)?;
    let holder =
        |disk: &mut dyn Disk, store: &FoundStore| holder_under_root(disk, &store.directory);
    let planned = reclaim_until(disk, root, holder, |_, used| Ok(used <= target.get()));
    if let Some(lock) = lock {
        lock.release(disk);
    }
    planned
}

/// Makes room for `needed` more bytes under a root, whose lock is held.
///
/// Removes nothing where all that may go would not be enough: an engine that is refused costs
/// nobody a warm store.
pub(super) fn make_room(
    disk: &mut dyn Disk,
    root: &Path,
    needed: ByteCount,
    capacity: Option<ByteCount>,
    reclaim: Reclaim,
) -> Result<Vec<FoundStore>, StoreError> {
    let total = used(&find_stores(disk, root)?);
    let planned = match reclaim {
        Reclaim::OldestFirst => {
            let holder =
                |disk: &mut dyn Disk, store: &FoundStore| holder_under_root(disk, &store.directory);
            reclaim_until(disk, root, holder, |disk, used| {
                Ok(needed.get() <= room(disk, root, capacity, used, total - used)?)
            })?
        }
        Reclaim::Off => Reclaimed { left: ByteCount::new(total), ..Reclaimed::default() },
    };
    let left = planned.left.get();
    let available = room(disk, root, capacity, left, total.saturating_sub(left))?;
    if needed.get() > available {
        return Err(no_room(root, needed, available, &planned));
    }
    if planned.stores.is_empty() {
        return Ok(Vec::new());
    }
    let done = reclaim_until(disk, root, reclaim_one, |disk, used| {
        Ok(needed.get() <= room(disk, root, capacity, used, 0)?)
    })?;
    // A file system may give back less than was counted.
    let available = room(disk, root, capacity, done.left.get(), 0)?;
    if needed.get() > available {
        return Err(no_room(root, needed, available, &done));
    }
    Ok(done.stores)
}

/// Returns the bytes that are free under a root whose stores take up `used`, once the file system
/// has `freed` more.
fn room(
    disk: &mut dyn Disk,
    root: &Path,
    capacity: Option<ByteCount>,
    used: u64,
    freed: u64,
) -> Result<u64, StoreError> {
    let under_capacity = capacity.map_or(u64::MAX, |bytes| bytes.get().saturating_sub(used));
    Ok(disk.space(root)?.available.get().saturating_add(freed).min(under_capacity))
}

/// Says that `needed` bytes do not fit, whatever may go, and who keeps the rest.
fn no_room(root: &Path, needed: ByteCount, available: u64, kept: &Reclaimed) -> StoreError {
    let held = kept.held.iter();
    let mut holders: Vec<u32> = held.filter_map(|held| held.holder.process).collect();
    holders.sort_unstable();
    holders.dedup();
    let (root, available) = (root.to_owned(), ByteCount::new(available));
    StoreError::NoRoom { root, needed, available, kept: kept.left, holders }
}

/// Removes stores that nobody has until `is_enough`, which is told what is in use. `remove` says
/// who has a store that stays.
fn reclaim_until(
    disk: &mut dyn Disk,
    root: &Path,
    mut remove: impl FnMut(&mut dyn Disk, &FoundStore) -> Result<Option<Holder>, StoreError>,
    mut is_enough: impl FnMut(&mut dyn Disk, u64) -> Result<bool, StoreError>,
) -> Result<Reclaimed, StoreError> {
    let mut found = find_stores(disk, root)?;
    found.sort_by_key(|store| (store.modified_s, store.instance, store.store_id));
    let mut used = used(&found);
    let mut reclaimed = Reclaimed::default();
    for store in found {
        if is_enough(disk, used)? {
            break;
        }
        if let Some(holder) = remove(disk, &store)? {
            reclaimed.held.push(HeldStore { store, holder });
        } else {
            used = used.saturating_sub(store.bytes.get());
            reclaimed.stores.push(store);
        }
    }
    // What the last one left.
    is_enough(disk, used)?;
    reclaimed.left = ByteCount::new(used);
    Ok(reclaimed)
}

fn used(stores: &[FoundStore]) -> u64 {
    stores.iter().fold(0, |sum, store| sum.saturating_add(store.bytes.get()))
}

/// Removes a store that nobody has, and says so; returns who does where somebody does.
fn reclaim_one(disk: &mut dyn Disk, store: &FoundStore) -> Result<Option<Holder>, StoreError> {
    let held_by = remove(disk, store)?;
    if held_by.is_none() {
        let (directory, bytes) = (store.directory.display(), store.bytes);
        tracing::warn!(%directory, %bytes, "reclaimed a store that nobody had open");
    }
    Ok(held_by)
}

/// Removes a store that nobody has, durably; returns who does where somebody does. The root's lock
/// is held.
///
/// The data goes first, durably: a directory without it is known to hold nothing.
pub(super) fn remove(
    disk: &mut dyn Disk,
    store: &FoundStore,
) -> Result<Option<Holder>, StoreError> {
    let directory = &store.directory;
    let data = path(directory, StoreFile::Data);
    let opened = none_if_absent(disk.open(&data, OpenMode::Existing))?;
    let removed = match &opened {
        Some(opened) => remove_locked(disk, directory, opened.file),
        None => remove_files(disk, directory).map(|()| None),
    };
    if let Some(opened) = opened {
        disk.close(opened.file);
    }
    removed
}

fn remove_locked(
    disk: &mut dyn Disk,
    directory: &Path,
    data: FileId,
) -> Result<Option<Holder>, StoreError> {
    match lock(disk, data)? {
        None => remove_files(disk, directory).map(|()| None),
        held_by => Ok(held_by),
    }
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
