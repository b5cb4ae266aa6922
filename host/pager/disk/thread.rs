//! The disk thread: turns the core's disk hops into slot writes and reads, and their ends into
//! completions; it also scans, syncs and clears, all stripes on one disk.
//!
//! It alone talks to the disk and the stores. In a round it takes in requests and commands, hands
//! out what may begin, polls, and reports what ended; then it waits for the disk, for a caller, or
//! for the next sync. With nothing under way it sleeps.
//!
//! Invariants: a slot is written only while its store is in a run; memory of an operation stays
//! with it until its report; a command is answered once.

mod hops;
mod siblings;
mod tasks;

use super::config::{DiskConfig, ProgressListener};
use super::group::{GroupStore, Service};
use super::open::{OpenedTier, SCAN_SPACE};
use super::places::Place;
use super::scrub::{Rotten, Scrubber};
use super::state::{DiskCommand, DiskHealth, add};
use super::syncs::Syncs;
use crate::core::{DiskCompletion, DiskFailure, DiskRequest};
use crate::io::{Disk, IoFinished};
use crate::pager::shared::{Effects, Round, Shared};
use crate::store::{ScanProgress, TagSpace};
use crate::units::GroupIndex;
use hops::{Flight, StuckHop};
use siblings::PendingSiblings;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tasks::{Clearing, RunningTask};

/// How long a sleep lasts at most, so that a missed wake costs no more than this.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// The tags of slot writes and reads; tasks and scans have others.
const HOPS: TagSpace = TagSpace::new(0);

/// The tags of the scrubber.
const SCRUB: TagSpace = TagSpace::new(1);

/// The tags of tasks begin here.
const FIRST_TASK_SPACE: u32 = 2;

/// The thread's own state.
#[derive(Debug)]
pub(in crate::pager) struct DiskThread {
    shared: Arc<Shared>,
    disk: Box<dyn Disk>,
    /// Stripe by stripe, and in each by group.
    stores: Vec<GroupStore>,
    flights: HashMap<u32, Flight>,
    stuck: Vec<StuckHop>,
    next_number: u32,
    next_space: u32,
    tasks: Vec<RunningTask>,
    clearings: Vec<Clearing>,
    next_clearing: u32,
    siblings: Vec<PendingSiblings>,
    /// Writes into slots that are being erased.
    parked: Vec<u32>,
    syncs: Syncs,
    scrubber: Scrubber,
    requests: Vec<DiskRequest>,
    finished: Vec<IoFinished>,
    completions: Vec<DiskCompletion>,
    effects: Effects,
    close_by: Option<Instant>,
    io_timeout: Duration,
    on_progress: Option<ProgressListener>,
}

impl DiskThread {
    pub(in crate::pager) fn new(
        shared: Arc<Shared>,
        tier: OpenedTier,
        settings: &DiskConfig,
    ) -> Self {
        let now = shared.clock().instant();
        Self {
            shared,
            disk: tier.disk,
            stores: tier.stores,
            flights: HashMap::new(),
            stuck: Vec::new(),
            next_number: 0,
            next_space: FIRST_TASK_SPACE,
            tasks: Vec::new(),
            clearings: Vec::new(),
            next_clearing: 0,
            siblings: Vec::new(),
            parked: Vec::new(),
            syncs: Syncs::new(settings.sync_interval, now),
            scrubber: Scrubber::new(SCRUB, settings.scrub_budget, now),
            requests: Vec::new(),
            finished: Vec::new(),
            completions: Vec::new(),
            effects: Effects::new(),
            close_by: None,
            io_timeout: settings.io_timeout,
            on_progress: settings.on_progress.clone(),
        }
    }

    /// Runs until the pager closes. A panic poisons the pager, so that no ticket waits for a
    /// thread that is gone.
    pub(in crate::pager) fn run(mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        let ended = match catch_unwind(AssertUnwindSafe(|| self.serve())) {
            Ok(()) => catch_unwind(AssertUnwindSafe(move || self.end())),
            // What it holds is dropped after those that wait were told, which may take time.
            Err(panic) => {
                Self::break_off(&shared);
                Err(panic)
            }
        };
        ended.unwrap_or_else(|panic| {
            Self::break_off(&shared);
            resume_unwind(panic)
        })
    }

    /// Poisons the pager, and lets go of whoever asked for something.
    fn break_off(shared: &Shared) {
        shared.poison();
        drop(shared.disk_state().end());
    }

