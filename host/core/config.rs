//! What the core is built with: fixed counts from which every table is allocated once.

use crate::layout::{Attention, GROUP_COUNT_MAX};
use std::fmt;
use thiserror::Error;

/// The most keys that one command takes: what fits in one short hold of the caller's lock.
pub const KEY_COUNT_MAX: usize = 64;

/// The most chunks that the index can name.
const CHUNK_COUNT_MAX: u32 = 1 << 31;

/// The most plans, and the most transfers, that may be open at a time; the most writes that may
/// wait.
const RECORD_COUNT_MAX: u32 = 1 << 13;

/// The most stripes that a disk tier has.
pub const STRIPE_COUNT_MAX: usize = 16;

/// One group's share of both tiers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// Slots of the group's host region: its capacity in chunks.
    pub slot_count: u32,
    /// Whether the group attends to all tokens or to a window.
    pub attention: Attention,
    /// Staging pieces that one chunk takes on its way out or in.
    pub pieces_per_chunk: u32,
    /// Slots of the group's store in each stripe of the disk tier, at most [`STRIPE_COUNT_MAX`] of
    /// them; empty for no disk tier. Disk slots are numbered through all stripes, in their order.
    pub disk_slot_counts: Vec<u32>,
}

/// When chunks of the host tier are written to disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WritePolicy {
    /// Each chunk as soon as it is stored.
    #[default]
    Through,
    /// None until more than `high_percent` of a group's host slots are in use; then the coldest
    /// are written and leave the host tier until at most `low_percent` are.
    Back {
        /// Above this the writing begins.
        high_percent: u8,
        /// At this it ends; above 0 and below `high_percent`.
        low_percent: u8,
    },
    /// As late as it can be: the coldest are written and leave so that a sixteenth of a group's
    /// host slots, 1 to 64, stays free.
    OnEvict,
}

impl WritePolicy {
    /// Host slots in use above which chunks are written and leave, and those at which that ends;
    /// `None` when chunks are written as they come.
    pub(super) fn thresholds(self, slot_count: u32) -> Option<(u32, u32)> {
        let share = |percent: u8| {
            let slots = u64::from(slot_count) * u64::from(percent) / 100;
            u32::try_from(slots).expect("a share of a u32")
        };
        match self {
            Self::Through => None,
            Self::Back { high_percent, low_percent } => {
                Some((share(high_percent), share(low_percent)))
            }
            Self::OnEvict => {
                let used = slot_count - (slot_count / 16).clamp(1, 64);
                Some((used, used))
            }
        }
    }

    fn validate(self) -> Result<(), ConfigError> {
        match self {
            Self::Back { high_percent, low_percent }
                if low_percent == 0 || low_percent >= high_percent || high_percent > 100 =>
            {
                Err(ConfigError::WriteThresholds { high_percent, low_percent })
            }
            _ => Ok(()),
        }
    }
}

impl GroupConfig {
    /// Slots of both tiers.
    fn slots(&self) -> u64 {
        let disk: u64 = self.disk_slot_counts.iter().copied().map(u64::from).sum();
        u64::from(self.slot_count) + disk
    }
}

/// The secret of an index's hash. Its `Debug` does not tell it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct IndexSeed([u64; 2]);

impl IndexSeed {
    /// Wraps 128 random bits.
    pub const fn new(bits: [u64; 2]) -> Self {
        Self(bits)
    }

    pub(super) const fn bits(self) -> [u64; 2] {
        self.0
    }
}

impl fmt::Debug for IndexSeed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("IndexSeed(secret)")
    }
}

