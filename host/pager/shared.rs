//! What callers and the device thread share: the core under its lock, the jobs, and what there is
//! to do.
//!
//! Locks, in the order in which they may be taken: `jobs`, then `core`; `inbox`, `dropped` and a
//! ticket's own lock are taken with neither held. `core` is a leaf: under it nothing is hashed,
//! logged, woken, allocated at size, copied or launched. What a command brought about is collected
//! as [`Effects`] under the lock and run after it.

use super::clock::Clock;
use super::disk::DiskState;
use super::metrics::HopMeters;
use super::ticket::TicketState;
use crate::capability::Downgrade;
use crate::core::{
    Action, Completion, Core, DiskCompletion, DiskFailure, DiskRequest, Failure, Hop, HopRequest,
    KEY_COUNT_MAX, PlanId, Refused, Stage, TransferId,
};
use crate::device::{ChunkBlocks, Device, DeviceError, EventHandle, Ready};
use crate::fingerprint::Codec;
use crate::layout::{Layout, Packing};
use crate::mem::{Slab, SlotMemory};
use crate::store::format::HeaderIdentity;
use crate::units::{ByteCount, GroupIndex, SlotIndex, TenantId, Timestamp};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::Duration;

/// Dropped plans that one command lets go of, up to 64 pins each: a lookup makes one plan and takes
/// more than one command, so that the queue drains.
const DROPPED_COUNT_MAX: usize = 2;

/// What a pager is opened with, or opens itself, and never changes.
#[derive(Debug)]
pub(super) struct Setup {
    pub(super) layout: Layout,
    /// The packing of a whole chunk, one a group.
    pub(super) packings: Vec<Packing>,
    /// The host tier's regions, one a group.
    pub(super) slabs: Vec<Arc<Slab>>,
    pub(super) device: Arc<dyn Device>,
    /// The disk's back end.
    pub(super) disk_name: Option<&'static str>,
    /// What of the disk tier works less well than it could.
    pub(super) downgrades: Vec<Downgrade>,
    pub(super) ticket_timeout: Duration,
    pub(super) device_timeout: Duration,
}

/// Everything of a pager but its thread's handle.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) setup: Setup,
    /// The disk tier's side of it; `None` without one.
    disk: Option<DiskState>,
    core: Mutex<Core>,
    jobs: Mutex<HashMap<TransferId, Job>>,
    /// Hops that callers brought about, for the device thread.
    inbox: Mutex<Vec<HopRequest>>,
    drop_sender: Sender<PlanId>,
    dropped: Mutex<Receiver<PlanId>>,
    clock: Clock,
    process: u32,
    meters: Mutex<HopMeters>,
    is_closing: AtomicBool,
    /// The device thread may end: nobody needs the core's time to pass any more.
    is_ending: AtomicBool,
    is_device_lost: AtomicBool,
}

/// What the device thread needs to know of a transfer, and who waits for it.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) ticket: Arc<TicketState>,
    /// The engine's side of each chunk, by position.
    pub(super) chunks: Vec<ChunkBlocks>,
    /// Bytes of the slot image of each chunk.
    pub(super) image: ByteCount,
    /// Whose the chunks of a store are.
    pub(super) tenant: TenantId,
    /// Keeps what the chunks wait for.
    pub(super) _captured: Option<Arc<CapturedEvent>>,
}

/// What was recorded in an engine's event when it asked for a transfer, kept for its hops.
#[derive(Debug)]
pub(super) struct CapturedEvent {
    device: Arc<dyn Device>,
    event: EventHandle,
}

impl CapturedEvent {
    pub(super) fn new(device: &Arc<dyn Device>, event: EventHandle) -> Result<Self, DeviceError> {
        Ok(Self { event: device.capture(event)?, device: Arc::clone(device) })
    }

    pub(super) fn ready(&self) -> Ready {
        Ready::After(self.event)
    }
}

impl Drop for CapturedEvent {
    fn drop(&mut self) {
        self.device.forget(self.event);
    }
}

/// What a command brought about, to be run after the lock is let go of.
#[derive(Debug)]
pub(super) struct Effects {
    actions: Vec<Action>,
    pub(super) hops: Vec<HopRequest>,
    pub(super) disk: Vec<DiskRequest>,
    settled: Vec<Settled>,
}

