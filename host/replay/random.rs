//! What the generator draws: numbers of a span, and chances.
//!
//! Called by the generator.

use super::workload::Span;
use crate::random::{SplitMix64, high_half};

impl SplitMix64 {
    /// Returns a number of `span`, each as likely as the next.
    pub(super) fn uniform(&mut self, span: Span) -> u32 {
        span.at(self.next())
    }

    /// Returns a number of `span`, small ones more likely: the product of two uniform fractions,
    /// whose mean is a quarter of the way up and whose median is below a fifth.
    pub(super) fn skewed(&mut self, span: Span) -> u32 {
        let scale = self.next();
        span.at(high_half(self.next(), scale))
    }

    /// Returns true `permille` times in a thousand.
    pub(super) fn chance(&mut self, permille: u32) -> bool {
        self.below(1000) < u64::from(permille)
    }
}

#[cfg(test)]
mod tests {
    use super::SplitMix64;
    use crate::replay::workload::Span;

    #[test]
    fn draws_stay_in_their_span_and_reach_both_ends() {
        let span = Span::new(3, 6);
        let mut random = SplitMix64::new(1);
        let mut seen = [[false; 4]; 2];
        for _ in 0..1000 {
            let (uniform, skewed) = (random.uniform(span), random.skewed(span));
            seen[0][uniform as usize - 3] = true;
            seen[1][skewed as usize - 3] = true;
        }
        assert_eq!(seen, [[true; 4]; 2]);
    }
}
