//! The orders of writes and syncs, as `docs/disk-format.md` states them, out of the drive's log.

use super::oracle::Oracle;
use super::promises::file;
use super::rig::{ROOT, Rig, options};
use kvtide::io::sim::{SimDrive, SimKind, SimView};
use kvtide::store::{Erasure, Recovery, ScanReason, Store, SuperblockCopies, collect};
use kvtide::units::{ByteCount, SlotIndex, TenantId};
use std::path::Path;
use std::time::Duration;

/// Returns what was changed since the log had `from` records, and its length now.
fn changes(drive: &SimDrive, from: &mut usize) -> Vec<String> {
    let log = drive.log();
    let new = &log[*from..];
    *from = log.len();
    let is_change = |kind| !matches!(kind, SimKind::Read | SimKind::Create);
    new.iter()
        .filter(|record| is_change(record.kind))
        .map(|record| {
            let name = record.path.file_name().map_or("/".into(), |name| name.to_string_lossy());
            match record.kind {
                SimKind::Write => format!("write {name} {}", record.offset),
                kind => format!("{kind:?} {name}"),
            }
        })
        .collect()
}

/// A change of the superblock: the first copy goes first where both are of one sequence.
const CHANGE: [&str; 4] =
    ["write superblock 0", "Sync superblock", "write superblock 4096", "Sync superblock"];

#[test]
fn every_step_writes_and_syncs_in_the_order_of_the_document() {
    let drive = SimDrive::new(1);
    let mut oracle = Oracle::default();
    let mut from = 0;
    let id = super::oracle::store_id(1).to_string();

    let mut rig = Rig::open(&drive, 1, 6, &oracle).expect("it is made");
    let made = changes(&drive, &mut from);
    let entries = ["0", "kv", "/"].map(|name| format!("SyncDirectory {name}"));
    let mut expected = vec![format!("SyncDirectory {id}")];
    expected.extend(["superblock", "data", "index"].map(|name| format!("Allocate {name}")));
    expected.push("write index 0".to_owned());
    expected.extend(["data", "index", "superblock"].map(|name| format!("Sync {name}")));
    expected.push(format!("SyncDirectory {id}"));
    expected.extend(entries);
    expected.extend(CHANGE.map(str::to_owned));
    assert_eq!(made, expected);

    rig.begin_run(&mut oracle).expect("the drive is good");
    assert_eq!(changes(&drive, &mut from), CHANGE);
    rig.begin_run(&mut oracle).expect("the drive is good");
    assert_eq!(changes(&drive, &mut from), [""; 0], "a run is begun once");

    rig.begin_write(&mut oracle, 2, 2, TenantId::new(1)).expect("the slot is free");
    rig.drain(&mut oracle).expect("the drive is good");
    assert_eq!(changes(&drive, &mut from), ["write data 16384"]);
    let slots = Erasure::Slots(vec![SlotIndex::new(2)]);
    rig.erase(&mut oracle, &slots).expect("the drive is good");
    assert_eq!(changes(&drive, &mut from), ["write data 16384", "Sync data"]);
    rig.clear(&mut oracle).expect("the drive is good");
    assert_eq!(changes(&drive, &mut from), CHANGE);

    rig.begin_write(&mut oracle, 5, 5, TenantId::new(1)).expect("the slot is free");
    rig.drain(&mut oracle).expect("the drive is good");
    changes(&drive, &mut from);
    rig.close(&mut oracle).expect("the drive is good");
    let mut closed = changes(&drive, &mut from);
    // The two pages of the index are unordered among themselves.
    closed[1..3].sort();
    let snapshot = ["Sync data", "write index 0", "write index 4096", "Sync index"];
    assert_eq!(closed, [&snapshot[..], &CHANGE[..]].concat());
}

