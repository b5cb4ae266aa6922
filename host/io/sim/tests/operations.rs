//! Submitting, waiting, reporting: order, depth, time, shutting, and what is refused.

use super::*;
use crate::io::sim::{SimFault, SimKind, SimRule};
use crate::io::{Lock, ShutReport};
use crate::units::Timestamp;
use std::collections::BTreeSet;

/// A run of many operations, for comparing two: reports in order, log, bytes after a cut.
fn run_of(drive_seed: u64, disk_seed: u64) -> (Vec<u64>, String, Option<Vec<u8>>) {
    let drive = SimDrive::new(drive_seed);
    drive.inject(SimRule::new(SimFault::Error).one_in(9));
    drive.inject(SimRule::new(SimFault::FlipOnWire).one_in(5));
    let mut disk = drive.disk(disk_seed);
    disk.create_directory(Path::new("/store")).ok();
    drive.plant(data(), &[1; 16384]);
    let file = disk.open(data(), OpenMode::Existing).unwrap().file;
    disk.submit((0..20).map(|tag| write(tag, file, tag % 4, 1, 2)).collect());
    disk.submit((20..30).map(|tag| read(tag, file, tag % 4, 1)).collect());
    disk.submit(vec![sync(30, file)]);
    let mut finished = Vec::new();
    for _ in 0..1000 {
        disk.wait(Duration::from_micros(5));
        disk.poll(&mut finished);
    }
    disk.submit((31..40).map(|tag| write(tag, file, tag % 4, 1, 3)).collect());
    drive.clock().advance(Duration::from_micros(400));
    drive.cut_power();
    disk.poll(&mut finished);
    let tags = finished.iter().map(|report| report.tag).collect();
    (tags, format!("{:?}", drive.log()), drive.bytes(data(), SimView::Volatile))
}

#[test]
fn the_same_seeds_and_calls_give_the_same_run() {
    assert_eq!(run_of(1, 2), run_of(1, 2));
    assert_ne!(run_of(1, 2).0, run_of(1, 3).0, "a handle's seed decides the order of ends");
    assert_ne!(run_of(1, 2).2, run_of(2, 2).2, "a drive's seed decides what survives");
}

#[test]
fn operations_end_in_any_order_and_each_is_reported_once() {
    let orders = over_seeds(|seed| {
        let (_drive, mut disk, file) = drive_and_file(seed);
        disk.submit((0..3).map(|tag| write(tag, file, tag, 1, 1)).collect());
        let mut finished = Vec::new();
        while finished.len() < 3 {
            disk.wait(Duration::from_secs(1));
            disk.poll(&mut finished);
        }
        disk.wait(Duration::from_secs(1));
        disk.poll(&mut finished);
        finished.iter().map(|report| report.tag).collect::<Vec<_>>()
    });
    assert!(orders.iter().all(|order| order.len() == 3));
    assert_eq!(orders.into_iter().collect::<BTreeSet<_>>().len(), 6);
}

#[test]
fn no_more_than_the_depth_is_under_way_and_reads_and_syncs_begin_before_writes() {
    let drive = SimDrive::with_options(1, SimOptions { depth: 1, ..SimOptions::default() });
    let mut disk = drive.disk(1);
    let file = durable_file(&mut disk);
    assert_eq!(disk.depth(), 1);
    disk.submit((0..3).map(|tag| write(tag, file, tag, 1, 1)).collect());
    let reads = (4..24).map(|tag| read(tag, file, 0, 1));
    disk.submit([sync(3, file)].into_iter().chain(reads).collect());
    let mut finished = Vec::new();
    while finished.len() < 24 {
        disk.wait(Duration::from_secs(1));
        disk.poll(&mut finished);
    }
    let tags: Vec<u64> = finished.iter().map(|report| report.tag).collect();
    // One at a time, so in the order of their starts; fifteen go ahead of a write, and no more.
    let expected = [0..1, 3..18, 1..2, 18..24, 2..3];
    assert_eq!(tags, expected.into_iter().flatten().collect::<Vec<u64>>());
}

