//! Clearing and erasing: everything that is stored, the chunks of a tenant, or single chunks are
//! dropped at once, and what they leave behind step by step.
//!
//! A chunk that was dropped and is still here, or still held, is *stale*: not found by any command,
//! so that its key can be stored again at once, as a new chunk. Single chunks leave within the
//! command. [`Core::clear`] and [`Core::erase_tenant`] begin a new *epoch* instead: each chunk
//! remembers the epoch in which it came, and is stale if it came before a clear, or before the
//! erasure of its tenant. The sweep (`sweep.rs`) has stale chunks leave.
//!
//! A stale chunk whose key is stored again loses its name in the index and is forgotten when its
//! slots are free. Children that it still has belong to the new one, and go over to it one by one
//! as they are met.
//!
//! Invariants: no hop begins for a stale chunk; a hop of one that is under way ends as cleared.
//!
//! Called by the pager under its lock.

use super::chunk::{Chunk, ChunkIndex, Presence};
use super::tier::Tier;
use super::transfer::{Failure, Hop, Stage};
use super::{Core, KEY_COUNT_MAX, MissReason, Refused};
use crate::key::Key;
use crate::units::TenantId;

impl Core {
    /// Drops everything that is stored: from now on none of it is found, loaded or written.
    ///
    /// Transfers under way end as [`Failure::Cleared`], those with a hop in flight when that
    /// completes. Plans hold nothing any more that can be loaded. The same keys can be stored again
    /// at once. Slots become free in this and the following steps.
    ///
    /// What recovery finds on disk afterwards is the caller's to judge: the core cannot tell what
    /// was there before.
    pub fn clear(&mut self) {
        self.run_guarded(|core| {
            while core.sweep.epoch_count == u8::MAX {
                core.sweep_some();
            }
            core.begin_epoch();
            core.sweep.cleared = Some(core.epoch);
            core.sweep.tenants.clear();
            core.sweep_some();
            core.launch();
        });
    }

    /// Drops what is stored of a tenant, as [`clear`](Core::clear) drops everything; all else
    /// stays.
    ///
    /// Returns false when so much was erased lately that a step of the sweep had to be done first:
    /// call it again. Chunks below those that go are orphans, and the first victims.
    ///
    /// Of tenants numbered from 2^32 on it may take another's chunks too, one tenant in 2^32.
    ///
    /// # Errors
    ///
    /// [`Refused::Poisoned`].
    pub fn erase_tenant(&mut self, tenant: TenantId) -> Result<bool, Refused> {
        self.guarded(|core| {
            let tenant = tenant.tag();
            let has_room = core.sweep.has_room_for(tenant);
            if has_room {
                core.begin_epoch();
                core.sweep.tenants.retain(|(known, _)| *known != tenant);
                core.sweep.tenants.push((tenant, core.epoch));
            }
            core.sweep_some();
            core.launch();
            Ok(has_room)
        })
    }

    /// Drops up to 64 chunks, as [`clear`](Core::clear) drops everything; all else stays. A key
    /// that is not stored is left alone. Chunks below those that go are orphans, and the first
    /// victims.
    ///
    /// # Errors
    ///
    /// [`Refused::KeyCount`] and [`Refused::Poisoned`].
    pub fn erase_keys(&mut self, keys: &[Key]) -> Result<(), Refused> {
        self.guarded(|core| {
            Refused::check_keys(keys)?;
            for key in keys {
                if let Some(index) = core.find(*key) {
                    core.drop_chunk(index);
                }
            }
            core.sweep.is_running = true;
            core.sweep.transfer = 0;
            core.sweep_some();
            core.launch();
            Ok(())
        })
    }

    /// Whether a chunk was cleared or erased since it was stored. One that is gone is not: nothing
    /// of it is left.
    pub(super) fn is_stale(&self, index: ChunkIndex) -> bool {
        let chunk = self.chunks.at(index);
        let was_dropped = || chunk.epoch != self.epoch && self.sweep.covers(chunk, self.epoch);
        match chunk.presence {
            Presence::Gone | Presence::Vacant => false,
            Presence::Draining => chunk.reason == MissReason::Cleared || was_dropped(),
            Presence::Here => was_dropped(),
        }
    }