/// How one round of a thread went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Round {
    /// There is more to do.
    Busy,
    /// There is nothing to do before this much time has passed, or somebody wakes the thread.
    Idle(Duration),
    /// The thread is to end.
    Over,
}

/// A transfer that reached its released point or its end.
#[derive(Debug)]
struct Settled {
    id: TransferId,
    stages: [Stage; KEY_COUNT_MAX],
    count: usize,
}

impl Effects {
    pub(super) fn new() -> Self {
        Self {
            actions: Vec::with_capacity(2 * KEY_COUNT_MAX),
            hops: Vec::with_capacity(2 * KEY_COUNT_MAX),
            disk: Vec::with_capacity(KEY_COUNT_MAX),
            settled: Vec::with_capacity(8),
        }
    }

    /// Takes the core's actions, and lets go of the transfers that have ended.
    fn collect(&mut self, core: &mut Core) {
        core.take_actions(&mut self.actions);
        for action in self.actions.drain(..) {
            match action {
                Action::Start(hop) => self.hops.push(hop),
                Action::Disk(request) => self.disk.push(request),
                Action::Wake { transfer } => {
                    let Some(now) = core.stages(transfer) else { continue };
                    let mut stages = [Stage::Queued; KEY_COUNT_MAX];
                    stages[..now.len()].copy_from_slice(now);
                    let count = now.len();
                    if now.iter().all(|stage| stage.is_final()) {
                        core.detach(transfer);
                    }
                    self.settled.push(Settled { id: transfer, stages, count });
                }
            }
        }
    }
}

impl Shared {
    pub(super) fn new(setup: Setup, core: Core, disk: Option<DiskState>, clock: Clock) -> Self {
        let (drop_sender, dropped) = channel();
        Self {
            setup,
            disk,
            core: Mutex::new(core),
            jobs: Mutex::new(HashMap::new()),
            inbox: Mutex::new(Vec::new()),
            drop_sender,
            dropped: Mutex::new(dropped),
            process: std::process::id(),
            meters: Mutex::new(HopMeters::new(clock.instant())),
            clock,
            is_closing: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            is_device_lost: AtomicBool::new(false),
        }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub(super) fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The point `timeout` from now.
    pub(super) fn deadline(&self, timeout: Duration) -> Timestamp {
        self.now().after(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX))
    }

    /// Whether this process opened the pager: a forked child shares memory with threads that it
    /// does not have.
    pub(super) fn is_own_process(&self) -> bool {
        std::process::id() == self.process
    }

    pub(super) fn is_closing(&self) -> bool {
        self.is_closing.load(Ordering::Acquire)
    }

    pub(super) fn start_closing(&self) {
        self.is_closing.store(true, Ordering::Release);
        self.setup.device.wake();
    }

    /// Whether the device thread may end once nothing is under way.
    pub(super) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    pub(super) fn end_device_thread(&self) {
        self.is_ending.store(true, Ordering::Release);
        self.setup.device.wake();
    }

    pub(super) fn is_device_lost(&self) -> bool {
        self.is_device_lost.load(Ordering::Acquire)
    }

    pub(super) fn lose_device(&self) {
        // In this order: whoever sees the loss ends tickets, after which nothing may begin.
        self.setup.device.abandon();
        self.is_device_lost.store(true, Ordering::Release);
    }

    /// Serves no more, because the device thread has broken off.
    pub(super) fn poison(&self) {
        lock(&self.core).poison();
        self.end_poisoned();
    }

    /// Ends every transfer under way: a poisoned core ends none, and opens none either.
    pub(super) fn end_poisoned(&self) {
        self.lose_device();
        let jobs = std::mem::take(&mut *lock(&self.jobs));
        for (id, job) in jobs {
            job.ticket.settle(id, &vec![Stage::Failed(Failure::Poisoned); job.chunks.len()]);
        }
    }

    pub(super) fn drop_queue(&self) -> Sender<PlanId> {
        self.drop_sender.clone()
    }

    /// Makes one command of the core, with the plans dropped since the last one, and runs what
    /// comes of it.
    pub(super) fn command<T>(&self, command: impl FnOnce(&mut Core) -> T) -> T {
        let mut effects = Effects::new();
        let result = self.collect(&mut effects, command);
        self.settle(&mut effects);
        self.hand_over(effects.hops, effects.disk);
        result
    }

