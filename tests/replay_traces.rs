//! Published traces through the reader, the reference cache and the core: counts must come out
//! exactly. The beginning of each also runs with real bytes: none may be wrong.
//!
//! The files are not part of the repository. They are looked for in `KVTIDE_TRACES`, or else in
//! `../shared/traces` beside the repository; where they are not, the tests say so and pass.

#[path = "support/counted.rs"]
mod counted;

use counted::counted;
use kvtide::core::WritePolicy;
use kvtide::io::{DiskOptions, open_disk};
use kvtide::key::Key;
use kvtide::pager::{DiskHealth, DiskStripe};
use kvtide::replay::{
    BlockNumber, CapacityPercent, ChunkCache, CoreCache, DEFAULT_CAPACITY_PERCENTS, EngineConfig,
    EngineDisk, Geometry, ReferenceLru, Request, Trace, dry_run, replay_bytes,
};
use kvtide::store::{SlotCheck, check, find_stores};
use kvtide::units::{BlockCount, ByteCount, TokenCount};
use ruzstd::decoding::StreamingDecoder;
use std::collections::HashSet;
use std::fs::File;
use std::io::{BufReader, Write};
use std::path::{Path, PathBuf};

/// What is known of a trace file: its size, and the hits of a least-recently-used cache at 1, 5,
/// 10, 25 and 50 % where they are published.
struct KnownTrace {
    name: &'static str,
    request_count: usize,
    block_use_count: u64,
    unique_block_count: u64,
    hit_counts: Option<[u64; 5]>,
}

const KNOWN_TRACES: [KnownTrace; 8] = [
    KnownTrace {
        name: "mooncake_conversation_trace",
        request_count: 12_031,
        block_use_count: 288_500,
        unique_block_count: 182_790,
        hit_counts: Some([15_136, 56_479, 80_466, 101_978, 104_759]),
    },
    KnownTrace {
        name: "mooncake_synthetic_trace",
        request_count: 3_993,
        block_use_count: 121_877,
        unique_block_count: 43_924,
        hit_counts: Some([4_644, 19_087, 31_973, 54_123, 71_763]),
    },
    KnownTrace {
        name: "lmcache_agent_mixed_retimed_b16",
        request_count: 1_619,
        block_use_count: 249_511,
        unique_block_count: 24_928,
        hit_counts: Some([42_315, 133_969, 195_724, 224_495, 224_564]),
    },
    KnownTrace {
        name: "claude_code_overlay_120s_2h_runs",
        request_count: 4_097,
        block_use_count: 7_024_589,
        unique_block_count: 357_439,
        hit_counts: Some([334_954, 3_548_544, 5_485_483, 6_558_927, 6_655_570]),
    },
    KnownTrace {
        name: "claude_code_710_sessions_runs",
        request_count: 49_334,
        block_use_count: 94_310_647,
        unique_block_count: 3_450_959,
        hit_counts: None,
    },
    KnownTrace {
        name: "lmcache_agent_miniswe_b16",
        request_count: 402,
        block_use_count: 154_156,
        unique_block_count: 9_967,
        hit_counts: None,
    },
    KnownTrace {
        name: "lmcache_agent_magagent_b16",
        request_count: 746,
        block_use_count: 90_854,
        unique_block_count: 14_326,
        hit_counts: None,
    },
    KnownTrace {
        name: "lmcache_agent_taubench_b16",
        request_count: 471,
        block_use_count: 4_501,
        unique_block_count: 635,
        hit_counts: None,
    },
];

/// Reads a trace; `None`, and a line that says so, where the traces are not at hand.
fn trace(known: &KnownTrace) -> Option<Trace> {
    let folder = std::env::var_os("KVTIDE_TRACES").map_or_else(
        || PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/traces")),
        PathBuf::from,
    );
    if !folder.is_dir() {
        // Past the test harness, which shows what `eprintln` says of failed tests only.
        let _ = writeln!(std::io::stderr(), "skipped: no traces at {}", folder.display());
        return None;
    }
    let file = File::open(folder.join(format!("{}.jsonl.zst", known.name)));
    let file = file.expect("each known trace is in the folder");
    let text = StreamingDecoder::new(BufReader::new(file)).expect("a zstd frame");
    Some(Trace::read(BufReader::new(text)).expect("a valid trace"))
}

