//! A drive and all who use it: one machine that events in virtual time move on.
//!
//! Invariants: events happen in the order of their time, and at one time in the order of their
//! operations' numbers, so that seeds and calls alone decide what happens; nothing happens to the
//! memory of an operation after its report was made up; a dead handle changes nothing.

use super::SimOptions;
use super::faults::{SimFaults, SimKind};
use super::operation::Operation;
use super::random::Random;
use super::record::{SimCounters, SimRecord};
use super::tree::{NodeId, Tree};
use crate::io::{FileId, IoFinished, OpenMode};
use crate::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

/// Reads and syncs that begin one after the other while a write waits.
const AHEAD_COUNT_MAX: u32 = 15;

/// What happens to an operation that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// It touches memory and file.
    Moment,
    /// It ends.
    End,
    /// It ends because it took too long.
    Cancel,
    /// It is reported because it took too long, and does not end.
    GiveUp,
    /// The operations that wait for a place may have waited too long.
    Overdue,
}

/// When something happens, to which operation, or to which handle's operations if they wait.
pub(super) type Event = (u64, u64, Step);

/// An open file of one handle.
#[derive(Debug)]
pub(super) struct OpenFile {
    pub(super) node: NodeId,
    pub(super) path: PathBuf,
    pub(super) mode: OpenMode,
    pub(super) is_locked: bool,
    pub(super) is_closed: bool,
    /// Operations that wait or are under way.
    pub(super) users: u32,
}

/// One of a drive's parts: everything below a mount point, or what is below none.
pub(super) type Part = usize;

/// A report that waits to be asked for.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) report: IoFinished,
    pub(super) record: SimRecord,
    /// The file and the number of the change that took effect.
    pub(super) change: Option<(NodeId, u64)>,
}

/// The operations of one handle that wait for a place on one part of the drive.
#[derive(Debug, Default)]
struct Waiting {
    /// Reads and syncs.
    ahead: VecDeque<Operation>,
    writes: VecDeque<Operation>,
    /// Operations of `ahead` that began since a write did.
    ahead_count: u32,
}

impl Waiting {
    /// Takes the operation that begins next: reads and syncs before writes, which get every
    /// sixteenth place all the same.
    fn next(&mut self) -> Option<Operation> {
        if (self.ahead_count < AHEAD_COUNT_MAX || self.writes.is_empty())
            && let Some(operation) = self.ahead.pop_front()
        {
            self.ahead_count = self.ahead_count.saturating_add(1);
            return Some(operation);
        }
        self.ahead_count = 0;
        self.writes.pop_front()
    }

    fn is_empty(&self) -> bool {
        self.ahead.is_empty() && self.writes.is_empty()
    }
}

/// What of one handle concerns one part of the drive.
#[derive(Debug, Default)]
pub(super) struct PartState {
    waiting: Waiting,
    under_way: u32,
    /// When an operation last ended.
    progress_ns: u64,
}

/// One handle.
#[derive(Debug)]
pub(super) struct DiskState {
    pub(super) random: Random,
    pub(super) files: BTreeMap<FileId, OpenFile>,
    pub(super) file_next: u32,
    parts: BTreeMap<Part, PartState>,
    pub(super) finished: Vec<Finished>,
    /// The power went since it was opened.
    pub(super) is_dead: bool,
    /// Nobody will ask it anything.
    pub(super) is_abandoned: bool,
}

impl DiskState {
    /// Gives an open file its name.
    pub(super) fn open(&mut self, open: OpenFile) -> FileId {
        let file = FileId::new(self.file_next);
        self.file_next += 1;
        self.files.insert(file, open);
        file
    }

    /// Notes that an operation uses a file no more.
    pub(super) fn leave(&mut self, file: FileId) {
        if let Some(open) = self.files.get_mut(&file) {
            open.users -= 1;
        }
    }

    pub(super) fn has_waiting(&self) -> bool {
        self.parts.values().any(|part| !part.waiting.is_empty())
    }

    /// Operations under way on all parts.
    pub(super) fn under_way(&self) -> u32 {
        self.parts.values().map(|part| part.under_way).sum()
    }

    /// Forgets what is under way, because the power went.
    pub(super) fn forget_under_way(&mut self) {
        for part in self.parts.values_mut() {
            part.under_way = 0;
        }
    }

    /// Takes some of the operations that wait.
    pub(super) fn take_waiting(&mut self, is_taken: impl Fn(&Operation) -> bool) -> Vec<Operation> {
        let mut all = Vec::new();
        for part in self.parts.values_mut() {
            all.extend(part.waiting.ahead.drain(..).chain(part.waiting.writes.drain(..)));
        }
        let (taken, left): (Vec<_>, Vec<_>) = all.into_iter().partition(is_taken);
        for operation in left {
            self.enqueue(operation);
        }
        taken
    }

    /// Has an operation wait for a place on its part.
    pub(super) fn enqueue(&mut self, operation: Operation) {
        let waiting = &mut self.parts.entry(operation.part).or_default().waiting;
        if operation.kind == SimKind::Write {
            waiting.writes.push_back(operation);
        } else {
            waiting.ahead.push_back(operation);
        }
    }

