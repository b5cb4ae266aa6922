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
            (self.length as usize) < self.buckets.len() / 4 * 3,
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

#[cfg(test)]
mod tests {
    use super::{ChunkIndex, KeyIndex};
    use crate::core::KEY_COUNT_MAX;
    use crate::core::chunk::{Chunk, ChunkTable};
    use crate::key::Key;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// As many chunks as 16 buckets take: three quarters of them.
    const CHUNK_COUNT: u32 = 12;

    /// With this seed a key's tag is the upper half of its low word, as long as its high word is
    /// below 2.
    const OPEN_SEED: [u64; 2] = [0, 0];

    /// A key of the given home among 16 buckets. All keys of one home and `rest` have one tag,
    /// whatever their `number`.
    fn key_at(home: u32, rest: u32, number: u32) -> Key {
        let tag = home << 28 | rest;
        Key::from_u128(u128::from(tag) << 32 | u128::from(number))
    }

    /// Homes next to the table's end, so that runs of members go on at its beginning.
    fn key() -> impl Strategy<Value = Key> {
        let home = prop_oneof![Just(15_u32), Just(14), Just(0), 0..16_u32];
        (home, 0..2_u32, 0..4_u32).prop_map(|(home, rest, number)| key_at(home, rest, number))
    }

    /// A chunk table of `CHUNK_COUNT` chunks whose keys the test sets itself.
    fn chunks() -> Vec<Chunk> {
        ChunkTable::new(CHUNK_COUNT).records().to_vec()
    }

    fn check(index: &KeyIndex, chunks: &[Chunk], model: &HashMap<Key, ChunkIndex>, asked: &[Key]) {
        assert_eq!(index.length() as usize, model.len());
        for (key, chunk) in model {
            assert_eq!(index.find(*key, chunks), Some(*chunk));
        }
        let mut found = [None; KEY_COUNT_MAX];
        index.find_many(asked, chunks, &mut found);
        for (key, found) in asked.iter().zip(found) {
            assert_eq!(found, model.get(key).copied());
            assert_eq!(index.find(*key, chunks), found, "one key at a time finds the same");
        }
    }

    proptest! {
        #[test]
        fn the_index_is_a_map_for_keys_that_share_buckets_and_tags(
            steps in prop::collection::vec(key(), 0..200),
            asked in prop::collection::vec(key(), 0..=KEY_COUNT_MAX),
        ) {
            let mut index = KeyIndex::new(CHUNK_COUNT, OPEN_SEED);
            let mut chunks = chunks();
            let mut model = HashMap::new();
            let mut free: Vec<ChunkIndex> = (0..CHUNK_COUNT).map(ChunkIndex::new).collect();
            for key in steps {
                if let Some(chunk) = model.remove(&key) {
                    index.remove(key, chunk);
                    free.push(chunk);
                } else if let Some(chunk) = free.pop() {
                    chunks[chunk.get()].key = key;
                    index.insert(key, chunk);
                    model.insert(key, chunk);
                }
                check(&index, &chunks, &model, &asked);
            }
        }

        #[test]
        fn any_seed_serves_any_keys(
            seed in any::<[u64; 2]>(),
            keys in prop::collection::hash_set(any::<u128>(), 0..=CHUNK_COUNT as usize),
        ) {
            let mut index = KeyIndex::new(CHUNK_COUNT, seed);
            let mut chunks = chunks();
            let keys: Vec<Key> = keys.into_iter().map(Key::from_u128).collect();
            for (number, key) in (0..).zip(&keys) {
                chunks[number as usize].key = *key;
                index.insert(*key, ChunkIndex::new(number));
            }
            let model = (0..).map(ChunkIndex::new);
            let model: HashMap<Key, ChunkIndex> = keys.iter().copied().zip(model).collect();
            check(&index, &chunks, &model, &keys);
            for (key, chunk) in &model {
                index.remove(*key, *chunk);
                prop_assert_eq!(index.find(*key, &chunks), None);
            }
            prop_assert_eq!(index.length(), 0);
            prop_assert!(index.buckets.iter().all(|bucket| *bucket == super::EMPTY));
        }
    }

    #[test]
    fn a_full_run_across_the_end_of_the_table_survives_each_removal() {
        for removed in 0..CHUNK_COUNT {
            let mut index = KeyIndex::new(CHUNK_COUNT, OPEN_SEED);
            let mut chunks = chunks();
            let mut model = HashMap::new();
            for number in 0..CHUNK_COUNT {
                let chunk = ChunkIndex::new(number);
                let home = 14 + number % 2;
                let key = key_at(home, 0, number);
                assert_eq!(index.home(index.tag(key)), home as usize, "the key is crafted well");
                chunks[chunk.get()].key = key;
                index.insert(key, chunk);
                model.insert(key, chunk);
            }
            let key = chunks[removed as usize].key;
            index.remove(key, ChunkIndex::new(removed));
            model.remove(&key);
            check(&index, &chunks, &model, &[key]);
        }
    }

    #[test]
    fn a_table_has_room_for_every_chunk_and_a_quarter_to_spare() {
        for chunk_count in [1, 11, 12, 13, 96, 97, 1000] {
            let index = KeyIndex::new(chunk_count, OPEN_SEED);
            let buckets = index.buckets.len();
            assert!(buckets.is_power_of_two() && buckets >= 16);
            assert!(chunk_count as usize * 4 <= buckets * 3, "{chunk_count} in {buckets}");
        }
    }

    #[test]
    #[should_panic(expected = "was sized for every chunk")]
    fn a_table_is_never_more_than_three_quarters_taken() {
        let mut index = KeyIndex::new(CHUNK_COUNT, OPEN_SEED);
        for number in 0..=CHUNK_COUNT {
            index.insert(key_at(number, 0, 0), ChunkIndex::new(number));
        }
    }

    #[test]
    #[should_panic(expected = "is not in the index")]
    fn what_is_not_in_the_index_cannot_be_removed() {
        let mut index = KeyIndex::new(CHUNK_COUNT, OPEN_SEED);
        index.insert(key_at(3, 0, 0), ChunkIndex::new(0));
        index.remove(key_at(3, 0, 1), ChunkIndex::new(1));
    }
}