    fn serve(&mut self) {
        loop {
            match self.round() {
                Round::Over => return,
                Round::Busy => {}
                Round::Idle(sleep) => self.disk.wait(sleep),
            }
        }
    }

    /// Sleeps until the disk has something to report, somebody wakes the thread, or time is over.
    #[cfg(feature = "testing")]
    pub(in crate::pager) fn wait(&mut self, timeout: Duration) {
        self.disk.wait(timeout);
    }

    /// Does what there is to do now.
    pub(in crate::pager) fn round(&mut self) -> Round {
        self.take_commands();
        self.shared.disk_state().take_requests(&mut self.requests);
        self.start_hops();
        self.scan();
        self.advance_tasks();
        self.remove_siblings();
        self.sync_if_due();
        self.scrub();
        self.disk.poll(&mut self.finished);
        let is_idle = self.finished.is_empty() && self.completions.is_empty();
        self.take_reports();
        self.release_stuck();
        self.report();
        if self.is_over() {
            return Round::Over;
        }
        if !is_idle || !self.requests.is_empty() {
            return Round::Busy;
        }
        let now = self.shared.clock().instant();
        let due = match self.close_by {
            None => self.scrubber.until_due(now),
            Some(close_by) => close_by.saturating_duration_since(now),
        };
        Round::Idle(SLEEP_MAX.min(due).min(self.syncs.until_due(now)))
    }

    fn take_commands(&mut self) {
        for command in self.shared.disk_state().take_commands() {
            match command {
                DiskCommand::Flush(answer) => {
                    self.stores.iter_mut().for_each(GroupStore::want_found_synced);
                    self.syncs.wait_for_flush(answer);
                }
                DiskCommand::Clear(answer) => self.start_clear(answer),
                DiskCommand::Erase(what, answer) => self.start_erasure(what, answer),
                DiskCommand::Close => {
                    self.close_by = Some(self.shared.clock().instant() + self.io_timeout);
                }
            }
        }
    }

    /// Whether the thread is to end: nothing is under way any more, or no longer waited for.
    fn is_over(&self) -> bool {
        let Some(close_by) = self.close_by else { return false };
        self.is_quiet() || self.shared.clock().instant() >= close_by
    }

    /// Whether nothing is under way.
    fn is_quiet(&self) -> bool {
        self.flights.is_empty()
            && self.requests.is_empty()
            && self.tasks.is_empty()
            && self.siblings.is_empty()
            && !self.scrubber.is_reading()
            && self.stores.iter().all(GroupStore::is_quiet)
    }

    /// Takes the reports of the disk to those whose operations they end.
    fn take_reports(&mut self) {
        let now = self.shared.clock().instant();
        for report in std::mem::take(&mut self.finished) {
            let space = TagSpace::of(report.tag);
            if space == HOPS {
                self.end_hop(report);
            } else if space == self.scrubber.space() {
                self.end_scrub(report);
            } else if let Some(at) = self.stores.iter().position(|store| store.scans(space)) {
                if let Some(fault) = self.stores[at].scan_finished(report, now) {
                    self.lose_disk(at, &fault.to_string());
                }
            } else if let Some(at) = self.tasks.iter().position(|task| task.task.space() == space) {
                let RunningTask { store, task, .. } = &mut self.tasks[at];
                task.finished(&mut self.stores[*store].store, report);
            }
        }
    }

    /// Tells the core what ended, and takes in what it wants next.
    fn report(&mut self) {
        let completions = std::mem::take(&mut self.completions);
        self.shared.complete_disk(&completions, &mut self.effects);
        self.shared.settle(&mut self.effects);
        self.requests.append(&mut self.effects.disk);
        self.shared.hand_over(std::mem::take(&mut self.effects.hops), Vec::new());
    }

    /// Reads headers of stores that are not recovered, and tells the core what was found.
    fn scan(&mut self) {
        let (depth, now) = (self.disk.depth(), self.shared.clock().instant());
        for at in 0..self.stores.len() {
            let store = &mut self.stores[at];
            if self.close_by.is_none() {
                let operations = store.scan_operations(depth, now);
                if !operations.is_empty() {
                    self.disk.submit(operations);
                }
            }
            let shared = &self.shared;
            let effects = &mut self.effects;
            store.adopt_scanned(|command| shared.collect(effects, command));
            if let Some(progress) = store.take_progress() {
                let health = if store.store.is_recovered() {
                    DiskHealth::Serving
                } else {
                    DiskHealth::Recovering { progress }
                };
                self.shared.disk_state().set_health(at, health);
                self.shared.disk_state().set_recovered(at, progress);
                self.tell_progress(self.stores[at].group());
            }
        }
        for at in 0..self.stores.len() {
            self.begin_erasures(at);
        }
    }

