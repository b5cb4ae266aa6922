//! The paging core as a cache to be replayed against.
//!
//! Each request goes the way an engine's would: one lookup whose plan pins the hits, one store
//! command for every 64 missing chunks, each hop completed at once, then the plan is dropped. What
//! differs from production is that no byte moves and nothing waits. Called by the dry run.

use super::cache::{ChunkCache, RequestOutcome, key_of};
use super::request::Request;
use crate::core::{
    Action, ConfigError, Core, CoreConfig, GroupConfig, GroupKeys, KEY_COUNT_MAX, Lookup,
    LookupError, PrefixHit, Refused, Room, Stage, StoreRequest,
};
use crate::key::Key;
use crate::layout::Attention;
use crate::units::{BlockCount, ChunkCount, GroupIndex, TenantId, Timestamp, TokenCount};
use thiserror::Error;

const GROUP: GroupIndex = GroupIndex::new(0);

/// A dry run has no clock: all of it happens at one instant.
const NOW: Timestamp = Timestamp::new(0);

/// Why the core could not run a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CoreCacheError {
    /// The capacity cannot work.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A lookup could not begin.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// A command was refused.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// A core with one full group whose chunks are trace blocks.
#[derive(Debug)]
pub struct CoreCache {
    core: Core,
    keys: Vec<Key>,
    actions: Vec<Action>,
}

impl CoreCache {
    /// Makes a core that holds `capacity` chunks.
    ///
    /// # Errors
    ///
    /// [`CoreCacheError::Config`] when the capacity cannot work, such as one of 0 chunks.
    pub fn new(capacity: ChunkCount) -> Result<Self, CoreCacheError> {
        let group = GroupConfig {
            slot_count: capacity.get(),
            attention: Attention::Full,
            pieces_per_chunk: 1,
            disk_slot_counts: Vec::new(),
        };
        let core = Core::new(&CoreConfig::new(vec![group]))?;
        Ok(Self { core, keys: Vec::new(), actions: Vec::new() })
    }

    /// Returns the core, to be audited or asked for its counters.
    pub fn core(&self) -> &Core {
        &self.core
    }

    fn lookup(&mut self) -> Result<PrefixHit, CoreCacheError> {
        let groups = [GroupKeys {
            keys: &self.keys,
            chunk_tokens: TokenCount::new(1),
            attention: Attention::Full,
        }];
        let mut lookup = Lookup::begin(&mut self.core, &groups, NOW)?;
        loop {
            if let Some(hit) = lookup.step(&mut self.core)? {
                return Ok(hit);
            }
        }
    }

    /// Stores the chunks from `first` on, until one has no room.
    fn store_from(&mut self, first: usize) -> Result<(), CoreCacheError> {
        let mut parent = first.checked_sub(1).map(|before| self.keys[before]);
        for start in (first..self.keys.len()).step_by(KEY_COUNT_MAX) {
            let end = self.keys.len().min(start + KEY_COUNT_MAX);
            let keys = &self.keys[start..end];
            let request = StoreRequest {
                group: GROUP,
                parent,
                keys,
                tenant: TenantId::new(0),
                deadline: Timestamp::NEVER,
            };
            while self.core.make_room_for(request)? == Room::MoreWork {}
            let transfer = self.core.store(request)?;
            parent = keys.last().copied();
            self.complete_hops();
            let stages = self.core.stages(transfer).unwrap_or_default();
            let is_whole = stages.iter().all(|stage| *stage == Stage::Done);
            self.core.detach(transfer);
            if !is_whole {
                break;
            }
        }
        Ok(())
    }

    /// Completes all hops, the last chunk's first: so the core sees leaves used before roots.
    fn complete_hops(&mut self) {
        loop {
            self.core.take_actions(&mut self.actions);
            if self.actions.is_empty() {
                return;
            }
            for action in self.actions.drain(..).rev() {
                if let Action::Start(hop) = action {
                    self.core.complete(hop.ended(Ok(())));
                }
            }
        }
    }
}

impl ChunkCache for CoreCache {
    type Error = CoreCacheError;

    fn run(&mut self, request: &Request) -> Result<RequestOutcome, Self::Error> {
        let evicted_before = self.core.counters().evicted;
        self.keys.clear();
        self.keys.extend(request.blocks().map(|block| key_of(request, block)));
        let hit = self.lookup()?;
        let hit_count = hit.tokens.get();
        self.store_from(hit_count as usize)?;
        self.core.drop_plan(hit.plan);
        while self.core.has_backlog() {
            self.core.tick(NOW)?;
        }
        let evicted = self.core.counters().evicted - evicted_before;
        Ok(RequestOutcome {
            hits: BlockCount::new(hit_count),
            evictions: ChunkCount::new(u32::try_from(evicted).unwrap_or(u32::MAX)),
        })
    }
}
