//! Virtual time: it passes when a simulated disk waits, and costs nothing.

use crate::units::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// The second since 1970 at which virtual time starts.
const START_UNIX_S: u64 = 1_700_000_000;

/// A clock that stands still until somebody moves it on. Clones are the same clock.
///
/// It tells two times, as a machine does: that which only passes, and that of day, which somebody
/// may set.
///
/// ```
/// use kvtide::io::sim::SimClock;
/// use kvtide::units::Timestamp;
/// use std::time::Duration;
///
/// let clock = SimClock::default();
/// clock.advance(Duration::from_secs(2));
/// assert_eq!(clock.now(), Timestamp::new(2_000_000_000));
/// ```
#[derive(Clone, Debug, Default)]
pub struct SimClock {
    now_ns: Arc<AtomicU64>,
    /// By how much the time of day was set forward.
    wall_step_s: Arc<AtomicI64>,
}

impl SimClock {
    /// Returns the time since the clock was made.
    pub fn now(&self) -> Timestamp {
        Timestamp::new(self.now_ns.load(Ordering::SeqCst))
    }

    /// Returns the time in seconds since 1970, as files are stamped with it.
    pub fn unix_s(&self) -> u64 {
        let elapsed_s = self.now().get() / 1_000_000_000;
        (START_UNIX_S + elapsed_s).saturating_add_signed(self.wall_step_s.load(Ordering::SeqCst))
    }

    /// Sets the time of day forward, or back with a negative number, as an operator or a time
    /// server does: [`now`](Self::now) goes on as if nothing had happened. It never gets before
    /// 1970.
    pub fn step_wall(&self, seconds: i64) {
        let add = |step: i64| Some(step.saturating_add(seconds));
        // Always stored: the closure never refuses.
        let _ = self.wall_step_s.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add);
    }

    /// Lets time pass.
    pub fn advance(&self, duration: Duration) {
        self.advance_to(self.now().after(nanoseconds(duration)));
    }

    /// Lets time pass until `time`; does nothing if it is over.
    pub fn advance_to(&self, time: Timestamp) {
        self.now_ns.fetch_max(time.get(), Ordering::SeqCst);
    }
}

/// Returns a duration in nanoseconds, at most what 64 bits hold.
pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
