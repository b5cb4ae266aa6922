//! The `kvtide` program, run as a person or a script runs it. What concerns real bytes is in
//! `bytes.rs`.

mod bytes;

use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// Two requests of 3 and 4 blocks that share 2, as `hash_ids` and as `hash_runs`.
const TRACE: &str = r#"{"timestamp": 0, "input_length": 6, "output_length": 1, "hash_ids": [1,2,3]}
{"timestamp": 5, "input_length": 8, "output_length": 1, "hash_runs": [[1, 2], [8, 2]]}
"#;

fn kvtide(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kvtide"));
    command.args(arguments);
    command
}

fn run(arguments: &[&str]) -> Output {
    kvtide(arguments).output().expect("the program runs")
}

fn run_with_input(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = kvtide(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    // A program that refuses its input need not read all of it.
    let _ = stdin.write_all(input);
    drop(stdin);
    child.wait_with_output().expect("the program ends")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("output is UTF-8")
}

/// Writes a file that lives as long as the build folder, and returns its path.
fn file(name: &str, bytes: &[u8]) -> String {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, bytes).expect("the build folder can be written");
    path.into_os_string().into_string().expect("the path is UTF-8")
}

/// Runs `kvtide replay` and returns what it prints, the last column of tables cut off.
fn tables(arguments: &[&str]) -> String {
    let output = run(&[&["replay", "--dry-run"], arguments].concat());
    assert_eq!(text(&output.stderr), "");
    assert!(output.status.success());
    let lines = text(&output.stdout).lines().map(|line| match line.strip_prefix("  ") {
        Some(row) => {
            let cells = row.trim_end().rsplit_once("  ").expect("rows have columns").0;
            format!("  {}\n", cells.trim_end())
        }
        None => format!("{line}\n"),
    });
    lines.collect()
}

