//! One request of a trace: which blocks its prompt has, as runs of consecutive numbers.
//!
//! Invariants: no run is empty or passes the last number; neighbouring runs that continue each
//! other are one run; a request has at most [`REQUEST_BLOCKS_MAX`] blocks. Built by the trace
//! reader and the generator, read by every cache.

use crate::units::{BlockCount, TokenCount};

/// Most blocks that one request may have: 16 Mi, a hundred times the longest context known.
pub const REQUEST_BLOCKS_MAX: u32 = 1 << 24;

/// Number of a trace block: stands for the block and, in its scope, everything before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockNumber(u64);

/// Name space of block numbers: equal numbers in two scopes are different blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scope(u32);

impl BlockNumber {
    /// Wraps a plain number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the plain number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl Scope {
    /// The scope of numbers that hold for a whole trace.
    pub const GLOBAL: Self = Self(0);

    /// Wraps a plain number; sessions with local block numbers count from 1.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the plain number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Why blocks do not make a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// A run has no block.
    #[error("has a run of 0 blocks at block {first}; leave empty runs out")]
    EmptyRun {
        /// First number of the run.
        first: u64,
    },
    /// A run ends past the last number.
    #[error(
        "has a run of {count} blocks from {first}, which ends past {}; number blocks lower",
        u64::MAX
    )]
    RunPastLastNumber {
        /// First number of the run.
        first: u64,
        /// Blocks of the run.
        count: u64,
    },
    /// The request has more blocks than [`REQUEST_BLOCKS_MAX`].
    #[error(
        "has {count} blocks or more, over the limit of {REQUEST_BLOCKS_MAX} a request; \
         split the request or use larger blocks"
    )]
    TooManyBlocks {
        /// Blocks counted when the limit was passed.
        count: u64,
    },
}

/// Consecutive block numbers: `first`, `first + 1`, and so on, `count` of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRun {
    /// First number.
    first: u64,
    /// At least 1; `first + count` does not overflow.
    count: u32,
}

impl BlockRun {
    /// Makes a run of `count` blocks from `first`.
    ///
    /// # Errors
    ///
    /// [`RequestError::EmptyRun`], [`RequestError::RunPastLastNumber`] or, for a run that no
    /// request could hold, [`RequestError::TooManyBlocks`].
    pub fn new(first: BlockNumber, count: u64) -> Result<Self, RequestError> {
        let first = first.get();
        if count == 0 {
            return Err(RequestError::EmptyRun { first });
        }
        if first.checked_add(count).is_none() {
            return Err(RequestError::RunPastLastNumber { first, count });
        }
        let count = u32::try_from(count)
            .ok()
            .filter(|&count| count <= REQUEST_BLOCKS_MAX)
            .ok_or(RequestError::TooManyBlocks { count })?;
        Ok(Self { first, count })
    }

    /// Returns the first number.
    pub const fn first(self) -> BlockNumber {
        BlockNumber(self.first)
    }

    /// Returns how many blocks the run has, at least 1.
    pub const fn count(self) -> BlockCount {
        BlockCount::new(self.count)
    }

    /// Returns one past the last number.
    pub fn end(self) -> u64 {
        self.first + u64::from(self.count)
    }

    /// Returns the numbers in order.
    pub fn blocks(self) -> impl DoubleEndedIterator<Item = BlockNumber> {
        (self.first..self.end()).map(BlockNumber)
    }
}

/// Runs being put together, kept as few as they can be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RunList {
    runs: Vec<BlockRun>,
    /// Sum of the runs' counts, at most `REQUEST_BLOCKS_MAX`.
    block_count: u32,
}

impl RunList {
    /// Appends `run`, to the last run if it continues that.
    pub(super) fn push(&mut self, run: BlockRun) -> Result<(), RequestError> {
        // Both are at most 2^24, so the sum fits.
        let block_count = self.block_count + run.count;
        if block_count > REQUEST_BLOCKS_MAX {
            let count = u64::from(block_count);
            return Err(RequestError::TooManyBlocks { count });
        }
        self.block_count = block_count;
        match self.runs.last_mut() {
            Some(last) if last.end() == run.first => last.count += run.count,
            _ => self.runs.push(run),
        }
        Ok(())
    }

    /// Blocks of all runs.
    pub(super) fn block_count(&self) -> u32 {
        self.block_count
    }
}

/// One request: the blocks of its prompt, in order, and what the trace says of it.
///
/// ```
/// use kvtide::replay::{BlockNumber, BlockRun, Request, Scope};
///
/// let shared = BlockRun::new(BlockNumber::new(10), 3)?;
/// let own = BlockRun::new(BlockNumber::new(70), 1)?;
/// let request = Request::new(Scope::GLOBAL, [shared, own])?;
/// let numbers: Vec<u64> = request.blocks().map(BlockNumber::get).collect();
/// assert_eq!(numbers, [10, 11, 12, 70]);
/// # Ok::<(), kvtide::replay::RequestError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    scope: Scope,
    runs: Box<[BlockRun]>,
    block_count: u32,
    input: TokenCount,
    output: TokenCount,
    arrival_ms: Option<u64>,
}