#[test]
fn sizes_change_in_the_order_of_the_document() {
    let drive = SimDrive::new(1);
    let oracle = Oracle::default();
    let mut from = 0;
    let rig = Rig::open(&drive, 1, 6, &oracle).expect("it is made");
    rig.close(&mut Oracle::default()).expect("the drive is good");
    changes(&drive, &mut from);

    let rig = Rig::open(&drive, 2, 9, &oracle).expect("it grows");
    let grown = changes(&drive, &mut from);
    let files = ["Allocate data", "Sync data", "Allocate index", "Sync index"];
    assert_eq!(grown, [&["Sync superblock"][..], &files, &CHANGE].concat());
    rig.close(&mut Oracle::default()).expect("the drive is good");
    changes(&drive, &mut from);

    let rig = Rig::open(&drive, 3, 3, &oracle).expect("it shrinks");
    let shrunk = changes(&drive, &mut from);
    let files = ["Truncate data", "Truncate index"];
    assert_eq!(shrunk, [&["Sync superblock"][..], &CHANGE, &files].concat());
    drop(rig);
    let bytes = drive.bytes(&file(0, 1, "superblock"), SimView::Durable).expect("it is there");
    let copies = SuperblockCopies::decode(&bytes);
    let superblock = copies.current().expect("both are good");
    assert_eq!((superblock.slot_count, superblock.is_clean), (3, false));
}

#[test]
fn a_store_is_reclaimed_in_the_order_of_the_document() {
    let drive = SimDrive::new(1);
    let oracle = Oracle::default();
    let rig = Rig::open(&drive, 1, 6, &oracle).expect("it is made");
    rig.close(&mut Oracle::default()).expect("the drive is good");
    let mut from = drive.log().len();
    let wait = Duration::from_secs(1);
    let mut disk = drive.disk(2);
    collect(&mut disk, Path::new(ROOT), ByteCount::new(0), wait).expect("the drive is good");
    let id = super::oracle::store_id(1).to_string();
    let (sync, remove) = (format!("SyncDirectory {id}"), format!("Remove {id}"));
    let expected = [
        "Remove data",
        &sync,
        "Remove index",
        "Remove superblock",
        &sync,
        &remove,
        "SyncDirectory 0",
        "Remove 0",
    ];
    assert_eq!(changes(&drive, &mut from), expected);

    // What is left of a store whose data is gone goes before a new one is made.
    let rig = Rig::open(&drive, 3, 6, &oracle).expect("it is made");
    rig.close(&mut Oracle::default()).expect("the drive is good");
    kvtide::io::Files::remove_file(&mut disk, &file(0, 1, "data")).expect("the drive is good");
    changes(&drive, &mut from);
    let rig = Rig::open(&drive, 4, 6, &oracle).expect("it is made anew");
    let made = changes(&drive, &mut from);
    assert_eq!(made[..3], ["Remove superblock", "Remove index", &sync]);
    assert_eq!(rig.index.len(), 0);
}

#[test]
fn a_snapshot_of_another_run_is_not_taken_over() {
    let drive = SimDrive::new(1);
    let mut oracle = Oracle::default();
    let mut rig = Rig::open(&drive, 1, 6, &oracle).expect("it is made");
    rig.begin_run(&mut oracle).expect("the drive is good");
    rig.begin_write(&mut oracle, 0, 0, TenantId::new(1)).expect("the slot is free");
    rig.close(&mut oracle).expect("the drive is good");
    // The superblock of the run after it, which says that it is clean.
    let path = file(0, 1, "superblock");
    let bytes = drive.bytes(&path, SimView::Durable).expect("it is there");
    let mut next = SuperblockCopies::decode(&bytes).current().expect("both are good").clone();
    next.epoch = next.epoch.next().expect("a small number");
    let page = next.encode().expect("a superblock");
    drive.plant(&path, &[page, page].concat());
    let opened = Store::open(&mut drive.disk(2), &options(6)).expect("it opens");
    let reason = ScanReason::OtherEpoch { expected: 2, found: 1 };
    assert_eq!(opened.recovery, Recovery::ScanNeeded(reason));
}
