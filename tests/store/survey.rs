//! Looking at stores in whatever state, and mending them.

use super::oracle::{Oracle, store_id};
use super::promises::file;
use super::rig::{ROOT, Rig, options};
use kvtide::io::sim::{SimDisk, SimDrive, SimView};
use kvtide::io::{Files, OpenMode};
use kvtide::store::{
    Access, Erasure, FoundStore, Recovery, Standing, Store, StoreError, Survey, TagSpace,
    find_store, find_stores, survey,
};
use kvtide::units::{ByteCount, SlotIndex, TenantId};
use proptest::prelude::*;
use std::path::Path;
use std::time::Duration;

const ALICE: TenantId = TenantId::new(1);
const NAMES: [&str; 3] = ["superblock", "data", "index"];
const SPACE: TagSpace = TagSpace::new(7);
const WAIT: Duration = Duration::from_secs(1);

/// Makes a store of `chunks` chunks in six slots, and closes it or not.
fn make(drive: &SimDrive, chunks: u32, is_closed: bool) {
    let mut oracle = Oracle::default();
    let mut rig = Rig::open(drive, 1, 6, &oracle).expect("it is made");
    rig.begin_run(&mut oracle).expect("the drive is good");
    for slot in 0..chunks {
        rig.begin_write(&mut oracle, slot, slot.into(), ALICE).expect("it is free");
    }
    rig.drain(&mut oracle).expect("the drive is good");
    rig.sync(&mut oracle).expect("the drive is good");
    if is_closed {
        rig.close(&mut oracle).expect("the drive is good");
    } else {
        rig.store.abandon(&mut rig.disk);
    }
}

fn found(disk: &mut SimDisk) -> FoundStore {
    let stores = find_stores(disk, Path::new(ROOT)).expect("the drive is good");
    let [found] = stores.try_into().expect("one store");
    assert_eq!(find_store(disk, &found.directory), Ok(Some(found.clone())));
    found
}

/// Something that befalls a store's files.
#[derive(Clone, Debug)]
enum Mishap {
    Flip { file: usize, place: prop::sample::Index, mask: u8 },
    BlankPage { file: usize, page: prop::sample::Index },
    Cut { file: usize, pages: prop::sample::Index },
    Lose { file: usize },
}

fn mishap() -> impl Strategy<Value = Mishap> {
    let at = || (0..3_usize, any::<prop::sample::Index>());
    prop_oneof![
        6 => (at(), 1_u8..).prop_map(|((file, place), mask)| Mishap::Flip { file, place, mask }),
        3 => at().prop_map(|(file, page)| Mishap::BlankPage { file, page }),
        1 => at().prop_map(|(file, pages)| Mishap::Cut { file, pages }),
        1 => (0..3_usize).prop_map(|file| Mishap::Lose { file }),
    ]
}

fn befall(drive: &SimDrive, mishap: &Mishap) {
    let path = |number: usize| file(0, 1, NAMES[number]);
    let bytes = |number| drive.bytes(&path(number), SimView::Volatile).unwrap_or_default();
    match mishap {
        Mishap::Flip { file, place, mask } => {
            let length = bytes(*file).len();
            if length > 0 {
                drive.flip(&path(*file), place.index(length) as u64, *mask);
            }
        }
        Mishap::BlankPage { file, page } => {
            let mut bytes = bytes(*file);
            if !bytes.is_empty() {
                let start = page.index(bytes.len() / 4096) * 4096;
                bytes[start..start + 4096].fill(0);
                drive.plant(&path(*file), &bytes);
            }
        }
        Mishap::Cut { file, pages } => {
            let mut disk = drive.disk(50);
            if let Ok(opened) = disk.open(&path(*file), OpenMode::Existing) {
                let pages = pages.index(bytes(*file).len() / 4096 + 1) as u64;
                disk.truncate(opened.file, ByteCount::new(pages * 4096)).expect("a good drive");
                disk.close(opened.file);
            }
        }
        Mishap::Lose { file } => {
            drive.disk(51).remove_file(&path(*file)).expect("the drive is good");
        }
    }
}

fn all_bytes(drive: &SimDrive) -> Vec<Option<Vec<u8>>> {
    NAMES.iter().map(|name| drive.bytes(&file(0, 1, name), SimView::Volatile)).collect()
}

