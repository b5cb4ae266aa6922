//! Lookup cost of a full index of 10 million chunks, and the memory that a chunk takes: once with
//! all chunks in host memory, once with all of them on disk.
//!
//! `cargo bench --bench core_lookup`. Prefixes are chains of 256 chunks; each iteration looks up
//! another chain chosen at random, so that its records are not in the processor's caches. Key
//! derivation is not part of it.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use kvtide::core::{
    Action, Core, CoreConfig, FoundChunk, GroupConfig, KEY_COUNT_MAX, StoreRequest,
};
use kvtide::key::Key;
use kvtide::layout::Attention;
use kvtide::units::{GroupIndex, SlotIndex, TenantId, TenantTag, Timestamp};
use std::hint::black_box;

#[expect(clippy::cast_precision_loss, reason = "printed with one decimal")]
fn bytes_per_chunk(bytes: u64, chunks: u32) -> f64 {
    bytes as f64 / f64::from(chunks)
}

const CHAIN_COUNT: u64 = 39_062;
const CHAIN_CHUNKS: u64 = 256;
const CHUNK_COUNT: u32 = 10_000_000;
const GROUP: GroupIndex = GroupIndex::new(0);
const NOW: Timestamp = Timestamp::new(0);

/// `SplitMix64` (Steele, Lea, Flood 2014): a bijection, so that keys are distinct.
fn scatter(value: u64) -> u64 {
    let mut mixed = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

fn key(chain: u64, chunk: u64) -> Key {
    let number = chain * CHAIN_CHUNKS + chunk;
    Key::from_u128(u128::from(scatter(number)) << 64 | u128::from(scatter(!number)))
}

fn keys(chain: u64, first: u64) -> [Key; KEY_COUNT_MAX] {
    std::array::from_fn(|position| key(chain, first + position as u64))
}

/// Stores one segment of a chain and completes its hops at once.
fn store(core: &mut Core, chain: u64, first: u64, actions: &mut Vec<Action>) {
    let parent = first.checked_sub(1).map(|before| key(chain, before));
    let keys = keys(chain, first);
    let request = StoreRequest {
        group: GROUP,
        parent,
        keys: &keys,
        tenant: TenantId::new(0),
        deadline: Timestamp::NEVER,
    };
    let transfer = core.store(request).expect("the configuration has room");
    loop {
        core.take_actions(actions);
        if actions.is_empty() {
            break;
        }
        for action in actions.drain(..).rev() {
            if let Action::Start(hop) = action {
                core.complete(hop.ended(Ok(())));
            }
        }
    }
    core.detach(transfer);
}

/// A core whose every chunk is on disk, as recovery leaves it, with a few host slots.
fn disk_core() -> Core {
    let group = GroupConfig {
        slot_count: 1024,
        attention: Attention::Full,
        pieces_per_chunk: 1,
        disk_slot_counts: vec![CHUNK_COUNT],
    };
    let mut core = Core::new(&CoreConfig::new(vec![group])).expect("a valid configuration");
    let mut disk_slot = 0;
    for chain in 0..CHAIN_COUNT {
        for first in (0..CHAIN_CHUNKS).step_by(KEY_COUNT_MAX) {
            let found: [FoundChunk; KEY_COUNT_MAX] = std::array::from_fn(|position| {
                let chunk = first + position as u64;
                disk_slot += 1;
                FoundChunk {
                    key: key(chain, chunk),
                    parent: chunk.checked_sub(1).map(|above| key(chain, above)),
                    depth: u32::try_from(chunk).expect("256 at most"),
                    disk_slot: SlotIndex::new(disk_slot - 1),
                    tenant: TenantTag::new(0),
                    is_durable: true,
                }
            });
            core.adopt_disk(GROUP, &found).expect("the slots are there");
        }
    }
    core
}

fn full_core() -> Core {
    let group = GroupConfig {
        slot_count: CHUNK_COUNT,
        attention: Attention::Full,
        pieces_per_chunk: 1,
        disk_slot_counts: Vec::new(),
    };
    let mut core = Core::new(&CoreConfig::new(vec![group])).expect("a valid configuration");
    let mut actions = Vec::new();
    for chain in 0..CHAIN_COUNT {
        for first in (0..CHAIN_CHUNKS).step_by(KEY_COUNT_MAX) {
            store(&mut core, chain, first, &mut actions);
        }
    }
    core
}

/// Resident kilobytes of this process, from /proc/self/statm (pages of 4 KiB).
fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or(0) * 4096
}

fn lookup(criterion: &mut Criterion) {
    measure(criterion, "lookup_10m_chunks", full_core);
    measure(criterion, "lookup_10m_chunks_on_disk", disk_core);
}

fn measure(criterion: &mut Criterion, name: &str, make_core: impl Fn() -> Core) {
    let before = resident_bytes();
    let mut core = make_core();
    let host = core.slots(GROUP).expect("the group exists");
    let disk = core.disk_slots(GROUP).expect("the group exists");
    let used = host.used + disk.used;
    println!(
        "{used} chunks resident; tables: {:.1} bytes a chunk; process: {:.1} bytes a chunk",
        bytes_per_chunk(core.memory().get(), used),
        bytes_per_chunk(resident_bytes().saturating_sub(before), used),
    );
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(KEY_COUNT_MAX as u64));
    let mut round = 0_u64;
    let mut next_keys = || {
        round += 1;
        let chance = scatter(round);
        let first = (chance >> 40) % (CHAIN_CHUNKS / KEY_COUNT_MAX as u64) * KEY_COUNT_MAX as u64;
        keys(chance % CHAIN_COUNT, first)
    };
    group.bench_function("pin_and_drop_64_keys", |bencher| {
        bencher.iter_batched(
            &mut next_keys,
            |keys| {
                let plan = core.open_plan(NOW).expect("a plan is free");
                let probe = core.extend_plan(plan, GROUP, &keys).expect("an open plan");
                assert_eq!(probe.hit_count as usize, KEY_COUNT_MAX);
                core.drop_plan(plan);
            },
            criterion::BatchSize::SmallInput,
        );
    });
    group.bench_function("find_64_scattered_keys", |bencher| {
        let mut round = 0_u64;
        bencher.iter_batched(
            || {
                round += 1;
                std::array::from_fn::<Key, KEY_COUNT_MAX, _>(|position| {
                    let chance = scatter(round * KEY_COUNT_MAX as u64 + position as u64);
                    key(chance % CHAIN_COUNT, (chance >> 40) % CHAIN_CHUNKS)
                })
            },
            |keys| keys.iter().filter(|key| core.peek(black_box(**key)).is_none()).count(),
            criterion::BatchSize::SmallInput,
        );
    });
    group.finish();
}

criterion_group!(benches, lookup);
criterion_main!(benches);
