//! Replays with real bytes.

use super::{TRACE, assert_refused, file, run, text};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A workload that is small, and long enough to evict and to hit.
const SMALL: [&str; 5] = ["replay", "--requests=80", "--live-sessions=4", "--seed=3", "--json"];

fn json_report(arguments: &[&str]) -> Value {
    let output = run(arguments);
    assert_eq!(text(&output.stderr), "");
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).expect("one JSON document")
}

fn capacities(report: &Value) -> &Vec<Value> {
    report["replays"][0]["capacities"].as_array().expect("a list")
}

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn a_replay_compares_bytes_at_five_capacities_and_hits_as_the_dry_run() {
    let report = json_report(&SMALL);
    let dry = json_report(&[&SMALL[..], &["--dry-run"]].concat());
    assert_eq!(capacities(&report).len(), 5);
    for (bytes, metadata) in capacities(&report).iter().zip(capacities(&dry)) {
        assert_eq!(bytes["capacity_percent"], metadata["capacity_percent"]);
        let ratio = |capacity: &Value| capacity["hit_ratio"].as_f64().expect("a ratio");
        assert!((ratio(bytes) - ratio(metadata)).abs() <= 0.01, "{bytes} {metadata}");
        assert_eq!(bytes["compared_count"], bytes["hit_count"]);
        assert_eq!(bytes["wrong_count"], 0);
        assert_eq!(bytes["first_wrong"], Value::Null);
        let compared = bytes["compared_count"].as_u64().expect("a count");
        assert!(compared > 0);
        assert_eq!(bytes["compared_bytes"], compared * 16 * 1024);
        assert_eq!(bytes["load_failures"], json!({}));
    }
}

#[test]
fn json_has_the_documented_fields() {
    let path = file("bytes.jsonl", TRACE.as_bytes());
    let report = json_report(&[
        "replay",
        &path,
        "--json",
        "--capacity-chunks=4",
        "--geometry=deepseek-v3",
        "--bytes-per-token=244",
        "--block-tokens=2",
        "--device-blocks=9",
        "--concurrency=2",
        "--prefill-rate=0.5",
    ]);
    assert_eq!(report["metadata_only"], false);
    let replay = &report["replays"][0];
    let engine = json!({
        "geometry": "DeepSeek-V3",
        "plane_count": 61,
        "row_bytes": 4,
        "bytes_per_token": 244,
        "block_tokens": 2,
        "block_bytes": 488,
        "concurrency": 2,
        "device_block_count": 9,
        "prefill_tokens_per_second": 0.5,
    });
    assert_eq!(replay["engine"], engine);
    let capacity = &capacities(&report)[0];
    let help = run(&["replay", "--help"]);
    let words: BTreeSet<&str> = text(&help.stdout)
        .split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .collect();
    let hop = &capacity["hops"]["pack"];
    for value in
        [&report, replay, &replay["engine"], capacity, &capacity["hops"], hop, &hop["latency"]]
    {
        for key in keys(value) {
            assert!(words.contains(key), "{key} is not documented");
        }
    }
    let hops = ["in_link", "out_link", "pack", "read", "unpack", "write"];
    assert_eq!(keys(&capacity["hops"]), BTreeSet::from(hops));
    assert!(capacity["disk"].is_null(), "there is no disk tier");
    // A payload of 61 fragments of 16 bytes fills one page; the header is another.
    assert_eq!(capacity["slot_bytes"], 8192);
    assert_eq!(capacity["host_tier_bytes"], 4 * 8192);
    let tokens = capacity["saved_token_count"].as_f64().expect("a number");
    assert_eq!(capacity["prefill_saved_seconds"].as_f64(), Some(2.0 * tokens));
    assert!(capacity.get("block_uses_per_second").is_none());
}

