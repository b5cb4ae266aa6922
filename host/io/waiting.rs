//! Operations that wait for a place on their drive.
//!
//! Reads and syncs go before writes: a load waits for them, while write-behind has time. So that a
//! stream of reads cannot hold writes back for ever, every sixteenth place is a write's. Each drive
//! has a queue of its own: what waits for one holds up nothing on another.
//!
//! Called by [`real`](super::real).

use super::files::DriveId;
use super::transfer::{Transfer, Work};
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

/// Reads and syncs that begin one after the other while a write waits.
const AHEAD_COUNT_MAX: u32 = 15;

/// The operations of one drive in the order in which they begin.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    /// Reads and syncs.
    ahead: VecDeque<(Instant, Transfer)>,
    writes: VecDeque<(Instant, Transfer)>,
    /// Operations of `ahead` that began since a write did.
    ahead_count: u32,
}

impl Waiting {
    /// Adds an operation that was taken in at `now`.
    pub(super) fn push(&mut self, now: Instant, transfer: Transfer) {
        match transfer.work() {
            Work::Read | Work::Sync => self.ahead.push_back((now, transfer)),
            Work::Write => self.writes.push_back((now, transfer)),
        }
    }

    /// Takes the operation that begins next.
    pub(super) fn pop(&mut self) -> Option<Transfer> {
        let is_write_due = self.ahead_count >= AHEAD_COUNT_MAX || self.ahead.is_empty();
        if is_write_due && let Some((_, transfer)) = self.writes.pop_front() {
            self.ahead_count = 0;
            return Some(transfer);
        }
        let (_, transfer) = self.ahead.pop_front()?;
        self.ahead_count = self.ahead_count.saturating_add(1);
        Some(transfer)
    }

    /// Returns when the operation that waits longest was taken in.
    pub(super) fn oldest(&self) -> Option<Instant> {
        [&self.ahead, &self.writes].into_iter().filter_map(|queue| Some(queue.front()?.0)).min()
    }

    /// Takes every operation that was taken in at `limit` or before.
    pub(super) fn take_older(&mut self, limit: Instant, mut take: impl FnMut(Transfer)) {
        for queue in [&mut self.ahead, &mut self.writes] {
            while let Some((_, transfer)) = queue.pop_front_if(|(since, _)| *since <= limit) {
                take(transfer);
            }
        }
    }

    /// Returns whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.ahead.is_empty() && self.writes.is_empty()
    }
}

/// The operations of all drives.
#[derive(Debug, Default)]
pub(super) struct WaitingDrives {
    drives: BTreeMap<DriveId, Waiting>,
}

impl WaitingDrives {
    /// Adds an operation that was taken in at `now`.
    pub(super) fn push(&mut self, now: Instant, transfer: Transfer) {
        self.drives.entry(transfer.file().drive()).or_default().push(now, transfer);
    }

    /// Returns the drives that operations wait for, and those operations.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (DriveId, &mut Waiting)> {
        let drives = self.drives.iter_mut().map(|(drive, waiting)| (*drive, waiting));
        drives.filter(|(_, waiting)| !waiting.is_empty())
    }

    /// Returns when the operation was taken in that waits longest for each drive.
    pub(super) fn oldest(&self) -> impl Iterator<Item = (DriveId, Instant)> {
        self.drives.iter().filter_map(|(drive, waiting)| Some((*drive, waiting.oldest()?)))
    }

    /// Returns whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.drives.values().all(Waiting::is_empty)
    }
}