    /// Takes an operation that can begin, and gives it a place of its part, which has `depth`.
    pub(super) fn next_waiting(&mut self, depth: u32) -> Option<Operation> {
        self.parts.values_mut().filter(|part| part.under_way < depth).find_map(|part| {
            let operation = part.waiting.next()?;
            part.under_way += 1;
            Some(operation)
        })
    }

    /// Gives the place of an operation back that ended on a part.
    pub(super) fn end_on(&mut self, part: Part, now_ns: u64) {
        let part = self.parts.entry(part).or_default();
        part.under_way -= 1;
        part.progress_ns = now_ns;
    }

    /// Returns when something last ended on a part.
    pub(super) fn progress_ns(&self, part: Part) -> u64 {
        self.parts.get(&part).map_or(0, |part| part.progress_ns)
    }

    /// Returns when something last ended on the part that stands still longest, of those that
    /// operations wait for.
    pub(super) fn oldest_progress_ns(&self) -> Option<u64> {
        let waiting = self.parts.values().filter(|part| !part.waiting.is_empty());
        waiting.map(|part| part.progress_ns).min()
    }

    /// Closes every file.
    pub(super) fn close_all(&mut self) {
        for open in self.files.values_mut() {
            open.is_closed = true;
        }
    }
}

/// Everything about a drive.
#[derive(Debug)]
pub(super) struct State {
    pub(super) options: SimOptions,
    pub(super) random: Random,
    pub(super) tree: Tree,
    pub(super) disks: BTreeMap<u32, DiskState>,
    disk_next: u32,
    pub(super) under_way: BTreeMap<u64, Operation>,
    pub(super) operation_next: u64,
    pub(super) events: BTreeSet<Event>,
    pub(super) now_ns: u64,
    pub(super) faults: SimFaults,
    /// Steps that still go through before the power goes.
    pub(super) cut_in: Option<u64>,
    /// Mount points, each below none of the others.
    pub(super) mounts: Vec<PathBuf>,
    /// Parts that disappeared, and those that became read-only.
    pub(super) gone: BTreeSet<Part>,
    pub(super) read_only: BTreeSet<Part>,
    pub(super) log: Vec<SimRecord>,
    pub(super) counters: SimCounters,
}

impl State {
    pub(super) fn new(seed: u64, options: SimOptions) -> Self {
        Self {
            options,
            random: Random::new(seed),
            tree: Tree::new(),
            disks: BTreeMap::new(),
            disk_next: 1,
            under_way: BTreeMap::new(),
            operation_next: 0,
            events: BTreeSet::new(),
            now_ns: 0,
            faults: SimFaults::default(),
            cut_in: None,
            mounts: Vec::new(),
            gone: BTreeSet::new(),
            read_only: BTreeSet::new(),
            log: Vec::new(),
            counters: SimCounters::default(),
        }
    }

    /// Returns the part of the drive that a path is on.
    pub(super) fn part_of(&self, path: &Path) -> Part {
        self.mounts.iter().position(|mount| path.starts_with(mount)).map_or(0, |at| at + 1)
    }

    /// Opens a handle and returns its number.
    pub(super) fn add_disk(&mut self, seed: u64) -> u32 {
        let number = self.disk_next;
        self.disk_next += 1;
        let disk = DiskState {
            random: Random::new(seed),
            files: BTreeMap::new(),
            file_next: 0,
            parts: BTreeMap::new(),
            finished: Vec::new(),
            is_dead: false,
            is_abandoned: false,
        };
        self.disks.insert(number, disk);
        number
    }

    /// Returns a handle's state, which lives as long as the handle.
    pub(super) fn disk(&mut self, number: u32) -> &mut DiskState {
        self.disks.get_mut(&number).expect("kept until the handle is dropped and idle")
    }

    /// Lets happen what happens until `now_ns`.
    pub(super) fn advance(&mut self, now_ns: u64) {
        while let Some(&(time_ns, number, step)) = self.events.first()
            && time_ns <= now_ns
        {
            self.events.pop_first();
            self.now_ns = self.now_ns.max(time_ns);
            match step {
                Step::Moment => {
                    let mut operation = self.take(number);
                    self.reach_moment(&mut operation);
                    self.under_way.insert(number, operation);
                }
                Step::End => self.end(number, false),
                Step::Cancel => self.end(number, true),
                Step::GiveUp => self.give_up(number),
                Step::Overdue => {
                    self.give_up_waiting(u32::try_from(number).expect("a handle's number"));
                }
            }
        }
        self.now_ns = self.now_ns.max(now_ns);
    }

    pub(super) fn take(&mut self, number: u64) -> Operation {
        self.under_way.remove(&number).expect("events are of operations under way")
    }

    /// Returns when the next event is.
    pub(super) fn next_event(&self) -> Option<Timestamp> {
        self.events.first().map(|&(time_ns, ..)| Timestamp::new(time_ns))
    }

    /// Returns whether a handle has reports that wait.
    pub(super) fn has_finished(&mut self, disk: u32) -> bool {
        !self.disk(disk).finished.is_empty()
    }

    /// Returns whether operations of a living handle wait or are under way.
    pub(super) fn is_busy(&mut self, disk: u32) -> bool {
        let disk = self.disk(disk);
        !disk.is_dead && (disk.under_way() > 0 || disk.has_waiting())
    }
}
