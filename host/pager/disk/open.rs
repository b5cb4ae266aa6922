//! Opens the stores of all stripes and groups, on one disk, and tells the core what they hold.
//!
//! A stripe that its drive keeps from being opened is left out, as long as another opens: the tier
//! goes on without it and says so. What somebody has to put right is an error.

use super::config::{DiskConfig, DiskStripe};
use super::group::{GroupStore, found};
use super::merge::by_recency;
use super::places::Place;
use super::state::{DiskHealth, DiskState, MissingStripe};
use crate::capability::Downgrade;
use crate::core::{Core, FoundChunk, KEY_COUNT_MAX, Refused};
use crate::fingerprint::{Codec, StoreId};
use crate::io::Disk;
use crate::layout::Layout;
use crate::mem::Slab;
use crate::pager::OpenError;
use crate::store::format::FORMAT_VERSION;
use crate::store::{
    ChunkShape, DEFAULT_LOCK_WAIT, Entry, Opened, Reclaim, Recovery, Store, StoreError,
    StoreOptions, TagSpace, keep_within,
};
use crate::units::{GroupIndex, SlotIndex, StripeIndex};
use std::sync::Arc;

/// Slots that the core frees in one command at open.
const FREED_SLOTS: u32 = 4096;

/// The tags of scans begin here, far from those of tasks.
pub(super) const SCAN_SPACE: u32 = u32::MAX / 2;

/// The stores of all stripes and groups, open.
#[derive(Debug)]
pub(in crate::pager) struct OpenedTier {
    pub(in crate::pager) disk: Box<dyn Disk>,
    /// Stripe by stripe, and in each by group.
    pub(in crate::pager) stores: Vec<GroupStore>,
    /// What each store holds by its snapshot, the coldest first; `None`: to be scanned.
    held: Vec<Option<Vec<Entry>>>,
    missing: Vec<MissingStripe>,
    pub(in crate::pager) downgrades: Vec<Downgrade>,
}

/// Opens the stores of all stripes, with so many slots for each group: `slot_counts` by stripe and
/// group.
pub(in crate::pager) fn open(
    mut disk: Box<dyn Disk>,
    config: &DiskConfig,
    layout: &Layout,
    slot_counts: &[Vec<u32>],
    slabs: &[Arc<Slab>],
) -> Result<OpenedTier, OpenError> {
    disk.register(slabs);
    let mut tier = OpenedTier {
        disk,
        stores: Vec::new(),
        held: Vec::new(),
        missing: Vec::new(),
        downgrades: Vec::new(),
    };
    let mut first_error = None;
    for (stripe, slot_counts) in config.stripes.iter().zip(slot_counts) {
        let preferred = tier.stores.first().map(|store| store.store.instance());
        let disk = &mut *tier.disk;
        match open_stripe(disk, config, preferred, stripe, layout, slot_counts) {
            Ok(opened) => {
                tier.take(opened);
                tier.keep_within(stripe, config.reclaim);
            }
            Err(error) if is_of_drive(&mut *tier.disk, &error) => {
                tier.leave_out(stripe, &error);
                first_error.get_or_insert(error);
            }
            Err(error) => {
                tier.abandon();
                return Err(error.into());
            }
        }
    }
    if let Some(error) = first_error.filter(|_| tier.stores.is_empty()) {
        tier.abandon();
        return Err(error.into());
    }
    let disk_downgrades = tier.disk.downgrades();
    tier.downgrades.extend(disk_downgrades);
    Ok(tier)
}

/// Opens the stores of one stripe, by group; none of them stays open where one cannot be.
/// `preferred` is the instance that the engine has in other stripes, so that replicas do not mix
/// theirs.
fn open_stripe(
    disk: &mut dyn Disk,
    config: &DiskConfig,
    preferred: Option<u32>,
    stripe: &DiskStripe,
    layout: &Layout,
    slot_counts: &[u32],
) -> Result<Vec<Opened>, StoreError> {
    let mut all: Vec<Opened> = Vec::new();
    let mut instance = config.instance;
    for (group, &slot_count) in layout.groups().iter().zip(slot_counts) {
        let store_id = StoreId::of_group(&config.content, group, Codec::Raw, FORMAT_VERSION);
        let shape = ChunkShape::of_group(group, Codec::Raw);
        let mut options = StoreOptions::new(&stripe.root, store_id, shape, slot_count);
        options.instance = instance;
        options.preferred_instance = preferred;
        options.capacity = Some(stripe.capacity);
        options.reclaim = config.reclaim;
        match Store::open(disk, &options) {
            // All groups of one engine lie side by side.
            Ok(opened) => {
                instance = Some(opened.store.instance());
                all.push(opened);
            }
            Err(error) => {
                for Opened { store, .. } in all {
                    store.abandon(disk);
                }
                return Err(error);
            }
        }
    }
    Ok(all)
}

/// Whether a store could not be opened because of its drive, not because of what was asked for.
fn is_of_drive(disk: &mut dyn Disk, error: &StoreError) -> bool {
    match error {
        StoreError::File(error) => error.is_of_drive(),
        StoreError::Io { .. } => true,
        // The file system is full, or else the capacity too small.
        StoreError::NoRoom { root, needed, .. } => {
            disk.space(root).is_ok_and(|space| space.available < *needed)
        }
        _ => false,
    }
}

