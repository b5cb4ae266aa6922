//! Room under a root: what is counted, what goes, and what never does.

use super::oracle::{Oracle, store_id};
use super::rig::{ROOT, Rig, options};
use kvtide::io::sim::{SimDisk, SimDrive};
use kvtide::store::{
    Opened, Reclaim, Recovery, Store, StoreError, StoreOptions, collect, find_stores,
};
use kvtide::units::ByteCount;
use std::path::Path;
use std::time::Duration;

/// Bytes of a store of six slots: two copies, slots of two pages, two pages of index.
const STORE_BYTES: u64 = 2 * 4096 + 6 * 8192 + 2 * 4096;

fn options_of(store: u8, capacity: u64) -> StoreOptions {
    let mut options = options(6);
    options.store_id = store_id(store);
    options.capacity = Some(ByteCount::new(capacity));
    options
}

/// Makes stores 1 to `count`, one a second apart, and closes them.
fn root_of(drive: &SimDrive, count: u8) {
    for store in 1..=count {
        let mut disk = drive.disk(store.into());
        let opened = Store::open(&mut disk, &options_of(store, u64::MAX)).expect("it is made");
        opened.store.close(&mut disk, []).expect("the drive is good");
        drive.clock().advance(Duration::from_secs(2));
    }
}

fn stores(disk: &mut SimDisk) -> Vec<u8> {
    let found = find_stores(disk, Path::new(ROOT)).expect("the drive is good");
    assert!(found.iter().all(|store| store.bytes.get() == STORE_BYTES), "{found:?}");
    found.iter().map(|store| store.store_id.to_bytes()[0]).collect()
}

#[test]
fn the_store_that_was_written_least_recently_goes_first() {
    let drive = SimDrive::new(1);
    root_of(&drive, 3);
    // Store 1 is written again: 2 is the oldest now.
    let mut disk = drive.disk(9);
    let opened = Store::open(&mut disk, &options_of(1, u64::MAX)).expect("it opens");
    let mut store = opened.store;
    let begin = store.begin_run(kvtide::store::TagSpace::new(1));
    begin.run(&mut store, &mut disk).expect("the drive is good");
    store.close(&mut disk, []).expect("the drive is good");

    let opened = Store::open(&mut disk, &options_of(4, 3 * STORE_BYTES)).expect("it is made");
    let gone: Vec<u8> = opened.reclaimed.iter().map(|store| store.store_id.to_bytes()[0]).collect();
    assert_eq!(gone, [2]);
    assert_eq!(stores(&mut disk), [1, 3, 4]);
}

#[test]
fn a_store_in_use_never_goes() {
    let drive = SimDrive::new(1);
    root_of(&drive, 2);
    let mut holder = drive.disk(20);
    let held = Store::open(&mut holder, &options_of(1, u64::MAX)).expect("it opens");
    let mut disk = drive.disk(21);
    let opened = Store::open(&mut disk, &options_of(3, 2 * STORE_BYTES)).expect("it is made");
    assert_eq!(opened.reclaimed.len(), 1);
    assert_eq!(stores(&mut disk), [1, 3]);
    let refused = Store::open(&mut disk, &options_of(4, 2 * STORE_BYTES)).err();
    let no_room = StoreError::NoRoom {
        root: ROOT.into(),
        needed: ByteCount::new(STORE_BYTES),
        available: ByteCount::new(0),
        kept: ByteCount::new(2 * STORE_BYTES),
        holders: vec![holder.number(), disk.number()],
    };
    assert_eq!(refused, Some(no_room));
    held.store.close(&mut holder, []).expect("the drive is good");
}

#[test]
fn an_engine_that_is_refused_costs_nobody_a_store() {
    let drive = SimDrive::new(1);
    root_of(&drive, 3);
    let mut holder = drive.disk(20);
    let held = Store::open(&mut holder, &options_of(2, u64::MAX)).expect("it opens");
    let mut options = options_of(4, 3 * STORE_BYTES);
    options.slot_count = 18;
    let mut disk = drive.disk(21);
    let refused = Store::open(&mut disk, &options).err();
    assert!(matches!(refused, Some(StoreError::NoRoom { .. })), "{refused:?}");
    let found = find_stores(&mut disk, Path::new(ROOT)).expect("the drive is good");
    let there: Vec<u8> = found
        .iter()
        .filter(|store| store.bytes.get() > 0)
        .map(|store| store.store_id.to_bytes()[0])
        .collect();
    assert_eq!(there, [1, 2, 3]);
    held.store.close(&mut holder, []).expect("the drive is good");
}