#[test]
fn published_traces_have_the_counts_they_are_published_with() {
    for known in &KNOWN_TRACES {
        let Some(trace) = trace(known) else { return };
        assert_eq!(trace.requests().len(), known.request_count, "{}", known.name);
        assert_eq!(trace.block_use_count(), known.block_use_count, "{}", known.name);
        let unique_block_count = trace.unique_blocks().count();
        assert_eq!(unique_block_count, known.unique_block_count, "{}", known.name);
    }
}

#[test]
fn the_reference_cache_hits_what_is_published() {
    for known in &KNOWN_TRACES {
        let Some(expected) = known.hit_counts else {
            continue;
        };
        let Some(trace) = trace(known) else { return };
        let hit_counts = DEFAULT_CAPACITY_PERCENTS.map(|percent| {
            let open = |capacity| Ok(ReferenceLru::new(trace.unique_blocks(), capacity));
            let Ok(report) = dry_run(&trace, percent.of(&trace), open, |_| ());
            assert_eq!(report.block_use_count, known.block_use_count);
            report.hit_count
        });
        assert_eq!(hit_counts, expected, "{}", known.name);
    }
}

#[test]
fn the_core_hits_what_is_published_and_keeps_its_invariants() {
    for known in &KNOWN_TRACES {
        let Some(expected) = known.hit_counts else { continue };
        let Some(trace) = trace(known) else { return };
        let hit_counts = DEFAULT_CAPACITY_PERCENTS.map(|percent| {
            let mut cache = CoreCache::new(percent.of(&trace)).expect("a capacity that works");
            let hits = trace.requests().iter().map(|request| {
                u64::from(cache.run(request).expect("a request that runs").hits.get())
            });
            let hit_count = hits.sum::<u64>();
            cache.core().audit().expect("all invariants hold");
            counted("block uses of traces through the core", known.block_use_count);
            hit_count
        });
        assert_eq!(hit_counts, expected, "{}", known.name);
    }
}

/// Returns as many of a trace's first requests as use up to `block_uses` blocks.
fn beginning(trace: Trace, block_uses: u64) -> Trace {
    let mut left = block_uses;
    let fits = |blocks: u64| {
        left = left.checked_sub(blocks)?;
        Some(())
    };
    let sizes = trace.requests().iter().map(|request| u64::from(request.block_count().get()));
    let request_count = sizes.map_while(fits).count() as u64;
    trace.truncated(request_count).expect("the first request fits")
}

#[test]
fn the_beginning_of_every_trace_comes_back_byte_for_byte_under_eviction() {
    let geometry = Geometry::LLAMA_3_8B.scaled_to(ByteCount::new(256)).expect("rows of 4 bytes");
    for known in &KNOWN_TRACES {
        let Some(trace) = trace(known) else { return };
        let trace = beginning(trace, 80_000);
        for text in ["10", "50"] {
            let percent: CapacityPercent = text.parse().expect("a percentage");
            let config = EngineConfig {
                geometry,
                block_tokens: TokenCount::new(4),
                host_chunks: percent.of(&trace),
                device_blocks: BlockCount::new(trace.longest_request().get()),
                concurrency: 1,
                disk: None,
            };
            let report = replay_bytes(&trace, &config, |device| device, |_| ());
            let report = report.expect("a replay that runs");
            let place = format!("{} at {percent} %", known.name);
            assert_eq!((report.first_wrong, report.wrong_count), (None, 0), "{place}");
            assert_eq!(report.load_failures.total(), 0, "{place}");
            assert!(report.compared_count > 0 && report.eviction_count > 0, "{place}");
            counted("blocks of traces compared", report.compared_count);
            let dry = dry_run(&trace, percent.of(&trace), CoreCache::new, |_| ());
            let dry_hit_count = dry.expect("a dry run that runs").hit_count;
            let apart = report.hit_count.abs_diff(dry_hit_count);
            assert!(apart * 100 <= trace.block_use_count(), "{place}: {apart} hits apart");
        }
    }
}

