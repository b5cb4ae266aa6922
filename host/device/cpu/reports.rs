//! Reports of operations that ended, from the device's threads to the pager's.
//!
//! Invariant: nothing is added once the device was abandoned.
//!
//! Called by the hops and the device.

use super::queue::lock;
use crate::device::Finished;
use std::fmt;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// What ended and was not asked for yet.
#[derive(Default)]
pub(super) struct Reports {
    state: Mutex<ReportState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct ReportState {
    finished: Vec<Finished>,
    is_woken: bool,
    is_abandoned: bool,
}

impl fmt::Debug for Reports {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*lock(&self.state), formatter)
    }
}

impl Reports {
    /// Takes a report, unless the device was given up on.
    pub(super) fn add(&self, finished: Finished) {
        let mut state = lock(&self.state);
        if !state.is_abandoned {
            state.finished.push(finished);
            self.changed.notify_all();
        }
    }

    pub(super) fn take(&self, finished: &mut Vec<Finished>) {
        finished.append(&mut lock(&self.state).finished);
    }

    pub(super) fn wait(&self, timeout: Duration) {
        let idle = |state: &mut ReportState| state.finished.is_empty() && !state.is_woken;
        let state = lock(&self.state);
        let (mut state, _) = self
            .changed
            .wait_timeout_while(state, timeout, idle)
            .unwrap_or_else(PoisonError::into_inner);
        state.is_woken = false;
    }

    pub(super) fn wake(&self) {
        lock(&self.state).is_woken = true;
        self.changed.notify_all();
    }

    pub(super) fn abandon(&self) {
        lock(&self.state).is_abandoned = true;
    }

    pub(super) fn is_abandoned(&self) -> bool {
        lock(&self.state).is_abandoned
    }
}
