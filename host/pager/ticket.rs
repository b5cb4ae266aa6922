//! Tickets: a store or load under way, as the engine sees it.
//!
//! A ticket covers any number of chunks, in transfers of at most 64. It is a `Future`, can be
//! polled, and can be waited for. Dropping it changes nothing: the transfers go on.
//!
//! Invariants: a ticket ends once all its transfers have; what it reports after that does not
//! change; `released` never comes after the end.

use super::shared::Shared;
use crate::core::{Stage, TransferId};
use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// What became of a ticket's chunks, in the order of its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketReport {
    /// The final stage of each chunk.
    pub stages: Vec<Stage>,
}

impl TicketReport {
    /// Returns how many of the first chunks are done: what a prefix can be used up to.
    pub fn done_prefix(&self) -> usize {
        self.stages.iter().take_while(|stage| **stage == Stage::Done).count()
    }

    /// Whether every chunk is done.
    pub fn is_done(&self) -> bool {
        self.done_prefix() == self.stages.len()
    }
}

/// A store or load under way.
#[derive(Debug)]
#[must_use = "a ticket says what became of the chunks; wait for it, poll it or await it"]
pub struct Ticket {
    pub(super) state: Arc<TicketState>,
    pub(super) shared: Arc<Shared>,
}

impl Ticket {
    /// Returns how many chunks the ticket covers.
    pub fn chunk_count(&self) -> usize {
        self.state.lock().stages.len()
    }

    /// Whether the engine's blocks are no longer read. True for a load once it has ended.
    ///
    /// A store that reads none of them, because every chunk is stored already, joined or refused,
    /// is released at once: also before the event that it was given.
    pub fn is_released(&self) -> bool {
        self.state.lock().is_released()
    }

    /// Returns the report if the ticket has ended.
    pub fn poll_report(&self) -> Option<TicketReport> {
        self.state.lock().report()
    }

    /// Returns where each chunk is right now. Takes the pager's lock for each 64 chunks.
    pub fn stages(&self) -> Vec<Stage> {
        let open = self.state.lock().open_transfers();
        let current: Vec<_> = open
            .into_iter()
            .filter_map(|(id, chunks)| Some((self.shared.stages(id)?, chunks)))
            .collect();
        let state = self.state.lock();
        let mut stages = state.stages.clone();
        for (now, chunks) in current {
            // What ended in the meantime is known better by the ticket itself.
            if state.is_open(&chunks) {
                stages[chunks].copy_from_slice(&now);
            }
        }
        stages
    }

    /// Blocks until the engine's blocks are no longer read, at most for `timeout`. Returns whether
    /// they are not.
    pub fn wait_released(&self, timeout: Duration) -> bool {
        self.state.wait_until(timeout, Progress::is_released)
    }

    /// Blocks until every chunk's stage is final.
    ///
    /// A ticket ends by itself: within its deadline what has not begun is given up, and what has
    /// begun ends within the device timeout.
    pub fn wait(&self) -> TicketReport {
        let mut progress = self.state.lock();
        loop {
            if let Some(report) = progress.report() {
                return report;
            }
            progress = self.state.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Blocks until every chunk's stage is final, at most for `timeout`.
    pub fn wait_for(&self, timeout: Duration) -> Option<TicketReport> {
        self.state.wait_until(timeout, Progress::has_ended);
        self.poll_report()
    }

    /// Gives up what has not begun. What has begun ends as it would.
    pub fn cancel(&self) {
        // Not in the loop's head, which would keep the lock: what a cancel ends is told the ticket.
        let open = self.state.lock().open_transfers();
        for (transfer, _) in open {
            self.shared.cancel(transfer);
        }
    }
}

impl Future for Ticket {
    type Output = TicketReport;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<TicketReport> {
        let mut progress = self.state.lock();
        if let Some(report) = progress.report() {
            return Poll::Ready(report);
        }
        match &mut progress.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }
}

/// What a ticket and the pager share of it.
#[derive(Debug)]
pub(super) struct TicketState {
    progress: Mutex<Progress>,
    changed: Condvar,
}

#[derive(Debug)]
pub(super) struct Progress {
    stages: Vec<Stage>,
    transfers: Vec<Part>,
    /// Of the task that polled last: a future owes a wake to no other.
    waker: Option<Waker>,
}

/// One transfer of a ticket.
#[derive(Debug)]
struct Part {
    id: TransferId,
    chunks: Range<usize>,
    is_released: bool,
    has_ended: bool,
}

impl Progress {
    fn is_released(&self) -> bool {
        self.transfers.iter().all(|part| part.is_released)
    }

    fn has_ended(&self) -> bool {
        self.transfers.iter().all(|part| part.has_ended)
    }

    fn report(&self) -> Option<TicketReport> {
        self.has_ended().then(|| TicketReport { stages: self.stages.clone() })
    }

    fn open_transfers(&self) -> Vec<(TransferId, Range<usize>)> {
        let open = self.transfers.iter().filter(|part| !part.has_ended);
        open.map(|part| (part.id, part.chunks.clone())).collect()
    }

    fn is_open(&self, chunks: &Range<usize>) -> bool {
        self.transfers.iter().any(|part| part.chunks == *chunks && !part.has_ended)
    }
}

impl TicketState {
    /// Makes the state of a ticket over `chunk_count` chunks, without transfers yet; chunks that
    /// get none keep `initial`.
    pub(super) fn new(chunk_count: usize, initial: Stage) -> Self {
        let progress =
            Progress { stages: vec![initial; chunk_count], transfers: Vec::new(), waker: None };
        Self { progress: Mutex::new(progress), changed: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a transfer that moves the given chunks.
    pub(super) fn add_transfer(&self, id: TransferId, chunks: Range<usize>) {
        let part = Part { id, chunks, is_released: false, has_ended: false };
        self.lock().transfers.push(part);
    }

    /// Takes in what a wake said: the transfer's stages, released or final.
    pub(super) fn settle(&self, id: TransferId, stages: &[Stage]) {
        let mut guard = self.lock();
        let progress = &mut *guard;
        let Some(part) = progress.transfers.iter_mut().find(|part| part.id == id) else {
            return;
        };
        // Two threads may bring the news of one transfer in either order.
        if part.has_ended {
            return;
        }
        part.is_released = stages.iter().all(|stage| stage.is_released());
        part.has_ended = stages.iter().all(|stage| stage.is_final());
        progress.stages[part.chunks.clone()].copy_from_slice(stages);
        let waker = if progress.has_ended() { progress.waker.take() } else { None };
        self.changed.notify_all();
        drop(guard);
        // After unlock: a waker may poll the ticket at once.
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn wait_until(&self, timeout: Duration, reached: impl Fn(&Progress) -> bool) -> bool {
        let end = Instant::now().checked_add(timeout);
        let mut progress = self.lock();
        while !reached(&progress) {
            let left =
                end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return false;
            }
            // A bound that the clock cannot express is waited for in pieces.
            let piece = left.min(Duration::from_hours(1));
            let waited = self.changed.wait_timeout(progress, piece);
            progress = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}
