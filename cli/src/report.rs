//! Results as a table for people or as JSON for programs.

use crate::error::CliError;
use kvtide::replay::{CapacityPercent, CapacityReport, Trace};
use serde::Serialize;
use std::fmt::Write;

/// What was replayed.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// A trace file; its path.
    Trace(String),
    /// A generated workload.
    Workload(WorkloadSource),
}

/// How a workload was generated: enough to generate it again.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct WorkloadSource {
    pub(crate) name: &'static str,
    pub(crate) seed: u64,
    pub(crate) request_count: u64,
    pub(crate) live_session_count: u32,
}

impl Source {
    /// Names the source in a word or two, for progress bars.
    pub(crate) fn short_name(&self) -> &str {
        match self {
            Self::Trace(path) => path.rsplit('/').next().unwrap_or(path),
            Self::Workload(workload) => workload.name,
        }
    }

    /// Names the source in tables, notes and errors.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Trace(name) => format!("trace {}", name.replace(char::is_control, " ")),
            Self::Workload(workload) => format!(
                "workload {} (seed {}, {} live sessions)",
                workload.name, workload.seed, workload.live_session_count
            ),
        }
    }
}

/// The results of one trace or workload.
#[derive(Clone, Debug)]
pub(crate) struct Replay {
    pub(crate) source: Source,
    pub(crate) policy: &'static str,
    pub(crate) request_count: u64,
    pub(crate) block_use_count: u64,
    pub(crate) unique_block_count: u64,
    pub(crate) capacities: Vec<(Option<CapacityPercent>, CapacityReport)>,
}

impl Replay {
    pub(crate) fn new(source: Source, policy: &'static str, trace: &Trace) -> Self {
        Self {
            source,
            policy,
            request_count: trace.requests().len() as u64,
            block_use_count: trace.block_use_count(),
            unique_block_count: trace.unique_blocks().count(),
            capacities: Vec::new(),
        }
    }
}

#[derive(Serialize)]
struct JsonReport<'replays> {
    kvtide_version: &'static str,
    metadata_only: bool,
    replays: Vec<JsonReplay<'replays>>,
}

#[derive(Serialize)]
struct JsonReplay<'replays> {
    trace: Option<&'replays str>,
    workload: Option<&'replays WorkloadSource>,
    policy: &'static str,
    request_count: u64,
    block_use_count: u64,
    unique_block_count: u64,
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

/// Returns the results as one JSON document; `kvtide replay --help` documents its fields.
pub(crate) fn json(replays: &[Replay]) -> Result<String, CliError> {
    let report = JsonReport {
        kvtide_version: env!("CARGO_PKG_VERSION"),
        metadata_only: true,
        replays: replays.iter().map(json_replay).collect(),
    };
    Ok(serde_json::to_string_pretty(&report)? + "\n")
}

fn json_replay(replay: &Replay) -> JsonReplay<'_> {
    let (trace, workload) = match &replay.source {
        Source::Trace(name) => (Some(name.as_str()), None),
        Source::Workload(workload) => (None, Some(workload)),
    };
    let capacities = replay.capacities.iter();
    JsonReplay {
        trace,
        workload,
        policy: replay.policy,
        request_count: replay.request_count,
        block_use_count: replay.block_use_count,
        unique_block_count: replay.unique_block_count,
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
pub(crate) fn tables(replays: &[Replay]) -> String {
    let tables: Vec<String> = replays.iter().map(table).collect();
    tables.join("\n")
}

fn table(replay: &Replay) -> String {
    let mut text = format!(
        "{}: {} requests, {} block uses, {} unique blocks; policy {}, cold start\n",
        replay.source.name(),
        grouped(replay.request_count),
        grouped(replay.block_use_count),
        grouped(replay.unique_block_count),
        replay.policy
    );
    let mut rows = vec![HEADINGS.map(str::to_owned)];
    rows.extend(replay.capacities.iter().map(row));
    let widths: [usize; HEADINGS.len()] = std::array::from_fn(|column| {
        let cells = rows.iter().map(|row| row[column].len());
        cells.max().unwrap_or(0)
    });
    for row in &rows {
        for (cell, width) in row.iter().zip(widths) {
            // Writing to a string cannot fail.
            let _ = write!(text, "  {cell:>width$}");
        }
        text.push('\n');
    }
    text
}

fn row((percent, report): &(Option<CapacityPercent>, CapacityReport)) -> [String; HEADINGS.len()] {
    let hit_percent = report.hit_ratio() * 100.0;
    [
        percent.map_or_else(|| "-".to_owned(), |percent| format!("{percent} %")),
        grouped(report.capacity.get().into()),
        grouped(report.hit_count),
        format!("{hit_percent:.2} %"),
        grouped(report.eviction_count),
        grouped(whole(report.block_uses_per_second())),
    ]
}

/// Rounds a rate for people.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rate is not negative, and `as` saturates"
)]
fn whole(rate: f64) -> u64 {
    rate.round() as u64
}

/// Writes a number with a comma before each three digits.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn numbers_are_grouped_by_three_digits() {
        let printed = [0, 7, 999, 1_000, 12_345, 123_456, 94_310_647].map(grouped);
        let expected = ["0", "7", "999", "1,000", "12,345", "123,456", "94,310,647"];
        assert_eq!(printed, expected);
        assert_eq!(grouped(u64::MAX), "18,446,744,073,709,551,615");
    }
}
