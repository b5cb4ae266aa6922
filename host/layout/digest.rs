//! What of a group decides the packed bytes, as bytes that a digest can take.
//!
//! The store id hashes this, so that a store is never read under another meaning of its bytes.
//! Base addresses, strides and the block count are left out: they say where the engine keeps its
//! blocks today, not what a packed chunk looks like. Called by `kvtide::fingerprint`.
//!
//! Encoding, version 1: a sequence of records, each a tag (one byte), a length (u64) and that many
//! bytes. Integers are little-endian; names are the texts that the types print.
//!
//! | tag | record | bytes |
//! |---|---|---|
//! | 0 | version | u16 |
//! | 1 | group index | u8 |
//! | 2 | `block_tokens` | u32 |
//! | 3 | `blocks_per_chunk` | u32 |
//! | 4 | attention | none if full, else window tokens u32 |
//! | 5 | element type | name |
//! | 6 | inner order | name |
//! | 7 | shard | tensor rank, of ranks, pipeline rank, of ranks: u32 each |
//! | 8 | plane; one record each, in order | layer u32, fragment u64, content's name |

use super::Shard;
use super::group::{Attention, Group};
use super::plane::Plane;

/// Version of the encoding; raised whenever any record changes.
const VERSION: u16 = 1;

/// Tags of the records.
#[derive(Clone, Copy)]
#[repr(u8)]
enum Tag {
    Version = 0,
    Index = 1,
    BlockTokens = 2,
    BlocksPerChunk = 3,
    Attention = 4,
    ElementType = 5,
    InnerOrder = 6,
    Shard = 7,
    Plane = 8,
}

impl Group {
    /// Encodes all that decides what the group's packed bytes are, and nothing else.
    ///
    /// Two groups have equal encodings exactly if index, block tokens, blocks per chunk,
    /// attention, element type, inner order, shard, and each plane's layer, content and fragment
    /// are equal. The encoding is stable across releases, or its version is raised.
    pub fn digest_input(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut put = |tag: Tag, content: &[u8]| {
            bytes.push(tag as u8);
            bytes.extend_from_slice(&(content.len() as u64).to_le_bytes());
            bytes.extend_from_slice(content);
        };
        put(Tag::Version, &VERSION.to_le_bytes());
        put(Tag::Index, &[self.index().get()]);
        put(Tag::BlockTokens, &self.block_tokens().get().to_le_bytes());
        put(Tag::BlocksPerChunk, &self.blocks_per_chunk().get().to_le_bytes());
        match self.attention() {
            Attention::Full => put(Tag::Attention, &[]),
            Attention::Window { tokens } => put(Tag::Attention, &tokens.get().to_le_bytes()),
        }
        put(Tag::ElementType, self.element_type().to_string().as_bytes());
        put(Tag::InnerOrder, self.inner_order().to_string().as_bytes());
        put(Tag::Shard, &shard_bytes(self.shard()));
        for plane in self.planes() {
            put(Tag::Plane, &plane_bytes(plane));
        }
        bytes
    }
}

/// Encodes a shard.
fn shard_bytes(shard: Shard) -> Vec<u8> {
    [shard.tensor_rank, shard.tensor_ranks, shard.pipeline_rank, shard.pipeline_ranks]
        .into_iter()
        .flat_map(u32::to_le_bytes)
        .collect()
}

/// Encodes what a plane's fragments are, not where.
fn plane_bytes(plane: &Plane) -> Vec<u8> {
    let mut bytes = plane.layer.to_le_bytes().to_vec();
    bytes.extend_from_slice(&plane.fragment.get().to_le_bytes());
    bytes.extend_from_slice(plane.content.to_string().as_bytes());
    bytes
}
