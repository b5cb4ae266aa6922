//! LMCache's raw block I/O: how its script is started. What a lap does stands there.
//!
//! Called by `bench.rs`.

use crate::Failure;
use std::path::Path;
use std::process::Command;

/// How the module talks to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    /// `pread` and `pwrite` on threads.
    Posix,
    /// A ring over registered memory.
    Uring,
}

impl Engine {
    /// Returns the module's own word for it.
    const fn word(self) -> &'static str {
        match self {
            Self::Posix => "posix",
            Self::Uring => "io_uring",
        }
    }
}

/// Looks whether `python` has the module; says what laps run on.
pub(crate) fn look(python: &Path) -> Result<Vec<String>, Failure> {
    let import = "import lmcache_rust_raw_block_io";
    match Command::new(python).args(["-c", import]).output() {
        Ok(told) if told.status.success() => Ok(vec!["transparent 2 MiB pages".to_owned()]),
        _ => Err("its Python module is missing; the README says how to install it".into()),
    }
}

/// Returns what does a lap on the file at `path`, given a workload and a kind.
pub(crate) fn command(python: &Path, path: &Path, engine: Engine) -> Command {
    let mut command = Command::new(python);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("raw_block.py"));
    command.arg("--engine").arg(engine.word()).arg("--path").arg(path);
    command
}
