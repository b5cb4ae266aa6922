//! The command line.

use crate::error::CliError;
use crate::size;
use crate::store_args::{CheckArguments, GcArguments, InspectArguments};
use clap::{Args, Parser, Subcommand, ValueEnum};
use kvtide::core::WritePolicy;
use kvtide::replay::{CapacityPercent, Geometry, UNIQUE_BLOCKS_MAX, Workload};
use kvtide::units::{BlockCount, ByteCount, ChunkCount};
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
    Replay(Box<ReplayArguments>),
    Inspect(InspectArguments),
    Check(CheckArguments),
    Gc(GcArguments),
}

const REPLAY_HELP: &str = "\
Examples:
  kvtide replay
          Chat workload from the built-in generator, at five capacities of the host tier
  kvtide replay --dry-run --workload agent --seed 7 --requests 50000 --capacity-percent 2.5,20
          Agent loops, metadata only, at two capacities
  kvtide replay --requests 200 --bytes-per-token 128KiB --host-capacity 2GiB
          The first 200 requests with all KV of Llama-3-8B
  kvtide replay conversation_trace.jsonl.zst --block-tokens 512 --capacity-chunks 20000
          A trace file, with room for 20,000 chunks
  kvtide replay --disk /mnt/nvme/kv --disk-percent 25 --capacity-percent 5
          With a disk tier; run it twice, and the second run is warm
  kvtide replay --disk /mnt/a/kv --disk /mnt/b/kv --disk-capacity 2GiB --capacity-percent 5
          With a disk tier over two drives, 2 GiB on each
  zstd -dc *.jsonl.zst | kvtide replay --json -
          Traces from standard input, results as JSON

What runs:
  An emulated engine. One trace block is one chunk and one device block. Each request looks its
  chunks up, takes device blocks, loads the hits and compares every byte of them, computes the
  rest, stores it and waits until it is stored. The bytes of a chunk follow from its key, plane and
  place, so a chunk that is swapped, shifted, stale or cut short cannot pass for the right one.
  Requests are taken up in file order. With --dry-run the same requests run through the same
  core, and no bytes move.

Traces:
  JSON lines, plain or zstd-compressed. A line is a request with hash_ids: [number, ..] or
  hash_runs: [[first, count], ..], input_length and output_length; or a session with
  requests: [..], whose block numbers are its own. A block number stands for the block and
  everything before it.

