//! Each fault does what it says, to the operations that its rule names and to no other.

use super::*;
use crate::io::sim::{SimFault, SimKind, SimRule};
use crate::units::ByteCount;
use nix::errno::Errno;
use std::collections::BTreeSet;

/// A file of four pages of 1, synced, that were pages of 0 and then overwritten.
fn written_twice(seed: u64) -> (SimDrive, SimDisk, FileId) {
    let (drive, mut disk, file) = drive_and_file(seed);
    succeed(&mut disk, write(0, file, 0, 4, 8));
    succeed(&mut disk, write(0, file, 0, 4, 1));
    succeed(&mut disk, sync(0, file));
    (drive, disk, file)
}

fn bytes(drive: &SimDrive) -> Vec<u8> {
    drive.bytes(data(), SimView::Volatile).unwrap()
}

fn errno(errno: Errno) -> Result<(), IoFault> {
    Err(IoFault::Drive { errno: errno as i32, reason: errno.desc().to_owned() })
}

fn distinct<Seen: Ord>(seen: Vec<Seen>) -> BTreeSet<Seen> {
    seen.into_iter().collect()
}

#[test]
fn a_rule_befalls_only_what_it_names() {
    let (drive, mut disk, file) = drive_and_file(1);
    let other = disk.open(Path::new("/store/index"), OpenMode::Create).unwrap().file;
    drive.inject(SimRule::new(SimFault::Error).on(SimKind::Write).named("data").at(1));
    let write_to = |disk: &mut SimDisk, file| outcome(disk, write(0, file, 0, 1, 1));
    assert_eq!(write_to(&mut disk, other), Ok(()));
    assert_eq!(write_to(&mut disk, file), Ok(()));
    succeed(&mut disk, sync(0, file));
    assert_eq!(write_to(&mut disk, other), Ok(()));
    assert_eq!(write_to(&mut disk, file), errno(Errno::EIO));
    assert_eq!(write_to(&mut disk, file), Ok(()), "once");
    assert_eq!(drive.counters().faults, 1);
    drive.inject(SimRule::new(SimFault::Error));
    assert_eq!(write_to(&mut disk, other), errno(Errno::EIO));
    drive.clear_faults();
    assert_eq!(write_to(&mut disk, other), Ok(()));
}

#[test]
fn a_rule_by_chance_befalls_about_as_many_as_it_says() {
    let (drive, mut disk, file) = written_twice(1);
    drive.inject(SimRule::new(SimFault::Error).on(SimKind::Read).one_in(4));
    let finished = run(&mut disk, (0..400).map(|tag| read(tag, file, 0, 1)).collect());
    let failed = finished.iter().filter(|report| report.outcome.is_err()).count();
    assert!((60..140).contains(&failed), "{failed} of 400");
}

#[test]
fn a_failed_read_fills_any_of_its_sectors() {
    let filled = over_seeds(|seed| {
        let (drive, mut disk, file) = written_twice(seed);
        drive.inject(SimRule::new(SimFault::Error).on(SimKind::Read));
        let (outcome, bytes) = read_back(&mut disk, file, 0, 1);
        assert_eq!(outcome, errno(Errno::EIO));
        assert!(bytes.iter().all(|byte| [1, 0xEE].contains(byte)));
        sectors(&bytes).iter().filter(|&&sector| sector == Some(1)).count()
    });
    assert!(distinct(filled).len() > 5);
}

#[test]
fn a_failed_write_moves_any_of_its_sectors() {
    for fault in [SimFault::Error, SimFault::Stall] {
        let moved = over_seeds(|seed| {
            let (drive, mut disk, file) = written_twice(seed);
            drive.inject(SimRule::new(fault).on(SimKind::Write));
            assert!(outcome(&mut disk, write(0, file, 1, 1, 2)).is_err());
            let bytes = bytes(&drive);
            assert!(bytes[..4096].iter().chain(&bytes[8192..]).all(|&byte| byte == 1));
            let sectors = sectors(&bytes[4096..8192]);
            assert!(sectors.iter().all(|sector| [Some(1), Some(2)].contains(sector)));
            sectors
        });
        assert!(moved.contains(&vec![Some(1); 8]) && moved.contains(&vec![Some(2); 8]));
        assert!(distinct(moved).len() > 20);
    }
}

