//! What `kvtide check --repair` promises: what it could mend is mended, so that a second check
//! finds nothing; what it could not is left as it was.

use crate::rig::{
    Engine, SLOT_BYTES, closed_store, damage, files, json, key, killed_store, name, root,
};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

/// Repairs the only store, checks that it is sound then, and returns what was done.
fn repair(root: &Path) -> Vec<String> {
    let (code, document, error) = json(&["check", "--payload", "--repair"], root);
    assert_eq!(code, Some(1));
    assert!(error.ends_with("1 of 1 stores damaged; all were repaired"), "{error}");
    let store = &document["stores"][0];
    assert_eq!(store["repair_failure"], Value::Null);
    let (code, again, _) = json(&["check", "--payload"], root);
    assert_eq!((code, &again["stores"][0]["damage"]), (Some(0), &json!([])));
    let done = store["repairs"].as_array().expect("a list").iter();
    done.map(|line| line.as_str().expect("text").to_owned()).collect()
}

/// Returns the slots of the chunks that are resident.
fn slots(root: &Path) -> Vec<u64> {
    let (_, document, _) = json(&["check", "--list"], root);
    let chunks = document["stores"][0]["chunks"].as_array().expect("a list").iter();
    chunks.map(|chunk| chunk["slot"].as_u64().expect("a number")).collect()
}

#[test]
fn a_damaged_copy_of_the_superblock_is_written_anew_and_the_store_stays_clean() {
    for (offset, case) in [(100, "repair-first"), (4096 + 100, "repair-second")] {
        let root = root(case);
        let directory = closed_store(&root, 1, 4);
        let before = files(&directory);
        damage(&directory, "superblock", offset);
        assert_eq!(repair(&root), ["wrote the damaged copy of the superblock anew"]);
        // The copies were the same, so that nothing else has changed.
        assert!(before == files(&directory));
        assert_eq!(Engine::scan_reason(&root, 1), "4 chunks");
    }
}

#[test]
fn damaged_slots_of_a_closed_store_are_gone_and_the_others_stay() {
    let root = root("repair-slots");
    let directory = closed_store(&root, 1, 5);
    damage(&directory, "data", SLOT_BYTES + 32);
    damage(&directory, "data", 3 * SLOT_BYTES + 4096 + 8);
    assert_eq!(repair(&root), ["overwrote 2 header pages with zeros", "wrote the index anew"]);
    let data = fs::read(directory.join("data")).expect("it is there");
    for slot in [1, 3] {
        let start = slot * usize::try_from(SLOT_BYTES).expect("small");
        assert!(data[start..start + 4096].iter().all(|&byte| byte == 0));
    }
    assert_eq!(slots(&root), [0, 2, 4]);
    assert_eq!(Engine::scan_reason(&root, 1), "3 chunks");
}

#[test]
fn no_scan_offers_a_damaged_slot_of_a_killed_store_after_a_repair() {
    let root = root("repair-killed");
    let directory = killed_store(&root, 1, 4);
    damage(&directory, "data", 2 * SLOT_BYTES + 4096);
    let done = repair(&root);
    let expected =
        ["overwrote 1 header page with zeros", "left it to be scanned when it is opened next"];
    assert_eq!(done, expected);
    assert_eq!(slots(&root), [0, 1, 3]);
    assert_eq!(Engine::scan_reason(&root, 1), "the last run was not closed");
}

#[test]
fn a_store_with_a_damaged_index_is_left_to_be_scanned() {
    let root = root("repair-index");
    let directory = closed_store(&root, 1, 3);
    damage(&directory, "index", 4096 + 100);
    assert_eq!(repair(&root), ["left it to be scanned when it is opened next"]);
    assert_eq!(Engine::scan_reason(&root, 1), "the last run was not closed");
    assert_eq!(slots(&root), [0, 1, 2]);
}

#[test]
fn an_index_that_disagrees_with_its_slots_is_given_up() {
    let root = root("repair-disagree");
    let directory = closed_store(&root, 1, 3);
    let mut data = fs::read(directory.join("data")).expect("it is there");
    data[..4096].fill(0);
    fs::write(directory.join("data"), data).expect("it can be written");
    assert_eq!(repair(&root), ["left it to be scanned when it is opened next"]);
    assert_eq!(slots(&root), [1, 2]);
}

