//! The manifest beside the PTX: what it was made from, and by what.
//!
//! A few lines of TOML, `KEY = "VALUE"`, then a table of the kernels that only people and tests
//! read. Written by `cargo xtask ptx`; read by the build script, the tests and `cargo xtask`.

use crate::sha256::hex_digest;
use std::path::Path;

/// Name of the PTX in its folder.
pub(crate) const PTX_FILE: &str = "kvtide_kernels.ptx";

/// Name of the manifest in the same folder.
pub(crate) const MANIFEST_FILE: &str = "manifest.toml";

/// What a manifest says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// Version of this crate.
    pub(crate) version: String,
    /// Digest of the sources.
    pub(crate) source_sha256: String,
    /// Digest of the PTX.
    pub(crate) ptx_sha256: String,
}

/// Why a folder's PTX is not to be used, in words that name the file.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unfit {
    /// A file is missing or unreadable, or is not what the manifest says.
    Broken(String),
    /// The PTX was made for another version of the crate or from other sources.
    Stale(String),
}

impl Manifest {
    /// Reads the manifest in `folder`.
    fn read(folder: &Path) -> Result<Self, String> {
        let file = folder.join(MANIFEST_FILE);
        let text = std::fs::read_to_string(&file)
            .map_err(|error| format!("cannot read {}: {error}", file.display()))?;
        let value = |key: &str| {
            let found = text
                .lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"'));
            found
                .map(str::to_owned)
                .ok_or_else(|| format!("{} has no line {key} = \"...\"", file.display()))
        };
        Ok(Self {
            version: value("version")?,
            source_sha256: value("source_sha256")?,
            ptx_sha256: value("ptx_sha256")?,
        })
    }
}

/// Checks that `folder` holds whole PTX of this version made from these sources.
///
/// # Errors
///
/// What is wrong; the caller adds the remedy.
pub(crate) fn check_folder(folder: &Path, version: &str, source_sha256: &str) -> Result<(), Unfit> {
    let manifest = Manifest::read(folder).map_err(Unfit::Broken)?;
    let file = folder.join(PTX_FILE);
    let name = file.display();
    let ptx = std::fs::read(&file)
        .map_err(|error| Unfit::Broken(format!("cannot read {name}: {error}")))?;
    if hex_digest(&ptx) != manifest.ptx_sha256 {
        return Err(Unfit::Broken(format!("{name} is not the file that its manifest describes")));
    }
    if manifest.version != version {
        let other = manifest.version;
        return Err(Unfit::Stale(format!("{name} is of version {other}, this is {version}")));
    }
    if manifest.source_sha256 != source_sha256 {
        return Err(Unfit::Stale(format!("{name} was made from other sources than these")));
    }
    Ok(())
}
