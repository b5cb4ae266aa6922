//! What `kvtide check` promises: every kind of damage is found, named and counted.

use crate::rig::{
    Engine, SLOT_BYTES, assert_refused, closed_store, damage, files, holder, json, key,
    killed_store, name, root, run, store_id, text,
};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Checks one store; returns its exit code and what is said of it.
fn check(options: &[&str], directory: &Path) -> (Option<i32>, Value) {
    let (code, mut document, error) = json(&[&["check"], options].concat(), directory);
    assert_eq!(error.is_empty(), code == Some(0), "{error}");
    (code, document["stores"][0].take())
}

/// Returns the kinds of damage of a store and how often each was found.
fn counts(store: &Value) -> Vec<(String, u64)> {
    let kinds = store["damage"].as_array().expect("a list").iter();
    kinds
        .map(|damage| {
            let kind = damage["kind"].as_str().expect("text").to_owned();
            (kind, damage["count"].as_u64().expect("a number"))
        })
        .collect()
}

fn found(kind: &str, count: u64) -> Vec<(String, u64)> {
    vec![(kind.to_owned(), count)]
}

#[test]
fn sound_stores_are_sound_however_they_ended() {
    let root = root("check-sound");
    closed_store(&root, 1, 5);
    killed_store(&root, 2, 3);
    closed_store(&root, 3, 0);
    let output = run(&["check", "--payload"], &root);
    let expected = format!(
        "{}: sound, 5 of 6 slots hold resident chunks, 20.0 KiB of payload compared\n\
         {}: sound, 3 of 6 slots hold resident chunks, 12.0 KiB of payload compared\n\
         {}: sound, 0 of 6 slots hold resident chunks\n\
         {}: 3 stores, 8 resident chunks\n",
        name(1),
        name(2),
        name(3),
        root.display()
    );
    assert_eq!(text(&output.stdout), expected);
    assert_eq!((text(&output.stderr), output.status.code()), ("", Some(0)));
}

