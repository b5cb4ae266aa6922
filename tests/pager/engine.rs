//! An engine over the pager and the CPU device: a full and a window group, blocks that hold bytes
//! derived from keys, and workers that store, load and compare.

use crate::support::scatter;
use kvtide::core::{Failure, Stage};
use kvtide::device::cpu::{CpuConfig, CpuDevice, CpuStream, DeviceMemory};
use kvtide::device::{Device, EventHandle, Ready};
use kvtide::io::sim::SimDisk;
use kvtide::key::Key;
use kvtide::layout::engines::{KeyValueBase, KeyValueCache, LatentCache, LayerBase};
use kvtide::layout::{Attention, ElementType, Layout, Paging};
use kvtide::pager::{
    DiskConfig, LoadChunks, OpenError, Pager, PagerConfig, Plan, StoreChunks, TicketReport,
};
use kvtide::units::{BlockCount, BlockId, ByteCount, GroupIndex, TenantId, TokenCount};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use std::time::Duration;

const BLOCKS_PER_CHUNK: u32 = 2;
const CHUNKS_MAX: u32 = 12;
pub(crate) const THREADS: u32 = 3;
const WINDOW_TOKENS: u32 = 80;
/// What blocks hold before a load.
const SPOILT: u8 = 0xee;
pub(crate) const PATIENT: Duration = Duration::from_secs(30);
/// Blocks of one thread in each group: the window group has twice as many chunks a prompt.
const BLOCKS_PER_THREAD: u32 = 2 * CHUNKS_MAX * BLOCKS_PER_CHUNK;
const BLOCK_COUNT: u32 = THREADS * BLOCKS_PER_THREAD;

/// An engine's device, its pager, and what its blocks lie in.
pub(crate) struct Engine {
    pub(crate) pager: Pager,
    pub(crate) device: Arc<CpuDevice>,
    memory: Arc<DeviceMemory>,
    layout: Layout,
    pub(crate) compared: AtomicU64,
    pub(crate) hits: AtomicU64,
}

fn paging(attention: Attention) -> Paging {
    Paging {
        block_tokens: TokenCount::new(16),
        blocks_per_chunk: BlockCount::new(BLOCKS_PER_CHUNK),
        block_count: BlockCount::new(BLOCK_COUNT),
        attention,
    }
}

impl Engine {
    /// Opens a device whose planes lie one after another, and a pager of `host_chunks` chunks or
    /// so a group.
    pub(crate) fn open(host_chunks: u64, config: CpuConfig, device_timeout: Duration) -> Arc<Self> {
        Self::open_with(host_chunks, config, device_timeout, None).expect("opens")
    }

    /// The same, with a disk tier on a simulated disk.
    pub(crate) fn open_with(
        host_chunks: u64,
        config: CpuConfig,
        device_timeout: Duration,
        disk: Option<(DiskConfig, SimDisk)>,
    ) -> Result<Arc<Self>, OpenError> {
        Self::open_changed(host_chunks, config, disk, |config| {
            config.device_timeout = device_timeout;
        })
    }

    /// The same, with settings of the pager changed.
    pub(crate) fn open_changed(
        host_chunks: u64,
        config: CpuConfig,
        disk: Option<(DiskConfig, SimDisk)>,
        change: impl FnOnce(&mut PagerConfig),
    ) -> Result<Arc<Self>, OpenError> {
        let memory = DeviceMemory::allocate(ByteCount::new(8 << 20)).expect("8 MiB");
        let base = |number: u64| memory.address() + number * (1 << 20);
        let full = KeyValueCache {
            paging: paging(Attention::Full),
            element_type: ElementType::Bf16,
            kv_heads: 2,
            head_dim: 16,
        };
        let layers = [0, 1].map(|layer| KeyValueBase {
            layer,
            key_address: base(u64::from(layer) * 2),
            value_address: base(u64::from(layer) * 2 + 1),
        });
        let window = Attention::Window { tokens: TokenCount::new(WINDOW_TOKENS) };
        // Rows of 33 bytes, 8 a block: fragments that are no multiple of 16 take the narrow path.
        let latent = LatentCache {
            paging: Paging { block_tokens: TokenCount::new(8), ..paging(window) },
            element_type: ElementType::U8,
            row: ByteCount::new(33),
        };
        let latent_layers =
            [2, 3].map(|layer| LayerBase { layer, base_address: base(u64::from(layer) + 2) });
        let layout = Layout::builder()
            .group(full.separate(&layers))
            .group(latent.rows(&latent_layers))
            .build()
            .expect("the planes are disjoint");
        let device = CpuDevice::open(&layout, vec![Arc::clone(&memory)], config).expect("opens");
        let capacity = ByteCount::new(host_chunks * 3 * 8192);
        let mut config = PagerConfig::new(layout.clone(), capacity);
        change(&mut config);
        let shared = Arc::clone(&device) as Arc<dyn Device>;
        let pager = match disk {
            Some((settings, disk)) => {
                config.disk = Some(settings);
                Pager::open_with_disk(&config, shared, Box::new(disk))?
            }
            None => Pager::open(&config, shared)?,
        };
        let (compared, hits) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(Arc::new(Self { pager, device, memory, layout, compared, hits }))
    }

