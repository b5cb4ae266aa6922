//! Tasks of the stores among the slot writes and reads: beginning a run, syncs, clears, erasures.

use super::{DiskThread, FIRST_TASK_SPACE, SCAN_SPACE};
use crate::core::Core;
use crate::pager::Erasure;
use crate::pager::disk::DiskCommandError;
use crate::pager::disk::erase::{Erased, PendingErasure};
use crate::pager::disk::group::GroupStore;
use crate::store::{StoreError, TagSpace, Task};
use std::sync::mpsc::Sender;
use std::time::Instant;

/// What a task under way is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// The first write of a group waits for it.
    BeginRun,
    /// A sync of all groups.
    Sync,
    /// A caller waits for it: the number of its clear.
    Clear(u32),
    /// The same of an erasure.
    Erase(u32),
}

/// A task under way, and the group of its store.
#[derive(Debug)]
pub(super) struct RunningTask {
    pub(super) group: usize,
    pub(super) purpose: Purpose,
    pub(super) task: Task,
}

/// A clear or erasure that is answered when all its tasks have ended.
#[derive(Debug)]
pub(super) struct Clearing {
    number: u32,
    left: usize,
    result: Result<(), DiskCommandError>,
    answer: Sender<Result<(), DiskCommandError>>,
}

impl DiskThread {
    /// Moves every task on, and takes in those that have ended.
    pub(super) fn advance_tasks(&mut self) {
        let room = self.disk.depth();
        let mut ended = Vec::new();
        for (at, running) in self.tasks.iter_mut().enumerate() {
            let store = &mut self.groups[running.group].store;
            let operations = running.task.operations(store, room);
            if !operations.is_empty() {
                self.disk.submit(operations);
            }
            if let Some(outcome) = running.task.outcome() {
                ended.push((at, outcome));
            }
        }
        for (at, outcome) in ended.into_iter().rev() {
            let RunningTask { group, purpose, .. } = self.tasks.remove(at);
            self.end_task(group, purpose, outcome);
        }
    }

    fn end_task(&mut self, group: usize, purpose: Purpose, outcome: Result<(), StoreError>) {
        if let Err(error) = &outcome {
            self.stop_writes(group, &error.to_string());
        }
        match purpose {
            Purpose::BeginRun if outcome.is_ok() => self.start_waiting(group),
            Purpose::BeginRun => self.fail_waiting(group),
            Purpose::Sync => {
                if let Some(mark) = self.syncs.end_one(outcome.is_ok()) {
                    self.shared.collect(&mut self.effects, |core| core.synced(mark));
                }
            }
            Purpose::Clear(number) => self.end_clear(number, outcome.map_err(Into::into)),
            Purpose::Erase(number) => self.end_erasure(group, number, outcome),
        }
    }

    /// Syncs what was written when that is due, or when a flush has nothing left to write.
    pub(super) fn sync_if_due(&mut self) {
        let now = Instant::now();
        let is_flushed = self.syncs.has_flush()
            && self.shared.collect(&mut self.effects, |core| core.unwritten()) == 0;
        if is_flushed && !self.syncs.is_running() && self.groups.iter().all(GroupStore::is_synced) {
            self.syncs.answer(&self.shared.disk_state().health());
        }
        if !self.syncs.may_begin(now, is_flushed) {
            return;
        }
        let unsynced: Vec<usize> =
            (0..self.groups.len()).filter(|&at| !self.groups[at].is_synced()).collect();
        if unsynced.is_empty() {
            return self.syncs.skip(now);
        }
        let mark = self.shared.collect(&mut self.effects, Core::begin_sync);
        self.syncs.begin(now, mark, unsynced.len());
        for group in unsynced {
            let space = self.take_space();
            let task = self.groups[group].sync(space);
            self.tasks.push(RunningTask { group, purpose: Purpose::Sync, task });
        }
        // Now, since with nothing else under way the thread goes to sleep after this round.
        self.advance_tasks();
    }

    /// Clears every store; the answer comes when all are durably empty.
    pub(super) fn start_clear(&mut self, answer: Sender<Result<(), DiskCommandError>>) {
        let number = self.begin_clearing(answer);
        for group in 0..self.groups.len() {
            let space = self.take_space();
            let task = self.groups[group].store.clear(space);
            self.tasks.push(RunningTask { group, purpose: Purpose::Clear(number), task });
        }
        // Once more: until the stores were told, a scan may have brought back what the caller's
        // clear of the core had dropped.
        self.shared.collect(&mut self.effects, Core::clear);
    }

    /// Takes note of a clear or erasure of all stores, and returns its number.
    fn begin_clearing(&mut self, answer: Sender<Result<(), DiskCommandError>>) -> u32 {
        let number = self.next_clearing;
        self.next_clearing = self.next_clearing.wrapping_add(1);
        let left = self.groups.len();
        self.clearings.push(Clearing { number, left, result: Ok(()), answer });
        number
    }

    /// Drops what is to be erased from the core, and has every store erase what it has of it by
    /// now: no slot write is named between the two.
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
        let number = self.begin_clearing(answer);
        let erased = Erased::new(what);
        for at in 0..self.groups.len() {
            self.groups[at].erase(number, &erased);
            self.begin_erasures(at);
        }
    }

    /// Begins the erasures that waited for a store's scan, if that is over.
    pub(super) fn begin_erasures(&mut self, group: usize) {
        for PendingErasure { number, erased, before } in self.groups[group].take_erasures() {
            let space = self.take_space();
            match self.groups[group].store.erase_before(space, &erased.erasure, before) {
                Ok(task) => {
                    self.tasks.push(RunningTask { group, purpose: Purpose::Erase(number), task });
                }
                Err(error) => self.end_erasure(group, number, Err(error)),
            }
        }
    }

    fn end_erasure(&mut self, group: usize, number: u32, outcome: Result<(), StoreError>) {
        let directory = self.groups[group].store.directory();
        let outcome = outcome.map_err(|source| {
            tracing::error!(directory = %directory.display(), %source, "an erasure failed");
            DiskCommandError::NotErased { directory: directory.to_owned(), source }
        });
        self.end_clear(number, outcome);
    }

    fn end_clear(&mut self, number: u32, outcome: Result<(), DiskCommandError>) {
        let at = self.clearings.iter().position(|clearing| clearing.number == number);
        let Some(at) = at else { return };
        let clearing = &mut self.clearings[at];
        clearing.left -= 1;
        if let Err(error) = outcome {
            clearing.result = Err(error);
        }
        if clearing.left == 0 {
            let Clearing { result, answer, .. } = self.clearings.remove(at);
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