#[test]
fn after_a_failed_sync_a_later_one_promises_nothing_for_the_same_writes() {
    let survived = over_seeds(|seed| {
        let (drive, mut disk, file) = written_twice(seed);
        succeed(&mut disk, write(0, file, 0, 1, 2));
        drive.inject(SimRule::new(SimFault::Error).on(SimKind::Sync).at(0));
        assert_eq!(outcome(&mut disk, sync(0, file)), errno(Errno::EIO));
        assert_eq!(bytes(&drive)[..4096], [2; 4096], "programs go on seeing the write");
        succeed(&mut disk, write(0, file, 1, 1, 3));
        succeed(&mut disk, sync(0, file));
        drive.cut_power();
        let bytes = bytes(&drive);
        assert_eq!(bytes[4096..8192], [3; 4096], "later writes are covered");
        sectors(&bytes[..4096])
    });
    assert!(survived.contains(&vec![Some(1); 8]), "lost");
    assert!(survived.contains(&vec![Some(2); 8]), "kept");
}

#[test]
fn after_a_failed_directory_sync_a_later_one_promises_nothing_for_the_same_entries() {
    let survived = over_seeds(|seed| {
        let (drive, mut disk, _file) = written_twice(seed);
        disk.open(Path::new("/store/new"), OpenMode::Create).unwrap();
        drive.inject(SimRule::new(SimFault::Error).on(SimKind::SyncDirectory).at(0));
        assert!(disk.sync_directory(Path::new("/store")).is_err());
        assert_eq!(disk.list(Path::new("/store")).unwrap().len(), 2);
        disk.sync_directory(Path::new("/store")).unwrap();
        drive.cut_power();
        drive.bytes(Path::new("/store/new"), SimView::Volatile).is_some()
    });
    assert_eq!(distinct(survived), BTreeSet::from([false, true]));
}

#[test]
fn an_error_of_a_call_changes_nothing() {
    let (drive, mut disk, file) = written_twice(1);
    drive.inject(SimRule::new(SimFault::Error));
    assert!(disk.allocate(file, ByteCount::new(9 * PAGE)).is_err());
    assert!(disk.truncate(file, ByteCount::new(0)).is_err());
    assert!(disk.remove_file(data()).is_err());
    assert!(disk.create_directory(Path::new("/new")).is_err());
    assert!(disk.open(Path::new("/store/new"), OpenMode::Create).is_err());
    assert_eq!(bytes(&drive), [1; 16384]);
    assert_eq!(disk.list(Path::new("/")).unwrap().len(), 1);
    assert_eq!(disk.list(Path::new("/store")).unwrap().len(), 1);
}

#[test]
fn want_of_room_leaves_the_file_alone() {
    let (drive, mut disk, file) = written_twice(1);
    drive.inject(SimRule::new(SimFault::NoSpace));
    let refused = outcome(&mut disk, write(0, file, 0, 1, 2));
    assert!(matches!(refused, Err(IoFault::NoSpace { .. })));
    let kind = std::io::ErrorKind::StorageFull;
    assert_eq!(disk.allocate(file, ByteCount::new(9 * PAGE)).unwrap_err().kind, kind);
    assert_eq!(disk.open(Path::new("/new"), OpenMode::Create).unwrap_err().kind, kind);
    assert_eq!(bytes(&drive), [1; 16384]);
    assert_eq!(read_back(&mut disk, file, 0, 1), (Ok(()), vec![1; 4096]), "reads need none");
}

