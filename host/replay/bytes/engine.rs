//! The emulated engine: requests through a pager over a device, every byte written and compared.
//!
//! Invariants: a request touches only blocks it holds; blocks are written only while no ticket
//! reads them, since each ticket is waited for before the next step.

use super::config::{EngineConfig, EngineSizes, staging};
use super::disk::{self, DiskReport, DiskTotals};
use super::error::ByteReplayError;
use super::pattern::{Difference, POISON, Pattern};
use super::pool::DevicePool;
use super::report::{ByteReport, Tally, WrongByte};
use crate::core::{Failure, Refused, Stage};
use crate::device::cpu::{CpuDevice, DeviceMemory};
use crate::device::{Device, Ready};
use crate::key::Key;
use crate::layout::{Group, Layout, Plane};
use crate::pager::{LoadChunks, Pager, PagerConfig, Plan, RequestError, StoreChunks, TicketReport};
use crate::replay::cache::key_of;
use crate::replay::request::Request;
use crate::replay::trace::Trace;
use crate::units::{BlockId, ByteCount, GroupIndex, TenantId};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

const GROUP: GroupIndex = GroupIndex::new(0);

/// How long plans live and tickets may queue: nobody is served late by an emulated engine, and a
/// long request of a large geometry queues for a while.
const PATIENCE: Duration = Duration::from_mins(10);

/// Replays `trace` with real bytes, from a cold start.
///
/// `wrap` is given the device and returns the one to use: itself, or one around it, such as one
/// with faults. `progress` is called after each request with the blocks it used.
///
/// # Errors
///
/// [`ByteReplayError`]. Wrong bytes are no error: see [`ByteReport::first_wrong`].
pub fn replay_bytes(
    trace: &Trace,
    config: &EngineConfig,
    wrap: impl FnOnce(Arc<dyn Device>) -> Arc<dyn Device>,
    progress: impl Fn(u64) + Sync,
) -> Result<ByteReport, ByteReplayError> {
    config.check(trace)?;
    let engine = Engine::open(&config.fitted_to(trace), wrap)?;
    let stripes = config.disk.as_ref().map(|disk| disk.stripes.as_slice());
    thread::scope(|scope| {
        let (stop, stopped) = channel();
        let watch = stripes.map(|stripes| scope.spawn(move || disk::watch(stripes, &stopped)));
        let start = Instant::now();
        let tally = engine.run(trace, &progress)?;
        let elapsed = start.elapsed();
        let closed = engine.close(tally, elapsed, config, trace);
        // Dropped on every way out: the watcher ends with it.
        drop(stop);
        let directory_max = watch
            .map(|watch| watch.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        closed.map(|(mut report, disk)| {
            let directory_max = directory_max.unwrap_or_default();
            report.disk = disk.map(|disk| DiskReport { directory_max, ..disk });
            report
        })
    })
}

#[derive(Debug)]
struct Engine {
    config: EngineConfig,
    sizes: EngineSizes,
    layout: Layout,
    memory: Arc<DeviceMemory>,
    pool: DevicePool,
    device: Arc<dyn Device>,
    pager: Pager,
    /// Time that opening the pager took.
    open: Duration,
}

/// A request under way: its keys, and a buffer for one fragment.
struct Worker<'engine> {
    engine: &'engine Engine,
    tally: Tally,
    keys: Vec<Key>,
    fragment: Vec<u8>,
}

