//! What a store was told, and what it may say it holds.

use super::rig::Rig;
use kvtide::fingerprint::{Codec, StoreId};
use kvtide::io::IoFault;
use kvtide::key::Key;
use kvtide::store::format::HeaderIdentity;
use kvtide::store::{Entry, Erasure, Generation, Landed, StoreError};
use kvtide::units::{BlockCount, ByteCount, GroupIndex, SlotIndex, TenantId, TokenCount};
use kvtide_kernels::checksum;
use std::collections::{BTreeMap, BTreeSet};

pub(crate) fn store_id(number: u8) -> StoreId {
    StoreId::from_bytes([number; 16])
}

/// Returns the key of the chunk number `chunk`.
pub(crate) fn key(chunk: u64) -> Key {
    let low = checksum::mix(chunk.wrapping_add(1));
    Key::from_u128(u128::from(chunk) << 64 | u128::from(low))
}

/// Returns the payload of a chunk: the same for everyone who stores it.
pub(crate) fn payload(chunk: u64) -> Vec<u8> {
    let mut bytes = vec![0; 4096];
    for (word, index) in bytes[..1024].as_chunks_mut::<8>().0.iter_mut().zip(0..) {
        *word = checksum::mix(chunk << 16 | index).to_le_bytes();
    }
    bytes
}

/// Returns the slot image of a chunk, but for its stamp.
pub(crate) fn image(chunk: u64, tenant: TenantId) -> Vec<u8> {
    let payload = payload(chunk);
    let words: Vec<u64> =
        payload[..1024].as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let identity = HeaderIdentity {
        key: key(chunk),
        parent: chunk.checked_sub(1).map(key),
        group: GroupIndex::new(0),
        codec: Codec::Raw,
        depth: u32::try_from(chunk).expect("few chunks"),
        blocks: BlockCount::new(2),
        tokens: TokenCount::new(32),
        payload: ByteCount::new(4096),
        part_count: 1,
        tenant,
        expires_s: 0,
        recompute_us: 0,
    };
    let mut image = vec![0; 4096];
    image[..HeaderIdentity::BYTES].copy_from_slice(&identity.encode().expect("an identity"));
    let sum = checksum::seal(checksum::sum(&words, 0), key(chunk).low_u64());
    image[1024..1032].copy_from_slice(&sum.to_le_bytes());
    image.extend(payload);
    image
}

/// One slot write.
#[derive(Clone, Copy, Debug)]
struct Write {
    entry: Entry,
    chunk: u64,
    point: Point,
    fate: Fate,
}

/// How far a write came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Point {
    Begun,
    Written,
    Durable,
}

/// What may have become of a write since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fate {
    Stays,
    /// Overwritten, cleared or erased, or about to be: it need not be there any more.
    MayBeGone,
    /// Cleared or erased for good: it must not be there any more.
    MustBeGone,
}

impl Write {
    fn may_be_gone(&mut self) {
        self.fate = self.fate.max(Fate::MayBeGone);
    }
}

/// Every slot write that was ever begun, by generation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Oracle {
    writes: BTreeMap<Generation, Write>,
    /// A run was begun and not closed since.
    pub(crate) must_scan: bool,
    clearing: Vec<Generation>,
}

impl Oracle {
    pub(crate) fn begin_write(
        &mut self,
        slot: SlotIndex,
        chunk: u64,
        tenant: TenantId,
        generation: Generation,
    ) -> Entry {
        let entry = Entry {
            slot,
            key: key(chunk),
            parent: chunk.checked_sub(1).map(key),
            generation,
            tenant,
            depth: u32::try_from(chunk).expect("few chunks"),
            blocks: BlockCount::new(2),
            expires_s: 0,
        };
        for write in self.writes.values_mut() {
            // Whoever stores a chunk again has dropped it before.
            if write.entry.slot == slot || write.entry.key == entry.key {
                write.may_be_gone();
            }
        }
        let write = Write { entry, chunk, point: Point::Begun, fate: Fate::Stays };
        assert!(
            self.writes.insert(generation, write).is_none(),
            "{generation} was given out twice"
        );
        entry
    }

