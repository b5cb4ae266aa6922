//! Results of replays with real bytes: hits, bytes compared, rates by hop and latencies.

use super::text::{columns, duration, grouped, headings};
use super::{JsonSubject, Subject, json_document};
use crate::error::CliError;
use kvtide::pager::{HopTotals, Latency};
use kvtide::replay::{
    ByteReport, CapacityPercent, DiskReport, EngineConfig, FailureCounts, WrongByte,
};
use kvtide::units::ByteCount;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// The results of one trace or workload.
#[derive(Clone, Debug)]
pub(crate) struct ByteReplay {
    pub(crate) subject: Subject,
    /// The engine; of its counts, the host tier's differ by capacity.
    pub(crate) engine: EngineConfig,
    /// Tokens a second that the engine would compute, if given.
    pub(crate) prefill_rate: Option<f64>,
    pub(crate) capacities: Vec<(Option<CapacityPercent>, ByteReport)>,
}

impl ByteReplay {
    /// Returns the time that computing the tokens saved would have taken.
    fn prefill_saved(&self, report: &ByteReport) -> Option<Duration> {
        #[expect(clippy::cast_precision_loss, reason = "for people; tokens below 2^53 are exact")]
        let tokens = report.saved_token_count as f64;
        // A rate so low that the time is out of range saves for ever.
        let saved = |rate| Duration::try_from_secs_f64(tokens / rate).unwrap_or(Duration::MAX);
        self.prefill_rate.map(saved)
    }
}

#[derive(Serialize)]
struct JsonReplay<'replays> {
    #[serde(flatten)]
    subject: JsonSubject<'replays>,
    engine: JsonEngine,
    capacities: Vec<JsonCapacity>,
}

#[derive(Serialize)]
struct JsonEngine {
    geometry: &'static str,
    plane_count: u32,
    row_bytes: u64,
    bytes_per_token: u64,
    block_tokens: u32,
    block_bytes: u64,
    concurrency: u32,
    device_block_count: u32,
    prefill_tokens_per_second: Option<f64>,
}

#[derive(Serialize)]
struct JsonCapacity {
    capacity_percent: Option<f64>,
    capacity_chunks: u32,
    device: &'static str,
    slot_bytes: u64,
    host_tier_bytes: u64,
    device_pool_bytes: u64,
    staging_bytes: u64,
    hit_count: u64,
    hit_ratio: f64,
    hits_by_tier: JsonHits,
    eviction_count: u64,
    compared_count: u64,
    compared_bytes: u64,
    wrong_count: u64,
    first_wrong: Option<JsonWrong>,
    computed_count: u64,
    stored_count: u64,
    load_failures: BTreeMap<&'static str, u64>,
    store_failures: BTreeMap<&'static str, u64>,
    hops: JsonHops,
    lookup: JsonLatency,
    release: JsonLatency,
    store: JsonLatency,
    load: JsonLatency,
    disk: Option<JsonDisk>,
    saved_token_count: u64,
    prefill_saved_seconds: Option<f64>,
    elapsed_seconds: f64,
}

#[derive(Serialize)]
struct JsonHits {
    host: u64,
    disk: u64,
}

#[derive(Serialize)]
struct JsonDisk {
    capacity_bytes: u64,
    slot_count: u32,
    open_seconds: f64,
    warm_count: u64,
    written_count: u64,
    dropped_count: u64,
    write_failure_count: u64,
    read_count: u64,
    read_failure_count: u64,
    write_amplification: f64,
    directory_bytes_max: u64,
    is_clean: bool,
    health: String,
    load: JsonLatency,
}

#[derive(Serialize)]
struct JsonWrong {
    request: u64,
    chunk: u32,
    key: String,
    layer: u32,
    content: String,
    offset_bytes: u64,
    expected: u8,
    found: u8,
}

#[derive(Serialize)]
struct JsonHops {
    pack: JsonHop,
    out_link: JsonHop,
    write: JsonHop,
    read: JsonHop,
    in_link: JsonHop,
    unpack: JsonHop,
}

