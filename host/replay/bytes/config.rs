//! What an emulated engine is made with, what it will take of memory, and whether it can work.

use super::error::ByteReplayError;
use super::geometry::Geometry;
use crate::core::WritePolicy;
use crate::device::cpu::CpuConfig;
use crate::layout::Packing;
use crate::mem::available_memory;
use crate::pager::DiskStripe;
use crate::replay::trace::Trace;
use crate::units::{BlockCount, ByteCount, ChunkCount, TokenCount};

/// Bytes that a staging ring has at most, unless that is less than [`PIECES_MIN`] pieces. Small
/// rings stay in the CPU's caches, so that a chunk crosses memory once.
const RING_BYTES: u64 = 2 << 20;

/// Pieces that keep both hops of a direction at work.
const PIECES_MIN: u64 = 4;

/// More pieces than this hide no more waiting.
const PIECES_MAX: u64 = 64;

/// Where a device pool lies when only its sizes are asked for.
const ANY_ADDRESS: u64 = 1 << 30;

/// The disk tier of an emulated engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineDisk {
    /// The directories; kept after the replay, so that the next one finds them warm.
    pub stripes: Vec<DiskStripe>,
    /// When chunks are written.
    pub write_policy: WritePolicy,
    /// Names the trace: replays of another name never see this one's chunks.
    pub label: String,
}

/// Every setting of an emulated engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineConfig {
    /// What KV a token has.
    pub geometry: Geometry,
    /// Tokens of KV that a trace block, and so a device block and a chunk, stands for.
    pub block_tokens: TokenCount,
    /// Chunks that the host tier holds.
    pub host_chunks: ChunkCount,
    /// Blocks of the device pool: at least those of the longest request.
    pub device_blocks: BlockCount,
    /// Requests under way at a time.
    pub concurrency: u32,
    /// The disk tier; `None` without one.
    pub disk: Option<EngineDisk>,
}

/// The memory of an emulated engine and its pager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineSizes {
    /// One block in all planes: what a trace block moves.
    pub block: ByteCount,
    /// One slot of the host tier: a block packed, and its header page.
    pub slot: ByteCount,
    /// The host tier.
    pub host_tier: ByteCount,
    /// The device pool.
    pub device_pool: ByteCount,
    /// Both staging rings.
    pub staging: ByteCount,
}

impl EngineSizes {
    /// Returns the bytes of all of it.
    pub fn total(&self) -> ByteCount {
        let parts = [self.host_tier, self.device_pool, self.staging];
        ByteCount::new(parts.iter().fold(0_u64, |sum, part| sum.saturating_add(part.get())))
    }
}

impl EngineConfig {
    /// Returns the memory that this takes.
    ///
    /// # Errors
    ///
    /// [`ByteReplayError::Zero`] names a setting of 0, [`ByteReplayError::Layout`] what of the
    /// geometry cannot be laid out.
    pub fn sizes(&self) -> Result<EngineSizes, ByteReplayError> {
        let counts = [
            ("block_tokens", self.block_tokens.get()),
            ("host_chunks", self.host_chunks.get()),
            ("device_blocks", self.device_blocks.get()),
            ("concurrency", self.concurrency),
        ];
        if let Some((field, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return Err(ByteReplayError::Zero { field });
        }
        let layout = self.geometry.layout(ANY_ADDRESS, self.block_tokens, self.device_blocks)?;
        let slot = Packing::new(&layout.groups()[0], BlockCount::new(1))?.slot();
        let pieces = 2 * u64::from(ring_pieces(slot));
        let times = |count: u64| ByteCount::new(slot.get().saturating_mul(count));
        Ok(EngineSizes {
            block: self.geometry.block(self.block_tokens),
            slot,
            host_tier: times(self.host_chunks.get().into()),
            device_pool: self.geometry.pool(self.block_tokens, self.device_blocks),
            staging: times(pieces),
        })
    }

    /// Returns the settings with a host tier that holds no more than all blocks of `trace`: a
    /// tier that holds them all never evicts, and so need not be larger.
    #[must_use]
    pub fn fitted_to(&self, trace: &Trace) -> Self {
        let unique = u32::try_from(trace.unique_blocks().count()).unwrap_or(u32::MAX);
        Self { host_chunks: self.host_chunks.min(ChunkCount::new(unique)), ..self.clone() }
    }

    /// Checks that `trace` can be replayed, before anything is allocated.
    ///
    /// # Errors
    ///
    /// Those of [`EngineConfig::sizes`], and [`ByteReplayError::DevicePoolTooSmall`],
    /// [`ByteReplayError::TooManyTokens`] and [`ByteReplayError::TooMuchMemory`];
    /// [`ByteReplayError::Open`] for directories of the disk tier that cannot be one tier.
    pub fn check(&self, trace: &Trace) -> Result<(), ByteReplayError> {
        if let Some(disk) = &self.disk {
            disk.config(self.geometry)?.check()?;
        }
        let sizes = self.fitted_to(trace).sizes()?;
        let longest = trace.longest_request();
        let (tokens, blocks) = (self.block_tokens, self.device_blocks);
        if longest > blocks {
            let bytes = |count: BlockCount| {
                ByteCount::new(sizes.block.get().saturating_mul(count.get().into()))
            };
            return Err(ByteReplayError::DevicePoolTooSmall {
                device_blocks: blocks,
                device_pool: bytes(blocks),
                request_blocks: longest,
                request: bytes(longest),
            });
        }
        if longest.get().checked_mul(tokens.get()).is_none() {
            return Err(ByteReplayError::TooManyTokens {
                request_blocks: longest,
                block_tokens: tokens,
            });
        }
        match available_memory() {
            Some((available, limit)) if sizes.total() > available => {
                let EngineSizes { host_tier, device_pool, staging, .. } = sizes;
                Err(ByteReplayError::TooMuchMemory {
                    host_tier,
                    device_pool,
                    staging,
                    available,
                    limit,
                })
            }
            _ => Ok(()),
        }
    }
}

/// Returns the staging of an engine whose chunks fill `slot` bytes.
pub(super) fn staging(slot: ByteCount) -> CpuConfig {
    let pieces = ring_pieces(slot);
    CpuConfig { out_pieces: pieces, in_pieces: pieces }
}

fn ring_pieces(slot: ByteCount) -> u32 {
    let pieces = (RING_BYTES / slot.get()).clamp(PIECES_MIN, PIECES_MAX);
    u32::try_from(pieces).expect("at most PIECES_MAX")
}
