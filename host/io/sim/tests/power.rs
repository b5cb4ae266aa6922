//! Syncs and power cuts: what survives for sure, what may, and that nothing is made up.

use super::*;
use crate::units::ByteCount;
use std::collections::BTreeSet;

#[test]
fn a_sync_makes_the_writes_reported_before_it_durable() {
    for seed in 0..50 {
        let (drive, mut disk, file) = drive_and_file(seed);
        run(&mut disk, vec![write(0, file, 0, 2, 1), write(1, file, 2, 1, 2)]);
        succeed(&mut disk, sync(0, file));
        // Neither reported when the sync was submitted, nor synced.
        disk.submit(vec![write(2, file, 0, 3, 9)]);
        drive.cut_power();
        let survived = drive.bytes(data(), SimView::Volatile).unwrap();
        assert_eq!(survived.len(), 12288);
        for (index, sector) in survived.chunks(SECTOR).enumerate() {
            let old = if index < 16 { 1 } else { 2 };
            assert!(sector.iter().all(|byte| [old, 9].contains(byte)), "seed {seed}");
        }
    }
}

#[test]
fn a_sync_may_leave_out_what_was_not_reported_before_it() {
    let survived = over_seeds(|seed| {
        let (drive, mut disk, file) = drive_and_file(seed);
        succeed(&mut disk, write(0, file, 0, 1, 1));
        // Ended, but nobody asked for the report; then a sync that is reported together with it.
        disk.submit(vec![write(1, file, 0, 1, 2)]);
        pass_time(&drive);
        disk.submit(vec![sync(2, file)]);
        pass_time(&drive);
        assert!(poll(&mut disk).iter().all(|report| report.outcome == Ok(())));
        drive.cut_power();
        sectors(&drive.bytes(data(), SimView::Volatile).unwrap())
    });
    assert!(survived.contains(&vec![Some(1); 8]), "left out");
    assert!(survived.contains(&vec![Some(2); 8]), "covered, or as lucky");
}

#[test]
fn an_unsynced_write_survives_whole_in_part_and_not_at_all() {
    let survived = over_seeds(|seed| {
        let (drive, mut disk, file) = drive_and_file(seed);
        succeed(&mut disk, write(0, file, 0, 2, 1));
        succeed(&mut disk, sync(0, file));
        succeed(&mut disk, write(0, file, 0, 2, 2));
        drive.cut_power();
        sectors(&drive.bytes(data(), SimView::Volatile).unwrap())
    });
    assert!(survived.contains(&vec![Some(1); 16]));
    assert!(survived.contains(&vec![Some(2); 16]));
    assert!(survived.iter().flatten().all(Option::is_some), "a write that ended tears no sector");
    let mixed = |file: &&Vec<Option<u8>>| file.contains(&Some(1)) && file.contains(&Some(2));
    let in_part: BTreeSet<_> = survived.iter().filter(mixed).collect();
    assert!(in_part.len() > 20, "{} ways of surviving in part", in_part.len());
}

#[test]
fn a_write_under_way_may_tear_inside_a_sector() {
    let torn = over_seeds(|seed| {
        let (drive, mut disk, file) = drive_and_file(seed);
        succeed(&mut disk, write(0, file, 0, 1, 1));
        succeed(&mut disk, sync(0, file));
        disk.submit(vec![write(0, file, 0, 1, 2)]);
        // Between its moment, or before it, and its end.
        drive.clock().advance(Duration::from_micros(300));
        drive.cut_power();
        let survived = drive.bytes(data(), SimView::Volatile).unwrap();
        assert!(survived.iter().all(|byte| [1, 2].contains(byte)), "nothing is made up");
        sectors(&survived).contains(&None)
    });
    assert!(torn.contains(&true) && torn.contains(&false));
}