#[test]
fn a_missing_index_is_given_up() {
    let root = root("repair-no-index");
    let directory = closed_store(&root, 1, 3);
    fs::remove_file(directory.join("index")).expect("it is there");
    assert_eq!(repair(&root), ["left it to be scanned when it is opened next"]);
    assert_eq!(slots(&root), [0, 1, 2]);
}

#[test]
fn data_that_was_cut_is_extended_and_what_is_left_stays() {
    let root = root("repair-cut");
    let directory = closed_store(&root, 1, 5);
    let file = fs::OpenOptions::new().write(true).open(directory.join("data")).expect("a file");
    file.set_len(3 * SLOT_BYTES).expect("it can be cut");
    let done = repair(&root);
    let expected = ["extended data to 49152 bytes", "left it to be scanned when it is opened next"];
    assert_eq!(done, expected);
    assert_eq!(slots(&root), [0, 1, 2]);
}

#[test]
fn all_kinds_of_damage_at_once_are_repaired_at_once() {
    let root = root("repair-all");
    let directory = closed_store(&root, 1, 6);
    damage(&directory, "superblock", 9);
    damage(&directory, "index", 9);
    damage(&directory, "data", 9);
    damage(&directory, "data", 5 * SLOT_BYTES + 5000);
    let done = repair(&root);
    let expected = [
        "wrote the damaged copy of the superblock anew",
        "overwrote 2 header pages with zeros",
        "left it to be scanned when it is opened next",
    ];
    assert_eq!(done, expected);
    assert_eq!(slots(&root), [1, 2, 3, 4]);
}

#[test]
fn the_older_write_of_a_chunk_comes_back_when_the_newer_is_damaged() {
    let root = root("repair-older");
    let mut engine = Engine::open(&root, 1);
    engine.write_chunk(5, 0);
    engine.write_chunk(5, 2);
    engine.kill();
    let directory = root.join(name(1));
    damage(&directory, "data", 2 * SLOT_BYTES + 4100);
    assert_eq!(repair(&root)[0], "overwrote 1 header page with zeros");
    let (_, document, _) = json(&["check", "--list"], &root);
    let chunks = json!([{"key": key(5).to_string(), "slot": 0}]);
    assert_eq!(document["stores"][0]["chunks"], chunks);
}

#[test]
fn what_cannot_be_trusted_is_not_touched_and_the_remedy_is_told() {
    let root = root("repair-refused");
    let directory = closed_store(&root, 1, 2);
    damage(&directory, "superblock", 16);
    damage(&directory, "superblock", 4096 + 16);
    let foreign = closed_store(&root, 2, 1);
    fs::rename(foreign, root.join(name(3))).expect("it can be renamed");
    let before = files(&root);
    let (code, document, error) = json(&["check", "--repair"], &root);
    assert_eq!(code, Some(1));
    assert!(error.ends_with("2 of 2 stores damaged; not all could be repaired, see above"));
    let remedies = [
        "copy the directory away if you want to look into it, and remove it",
        "put it back or remove it",
    ];
    for (store, remedy) in document["stores"].as_array().expect("a list").iter().zip(remedies) {
        let what = store["damage"][0]["first"][0]["what"].as_str().expect("text");
        assert!(what.contains(remedy), "{what}");
        let failure = "nothing in it can be trusted, so it was not touched";
        assert_eq!((&store["repairs"], &store["repair_failure"]), (&json!([]), &json!(failure)));
    }
    assert!(before == files(&root));
}

#[test]
fn a_repair_of_a_sound_store_does_nothing() {
    let root = root("repair-sound");
    closed_store(&root, 1, 3);
    killed_store(&root, 2, 3);
    let before = files(&root);
    let (code, document, _) = json(&["check", "--payload", "--repair"], &root);
    assert_eq!((code, &document["stores"][1]["repairs"]), (Some(0), &json!([])));
    assert!(before == files(&root));
}
