//! Runs a trace through a cache of a given capacity and counts; no KV byte moves.

use super::cache::ChunkCache;
use super::trace::Trace;
use crate::units::ChunkCount;
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// Share of a trace's unique blocks, in thousandths of a percent: over 0 and at most 100 %.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CapacityPercent {
    thousandths: u32,
}

/// The text is not a percentage of capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("give a percentage over 0 and up to 100 with at most 3 decimals, such as 5 or 12.5")]
pub struct CapacityPercentError;

/// The capacities that results of different traces are compared at.
pub const DEFAULT_CAPACITY_PERCENTS: [CapacityPercent; 5] = [
    CapacityPercent::whole(1),
    CapacityPercent::whole(5),
    CapacityPercent::whole(10),
    CapacityPercent::whole(25),
    CapacityPercent::whole(50),
];

/// Thousandths of a percent in a percent, and in the whole.
const THOUSANDTHS_PER_PERCENT: u32 = 1_000;
const THOUSANDTHS_MAX: u32 = 100 * THOUSANDTHS_PER_PERCENT;

impl CapacityPercent {
    const fn whole(percent: u32) -> Self {
        Self { thousandths: percent * THOUSANDTHS_PER_PERCENT }
    }

    /// Returns this share of the unique blocks of `trace`, rounded down; 0 for a small trace.
    #[expect(clippy::missing_panics_doc, reason = "a trace has at most 2^26 unique blocks")]
    pub fn of(self, trace: &Trace) -> ChunkCount {
        let scaled = trace.unique_blocks().count() * u64::from(self.thousandths);
        let chunks = u32::try_from(scaled / u64::from(THOUSANDTHS_MAX));
        ChunkCount::new(chunks.expect("a trace has at most 2^26 unique blocks"))
    }

    /// Returns the share as a number from 0 to 100.
    pub fn as_f64(self) -> f64 {
        f64::from(self.thousandths) / f64::from(THOUSANDTHS_PER_PERCENT)
    }
}

impl FromStr for CapacityPercent {
    type Err = CapacityPercentError;

    /// Parses `5`, `12.5` or `0.125`, exactly.
    fn from_str(text: &str) -> Result<Self, CapacityPercentError> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if !is_digits(whole) || !is_digits(decimals) || decimals.is_empty() || decimals.len() > 3 {
            return Err(CapacityPercentError);
        }
        let parse = |digits: &str| digits.parse::<u32>().map_err(|_| CapacityPercentError);
        let thousandths = parse(whole)?
            .checked_mul(THOUSANDTHS_PER_PERCENT)
            .and_then(|thousandths| {
                thousandths.checked_add(parse(&format!("{decimals:0<3}")).ok()?)
            })
            .filter(|thousandths| (1..=THOUSANDTHS_MAX).contains(thousandths))
            .ok_or(CapacityPercentError)?;
        Ok(Self { thousandths })
    }
}

impl fmt::Display for CapacityPercent {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.as_f64(), formatter)
    }
}

/// What a dry run counted at one capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapacityReport {
    /// Chunks that the cache could hold.
    pub capacity: ChunkCount,
    /// Requests that ran.
    pub request_count: u64,
    /// Blocks of all requests, each use counted.
    pub block_use_count: u64,
    /// Unique blocks of all requests.
    pub unique_block_count: u64,
    /// Block uses that hit.
    pub hit_count: u64,
    /// Chunks that left the cache.
    pub eviction_count: u64,
    /// Time that the requests took.
    pub elapsed: Duration,
}

impl CapacityReport {
    /// Returns hits by block uses, from 0 to 1; 0 when nothing was used.
    pub fn hit_ratio(&self) -> f64 {
        ratio(self.hit_count, self.block_use_count)
    }

