//! Stores beside those that are open: every clear and erasure has those removed that nobody has.
//!
//! They hold what is dropped here, and a later open of them would bring it back. Removing them
//! takes the root's lock, for which the thread does not stop: it asks again in a later round.
//!
//! Called by the disk thread.

use super::DiskThread;
use crate::pager::disk::state::{DiskState, Unreached};
use crate::store::{HeldStore, Siblings, StoreError};
use std::path::PathBuf;
use std::time::Instant;

/// A store beside which a clear or erasure has yet to look.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingSiblings {
    /// The number of the clear or erasure.
    number: u32,
    store: usize,
    /// When the root's lock is waited for no longer.
    lock_by: Instant,
}

impl DiskThread {
    /// Has the next rounds look beside every store; returns how many answers that gives.
    pub(super) fn want_siblings_removed(&mut self, number: u32) -> usize {
        let lock_by = self.shared.clock().instant() + self.io_timeout;
        let store_count = self.stores.len();
        let pending = (0..store_count).map(|store| PendingSiblings { number, store, lock_by });
        self.siblings.extend(pending);
        store_count
    }

    /// Removes what nobody has beside the stores of clears and erasures under way.
    pub(super) fn remove_siblings(&mut self) {
        for pending in std::mem::take(&mut self.siblings) {
            let PendingSiblings { number, store, lock_by } = pending;
            let opened = &self.stores[store].store;
            match opened.remove_siblings(&mut *self.disk) {
                Err(StoreError::Locked { .. }) if self.shared.clock().instant() < lock_by => {
                    self.siblings.push(pending);
                }
                Err(error) => {
                    let directory = opened.root().to_owned();
                    self.end_one(number, [Unreached { directory, reason: error.to_string() }]);
                }
                Ok(Siblings { held, failed }) => {
                    leave(self.shared.disk_state(), store, held);
                    self.end_one(number, failed.into_iter().map(not_removed));
                }
            }
        }
    }
}

/// Tells of a store that could not be removed.
fn not_removed((directory, error): (PathBuf, StoreError)) -> Unreached {
    tracing::error!(directory = %directory.display(), %error, "a store was not removed");
    Unreached { directory, reason: error.to_string() }
}

/// Leaves stores to those who have them, and says so.
fn leave(state: &DiskState, store: usize, held: Vec<HeldStore>) {
    for HeldStore { store, holder } in &held {
        let (directory, process) = (store.directory.display(), holder.process);
        tracing::warn!(%directory, process, "a store in use is left alone; clear its engine too");
    }
    state.set_uncleared(store, held.into_iter().map(|held| held.store.directory).collect());
}
