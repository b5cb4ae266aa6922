//! What callers and the disk thread share: requests, commands, and how the tier is.
//!
//! All locks in here are leaves, taken with no other held.

use super::super::shared::lock;
use crate::core::{DiskRequest, Refused};
use crate::io::DiskWaker;
use crate::pager::Erasure;
use crate::store::{ScanProgress, StoreError};
use std::fmt;
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex};
use thiserror::Error;

/// How the disk tier is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DiskHealth {
    /// It serves.
    Serving,
    /// What an earlier run left is being read; what is not read yet is neither hit nor overwritten.
    Recovering {
        /// How far that is, in all groups.
        progress: ScanProgress,
    },
    /// It takes no more writes, and still serves what it holds.
    ReadOnly {
        /// Why.
        reason: String,
    },
    /// It serves nothing any more: every lookup of it is a miss.
    Lost {
        /// Why.
        reason: String,
    },
}

impl fmt::Display for DiskHealth {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Serving => formatter.write_str("serving"),
            Self::Recovering { progress } => {
                write!(formatter, "recovering, {} of {} slots", progress.scanned, progress.slots)
            }
            Self::ReadOnly { reason } => write!(formatter, "read only: {reason}"),
            Self::Lost { reason } => write!(formatter, "lost: {reason}"),
        }
    }
}

impl DiskHealth {
    /// How bad it is.
    fn rank(&self) -> u32 {
        match self {
            Self::Serving => 0,
            Self::Recovering { .. } => 1,
            Self::ReadOnly { .. } => 2,
            Self::Lost { .. } => 3,
        }
    }

    /// Whether chunks can still be written.
    pub const fn takes_writes(&self) -> bool {
        matches!(self, Self::Serving | Self::Recovering { .. })
    }
}

/// What scrubbing did since the pager was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScrubTotals {
    /// Slots that were read and verified.
    pub slots: u64,
    /// Chunks that were not what was written, and were given up.
    pub rotten: u64,
}

/// Why a command of the disk tier did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DiskCommandError {
    /// The pager has no disk tier.
    #[error("the pager was opened without a disk tier")]
    NoDisk,
    /// It was not done in time.
    #[error("the disk tier did not get there within the time given")]
    TimedOut,
    /// An erasure was not durable in time.
    #[error(
        "what is to be erased may still be on disk: the disk tier is being scanned, or a write \
         does not end; the erasure goes on by itself, and erasing the same once more waits for it"
    )]
    ErasurePending,
    /// An erasure failed.
    #[error(
        "what was to be erased is not served any more, but may still be in {}: {source}; check \
         the drive, then open the pager anew and erase once more, or remove that directory",
        .directory.display()
    )]
    NotErased {
        /// The store's directory.
        directory: PathBuf,
        /// What failed.
        source: StoreError,
    },
    /// The tier takes no more writes.
    #[error("the disk tier takes no more writes: {reason}")]
    ReadOnly {
        /// Why.
        reason: String,
    },
    /// The store failed it.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The core refused it.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The disk thread is gone: the pager is closing or poisoned.
    #[error("the disk tier is gone; the pager is closing or was poisoned")]
    Gone,
}

/// What callers ask of the disk thread; each is answered once.
#[derive(Debug)]
pub(in crate::pager) enum DiskCommand {
    /// Answer when everything stored by now is durable.
    Flush(Sender<Result<(), DiskCommandError>>),
    /// Drop everything durably. The core has dropped it already.
    Clear(Sender<Result<(), DiskCommandError>>),
    /// Drop this, in the core and durably.
    Erase(Erasure, Sender<Result<(), DiskCommandError>>),
    /// End.
    Close,
}

/// What callers have asked for.
#[derive(Debug, Default)]
struct Inbox {
    requests: Vec<DiskRequest>,
    commands: Vec<DiskCommand>,
}

/// One disk tier's shared side.
#[derive(Debug)]
pub(in crate::pager) struct DiskState {
    /// `None` once the disk thread has ended.
    inbox: Mutex<Option<Inbox>>,
    waker: Arc<dyn DiskWaker>,
    /// By group.
    health: Mutex<Vec<DiskHealth>>,
    scrubbed: Mutex<ScrubTotals>,
}

