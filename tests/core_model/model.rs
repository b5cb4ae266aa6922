//! The core's promises in hash maps and linear scans: chunks, readers and eviction.
//!
//! Nothing here has a list to keep in order or a table to index: every question is answered by
//! looking at all chunks. `commands` adds what the public commands do.
//!
//! The rule of eviction. Victims are resident, unread and not what a store under way builds on; in
//! a full group they have no descendant here. Orphans go first: the deepest one below the parent
//! that was lost first, unless that one is pinned or in flight. Otherwise the victim whose turn it
//! is goes: that of the least recent rank. A chunk whose turn comes while it has descendants is
//! passed over, and its turn comes again as soon as it has none.
//!
//! As long as chunks of a group left only by eviction, that is strict recency, and [`Model`]
//! asserts it. What a loss or a cancel allows is this and no more: when several chunks that were
//! passed over lose their last descendant so, the one that lost it last has its turn first,
//! whatever their ranks; a chunk that was never passed over still waits for all older ones.

use kvtide::core::{CoreConfig, Counters, MissReason, PlanId, TransferId};
use kvtide::key::Key;
use kvtide::layout::Attention;
use kvtide::units::{SlotIndex, Timestamp};
use std::collections::{HashMap, VecDeque};

use crate::commands::Transfer;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    Filling,
    Resident,
    Draining,
    Gone,
}

impl Presence {
    /// In a slot that is not lost.
    pub(crate) fn is_here(self) -> bool {
        matches!(self, Self::Filling | Self::Resident)
    }
}

/// Who reads a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Plan(PlanId),
    Load(TransferId),
}

#[derive(Clone, Debug)]
pub(crate) struct Chunk {
    pub(crate) group: usize,
    pub(crate) parent: Option<Key>,
    pub(crate) depth: usize,
    pub(crate) presence: Presence,
    pub(crate) reason: MissReason,
    pub(crate) readers: Vec<Owner>,
    /// When it became a child of its parent.
    pub(crate) adopted_at: u64,
    /// When it was stored, or its last reader left.
    ranked_at: u64,
    /// Its turn came while it had descendants, or while a store built on it, and has not come
    /// again.
    is_passed_over: bool,
    /// When its turn came again; counts before every rank.
    returned_at: Option<u64>,
    /// It was passed over since it was ranked.
    was_passed_over: bool,
    /// Learned from the hops.
    pub(crate) slot: Option<SlotIndex>,
}

impl Chunk {
    pub(crate) fn new(group: usize, reason: MissReason) -> Self {
        Self {
            group,
            parent: None,
            depth: 0,
            presence: Presence::Gone,
            reason,
            readers: Vec::new(),
            adopted_at: 0,
            ranked_at: 0,
            is_passed_over: false,
            returned_at: None,
            was_passed_over: false,
            slot: None,
        }
    }

    fn forget_turn(&mut self) {
        self.is_passed_over = false;
        self.returned_at = None;
        self.was_passed_over = false;
    }
}

#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) capacity: usize,
    pub(crate) is_full: bool,
    pub(crate) pieces: u32,
    /// Lost parents with children here, the one to be cleared next first.
    pub(crate) orphaned: Vec<Key>,
    /// The orphan above the last victim: the next search goes on there.
    pub(crate) cursor: Option<Key>,
    /// Some chunk left otherwise than by eviction.
    has_lost: bool,
}

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) id: PlanId,
    pub(crate) lease_end: Timestamp,
    /// By group, from the first chunk to the deepest.
    pub(crate) runs: Vec<Vec<Key>>,
}

/// How a search for a victim ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Eviction {
    Freed,
    Nothing,
}

