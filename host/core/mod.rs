//! The sans-I/O core: index, slots, pins, plans, eviction and transfers as one deterministic
//! machine.
//!
//! ```text
//!   commands                      +----------------------------+      actions
//!   store, load, lookup, cancel,  |  KeyIndex  -> ChunkTable   |      Start(pack | out-link |
//!   drop, flush, adopt, clear,    |  SlotPool and Policy a     | ---> in-link | unpack),
//!   erase, tick(now)  ----------> |  group and tier,           |      Disk(write | read), Wake
//!                                 |  PlanTable, TransferTable, |
//!   completions  ---------------> |  WriteQueue                |
//!                                 +----------------------------+
//! ```
//!
//! There is no thread, clock, lock or system call in here. The caller holds its lock for one
//! command, takes the actions, unlocks, and runs them; time comes in with the commands that need
//! it. One sequence of calls replays a run exactly.
//!
//! Invariants, checked by [`Core::audit`]:
//!
//! - used + free + unscanned = capacity in every group, tier and stripe; each used slot has one
//!   owner (invariants 3 and 5);
//! - the pins of a chunk are those of plans and loads, the readers of a slot the hops that use it;
//!   a pinned chunk's last copy and a copy in use are not ranked for eviction (invariant 3);
//! - in a full group a chunk leaves by eviction only when it has no descendant (invariant 9);
//! - hits of both tiers + misses = keys probed (invariant 5);
//! - no chunk is queued for its write before its unwritten parent.
//!
//! All tables are allocated by [`Core::new`]; no later call allocates, except that the buffer of
//! actions grows until it fits the caller's habits. A command does work for at most 64 keys.

mod action;
mod audit;
mod chunk;
mod clean;
mod clear;
mod config;
mod counters;
mod disk;
mod evict;
mod index;
mod load;
mod lookup;
mod plan;
mod rank;
mod read;
mod recover;
mod refused;
mod slot;
mod store;
mod sweep;
mod tier;
mod transfer;
mod write;

pub use action::{
    Action, ChunkId, Completion, DiskCompletion, DiskFailure, DiskHop, DiskRequest, HopFailure,
    HopRequest, Lineage,
};
pub use audit::Violation;
pub use config::{
    ConfigError, CoreConfig, GroupConfig, IndexSeed, KEY_COUNT_MAX, STRIPE_COUNT_MAX, WritePolicy,
};
pub use counters::Counters;
pub use disk::{StorePoint, SyncMark};
pub use evict::Room;
pub use load::LoadRequest;
pub(crate) use lookup::common_unit;
pub use lookup::{GroupHits, GroupKeys, Lookup, LookupError, PrefixHit};
pub use plan::{PlanId, Probe};
pub use recover::FoundChunk;
pub use refused::{MissReason, Refused};
pub use slot::SlotCounts;
pub use store::StoreRequest;
pub use transfer::{Failure, Hop, Stage, TransferId};

use crate::links::List;
use crate::policy::{Lru, Policy};
use crate::units::{ByteCount, GroupIndex, Timestamp};
use chunk::{ChunkIndex, ChunkTable};
use index::KeyIndex;
use plan::PlanTable;
use read::Reads;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use sweep::Sweep;
use tier::{GroupState, Tier, TierState};
use transfer::TransferTable;
use write::WriteQueue;

/// The paging core of one pager. See the [module's documentation](self).
#[derive(Debug)]
pub struct Core {
    index: KeyIndex,
    chunks: ChunkTable,
    groups: Vec<GroupState>,
    plans: PlanTable,
    transfers: TransferTable,
    transfer_count_max: u32,
    /// Transfers with queued chunks, by direction, first come first served.
    waiting_out: List,
    waiting_in: List,
    /// Free staging pieces, by direction.
    staging_out: u32,
    staging_in: u32,
    /// Sizes of the staging rings.
    staging_out_pieces: u32,
    staging_in_pieces: u32,
    lease_ns: u64,
    /// Chunks that are to be written, and writes under way.
    write_queue: WriteQueue,
    disk_writes_max: u32,
    reads: Reads,
    disk_reads_max: u32,
    /// Cleaning ended its last step before its work did.
    is_cleaning_cut_short: bool,
    /// What is written now is written in this epoch; what was written up to the other is durable.
    sync_epoch: u64,
    durable_epoch: u64,
    /// Clears and erasures of tenants, modulo 256, and how far their sweep has come.
    epoch: u8,
    sweep: Sweep,
    /// What time it was at the last tick.
    latest_tick: Timestamp,
    /// The chunk that a store under way builds on.
    protected: ChunkIndex,
    actions: Vec<Action>,
    counters: Counters,
    is_poisoned: bool,
}

impl Core {
    /// Makes a core with every table allocated and every slot free, evicting the least recently
    /// used chunk.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] when a size cannot work.
    pub fn new(config: &CoreConfig) -> Result<Self, ConfigError> {
        Self::with_policy(config, |slot_count| Box::new(Lru::new(slot_count)))
    }