JSON (--json) is one object:
  kvtide_version        text
  metadata_only         whether it was a --dry-run
  replays               one object a trace or workload:
    trace               its path as given, or null
    workload            null, or an object: name, seed, request_count, live_session_count
    policy              eviction policy
    request_count       requests replayed
    block_use_count     blocks of all requests, each use counted
    unique_block_count  unique blocks of all requests
    engine              an object, not with --dry-run: geometry, plane_count, row_bytes,
                        bytes_per_token, block_tokens, block_bytes, concurrency,
                        device_block_count, prefill_tokens_per_second or null
    capacities          one object a capacity:
      capacity_percent       percent of the unique blocks, or null
      capacity_chunks        chunks that the host tier may hold
      hit_count              block uses that hit
      hit_ratio              hit_count / block_use_count, 0 to 1
      eviction_count         chunks evicted
      elapsed_seconds        wall time of the replay
  With --dry-run also:
      block_uses_per_second  block_use_count / elapsed_seconds
  Without:
      device                 back end of the device
      slot_bytes, host_tier_bytes, device_pool_bytes, staging_bytes
                             memory: a slot, and all of each kind; a host tier that would hold
                             more than the trace has is made no larger than that
      hits_by_tier           an object: host, disk (on disk only)
      compared_count         blocks loaded and compared
      compared_bytes         bytes of those
      wrong_count            blocks that were not what was stored
      first_wrong            null, or an object: request and chunk (from 0), key, layer, content,
                             offset_bytes (in the plane's part of the block), expected, found
      computed_count         blocks that the engine computed
      stored_count           chunks that became resident
      load_failures, store_failures
                             chunks by kind of failure
      hops                   pack, out_link, write, read, in_link and unpack, each an object:
                             operation_count,
                             failed_operation_count, bytes, busy_seconds (an operation of the hop
                             was under way), bytes_per_second (bytes / busy_seconds), latency of
                             one chunk
      lookup, release, store, load
                             latencies of one request: the lookup; from the store's call until
                             its blocks may be overwritten, and until it is resident; the load
      disk                   null, or an object, of all directories: capacity_bytes, slot_count,
                             open_seconds,
                             warm_count (chunks that an earlier replay left), written_count,
                             dropped_count (not written: eviction was faster, or no room),
                             write_failure_count, read_count, read_failure_count,
                             write_amplification (bytes written / bytes stored),
                             directory_bytes_max (blocks in use, sampled), is_clean (closed so
                             that the next open is warm at once), health, load (latency of
                             requests with at least one chunk from disk)
      saved_token_count      prompt tokens that needed no prefill
      prefill_saved_seconds  saved_token_count / prefill_tokens_per_second, or null
  A latency is an object: count, p50_seconds, p99_seconds, p999_seconds, max_seconds.

Exit codes: 0 success, 1 the program failed or bytes came back wrong, 2 what it was given is
wrong.";

/// Most tokens of a block; real ones have 16 to 512.
const BLOCK_TOKENS_MAX: u64 = 65_536;

/// Most requests at a time, each on a thread of its own.
const CONCURRENCY_MAX: u64 = 256;

/// Replay request traces, or a built-in workload, with real bytes at several capacities
#[derive(Args, Debug)]
#[command(after_help = REPLAY_HELP)]
pub(crate) struct ReplayArguments {
    /// Trace files, each replayed by itself from a cold start; `-` reads standard input. Without
    /// any, the built-in workload runs
    #[arg(value_name = "TRACE")]
    pub(crate) traces: Vec<PathBuf>,

    /// Replay metadata only: count hits and evictions, and move no KV bytes
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Capacities of the host tier in percent of the unique blocks, rounded down [default: those of
    /// 1,5,10,25,50 that are a chunk or more]
    #[arg(
        long,
        value_name = "PERCENT",
        value_delimiter = ',',
        allow_hyphen_values = true,
        conflicts_with = "capacity_chunks"
    )]
    pub(crate) capacity_percent: Vec<CapacityPercent>,

    /// Capacities of the host tier in chunks
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

    /// Requests of the built-in workload [default: 2000, or 10000 with --dry-run]; of a trace, the
    /// most that are replayed, from its first [default: all]
    #[arg(
        long,
        value_name = "COUNT",
        allow_negative_numbers = true,
        value_parser = requests
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

    #[command(flatten)]
    pub(crate) engine: EngineArguments,
}

/// What the emulated engine is like; without effect in a dry run, and refused there.
#[derive(Args, Debug)]
#[command(next_help_heading = "Engine, not with --dry-run")]
pub(crate) struct EngineArguments {
    /// Model whose KV is replayed: Llama-3-8B, Llama-3-70B, Qwen3-8B or DeepSeek-V3 [default:
    /// Llama-3-8B]
    #[arg(long, value_name = "MODEL", conflicts_with = "dry_run")]
    pub(crate) geometry: Option<Geometry>,

