//! What a drive did: the log, and sums over it.

use super::faults::{SimFault, SimKind};
use crate::units::Timestamp;
use std::path::PathBuf;

/// An operation or call that was reported to whoever asked for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SimRecord {
    /// The handle's number, as [`SimDisk::number`](super::SimDisk::number) returns it.
    pub disk: u32,
    /// What it was.
    pub kind: SimKind,
    /// The file or directory, by the path that it was opened or called with.
    pub path: PathBuf,
    /// First byte in the file; 0 where there is none.
    pub offset: u64,
    /// Bytes to be moved, or the length asked for; 0 where there is none.
    pub length: u64,
    /// When it was submitted.
    pub submitted: Timestamp,
    /// When it was reported.
    pub reported: Timestamp,
    /// Whether it was reported as a success.
    pub is_ok: bool,
    /// What went wrong with it, told or not.
    pub fault: Option<SimFault>,
}

/// Sums since a drive was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimCounters {
    /// Operations that ended, and calls that change something: what
    /// [`SimDrive::cut_after`](super::SimDrive::cut_after) counts.
    pub steps: u64,
    /// Reads reported as a success.
    pub reads: u64,
    /// Bytes of those.
    pub read_bytes: u64,
    /// Writes reported as a success.
    pub writes: u64,
    /// Bytes of those.
    pub written_bytes: u64,
    /// Syncs of a file's data reported as a success.
    pub syncs: u64,
    /// Operations and calls with a fault.
    pub faults: u64,
    /// Power cuts.
    pub cuts: u64,
}

impl SimCounters {
    pub(super) fn add(&mut self, record: &SimRecord) {
        self.faults += u64::from(record.fault.is_some());
        if !record.is_ok {
            return;
        }
        match record.kind {
            SimKind::Read => {
                self.reads += 1;
                self.read_bytes += record.length;
            }
            SimKind::Write => {
                self.writes += 1;
                self.written_bytes += record.length;
            }
            SimKind::Sync => self.syncs += 1,
            _ => {}
        }
    }
}