    /// Makes a core whose groups are ranked by policies of the caller's making; `make_policy` gets
    /// a group's slot count.
    ///
    /// # Errors
    ///
    /// [`ConfigError`] when a size cannot work.
    pub fn with_policy(
        config: &CoreConfig,
        make_policy: impl Fn(u32) -> Box<dyn Policy>,
    ) -> Result<Self, ConfigError> {
        config.validate()?;
        let chunk_count = config.chunk_count()?;
        let groups = config
            .groups
            .iter()
            .map(|group| GroupState::new(group, config.write_policy, &make_policy));
        Ok(Self {
            index: KeyIndex::new(chunk_count, config.index_seed),
            chunks: ChunkTable::new(chunk_count),
            groups: groups.collect(),
            plans: PlanTable::new(config.plan_count_max),
            transfers: TransferTable::new(config.transfer_count_max),
            transfer_count_max: config.transfer_count_max,
            waiting_out: List::EMPTY,
            waiting_in: List::EMPTY,
            staging_out: config.staging_out_pieces,
            staging_in: config.staging_in_pieces,
            staging_out_pieces: config.staging_out_pieces,
            staging_in_pieces: config.staging_in_pieces,
            lease_ns: config.lease_ns,
            write_queue: WriteQueue::new(config.write_queue_max),
            disk_writes_max: config.disk_writes_max,
            reads: Reads::NONE,
            disk_reads_max: config.disk_reads_max,
            is_cleaning_cut_short: false,
            sync_epoch: 1,
            durable_epoch: 0,
            epoch: 0,
            sweep: Sweep::finished(),
            latest_tick: Timestamp::new(0),
            protected: ChunkIndex::NONE,
            actions: Vec::with_capacity(4 * KEY_COUNT_MAX),
            counters: Counters::default(),
            is_poisoned: false,
        })
    }

    /// Moves all pending actions to the end of `into`, in the order they arose.
    pub fn take_actions(&mut self, into: &mut Vec<Action>) {
        into.append(&mut self.actions);
    }

    /// Lets time pass: gives up queued work past its deadline, ends lapsed leases, and does one
    /// step of what dropped plans left behind. Returns when the next call is due at the latest,
    /// as far as is known now: the deadline of a later store or load can be sooner. It is `now`
    /// itself when a further step has work.
    ///
    /// # Errors
    ///
    /// [`Refused::Poisoned`].
    pub fn tick(&mut self, now: Timestamp) -> Result<Timestamp, Refused> {
        self.guarded(|core| {
            let next_deadline = core.expire(now);
            core.lapse_plans(now);
            core.release_dropped();
            core.sweep_some();
            core.lose_disk_copies();
            core.retry_reads();
            core.launch();
            let next_lapse = core.plans.next_lapse().map_or(Timestamp::NEVER, |(_, end)| end);
            let has_work = core.has_backlog() || next_lapse <= now;
            Ok(if has_work { now } else { next_deadline.min(next_lapse) })
        })
    }

    /// Whether [`Core::tick`] has pins to release, slots to go through or hops to launch right now.
    pub fn has_backlog(&self) -> bool {
        self.plans.is_dropping()
            || self.can_launch()
            || self.can_write()
            || self.can_read()
            || self.can_clean()
            || self.is_losing()
            || self.is_sweeping()
    }

    /// Returns used and free slots of a group; `None` when there is no such group.
    pub fn slots(&self, group: GroupIndex) -> Option<SlotCounts> {
        let group = self.groups.get(usize::from(group.get()))?;
        Some(group.tier(Tier::Host).slots.counts())
    }

    /// Returns the totals since the core was made.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Whether an internal invariant was found broken. A poisoned core refuses every command:
    /// all lookups miss, and the engine recomputes.
    pub fn is_poisoned(&self) -> bool {
        self.is_poisoned
    }

    /// Refuses every further command, because whoever runs the actions has broken off.
    pub(crate) fn poison(&mut self) {
        self.is_poisoned = true;
    }

    /// Returns the bytes of all tables, as allocated by [`Core::new`].
    pub fn memory(&self) -> ByteCount {
        let per_chunk = self.chunks.records().len() * ChunkTable::CHUNK_BYTES;
        let tiers = self.groups.iter().flat_map(|group| &group.tiers);
        let per_slot: usize = tiers.map(TierState::bytes).sum();
        let syncs = self.groups.iter().map(|group| size_of_val(&*group.written_in));
        let per_slot = per_slot + syncs.sum::<usize>();
        let bytes = self.index.bytes() + per_chunk + per_slot;
        let bytes = bytes + self.plans.bytes() + self.transfers.bytes() + self.write_queue.bytes();
        ByteCount::new(bytes as u64)
    }

    fn group_position(&self, group: GroupIndex) -> Result<usize, Refused> {
        let at = usize::from(group.get());
        let group_count = self.groups.len();
        if at < group_count { Ok(at) } else { Err(Refused::NoSuchGroup { group, group_count }) }
    }

    /// Runs a command. A panic inside it is a broken invariant: it poisons the core, and goes on
    /// unwinding only in builds with debug assertions, where tests should see it.
    fn guarded<T>(
        &mut self,
        command: impl FnOnce(&mut Self) -> Result<T, Refused>,
    ) -> Result<T, Refused> {
        if self.is_poisoned {
            return Err(Refused::Poisoned);
        }
        self.counters.steps += 1;
        match catch_unwind(AssertUnwindSafe(|| command(self))) {
            Ok(result) => result,
            Err(panic) => {
                self.is_poisoned = true;
                if cfg!(debug_assertions) {
                    resume_unwind(panic);
                }
                Err(Refused::Poisoned)
            }
        }
    }

    /// Runs a command that has nothing to refuse but a poisoned core, which has nothing to do.
    fn run_guarded(&mut self, command: impl FnOnce(&mut Self)) {
        let ran = self.guarded(|core| {
            command(core);
            Ok(())
        });
        debug_assert!(matches!(ran, Ok(()) | Err(Refused::Poisoned)));
    }
}