#[test]
fn a_disk_tier_is_kept_for_the_next_run_and_its_fields_are_documented() {
    let path = file("bytes_disk.jsonl", TRACE.as_bytes());
    let root = std::env::temp_dir().join(format!("kvtide-cli-disk-{}", std::process::id()));
    let root = root.to_str().expect("a plain path");
    let arguments = [
        "replay",
        &path,
        "--json",
        "--capacity-chunks=5",
        "--disk",
        root,
        "--disk-percent=100",
        "--write-policy=through",
    ];
    let cold = json_report(&arguments);
    let warm = json_report(&arguments);
    let help = run(&["replay", "--help"]);
    std::fs::remove_dir_all(root).expect("the directory was made");
    let (cold, warm) = (&capacities(&cold)[0], &capacities(&warm)[0]);
    assert_eq!(cold["disk"]["warm_count"], 0);
    assert_eq!(warm["disk"]["warm_count"], 5, "all unique blocks");
    assert_eq!((&warm["hit_count"], &warm["wrong_count"]), (&json!(7), &json!(0)));
    assert_eq!(warm["disk"]["health"], "serving");
    let words: BTreeSet<&str> = text(&help.stdout)
        .split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .collect();
    for key in keys(&warm["disk"]).into_iter().chain(keys(&warm["hits_by_tier"])) {
        assert!(words.contains(key), "{key} is not documented");
    }
}

#[test]
fn several_directories_serve_as_one_disk_tier_each_within_its_capacity() {
    let path = file("bytes_stripes.jsonl", TRACE.as_bytes());
    let root = std::env::temp_dir().join(format!("kvtide-cli-stripes-{}", std::process::id()));
    let [one, two] = ["one", "two"].map(|name| format!("--disk={}", root.join(name).display()));
    let replay = |capacities: &[&str]| {
        let fixed = ["replay", &path, "--json", "--capacity-chunks=5", &one, &two];
        json_report(&[&fixed[..], capacities].concat())
    };
    let cold = replay(&["--disk-capacity=1MiB", "--disk-capacity=2MiB"]);
    let warm = replay(&["--disk-capacity=2MiB"]);
    let stores = |name: &str| std::fs::read_dir(root.join(name)).expect("it was made").count();
    assert_eq!((stores("one"), stores("two")), (2, 2), "a lock and an instance in each");
    std::fs::remove_dir_all(&root).expect("the directories were made");
    let (cold, warm) = (&capacities(&cold)[0]["disk"], &capacities(&warm)[0]["disk"]);
    assert_eq!(cold["capacity_bytes"], 3 << 20);
    assert_eq!((&warm["capacity_bytes"], &warm["warm_count"]), (&json!(4 << 20), &json!(5)));
    assert_eq!(warm["health"], "serving");
}

#[test]
fn directories_that_cannot_be_one_disk_tier_are_refused_by_name() {
    let path = file("bytes_refused.jsonl", TRACE.as_bytes());
    let replay = |arguments: &[&str]| {
        let output = run(&[&["replay", &path, "--capacity-chunks=5"], arguments].concat());
        assert_eq!(output.status.code(), Some(2));
        text(&output.stderr).to_owned()
    };
    let capacities = ["--disk-capacity=2MiB", "--disk-capacity=3MiB"];
    let too_few = replay(&[&["--disk=a", "--disk=b", "--disk=c"], &capacities[..]].concat());
    assert!(too_few.contains("--disk-capacity: 2 given for 3 directories"), "{too_few}");
    let repeated = replay(&["--disk=a", "--disk=b/../a", "--disk-capacity=2MiB"]);
    assert!(repeated.contains("b/../a") && repeated.contains("--disk"), "{repeated}");
    let many: Vec<String> = (0..17).map(|number| format!("--disk={number}")).collect();
    let mut many: Vec<&str> = many.iter().map(String::as_str).collect();
    many.push("--disk-percent=50");
    let many = replay(&many);
    assert!(many.contains("17 given; give 1 to 16"), "{many}");
}

