//! Traces replayed with real bytes: an emulated engine stores and loads KV through the pager, and
//! compares every byte that comes back.
//!
//! The engine has a pool of device blocks, a [`Geometry`] and so many requests at a time. One trace
//! block is one chunk and one device block. For each request it
//!
//! 1. looks its chunks up;
//! 2. takes device blocks for all of them, and waits while other requests hold too many;
//! 3. fills the blocks of the hits with a byte that may not stay, loads the hits, and compares each
//!    byte with what the chunk's key says;
//! 4. computes the misses: writes bytes that follow from key, plane and place (`pattern.rs` says
//!    which, and why no mix-up of chunks can go unseen);
//! 5. stores them, and waits until they are;
//! 6. gives the blocks back and drops the plan.
//!
//! With a disk tier, chunks that leave the host tier come back from disk, and a second replay of
//! the same trace over the same directory is warm from its first request.
//!
//! A chunk that fails to load is computed, and so are all after it; its block must be as it was
//! when the bytes did not match their checksum. With one request at a time, hits are those of the
//! [dry run](super::dry_run).
//!
//! The core's invariants are audited at the end, in builds with debug assertions after every
//! request.
//!
//! ```
//! use kvtide::replay::{EngineConfig, Generator, Geometry, Trace, Workload, replay_bytes};
//! use kvtide::units::{BlockCount, ByteCount, ChunkCount, TokenCount};
//!
//! let trace = Trace::from_requests(Generator::new(Workload::CHAT, 1, 50)?.collect())?;
//! let config = EngineConfig {
//!     geometry: Geometry::LLAMA_3_8B.scaled_to(ByteCount::new(256))?,
//!     block_tokens: TokenCount::new(16),
//!     host_chunks: ChunkCount::new(200),
//!     device_blocks: BlockCount::new(trace.longest_request().get()),
//!     concurrency: 1,
//!     disk: None,
//! };
//! let report = replay_bytes(&trace, &config, |device| device, |_| ())?;
//! assert!(report.compared_count > 0);
//! assert_eq!(report.wrong_count, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Called by the `kvtide` program and by tests.

mod config;
mod disk;
mod engine;
mod error;
mod geometry;
mod pattern;
mod pool;
mod report;
#[cfg(test)]
mod tests;

pub use config::{EngineConfig, EngineDisk, EngineSizes};
pub use disk::DiskReport;
pub use engine::replay_bytes;
pub use error::ByteReplayError;
pub use geometry::{BytesPerTokenError, Geometry, UnknownGeometry};
pub use report::{ByteReport, FailureCounts, WrongByte};
