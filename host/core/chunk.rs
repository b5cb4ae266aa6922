//! The chunk table: one record for every chunk that is stored or still remembered, its family and
//! the lists of chunks that are gone.
//!
//! ```text
//! Vacant -> Here -> Gone -> Here ...          Gone -> Vacant (recycled, oldest first)
//!              \-> Draining -> Gone
//! ```
//!
//! *Here*: has a copy in some tier that is filling or resident. *Draining*: lost while pinned or
//! read; missing for lookups, its slots are freed when it is held no longer. *Gone*: no slot; kept
//! so that a miss can say why, and so that a lost parent finds its children again.
//!
//! Pins are those of plans and loads. They hold the chunk, not a copy: while it is in two tiers,
//! either copy may leave.
//!
//! Invariants: a chunk that is here is in its parent's children list when its parent has a record
//! (full groups: always, unless it is a root); a gone chunk with children is in the orphaned list
//! of its group, one without is in the history; a window group keeps no children of gone chunks.
//!
//! Called by `core` alone.

use super::tier::Tier;
use super::{KeyIndex, MissReason};
use crate::key::Key;
use crate::links::{Links, List, NONE};
use crate::units::{GroupIndex, SlotIndex, TenantTag};

/// Number of a record in the chunk table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ChunkIndex(u32);

impl ChunkIndex {
    /// Stands for "no chunk".
    pub(crate) const NONE: Self = Self(NONE);

    pub(crate) const fn new(index: u32) -> Self {
        Self(index)
    }

    pub(crate) const fn to_u32(self) -> u32 {
        self.0
    }

    pub(crate) const fn get(self) -> usize {
        self.0 as usize
    }

    pub(crate) fn some(self) -> Option<Self> {
        (self != Self::NONE).then_some(self)
    }
}

/// Stands for "no slot".
const NO_SLOT: SlotIndex = SlotIndex::new(NONE);

/// Where a chunk's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// The record is free.
    Vacant,
    /// In a tier at least, filling or resident.
    Here,
    /// Lost, and still pinned or moved by a hop.
    Draining,
    /// Not stored.
    Gone,
}

impl Presence {
    pub(crate) fn is_here(self) -> bool {
        self == Self::Here
    }
}

/// What write-behind knows of one chunk.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(crate) struct WriteState {
    /// Where it waits for its write; [`NONE`] while it does not.
    pub(crate) place: u32,
    /// Its last write failed or found no room: only a store or a flush asks for another.
    pub(crate) has_failed: bool,
    /// Its children may have been queued for their writes before it.
    pub(crate) has_lost_turn: bool,
    /// A write of it was given up and may still read its host slot: it keeps a reader there.
    pub(crate) is_stuck: bool,
    /// It was counted as dropped since it was stored.
    pub(crate) is_dropped: bool,
}

/// What is known of one chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    pub(crate) key: Key,
    /// The chunk before this one in its prefix; NONE for a root.
    pub(crate) parent: ChunkIndex,
    pub(crate) children: List,
    /// Chunks before this one in its prefix. In a window group only those count that were here,
    /// one after the other, when it was stored.
    pub(crate) depth: u32,
    /// Its slot in each tier, by [`Tier::number`]; [`NO_SLOT`] where it owns none.
    slots: [SlotIndex; 2],
    /// Plans and loads that need it to stay.
    pub(crate) pins: u32,
    pub(crate) group: GroupIndex,
    pub(crate) presence: Presence,
    /// Why a lookup misses it, while it is not here.
    pub(crate) reason: MissReason,
    /// By tier: popped by the policy while it had to stay; back in the ranking once it need not.
    pub(crate) is_set_aside: [bool; 2],
    /// Positions of transfers that wait for this one's fill, in the transfers' links.
    pub(crate) joiners: List,
    pub(crate) write: WriteState,
    /// It is pinned, and its copy in host memory is its only readable one.
    pub(crate) is_sole_pinned: bool,
    /// The index names it. Not so when its key was stored again after it was cleared or erased.
    pub(crate) is_named: bool,
    /// The epoch in which it came, or in which it was last seen not to be dropped.
    pub(crate) epoch: u8,
    /// Whose it is: of who stored it first.
    pub(crate) tenant: TenantTag,
}

impl Chunk {
    /// A record that is free.
    const VACANT: Self = Self {
        key: Key::from_u128(0),
        parent: ChunkIndex::NONE,
        children: List::EMPTY,
        depth: 0,
        slots: [NO_SLOT; 2],
        pins: 0,
        group: GroupIndex::new(0),
        presence: Presence::Vacant,
        reason: MissReason::NeverStored,
        is_set_aside: [false; 2],
        joiners: List::EMPTY,
        write: WriteState {
            place: NONE,
            has_failed: false,
            has_lost_turn: false,
            is_stuck: false,
            is_dropped: false,
        },
        is_sole_pinned: false,
        is_named: false,
        epoch: 0,
        tenant: TenantTag::new(0),
    };

    /// Its slot in a tier.
    pub(crate) fn slot(&self, tier: Tier) -> Option<SlotIndex> {
        let slot = self.slots[tier.number()];
        (slot != NO_SLOT).then_some(slot)
    }

    pub(crate) fn give_slot(&mut self, tier: Tier, slot: SlotIndex) {
        self.slots[tier.number()] = slot;
    }

    pub(crate) fn take_slot(&mut self, tier: Tier) {
        self.slots[tier.number()] = NO_SLOT;
    }

    /// The position of its group.
    pub(crate) fn at(&self) -> usize {
        usize::from(self.group.get())
    }
}

// One record a cache line: a lookup touches one a key.
const _: () = assert!(size_of::<Chunk>() == 64);