/// Opens the store, and compares what comes of it with what was foretold.
fn assert_foretold(drive: &SimDrive, surveyed: &Survey) {
    let mut disk = drive.disk(3);
    match (Store::open(&mut disk, &options(6)), &surveyed.standing) {
        (Ok(opened), Standing::Unfinished) => assert!(opened.is_new),
        (Ok(opened), standing) => {
            assert!(!opened.is_new);
            match (&opened.recovery, standing) {
                (Recovery::Ready(entries), Standing::Clean(_)) => {
                    let chunks = standing.chunks().expect("it is clean");
                    assert!(chunks.eq(entries));
                }
                (Recovery::ScanNeeded(reason), Standing::ScanNeeded(told)) => {
                    assert_eq!(reason, told);
                }
                differing => panic!("{differing:?}"),
            }
        }
        (Err(error), Standing::Refused(told)) => assert_eq!(&error, told),
        differing => panic!("{differing:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_survey_foretells_what_opening_makes_of_whatever_befell_a_store(
        chunks in 0..6_u32,
        is_closed: bool,
        mishaps in prop::collection::vec(mishap(), 0..4),
    ) {
        let drive = SimDrive::new(1);
        make(&drive, chunks, is_closed);
        for mishap in &mishaps {
            befall(&drive, mishap);
        }
        let before = all_bytes(&drive);
        let mut disk = drive.disk(2);
        let found = found(&mut disk);
        let surveyed = survey(&mut disk, &found, WAIT).expect("the drive is good");
        prop_assert_eq!(surveyed.held_by, None);
        let examined = Store::examine(&mut disk, &found, Access::Read, WAIT);
        let (examined, store) = examined.expect("the drive is good");
        prop_assert_eq!(&examined, &surveyed);
        let is_opened = matches!(surveyed.standing, Standing::Clean(_) | Standing::ScanNeeded(_));
        prop_assert_eq!(store.is_some(), is_opened);
        if let Some(store) = store {
            store.abandon(&mut disk);
        }
        prop_assert!(before == all_bytes(&drive), "looking at a store writes nothing");
        assert_foretold(&drive, &surveyed);
    }
}

/// Overwrites the damaged copy of the superblock, and the header pages of two slots.
fn mend(disk: &mut SimDisk) -> Result<(), StoreError> {
    let found = found(disk);
    let (_, store) = Store::examine(disk, &found, Access::Repair, WAIT)?;
    let mut store = store.expect("one copy is good");
    store.mend_superblock(SPACE)?.run(&mut store, disk)?;
    let mut scan = store.scan(SPACE).expect("nothing counts as known");
    while !scan.is_done() {
        let reads = scan.operations(&store, 4);
        for report in kvtide::io::run(disk, reads) {
            scan.finished(report);
        }
        scan.take(&mut store, 6);
    }
    let slots = Erasure::Slots(vec![SlotIndex::new(1), SlotIndex::new(5)]);
    store.erase(SPACE, &slots)?.run(&mut store, disk)?;
    store.abandon(disk);
    Ok(())
}

#[test]
fn a_power_cut_at_any_step_of_mending_costs_no_other_chunk() {
    let mut is_mended = false;
    for (steps, damaged_copy) in (0..40).flat_map(|steps| [(steps, 100), (steps, 4196)]) {
        let drive = SimDrive::new(steps);
        make(&drive, 4, true);
        // A slot with a chunk, and one that nothing is known of.
        drive.flip(&file(0, 1, "data"), 8192 + 20, 4);
        drive.flip(&file(0, 1, "data"), 5 * 8192 + 20, 4);
        drive.flip(&file(0, 1, "superblock"), damaged_copy, 4);
        drive.cut_after(steps);
        is_mended = mend(&mut drive.disk(2)).is_ok();
        drive.cut_power();

        let mut disk = drive.disk(3);
        mend(&mut disk).expect("it is mended the second time");
        let found = found(&mut disk);
        let surveyed = survey(&mut disk, &found, WAIT).expect("the drive is good");
        assert!(surveyed.superblock.first.is_ok() && surveyed.superblock.second.is_ok());
        let rig = Rig::open_unchecked(&drive, 4, &options(6)).expect("it opens");
        let slots: Vec<u32> = rig.index.keys().map(|slot| slot.get()).collect();
        assert_eq!(slots, [0, 2, 3], "after {steps} steps");
        let page = drive.bytes(&file(0, 1, "data"), SimView::Volatile).expect("it is there");
        assert!(page[5 * 8192..5 * 8192 + 4096].iter().all(|&byte| byte == 0));
    }
    assert!(is_mended, "the last cut came after all steps");
}

#[test]
fn an_engine_keeps_its_store_whoever_looks() {
    let drive = SimDrive::new(1);
    let mut holder = drive.disk(20);
    let held = Store::open(&mut holder, &options(6)).expect("it is made");
    let mut disk = drive.disk(21);
    let found = found(&mut disk);
    let surveyed = survey(&mut disk, &found, WAIT).expect("the drive is good");
    assert!(surveyed.held_by.is_some());
    for access in [Access::Read, Access::Repair] {
        let (examined, store) =
            Store::examine(&mut disk, &found, access, WAIT).expect("the drive is good");
        assert!(examined.held_by.is_some() && store.is_none());
    }
    held.store.close(&mut holder, []).expect("the drive is good");
    let surveyed = survey(&mut disk, &found, WAIT).expect("the drive is good");
    assert_eq!(surveyed.held_by, None);
    // A store that is examined is in use for engines.
    let examined = Store::examine(&mut disk, &found, Access::Read, WAIT);
    let (_, store) = examined.expect("the drive is good");
    let mut other = options(6);
    other.instance = Some(0);
    let refused = Store::open(&mut holder, &other).err();
    assert!(matches!(refused, Some(StoreError::Locked { .. })), "{refused:?}");
    store.expect("nobody has it").abandon(&mut disk);
    assert!(Store::open(&mut holder, &other).is_ok());
}

#[test]
fn only_a_store_s_own_path_names_it() {
    let drive = SimDrive::new(1);
    make(&drive, 1, true);
    let mut disk = drive.disk(2);
    let name = store_id(1).to_string();
    for path in [ROOT.to_owned(), format!("{ROOT}/0"), format!("{ROOT}/00/{name}"), name] {
        assert_eq!(find_store(&mut disk, Path::new(&path)), Ok(None), "{path}");
    }
    let nowhere = format!("{ROOT}/0/{}", store_id(2));
    assert_eq!(find_store(&mut disk, Path::new(&nowhere)), Ok(None));
}
