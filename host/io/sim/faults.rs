//! What goes wrong, with which operations, when.

use super::random::Random;
use std::path::Path;

/// What an operation or call is, for rules and for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SimKind {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A sync of a file's data.
    Sync,
    /// A file or directory is made.
    Create,
    /// Blocks are reserved.
    Allocate,
    /// A file is cut.
    Truncate,
    /// A file or directory is removed.
    Remove,
    /// The entries of a directory are made durable.
    SyncDirectory,
}

/// What goes wrong with an operation or call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SimFault {
    /// It fails with `EIO`. A write or read moves any of its sectors. A sync, of a file or of a
    /// directory, takes the promise from all that it should have covered: how much of it is durable
    /// is drawn at once, and a later sync that succeeds says nothing about it.
    Error,
    /// It fails for want of room: a write, or a call that makes or reserves.
    NoSpace,
    /// A read finds the file cut short by some of its sectors.
    EndOfFile,
    /// An operation does not end by itself, and is cancelled after `io_timeout`. A write moves any
    /// of its sectors.
    Stall,
    /// An operation cannot be cancelled: after `io_timeout` it is reported without its memory. It
    /// may still carry out its work, much later, or hold its place until
    /// [`Disk::shut`](crate::io::Disk::shut) counts it.
    Hang,
    /// A bit of what a read covers is wrong on the medium, from now on.
    FlipAtRest,
    /// A bit is wrong in what a read hands over, or in what a write puts on the medium.
    FlipOnWire,
    /// A read hands over, or a write overwrites, other pages of the file than it should.
    Misdirect,
    /// A read hands over the pages as they were before they were last written.
    Stale,
    /// A write is reported and never done, or a sync is reported and makes nothing durable.
    Lose,
    /// The drive disappears: this and everything after it fails with `ENODEV`, until
    /// [`SimDrive::cut_power`](super::SimDrive::cut_power). Of a drive in parts, the part of this
    /// operation ([`SimDrive::mount`](super::SimDrive::mount)).
    Vanish,
    /// The file system becomes read-only: this and every change after it fails, until
    /// [`SimDrive::cut_power`](super::SimDrive::cut_power). Of a drive in parts, the part of this
    /// operation.
    ReadOnly,
}

impl SimFault {
    /// Returns whether the fault has a meaning for a kind of operation; rules pass over others.
    pub const fn applies_to(self, kind: SimKind) -> bool {
        use SimKind::{Allocate, Create, Read, Sync, Write};
        match self {
            Self::Error | Self::Vanish => true,
            Self::NoSpace => matches!(kind, Write | Create | Allocate),
            Self::EndOfFile | Self::FlipAtRest | Self::Stale => matches!(kind, Read),
            Self::Stall | Self::Hang => matches!(kind, Read | Write | Sync),
            Self::FlipOnWire | Self::Misdirect => matches!(kind, Read | Write),
            Self::Lose => matches!(kind, Write | Sync),
            Self::ReadOnly => !matches!(kind, Read),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum When {
    Always,
    At(u64),
    OneIn(u32),
}

/// A fault and the operations that it befalls.
///
/// ```
/// use kvtide::io::sim::{SimFault, SimKind, SimRule};
///
/// // The fourth write of a file whose name has `data` in it loses its way.
/// let misdirected = SimRule::new(SimFault::Misdirect).on(SimKind::Write).named("data").at(3);
/// // One operation of any kind in fifty stalls.
/// let slow = SimRule::new(SimFault::Stall).one_in(50);
/// # let drive = kvtide::io::sim::SimDrive::new(1);
/// # drive.inject(misdirected);
/// # drive.inject(slow);
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct SimRule {
    fault: SimFault,
    kind: Option<SimKind>,
    name: Option<String>,
    when: When,
    seen: u64,
}

impl SimRule {
    /// Has the fault befall every operation that it [applies to](SimFault::applies_to).
    pub const fn new(fault: SimFault) -> Self {
        Self { fault, kind: None, name: None, when: When::Always, seen: 0 }
    }

    /// Only operations of one kind.
    pub const fn on(mut self, kind: SimKind) -> Self {
        self.kind = Some(kind);
        self
    }

    /// Only on files and directories whose path has `part` in it.
    pub fn named(mut self, part: &str) -> Self {
        self.name = Some(part.to_owned());
        self
    }

    /// Only the operation number `number` of those that match, counted from 0 since the rule was
    /// injected, as they begin.
    pub const fn at(mut self, number: u64) -> Self {
        self.when = When::At(number);
        self
    }

    /// Only one in `count` of those that match, drawn by the drive's seed.
    pub const fn one_in(mut self, count: u32) -> Self {
        self.when = When::OneIn(count);
        self
    }

    /// Returns whether the rule befalls the next operation, and counts it if it matches.
    fn befalls(&mut self, kind: SimKind, path: &Path, random: &mut Random) -> bool {
        let matches = self.fault.applies_to(kind)
            && self.kind.is_none_or(|only| only == kind)
            && self.name.as_ref().is_none_or(|part| path.to_string_lossy().contains(part));
        if !matches {
            return false;
        }
        self.seen += 1;
        match self.when {
            When::Always => true,
            When::At(number) => self.seen - 1 == number,
            When::OneIn(count) => random.one_in(count),
        }
    }
}

/// The rules of a drive.
#[derive(Clone, Debug, Default)]
pub(super) struct SimFaults {
    rules: Vec<SimRule>,
}

impl SimFaults {
    pub(super) fn add(&mut self, rule: SimRule) {
        self.rules.push(rule);
    }

    pub(super) fn clear(&mut self) {
        self.rules.clear();
    }

    /// Returns what goes wrong with an operation that begins: the first rule's fault that befalls
    /// it. Every rule counts the operation.
    pub(super) fn begin(
        &mut self,
        kind: SimKind,
        path: &Path,
        random: &mut Random,
    ) -> Option<SimFault> {
        let mut fault = None;
        for rule in &mut self.rules {
            if rule.befalls(kind, path, random) {
                fault = fault.or(Some(rule.fault));
            }
        }
        fault
    }
}
