//! An engine over the pager, the CPU device and the machine's own disk. The bytes of a chunk follow
//! from its key and from the weights that computed it, so that whoever knows both can tell right
//! bytes from wrong and from outdated ones.

use crate::support::{content, scatter};
use kvtide::core::{Failure, Stage, StorePoint};
use kvtide::device::Ready;
use kvtide::device::cpu::{CpuConfig, CpuDevice, DeviceMemory};
use kvtide::fingerprint::KeyMode;
use kvtide::key::Key;
use kvtide::layout::engines::{KeyValueBase, KeyValueCache, LatentCache, LayerBase};
use kvtide::layout::{Attention, ElementType, Layout, Paging};
use kvtide::pager::{
    DiskConfig, DiskHealth, LoadChunks, OpenError, Pager, PagerConfig, StoreChunks, Ticket,
};
use kvtide::units::{BlockCount, BlockId, ByteCount, GroupIndex, TenantId, TokenCount};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longer than anything takes that ends at all.
pub(crate) const PATIENT: Duration = Duration::from_mins(1);

/// Bytes that one chunk of the first group, with the chunks of the second group over the same
/// tokens, takes up in a tier, rounded up.
pub(crate) const CHUNK_BYTES: u64 = 56 << 10;

/// Chunks of the longest prompt in the first group; the second has twice as many.
pub(crate) const CHUNKS_MAX: u32 = 8;

/// Prompts that share prefixes, four of them the longest one.
const CONVERSATIONS: u64 = 12;

const BLOCKS_PER_CHUNK: u32 = 2;

/// Of each group, planes and bytes of a fragment.
const SHAPES: [(u64, usize); 2] = [(4, 4096), (2, 264)];

/// Chunks of each group over the tokens of one chunk of the first.
const CHUNKS_PER_STEP: [u32; 2] = [1, 2];

/// What blocks hold before a load.
const SPOILT: u8 = 0xee;

/// Blocks of a prompt that nothing else uses meanwhile.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Area {
    Load,
    Store,
    OtherStore,
}

const AREA_COUNT: u32 = 3;

/// Returns what a chunk of a group holds that was computed with these weights: its fragments, plane
/// by plane.
pub(crate) fn chunk_bytes(group: usize, key: Key, weights: u64) -> Vec<u8> {
    let (planes, fragment_bytes) = SHAPES[group];
    let mut bytes = Vec::new();
    for fragment in 0..planes * u64::from(BLOCKS_PER_CHUNK) {
        let seed = scatter(key.low_u64() ^ scatter(weights << 8 | fragment));
        let words = (0..).flat_map(|word| scatter(seed ^ word).to_le_bytes());
        bytes.extend(words.take(fragment_bytes));
    }
    bytes
}

/// The beginning of a conversation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prompt {
    pub(crate) conversation: u64,
    /// Chunks of the first group.
    pub(crate) chunk_count: u32,
}

impl Prompt {
    /// Draws one.
    pub(crate) fn drawn(chance: u64) -> Self {
        let chunk_count = 1 + u32::try_from(chance >> 40).expect("24 bits") % CHUNKS_MAX;
        Self { conversation: chance % CONVERSATIONS, chunk_count }
    }

    /// Returns the longest of a conversation.
    pub(crate) fn whole(conversation: u64) -> Self {
        Self { conversation, chunk_count: CHUNKS_MAX }
    }

    /// Returns the longest of every conversation.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..CONVERSATIONS).map(Self::whole)
    }

    /// Returns the keys of each group.
    pub(crate) fn keys(self) -> [Vec<Key>; 2] {
        let Self { conversation, chunk_count } = self;
        [0, 1].map(|group| {
            let per_step = CHUNKS_PER_STEP[group];
            let key = |chunk: u32| {
                let is_shared = u64::from(chunk / per_step) < conversation % 4;
                let owner = if is_shared { 0 } else { conversation + 1 };
                let name = scatter(owner << 32 | u64::from(chunk) << 8 | group as u64);
                Key::from_u128(u128::from(name) << 64 | u128::from(scatter(name)))
            };
            (0..chunk_count * per_step).map(key).collect()
        })
    }
}

/// A chunk that a lookup found.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) group: usize,
    pub(crate) key: Key,
    /// Its bytes as they were handed over, or why they were not.
    pub(crate) bytes: Result<Vec<u8>, Failure>,
}

/// An engine's pager, and what its blocks lie in.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) pager: Pager,
    memory: Arc<DeviceMemory>,
    layout: Layout,
}

