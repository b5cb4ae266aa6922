//! What the header page of each slot holds on disk, as far as is known: 16 bytes a slot.
//!
//! Not what the store's owner keeps in the slot: a slot that was freed has its last chunk's header
//! until it is written anew, and a scan would find it. So reads are checked against these records,
//! and erasing finds what remains.
//!
//! Invariants: a record changes when a write of the slot's header page has ended, never before;
//! while one is under way it counts for both what was there and what will be; a write that failed
//! leaves *unknown*, which matches every erasure.
//!
//! Called by the store's operations.

use super::format::SnapshotEntry;
use super::{Entry, Generation};
use crate::key::Key;
use crate::units::{SlotIndex, TenantId};
use std::collections::{HashMap, HashSet};

/// What one header page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) generation: Generation,
    key_tag: u32,
    tenant_tag: u32,
}

impl Record {
    /// Nothing that counts.
    pub(super) const EMPTY: Self = Self { generation: Generation::NONE, key_tag: 0, tenant_tag: 0 };

    /// Nobody knows what.
    pub(super) const UNKNOWN: Self =
        Self { generation: Generation::from_u64(u64::MAX), key_tag: 0, tenant_tag: 0 };

    pub(super) fn of_entry(entry: &Entry) -> Self {
        Self {
            generation: entry.generation,
            key_tag: key_tag(entry.key),
            tenant_tag: entry.tenant.tag().get(),
        }
    }

    pub(super) fn of_snapshot(entry: &SnapshotEntry) -> Self {
        match *entry {
            SnapshotEntry::Chunk(ref entry) => Self::of_entry(entry),
            SnapshotEntry::Remains { generation, key_tag, tenant_tag, .. } => {
                Self { generation, key_tag, tenant_tag }
            }
            SnapshotEntry::Unknown { .. } => Self::UNKNOWN,
        }
    }

    /// Returns what a snapshot says of a free slot with this record; `None` where that is nothing.
    pub(super) fn to_snapshot(self, slot: SlotIndex) -> Option<SnapshotEntry> {
        match self {
            Self::EMPTY => None,
            Self::UNKNOWN => Some(SnapshotEntry::Unknown { slot }),
            Self { generation, key_tag, tenant_tag } => {
                Some(SnapshotEntry::Remains { slot, generation, key_tag, tenant_tag })
            }
        }
    }
}

/// Returns the part of a key that records keep.
#[expect(clippy::cast_possible_truncation, reason = "keeps the low bits")]
fn key_tag(key: Key) -> u32 {
    key.low_u64() as u32
}

/// What is to be erased.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Erasure {
    /// All chunks with one of these keys.
    Keys(Vec<Key>),
    /// All chunks of a tenant.
    Tenant(TenantId),
    /// Whatever these slots hold.
    Slots(Vec<SlotIndex>),
}

/// What an [`Erasure`] names, ready to be asked for each slot.
#[derive(Clone, Debug)]
enum Named {
    Keys(HashSet<u32>),
    Tenant(u32),
    Slots(HashSet<SlotIndex>),
}

/// An [`Erasure`] of what was written before some point.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    named: Named,
    /// By keys or tenant, what was written from this generation on stays.
    before: Generation,
}

impl Filter {
    pub(super) fn new(erasure: &Erasure, before: Generation) -> Self {
        let named = match erasure {
            Erasure::Keys(keys) => Named::Keys(keys.iter().copied().map(key_tag).collect()),
            Erasure::Tenant(tenant) => Named::Tenant(tenant.tag().get()),
            Erasure::Slots(slots) => Named::Slots(slots.iter().copied().collect()),
        };
        Self { named, before }
    }

    /// Whether a slot with this record may hold what is to be erased. Tags are not whole keys, so
    /// it may also hold something else; that is lost, which is a miss. A slot that is named is
    /// erased even if nothing in it counts: its page may be damaged.
    pub(super) fn matches(&self, slot: SlotIndex, record: Record) -> bool {
        let is_named = match &self.named {
            Named::Keys(tags) => tags.contains(&record.key_tag),
            Named::Tenant(tag) => *tag == record.tenant_tag,
            Named::Slots(slots) => return slots.contains(&slot),
        };
        let is_before = record.generation < self.before && record != Record::EMPTY;
        record == Record::UNKNOWN || (is_named && is_before)
    }
}

/// The records of all slots, and the writes of header pages under way.
#[derive(Debug)]
pub(super) struct Records {
    on_disk: Box<[Record]>,
    /// What each slot under a write will hold.
    writing: HashMap<SlotIndex, Record>,
    erasing: HashSet<SlotIndex>,
}

impl Records {
    pub(super) fn new(slot_count: u32) -> Self {
        Self {
            on_disk: vec![Record::EMPTY; slot_count as usize].into_boxed_slice(),
            writing: HashMap::new(),
            erasing: HashSet::new(),
        }
    }

    pub(super) fn get(&self, slot: SlotIndex) -> Option<Record> {
        self.on_disk.get(slot.get() as usize).copied()
    }

    pub(super) fn set(&mut self, slot: SlotIndex, record: Record) {
        self.on_disk[slot.get() as usize] = record;
    }

    /// Takes slots away from the end, or adds empty ones.
    pub(super) fn resize(&mut self, slot_count: u32) {
        let mut records = std::mem::take(&mut self.on_disk).into_vec();
        records.resize(slot_count as usize, Record::EMPTY);
        self.on_disk = records.into_boxed_slice();
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (SlotIndex, Record)> + '_ {
        (0..).map(SlotIndex::new).zip(self.on_disk.iter().copied())
    }

    pub(super) fn is_busy(&self, slot: SlotIndex) -> bool {
        self.writing.contains_key(&slot) || self.erasing.contains(&slot)
    }

    pub(super) fn has_writes(&self) -> bool {
        !self.writing.is_empty() || !self.erasing.is_empty()
    }

    pub(super) fn writing(&self, slot: SlotIndex) -> Option<Record> {
        self.writing.get(&slot).copied()
    }

    pub(super) fn begin_write(&mut self, slot: SlotIndex, record: Record) {
        self.writing.insert(slot, record);
    }

    /// Ends the write of a slot, and returns what it was to hold.
    pub(super) fn end_write(&mut self, slot: SlotIndex) -> Option<Record> {
        self.writing.remove(&slot)
    }

    pub(super) fn begin_erase(&mut self, slot: SlotIndex) {
        self.erasing.insert(slot);
    }

    pub(super) fn end_erase(&mut self, slot: SlotIndex, is_zero: bool) {
        self.erasing.remove(&slot);
        self.set(slot, if is_zero { Record::EMPTY } else { Record::UNKNOWN });
    }

    /// Forgets all headers that do not count any more.
    pub(super) fn forget_before(&mut self, min_generation: Generation) {
        for record in &mut self.on_disk {
            if record.generation < min_generation {
                *record = Record::EMPTY;
            }
        }
    }
}