#[test]
fn waiting_passes_virtual_time_to_the_next_report_or_the_timeout() {
    let (drive, mut disk, file) = drive_and_file(1);
    let clock = drive.clock();
    disk.wait(Duration::from_secs(3));
    assert_eq!(clock.now(), Timestamp::new(3_000_000_000), "nothing to wait for");
    disk.submit(vec![write(0, file, 0, 1, 1)]);
    disk.wait(Duration::from_secs(3));
    assert!(clock.now() <= Timestamp::new(3_001_000_000), "a write takes at most 1 ms");
    let then = clock.now();
    disk.wait(Duration::from_secs(3));
    assert_eq!(clock.now(), then, "a report is there already");
    assert_eq!(poll(&mut disk).len(), 1);
}

#[test]
fn a_wake_ends_the_current_or_next_wait() {
    let (drive, mut disk, _file) = drive_and_file(1);
    let waker = disk.waker();
    std::thread::spawn(move || waker.wake()).join().unwrap();
    disk.wait(Duration::from_secs(3));
    assert_eq!(drive.clock().now(), Timestamp::new(0));
    disk.wait(Duration::from_secs(3));
    assert_eq!(drive.clock().now(), Timestamp::new(3_000_000_000), "one wake, one wait");
}

#[test]
fn operations_that_make_no_sense_are_reported_with_their_memory() {
    let (drive, mut disk, file) = drive_and_file(1);
    let reading = disk.open(data(), OpenMode::ReadOnly).unwrap().file;
    let odd = IoWork::Read { offset: 512, memory: filled(1, 0) };
    let operations = vec![
        read(0, FileId::new(77), 0, 1),
        IoOperation { tag: 1, file, work: odd },
        write(2, reading, 0, 1, 1),
    ];
    let finished = run(&mut disk, operations);
    assert_eq!(finished[0].outcome, Err(IoFault::NotOpen));
    assert_eq!(finished[1].outcome, Err(IoFault::Misaligned));
    assert_eq!(finished[2].outcome, Err(IoFault::ReadOnly));
    assert!(finished.iter().all(|report| report.memory.is_some()));
    disk.close(file);
    assert_eq!(outcome(&mut disk, sync(0, file)), Err(IoFault::NotOpen));
    assert_eq!(drive.bytes(data(), SimView::Volatile), Some(Vec::new()), "nothing was written");
}

#[test]
fn a_read_past_the_end_says_how_many_bytes_are_missing() {
    let (_drive, mut disk, file) = drive_and_file(1);
    succeed(&mut disk, write(0, file, 0, 2, 5));
    disk.truncate(file, crate::units::ByteCount::new(5000)).unwrap();
    let (outcome, bytes) = read_back(&mut disk, file, 1, 1);
    assert_eq!(outcome, Err(IoFault::EndOfFile { missing_bytes: 3192 }));
    assert_eq!(bytes[..904], [5; 904]);
    let (outcome, _) = read_back(&mut disk, file, 9, 1);
    assert_eq!(outcome, Err(IoFault::EndOfFile { missing_bytes: 4096 }));
}

#[test]
fn shutting_ends_what_is_under_way() {
    let (drive, mut disk, file) = drive_and_file(1);
    disk.submit((0..100).map(|tag| write(tag, file, tag, 1, 9)).collect());
    let report = Box::new(disk).shut(Duration::from_secs(10));
    assert_eq!(report, ShutReport { leaked_operations: 0 });
    assert_eq!(drive.bytes(data(), SimView::Volatile), Some(vec![9; 409_600]));
}

#[test]
fn shutting_counts_what_never_ends_and_keeps_its_lock() {
    let leaked = over_seeds(|seed| {
        let (drive, mut disk, file) = drive_and_file(seed);
        drive.inject(SimRule::new(SimFault::Hang).on(SimKind::Read));
        disk.lock(file).unwrap();
        disk.submit(vec![read(0, file, 0, 1), write(1, file, 0, 1, 1)]);
        let ShutReport { leaked_operations } = Box::new(disk).shut(Duration::from_mins(1));
        let mut other = drive.disk(2);
        let same = other.open(data(), OpenMode::Existing).unwrap().file;
        let is_held = other.lock(same) != Ok(Lock::Taken);
        assert_eq!(is_held, leaked_operations > 0);
        leaked_operations
    });
    assert_eq!(leaked.into_iter().collect::<BTreeSet<_>>(), BTreeSet::from([0, 1]));
}

