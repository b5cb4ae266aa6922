//! The plain least-recently-used cache that other caches are held to.
//!
//! One list of the cached blocks, most recently used first, as links in two flat arrays indexed
//! by the dense block numbers of the trace. It knows nothing of prefixes beyond the order in
//! which a request touches its blocks: last to first, each insert over capacity dropping the
//! least recently used. Used by tests, and by the `kvtide` program.

use super::cache::{ChunkCache, RequestOutcome};
use super::request::Request;
use super::unique::UniqueBlocks;
use crate::units::{BlockCount, ChunkCount};
use std::convert::Infallible;

/// Link of a block that is not cached.
const ABSENT: u32 = u32::MAX;

/// A block's neighbours in the list.
#[derive(Clone, Copy, Debug)]
struct Links {
    /// Towards the most recently used; [`ABSENT`] when the block is not cached.
    newer: u32,
    older: u32,
}

/// A least-recently-used cache of the blocks of one trace.
#[derive(Clone, Debug)]
pub struct ReferenceLru<'trace> {
    blocks: &'trace UniqueBlocks,
    /// One entry a block, then the list's head: its `older` is the most recently used block, its
    /// `newer` the least recently used one.
    links: Vec<Links>,
    head: u32,
    cached: u32,
    capacity: u32,
}

impl<'trace> ReferenceLru<'trace> {
    /// Makes an empty cache for `capacity` of `blocks`. Eight bytes a unique block.
    ///
    /// # Panics
    ///
    /// When there are 2^32 - 1 blocks or more; a [`Trace`](super::Trace) never has so many.
    pub fn new(blocks: &'trace UniqueBlocks, capacity: ChunkCount) -> Self {
        let head = u32::try_from(blocks.count()).unwrap_or(ABSENT);
        assert!(head < ABSENT, "a trace has at most 2^26 unique blocks");
        let absent = Links { newer: ABSENT, older: ABSENT };
        let mut links = vec![absent; head as usize + 1];
        links[head as usize] = Links { newer: head, older: head };
        Self { blocks, links, head, cached: 0, capacity: capacity.get() }
    }

    fn is_cached(&self, block: u32) -> bool {
        self.links[block as usize].newer != ABSENT
    }

    /// Takes a cached block out of the list.
    fn unlink(&mut self, block: u32) {
        let Links { newer, older } = self.links[block as usize];
        self.links[newer as usize].older = older;
        self.links[older as usize].newer = newer;
        self.links[block as usize].newer = ABSENT;
    }

    /// Puts a block into the list as the most recently used.
    fn link_newest(&mut self, block: u32) {
        let older = self.links[self.head as usize].older;
        self.links[block as usize] = Links { newer: self.head, older };
        self.links[older as usize].newer = block;
        self.links[self.head as usize].older = block;
    }

    /// Touches or inserts a block; returns whether another had to leave.
    fn touch(&mut self, block: u32) -> bool {
        if self.is_cached(block) {
            self.unlink(block);
            self.link_newest(block);
            return false;
        }
        self.link_newest(block);
        if self.cached < self.capacity {
            self.cached += 1;
            return false;
        }
        let oldest = self.links[self.head as usize].newer;
        self.unlink(oldest);
        true
    }

    /// Returns the dense numbers of each run of `request`.
    fn dense_runs(
        blocks: &UniqueBlocks,
        request: &Request,
    ) -> impl DoubleEndedIterator<Item = std::ops::Range<u32>> {
        request.runs().iter().map(|&run| {
            let first = blocks.dense_first(request.scope(), run);
            let first = first.and_then(|first| u32::try_from(first).ok());
            let first =
                first.expect("the request belongs to the trace that the cache was made for");
            first..first + run.count().get()
        })
    }
}

impl ChunkCache for ReferenceLru<'_> {
    type Error = Infallible;

    /// Runs one request.
    ///
    /// # Panics
    ///
    /// When the request has a block that is not among those given to [`ReferenceLru::new`].
    fn run(&mut self, request: &Request) -> Result<RequestOutcome, Infallible> {
        let blocks = self.blocks;
        let hits = Self::dense_runs(blocks, request)
            .flatten()
            .take_while(|&block| self.is_cached(block))
            .fold(0, |hits, _| hits + 1);
        let mut evictions = 0;
        for run in Self::dense_runs(blocks, request).rev() {
            for block in run.rev() {
                evictions += u32::from(self.touch(block));
            }
        }
        Ok(RequestOutcome { hits: BlockCount::new(hits), evictions: ChunkCount::new(evictions) })
    }
}

#[cfg(test)]
mod tests {
    use super::ReferenceLru;
    use crate::replay::cache::{ChunkCache, RequestOutcome};
    use crate::replay::request::{BlockNumber, BlockRun, Request, Scope};
    use crate::replay::unique::UniqueBlocks;
    use crate::units::{BlockCount, ChunkCount};
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// The rule, written out over a queue of (scope, number), most recently used first.
    fn run_by_the_rule(
        queue: &mut VecDeque<(Scope, BlockNumber)>,
        capacity: usize,
        request: &Request,
    ) -> RequestOutcome {
        let blocks: Vec<_> = request.blocks().map(|block| (request.scope(), block)).collect();
        let hits = blocks.iter().take_while(|block| queue.contains(block)).count();
        let mut evictions = 0;
        for block in blocks.into_iter().rev() {
            queue.retain(|&cached| cached != block);
            queue.push_front(block);
            if queue.len() > capacity {
                queue.pop_back();
                evictions += 1;
            }
        }
        RequestOutcome {
            hits: BlockCount::new(u32::try_from(hits).unwrap()),
            evictions: ChunkCount::new(evictions),
        }
    }

    proptest! {
        #[test]
        fn every_request_goes_by_the_rule(
            requests in prop::collection::vec(
                (0_u32..2, prop::collection::vec((0_u64..30, 1_u64..8), 0..5)),
                1..40,
            ),
            capacity in 0_u32..40,
        ) {
            let run = |(first, count)| BlockRun::new(BlockNumber::new(first), count).unwrap();
            let request = |(scope, runs): (u32, Vec<(u64, u64)>)| {
                Request::new(Scope::new(scope), runs.into_iter().map(run)).unwrap()
            };
            let requests: Vec<Request> = requests.into_iter().map(request).collect();
            let blocks = UniqueBlocks::of(&requests);
            let mut lru = ReferenceLru::new(&blocks, ChunkCount::new(capacity));
            let mut queue = VecDeque::new();
            for request in &requests {
                let expected = run_by_the_rule(&mut queue, capacity as usize, request);
                let Ok(outcome) = lru.run(request);
                prop_assert_eq!(outcome, expected);
            }
        }
    }
}
