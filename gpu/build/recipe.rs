//! How PTX is made from the sources: part of what the source digest covers, so that a change here
//! makes the committed PTX stale.
//!
//! Called by `compile.rs`; tests compare the PTX with the constants.

/// The oldest GPU that takes the PTX; the driver compiles it for newer ones.
pub(crate) const TARGET_CPU: &str = "sm_75";

/// The PTX version, which decides the oldest driver that takes it: 7.4 is CUDA 11.4's.
pub(crate) const PTX_VERSION: &str = "7.4";

/// Returns what rustc is told beyond the profile below.
pub(crate) fn rustflags() -> [String; 2] {
    let feature = PTX_VERSION.replace('.', "");
    [format!("-Ctarget-cpu={TARGET_CPU}"), format!("-Ctarget-feature=+ptx{feature}")]
}

/// The package that is compiled: the crate's sources and nothing of the workspace, whose lock file
/// and profiles would otherwise have a say. `SOURCE` stands for the path of `lib.rs`.
pub(crate) const PACKAGE: &str = r#"[package]
name = "kvtide_kernels"
version = "0.0.0"
edition = "2024"

[lib]
path = "SOURCE"
crate-type = ["rlib"]

[profile.release]
opt-level = 3
codegen-units = 1
debug = false
lto = false

[workspace]
"#;

/// Entries whose launch bounds are stated, with the thread blocks that a multiprocessor must hold;
/// rustc has no attribute for it, so the two lines are added to its output.
///
/// Left to choose, ptxas sinks two of checksum's four loads behind their first use to save
/// registers, and gives `copy_4` 65 of them on `sm_75`. Where five do not fit, as on `sm_75`, ptxas
/// says so and does without.
const LAUNCH_BOUNDS: [(&str, u32); 2] = [("kvtide_checksum", 5), ("kvtide_copy_4", 4)];

/// Threads of a thread block, as in `THREADS_PER_BLOCK`.
const THREADS_PER_BLOCK: u32 = 256;

/// Adds the launch bounds to what rustc wrote.
///
/// # Errors
///
/// The name of an entry that is not there exactly once, or looks different than it used to.
pub(crate) fn with_launch_bounds(ptx: &str) -> Result<String, String> {
    let mut bounded = ptx.to_owned();
    for (entry, thread_blocks) in LAUNCH_BOUNDS {
        let head = format!(".visible .entry {entry}(");
        let (before, after) = bounded
            .split_once(&head)
            .filter(|(_, after)| !after.contains(&head))
            .ok_or_else(|| format!("no single entry {entry} in what rustc wrote"))?;
        let (parameter, body) = after
            .split_once("\n)\n{")
            .ok_or_else(|| format!("the entry {entry} has no body in what rustc wrote"))?;
        let bounds = format!(".maxntid {THREADS_PER_BLOCK}\n.minnctapersm {thread_blocks}");
        bounded = format!("{before}{head}{parameter}\n)\n{bounds}\n{{{body}");
    }
    Ok(bounded)
}

#[cfg(test)]
mod tests {
    use super::with_launch_bounds;

    #[test]
    fn bounds_go_to_their_entries_only_or_not_at_all() {
        let entry = |name: &str| format!(".visible .entry {name}(\n\t.param\n)\n{{\n\tret;\n}}\n");
        let all = ["kvtide_checksum", "kvtide_judge", "kvtide_copy_4"].map(entry).concat();
        let bounded = with_launch_bounds(&all).expect("all entries are there");
        let checksum = "kvtide_checksum(\n\t.param\n)\n.maxntid 256\n.minnctapersm 5\n{\n\tret;";
        assert!(bounded.contains(checksum), "{bounded}");
        assert_eq!(bounded.matches(".maxntid").count(), 2);
        assert!(bounded.contains(&entry("kvtide_judge")));
        assert!(with_launch_bounds(&entry("kvtide_checksum")).is_err());
        assert!(with_launch_bounds(&format!("{all}{all}")).is_err());
    }
}
