//! Where a pager and its threads take the time from: the machine, or a simulation.
//!
//! Called by everything in `pager` that measures or waits.

#[cfg(feature = "testing")]
use crate::io::sim::SimClock;
use crate::units::Timestamp;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A clock. Clones tell the same time.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    origin: Instant,
    source: Source,
}

#[derive(Clone, Debug)]
enum Source {
    Machine,
    #[cfg(feature = "testing")]
    Simulated(SimClock),
}

impl Clock {
    /// The machine's clocks; time begins now.
    pub(super) fn of_the_machine() -> Self {
        Self { origin: Instant::now(), source: Source::Machine }
    }

    /// A clock that stands still until somebody moves it on.
    #[cfg(feature = "testing")]
    pub(super) fn simulated(clock: SimClock) -> Self {
        Self { origin: Instant::now(), source: Source::Simulated(clock) }
    }

    /// Returns the point in time.
    pub(super) fn instant(&self) -> Instant {
        match &self.source {
            Source::Machine => Instant::now(),
            #[cfg(feature = "testing")]
            Source::Simulated(clock) => self.origin + Duration::from_nanos(clock.now().get()),
        }
    }

    /// Returns the time since the pager was opened; a simulated one, since its clock was made.
    pub(super) fn now(&self) -> Timestamp {
        let elapsed = self.instant().saturating_duration_since(self.origin).as_nanos();
        Timestamp::new(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }

    /// Returns how long ago a point in time is.
    pub(super) fn since(&self, start: Instant) -> Duration {
        self.instant().saturating_duration_since(start)
    }

    /// Returns the seconds since 1970.
    pub(super) fn unix_s(&self) -> u64 {
        match &self.source {
            Source::Machine => {
                SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs())
            }
            #[cfg(feature = "testing")]
            Source::Simulated(clock) => clock.unix_s(),
        }
    }
}