impl Engine {
    fn open(
        config: &EngineConfig,
        wrap: impl FnOnce(Arc<dyn Device>) -> Arc<dyn Device>,
    ) -> Result<Self, ByteReplayError> {
        let EngineConfig { geometry, block_tokens, device_blocks, .. } = *config;
        let sizes = config.sizes()?;
        let memory = DeviceMemory::allocate(sizes.device_pool)?;
        let layout = geometry.layout(memory.address(), block_tokens, device_blocks)?;
        let device = CpuDevice::open(&layout, vec![Arc::clone(&memory)], staging(sizes.slot))?;
        let device = wrap(device);
        let mut pager_config = PagerConfig::new(layout.clone(), sizes.host_tier);
        pager_config.ticket_timeout = PATIENCE;
        pager_config.lease = PATIENCE;
        pager_config.disk = match &config.disk {
            Some(disk) => Some(disk.config(geometry)?),
            None => None,
        };
        let start = Instant::now();
        let pager = Pager::open(&pager_config, Arc::clone(&device))?;
        let open = start.elapsed();
        let pool = DevicePool::new(device_blocks)?;
        Ok(Self { config: config.clone(), sizes, layout, memory, pool, device, pager, open })
    }

    /// Runs all requests, so many at a time, each taken up in file order.
    fn run(
        &self,
        trace: &Trace,
        progress: &(impl Fn(u64) + Sync),
    ) -> Result<Tally, ByteReplayError> {
        let next = AtomicUsize::new(0);
        let has_failed = AtomicBool::new(false);
        let serve = || {
            let mut worker = Worker::new(self);
            while !has_failed.load(Ordering::Relaxed) {
                let position = next.fetch_add(1, Ordering::Relaxed);
                let Some(request) = trace.requests().get(position) else { break };
                if let Err(error) = worker.serve(position as u64, request) {
                    has_failed.store(true, Ordering::Relaxed);
                    return Err(error);
                }
                progress(request.block_count().get().into());
            }
            Ok(worker.tally)
        };
        thread::scope(|scope| {
            let mut workers = Vec::new();
            for number in 0..self.config.concurrency {
                let name = format!("engine-{number}");
                let worker = thread::Builder::new().name(name).spawn_scoped(scope, serve);
                workers.push(worker.map_err(|error| {
                    has_failed.store(true, Ordering::Relaxed);
                    ByteReplayError::Thread { reason: error.to_string() }
                })?);
            }
            let tallies = workers.into_iter().map(|worker| {
                worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            });
            tallies.reduce(|one, other| Ok(one?.merge(other?))).unwrap_or_else(|| Ok(Tally::new()))
        })
    }

    /// Audits and closes the pager, and reports.
    fn close(
        self,
        tally: Tally,
        elapsed: Duration,
        config: &EngineConfig,
        trace: &Trace,
    ) -> Result<(ByteReport, Option<DiskReport>), ByteReplayError> {
        if self.config.disk.is_some()
            && let Err(error) = self.pager.flush(PATIENCE)
        {
            tracing::warn!(%error, "not everything is on disk");
        }
        self.pager.audit()?;
        let counters = self.pager.counters();
        let hops = self.pager.hops();
        let totals = DiskTotals::of(&self.pager);
        let closed = self.pager.close();
        if !closed.is_drained {
            return Err(ByteReplayError::NotDrained);
        }
        let disk = config.disk.as_ref().zip(totals).map(|(disk, totals)| {
            let load = tally.disk_load.summary();
            totals.report(disk, self.open, load, ByteCount::default(), closed.is_disk_clean)
        });
        let report = ByteReport {
            capacity: config.host_chunks,
            sizes: self.sizes,
            device: self.device.name(),
            request_count: tally.request_count,
            block_use_count: trace.block_use_count(),
            hit_count: tally.hit_count,
            compared_count: tally.compared_count,
            wrong_count: tally.wrong_count,
            first_wrong: tally.first_wrong,
            computed_count: tally.computed_count,
            stored_count: counters.stored,
            eviction_count: counters.evicted,
            load_failures: tally.load_failures,
            store_failures: tally.store_failures,
            saved_token_count: tally.saved_token_count,
            hops,
            lookup: tally.lookup.summary(),
            release: tally.release.summary(),
            store: tally.store.summary(),
            load: tally.load.summary(),
            disk: None,
            elapsed,
        };
        Ok((report, disk))
    }

    fn group(&self) -> &Group {
        &self.layout.groups()[0]
    }

