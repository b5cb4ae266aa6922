//! The pager with a disk tier on a simulated drive: what comes back is what was stored, whatever
//! the drive does, and what was promised to survive does.

use crate::engine::{Engine, PATIENT, Worker, keys};
use crate::support::{content, scatter};
use kvtide::core::{Failure, Stage, StorePoint, WritePolicy};
use kvtide::device::Ready;
use kvtide::device::cpu::CpuConfig;
use kvtide::fingerprint::KeyMode;
use kvtide::io::sim::{SimDrive, SimFault, SimKind, SimOptions, SimRule};
use kvtide::pager::{
    DEFAULT_SYNC_INTERVAL, DiskCommandError, DiskConfig, DiskHealth, Health, LoadChunks, OpenError,
    ProgressListener,
};
use kvtide::units::{ByteCount, GroupIndex, TenantId};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Chunks of the longest request: the window group has twice as many.
pub(crate) const CHUNKS: u32 = 12;
pub(crate) const CONVERSATIONS: u64 = 9;

pub(crate) fn settings(write_policy: WritePolicy) -> DiskConfig {
    let content = content("simulated", KeyMode::EngineHashes);
    let mut config = DiskConfig::new("root", ByteCount::new(4 << 20), content);
    config.write_policy = write_policy;
    config
}

/// Opens an engine whose host tier of `host_chunks` chunks lies in front of the drive.
pub(crate) fn open(
    drive: &SimDrive,
    host_chunks: u64,
    write_policy: WritePolicy,
) -> Option<Arc<Engine>> {
    open_disk(drive, host_chunks, settings(write_policy)).ok()
}

/// The same, with a disk tier of the caller's settings.
pub(crate) fn open_disk(
    drive: &SimDrive,
    host_chunks: u64,
    settings: DiskConfig,
) -> Result<Arc<Engine>, OpenError> {
    let device = CpuConfig { out_pieces: 8, in_pieces: 8 };
    let disk = Some((settings, drive.disk(7)));
    Engine::open_with(host_chunks, device, PATIENT, disk)
}

/// Runs requests of random conversations and lengths, comparing every byte that is loaded.
pub(crate) fn run(engine: &Arc<Engine>, seed: u64, count: u64) -> Vec<Stage> {
    let worker = Worker::new(engine, 0);
    let requests = (0..count).map(|number| {
        let chance = scatter(seed << 32 | number);
        let chunk_count = 1 + u32::try_from(chance >> 40).expect("24 bits") % CHUNKS;
        worker.request(chance % CONVERSATIONS, chunk_count)
    });
    requests.flatten().collect()
}

/// Closes an engine that nobody else has; returns whether the disk tier closed cleanly.
pub(crate) fn close(engine: Arc<Engine>) -> bool {
    engine.pager.audit().expect("all invariants hold");
    let engine = Arc::into_inner(engine).expect("its workers are gone");
    let report = engine.pager.close();
    assert!(report.is_drained);
    report.is_disk_clean
}

