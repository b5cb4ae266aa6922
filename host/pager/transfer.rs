//! Stores and loads: what an engine asks for, checked at the edge and cut into transfers.

use super::shared::{CapturedEvent, Job, transfer_range};
use super::ticket::{Ticket, TicketState};
use super::{Pager, Plan};
use crate::core::{
    Failure, LoadRequest, LookupError, Refused, Room, Stage, StoreRequest, TransferId,
};
use crate::device::{ChunkBlocks, DeviceError, Ready};
use crate::key::Key;
use crate::layout::{Group, LayoutError};
use crate::units::{BlockId, GroupIndex, TenantId};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;

/// Chunks to be stored: consecutive whole chunks of one prefix.
#[derive(Clone, Copy, Debug)]
pub struct StoreChunks<'a> {
    /// The group whose blocks hold them.
    pub group: GroupIndex,
    /// The chunk before the first one; `None` when that is the prompt's first.
    pub parent: Option<Key>,
    /// Their keys, root first.
    pub keys: &'a [Key],
    /// `blocks_per_chunk` block ids a key, in token order.
    pub blocks: &'a [BlockId],
    /// Whose they are: for erasing all that is a tenant's. What keeps its keys apart from others'
    /// is its [`TenantSalt`](crate::key::TenantSalt). A chunk that is stored already stays whose
    /// it was.
    pub tenant: TenantId,
    /// When the blocks hold the chunks' KV. A store that reads none of them does not wait for it.
    pub ready: Ready,
    /// How long what has not begun may wait; `None` for the pager's `ticket_timeout`.
    pub timeout: Option<Duration>,
}

/// Chunks to be loaded.
#[derive(Clone, Copy, Debug)]
pub struct LoadChunks<'a> {
    /// The group whose blocks receive them.
    pub group: GroupIndex,
    /// Their keys: of the plan that holds them.
    pub keys: &'a [Key],
    /// `blocks_per_chunk` block ids a key, each at most once; [`BlockId::SKIP`] verifies a block
    /// but does not write it.
    pub blocks: &'a [BlockId],
    /// When the blocks may be written.
    pub ready: Ready,
    /// How long what has not begun may wait; `None` for the pager's `ticket_timeout`.
    pub timeout: Option<Duration>,
}

/// What a ticket moves.
#[derive(Clone, Copy, Debug)]
struct Moved<'a> {
    keys: &'a [Key],
    blocks: &'a [BlockId],
    ready: Ready,
    /// Whose they are; says nothing in a load.
    tenant: TenantId,
}

