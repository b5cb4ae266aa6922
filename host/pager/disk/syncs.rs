//! When the disk tier syncs, and who waits for it.
//!
//! A sync makes durable what was written before it began. It begins an interval after the last one
//! if anything was written since, or at once for a flush that has nothing left to write. One runs
//! at a time, in all stores that were written to. A store in which it fails has stopped by then:
//! what it holds never becomes durable, what the others hold does.

use super::state::{DiskCommandError, DiskHealth};
use crate::core::SyncMark;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// The longest interval: as good as none.
const INTERVAL_MAX: Duration = Duration::from_hours(24 * 365);

/// A sync under way, in all stores that have something to sync.
#[derive(Clone, Copy, Debug)]
struct Running {
    mark: SyncMark,
    left: usize,
}

/// Syncs and flushes of one disk tier.
#[derive(Debug)]
pub(super) struct Syncs {
    interval: Duration,
    due: Instant,
    running: Option<Running>,
    flushes: Vec<Sender<Result<(), DiskCommandError>>>,
}

impl Syncs {
    pub(super) fn new(interval: Duration, now: Instant) -> Self {
        // Beyond that the clock may have no point in time.
        let interval = interval.min(INTERVAL_MAX);
        Self { interval, due: now + interval, running: None, flushes: Vec::new() }
    }

    pub(super) fn wait_for_flush(&mut self, answer: Sender<Result<(), DiskCommandError>>) {
        self.flushes.push(answer);
    }

    pub(super) fn has_flush(&self) -> bool {
        !self.flushes.is_empty()
    }

    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Whether a sync may begin now; `is_flushed` says that a flush only waits for one.
    pub(super) fn may_begin(&self, now: Instant, is_flushed: bool) -> bool {
        self.running.is_none() && (is_flushed || now >= self.due)
    }

    /// How long until a sync is due.
    pub(super) fn until_due(&self, now: Instant) -> Duration {
        if self.is_running() { Duration::MAX } else { self.due.saturating_duration_since(now) }
    }

    /// Puts the next sync off, because nothing was written.
    pub(super) fn skip(&mut self, now: Instant) {
        self.due = now + self.interval;
    }

    pub(super) fn begin(&mut self, now: Instant, mark: SyncMark, store_count: usize) {
        self.due = now + self.interval;
        self.running = Some(Running { mark, left: store_count });
    }

    /// Takes in the end of one store's sync, after the writes of one that failed were stopped;
    /// returns the mark once all have ended.
    pub(super) fn end_one(&mut self) -> Option<SyncMark> {
        let running = self.running.as_mut()?;
        running.left -= 1;
        if running.left > 0 {
            return None;
        }
        self.running.take().map(|running| running.mark)
    }

    /// Answers every flush.
    pub(super) fn answer(&mut self, health: &DiskHealth) {
        for flush in self.flushes.drain(..) {
            let result = match health {
                DiskHealth::ReadOnly { reason } | DiskHealth::Lost { reason } => {
                    Err(DiskCommandError::ReadOnly { reason: reason.clone() })
                }
                DiskHealth::Serving
                | DiskHealth::Recovering { .. }
                | DiskHealth::Degraded { .. } => Ok(()),
            };
            // Whoever asked may have stopped waiting.
            let _unheard = flush.send(result);
        }
    }
}
