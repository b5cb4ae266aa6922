//! Two prompts that share a prefix, as an engine would serve them: the second one loads what the
//! first one computed.
//!
//! `cargo run --example shared_prefix`

use kvtide::device::Ready;
use kvtide::device::cpu::{CpuConfig, CpuDevice, DeviceMemory};
use kvtide::fingerprint::{ContentFingerprint, KeyMode, KvScales, RopeSettings};
use kvtide::key::{Key, KeyChain, TenantSalt};
use kvtide::layout::engines::{KeyValueBase, KeyValueCache};
use kvtide::layout::{Attention, ElementType, Layout, Paging};
use kvtide::pager::{LoadChunks, Pager, PagerConfig, StoreChunks};
use kvtide::table::{BlockPool, SequenceId};
use kvtide::units::{BlockCount, BlockId, ByteCount, GroupIndex, TenantId, TokenCount};
use std::error::Error;

const GROUP: GroupIndex = GroupIndex::new(0);
const TENANT: TenantId = TenantId::new(0);
const BLOCK_TOKENS: TokenCount = TokenCount::new(16);
const BLOCKS_PER_CHUNK: u32 = 4;
const BLOCK_COUNT: BlockCount = BlockCount::new(256);

/// Opens a device cache of two layers on the CPU, and a pager with 16 MiB of host memory.
fn open() -> Result<Pager, Box<dyn Error>> {
    let plane_bytes = 1 << 20;
    let memory = DeviceMemory::allocate(ByteCount::new(4 * plane_bytes))?;
    let cache = KeyValueCache {
        paging: Paging {
            block_tokens: BLOCK_TOKENS,
            blocks_per_chunk: BlockCount::new(BLOCKS_PER_CHUNK),
            block_count: BLOCK_COUNT,
            attention: Attention::Full,
        },
        element_type: ElementType::Bf16,
        kv_heads: 2,
        head_dim: 64,
    };
    let plane = |number: u64| memory.address() + number * plane_bytes;
    let layers = [0, 1].map(|layer| KeyValueBase {
        layer,
        key_address: plane(2 * u64::from(layer)),
        value_address: plane(2 * u64::from(layer) + 1),
    });
    let layout = Layout::builder().group(cache.separate(&layers)).build()?;
    let pieces = CpuConfig { out_pieces: 8, in_pieces: 8 };
    let device = CpuDevice::open(&layout, vec![memory], pieces)?;
    Ok(Pager::open(&PagerConfig::new(layout, ByteCount::new(16 << 20)), device)?)
}

/// Serves one prompt: loads what hits, computes the rest, stores it.
fn serve(
    pager: &Pager,
    pool: &mut BlockPool,
    chain: &mut KeyChain,
    prompt: &[u32],
) -> Result<SequenceId, Box<dyn Error>> {
    chain.push(prompt)?;
    let keys: Vec<Key> = chain.keys().to_vec();
    let plan = pager.lookup(&[&keys])?;
    let sequence = pool.open();
    let appended = pool.append(sequence, TokenCount::new(u32::try_from(prompt.len())?))?;
    assert_eq!(appended.copy_on_write, None, "a new sequence shares no block yet");
    let blocks: &[BlockId] = pool.table(sequence)?.blocks();

    let hits = plan.groups()[0].chunk_count as usize;
    let (loaded, computed) = blocks.split_at(hits * BLOCKS_PER_CHUNK as usize);
    let (ready, timeout) = (Ready::Now, None);
    if hits > 0 {
        let chunks =
            LoadChunks { group: GROUP, keys: &keys[..hits], blocks: loaded, ready, timeout };
        let report = pager.load(&plan, chunks)?.wait();
        assert!(report.is_done(), "recompute from the first chunk that failed: {report:?}");
    }
    // Here the engine computes the tokens from `plan.tokens()` on into `computed`.
    let missing = &keys[hits..];
    if !missing.is_empty() {
        let whole = &computed[..missing.len() * BLOCKS_PER_CHUNK as usize];
        let parent = hits.checked_sub(1).map(|before| keys[before]);
        let chunks = StoreChunks {
            group: GROUP,
            parent,
            keys: missing,
            blocks: whole,
            tenant: TENANT,
            ready,
            timeout,
        };
        pager.store(chunks)?.wait();
    }
    println!("{} tokens: {} loaded, the rest computed", prompt.len(), plan.tokens());
    Ok(sequence)
}

fn main() -> Result<(), Box<dyn Error>> {
    let pager = open()?;
    let mut pool = BlockPool::new(GROUP, BLOCK_COUNT, BLOCK_TOKENS)?;
    let content = ContentFingerprint::builder()
        .model_id("example/two-layers")
        .revision("1")
        .rope(RopeSettings::AsInCheckpoint)
        .element_type(ElementType::Bf16.to_string())
        .kv_scales(KvScales::None)
        .key_mode(KeyMode::Tokens)
        .build()?;
    let chunk_tokens = TokenCount::new(BLOCK_TOKENS.get() * BLOCKS_PER_CHUNK);
    let system: Vec<u32> = (0..300).collect();
    for question in [vec![7; 50], vec![9; 90]] {
        let mut chain = KeyChain::tokens(&content, &TenantSalt::none(), GROUP, chunk_tokens)?;
        let prompt: Vec<u32> = system.iter().copied().chain(question).collect();
        let sequence = serve(&pager, &mut pool, &mut chain, &prompt)?;
        pool.close(sequence)?;
    }
    let report = pager.close();
    println!("drained: {}", report.is_drained);
    Ok(())
}