/// Returns the settings of a disk tier of about `chunks` chunks.
pub(crate) fn disk_tier(root: &Path, chunks: u64) -> DiskConfig {
    let content = content("real faults", KeyMode::EngineHashes);
    let overhead_bytes = 512 << 10;
    DiskConfig::new(root, ByteCount::new(overhead_bytes + chunks * CHUNK_BYTES), content)
}

/// Makes a layout of two full groups, whose planes lie one after another.
fn layout(memory: &DeviceMemory) -> Layout {
    let base = |number: u64| memory.address() + number * (1 << 20);
    let paging = |block_tokens, blocks| Paging {
        block_tokens: TokenCount::new(block_tokens),
        blocks_per_chunk: BlockCount::new(BLOCKS_PER_CHUNK),
        block_count: BlockCount::new(blocks),
        attention: Attention::Full,
    };
    let blocks = AREA_COUNT * CHUNKS_MAX * BLOCKS_PER_CHUNK;
    let wide = KeyValueCache {
        paging: paging(16, blocks),
        element_type: ElementType::Bf16,
        kv_heads: 4,
        head_dim: 32,
    };
    let layers = [0, 1].map(|layer| KeyValueBase {
        layer,
        key_address: base(u64::from(layer) * 2),
        value_address: base(u64::from(layer) * 2 + 1),
    });
    // Fragments that are no multiple of 16 bytes.
    let narrow = LatentCache {
        paging: paging(8, 2 * blocks),
        element_type: ElementType::U8,
        row: ByteCount::new(33),
    };
    let narrow_layers =
        [2, 3].map(|layer| LayerBase { layer, base_address: base(u64::from(layer) + 2) });
    Layout::builder()
        .group(wide.separate(&layers))
        .group(narrow.rows(&narrow_layers))
        .build()
        .expect("the planes are disjoint")
}

impl Engine {
    /// Opens an engine whose host tier of about `host_chunks` chunks lies in front of a disk tier.
    pub(crate) fn open(host_chunks: u64, disk: DiskConfig) -> Result<Self, OpenError> {
        let memory = DeviceMemory::allocate(ByteCount::new(6 << 20)).expect("6 MiB");
        let layout = layout(&memory);
        let config = CpuConfig { out_pieces: 4, in_pieces: 4 };
        let device = CpuDevice::open(&layout, vec![Arc::clone(&memory)], config).expect("opens");
        let capacity = ByteCount::new(host_chunks * CHUNK_BYTES);
        let mut config = PagerConfig::new(layout.clone(), capacity);
        config.disk = Some(disk);
        let pager = Pager::open(&config, device)?;
        Ok(Self { pager, memory, layout })
    }

    /// Returns the blocks of an area that hold the chunks of a group from number `first` on.
    fn blocks(group: usize, area: Area, first: usize, count: usize) -> Vec<BlockId> {
        let per_chunk = BLOCKS_PER_CHUNK as usize;
        let per_area = (CHUNKS_MAX * CHUNKS_PER_STEP[group]) as usize * per_chunk;
        let start = area as usize * per_area + first * per_chunk;
        let ids = start..start + count * per_chunk;
        ids.map(|id| BlockId::new(u32::try_from(id).expect("few blocks"))).collect()
    }

    /// Returns where the fragments of a chunk's blocks lie in memory.
    fn places(&self, group: usize, blocks: &[BlockId]) -> Vec<u64> {
        let planes = self.layout.groups()[group].planes().iter();
        let of_plane = planes.flat_map(|plane| {
            let base = plane.base_address - self.memory.address();
            blocks.iter().map(move |block| base + u64::from(block.get()) * plane.block_stride.get())
        });
        of_plane.collect()
    }

    fn write(&self, group: usize, blocks: &[BlockId], bytes: &[u8]) {
        let fragments = bytes.chunks(SHAPES[group].1);
        for (place, fragment) in self.places(group, blocks).into_iter().zip(fragments) {
            self.memory.write(place, fragment);
        }
    }

    fn read(&self, group: usize, blocks: &[BlockId]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for place in self.places(group, blocks) {
            let mut fragment = vec![0; SHAPES[group].1];
            self.memory.read(place, &mut fragment);
            bytes.extend(fragment);
        }
        bytes
    }

