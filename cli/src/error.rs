//! Why the program ends without a result: one line for a person, and an exit code.

use clap::error::ErrorKind;
use kvtide::io::{DiskError, FileError};
use kvtide::pager::OpenError;
use kvtide::replay::{
    ByteReplayError, BytesPerTokenError, CapacityPercent, TraceError, WorkloadError, WrongByte,
};
use kvtide::store::StoreError;
use kvtide::units::ByteCount;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

/// Exit code when the program failed.
const FAILED: u8 = 1;
/// Exit code when what the program was given is wrong; clap's own too.
const BAD_INPUT: u8 = 2;

/// Why the program ends without a result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CliError {
    /// The command line is wrong, or asked for help.
    #[error("{}", one_line(.0))]
    Usage(#[from] clap::Error),
    /// A trace cannot be opened.
    #[error("cannot open trace {name}: {source}; check the path and its permissions")]
    Open { name: String, source: io::Error },
    /// A trace is a folder.
    #[error("trace {name} is a folder; give the files in it")]
    Folder { name: String },
    /// A trace cannot be read.
    #[error("trace {name}: {source}")]
    Trace { name: String, source: TraceError },
    /// The built-in workload cannot be made as asked.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// No request uses any block.
    #[error("{name} has no blocks to cache: every request is empty; give another trace")]
    NoBlocks { name: String },
    /// A share of the blocks asked for is less than one chunk.
    #[error(
        "--capacity-percent {percent}: of the {unique} unique blocks of {name} that is less than \
         one chunk; give a larger share, or --capacity-chunks"
    )]
    LessThanOneChunk { percent: CapacityPercent, unique: u64, name: String },
    /// Half of the blocks, the largest default share, is less than one chunk.
    #[error(
        "{name} has one unique block, too few for the default capacities; \
         give --capacity-chunks 1"
    )]
    OneBlock { name: String },
    /// The KV of a token cannot have that size.
    #[error("--bytes-per-token: {0}")]
    BytesPerToken(#[from] BytesPerTokenError),
    /// The host tier asked for does not hold a chunk.
    #[error(
        "--host-capacity {capacity}: a chunk takes {slot}; give that much at least, or lower \
         --bytes-per-token or --block-tokens"
    )]
    LessThanOneSlot { capacity: ByteCount, slot: ByteCount },
    /// The device pool asked for does not hold a block.
    #[error(
        "--device-capacity {capacity}: a block takes {block}; give that much at least, or lower \
         --bytes-per-token or --block-tokens"
    )]
    LessThanOneBlock { capacity: ByteCount, block: ByteCount },
    /// A disk tier for more than one replay.
    #[error(
        "--disk: {replay_count} replays asked for, and each would find what the one before left; \
         give one trace and one capacity, such as --capacity-percent 5"
    )]
    DiskReplays { replay_count: usize },
    /// Neither one capacity for all directories nor one for each.
    #[error(
        "--disk-capacity: {capacity_count} given for {directory_count} directories; give one for \
         all, or one for each --disk in its order"
    )]
    DiskCapacities { capacity_count: usize, directory_count: usize },
    /// The engine's sizes cannot be.
    #[error("{0}; change --geometry, --bytes-per-token or --block-tokens")]
    Engine(ByteReplayError),
    /// A trace cannot be replayed with the sizes asked for.
    #[error("{name}: {source} ({})", options(.source))]
    Unfit { name: String, source: ByteReplayError },
    /// Bytes came back that are not those that were stored.
    #[error("{name}: {count} blocks came back wrong; the first: {first}")]
    WrongBytes { name: String, count: u64, first: WrongByte },
    /// The cache failed in the middle of a replay.
    #[error("the cache failed while it replayed {name}: {source}")]
    Cache { name: String, source: Box<dyn std::error::Error + Send + Sync> },
    /// What should be a root or a store cannot be listed.
    #[error("{0}; give the root of a disk tier, or the directory of one store")]
    NoDirectory(#[from] FileError),
    /// There is no store.
    #[error(
        "{}: no store is in it; give the root of a disk tier, which has ROOT/INSTANCE/STORE-ID, or \
         the directory of one store",
        .path.display()
    )]
    NoStore { path: PathBuf },
    /// One store was given where a root should be.
    #[error("{}: this is one store; give its root, {}", .path.display(), .root.display())]
    NoRoot { path: PathBuf, root: PathBuf },
    /// The system gives no means to read and write files.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// A call on a store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Every store that was to be checked is in use.
    #[error(
        "{} is in use{}; check it when that process has ended",
        .path.display(),
        by_process(*.process)
    )]
    InUse { path: PathBuf, process: Option<u32> },
    /// Stores are damaged, or were.
    #[error("{}: {damaged_count} of {store_count} stores damaged; {remedy}", .path.display())]
    Damaged { path: PathBuf, damaged_count: usize, store_count: usize, remedy: &'static str },
    /// Stores in use keep a root from getting as small as it should.
    #[error(
        "{}: {left} are left, more than {size}: {} in use{}; end that process, or name a larger \
         --size",
        .path.display(),
        .held.display(),
        by_process(*.process)
    )]
    NotCollected {
        path: PathBuf,
        left: ByteCount,
        size: ByteCount,
        held: PathBuf,
        process: Option<u32>,
    },
    /// The report cannot be made into JSON.
    #[error("cannot write the report as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// Standard output cannot be written.
    #[error("cannot write the report: {0}")]
    Output(io::Error),
}

