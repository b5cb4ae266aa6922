//! Opens the stores of all groups, on one disk, and tells the core what they hold.

use super::config::DiskConfig;
use super::group::{GroupStore, found};
use super::state::{DiskHealth, DiskState};
use crate::capability::Downgrade;
use crate::core::{Core, FoundChunk, KEY_COUNT_MAX, Refused};
use crate::fingerprint::{Codec, StoreId};
use crate::io::Disk;
use crate::layout::Layout;
use crate::mem::Slab;
use crate::pager::OpenError;
use crate::store::format::FORMAT_VERSION;
use crate::store::{ChunkShape, Entry, Recovery, Store, StoreOptions, TagSpace};
use crate::units::{GroupIndex, SlotIndex};
use std::sync::Arc;

/// Slots that the core frees in one command at open.
const FREED_SLOTS: u32 = 4096;

/// The tags of scans begin here, far from those of tasks.
pub(super) const SCAN_SPACE: u32 = u32::MAX / 2;

/// The stores of all groups, open.
#[derive(Debug)]
pub(in crate::pager) struct OpenedTier {
    pub(in crate::pager) disk: Box<dyn Disk>,
    pub(in crate::pager) groups: Vec<GroupStore>,
    /// What each group's store holds by its snapshot, the coldest first; `None`: to be scanned.
    held: Vec<Option<Vec<Entry>>>,
    pub(in crate::pager) downgrades: Vec<Downgrade>,
}

/// Opens the stores of all groups, with as many slots each.
pub(in crate::pager) fn open(
    mut disk: Box<dyn Disk>,
    config: &DiskConfig,
    layout: &Layout,
    slot_counts: &[u32],
    slabs: &[Arc<Slab>],
) -> Result<OpenedTier, OpenError> {
    disk.register(slabs);
    let mut tier =
        OpenedTier { disk, groups: Vec::new(), held: Vec::new(), downgrades: Vec::new() };
    let mut instance = config.instance;
    for (group, &slot_count) in layout.groups().iter().zip(slot_counts) {
        let store_id = StoreId::of_group(&config.content, group, Codec::Raw, FORMAT_VERSION);
        let shape = ChunkShape::of_group(group, Codec::Raw);
        let mut options = StoreOptions::new(&config.root, store_id, shape, slot_count);
        options.instance = instance;
        options.capacity = Some(config.capacity);
        options.reclaim = config.reclaim;
        let opened = match Store::open(&mut *tier.disk, &options) {
            Ok(opened) => opened,
            Err(error) => {
                tier.abandon();
                return Err(error.into());
            }
        };
        // All groups of one engine lie side by side.
        instance = Some(opened.store.instance());
        tier.take(group.index(), opened.store, opened.recovery);
    }
    let disk_downgrades = tier.disk.downgrades();
    tier.downgrades.extend(disk_downgrades);
    Ok(tier)
}

impl OpenedTier {
    fn take(&mut self, group: GroupIndex, store: Store, recovery: Recovery) {
        let directory = store.directory().display();
        match &recovery {
            Recovery::Ready(entries) => {
                tracing::info!(%directory, chunks = entries.len(), "a store is open and warm");
            }
            Recovery::ScanNeeded(reason) => {
                tracing::info!(%directory, ?reason, "a store is open and has to be scanned");
            }
        }
        self.held.push(match recovery {
            Recovery::Ready(entries) => Some(entries),
            Recovery::ScanNeeded(_) => None,
        });
        self.downgrades.extend_from_slice(store.downgrades());
        let space = TagSpace::new(SCAN_SPACE + u32::from(group.get()));
        self.groups.push(GroupStore::new(store, group, space));
    }

    /// Closes what is open, because something else cannot be opened.
    pub(in crate::pager) fn abandon(mut self) {
        for group in self.groups {
            group.store.abandon(&mut *self.disk);
        }
        self.disk.shut(std::time::Duration::ZERO);
    }

    /// Returns the side that callers share.
    pub(in crate::pager) fn state(&self) -> DiskState {
        let health = self.groups.iter().map(GroupStore::health).collect();
        DiskState::new(self.disk.waker(), health)
    }

    /// Tells the core what the snapshots say, before anybody else uses it.
    ///
    /// # Errors
    ///
    /// [`Refused::Poisoned`].
    pub(in crate::pager) fn tell(&mut self, core: &mut Core) -> Result<(), Refused> {
        for (store, held) in self.groups.iter().zip(&mut self.held) {
            let Some(entries) = held.take() else { continue };
            let (group, slot_count) = (store.group(), store.store.slot_count());
            for batch in entries.chunks(KEY_COUNT_MAX) {
                let durable = |entry| FoundChunk { is_durable: true, ..found(entry) };
                let batch: Vec<FoundChunk> = batch.iter().map(durable).collect();
                core.adopt_disk(group, &batch)?;
            }
            for first in (0..slot_count).step_by(FREED_SLOTS as usize) {
                let count = FREED_SLOTS.min(slot_count - first);
                core.free_disk_slots(group, SlotIndex::new(first), count)?;
            }
        }
        Ok(())
    }
}

impl GroupStore {
    fn health(&self) -> DiskHealth {
        if self.store.is_recovered() {
            return DiskHealth::Serving;
        }
        DiskHealth::Recovering { progress: self.progress() }
    }
}
