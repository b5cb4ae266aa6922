//! Repository chores: the house style that no lint knows, the device code, and mistakes that the
//! tests must find.
//!
//! Called by people, by `.ci/run` and by the tests below, so that a stray path, an overgrown file
//! or stale device code fails like any other bug.

#[path = "../../gpu/build/compile.rs"]
mod compile;
#[path = "../../gpu/build/manifest.rs"]
mod manifest;
mod mutants;
mod ptx;
#[path = "../../gpu/build/recipe.rs"]
mod recipe;
mod safety;
#[path = "../../gpu/build/sha256.rs"]
mod sha256;
mod shape;
#[path = "../../gpu/build/source.rs"]
mod source;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask tidy           check the house style of every tracked file
       cargo xtask ptx            compile the kernels to gpu/ptx
       cargo xtask ptx --check    compare gpu/ptx with the sources and with a fresh build
       cargo xtask ptx-shape      assemble gpu/ptx and check the machine code; --write: its counts
       cargo xtask mutants        make each mistake of xtask/mutants and see its test fail; by
                                  turns with --some COUNT --turn NUMBER, one with --only NAME
       cargo xtask safety         run what SAFETY.md counts, and write its table anew";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let root = repository_root();
    let outcome = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tidy"] => tidy::check(root),
        ["ptx"] => ptx::write(root),
        ["ptx", "--check"] => ptx::check(root),
        ["ptx-shape"] => shape::run(root, false),
        ["ptx-shape", "--write"] => shape::run(root, true),
        ["safety"] => safety::refresh(root),
        ["mutants", ref choice @ ..] => match mutants::Choice::parse(choice) {
            Some(choice) => mutants::run(root, &choice),
            None => return usage(),
        },
        _ => return usage(),
    };
    match outcome {
        Ok(done) => {
            println!("{done}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Says how it is called.
fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

/// The folder above this crate's.
fn repository_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}
