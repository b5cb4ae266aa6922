//! Progress bars on standard error: drawn on a terminal, silent elsewhere, gone when done.

use indicatif::{ProgressBar, ProgressFinish, ProgressState, ProgressStyle};
use std::fmt::Write;

/// Starts the bar of a file being read; `bytes` is 0 when the size is not known.
pub(crate) fn reading(name: &str, bytes: u64) -> ProgressBar {
    let template = if bytes == 0 {
        "{msg} {bytes} {binary_bytes_per_sec}"
    } else {
        "{msg} [{bar:32}] {percent:>3} % {binary_bytes_per_sec}"
    };
    bar(&format!("Reading {name}"), bytes, template)
}

/// Starts the bar of requests being generated.
pub(crate) fn generating(name: &str, requests: u64) -> ProgressBar {
    let template = "{msg} [{bar:32}] {percent:>3} % {rate} requests/s";
    bar(&format!("Generating {name}"), requests, template)
}

/// Starts the bar of a replay.
pub(crate) fn replaying(name: &str, block_uses: u64) -> ProgressBar {
    let template = "{msg} [{bar:32}] {percent:>3} % {rate} block uses/s";
    bar(&format!("Replaying {name}"), block_uses, template)
}

/// Starts the bar of slot headers being checked.
pub(crate) fn checking_headers(name: &str, slots: u64) -> ProgressBar {
    let template = "{msg} [{bar:32}] {percent:>3} % {rate} slots/s";
    bar(&format!("Checking headers of {name}"), slots, template)
}

/// Starts the bar of payloads being checked.
pub(crate) fn checking_payloads(name: &str, bytes: u64) -> ProgressBar {
    let template = "{msg} [{bar:32}] {percent:>3} % {binary_bytes_per_sec}";
    bar(&format!("Checking payloads of {name}"), bytes, template)
}

fn bar(message: &str, length: u64, template: &str) -> ProgressBar {
    // A trace's name may hold anything, and a terminal obeys control characters.
    let message = message.replace(char::is_control, " ");
    // A template that does not parse costs its looks, not the replay.
    let style =
        ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length)
        .with_style(style.with_key("rate", whole_rate))
        .with_message(message)
        .with_finish(ProgressFinish::AndClear)
}

/// Writes a rate without the decimals that indicatif's own has.
fn whole_rate(state: &ProgressState, text: &mut dyn Write) {
    // A rate that cannot be shown is not worth an error.
    let _ = write!(text, "{:.0}", state.per_sec());
}
