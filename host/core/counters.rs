//! What the core counts: every probe, store and eviction, each once.

/// Totals since the core was made. `hits + misses = probes`, always.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Keys that lookups asked for.
    pub probes: u64,
    /// Probed keys that were resident.
    pub hits: u64,
    /// Probed keys that were not, for whatever reason.
    pub misses: u64,
    /// Chunks that stores began to fill.
    pub fills: u64,
    /// Chunks of stores that another transfer was filling already.
    pub joins: u64,
    /// Chunks of stores that were resident already.
    pub repeats: u64,
    /// Chunks of stores that were refused.
    pub refusals: u64,
    /// Chunks that became resident.
    pub stored: u64,
    /// Chunks that loads handed over.
    pub loaded: u64,
    /// Chunks evicted to make room.
    pub evicted: u64,
    /// Chunks lost: a fill that failed, or bytes that did not match their checksum.
    pub lost: u64,
    /// Plans that lapsed because nobody renewed them.
    pub lapsed: u64,
}
