//! Engine-hash mode: keys from hashes that the engine has already chained.
//!
//! An engine with prefix caching hashes its blocks anyway: parent hash, tokens, extras. Its hash
//! then says what the chunk holds, and kvtide adds only what the engine leaves out: content
//! fingerprint, tenant salt, group, and the domain, that is how the hashes are made. Hashes of two
//! domains may agree by chance of construction, so the domain enters the key.
//!
//! Called by `KeyChain`.

use super::frame::{Context, Encoding, Tag};
use super::{Key, KeyError, TenantSalt};
use crate::fingerprint::ContentFingerprint;
use crate::units::{GroupIndex, TokenCount};

/// What an engine's hashing starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashSeed {
    /// The same bytes in every process; empty for an algorithm without a seed.
    Fixed(Vec<u8>),
    /// Drawn when the process starts, so a hash means nothing to the next process.
    PerProcess,
}

/// How an engine makes the hashes of its blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineHashDomain {
    /// The engine's name of the algorithm with its serialization, say `sha256_cbor`.
    pub algorithm: String,
    /// What the first hash of a chain starts from.
    pub seed: HashSeed,
    /// Tokens that one hash covers.
    pub tokens_per_hash: TokenCount,
}

/// How long keys must mean the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persistence {
    /// While this process lives: its host tier only.
    ProcessLocal,
    /// Across processes: disk and shared tiers too.
    Persistent,
}

impl EngineHashDomain {
    /// Tells whether a hash of this domain means the same in the next process.
    pub const fn is_persistent(&self) -> bool {
        matches!(self.seed, HashSeed::Fixed(_))
    }

    /// Appends the domain's fields; a seed per process has none.
    fn encode(&self, encoding: &mut Encoding) {
        encoding.field(Tag::EngineAlgorithm, self.algorithm.as_bytes());
        if let HashSeed::Fixed(bytes) = &self.seed {
            encoding.field(Tag::EngineSeed, bytes);
        }
        let tokens_per_hash = self.tokens_per_hash.get().to_le_bytes();
        encoding.field(Tag::EngineTokensPerHash, &tokens_per_hash);
    }
}

/// The open chunk of a chain in engine-hash mode.
#[derive(Clone)]
pub(super) struct HashLink {
    /// Context and all fields but the hash.
    encoding: Encoding,
    tokens_per_hash: u32,
    /// Length of one hash; 0 until the first is pushed.
    hash_bytes: usize,
    /// Hashes of the open chunk's blocks, end to end.
    hashes: Vec<u8>,
}

impl HashLink {
    pub(super) fn new(
        content: &ContentFingerprint,
        salt: &TenantSalt,
        domain: &EngineHashDomain,
        group: GroupIndex,
    ) -> Self {
        let mut encoding = Encoding::new(Context::EngineHash);
        encoding.field(Tag::ContentFingerprint, &content.to_bytes());
        salt.encode(&mut encoding);
        domain.encode(&mut encoding);
        encoding.field(Tag::Group, &[group.get()]);
        Self {
            encoding,
            tokens_per_hash: domain.tokens_per_hash.get(),
            hash_bytes: 0,
            hashes: Vec::new(),
        }
    }

    pub(super) const fn tokens_per_hash(&self) -> u32 {
        self.tokens_per_hash
    }

    /// Returns how many hashes the open chunk has.
    pub(super) fn len(&self) -> usize {
        self.hashes.len().checked_div(self.hash_bytes).unwrap_or(0)
    }

    /// Checks that `hashes` are of one length, that of those before, and notes it.
    pub(super) fn check<H: AsRef<[u8]>>(&mut self, hashes: &[H]) -> Result<(), KeyError> {
        let Some(first) = hashes.first() else {
            return Ok(());
        };
        let expected = match self.hash_bytes {
            0 => first.as_ref().len(),
            held => held,
        };
        for (position, hash) in hashes.iter().enumerate() {
            let found = hash.as_ref().len();
            if found == 0 {
                return Err(KeyError::HashEmpty { position });
            }
            if found != expected {
                return Err(KeyError::HashLength { position, expected, found });
            }
        }
        self.hash_bytes = expected;
        Ok(())
    }

    /// Adds the hash of a block that does not complete the chunk.
    pub(super) fn append(&mut self, hash: &[u8]) {
        self.hashes.extend_from_slice(hash);
    }

    /// Returns the key of the chunk that `last_hash` completes, and opens the next.
    pub(super) fn complete(&mut self, last_hash: &[u8]) -> Key {
        self.hashes.clear();
        let prefix_bytes = self.encoding.as_bytes().len();
        self.encoding.field(Tag::EngineHash, last_hash);
        let key = self.encoding.key();
        self.encoding.truncate(prefix_bytes);
        key
    }

    /// Returns the key of a shorter tail chunk: the open chunk's first `hashes` blocks.
    pub(super) fn tail(&self, hashes: usize) -> Key {
        self.tail_encoding(hashes).key()
    }

    /// Returns the input of the open chunk's first `hashes` blocks: at least 1.
    pub(super) fn tail_encoding(&self, hashes: usize) -> Encoding {
        let last_hash = &self.hashes[(hashes - 1) * self.hash_bytes..hashes * self.hash_bytes];
        let mut encoding = self.encoding.clone();
        encoding.field(Tag::EngineHash, last_hash);
        encoding
    }

    /// Keeps the open chunk's first `hashes` blocks.
    pub(super) fn truncate(&mut self, hashes: usize) {
        self.hashes.truncate(hashes * self.hash_bytes);
    }
}
