//! The unique blocks of a trace: how many there are, and a dense number for each.
//!
//! The runs of all requests are merged, scope by scope, into spans that neither overlap nor touch,
//! so every run lies inside one span and the cost is per run, never per block use. Made once per
//! trace; used for capacities and by [`ReferenceLru`](super::ReferenceLru).

use super::request::{BlockRun, Request, Scope};

/// A maximal range of block numbers in use, and the dense number of its first block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BlockSpan {
    scope: Scope,
    first: u64,
    end: u64,
    dense_first: u64,
}

/// The unique blocks of a list of requests, numbered densely from 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UniqueBlocks {
    /// Sorted by scope, then first number.
    spans: Vec<BlockSpan>,
    count: u64,
}

impl UniqueBlocks {
    /// Numbers the blocks that `requests` use. Sorts their runs; expands none.
    pub fn of(requests: &[Request]) -> Self {
        let mut ranges: Vec<(Scope, u64, u64)> = requests
            .iter()
            .flat_map(|request| request.runs().iter().map(|run| (request.scope(), *run)))
            .map(|(scope, run)| (scope, run.first().get(), run.end()))
            .collect();
        ranges.sort_unstable();
        let mut spans: Vec<BlockSpan> = Vec::new();
        for (scope, first, end) in ranges {
            match spans.last_mut() {
                Some(last) if last.scope == scope && first <= last.end => {
                    last.end = last.end.max(end);
                }
                _ => spans.push(BlockSpan { scope, first, end, dense_first: 0 }),
            }
        }
        // A count past 2^64 would need more runs than memory holds: each adds at most 2^24.
        let mut count = 0;
        for span in &mut spans {
            span.dense_first = count;
            count += span.end - span.first;
        }
        spans.shrink_to_fit();
        Self { spans, count }
    }

    /// Returns how many unique blocks there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the dense number of the first block of `run`; the run's others follow it.
    ///
    /// `None` when the requests given to [`UniqueBlocks::of`] had no such run. One binary
    /// search.
    pub fn dense_first(&self, scope: Scope, run: BlockRun) -> Option<u64> {
        let first = run.first().get();
        let after = self.spans.partition_point(|span| (span.scope, span.first) <= (scope, first));
        let span = self.spans.get(after.checked_sub(1)?)?;
        let inside = span.scope == scope && run.end() <= span.end;
        inside.then(|| span.dense_first + (first - span.first))
    }
}

#[cfg(test)]
mod tests {
    use super::UniqueBlocks;
    use crate::replay::request::{BlockNumber, BlockRun, Request, Scope};
    use proptest::prelude::*;
    use std::collections::{HashMap, HashSet};

    fn request(scope: u32, runs: &[(u64, u64)]) -> Request {
        let runs = runs
            .iter()
            .map(|&(first, count)| BlockRun::new(BlockNumber::new(first), count).unwrap());
        Request::new(Scope::new(scope), runs).unwrap()
    }

    #[test]
    fn runs_that_were_never_used_have_no_number() {
        let blocks = UniqueBlocks::of(&[request(1, &[(10, 5)])]);
        let dense = |scope, first, count| {
            let run = BlockRun::new(BlockNumber::new(first), count).unwrap();
            blocks.dense_first(Scope::new(scope), run)
        };
        assert_eq!(dense(1, 10, 5), Some(0));
        assert_eq!(dense(1, 12, 3), Some(2));
        assert_eq!(dense(1, 12, 4), None);
        assert_eq!(dense(1, 9, 1), None);
        assert_eq!(dense(0, 10, 1), None);
        assert_eq!(dense(2, 10, 1), None);
    }

    proptest! {
        #[test]
        fn every_block_gets_one_number_of_its_own_below_the_count(
            requests in prop::collection::vec(
                (0_u32..3, prop::collection::vec((0_u64..60, 1_u64..8), 0..6)),
                0..12,
            ),
        ) {
            let requests: Vec<Request> =
                requests.iter().map(|(scope, runs)| request(*scope, runs)).collect();
            let blocks = UniqueBlocks::of(&requests);
            let mut numbers: HashMap<(Scope, BlockNumber), u64> = HashMap::new();
            for request in &requests {
                for &run in request.runs() {
                    let dense_first = blocks.dense_first(request.scope(), run).unwrap();
                    for (block, dense) in run.blocks().zip(dense_first..) {
                        let known = *numbers.entry((request.scope(), block)).or_insert(dense);
                        prop_assert_eq!(known, dense);
                    }
                }
            }
            let unique: HashSet<u64> = numbers.values().copied().collect();
            prop_assert_eq!(unique.len(), numbers.len());
            prop_assert_eq!(blocks.count(), numbers.len() as u64);
            prop_assert!(unique.iter().all(|&dense| dense < blocks.count()));
        }
    }
}
