//! Build script: chooses the PTX that the crate embeds, and publishes its folder.
//!
//! In this order, and never another than was asked for:
//!
//! 1. `KVTIDE_PTX_DIR`: a folder with PTX and manifest. Unless both are whole, of this version and
//!    from these sources, the build fails.
//! 2. `KVTIDE_PTX=fresh`: compiled now. Without a toolchain that can, the build fails.
//! 3. The copy in `ptx`. If the sources have changed since, the build warns, so that a kernel can
//!    be worked on; a test fails.
//!
//! The folder goes to packages that depend on this one as `DEP_KVTIDE_KERNELS_PTX_DIR`, and why it
//! was chosen as `DEP_KVTIDE_KERNELS_PTX_ORIGIN`.

mod compile;
mod manifest;
mod recipe;
mod sha256;
mod source;

use compile::Toolchain;
use manifest::{MANIFEST_FILE, PTX_FILE, Unfit, check_folder};
use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The remedy for PTX that does not fit.
const REBUILD: &str = "run `cargo xtask ptx` in kvtide's repository";

fn main() -> ExitCode {
    let package = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    for watched in ["build", "src", "ptx"] {
        println!("cargo::rerun-if-changed={watched}");
    }
    for variable in ["KVTIDE_PTX_DIR", "KVTIDE_PTX", "KVTIDE_PTX_RUSTC", "KVTIDE_PTX_CARGO"] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    match choose(&package) {
        Ok((folder, origin)) => {
            let file = folder.join(PTX_FILE);
            println!("cargo::rustc-env=KVTIDE_KERNELS_PTX_FILE={}", file.display());
            println!("cargo::metadata=ptx_dir={}", folder.display());
            println!("cargo::metadata=ptx_origin={origin}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            for line in error.lines() {
                println!("cargo::error={line}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Returns the folder of the PTX to embed, and in words why that one.
fn choose(package: &Path) -> Result<(PathBuf, &'static str), String> {
    let source_sha256 = source::source_digest(package)
        .map_err(|error| format!("cannot read the sources of kvtide-kernels: {error}"))?;
    let check = |folder: &Path| check_folder(folder, env!("CARGO_PKG_VERSION"), &source_sha256);
    if let Some(given) = env::var_os("KVTIDE_PTX_DIR") {
        let folder = PathBuf::from(given);
        let remedy = format!(
            "{REBUILD} and name its gpu/ptx, or unset KVTIDE_PTX_DIR for the copy in the package"
        );
        // Cargo runs build scripts in the package's folder, which is not the caller's.
        if !folder.is_absolute() {
            let name = folder.display();
            return Err(format!("KVTIDE_PTX_DIR is not an absolute path: \"{name}\"; {remedy}"));
        }
        for file in [PTX_FILE, MANIFEST_FILE] {
            println!("cargo::rerun-if-changed={}", folder.join(file).display());
        }
        return match check(&folder) {
            Ok(()) => Ok((folder, "KVTIDE_PTX_DIR names it")),
            Err(Unfit::Broken(why) | Unfit::Stale(why)) => {
                Err(format!("KVTIDE_PTX_DIR: {why}; {remedy}"))
            }
        };
    }
    match env::var("KVTIDE_PTX").as_deref() {
        Ok("fresh") => {
            let folder = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
            let ptx = Toolchain::from_environment().compile(package, &folder.join("ptx"))?;
            let file = folder.join(PTX_FILE);
            std::fs::write(&file, ptx).map_err(|error| format!("{}: {error}", file.display()))?;
            return Ok((folder, "compiled in this build, as KVTIDE_PTX asks"));
        }
        Ok(other) => {
            return Err(format!("KVTIDE_PTX is \"{other}\"; set it to \"fresh\" or not at all"));
        }
        Err(env::VarError::NotUnicode(_)) => {
            return Err("KVTIDE_PTX is not UTF-8; set it to \"fresh\" or not at all".to_owned());
        }
        Err(env::VarError::NotPresent) => {}
    }
    let folder = package.join("ptx");
    match check(&folder) {
        Ok(()) => {}
        Err(Unfit::Stale(why)) => println!("cargo::warning={why}; {REBUILD}"),
        // `cargo xtask` builds this crate too, so that it must not need the copy to mend it.
        Err(Unfit::Broken(why)) => {
            return Err(format!("{why}; restore it, or run `KVTIDE_PTX=fresh cargo xtask ptx`"));
        }
    }
    Ok((folder, "the copy in the package"))
}
