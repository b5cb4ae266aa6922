//! Tasks of the stores among the slot writes and reads: beginning a run, syncs, clears, erasures.

use super::{DiskThread, FIRST_TASK_SPACE, SCAN_SPACE};
use crate::core::Core;
use crate::pager::Erasure;
use crate::pager::disk::DiskCommandError;
use crate::pager::disk::erase::{Erased, PendingErasure};
use crate::pager::disk::group::{GroupStore, Service};
use crate::pager::disk::state::{MissingStripe, Unreached};
use crate::store::{StoreError, TagSpace, Task};
use std::sync::mpsc::Sender;

/// What a task under way is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// The first write of a store waits for it.
    BeginRun,
    /// A sync of all stores.
    Sync,
    /// A caller waits for it: the number of its clear.
    Clear(u32),
    /// The same of an erasure.
    Erase(u32),
}

/// A task under way, and the number of its store.
#[derive(Debug)]
pub(super) struct RunningTask {
    pub(super) store: usize,
    pub(super) purpose: Purpose,
    pub(super) task: Task,
}

/// A clear or erasure that is answered when all its tasks have ended, and the stores beside every
/// store were seen to.
#[derive(Debug)]
pub(super) struct Clearing {
    number: u32,
    left: usize,
    unreached: Vec<Unreached>,
    /// Makes an error of what was not reached.
    failed: fn(Vec<Unreached>) -> DiskCommandError,
    answer: Sender<Result<(), DiskCommandError>>,
}

impl DiskThread {
    /// Moves every task on, and takes in those that have ended.
    pub(super) fn advance_tasks(&mut self) {
        let room = self.disk.depth();
        let mut ended = Vec::new();
        for (at, running) in self.tasks.iter_mut().enumerate() {
            let store = &mut self.stores[running.store].store;
            let operations = running.task.operations(store, room);
            if !operations.is_empty() {
                self.disk.submit(operations);
            }
            if let Some(outcome) = running.task.outcome() {
                ended.push((at, outcome));
            }
        }
        for (at, outcome) in ended.into_iter().rev() {
            let RunningTask { store, purpose, .. } = self.tasks.remove(at);
            self.end_task(store, purpose, outcome);
        }
    }

    fn end_task(&mut self, store: usize, purpose: Purpose, outcome: Result<(), StoreError>) {
        if let Err(error) = &outcome {
            self.stop_writes(store, &error.to_string());
        }
        match purpose {
            Purpose::BeginRun if outcome.is_ok() => self.start_waiting(store),
            Purpose::BeginRun => self.fail_waiting(store),
            Purpose::Sync => {
                if let Some(mark) = self.syncs.end_one() {
                    self.shared.collect(&mut self.effects, |core| core.synced(mark));
                }
            }
            Purpose::Clear(number) => self.end_clear(number, store, outcome),
            Purpose::Erase(number) => {
                self.end_erasure(store, number, outcome.map_err(|error| error.to_string()));
            }
        }
    }

    /// Syncs what was written when that is due, or when a flush has nothing left to write.
    pub(super) fn sync_if_due(&mut self) {
        let now = self.shared.clock().instant();
        let is_flushed = self.syncs.has_flush()
            && self.shared.collect(&mut self.effects, |core| core.unwritten()) == 0;
        if is_flushed && !self.syncs.is_running() && self.stores.iter().all(GroupStore::is_synced) {
            self.syncs.answer(&self.shared.disk_state().health());
        }
        if !self.syncs.may_begin(now, is_flushed) {
            return;
        }
        // The core calls durable whatever it has taken in before a sync of any store.
        self.stores.iter_mut().for_each(GroupStore::want_found_synced);
        let unsynced: Vec<usize> =
            (0..self.stores.len()).filter(|&at| !self.stores[at].is_synced()).collect();
        if unsynced.is_empty() {
            return self.syncs.skip(now);
        }
        let mark = self.shared.collect(&mut self.effects, Core::begin_sync);
        self.syncs.begin(now, mark, unsynced.len());
        for store in unsynced {
            let space = self.take_space();
            let task = self.stores[store].sync(space);
            self.tasks.push(RunningTask { store, purpose: Purpose::Sync, task });
        }
        // Now, since with nothing else under way the thread goes to sleep after this round.
        self.advance_tasks();
    }