#[test]
fn resident_chunks_are_listed_when_asked_for() {
    let root = root("check-list");
    let directory = killed_store(&root, 1, 2);
    let (code, store) = check(&["--list"], &directory);
    assert_eq!(code, Some(0));
    let chunks = json!([
        {"key": key(0).to_string(), "slot": 0},
        {"key": key(1).to_string(), "slot": 1},
    ]);
    assert_eq!(store["chunks"], chunks);
    assert_eq!(store["slots"]["resident_chunk_count"], 2);
    assert_eq!(check(&[], &directory).1.get("chunks"), None);
    let refused = run(&["check", "--list"], &directory);
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn an_older_write_of_a_chunk_is_neither_resident_nor_damage() {
    let root = root("check-older");
    let mut engine = Engine::open(&root, 1);
    engine.write_chunk(7, 3);
    engine.write_chunk(7, 1);
    engine.write_chunk(8, 0);
    engine.kill();
    let (code, store) = check(&["--payload", "--list"], &root);
    assert_eq!((code, &store["slots"]["older_count"]), (Some(0), &json!(1)));
    let chunks = json!([
        {"key": key(8).to_string(), "slot": 0},
        {"key": key(7).to_string(), "slot": 1},
    ]);
    assert_eq!(store["chunks"], chunks);
}

#[test]
fn each_copy_of_the_superblock_is_checked() {
    let root = root("check-superblock");
    let directory = closed_store(&root, 1, 2);
    for (offset, number) in [(16, 1), (4096 + 16, 2)] {
        damage(&directory, "superblock", offset);
        let (code, store) = check(&[], &root);
        assert_eq!((code, counts(&store)), (Some(1), found("superblock", 1)));
        let what = store["damage"][0]["first"][0]["what"].as_str().expect("text").to_owned();
        assert!(what.starts_with(&format!("copy {number}: superblock: its bytes sum")), "{what}");
        assert_eq!(store["slots"]["resident_chunk_count"], 2);
        damage(&directory, "superblock", offset);
    }
    damage(&directory, "superblock", 16);
    damage(&directory, "superblock", 4096 + 16);
    let (code, store) = check(&[], &root);
    assert_eq!((code, counts(&store)), (Some(1), found("superblock", 1)));
    assert_eq!(store["slots"], Value::Null);
}

#[test]
fn every_byte_of_header_and_payload_is_covered() {
    let root = root("check-bytes");
    let directory = closed_store(&root, 1, 3);
    let places = [(0, "header"), (17, "header"), (1030, "header"), (3500, "header")];
    let places = places.into_iter().chain([(4095, "header"), (4096, "payload"), (5119, "payload")]);
    for (offset, kind) in places {
        damage(&directory, "data", SLOT_BYTES + offset);
        let (code, store) = check(&["--payload"], &root);
        assert_eq!((code, counts(&store)), (Some(1), found(kind, 1)), "byte {offset}");
        let first = &store["damage"][0]["first"][0];
        assert_eq!((&first["slot"], &first["key"]), (&json!(1), &json!(key(1).to_string())));
        assert_eq!(store["slots"]["resident_chunk_count"], 2);
        damage(&directory, "data", SLOT_BYTES + offset);
    }
    assert_eq!(check(&["--payload"], &root).0, Some(0));
}

#[test]
fn payloads_are_read_only_when_asked_for() {
    let root = root("check-headers-only");
    let directory = closed_store(&root, 1, 1);
    damage(&directory, "data", 4096);
    let (code, store) = check(&[], &root);
    assert_eq!((code, &store["slots"]["payload_bytes"]), (Some(0), &json!(0)));
}

#[test]
fn an_index_that_was_not_closed_with_its_slots_is_damage() {
    let root = root("check-index");
    let directory = closed_store(&root, 1, 3);
    for offset in [40, 4096 + 8, 4096 + 4090] {
        damage(&directory, "index", offset);
        let (code, store) = check(&[], &root);
        assert_eq!((code, counts(&store)), (Some(1), found("index", 1)), "byte {offset}");
        assert_eq!(store["slots"]["resident_chunk_count"], 3);
        damage(&directory, "index", offset);
    }
    // The slots of a later run under the index and superblock of the one before.
    let kept = ["superblock", "index"]
        .map(|file| (directory.join(file), fs::read(directory.join(file)).expect("it is there")));
    let mut engine = Engine::open(&root, 1);
    engine.write_chunk(9, 1);
    engine.close();
    for (path, bytes) in kept {
        fs::write(path, bytes).expect("it can be written");
    }
    let (code, store) = check(&[], &root);
    assert_eq!(code, Some(1));
    assert_eq!(counts(&store), found("header", 1));
    let what = store["damage"][0]["first"][0]["what"].clone();
    assert_eq!(what, "it is of run 2, which was never begun");
}

#[test]
fn slots_that_disagree_with_the_index_are_named() {
    let root = root("check-disagree");
    let directory = closed_store(&root, 1, 3);
    let data = fs::read(directory.join("data")).expect("it is there");
    let blank = usize::try_from(SLOT_BYTES).expect("small");
    let mut lost = data.clone();
    lost[blank..2 * blank].fill(0);
    fs::write(directory.join("data"), lost).expect("it can be written");
    let (code, store) = check(&["--list"], &root);
    assert_eq!((code, counts(&store)), (Some(1), found("index", 1)));
    assert_eq!(store["damage"][0]["first"][0]["key"], json!(key(1).to_string()));
    assert_eq!(store["chunks"].as_array().map(Vec::len), Some(2));
}

#[test]
fn data_that_is_cut_is_damage_and_counted_once() {
    let root = root("check-cut");
    let directory = closed_store(&root, 1, 5);
    let file = fs::OpenOptions::new().write(true).open(directory.join("data")).expect("a file");
    file.set_len(3 * SLOT_BYTES).expect("it can be cut");
    let (code, store) = check(&["--payload"], &root);
    assert_eq!((code, counts(&store)), (Some(1), found("length", 1)));
    assert_eq!(store["slots"]["resident_chunk_count"], 3);
}

#[test]
fn a_renamed_store_is_foreign_and_not_looked_into() {
    let root = root("check-foreign");
    let directory = closed_store(&root, 1, 1);
    fs::rename(directory, root.join(name(2))).expect("it can be renamed");
    let (code, store) = check(&["--payload"], &root);
    assert_eq!(
        (code, counts(&store), &store["slots"]),
        (Some(1), found("foreign", 1), &Value::Null)
    );
    assert_eq!(store["store_id"], store_id(2).to_string());
}

#[test]
fn many_findings_are_counted_and_the_first_told() {
    let root = root("check-many");
    let directory = killed_store(&root, 1, 6);
    for slot in 0..6 {
        damage(&directory, "data", slot * SLOT_BYTES + 64);
    }
    let output = run(&["check"], &root);
    let lines: Vec<&str> = text(&output.stdout).lines().collect();
    assert_eq!(lines[0], format!("{}: damaged, 0 of 6 slots hold resident chunks", name(1)));
    assert_eq!(lines[1], "  header: 6 found");
    assert!(lines[2].starts_with("    slot 0: slot header: its bytes sum to 0x"), "{}", lines[2]);
    assert!(lines[6].starts_with("    slot 4: "), "{}", lines[6]);
    assert_eq!(lines[7], "    ...");
    let expected = format!(
        "error: {}: 1 of 1 stores damaged; `kvtide check --repair` repairs what can be \
         repaired\n",
        root.display()
    );
    assert_eq!(text(&output.stderr), expected);
}

#[test]
fn a_store_in_use_is_left_alone_and_its_process_named() {
    let root = root("check-running");
    let mut engine = Engine::open(&root, 1);
    engine.write(2);
    let expected = format!(
        "{} is in use{}; check it when that process has ended",
        root.join(name(1)).display(),
        holder().1
    );
    for directory in [root.clone(), root.join(name(1))] {
        assert_refused(&run(&["check"], &directory), 2, &expected);
        assert_refused(&run(&["check", "--repair", "--payload"], &directory), 2, &expected);
    }
    // Others are checked all the same.
    closed_store(&root, 2, 1);
    let (code, document, _) = json(&["check"], &root);
    assert_eq!(code, Some(0));
    let results = [0, 1].map(|store| document["stores"][store]["result"].clone());
    assert_eq!(results, [json!("in_use"), json!("sound")]);
    assert_eq!(document["stores"][0]["process"], holder().0);
    // Its superblock can be looked at while it runs.
    damage(&root.join(name(1)), "superblock", 16);
    let (code, store) = check(&["--repair"], &root);
    assert_eq!((code, counts(&store)), (Some(1), found("superblock", 1)));
    let failure = "it is in use; repair it when that process has ended";
    assert_eq!(store["repair_failure"], failure);
    engine.close();
}

#[test]
fn a_check_without_repair_writes_nothing() {
    let root = root("check-reads");
    closed_store(&root, 1, 2);
    let directory = killed_store(&root, 2, 4);
    damage(&directory, "superblock", 7);
    damage(&directory, "data", 100);
    let before = files(&root);
    assert_eq!(run(&["check", "--payload"], &root).status.code(), Some(1));
    assert!(before == files(&root));
}
