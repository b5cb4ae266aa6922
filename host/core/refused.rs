//! Why the core refuses a command, and why a lookup misses.

use super::KEY_COUNT_MAX;
use crate::key::Key;
use crate::units::{GroupIndex, SlotIndex};
use thiserror::Error;

/// Why a command as a whole was refused. Nothing was changed by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refused {
    /// The group is not in the layout.
    #[error("group {group}: the layout has {group_count} groups, numbered from 0")]
    NoSuchGroup {
        /// The group asked for.
        group: GroupIndex,
        /// Groups that there are.
        group_count: usize,
    },
    /// No key, or more than one command takes.
    #[error("{key_count} keys in one command; give 1 to {KEY_COUNT_MAX}")]
    KeyCount {
        /// Keys given.
        key_count: usize,
    },
    /// Every plan is open.
    #[error("all {plan_count_max} plans are open; drop some, or raise plan_count_max")]
    PlansExhausted {
        /// The configured number of plans.
        plan_count_max: usize,
    },
    /// Every transfer is under way or held by its owner.
    #[error(
        "all {transfer_count_max} transfers are in use; wait for some, or raise transfer_count_max"
    )]
    TransfersExhausted {
        /// The configured number of transfers.
        transfer_count_max: usize,
    },
    /// The plan was dropped, or its lease ended: its chunks may be gone.
    #[error("the plan was dropped or its lease has ended; look the prefix up again")]
    PlanLapsed,
    /// The group's disk tier has no such slots.
    #[error(
        "group {group}: {count} disk slots from {first} on; it has {disk_slot_count}, numbered \
         from 0"
    )]
    NoSuchDiskSlot {
        /// The group.
        group: GroupIndex,
        /// The first slot given.
        first: SlotIndex,
        /// Slots given.
        count: u32,
        /// Disk slots that there are.
        disk_slot_count: u32,
    },
    /// An internal invariant was found broken; nothing is served any more.
    #[error("the core is poisoned: an internal invariant was found broken; restart the pager")]
    Poisoned,
}

impl Refused {
    pub(super) fn check_keys(keys: &[Key]) -> Result<(), Self> {
        let key_count = keys.len();
        if key_count == 0 || key_count > KEY_COUNT_MAX {
            return Err(Self::KeyCount { key_count });
        }
        Ok(())
    }
}

/// Why a key is not resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MissReason {
    /// It was never stored, or so long ago that it is forgotten.
    NeverStored,
    /// It is being stored right now; a later lookup finds it.
    Filling,
    /// It was evicted to make room.
    Evicted,
    /// Its fill failed, or its bytes did not match their checksum.
    Lost,
    /// Its store was refused or given up.
    Refused,
    /// It is stored under another parent: the keys given are not one chain.
    ForeignParent,
    /// It is in host memory alone, and so much of that is pinned already that no slot would be left
    /// for what is on disk.
    Pinned,
    /// It was cleared or erased since it was stored.
    Cleared,
}
