//! What callers and the disk thread share: requests, commands, and how the tier is.
//!
//! All locks in here are leaves, taken with no other held.

use super::super::shared::lock;
use crate::core::{DiskRequest, Refused};
use crate::io::DiskWaker;
use crate::pager::Erasure;
use crate::store::{ScanProgress, StoreError};
use crate::units::GroupIndex;
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
    /// Some of its stripes fail, and the others serve: it takes writes, and what lies on a failed
    /// stripe may be a miss.
    Degraded {
        /// Which directory, and why.
        reason: String,
    },
    /// None of its stripes takes writes any more; what they hold is still served where it can be.
    ReadOnly {
        /// Which directory, and why.
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
            Self::Degraded { reason } => write!(formatter, "degraded: {reason}"),
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
            Self::Degraded { .. } => 2,
            Self::ReadOnly { .. } => 3,
            Self::Lost { .. } => 4,
        }
    }

    /// Whether chunks can still be written.
    pub const fn takes_writes(&self) -> bool {
        matches!(self, Self::Serving | Self::Recovering { .. } | Self::Degraded { .. })
    }

    /// Sums one group's stripes up.
    fn of_stripes(stripes: &[&Self]) -> Self {
        let worst = stripes.iter().max_by_key(|health| health.rank());
        let Some(worst) = worst else { return Self::Serving };
        let is_any_writable = stripes.iter().any(|health| health.takes_writes());
        let last_served = stripes.iter().find(|health| matches!(health, Self::ReadOnly { .. }));
        match (worst, last_served) {
            (Self::ReadOnly { reason } | Self::Lost { reason }, _) if is_any_writable => {
                Self::Degraded { reason: reason.clone() }
            }
            // One is lost, and another still serves what it holds.
            (_, Some(read_only)) => (*read_only).clone(),
            _ => (*worst).clone(),
        }
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

/// A directory in which a clear or an erasure was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreached {
    /// The directory.
    pub directory: PathBuf,
    /// Why.
    pub reason: String,
}

/// Names all of them.
fn list(unreached: &[Unreached]) -> String {
    let name = |one: &Unreached| format!("{} ({})", one.directory.display(), one.reason);
    unreached.iter().map(name).collect::<Vec<_>>().join(", ")
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
        "what is to be erased may still be on disk: the disk tier is being scanned, a write does \
         not end, or another process has the root; the erasure goes on by itself, and erasing the \
         same once more waits for it"
    )]
    ErasurePending,
    /// An erasure failed in some stores.
    #[error(
        "what was to be erased is not served any more, but may still be in {}; check the drives, \
         then open the pager anew and erase once more, or remove these directories",
        list(.unreached)
    )]
    NotErased {
        /// Directories of stores, those beside the open ones included, or of stripes that could not
        /// be opened or looked through.
        unreached: Vec<Unreached>,
    },
    /// The tier takes no more writes.
    #[error("the disk tier takes no more writes: {reason}")]
    ReadOnly {
        /// Why.
        reason: String,
    },
    /// Directories were not cleared durably: their drives fail or could not be opened, or another
    /// process has had the root for too long.
    #[error(
        "not cleared: {}; clear once more, or remove what is named here before it is used again, \
         or what it held comes back; all else was cleared",
        list(.unreached)
    )]
    NotCleared {
        /// Directories of stripes, or of stores beside those that are open in them.
        unreached: Vec<Unreached>,
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

/// A stripe that the tier was opened without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::pager) struct MissingStripe {
    pub(super) root: PathBuf,
    pub(super) reason: String,
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
    /// Of each store, and the group that it is of.
    health: Mutex<Vec<(GroupIndex, DiskHealth)>>,
    missing: Vec<MissingStripe>,
    /// Of each store, the directories beside it that the last clear or erasure left to others.
    uncleared: Mutex<Vec<Vec<PathBuf>>>,
    scrubbed: Mutex<ScrubTotals>,
    /// Of each store, how far its scan came; all 0 without one.
    recovered: Mutex<Vec<ScanProgress>>,
}