#[derive(Serialize)]
struct JsonHop {
    operation_count: u64,
    failed_operation_count: u64,
    bytes: u64,
    busy_seconds: f64,
    bytes_per_second: f64,
    latency: JsonLatency,
}

#[derive(Serialize)]
struct JsonLatency {
    count: u64,
    p50_seconds: f64,
    p99_seconds: f64,
    p999_seconds: f64,
    max_seconds: f64,
}

/// Returns the results as one JSON document.
pub(crate) fn json(replays: &[ByteReplay]) -> Result<String, CliError> {
    json_document(false, replays.iter().map(json_replay).collect())
}

fn json_replay(replay: &ByteReplay) -> JsonReplay<'_> {
    let EngineConfig { geometry, block_tokens, device_blocks, concurrency, .. } = replay.engine;
    let capacities = replay.capacities.iter();
    JsonReplay {
        subject: replay.subject.json(),
        engine: JsonEngine {
            geometry: geometry.model(),
            plane_count: geometry.plane_count(),
            row_bytes: geometry.row().get(),
            bytes_per_token: geometry.bytes_per_token().get(),
            block_tokens: block_tokens.get(),
            block_bytes: geometry.block(block_tokens).get(),
            concurrency,
            device_block_count: device_blocks.get(),
            prefill_tokens_per_second: replay.prefill_rate,
        },
        capacities: capacities
            .map(|(percent, report)| json_capacity(replay, *percent, report))
            .collect(),
    }
}

fn json_capacity(
    replay: &ByteReplay,
    percent: Option<CapacityPercent>,
    report: &ByteReport,
) -> JsonCapacity {
    JsonCapacity {
        capacity_percent: percent.map(CapacityPercent::as_f64),
        capacity_chunks: report.capacity.get(),
        device: report.device,
        slot_bytes: report.sizes.slot.get(),
        host_tier_bytes: report.sizes.host_tier.get(),
        device_pool_bytes: report.sizes.device_pool.get(),
        staging_bytes: report.sizes.staging.get(),
        hit_count: report.hit_count,
        hit_ratio: report.hit_ratio(),
        hits_by_tier: json_hits(report),
        eviction_count: report.eviction_count,
        compared_count: report.compared_count,
        compared_bytes: report.compared_bytes(),
        wrong_count: report.wrong_count,
        first_wrong: report.first_wrong.map(json_wrong),
        computed_count: report.computed_count,
        stored_count: report.stored_count,
        load_failures: report.load_failures.by_name().collect(),
        store_failures: report.store_failures.by_name().collect(),
        hops: JsonHops {
            pack: json_hop(&report.hops.pack),
            out_link: json_hop(&report.hops.out_link),
            write: json_hop(&report.hops.write),
            read: json_hop(&report.hops.read),
            in_link: json_hop(&report.hops.in_link),
            unpack: json_hop(&report.hops.unpack),
        },
        lookup: json_latency(report.lookup),
        release: json_latency(report.release),
        store: json_latency(report.store),
        load: json_latency(report.load),
        disk: report.disk.as_ref().map(json_disk),
        saved_token_count: report.saved_token_count,
        prefill_saved_seconds: replay.prefill_saved(report).map(|saved| saved.as_secs_f64()),
        elapsed_seconds: report.elapsed.as_secs_f64(),
    }
}

fn json_hits(report: &ByteReport) -> JsonHits {
    let disk = report.disk.as_ref().map_or(0, |disk| disk.hit_count);
    JsonHits { host: report.hit_count - disk, disk }
}

fn json_disk(disk: &DiskReport) -> JsonDisk {
    JsonDisk {
        capacity_bytes: disk.capacity.get(),
        slot_count: disk.slot_count,
        open_seconds: disk.open.as_secs_f64(),
        warm_count: disk.warm_count,
        written_count: disk.written_count,
        dropped_count: disk.dropped_count,
        write_failure_count: disk.write_failure_count,
        read_count: disk.read_count,
        read_failure_count: disk.read_failure_count,
        write_amplification: disk.write_amplification,
        directory_bytes_max: disk.directory_max.get(),
        is_clean: disk.is_clean,
        health: disk.health.to_string(),
        load: json_latency(disk.load),
    }
}

