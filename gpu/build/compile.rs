//! Compiles the crate's sources to PTX, given a toolchain that can.
//!
//! Called by the build script when a fresh build is asked for, and by `cargo xtask ptx`.

use crate::recipe::{PACKAGE, rustflags, with_launch_bounds};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A rustc with the sources of `core`, and its cargo.
#[derive(Debug)]
pub(crate) struct Toolchain {
    /// `KVTIDE_PTX_RUSTC`, or where Debian has it.
    pub(crate) rustc: PathBuf,
    /// `KVTIDE_PTX_CARGO`, or where Debian has it.
    pub(crate) cargo: PathBuf,
}

/// What to do when the toolchain is missing or unfit.
const REMEDY: &str = "install one that has the sources of core, on Debian 12 \
    `apt-get install rustc-web cargo-web rust-web-src`, or name yours by KVTIDE_PTX_RUSTC and \
    KVTIDE_PTX_CARGO";

impl Toolchain {
    /// Names the toolchain that the environment asks for.
    pub(crate) fn from_environment() -> Self {
        let path = |variable: &str, default: &str| {
            std::env::var_os(variable).map_or_else(|| default.into(), PathBuf::from)
        };
        Self {
            rustc: path("KVTIDE_PTX_RUSTC", "/usr/bin/rustc"),
            cargo: path("KVTIDE_PTX_CARGO", "/usr/bin/cargo"),
        }
    }

    /// Returns what `rustc -vV` prints.
    ///
    /// # Errors
    ///
    /// When there is no such rustc.
    pub(crate) fn version(&self) -> Result<String, String> {
        output(Command::new(&self.rustc).arg("-vV"))
    }

    /// Compiles the sources below `package`, this crate's folder, and returns the PTX.
    ///
    /// `work` is a folder for what the build leaves, which makes the next one faster.
    ///
    /// # Errors
    ///
    /// When the toolchain is missing or refuses, with its words and the remedy.
    pub(crate) fn compile(&self, package: &Path, work: &Path) -> Result<String, String> {
        self.version()?;
        let source = package.join("src/lib.rs");
        let file_error = |path: &Path, error| format!("{}: {error}", path.display());
        std::fs::create_dir_all(work).map_err(|error| file_error(work, error))?;
        let work = work.canonicalize().map_err(|error| file_error(work, error))?;
        let manifest = work.join("Cargo.toml");
        let text = PACKAGE.replace("SOURCE", &source.display().to_string());
        std::fs::write(&manifest, text).map_err(|error| file_error(&manifest, error))?;
        let ptx = work.join("rustc.ptx");
        let mut emit = OsString::from("--emit=asm=");
        emit.push(&ptx);
        let mut cargo = Command::new(&self.cargo);
        // Nothing of the caller's settings has a say in what is built.
        cargo.env_clear().current_dir(&work);
        for kept in ["PATH", "HOME", "CARGO_HOME"] {
            cargo.envs(std::env::var_os(kept).map(|value| (kept, value)));
        }
        cargo
            .env("RUSTC", &self.rustc)
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_ENCODED_RUSTFLAGS", rustflags().join("\u{1f}"))
            .args(["rustc", "--quiet", "--release", "--target=nvptx64-nvidia-cuda"])
            .args(["-Zbuild-std=core", "--target-dir=target", "--"])
            .arg(emit);
        output(&mut cargo)?;
        let text = std::fs::read_to_string(&ptx).map_err(|error| file_error(&ptx, error))?;
        with_launch_bounds(&text)
    }
}

/// Runs a command and returns its standard output.
fn output(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().display().to_string();
    let output = command
        .output()
        .map_err(|error| format!("the PTX toolchain has no {program} ({error}); {REMEDY}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let words = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program} failed:\n{words}\nIf the PTX toolchain is unfit, {REMEDY}"))
}