fn json_report(arguments: &[&str]) -> Value {
    let output = run(&[&["replay", "--dry-run", "--json"], arguments].concat());
    assert_eq!(text(&output.stderr), "");
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

/// Checks that the program ends with code 2, one line of error and nothing else.
fn assert_refused(output: &Output, expected: &str) {
    assert_eq!(text(&output.stderr), format!("error: {expected}\n"));
    assert_eq!(text(&output.stdout), "");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_seeded_workload_gives_the_same_table_everywhere() {
    let expected = "\
workload chat (seed 3, 8 live sessions): 2,000 requests, 105,437 block uses, \
15,860 unique blocks; policy lru, cold start
  capacity  chunks    hits  hit rate  evictions
       1 %     158  32,544   30.87 %     72,327
       5 %     793  88,842   84.26 %     15,802
      10 %   1,586  89,119   84.52 %     14,732
      25 %   3,965  89,394   84.78 %     12,078
      50 %   7,930  89,533   84.92 %      7,974
";
    let arguments = ["--seed", "3", "--requests", "2000", "--live-sessions", "8"];
    assert_eq!(tables(&arguments), expected);
}

#[test]
fn the_default_workload_is_chat_with_seed_1() {
    let default = json_report(&["--requests", "50"]);
    let stated = json_report(&[
        "--requests=50",
        "--workload=chat",
        "--seed=1",
        "--live-sessions=256",
        "--capacity-percent=1,5,10,25,50",
    ]);
    let counts = |report: &Value| {
        let replay = &report["replays"][0];
        let capacities = replay["capacities"].as_array().expect("a list");
        let hits: Vec<_> = capacities.iter().map(|row| row["hit_count"].clone()).collect();
        (replay["workload"].clone(), replay["block_use_count"].clone(), hits)
    };
    assert_eq!(counts(&default), counts(&stated));
    let workload = json!({
        "name": "chat", "seed": 1, "request_count": 50, "live_session_count": 256,
    });
    assert_eq!(counts(&default).0, workload);
}

#[test]
fn json_has_the_documented_fields_and_counts_of_a_trace() {
    let path = file("documented.jsonl", TRACE.as_bytes());
    let mut report = json_report(&[&path, "--capacity-percent", "40,100"]);
    for capacity in report["replays"][0]["capacities"].as_array_mut().expect("a list") {
        let measured = capacity.as_object_mut().expect("an object");
        for field in ["elapsed_seconds", "block_uses_per_second"] {
            let value = measured.remove(field).and_then(|value| value.as_f64());
            assert!(value.is_some_and(|value| value >= 0.0), "{field}: {value:?}");
        }
    }
    let expected = json!({
        "kvtide_version": env!("CARGO_PKG_VERSION"),
        "metadata_only": true,
        "replays": [{
            "trace": path,
            "workload": null,
            "policy": "lru",
            "request_count": 2,
            "block_use_count": 7,
            "unique_block_count": 5,
            "capacities": [
                {
                    "capacity_percent": 40.0,
                    "capacity_chunks": 2,
                    "hit_count": 2,
                    "hit_ratio": 2.0 / 7.0,
                    "eviction_count": 0,
                },
                {
                    "capacity_percent": 100.0,
                    "capacity_chunks": 5,
                    "hit_count": 2,
                    "hit_ratio": 2.0 / 7.0,
                    "eviction_count": 0,
                },
            ],
        }],
    });
    assert_eq!(report, expected);
}

#[test]
fn plain_compressed_and_piped_traces_give_the_same_counts() {
    let compressed = compress_to_vec(TRACE.as_bytes(), CompressionLevel::Fastest);
    let plain = file("same.jsonl", TRACE.as_bytes());
    let zst = file("same.jsonl.zst", &compressed);
    let misnamed = file("same_misnamed.jsonl", &compressed);
    let joined = file("same_in_frames.zst", &{
        let (first, second) = TRACE.split_at(100);
        [first, second]
            .map(|part| compress_to_vec(part.as_bytes(), CompressionLevel::Fastest))
            .concat()
    });
    let report = json_report(&[&plain, &zst, &misnamed, &joined, "--capacity-chunks", "3"]);
    let replays = report["replays"].as_array().expect("a list");
    let rows: Vec<_> = replays
        .iter()
        .map(|replay| {
            let row = &replay["capacities"][0];
            [&replay["block_use_count"], &row["hit_count"], &row["eviction_count"]]
        })
        .collect();
    assert_eq!(rows, vec![[&json!(7), &json!(2), &json!(1)]; 4]);

    let piped = run_with_input(&["replay", "--dry-run", "--json", "-"], &compressed);
    assert!(piped.status.success());
    let piped: Value = serde_json::from_slice(&piped.stdout).expect("one JSON document");
    assert_eq!(piped["replays"][0]["trace"], "-");
    assert_eq!(piped["replays"][0]["unique_block_count"], 5);
}

#[test]
fn several_traces_make_a_table_each_without_default_capacities_below_a_chunk() {
    let path = file("tables.jsonl", TRACE.as_bytes());
    let table = format!(
        "\
trace {path}: 2 requests, 7 block uses, 5 unique blocks; policy lru, cold start
  capacity  chunks  hits  hit rate  evictions
      25 %       1     1   14.29 %          0
      50 %       2     2   28.57 %          0
"
    );
    assert_eq!(tables(&[&path, &path]), format!("{table}\n{table}"));
}

#[test]
fn control_characters_of_a_name_never_reach_the_terminal() {
    let output = run(&["replay", "no\u{1b}[31m\u{9b}\nfile"]);
    assert_refused(
        &output,
        "cannot open trace no [31m  file: No such file or directory (os error 2); \
         check the path and its permissions",
    );
    let path = file("na\u{1b}[1m\nme.jsonl", TRACE.as_bytes());
    let table = tables(&[&path]);
    assert_eq!(table.lines().count(), 4);
    assert!(table.lines().all(|line| !line.contains(char::is_control)));
}

#[test]
fn options_that_cannot_be_meant_are_refused_in_one_line() {
    let percent =
        "give a percentage over 0 and up to 100 with at most 3 decimals, such as 5 or 12.5";
    for value in ["0", "-5,3", "100.5", "NaN", "1,,2", "5%", "1e1"] {
        let output = run(&["replay", "--capacity-percent", value]);
        let bad = match value {
            "-5,3" => "-5",
            "1,,2" => "",
            value => value,
        };
        let name = "--capacity-percent <PERCENT>";
        assert_refused(&output, &format!("invalid value '{bad}' for '{name}': {percent}"));
    }
    let cases = [
        ("--capacity-chunks", "CHUNKS", "0", 1, 67_108_864),
        ("--capacity-chunks", "CHUNKS", "-1", 1, 67_108_864),
        ("--capacity-chunks", "CHUNKS", "67108865", 1, 67_108_864),
        ("--requests", "COUNT", "0", 1, 1_000_000),
        ("--requests", "COUNT", "1000001", 1, 1_000_000),
        ("--requests", "COUNT", "many", 1, 1_000_000),
        ("--live-sessions", "COUNT", "0", 1, 65_536),
        ("--seed", "NUMBER", "-1", 0, u64::MAX),
        ("--seed", "NUMBER", "1.5", 0, u64::MAX),
    ];
    for (option, name, value, low, high) in cases {
        let expected = format!(
            "invalid value '{value}' for '{option} <{name}>': \
             give a whole number from {low} to {high}"
        );
        assert_refused(&run(&["replay", option, value]), &expected);
    }
}

#[test]
fn misspelled_words_are_answered_with_the_nearest() {
    assert_refused(
        &run(&["replay", "--workload", "agents"]),
        "invalid value 'agents' for '--workload <WORKLOAD>'; [possible values: chat, agent]; \
         tip: a similar value exists: 'agent'",
    );
    assert_refused(
        &run(&["replay", "--capacity-percents", "5"]),
        "unexpected argument '--capacity-percents' found; \
         tip: a similar argument exists: '--capacity-percent'",
    );
    assert_refused(
        &run(&["reply"]),
        "unrecognized subcommand 'reply'; tip: a similar subcommand exists: 'replay'",
    );
}

#[test]
fn options_without_effect_are_refused_by_name() {
    let path = file("no_effect.jsonl", TRACE.as_bytes());
    let cases = [
        ("--workload <WORKLOAD>", "chat"),
        ("--seed <NUMBER>", "1"),
        ("--live-sessions <COUNT>", "5"),
    ];
    for (option, value) in cases {
        let name = option.split(' ').next().expect("a name");
        assert_refused(
            &run(&["replay", name, value, &path]),
            &format!(
                "the argument '{option}' cannot be used with '[TRACE]...'; leave one of them out"
            ),
        );
    }
    assert_refused(
        &run(&["replay", "--capacity-percent=5", "--capacity-chunks=5"]),
        "the argument '--capacity-percent <PERCENT>' cannot be used with \
         '--capacity-chunks <CHUNKS>'; leave one of them out",
    );
}

#[test]
fn capacities_of_less_than_a_chunk_are_refused() {
    let path = file("small.jsonl", TRACE.as_bytes());
    assert_refused(
        &run(&["replay", &path, "--capacity-percent", "50,19.9"]),
        &format!(
            "--capacity-percent 19.9: of the 5 unique blocks of trace {path} that is less than one \
             chunk; give a larger share, or --capacity-chunks"
        ),
    );
    let one = file("one.jsonl", br#"{"input_length":1,"output_length":1,"hash_ids":[7]}"#);
    assert_refused(
        &run(&["replay", &one]),
        &format!(
            "trace {one} has one unique block, too few for the default capacities; \
             give --capacity-chunks 1"
        ),
    );
    let none = file("none.jsonl", br#"{"input_length":1,"output_length":1,"hash_ids":[]}"#);
    assert_refused(
        &run(&["replay", &none, "--capacity-chunks", "1"]),
        &format!("trace {none} has no blocks to cache: every request is empty; give another trace"),
    );
}

#[test]
fn traces_that_cannot_be_opened_or_read_are_named() {
    let folder = env!("CARGO_TARGET_TMPDIR");
    assert_refused(
        &run(&["replay", folder]),
        &format!("trace {folder} is a folder; give the files in it"),
    );
    let missing = format!("{folder}/no such trace");
    assert_refused(
        &run(&["replay", &missing]),
        &format!(
            "cannot open trace {missing}: No such file or directory (os error 2); \
             check the path and its permissions"
        ),
    );
    let zst = compress_to_vec(TRACE.as_bytes(), CompressionLevel::Fastest);
    let cut = file("cut.jsonl.zst", &zst[..zst.len() / 2]);
    let mut bytes = zst;
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let damaged = file("damaged.jsonl.zst", &bytes);
    let binary = file("binary", &[0x1f, 0x8b, 8, 0]);
    let empty = file("empty.jsonl", b"");
    let bad = file("bad.jsonl", format!("{TRACE}\n{{\"hash_runs\":[[1,0]]}}").as_bytes());
    let cases = [
        (
            &cut,
            "cannot be read from line 1 on: its zstd data is damaged or cut off; \
             fetch the file again",
        ),
        (&binary, "line 1: byte 2 is not UTF-8; a trace is JSON lines, plain or zstd-compressed"),
        (&empty, "the trace has no requests; give a file with one JSON object a line"),
        (&bad, "line 4: hash_runs[0] has a run of 0 blocks at block 1; leave empty runs out"),
    ];
    for (path, expected) in cases {
        assert_refused(&run(&["replay", path]), &format!("trace {path}: {expected}"));
    }
    let output = run(&["replay", &damaged]);
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    assert!(error.contains("zstd checksum is") && error.lines().count() == 1, "{error}");
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let mut child = kvtide(&["replay", "--dry-run", "--requests", "10", "--capacity-chunks", "10"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("the program ends");
    assert_eq!(text(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}

#[cfg(target_os = "linux")]
#[test]
fn a_report_that_cannot_be_written_is_a_failure() {
    let full = fs::File::options().write(true).open("/dev/full").expect("Linux has it");
    let output = kvtide(&["replay", "--dry-run", "--requests", "10", "--capacity-chunks", "10"])
        .stdout(full)
        .output()
        .expect("the program runs");
    assert_eq!(
        text(&output.stderr),
        "error: cannot write the report: No space left on device (os error 28)\n"
    );
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn help_and_version_are_at_hand() {
    let version = run(&["--version"]);
    assert_eq!(text(&version.stdout), concat!("kvtide ", env!("CARGO_PKG_VERSION"), "\n"));
    assert!(version.status.success());
    let help = run(&["replay", "--help"]);
    assert!(help.status.success());
    for word in [
        "--dry-run",
        "--geometry",
        "--capacity-percent",
        "Examples:",
        "compared_bytes",
        "hash_runs",
    ] {
        assert!(text(&help.stdout).contains(word), "{word}");
    }
    let bare = run(&[]);
    assert_eq!(bare.status.code(), Some(2));
    assert!(text(&bare.stderr).contains("replay"));
}