fn json_wrong(wrong: WrongByte) -> JsonWrong {
    JsonWrong {
        request: wrong.request,
        chunk: wrong.chunk,
        key: wrong.key.to_string(),
        layer: wrong.plane.layer,
        content: wrong.plane.content.to_string(),
        offset_bytes: wrong.offset,
        expected: wrong.expected,
        found: wrong.found,
    }
}

fn json_hop(totals: &HopTotals) -> JsonHop {
    JsonHop {
        operation_count: totals.operations,
        failed_operation_count: totals.failed_operations,
        bytes: totals.bytes.get(),
        busy_seconds: totals.busy.as_secs_f64(),
        bytes_per_second: totals.bytes_per_second(),
        latency: json_latency(totals.latency),
    }
}

fn json_latency(latency: Latency) -> JsonLatency {
    JsonLatency {
        count: latency.count,
        p50_seconds: latency.p50.as_secs_f64(),
        p99_seconds: latency.p99.as_secs_f64(),
        p999_seconds: latency.p999.as_secs_f64(),
        max_seconds: latency.max.as_secs_f64(),
    }
}

const COUNT_HEADINGS: [&str; 9] = [
    "capacity",
    "chunks",
    "host tier",
    "hits",
    "hit rate",
    "evictions",
    "compared",
    "wrong blocks",
    "time",
];

const HOP_HEADINGS: [&str; 5] = ["capacity", "pack", "out-link", "in-link", "unpack"];

const DISK_HOP_HEADINGS: [&str; 7] =
    ["capacity", "pack", "out-link", "write", "read", "in-link", "unpack"];

const LATENCY_HEADINGS: [&str; 5] = ["capacity", "lookup", "pack", "release", "load"];

/// Returns the results as tables, one set a trace or workload.
pub(crate) fn tables(replays: &[ByteReplay]) -> String {
    let tables: Vec<String> = replays.iter().map(tables_of).collect();
    tables.join("\n")
}

fn tables_of(replay: &ByteReplay) -> String {
    let table = |names: &[&str], row: &dyn Fn(&ByteReport) -> Vec<String>| {
        let mut rows = vec![headings(names)];
        rows.extend(replay.capacities.iter().map(|(percent, report)| {
            let mut cells = vec![capacity_name(*percent, report)];
            cells.extend(row(report));
            cells
        }));
        columns(&rows)
    };
    let mut text = replay.subject.title() + &engine_line(replay);
    text += &table(&COUNT_HEADINGS, &count_cells);
    text += "moved by each hop, and its rate while it was busy\n";
    let has_disk = replay.capacities.iter().any(|(_, report)| report.disk.is_some());
    text += &table(if has_disk { &DISK_HOP_HEADINGS } else { &HOP_HEADINGS }, &hop_cells);
    text += &disk_tables(replay);
    text += "latency, p50 / p99 / p99.9: pack of one chunk; release and load of one request\n";
    text += &table(&LATENCY_HEADINGS, &latency_cells);
    if let Some(rate) = replay.prefill_rate {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(text, "prefill saved, at {rate} tokens/s");
        text += &table(&["capacity", "tokens", "time"], &|report| {
            let saved = replay.prefill_saved(report).unwrap_or_default();
            vec![grouped(report.saved_token_count), duration(saved)]
        });
    }
    text + &failure_lines(replay)
}

