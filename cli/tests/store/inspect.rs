//! What `kvtide inspect` promises: it tells what is there, and changes nothing.

use crate::rig::{
    Engine, STORE_BYTES, assert_refused, closed_store, damage, files, holder, json, killed_store,
    name, root, run, store_id, text,
};
use serde_json::{Value, json};
use std::fs;

#[test]
fn every_fact_of_a_store_is_in_the_json_document() {
    let root = root("inspect-facts");
    closed_store(&root, 1, 4);
    let (code, document, error) = json(&["inspect"], &root);
    assert_eq!((code, error.as_str()), (Some(0), ""));
    let mut document = document;
    let store = &mut document["stores"][0];
    let age = store["age_seconds"].take();
    assert!(age.as_u64().is_some_and(|age| age < 600), "{age}");
    assert!(store["written_s"].take().as_u64().is_some_and(|written_s| written_s > 1_700_000_000));
    let uuid = store["superblock"]["uuid"].take();
    assert_eq!(uuid.as_str().map(str::len), Some(32));
    let expected = json!({
        "kvtide_version": env!("CARGO_PKG_VERSION"),
        "directory": root,
        "store_count": 1,
        "bytes": STORE_BYTES,
        "stores": [{
            "directory": name(1),
            "instance": 0,
            "store_id": store_id(1).to_string(),
            "state": "clean",
            "reason": null,
            "process": null,
            "superblock_damage": null,
            "bytes": STORE_BYTES,
            "written_s": null,
            "age_seconds": null,
            "superblock": {
                "uuid": null,
                "format_version": 1,
                "epoch": 1,
                "generation_floor": "0.0",
                "slot_bytes": 8192,
                "slot_count": 6,
                "used_slot_count": 4,
                "group": 0,
                "codec": "raw",
                "block_tokens": 16,
                "blocks_per_chunk": 2,
                "part_count": 1,
            },
        }],
    });
    assert_eq!(document, expected);
}

#[test]
fn people_read_sizes_in_units_and_the_total_of_the_root() {
    let root = root("inspect-text");
    closed_store(&root, 1, 4);
    killed_store(&root, 2, 1);
    let output = run(&["inspect"], &root);
    let lines: Vec<&str> = text(&output.stdout).lines().collect();
    assert_eq!(lines[0], format!("{}: clean", name(1)));
    assert!(lines[1].starts_with("  64.0 KiB on disk, written "), "{}", lines[1]);
    assert_eq!(lines[2], "  6 slots of 8.0 KiB, 4 used");
    assert_eq!(lines[3], "  group 0, codec raw, chunks of 2 blocks of 16 tokens, parts 1");
    assert!(lines[4].ends_with(", format 1, epoch 1, generation floor 0.0"), "{}", lines[4]);
    assert_eq!(lines[6], format!("{}: to be scanned: the last run was not closed", name(2)));
    assert_eq!(lines[8], "  6 slots of 8.0 KiB, use unknown");
    let total = format!("{}: 2 stores, 128.0 KiB on disk", root.display());
    assert_eq!(lines.last(), Some(&total.as_str()));
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""));
}

/// Returns state and reason of the only store.
fn state(directory: &std::path::Path) -> (String, Value) {
    let (code, document, error) = json(&["inspect"], directory);
    assert_eq!((code, error.as_str()), (Some(0), ""));
    let store = &document["stores"][0];
    (store["state"].as_str().expect("text").to_owned(), store["reason"].clone())
}

#[test]
fn a_store_in_use_is_told_with_its_process_while_it_runs() {
    let root = root("inspect-running");
    let mut engine = Engine::open(&root, 1);
    engine.write(2);
    let (code, document, _) = json(&["inspect"], &root);
    let store = &document["stores"][0];
    assert_eq!(
        (code, &store["state"], &store["process"]),
        (Some(0), &json!("in_use"), &holder().0)
    );
    assert_eq!(store["superblock"]["epoch"], 1);
    assert_eq!(store["superblock"]["used_slot_count"], Value::Null);
    let output = run(&["inspect"], &root);
    let first = format!("{}: in use{}\n", name(1), holder().1);
    assert!(text(&output.stdout).starts_with(&first));
    // The engine did not notice.
    engine.write_chunk(2, 2);
    engine.close();
    assert_eq!(state(&root), ("clean".to_owned(), Value::Null));
}

#[test]
fn each_state_is_told_from_the_others() {
    let root = root("inspect-states");
    let directory = closed_store(&root, 1, 3);
    assert_eq!(state(&directory).0, "clean");

    damage(&directory, "index", 20);
    let (scanned, reason) = state(&directory);
    assert_eq!(scanned, "to_be_scanned");
    assert!(reason.as_str().expect("text").starts_with("the index is damaged: snapshot header:"));

    damage(&directory, "superblock", 100);
    let (_, document, _) = json(&["inspect"], &directory);
    let told = document["stores"][0]["superblock_damage"].as_str().expect("text").to_owned();
    assert!(told.starts_with("copy 1 of the superblock: superblock: its bytes sum to"), "{told}");

    damage(&directory, "superblock", 4096 + 100);
    let (damaged, reason) = state(&directory);
    assert_eq!(damaged, "damaged");
    assert!(reason.as_str().expect("text").contains("no copy of the superblock is good"));

    fs::remove_file(directory.join("data")).expect("it is there");
    assert_eq!(state(&directory).0, "unfinished");
}

#[test]
fn a_renamed_store_is_foreign() {
    let root = root("inspect-foreign");
    let directory = closed_store(&root, 1, 1);
    let other = root.join(name(2));
    fs::rename(directory, &other).expect("it can be renamed");
    let (foreign, reason) = state(&root);
    assert_eq!(foreign, "foreign");
    let expected = format!("superblock is of store {}, not {}", store_id(1), store_id(2));
    assert!(reason.as_str().expect("text").contains(&expected), "{reason}");
}

#[test]
fn nothing_is_written() {
    let root = root("inspect-reads");
    closed_store(&root, 1, 2);
    damage(&killed_store(&root, 2, 2), "superblock", 7);
    let before = files(&root);
    assert_eq!(run(&["inspect"], &root).status.code(), Some(0));
    assert_eq!(run(&["inspect"], &root.join(name(2))).status.code(), Some(0));
    assert!(before == files(&root));
}

#[test]
fn what_holds_no_store_is_refused_with_the_path() {
    let root = root("inspect-refused");
    let missing = root.join("nowhere");
    let expected = format!(
        "cannot list {}: No such file or directory; give the root of a disk tier, or the directory \
         of one store",
        missing.display()
    );
    for command in ["inspect", "check"] {
        let output = run(&[command], &missing);
        let told = text(&output.stderr).replace(" (os error 2)", "");
        assert_eq!((told, output.status.code()), (format!("error: {expected}\n"), Some(2)));
    }
    let expected = format!(
        "{}: no store is in it; give the root of a disk tier, which has ROOT/INSTANCE/STORE-ID, or \
         the directory of one store",
        root.display()
    );
    for command in ["inspect", "check"] {
        assert_refused(&run(&[command], &root), 2, &expected);
    }
    assert!(files(&root).is_empty());
}
