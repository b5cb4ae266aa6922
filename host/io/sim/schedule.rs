//! From taking an operation in to its report: what waits, starts and ends, and what a power cut
//! leaves.

use super::State;
use super::clock::nanoseconds;
use super::faults::{SimFault, SimKind};
use super::image::Change;
use super::operation::Operation;
use super::state::{Finished, Step};
use super::tree::NodeId;
use crate::io::{FileId, IO_ALIGN_BYTES, IoFault, IoFinished, IoMemory, IoOperation, OpenMode};
use crate::units::Timestamp;
use nix::errno::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// An operation that hangs ends, if ever, within so many times `io_timeout` after it was given up.
const LATE_TIMEOUTS: u64 = 4;

impl State {
    /// Takes operations in, and starts as many as the depth allows.
    pub(super) fn submit(&mut self, disk: u32, operations: Vec<IoOperation>) {
        for operation in operations {
            let mut operation = Operation::new(disk, operation, self.now_ns);
            let accepted = self.accept(&mut operation);
            let state = self.disk(disk);
            match accepted {
                Err(fault) => state.finished.push(finished(operation, Err(fault), None)),
                Ok(()) => state.enqueue(operation),
            }
        }
        self.start_waiting(disk);
        if self.disk(disk).has_waiting() {
            let overdue_ns = self.now_ns + nanoseconds(self.options.io_timeout);
            self.events.insert((overdue_ns, disk.into(), Step::Overdue));
        }
    }

    /// Checks an operation, and notes what it needs to know of the present.
    fn accept(&mut self, operation: &mut Operation) -> Result<(), IoFault> {
        let disk = self.disks.get_mut(&operation.disk).expect("the handle that submits");
        if disk.is_dead {
            return Err(IoFault::from_errno(Errno::ENODEV));
        }
        let open = disk.files.get_mut(&operation.file).filter(|open| !open.is_closed);
        let open = open.ok_or(IoFault::NotOpen)?;
        operation.path.clone_from(&open.path);
        operation.node = open.node;
        if !operation.offset.is_multiple_of(IO_ALIGN_BYTES) {
            return Err(IoFault::Misaligned);
        }
        if operation.kind == SimKind::Write && open.mode == OpenMode::ReadOnly {
            return Err(IoFault::ReadOnly);
        }
        let is_writable = operation.memory.as_ref().is_none_or(IoMemory::is_writable);
        if operation.kind == SimKind::Read && !is_writable {
            return Err(IoFault::MemoryNotWritable);
        }
        open.users += 1;
        operation.part = self.part_of(&operation.path);
        operation.covered = self.tree.file_mut(operation.node).covered();
        operation.sign();
        Ok(())
    }

    fn start_waiting(&mut self, disk: u32) {
        let depth = self.options.depth;
        while let Some(operation) = self.disk(disk).next_waiting(depth) {
            self.start(operation);
        }
    }

    /// Draws what goes wrong with an operation, and when it touches memory and ends.
    fn start(&mut self, mut operation: Operation) {
        operation.fault = self.begin(operation.kind, &operation.path);
        let latency_max_ns = nanoseconds(self.options.latency_max);
        let timeout_ns = nanoseconds(self.options.io_timeout);
        let (now_ns, number) = (self.now_ns, self.operation_next);
        self.operation_next += 1;
        let random = &mut self.disk(operation.disk).random;
        let latency_ns = 1 + random.below(latency_max_ns);
        let mut last_ns = latency_ns.min(timeout_ns);
        let mut steps = vec![(last_ns, Step::End)];
        if operation.fault == Some(SimFault::Hang) {
            steps = vec![(timeout_ns, Step::GiveUp)];
            last_ns = timeout_ns + 1 + random.below(LATE_TIMEOUTS * timeout_ns);
            if random.coin() {
                steps.push((last_ns, Step::End));
            }
        } else if operation.fault == Some(SimFault::Stall) || latency_ns > timeout_ns {
            last_ns = timeout_ns;
            steps = vec![(timeout_ns, Step::Cancel)];
        }
        steps.push((random.below(last_ns), Step::Moment));
        let events = steps.into_iter().map(|(after_ns, step)| (now_ns + after_ns, number, step));
        self.events.extend(events);
        self.under_way.insert(number, operation);
    }