    /// Calls `visit` with the place in memory of each fragment of a chunk, and what belongs there.
    fn each_fragment(
        &self,
        group: GroupIndex,
        key: Key,
        blocks: &[BlockId],
        mut visit: impl FnMut(u64, Vec<u8>),
    ) {
        let planes = self.layout.groups()[usize::from(group.get())].planes();
        for (number, plane) in (0_u64..).zip(planes) {
            for (position, block) in (0_u64..).zip(blocks) {
                let start = u64::from(block.get()) * plane.block_stride.get();
                let offset = plane.base_address - self.memory.address() + start;
                let seed = scatter(key.low_u64() ^ scatter(number << 32 | position));
                let bytes = (0..plane.fragment.get()).map(|at| scatter(seed ^ at).to_le_bytes()[0]);
                visit(offset, bytes.collect());
            }
        }
    }

    pub(crate) fn write(&self, group: GroupIndex, key: Key, blocks: &[BlockId]) {
        self.each_fragment(group, key, blocks, |offset, bytes| self.memory.write(offset, &bytes));
    }

    pub(crate) fn spoil(&self, group: GroupIndex, blocks: &[BlockId]) {
        self.each_fragment(group, Key::from_u128(0), blocks, |offset, bytes| {
            self.memory.write(offset, &vec![SPOILT; bytes.len()]);
        });
    }

    /// Checks that nothing was written since the blocks were spoilt.
    fn compare_spoilt(&self, group: GroupIndex, blocks: &[BlockId]) {
        self.each_fragment(group, Key::from_u128(0), blocks, |offset, bytes| {
            let mut found = bytes;
            self.memory.read(offset, &mut found);
            assert!(found.iter().all(|byte| *byte == SPOILT), "a block that failed was written");
        });
    }

    pub(crate) fn compare(&self, group: GroupIndex, key: Key, blocks: &[BlockId]) {
        self.each_fragment(group, key, blocks, |offset, expected| {
            let mut found = vec![0; expected.len()];
            self.memory.read(offset, &mut found);
            assert!(found == expected, "wrong bytes: group {group}, key {key}, offset {offset}");
        });
        self.compared.fetch_add(1, Ordering::Relaxed);
    }
}

/// The keys of one conversation in one group: those of two conversations share a prefix.
pub(crate) fn keys(group: u64, conversation: u64, chunk_count: u32) -> Vec<Key> {
    (0..u64::from(chunk_count))
        .map(|chunk| {
            let owner = if chunk < conversation % 4 { 0 } else { conversation + 1 };
            let name = scatter(owner << 32 | chunk << 8 | group);
            Key::from_u128(u128::from(name) << 64 | u128::from(scatter(name)))
        })
        .collect()
}

/// One thread of the engine.
pub(crate) struct Worker {
    pub(crate) engine: Arc<Engine>,
    blocks: Vec<BlockId>,
    /// Whose what it stores is.
    tenant: TenantId,
    pub(crate) stream: CpuStream,
    pub(crate) event: EventHandle,
}

impl Worker {
    pub(crate) fn new(engine: &Arc<Engine>, number: u32) -> Self {
        Self::of_tenant(engine, number, TenantId::new(0))
    }

