//! `cargo xtask ptx`: writes `gpu/ptx`, the device code and its manifest; with `--check`, compares.
//!
//! The compiler and the digests are the build script's own. What rustc writes is committed as it
//! is, but for the launch bounds that the recipe adds. Called by people after a change to
//! `gpu/src`, and by `.ci/run`.

use crate::compile::Toolchain;
use crate::manifest::{MANIFEST_FILE, PTX_FILE, Unfit, check_folder};
use crate::recipe::{PTX_VERSION, TARGET_CPU};
use crate::sha256::hex_digest;
use crate::source::source_digest;
use kvtide_kernels::abi::{KERNELS, KernelSignature};
use std::fmt::Write as _;
use std::path::Path;

/// Version of the crate that the PTX belongs to: the workspace's.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Compiles the kernels and writes PTX and manifest; returns what was done.
pub(crate) fn write(root: &Path) -> Result<String, String> {
    let fresh = Fresh::compile(root)?;
    let folder = root.join("gpu/ptx");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for (name, text) in [(PTX_FILE, &fresh.ptx), (MANIFEST_FILE, &fresh.manifest)] {
        let file = folder.join(name);
        std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(format!("wrote gpu/ptx by {}", fresh.rustc.lines().next().unwrap_or("rustc")))
}

/// Compares the committed PTX with the sources and, made by the same rustc, with a fresh build;
/// returns which checks ran.
pub(crate) fn check(root: &Path) -> Result<String, String> {
    let folder = root.join("gpu/ptx");
    let source_sha256 = digest(root)?;
    check_folder(&folder, VERSION, &source_sha256).map_err(|unfit| {
        let (Unfit::Broken(why) | Unfit::Stale(why)) = unfit;
        format!("{why}; run `cargo xtask ptx`")
    })?;
    let file = folder.join(MANIFEST_FILE);
    let manifest =
        std::fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    let rustc = Toolchain::from_environment().version()?;
    if !manifest.lines().any(|line| line == rustc_line(&rustc)) {
        let name = rustc.lines().next().unwrap_or("this rustc");
        return Ok(format!(
            "gpu/ptx is whole and made from these sources; not compared with a fresh build, since \
             {name} is not the manifest's"
        ));
    }
    let fresh = Fresh::compile(root)?;
    if manifest != fresh.manifest {
        return Err("gpu/ptx differs from a fresh build; run `cargo xtask ptx`".to_owned());
    }
    Ok("gpu/ptx is whole, made from these sources, and what a fresh build gives".to_owned())
}

/// What a build gives.
struct Fresh {
    ptx: String,
    manifest: String,
    rustc: String,
}

impl Fresh {
    /// Compiles the kernels below `target`.
    fn compile(root: &Path) -> Result<Self, String> {
        let toolchain = Toolchain::from_environment();
        let rustc = toolchain.version()?;
        let ptx = toolchain.compile(&root.join("gpu"), &root.join("target/ptx"))?;
        let manifest = manifest_text(&digest(root)?, &hex_digest(ptx.as_bytes()), &rustc);
        Ok(Self { ptx, manifest, rustc })
    }
}

/// Returns the digest of the kernels' sources.
fn digest(root: &Path) -> Result<String, String> {
    source_digest(&root.join("gpu")).map_err(|error| format!("cannot read gpu/src: {error}"))
}

/// Returns the manifest.
fn manifest_text(source_sha256: &str, ptx_sha256: &str, rustc: &str) -> String {
    let kernels: String = KERNELS.iter().map(kernel_text).collect();
    format!(
        "# Written by `cargo xtask ptx`; docs/kernels.md explains it.\n\
         version = \"{VERSION}\"\n\
         source_sha256 = \"{source_sha256}\"\n\
         ptx_sha256 = \"{ptx_sha256}\"\n\
         target_cpu = \"{TARGET_CPU}\"\n\
         ptx_version = \"{PTX_VERSION}\"\n\
         {}\n{kernels}",
        rustc_line(rustc)
    )
}

/// Returns the manifest's line for what `rustc -vV` printed.
fn rustc_line(rustc: &str) -> String {
    let lines: Vec<&str> = rustc.lines().collect();
    format!("rustc = \"{}\"", lines.join("; "))
}

/// Returns the manifest's table for one kernel.
fn kernel_text(kernel: &KernelSignature) -> String {
    let KernelSignature { name, arguments, arguments_bytes, arguments_align, fields } = kernel;
    let mut text = format!(
        "\n[[kernel]]\n\
         name = \"{name}\"\n\
         arguments = \"{arguments}\"\n\
         arguments_bytes = {arguments_bytes}\n\
         arguments_align = {arguments_align}\n\
         offsets_bytes = {{ "
    );
    for (number, field) in fields.iter().enumerate() {
        let separator = if number == 0 { "" } else { ", " };
        // Writing to a String cannot fail.
        let _ = write!(text, "{separator}\"{}\" = {}", field.name, field.offset_bytes);
    }
    text + " }\n"
}

#[cfg(test)]
mod tests {
    use super::{KERNELS, digest, kernel_text, rustc_line};
    use crate::manifest::{MANIFEST_FILE, PTX_FILE, check_folder};

    #[test]
    fn the_committed_ptx_is_whole_and_made_from_these_sources() {
        let root = crate::repository_root();
        let source_sha256 = digest(root).expect("the sources can be read");
        let fitness = check_folder(&root.join("gpu/ptx"), super::VERSION, &source_sha256);
        assert_eq!(fitness, Ok(()), "run `cargo xtask ptx` and commit gpu/ptx");
    }

    #[test]
    fn the_manifest_gives_the_arguments_as_the_structs_lie() {
        let file = crate::repository_root().join("gpu/ptx").join(MANIFEST_FILE);
        let text = std::fs::read_to_string(file).expect("the manifest can be read");
        let kernels: String = KERNELS.iter().map(kernel_text).collect();
        assert!(text.ends_with(&kernels), "run `cargo xtask ptx`; expected:\n{kernels}");
    }

    #[test]
    fn unfit_ptx_is_told_by_what_is_wrong() {
        use crate::manifest::Unfit;
        let folder = std::env::temp_dir().join(format!("kvtide-manifest-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("the temporary folder is writable");
        let check = || check_folder(&folder, "1.2.3", "the sources");
        assert!(matches!(check(), Err(Unfit::Broken(why)) if why.contains(MANIFEST_FILE)));
        let ptx_sha256 = crate::sha256::hex_digest(b"text");
        let write = |version: &str, source: &str| {
            let text = format!(
                "version = \"{version}\"\nsource_sha256 = \"{source}\"\n\
                 ptx_sha256 = \"{ptx_sha256}\"\n{}\n",
                rustc_line("rustc 1\nhost: x")
            );
            std::fs::write(folder.join(MANIFEST_FILE), text).expect("writable");
        };
        write("1.2.3", "the sources");
        assert!(matches!(check(), Err(Unfit::Broken(why)) if why.contains(PTX_FILE)));
        std::fs::write(folder.join(PTX_FILE), "text").expect("writable");
        assert_eq!(check(), Ok(()));
        write("1.2.4", "the sources");
        assert!(matches!(check(), Err(Unfit::Stale(why)) if why.contains("1.2.4")));
        write("1.2.3", "others");
        assert!(matches!(check(), Err(Unfit::Stale(why)) if why.contains("sources")));
        std::fs::write(folder.join(PTX_FILE), "changed").expect("writable");
        assert!(matches!(check(), Err(Unfit::Broken(why)) if why.contains("not the file")));
        std::fs::remove_dir_all(&folder).expect("the folder is this test's");
    }
}