/// Why a call was refused as a whole. Nothing was changed by it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The group is not in the layout.
    #[error("group {group}: the layout has {group_count} groups, numbered from 0")]
    NoSuchGroup {
        /// The group asked for.
        group: GroupIndex,
        /// Groups that there are.
        group_count: usize,
    },
    /// A lookup needs one list of keys a group.
    #[error(
        "keys: {given} lists for {group_count} groups; give one a group, in the layout's order"
    )]
    GroupCount {
        /// Lists given.
        given: usize,
        /// Groups of the layout.
        group_count: usize,
    },
    /// No key was given.
    #[error("keys: empty; give at least one")]
    NoKeys,
    /// Keys and blocks do not match.
    #[error(
        "blocks: {given} ids for {key_count} keys; group {group} takes {blocks_per_chunk} a key, \
         so {expected}"
    )]
    BlockCount {
        /// The group.
        group: GroupIndex,
        /// Ids given.
        given: usize,
        /// Keys given.
        key_count: usize,
        /// Blocks of one chunk.
        blocks_per_chunk: u32,
        /// Ids that the keys call for.
        expected: u64,
    },
    /// A block id that is no block of the group.
    #[error(transparent)]
    Block(#[from] LayoutError),
    /// A load names a block twice: two chunks would be written over each other.
    #[error("blocks: id {block} is given twice in one load; each block receives one chunk's part")]
    RepeatedBlock {
        /// The block.
        block: BlockId,
    },
    /// A lookup could not begin or go on.
    #[error(transparent)]
    Lookup(#[from] LookupError),
    /// The core refused.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The device does not know the event.
    #[error(transparent)]
    Device(DeviceError),
    /// The pager is closing.
    #[error("the pager is closing; open another one")]
    Closing,
    /// This process is a fork of the one that opened the pager.
    #[error("the pager belongs to another process; open one after the fork")]
    Forked,
}

impl Pager {
    /// Stores chunks that are not stored yet, and joins stores of the same keys under way.
    ///
    /// Returns at once. The ticket is *released* when the blocks are no longer read; until then
    /// the engine must not overwrite them. A chunk that has no room, or whose parent is missing,
    /// fails alone with those after it; that is a miss later on, not an error of the call.
    ///
    /// # Errors
    ///
    /// [`RequestError`] names what is wrong with the request.
    pub fn store(&self, chunks: StoreChunks<'_>) -> Result<Ticket, RequestError> {
        let group = self.check_request(chunks.group, chunks.keys, chunks.blocks)?;
        for block in chunks.blocks {
            group.check_block_id(*block)?;
        }
        let deadline = self.shared.deadline(self.timeout(chunks.timeout));
        let tenant = chunks.tenant;
        let request = |first: usize, keys| {
            let parent = first.checked_sub(1).map(|before| chunks.keys[before]);
            let parent = parent.or(chunks.parent);
            StoreRequest { group: chunks.group, parent, keys, tenant, deadline }
        };
        let moved = Moved { keys: chunks.keys, blocks: chunks.blocks, ready: chunks.ready, tenant };
        self.transfer(group, moved, |first, keys, open| {
            let request = request(first, keys);
            while self.shared.command(|core| core.make_room_for(request))? == Room::MoreWork {}
            self.shared.open_transfer(|core| core.store(request), open)
        })
    }

    /// Loads chunks that `plan` holds into the engine's blocks.
    ///
    /// Returns at once. A block is not touched before `ready`, nor after the ticket has ended, and
    /// bytes that do not match their sums are never written. A chunk that cannot be loaded fails
    /// alone: recompute from the first that failed.
    ///
    /// # Errors
    ///
    /// [`RequestError`] names what is wrong with the request.
    pub fn load(&self, plan: &Plan, chunks: LoadChunks<'_>) -> Result<Ticket, RequestError> {
        let group = self.check_request(chunks.group, chunks.keys, chunks.blocks)?;
        check_targets(group, chunks.blocks)?;
        plan.renew()?;
        let deadline = self.shared.deadline(self.timeout(chunks.timeout));
        let LoadChunks { keys, blocks, ready, .. } = chunks;
        let moved = Moved { keys, blocks, ready, tenant: TenantId::default() };
        self.transfer(group, moved, |_, keys, open| {
            let request = LoadRequest { group: chunks.group, keys, deadline };
            self.shared.open_transfer(|core| core.load(request), open)
        })
    }

    fn timeout(&self, timeout: Option<Duration>) -> Duration {
        timeout.unwrap_or(self.shared.setup.ticket_timeout)
    }

    /// Opens one transfer for each 64 chunks under one ticket.
    ///
    /// When the core refuses a later one, the chunks from there on fail and the ticket goes on
    /// with those before; when it refuses the first, so is the call.
    fn transfer<'k>(
        &self,
        group: &Group,
        moved: Moved<'k>,
        open: impl Fn(usize, &'k [Key], &dyn Fn(TransferId) -> Job) -> Result<TransferId, Refused>,
    ) -> Result<Ticket, RequestError> {
        let Moved { keys, blocks, ready, tenant } = moved;
        let initial = Stage::Failed(Failure::Busy);
        let state = Arc::new(TicketState::new(keys.len(), initial));
        let blocks_per_chunk = group.blocks_per_chunk().get() as usize;
        let captured = match ready {
            Ready::Now => None,
            Ready::After(event) => {
                Some(Arc::new(CapturedEvent::new(&self.shared.setup.device, event)?))
            }
        };
        let ready = captured.as_ref().map_or(Ready::Now, |captured| captured.ready());
        let image = self.shared.setup.packings[usize::from(group.index().get())].slot();
        let mut first = 0;
        while first < keys.len() {
            let range = transfer_range(first, keys.len());
            let chunks: Vec<ChunkBlocks> = range
                .clone()
                .map(|chunk| ChunkBlocks {
                    group: group.index(),
                    key: keys[chunk],
                    blocks: blocks[chunk * blocks_per_chunk..(chunk + 1) * blocks_per_chunk].into(),
                    ready,
                })
                .collect();
            let job = |id| {
                state.add_transfer(id, range.clone());
                let ticket = Arc::clone(&state);
                Job { ticket, chunks: chunks.clone(), image, tenant, _captured: captured.clone() }
            };
            match open(first, &keys[range.clone()], &job) {
                Ok(_) => {}
                Err(refused) if first == 0 => return Err(refused.into()),
                Err(_) => break,
            }
            first = range.end;
        }
        Ok(Ticket { state, shared: Arc::clone(&self.shared) })
    }

    /// Checks what stores and loads have in common, and returns the group.
    fn check_request(
        &self,
        group: GroupIndex,
        keys: &[Key],
        blocks: &[BlockId],
    ) -> Result<&Group, RequestError> {
        self.check_open()?;
        let groups = self.shared.setup.layout.groups();
        let group_count = groups.len();
        let found = groups.get(usize::from(group.get()));
        let found = found.ok_or(RequestError::NoSuchGroup { group, group_count })?;
        if keys.is_empty() {
            return Err(RequestError::NoKeys);
        }
        let blocks_per_chunk = found.blocks_per_chunk().get();
        let expected = keys.len() as u64 * u64::from(blocks_per_chunk);
        if blocks.len() as u64 != expected {
            let (given, key_count) = (blocks.len(), keys.len());
            return Err(RequestError::BlockCount {
                group,
                given,
                key_count,
                blocks_per_chunk,
                expected,
            });
        }
        Ok(found)
    }
}

/// Checks that a load's blocks exist and that none is given twice.
fn check_targets(group: &Group, blocks: &[BlockId]) -> Result<(), RequestError> {
    let mut sorted: Vec<BlockId> =
        blocks.iter().copied().filter(|block| *block != BlockId::SKIP).collect();
    for block in &sorted {
        group.check_block_id(*block)?;
    }
    sorted.sort_unstable();
    match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(RequestError::RepeatedBlock { block: pair[0] }),
        None => Ok(()),
    }
}
