//! Request traces and seeded workloads, replayed through a cache of chunks or with real bytes.
//!
//! A [`Trace`] is a list of [`Request`]s, each a list of trace blocks. Traces are read from JSON
//! lines ([`Trace::read`] describes the three shapes) or come from a seeded [`Generator`].
//! [`dry_run`] runs one through any [`ChunkCache`], once per capacity, and counts hits and
//! evictions; no KV byte moves. [`ReferenceLru`] is the plain cache that others are held to.
//! [`replay_bytes`] runs one through a pager, with every byte of KV written, moved and compared.
//!
//! Rule of a dry run: one trace block is one chunk, requests run in file order from a cold start,
//! a request hits the longest run of cached chunks from its first, and then all its chunks are
//! touched or stored from the last to the first, so that leaves leave before roots.
//!
//! ```
//! use kvtide::replay::{UniqueBlocks, ReferenceLru, Trace, dry_run};
//! use kvtide::units::ChunkCount;
//!
//! let lines = r#"{"input_length": 96, "output_length": 8, "hash_ids": [1, 2, 3]}
//! {"input_length": 96, "output_length": 8, "hash_ids": [1, 2, 4]}"#;
//! let trace = Trace::read(lines.as_bytes())?;
//! let open = |capacity| Ok(ReferenceLru::new(trace.unique_blocks(), capacity));
//! let report = dry_run(&trace, ChunkCount::new(3), open, |_| ())?;
//! assert_eq!(report.block_use_count, 6);
//! assert_eq!(report.hit_count, 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariant of every trace: in one scope a number stands for its block and everything before it,
//! so equal numbers mean equal prefixes. Called by the `kvtide` program and by tests.

mod bytes;
mod cache;
mod core_cache;
mod dry_run;
mod error;
mod generator;
mod json;
mod lenient;
mod random;
mod reference_lru;
mod request;
mod trace;
mod unique;
mod workload;

pub use bytes::{
    ByteReplayError, ByteReport, BytesPerTokenError, DiskReport, EngineConfig, EngineDisk,
    EngineSizes, FailureCounts, Geometry, UnknownGeometry, WrongByte, replay_bytes,
};
pub use cache::{ChunkCache, RequestOutcome};
pub use core_cache::{CoreCache, CoreCacheError};
pub use dry_run::{
    CapacityPercent, CapacityPercentError, CapacityReport, DEFAULT_CAPACITY_PERCENTS, dry_run,
};
pub use error::{FieldProblem, TraceError};
pub use generator::Generator;
pub use reference_lru::ReferenceLru;
pub use request::{BlockNumber, BlockRun, REQUEST_BLOCKS_MAX, Request, RequestError, Scope};
pub use trace::{LINE_BYTES_MAX, REQUESTS_MAX, Trace, UNIQUE_BLOCKS_MAX};
pub use unique::UniqueBlocks;
pub use workload::{Span, Workload, WorkloadError};
