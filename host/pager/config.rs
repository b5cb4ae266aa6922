//! What a pager is opened with, and how the host tier's capacity is shared among the groups.

use super::disk::DiskConfig;
use crate::core::{
    ConfigError, CoreConfig, GroupConfig, IndexSeed, LookupError, Refused, STRIPE_COUNT_MAX,
    common_unit,
};
use crate::device::{Device, DeviceError, Staging};
use crate::io::DiskError;
use crate::layout::{Group, Layout, LayoutError, Packing};
use crate::mem::SlabError;
use crate::store::StoreError;
use crate::units::{ByteCount, GroupIndex};
use std::hash::{BuildHasher, RandomState};
use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;

/// Every setting of a [`Pager`](super::Pager).
#[derive(Clone, Debug)]
pub struct PagerConfig {
    /// The engine's device cache, the same that the device was opened with.
    pub layout: Layout,
    /// Bytes of host memory for slots, header pages included: a hard bound. Each group's region is
    /// mapped in whole pages, so up to 2 MiB a group may lie unused behind its slots.
    pub host_capacity: ByteCount,
    /// How long a ticket may wait for its first hop unless it says otherwise; 30 s by default.
    pub ticket_timeout: Duration,
    /// How long a plan that is not renewed keeps its pins; 30 s by default.
    pub lease: Duration,
    /// How long an operation of the device may take before the device counts as lost; 30 s by
    /// default.
    pub device_timeout: Duration,
    /// How long closing waits for what is under way; 10 s by default.
    pub close_timeout: Duration,
    /// Plans that may be held at a time; 1,024 by default.
    pub plan_count_max: u32,
    /// Transfers (at most 64 chunks each) that may be under way at a time; 1,024 by default.
    pub transfer_count_max: u32,
    /// The disk tier; none by default.
    pub disk: Option<DiskConfig>,
}

impl PagerConfig {
    /// Fills in the timeouts and counts.
    pub fn new(layout: Layout, host_capacity: ByteCount) -> Self {
        Self {
            layout,
            host_capacity,
            ticket_timeout: Duration::from_secs(30),
            lease: Duration::from_secs(30),
            device_timeout: Duration::from_secs(30),
            close_timeout: Duration::from_secs(10),
            plan_count_max: 1024,
            transfer_count_max: 1024,
            disk: None,
        }
    }

    /// Checks that every timeout is above zero, by name.
    pub(super) fn check_timeouts(&self) -> Result<(), OpenError> {
        let timeouts = [
            ("ticket_timeout", self.ticket_timeout),
            ("lease", self.lease),
            ("device_timeout", self.device_timeout),
            ("close_timeout", self.close_timeout),
        ];
        match timeouts.into_iter().find(|(_, timeout)| timeout.is_zero()) {
            Some((field, _)) => Err(OpenError::ZeroTimeout { field }),
            None => Ok(()),
        }
    }
}

/// The sizes that follow from a configuration.
#[derive(Debug)]
pub(super) struct Sizes {
    pub(super) host: Vec<Share>,
    /// By stripe and group; empty without a disk tier.
    pub(super) disk: Vec<Vec<Share>>,
    pub(super) core: CoreConfig,
}

impl Sizes {
    /// Works everything out, and refuses what cannot be.
    pub(super) fn of(config: &PagerConfig, device: &dyn Device) -> Result<Self, OpenError> {
        config.check_timeouts()?;
        let host = shares(&config.layout, config.host_capacity)?;
        check_staging(device.staging(), &host)?;
        let disk = match &config.disk {
            Some(disk) => {
                disk.check()?;
                let stripes = disk.stripes.iter().enumerate();
                let shares = stripes.map(|(at, stripe)| {
                    let (own, setting) = stripe.own();
                    disk_shares(&format!("disk.stripes[{at}].{setting}"), &config.layout, own)
                });
                shares.collect::<Result<_, _>>()?
            }
            None => Vec::new(),
        };
        let mut core = CoreConfig::new(core_groups(&config.layout, &host, &disk));
        core.staging_out_pieces = device.staging().out_pieces;
        core.staging_in_pieces = device.staging().in_pieces;
        core.plan_count_max = config.plan_count_max;
        core.transfer_count_max = config.transfer_count_max;
        core.lease_ns = u64::try_from(config.lease.as_nanos()).unwrap_or(u64::MAX);
        if let Some(disk) = &config.disk {
            core.write_policy = disk.write_policy;
            core.write_queue_max = disk.write_queue_max;
            let operations_max = disk_operations_max(disk, &host);
            core.disk_writes_max = operations_max;
            core.disk_reads_max = operations_max;
        }
        let random = [0, 1].map(|word| RandomState::new().hash_one(word));
        core.index_seed = IndexSeed::new(random);
        core.validate()?;
        Ok(Self { host, disk, core })
    }
}

