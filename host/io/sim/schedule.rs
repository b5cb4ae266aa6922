//! From taking an operation in to its report: what waits, starts, ends, and what a power cut leaves.

use super::State;
use super::clock::{nanoseconds, unix_s};
use super::faults::{SimFault, SimKind};
use super::image::Change;
use super::operation::{Operation, drive_fault};
use super::state::{Finished, Step};
use super::tree::NodeId;
use crate::io::{FileId, IO_ALIGN_BYTES, IoFault, IoFinished, IoOperation, IoWork, OpenMode};
use crate::units::Timestamp;
use nix::errno::Errno;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

impl State {
    /// Takes operations in, and starts as many as the depth allows.
    pub(super) fn submit(&mut self, disk: u32, operations: Vec<IoOperation>) {
        for operation in operations {
            let mut operation = self.take_in(disk, operation);
            let accepted = self.accept(&mut operation);
            let state = self.disk(disk);
            match accepted {
                Err(fault) => state.finished.push(finished(operation, Err(fault), None)),
                Ok(()) if operation.kind == SimKind::Read => {
                    state.waiting_reads.push_back(operation);
                }
                Ok(()) => state.waiting_others.push_back(operation),
            }
        }
        self.start_waiting(disk);
    }

    fn take_in(&mut self, disk: u32, operation: IoOperation) -> Operation {
        let IoOperation { tag, file, work } = operation;
        let (kind, offset, memory) = match work {
            IoWork::Read { offset, memory } => (SimKind::Read, offset, Some(memory)),
            IoWork::Write { offset, memory } => (SimKind::Write, offset, Some(memory)),
            IoWork::Sync => (SimKind::Sync, 0, None),
        };
        Operation {
            disk,
            tag,
            file,
            node: NodeId::MAX,
            path: PathBuf::new(),
            kind,
            offset,
            place: offset,
            memory,
            digest: 0,
            covered: 0,
            submitted_ns: self.now_ns,
            fault: None,
            bytes: None,
            missing_bytes: 0,
        }
    }
    /// Checks an operation, and puts it where it waits for its start.
    fn accept(&mut self, operation: &mut Operation) -> Result<(), IoFault> {
        let disk = self.disks.get_mut(&operation.disk).expect("the handle that submits");
        if disk.is_dead {
            return Err(drive_fault(Errno::ENODEV));
        }
        let open = disk.files.get_mut(&operation.file).filter(|open| !open.is_closed);
        let open = open.ok_or(IoFault::NotOpen)?;
        operation.path.clone_from(&open.path);
        operation.node = open.node;
        if !operation.offset.is_multiple_of(IO_ALIGN_BYTES) {
            return Err(IoFault::Misaligned);
        }
        if operation.kind == SimKind::Write && open.mode == OpenMode::ReadOnly {
            return Err(drive_fault(Errno::EBADF));
        }
        open.users += 1;
        operation.covered = self.tree.file_mut(operation.node).covered();
        operation.sign();
        Ok(())
    }

    fn start_waiting(&mut self, disk: u32) {
        let depth = self.options.depth;
        loop {
            let state = self.disk(disk);
            if state.under_way >= depth {
                return;
            }
            let next = state.waiting_reads.pop_front();
            let Some(operation) = next.or_else(|| state.waiting_others.pop_front()) else {
                return;
            };
            state.under_way += 1;
            self.start(operation);
        }
    }

    /// Draws what goes wrong with an operation, and when it touches memory and ends.
    fn start(&mut self, mut operation: Operation) {
        operation.fault = self.begin(operation.kind, &operation.path);
        let latency_max_ns = nanoseconds(self.options.latency_max);
        let timeout_ns = nanoseconds(self.options.io_timeout);
        let random = &mut self.disk(operation.disk).random;
        let latency_ns = 1 + random.below(latency_max_ns);
        let is_late = operation.fault == Some(SimFault::Stall) || latency_ns > timeout_ns;
        let (end_ns, step) =
            if is_late { (timeout_ns, Step::GiveUp) } else { (latency_ns, Step::End) };
        let moment_ns = random.below(end_ns);
        let number = self.operation_next;
        self.operation_next += 1;
        self.events.insert((self.now_ns + moment_ns, number, Step::Moment));
        if operation.fault != Some(SimFault::Hang) {
            self.events.insert((self.now_ns + end_ns, number, step));
        }
        self.under_way.insert(number, operation);
    }

    /// Draws what goes wrong with an operation or call that begins. What befalls the whole drive
    /// does so at once.
    pub(super) fn begin(&mut self, kind: SimKind, path: &Path) -> Option<SimFault> {
        let fault = self.faults.begin(kind, path, &mut self.random);
        self.is_gone |= fault == Some(SimFault::Vanish);
        self.is_read_only |= fault == Some(SimFault::ReadOnly);
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
    pub(super) fn end(&mut self, number: u64, is_late: bool) {
        if self.step() {
            self.cut();
            return;
        }
        let mut operation = self.take(number);
        let (outcome, sequence) = self.finish(&mut operation, is_late);
        let (disk, file) = (operation.disk, operation.file);
        let change = sequence.map(|sequence| (operation.node, sequence));
        let state = self.disk(disk);
        state.under_way -= 1;
        state.finished.push(finished(operation, outcome, change));
        if let Some(open) = state.files.get_mut(&file) {
            open.users -= 1;
        }
        self.start_waiting(disk);
        self.forget_idle(disk);
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
        let modified_s = unix_s(self.now_ns);
        self.tree.file_mut(node).change(change, modified_s)
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

    /// Leaves a handle: what waits never starts, what is under way ends unheard.
    pub(super) fn abandon(&mut self, disk: u32) {
        let state = self.disk(disk);
        state.is_abandoned = true;
        for operation in state.waiting_reads.drain(..).chain(state.waiting_others.drain(..)) {
            if let Some(open) = state.files.get_mut(&operation.file) {
                open.users -= 1;
            }
        }
        for open in state.files.values_mut() {
            open.is_closed = true;
        }
        self.forget_idle(disk);
    }

    /// Forgets closed files, with their locks, and an abandoned handle when nothing of them is
    /// under way any more.
    fn forget_idle(&mut self, disk: u32) {
        let state = self.disk(disk);
        let before = state.files.len();
        state.files.retain(|_, open| !open.is_closed || open.users > 0);
        let closed = before > state.files.len();
        if state.is_abandoned && state.under_way == 0 {
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
        self.is_gone = false;
        self.is_read_only = false;
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
            disk.under_way = 0;
            operations.extend(disk.waiting_reads.drain(..).chain(disk.waiting_others.drain(..)));
            // What ended unheard: whoever might have asked is as dead as the others.
            for finished in &mut disk.finished {
                finished.report.outcome = Err(drive_fault(Errno::ENODEV));
                finished.record.is_ok = false;
                finished.change = None;
            }
        }
        for operation in operations {
            let outcome = Err(drive_fault(Errno::ENODEV));
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