#[test]
fn an_entry_that_was_never_synced_may_vanish_though_the_file_was_synced() {
    let survived = over_seeds(|seed| {
        let drive = SimDrive::new(seed);
        let mut disk = drive.disk(seed);
        let file = disk.open(Path::new("/new"), OpenMode::Create).unwrap().file;
        succeed(&mut disk, write(0, file, 0, 1, 1));
        succeed(&mut disk, sync(0, file));
        drive.cut_power();
        drive.bytes(Path::new("/new"), SimView::Volatile)
    });
    assert!(survived.contains(&None));
    assert!(survived.contains(&Some(vec![1; 4096])), "the data was synced");
    assert!(survived.iter().flatten().all(|bytes| bytes == &[1; 4096]));
}

#[test]
fn a_synced_directory_keeps_its_entries_but_may_lose_its_own() {
    let survived = over_seeds(|seed| {
        let drive = SimDrive::new(seed);
        let mut disk = drive.disk(seed);
        disk.create_directory(Path::new("/store")).unwrap();
        disk.open(data(), OpenMode::Create).unwrap();
        disk.sync_directory(Path::new("/store")).unwrap();
        drive.cut_power();
        let mut disk = drive.disk(seed);
        let above = disk.list(Path::new("/")).unwrap().len();
        (above, disk.list(Path::new("/store")).map(|entries| entries.len()).ok())
    });
    let outcomes: BTreeSet<_> = survived.into_iter().collect();
    assert_eq!(outcomes, BTreeSet::from([(0, None), (1, Some(1))]));
}

#[test]
fn a_removed_file_comes_back_with_its_bytes_or_stays_away() {
    let survived = over_seeds(|seed| {
        let (drive, mut disk, file) = drive_and_file(seed);
        succeed(&mut disk, write(0, file, 0, 1, 1));
        succeed(&mut disk, sync(0, file));
        disk.close(file);
        disk.remove_file(data()).unwrap();
        assert_eq!(drive.bytes(data(), SimView::Volatile), None);
        drive.cut_power();
        drive.bytes(data(), SimView::Volatile)
    });
    let outcomes: BTreeSet<_> = survived.into_iter().collect();
    assert_eq!(outcomes, BTreeSet::from([None, Some(vec![1; 4096])]));
}

#[test]
fn a_removal_that_was_synced_is_for_ever() {
    for seed in 0..50 {
        let (drive, mut disk, file) = drive_and_file(seed);
        disk.close(file);
        disk.remove_file(data()).unwrap();
        disk.sync_directory(Path::new("/store")).unwrap();
        drive.cut_power();
        assert_eq!(drive.bytes(data(), SimView::Volatile), None);
    }
}

#[test]
fn lengths_survive_a_sync_and_may_be_lost_without() {
    let allocated = |is_synced: bool| {
        over_seeds(|seed| {
            let (drive, mut disk, file) = drive_and_file(seed);
            disk.allocate(file, ByteCount::new(3 * PAGE)).unwrap();
            if is_synced {
                succeed(&mut disk, sync(0, file));
            }
            drive.cut_power();
            let bytes = drive.bytes(data(), SimView::Volatile).unwrap();
            assert!(bytes.iter().all(|&byte| byte == 0), "reserved blocks read as zeros");
            bytes.len()
        })
    };
    let cut = |is_synced: bool| {
        over_seeds(|seed| {
            let (drive, mut disk, file) = drive_and_file(seed);
            succeed(&mut disk, write(0, file, 0, 3, 1));
            succeed(&mut disk, sync(0, file));
            disk.truncate(file, ByteCount::new(PAGE)).unwrap();
            if is_synced {
                succeed(&mut disk, sync(0, file));
            }
            drive.cut_power();
            let bytes = drive.bytes(data(), SimView::Volatile).unwrap();
            assert!(bytes.iter().all(|&byte| byte == 1));
            bytes.len()
        })
    };
    let distinct = |lengths: Vec<usize>| lengths.into_iter().collect::<BTreeSet<_>>();
    assert_eq!(distinct(allocated(true)), BTreeSet::from([12288]));
    assert_eq!(distinct(allocated(false)), BTreeSet::from([0, 12288]));
    assert_eq!(distinct(cut(true)), BTreeSet::from([4096]));
    assert_eq!(distinct(cut(false)), BTreeSet::from([4096, 12288]));
}