/// Returns what the disk tier did; nothing without one.
fn disk_tables(replay: &ByteReplay) -> String {
    let disks = replay.capacities.iter().filter_map(|(_, report)| report.disk.as_ref());
    let mut text = String::new();
    for disk in disks {
        let quantiles = quantiles_of(disk.load);
        let rows = [
            ("size", format!("{} of {}", disk.directory_max, disk.capacity)),
            ("slots", grouped(disk.slot_count.into())),
            (
                "found warm",
                format!("{} chunks, open in {}", grouped(disk.warm_count), duration(disk.open)),
            ),
            ("hits on disk only", grouped(disk.hit_count)),
            (
                "written",
                format!(
                    "{} chunks, {:.2} bytes a byte stored",
                    grouped(disk.written_count),
                    disk.write_amplification
                ),
            ),
            (
                "not written",
                format!(
                    "{} dropped, {} failed",
                    grouped(disk.dropped_count),
                    grouped(disk.write_failure_count)
                ),
            ),
            (
                "read",
                format!(
                    "{} chunks, {} failed",
                    grouped(disk.read_count),
                    grouped(disk.read_failure_count)
                ),
            ),
            ("loads from disk", quantiles),
            (
                "health",
                format!(
                    "{}, closed {}",
                    disk.health,
                    if disk.is_clean { "cleanly" } else { "uncleanly" }
                ),
            ),
        ];
        text += "disk tier\n";
        for (name, value) in rows {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {name:<18} {value}");
        }
    }
    text
}

/// Says what was emulated and at what scale.
fn engine_line(replay: &ByteReplay) -> String {
    let EngineConfig { geometry, block_tokens, device_blocks, concurrency, .. } = replay.engine;
    let bytes = grouped(geometry.bytes_per_token().get());
    let scale = if geometry.is_scaled() {
        format!("scaled down to {bytes} bytes a token (--bytes-per-token)")
    } else {
        format!("{bytes} bytes a token")
    };
    let device = replay.capacities.first().map_or("no", |(_, report)| report.device);
    format!(
        "{}, {scale}: {} planes, {} bytes a row; blocks of {block_tokens} tokens, {}\n\
         {device} device, {} blocks; {concurrency} request{} at a time\n",
        geometry.model(),
        geometry.plane_count(),
        grouped(geometry.row().get()),
        geometry.block(block_tokens),
        grouped(device_blocks.get().into()),
        if concurrency == 1 { "" } else { "s" },
    )
}

fn capacity_name(percent: Option<CapacityPercent>, report: &ByteReport) -> String {
    match percent {
        Some(percent) => format!("{percent} %"),
        None => format!("{} chunks", grouped(report.capacity.get().into())),
    }
}

fn count_cells(report: &ByteReport) -> Vec<String> {
    vec![
        grouped(report.capacity.get().into()),
        report.sizes.host_tier.to_string(),
        grouped(report.hit_count),
        format!("{:.2} %", report.hit_ratio() * 100.0),
        grouped(report.eviction_count),
        ByteCount::new(report.compared_bytes()).to_string(),
        grouped(report.wrong_count),
        duration(report.elapsed),
    ]
}

fn hop_cells(report: &ByteReport) -> Vec<String> {
    let hops = &report.hops;
    let cell = |totals: &HopTotals| {
        format!("{} {:.2} GB/s", totals.bytes, totals.bytes_per_second() / 1e9)
    };
    let disk = [&hops.write, &hops.read].into_iter().filter(|_| report.disk.is_some());
    let out = [&hops.pack, &hops.out_link].into_iter();
    out.chain(disk).chain([&hops.in_link, &hops.unpack]).map(cell).collect()
}

fn latency_cells(report: &ByteReport) -> Vec<String> {
    [report.lookup, report.hops.pack.latency, report.release, report.load].map(quantiles_of).into()
}

fn quantiles_of(latency: Latency) -> String {
    let quantiles = [latency.p50, latency.p99, latency.p999].map(duration);
    if latency.count == 0 { "-".to_owned() } else { quantiles.join(" / ") }
}

/// Says which chunks ended without their bytes; nothing when none did.
fn failure_lines(replay: &ByteReplay) -> String {
    let mut text = String::new();
    let mut add = |report: &ByteReport, percent, what: &str, failures: &FailureCounts| {
        let kinds: Vec<String> = failures
            .by_name()
            .map(|(name, count)| format!("{} {}", grouped(count), name.replace('_', " ")))
            .collect();
        if !kinds.is_empty() {
            let name = capacity_name(percent, report);
            let _ = writeln!(text, "{what} at {name}: {}", kinds.join(", "));
        }
    };
    for (percent, report) in &replay.capacities {
        add(report, *percent, "chunks that could not be loaded", &report.load_failures);
        add(report, *percent, "chunks that could not be stored", &report.store_failures);
    }
    text
}
