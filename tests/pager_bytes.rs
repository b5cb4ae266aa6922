//! Real bytes through the pager and the CPU device: what comes back is what was stored for the key,
//! whatever is evicted, shared, cancelled or lost on the way.
//!
//! Several engine threads share one pager over a full and a window group. Each owns blocks of its
//! own, spoils them before it loads, and compares every byte that it is told has come back.

use kvtide::core::{Failure, Stage};
use kvtide::device::cpu::{CpuConfig, CpuDevice, CpuStream, DeviceMemory};
use kvtide::device::{Device, EventHandle, Ready};
use kvtide::key::Key;
use kvtide::layout::engines::{KeyValueBase, KeyValueCache, LatentCache, LayerBase};
use kvtide::layout::{Attention, ElementType, Layout, Paging};
use kvtide::pager::{
    Health, LoadChunks, Pager, PagerConfig, Plan, StoreChunks, Ticket, TicketReport,
};
use kvtide::units::{BlockCount, BlockId, ByteCount, GroupIndex, TokenCount};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

const BLOCKS_PER_CHUNK: u32 = 2;
const CHUNKS_MAX: u32 = 12;
const THREADS: u32 = 3;
const WINDOW_TOKENS: u32 = 80;
const PATIENT: Duration = Duration::from_secs(30);
/// Blocks of one thread in each group: the window group has twice as many chunks a prompt.
const BLOCKS_PER_THREAD: u32 = 2 * CHUNKS_MAX * BLOCKS_PER_CHUNK;
const BLOCK_COUNT: u32 = THREADS * BLOCKS_PER_THREAD;

/// `SplitMix64` (Steele, Lea, Flood 2014).
fn scatter(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// An engine's device, its pager, and what its blocks lie in.
struct Engine {
    pager: Pager,
    device: Arc<CpuDevice>,
    memory: Arc<DeviceMemory>,
    layout: Layout,
    compared: AtomicU64,
    hits: AtomicU64,
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
    fn open(host_chunks: u64, config: CpuConfig, device_timeout: Duration) -> Arc<Self> {
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
        let config = PagerConfig { device_timeout, ..PagerConfig::new(layout.clone(), capacity) };
        let pager = Pager::open(&config, Arc::clone(&device) as Arc<dyn Device>).expect("opens");
        let (compared, hits) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Self { pager, device, memory, layout, compared, hits })
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

    fn write(&self, group: GroupIndex, key: Key, blocks: &[BlockId]) {
        self.each_fragment(group, key, blocks, |offset, bytes| self.memory.write(offset, &bytes));
    }

    fn spoil(&self, group: GroupIndex, blocks: &[BlockId]) {
        self.each_fragment(group, Key::from_u128(0), blocks, |offset, bytes| {
            self.memory.write(offset, &vec![0xee; bytes.len()]);
        });
    }

    fn compare(&self, group: GroupIndex, key: Key, blocks: &[BlockId]) {
        self.each_fragment(group, key, blocks, |offset, expected| {
            let mut found = vec![0; expected.len()];
            self.memory.read(offset, &mut found);
            assert!(found == expected, "wrong bytes: group {group}, key {key}, offset {offset}");
        });
        self.compared.fetch_add(1, Ordering::Relaxed);
    }
}

/// The keys of one conversation in one group: those of two conversations share a prefix.
fn keys(group: u64, conversation: u64, chunk_count: u32) -> Vec<Key> {
    (0..u64::from(chunk_count))
        .map(|chunk| {
            let owner = if chunk < conversation % 4 { 0 } else { conversation + 1 };
            let name = scatter(owner << 32 | chunk << 8 | group);
            Key::from_u128(u128::from(name) << 64 | u128::from(scatter(name)))
        })
        .collect()
}

/// One thread of the engine.
struct Worker {
    engine: Arc<Engine>,
    blocks: Vec<BlockId>,
    stream: CpuStream,
    event: EventHandle,
}

impl Worker {
    fn new(engine: &Arc<Engine>, number: u32) -> Self {
        let first = number * BLOCKS_PER_THREAD;
        let blocks = first..first + BLOCKS_PER_THREAD;
        Self {
            blocks: blocks.map(BlockId::new).collect(),
            stream: engine.device.create_stream().expect("a thread"),
            event: engine.device.create_event(),
            engine: Arc::clone(engine),
        }
    }

    fn blocks_of(&self, chunk: usize) -> &[BlockId] {
        let per_chunk = BLOCKS_PER_CHUNK as usize;
        &self.blocks[chunk * per_chunk..(chunk + 1) * per_chunk]
    }

    /// Runs one request: what hits is loaded and compared, what misses is written and stored.
    fn request(&self, conversation: u64, chunk_count: u32) {
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
                self.load(&plan, group, &keys[first..end], first);
            }
            let tokens = self.engine.layout.groups()[number].chunk_tokens().get();
            assert!(plan.tokens().get().is_multiple_of(tokens));
            let computed_from = (plan.tokens().get() / tokens) as usize;
            self.store(group, keys, computed_from);
        }
    }

    fn load(&self, plan: &Plan, group: GroupIndex, keys: &[Key], first: usize) {
        let per_chunk = BLOCKS_PER_CHUNK as usize;
        let blocks = &self.blocks[first * per_chunk..(first + keys.len()) * per_chunk];
        self.engine.spoil(group, blocks);
        let chunks = LoadChunks { group, keys, blocks, ready: Ready::Now, timeout: None };
        let report = self.engine.pager.load(plan, chunks).expect("a good request").wait();
        assert!(report.is_done(), "what a plan holds can be loaded: {report:?}");
        self.engine.hits.fetch_add(keys.len() as u64, Ordering::Relaxed);
        for (chunk, key) in keys.iter().enumerate() {
            self.engine.compare(group, *key, self.blocks_of(first + chunk));
        }
    }

    /// Writes the chunks from `first` on in the stream, and stores them behind its event.
    fn store(&self, group: GroupIndex, keys: &[Key], first: usize) {
        if first == keys.len() {
            return;
        }
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
            ready: Ready::After(self.event),
            timeout: None,
        });
        let report: TicketReport = ticket.expect("a good request").wait();
        // A store that read none of the blocks ends before they are written.
        self.stream.synchronize().expect("no write panics");
        let is_expected = |stage: &Stage| {
            matches!(
                stage,
                Stage::Done | Stage::Failed(Failure::Full | Failure::ParentMissing | Failure::Busy)
            )
        };
        assert!(report.stages.iter().all(is_expected), "{report:?}");
    }
}

