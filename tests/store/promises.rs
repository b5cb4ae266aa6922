//! What a store promises besides power cuts: under faults of the drive, of whoever drives it, and
//! of its own files.

use super::cuts::life;
use super::oracle::{Oracle, image, key};
use super::rig::{ROOT, Rig, options};
use kvtide::io::IoFault;
use kvtide::io::sim::{SimDrive, SimFault, SimKind, SimRule, SimView};
use kvtide::key::Key;
use kvtide::store::format::{Page, Superblock};
use kvtide::store::{
    Epoch, Erasure, Finding, Generation, Landed, ReadFault, Recovery, ScanReason, Store,
    StoreError, StoreUuid, TagSpace,
};
use kvtide::units::{SlotIndex, TenantId};
use std::path::{Path, PathBuf};

const ALICE: TenantId = TenantId::new(1);

/// The path of a file of the store of these tests.
pub(crate) fn file(instance: u32, store: u8, name: &str) -> PathBuf {
    Path::new(ROOT)
        .join(instance.to_string())
        .join(super::oracle::store_id(store).to_string())
        .join(name)
}

/// Returns the first page of an image.
fn page(image: &[u8]) -> &Page {
    image.first_chunk().expect("an image has a header page")
}

/// A store of six slots with chunks 0 to 3 in slots 0 to 3, durable, under a run.
fn filled(drive: &SimDrive, oracle: &mut Oracle) -> Rig {
    let mut rig = Rig::open(drive, 1, 6, oracle).expect("it is made");
    rig.begin_run(oracle).expect("the drive is good");
    for slot in 0..4 {
        rig.begin_write(oracle, slot, u64::from(slot), ALICE).expect("the slot is free");
    }
    rig.drain(oracle).expect("the drive is good");
    rig.sync(oracle).expect("the drive is good");
    rig
}

#[test]
fn whatever_fails_once_nothing_that_was_reported_is_lost_or_comes_back() {
    let faults = [
        (SimKind::Sync, SimFault::Error),
        (SimKind::Write, SimFault::Error),
        (SimKind::Write, SimFault::Stall),
        (SimKind::SyncDirectory, SimFault::Error),
        (SimKind::Allocate, SimFault::NoSpace),
        (SimKind::Truncate, SimFault::Error),
    ];
    for (kind, fault) in faults {
        let mut number = 0;
        loop {
            let drive = SimDrive::new(number);
            drive.inject(SimRule::new(fault).on(kind).at(number));
            let mut oracle = Oracle::default();
            if life(&drive, 5, &mut oracle).is_ok() {
                break;
            }
            drive.clear_faults();
            // Every other time the machine goes on as if nothing had happened.
            if number % 2 == 0 {
                drive.cut_power();
            }
            super::cuts::recover(&drive, 50, &mut oracle);
            number += 1;
        }
        assert!(number > 1, "{kind:?} never failed");
    }
}

#[test]
fn after_a_failed_sync_nothing_is_written_and_nothing_reported_as_done() {
    let drive = SimDrive::new(3);
    let mut oracle = Oracle::default();
    let mut rig = filled(&drive, &mut oracle);
    drive.inject(SimRule::new(SimFault::Error).on(SimKind::Sync).named("data").at(0));
    rig.begin_write(&mut oracle, 4, 4, ALICE).expect("the slot is free");
    rig.drain(&mut oracle).expect("only the sync fails");
    let failed = rig.sync(&mut oracle);
    assert!(matches!(failed, Err(StoreError::Io { .. })), "{failed:?}");

    let is_poisoned = |outcome| matches!(outcome, Err(StoreError::Poisoned { .. }));
    assert!(is_poisoned(rig.sync(&mut oracle)));
    assert!(is_poisoned(rig.clear(&mut oracle)));
    assert!(is_poisoned(rig.erase(&mut oracle, &Erasure::Tenant(ALICE))));
    assert!(is_poisoned(rig.begin_write(&mut oracle, 5, 5, ALICE)));
    assert!(!rig.store.is_running());
    let writes = drive.counters().writes;
    assert!(matches!(rig.close(&mut oracle), Err(StoreError::Poisoned { .. })));
    assert_eq!(drive.counters().writes, writes);
}

