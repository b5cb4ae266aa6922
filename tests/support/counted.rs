//! What a test ran, in numbers: lines that `cargo xtask safety` adds up for SAFETY.md.
//!
//! Shared by the test programs of the library; the harness shows the lines with `--nocapture`.

/// Says that a test did something so many times.
pub(crate) fn counted(what: &str, times: u64) {
    println!("counted {what}: {times}");
}
