//! What the store tells of a chunk that it holds: all that an index needs, nothing that only a
//! load needs.

use super::format::Header;
use super::ids::Generation;
use crate::key::Key;
use crate::units::{BlockCount, SlotIndex, TenantId};

/// A chunk in a slot.
///
/// From a snapshot and from a header alike. What recomputing it would cost is left out: it follows
/// from depth and blocks by rates that the pager measures anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The slot.
    pub slot: SlotIndex,
    /// The chunk's key.
    pub key: Key,
    /// The key of the chunk before it in its prefix; `None` for a root.
    pub parent: Option<Key>,
    /// The write that put it there.
    pub generation: Generation,
    /// Whose it is.
    pub tenant: TenantId,
    /// Chunks before it in its prefix.
    pub depth: u32,
    /// Its blocks: 1 to 65,535.
    pub blocks: BlockCount,
    /// When its life ends, in seconds since 1970; 0: never.
    pub expires_s: u32,
}

impl Entry {
    /// Takes what an index needs out of a header.
    pub const fn of_header(header: &Header) -> Self {
        let Header { identity, stamp } = header;
        Self {
            slot: stamp.slot,
            key: identity.key,
            parent: identity.parent,
            generation: stamp.generation,
            tenant: identity.tenant,
            depth: identity.depth,
            blocks: identity.blocks,
            expires_s: identity.expires_s,
        }
    }

    /// Whether the chunk's life is over at `now_s`, in seconds since 1970.
    pub const fn is_expired(&self, now_s: u64) -> bool {
        self.expires_s != 0 && self.expires_s as u64 <= now_s
    }
}
