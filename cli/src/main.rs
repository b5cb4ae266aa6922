//! The `kvtide` program: replays request traces through the pager.
//!
//! Results go to standard output; notes, progress and errors to standard error. Exit codes: 0 for
//! success, 1 when the program failed
//! or bytes came back wrong, 2 when what it was given is wrong.

mod args;
mod bytes;
mod dry;
mod error;
mod progress;
mod replay;
mod report;
mod size;
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
    }
}
