//! What the disk tier is opened with, and how its capacity is shared among the groups.

use crate::core::{STRIPE_COUNT_MAX, WritePolicy};
use crate::fingerprint::ContentFingerprint;
use crate::io::{DEFAULT_DISK_DEPTH, DEFAULT_IO_TIMEOUT, DiskBackend, DiskOptions};
use crate::pager::OpenError;
use crate::store::{Reclaim, ScanProgress};
use crate::units::{ByteCount, GroupIndex};
use std::fmt;
use std::path::{Component, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long a chunk that was written may wait for the sync that makes it durable, by default.
pub const DEFAULT_SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// Bytes a second that are scrubbed, by default.
pub const DEFAULT_SCRUB_BUDGET: ByteCount = ByteCount::new(8 << 20);

/// Is told how far the scan of a group's stores has come, all stripes taken together; called on the
/// disk thread, at most once a batch of 64 slots, so it should be quick.
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

/// One directory of a disk tier, on a drive of its own as a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskStripe {
    /// The directory below which its stores lie. Made if it does not exist.
    pub root: PathBuf,
    /// Bytes that all stores below the root may take up together, by blocks in use: a hard bound.
    pub capacity: ByteCount,
    /// Bytes of it that this pager's own stores take up, at most; all of it unless given. Engines
    /// that run side by side below one root name the same capacity and a share each.
    pub share: Option<ByteCount>,
}

/// Every setting of a pager's disk tier.
#[derive(Clone, Debug)]
pub struct DiskConfig {
    /// The directories that are used as one tier, 1 to 16. Each is complete in itself: which they
    /// are, and in which order, may change from one open to the next.
    pub stripes: Vec<DiskStripe>,
    /// What the KV bytes mean: chunks of other content are never taken for these.
    pub content: ContentFingerprint,
    /// Which of the directories for engines that run side by side this one takes in each stripe;
    /// the first that nobody has open unless given, and in further stripes the same unless somebody
    /// has it there.
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
    /// Operations under way at a time on each drive.
    pub depth: u32,
    /// Who moves the bytes.
    pub backend: DiskBackend,
    /// Whether stores that nobody has open may be removed when a root has no room; they may, by
    /// default.
    pub reclaim: Reclaim,
    /// Bytes a second that are read to find what rotted before it is asked for; 8 MiB by default, 0
    /// for none.
    pub scrub_budget: ByteCount,
    /// Is told how far recovery has come, where a store was not closed cleanly.
    pub on_progress: Option<ProgressListener>,
}

impl DiskStripe {
    /// Names a directory and what all stores below it may take up; this pager's may take up all of
    /// that.
    pub fn new(root: impl Into<PathBuf>, capacity: ByteCount) -> Self {
        Self { root: root.into(), capacity, share: None }
    }

    /// Leaves the rest of the capacity to other engines.
    ///
    /// ```
    /// use kvtide::pager::DiskStripe;
    /// use kvtide::units::ByteCount;
    ///
    /// // One of eight ranks on a node with a drive of 4 TB.
    /// let capacity = ByteCount::new(4_000_000_000_000);
    /// let stripe = DiskStripe::new("/var/cache/kvtide", capacity)
    ///     .with_share(ByteCount::new(capacity.get() / 8));
    /// # assert_eq!(stripe.share, Some(ByteCount::new(500_000_000_000)));
    /// ```
    #[must_use]
    pub fn with_share(self, share: ByteCount) -> Self {
        Self { share: Some(share), ..self }
    }

    /// Returns what this pager's own stores may take up, and the name of the setting that says so.
    pub(in crate::pager) fn own(&self) -> (ByteCount, &'static str) {
        self.share.map_or((self.capacity, "capacity"), |share| (share, "share"))
    }

    /// Returns where the root is, without links and detours as far as it exists: what tells two
    /// directories apart.
    fn place(&self) -> PathBuf {
        let path = std::path::absolute(&self.root).unwrap_or_else(|_| self.root.clone());
        let known = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
        let Some((above, known)) = known else { return path };
        let mut place = known;
        // What does not exist yet is made as it is spelt.
        for part in path.strip_prefix(above).unwrap_or(&path).components() {
            match part {
                Component::ParentDir => {
                    place.pop();
                }
                part => place.push(part),
            }
        }
        place
    }
}

impl DiskConfig {
    /// Makes a tier of one stripe, and fills in everything that has a default.
    pub fn new(root: impl Into<PathBuf>, capacity: ByteCount, content: ContentFingerprint) -> Self {
        Self {
            stripes: vec![DiskStripe::new(root, capacity)],
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

    /// Adds a stripe.
    #[must_use]
    pub fn with_stripe(mut self, root: impl Into<PathBuf>, capacity: ByteCount) -> Self {
        self.stripes.push(DiskStripe::new(root, capacity));
        self
    }

    /// Has this pager take up no more than `share` of the capacity of each stripe that there is, so
    /// that other engines below the same roots have the rest. One that is added later has the whole
    /// capacity unless this is called again.
    #[must_use]
    pub fn with_share(mut self, share: ByteCount) -> Self {
        for stripe in &mut self.stripes {
            stripe.share = Some(share);
        }
        self
    }

    /// Checks every setting that no other layer checks, by name.
    pub(crate) fn check(&self) -> Result<(), OpenError> {
        let zero = |field| Err(OpenError::ZeroTimeout { field });
        if self.sync_interval.is_zero() {
            return zero("disk.sync_interval");
        }
        if self.io_timeout.is_zero() {
            return zero("disk.io_timeout");
        }
        let stripe_count = self.stripes.len();
        if !(1..=STRIPE_COUNT_MAX).contains(&stripe_count) {
            return Err(OpenError::StripeCount { stripe_count });
        }
        for (stripe, DiskStripe { capacity, share, .. }) in self.stripes.iter().enumerate() {
            if let Some(share) = share.filter(|share| share > capacity) {
                return Err(OpenError::ShareTooLarge { stripe, share, capacity: *capacity });
            }
        }
        let places: Vec<PathBuf> = self.stripes.iter().map(DiskStripe::place).collect();
        for (stripe, place) in places.iter().enumerate() {
            let overlaps = |other: &PathBuf| place.starts_with(other) || other.starts_with(place);
            if let Some(other) = places[..stripe].iter().position(overlaps) {
                let root = self.stripes[stripe].root.clone();
                return Err(OpenError::StripeRepeated { stripe, other, root });
            }
        }
        Ok(())
    }

    /// Returns the settings of the disk itself.
    pub(in crate::pager) fn disk_options(&self) -> DiskOptions {
        let Self { backend, io_timeout, depth, .. } = *self;
        let drive_count = u32::try_from(self.stripes.len()).unwrap_or(u32::MAX);
        DiskOptions { backend, io_timeout, depth, drive_count, ..DiskOptions::default() }
    }
}