    /// Tells the listener how far the scan of a group has come, over all its stripes.
    fn tell_progress(&self, group: GroupIndex) {
        let Some(listener) = &self.on_progress else { return };
        let of_group = self.stores.iter().filter(|store| store.group() == group);
        listener.tell(group, of_group.map(GroupStore::progress).fold(ScanProgress::default(), add));
    }

    /// Reads the next slot that is to be scrubbed, if it is due.
    fn scrub(&mut self) {
        if self.close_by.is_some() {
            return;
        }
        let operation = self.scrubber.operation(&self.stores, self.shared.clock().instant());
        if let Some(operation) = operation {
            self.disk.submit(vec![operation]);
        }
    }

    /// Gives up a chunk that scrubbing found rotten.
    fn end_scrub(&mut self, report: IoFinished) {
        let Some(rotten) = self.scrubber.finished(&self.stores, report) else {
            return self.shared.disk_state().count_scrubbed(false);
        };
        let Rotten { store, slot, fault } = rotten;
        self.stores[store].store.forget(slot);
        let place = self.stores[store].place();
        let lost = self.shared.collect(&mut self.effects, |core| {
            core.lose_disk_slot(place.group, place.disk_slot(slot))
        });
        // A free slot may rot, and a poisoned core has nothing to lose any more.
        let is_lost = lost.unwrap_or(false);
        if is_lost {
            let directory = self.stores[store].store.directory().display();
            tracing::warn!(%fault, %slot, %directory, "scrubbing found a chunk that rotted");
        }
        self.shared.disk_state().count_scrubbed(is_lost);
    }

    /// Closes the stores with their snapshots, and the disk. Returns whether nothing was left
    /// behind.
    pub(in crate::pager) fn end(mut self) -> bool {
        let is_quiet = self.is_quiet();
        let group_count = self.shared.setup.layout.groups().len();
        let groups = (0..).map(GroupIndex::new).take(group_count);
        let found: Vec<Vec<_>> = groups
            .map(|group| {
                self.shared.collect(&mut self.effects, |core| core.disk_entries(group).collect())
            })
            .collect();
        self.forget_stuck_writes();
        self.give_up();
        let mut is_clean = is_quiet;
        let is_poisoned = self.shared.collect(&mut self.effects, |core| core.is_poisoned());
        for store in self.stores {
            // Closing wants the disk for itself. A snapshot of what was lost, or of tables that
            // nobody trusts, would be one of nothing: the next open scans instead.
            let is_known = !is_poisoned && store.service != Service::Lost;
            if !is_quiet || !is_known {
                is_clean = false;
                store.store.abandon(&mut *self.disk);
                continue;
            }
            let found = &found[usize::from(store.group().get())];
            match store.close(&mut *self.disk, found) {
                Ok(report) => is_clean &= report.is_clean,
                Err(error) => {
                    tracing::warn!(%error, "a store was not closed cleanly: it will be scanned");
                    is_clean = false;
                }
            }
        }
        let report = self.disk.shut(self.io_timeout);
        if report.leaked_operations > 0 {
            let leaked = report.leaked_operations;
            tracing::error!(leaked, "the kernel still holds disk operations: their memory is kept");
        }
        is_clean && report.leaked_operations == 0
    }
}

impl DiskThread {
    /// Fails what is under way and what was asked for, and has the core ask for no more: no
    /// transfer waits for a thread that has ended.
    fn give_up(&mut self) {
        for Place { group, stripe, .. } in self.stores.iter().map(GroupStore::place) {
            self.shared.collect(&mut self.effects, |core| core.stop_disk(group, stripe));
        }
        // The memory of those under way stays with the disk, which may still touch it.
        let flights = std::mem::take(&mut self.flights).into_values();
        let given_up = |flight: Flight| flight.request.ended(Err(DiskFailure::Stuck));
        self.completions.extend(flights.map(given_up));
        let mut unmade = self.shared.disk_state().end();
        loop {
            unmade.append(&mut self.requests);
            let failed = |request: DiskRequest| request.ended(Err(DiskFailure::Drive));
            self.completions.extend(unmade.drain(..).map(failed));
            // Also what the disk was given up with, above.
            self.report();
            if self.requests.is_empty() {
                return;
            }
        }
    }
}