#[test]
fn a_file_may_seem_cut_short() {
    let (drive, mut disk, file) = written_twice(1);
    drive.inject(SimRule::new(SimFault::EndOfFile).at(0));
    let (outcome, bytes) = read_back(&mut disk, file, 0, 2);
    let Err(IoFault::EndOfFile { missing_bytes }) = outcome else { panic!("{outcome:?}") };
    assert!((512..=8192).contains(&missing_bytes) && missing_bytes.is_multiple_of(512));
    let there = usize::try_from(8192 - missing_bytes).unwrap();
    assert!(bytes[..there].iter().all(|&byte| byte == 1));
    assert!(bytes[there..].iter().all(|&byte| byte == 0xEE));
    assert_eq!(read_back(&mut disk, file, 0, 2), (Ok(()), vec![1; 8192]));
}

#[test]
fn a_stall_is_given_up_after_the_io_timeout() {
    let (drive, mut disk, file) = written_twice(1);
    drive.inject(SimRule::new(SimFault::Stall));
    for operation in [read(0, file, 0, 1), write(0, file, 0, 1, 1), sync(0, file)] {
        let before = drive.clock().now();
        assert_eq!(outcome(&mut disk, operation), Err(IoFault::TimedOut));
        assert_eq!(drive.clock().now(), before.after(10_000_000_000));
    }
}

#[test]
fn a_hang_is_reported_without_its_memory_and_may_act_late() {
    let late = over_seeds(|seed| {
        let (drive, mut disk, file) = written_twice(seed);
        drive.inject(SimRule::new(SimFault::Hang).at(0));
        let before = drive.clock().now();
        let report = run(&mut disk, vec![write(7, file, 0, 4, 2)]).remove(0);
        assert_eq!((report.tag, report.outcome), (7, Err(IoFault::TimedOut)));
        assert!(report.memory.is_none(), "the drive may still use it");
        assert_eq!(drive.clock().now(), before.after(10_000_000_000));
        assert_eq!(bytes(&drive), [1; 16384]);
        drive.clock().advance(Duration::from_mins(1));
        assert!(poll(&mut disk).is_empty(), "one report");
        let is_late = bytes(&drive) == [2; 16384];
        let leaked = Box::new(disk).shut(Duration::from_secs(10)).leaked_operations;
        assert_eq!(leaked == 0, is_late);
        is_late
    });
    assert_eq!(distinct(late), BTreeSet::from([false, true]));
}

#[test]
fn operations_behind_a_drive_that_ends_nothing_are_given_up() {
    let drive = SimDrive::with_options(1, SimOptions { depth: 1, ..SimOptions::default() });
    let mut disk = drive.disk(1);
    let file = durable_file(&mut disk);
    drive.inject(SimRule::new(SimFault::Hang));
    let finished = run(&mut disk, vec![write(0, file, 0, 1, 1), write(1, file, 1, 1, 1)]);
    let has_memory: Vec<bool> = finished.iter().map(|report| report.memory.is_some()).collect();
    assert_eq!(has_memory, [false, true], "the second never began");
    assert!(finished.iter().all(|report| report.outcome == Err(IoFault::TimedOut)));
}

#[test]
fn operations_that_wait_for_a_slow_drive_are_not_given_up() {
    let latency_max = Duration::from_secs(9);
    let options = SimOptions { depth: 1, latency_max, ..SimOptions::default() };
    let drive = SimDrive::with_options(1, options);
    let mut disk = drive.disk(1);
    let file = durable_file(&mut disk);
    let finished = run(&mut disk, (0..20).map(|tag| write(tag, file, tag, 1, 1)).collect());
    assert!(finished.iter().all(|report| report.outcome == Ok(())));
    assert!(drive.clock().now().get() > 40_000_000_000, "far longer than an io_timeout");
}

fn flipped_bits(bytes: &[u8], byte: u8) -> u32 {
    bytes.iter().map(|found| (found ^ byte).count_ones()).sum()
}