    pub(crate) fn of_tenant(engine: &Arc<Engine>, number: u32, tenant: TenantId) -> Self {
        let first = number * BLOCKS_PER_THREAD;
        let blocks = first..first + BLOCKS_PER_THREAD;
        Self {
            blocks: blocks.map(BlockId::new).collect(),
            tenant,
            stream: engine.device.create_stream().expect("a thread"),
            event: engine.device.create_event(),
            engine: Arc::clone(engine),
        }
    }

    pub(crate) fn blocks_of(&self, chunk: usize) -> &[BlockId] {
        let per_chunk = BLOCKS_PER_CHUNK as usize;
        &self.blocks[chunk * per_chunk..(chunk + 1) * per_chunk]
    }

    /// Runs one request: what hits is loaded and compared, what misses is written and stored.
    /// Returns how each chunk of either ended.
    pub(crate) fn request(&self, conversation: u64, chunk_count: u32) -> Vec<Stage> {
        let mut stages = Vec::new();
        let per_group = [(0, chunk_count), (1, 2 * chunk_count)]
            .map(|(group, count)| keys(group, conversation, count));
        let lists: Vec<&[Key]> = per_group.iter().map(Vec::as_slice).collect();
        let plan = self.engine.pager.lookup(&lists).expect("a plan is free");
        for (number, keys) in per_group.iter().enumerate() {
            let group = GroupIndex::new(u8::try_from(number).expect("two groups"));
            let held = plan.groups()[number];
            let (first, end) = (held.first_chunk, held.first_chunk + held.chunk_count);
            let (first, end) = (first as usize, end as usize);
            if first < end {
                stages.extend(self.load(&plan, group, &keys[first..end], first).stages);
            }
            let tokens = self.engine.layout.groups()[number].chunk_tokens().get();
            assert!(plan.tokens().get().is_multiple_of(tokens));
            let computed_from = (plan.tokens().get() / tokens) as usize;
            if computed_from < keys.len() {
                stages.extend(self.store(group, keys, computed_from).stages);
            }
        }
        stages
    }

    pub(crate) fn load(
        &self,
        plan: &Plan,
        group: GroupIndex,
        keys: &[Key],
        first: usize,
    ) -> TicketReport {
        let per_chunk = BLOCKS_PER_CHUNK as usize;
        let blocks = &self.blocks[first * per_chunk..(first + keys.len()) * per_chunk];
        self.engine.spoil(group, blocks);
        let chunks = LoadChunks { group, keys, blocks, ready: Ready::Now, timeout: None };
        let report = self.engine.pager.load(plan, chunks).expect("a good request").wait();
        for (chunk, (key, stage)) in keys.iter().zip(&report.stages).enumerate() {
            let blocks = self.blocks_of(first + chunk);
            match stage {
                Stage::Done => {
                    self.engine.hits.fetch_add(1, Ordering::Relaxed);
                    self.engine.compare(group, *key, blocks);
                }
                // What failed on the device, or was erased while it ended there, may have written
                // some of the blocks.
                Stage::Failed(Failure::Device | Failure::Cleared) => {}
                Stage::Failed(_) => self.engine.compare_spoilt(group, blocks),
                stage => panic!("a ticket has ended at {stage:?}"),
            }
        }
        report
    }

    /// Writes the chunks from `first` on in the stream, and stores them behind its event.
    pub(crate) fn store(&self, group: GroupIndex, keys: &[Key], first: usize) -> TicketReport {
        for (chunk, key) in keys.iter().enumerate().skip(first) {
            let (engine, key) = (Arc::clone(&self.engine), *key);
            let blocks = self.blocks_of(chunk).to_vec();
            self.stream.launch(move || engine.write(group, key, &blocks));
        }
        self.stream.record(self.event).expect("the device's own event");
        let per_chunk = BLOCKS_PER_CHUNK as usize;
        let ticket = self.engine.pager.store(StoreChunks {
            group,
            parent: first.checked_sub(1).map(|before| keys[before]),
            keys: &keys[first..],
            blocks: &self.blocks[first * per_chunk..keys.len() * per_chunk],
            tenant: self.tenant,
            ready: Ready::After(self.event),
            timeout: None,
        });
        let report: TicketReport = ticket.expect("a good request").wait();
        // A store that read none of the blocks ends before they are written.
        self.stream.synchronize().expect("no write panics");
        assert!(report.stages.iter().all(|stage| stage.is_final()), "{report:?}");
        report
    }
}
