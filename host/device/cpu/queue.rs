//! In-order queues, and the points in other queues that their entries wait for.
//!
//! The CPU device's streams and hops are such queues, one thread each. An entry may wait for a
//! [`Point`]: something that passes once, such as the end of work recorded in an event. A queue
//! whose front waits sleeps; the point wakes it.
//!
//! Invariants: entries are handed out in the order of their pushing, each after its point has
//! passed; a closed queue hands out nothing. Locks are taken in the order queue, point, and no
//! lock is held while a point wakes a queue, so there is no cycle.
//!
//! Called by `stream.rs` and the device.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

/// Locks, also after a panic elsewhere: every holder leaves its data whole at each step.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Something that passes once and never comes back.
#[derive(Debug, Default)]
pub(super) struct Point(Mutex<PointState>);

#[derive(Debug, Default)]
struct PointState {
    has_passed: bool,
    watchers: Vec<Weak<dyn Watcher>>,
}

/// Who is to be woken when a point passes.
pub(super) trait Watcher: fmt::Debug + Send + Sync {
    fn wake(&self);
}

impl Point {
    pub(super) fn has_passed(&self) -> bool {
        lock(&self.0).has_passed
    }

    /// Passes, and wakes whoever watches.
    pub(super) fn pass(&self) {
        let watchers = {
            let mut state = lock(&self.0);
            state.has_passed = true;
            std::mem::take(&mut state.watchers)
        };
        for watcher in watchers.iter().filter_map(Weak::upgrade) {
            watcher.wake();
        }
    }

    /// Has `watcher` woken when the point passes, unless it has.
    fn watch(&self, watcher: Weak<dyn Watcher>) {
        let mut state = lock(&self.0);
        if !state.has_passed {
            state.watchers.push(watcher);
        }
    }
}

/// Entries that one thread takes in order.
pub(super) struct Queue<T> {
    state: Mutex<QueueState<T>>,
    changed: Condvar,
}

struct QueueState<T> {
    entries: VecDeque<Entry<T>>,
    closing: Closing,
}

struct Entry<T> {
    after: Option<Arc<Point>>,
    work: T,
}

/// Whether a queue takes and hands out entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Closing {
    Open,
    /// Hands out what it has, then is closed.
    Draining,
    Closed,
}

impl<T> fmt::Debug for Queue<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = lock(&self.state);
        formatter
            .debug_struct("Queue")
            .field("entries", &state.entries.len())
            .field("closing", &state.closing)
            .finish_non_exhaustive()
    }
}

impl<T: Send + 'static> Watcher for Queue<T> {
    fn wake(&self) {
        // Under the lock, so that a thread between its look and its sleep is not missed.
        let _state = lock(&self.state);
        self.changed.notify_all();
    }
}

impl<T: Send + 'static> Queue<T> {
    pub(super) fn new() -> Arc<Self> {
        let state = QueueState { entries: VecDeque::new(), closing: Closing::Open };
        Arc::new(Self { state: Mutex::new(state), changed: Condvar::new() })
    }

    /// Appends work that waits for `after`. A queue that is not open drops it.
    pub(super) fn push(self: &Arc<Self>, after: Option<Arc<Point>>, work: T) {
        if let Some(point) = &after {
            let watcher: Arc<dyn Watcher> = Arc::<Self>::clone(self);
            point.watch(Arc::downgrade(&watcher));
        }
        let mut state = lock(&self.state);
        if state.closing == Closing::Open {
            state.entries.push_back(Entry { after, work });
            self.changed.notify_all();
        }
    }

    /// Takes the front entry once its point has passed; none once the queue is closed.
    pub(super) fn next(&self) -> Option<T> {
        let mut state = lock(&self.state);
        loop {
            match (state.entries.front(), state.closing) {
                (_, Closing::Closed) | (None, Closing::Draining) => return None,
                (Some(entry), _) if entry.after.as_ref().is_none_or(|point| point.has_passed()) => {
                    return state.entries.pop_front().map(|entry| entry.work);
                }
                (_, Closing::Open | Closing::Draining) => {
                    state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    /// Takes the front entry if its point has passed.
    #[cfg(feature = "testing")]
    pub(super) fn try_next(&self) -> Option<T> {
        let mut state = lock(&self.state);
        let may_begin =
            |entry: &Entry<T>| entry.after.as_ref().is_none_or(|point| point.has_passed());
        let is_next = state.entries.front().is_some_and(may_begin);
        if is_next { state.entries.pop_front().map(|entry| entry.work) } else { None }
    }

    /// Takes nothing more, and hands out what is there before it closes.
    pub(super) fn drain(&self) {
        self.end(Closing::Draining);
    }

    /// Drops all entries and takes nothing more.
    pub(super) fn close(&self) {
        let dropped = self.end(Closing::Closed);
        // After unlock: what an entry holds may do anything when dropped.
        drop(dropped);
    }

    fn end(&self, closing: Closing) -> VecDeque<Entry<T>> {
        let mut state = lock(&self.state);
        if state.closing != Closing::Closed {
            state.closing = closing;
        }
        self.changed.notify_all();
        match state.closing {
            Closing::Closed => std::mem::take(&mut state.entries),
            Closing::Open | Closing::Draining => VecDeque::new(),
        }
    }
}
