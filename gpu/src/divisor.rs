//! Exact division by a constant known at launch, without a divide instruction.
//!
//! A kernel finds the block of a packed word by dividing the word index by the words of one
//! fragment. `/` would bring a slow sequence and, for a zero divisor, a panic path; this is one
//! widening multiply and one shift, exact for every dividend below 2^31.
//!
//! The construction is the round-up method of Granlund and Montgomery, "Division by Invariant
//! Integers using Multiplication" (PLDI 1994), section 4: with `s = floor(log2 d)` and
//! `m = ceil(2^(32+s) / d)`, the error `m*d - 2^(32+s)` is below `d <= 2^(s+1)`, so that
//! `floor(n*m / 2^(32+s)) = floor(n / d)` while `n < 2^31`.

/// Divides by one fixed `u32`, exactly, for dividends below 2^31.
///
/// ```
/// use kvtide_kernels::divisor::Divisor;
///
/// let by_rows = Divisor::new(41).expect("41 is in range");
/// assert_eq!(by_rows.quotient(1_000_000), 1_000_000 / 41);
/// ```
///
/// Part of every kernel's arguments, hence `repr(C)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Divisor {
    /// `m` above; 0 marks a power of two, whose multiplier would need 33 bits.
    multiplier: u32,
    /// `s` above.
    shift: u32,
}

const _: () = assert!(size_of::<Divisor>() == 8 && align_of::<Divisor>() == 4);

impl Divisor {
    /// One past the largest dividend that [`Divisor::quotient`] divides exactly.
    pub const DIVIDEND_END: u32 = 1 << 31;

    /// Prepares division by `divisor`; `None` when it is 0 or above 2^31.
    #[inline]
    pub const fn new(divisor: u32) -> Option<Self> {
        if divisor == 0 || divisor > Self::DIVIDEND_END {
            return None;
        }
        let shift = divisor.ilog2();
        if divisor.is_power_of_two() {
            return Some(Self { multiplier: 0, shift });
        }
        let multiplier = (1_u64 << (32 + shift)).div_ceil(divisor as u64);
        #[expect(clippy::cast_possible_truncation, reason = "2^(32+s) / d < 2^32 as d > 2^s")]
        Some(Self { multiplier: multiplier as u32, shift })
    }

    /// Returns `dividend / divisor` for a dividend below [`Divisor::DIVIDEND_END`].
    #[inline]
    pub const fn quotient(self, dividend: u32) -> u32 {
        debug_assert!(dividend < Self::DIVIDEND_END, "a dividend of 2^31 or more is not exact");
        let high = ((dividend as u64 * self.multiplier as u64) >> 32) as u32;
        let scaled = if self.multiplier == 0 { dividend } else { high };
        scaled >> self.shift
    }
}

#[cfg(test)]
mod tests {
    use super::Divisor;
    use proptest::prelude::*;

    #[test]
    fn refuses_zero_and_divisors_out_of_range() {
        assert_eq!(Divisor::new(0), None);
        assert_eq!(Divisor::new((1 << 31) + 1), None);
        assert!(Divisor::new(1 << 31).is_some());
    }

    #[test]
    fn exact_around_every_multiple_of_small_divisors() {
        for divisor in 1..2_000_u32 {
            let by = Divisor::new(divisor).expect("in range");
            for multiple in [0, 1, 2, 1000, Divisor::DIVIDEND_END / divisor - 1] {
                let at = multiple * divisor;
                for dividend in [at.saturating_sub(1), at, (at + 1).min((1 << 31) - 1)] {
                    assert_eq!(by.quotient(dividend), dividend / divisor, "{dividend}/{divisor}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn exact_for_every_dividend_below_two_to_the_31(
            divisor in 1..=Divisor::DIVIDEND_END,
            dividend in 0..Divisor::DIVIDEND_END,
        ) {
            let by = Divisor::new(divisor).expect("in range");
            prop_assert_eq!(by.quotient(dividend), dividend / divisor);
        }
    }
}