#[test]
fn after_a_cut_every_handle_is_dead_and_changes_nothing() {
    let (drive, mut disk, file) = drive_and_file(3);
    succeed(&mut disk, write(0, file, 0, 1, 1));
    succeed(&mut disk, sync(0, file));
    disk.submit(vec![read(5, file, 0, 1)]);
    drive.cut_power();
    let reports = poll(&mut disk);
    assert_eq!(reports.len(), 1, "what was under way is reported");
    assert!(matches!(reports[0].outcome, Err(IoFault::Drive { .. })));
    for operation in [write(0, file, 0, 1, 2), read(0, file, 0, 1), sync(0, file)] {
        assert!(matches!(outcome(&mut disk, operation), Err(IoFault::Drive { .. })));
    }
    let root = Path::new("/");
    assert!(disk.open(data(), OpenMode::Existing).is_err());
    assert!(disk.create_directory(Path::new("/other")).is_err());
    assert!(disk.remove_file(data()).is_err());
    assert!(disk.list(root).is_err() && disk.space(root).is_err());
    assert!(disk.truncate(file, ByteCount::new(0)).is_err());
    pass_time(&drive);
    assert_eq!(drive.bytes(data(), SimView::Volatile), Some(vec![1; 4096]));
    let mut after = drive.disk(4);
    let reopened = after.open(data(), OpenMode::Existing).unwrap();
    assert_eq!(reopened.length.get(), 4096);
    assert_eq!(read_back(&mut after, reopened.file, 0, 1), (Ok(()), vec![1; 4096]));
}

/// Writes, syncs and calls, until the power goes; returns how many of the calls went through.
fn script(drive: &SimDrive) -> u64 {
    let mut disk = drive.disk(1);
    let mut done = 0;
    let mut steps = || -> Option<()> {
        let mut count = |is_ok: bool| {
            done += u64::from(is_ok);
            is_ok.then_some(())
        };
        count(disk.create_directory(Path::new("/store")).is_ok())?;
        let opened = disk.open(data(), OpenMode::Create).ok();
        count(opened.is_some())?;
        let file = opened?.file;
        for round in 1..4 {
            count(outcome(&mut disk, write(0, file, u64::from(round), 1, round)).is_ok())?;
            count(outcome(&mut disk, sync(0, file)).is_ok())?;
        }
        count(disk.sync_directory(Path::new("/store")).is_ok())?;
        count(disk.truncate(file, ByteCount::new(PAGE)).is_ok())?;
        count(disk.remove_file(data()).is_ok())
    };
    steps();
    done
}

#[test]
fn the_power_goes_with_any_step_that_is_asked_for() {
    let whole = SimDrive::new(1);
    let all = script(&whole);
    assert_eq!((all, whole.counters().steps, whole.counters().cuts), (11, 11, 0));
    for steps in 0..all {
        let drive = SimDrive::new(1);
        drive.cut_after(steps);
        assert_eq!(script(&drive), steps, "each step before the cut is reported");
        assert_eq!((drive.counters().steps, drive.counters().cuts), (steps + 1, 1));
        assert!(script(&drive) > steps, "one cut only");
    }
}

#[test]
fn a_drive_that_is_over_its_cache_keeps_the_oldest_writes_for_sure() {
    let cache = ByteCount::new(2 * PAGE);
    let drive = SimDrive::with_options(1, SimOptions { cache, ..SimOptions::default() });
    let mut disk = drive.disk(1);
    let file = durable_file(&mut disk);
    for page in 0..5 {
        succeed(&mut disk, write(0, file, page, 1, 7));
    }
    assert_eq!(drive.pending_changes(data()), Some(2));
    assert_eq!(drive.bytes(data(), SimView::Durable), Some(vec![7; 3 * 4096]));
}

#[test]
fn a_settled_drive_loses_nothing() {
    for seed in 0..20 {
        let drive = SimDrive::new(seed);
        let mut disk = drive.disk(seed);
        let file = disk.open(Path::new("/new"), OpenMode::Create).unwrap().file;
        succeed(&mut disk, write(0, file, 0, 1, 1));
        drive.settle();
        drive.cut_power();
        assert_eq!(drive.bytes(Path::new("/new"), SimView::Volatile), Some(vec![1; 4096]));
    }
}