impl DiskState {
    pub(in crate::pager) fn new(
        waker: Arc<dyn DiskWaker>,
        health: Vec<(GroupIndex, DiskHealth)>,
        missing: Vec<MissingStripe>,
    ) -> Self {
        let uncleared = Mutex::new(vec![Vec::new(); health.len()]);
        let recovered = Mutex::new(vec![ScanProgress::default(); health.len()]);
        Self {
            inbox: Mutex::new(Some(Inbox::default())),
            waker,
            health: Mutex::new(health),
            missing,
            uncleared,
            scrubbed: Mutex::new(ScrubTotals::default()),
            recovered,
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

    /// Returns what the scans of all stores have found so far.
    pub(in crate::pager) fn recovered(&self) -> ScanProgress {
        lock(&self.recovered).iter().copied().fold(ScanProgress::default(), add)
    }

    /// Notes how far the scan of a store has come.
    pub(super) fn set_recovered(&self, store: usize, progress: ScanProgress) {
        lock(&self.recovered)[store] = progress;
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

    /// Returns how the group that is worst off is, over all its stripes; several that recover are
    /// added up.
    pub(in crate::pager) fn health(&self) -> DiskHealth {
        let stores = lock(&self.health);
        let missing: Vec<DiskHealth> = self.missing.iter().map(MissingStripe::health).collect();
        let of_group = |group: GroupIndex| {
            let open = stores.iter().filter(|(of, _)| *of == group).map(|(_, health)| health);
            DiskHealth::of_stripes(&open.chain(&missing).collect::<Vec<_>>())
        };
        let worst = stores.iter().map(|(group, _)| of_group(*group)).max_by_key(DiskHealth::rank);
        match worst {
            Some(DiskHealth::Recovering { .. }) => {
                let recovering = stores.iter().filter_map(|(_, health)| match health {
                    DiskHealth::Recovering { progress } => Some(*progress),
                    _ => None,
                });
                DiskHealth::Recovering { progress: recovering.fold(ScanProgress::default(), add) }
            }
            Some(worst) => worst,
            None => DiskHealth::Serving,
        }
    }

    /// The stripes that the tier was opened without.
    pub(super) fn missing(&self) -> &[MissingStripe] {
        &self.missing
    }

    /// Returns the directories that the last clear or erasure left to others.
    pub(in crate::pager) fn uncleared(&self) -> Vec<PathBuf> {
        lock(&self.uncleared).concat()
    }

    /// Notes which directories beside a store were left to others.
    pub(super) fn set_uncleared(&self, store: usize, directories: Vec<PathBuf>) {
        lock(&self.uncleared)[store] = directories;
    }

    /// Sets a store's health, unless it is worse already. Returns whether it changed for the worse.
    pub(super) fn set_health(&self, store: usize, health: DiskHealth) -> bool {
        let mut all = lock(&self.health);
        let (_, now) = &mut all[store];
        let (old, new) = (now.rank(), health.rank());
        let is_worse = new > old;
        // Recovery ends in service; a failure never does.
        if is_worse || !matches!(now, DiskHealth::ReadOnly { .. } | DiskHealth::Lost { .. }) {
            *now = health;
        }
        is_worse
    }
}

impl MissingStripe {
    /// Why a clear or an erasure did not reach it.
    pub(super) fn unreached(&self) -> Unreached {
        let Self { root, reason } = self.clone();
        Unreached { directory: root, reason }
    }

    fn health(&self) -> DiskHealth {
        DiskHealth::Lost { reason: format!("{}: {}", self.root.display(), self.reason) }
    }
}

/// Adds up how far two scans came.
pub(super) fn add(one: ScanProgress, other: ScanProgress) -> ScanProgress {
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

#[cfg(test)]
mod tests {
    use super::{DiskHealth, ScanProgress};

    fn read_only(reason: &str) -> DiskHealth {
        DiskHealth::ReadOnly { reason: reason.to_owned() }
    }

    fn lost(reason: &str) -> DiskHealth {
        DiskHealth::Lost { reason: reason.to_owned() }
    }

    #[test]
    fn a_tier_is_as_bad_as_all_its_stripes_and_degraded_by_any() {
        let degraded = |reason: &str| DiskHealth::Degraded { reason: reason.to_owned() };
        let recovering = DiskHealth::Recovering { progress: ScanProgress::default() };
        let serving = DiskHealth::Serving;
        let of = |stripes: &[&DiskHealth]| DiskHealth::of_stripes(stripes);
        assert_eq!(of(&[&serving, &serving]), serving);
        assert_eq!(of(&[&serving, &recovering]), recovering);
        assert_eq!(of(&[&serving, &read_only("b")]), degraded("b"));
        assert_eq!(of(&[&lost("a"), &recovering, &read_only("c")]), degraded("a"));
        assert_eq!(of(&[&read_only("a"), &lost("b")]), read_only("a"), "it still serves");
        assert_eq!(of(&[&read_only("a"), &read_only("b")]).rank(), 3);
        assert_eq!(of(&[&lost("a"), &lost("b")]).rank(), 4);
        assert_eq!(of(&[&lost("a")]), lost("a"));
        assert!(degraded("a").takes_writes() && !read_only("a").takes_writes());
    }
}