/// A directory for a disk tier, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let folder = format!("kvtide-traces-{}-{name}", std::process::id());
        Self(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the keys of all sound chunks below a root.
fn sound_keys(root: &Path) -> HashSet<Key> {
    let mut disk = open_disk(&DiskOptions::default()).expect("a disk");
    let mut keys = HashSet::new();
    for store in find_stores(&mut *disk, root).expect("the root is there") {
        let mut take = |_, found| {
            if let SlotCheck::Sound(header) = found {
                keys.insert(header.identity.key);
            }
        };
        check(&mut *disk, &store.directory, &mut take).expect("a store");
    }
    keys
}

/// Returns the hits that a cache must have of these requests if it holds `keys` and no other.
fn hits_of(requests: &[Request], keys: &HashSet<Key>) -> u64 {
    let hits = requests.iter().map(|request| {
        let key = |block: BlockNumber| {
            Key::from_u128(u128::from(request.scope().get()) << 64 | u128::from(block.get()))
        };
        request.blocks().take_while(|block| keys.contains(&key(*block))).count() as u64
    });
    hits.sum()
}

#[test]
fn the_beginning_of_every_trace_goes_to_disk_and_comes_back_and_the_next_run_is_warm() {
    let geometry = Geometry::LLAMA_3_8B.scaled_to(ByteCount::new(256)).expect("rows of 4 bytes");
    let percent = |text: &str| text.parse::<CapacityPercent>().expect("a percentage");
    for known in &KNOWN_TRACES {
        let Some(trace) = trace(known) else { return };
        let trace = beginning(trace, 30_000);
        let scratch = Scratch::new(known.name);
        let mut config = EngineConfig {
            geometry,
            block_tokens: TokenCount::new(4),
            host_chunks: percent("3").of(&trace),
            device_blocks: BlockCount::new(trace.longest_request().get()),
            concurrency: 1,
            disk: None,
        };
        let slot = config.sizes().expect("sizes").slot;
        config.disk = Some(EngineDisk {
            stripes: vec![DiskStripe::new(
                &scratch.0,
                EngineDisk::capacity_for(slot, percent("25").of(&trace)),
            )],
            write_policy: WritePolicy::Through,
            label: known.name.to_owned(),
        });
        let replay = |trace: &Trace| {
            let report = replay_bytes(trace, &config, |device| device, |_| ());
            let report = report.expect("a replay that runs");
            assert_eq!((report.first_wrong, report.wrong_count), (None, 0), "{}", known.name);
            let disk = report.disk.clone().expect("a disk tier");
            assert!(disk.directory_max <= disk.capacity, "{}: {disk:?}", known.name);
            assert_eq!((disk.read_failure_count, disk.write_failure_count), (0, 0));
            assert_eq!((&disk.health, disk.is_clean), (&DiskHealth::Serving, true));
            (report, disk)
        };
        let (_, cold) = replay(&trace);
        assert!(cold.hit_count > 0 && cold.read_count > 0, "{}: {cold:?}", known.name);
        let keys = sound_keys(&scratch.0);
        // Short enough that nothing is evicted before it is asked for.
        let again = beginning(trace.clone(), 2 * u64::from(trace.longest_request().get()));
        let (warm, disk) = replay(&again);
        assert_eq!(disk.warm_count, keys.len() as u64, "{}", known.name);
        let expected = hits_of(again.requests(), &keys);
        assert!(warm.hit_count >= expected, "{}: {} {expected}", known.name, warm.hit_count);
    }
}

#[test]
fn the_sessions_file_is_read_with_local_scopes_and_nested_requests_in_place() {
    let known = &KNOWN_TRACES[4];
    let Some(trace) = trace(known) else { return };
    let scopes: Vec<u32> = trace.requests().iter().map(|request| request.scope().get()).collect();
    assert!(scopes.is_sorted());
    assert_eq!((scopes.first(), scopes.last()), (Some(&1), Some(&710)));
    // Times within a session never run backwards but where a sub-agent's list ends.
    let turns_back = trace
        .requests()
        .windows(2)
        .filter(|pair| pair[0].scope() == pair[1].scope())
        .filter(|pair| pair[0].arrival_ms() > pair[1].arrival_ms())
        .count();
    assert!(turns_back <= 63, "{turns_back} for 63 sub-agents");
}