#[test]
fn what_comes_back_is_what_was_stored_for_the_key() {
    for (host_chunks, pieces) in [(6, 1), (20, 3), (200, 16)] {
        let config = CpuConfig { out_pieces: pieces, in_pieces: pieces };
        let engine = Engine::open(host_chunks, config, PATIENT);
        let threads: Vec<_> = (0..THREADS)
            .map(|number| {
                let worker = Worker::new(&engine, number);
                std::thread::spawn(move || {
                    for round in 0..150_u64 {
                        let chance = scatter(u64::from(number) << 32 | round);
                        let chunk_count = 1 + u32::try_from(chance >> 40).expect("24 bits") % 12;
                        worker.request(chance % 9, chunk_count);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("no wrong byte");
        }
        engine.pager.audit().expect("all invariants hold");
        let counters = engine.pager.counters();
        assert!(engine.compared.load(Ordering::Relaxed) > 100, "{counters:?}");
        assert_eq!(counters.loaded, engine.hits.load(Ordering::Relaxed));
        assert_eq!(counters.lost, 0);
        if host_chunks < 100 {
            assert!(counters.evicted > 0, "the sizes force eviction: {counters:?}");
        }
        let engine = Arc::into_inner(engine).expect("all threads are done");
        assert!(engine.pager.close().is_drained);
    }
}

/// Stores one chunk behind an event that the returned sender holds back.
fn store_behind_an_event(worker: &Worker, keys: &[Key]) -> (Sender<()>, Ticket) {
    let (hold, until) = channel::<()>();
    worker.stream.launch(move || {
        let _ended = until.recv();
    });
    worker.stream.record(worker.event).expect("the device's own event");
    let ticket = worker.engine.pager.store(StoreChunks {
        group: GroupIndex::new(0),
        parent: None,
        keys,
        blocks: worker.blocks_of(0),
        ready: Ready::After(worker.event),
        timeout: None,
    });
    (hold, ticket.expect("a good request"))
}

#[test]
fn a_store_reads_its_blocks_only_after_the_engines_event() {
    let engine = Engine::open(8, CpuConfig { out_pieces: 2, in_pieces: 2 }, PATIENT);
    let worker = Worker::new(&engine, 0);
    let (group, keys) = (GroupIndex::new(0), keys(0, 5, 1));
    worker.engine.spoil(group, worker.blocks_of(0));
    let (hold, ticket) = store_behind_an_event(&worker, &keys);
    // Until the event the blocks are the engine's: what it writes last is what is stored.
    engine.write(group, keys[0], worker.blocks_of(0));
    assert!(!ticket.is_released());
    drop(hold);
    assert!(ticket.wait().is_done());
    let no_tokens = engine.pager.lookup(&[&keys, &[]]).expect("a plan is free");
    assert_eq!(no_tokens.tokens().get(), 0, "the window group has nothing");
    worker.load(&no_tokens, group, &keys, 0);
}

#[test]
fn an_event_that_never_comes_is_a_lost_device() {
    let config = CpuConfig { out_pieces: 2, in_pieces: 2 };
    let engine = Engine::open(8, config, Duration::from_millis(50));
    let worker = Worker::new(&engine, 0);
    let (hold, ticket) = store_behind_an_event(&worker, &keys(0, 5, 1));
    assert_eq!(ticket.wait().stages, [Stage::Failed(Failure::Device)]);
    assert_eq!(engine.pager.health(), Health::DeviceLost);
    // The engine writes its blocks again: nothing reads them any more.
    engine.spoil(GroupIndex::new(0), worker.blocks_of(0));
    drop(hold);
    engine.pager.audit().expect("all invariants hold");
}