#[test]
fn a_bit_that_flips_on_the_wire_is_wrong_once_and_one_that_flips_at_rest_for_good() {
    for seed in 0..50 {
        let (drive, mut disk, file) = written_twice(seed);
        drive.inject(SimRule::new(SimFault::FlipOnWire).on(SimKind::Read).at(0));
        let (outcome, read) = read_back(&mut disk, file, 1, 2);
        assert_eq!((outcome, flipped_bits(&read, 1)), (Ok(()), 1));
        assert_eq!(bytes(&drive), [1; 16384]);
        drive.inject(SimRule::new(SimFault::FlipAtRest).at(0));
        let (outcome, read) = read_back(&mut disk, file, 1, 2);
        assert_eq!((outcome, flipped_bits(&read, 1)), (Ok(()), 1));
        assert_eq!(read_back(&mut disk, file, 1, 2).1, read);
        drive.cut_power();
        assert_eq!(bytes(&drive)[4096..12288], read, "on the medium");
    }
}

#[test]
fn a_bit_that_flips_on_the_way_to_the_medium_is_wrong_there() {
    let (drive, mut disk, file) = written_twice(1);
    drive.inject(SimRule::new(SimFault::FlipOnWire).on(SimKind::Write));
    let finished = run(&mut disk, vec![write(0, file, 1, 2, 2)]).remove(0);
    assert_eq!(finished.outcome, Ok(()));
    assert_eq!(bytes_of(finished), [2; 8192], "the memory is not touched");
    assert_eq!(flipped_bits(&bytes(&drive)[4096..12288], 2), 1);
}

#[test]
fn a_flip_that_a_test_asks_for_is_on_the_medium_and_in_what_is_not_synced_yet() {
    let (drive, mut disk, file) = written_twice(1);
    succeed(&mut disk, write(0, file, 0, 1, 2));
    drive.flip(data(), 10, 0x80);
    assert_eq!(read_back(&mut disk, file, 0, 1).1[10], 0x82);
    succeed(&mut disk, sync(0, file));
    drive.cut_power();
    assert_eq!(bytes(&drive)[10], 0x82);
}

#[test]
fn a_misdirected_write_hits_other_pages_and_leaves_its_own() {
    for seed in 0..50 {
        let (drive, mut disk, file) = written_twice(seed);
        drive.inject(SimRule::new(SimFault::Misdirect).on(SimKind::Write));
        succeed(&mut disk, write(0, file, 2, 1, 2));
        let bytes = bytes(&drive);
        assert_eq!(bytes[8192..12288], [1; 4096]);
        let hit = sectors(&bytes).into_iter().filter(|&sector| sector == Some(2));
        assert_eq!(hit.count(), 8);
    }
}

#[test]
fn a_misdirected_read_hands_over_other_pages() {
    for seed in 0..50 {
        let (drive, mut disk, file) = drive_and_file(seed);
        run(&mut disk, (0..4_u8).map(|n| write(n.into(), file, n.into(), 1, n)).collect());
        drive.inject(SimRule::new(SimFault::Misdirect).on(SimKind::Read));
        let (outcome, bytes) = read_back(&mut disk, file, 2, 1);
        assert_eq!(outcome, Ok(()));
        assert!([0, 1, 3].contains(&bytes[0]) && bytes.iter().all(|&byte| byte == bytes[0]));
    }
}

#[test]
fn a_stale_read_hands_over_the_version_before_the_last() {
    let (drive, mut disk, file) = written_twice(1);
    drive.inject(SimRule::new(SimFault::Stale).at(0));
    assert_eq!(read_back(&mut disk, file, 0, 4), (Ok(()), vec![8; 16384]));
    assert_eq!(read_back(&mut disk, file, 0, 4), (Ok(()), vec![1; 16384]));
}