#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) groups: Vec<Group>,
    pub(crate) chunks: HashMap<Key, Chunk>,
    /// Chunks that are known at most.
    pub(crate) record_count: usize,
    /// Gone chunks without children, the one forgotten next first.
    pub(crate) history: Vec<Key>,
    /// In the order of their leases.
    pub(crate) plans: Vec<Plan>,
    pub(crate) dropping: VecDeque<Plan>,
    pub(crate) plan_count_max: usize,
    pub(crate) lease_ns: u64,
    /// In the order of their creation.
    pub(crate) transfers: Vec<Transfer>,
    pub(crate) free_records: VecDeque<u32>,
    /// Free staging pieces: out, in.
    pub(crate) staging: [u32; 2],
    pub(crate) staging_pieces: [u32; 2],
    pub(crate) protected: Option<Key>,
    pub(crate) counters: Counters,
    pub(crate) events: crate::commands::Events,
    ticks: u64,
}

impl Model {
    pub(crate) fn new(config: &CoreConfig) -> Self {
        let slots: u32 = config.groups.iter().map(|group| group.slot_count).sum();
        let groups = config.groups.iter().map(|group| Group {
            capacity: group.slot_count as usize,
            is_full: group.attention == Attention::Full,
            pieces: group.pieces_per_chunk,
            orphaned: Vec::new(),
            cursor: None,
            has_lost: false,
        });
        let staging = [config.staging_out_pieces, config.staging_in_pieces];
        Self {
            groups: groups.collect(),
            chunks: HashMap::new(),
            record_count: (slots + config.history_count) as usize,
            history: Vec::new(),
            plans: Vec::new(),
            dropping: VecDeque::new(),
            plan_count_max: config.plan_count_max as usize,
            lease_ns: config.lease_ns,
            transfers: Vec::new(),
            free_records: (0..config.transfer_count_max).collect(),
            staging,
            staging_pieces: staging,
            protected: None,
            counters: Counters::default(),
            events: crate::commands::Events::default(),
            ticks: 0,
        }
    }

    /// A new point in the order of all that happens.
    pub(crate) fn next_tick(&mut self) -> u64 {
        self.ticks += 1;
        self.ticks
    }

    pub(crate) fn chunk(&self, key: Key) -> &Chunk {
        &self.chunks[&key]
    }

    pub(crate) fn chunk_mut(&mut self, key: Key) -> &mut Chunk {
        self.chunks.get_mut(&key).expect("the chunk is known")
    }

    pub(crate) fn is_here(&self, key: Key) -> bool {
        self.chunks.get(&key).is_some_and(|chunk| chunk.presence.is_here())
    }

    /// Why a lookup would miss the key.
    pub(crate) fn peek(&self, key: Key) -> Option<MissReason> {
        match self.chunks.get(&key) {
            None => Some(MissReason::NeverStored),
            Some(chunk) => match chunk.presence {
                Presence::Filling => Some(MissReason::Filling),
                Presence::Resident => None,
                Presence::Draining | Presence::Gone => Some(chunk.reason),
            },
        }
    }

    /// Chunks of the group that own a slot.
    pub(crate) fn used(&self, group: usize) -> usize {
        let owns = |chunk: &&Chunk| chunk.group == group && chunk.presence != Presence::Gone;
        self.chunks.values().filter(owns).count()
    }

    pub(crate) fn free(&self, group: usize) -> usize {
        self.groups[group].capacity - self.used(group)
    }

    /// The chunks here that follow `key`, the oldest child first.
    pub(crate) fn children(&self, key: Key) -> Vec<Key> {
        let mut children: Vec<(u64, Key)> = self
            .chunks
            .iter()
            .filter(|(_, chunk)| chunk.parent == Some(key) && chunk.presence.is_here())
            .map(|(child, chunk)| (chunk.adopted_at, *child))
            .collect();
        children.sort_unstable();
        children.into_iter().map(|(_, child)| child).collect()
    }

    pub(crate) fn has_children(&self, key: Key) -> bool {
        self.chunks.values().any(|chunk| chunk.parent == Some(key) && chunk.presence.is_here())
    }