impl Sizes {
    /// Returns the disk slots of each stripe, by group.
    pub(super) fn disk_slot_counts(&self) -> Vec<Vec<u32>> {
        let counts = |shares: &Vec<Share>| shares.iter().map(|share| share.slot_count).collect();
        self.disk.iter().map(counts).collect()
    }
}

/// Writes, and reads, that the core has under way in each stripe at most: twice the depth, so that
/// the disk never waits for the core; and no more than that all of them together hold half of the
/// smallest group's host slots, so that drives that hang leave room for stores and for each other.
fn disk_operations_max(disk: &DiskConfig, host: &[Share]) -> u32 {
    let host_slots = host.iter().map(|share| share.slot_count).min().unwrap_or_default();
    let stripe_count = u32::try_from(disk.stripes.len()).unwrap_or(u32::MAX);
    let share = host_slots / stripe_count.saturating_mul(4).max(1);
    disk.depth.saturating_mul(2).min(share).max(1)
}

/// One group's share of the host tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) slot: ByteCount,
    pub(super) slot_count: u32,
}

/// Splits `capacity` by bytes per token, so that every group holds the same tokens.
///
/// With `b` the slot bytes of a group by the tokens of its chunk, `capacity / sum(b)` tokens fit;
/// each group gets as many whole chunks of them. Rounding goes down, so the bound holds.
pub(super) fn shares(layout: &Layout, capacity: ByteCount) -> Result<Vec<Share>, OpenError> {
    shares_with("host_capacity", layout, capacity, 0)
}

/// Bytes of a store's index for one slot, rounded up: 64 of its entry, and the page's trailer.
pub(crate) const INDEX_BYTES_PER_SLOT: u64 = 66;

/// Bytes of slots for which a file system needs a byte to find them, where it is badly fragmented:
/// ext4 takes 12 bytes for an extent, here of 1 MiB, in blocks that may be half empty.
pub(crate) const BYTES_PER_EXTENT_BYTE: u64 = 1 << 15;

/// Bytes of a store besides slots and index entries: its superblock, the index's first page, the
/// directories above and what the file system needs to find the blocks, with room to spare.
pub(crate) const STORE_OVERHEAD_BYTES: u64 = 128 << 10;

/// Splits what a pager may take up of a root as [`shares`] does the host tier's, with all that a
/// store takes besides its slots counted in.
pub(super) fn disk_shares(
    field: &str,
    layout: &Layout,
    capacity: ByteCount,
) -> Result<Vec<Share>, OpenError> {
    let overhead = (layout.groups().len() as u64 + 1) * STORE_OVERHEAD_BYTES;
    let extents = capacity.get() / BYTES_PER_EXTENT_BYTE;
    let usable = ByteCount::new(capacity.get().saturating_sub(overhead + extents));
    shares_with(field, layout, usable, INDEX_BYTES_PER_SLOT).map_err(|error| match error {
        OpenError::CapacityTooSmall { field, group, needed, .. } => {
            let needed = needed.get().saturating_add(overhead);
            // As many more as leave that much once their own extents are counted.
            let extents = needed.div_ceil(BYTES_PER_EXTENT_BYTE - 1);
            let needed = ByteCount::new(needed.saturating_add(extents));
            OpenError::CapacityTooSmall { field, group, capacity, needed }
        }
        error => error,
    })
}

fn shares_with(
    field: &str,
    layout: &Layout,
    capacity: ByteCount,
    bytes_besides: u64,
) -> Result<Vec<Share>, OpenError> {
    let with_besides =
        |group| slot_bytes(group).map(|slot| ByteCount::new(slot.get() + bytes_besides));
    let slots = layout.groups().iter().map(with_besides).collect::<Result<Vec<_>, _>>()?;
    let chunk_tokens = layout.groups().iter().map(|group| u128::from(group.chunk_tokens().get()));
    // In bytes by `scale` tokens, a multiple of every group's chunk, to stay in whole numbers.
    let scale = common_unit(layout.groups().iter().map(Group::chunk_tokens))?;
    let scale = u128::from(scale);
    let per_token: u128 = chunk_tokens
        .clone()
        .zip(&slots)
        .map(|(tokens, slot)| u128::from(slot.get()) * (scale / tokens))
        .sum();
    let tokens_held = u128::from(capacity.get()) * scale / per_token;
    let mut shares = Vec::with_capacity(slots.len());
    for (group, (slot, tokens)) in layout.groups().iter().zip(slots.iter().zip(chunk_tokens)) {
        let slot_count = u32::try_from(tokens_held / tokens).unwrap_or(u32::MAX);
        if slot_count == 0 {
            let needed = smallest_capacity(layout, per_token, scale);
            let (field, group) = (field.to_owned(), group.index());
            return Err(OpenError::CapacityTooSmall { field, group, capacity, needed });
        }
        let slot = ByteCount::new(slot.get() - bytes_besides);
        shares.push(Share { slot, slot_count });
    }
    Ok(shares)
}