    /// Makes one command that opens a transfer, and registers its job before any hop of it can
    /// be looked for.
    pub(super) fn open_transfer(
        &self,
        open: impl FnOnce(&mut Core) -> Result<TransferId, Refused>,
        job: impl FnOnce(TransferId) -> Job,
    ) -> Result<TransferId, Refused> {
        let mut effects = Effects::new();
        let id = {
            let mut jobs = lock(&self.jobs);
            let id = self.collect(&mut effects, open)?;
            jobs.insert(id, job(id));
            id
        };
        self.settle(&mut effects);
        self.hand_over(effects.hops, effects.disk);
        Ok(id)
    }

    /// Makes one command under the lock; its effects are left to the caller.
    pub(super) fn collect<T>(
        &self,
        effects: &mut Effects,
        command: impl FnOnce(&mut Core) -> T,
    ) -> T {
        let mut dropped = [None; DROPPED_COUNT_MAX];
        self.take_dropped(&mut dropped);
        let mut core = lock(&self.core);
        for plan in dropped.into_iter().flatten() {
            core.drop_plan(plan);
        }
        let result = command(&mut core);
        effects.collect(&mut core);
        result
    }

    fn take_dropped(&self, into: &mut [Option<PlanId>; DROPPED_COUNT_MAX]) {
        // Somebody else at it does the same work.
        let receiver = match self.dropped.try_lock() {
            Ok(receiver) => receiver,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        for (target, plan) in into.iter_mut().zip(receiver.try_iter()) {
            *target = Some(plan);
        }
    }

    /// Tells the tickets of settled transfers, and forgets the jobs of those that have ended.
    pub(super) fn settle(&self, effects: &mut Effects) {
        for settled in effects.settled.drain(..) {
            let stages = &settled.stages[..settled.count];
            let has_ended = stages.iter().all(|stage| stage.is_final());
            // A job is dropped after unlock: it lets go of an event of the device.
            let (ticket, _ended) = {
                let mut jobs = lock(&self.jobs);
                let ticket = jobs.get(&settled.id).map(|job| Arc::clone(&job.ticket));
                (ticket, if has_ended { jobs.remove(&settled.id) } else { None })
            };
            if let Some(ticket) = ticket {
                ticket.settle(settled.id, stages);
            }
        }
    }

    /// Gives hops to the threads that make them.
    pub(super) fn hand_over(&self, hops: Vec<HopRequest>, disk: Vec<DiskRequest>) {
        if !hops.is_empty() {
            lock(&self.inbox).extend(hops);
            self.setup.device.wake();
        }
        if !disk.is_empty() {
            let unmade = self.disk_state().request(disk);
            self.fail_disk(unmade);
        }
    }

    /// Fails disk hops that nobody makes, because the disk thread has ended: no transfer waits for
    /// it. Ends, because the core was told to give the disk up.
    fn fail_disk(&self, mut requests: Vec<DiskRequest>) {
        while !requests.is_empty() {
            let mut effects = Effects::new();
            let failed = |request: DiskRequest| request.ended(Err(DiskFailure::Drive));
            let completions: Vec<_> = requests.drain(..).map(failed).collect();
            self.complete_disk(&completions, &mut effects);
            self.hand_over(effects.hops, Vec::new());
            requests = effects.disk;
        }
    }

    /// The disk tier's side; the core asks for no disk hop without one.
    pub(super) fn disk_state(&self) -> &DiskState {
        self.disk.as_ref().expect("only a pager with a disk tier makes disk hops")
    }

    /// The disk tier's side, if there is a disk tier.
    pub(super) fn disk(&self) -> Option<&DiskState> {
        self.disk.as_ref()
    }

    /// Moves the hops that callers brought about to the end of `into`.
    pub(super) fn take_inbox(&self, into: &mut Vec<HopRequest>) {
        into.append(&mut lock(&self.inbox));
    }

    /// Looks at the job of a hop that is to be started.
    pub(super) fn with_job<T>(&self, id: TransferId, look: impl FnOnce(&Job) -> T) -> Option<T> {
        lock(&self.jobs).get(&id).map(look)
    }

    /// Reports ended hops to the core, at most 64 a hold.
    pub(super) fn complete(&self, completions: &[Completion], effects: &mut Effects) {
        for batch in completions.chunks(KEY_COUNT_MAX) {
            self.collect(effects, |core| {
                for completion in batch {
                    core.complete(*completion);
                }
            });
            self.settle(effects);
        }
    }

    /// Reports ended disk hops to the core, at most 64 a hold.
    pub(super) fn complete_disk(&self, completions: &[DiskCompletion], effects: &mut Effects) {
        for batch in completions.chunks(KEY_COUNT_MAX) {
            self.collect(effects, |core| {
                for completion in batch {
                    core.complete_disk(*completion);
                }
            });
            self.settle(effects);
        }
    }

    pub(super) fn stages(&self, id: TransferId) -> Option<Vec<Stage>> {
        let mut stages = Vec::with_capacity(KEY_COUNT_MAX);
        stages.extend_from_slice(lock(&self.core).stages(id)?);
        Some(stages)
    }

    pub(super) fn cancel(&self, id: TransferId) {
        self.command(|core| core.cancel(id));
    }

    pub(super) fn renew_plan(&self, plan: PlanId) -> Result<(), Refused> {
        let now = self.now();
        self.command(|core| core.renew_plan(plan, now))
    }

    /// Whether any transfer is under way.
    pub(super) fn is_busy(&self) -> bool {
        !lock(&self.jobs).is_empty()
    }

    /// The account of the hops, under a lock of its own that is taken with no other.
    pub(super) fn meters(&self) -> MutexGuard<'_, HopMeters> {
        lock(&self.meters)
    }

