//! The engine: its blocks, what belongs into them, and which of them it may touch.
//!
//! Every chunk's bytes follow from its key and from a *version*: how often everything had been
//! cleared when they were computed. So old bytes under a good sum are still told from new ones.

use super::support::scatter;
use kvtide::device::cpu::DeviceMemory;
use kvtide::key::Key;
use kvtide::layout::engines::{KeyValueBase, KeyValueCache, LatentCache, LayerBase};
use kvtide::layout::{Attention, ElementType, Layout, Paging};
use kvtide::units::{BlockCount, BlockId, ByteCount, GroupIndex, TenantId, TokenCount};
use std::sync::Arc;

pub(crate) const GROUP_COUNT: usize = 2;
pub(crate) const BLOCKS_PER_CHUNK: usize = 2;
const BLOCK_TOKENS: u32 = CHUNK_TOKENS / 2;
pub(crate) const CHUNK_TOKENS: u32 = 8;
/// Blocks of each group.
const BLOCK_COUNT: u32 = 96;
const WINDOW_TOKENS: u32 = 20;
/// What blocks hold that are nobody's.
const SPOILT: u8 = 0xee;
/// Bytes between the planes.
const PLANE_BYTES: u64 = 16 << 10;

pub(crate) fn group_index(at: usize) -> GroupIndex {
    GroupIndex::new(u8::try_from(at).expect("two groups"))
}

/// Conversations that there are.
pub(crate) const CONVERSATION_COUNT: usize = 32;

/// Tenants: each has conversations of its own.
pub(crate) const TENANT_COUNT: usize = 2;

/// Returns whose conversation it is.
pub(crate) fn tenant_of(conversation: usize) -> TenantId {
    TenantId::new(1 + (conversation / (CONVERSATION_COUNT / TENANT_COUNT)) as u64)
}

/// The keys of a conversation's first chunks in one group: conversations share prefixes, as the
/// paths of two trees do, one a tenant.
pub(crate) fn keys(group: usize, conversation: usize, chunk_count: usize) -> Vec<Key> {
    let mut name = (conversation >> 4 << 8 | group) as u64;
    (0..chunk_count)
        .map(|chunk| {
            // Every second chunk two branches part.
            let branch = if chunk % 2 == 1 { conversation >> (chunk / 2) & 1 } else { 0 };
            name = scatter(name << 8 | (branch as u64) << 4 | chunk as u64);
            Key::from_u128(u128::from(name) << 64 | u128::from(scatter(name)))
        })
        .collect()
}

/// Device memory, and who has which block.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) memory: Arc<DeviceMemory>,
    pub(crate) layout: Layout,
    free: [Vec<BlockId>; GROUP_COUNT],
}

impl Engine {
    pub(crate) fn new() -> Self {
        let memory = DeviceMemory::allocate(ByteCount::new(4 * PLANE_BYTES)).expect("64 KiB");
        let layout = layout(memory.address());
        let mut engine = Self { memory, layout, free: [Vec::new(), Vec::new()] };
        engine.take_all_back();
        engine
    }

    /// Takes every block back: the process that lent them is gone.
    pub(crate) fn take_all_back(&mut self) {
        for group in 0..GROUP_COUNT {
            let all: Vec<BlockId> = (0..BLOCK_COUNT).map(BlockId::new).collect();
            self.spoil(group_index(group), &all);
            self.free[group] = all;
        }
    }

    /// Lends the blocks of `chunk_count` chunks; `None` when there are not enough.
    pub(crate) fn lend(&mut self, group: GroupIndex, chunk_count: usize) -> Option<Vec<BlockId>> {
        let free = &mut self.free[usize::from(group.get())];
        let kept = free.len().checked_sub(chunk_count * BLOCKS_PER_CHUNK)?;
        let blocks = free.split_off(kept);
        self.expect_spoilt(group, &blocks, "a block that was nobody's");
        Some(blocks)
    }

