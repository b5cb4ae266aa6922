//! The hash table from key to chunk, preallocated and never rehashed.
//!
//! Open addressing with linear probing over 64-bit buckets: the upper half holds 32 bits of the
//! key's hash, the lower half the chunk's number plus one, and 0 is an empty bucket. The home
//! bucket is the top of those 32 bits, so that a removal can shift later members of a run back
//! without reading their keys. Keys themselves live in the chunk table.
//!
//! Invariants: at most three quarters of the buckets are taken, so every probe ends; no bucket
//! between a member's home and its place is empty; each chunk is named once.
//!
//! The hash folds the key with a secret seed by one widening multiplication. Keys are content
//! addresses, so honest keys spread by themselves; the seed is there for those who grind prompts
//! until their keys share a bucket.
//!
//! Called by `core` alone.

use super::chunk::{Chunk, ChunkIndex};
use crate::key::Key;

/// The table from key to chunk.
#[derive(Debug)]
pub(crate) struct KeyIndex {
    buckets: Box<[u64]>,
    /// Right shift from a 32-bit tag to its home bucket.
    tag_shift: u32,
    seed: [u64; 2],
    length: u32,
}

const EMPTY: u64 = 0;

impl KeyIndex {
    /// Makes a table that can name `chunk_count` chunks (at most 2^31).
    pub(crate) fn new(chunk_count: u32, seed: [u64; 2]) -> Self {
        let wanted = (u64::from(chunk_count) * 4).div_ceil(3).max(16);
        let bits = u64::BITS - (wanted - 1).leading_zeros();
        assert!(bits <= 32, "the configuration bounds the chunks");
        let buckets = vec![EMPTY; 1 << bits].into_boxed_slice();
        Self { buckets, tag_shift: 32 - bits, seed, length: 0 }
    }

    /// Chunks that the table names.
    pub(crate) fn length(&self) -> u32 {
        self.length
    }

    /// Bytes that the table takes.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&*self.buckets)
    }

    /// Returns the chunk of `key`.
    pub(crate) fn find(&self, key: Key, chunks: &[Chunk]) -> Option<ChunkIndex> {
        let tag = self.tag(key);
        let mut bucket = self.home(tag);
        loop {
            let entry = self.buckets[bucket];
            if entry == EMPTY {
                return None;
            }
            let index = chunk_of(entry);
            if tag_of(entry) == tag && chunks[index.get()].key == key {
                return Some(index);
            }
            bucket = self.following(bucket);
        }
    }

    /// Finds the chunks of up to 64 keys; entry `i` of the result answers `keys[i]`.
    ///
    /// Reads the home buckets of all keys before the first comparison, so that their cache misses
    /// overlap instead of following one another.
    pub(crate) fn find_many(
        &self,
        keys: &[Key],
        chunks: &[Chunk],
        found: &mut [Option<ChunkIndex>; super::KEY_COUNT_MAX],
    ) {
        let mut entries = [EMPTY; super::KEY_COUNT_MAX];
        for (entry, key) in entries.iter_mut().zip(keys) {
            *entry = self.buckets[self.home(self.tag(*key))];
        }
        for ((result, key), entry) in found.iter_mut().zip(keys).zip(entries) {
            let at_home = entry != EMPTY
                && tag_of(entry) == self.tag(*key)
                && chunks[chunk_of(entry).get()].key == *key;
            *result = if at_home {
                Some(chunk_of(entry))
            } else if entry == EMPTY {
                None
            } else {
                self.find(*key, chunks)
            };
        }
    }

    /// Names `index` as the chunk of `key`, which must not be named yet.
    pub(crate) fn insert(&mut self, key: Key, index: ChunkIndex) {
        assert!(
            (self.length as usize) < self.buckets.len() / 4 * 3 + 1,
            "the index was sized for every chunk"
        );
        let tag = self.tag(key);
        let mut bucket = self.home(tag);
        while self.buckets[bucket] != EMPTY {
            bucket = self.following(bucket);
        }
        self.buckets[bucket] = u64::from(tag) << 32 | u64::from(index.to_u32() + 1);
        self.length += 1;
    }

    /// Forgets that `index` is the chunk of `key`.
    ///
    /// # Panics
    ///
    /// Panics when the table does not name it.
    pub(crate) fn remove(&mut self, key: Key, index: ChunkIndex) {
        let mut hole = self.home(self.tag(key));
        while self.buckets[hole] == EMPTY || chunk_of(self.buckets[hole]) != index {
            assert!(self.buckets[hole] != EMPTY, "chunk {index:?} is not in the index");
            hole = self.following(hole);
        }
        self.length -= 1;
        let mut bucket = self.following(hole);
        while self.buckets[bucket] != EMPTY {
            let origin = self.home(tag_of(self.buckets[bucket]));
            // The member may fill the hole when its home is not past the hole on the way to it.
            if self.distance(origin, bucket) >= self.distance(hole, bucket) {
                self.buckets[hole] = self.buckets[bucket];
                hole = bucket;
            }
            bucket = self.following(bucket);
        }
        self.buckets[hole] = EMPTY;
    }

    #[expect(clippy::cast_possible_truncation, reason = "the fold keeps the product's low half")]
    fn tag(&self, key: Key) -> u32 {
        let product = u128::from(key.low_u64() ^ self.seed[0])
            * u128::from(key.high_u64() ^ self.seed[1] | 1);
        let folded = (product >> 64) as u64 ^ product as u64;
        (folded >> 32) as u32
    }

    fn home(&self, tag: u32) -> usize {
        (tag >> self.tag_shift) as usize
    }

    fn following(&self, bucket: usize) -> usize {
        (bucket + 1) & (self.buckets.len() - 1)
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.buckets.len() - 1)
    }
}

fn tag_of(entry: u64) -> u32 {
    (entry >> 32) as u32
}

/// The chunk that a taken bucket names; none for an empty one.
#[expect(clippy::cast_possible_truncation, reason = "the lower half is the chunk's number")]
fn chunk_of(entry: u64) -> ChunkIndex {
    ChunkIndex::new((entry as u32).wrapping_sub(1))
}
