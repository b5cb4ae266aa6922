//! Erasures on their way to the stores.
//!
//! A store erases when it is scanned: before that nobody knows where what remains to be erased
//! lies. Until then the erasure waits with its group's store, and hides what the scan finds of it.
//!
//! Invariants: an erasure covers what was written before it was asked for, and nothing written
//! since.
//!
//! Called by the disk thread.

use crate::key::Key;
use crate::pager::Erasure;
use crate::store::{self, Entry, Finding, Generation, Scanned};
use std::collections::HashSet;
use std::sync::Arc;

/// What is to be erased, as all stores share it.
#[derive(Debug)]
pub(super) struct Erased {
    pub(super) erasure: store::Erasure,
    /// The keys that it names.
    keys: HashSet<Key>,
}

impl Erased {
    pub(super) fn new(what: Erasure) -> Arc<Self> {
        Arc::new(match what {
            Erasure::Tenant(tenant) => {
                Self { erasure: store::Erasure::Tenant(tenant), keys: HashSet::new() }
            }
            Erasure::Keys(keys) => {
                let named = keys.iter().copied().collect();
                Self { erasure: store::Erasure::Keys(keys), keys: named }
            }
        })
    }
}

/// An erasure that a store has to make durable.
#[derive(Debug)]
pub(super) struct PendingErasure {
    /// The number under which it is answered.
    pub(super) number: u32,
    pub(super) erased: Arc<Erased>,
    /// Slot writes from this one on came after it.
    pub(super) before: Generation,
}

impl PendingErasure {
    fn covers(&self, entry: &Entry) -> bool {
        let is_named = match self.erased.erasure {
            store::Erasure::Tenant(tenant) => tenant.tag() == entry.tenant.tag(),
            store::Erasure::Keys(_) => self.erased.keys.contains(&entry.key),
            store::Erasure::Slots(_) => false,
        };
        is_named && entry.generation < self.before
    }
}

/// Takes out of what a scan found what is to be erased: nothing of it is to be found any more.
pub(super) fn hide(erasures: &[PendingErasure], batch: &mut [Scanned]) {
    for Scanned { finding, .. } in batch {
        if let Finding::Chunk { entry, .. } = finding
            && erasures.iter().any(|erasure| erasure.covers(entry))
        {
            *finding = Finding::Cleared;
        }
    }
}
