//! Virtual time: it passes when a simulated disk waits, and costs nothing.

use crate::units::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The second since 1970 at which virtual time starts.
const START_UNIX_S: u64 = 1_700_000_000;

/// A clock that stands still until somebody moves it on. Clones are the same clock.
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
}

impl SimClock {
    /// Returns the time since the clock was made.
    pub fn now(&self) -> Timestamp {
        Timestamp::new(self.now_ns.load(Ordering::SeqCst))
    }

    /// Returns the time in seconds since 1970, as files are stamped with it.
    pub fn unix_s(&self) -> u64 {
        unix_s(self.now().get())
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

/// Returns the seconds since 1970 at a virtual time.
pub(super) const fn unix_s(now_ns: u64) -> u64 {
    START_UNIX_S + now_ns / 1_000_000_000
}

/// Returns a duration in nanoseconds, at most what 64 bits hold.
pub(super) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