    /// Clears every store; the answer comes when all are durably empty and those beside them are
    /// gone, or nothing more can be done about those that are not. A stripe that is missing is such
    /// a one.
    pub(super) fn start_clear(&mut self, answer: Sender<Result<(), DiskCommandError>>) {
        let number =
            self.begin_clearing(answer, |unreached| DiskCommandError::NotCleared { unreached });
        for store in 0..self.stores.len() {
            let space = self.take_space();
            let task = self.stores[store].store.clear(space);
            self.tasks.push(RunningTask { store, purpose: Purpose::Clear(number), task });
        }
        // Once more: until the stores were told, a scan may have brought back what the caller's
        // clear of the core had dropped.
        self.shared.collect(&mut self.effects, Core::clear);
    }

    /// Takes note of a clear or erasure of all stores and of those beside them, and returns its
    /// number. Stripes that are missing are not reached.
    fn begin_clearing(
        &mut self,
        answer: Sender<Result<(), DiskCommandError>>,
        failed: fn(Vec<Unreached>) -> DiskCommandError,
    ) -> u32 {
        let number = self.next_clearing;
        self.next_clearing = self.next_clearing.wrapping_add(1);
        let left = self.stores.len() + self.want_siblings_removed(number);
        let missing = self.shared.disk_state().missing().iter();
        let unreached = missing.map(MissingStripe::unreached).collect();
        self.clearings.push(Clearing { number, left, unreached, failed, answer });
        number
    }

    /// Drops what is to be erased from the core, and has every store erase what it has of it by
    /// now: no slot write is named between the two. Stores beside them go whole.
    pub(super) fn start_erasure(
        &mut self,
        what: Erasure,
        answer: Sender<Result<(), DiskCommandError>>,
    ) {
        if let Err(refused) = what.drop_in_core(&self.shared, &mut self.effects) {
            // Whoever asked may have stopped waiting.
            let _unheard = answer.send(Err(refused.into()));
            return;
        }
        let number =
            self.begin_clearing(answer, |unreached| DiskCommandError::NotErased { unreached });
        let erased = Erased::new(what);
        for at in 0..self.stores.len() {
            self.stores[at].erase(number, &erased);
            self.begin_erasures(at);
        }
    }

    /// Begins the erasures that waited for a store's scan, if that is over; ends those of a store
    /// whose drive was given up before.
    pub(super) fn begin_erasures(&mut self, store: usize) {
        for PendingErasure { number, erased, before } in self.stores[store].take_erasures() {
            let space = self.take_space();
            let GroupStore { store: of_group, service, .. } = &self.stores[store];
            if *service == Service::Lost && !of_group.is_recovered() {
                self.end_erasure(store, number, Err("its drive was given up".to_owned()));
                continue;
            }
            match of_group.erase_before(space, &erased.erasure, before) {
                Ok(task) => {
                    self.tasks.push(RunningTask { store, purpose: Purpose::Erase(number), task });
                }
                Err(error) => self.end_erasure(store, number, Err(error.to_string())),
            }
        }
    }

    fn end_erasure(&mut self, store: usize, number: u32, outcome: Result<(), String>) {
        let directory = self.stores[store].store.directory();
        let unreached = outcome.err().map(|reason| {
            tracing::error!(directory = %directory.display(), reason, "an erasure failed");
            Unreached { directory: directory.to_owned(), reason }
        });
        self.end_one(number, unreached);
    }

    fn end_clear(&mut self, number: u32, store: usize, outcome: Result<(), StoreError>) {
        let root = self.stores[store].root().to_owned();
        let unreached =
            |error: StoreError| Unreached { directory: root, reason: error.to_string() };
        self.end_one(number, outcome.err().map(unreached));
    }

    /// Takes in what became of a clear or erasure in one store, and answers when that was the last.
    pub(super) fn end_one(&mut self, number: u32, unreached: impl IntoIterator<Item = Unreached>) {
        let at = self.clearings.iter().position(|clearing| clearing.number == number);
        let Some(at) = at else { return };
        let clearing = &mut self.clearings[at];
        clearing.left -= 1;
        for unreached in unreached {
            // All groups of a stripe share its directory.
            let known = &mut clearing.unreached;
            if !known.iter().any(|other| other.directory == unreached.directory) {
                known.push(unreached);
            }
        }
        if clearing.left == 0 {
            let Clearing { unreached, failed, answer, .. } = self.clearings.remove(at);
            let result = if unreached.is_empty() { Ok(()) } else { Err(failed(unreached)) };
            // Whoever asked may have stopped waiting.
            let _unheard = answer.send(result);
        }
    }

    pub(super) fn take_space(&mut self) -> TagSpace {
        let space = TagSpace::new(self.next_space);
        self.next_space = match self.next_space + 1 {
            SCAN_SPACE => FIRST_TASK_SPACE,
            next => next,
        };
        space
    }
}
