//! `cargo xtask safety`: runs what SAFETY.md counts and writes the counts into its table.
//!
//! A test says what it ran in lines `counted WHAT: TIMES`, which are added up over all tests. The
//! sizes of runs that a machine repeats, such as the simulation's, are read from `.ci/run`, so that
//! the table tells what that runs.
//!
//! Invariant: the table's words are those of [`ROWS`]; a test compares them, numbers aside.
//!
//! Called by people, after a change of what is run.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Where the counts are.
const FILE: &str = "SAFETY.md";

/// What stands above the counts there.
const HEAD: &str = "| what | how much |\n|---|---|\n";

/// Rows: what was run, and how much; names of counts in braces.
const ROWS: [(&str, &str); 11] = [
    (
        "random runs of the core: without a disk tier against a model that predicts every victim, \
         with one against an oracle of every slot's bytes",
        "{core steps against the model} and {core steps with a disk tier} commands and \
         completions, audited after each operation",
    ),
    (
        "block uses of published traces through the core, audited at the end of each",
        "{block uses of traces through the core} (four traces, five capacities)",
    ),
    (
        "blocks compared with real bytes, published traces under eviction",
        "{blocks of traces compared}: the first 80,000 block uses of each of eight traces, at 10 \
         and 50 %",
    ),
    (
        "whole systems under seeds",
        "{simulated runs} runs of 400 steps: {simulated core steps} commands and completions of \
         the core, {simulated lives} lives, {simulated power cuts} power cuts, {simulated kills} \
         kills, {simulated recoveries} recoveries and {simulated faults} faults; {simulated \
         chunks compared} chunks loaded and compared",
    ),
    (
        "operations of the drive that fail one by one in a run of everything",
        "{swept runs of the drive} runs, twelve kinds of faults",
    ),
    (
        "operations of the device that fail one by one in a run of everything",
        "{swept runs of the device} runs, three kinds of faults, each hop",
    ),
    (
        "kills of a working process, each with a check of the files and two recoveries",
        "{working processes killed}: 20 with each of four seeds and of a random one. {chunks \
         handed over after a kill} chunks handed over afterwards and compared, {of those \
         promised} of them promised; {clears answered before a kill} clears answered; writes \
         torn on ext4: {writes torn by a kill}",
    ),
    (
        "operations of the CPU device under random faults",
        "{operations of the device under faults}, of which {failed operations of the device} \
         failed",
    ),
    ("runs of the block tables against the model", "{runs of block tables} of up to 99 steps"),
    (
        "mistakes made on purpose",
        "four of the {mutants} in `xtask/mutants`, by turns, each killed by the test that it names",
    ),
    ("fuzzing", "{fuzz targets} targets, {fuzz seconds} s each"),
];

/// Tests that count, as arguments of `cargo test`.
const TESTS: [&[&str]; 7] = [
    &["--test", "core_model"],
    &["--test", "replay_traces", "byte_for_byte"],
    &["--test", "replay_traces", "the_core_hits"],
    &["--test", "sim"],
    &["--test", "real", "kill"],
    &["--test", "pager", "under_random_faults"],
    &["--test", "block_table_model"],
];

type Counts = BTreeMap<String, u64>;

/// Runs what is counted, and writes the table anew.
pub(crate) fn refresh(root: &Path) -> Result<String, String> {
    let mut counts = settings(root)?;
    for arguments in TESTS {
        let text = run(root, arguments, &counts)?;
        add_counts(&text, &mut counts);
    }
    let path = root.join(FILE);
    let text = fs::read_to_string(&path).map_err(|error| format!("{FILE}: {error}"))?;
    let (before, _, after) = split(&text)?;
    let rows = ROWS.iter().map(|row| render(row, &counts)).collect::<Result<String, _>>()?;
    let renewed = format!("{before}{rows}{after}");
    fs::write(&path, renewed).map_err(|error| format!("{FILE}: {error}"))?;
    Ok(format!("{FILE} has the counts of this run"))
}

/// Runs tests and returns what they print.
fn run(root: &Path, arguments: &[&str], settings: &Counts) -> Result<String, String> {
    println!("cargo test {}", arguments.join(" "));
    let setting = |name: &str| settings.get(name).map(u64::to_string).unwrap_or_default();
    let output = Command::new("cargo")
        .current_dir(root)
        .args(["test", "--quiet", "-p", "kvtide"])
        .args(arguments)
        .args(["--", "--nocapture"])
        .env("KVTIDE_SIM_RUNS", setting("simulation runs"))
        .env("KVTIDE_SIM_SEED", setting("simulation seed"))
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        Ok(text)
    } else {
        let said = text.lines().filter(|line| !line.starts_with("counted "));
        let (said, errors) =
            (said.collect::<Vec<_>>().join("\n"), String::from_utf8_lossy(&output.stderr));
        Err(format!("{said}\n{errors}\ncargo test {} failed", arguments.join(" ")))
    }
}