    /// Takes blocks back, of which nobody may read or write any more.
    pub(crate) fn take_back(&mut self, group: GroupIndex, blocks: &[BlockId]) {
        self.spoil(group, blocks);
        // Those lent last are lent again first: what is touched too late shows soon.
        self.free[usize::from(group.get())].extend_from_slice(blocks);
    }

    fn spoil(&self, group: GroupIndex, blocks: &[BlockId]) {
        self.each_fragment(group, blocks, |place, length, _| {
            self.memory.write(place, &vec![SPOILT; length]);
        });
    }

    /// Checks that nothing was written into blocks.
    pub(crate) fn expect_spoilt(&self, group: GroupIndex, blocks: &[BlockId], what: &str) {
        self.each_fragment(group, blocks, |place, length, _| {
            let found = self.read(place, length);
            assert!(found.iter().all(|byte| *byte == SPOILT), "{what} was written");
        });
    }

    /// Computes a chunk.
    pub(crate) fn compute(&self, group: GroupIndex, key: Key, version: u32, blocks: &[BlockId]) {
        self.each_fragment(group, blocks, |place, length, number| {
            self.memory.write(place, &content(key, version, number, length));
        });
    }

    /// Whether blocks hold a chunk's bytes.
    pub(crate) fn holds(
        &self,
        group: GroupIndex,
        key: Key,
        version: u32,
        blocks: &[BlockId],
    ) -> bool {
        let mut is_same = true;
        self.each_fragment(group, blocks, |place, length, number| {
            is_same &= self.read(place, length) == content(key, version, number, length);
        });
        is_same
    }

    fn read(&self, place: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.memory.read(place, &mut bytes);
        bytes
    }

    /// Calls `visit` with each fragment's place in memory, its length and its number in the chunk.
    fn each_fragment(
        &self,
        group: GroupIndex,
        blocks: &[BlockId],
        mut visit: impl FnMut(u64, usize, u64),
    ) {
        let planes = self.layout.groups()[usize::from(group.get())].planes();
        for (plane_number, plane) in (0_u64..).zip(planes) {
            for (position, block) in (0_u64..).zip(blocks) {
                let start = u64::from(block.get()) * plane.block_stride.get();
                let place = plane.base_address - self.memory.address() + start;
                let length = usize::try_from(plane.fragment.get()).expect("small");
                visit(place, length, plane_number << 32 | position);
            }
        }
    }
}

/// The bytes of one fragment of a chunk.
fn content(key: Key, version: u32, number: u64, length: usize) -> Vec<u8> {
    let seed = scatter(key.low_u64() ^ scatter(u64::from(version) << 40 ^ number));
    let words = (0..length.div_ceil(8) as u64).map(|word| scatter(seed ^ word).to_le_bytes());
    words.flatten().take(length).collect()
}

/// A full group with keys and values apart, and a window group of narrow rows: 8 tokens a chunk.
fn layout(address: u64) -> Layout {
    let blocks_per_chunk = u32::try_from(BLOCKS_PER_CHUNK).expect("two");
    let paging = |attention| Paging {
        block_tokens: TokenCount::new(BLOCK_TOKENS),
        blocks_per_chunk: BlockCount::new(blocks_per_chunk),
        block_count: BlockCount::new(BLOCK_COUNT),
        attention,
    };
    let full = KeyValueCache {
        paging: paging(Attention::Full),
        element_type: ElementType::Bf16,
        kv_heads: 1,
        head_dim: 8,
    };
    let latent = LatentCache {
        paging: paging(Attention::Window { tokens: TokenCount::new(WINDOW_TOKENS) }),
        element_type: ElementType::U8,
        row: ByteCount::new(33),
    };
    let base =
        KeyValueBase { layer: 0, key_address: address, value_address: address + PLANE_BYTES };
    let latent_base = LayerBase { layer: 1, base_address: address + 2 * PLANE_BYTES };
    Layout::builder()
        .group(full.separate(&[base]))
        .group(latent.rows(&[latent_base]))
        .build()
        .expect("the planes are disjoint")
}