#[test]
fn a_program_that_is_killed_starts_nothing_and_what_it_started_ends() {
    let drive = SimDrive::with_options(1, SimOptions { depth: 1, ..SimOptions::default() });
    let mut disk = drive.disk(1);
    let file = durable_file(&mut disk);
    disk.lock(file).unwrap();
    disk.submit(vec![write(0, file, 0, 1, 1), write(1, file, 1, 1, 2)]);
    drive.kill(disk.number());
    assert!(disk.length(file).is_err() && disk.list(Path::new("/")).is_err());
    let mut other = drive.disk(2);
    let same = other.open(data(), OpenMode::Existing).unwrap().file;
    assert_eq!(other.lock(same), Ok(Lock::Held { process: Some(1) }));
    other.wait(Duration::from_secs(1));
    assert_eq!(other.lock(same), Ok(Lock::Taken), "the write has ended");
    assert_eq!(drive.bytes(data(), SimView::Volatile), Some(vec![1; 4096]));
    let reports = poll(&mut disk);
    assert_eq!(reports.len(), 2);
    assert!(reports.iter().all(|report| report.outcome.is_err() && report.memory.is_some()));
}

#[test]
fn dropping_a_handle_ends_what_was_taken_in() {
    let drive = SimDrive::with_options(1, SimOptions { depth: 1, ..SimOptions::default() });
    let mut disk = drive.disk(1);
    let file = durable_file(&mut disk);
    disk.submit(vec![write(0, file, 0, 1, 1), write(1, file, 1, 1, 1)]);
    drop(disk);
    assert_eq!(drive.bytes(data(), SimView::Volatile), Some(vec![1; 8192]));
}

#[test]
fn the_log_says_what_was_done_and_when_it_was_reported() {
    let (drive, mut disk, file) = drive_and_file(1);
    drive.clock().advance(Duration::from_secs(1));
    run(&mut disk, vec![write(0, file, 3, 2, 1)]);
    run(&mut disk, vec![read(0, file, 3, 1)]);
    run(&mut disk, vec![sync(0, file)]);
    let log = drive.log();
    let kinds: Vec<SimKind> = log.iter().map(|record| record.kind).collect();
    let (create, directory) = (SimKind::Create, SimKind::SyncDirectory);
    let calls = [create, create, directory, directory];
    assert_eq!(kinds[..4], calls);
    assert_eq!(kinds[4..], [SimKind::Write, SimKind::Read, SimKind::Sync]);
    let written = &log[4];
    assert_eq!((written.disk, written.path.as_path()), (1, data()));
    assert_eq!((written.offset, written.length), (12288, 8192));
    assert_eq!(written.submitted, Timestamp::new(1_000_000_000));
    assert!(written.reported > written.submitted && written.reported <= log[5].submitted);
    assert!(log.iter().all(|record| record.is_ok && record.fault.is_none()));
    let counters = drive.counters();
    assert_eq!((counters.writes, counters.written_bytes), (1, 8192));
    assert_eq!((counters.reads, counters.read_bytes, counters.syncs), (1, 4096, 1));
    assert_eq!((counters.steps, counters.faults, counters.cuts), (7, 0, 0));
}

#[test]
fn a_read_that_meets_a_write_sees_any_of_its_sectors() {
    let seen = over_seeds(|seed| {
        let (_drive, mut disk, file) = drive_and_file(seed);
        succeed(&mut disk, write(0, file, 0, 1, 1));
        let mut finished = run(&mut disk, vec![read(0, file, 0, 1), write(1, file, 0, 1, 2)]);
        let bytes = bytes_of(finished.swap_remove(0));
        assert!(bytes.iter().all(|byte| [1, 2].contains(byte)));
        sectors(&bytes).into_iter().flatten().collect::<Vec<u8>>()
    });
    assert!(seen.contains(&vec![1; 8]) && seen.contains(&vec![2; 8]));
    assert!(seen.iter().any(|bytes| bytes.contains(&1) && bytes.contains(&2)));
}
