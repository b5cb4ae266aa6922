//! The digest of what the PTX is made from, by which stale PTX is known.
//!
//! Covers every file of `src` and the recipe, by path and content. Called by the build script, the
//! tests and `cargo xtask ptx`.

use crate::sha256::hex_digest;
use std::io;
use std::path::{Path, PathBuf};

/// Returns the SHA-256 of the sources below `package`, this crate's folder, in hexadecimal: that of
/// the lines `DIGEST  PATH` of all files, by path, as `sha256sum` prints them.
///
/// # Errors
///
/// When a file or folder cannot be read.
pub(crate) fn source_digest(package: &Path) -> io::Result<String> {
    let mut files = vec![PathBuf::from("build/recipe.rs")];
    collect(package, Path::new("src"), &mut files)?;
    // Byte by byte, as `LC_ALL=C sort` does.
    files.sort_by(|left, right| left.as_os_str().cmp(right.as_os_str()));
    let mut lines = Vec::new();
    for file in files {
        let digest = hex_digest(&std::fs::read(package.join(&file))?);
        lines.push(format!("{digest}  {}\n", file.display()));
    }
    Ok(hex_digest(lines.concat().as_bytes()))
}

/// Lists the Rust files below `folder`.
fn collect(package: &Path, folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in std::fs::read_dir(package.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            collect(package, &path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}