    /// Draws what goes wrong with an operation or call that begins. What befalls the whole drive
    /// does so at once.
    pub(super) fn begin(&mut self, kind: SimKind, path: &Path) -> Option<SimFault> {
        let fault = self.faults.begin(kind, path, &mut self.random);
        let part = self.part_of(path);
        if fault == Some(SimFault::Vanish) {
            self.gone.insert(part);
        }
        if fault == Some(SimFault::ReadOnly) {
            self.read_only.insert(part);
        }
        fault
    }

    /// Counts a step, and returns whether the power goes with it.
    pub(super) fn step(&mut self) -> bool {
        self.counters.steps += 1;
        match &mut self.cut_in {
            None => false,
            Some(0) => true,
            Some(count) => {
                *count -= 1;
                false
            }
        }
    }

    /// Ends an operation, unless the power goes instead.
    pub(super) fn end(&mut self, number: u64, is_cancelled: bool) {
        let is_reported = self.under_way.get(&number).is_some_and(|given_up| given_up.is_reported);
        if !is_reported && self.step() {
            self.cut();
            return;
        }
        let mut operation = self.take(number);
        let (mut outcome, sequence) = self.finish(&mut operation, is_cancelled);
        let (disk, file, part) = (operation.disk, operation.file, operation.part);
        let mut change = sequence.map(|sequence| (operation.node, sequence));
        let now_ns = self.now_ns;
        let state = self.disk(disk);
        state.end_on(part, now_ns);
        // Nobody hears of its end: the drive knows that it has ended all the same.
        let unheard =
            if state.is_dead || state.is_abandoned || is_reported { change.take() } else { None };
        if state.is_dead {
            outcome = Err(IoFault::from_errno(Errno::ENODEV));
        }
        if !is_reported {
            state.finished.push(finished(operation, outcome, change));
        }
        state.leave(file);
        if let Some((node, sequence)) = unheard {
            self.tree.report(node, sequence);
        }
        self.start_waiting(disk);
        self.forget_idle(disk);
    }

    /// Reports an operation that the drive does not let go of, without its memory.
    pub(super) fn give_up(&mut self, number: u64) {
        if self.step() {
            self.cut();
            return;
        }
        let mut operation = self.take(number);
        operation.is_reported = true;
        let outcome = Err(IoFault::TimedOut);
        let report = IoFinished { tag: operation.tag, outcome, memory: None };
        let record = operation.record(false);
        self.disk(operation.disk).finished.push(Finished { report, record, change: None });
        self.under_way.insert(number, operation);
    }

    /// Reports what has waited for an `io_timeout` while nothing ended.
    pub(super) fn give_up_waiting(&mut self, disk: u32) {
        let timeout_ns = nanoseconds(self.options.io_timeout);
        let now_ns = self.now_ns;
        let Some(state) = self.disks.get_mut(&disk).filter(|state| state.has_waiting()) else {
            return;
        };
        let mut still = BTreeMap::new();
        let is_overdue = |progress_ns: u64| progress_ns + timeout_ns <= now_ns;
        for part in 0..=self.mounts.len() {
            still.insert(part, is_overdue(state.progress_ns(part)));
        }
        let is_given_up =
            |waits: &Operation| still[&waits.part] && waits.submitted_ns + timeout_ns <= now_ns;
        for operation in state.take_waiting(is_given_up) {
            state.leave(operation.file);
            state.finished.push(finished(operation, Err(IoFault::TimedOut), None));
        }
        let next_ns = state.oldest_progress_ns().map(|progress_ns| progress_ns + timeout_ns);
        if let Some(overdue_ns) = next_ns.filter(|&overdue_ns| overdue_ns > now_ns) {
            self.events.insert((overdue_ns, disk.into(), Step::Overdue));
        }
    }

    /// Hands over a handle's reports. From now on a sync covers what they tell of.
    pub(super) fn poll(&mut self, disk: u32, reports: &mut Vec<IoFinished>) {
        for Finished { report, mut record, change } in std::mem::take(&mut self.disk(disk).finished)
        {
            if let Some((node, sequence)) = change {
                self.tree.report(node, sequence);
            }
            record.reported = Timestamp::new(self.now_ns);
            self.counters.add(&record);
            self.log.push(record);
            reports.push(report);
        }
    }

    /// Returns whether the file system has room for the blocks that a change takes.
    pub(super) fn has_room(&mut self, node: NodeId, change: &Change) -> bool {
        let blocks = self.tree.file_mut(node).volatile.new_blocks(change);
        blocks == 0 || blocks <= self.available()
    }

    /// Returns the bytes that files may still take.
    pub(super) fn available(&self) -> u64 {
        self.options.total.get().saturating_sub(self.tree.allocated(&self.open_nodes()))
    }

