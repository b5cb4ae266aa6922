//! Results as a table for people or as JSON for programs.
//!
//! `dry.rs` reports replays of metadata, `bytes.rs` those with real bytes; what both say of a trace
//! is here. `inspect.rs`, `check.rs` and `gc.rs` report what is under a root.

pub(crate) mod bytes;
pub(crate) mod check;
pub(crate) mod dry;
pub(crate) mod gc;
pub(crate) mod inspect;
mod text;

use crate::error::CliError;
use kvtide::replay::Trace;
use serde::Serialize;
use text::grouped;

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

/// What a replay was of, whatever was measured.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) source: Source,
    pub(crate) policy: &'static str,
    pub(crate) request_count: u64,
    pub(crate) block_use_count: u64,
    pub(crate) unique_block_count: u64,
}

impl Subject {
    pub(crate) fn new(source: Source, policy: &'static str, trace: &Trace) -> Self {
        Self {
            source,
            policy,
            request_count: trace.requests().len() as u64,
            block_use_count: trace.block_use_count(),
            unique_block_count: trace.unique_blocks().count(),
        }
    }

    /// Returns the first line of a table.
    fn title(&self) -> String {
        format!(
            "{}: {} requests, {} block uses, {} unique blocks; policy {}, cold start\n",
            self.source.name(),
            grouped(self.request_count),
            grouped(self.block_use_count),
            grouped(self.unique_block_count),
            self.policy
        )
    }

    fn json(&self) -> JsonSubject<'_> {
        let (trace, workload) = match &self.source {
            Source::Trace(name) => (Some(name.as_str()), None),
            Source::Workload(workload) => (None, Some(workload)),
        };
        JsonSubject {
            trace,
            workload,
            policy: self.policy,
            request_count: self.request_count,
            block_use_count: self.block_use_count,
            unique_block_count: self.unique_block_count,
        }
    }
}

#[derive(Serialize)]
struct JsonSubject<'subject> {
    trace: Option<&'subject str>,
    workload: Option<&'subject WorkloadSource>,
    policy: &'static str,
    request_count: u64,
    block_use_count: u64,
    unique_block_count: u64,
}

#[derive(Serialize)]
struct JsonReport<R> {
    kvtide_version: &'static str,
    metadata_only: bool,
    replays: Vec<R>,
}

/// Returns one JSON document; `kvtide replay --help` documents its fields.
fn json_document(is_metadata_only: bool, replays: Vec<impl Serialize>) -> Result<String, CliError> {
    let report = JsonReport {
        kvtide_version: env!("CARGO_PKG_VERSION"),
        metadata_only: is_metadata_only,
        replays,
    };
    Ok(serde_json::to_string_pretty(&report)? + "\n")
}
