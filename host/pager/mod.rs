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

mod config;
mod device_thread;
pub(crate) mod metrics;
mod plan;
mod shared;
mod ticket;
mod transfer;

#[cfg(test)]
mod tests;

pub use config::{OpenError, PagerConfig};
pub use metrics::{HopTotals, Hops, Latency};
pub use plan::Plan;
pub use ticket::{Ticket, TicketReport};
pub use transfer::{LoadChunks, RequestError, StoreChunks};

use crate::capability::{CapabilityReport, Downgrade};
use crate::core::{
    Core, CoreConfig, Counters, GroupKeys, IndexSeed, Lookup, LookupError, SlotCounts,
};
use crate::device::{Device, DeviceError};
use crate::key::Key;
use crate::layout::Packing;
use crate::mem::Slab;
use crate::units::GroupIndex;
use config::{check_staging, core_groups, shares};
use device_thread::DeviceThread;
use shared::{Setup, Shared};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
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
}

/// Pages the KV of one device cache. See the [module's documentation](self).
#[derive(Debug)]
pub struct Pager {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    close_timeout: Duration,
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
        config.check_timeouts()?;
        let shares = shares(&config.layout, config.host_capacity)?;
        check_staging(device.staging(), &shares)?;
        let mut core_config = CoreConfig::new(core_groups(&config.layout, &shares));
        core_config.staging_out_pieces = device.staging().out_pieces;
        core_config.staging_in_pieces = device.staging().in_pieces;
        core_config.plan_count_max = config.plan_count_max;
        core_config.transfer_count_max = config.transfer_count_max;
        core_config.lease_ns = u64::try_from(config.lease.as_nanos()).unwrap_or(u64::MAX);
        let random = [0, 1].map(|word| RandomState::new().hash_one(word));
        core_config.index_seed = IndexSeed::new(random);
        core_config.validate()?;
        let slabs = shares.iter().map(|share| Slab::allocate(share.slot_count, share.slot));
        let slabs = slabs.collect::<Result<Vec<_>, _>>()?;
        // After the slabs, which refuse a capacity that is not to be had: its tables only abort.
        let core = Core::new(&core_config)?;
        let groups = config.layout.groups().iter();
        let packings = groups.map(|group| Packing::new(group, group.blocks_per_chunk()));
        let setup = Setup {
            layout: config.layout.clone(),
            packings: packings.collect::<Result<_, _>>()?,
            slabs,
            device,
            ticket_timeout: config.ticket_timeout,
            device_timeout: config.device_timeout,
        };
        let common = Arc::new(Shared::new(setup, core));
        if !common.setup.device.claim() {
            return Err(DeviceError::InUse.into());
        }
        let mut thread = DeviceThread::new(Arc::clone(&common));
        let thread = Builder::new().name("kvtide-device".to_owned()).spawn(move || thread.run());
        let thread = thread.map_err(|error| {
            common.setup.device.release();
            OpenError::Thread { reason: error.to_string() }
        })?;
        Ok(Self { shared: common, thread: Some(thread), close_timeout: config.close_timeout })
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
        let mut downgrades: Vec<Downgrade> = Vec::new();
        for downgrade in self.shared.setup.slabs.iter().filter_map(|slab| slab.downgrade()) {
            if !downgrades.contains(downgrade) {
                downgrades.push(downgrade.clone());
            }
        }
        CapabilityReport { device: self.shared.setup.device.name(), downgrades }
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
            return CloseReport { is_drained: true };
        };
        if !self.shared.is_own_process() {
            // The thread is the parent's; here there is nothing to join.
            return CloseReport { is_drained: false };
        }
        self.shared.start_closing();
        let start = Instant::now();
        while self.shared.is_busy() && start.elapsed() < self.close_timeout {
            std::thread::sleep(Duration::from_millis(1));
        }
        let is_drained = !self.shared.is_busy();
        if !is_drained {
            self.shared.lose_device();
            self.shared.setup.device.wake();
        }
        // The thread ends by itself once nothing is under way; its panic is a poisoned pager.
        let is_joined = thread.join().is_ok();
        self.shared.setup.device.release();
        CloseReport { is_drained: is_drained && is_joined }
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