/// Reads what `.ci/run` sets, and counts what lies in folders.
fn settings(root: &Path) -> Result<Counts, String> {
    let read = |file: &str| {
        fs::read_to_string(root.join(file)).map_err(|error| format!("{file}: {error}"))
    };
    let script = read(".ci/run")?;
    let set = |name: &str| {
        let value = script.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        let number = value.and_then(|value| value.parse().ok());
        number.ok_or_else(|| format!(".ci/run does not set {name} to a number"))
    };
    let mut counts = Counts::new();
    for (name, variable) in [
        ("simulation runs", "simulation_runs"),
        ("simulation seed", "simulation_seed"),
        ("fuzz seconds", "fuzz_seconds"),
    ] {
        counts.insert(name.to_owned(), set(variable)?);
    }
    let targets = read("fuzz/Cargo.toml")?.matches("[[bin]]").count();
    counts.insert("fuzz targets".to_owned(), targets as u64);
    let folder = fs::read_dir(root.join("xtask/mutants"));
    let mutants = folder.map_err(|error| format!("xtask/mutants: {error}"))?.count();
    counts.insert("mutants".to_owned(), mutants as u64);
    Ok(counts)
}

/// Adds up what tests said that they ran. A line may begin with what the harness says of a test.
fn add_counts(text: &str, counts: &mut Counts) {
    for line in text.lines() {
        let Some((_, said)) = line.split_once("counted ") else { continue };
        let Some((what, times)) = said.split_once(": ") else { continue };
        if let Ok(times) = times.parse::<u64>() {
            *counts.entry(what.to_owned()).or_default() += times;
        }
    }
}

/// Splits the file into what stands before the rows, the rows, and what stands after them.
fn split(text: &str) -> Result<(&str, &str, &str), String> {
    let missing = || format!("{FILE} has no table of what was run");
    let start = text.find(HEAD).ok_or_else(missing)? + HEAD.len();
    let end = start + text[start..].find("\n\n").ok_or_else(missing)? + 1;
    Ok((&text[..start], &text[start..end], &text[end..]))
}

/// Writes a row with its counts.
fn render((what, how_much): &(&str, &str), counts: &Counts) -> Result<String, String> {
    let mut text = format!("| {what} | ");
    let mut rest = *how_much;
    while let Some((before, after)) = rest.split_once('{') {
        let (name, after) = after.split_once('}').ok_or_else(|| format!("{how_much}: no }}"))?;
        let count = counts.get(name).ok_or_else(|| format!("no test counted: {name}"))?;
        text.push_str(before);
        text.push_str(&grouped(*count));
        rest = after;
    }
    text.push_str(rest);
    text.push_str(" |\n");
    Ok(text)
}

/// Writes a number with a comma after every three digits from the right.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let mut text = digits[..first].to_owned();
    for three in digits.as_bytes()[first..].chunks(3) {
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(&String::from_utf8_lossy(three));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Counts, FILE, ROWS, add_counts, grouped, render, split};
    use crate::repository_root;
    use std::fs;

    /// Leaves numbers out.
    fn words(text: &str) -> String {
        text.chars().filter(|letter| !letter.is_ascii_digit() && *letter != ',').collect()
    }

    #[test]
    fn the_table_says_what_a_refresh_would_say_numbers_aside() {
        let text = fs::read_to_string(repository_root().join(FILE)).expect("it is there");
        let (_, rows, _) = split(&text).expect("it has the table");
        let names = ROWS.iter().flat_map(|(_, how_much)| {
            how_much
                .split('{')
                .skip(1)
                .filter_map(|rest| rest.split_once('}'))
                .map(|(name, _)| name)
        });
        let counts: Counts = names.map(|name| (name.to_owned(), 0)).collect();
        let expected: String =
            ROWS.iter().map(|row| render(row, &counts).expect("each is counted")).collect();
        assert_eq!(words(rows), words(&expected), "run cargo xtask safety");
    }

    #[test]
    fn counts_of_one_name_add_up_wherever_their_lines_begin() {
        let mut counts = Counts::new();
        let text = "counted kills: 3\ntest kill ... counted kills: 4\ncounted: 1\ncounted a: b\n";
        add_counts(text, &mut counts);
        assert_eq!(counts, Counts::from([("kills".to_owned(), 7)]));
    }

    #[test]
    fn a_row_without_its_count_is_an_error() {
        let counts = Counts::from([("kills".to_owned(), 1_234_567)]);
        let row = render(&("kills", "{kills} in all"), &counts);
        assert_eq!(row.as_deref(), Ok("| kills | 1,234,567 in all |\n"));
        assert!(render(&("cuts", "{cuts}"), &counts).is_err());
    }

    #[test]
    fn numbers_are_grouped_by_three_digits() {
        let texts = [0, 999, 1000, 12_345, 999_999, 1_000_000].map(grouped);
        assert_eq!(texts, ["0", "999", "1,000", "12,345", "999,999", "1,000,000"]);
    }
}
