//! The `kvtide` program: replays request traces through the pager, and looks after disk stores.
//!
//! Results go to standard output; notes, progress and errors to standard error. Exit codes: 0 for
//! success, 1 when the program failed, bytes came back wrong or a store is damaged, 2 when what it
//! was given is wrong.

mod args;
mod bytes;
mod check;
mod check_repair;
mod check_slots;
mod dry;
mod error;
mod gc;
mod inspect;
mod progress;
mod replay;
mod report;
mod size;
mod store_args;
mod stores;
mod trace_file;
mod zstd_frames;

use args::{Arguments, Command};
use error::CliError;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.report(),
    }
}

fn run() -> Result<(), CliError> {
    let Arguments { command } = args::parse()?;
    match command {
        Command::Replay(arguments) => replay::run(&arguments),
        Command::Inspect(arguments) => inspect::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Gc(arguments) => gc::run(&arguments),
    }
}
