//! foyer's disk engine, one lap in a process of its own.
//!
//! The block engine over a folder of 64 MiB files with `O_DIRECT`, without compression, and next to
//! nothing in memory. A put is `storage_writer().force().insert()` of a value that is shared, not
//! copied, in waves: while one is flushed the next is handed over, for foyer drops what its buffers
//! do not hold. It ends when all is flushed; foyer syncs nothing. A get is `storage().load()`, as
//! many at a time as the depth. foyer checks its own sums on every get, as it always does.
//!
//! Every lap opens the folder without recovery, so no lap pays for reclaiming blocks; its buffers
//! are used once beforehand, so none pays for their first touch.
//!
//! Called by `main.rs` as `foyer-lap`.

use crate::Failure;
use crate::work::{Lap, LapKind, Watch, Workload, fill, settle};
use bytes::Bytes;
use foyer::{
    BlockEngineConfig, DeviceBuilder, FsDeviceBuilder, HybridCache, HybridCacheBuilder,
    HybridCachePolicy, IoEngineConfig, Load, PsyncIoEngineConfig, RecoverMode, UringIoEngineConfig,
};
use std::path::{Path, PathBuf};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// Bytes of one of foyer's files, which it reclaims as a whole.
const BLOCK_BYTES: usize = 64 << 20;

/// Bytes that are handed to foyer at a time.
const WAVE_BYTES: usize = 32 << 20;

/// Waves that are written before the measurement.
const WARM_WAVES: usize = 4;

/// foyer's threads that write.
const FLUSHER_COUNT: usize = 2;

/// Bytes that each of them may have in memory: two waves, twice.
const FLUSHER_BYTES: usize = 4 * WAVE_BYTES;

/// First key of the entries that are written before the measurement.
const WARM_KEY: u64 = 1 << 40;

type Cache = HybridCache<u64, Bytes>;

/// How foyer talks to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Engine {
    /// `pread` and `pwrite` on threads.
    Psync,
    /// A ring, polled by a thread that never sleeps.
    Uring,
}

impl Engine {
    /// Returns the word that stands for it on command lines.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Psync => "psync",
            Self::Uring => "uring",
        }
    }
}

/// What a lap is given.
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    workload: Workload,
    /// foyer's folder.
    #[arg(long)]
    folder: PathBuf,
    /// How it talks to the kernel.
    #[arg(long)]
    engine: Engine,
    /// Which lap it is.
    #[arg(long)]
    kind: LapKind,
}

/// Does one lap and prints what it took.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if arguments.kind == LapKind::First && arguments.folder.exists() {
        std::fs::remove_dir_all(&arguments.folder)?;
    }
    let lap = Runtime::new()?.block_on(lap(arguments))?;
    println!("{}", serde_json::to_string(&lap)?);
    Ok(())
}

async fn lap(arguments: &Arguments) -> Result<Lap, Failure> {
    let workload = &arguments.workload;
    let cache = open(&arguments.folder, arguments.engine, workload).await?;
    let payload = |place: u32| {
        let mut payload = vec![0; workload.payload_bytes()];
        fill(place, &mut payload);
        Bytes::from(payload)
    };
    let payloads: Vec<Bytes> = (0..workload.place_count).map(payload).collect();
    let wave_count = WAVE_BYTES / workload.slot_bytes;
    let warm: Vec<u64> = (WARM_KEY..).take(WARM_WAVES * wave_count).collect();
    put(&cache, &warm, &payloads, wave_count).await;
    get(&cache, &warm, workload.depth).await?;
    let keys: Vec<u64> = workload.order(arguments.kind).into_iter().map(u64::from).collect();
    let watch = Watch::start()?;
    put(&cache, &keys, &payloads, wave_count).await;
    let put = watch.cost()?;
    for entry in std::fs::read_dir(&arguments.folder)? {
        settle(&entry?.path())?;
    }
    let watch = Watch::start()?;
    get(&cache, &keys, workload.depth).await?;
    let get = watch.cost()?;
    for &key in keys.iter().rev().take(workload.place_count as usize) {
        if load(&cache, key).await? != *payload_of(key, &payloads) {
            return Err(format!("entry {key} came back wrong").into());
        }
    }
    cache.close().await?;
    Ok(Lap { put, get })
}

async fn open(folder: &Path, engine: Engine, workload: &Workload) -> Result<Cache, Failure> {
    // One page of a block is its index; one more for the entries that the first does not hold.
    let per_block = (BLOCK_BYTES - 2 * 4096) / workload.slot_bytes;
    let entry_count = workload.slot_count as usize + WARM_WAVES * WAVE_BYTES / workload.slot_bytes;
    // Each flusher has a block under way, and some stay clean so that none is ever reclaimed.
    let block_count = entry_count.div_ceil(per_block) + 4 * FLUSHER_COUNT;
    let device = FsDeviceBuilder::new(folder)
        .with_capacity(block_count * BLOCK_BYTES)
        .with_direct(true)
        .build()?;
    let blocks = BlockEngineConfig::new(device)
        .with_block_size(BLOCK_BYTES)
        .with_flushers(FLUSHER_COUNT)
        .with_buffer_pool_size(FLUSHER_COUNT * FLUSHER_BYTES)
        .with_submit_queue_size_threshold(FLUSHER_COUNT * FLUSHER_BYTES);
    let calls: Box<dyn IoEngineConfig> = match engine {
        Engine::Psync => PsyncIoEngineConfig::new().boxed(),
        Engine::Uring => UringIoEngineConfig::new().boxed(),
    };
    let cache = HybridCacheBuilder::new()
        .with_policy(HybridCachePolicy::WriteOnInsertion)
        .memory(1)
        .with_shards(1)
        .storage()
        .with_io_engine_config(calls)
        .with_engine_config(blocks)
        .with_recover_mode(RecoverMode::None)
        .build()
        .await?;
    Ok(cache)
}

fn payload_of(key: u64, payloads: &[Bytes]) -> &Bytes {
    let place = key % payloads.len() as u64;
    &payloads[usize::try_from(place).expect("below a length")]
}

/// Writes an entry a key, and waits until all are flushed.
async fn put(cache: &Cache, keys: &[u64], payloads: &[Bytes], wave_count: usize) {
    for wave in keys.chunks(wave_count) {
        let hand_over = async {
            for &key in wave {
                cache.storage_writer(key).force().insert(payload_of(key, payloads).clone());
            }
        };
        // In this order: the wait is for what was handed over before.
        tokio::join!(biased; cache.storage().wait(), hand_over);
    }
    cache.storage().wait().await;
}

/// Reads the entry of every key, `depth` of them at a time.
async fn get(cache: &Cache, keys: &[u64], depth: u32) -> Result<(), Failure> {
    let mut under_way = JoinSet::new();
    for &key in keys {
        if under_way.len() >= depth as usize
            && let Some(ended) = under_way.join_next().await
        {
            ended??;
        }
        let cache = cache.clone();
        under_way.spawn(async move { load(&cache, key).await.map(drop) });
    }
    while let Some(ended) = under_way.join_next().await {
        ended??;
    }
    Ok(())
}

async fn load(cache: &Cache, key: u64) -> Result<Bytes, Failure> {
    match cache.storage().load(&key).await? {
        Load::Entry { value, .. } => Ok(value),
        Load::Piece { .. } => Err(format!("entry {key} was not flushed").into()),
        Load::Throttled => Err(format!("entry {key} was throttled").into()),
        Load::Miss => Err(format!("entry {key} was dropped").into()),
    }
}
