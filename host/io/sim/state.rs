//! A drive and all who use it: one machine that events in virtual time move on.
//!
//! Invariants: events happen in the order of their time, and at one time in the order of their
//! operations' numbers, so that seeds and calls alone decide what happens; nothing happens to the
//! memory of an operation after its report was made up; a dead handle changes nothing.

use super::SimOptions;
use super::faults::SimFaults;
use super::operation::Operation;
use super::random::Random;
use super::record::{SimCounters, SimRecord};
use super::tree::{NodeId, Tree};
use crate::io::{FileId, IoFinished, OpenMode};
use crate::units::Timestamp;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;

/// What happens to an operation that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// It touches memory and file.
    Moment,
    /// It ends.
    End,
    /// It is given up.
    GiveUp,
}

/// When something happens, to which operation.
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

/// A report that waits to be asked for.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) report: IoFinished,
    pub(super) record: SimRecord,
    /// The file and the number of the change that took effect.
    pub(super) change: Option<(NodeId, u64)>,
}

/// One handle.
#[derive(Debug)]
pub(super) struct DiskState {
    pub(super) random: Random,
    pub(super) files: BTreeMap<FileId, OpenFile>,
    pub(super) file_next: u32,
    pub(super) waiting_reads: VecDeque<Operation>,
    pub(super) waiting_others: VecDeque<Operation>,
    pub(super) under_way: u32,
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
    pub(super) is_gone: bool,
    pub(super) is_read_only: bool,
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
            is_gone: false,
            is_read_only: false,
            log: Vec::new(),
            counters: SimCounters::default(),
        }
    }

    /// Opens a handle and returns its number.
    pub(super) fn add_disk(&mut self, seed: u64) -> u32 {
        let number = self.disk_next;
        self.disk_next += 1;
        let disk = DiskState {
            random: Random::new(seed),
            files: BTreeMap::new(),
            file_next: 0,
            waiting_reads: VecDeque::new(),
            waiting_others: VecDeque::new(),
            under_way: 0,
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
                Step::GiveUp => self.end(number, true),
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

    /// Returns whether operations of a handle wait or are under way.
    pub(super) fn is_busy(&mut self, disk: u32) -> bool {
        let disk = self.disk(disk);
        disk.under_way > 0 || !disk.waiting_reads.is_empty() || !disk.waiting_others.is_empty()
    }
}