#[test]
fn a_write_that_cannot_be_is_refused_by_name() {
    let drive = SimDrive::new(4);
    let mut oracle = Oracle::default();
    let mut rig = Rig::open(&drive, 1, 6, &oracle).expect("it is made");
    assert_eq!(rig.begin_write(&mut oracle, 0, 0, ALICE), Err(StoreError::NoRun));
    rig.begin_run(&mut oracle).expect("the drive is good");
    let beyond = StoreError::NoSuchSlot { slot: SlotIndex::new(6), slot_count: 6 };
    assert_eq!(rig.begin_write(&mut oracle, 6, 0, ALICE), Err(beyond.clone()));
    let erasure = Erasure::Slots(vec![SlotIndex::new(6)]);
    assert_eq!(rig.store.erase(TagSpace::new(1), &erasure).err(), Some(beyond));

    rig.begin_write(&mut oracle, 2, 2, ALICE).expect("the slot is free");
    let busy = StoreError::SlotBusy { slot: SlotIndex::new(2) };
    assert_eq!(rig.begin_write(&mut oracle, 2, 3, ALICE), Err(busy));
    rig.drain(&mut oracle).expect("the drive is good");

    let mut other = image(3, ALICE);
    other[88] = 9;
    let start = other.first_chunk().expect("an image has a header page");
    let unfit = rig.store.begin_write(SlotIndex::new(3), start, 0);
    assert!(matches!(unfit, Err(StoreError::Unfit { fault: ReadFault::Format(_), .. })));
    let blank = rig.store.begin_write(SlotIndex::new(3), &[0; 4032], 0);
    assert!(matches!(blank, Err(StoreError::Unfit { .. })), "{blank:?}");
}

#[test]
fn a_slot_that_is_being_erased_is_not_written_meanwhile() {
    let drive = SimDrive::new(5);
    let mut oracle = Oracle::default();
    let mut rig = filled(&drive, &mut oracle);
    let erasure = Erasure::Keys(vec![key(1)]);
    let mut task = rig.store.erase(TagSpace::new(9), &erasure).expect("it is recovered");
    let operations = task.operations(&mut rig.store, 8);
    assert_eq!(operations.len(), 1, "the run was begun: one page of zeros");
    let busy = StoreError::SlotBusy { slot: SlotIndex::new(1) };
    assert_eq!(rig.begin_write(&mut oracle, 1, 7, ALICE), Err(busy));
}

#[test]
fn a_read_counts_only_from_the_last_write_of_that_slot_for_that_key() {
    let drive = SimDrive::new(6);
    let mut oracle = Oracle::default();
    let mut rig = filled(&drive, &mut oracle);
    let [slot, other] = [2, 3].map(SlotIndex::new);
    let good = rig.read(slot).expect("the drive is good");
    let header = rig.store.check_read(slot, key(2), page(&good)).expect("it was just written");
    assert_eq!(rig.store.verify(slot, key(2), &good), Ok(header));

    let found = key(2);
    assert_eq!(rig.store.check_read(slot, key(1), page(&good)), Err(ReadFault::Key { found }));
    let misdirected = rig.store.check_read(other, key(2), page(&good));
    assert_eq!(misdirected, Err(ReadFault::Slot { found: slot }));
    let unwritten = rig.store.check_read(slot, key(2), &[0; 4096]);
    assert!(matches!(unwritten, Err(ReadFault::Format(_))), "{unwritten:?}");

    let mut torn = good.clone();
    torn[4096 + 77] ^= 1;
    assert_eq!(rig.store.verify(slot, key(2), &torn), Err(ReadFault::Part { part: 0 }));
    let short = rig.store.verify(slot, key(2), &good[..4096 + 512]);
    assert_eq!(short, Err(ReadFault::Length { expected: 8192, found: 4608 }));

    // The drive hands over what was there before the last write.
    rig.begin_write(&mut oracle, 2, 2, ALICE).expect("the slot is free");
    rig.drain(&mut oracle).expect("the drive is good");
    let stale = rig.store.check_read(slot, key(2), page(&good));
    assert!(matches!(stale, Err(ReadFault::Generation { .. })), "{stale:?}");
    let fresh = rig.read(slot).expect("the drive is good");
    rig.clear(&mut oracle).expect("the drive is good");
    let cleared = rig.store.check_read(slot, key(2), page(&fresh));
    assert!(matches!(cleared, Err(ReadFault::Cleared { .. })), "{cleared:?}");
}

#[test]
fn a_write_that_failed_leaves_a_slot_that_is_not_read() {
    let drive = SimDrive::new(7);
    let mut oracle = Oracle::default();
    let mut rig = filled(&drive, &mut oracle);
    let before = rig.read(SlotIndex::new(1)).expect("the drive is good");
    let start = before.first_chunk().expect("an image has a header page");
    rig.store.begin_write(SlotIndex::new(1), start, 0).expect("the slot is free");
    let failed = rig.store.end_write(SlotIndex::new(1), &Err(IoFault::TimedOut));
    assert_eq!(failed, Landed::Failed);
    let found = rig.store.check_read(SlotIndex::new(1), key(1), page(&before));
    assert!(matches!(found, Err(ReadFault::Generation { .. })), "{found:?}");
}