    /// Returns the bytes that a hop of a whole chunk moves.
    pub(super) fn bytes_of(&self, hop: HopRequest) -> ByteCount {
        let packing = &self.setup.packings[usize::from(hop.group.get())];
        match hop.hop {
            Hop::Pack | Hop::Unpack => {
                ByteCount::new(packing.payload().get() - packing.padding().get())
            }
            Hop::OutLink | Hop::InLink => packing.slot(),
        }
    }

    /// Returns the bytes of a slot of a group.
    pub(super) fn slot_bytes(&self, group: GroupIndex) -> ByteCount {
        self.setup.packings[usize::from(group.get())].slot()
    }

    /// Returns a host slot, header page and a whole chunk's payload.
    pub(super) fn whole_slot(&self, group: GroupIndex, slot: SlotIndex) -> SlotMemory {
        self.setup.slabs[usize::from(group.get())].slot(slot, self.slot_bytes(group))
    }

    /// Writes what a chunk is into its host slot's header page, which an out-link has just filled:
    /// with the stamp of a disk write it is the header of a disk slot.
    pub(super) fn describe(&self, hop: HopRequest) {
        if self.disk.is_none() {
            return;
        }
        let at = usize::from(hop.group.get());
        let (group, packing) = (&self.setup.layout.groups()[at], &self.setup.packings[at]);
        let job = self
            .with_job(hop.transfer, |job| (job.chunks[usize::from(hop.position)].key, job.tenant));
        // A transfer under way keeps its job, unless the pager is poisoned.
        let Some((key, tenant)) = job else { return };
        // A chunk that is on disk stays whose it was, of whom the core knows the tag.
        let owner = hop.lineage.tenant;
        let tenant = if tenant.tag() == owner { tenant } else { owner.into() };
        let identity = HeaderIdentity {
            key,
            parent: hop.lineage.parent,
            group: hop.group,
            codec: Codec::Raw,
            depth: hop.lineage.depth,
            blocks: group.blocks_per_chunk(),
            tokens: group.chunk_tokens(),
            payload: packing.payload(),
            part_count: u16::try_from(packing.parts().len()).expect("at most 256 parts"),
            tenant,
            expires_s: 0,
            recompute_us: 0,
        };
        let page = identity.encode().expect("a layout keeps the limits of a header");
        self.whole_slot(hop.group, hop.slot).write_header(0, &page);
    }

    /// Returns the chunk's place in its group's slab.
    pub(super) fn slot(&self, hop: HopRequest, image: ByteCount) -> SlotMemory {
        self.setup.slabs[usize::from(hop.group.get())].slot(hop.slot, image)
    }
}

/// Locks a mutex whose holders leave it whole even when they panic.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The chunks of a ticket that one transfer moves: at most 64 from `first`.
pub(super) fn transfer_range(first: usize, chunk_count: usize) -> Range<usize> {
    first..chunk_count.min(first + KEY_COUNT_MAX)
}