/// The chunk table.
#[derive(Debug)]
pub(crate) struct ChunkTable {
    chunks: Box<[Chunk]>,
    /// Members: children of a chunk, history, orphaned parents, or free records; never two of them.
    links: Links,
    /// Records from here on were never used.
    fresh: u32,
    /// Gone chunks without children, the one forgotten next in front.
    history: List,
    /// Free records that were used before.
    vacant: List,
}

impl ChunkTable {
    /// Bytes of one record and its links.
    pub(crate) const CHUNK_BYTES: usize = size_of::<Chunk>() + Links::NODE_BYTES;

    pub(crate) fn new(chunk_count: u32) -> Self {
        Self {
            chunks: vec![Chunk::VACANT; chunk_count as usize].into_boxed_slice(),
            links: Links::new(chunk_count),
            fresh: 0,
            history: List::EMPTY,
            vacant: List::EMPTY,
        }
    }

    pub(crate) fn records(&self) -> &[Chunk] {
        &self.chunks
    }

    pub(crate) fn at(&self, index: ChunkIndex) -> &Chunk {
        &self.chunks[index.get()]
    }

    pub(crate) fn at_mut(&mut self, index: ChunkIndex) -> &mut Chunk {
        &mut self.chunks[index.get()]
    }

    /// Takes a record for `key`, the oldest of the history when no fresh one is left, and names it
    /// in `index`. `None` when every record is here or has children.
    pub(crate) fn take(
        &mut self,
        key: Key,
        group: GroupIndex,
        index: &mut KeyIndex,
    ) -> Option<ChunkIndex> {
        let taken = if let Some(vacant) = self.vacant.first() {
            self.links.remove(&mut self.vacant, vacant);
            ChunkIndex(vacant)
        } else if (self.fresh as usize) < self.chunks.len() {
            self.fresh += 1;
            ChunkIndex(self.fresh - 1)
        } else {
            let oldest = ChunkIndex(self.history.first()?);
            self.links.remove(&mut self.history, oldest.0);
            index.remove(self.at(oldest).key, oldest);
            oldest
        };
        let presence = Presence::Gone;
        *self.at_mut(taken) = Chunk { key, group, presence, is_named: true, ..Chunk::VACANT };
        index.insert(key, taken);
        Some(taken)
    }

    /// Puts a gone chunk without children at the end of the history; frees the record of one that
    /// has no name any more.
    pub(crate) fn remember(&mut self, index: ChunkIndex) {
        if self.at(index).is_named {
            self.links.push_back(&mut self.history, index.0);
        } else {
            *self.at_mut(index) = Chunk::VACANT;
            self.links.push_back(&mut self.vacant, index.0);
        }
    }

    /// Takes note that the index does not name the chunk any more; frees its record if it was
    /// history.
    pub(crate) fn unname(&mut self, index: ChunkIndex) {
        self.at_mut(index).is_named = false;
        let chunk = self.at(index);
        if chunk.presence == Presence::Gone && chunk.children.is_empty() {
            self.recall(index);
            self.remember(index);
        }
    }

    /// Takes a gone chunk without children out of the history, because it comes back.
    pub(crate) fn recall(&mut self, index: ChunkIndex) {
        self.links.remove(&mut self.history, index.0);
    }

    /// Returns the depth of a chunk that follows `parent`, or of a root.
    pub(crate) fn depth_below(&self, parent: ChunkIndex) -> u32 {
        parent.some().map_or(0, |parent| self.at(parent).depth.saturating_add(1))
    }

    /// Makes `child` a child of `parent`.
    pub(crate) fn adopt(&mut self, parent: ChunkIndex, child: ChunkIndex) {
        let is_ahead = self.at(child).write.place != NONE;
        self.chunks[parent.get()].write.has_lost_turn |= is_ahead;
        self.chunks[child.get()].parent = parent;
        self.links.push_back(&mut self.chunks[parent.get()].children, child.0);
    }

    /// Takes `child` out of its parent's children; its `parent` stays readable for pinned walks.
    pub(crate) fn disown(&mut self, parent: ChunkIndex, child: ChunkIndex) {
        self.links.remove(&mut self.chunks[parent.get()].children, child.0);
    }

    /// Makes every child of `parent` a root.
    pub(crate) fn disown_all(&mut self, parent: ChunkIndex) {
        while let Some(child) = self.at(parent).children.first() {
            self.disown(parent, ChunkIndex(child));
            self.at_mut(ChunkIndex(child)).parent = ChunkIndex::NONE;
        }
    }

    /// Returns the chunk's oldest child.
    pub(crate) fn first_child(&self, index: ChunkIndex) -> Option<ChunkIndex> {
        self.at(index).children.first().map(ChunkIndex)
    }

    /// Puts a gone or draining chunk that has children into its full group's list of orphaned
    /// parents.
    pub(crate) fn orphan(&mut self, orphaned: &mut List, parent: ChunkIndex) {
        self.links.push_back(orphaned, parent.0);
    }

    /// Takes a chunk out of its group's list of orphaned parents.
    pub(crate) fn unorphan(&mut self, orphaned: &mut List, parent: ChunkIndex) {
        self.links.remove(orphaned, parent.0);
    }

    /// Returns the members of a list of this table.
    pub(crate) fn members(&self, list: List) -> impl Iterator<Item = ChunkIndex> + '_ {
        self.links.members(list).map(ChunkIndex)
    }

    /// Returns the history, the chunk forgotten next first.
    pub(crate) fn history(&self) -> impl Iterator<Item = ChunkIndex> + '_ {
        self.members(self.history)
    }

    /// Whether the chunk is in a list of this table.
    pub(crate) fn is_linked(&self, index: ChunkIndex) -> bool {
        self.links.is_linked(index.0)
    }
}