#[test]
fn slots_ahead_of_the_scan_are_not_written_and_newer_writes_win() {
    let drive = SimDrive::new(8);
    let mut oracle = Oracle::default();
    let mut rig = filled(&drive, &mut oracle);
    rig.store.abandon(&mut rig.disk);

    let mut disk = drive.disk(2);
    let opened = Store::open(&mut disk, &options(6)).expect("it opens");
    assert_eq!(opened.recovery, Recovery::ScanNeeded(ScanReason::Unclean));
    let mut store = opened.store;
    store.begin_run(TagSpace::new(4)).run(&mut store, &mut disk).expect("the drive is good");
    let start = |image: &Vec<u8>| *image.first_chunk().expect("an image has a header page");
    let scanning = store.begin_write(SlotIndex::new(0), &start(&image(3, ALICE)), 0);
    assert_eq!(scanning, Err(StoreError::Scanning));
    let erasing = store.erase(TagSpace::new(5), &Erasure::Tenant(ALICE)).err();
    assert_eq!(erasing, Some(StoreError::Scanning));

    let mut scan = store.scan(TagSpace::new(6)).expect("it is not recovered");
    for report in kvtide::io::run(&mut disk, scan.operations(&store, 8)) {
        scan.finished(report);
    }
    let first = scan.take(&mut store, 1);
    assert!(matches!(first[0].finding, Finding::Chunk { .. }));
    // Chunk 3 is stored anew in the slot that was scanned: the old one is not reported.
    store.begin_write(SlotIndex::new(0), &start(&image(3, ALICE)), 0).expect("it was scanned");
    assert_eq!(store.end_write(SlotIndex::new(0), &Ok(())), Landed::Counts);
    let rest = scan.take(&mut store, 100);
    assert!(scan.is_done() && store.is_recovered());
    let newer = SlotIndex::new(0);
    assert_eq!(rest[2].finding, Finding::Older { newer });
    let progress = scan.progress();
    assert_eq!((progress.scanned, progress.chunks, progress.older), (6, 3, 1));
    assert!(store.scan(TagSpace::new(7)).is_none());
}

#[test]
fn a_damaged_snapshot_is_scanned_instead_with_the_same_result() {
    let drive = SimDrive::new(9);
    let mut oracle = Oracle::default();
    let rig = filled(&drive, &mut oracle);
    let index = rig.index.clone();
    assert_eq!(rig.close(&mut oracle).map(|report| report.chunks), Ok(4));
    let path = file(0, 1, "index");
    let bytes = drive.bytes(&path, SimView::Durable).expect("the index is there");
    for offset in (0..bytes.len()).step_by(61) {
        let mut damaged = bytes.clone();
        damaged[offset] ^= 0x10;
        drive.plant(&path, &damaged);
        let mut disk = drive.disk(3);
        let opened = Store::open(&mut disk, &options(6)).expect("it opens");
        let is_damaged = matches!(
            opened.recovery,
            Recovery::ScanNeeded(ScanReason::Damaged(_) | ScanReason::OtherEpoch { .. })
        );
        assert!(is_damaged, "byte {offset}: {:?}", opened.recovery);
        opened.store.abandon(&mut disk);
        let mut rig = Rig::open(&drive, 4, 6, &oracle).expect("it opens");
        assert_eq!(rig.index, index, "byte {offset}");
        rig.store.abandon(&mut rig.disk);
    }
}

#[test]
fn a_file_that_was_cut_is_mended_and_scanned() {
    for name in ["data", "index"] {
        let drive = SimDrive::new(10);
        let mut oracle = Oracle::default();
        let rig = filled(&drive, &mut oracle);
        rig.close(&mut oracle).expect("the drive is good");
        let path = file(0, 1, name);
        let bytes = drive.bytes(&path, SimView::Durable).expect("the file is there");
        drive.plant(&path, &bytes[..4096]);
        let mut disk = drive.disk(3);
        let opened = Store::open(&mut disk, &options(6)).expect("it opens");
        assert_eq!(opened.recovery, Recovery::ScanNeeded(ScanReason::Cut));
        let mended = drive.bytes(&path, SimView::Durable).expect("the file is there");
        assert_eq!(mended.len(), bytes.len());
    }
}