/// Waits until the disk tier is as it should be.
pub(crate) fn wait_for(engine: &Engine, is_there: impl Fn(&DiskHealth) -> bool) -> DiskHealth {
    let start = Instant::now();
    loop {
        let health = engine.pager.disk_health().expect("a disk tier");
        if is_there(&health) {
            return health;
        }
        assert!(start.elapsed() < PATIENT, "the disk tier stays {health}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Stores one conversation in full and returns its keys by group.
pub(crate) fn store_one(engine: &Arc<Engine>, conversation: u64) -> [Vec<kvtide::key::Key>; 2] {
    store_for(engine, conversation, TenantId::new(0))
}

/// Stores one conversation of a tenant in full and returns its keys by group.
pub(crate) fn store_for(
    engine: &Arc<Engine>,
    conversation: u64,
    tenant: TenantId,
) -> [Vec<kvtide::key::Key>; 2] {
    let worker = Worker::of_tenant(engine, 0, tenant);
    let stages = worker.request(conversation, CHUNKS);
    assert!(stages.iter().all(|stage| *stage == Stage::Done), "{stages:?}");
    [(0, CHUNKS), (1, 2 * CHUNKS)].map(|(group, count)| keys(group, conversation, count))
}

/// Loads one conversation, comparing bytes; returns the tokens that hit.
pub(crate) fn hit_tokens(engine: &Arc<Engine>, conversation: u64) -> u32 {
    let lists =
        [(0, CHUNKS), (1, 2 * CHUNKS)].map(|(group, count)| keys(group, conversation, count));
    let lists: Vec<&[_]> = lists.iter().map(Vec::as_slice).collect();
    let plan = engine.pager.lookup(&lists).expect("a plan is free");
    let tokens = plan.tokens().get();
    drop(plan);
    let before = engine.compared.load(Ordering::Relaxed);
    Worker::new(engine, 0).request(conversation, CHUNKS);
    assert!(tokens == 0 || engine.compared.load(Ordering::Relaxed) > before);
    tokens
}

pub(crate) const ALL_TOKENS: u32 = CHUNKS * 32;

#[test]
fn every_write_policy_brings_back_what_was_stored_and_stays_within_its_slots() {
    let back = WritePolicy::Back { high_percent: 80, low_percent: 50 };
    for write_policy in [WritePolicy::Through, back, WritePolicy::OnEvict] {
        for host_chunks in [14, 40] {
            let drive = SimDrive::new(host_chunks);
            let engine = open(&drive, host_chunks, write_policy).expect("opens");
            for stage in run(&engine, 1, 150) {
                let is_expected = matches!(
                    stage,
                    Stage::Done
                        | Stage::Failed(
                            Failure::Full
                                | Failure::ParentMissing
                                | Failure::Busy
                                | Failure::Missing
                        )
                );
                assert!(is_expected, "{stage:?}");
            }
            let counters = engine.pager.counters();
            assert!(counters.written > 0 && counters.promoted > 0, "{write_policy:?} {counters:?}");
            assert_eq!((counters.lost, counters.read_failures), (0, 0), "{write_policy:?}");
            assert_eq!(counters.hits, counters.host_hits + counters.disk_hits);
            assert!(close(engine));
        }
    }
}

#[test]
fn a_clean_close_leaves_everything_for_the_next_run() {
    let drive = SimDrive::new(1);
    let engine = open(&drive, 60, WritePolicy::Through).expect("opens");
    let keys = store_one(&engine, 4);
    assert!(close(engine));
    let engine = open(&drive, 60, WritePolicy::Through).expect("opens");
    assert_eq!(engine.pager.disk_health(), Some(DiskHealth::Serving), "no scan is needed");
    for key in keys.iter().flatten() {
        assert_eq!(engine.pager.point(*key), Some(StorePoint::Durable), "{key}");
    }
    assert_eq!(hit_tokens(&engine, 4), ALL_TOKENS);
    assert!(close(engine));
}

#[test]
fn what_was_flushed_survives_a_power_cut() {
    let drive = SimDrive::new(2);
    let engine = open(&drive, 60, WritePolicy::OnEvict).expect("opens");
    let keys = store_one(&engine, 4);
    assert_eq!(engine.pager.point(keys[0][0]), Some(StorePoint::Host), "nothing is written yet");
    engine.pager.flush(PATIENT).expect("flushed");
    for key in keys.iter().flatten() {
        assert_eq!(engine.pager.point(*key), Some(StorePoint::Durable), "{key}");
    }
    drive.cut_power();
    close(engine);
    let engine = open(&drive, 60, WritePolicy::OnEvict).expect("opens");
    wait_for(&engine, |health| *health == DiskHealth::Serving);
    assert_eq!(hit_tokens(&engine, 4), ALL_TOKENS);
    assert_eq!(engine.pager.counters().lost, 0);
    assert!(close(engine));
}

#[test]
fn a_power_cut_at_any_step_never_brings_a_wrong_byte() {
    let mut warm = 0;
    for steps in (0..400).step_by(7) {
        let drive = SimDrive::new(steps);
        drive.cut_after(steps);
        if let Some(engine) = open(&drive, 14, WritePolicy::Through) {
            run(&engine, steps, 30);
            close(engine);
        }
        drive.cut_power();
        let engine = open(&drive, 14, WritePolicy::Through).expect("what is left is a store");
        wait_for(&engine, |health| *health == DiskHealth::Serving);
        warm += engine.pager.counters().adopted;
        run(&engine, steps, 30);
        assert!(close(engine));
    }
    assert!(warm > 0, "some of the cuts left chunks behind");
}

#[test]
fn no_fault_of_the_drive_brings_a_wrong_byte_or_stops_the_engine() {
    use SimFault::{
        EndOfFile, Error, FlipAtRest, FlipOnWire, Hang, Lose, Misdirect, NoSpace, Stale, Stall,
    };
    let faults =
        [Error, NoSpace, EndOfFile, Stall, Hang, FlipAtRest, FlipOnWire, Misdirect, Stale, Lose];
    for (seed, fault) in (1..).zip(faults) {
        let drive = SimDrive::new(seed);
        let engine = open(&drive, 14, WritePolicy::Through).expect("opens");
        run(&engine, seed, 20);
        for kind in [SimKind::Read, SimKind::Write] {
            if fault.applies_to(kind) {
                drive.inject(SimRule::new(fault).on(kind).named("data").one_in(8));
            }
        }
        run(&engine, seed + 100, 80);
        let counters = engine.pager.counters();
        assert!(counters.written > 0, "{fault:?} {counters:?}");
        drive.clear_faults();
        run(&engine, seed + 200, 20);
        assert_eq!(engine.pager.health(), Health::Serving, "{fault:?}");
        close(engine);
    }
}

#[test]
fn memory_that_a_write_still_holds_is_not_stamped_for_another() {
    for seed in 0..8 {
        let drive = SimDrive::new(seed);
        let engine = open(&drive, 60, WritePolicy::Through).expect("opens");
        drive.inject(SimRule::new(SimFault::Hang).on(SimKind::Write).named("data").at(0));
        store_one(&engine, 4);
        engine.pager.flush(PATIENT).expect("one write fails, and flushes go on");
        // Writes what failed once more, from the same memory.
        engine.pager.flush(PATIENT).expect("one write fails, and flushes go on");
        // The drive compares the memory when the write ends after all, which takes its time.
        let (start, clock) = (Instant::now(), drive.clock());
        let late = clock.now().after(100_000_000_000);
        while clock.now() < late {
            assert_eq!(engine.pager.health(), Health::Serving, "seed {seed}");
            assert!(start.elapsed() < PATIENT, "the disk thread is gone");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(engine.pager.counters().write_failures > 0, "seed {seed}");
        close(engine);
    }
}

#[test]
fn after_a_failed_sync_the_tier_takes_no_more_writes_and_says_so() {
    let drive = SimDrive::new(3);
    let engine = open(&drive, 60, WritePolicy::Through).expect("opens");
    let keys = store_one(&engine, 4);
    engine.pager.flush(PATIENT).expect("flushed");
    drive.inject(SimRule::new(SimFault::Error).on(SimKind::Sync).named("data"));
    let unsynced = store_one(&engine, 5);
    let error = engine.pager.flush(PATIENT).expect_err("it cannot be durable");
    assert!(matches!(error, DiskCommandError::ReadOnly { .. }), "{error}");
    let health = engine.pager.disk_health().expect("a disk tier");
    assert!(matches!(&health, DiskHealth::ReadOnly { reason } if reason.contains("data")));
    let written = engine.pager.counters().written;
    store_one(&engine, 6);
    assert_eq!(engine.pager.counters().written, written, "no more writes");
    // The other group's syncs succeed, and say nothing about this one.
    drive.clear_faults();
    std::thread::sleep(2 * DEFAULT_SYNC_INTERVAL);
    for key in &unsynced[0][1..] {
        assert_ne!(engine.pager.point(*key), Some(StorePoint::Durable), "{key}");
    }
    assert_eq!(hit_tokens(&engine, 4), ALL_TOKENS, "what it holds is still served");
    assert_eq!(engine.pager.point(keys[0][0]), Some(StorePoint::Durable));
    assert!(!close(engine), "the next open must scan");
}

#[test]
fn a_drive_that_disappears_costs_its_hits_and_nothing_else() {
    let drive = SimDrive::new(4);
    let engine = open(&drive, 14, WritePolicy::Through).expect("opens");
    run(&engine, 1, 60);
    drive.inject(SimRule::new(SimFault::Vanish).at(0));
    run(&engine, 2, 200);
    let health = wait_for(&engine, |health| matches!(health, DiskHealth::Lost { .. }));
    assert!(!health.takes_writes());
    let before = engine.pager.counters();
    run(&engine, 3, 40);
    let after = engine.pager.counters();
    assert_eq!((after.disk_hits, after.promoted), (before.disk_hits, before.promoted));
    assert!(after.host_hits > before.host_hits, "the host tier goes on");
    assert!(!close(engine), "the next open must scan");
    // The drive is back, as after a reset of its controller: what it holds is found again.
    drive.cut_power();
    let engine = open(&drive, 14, WritePolicy::Through).expect("opens");
    wait_for(&engine, |health| *health == DiskHealth::Serving);
    assert!(engine.pager.counters().adopted > 0);
    run(&engine, 4, 20);
    assert!(close(engine));
}

#[test]
fn what_was_cleared_never_comes_back() {
    let drive = SimDrive::new(5);
    let engine = open(&drive, 60, WritePolicy::Through).expect("opens");
    let cleared = store_one(&engine, 4);
    engine.pager.flush(PATIENT).expect("flushed");
    engine.pager.clear(PATIENT).expect("cleared");
    // Too little to be written over all that must not be found.
    let stages = Worker::new(&engine, 0).request(5, 2);
    assert!(stages.iter().all(|stage| *stage == Stage::Done), "{stages:?}");
    engine.pager.flush(PATIENT).expect("flushed");
    drive.cut_power();
    close(engine);
    let engine = open(&drive, 60, WritePolicy::Through).expect("opens");
    wait_for(&engine, |health| *health == DiskHealth::Serving);
    for (group, count) in [(0, 2), (1, 4)] {
        for key in keys(group, 5, count) {
            assert!(engine.pager.point(key).is_some(), "{key} was stored after the clear");
        }
    }
    for key in cleared.iter().flatten() {
        assert_eq!(engine.pager.point(*key), None, "{key} was cleared");
    }
    assert!(close(engine));
}

#[test]
fn what_still_waited_for_its_write_when_it_was_cleared_never_comes_back() {
    let drive = SimDrive::new(11);
    let engine = open(&drive, 60, WritePolicy::Through).expect("opens");
    let written = store_one(&engine, 5);
    engine.pager.flush(PATIENT).expect("flushed");
    drive.cut_power();
    close(engine);
    // The disk thread is kept busy where it tells of its scan, so that writes wait for it.
    let (is_held, gate) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
    let (listener_held, listener_gate) = (Arc::clone(&is_held), Arc::clone(&gate));
    let mut settings = settings(WritePolicy::Through);
    settings.on_progress = Some(ProgressListener::new(move |group, progress| {
        if group == GroupIndex::new(0) && progress.scanned == progress.slots {
            listener_gate.store(true, Ordering::SeqCst);
            while listener_held.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }));
    let device = CpuConfig { out_pieces: 8, in_pieces: 8 };
    let disk = Some((settings, drive.disk(7)));
    let engine = Engine::open_with(60, device, PATIENT, disk).expect("opens");
    let start = Instant::now();
    while !gate.load(Ordering::SeqCst) {
        assert!(start.elapsed() < PATIENT, "the scan does not come to its end");
        std::thread::sleep(Duration::from_millis(1));
    }
    let waiting = store_one(&engine, 4);
    assert_eq!(engine.pager.clear(Duration::ZERO), Err(DiskCommandError::TimedOut));
    is_held.store(false, Ordering::SeqCst);
    // Nothing is stored after it that would be written over what must not be there.
    engine.pager.flush(PATIENT).expect("flushed");
    drive.cut_power();
    close(engine);
    let engine = open(&drive, 60, WritePolicy::Through).expect("opens");
    wait_for(&engine, |health| *health == DiskHealth::Serving);
    // Key by key: of the group that was not scanned then, nothing waited.
    for key in [written, waiting].iter().flatten().flatten() {
        assert_eq!(engine.pager.point(*key), None, "{key} was cleared");
    }
    assert!(close(engine));
}

#[test]
fn the_longest_sync_interval_is_no_panic() {
    let drive = SimDrive::new(13);
    let mut settings = settings(WritePolicy::Through);
    settings.sync_interval = Duration::MAX;
    let device = CpuConfig { out_pieces: 8, in_pieces: 8 };
    let disk = Some((settings, drive.disk(7)));
    let engine = Engine::open_with(60, device, PATIENT, disk).expect("opens");
    let keys = store_one(&engine, 4);
    engine.pager.flush(PATIENT).expect("a flush syncs all the same");
    assert_eq!(engine.pager.point(keys[0][0]), Some(StorePoint::Durable));
    assert!(close(engine));
}

#[test]
fn closing_ends_with_more_reads_waiting_than_the_drive_ever_ends() {
    // No operation that hangs is reported before the end of the test.
    let options = SimOptions { io_timeout: Duration::from_hours(10 * 24), ..SimOptions::default() };
    let drive = SimDrive::with_options(12, options);
    let engine = open(&drive, 60, WritePolicy::Through).expect("opens");
    let keys = store_one(&engine, 4);
    assert!(close(engine));
    let mut settings = settings(WritePolicy::Through);
    settings.io_timeout = Duration::from_millis(50);
    settings.scrub_budget = ByteCount::new(0);
    // Two reads at a time, of twelve.
    settings.depth = 1;
    let device = CpuConfig { out_pieces: 8, in_pieces: 8 };
    let disk = Some((settings, drive.disk(7)));
    let engine = Engine::open_changed(60, device, disk, |config| {
        config.close_timeout = Duration::from_millis(50);
    });
    let engine = engine.expect("opens");
    drive.inject(SimRule::new(SimFault::Hang).on(SimKind::Read).named("data"));
    let lists: Vec<&[_]> = keys.iter().map(Vec::as_slice).collect();
    let plan = engine.pager.lookup(&lists).expect("a plan is free");
    assert_eq!(plan.tokens().get(), ALL_TOKENS);
    let worker = Worker::new(&engine, 0);
    let blocks: Vec<_> =
        (0..keys[0].len()).flat_map(|chunk| worker.blocks_of(chunk).to_vec()).collect();
    drop(worker);
    let (group, ready) = (GroupIndex::new(0), Ready::Now);
    let chunks = LoadChunks { group, keys: &keys[0], blocks: &blocks, ready, timeout: None };
    let ticket = engine.pager.load(&plan, chunks).expect("a good request");
    drop(plan);
    let engine = Arc::into_inner(engine).expect("its workers are gone");
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(engine.pager.close()));
    let report = receiver.recv_timeout(PATIENT).expect("closing ends");
    assert!(!report.is_drained && !report.is_disk_clean);
    let report = ticket.wait_for(PATIENT).expect("a ticket ends");
    assert_eq!(report.stages, vec![Stage::Failed(Failure::Disk); keys[0].len()]);
}

#[test]
fn a_scan_tells_how_far_it_came_up_to_the_last_slot() {
    let drive = SimDrive::new(8);
    let engine = open(&drive, 60, WritePolicy::Through).expect("opens");
    store_one(&engine, 4);
    engine.pager.flush(PATIENT).expect("flushed");
    drive.cut_power();
    close(engine);
    let told = Arc::new(Mutex::new(Vec::new()));
    let mut settings = settings(WritePolicy::Through);
    let listener = Arc::clone(&told);
    settings.on_progress = Some(ProgressListener::new(move |group, progress| {
        listener.lock().expect("no panic").push((group, progress));
    }));
    let device = CpuConfig { out_pieces: 8, in_pieces: 8 };
    let disk = Some((settings, drive.disk(7)));
    let engine = Engine::open_with(60, device, PATIENT, disk).expect("opens");
    wait_for(&engine, |health| *health == DiskHealth::Serving);
    let told = told.lock().expect("no panic");
    for group in [0, 1].map(GroupIndex::new) {
        let of_group: Vec<_> = told.iter().filter(|(told, _)| *told == group).collect();
        assert!(of_group.is_sorted_by_key(|(_, progress)| progress.scanned));
        let (_, last) = of_group.last().expect("at least once");
        assert_eq!(last.scanned, last.slots);
        let expected = if group.get() == 0 { CHUNKS } else { 2 * CHUNKS };
        assert_eq!(last.chunks, expected, "what was flushed");
    }
    drop(told);
    assert!(close(engine));
}

#[test]
fn a_slot_whose_header_cannot_be_read_stops_no_write_to_the_others() {
    let drive = SimDrive::new(14);
    let engine = open(&drive, 60, WritePolicy::Through).expect("opens");
    store_one(&engine, 4);
    engine.pager.flush(PATIENT).expect("flushed");
    drive.cut_power();
    close(engine);
    drive.inject(SimRule::new(SimFault::Error).on(SimKind::Read).named("data").at(3));
    let engine = open(&drive, 60, WritePolicy::Through).expect("opens");
    wait_for(&engine, |health| *health == DiskHealth::Serving);
    // More than the disk holds, so that it must evict.
    for conversation in 0..30 {
        Worker::new(&engine, 0).request(100 + 4 * conversation, CHUNKS);
        // Each, since stores are refused while host memory is full of chunks being written.
        engine.pager.flush(PATIENT).expect("nothing waits for that slot");
    }
    let slots = [0, 1].map(|group| engine.pager.disk_slots(GroupIndex::new(group)));
    let unscanned: u32 = slots.iter().flatten().map(|counts| counts.unscanned).sum();
    assert_eq!(unscanned, 1);
    assert!(slots.iter().flatten().any(|counts| counts.free == 0), "the disk is full: {slots:?}");
    assert!(close(engine));
}

#[test]
fn scrubbing_gives_up_what_rotted_before_anybody_asks_for_it() {
    let drive = SimDrive::new(9);
    let mut settings = settings(WritePolicy::Through);
    settings.scrub_budget = ByteCount::new(1 << 30);
    let device = CpuConfig { out_pieces: 8, in_pieces: 8 };
    let disk = Some((settings, drive.disk(7)));
    let engine = Engine::open_with(60, device, PATIENT, disk).expect("opens");
    let keys = store_one(&engine, 4);
    engine.pager.flush(PATIENT).expect("flushed");
    let start = Instant::now();
    let scrubbed = |slots: u64| {
        while engine.pager.scrubbed().slots < slots {
            assert!(start.elapsed() < PATIENT, "{:?}", engine.pager.scrubbed());
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let chunks = u64::from(3 * CHUNKS);
    scrubbed(2 * chunks);
    assert_eq!(engine.pager.scrubbed().rotten, 0, "nothing rotted yet");
    // Several, since a bit of the padding is no rot.
    for number in 0..12 {
        drive.inject(SimRule::new(SimFault::FlipAtRest).on(SimKind::Read).named("data").at(number));
    }
    scrubbed(engine.pager.scrubbed().slots + 2 * chunks);
    let rotten = usize::try_from(engine.pager.scrubbed().rotten).expect("at most 12");
    assert!(rotten > 0, "a bit in twelve slots is seen");
    let points = keys.iter().flatten().map(|key| engine.pager.point(*key));
    let demoted = points.filter(|point| *point == Some(StorePoint::Host)).count();
    assert_eq!(demoted, rotten, "their copies in host memory are as good as before");
    assert_eq!(hit_tokens(&engine, 4), ALL_TOKENS);
    assert!(close(engine));
}

#[test]
fn two_engines_side_by_side_take_directories_of_their_own_and_a_later_one_adopts_the_first() {
    let drive = SimDrive::new(6);
    let first = open(&drive, 60, WritePolicy::Through).expect("opens");
    store_one(&first, 4);
    let second = open(&drive, 60, WritePolicy::Through);
    // The root has room for one only: refused, not taken from the first.
    assert!(second.is_none(), "the capacity covers the whole root");
    assert!(close(first));
    let third = open(&drive, 60, WritePolicy::Through).expect("opens");
    assert_eq!(hit_tokens(&third, 4), ALL_TOKENS);
    assert!(close(third));
}