#[test]
fn a_lost_write_is_reported_and_never_done() {
    let (drive, mut disk, file) = written_twice(1);
    drive.inject(SimRule::new(SimFault::Lose).on(SimKind::Write));
    succeed(&mut disk, write(0, file, 0, 1, 2));
    assert_eq!(read_back(&mut disk, file, 0, 4), (Ok(()), vec![1; 16384]));
    assert_eq!(bytes(&drive), [1; 16384]);
}

#[test]
fn a_lost_sync_is_reported_and_makes_nothing_durable() {
    let (drive, mut disk, file) = written_twice(1);
    drive.inject(SimRule::new(SimFault::Lose).on(SimKind::Sync));
    succeed(&mut disk, write(0, file, 0, 4, 2));
    succeed(&mut disk, sync(0, file));
    assert_eq!(drive.bytes(data(), SimView::Durable), Some(vec![1; 16384]));
    assert_eq!(drive.pending_changes(data()), Some(1));
}

#[test]
fn a_drive_that_vanishes_fails_everything_until_the_power_was_off() {
    let (drive, mut disk, file) = written_twice(1);
    drive.inject(SimRule::new(SimFault::Vanish).on(SimKind::Write).at(0));
    let gone = errno(Errno::ENODEV);
    assert_eq!(outcome(&mut disk, write(0, file, 0, 1, 2)), gone);
    assert_eq!(outcome(&mut disk, read(0, file, 0, 1)), gone);
    assert_eq!(outcome(&mut disk, sync(0, file)), gone);
    assert!(disk.length(file).is_err() && disk.list(Path::new("/")).is_err());
    assert!(drive.disk(2).open(data(), OpenMode::Existing).is_err());
    drive.cut_power();
    assert!(drive.disk(3).open(data(), OpenMode::Existing).is_ok());
    assert_eq!(bytes(&drive)[4096..], [1; 12288]);
}

#[test]
fn a_drive_that_becomes_read_only_takes_no_change_and_gives_what_it_has() {
    let (drive, mut disk, file) = written_twice(1);
    drive.inject(SimRule::new(SimFault::ReadOnly).on(SimKind::Truncate));
    let kind = std::io::ErrorKind::ReadOnlyFilesystem;
    assert_eq!(disk.truncate(file, ByteCount::new(0)).unwrap_err().kind, kind);
    assert_eq!(outcome(&mut disk, write(0, file, 0, 1, 2)), Err(IoFault::ReadOnly));
    assert_eq!(outcome(&mut disk, sync(0, file)), Err(IoFault::ReadOnly));
    assert_eq!(disk.remove_file(data()).unwrap_err().kind, kind);
    assert_eq!(disk.open(data(), OpenMode::Existing).unwrap_err().kind, kind);
    assert_eq!(read_back(&mut disk, file, 0, 4), (Ok(()), vec![1; 16384]));
    let reading = disk.open(data(), OpenMode::ReadOnly).unwrap().file;
    assert_eq!(disk.length(reading).unwrap().get(), 16384);
    assert_eq!(bytes(&drive), [1; 16384]);
}

#[test]
fn the_log_tells_of_faults_that_nobody_was_told_of() {
    let (drive, mut disk, file) = written_twice(1);
    drive.inject(SimRule::new(SimFault::Lose).on(SimKind::Write));
    succeed(&mut disk, write(0, file, 0, 1, 2));
    let log = drive.log();
    let last = log.last().unwrap();
    assert_eq!((last.kind, last.is_ok, last.fault), (SimKind::Write, true, Some(SimFault::Lose)));
}

#[test]
fn rules_pass_over_operations_without_such_a_fault() {
    let (drive, mut disk, file) = written_twice(1);
    for fault in [SimFault::Stale, SimFault::FlipAtRest, SimFault::EndOfFile, SimFault::Lose] {
        drive.inject(SimRule::new(fault).on(SimKind::Allocate));
        assert!(!fault.applies_to(SimKind::Allocate));
    }
    disk.allocate(file, ByteCount::new(9 * PAGE)).unwrap();
    assert_eq!(drive.counters().faults, 0);
}
