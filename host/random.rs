//! Seeded random integers that are the same on every platform.
//!
//! `SplitMix64`: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators" (OOPSLA
//! 2014), with the constants of Vigna's public-domain `splitmix64.c`. Integers only, so that what
//! is made from a seed never depends on floating-point rounding. Not for secrets.
//!
//! Called by the simulated disk and by the replay's generator.

/// The generator's state: one 64-bit counter.
#[derive(Clone, Debug)]
pub(crate) struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// Starts the sequence of `seed`.
    pub(crate) const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns the next 64 random bits.
    pub(crate) const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `end`, or 0 when `end` is 0, by the high half of a product. The
    /// bias is below `end` / 2^64.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        high_half(self.next(), end)
    }
}

/// Returns `fraction / 2^64 * end`, rounded down: below `end` unless that is 0.
pub(crate) fn high_half(fraction: u64, end: u64) -> u64 {
    let product = u128::from(fraction) * u128::from(end);
    u64::try_from(product >> 64).expect("a product of two u64 shifted right by 64 fits a u64")
}

#[cfg(test)]
mod tests {
    use super::SplitMix64;

    #[test]
    fn the_published_sequence_comes_out() {
        let mut random = SplitMix64::new(1_234_567);
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        assert_eq!(expected.map(|_| random.next()), expected);
        assert_eq!(random.below(0), 0);
    }
}
