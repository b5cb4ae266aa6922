//! What a replay with real bytes counted and measured.

use super::config::EngineSizes;
use super::disk::DiskReport;
use crate::core::Failure;
use crate::key::Key;
use crate::layout::PlaneName;
use crate::pager::metrics::LatencyRecorder;
use crate::pager::{Hops, Latency};
use crate::replay::dry_run::ratio;
use crate::units::ChunkCount;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// A byte that came back and is not what was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WrongByte {
    /// The request's position in the trace, from 0.
    pub request: u64,
    /// The chunk's position in the request, from 0.
    pub chunk: u32,
    /// The chunk's key.
    pub key: Key,
    /// The plane.
    pub plane: PlaneName,
    /// Position in the block's fragment of that plane, in bytes.
    pub offset: u64,
    /// The byte that belongs there.
    pub expected: u8,
    /// The byte that was found.
    pub found: u8,
}

impl fmt::Display for WrongByte {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { request, chunk, key, plane, offset, expected, found } = self;
        write!(
            formatter,
            "request {request}, chunk {chunk} (key {key}), {plane}, offset {offset}: \
             {found:#04x} instead of {expected:#04x}"
        )
    }
}

/// Chunks that ended without their bytes, by the kind of failure.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailureCounts {
    counts: BTreeMap<&'static str, u64>,
}

impl FailureCounts {
    pub(super) fn add(&mut self, failure: Failure, count: u64) {
        if count > 0 {
            *self.counts.entry(failure_name(failure)).or_default() += count;
        }
    }

    /// Counts chunks whose plan had lapsed when they were to be loaded.
    pub(super) fn add_lapsed(&mut self, count: u64) {
        *self.counts.entry("plan_lapsed").or_default() += count;
    }

    fn merge(&mut self, other: Self) {
        for (name, count) in other.counts {
            *self.counts.entry(name).or_default() += count;
        }
    }

    /// Returns each kind's name, as in `full`, and its count; kinds that never came are left out.
    pub fn by_name(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        self.counts.iter().map(|(name, count)| (*name, *count))
    }

    /// Returns the chunks of all kinds.
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }
}

/// Names a kind of failure in reports.
const fn failure_name(failure: Failure) -> &'static str {
    match failure {
        Failure::Full => "full",
        Failure::Busy => "busy",
        Failure::Draining => "draining",
        Failure::ParentMissing => "parent_missing",
        Failure::ForeignParent => "foreign_parent",
        Failure::Missing => "missing",
        Failure::Deadline => "deadline",
        Failure::Cancelled => "cancelled",
        Failure::Device => "device",
        Failure::Checksum => "checksum",
        Failure::Disk => "disk",
        Failure::Cleared => "cleared",
        Failure::Poisoned => "poisoned",
    }
}

/// What a replay with real bytes counted and measured.
#[derive(Clone, Debug, PartialEq)]
pub struct ByteReport {
    /// Chunks that the host tier was to hold.
    pub capacity: ChunkCount,
    /// The memory that was used, with a host tier no larger than the trace needs.
    pub sizes: EngineSizes,
    /// The device's back end.
    pub device: &'static str,
    /// Requests that ran.
    pub request_count: u64,
    /// Blocks of all requests, each use counted.
    pub block_use_count: u64,
    /// Block uses that a lookup found, in any tier.
    pub hit_count: u64,
    /// Blocks that were loaded, and compared byte by byte.
    pub compared_count: u64,
    /// Blocks that were not what was stored; those that were written although they had failed
    /// their checksum are among them.
    pub wrong_count: u64,
    /// The first wrong byte that a worker came across.
    pub first_wrong: Option<WrongByte>,
    /// Blocks that were computed: missed, or behind one that failed to load.
    pub computed_count: u64,
    /// Chunks that became resident.
    pub stored_count: u64,
    /// Chunks evicted.
    pub eviction_count: u64,
    /// Hits that could not be loaded.
    pub load_failures: FailureCounts,
    /// Chunks that could not be stored.
    pub store_failures: FailureCounts,
    /// Prompt tokens that needed no prefill: each request's, spread evenly over its blocks.
    pub saved_token_count: u64,
    /// What moved by hop.
    pub hops: Hops,
    /// The calls of a lookup.
    pub lookup: Latency,
    /// From a store's call until its blocks may be overwritten, all chunks of the request.
    pub release: Latency,
    /// From a store's call until all chunks of the request are resident.
    pub store: Latency,
    /// From a load's call until all chunks of the request are in their blocks.
    pub load: Latency,
    /// The disk tier; `None` without one.
    pub disk: Option<DiskReport>,
    /// Time that the requests took, the engine's own work included.
    pub elapsed: Duration,
}

impl ByteReport {
    /// Returns hits by block uses, from 0 to 1; 0 when nothing was used.
    pub fn hit_ratio(&self) -> f64 {
        ratio(self.hit_count, self.block_use_count)
    }

    /// Returns the bytes that were compared.
    pub fn compared_bytes(&self) -> u64 {
        self.compared_count.saturating_mul(self.sizes.block.get())
    }
}

/// What one worker counted and measured.
#[derive(Debug)]
pub(super) struct Tally {
    pub(super) request_count: u64,
    pub(super) hit_count: u64,
    pub(super) compared_count: u64,
    pub(super) wrong_count: u64,
    pub(super) first_wrong: Option<WrongByte>,
    pub(super) computed_count: u64,
    pub(super) load_failures: FailureCounts,
    pub(super) store_failures: FailureCounts,
    pub(super) saved_token_count: u64,
    pub(super) lookup: LatencyRecorder,
    pub(super) release: LatencyRecorder,
    pub(super) store: LatencyRecorder,
    pub(super) load: LatencyRecorder,
    pub(super) disk_load: LatencyRecorder,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self {
            request_count: 0,
            hit_count: 0,
            compared_count: 0,
            wrong_count: 0,
            first_wrong: None,
            computed_count: 0,
            load_failures: FailureCounts::default(),
            store_failures: FailureCounts::default(),
            saved_token_count: 0,
            lookup: LatencyRecorder::new(),
            release: LatencyRecorder::new(),
            store: LatencyRecorder::new(),
            load: LatencyRecorder::new(),
            disk_load: LatencyRecorder::new(),
        }
    }

    /// Counts a wrong block.
    pub(super) fn found_wrong(&mut self, wrong: WrongByte) {
        self.wrong_count += 1;
        self.first_wrong.get_or_insert(wrong);
    }

    /// Adds what another worker counted.
    pub(super) fn merge(mut self, other: Self) -> Self {
        self.request_count += other.request_count;
        self.hit_count += other.hit_count;
        self.compared_count += other.compared_count;
        self.wrong_count += other.wrong_count;
        let found = [self.first_wrong, other.first_wrong].into_iter().flatten();
        self.first_wrong = found.min_by_key(|wrong| (wrong.request, wrong.chunk));
        self.computed_count += other.computed_count;
        self.load_failures.merge(other.load_failures);
        self.store_failures.merge(other.store_failures);
        self.saved_token_count += other.saved_token_count;
        self.lookup.merge(&other.lookup);
        self.release.merge(&other.release);
        self.store.merge(&other.store);
        self.load.merge(&other.load);
        self.disk_load.merge(&other.disk_load);
        self
    }
}