    /// Looks a prompt up, loads everything that hits, and returns it with the chunks of the first
    /// group that need not be computed.
    ///
    /// What a load did not hand over must not have been written.
    pub(crate) fn load(&self, prompt: Prompt) -> (u32, Vec<Loaded>) {
        let keys = prompt.keys();
        let lists: Vec<&[Key]> = keys.iter().map(Vec::as_slice).collect();
        let plan = self.pager.lookup(&lists).expect("a plan is free");
        let steps = plan.tokens().get() / self.layout.groups()[0].chunk_tokens().get();
        let mut loaded = Vec::new();
        for (group, keys) in keys.iter().enumerate() {
            let count = (steps * CHUNKS_PER_STEP[group]) as usize;
            if count == 0 {
                continue;
            }
            let per_chunk = BLOCKS_PER_CHUNK as usize;
            let blocks = Self::blocks(group, Area::Load, 0, count);
            let chunk_spoilt = vec![SPOILT; SHAPES[group].1 * per_chunk * self.planes(group)];
            for blocks in blocks.chunks(per_chunk) {
                self.write(group, blocks, &chunk_spoilt);
            }
            let request = LoadChunks {
                group: group_index(group),
                keys: &keys[..count],
                blocks: &blocks,
                ready: Ready::Now,
                timeout: None,
            };
            let report = self.pager.load(&plan, request).expect("a good request").wait();
            for (at, stage) in report.stages.iter().enumerate() {
                let found = self.read(group, &blocks[at * per_chunk..][..per_chunk]);
                let bytes = match stage {
                    Stage::Done => Ok(found),
                    Stage::Failed(failure) => {
                        assert_eq!(found, chunk_spoilt, "written, though it failed: {failure}");
                        Err(*failure)
                    }
                    stage => panic!("a ticket has ended at {stage:?}"),
                };
                loaded.push(Loaded { group, key: keys[at], bytes });
            }
        }
        (steps, loaded)
    }

    fn planes(&self, group: usize) -> usize {
        self.layout.groups()[group].planes().len()
    }

    /// Computes a prompt from its chunk `first` on, in blocks of an area that is not in use, and
    /// begins to store it.
    pub(crate) fn store(
        &self,
        area: Area,
        prompt: Prompt,
        first: u32,
        weights: u64,
    ) -> Vec<Ticket> {
        let mut tickets = Vec::new();
        for (group, keys) in prompt.keys().iter().enumerate() {
            let first = (first * CHUNKS_PER_STEP[group]) as usize;
            if first == keys.len() {
                continue;
            }
            let blocks = Self::blocks(group, area, first, keys.len() - first);
            for (key, blocks) in keys[first..].iter().zip(blocks.chunks(BLOCKS_PER_CHUNK as usize))
            {
                self.write(group, blocks, &chunk_bytes(group, *key, weights));
            }
            let request = StoreChunks {
                group: group_index(group),
                parent: first.checked_sub(1).map(|before| keys[before]),
                keys: &keys[first..],
                blocks: &blocks,
                tenant: TenantId::new(0),
                ready: Ready::Now,
                timeout: None,
            };
            tickets.push(self.pager.store(request).expect("a good request"));
        }
        tickets
    }

    /// Runs a prompt as an engine does: what hits is loaded and compared, the rest is computed and
    /// stored. Returns how many chunks were compared, and how each ended that did not end well.
    pub(crate) fn request(&self, prompt: Prompt, weights: u64) -> (usize, Vec<Failure>) {
        let (steps, loaded) = self.load(prompt);
        let mut compared = 0;
        let mut failures = Vec::new();
        for Loaded { group, key, bytes } in loaded {
            match bytes {
                Ok(bytes) => {
                    assert!(bytes == chunk_bytes(group, key, weights), "wrong bytes of {key}");
                    compared += 1;
                }
                Err(failure) => failures.push(failure),
            }
        }
        for ticket in self.store(Area::Store, prompt, steps, weights) {
            let stages = ticket.wait().stages.into_iter();
            failures.extend(stages.filter_map(|stage| match stage {
                Stage::Failed(failure) => Some(failure),
                _ => None,
            }));
        }
        (compared, failures)
    }

    /// Returns those keys whose chunk came at least as far as `point`.
    pub(crate) fn at_least(&self, point: StorePoint, keys: &[Key]) -> Vec<Key> {
        let is_there = |key: &&Key| self.pager.point(**key).is_some_and(|there| there >= point);
        keys.iter().filter(is_there).copied().collect()
    }

    /// Waits until the disk tier is as it should be.
    pub(crate) fn wait_for(&self, is_there: impl Fn(&DiskHealth) -> bool) -> DiskHealth {
        let start = Instant::now();
        loop {
            let health = self.pager.disk_health().expect("a disk tier");
            if is_there(&health) {
                return health;
            }
            assert!(start.elapsed() < PATIENT, "the disk tier stays {health}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn group_index(group: usize) -> GroupIndex {
    GroupIndex::new(u8::try_from(group).expect("two groups"))
}