/// Every size of a [`Core`](super::Core), fixed at construction.
///
/// ```
/// use kvtide::core::{Core, CoreConfig, GroupConfig};
/// use kvtide::layout::Attention;
///
/// let group = GroupConfig {
///     slot_count: 1024,
///     attention: Attention::Full,
///     pieces_per_chunk: 1,
///     disk_slot_counts: Vec::new(),
/// };
/// let core = Core::new(&CoreConfig::new(vec![group]))?;
/// assert_eq!(core.slots(0.into()).map(|slots| slots.free), Some(1024));
/// # Ok::<(), kvtide::core::ConfigError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreConfig {
    /// One entry a group, 1 to 8, in the layout's order.
    pub groups: Vec<GroupConfig>,
    /// Chunks that are gone and still remembered, so that a miss can say why.
    pub history_count: u32,
    /// Plans that may be open at a time.
    pub plan_count_max: u32,
    /// Transfers (at most [`KEY_COUNT_MAX`] chunks each) that may be under way at a time.
    pub transfer_count_max: u32,
    /// Pieces of the staging ring from the device.
    pub staging_out_pieces: u32,
    /// Pieces of the staging ring to the device.
    pub staging_in_pieces: u32,
    /// Nanoseconds after which a plan that was not renewed lapses.
    pub lease_ns: u64,
    /// When chunks are written to disk.
    pub write_policy: WritePolicy,
    /// Chunks of all groups that may wait for their write; what does not fit is not written.
    pub write_queue_max: u32,
    /// Writes that may be under way at a time in one stripe, over all groups.
    pub disk_writes_max: u32,
    /// Reads that may be under way at a time in one stripe, over all groups.
    pub disk_reads_max: u32,
    /// Secret that scatters keys over the index, so that nobody can aim at one bucket.
    pub index_seed: IndexSeed,
}

impl CoreConfig {
    /// Fills in every size but the groups': an eighth of the slots as history, 1,024 plans and
    /// transfers, staging for 256 chunks of the largest group each way, leases of 30 s; each chunk
    /// is written as it is stored, 4,096 may wait for that, 32 writes and 64 reads are under way.
    ///
    /// The index seed is fixed; a process that serves several tenants sets its own.
    pub fn new(groups: Vec<GroupConfig>) -> Self {
        let slots: u64 = groups.iter().map(GroupConfig::slots).sum();
        let pieces = groups.iter().map(|group| group.pieces_per_chunk).max().unwrap_or(1);
        let staging_pieces = pieces.saturating_mul(256);
        Self {
            groups,
            history_count: u32::try_from(slots / 8 + 64).unwrap_or(u32::MAX),
            plan_count_max: 1024,
            transfer_count_max: 1024,
            staging_out_pieces: staging_pieces,
            staging_in_pieces: staging_pieces,
            lease_ns: 30_000_000_000,
            write_policy: WritePolicy::Through,
            write_queue_max: 4096,
            disk_writes_max: 32,
            disk_reads_max: 64,
            index_seed: IndexSeed::new([0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344]),
        }
    }

    /// Chunks that the index names at most: one a slot, and the history.
    pub(crate) fn chunk_count(&self) -> Result<u32, ConfigError> {
        let slots: u64 = self.groups.iter().map(GroupConfig::slots).sum();
        let chunk_count = slots + u64::from(self.history_count);
        match u32::try_from(chunk_count) {
            Ok(count) if count <= CHUNK_COUNT_MAX => Ok(count),
            _ => Err(ConfigError::ChunkCount { chunk_count }),
        }
    }

    /// Checks every value.
    ///
    /// # Errors
    ///
    /// Names the first value that cannot work; see [`ConfigError`].
    pub fn validate(&self) -> Result<(), ConfigError> {
        let group_count = self.groups.len();
        if group_count == 0 || group_count > GROUP_COUNT_MAX {
            return Err(ConfigError::GroupCount { group_count });
        }
        for (group, config) in self.groups.iter().enumerate() {
            self.validate_group(group, config)?;
        }
        self.write_policy.validate()?;
        let counts = [
            ("history_count", self.history_count),
            ("plan_count_max", self.plan_count_max),
            ("transfer_count_max", self.transfer_count_max),
            ("write_queue_max", self.write_queue_max),
            ("disk_writes_max", self.disk_writes_max),
            ("disk_reads_max", self.disk_reads_max),
        ];
        for (field, value) in counts {
            if value == 0 {
                return Err(ConfigError::Zero { field });
            }
            if field != "history_count" && value > RECORD_COUNT_MAX {
                return Err(ConfigError::TooMany { field, value });
            }
        }
        if self.lease_ns == 0 {
            return Err(ConfigError::Zero { field: "lease_ns" });
        }
        self.chunk_count().map(|_| ())
    }