impl CliError {
    /// Tells the person, and returns the exit code.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            // Help and version are printed whole, and are no error but without a command. Whoever
            // no longer listens is not told so.
            Self::Usage(usage) if is_help(usage.kind()) => {
                let _ = usage.print();
                return ExitCode::from(u8::try_from(usage.exit_code()).unwrap_or(BAD_INPUT));
            }
            // `kvtide replay | head` has what it wanted.
            Self::Output(source) if source.kind() == io::ErrorKind::BrokenPipe => {
                return ExitCode::SUCCESS;
            }
            // Names come from outside, and a terminal obeys control characters.
            _ => eprintln!("error: {}", self.to_string().replace(char::is_control, " ")),
        }
        ExitCode::from(self.exit_code())
    }

    /// Returns what the program ends with.
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Store(error) => match error {
                StoreError::Locked { .. } => BAD_INPUT,
                _ => FAILED,
            },
            Self::Cache { .. }
            | Self::WrongBytes { .. }
            | Self::Disk(_)
            | Self::Damaged { .. }
            | Self::NotCollected { .. }
            | Self::Json(_)
            | Self::Output(_) => FAILED,
            Self::Usage(_)
            | Self::Open { .. }
            | Self::Folder { .. }
            | Self::Trace { .. }
            | Self::Workload(_)
            | Self::NoBlocks { .. }
            | Self::BytesPerToken(_)
            | Self::LessThanOneSlot { .. }
            | Self::LessThanOneBlock { .. }
            | Self::DiskReplays { .. }
            | Self::DiskCapacities { .. }
            | Self::Engine(_)
            | Self::Unfit { .. }
            | Self::LessThanOneChunk { .. }
            | Self::OneBlock { .. }
            | Self::NoDirectory(_)
            | Self::NoStore { .. }
            | Self::NoRoot { .. }
            | Self::InUse { .. } => BAD_INPUT,
        }
    }
}

/// Names a process, where it is known.
pub(crate) fn by_process(process: Option<u32>) -> String {
    process.map(|process| format!(" by process {process}")).unwrap_or_default()
}

/// Names the options that set what an error is about.
fn options(error: &ByteReplayError) -> &'static str {
    match error {
        ByteReplayError::DevicePoolTooSmall { .. } => "--device-blocks or --device-capacity",
        ByteReplayError::TooMuchMemory { .. } => {
            "--bytes-per-token, --block-tokens, --capacity-percent or --device-capacity"
        }
        ByteReplayError::Open(OpenError::StripeCount { .. } | OpenError::StripeRepeated { .. }) => {
            "--disk"
        }
        _ => "--geometry, --bytes-per-token or --block-tokens",
    }
}

fn is_help(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    )
}

/// Joins what clap says over several lines, without its hints at usage and help.
///
/// Of options that exclude each other clap names two, and no way out.
fn one_line(error: &clap::Error) -> String {
    let rendered = error.render().to_string();
    let parts: Vec<&str> = rendered
        .lines()
        .map(str::trim)
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more info"))
        .filter(|line| !line.is_empty())
        .collect();
    let joined = parts.join("; ").replace(":;", ":");
    let remedy = match error.kind() {
        ErrorKind::ArgumentConflict => "; leave one of them out",
        _ => "",
    };
    joined.strip_prefix("error: ").unwrap_or(&joined).to_owned() + remedy
}
