//! The pager: the public face of kvtide, and the owner of its threads.
//!
//! An engine opens one pager for a device cache. It looks prompts up, stores the chunks it has
//! computed, and loads those that a lookup found. Every call is synchronous and takes
//! microseconds: it holds the core's lock briefly, else enqueues and wakes; bytes move on the
//! device and its thread. Tickets say what became of a store or load.
//!
//! Invariants: no call waits for I/O or the device, except [`Ticket::wait`] and its kin and
//! [`Pager::close`]; a user's error is an error of the call, never a panic; a failure of a device
//! or a chunk is a stage of a ticket, and so a miss; after a [`Pager::close`] that drained nothing
//! of the pager touches the engine's memory.

mod clock;
mod config;
mod device_thread;
mod disk;
mod erase;
pub(crate) mod metrics;
mod plan;
mod shared;
#[cfg(feature = "testing")]
mod simulated;
mod ticket;
mod transfer;

#[cfg(test)]
mod tests;

#[cfg(feature = "replay")]
pub(crate) use config::{BYTES_PER_EXTENT_BYTE, INDEX_BYTES_PER_SLOT, STORE_OVERHEAD_BYTES};
pub use config::{OpenError, PagerConfig};
pub use disk::{
    DEFAULT_SCRUB_BUDGET, DEFAULT_SYNC_INTERVAL, DiskCommandError, DiskConfig, DiskHealth,
    DiskStripe, ProgressListener, ScrubTotals, Unreached,
};
pub use erase::Erasure;
pub use metrics::{HopTotals, Hops, Latency};
pub use plan::Plan;
#[cfg(feature = "testing")]
pub use simulated::{DiskAnswer, SimulatedPager};
pub use ticket::{Ticket, TicketReport};
pub use transfer::{LoadChunks, RequestError, StoreChunks};

use crate::capability::{CapabilityReport, Downgrade};
use crate::core::{Core, Counters, GroupKeys, Lookup, LookupError, SlotCounts, StorePoint};
use crate::device::{Device, DeviceError};
use crate::io::{Disk, open_disk};
use crate::key::Key;
use crate::layout::Packing;
use crate::mem::Slab;
use crate::store::ScanProgress;
use crate::units::GroupIndex;
use clock::Clock;
use config::Sizes;
use device_thread::DeviceThread;
use disk::{DiskCommand, DiskState, DiskThread, OpenedTier};
use shared::{Setup, Shared, lock};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// Whether a pager serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Health {
    /// It does.
    Serving,
    /// The device did not end an operation in time. Lookups still answer; every transfer fails. No
    /// operation begins to touch a block any more, but over the engine's own memory one that had
    /// begun may go on until the device is dropped.
    DeviceLost,
    /// An internal invariant was found broken. Every ticket under way has failed, every later call
    /// is refused, and the device is given up on as if it were lost.
    Poisoned,
}

/// How a pager closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloseReport {
    /// Whether everything under way ended in time. Otherwise the device was given up on, and the
    /// memory that it may still touch was left allocated on purpose.
    pub is_drained: bool,
    /// Whether the disk tier was closed cleanly, so that the next open is warm at once; true
    /// without one. Otherwise the next open scans it.
    pub is_disk_clean: bool,
}

/// Pages the KV of one device cache. See the [module's documentation](self).
#[derive(Debug)]
pub struct Pager {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    disk_thread: Option<RunningDisk>,
    close_timeout: Duration,
}

/// The disk thread. What it says at its end comes before the system is done with it.
#[derive(Debug)]
struct RunningDisk {
    thread: JoinHandle<()>,
    /// Whether it left nothing behind; closed when it panicked.
    ended: Mutex<Receiver<bool>>,
}

impl Pager {
    /// Opens a pager for the cache that `device` was opened with.
    ///
    /// Allocates and touches all host memory; takes about a second for each few gigabytes.
    ///
    /// # Errors
    ///
    /// [`OpenError`] names the setting that cannot work, or what is not to be had.
    pub fn open(config: &PagerConfig, device: Arc<dyn Device>) -> Result<Self, OpenError> {
        let disk = match &config.disk {
            Some(disk) => Some(open_disk(&disk.disk_options())?),
            None => None,
        };
        let (common, tier) = assemble(config, device, disk, Clock::of_the_machine())?;
        Self::start(config, common, tier)
    }

    /// Opens a pager whose disk tier lies on `disk`, in place of this machine's: for tests.
    ///
    /// # Errors
    ///
    /// As [`Pager::open`].
    #[cfg(feature = "testing")]
    pub fn open_with_disk(
        config: &PagerConfig,
        device: Arc<dyn Device>,
        disk: Box<dyn Disk>,
    ) -> Result<Self, OpenError> {
        let disk = config.disk.is_some().then_some(disk);
        let (common, tier) = assemble(config, device, disk, Clock::of_the_machine())?;
        Self::start(config, common, tier)
    }