    /// Bytes of one token in all layers, to scale the model down: its planes stay, their rows get
    /// shorter [default: rows of 16 bytes; the whole model: 131072 for Llama-3-8B, 327680 for
    /// Llama-3-70B, 147456 for Qwen3-8B, 70272 for DeepSeek-V3]
    #[arg(
        long,
        value_name = "SIZE",
        allow_negative_numbers = true,
        value_parser = size::parse,
        conflicts_with = "dry_run"
    )]
    pub(crate) bytes_per_token: Option<ByteCount>,

    /// Tokens of KV that a trace block stands for [default: 16]
    #[arg(
        long,
        value_name = "COUNT",
        allow_negative_numbers = true,
        value_parser = block_tokens,
        conflicts_with = "dry_run"
    )]
    pub(crate) block_tokens: Option<u32>,

    /// Capacities of the host tier in bytes, headers included, such as 512MiB,2GiB
    #[arg(
        long,
        value_name = "SIZE",
        value_delimiter = ',',
        allow_hyphen_values = true,
        value_parser = size::parse,
        conflicts_with_all = ["dry_run", "capacity_percent", "capacity_chunks"]
    )]
    pub(crate) host_capacity: Vec<ByteCount>,

    /// Blocks of the device pool [default: those of the longest request, for each request at a
    /// time]
    #[arg(
        long,
        value_name = "COUNT",
        allow_negative_numbers = true,
        value_parser = device_blocks,
        conflicts_with_all = ["dry_run", "device_capacity"]
    )]
    pub(crate) device_blocks: Option<BlockCount>,

    /// Bytes of the device pool, in place of --device-blocks
    #[arg(
        long,
        value_name = "SIZE",
        allow_negative_numbers = true,
        value_parser = size::parse,
        conflicts_with = "dry_run"
    )]
    pub(crate) device_capacity: Option<ByteCount>,

    /// Requests under way at a time [default: 1]
    #[arg(
        long,
        value_name = "COUNT",
        allow_negative_numbers = true,
        value_parser = concurrency,
        conflicts_with = "dry_run"
    )]
    pub(crate) concurrency: Option<u32>,

    /// Directory of a disk tier behind the host tier. It is kept: a second replay of the same trace
    /// is warm. Takes one trace and one capacity of the host tier. Given several times, the
    /// directories, usually on several drives, are used as one tier
    #[arg(long, value_name = "DIR", conflicts_with = "dry_run", requires = "disk_size")]
    pub(crate) disk: Vec<PathBuf>,

    /// Bytes that each directory may take up, all of it counted. Given several times, one for each
    /// --disk in its order
    #[arg(
        long,
        value_name = "SIZE",
        allow_negative_numbers = true,
        value_parser = size::parse,
        group = "disk_size",
        requires = "disk"
    )]
    pub(crate) disk_capacity: Vec<ByteCount>,

    /// The same for all directories together, as room for this percentage of the unique blocks
    #[arg(
        long,
        value_name = "PERCENT",
        allow_negative_numbers = true,
        group = "disk_size",
        requires = "disk"
    )]
    pub(crate) disk_percent: Option<CapacityPercent>,

    /// When chunks are written to disk [default: through]
    #[arg(long, value_enum, value_name = "WHEN", requires = "disk")]
    pub(crate) write_policy: Option<WriteWhen>,

    /// Say how long the prefill of the hits would have taken at this rate
    #[arg(
        long,
        value_name = "TOKENS_PER_S",
        allow_negative_numbers = true,
        value_parser = prefill_rate,
        conflicts_with = "dry_run"
    )]
    pub(crate) prefill_rate: Option<f64>,
}

/// When chunks are written to disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum WriteWhen {
    /// As soon as they are stored
    Through,
    /// When the host tier is over 90 % full, until it is at 80 %, the coldest first
    Back,
    /// As late as can be: when they leave the host tier
    OnEvict,
}

impl WriteWhen {
    pub(crate) fn policy(self) -> WritePolicy {
        match self {
            Self::Through => WritePolicy::Through,
            Self::Back => WritePolicy::Back { high_percent: 90, low_percent: 80 },
            Self::OnEvict => WritePolicy::OnEvict,
        }
    }
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

fn block_tokens(text: &str) -> Result<u32, String> {
    narrow(whole_number(text, 1, BLOCK_TOKENS_MAX)?)
}

fn device_blocks(text: &str) -> Result<BlockCount, String> {
    narrow(whole_number(text, 1, UNIQUE_BLOCKS_MAX)?).map(BlockCount::new)
}

fn concurrency(text: &str) -> Result<u32, String> {
    narrow(whole_number(text, 1, CONCURRENCY_MAX)?)
}

fn prefill_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate: &f64| rate.is_finite() && *rate > 0.0);
    rate.ok_or_else(|| "give tokens a second, a number over 0".to_owned())
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