impl Request {
    /// Makes a request of `runs` in `scope`, with no tokens and no arrival time.
    ///
    /// # Errors
    ///
    /// [`RequestError::TooManyBlocks`] when the runs together are over [`REQUEST_BLOCKS_MAX`].
    pub fn new(
        scope: Scope,
        runs: impl IntoIterator<Item = BlockRun>,
    ) -> Result<Self, RequestError> {
        let mut list = RunList::default();
        for run in runs {
            list.push(run)?;
        }
        Ok(Self::from_run_list(scope, list))
    }

    /// Makes a request of runs that are in form already.
    pub(super) fn from_run_list(scope: Scope, list: RunList) -> Self {
        Self {
            scope,
            runs: list.runs.into_boxed_slice(),
            block_count: list.block_count,
            input: TokenCount::new(0),
            output: TokenCount::new(0),
            arrival_ms: None,
        }
    }

    /// Moves the request to another scope.
    #[must_use]
    pub fn with_scope(self, scope: Scope) -> Self {
        Self { scope, ..self }
    }

    /// States the tokens of the prompt and of the answer.
    #[must_use]
    pub fn with_tokens(self, input: TokenCount, output: TokenCount) -> Self {
        Self { input, output, ..self }
    }

    /// States when the request arrived, in milliseconds from the start of its trace or session.
    #[must_use]
    pub fn with_arrival_ms(self, arrival_ms: Option<u64>) -> Self {
        Self { arrival_ms, ..self }
    }

    /// Returns the scope of the block numbers.
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// Returns the blocks as runs, in order; none for an empty request.
    pub fn runs(&self) -> &[BlockRun] {
        &self.runs
    }

    /// Returns the blocks one by one, in order.
    pub fn blocks(&self) -> impl DoubleEndedIterator<Item = BlockNumber> {
        self.runs.iter().flat_map(|run| run.blocks())
    }

    /// Returns how many blocks the request uses.
    pub fn block_count(&self) -> BlockCount {
        BlockCount::new(self.block_count)
    }

    /// Returns the tokens of the prompt.
    pub fn input_tokens(&self) -> TokenCount {
        self.input
    }

    /// Returns the tokens of the answer.
    pub fn output_tokens(&self) -> TokenCount {
        self.output
    }

    /// Returns when the request arrived, in milliseconds from the start of its trace (global
    /// numbers) or session (local numbers); `None` when the trace does not say.
    pub fn arrival_ms(&self) -> Option<u64> {
        self.arrival_ms
    }
}

#[cfg(test)]
mod tests {
    use super::{BlockNumber, BlockRun, REQUEST_BLOCKS_MAX, Request, RequestError, RunList, Scope};
    use proptest::prelude::*;

    fn run(first: u64, count: u64) -> Result<BlockRun, RequestError> {
        BlockRun::new(BlockNumber::new(first), count)
    }

    #[test]
    fn bad_runs_are_refused_by_name() {
        assert_eq!(run(7, 0), Err(RequestError::EmptyRun { first: 7 }));
        let past = RequestError::RunPastLastNumber { first: u64::MAX, count: 1 };
        assert_eq!(run(u64::MAX, 1), Err(past));
        assert!(run(u64::MAX - 1, 1).is_ok());
        let count = u64::from(REQUEST_BLOCKS_MAX) + 1;
        assert_eq!(run(0, count), Err(RequestError::TooManyBlocks { count }));
        assert!(run(0, count - 1).is_ok());
    }

    #[test]
    fn a_request_over_the_limit_is_refused() {
        let half = run(0, u64::from(REQUEST_BLOCKS_MAX) / 2).unwrap();
        assert!(Request::new(Scope::GLOBAL, [half, half]).is_ok());
        let refused = Request::new(Scope::GLOBAL, [half, half, run(0, 1).unwrap()]);
        let count = u64::from(REQUEST_BLOCKS_MAX) + 1;
        assert_eq!(refused, Err(RequestError::TooManyBlocks { count }));
    }

    proptest! {
        #[test]
        fn runs_keep_every_block_in_order_and_are_as_few_as_can_be(
            runs in prop::collection::vec((0_u64..20, 1_u64..5), 0..20),
        ) {
            let numbers: Vec<u64> =
                runs.iter().flat_map(|&(first, count)| first..first + count).collect();
            let mut list = RunList::default();
            for (first, count) in runs {
                list.push(run(first, count).unwrap()).unwrap();
            }
            let breaks = numbers.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
            prop_assert_eq!(list.runs.len(), breaks + usize::from(!numbers.is_empty()));

            let request = Request::from_run_list(Scope::GLOBAL, list);
            prop_assert_eq!(request.block_count().get() as usize, numbers.len());
            let blocks: Vec<u64> = request.blocks().map(BlockNumber::get).collect();
            prop_assert_eq!(blocks, numbers);
        }
    }
}