    fn validate_group(&self, group: usize, config: &GroupConfig) -> Result<(), ConfigError> {
        if config.slot_count == 0 {
            return Err(ConfigError::GroupZero { group, field: "slot_count" });
        }
        if config.pieces_per_chunk == 0 {
            return Err(ConfigError::GroupZero { group, field: "pieces_per_chunk" });
        }
        let stripe_count = config.disk_slot_counts.len();
        if stripe_count > STRIPE_COUNT_MAX {
            return Err(ConfigError::StripeCount { group, stripe_count });
        }
        if let Some(stripe) = config.disk_slot_counts.iter().position(|&count| count == 0) {
            return Err(ConfigError::StripeZero { group, stripe });
        }
        let rings = [
            ("staging_out_pieces", self.staging_out_pieces),
            ("staging_in_pieces", self.staging_in_pieces),
        ];
        for (ring, pieces) in rings {
            if pieces < config.pieces_per_chunk {
                let pieces_per_chunk = config.pieces_per_chunk;
                return Err(ConfigError::Staging { group, ring, pieces, pieces_per_chunk });
            }
        }
        Ok(())
    }
}

/// Why a [`CoreConfig`] cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// No group, or more than a layout may have.
    #[error("groups: {group_count} groups given; a core takes 1 to {GROUP_COUNT_MAX}")]
    GroupCount {
        /// Groups given.
        group_count: usize,
    },
    /// A group's size is 0.
    #[error("groups[{group}].{field}: is 0; give at least 1")]
    GroupZero {
        /// Position of the group.
        group: usize,
        /// The field that is 0.
        field: &'static str,
    },
    /// More stripes than a disk tier may have.
    #[error(
        "groups[{group}].disk_slot_counts: {stripe_count} stripes given; a disk tier has at most \
         {STRIPE_COUNT_MAX}"
    )]
    StripeCount {
        /// Position of the group.
        group: usize,
        /// Stripes given.
        stripe_count: usize,
    },
    /// A stripe without slots.
    #[error("groups[{group}].disk_slot_counts[{stripe}]: is 0; give at least 1, or leave it out")]
    StripeZero {
        /// Position of the group.
        group: usize,
        /// Position of the stripe.
        stripe: usize,
    },
    /// A size is 0.
    #[error("{field}: is 0; give at least 1")]
    Zero {
        /// The field that is 0.
        field: &'static str,
    },
    /// More plans, transfers, or writes than a core keeps records for.
    #[error("{field}: is {value}; give at most {RECORD_COUNT_MAX}")]
    TooMany {
        /// The field.
        field: &'static str,
        /// The value given.
        value: u32,
    },
    /// A staging ring cannot hold one chunk.
    #[error(
        "{ring}: {pieces} pieces cannot hold one chunk of group {group}, which takes \
         {pieces_per_chunk}; give at least {pieces_per_chunk}"
    )]
    Staging {
        /// Position of the group.
        group: usize,
        /// The ring's field.
        ring: &'static str,
        /// Pieces given.
        pieces: u32,
        /// Pieces that one chunk takes.
        pieces_per_chunk: u32,
    },
    /// The thresholds of [`WritePolicy::Back`] do not leave anything to write.
    #[error(
        "write_policy: high_percent {high_percent} and low_percent {low_percent}; give \
         0 < low_percent < high_percent <= 100"
    )]
    WriteThresholds {
        /// The upper threshold given.
        high_percent: u8,
        /// The lower threshold given.
        low_percent: u8,
    },
    /// More chunks than the index can name.
    #[error(
        "slot_count, disk_slot_counts and history_count: {chunk_count} chunks in all; the index \
         names at most {CHUNK_COUNT_MAX}: lower the capacity, or raise blocks_per_chunk"
    )]
    ChunkCount {
        /// Slots of all groups and the history.
        chunk_count: u64,
    },
}