    /// Starts the threads.
    fn start(
        config: &PagerConfig,
        common: Arc<Shared>,
        tier: Option<OpenedTier>,
    ) -> Result<Self, OpenError> {
        let refused = |error: std::io::Error| OpenError::Thread { reason: error.to_string() };
        let mut pager = Self {
            shared: Arc::clone(&common),
            thread: None,
            disk_thread: None,
            close_timeout: config.close_timeout,
        };
        let mut thread = DeviceThread::new(Arc::clone(&common));
        let thread = Builder::new().name("kvtide-device".to_owned()).spawn(move || thread.run());
        pager.thread = Some(thread.map_err(|error| {
            common.setup.device.release();
            refused(error)
        })?);
        if let (Some(tier), Some(settings)) = (tier, &config.disk) {
            let thread = DiskThread::new(common, tier, settings);
            let (sender, ended) = channel();
            let run = move || {
                // Whoever closes waits for it.
                let _unheard = sender.send(thread.run());
            };
            let thread = Builder::new().name("kvtide-disk".to_owned()).spawn(run);
            let (thread, ended) = (thread.map_err(refused)?, Mutex::new(ended));
            pager.disk_thread = Some(RunningDisk { thread, ended });
        }
        Ok(pager)
    }

    /// Looks a prompt up: `keys` holds the keys of all its full chunks, root first, one list a
    /// group in the layout's order.
    ///
    /// Holds the lock for at most 64 keys at a time.
    ///
    /// # Errors
    ///
    /// [`RequestError::GroupCount`] unless there is a list for each group,
    /// [`RequestError::Lookup`], and those of every call.
    pub fn lookup(&self, keys: &[&[Key]]) -> Result<Plan, RequestError> {
        self.check_open()?;
        let groups = self.shared.setup.layout.groups();
        if keys.len() != groups.len() {
            let (given, group_count) = (keys.len(), groups.len());
            return Err(RequestError::GroupCount { given, group_count });
        }
        let group_keys: Vec<GroupKeys<'_>> = groups
            .iter()
            .zip(keys)
            .map(|(group, keys)| GroupKeys {
                keys,
                chunk_tokens: group.chunk_tokens(),
                attention: group.attention(),
            })
            .collect();
        let now = self.shared.now();
        let mut lookup = self.shared.command(|core| Lookup::begin(core, &group_keys, now))?;
        loop {
            match self.shared.command(|core| lookup.step(core)) {
                Ok(Some(hit)) => return Ok(Plan::new(hit, Arc::clone(&self.shared))),
                Ok(None) => {}
                Err(refused) => {
                    self.shared.command(|core| core.drop_plan(lookup.plan()));
                    return Err(LookupError::from(refused).into());
                }
            }
        }
    }

    /// Returns whether the pager serves.
    pub fn health(&self) -> Health {
        if self.shared.command(|core| core.is_poisoned()) {
            Health::Poisoned
        } else if self.shared.is_device_lost() {
            Health::DeviceLost
        } else {
            Health::Serving
        }
    }

    /// Returns the core's totals since the pager was opened.
    pub fn counters(&self) -> Counters {
        self.shared.command(|core| core.counters())
    }

    /// Returns what each hop moved since the pager was opened, and how fast.
    pub fn hops(&self) -> Hops {
        self.shared.meters().totals()
    }

    /// Returns used and free slots of a group; `None` when there is no such group.
    pub fn slots(&self, group: GroupIndex) -> Option<SlotCounts> {
        self.shared.command(|core| core.slots(group))
    }

    /// Returns the back ends in use, and what on this machine works less well than it could.
    pub fn capabilities(&self) -> CapabilityReport {
        let setup = &self.shared.setup;
        let mut downgrades: Vec<Downgrade> = Vec::new();
        let of_slabs = setup.slabs.iter().filter_map(|slab| slab.downgrade());
        for downgrade in of_slabs.chain(&setup.downgrades) {
            if !downgrades.contains(downgrade) {
                downgrades.push(downgrade.clone());
            }
        }
        CapabilityReport { device: setup.device.name(), disk: setup.disk_name, downgrades }
    }

    /// Returns used and free disk slots of a group; `None` when there is no such group.
    pub fn disk_slots(&self, group: GroupIndex) -> Option<SlotCounts> {
        self.shared.command(|core| core.disk_slots(group))
    }

