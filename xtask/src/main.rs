//! Repository chores: `cargo xtask tidy` checks the house style that no lint knows.
//!
//! Called by `.ci/run` and by the test below, so that a stray path or an overgrown file fails
//! like any other bug.

mod tidy;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask tidy    check the house style of every tracked file";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ["tidy"] = arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match tidy::findings(repository_root()) {
        Ok(findings) if findings.is_empty() => ExitCode::SUCCESS,
        Ok(findings) => {
            for finding in findings {
                eprintln!("{finding}");
            }
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("cannot read the repository: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The folder above this crate's.
fn repository_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}
