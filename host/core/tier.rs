//! The two tiers in which a chunk can have a copy, and what one group keeps of each.

use super::chunk::ChunkIndex;
use super::clean::Flush;
use super::config::{GroupConfig, WritePolicy};
use super::slot::SlotPool;
use crate::layout::Attention;
use crate::links::List;
use crate::policy::Policy;
use crate::units::SlotIndex;

/// A tier whose slots the core hands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tier {
    /// Pinned host memory.
    Host,
    /// The store on disk.
    Disk,
}

impl Tier {
    /// Both, in the order of their numbers.
    pub(super) const BOTH: [Self; 2] = [Self::Host, Self::Disk];

    /// The tier's place in arrays of one entry a tier.
    pub(super) const fn number(self) -> usize {
        match self {
            Self::Host => 0,
            Self::Disk => 1,
        }
    }

    pub(super) const fn other(self) -> Self {
        match self {
            Self::Host => Self::Disk,
            Self::Disk => Self::Host,
        }
    }
}

/// What one group keeps of one stripe of its disk tier, besides the slots.
#[derive(Debug)]
pub(super) struct StripeState {
    /// Slots that recovery could not read: unscanned for good.
    pub(super) unreadable: u32,
    /// What was written in later epochs never becomes durable: writing was stopped, maybe because
    /// its sync failed.
    pub(super) durable_until: u64,
    /// Nothing is read any more either; its slots before `lost_until` are given up.
    pub(super) is_lost: bool,
    pub(super) lost_until: u32,
}

impl StripeState {
    fn new(first: u32) -> Self {
        Self { unreadable: 0, durable_until: u64::MAX, is_lost: false, lost_until: first }
    }
}

/// One group's slots in one tier and the order in which they are given up.
#[derive(Debug)]
pub(super) struct TierState {
    pub(super) slots: SlotPool,
    pub(super) policy: Box<dyn Policy>,
    /// Where the clearing of orphans goes on; NONE starts at the front of `orphaned`.
    pub(super) orphan_cursor: ChunkIndex,
    /// Slots from here on may hold chunks from before the last clear.
    pub(super) swept_until: u32,
}

impl TierState {
    pub(super) fn new(slots: SlotPool, policy: Box<dyn Policy>) -> Self {
        let swept_until = slots.capacity();
        Self { slots, policy, orphan_cursor: ChunkIndex::NONE, swept_until }
    }

    /// Bytes of the slots' records and of the policy.
    pub(super) fn bytes(&self) -> usize {
        self.slots.capacity() as usize * (SlotPool::SLOT_BYTES + self.policy.slot_bytes())
    }
}

/// One group's tiers and family.
#[derive(Debug)]
pub(super) struct GroupState {
    /// By [`Tier::number`]; without a disk tier that one has no slots and no stripes.
    pub(super) tiers: [TierState; 2],
    pub(super) attention: Attention,
    pub(super) pieces_per_chunk: u32,
    /// Gone or draining chunks that have children; the next to be cleared in front.
    pub(super) orphaned: List,
    /// Loads of which some positions wait for a read, first come first served.
    pub(super) waiting_read: List,
    /// The sync epoch in which each disk slot was written.
    pub(super) written_in: Box<[u64]>,
    /// By stripe of the disk tier.
    pub(super) stripes: Vec<StripeState>,
    /// Host slots in use above which cleaning begins, and at which it ends; none when chunks are
    /// written as they come.
    pub(super) thresholds: Option<(u32, u32)>,
    pub(super) is_cleaning: bool,
    pub(super) flush: Flush,
    /// The host slot at which the next search for unwritten chunks begins.
    pub(super) unwritten_cursor: u32,
    /// Host slots with the only readable copy of a pinned chunk.
    pub(super) sole_pinned: u32,
}

impl GroupState {
    pub(super) fn new(
        config: &GroupConfig,
        write_policy: WritePolicy,
        make_policy: impl Fn(u32) -> Box<dyn Policy>,
    ) -> Self {
        let slot_count = config.slot_count;
        let host = TierState::new(SlotPool::new(slot_count), make_policy(slot_count));
        let disk_slots = SlotPool::unscanned(&config.disk_slot_counts);
        let disk_slot_count = disk_slots.capacity();
        let firsts = (0..disk_slots.stripe_count()).map(|stripe| disk_slots.stripe(stripe).start);
        let stripes = firsts.map(StripeState::new).collect();
        let disk = TierState::new(disk_slots, make_policy(disk_slot_count));
        Self {
            tiers: [host, disk],
            attention: config.attention,
            pieces_per_chunk: config.pieces_per_chunk,
            orphaned: List::EMPTY,
            waiting_read: List::EMPTY,
            written_in: vec![0; disk_slot_count as usize].into_boxed_slice(),
            stripes,
            thresholds: write_policy.thresholds(slot_count),
            is_cleaning: false,
            flush: Flush::finished(slot_count),
            unwritten_cursor: 0,
            sole_pinned: 0,
        }
    }

    pub(super) fn tier(&self, tier: Tier) -> &TierState {
        &self.tiers[tier.number()]
    }

    pub(super) fn tier_mut(&mut self, tier: Tier) -> &mut TierState {
        &mut self.tiers[tier.number()]
    }

    /// The stripe that a disk slot is of.
    pub(super) fn stripe_of(&self, slot: SlotIndex) -> &StripeState {
        &self.stripes[self.tier(Tier::Disk).slots.stripe_of(slot)]
    }

    /// Whether the stripe of a disk slot was given up.
    pub(super) fn is_lost(&self, slot: SlotIndex) -> bool {
        self.stripe_of(slot).is_lost
    }

    /// Whether anything can be on disk.
    pub(super) fn has_disk(&self) -> bool {
        self.stripes.iter().any(|stripe| !stripe.is_lost)
    }

    /// Whether eviction must spare a chunk that has descendants.
    pub(super) fn spares_ancestors(&self) -> bool {
        matches!(self.attention, Attention::Full)
    }

    /// Starts the clearing of orphans afresh, because a lost parent came back.
    pub(super) fn reset_orphan_cursors(&mut self) {
        for tier in &mut self.tiers {
            tier.orphan_cursor = ChunkIndex::NONE;
        }
    }

    /// Starts the clearing of orphans afresh where it stopped at `index`, which leaves.
    pub(super) fn skip_orphan(&mut self, index: ChunkIndex) {
        for tier in &mut self.tiers {
            if tier.orphan_cursor == index {
                tier.orphan_cursor = ChunkIndex::NONE;
            }
        }
    }
}