    /// Takes in a chunk that nobody knows, if need be instead of the one that is gone longest.
    pub(crate) fn introduce(&mut self, key: Key, group: usize, reason: MissReason) -> bool {
        if self.chunks.len() == self.record_count {
            if self.history.is_empty() {
                return false;
            }
            let oldest = self.history.remove(0);
            self.chunks.remove(&oldest);
        }
        self.chunks.insert(key, Chunk::new(group, reason));
        true
    }

    pub(crate) fn adopt(&mut self, parent: Key, child: Key) {
        let now = self.next_tick();
        let child = self.chunk_mut(child);
        child.parent = Some(parent);
        child.adopted_at = now;
    }

    pub(crate) fn pin(&mut self, key: Key, owner: Owner) {
        let chunk = self.chunk_mut(key);
        assert_eq!(chunk.presence, Presence::Resident, "only resident chunks are read");
        chunk.readers.push(owner);
        chunk.forget_turn();
    }

    pub(crate) fn unpin(&mut self, key: Key, owner: Owner) {
        let chunk = self.chunk_mut(key);
        let reader = chunk.readers.iter().position(|reader| *reader == owner);
        chunk.readers.remove(reader.expect("a reader leaves once"));
        if !chunk.readers.is_empty() {
            return;
        }
        if chunk.presence == Presence::Draining {
            chunk.presence = Presence::Gone;
            chunk.slot = None;
            self.file_gone(key);
        } else {
            self.rank(key);
        }
    }

    pub(crate) fn rank(&mut self, key: Key) {
        let now = self.next_tick();
        let chunk = self.chunk_mut(key);
        chunk.ranked_at = now;
        chunk.forget_turn();
    }

    /// Files a gone chunk: a lost parent waits with its children, another is history.
    fn file_gone(&mut self, key: Key) {
        let is_full = self.groups[self.chunk(key).group].is_full;
        if is_full && self.has_children(key) {
            return;
        }
        for child in self.children(key) {
            self.chunk_mut(child).parent = None;
        }
        self.history.push(key);
    }

    /// Takes a chunk out of its slot, now or when its last reader leaves.
    fn leave(&mut self, key: Key, reason: MissReason) {
        let chunk = self.chunk_mut(key);
        let is_gone = chunk.readers.is_empty();
        chunk.presence = if is_gone { Presence::Gone } else { Presence::Draining };
        chunk.reason = reason;
        chunk.forget_turn();
        let group = chunk.group;
        let parent = chunk.parent.take();
        if is_gone {
            chunk.slot = None;
        }
        if let Some(parent) = parent {
            self.child_left(parent);
        }
        if self.groups[group].cursor == Some(key) {
            self.groups[group].cursor = None;
        }
        if self.groups[group].is_full && self.has_children(key) {
            self.groups[group].orphaned.push(key);
        } else if is_gone {
            self.file_gone(key);
        }
    }

    /// Takes a chunk out otherwise than by eviction.
    pub(crate) fn lose(&mut self, key: Key, reason: MissReason) {
        let group = self.chunk(key).group;
        self.groups[group].has_lost = true;
        self.leave(key, reason);
    }

    fn child_left(&mut self, parent: Key) {
        if self.has_children(parent) {
            return;
        }
        let now = self.next_tick();
        let chunk = self.chunk_mut(parent);
        if chunk.presence.is_here() {
            if std::mem::take(&mut chunk.is_passed_over) {
                chunk.returned_at = Some(now);
            }
            return;
        }
        let is_gone = chunk.presence == Presence::Gone;
        let group = chunk.group;
        let orphaned = &mut self.groups[group].orphaned;
        let place = orphaned.iter().position(|lost| *lost == parent);
        if let Some(place) = place {
            orphaned.remove(place);
            if is_gone {
                self.history.push(parent);
            }
        }
    }

