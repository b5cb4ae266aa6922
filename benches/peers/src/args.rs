//! The command line.

use crate::foyer_lap;
use crate::size;
use kvtide::units::ByteCount;
use std::path::PathBuf;

/// Compares kvtide's disk path with its peers: each writes and reads the same slots in the same
/// folder, in turn, and the medians of the rounds' ratios are printed.
#[derive(Debug, clap::Parser)]
#[command(name = "kvtide-peers", args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) options: Options,
}

/// What processes that this program starts are asked to do.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// One lap of foyer's, for the program itself.
    #[command(hide = true)]
    FoyerLap(foyer_lap::Arguments),
}

/// What is compared, and how long.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Folder for all files, on the drive and file system to be measured.
    #[arg(long, default_value_os_t = home("target/slots"))]
    pub(crate) folder: PathBuf,
    /// Bytes of a slot, header page included; several after commas.
    #[arg(long, value_delimiter = ',', value_parser = size::parse,
        default_value = "256KiB,1MiB,4MiB")]
    pub(crate) slots: Vec<ByteCount>,
    /// Bytes that each lap writes, and reads.
    #[arg(long, value_parser = size::parse, default_value = "1GiB")]
    pub(crate) total: ByteCount,
    /// Bytes of memory that slots are written from, and as many that they are read into.
    #[arg(long, value_parser = size::parse, default_value = "128MiB")]
    pub(crate) memory: ByteCount,
    /// Operations under way at a time, where a contender lets that be set.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) depth: u32,
    /// Laps of each pair after the first; an odd number has a median.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub(crate) rounds: u32,
    /// Contenders to compare with, after commas, such as fio,foyer-psync; all unless given.
    #[arg(long, value_delimiter = ',')]
    pub(crate) peers: Vec<String>,
    /// Python with the module lmcache-rust-raw-block-io.
    #[arg(long, default_value_os_t = home(".venv/bin/python"))]
    pub(crate) python: PathBuf,
    /// Print one JSON document instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Returns a path inside this package.
fn home(path: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), path].iter().collect()
}
