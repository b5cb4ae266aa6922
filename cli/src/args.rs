//! The command line.

use crate::error::CliError;
use clap::{Args, Parser, Subcommand, ValueEnum};
use kvtide::replay::{CapacityPercent, UNIQUE_BLOCKS_MAX, Workload};
use kvtide::units::ChunkCount;
use std::path::PathBuf;

/// Paging runtime for the KV caches of large language models.
#[derive(Debug, Parser)]
#[command(name = "kvtide", version, arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Replay(ReplayArguments),
}

const REPLAY_HELP: &str = "\
Examples:
  kvtide replay
          Chat workload from the built-in generator, at five capacities
  kvtide replay --workload agent --seed 7 --requests 50000 --capacity-percent 2.5,20
          Agent loops, at two capacities
  kvtide replay conversation_trace.jsonl.zst --capacity-chunks 20000
          A trace file, with room for 20,000 chunks
  zstd -dc *.jsonl.zst | kvtide replay --json -
          Traces from standard input, results as JSON

Traces:
  JSON lines, plain or zstd-compressed. A line is a request with hash_ids: [number, ..] or
  hash_runs: [[first, count], ..], input_length and output_length; or a session with
  requests: [..], whose block numbers are its own. A block number stands for the block and
  everything before it. One trace block is one chunk.

JSON (--json) is one object:
  kvtide_version        text
  metadata_only         true: no KV bytes moved
  replays               one object a trace or workload:
    trace               its path as given, or null
    workload            null, or an object: name, seed, request_count, live_session_count
    policy              eviction policy
    request_count       requests replayed
    block_use_count     blocks of all requests, each use counted
    unique_block_count  unique blocks of all requests
    capacities          one object a capacity:
      capacity_percent       percent of the unique blocks, or null with --capacity-chunks
      capacity_chunks        chunks that the cache holds
      hit_count              block uses that hit
      hit_ratio              hit_count / block_use_count, 0 to 1
      eviction_count         chunks evicted
      elapsed_seconds        wall time of the replay
      block_uses_per_second  block_use_count / elapsed_seconds

Exit codes: 0 success, 1 the program failed, 2 what it was given is wrong.";

/// Replay request traces, or a built-in workload, and count hits and evictions per capacity
#[derive(Args, Debug)]
#[command(after_help = REPLAY_HELP)]
pub(crate) struct ReplayArguments {
    /// Trace files, each replayed by itself from a cold start; `-` reads standard input. Without
    /// any, the built-in workload runs
    #[arg(value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,

    /// Replay metadata only and move no KV bytes, which is all that this version does
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Capacities in percent of the unique blocks, rounded down [default: those of 1,5,10,25,50
    /// that are a chunk or more]
    #[arg(
        long,
        value_name = "PERCENT",
        value_delimiter = ',',
        allow_hyphen_values = true,
        conflicts_with = "capacity_chunks"
    )]
    pub(crate) capacity_percent: Vec<CapacityPercent>,

    /// Capacities in chunks
    #[arg(
        long,
        value_name = "CHUNKS",
        value_delimiter = ',',
        allow_hyphen_values = true,
        value_parser = capacity_chunks
    )]
    pub(crate) capacity_chunks: Vec<ChunkCount>,

    /// Built-in workload [default: chat]
    #[arg(long, value_enum, conflicts_with = "traces")]
    pub(crate) workload: Option<Preset>,

    /// Seed of the built-in workload; one seed means the same requests anywhere [default: 1]
    #[arg(
        long,
        value_name = "NUMBER",
        allow_negative_numbers = true,
        value_parser = seed,
        conflicts_with = "traces"
    )]
    pub(crate) seed: Option<u64>,

    /// Requests of the built-in workload [default: 10000]
    #[arg(
        long,
        value_name = "COUNT",
        allow_negative_numbers = true,
        value_parser = requests,
        conflicts_with = "traces"
    )]
    pub(crate) requests: Option<u64>,

    /// Sessions of the built-in workload that are live at once [default: chat 256, agent 32]
    #[arg(
        long,
        value_name = "COUNT",
        allow_negative_numbers = true,
        value_parser = live_sessions,
        conflicts_with = "traces"
    )]
    pub(crate) live_sessions: Option<u32>,

    /// Print the results as one JSON document instead of tables
    #[arg(long)]
    pub(crate) json: bool,
}

/// A built-in workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Preset {
    /// Multi-turn chat: many sessions, shared system prompts of skewed popularity
    Chat,
    /// Agent loops: long prompts that share tool definitions, with sub-agents
    Agent,
}

impl Preset {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Agent => "agent",
        }
    }

    pub(crate) fn workload(self) -> Workload {
        match self {
            Self::Chat => Workload::CHAT,
            Self::Agent => Workload::AGENT,
        }
    }
}

/// Reads the command line.
pub(crate) fn parse() -> Result<Arguments, CliError> {
    Ok(Arguments::try_parse()?)
}

fn whole_number(text: &str, low: u64, high: u64) -> Result<u64, String> {
    text.parse()
        .ok()
        .filter(|number| (low..=high).contains(number))
        .ok_or_else(|| format!("give a whole number from {low} to {high}"))
}

fn seed(text: &str) -> Result<u64, String> {
    whole_number(text, 0, u64::MAX)
}

fn requests(text: &str) -> Result<u64, String> {
    whole_number(text, 1, Workload::REQUESTS_MAX)
}

fn live_sessions(text: &str) -> Result<u32, String> {
    narrow(whole_number(text, 1, Workload::SESSIONS_MAX.into())?)
}

fn capacity_chunks(text: &str) -> Result<ChunkCount, String> {
    narrow(whole_number(text, 1, UNIQUE_BLOCKS_MAX)?).map(ChunkCount::new)
}

/// Narrows a number whose bound fits 32 bits.
fn narrow(number: u64) -> Result<u32, String> {
    u32::try_from(number).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::Arguments;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_well_formed() {
        Arguments::command().debug_assert();
    }
}
