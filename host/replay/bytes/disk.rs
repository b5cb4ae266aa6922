//! The emulated engine's disk tier: where it lies, what it did, and how large it ever was.

use super::config::EngineDisk;
use crate::core::Counters;
use crate::fingerprint::{ContentFingerprint, FingerprintError, KeyMode, KvScales, RopeSettings};
use crate::pager::{
    BYTES_PER_EXTENT_BYTE, DiskConfig, DiskHealth, DiskStripe, INDEX_BYTES_PER_SLOT, Latency,
    Pager, STORE_OVERHEAD_BYTES,
};
use crate::replay::Geometry;
use crate::units::{ByteCount, ChunkCount, GroupIndex};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;

/// How often the directory is measured.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);

/// Bytes of the unit in which the system counts blocks.
const BLOCK_BYTES: u64 = 512;

/// What the disk tier of a replay did.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskReport {
    /// Bytes that the directories may take up together.
    pub capacity: ByteCount,
    /// Slots of all directories.
    pub slot_count: u32,
    /// Time that opening took, the pager's memory included.
    pub open: Duration,
    /// Chunks that an earlier replay left in the directories.
    pub warm_count: u64,
    /// Block uses that a lookup found on disk only.
    pub hit_count: u64,
    /// Chunks written to disk.
    pub written_count: u64,
    /// Chunks that were to be written and were not.
    pub dropped_count: u64,
    /// Chunks whose write failed.
    pub write_failure_count: u64,
    /// Chunks read from disk.
    pub read_count: u64,
    /// Chunks whose read failed.
    pub read_failure_count: u64,
    /// Bytes written to disk by bytes stored to the host tier; 0 when nothing was stored.
    pub write_amplification: f64,
    /// From a load's call until all chunks of the request are in their blocks, of loads with at
    /// least one chunk from disk.
    pub load: Latency,
    /// The most bytes that the directories took up together at any sample, by blocks in use.
    pub directory_max: ByteCount,
    /// How the tier was at the end.
    pub health: DiskHealth,
    /// Whether it was closed cleanly.
    pub is_clean: bool,
}

impl EngineDisk {
    /// Returns the bytes that a directory for so many chunks of a slot each takes up.
    pub fn capacity_for(slot: ByteCount, chunks: ChunkCount) -> ByteCount {
        let each = slot.get().saturating_add(INDEX_BYTES_PER_SLOT);
        let slots = each.saturating_mul(chunks.get().into());
        let bytes = slots.saturating_add(2 * STORE_OVERHEAD_BYTES);
        // A share of the whole, their own included.
        let extents = bytes.div_ceil(BYTES_PER_EXTENT_BYTE - 1);
        ByteCount::new(bytes.saturating_add(extents))
    }

    /// Returns the pager's settings.
    pub(super) fn config(&self, geometry: Geometry) -> Result<DiskConfig, FingerprintError> {
        let content = ContentFingerprint::builder()
            .model_id(format!("kvtide replay, {geometry}"))
            .revision(self.label.as_str())
            .rope(RopeSettings::AsInCheckpoint)
            .element_type("pattern")
            .kv_scales(KvScales::None)
            .key_mode(KeyMode::EngineHashes)
            .build()?;
        let mut config = DiskConfig::new("", ByteCount::new(0), content);
        config.stripes.clone_from(&self.stripes);
        config.write_policy = self.write_policy;
        Ok(config)
    }
}

/// What is known while the pager is open.
pub(super) struct DiskTotals {
    slot_count: u32,
    health: DiskHealth,
    counters: Counters,
    write_amplification: f64,
}

impl DiskTotals {
    /// Reads a pager that has a disk tier.
    pub(super) fn of(pager: &Pager) -> Option<Self> {
        let health = pager.disk_health()?;
        let slots = pager.disk_slots(GroupIndex::new(0)).unwrap_or_default();
        let counters = pager.counters();
        let hops = pager.hops();
        #[expect(clippy::cast_precision_loss, reason = "for people; bytes below 2^53 are exact")]
        let ratio = |written: u64, stored: u64| written as f64 / stored as f64;
        let stored = hops.out_link.bytes.get();
        let write_amplification =
            if stored == 0 { 0.0 } else { ratio(hops.write.bytes.get(), stored) };
        let slot_count = slots.used + slots.free + slots.unscanned;
        Some(Self { slot_count, health, counters, write_amplification })
    }

    /// Adds what is known after the close.
    pub(super) fn report(
        self,
        disk: &EngineDisk,
        open: Duration,
        load: Latency,
        directory_max: ByteCount,
        is_clean: bool,
    ) -> DiskReport {
        let counters = self.counters;
        DiskReport {
            capacity: disk.stripes.iter().fold(ByteCount::new(0), |sum, stripe| {
                ByteCount::new(sum.get().saturating_add(stripe.capacity.get()))
            }),
            slot_count: self.slot_count,
            open,
            warm_count: counters.adopted,
            hit_count: counters.disk_hits,
            written_count: counters.written,
            dropped_count: counters.writes_dropped,
            write_failure_count: counters.write_failures,
            read_count: counters.promoted,
            read_failure_count: counters.read_failures,
            write_amplification: self.write_amplification,
            load,
            directory_max,
            health: self.health,
            is_clean,
        }
    }
}

/// Measures directories until `stop` says or hangs up; returns the most that they took up together.
pub(super) fn watch(stripes: &[DiskStripe], stop: &Receiver<()>) -> ByteCount {
    let bytes = || stripes.iter().map(|stripe| directory_bytes(&stripe.root)).sum();
    let mut most: u64 = 0;
    loop {
        most = most.max(bytes());
        match stop.recv_timeout(SAMPLE_INTERVAL) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    ByteCount::new(most.max(bytes()))
}

/// Returns the bytes of all blocks below a directory, its own included. What goes away meanwhile
/// counts for nothing.
fn directory_bytes(path: &Path) -> u64 {
    let Ok(metadata) = fs::symlink_metadata(path) else { return 0 };
    let own = metadata.blocks() * BLOCK_BYTES;
    if !metadata.is_dir() {
        return own;
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    own + entries.map(|entry| directory_bytes(&entry.path())).sum::<u64>()
}