    /// Where the fragment of `block` in `plane` lies in the device memory.
    fn offset(&self, plane: &Plane, block: BlockId) -> u64 {
        let block_offset = u64::from(block.get()) * plane.block_stride.get();
        plane.base_address - self.memory.address() + block_offset
    }
}

impl<'engine> Worker<'engine> {
    fn new(engine: &'engine Engine) -> Self {
        let fragment = engine.config.geometry.fragment(engine.config.block_tokens);
        let fragment = usize::try_from(fragment.get()).expect("a block fits a slot of 1 GiB");
        Self { engine, tally: Tally::new(), keys: Vec::new(), fragment: vec![0; fragment] }
    }

    /// Serves one request from lookup to the end of its store.
    fn serve(&mut self, number: u64, request: &Request) -> Result<(), ByteReplayError> {
        self.tally.request_count += 1;
        let count = request.block_count();
        if count.get() == 0 {
            return Ok(());
        }
        self.keys.clear();
        self.keys.extend(request.blocks().map(|block| key_of(request, block)));
        let refused = |source| ByteReplayError::Request { request: number, source };
        let plan = self.look_up().map_err(refused)?;
        let blocks = self.engine.pool.take(count)?;
        let loaded = self.load(number, &plan, blocks.ids()).map_err(refused)?;
        let hit_count = plan.groups()[0].chunk_count as usize;
        // A chunk that failed to load can be stored again only once nobody holds it.
        let plan = (loaded == hit_count).then_some(plan);
        self.compute(loaded, blocks.ids());
        self.store(loaded, blocks.ids()).map_err(refused)?;
        let saved = u64::from(request.input_tokens().get()) * loaded as u64;
        self.tally.saved_token_count += saved / u64::from(count.get());
        drop(blocks);
        drop(plan);
        if cfg!(debug_assertions) {
            self.engine.pager.audit()?;
        }
        Ok(())
    }

    fn look_up(&mut self) -> Result<Plan, RequestError> {
        let start = Instant::now();
        let plan = self.engine.pager.lookup(&[&self.keys])?;
        self.tally.lookup.record(start.elapsed());
        self.tally.hit_count += u64::from(plan.groups()[0].chunk_count);
        Ok(plan)
    }

    /// Loads the hits and compares them. Returns how many of the first chunks are there.
    fn load(
        &mut self,
        request: u64,
        plan: &Plan,
        blocks: &[BlockId],
    ) -> Result<usize, RequestError> {
        let hit_count = plan.groups()[0].chunk_count as usize;
        if hit_count == 0 {
            return Ok(0);
        }
        let blocks = &blocks[..hit_count];
        self.poison(blocks);
        let start = Instant::now();
        let loading = self.engine.pager.load(
            plan,
            LoadChunks {
                group: GROUP,
                keys: &self.keys[..hit_count],
                blocks,
                ready: Ready::Now,
                timeout: None,
            },
        );
        let report = match loading {
            Ok(ticket) => ticket.wait(),
            Err(RequestError::Refused(Refused::PlanLapsed)) => {
                self.tally.load_failures.add_lapsed(hit_count as u64);
                return Ok(0);
            }
            Err(error) => all_busy(error, hit_count)?,
        };
        self.tally.load.record(start.elapsed());
        if plan.groups()[0].disk_chunk_count > 0 {
            self.tally.disk_load.record(start.elapsed());
        }
        for (chunk, (stage, block)) in report.stages.iter().zip(blocks).enumerate() {
            self.check_loaded(request, chunk, *stage, *block);
        }
        Ok(report.done_prefix())
    }