#[test]
fn with_reclaim_off_a_store_that_does_not_fit_is_refused_with_both_numbers() {
    let drive = SimDrive::new(1);
    root_of(&drive, 2);
    let mut options = options_of(3, 2 * STORE_BYTES + 4096);
    options.reclaim = Reclaim::Off;
    let mut disk = drive.disk(9);
    let refused = Store::open(&mut disk, &options).err();
    let no_room = StoreError::NoRoom {
        root: ROOT.into(),
        needed: ByteCount::new(STORE_BYTES),
        available: ByteCount::new(4096),
        kept: ByteCount::new(2 * STORE_BYTES),
        holders: Vec::new(),
    };
    assert_eq!(refused, Some(no_room));
    options.capacity = Some(ByteCount::new(3 * STORE_BYTES));
    let opened = Store::open(&mut disk, &options).expect("now it fits");
    assert!(opened.is_new && opened.reclaimed.is_empty());
}

#[test]
fn growing_counts_only_what_is_added() {
    let drive = SimDrive::new(1);
    root_of(&drive, 1);
    let mut disk = drive.disk(9);
    let mut larger = options_of(1, STORE_BYTES + 8192);
    larger.slot_count = 7;
    let opened = Store::open(&mut disk, &larger).expect("one more slot fits");
    assert_eq!(opened.store.slot_count(), 7);
    opened.store.close(&mut disk, []).expect("the drive is good");
    larger.slot_count = 8;
    let refused = Store::open(&mut disk, &larger).err();
    assert!(matches!(refused, Some(StoreError::NoRoom { .. })), "{refused:?}");
}

#[test]
fn a_collection_stops_at_its_target() {
    let drive = SimDrive::new(1);
    root_of(&drive, 4);
    let mut disk = drive.disk(9);
    let collected = collect(
        &mut disk,
        Path::new(ROOT),
        ByteCount::new(2 * STORE_BYTES + 100),
        Duration::from_secs(1),
    )
    .expect("the drive is good");
    assert_eq!((collected.stores.len(), collected.left.get()), (2, 2 * STORE_BYTES));
    assert_eq!(stores(&mut disk), [3, 4]);
    let all = collect(&mut disk, Path::new(ROOT), ByteCount::new(0), Duration::from_secs(1));
    assert_eq!(all.map(|collected| collected.left), Ok(ByteCount::new(0)));
    assert!(stores(&mut disk).is_empty());
}

#[test]
fn a_power_cut_at_any_operation_of_a_collection_leaves_stores_whole_or_gone() {
    let mut step = 0;
    loop {
        let drive = SimDrive::new(step);
        let mut oracle = Oracle::default();
        let mut rig = Rig::open(&drive, 1, 6, &oracle).expect("it is made");
        rig.begin_run(&mut oracle).expect("the drive is good");
        rig.begin_write(&mut oracle, 0, 0, 1.into()).expect("the slot is free");
        rig.close(&mut oracle).expect("the drive is good");
        drive.cut_after(step);
        let mut disk = drive.disk(9);
        let wait = Duration::from_secs(1);
        let is_cut = collect(&mut disk, Path::new(ROOT), ByteCount::new(0), wait).is_err();
        drive.cut_power();
        let mut held = None;
        for seed in 0..2 {
            let mut disk = drive.disk(seed);
            let opened = Store::open(&mut disk, &options(6)).expect("it opens or is made");
            let Opened { store, recovery, is_new, .. } = opened;
            let Recovery::Ready(entries) = recovery else { panic!("it was closed") };
            let expected = *held.get_or_insert(usize::from(!is_new));
            assert_eq!(entries.len(), expected, "all of it or nothing");
            store.abandon(&mut disk);
        }
        if !is_cut {
            break;
        }
        step += 1;
    }
    assert!(step > 5, "{step} steps");
}