#[test]
fn the_last_run_has_no_successor() {
    let drive = SimDrive::new(11);
    let oracle = Oracle::default();
    let rig = Rig::open(&drive, 1, 6, &oracle).expect("it is made");
    let superblock = Superblock {
        sequence: 9,
        epoch: Epoch::MAX,
        is_clean: false,
        min_generation: Generation::NONE,
        slot_count: 6,
        store_uuid: StoreUuid::from_bytes([7; 16]),
        store_id: rig.store.id(),
        shape: rig.store.shape().clone(),
    };
    drop(rig);
    drive.cut_power();
    let page = superblock.encode().expect("a superblock");
    drive.plant(&file(0, 1, "superblock"), &[page, page].concat());
    let mut oracle = Oracle::default();
    let mut rig = Rig::open(&drive, 2, 6, &oracle).expect("it opens");
    assert_eq!(rig.begin_run(&mut oracle), Err(StoreError::Exhausted));
    // Clearing is not stopped by that, nor does anything go wrong in it.
    rig.clear(&mut oracle).expect("the drive is good");
}

#[test]
fn tasks_take_turns_at_the_superblock() {
    let drive = SimDrive::new(12);
    let oracle = Oracle::default();
    let mut rig = Rig::open(&drive, 1, 6, &oracle).expect("it is made");
    let [first, second] = [1, 2].map(TagSpace::new);
    let mut begin = rig.store.begin_run(first);
    let mut clear = rig.store.clear(second);
    let operations = begin.operations(&mut rig.store, 8);
    assert_eq!(operations.len(), 1);
    assert!(clear.operations(&mut rig.store, 8).is_empty(), "it is not its turn");
    let mut operations = Some(operations);
    while begin.outcome().is_none() {
        let submitted = operations.take().unwrap_or_else(|| begin.operations(&mut rig.store, 8));
        for report in kvtide::io::run(&mut rig.disk, submitted) {
            assert_eq!(TagSpace::of(report.tag), first);
            begin.finished(&mut rig.store, report);
        }
    }
    assert!(rig.store.is_running());
    clear.run(&mut rig.store, &mut rig.disk).expect("now it is");
    assert_eq!(rig.store.epoch().get(), 1);
}

#[test]
fn keys_that_share_a_tag_are_both_erased_and_only_a_miss_comes_of_it() {
    let drive = SimDrive::new(13);
    let mut oracle = Oracle::default();
    let mut rig = filled(&drive, &mut oracle);
    // Same low 32 bits as chunk 1's key.
    let low = key(1).low_u64() & 0xffff_ffff;
    let erasure = Erasure::Keys(vec![Key::from_u128(low.into())]);
    rig.erase(&mut oracle, &erasure).expect("the drive is good");
    let image = rig.read(SlotIndex::new(1)).expect("the drive is good");
    let found = rig.store.check_read(SlotIndex::new(1), key(1), page(&image));
    assert!(matches!(found, Err(ReadFault::Format(_))), "{found:?}");
    let other = rig.read(SlotIndex::new(0)).expect("the drive is good");
    assert!(rig.store.verify(SlotIndex::new(0), key(0), &other).is_ok());
}

#[test]
fn what_was_written_since_an_erasure_was_asked_for_stays() {
    for erasure in [Erasure::Keys(vec![key(1)]), Erasure::Tenant(ALICE)] {
        let drive = SimDrive::new(14);
        let mut oracle = Oracle::default();
        let mut rig = filled(&drive, &mut oracle);
        let before = rig.store.next_generation();
        rig.begin_write(&mut oracle, 4, 1, ALICE).expect("the slot is free");
        // Under way when the erasure is asked for, so it may have come before that.
        let task = rig.store.erase_before(TagSpace::new(9), &erasure, before);
        rig.drain(&mut oracle).expect("the drive is good");
        task.expect("it is recovered").run(&mut rig.store, &mut rig.disk).expect("good");
        let [old, new] = [1, 4].map(SlotIndex::new);
        let erased = rig.read(old).expect("the drive is good");
        assert_eq!(erased[..4096], [0; 4096], "{erasure:?}");
        let kept = rig.read(new).expect("the drive is good");
        assert!(rig.store.verify(new, key(1), &kept).is_ok(), "{erasure:?}");
    }
}