    /// Compares a block with what its load's stage promises.
    fn check_loaded(&mut self, request: u64, chunk: usize, stage: Stage, block: BlockId) {
        match stage {
            Stage::Done => {
                self.tally.compared_count += 1;
                let key = self.keys[chunk];
                self.check(request, chunk, block, |plane, fragment| {
                    Pattern::new(key, plane).compare(fragment)
                });
            }
            Stage::Failed(failure) => {
                self.tally.load_failures.add(failure, 1);
                // Only a device that failed or broke off may leave its target undefined.
                if !matches!(failure, Failure::Device | Failure::Poisoned) {
                    self.check(request, chunk, block, |_, fragment| is_poison(fragment));
                }
            }
            Stage::Queued | Stage::Reading | Stage::Running(_) | Stage::Joined => {
                unreachable!("a ticket that has ended has only final stages")
            }
        }
    }

    /// Holds each fragment of a block against `compare`, up to the first that is wrong.
    fn check(
        &mut self,
        request: u64,
        chunk: usize,
        block: BlockId,
        compare: impl Fn(usize, &[u8]) -> Result<(), Difference>,
    ) {
        for (number, plane) in self.engine.group().planes().iter().enumerate() {
            self.engine.memory.read(self.engine.offset(plane, block), &mut self.fragment);
            if let Err(Difference { offset, expected, found }) = compare(number, &self.fragment) {
                let chunk_number = u32::try_from(chunk).expect("a request has at most 2^24 blocks");
                return self.tally.found_wrong(WrongByte {
                    request,
                    chunk: chunk_number,
                    key: self.keys[chunk],
                    plane: plane.name(),
                    offset: offset as u64,
                    expected,
                    found,
                });
            }
        }
    }

    /// Fills blocks with what no load may leave there.
    fn poison(&mut self, blocks: &[BlockId]) {
        self.fragment.fill(POISON);
        for plane in self.engine.group().planes() {
            for block in blocks {
                self.engine.memory.write(self.engine.offset(plane, *block), &self.fragment);
            }
        }
    }

    /// Writes the KV of the chunks from `first` on into their blocks.
    fn compute(&mut self, first: usize, blocks: &[BlockId]) {
        self.tally.computed_count += (blocks.len() - first) as u64;
        for (number, plane) in self.engine.group().planes().iter().enumerate() {
            for (key, block) in self.keys[first..].iter().zip(&blocks[first..]) {
                Pattern::new(*key, number).write(&mut self.fragment);
                self.engine.memory.write(self.engine.offset(plane, *block), &self.fragment);
            }
        }
    }

    /// Stores the chunks from `first` on and waits until they are.
    fn store(&mut self, first: usize, blocks: &[BlockId]) -> Result<(), RequestError> {
        let keys = &self.keys[first..];
        if keys.is_empty() {
            return Ok(());
        }
        let start = Instant::now();
        let storing = self.engine.pager.store(StoreChunks {
            group: GROUP,
            parent: first.checked_sub(1).map(|before| self.keys[before]),
            keys,
            blocks: &blocks[first..],
            tenant: TenantId::new(0),
            ready: Ready::Now,
            timeout: None,
        });
        let report = match storing {
            Ok(ticket) => {
                ticket.wait_released(Duration::MAX);
                self.tally.release.record(start.elapsed());
                ticket.wait()
            }
            Err(error) => all_busy(error, keys.len())?,
        };
        self.tally.store.record(start.elapsed());
        for stage in report.stages {
            if let Stage::Failed(failure) = stage {
                self.tally.store_failures.add(failure, 1);
            }
        }
        Ok(())
    }
}

/// What becomes of all chunks of a call that found every transfer in use: a miss, not an error.
fn all_busy(error: RequestError, chunk_count: usize) -> Result<TicketReport, RequestError> {
    match error {
        RequestError::Refused(Refused::TransfersExhausted { .. }) => {
            Ok(TicketReport { stages: vec![Stage::Failed(Failure::Busy); chunk_count] })
        }
        error => Err(error),
    }
}

/// Checks that nothing was written into a fragment.
fn is_poison(fragment: &[u8]) -> Result<(), Difference> {
    match fragment.iter().position(|byte| *byte != POISON) {
        Some(offset) => Err(Difference { offset, expected: POISON, found: fragment[offset] }),
        None => Ok(()),
    }
}
