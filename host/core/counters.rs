//! What the core counts: every probe, store, eviction and disk hop, each once.

/// Totals since the core was made. `hits + misses = probes` and `host_hits + disk_hits = hits`,
/// always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Commands and completions that were taken in.
    pub steps: u64,
    /// Keys that lookups asked for.
    pub probes: u64,
    /// Probed keys that had a readable copy.
    pub hits: u64,
    /// Hits with a copy in host memory.
    pub host_hits: u64,
    /// Hits with a copy on disk only.
    pub disk_hits: u64,
    /// Probed keys that were no hit, for whatever reason.
    pub misses: u64,
    /// Chunks that stores began to fill.
    pub fills: u64,
    /// Chunks of stores that another transfer was filling already.
    pub joins: u64,
    /// Chunks of stores that were resident already.
    pub repeats: u64,
    /// Chunks of stores that were refused.
    pub refusals: u64,
    /// Chunks that became resident in host memory by a store.
    pub stored: u64,
    /// Chunks that loads handed over.
    pub loaded: u64,
    /// Chunks evicted from the last tier they were in.
    pub evicted: u64,
    /// Copies in host memory that were evicted while the chunk stayed on disk.
    pub host_copies_evicted: u64,
    /// Copies on disk that were evicted while the chunk stayed in host memory.
    pub disk_copies_evicted: u64,
    /// Chunks lost: a fill that failed, a read that failed, or bytes that did not match their
    /// checksum.
    pub lost: u64,
    /// Plans that lapsed because nobody renewed them.
    pub lapsed: u64,
    /// Chunks written to disk.
    pub written: u64,
    /// Writes that failed; not those of chunks that were cleared meanwhile.
    pub write_failures: u64,
    /// Chunks that were to be written and were not when their turn came: the queue or the disk was
    /// full, eviction was faster, or writing was stopped. Each once for each time that it was
    /// stored; some are written later after all.
    pub writes_dropped: u64,
    /// Chunks read from disk into host memory.
    pub promoted: u64,
    /// Reads that failed; not those of a slot that was cleared or erased meanwhile.
    pub read_failures: u64,
    /// Chunks that recovery found on disk.
    pub adopted: u64,
    /// Chunks that recovery found and could not take in.
    pub adoptions_skipped: u64,
    /// Chunks dropped because they were cleared or erased.
    pub cleared: u64,
}
