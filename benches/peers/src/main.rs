//! kvtide's disk path against its peers: the same slots, on the same drive, in turn.
//!
//! | file | what |
//! |---|---|
//! | `args.rs` | the command line |
//! | `work.rs` | slots, laps, what a lap costs |
//! | `contender.rs` | who is compared with whom, and the goals |
//! | `bench.rs` | pairs of laps |
//! | `subject.rs`, `memory.rs` | kvtide, and the memory of what runs in this process |
//! | `fio.rs`, `files.rs`, `foyer_lap.rs`, `raw_block.rs` | the peers |
//! | `child.rs` | laps in processes of their own |
//! | `report.rs`, `machine.rs` | medians and facts |
//!
//! Results go to standard output; progress and errors to standard error.

mod args;
mod bench;
mod child;
mod contender;
mod files;
mod fio;
mod foyer_lap;
mod machine;
mod memory;
mod raw_block;
mod report;
#[path = "../../../cli/src/size.rs"]
mod size;
mod subject;
mod work;

use args::{Arguments, Command, Options};
use bench::{Bench, Comparison};
use clap::Parser;
use contender::{PAIRS, Pair};
use kvtide::units::ByteCount;
use machine::Machine;
use report::{Report, SizeReport};
use std::process::ExitCode;
use work::{HEADER_BYTES, LapKind, Workload};

/// Any error; all of them end the program, with their words.
pub(crate) type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let outcome = match &arguments.command {
        Some(Command::FoyerLap(lap)) => foyer_lap::run(lap),
        None => run(&arguments.options),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Failure> {
    std::fs::create_dir_all(&options.folder)?;
    let machine = Machine::look(&options.folder);
    if !options.json {
        print!("{machine}");
    }
    let mut sizes = Vec::new();
    for &slot in &options.slots {
        let report = compare(options, &workload(options, slot)?)?;
        if !options.json {
            report.print();
        }
        sizes.push(report);
    }
    if options.json {
        let report = Report { machine, rounds: options.rounds, sizes };
        println!("{}", serde_json::to_string_pretty(&report)?);
    }
    Ok(())
}

/// Returns what laps move for slots of one size.
fn workload(options: &Options, slot: ByteCount) -> Result<Workload, Failure> {
    let slot_bytes = usize::try_from(slot.get())?;
    if slot_bytes <= HEADER_BYTES || !slot_bytes.is_multiple_of(HEADER_BYTES) {
        return Err(format!("slots of {slot}: they must be whole pages, two at least").into());
    }
    let workload = Workload {
        slot_bytes,
        slot_count: u32::try_from(options.total.get() / slot.get())?,
        place_count: u32::try_from(options.memory.get() / slot.get())?,
        depth: options.depth,
    };
    if workload.slot_count < options.depth || workload.place_count < 2 * options.depth {
        return Err(format!("too few slots of {slot} for a depth of {}", options.depth).into());
    }
    Ok(workload)
}

/// Runs every comparison of one slot size.
fn compare(options: &Options, workload: &Workload) -> Result<SizeReport, Failure> {
    let mut bench = Bench::new(&options.folder, &options.python, *workload)?;
    let (pairs, notes) = prepare(options, &mut bench)?;
    let mut comparisons = Vec::new();
    for pair in pairs {
        let first = bench.pair_lap(pair, LapKind::First, true)?;
        comparisons.push(Comparison { pair, first, later: Vec::new() });
    }
    for round in 0..options.rounds {
        let slot = ByteCount::new(workload.slot_bytes as u64);
        eprintln!("slots of {slot}, round {} of {}", round + 1, options.rounds);
        for comparison in &mut comparisons {
            let laps = bench.pair_lap(comparison.pair, LapKind::Later, round.is_multiple_of(2))?;
            comparison.later.push(laps);
        }
    }
    Ok(SizeReport::new(workload, notes, &comparisons))
}

/// Returns the comparisons that were asked for and can be run here, and what there is to say about
/// each contender.
fn prepare(options: &Options, bench: &mut Bench) -> Result<(Vec<Pair>, Vec<String>), Failure> {
    let mut names: Vec<&str> = PAIRS.iter().map(|pair| pair.peer.name()).collect();
    names.dedup();
    if let Some(unknown) = options.peers.iter().find(|peer| !names.contains(&peer.as_str())) {
        return Err(format!("no peer {unknown}; there are {}", names.join(", ")).into());
    }
    let is_asked = |pair: &Pair| {
        options.peers.is_empty() || options.peers.iter().any(|peer| peer == pair.peer.name())
    };
    let mut pairs = Vec::new();
    let mut notes = Vec::new();
    for pair in PAIRS.into_iter().filter(is_asked) {
        for told in bench.prepare(pair.subject)? {
            notes.push(format!("{}: {told}", pair.subject.name()));
        }
        match bench.prepare(pair.peer) {
            Ok(told) => {
                notes.extend(told.iter().map(|told| format!("{}: {told}", pair.peer.name())));
                pairs.push(pair);
            }
            Err(error) => notes.push(format!("{}: not run: {error}", pair.peer.name())),
        }
    }
    let mut told = Vec::new();
    for note in notes {
        if !told.contains(&note) {
            told.push(note);
        }
    }
    Ok((pairs, told))
}