impl DiskState {
    pub(in crate::pager) fn new(waker: Arc<dyn DiskWaker>, health: Vec<DiskHealth>) -> Self {
        Self {
            inbox: Mutex::new(Some(Inbox::default())),
            waker,
            health: Mutex::new(health),
            scrubbed: Mutex::new(ScrubTotals::default()),
        }
    }

    pub(in crate::pager) fn scrubbed(&self) -> ScrubTotals {
        *lock(&self.scrubbed)
    }

    /// Counts a slot that was scrubbed.
    pub(super) fn count_scrubbed(&self, is_rotten: bool) {
        let mut totals = lock(&self.scrubbed);
        totals.slots += 1;
        totals.rotten += u64::from(is_rotten);
    }

    /// Hands requests to the disk thread. Returns them when that has ended: nobody makes them.
    #[must_use]
    pub(in crate::pager) fn request(&self, requests: Vec<DiskRequest>) -> Vec<DiskRequest> {
        match &mut *lock(&self.inbox) {
            Some(inbox) => inbox.requests.extend(requests),
            None => return requests,
        }
        self.waker.wake();
        Vec::new()
    }

    /// Moves the requests that came in to the end of `into`.
    pub(super) fn take_requests(&self, into: &mut Vec<DiskRequest>) {
        if let Some(inbox) = &mut *lock(&self.inbox) {
            into.append(&mut inbox.requests);
        }
    }

    /// Asks something of the disk thread. Once that has ended, whoever waits is told by the end of
    /// the command's channel.
    pub(in crate::pager) fn command(&self, command: DiskCommand) {
        if let Some(inbox) = &mut *lock(&self.inbox) {
            inbox.commands.push(command);
        }
        self.waker.wake();
    }

    pub(super) fn take_commands(&self) -> Vec<DiskCommand> {
        lock(&self.inbox)
            .as_mut()
            .map(|inbox| std::mem::take(&mut inbox.commands))
            .unwrap_or_default()
    }

    /// Takes nothing in any more, and returns the requests that nobody has begun.
    pub(super) fn end(&self) -> Vec<DiskRequest> {
        let inbox = lock(&self.inbox).take();
        inbox.map(|inbox| inbox.requests).unwrap_or_default()
    }

    /// Returns how the group that is worst off is; several that recover are added up.
    pub(in crate::pager) fn health(&self) -> DiskHealth {
        let health = lock(&self.health);
        let worst = health.iter().max_by_key(|health| health.rank());
        match worst {
            Some(DiskHealth::Recovering { .. }) => {
                let mut sum = ScanProgress::default();
                for health in health.iter() {
                    if let DiskHealth::Recovering { progress } = health {
                        sum = add(sum, *progress);
                    }
                }
                DiskHealth::Recovering { progress: sum }
            }
            Some(worst) => worst.clone(),
            None => DiskHealth::Serving,
        }
    }

    /// Whether a group's disk was given up.
    pub(super) fn is_lost(&self, group: usize) -> bool {
        matches!(lock(&self.health)[group], DiskHealth::Lost { .. })
    }

    /// Sets a group's health, unless it is worse already. Returns whether it changed for the worse.
    pub(super) fn set_health(&self, group: usize, health: DiskHealth) -> bool {
        let mut all = lock(&self.health);
        let now = &mut all[group];
        let (old, new) = (now.rank(), health.rank());
        let is_worse = new > old;
        // Recovery ends in service; a failure never does.
        if is_worse || !matches!(now, DiskHealth::ReadOnly { .. } | DiskHealth::Lost { .. }) {
            *now = health;
        }
        is_worse
    }
}

/// Adds up how far two scans came.
fn add(one: ScanProgress, other: ScanProgress) -> ScanProgress {
    ScanProgress {
        scanned: one.scanned.saturating_add(other.scanned),
        slots: one.slots.saturating_add(other.slots),
        chunks: one.chunks.saturating_add(other.chunks),
        older: one.older.saturating_add(other.older),
        cleared: one.cleared.saturating_add(other.cleared),
        refused: one.refused.saturating_add(other.refused),
        unreadable: one.unreadable.saturating_add(other.unreadable),
    }
}