    /// Returns how the disk tier is; `None` without one.
    pub fn disk_health(&self) -> Option<DiskHealth> {
        self.shared.disk().map(DiskState::health)
    }

    /// Returns what reading the headers of stores that were not closed has found so far, over all
    /// groups and stripes; all 0 when every store was closed, or without a disk tier.
    ///
    /// Slots that were `unreadable` or `refused` may have held chunks that are misses now.
    pub fn recovered(&self) -> ScanProgress {
        self.shared.disk().map(DiskState::recovered).unwrap_or_default()
    }

    /// Returns what scrubbing found in the disk tier so far; all 0 without one.
    pub fn scrubbed(&self) -> ScrubTotals {
        self.shared.disk().map(DiskState::scrubbed).unwrap_or_default()
    }

    /// Returns how far a chunk has come: what its bytes survive. `None` when it is not stored.
    pub fn point(&self, key: Key) -> Option<StorePoint> {
        self.shared.command(|core| core.point(key))
    }

    /// Writes everything that is in host memory to disk, and makes it durable.
    ///
    /// Waits for it, at most for `timeout`; what was begun goes on. Chunks that are dropped or
    /// fail on the way are counted in [`Pager::counters`] and do not fail the call. A tier that is
    /// [degraded](DiskHealth::Degraded) writes to the stripes that work: what lies on them is
    /// durable then, what had been written to one that failed since may not be
    /// ([`Pager::point`] tells).
    ///
    /// # Errors
    ///
    /// [`DiskCommandError`].
    pub fn flush(&self, timeout: Duration) -> Result<(), DiskCommandError> {
        self.shared.command(Core::flush);
        self.ask_disk(timeout, DiskCommand::Flush)
    }

    /// Drops everything that is stored: at once for every call that follows, and durably on disk
    /// when this returns. For when the weights change, and old KV must never come back.
    ///
    /// Tickets under way on what is dropped end as [`Failure::Cleared`](crate::core::Failure).
    ///
    /// What earlier engines left of the same content and layout in other instances below the same
    /// roots goes with it. What another process, or another pager, has open there is left alone:
    /// clear every engine. [`Pager::uncleared`] names what was left.
    ///
    /// # Errors
    ///
    /// [`DiskCommandError`]: what lies on disk is not served by this pager any more, but may be
    /// found by the next one. [`DiskCommandError::NotCleared`] names every directory that was
    /// not reached: stripes that were left out or fail, stores that could not be removed, roots
    /// that another process has had for longer than `io_timeout`.
    pub fn clear(&self, timeout: Duration) -> Result<(), DiskCommandError> {
        self.shared.command(Core::clear);
        match self.shared.disk() {
            Some(_) => self.ask_disk(timeout, DiskCommand::Clear),
            None => Ok(()),
        }
    }

    /// Returns the directories of the same content and layout that the last [`Pager::clear`] or
    /// [`Pager::erase`] left alone, because somebody had them open: an engine that has to be
    /// cleared itself, or a process that is gone and whose last operations the kernel has not ended
    /// yet. What lies in them is found by whoever opens them next.
    pub fn uncleared(&self) -> Vec<PathBuf> {
        self.shared.disk().map(DiskState::uncleared).unwrap_or_default()
    }

    /// Asks something of the disk thread and waits for the answer.
    fn ask_disk(
        &self,
        timeout: Duration,
        command: impl FnOnce(Sender<Result<(), DiskCommandError>>) -> DiskCommand,
    ) -> Result<(), DiskCommandError> {
        match self.send_disk(command)?.recv_timeout(timeout) {
            Ok(result) => result,
            Err(RecvTimeoutError::Timeout) => Err(DiskCommandError::TimedOut),
            Err(RecvTimeoutError::Disconnected) => Err(DiskCommandError::Gone),
        }
    }

    /// Asks something of the disk thread; the answer comes to the receiver.
    fn send_disk(
        &self,
        command: impl FnOnce(Sender<Result<(), DiskCommandError>>) -> DiskCommand,
    ) -> Result<Receiver<Result<(), DiskCommandError>>, DiskCommandError> {
        let disk = self.shared.disk().ok_or(DiskCommandError::NoDisk)?;
        // A forked child has the locks, and none of the threads.
        if !self.shared.is_own_process() {
            return Err(DiskCommandError::Gone);
        }
        let (sender, receiver) = channel();
        disk.command(command(sender));
        Ok(receiver)
    }

    /// Checks every internal invariant; for tests and the end of a run. Takes time in proportion
    /// to the capacity, with the lock held.
    ///
    /// # Errors
    ///
    /// The first violation found.
    pub fn audit(&self) -> Result<(), crate::core::Violation> {
        self.shared.command(|core| core.audit())
    }