    /// Takes the report of a write, and returns whether the chunk is there now.
    pub(crate) fn end_write(
        &mut self,
        entry: &Entry,
        outcome: &Result<(), IoFault>,
        landed: Landed,
    ) -> bool {
        let write = self.writes.get_mut(&entry.generation).expect("it was begun");
        let expected = match outcome {
            Err(_) => Landed::Failed,
            Ok(()) if self.clearing.contains(&entry.generation) => Landed::Cleared,
            Ok(()) => Landed::Counts,
        };
        assert_eq!(landed, expected);
        if outcome.is_ok() {
            write.point = Point::Written;
        }
        landed == Landed::Counts && write.fate == Fate::Stays
    }

    /// Returns the writes that a sync submitted now must cover.
    pub(crate) fn written(&self) -> Vec<Generation> {
        let written = self.writes.iter().filter(|(_, write)| write.point > Point::Begun);
        written.map(|(&generation, _)| generation).collect()
    }

    pub(crate) fn synced(&mut self, written: &[Generation]) {
        for generation in written {
            self.writes.get_mut(generation).expect("it was begun").point = Point::Durable;
        }
    }

    /// The power went: what no sync covered may be torn, and a later one says nothing about it.
    pub(crate) fn cut(&mut self) {
        for write in self.writes.values_mut() {
            if write.point == Point::Written {
                write.point = Point::Begun;
            }
        }
    }

    pub(crate) fn clear_begins(&mut self) {
        self.clearing = self.writes.keys().copied().collect();
        for write in self.writes.values_mut() {
            write.may_be_gone();
        }
    }

    pub(crate) fn cleared(&mut self) {
        for generation in &self.clearing {
            self.writes.get_mut(generation).expect("it was begun").fate = Fate::MustBeGone;
        }
    }

    /// Returns the writes that an erasure means.
    pub(crate) fn erase_begins(&mut self, erasure: &Erasure) -> BTreeSet<Generation> {
        let is_meant = |write: &Write| match erasure {
            Erasure::Keys(keys) => keys.contains(&write.entry.key),
            Erasure::Tenant(tenant) => write.entry.tenant == *tenant,
            Erasure::Slots(slots) => slots.contains(&write.entry.slot),
        };
        let meant = self.writes.iter_mut().filter(|(_, write)| is_meant(write));
        meant
            .map(|(&generation, write)| {
                write.may_be_gone();
                generation
            })
            .collect()
    }

    pub(crate) fn erased(&mut self, erased: BTreeSet<Generation>) {
        for generation in erased {
            self.writes.get_mut(&generation).expect("it was begun").fate = Fate::MustBeGone;
        }
    }

    /// Slots from `slot_count` on are cut off.
    pub(crate) fn shrink(&mut self, slot_count: u32) {
        for write in self.writes.values_mut() {
            if write.entry.slot.get() >= slot_count {
                write.may_be_gone();
            }
        }
    }

    /// Checks what a store says it holds against what it was told.
    pub(crate) fn check(&self, rig: &mut Rig) -> Result<(), StoreError> {
        let held: Vec<Entry> = rig.index.values().copied().collect();
        for entry in &held {
            let write = self.writes.get(&entry.generation).expect("only what was ever written");
            assert_eq!(*entry, write.entry, "another chunk than was written");
            assert!(
                write.fate < Fate::MustBeGone,
                "{entry:?} came back after it was dropped for good"
            );
            let image = rig.read(entry.slot)?;
            match rig.store.verify(entry.slot, entry.key, &image) {
                Ok(header) => {
                    assert_eq!(header.stamp.generation, entry.generation);
                    assert_eq!(image[4096..], payload(write.chunk), "wrong bytes for the key");
                }
                Err(fault) => {
                    let may_be_torn = write.point < Point::Durable || write.fate > Fate::Stays;
                    assert!(may_be_torn, "{entry:?} was durable: {fault}");
                }
            }
        }
        let must_be_there =
            |write: &&Write| write.point == Point::Durable && write.fate == Fate::Stays;
        for write in self.writes.values().filter(must_be_there) {
            let is_there = |held: &Entry| {
                held.key == write.entry.key && held.generation >= write.entry.generation
            };
            let entry = write.entry;
            assert!(held.iter().any(is_there), "{entry:?} was durable and is gone: {held:?}");
        }
        Ok(())
    }
}
