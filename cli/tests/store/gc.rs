//! What `kvtide gc` promises: the oldest idle stores go, and no more of them than must.

use crate::rig::{
    Engine, STORE_BYTES, assert_refused, closed_store, files, holder, json, name, root, run, text,
};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Makes stores 1 to `count`, the first the oldest.
fn aged_stores(root: &Path, count: u8) {
    for number in 1..=count {
        let directory = closed_store(root, number, 1);
        let age = Duration::from_secs(3600 * u64::from(10 - number));
        for file in ["superblock", "data", "index"] {
            let file = File::options().write(true).open(directory.join(file)).expect("a file");
            file.set_modified(SystemTime::now() - age).expect("its time can be set");
        }
    }
}

fn is_there(root: &Path, number: u8) -> bool {
    root.join(name(number)).join("data").exists()
}

fn names(stores: &Value) -> Vec<String> {
    let stores = stores.as_array().expect("a list").iter();
    stores.map(|store| store["directory"].as_str().expect("text").to_owned()).collect()
}

#[test]
fn the_oldest_go_until_the_rest_fits() {
    let root = root("gc-oldest");
    aged_stores(&root, 4);
    let size = format!("--size={}", 2 * STORE_BYTES + 100);
    let (code, document, error) = json(&["gc", &size], &root);
    assert_eq!((code, error.as_str()), (Some(0), ""));
    assert_eq!(names(&document["removed"]), [name(1), name(2)]);
    assert_eq!(document["left_bytes"], 2 * STORE_BYTES);
    assert_eq!((&document["is_reached"], &document["in_use"]), (&json!(true), &json!([])));
    assert_eq!([1, 2, 3, 4].map(|number| is_there(&root, number)), [false, false, true, true]);
    assert!(!root.join(name(1)).exists());
    // What is left is sound, and fits: a second time does nothing.
    assert_eq!(run(&["check", "--payload"], &root).status.code(), Some(0));
    let output = run(&["gc", "--size=128KiB"], &root);
    assert_eq!(text(&output.stdout), "removed 0 stores; 128.0 KiB left, 128.0 KiB allowed\n");
}

#[test]
fn a_dry_run_tells_what_would_go_and_removes_nothing() {
    let root = root("gc-dry");
    aged_stores(&root, 2);
    let before = files(&root);
    let output = run(&["gc", "--dry-run", "--size=64KiB"], &root);
    let expected = format!(
        "would remove {}: 64.0 KiB, written 9 hours ago\n\
         would remove 1 store; 64.0 KiB left, 64.0 KiB allowed\n",
        name(1)
    );
    assert_eq!((text(&output.stdout), output.status.code()), (expected.as_str(), Some(0)));
    assert!(before == files(&root));
}

#[test]
fn a_store_in_use_stays_and_is_named_when_it_is_in_the_way() {
    let root = root("gc-held");
    aged_stores(&root, 3);
    let engine = Engine::open(&root, 1);
    // Enough without it.
    let (code, document, _) = json(&["gc", "--dry-run", "--size=64KiB"], &root);
    assert_eq!(code, Some(0));
    assert_eq!(names(&document["in_use"]), [name(1)]);
    assert_eq!(document["in_use"][0]["process"], holder().0);
    assert_eq!(names(&document["removed"]), [name(2), name(3)]);
    // Not enough.
    let output = run(&["gc", "--size=1KiB"], &root);
    let expected = format!(
        "error: {}: 64.0 KiB are left, more than 1.0 KiB: {} in use{}; end that process, or name a \
         larger --size\n",
        root.display(),
        root.join(name(1)).display(),
        holder().1
    );
    assert_eq!((text(&output.stderr), output.status.code()), (expected.as_str(), Some(1)));
    assert!(text(&output.stdout).contains(&format!("kept {}: 64.0 KiB, in use", name(1))));
    assert_eq!([1, 2, 3].map(|number| is_there(&root, number)), [true, false, false]);
    engine.close();
}

#[test]
fn a_size_of_nothing_empties_the_root_and_an_empty_root_is_fine() {
    let root = root("gc-empty");
    aged_stores(&root, 2);
    for count in [2, 0] {
        let (code, document, _) = json(&["gc", "--size=0"], &root);
        assert_eq!((code, &document["left_bytes"]), (Some(0), &json!(0)));
        assert_eq!(names(&document["removed"]).len(), count);
    }
    let (code, document, _) = json(&["inspect"], &root);
    assert_eq!((code, &document["store_count"]), (Some(0), &json!(0)));
    assert_eq!(run(&["check"], &root).status.code(), Some(2));
}

#[test]
fn what_is_no_root_is_refused_and_left_as_it_is() {
    let root = root("gc-refused");
    let directory = closed_store(&root, 1, 1);
    let expected =
        format!("{}: this is one store; give its root, {}", directory.display(), root.display());
    assert_refused(&run(&["gc", "--size=0"], &directory), 2, &expected);
    let other = root.join("other");
    fs::create_dir(&other).expect("it can be made");
    assert_eq!(run(&["gc", "--size=0"], &other).status.code(), Some(2));
    assert!(files(&other).is_empty());
    assert!(is_there(&root, 1));
    assert_refused(
        &run(&["gc", "--size=many"], &root),
        2,
        "invalid value 'many' for '--size <SIZE>': give a whole number of B, KiB, MiB, GiB or TiB, \
         such as 512MiB",
    );
}