    /// Spares a chunk while a store builds on it.
    pub(crate) fn protect(&mut self, key: Option<Key>) {
        let former = std::mem::replace(&mut self.protected, key);
        let Some(former) = former.filter(|former| Some(*former) != key) else {
            return;
        };
        let now = self.next_tick();
        let is_full = self.groups[self.chunk(former).group].is_full;
        if is_full && self.has_children(former) {
            return;
        }
        let chunk = self.chunk_mut(former);
        if std::mem::take(&mut chunk.is_passed_over) {
            chunk.returned_at = Some(now);
        }
    }

    /// Evicts the group's next victim.
    pub(crate) fn evict_one(&mut self, group: usize) -> Eviction {
        match self.evict_orphan(group) {
            Eviction::Freed => Eviction::Freed,
            Eviction::Nothing => self.evict_ranked(group),
        }
    }

    fn is_unread(&self, key: Key) -> bool {
        let chunk = self.chunk(key);
        chunk.presence == Presence::Resident && chunk.readers.is_empty()
    }

    fn evict_orphan(&mut self, group: usize) -> Eviction {
        let Some(lost) = self.groups[group].orphaned.first().copied() else {
            return Eviction::Nothing;
        };
        let mut leaf = self.groups[group].cursor.unwrap_or(lost);
        while let Some(child) = self.children(leaf).first() {
            leaf = *child;
        }
        if !self.is_unread(leaf) || self.protected == Some(leaf) {
            let group = &mut self.groups[group];
            group.cursor = None;
            group.orphaned.rotate_left(1);
            return Eviction::Nothing;
        }
        assert!(self.is_orphan(leaf), "what goes first is an orphan");
        let above = self.chunk(leaf).parent.filter(|above| self.is_here(*above));
        self.counters.evicted += 1;
        self.leave(leaf, MissReason::Evicted);
        self.groups[group].cursor = above;
        Eviction::Freed
    }

    /// Whether some ancestor of the chunk is lost.
    fn is_orphan(&self, key: Key) -> bool {
        let mut next = self.chunk(key).parent;
        while let Some(ancestor) = next {
            if !self.is_here(ancestor) {
                return true;
            }
            next = self.chunk(ancestor).parent;
        }
        false
    }

    fn evict_ranked(&mut self, group: usize) -> Eviction {
        let is_full = self.groups[group].is_full;
        let mut turns: Vec<Key> = self
            .chunks
            .iter()
            .filter(|(key, chunk)| {
                chunk.group == group && self.is_unread(**key) && !chunk.is_passed_over
            })
            .map(|(key, _)| *key)
            .collect();
        turns.sort_unstable_by_key(|key| {
            let chunk = self.chunk(*key);
            match chunk.returned_at {
                Some(returned_at) => (0, u64::MAX - returned_at),
                None => (1, chunk.ranked_at),
            }
        });
        for victim in turns {
            if self.protected == Some(victim) || (is_full && self.has_children(victim)) {
                let chunk = self.chunk_mut(victim);
                chunk.is_passed_over = true;
                chunk.was_passed_over = true;
                chunk.returned_at = None;
                continue;
            }
            self.check_recency(group, victim);
            self.counters.evicted += 1;
            self.leave(victim, MissReason::Evicted);
            return Eviction::Freed;
        }
        Eviction::Nothing
    }

    /// Asserts that the victim is the least recent of all that may go, as far as it must be.
    fn check_recency(&self, group: usize, victim: Key) {
        let is_full = self.groups[group].is_full;
        let victim_chunk = self.chunk(victim);
        for (key, chunk) in &self.chunks {
            let may_go = chunk.group == group
                && self.is_unread(*key)
                && self.protected != Some(*key)
                && !(is_full && self.has_children(*key));
            if may_go && chunk.ranked_at < victim_chunk.ranked_at {
                assert!(self.groups[group].has_lost, "{key:?} should leave before {victim:?}");
                assert!(
                    chunk.was_passed_over && victim_chunk.was_passed_over,
                    "{key:?} should leave before {victim:?}: not both were passed over"
                );
            }
        }
    }
}