    /// Lets a change of a file take effect, and returns its number.
    pub(super) fn apply(&mut self, node: NodeId, change: Change) -> u64 {
        let modified_s = self.options.clock.unix_s();
        let cache = self.options.cache;
        self.tree.file_mut(node).change(change, modified_s, cache)
    }

    fn open_nodes(&self) -> BTreeSet<NodeId> {
        self.disks.values().flat_map(|disk| disk.files.values().map(|open| open.node)).collect()
    }

    /// Closes a file, once nothing uses it.
    pub(super) fn close(&mut self, disk: u32, file: FileId) {
        if let Some(open) = self.disk(disk).files.get_mut(&file) {
            open.is_closed = true;
        }
        self.forget_idle(disk);
    }

    /// Ends a handle's program: what waits never starts, and what is under way ends unheard, or as
    /// failed.
    pub(super) fn kill(&mut self, disk: u32) {
        let Some(state) = self.disks.get_mut(&disk) else { return };
        state.is_dead = true;
        for operation in state.take_waiting(|_| true) {
            state.leave(operation.file);
            let outcome = Err(IoFault::from_errno(Errno::ENODEV));
            state.finished.push(finished(operation, outcome, None));
        }
        state.close_all();
        self.report_unheard(disk);
        self.forget_idle(disk);
    }

    /// Leaves a handle: what waits never starts, what is under way ends unheard.
    pub(super) fn abandon(&mut self, disk: u32) {
        let state = self.disk(disk);
        state.is_abandoned = true;
        for operation in state.take_waiting(|_| true) {
            state.leave(operation.file);
        }
        state.close_all();
        self.report_unheard(disk);
        self.forget_idle(disk);
    }

    /// Has later syncs cover what has ended and nobody will ask for.
    fn report_unheard(&mut self, disk: u32) {
        let finished = &mut self.disk(disk).finished;
        let changes = finished.iter_mut().filter_map(|finished| finished.change.take());
        for (node, sequence) in changes.collect::<Vec<_>>() {
            self.tree.report(node, sequence);
        }
    }

    /// Forgets closed files, with their locks, and an abandoned handle when nothing of them is
    /// under way any more.
    fn forget_idle(&mut self, disk: u32) {
        let state = self.disk(disk);
        let before = state.files.len();
        state.files.retain(|_, open| !open.is_closed || open.users > 0);
        let closed = before > state.files.len();
        if state.is_abandoned && state.under_way() == 0 {
            self.disks.remove(&disk);
        }
        if closed {
            self.forget_unreachable();
        }
    }

    /// Drops the files that no entry leads to and nobody has open.
    pub(super) fn forget_unreachable(&mut self) {
        let open = self.open_nodes();
        self.tree.forget_unreachable(&open);
    }

    /// Cuts the power: draws what survives, and ends every handle.
    pub(super) fn cut(&mut self) {
        self.counters.cuts += 1;
        self.cut_in = None;
        self.gone.clear();
        self.read_only.clear();
        self.events.clear();
        let operations = std::mem::take(&mut self.under_way);
        for (node, file) in self.tree.files_mut() {
            let writes = operations.values().filter(|operation| operation.node == node);
            let writes: Vec<Change> = writes.filter_map(Operation::write).collect();
            file.cut(&writes, &mut self.random);
        }
        self.tree.cut(&mut self.random);
        let mut operations: Vec<Operation> = operations.into_values().collect();
        for disk in self.disks.values_mut() {
            disk.is_dead = true;
            disk.files.clear();
            disk.forget_under_way();
            operations.extend(disk.take_waiting(|_| true));
            // What ended unheard: whoever might have asked is as dead as the others.
            for finished in &mut disk.finished {
                finished.report.outcome = Err(IoFault::from_errno(Errno::ENODEV));
                finished.record.is_ok = false;
                finished.change = None;
            }
        }
        for operation in operations.into_iter().filter(|operation| !operation.is_reported) {
            let outcome = Err(IoFault::from_errno(Errno::ENODEV));
            self.disk(operation.disk).finished.push(finished(operation, outcome, None));
        }
        self.disks.retain(|_, disk| !disk.is_abandoned);
    }
}

/// Returns a report that waits to be asked for.
fn finished(
    operation: Operation,
    outcome: Result<(), IoFault>,
    change: Option<(NodeId, u64)>,
) -> Finished {
    let record = operation.record(outcome.is_ok());
    let Operation { tag, memory, .. } = operation;
    Finished { report: IoFinished { tag, outcome, memory }, record, change }
}