impl OpenedTier {
    /// Takes the stores of the next stripe over, in the order of their groups.
    fn take(&mut self, opened: Vec<Opened>) {
        let group_count = opened.len().max(1);
        let stripe = u8::try_from(self.stores.len() / group_count).expect("at most 16 stripes");
        for (group, Opened { store, recovery, .. }) in (0..).map(GroupIndex::new).zip(opened) {
            let of_group = self.stores.iter().map(GroupStore::place);
            let before = of_group.filter(|place| place.group == group);
            let place = Place {
                group,
                stripe: StripeIndex::new(stripe),
                first_slot: before.map(|place| place.slot_count).sum(),
                slot_count: store.slot_count(),
            };
            self.take_store(place, store, recovery);
        }
    }

    fn take_store(&mut self, place: Place, store: Store, recovery: Recovery) {
        // Of one that is to be scanned the store has told, and why.
        if let Recovery::Ready(entries) = &recovery {
            let directory = store.directory().display();
            tracing::info!(%directory, chunks = entries.len(), "a store is open and warm");
        }
        self.held.push(match recovery {
            Recovery::Ready(entries) => Some(entries),
            Recovery::ScanNeeded(_) => None,
        });
        self.downgrades.extend_from_slice(store.downgrades());
        let number = u32::try_from(self.stores.len()).expect("at most 128 stores");
        let space = TagSpace::new(SCAN_SPACE + number);
        self.stores.push(GroupStore::new(store, place, space));
    }

    /// Keeps a stripe within its capacity, which may have been lowered, and says so where stores of
    /// others stand in the way.
    fn keep_within(&mut self, stripe: &DiskStripe, reclaim: Reclaim) {
        let DiskStripe { root, capacity, .. } = stripe;
        let (disk, place) = (&mut *self.disk, root.display());
        let why = match keep_within(disk, root, *capacity, reclaim, DEFAULT_LOCK_WAIT) {
            Ok(left) if left <= *capacity => return,
            Ok(left) => format!("stores below {place} that are in use, or to stay, take up {left}"),
            Err(error) => error.to_string(),
        };
        tracing::warn!(root = %place, %capacity, why, "a root is above its capacity");
        self.downgrades.push(Downgrade {
            what: "capacity of the disk tier",
            why,
            effect: "more than the capacity is taken up until they go, or `kvtide gc` removes them",
        });
    }

    /// Goes on without a stripe, and says so.
    fn leave_out(&mut self, stripe: &DiskStripe, error: &StoreError) {
        let (root, reason) = (stripe.root.clone(), error.to_string());
        tracing::error!(root = %root.display(), reason, "a stripe of the disk tier is left out");
        self.downgrades.push(Downgrade {
            what: "stripe of the disk tier",
            why: format!("{} cannot be opened: {reason}", root.display()),
            effect: "what it holds is not served, its capacity is missing, and a clear does not \
                     reach it",
        });
        self.missing.push(MissingStripe { root, reason });
    }

    /// Returns the disk slots of each group in each stripe that is open, in their order.
    pub(in crate::pager) fn disk_slot_counts(&self, group: GroupIndex) -> Vec<u32> {
        let places = self.stores.iter().map(GroupStore::place);
        places.filter(|place| place.group == group).map(|place| place.slot_count).collect()
    }

    /// Closes what is open, because something else cannot be opened.
    pub(in crate::pager) fn abandon(mut self) {
        for store in self.stores {
            store.store.abandon(&mut *self.disk);
        }
        self.disk.shut(std::time::Duration::ZERO);
    }

    /// Returns the side that callers share.
    pub(in crate::pager) fn state(&self) -> DiskState {
        let health = self.stores.iter().map(|store| (store.group(), store.health())).collect();
        DiskState::new(self.disk.waker(), health, self.missing.clone())
    }

    /// Tells the core what the snapshots say, before anybody else uses it. The chunks of a group
    /// are told in one order of recency over all its stores, as well as that is known.
    ///
    /// # Errors
    ///
    /// [`Refused::Poisoned`].
    pub(in crate::pager) fn tell(&mut self, core: &mut Core) -> Result<(), Refused> {
        let mut by_group: Vec<(GroupIndex, Vec<Vec<FoundChunk>>)> = Vec::new();
        let mut ready = Vec::new();
        for (store, held) in self.stores.iter().zip(&mut self.held) {
            let Some(entries) = held.take() else { continue };
            let place = store.place();
            ready.push(place);
            let durable = |entry| FoundChunk { is_durable: true, ..found(place, entry) };
            let chunks = entries.iter().map(durable).collect();
            match by_group.iter_mut().find(|(group, _)| *group == place.group) {
                Some((_, of_group)) => of_group.push(chunks),
                None => by_group.push((place.group, vec![chunks])),
            }
        }
        for (group, of_group) in by_group {
            for batch in by_recency(of_group).chunks(KEY_COUNT_MAX) {
                core.adopt_disk(group, batch)?;
            }
        }
        for place in ready {
            for first in (0..place.slot_count).step_by(FREED_SLOTS as usize) {
                let count = FREED_SLOTS.min(place.slot_count - first);
                let first = place.disk_slot(SlotIndex::new(first));
                core.free_disk_slots(place.group, first, count)?;
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
