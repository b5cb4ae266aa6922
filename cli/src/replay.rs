//! `kvtide replay`: reads or generates traces, runs each at each capacity, and reports.
//!
//! Everything that can be refused is refused before the first replay starts.

use crate::args::{Preset, ReplayArguments};
use crate::error::CliError;
use crate::report::{self, Source, WorkloadSource};
use crate::{bytes, dry, progress, trace_file};
use kvtide::replay::{CapacityPercent, DEFAULT_CAPACITY_PERCENTS, Generator, Trace, Workload};
use kvtide::units::ChunkCount;
use std::io::{self, Write};
use std::path::Path;

/// Requests of the built-in workload unless given: as many as take a few seconds.
const DEFAULT_REQUESTS: u64 = 2_000;
/// The same with metadata only, which is a hundred times as fast.
const DEFAULT_DRY_REQUESTS: u64 = 10_000;
/// Seed of the built-in workload unless given.
const DEFAULT_SEED: u64 = 1;

/// Eviction policy of the caches and pagers that are replayed against.
pub(crate) const POLICY: &str = "lru";

/// A capacity to replay at, and the percentage it comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capacity {
    pub(crate) percent: Option<CapacityPercent>,
    pub(crate) chunks: ChunkCount,
}

/// Something to replay, at these capacities.
pub(crate) struct Job {
    pub(crate) source: Source,
    pub(crate) trace: Trace,
    pub(crate) capacities: Vec<Capacity>,
}

/// Runs the command.
pub(crate) fn run(arguments: &ReplayArguments) -> Result<(), CliError> {
    let jobs = jobs(arguments)?;
    if arguments.dry_run {
        let replays = jobs.into_iter().map(dry::replay).collect::<Result<Vec<_>, _>>()?;
        let json = || report::dry::json(&replays);
        return print(&if arguments.json { json()? } else { report::dry::tables(&replays) });
    }
    bytes::check_disk(&jobs, &arguments.engine)?;
    for job in &jobs {
        bytes::check(job, &arguments.engine)?;
    }
    let replay = |job| bytes::replay(job, &arguments.engine);
    let replays = jobs.into_iter().map(replay).collect::<Result<Vec<_>, _>>()?;
    let json = || report::bytes::json(&replays);
    print(&if arguments.json { json()? } else { report::bytes::tables(&replays) })?;
    bytes::check_bytes(&replays)
}

fn jobs(arguments: &ReplayArguments) -> Result<Vec<Job>, CliError> {
    if arguments.traces.is_empty() {
        let (source, trace) = generate(arguments)?;
        return Ok(vec![job(source, trace, arguments)?]);
    }
    let read = |path: &Path| {
        let source = Source::Trace(path.display().to_string());
        let mut trace = trace_file::read(path)?;
        if let Some(requests) = arguments.requests {
            let error = |error| CliError::Trace { name: source.name(), source: error };
            trace = trace.truncated(requests).map_err(error)?;
        }
        job(source, trace, arguments)
    };
    arguments.traces.iter().map(|path| read(path)).collect()
}

fn generate(arguments: &ReplayArguments) -> Result<(Source, Trace), CliError> {
    let preset = arguments.workload.unwrap_or(Preset::Chat);
    let mut workload: Workload = preset.workload();
    if let Some(live_sessions) = arguments.live_sessions {
        workload.live_sessions = live_sessions;
    }
    let default_requests = if arguments.dry_run { DEFAULT_DRY_REQUESTS } else { DEFAULT_REQUESTS };
    let source = WorkloadSource {
        name: preset.name(),
        seed: arguments.seed.unwrap_or(DEFAULT_SEED),
        request_count: arguments.requests.unwrap_or(default_requests),
        live_session_count: workload.live_sessions,
    };
    let generator = Generator::new(workload, source.seed, source.request_count)?;
    let bar = progress::generating(source.name, source.request_count);
    let requests = bar.wrap_iter(generator).collect();
    let source = Source::Workload(source);
    let trace = Trace::from_requests(requests)
        .map_err(|error| CliError::Trace { name: source.name(), source: error })?;
    Ok((source, trace))
}

fn job(source: Source, trace: Trace, arguments: &ReplayArguments) -> Result<Job, CliError> {
    let capacities = capacities(&source, &trace, arguments)?;
    Ok(Job { source, trace, capacities })
}

/// Returns the capacities asked for. Of the default ones, those of less than a chunk are left out.
fn capacities(
    source: &Source,
    trace: &Trace,
    arguments: &ReplayArguments,
) -> Result<Vec<Capacity>, CliError> {
    let name = || source.name();
    let unique = trace.unique_blocks().count();
    if unique == 0 {
        return Err(CliError::NoBlocks { name: name() });
    }
    if !arguments.capacity_chunks.is_empty() {
        let given = arguments.capacity_chunks.iter();
        let capacity = |&chunks| Capacity { percent: None, chunks };
        return Ok(given.map(capacity).collect());
    }
    if !arguments.engine.host_capacity.is_empty() {
        return bytes::host_capacities(trace, &arguments.engine);
    }
    let is_default = arguments.capacity_percent.is_empty();
    let percents =
        if is_default { &DEFAULT_CAPACITY_PERCENTS[..] } else { &arguments.capacity_percent };
    let mut capacities = Vec::new();
    for &percent in percents {
        let chunks = percent.of(trace);
        if chunks.get() > 0 {
            let percent = Some(percent);
            capacities.push(Capacity { percent, chunks });
        } else if !is_default {
            return Err(CliError::LessThanOneChunk { percent, unique, name: name() });
        }
    }
    if capacities.is_empty() {
        return Err(CliError::OneBlock { name: name() });
    }
    Ok(capacities)
}

/// Prints a result.
pub(crate) fn print(text: &str) -> Result<(), CliError> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).map_err(CliError::Output)
}
