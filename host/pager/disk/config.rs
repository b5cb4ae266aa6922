//! What the disk tier is opened with, and how its capacity is shared among the groups.

use crate::core::WritePolicy;
use crate::fingerprint::ContentFingerprint;
use crate::io::{DEFAULT_DISK_DEPTH, DEFAULT_IO_TIMEOUT, DiskBackend, DiskOptions};
use crate::pager::OpenError;
use crate::store::{Reclaim, ScanProgress};
use crate::units::{ByteCount, GroupIndex};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How long a chunk that was written may wait for the sync that makes it durable, by default.
pub const DEFAULT_SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// Bytes a second that are scrubbed, by default.
pub const DEFAULT_SCRUB_BUDGET: ByteCount = ByteCount::new(8 << 20);

/// Is told how far the scan of a group's store has come; called on the disk thread, at most once a
/// batch of 64 slots, so it should be quick.
#[derive(Clone)]
pub struct ProgressListener(Arc<dyn Fn(GroupIndex, ScanProgress) + Send + Sync>);

impl ProgressListener {
    /// Wraps what is to be called.
    pub fn new(listener: impl Fn(GroupIndex, ScanProgress) + Send + Sync + 'static) -> Self {
        Self(Arc::new(listener))
    }

    pub(super) fn tell(&self, group: GroupIndex, progress: ScanProgress) {
        (self.0)(group, progress);
    }
}

impl fmt::Debug for ProgressListener {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ProgressListener")
    }
}

/// Every setting of a pager's disk tier.
#[derive(Clone, Debug)]
pub struct DiskConfig {
    /// The directory below which all stores lie. Made if it does not exist.
    pub root: PathBuf,
    /// Bytes that all stores below the root may take up together, by blocks in use: a hard bound.
    pub capacity: ByteCount,
    /// What the KV bytes mean: chunks of other content are never taken for these.
    pub content: ContentFingerprint,
    /// Which of the directories for engines that run side by side this one takes; the first that
    /// nobody has open unless given.
    pub instance: Option<u32>,
    /// When chunks are written; as soon as they are stored, by default.
    pub write_policy: WritePolicy,
    /// Chunks that may wait for their write; more are dropped and counted. 4,096 by default.
    pub write_queue_max: u32,
    /// How long a chunk that was written may wait for the sync that makes it durable; 1 s by
    /// default.
    pub sync_interval: Duration,
    /// How long an operation of the drive may take before it is given up; 10 s by default.
    pub io_timeout: Duration,
    /// Operations under way at a time.
    pub depth: u32,
    /// Who moves the bytes.
    pub backend: DiskBackend,
    /// Whether stores that nobody has open may be removed when the root has no room; they may, by
    /// default.
    pub reclaim: Reclaim,
    /// Bytes a second that are read to find what rotted before it is asked for; 8 MiB by default, 0
    /// for none.
    pub scrub_budget: ByteCount,
    /// Is told how far recovery has come, where a store was not closed cleanly.
    pub on_progress: Option<ProgressListener>,
}

impl DiskConfig {
    /// Fills in everything that has a default.
    pub fn new(root: impl Into<PathBuf>, capacity: ByteCount, content: ContentFingerprint) -> Self {
        Self {
            root: root.into(),
            capacity,
            content,
            instance: None,
            write_policy: WritePolicy::Through,
            write_queue_max: 4096,
            sync_interval: DEFAULT_SYNC_INTERVAL,
            io_timeout: DEFAULT_IO_TIMEOUT,
            depth: DEFAULT_DISK_DEPTH,
            backend: DiskBackend::Auto,
            reclaim: Reclaim::OldestFirst,
            scrub_budget: DEFAULT_SCRUB_BUDGET,
            on_progress: None,
        }
    }

    /// Checks every setting that no other layer checks, by name.
    pub(in crate::pager) fn check(&self) -> Result<(), OpenError> {
        let zero = |field| Err(OpenError::ZeroTimeout { field });
        if self.sync_interval.is_zero() {
            return zero("disk.sync_interval");
        }
        if self.io_timeout.is_zero() {
            return zero("disk.io_timeout");
        }
        Ok(())
    }

    /// Returns the settings of the disk itself.
    pub(in crate::pager) fn disk_options(&self) -> DiskOptions {
        let Self { backend, io_timeout, depth, .. } = *self;
        DiskOptions { backend, io_timeout, depth, ..DiskOptions::default() }
    }
}