/// The least capacity that gives every group one slot.
fn smallest_capacity(layout: &Layout, per_token: u128, scale: u128) -> ByteCount {
    let longest = layout.groups().iter().map(|group| group.chunk_tokens().get()).max();
    let bytes = (u128::from(longest.unwrap_or(1)) * per_token).div_ceil(scale);
    ByteCount::new(u64::try_from(bytes).unwrap_or(u64::MAX))
}

/// Bytes of a slot that holds a whole chunk of the group.
fn slot_bytes(group: &Group) -> Result<ByteCount, LayoutError> {
    Packing::new(group, group.blocks_per_chunk()).map(|packing| packing.slot())
}

/// The core's view of the groups; `disk_shares` are those of each stripe. One staging piece holds
/// any chunk.
pub(super) fn core_groups(
    layout: &Layout,
    shares: &[Share],
    disk_shares: &[Vec<Share>],
) -> Vec<GroupConfig> {
    let groups = layout.groups().iter().zip(shares).enumerate();
    groups
        .map(|(at, (group, share))| GroupConfig {
            slot_count: share.slot_count,
            attention: group.attention(),
            pieces_per_chunk: 1,
            disk_slot_counts: disk_shares.iter().map(|shares| shares[at].slot_count).collect(),
        })
        .collect()
}

/// Checks that a staging piece holds a slot of every group.
pub(super) fn check_staging(staging: Staging, shares: &[Share]) -> Result<(), OpenError> {
    for (group, share) in (0..).map(GroupIndex::new).zip(shares) {
        if staging.piece < share.slot {
            let (piece, slot) = (staging.piece, share.slot);
            return Err(OpenError::PieceTooSmall { group, piece, slot });
        }
    }
    Ok(())
}

/// Why a pager cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// A timeout of nothing.
    #[error("{field}: is 0; give a time above zero")]
    ZeroTimeout {
        /// The setting.
        field: &'static str,
    },
    /// Not one chunk of a group fits.
    #[error(
        "{field}: {capacity} leaves no slot for group {group}; give at least {needed}, or \
         lower blocks_per_chunk"
    )]
    CapacityTooSmall {
        /// The setting.
        field: String,
        /// The group without a slot.
        group: GroupIndex,
        /// The capacity given.
        capacity: ByteCount,
        /// The least that gives every group a slot.
        needed: ByteCount,
    },
    /// No stripe, or more than a disk tier may have.
    #[error("disk.stripes: {stripe_count} given; give 1 to {STRIPE_COUNT_MAX}")]
    StripeCount {
        /// Stripes given.
        stripe_count: usize,
    },
    /// A pager's share of a stripe is more than all stores below its root may take up.
    #[error(
        "disk.stripes[{stripe}].share: {share} are more than its capacity of {capacity}, which is \
         that of all engines together; lower the share or raise the capacity"
    )]
    ShareTooLarge {
        /// Position of the stripe.
        stripe: usize,
        /// The share given.
        share: ByteCount,
        /// The capacity given.
        capacity: ByteCount,
    },
    /// A stripe lies where another does.
    #[error(
        "disk.stripes[{stripe}].root: {} is, holds or lies in the directory of \
         disk.stripes[{other}]; give each stripe a directory of its own",
        .root.display()
    )]
    StripeRepeated {
        /// Position of the stripe.
        stripe: usize,
        /// Position of the one before it.
        other: usize,
        /// The stripe's root as given.
        root: PathBuf,
    },
    /// The device was opened with another layout.
    #[error(
        "device: its staging pieces of {piece} do not hold a slot of {slot} of group {group}; open \
         the device with the pager's layout"
    )]
    PieceTooSmall {
        /// The group.
        group: GroupIndex,
        /// Bytes of the device's pieces.
        piece: ByteCount,
        /// Bytes of the group's slots.
        slot: ByteCount,
    },
    /// A group's chunk does not map into a slot.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The groups' chunks do not line up, so no lookup could find a boundary.
    #[error("layout: {0}")]
    Boundary(#[from] LookupError),
    /// The core cannot be built with these sizes.
    #[error(transparent)]
    Core(#[from] ConfigError),
    /// The host tier's memory is not to be had.
    #[error(transparent)]
    Slab(#[from] SlabError),
    /// The device cannot work.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The disk's back end cannot be had.
    #[error("disk: {0}")]
    Disk(#[from] DiskError),
    /// A store cannot be opened.
    #[error("disk: {0}")]
    Store(#[from] StoreError),
    /// The core did not take in what a store holds.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A thread could not be started.
    #[error("the pager's threads could not be started: {reason}")]
    Thread {
        /// The system's reason.
        reason: String,
    },
}