    /// Returns block uses by seconds of wall time; 0 when no time passed.
    pub fn block_uses_per_second(&self) -> f64 {
        let nanoseconds = u64::try_from(self.elapsed.as_nanos()).unwrap_or(u64::MAX);
        ratio(self.block_use_count, nanoseconds) * 1e9
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "for people and reports; counts below 2^53 are exact"
)]
pub(super) fn ratio(count: u64, total: u64) -> f64 {
    if total == 0 {
        return 0.0;
    }
    count as f64 / total as f64
}

/// Runs `trace` through the cache that `open` makes, from a cold start.
///
/// `open` gets `capacity`, or the unique blocks of the trace if those are fewer: a cache that
/// holds them all never evicts, and so need not be larger. `progress` is called after each
/// request with the blocks it used.
///
/// # Errors
///
/// What `open` or the cache returns.
pub fn dry_run<C: ChunkCache>(
    trace: &Trace,
    capacity: ChunkCount,
    open: impl FnOnce(ChunkCount) -> Result<C, C::Error>,
    mut progress: impl FnMut(u64),
) -> Result<CapacityReport, C::Error> {
    let unique_block_count = trace.unique_blocks().count();
    let useful = u32::try_from(unique_block_count).unwrap_or(u32::MAX);
    let mut cache = open(capacity.min(ChunkCount::new(useful)))?;
    let mut hit_count = 0;
    let mut eviction_count = 0;
    let start = Instant::now();
    for request in trace.requests() {
        let outcome = cache.run(request)?;
        hit_count += u64::from(outcome.hits.get());
        eviction_count += u64::from(outcome.evictions.get());
        progress(request.block_count().get().into());
    }
    Ok(CapacityReport {
        capacity,
        request_count: trace.requests().len() as u64,
        block_use_count: trace.block_use_count(),
        unique_block_count,
        hit_count,
        eviction_count,
        elapsed: start.elapsed(),
    })
}

#[cfg(test)]
mod tests {
    use super::{CapacityPercent, CapacityPercentError, DEFAULT_CAPACITY_PERCENTS};
    use crate::replay::request::{BlockNumber, BlockRun, Request, Scope};
    use crate::replay::trace::Trace;

    fn trace_of(unique: u64) -> Trace {
        let run = BlockRun::new(BlockNumber::new(0), unique).unwrap();
        Trace::from_requests(vec![Request::new(Scope::GLOBAL, [run]).unwrap()]).unwrap()
    }

    #[test]
    fn percentages_are_exact_and_round_down() {
        let chunks = |text: &str, unique| {
            let percent: CapacityPercent = text.parse().unwrap();
            percent.of(&trace_of(unique)).get()
        };
        assert_eq!(chunks("1", 199), 1);
        assert_eq!(chunks("1", 99), 0);
        assert_eq!(chunks("100", 12_345), 12_345);
        assert_eq!(chunks("0.001", 100_000), 1);
        // 0.29 * 100 is 28.999999999999996 in floating point.
        assert_eq!(chunks("29", 100), 29);
        assert_eq!(chunks("33.333", 100_000), 33_333);
        assert_eq!(chunks("05.50", 1_000), 55);
    }

    #[test]
    fn what_is_no_percentage_of_capacity_is_refused() {
        for text in [
            "",
            "0",
            "0.000",
            "100.001",
            "101",
            "-1",
            "+1",
            "NaN",
            "inf",
            "1e1",
            "1.",
            "1.2345",
            "5%",
            " 5",
            "1,5",
            "99999999999999999999",
        ] {
            assert_eq!(text.parse::<CapacityPercent>(), Err(CapacityPercentError), "{text:?}");
        }
    }

    #[test]
    fn percentages_print_as_they_are_written() {
        let printed = DEFAULT_CAPACITY_PERCENTS.map(|percent| percent.to_string());
        assert_eq!(printed, ["1", "5", "10", "25", "50"]);
        assert_eq!("12.50".parse::<CapacityPercent>().unwrap().to_string(), "12.5");
    }
}
