//! Results of replays of metadata: hits and evictions by capacity.

use super::text::{columns, grouped, headings, whole};
use super::{JsonSubject, Subject, json_document};
use crate::error::CliError;
use kvtide::replay::{CapacityPercent, CapacityReport};
use serde::Serialize;

/// The results of one trace or workload.
#[derive(Clone, Debug)]
pub(crate) struct DryReplay {
    pub(crate) subject: Subject,
    pub(crate) capacities: Vec<(Option<CapacityPercent>, CapacityReport)>,
}

#[derive(Serialize)]
struct JsonReplay<'replays> {
    #[serde(flatten)]
    subject: JsonSubject<'replays>,
    capacities: Vec<JsonCapacity>,
}

#[derive(Serialize)]
struct JsonCapacity {
    capacity_percent: Option<f64>,
    capacity_chunks: u32,
    hit_count: u64,
    hit_ratio: f64,
    eviction_count: u64,
    elapsed_seconds: f64,
    block_uses_per_second: f64,
}

/// Returns the results as one JSON document.
pub(crate) fn json(replays: &[DryReplay]) -> Result<String, CliError> {
    json_document(true, replays.iter().map(json_replay).collect())
}

fn json_replay(replay: &DryReplay) -> JsonReplay<'_> {
    let capacities = replay.capacities.iter();
    JsonReplay {
        subject: replay.subject.json(),
        capacities: capacities
            .map(|(percent, report)| JsonCapacity {
                capacity_percent: percent.map(CapacityPercent::as_f64),
                capacity_chunks: report.capacity.get(),
                hit_count: report.hit_count,
                hit_ratio: report.hit_ratio(),
                eviction_count: report.eviction_count,
                elapsed_seconds: report.elapsed.as_secs_f64(),
                block_uses_per_second: report.block_uses_per_second(),
            })
            .collect(),
    }
}

const HEADINGS: [&str; 6] = ["capacity", "chunks", "hits", "hit rate", "evictions", "block uses/s"];

/// Returns the results as one table a trace or workload.
pub(crate) fn tables(replays: &[DryReplay]) -> String {
    let tables: Vec<String> = replays.iter().map(table).collect();
    tables.join("\n")
}

fn table(replay: &DryReplay) -> String {
    let mut rows = vec![headings(&HEADINGS)];
    rows.extend(replay.capacities.iter().map(row));
    replay.subject.title() + &columns(&rows)
}

fn row((percent, report): &(Option<CapacityPercent>, CapacityReport)) -> Vec<String> {
    let hit_percent = report.hit_ratio() * 100.0;
    vec![
        percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent} %")),
        grouped(report.capacity.get().into()),
        grouped(report.hit_count),
        format!("{hit_percent:.2} %"),
        grouped(report.eviction_count),
        grouped(whole(report.block_uses_per_second())),
    ]
}