#[test]
fn a_slot_that_is_written_anew_before_its_turn_to_be_erased_is_not_overwritten() {
    for is_good in [true, false] {
        let drive = SimDrive::new(15);
        let mut oracle = Oracle::default();
        let mut rig = filled(&drive, &mut oracle);
        let erasure = Erasure::Tenant(ALICE);
        let mut task = rig.store.erase(TagSpace::new(9), &erasure).expect("it is recovered");
        let first = task.operations(&mut rig.store, 1);
        assert_eq!(first.len(), 1, "four slots, one at a time");
        let slot = SlotIndex::new(0);
        assert!(!rig.store.is_writing(slot), "its turn has not come");
        if !is_good {
            drive.inject(SimRule::new(SimFault::Error).on(SimKind::Write).named("data").at(0));
        }
        rig.begin_write(&mut oracle, 0, 5, ALICE).expect("no zeros are on their way");
        let drained = rig.drain(&mut oracle);
        assert_eq!(drained.is_ok(), is_good);
        for report in kvtide::io::run(&mut rig.disk, first) {
            task.finished(&mut rig.store, report);
        }
        task.run(&mut rig.store, &mut rig.disk).expect("the drive is good again");
        let image = rig.read(slot).expect("the drive is good");
        if is_good {
            assert!(rig.store.verify(slot, key(5), &image).is_ok());
        } else {
            assert_eq!(image[..4096], [0; 4096], "what a failed write left may be what was there");
        }
        for other in (1..4).map(SlotIndex::new) {
            let image = rig.read(other).expect("the drive is good");
            assert_eq!(image[..4096], [0; 4096], "slot {other}");
        }
    }
}

#[test]
fn no_write_of_a_run_has_a_generation_of_an_earlier_one() {
    let drive = SimDrive::new(16);
    let mut oracle = Oracle::default();
    let mut rig = filled(&drive, &mut oracle);
    for _ in 0..3 {
        let before = rig.store.next_generation();
        rig.store.abandon(&mut rig.disk);
        rig = Rig::open(&drive, 2, 6, &oracle).expect("it opens");
        rig.begin_run(&mut oracle).expect("the drive is good");
        assert!(rig.store.next_generation() >= before);
        rig.begin_write(&mut oracle, 4, 4, ALICE).expect("the slot is free");
        rig.drain(&mut oracle).expect("the drive is good");
    }
    assert_eq!(rig.store.epoch(), Epoch::new(4).expect("a small number"));
}

#[test]
fn what_was_cleared_and_never_written_over_is_not_found_by_a_scan() {
    let drive = SimDrive::new(17);
    let mut oracle = Oracle::default();
    let mut rig = filled(&drive, &mut oracle);
    rig.clear(&mut oracle).expect("the drive is good");
    rig.begin_write(&mut oracle, 4, 5, ALICE).expect("the slot is free");
    rig.drain(&mut oracle).expect("the drive is good");
    rig.store.abandon(&mut rig.disk);
    let rig = Rig::open(&drive, 2, 6, &oracle).expect("it opens");
    assert!(rig.is_scanned);
    let found: Vec<SlotIndex> = rig.index.keys().copied().collect();
    assert_eq!(found, [SlotIndex::new(4)]);
}

#[test]
fn an_erasure_that_a_clear_overtakes_is_durable_all_the_same() {
    let drive = SimDrive::new(16);
    let mut oracle = Oracle::default();
    let mut rig = filled(&drive, &mut oracle);
    let erase = rig.store.erase(TagSpace::new(9), &Erasure::Tenant(ALICE)).expect("recovered");
    // Its superblock write has not begun yet, and never will: the process is killed.
    let _clear = rig.store.clear(TagSpace::new(10));
    erase.run(&mut rig.store, &mut rig.disk).expect("the drive is good");
    for slot in (0..4).map(SlotIndex::new) {
        let image = rig.read(slot).expect("the drive is good");
        assert_eq!(image[..4096], [0; 4096], "slot {slot} was erased");
    }
}

#[test]
fn what_a_scan_misread_is_erased_with_the_rest() {
    // The first read is the look at the first slot that opening takes.
    for number in 1..=4 {
        let drive = SimDrive::new(18);
        let mut oracle = Oracle::default();
        let mut rig = filled(&drive, &mut oracle);
        rig.store.abandon(&mut rig.disk);
        let data = file(0, 1, "data").display().to_string();
        let misread = SimRule::new(SimFault::FlipOnWire).on(SimKind::Read).named(&data);
        drive.inject(misread.at(number));
        let mut rig = Rig::open_unchecked(&drive, 2, &options(6)).expect("it opens");
        drive.clear_faults();
        assert_eq!(rig.index.len(), 3, "one header was misread");
        let erase = rig.store.erase(TagSpace::new(9), &Erasure::Tenant(ALICE)).expect("recovered");
        erase.run(&mut rig.store, &mut rig.disk).expect("the drive is good");
        rig.store.abandon(&mut rig.disk);
        let rig = Rig::open_unchecked(&drive, 3, &options(6)).expect("it opens");
        assert!(rig.index.is_empty(), "read {number}: {:?}", rig.index);
    }
}
