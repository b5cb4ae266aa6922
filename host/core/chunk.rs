//! The chunk table: one record for every chunk that is stored or still remembered, its family and
//! the lists of chunks that are gone.
//!
//! ```text
//! Vacant -> Here -> Gone -> Here ...          Gone -> Vacant (recycled, oldest first)
//!              \-> Draining -> Gone
//! ```
//!
//! *Here*: owns a slot that is filling or resident. *Draining*: lost while pinned; missing for
//! lookups, its slot is freed with the last reader. *Gone*: no slot; kept so that a miss can say
//! why, and so that a lost parent finds its children again.
//!
//! Invariants: a chunk that is here is in its parent's children list when its parent has a record
//! (full groups: always, unless it is a root); a gone chunk with children is in the orphaned list
//! of its group, one without is in the history; a window group keeps no children of gone chunks.
//!
//! Called by `core` alone.

use super::{KeyIndex, MissReason};
use crate::key::Key;
use crate::links::{Links, List, NONE};
use crate::units::{GroupIndex, SlotIndex};

/// Number of a record in the chunk table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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

/// Where a chunk's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// The record is free.
    Vacant,
    /// In its slot, filling or resident.
    Here,
    /// Lost, with readers still on its slot.
    Draining,
    /// Not stored.
    Gone,
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
    /// Meaningful while here or draining.
    pub(crate) slot: SlotIndex,
    pub(crate) group: GroupIndex,
    pub(crate) presence: Presence,
    /// Why a lookup misses it, while it is not here.
    pub(crate) reason: MissReason,
    /// Popped by the policy while it had descendants; back in the ranking once they are gone.
    pub(crate) is_set_aside: bool,
    /// Another transfer waits for this one's fill.
    pub(crate) is_joined: bool,
}

/// The chunk table.
#[derive(Debug)]
pub(crate) struct ChunkTable {
    chunks: Box<[Chunk]>,
    /// Members: children of a chunk, history, or orphaned parents; never two of them.
    links: Links,
    /// Records from here on were never used.
    fresh: u32,
    /// Gone chunks without children, the one forgotten next in front.
    history: List,
}

impl ChunkTable {
    /// Bytes of one record and its links.
    pub(crate) const CHUNK_BYTES: usize = size_of::<Chunk>() + Links::NODE_BYTES;

    pub(crate) fn new(chunk_count: u32) -> Self {
        let vacant = Chunk {
            key: Key::from_u128(0),
            parent: ChunkIndex::NONE,
            children: List::EMPTY,
            depth: 0,
            slot: SlotIndex::new(NONE),
            group: GroupIndex::new(0),
            presence: Presence::Vacant,
            reason: MissReason::NeverStored,
            is_set_aside: false,
            is_joined: false,
        };
        Self {
            chunks: vec![vacant; chunk_count as usize].into_boxed_slice(),
            links: Links::new(chunk_count),
            fresh: 0,
            history: List::EMPTY,
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
        let taken = if (self.fresh as usize) < self.chunks.len() {
            self.fresh += 1;
            ChunkIndex(self.fresh - 1)
        } else {
            let oldest = ChunkIndex(self.history.first()?);
            self.links.remove(&mut self.history, oldest.0);
            index.remove(self.at(oldest).key, oldest);
            oldest
        };
        *self.at_mut(taken) = Chunk {
            key,
            parent: ChunkIndex::NONE,
            children: List::EMPTY,
            depth: 0,
            slot: SlotIndex::new(NONE),
            group,
            presence: Presence::Gone,
            reason: MissReason::NeverStored,
            is_set_aside: false,
            is_joined: false,
        };
        index.insert(key, taken);
        Some(taken)
    }

    /// Puts a gone chunk without children at the end of the history.
    pub(crate) fn remember(&mut self, index: ChunkIndex) {
        self.links.push_back(&mut self.history, index.0);
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
