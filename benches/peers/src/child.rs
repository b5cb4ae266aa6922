//! Laps in processes of their own: for peers that leave threads behind or are not Rust.
//!
//! A process does one lap and prints its costs as one line of JSON.
//!
//! Called by `bench.rs`.

use crate::Failure;
use crate::work::{Lap, LapKind, Workload};
use std::process::Command;

/// Runs `command` for one lap of `workload`.
pub(crate) fn lap(
    mut command: Command,
    workload: &Workload,
    kind: LapKind,
) -> Result<Lap, Failure> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command
        .args(workload.arguments())
        .arg(format!("--kind={}", kind.word()))
        .output()
        .map_err(|error| format!("{program} cannot be run: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned().into());
    }
    Ok(serde_json::from_slice(&output.stdout)?)
}
