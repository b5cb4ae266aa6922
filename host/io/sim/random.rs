//! Seeded draws: what the simulated disk leaves to chance.
//!
//! `SplitMix64`: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators" (OOPSLA
//! 2014), with the constants of Vigna's public-domain `splitmix64.c`. Not for secrets.

/// A seeded sequence of draws.
#[derive(Clone, Debug)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    /// Starts the sequence of `seed`.
    pub(super) const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns 64 random bits.
    pub(super) const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, or 0 when `end` is 0.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        let product = u128::from(self.next()) * u128::from(end);
        u64::try_from(product >> 64).expect("the high half of a product of two u64")
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
        self.next() >> 63 == 0
    }
}
