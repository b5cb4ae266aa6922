//! What a pager is opened with, and how the host tier's capacity is shared among the groups.

use crate::core::{ConfigError, GroupConfig, LookupError, common_unit};
use crate::device::{DeviceError, Staging};
use crate::layout::{Group, Layout, LayoutError, Packing};
use crate::mem::SlabError;
use crate::units::{ByteCount, GroupIndex};
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
    let slots = layout.groups().iter().map(slot_bytes).collect::<Result<Vec<_>, _>>()?;
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
            return Err(OpenError::CapacityTooSmall { group: group.index(), capacity, needed });
        }
        shares.push(Share { slot: *slot, slot_count });
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

/// The core's view of the groups. One staging piece holds any chunk.
pub(super) fn core_groups(layout: &Layout, shares: &[Share]) -> Vec<GroupConfig> {
    let groups = layout.groups().iter().zip(shares);
    groups
        .map(|(group, share)| GroupConfig {
            slot_count: share.slot_count,
            attention: group.attention(),
            pieces_per_chunk: 1,
            disk_slot_count: 0,
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
        "host_capacity: {capacity} leaves no slot for group {group}; give at least {needed}, or \
         lower blocks_per_chunk"
    )]
    CapacityTooSmall {
        /// The group without a slot.
        group: GroupIndex,
        /// The capacity given.
        capacity: ByteCount,
        /// The least that gives every group a slot.
        needed: ByteCount,
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
    /// The device thread could not be started.
    #[error("the device thread could not be started: {reason}")]
    Thread {
        /// The system's reason.
        reason: String,
    },
}