    /// Finds the chunk of a key, if it is not stale.
    pub(super) fn find(&self, key: Key) -> Option<ChunkIndex> {
        self.index.find(key, self.chunks.records()).filter(|index| !self.is_stale(*index))
    }

    /// Finds the chunks of up to 64 keys that are not stale.
    pub(super) fn find_many(&self, keys: &[Key]) -> [Option<ChunkIndex>; KEY_COUNT_MAX] {
        let mut found = [None; KEY_COUNT_MAX];
        self.index.find_many(keys, self.chunks.records(), &mut found);
        found.map(|found| found.filter(|index| !self.is_stale(*index)))
    }

    /// Takes the name of a stale chunk away, because its key comes back: also of one that has left
    /// since, in favour of what comes.
    pub(super) fn forget_stale(&mut self, key: Key) {
        let Some(index) = self.index.find(key, self.chunks.records()) else {
            return;
        };
        let presence = self.chunks.at(index).presence;
        assert!(presence == Presence::Gone || self.is_stale(index), "a key names one chunk");
        self.index.remove(key, index);
        self.chunks.unname(index);
    }

    /// Whether a chunk hangs below the stale record of a key that was stored again as `parent`, and
    /// so belongs below that.
    pub(super) fn is_below_stale_twin(&self, parent: ChunkIndex, child: ChunkIndex) -> bool {
        let known = self.chunks.at(child).parent;
        known != parent
            && known != ChunkIndex::NONE
            && parent != ChunkIndex::NONE
            && self.chunks.at(known).key == self.chunks.at(parent).key
    }

    /// Lets such a chunk go over to `parent`; returns whether it could. A pinned one stays where it
    /// is, since plans walk up to what they pinned.
    pub(super) fn leave_stale_twin(&mut self, parent: ChunkIndex, child: ChunkIndex) -> bool {
        let Chunk { parent: twin, pins, depth, .. } = *self.chunks.at(child);
        let at = self.chunks.at(child).at();
        let has_moved = depth != self.chunks.depth_below(parent);
        if pins > 0 || (has_moved && self.groups[at].spares_ancestors()) {
            return false;
        }
        self.chunks.disown(twin, child);
        self.chunks.adopt(parent, child);
        self.child_left(at, twin);
        self.groups[at].reset_orphan_cursors();
        true
    }

    /// Ends a position whose hop completed after its chunk was cleared or erased.
    pub(super) fn hop_cleared(&mut self, index: u32, position: usize, hop: Hop) {
        self.return_staging(index);
        let chunk = self.transfers.at(index).chunks[position];
        match hop {
            Hop::Pack | Hop::OutLink => {
                self.end_joined(chunk, Err(Failure::Cleared));
                self.fill_failed(chunk, MissReason::Cleared);
            }
            Hop::InLink | Hop::Unpack => self.let_go(chunk),
        }
        self.set_stage(index, position, Stage::Failed(Failure::Cleared));
    }

    /// Ends a position that waits for staging or a read, if its chunk is stale. Returns whether it
    /// was.
    pub(super) fn end_if_stale(&mut self, index: u32, position: usize) -> bool {
        let is_stale = self.is_stale(self.transfers.at(index).chunks[position]);
        if is_stale {
            self.give_up_at(index, position, Failure::Cleared);
            self.announce(index);
            self.close_if_over(index);
        }
        is_stale
    }

    /// Frees the host slot of a store's chunk that did not come, and gives the chunk up if it has
    /// no other copy. Returns whether it left.
    pub(super) fn fill_failed(&mut self, chunk: ChunkIndex, reason: MissReason) -> bool {
        self.abandon_fill(chunk, Tier::Host);
        match self.chunks.at(chunk).presence {
            Presence::Here if self.chunks.at(chunk).slot(Tier::Disk).is_none() => {
                self.leave(chunk, reason);
                return true;
            }
            Presence::Here => self.settle(chunk),
            _ => self.finish_leaving(chunk),
        }
        false
    }
}
