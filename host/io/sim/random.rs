//! Seeded draws: what the simulated disk leaves to chance.

use crate::random::SplitMix64;

/// A seeded sequence of draws.
#[derive(Clone, Debug)]
pub(super) struct Random(SplitMix64);

impl Random {
    /// Starts the sequence of `seed`.
    pub(super) const fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// Returns a number below `end`, or 0 when `end` is 0.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.0.below(end)
    }

    /// Returns an index below `end`, or 0 when `end` is 0.
    pub(super) fn index(&mut self, end: usize) -> usize {
        usize::try_from(self.below(end as u64)).expect("below a usize")
    }

    /// Returns true once in `count` times.
    pub(super) fn one_in(&mut self, count: u32) -> bool {
        self.below(u64::from(count)) == 0
    }

    /// Returns true every other time.
    pub(super) fn coin(&mut self) -> bool {
        self.0.next() >> 63 == 0
    }
}