    /// Refuses further calls, waits for what is under way, at most for the close timeout, and
    /// ends the pager's thread.
    pub fn close(mut self) -> CloseReport {
        self.shut()
    }

    fn shut(&mut self) -> CloseReport {
        let Some(thread) = self.thread.take() else {
            return CloseReport { is_drained: true, is_disk_clean: true };
        };
        if !self.shared.is_own_process() {
            // The threads are the parent's; here there is nothing to join.
            return CloseReport { is_drained: false, is_disk_clean: false };
        }
        let start = Instant::now();
        self.shared.start_closing();
        while self.shared.is_busy() && start.elapsed() < self.close_timeout {
            std::thread::sleep(Duration::from_millis(1));
        }
        let is_drained = !self.shared.is_busy();
        if !is_drained {
            self.shared.lose_device();
            self.shared.setup.device.wake();
        }
        let is_disk_clean = self.shut_disk(start);
        self.shared.end_device_thread();
        // The thread ends by itself once nothing is under way; its panic is a poisoned pager.
        let is_joined = thread.join().is_ok();
        self.shared.setup.device.release();
        CloseReport { is_drained: is_drained && is_joined, is_disk_clean }
    }

    /// Writes what is not on disk yet, as far as the close timeout allows, and closes the stores.
    fn shut_disk(&mut self, start: Instant) -> bool {
        let Some(RunningDisk { thread, ended }) = self.disk_thread.take() else { return true };
        let left = self.close_timeout.saturating_sub(start.elapsed());
        if let Err(error) = self.flush(left) {
            tracing::warn!(%error, "not everything in host memory is on disk");
        }
        self.shared.disk_state().command(DiskCommand::Close);
        let is_clean = lock(&ended).recv().unwrap_or(false);
        if is_clean {
            // It has nothing left to do, and so has no panic to tell of.
            let _ended = thread.join();
        }
        // Otherwise the system may keep it for as long as a drive hangs: a thread ends only after
        // all operations that it gave to a ring.
        is_clean
    }

    fn check_open(&self) -> Result<(), RequestError> {
        if !self.shared.is_own_process() {
            return Err(RequestError::Forked);
        }
        if self.shared.is_closing() {
            return Err(RequestError::Closing);
        }
        Ok(())
    }
}

/// Makes everything of a pager but what runs it.
fn assemble(
    config: &PagerConfig,
    device: Arc<dyn Device>,
    disk: Option<Box<dyn Disk>>,
    clock: Clock,
) -> Result<(Arc<Shared>, Option<OpenedTier>), OpenError> {
    let sizes = Sizes::of(config, &*device)?;
    let slabs = sizes.host.iter().map(|share| Slab::allocate(share.slot_count, share.slot));
    let slabs = slabs.collect::<Result<Vec<_>, _>>()?;
    let mut core_config = sizes.core.clone();
    let mut tier = match (disk, &config.disk) {
        (Some(disk), Some(settings)) => {
            let slot_counts = sizes.disk_slot_counts();
            let tier = disk::open(disk, settings, &config.layout, &slot_counts, &slabs)?;
            for (group, sizes) in (0..).map(GroupIndex::new).zip(&mut core_config.groups) {
                sizes.disk_slot_counts = tier.disk_slot_counts(group);
            }
            Some(tier)
        }
        _ => None,
    };
    // After the slabs, which refuse a capacity that is not to be had: its tables only abort.
    let mut core = Core::new(&core_config)?;
    if let Some(tier) = &mut tier {
        tier.tell(&mut core)?;
    }
    let groups = config.layout.groups().iter();
    let packings = groups.map(|group| Packing::new(group, group.blocks_per_chunk()));
    let downgrades = tier.as_ref().map(|tier| tier.downgrades.clone()).unwrap_or_default();
    let setup = Setup {
        layout: config.layout.clone(),
        packings: packings.collect::<Result<_, _>>()?,
        slabs,
        device,
        disk_name: tier.as_ref().map(|tier| tier.disk.name()),
        downgrades,
        ticket_timeout: config.ticket_timeout,
        device_timeout: config.device_timeout,
    };
    let state = tier.as_ref().map(OpenedTier::state);
    let common = Arc::new(Shared::new(setup, core, state, clock));
    if !common.setup.device.claim() {
        if let Some(tier) = tier {
            tier.abandon();
        }
        return Err(DeviceError::InUse.into());
    }
    Ok((common, tier))
}

impl Drop for Pager {
    fn drop(&mut self) {
        self.shut();
    }
}

impl From<DeviceError> for RequestError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}