#[test]
fn a_disk_tier_of_several_replays_is_refused() {
    let path = file("bytes_disks.jsonl", TRACE.as_bytes());
    let output = run(&["replay", &path, "--capacity-chunks=4,5", "--disk=d", "--disk-percent=50"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--disk: 2 replays asked for"));
}

#[test]
fn tables_say_what_was_moved_compared_and_saved() {
    let path = file("bytes_table.jsonl", TRACE.as_bytes());
    let output = run(&["replay", &path, "--capacity-chunks=5", "--prefill-rate=2"]);
    assert_eq!(text(&output.stderr), "");
    assert!(output.status.success());
    let lines: Vec<&str> = text(&output.stdout).lines().map(str::trim).collect();
    let words = |line: usize| lines[line].split_whitespace().collect::<Vec<_>>();
    assert_eq!(
        lines[..3],
        [
            &format!(
                "trace {path}: 2 requests, 7 block uses, 5 unique blocks; policy lru, cold start"
            ),
            "Llama-3-8B, scaled down to 1,024 bytes a token (--bytes-per-token): 64 planes, 16 \
             bytes a row; blocks of 16 tokens, 16.0 KiB",
            "cpu device, 4 blocks; 1 request at a time",
        ]
    );
    assert_eq!(
        words(4)[..12],
        ["5", "chunks", "5", "100.0", "KiB", "2", "28.57", "%", "0", "32.0", "KiB", "0"]
    );
    assert_eq!(words(6), ["capacity", "pack", "out-link", "in-link", "unpack"]);
    assert_eq!(words(9), ["capacity", "lookup", "pack", "release", "load"]);
    assert_eq!(lines[11], "prefill saved, at 2 tokens/s");
    assert_eq!(words(13), ["5", "chunks", "4", "2.00", "s"]);
    assert_eq!(lines.len(), 14);
}

#[test]
fn chunks_without_room_are_told_of() {
    let path = file("bytes_full.jsonl", TRACE.as_bytes());
    let output = run(&["replay", &path, "--capacity-chunks=2"]);
    assert!(output.status.success());
    let last = text(&output.stdout).lines().last();
    assert_eq!(last, Some("chunks that could not be stored at 2 chunks: 3 full"));
}

#[test]
fn several_requests_at_a_time_and_small_pools_are_clean_for_every_geometry() {
    for geometry in ["Llama-3-8B", "Llama-3-70B", "Qwen3-8B", "DeepSeek-V3"] {
        let engine = ["--geometry", geometry, "--concurrency=4", "--device-capacity=16MiB"];
        let tier = ["--host-capacity=4MiB,8 MiB", "--block-tokens=4"];
        let report = json_report(&[&SMALL[..], &engine, &tier].concat());
        assert_eq!(report["replays"][0]["engine"]["geometry"], geometry);
        assert_eq!(capacities(&report).len(), 2);
        for capacity in capacities(&report) {
            let host_tier = capacity["host_tier_bytes"].as_u64().expect("bytes");
            assert!(host_tier <= 8 << 20 && host_tier > 3 << 20, "{host_tier}");
            assert_eq!(capacity["wrong_count"], 0);
            assert!(capacity["compared_count"].as_u64() > Some(0));
        }
    }
}

#[test]
fn a_trace_can_be_cut_short_in_both_modes() {
    let path = file("bytes_short.jsonl", TRACE.as_bytes());
    for mode in [&["--dry-run"][..], &[]] {
        let arguments = ["replay", &path, "--json", "--requests=1", "--capacity-percent=100"];
        let report = json_report(&[&arguments[..], mode].concat());
        assert_eq!(report["replays"][0]["request_count"], 1);
        assert_eq!(report["replays"][0]["unique_block_count"], 3);
        assert_eq!(capacities(&report)[0]["capacity_chunks"], 3);
    }
}

#[test]
fn sizes_that_do_not_fit_are_refused_with_both_named() {
    let path = file("bytes_small.jsonl", TRACE.as_bytes());
    let pool = "the device pool of 3 blocks (48.0 KiB) does not hold the longest request of 4 \
                blocks (64.0 KiB); give it that much at least (--device-blocks or \
                --device-capacity)";
    assert_refused(&run(&["replay", &path, "--device-blocks=3"]), &format!("trace {path}: {pool}"));
    assert_refused(
        &run(&["replay", &path, "--device-capacity=49KiB"]),
        &format!("trace {path}: {pool}"),
    );
    assert_refused(
        &run(&["replay", &path, "--device-capacity=1KiB"]),
        "--device-capacity 1.0 KiB: a block takes 16.0 KiB; give that much at least, or lower \
         --bytes-per-token or --block-tokens",
    );
    assert_refused(
        &run(&["replay", &path, "--host-capacity=20KiB,20479"]),
        "--host-capacity 19.9 KiB: a chunk takes 20.0 KiB; give that much at least, or lower \
         --bytes-per-token or --block-tokens",
    );
    assert_refused(
        &run(&["replay", &path, "--bytes-per-token=1000"]),
        "--bytes-per-token: 1000 bytes a token cannot be had of Llama-3-8B: it has 64 planes, \
         whose rows are multiples of 4 bytes and at most 2048; the nearest is 1024",
    );
    let long = file(
        "bytes_long.jsonl",
        br#"{"input_length":1,"output_length":1,"hash_runs":[[0,1000000]]}"#,
    );
    let output = run(&["replay", &long, "--bytes-per-token=128KiB", "--capacity-chunks=10"]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(error.lines().count(), 1);
    let sizes = "the host tier takes 20.0 MiB, the device pool 1.9 TiB and staging";
    assert!(error.contains(sizes) && error.contains("--bytes-per-token"), "{error}");
}

#[test]
fn values_that_cannot_be_meant_are_refused_in_one_line() {
    let size = "give a whole number of B, KiB, MiB, GiB or TiB, such as 512MiB";
    let geometry = "unknown geometry; give one of Llama-3-8B, Llama-3-70B, Qwen3-8B, DeepSeek-V3";
    let cases = [
        ("--geometry", "MODEL", "gpt-2", geometry),
        ("--bytes-per-token", "SIZE", "0", size),
        ("--bytes-per-token", "SIZE", "-1", size),
        ("--host-capacity", "SIZE", "1GB", size),
        ("--device-capacity", "SIZE", "1.5GiB", size),
        ("--device-blocks", "COUNT", "0", "give a whole number from 1 to 67108864"),
        ("--block-tokens", "COUNT", "0", "give a whole number from 1 to 65536"),
        ("--concurrency", "COUNT", "257", "give a whole number from 1 to 256"),
        ("--concurrency", "COUNT", "-1", "give a whole number from 1 to 256"),
        ("--prefill-rate", "TOKENS_PER_S", "0", "give tokens a second, a number over 0"),
        ("--prefill-rate", "TOKENS_PER_S", "-5", "give tokens a second, a number over 0"),
        ("--prefill-rate", "TOKENS_PER_S", "inf", "give tokens a second, a number over 0"),
    ];
    for (option, name, value, expected) in cases {
        assert_refused(
            &run(&["replay", option, value]),
            &format!("invalid value '{value}' for '{option} <{name}>': {expected}"),
        );
    }
}

#[test]
fn engine_options_are_refused_where_no_bytes_move() {
    let cases = [
        ("--geometry <MODEL>", "Qwen3-8B"),
        ("--bytes-per-token <SIZE>", "1KiB"),
        ("--block-tokens <COUNT>", "16"),
        ("--host-capacity <SIZE>", "1GiB"),
        ("--device-blocks <COUNT>", "100"),
        ("--device-capacity <SIZE>", "1GiB"),
        ("--concurrency <COUNT>", "2"),
        ("--prefill-rate <TOKENS_PER_S>", "1000"),
    ];
    for (option, value) in cases {
        let name = option.split(' ').next().expect("a name");
        assert_refused(
            &run(&["replay", "--dry-run", name, value]),
            &format!(
                "the argument '--dry-run' cannot be used with '{option}'; leave one of them out"
            ),
        );
    }
    let twice = run(&["replay", "--device-blocks=1", "--device-capacity=1GiB"]);
    assert_refused(
        &twice,
        "the argument '--device-blocks <COUNT>' cannot be used with '--device-capacity <SIZE>'; \
         leave one of them out",
    );
}
