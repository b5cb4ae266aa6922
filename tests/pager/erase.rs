//! Erasing by keys and by tenant: what was erased is found in no tier any more, whatever the drive
//! does, and all else is where it was.

use crate::disk::{
    ALL_TOKENS, CHUNKS, close, hit_tokens, open, run, settings, store_for, store_one, wait_for,
};
use crate::engine::{Engine, PATIENT, Worker, keys};
use crate::support::{content, scatter};
use kvtide::core::{Failure, Stage, StorePoint, WritePolicy};
use kvtide::device::Ready;
use kvtide::device::cpu::CpuConfig;
use kvtide::fingerprint::KeyMode;
use kvtide::io::sim::{SimDrive, SimFault, SimKind, SimOptions, SimRule};
use kvtide::key::{Key, KeyChain, TenantSalt};
use kvtide::pager::{
    DiskCommandError, DiskHealth, Erasure, LoadChunks, ProgressListener, StoreChunks,
};
use kvtide::units::{GroupIndex, TenantId, TokenCount};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

const ALICE: TenantId = TenantId::new(1);
/// Beyond 32 bits, and not of the same tag as Alice.
const BOB: TenantId = TenantId::new(7 << 32 | 2);
const FULL: GroupIndex = GroupIndex::new(0);
const PIECES: CpuConfig = CpuConfig { out_pieces: 8, in_pieces: 8 };
/// Conversations that share no chunk.
const HERS: u64 = 4;
const HIS: u64 = 8;

/// Both ways to name what is hers.
fn erasures_of_hers() -> [Erasure; 2] {
    [Erasure::Keys(keys_of(HERS)), Erasure::Tenant(ALICE)]
}

fn keys_of(conversation: u64) -> Vec<Key> {
    [(0, CHUNKS), (1, 2 * CHUNKS)]
        .into_iter()
        .flat_map(|(group, count)| keys(group, conversation, count))
        .collect()
}

/// Cuts the power, and opens what is left.
fn restart(drive: &SimDrive, engine: Arc<Engine>) -> Arc<Engine> {
    drive.cut_power();
    close(engine);
    let engine = open(drive, 60, WritePolicy::Through).expect("what is left is a store");
    wait_for(&engine, |health| *health == DiskHealth::Serving);
    engine
}

fn assert_gone(engine: &Engine, conversation: u64) {
    for key in keys_of(conversation) {
        assert_eq!(engine.pager.point(key), None, "{key} was erased");
    }
}

#[test]
fn what_was_erased_never_comes_back_and_all_else_stays() {
    for (seed, erasure) in (0..).zip(erasures_of_hers()) {
        for is_cut in [true, false] {
            let drive = SimDrive::new(seed);
            let engine = open(&drive, 60, WritePolicy::Through).expect("opens");
            store_for(&engine, HERS, ALICE);
            store_for(&engine, HIS, BOB);
            engine.pager.flush(PATIENT).expect("flushed");
            engine.pager.erase(&erasure, PATIENT).expect("erased");
            assert_gone(&engine, HERS);
            assert_eq!(hit_tokens(&engine, HIS), ALL_TOKENS, "{erasure:?}");
            let engine = if is_cut {
                restart(&drive, engine)
            } else {
                assert!(close(engine), "an erasure leaves a store that closes cleanly");
                open(&drive, 60, WritePolicy::Through).expect("opens")
            };
            assert_gone(&engine, HERS);
            for key in keys_of(HIS) {
                assert!(engine.pager.point(key) > Some(StorePoint::Host), "{erasure:?}");
            }
            assert_eq!(hit_tokens(&engine, HIS), ALL_TOKENS, "{erasure:?}");
            assert_eq!(engine.pager.counters().lost, 0);
            assert!(close(engine));
        }
    }
}

#[test]
fn what_is_stored_again_after_an_erasure_stays() {
    for (seed, erasure) in (0..).zip(erasures_of_hers()) {
        let drive = SimDrive::new(seed);
        let engine = open(&drive, 60, WritePolicy::Through).expect("opens");
        for _ in 0..3 {
            store_for(&engine, HERS, ALICE);
            engine.pager.erase(&erasure, PATIENT).expect("erased");
            assert_gone(&engine, HERS);
        }
        store_for(&engine, HERS, ALICE);
        engine.pager.flush(PATIENT).expect("flushed");
        let engine = restart(&drive, engine);
        assert_eq!(hit_tokens(&engine, HERS), ALL_TOKENS, "{erasure:?}");
        assert_eq!(engine.pager.counters().lost, 0);
        assert!(close(engine));
    }
}

#[test]
fn a_power_cut_at_any_step_of_an_erasure_costs_nothing_else() {
    let (mut erased_count, mut cut_count) = (0, 0);
    for steps in 0..60 {
        let erasure = &erasures_of_hers()[usize::from(steps % 2 == 1)];
        let drive = SimDrive::new(steps);
        let engine = open(&drive, 60, WritePolicy::Through).expect("opens");
        store_for(&engine, HERS, ALICE);
        store_for(&engine, HIS, BOB);
        engine.pager.flush(PATIENT).expect("flushed");
        drive.cut_after(steps);
        let erased = engine.pager.erase(erasure, PATIENT);
        let engine = restart(&drive, engine);
        if erased.is_ok() {
            erased_count += 1;
            assert_gone(&engine, HERS);
        } else {
            cut_count += 1;
            assert!(matches!(erased, Err(DiskCommandError::NotErased { .. })), "{erased:?}");
        }
        assert_eq!(hit_tokens(&engine, HIS), ALL_TOKENS, "after {steps} steps");
        // Erased once more, it is gone for good.
        engine.pager.erase(erasure, PATIENT).expect("erased");
        let engine = restart(&drive, engine);
        assert_gone(&engine, HERS);
        assert_eq!(hit_tokens(&engine, HIS), ALL_TOKENS, "after {steps} steps");
        assert!(close(engine));
    }
    assert!(erased_count > 0 && cut_count > 0, "{erased_count} erased, {cut_count} cut");
}

#[test]
fn among_requests_and_faults_an_erasure_that_succeeds_is_one() {
    use SimFault::{Error, FlipAtRest, FlipOnWire, Stall};
    let mut erased_count = 0;
    for (seed, fault) in (0..).zip([None, Some(Error), Some(Stall), Some(FlipOnWire)].repeat(3)) {
        let drive = SimDrive::new(seed);
        let engine = open(&drive, 14, WritePolicy::Through).expect("opens");
        if let Some(fault) = fault {
            drive.inject(SimRule::new(fault).on(SimKind::Write).named("data").one_in(40));
            drive.inject(SimRule::new(FlipAtRest).on(SimKind::Read).named("data").one_in(40));
        }
        let requests = {
            let engine = Arc::clone(&engine);
            std::thread::spawn(move || run(&engine, seed, 60))
        };
        for number in 0..20 {
            let chance = scatter(seed << 32 | number);
            let erasure = match chance % 3 {
                0 => Erasure::Tenant(TenantId::new(0)),
                _ => Erasure::Keys(keys_of(chance >> 8 & 7)),
            };
            // A drive that failed it for good is seen below.
            let _maybe = engine.pager.erase(&erasure, PATIENT);
        }
        requests.join().expect("no wrong byte");
        let everything = engine.pager.erase(&Erasure::Tenant(TenantId::new(0)), PATIENT);
        engine.pager.audit().expect("all invariants hold");
        let engine = restart(&drive, engine);
        if everything.is_ok() {
            erased_count += 1;
            for conversation in 0..9 {
                assert_gone(&engine, conversation);
            }
        }
        assert!(everything.is_ok() || fault.is_some(), "{everything:?}");
        close(engine);
    }
    assert!(erased_count > 3);
}

#[test]
fn of_a_store_under_way_only_what_was_erased_ends_cleared() {
    for (number, erasure) in (0..).zip(erasures_of_hers()) {
        let drive = SimDrive::new(number);
        let engine = open(&drive, 60, WritePolicy::Through).expect("opens");
        let worker = Worker::new(&engine, 0);
        let (hers, his) = (keys(0, HERS, 6), keys(0, HIS, 6));
        let (hold, until) = channel::<()>();
        for (key, chunk) in hers.iter().chain(&his).zip(0..) {
            engine.write(FULL, *key, worker.blocks_of(chunk));
        }
        worker.stream.launch(move || {
            let _ended = until.recv();
        });
        worker.stream.record(worker.event).expect("the device's own event");
        // More than the staging ring takes: some hops have begun, others wait.
        let tickets = [(&hers, ALICE, 0), (&his, BOB, 6)].map(|(keys, tenant, first)| {
            let blocks: Vec<_> =
                (first..first + 6).flat_map(|chunk| worker.blocks_of(chunk).to_vec()).collect();
            let chunks = StoreChunks {
                group: FULL,
                parent: None,
                keys,
                blocks: &blocks,
                tenant,
                ready: Ready::After(worker.event),
                timeout: None,
            };
            engine.pager.store(chunks).expect("a good request")
        });
        engine.pager.erase(&erasure, PATIENT).expect("nothing of it is on disk");
        drop(hold);
        let [hers_ended, his_ended] = tickets.map(|ticket| ticket.wait().stages);
        assert_eq!(hers_ended, vec![Stage::Failed(Failure::Cleared); 6], "{erasure:?}");
        assert_eq!(his_ended, vec![Stage::Done; 6], "{erasure:?}");
        assert_eq!(worker.store(FULL, &hers, 0).stages, vec![Stage::Done; 6]);
        drop(worker);
        assert!(close(engine));
    }
}

#[test]
fn of_a_load_under_way_only_what_was_erased_ends_cleared() {
    for (seed, is_on_disk) in [(0, false), (1, true), (2, true)] {
        let drive = SimDrive::new(seed);
        let mut engine = open(&drive, 60, WritePolicy::Through).expect("opens");
        let lists = store_one(&engine, HERS);
        if is_on_disk {
            assert!(close(engine));
            engine = open(&drive, 60, WritePolicy::Through).expect("opens");
        }
        let worker = Worker::new(&engine, 0);
        let (hold, until) = channel::<()>();
        worker.stream.launch(move || {
            let _ended = until.recv();
        });
        worker.stream.record(worker.event).expect("the device's own event");
        let plan = engine.pager.lookup(&[&lists[0], &lists[1]]).expect("a plan is free");
        assert_eq!(plan.tokens().get(), ALL_TOKENS);
        let blocks: Vec<_> =
            (0..lists[0].len()).flat_map(|chunk| worker.blocks_of(chunk).to_vec()).collect();
        let ready = Ready::After(worker.event);
        let chunks =
            LoadChunks { group: FULL, keys: &lists[0], blocks: &blocks, ready, timeout: None };
        let ticket = engine.pager.load(&plan, chunks).expect("a good request");
        let is_erased = |position: usize| position % 3 == 1;
        let erased = (0..lists[0].len()).filter(|at| is_erased(*at)).map(|at| lists[0][at]);
        engine.pager.erase(&Erasure::Keys(erased.collect()), PATIENT).expect("erased");
        drop(hold);
        for (position, stage) in ticket.wait().stages.into_iter().enumerate() {
            let expected =
                if is_erased(position) { Stage::Failed(Failure::Cleared) } else { Stage::Done };
            assert_eq!(stage, expected, "position {position}");
            if !is_erased(position) {
                engine.compare(FULL, lists[0][position], worker.blocks_of(position));
            }
        }
        drop((plan, worker));
        // The chunks below are reached again once what was erased is stored again.
        assert_eq!(hit_tokens(&engine, HERS), 32, "up to the first that was erased");
        assert_eq!(hit_tokens(&engine, HERS), ALL_TOKENS);
        assert!(close(engine));
    }
}

/// Opens what a power cut left, with one header that the drive takes for ever to read: so the scan
/// does not end before that is given up, after `io_timeout` of the drive's time.
fn open_scanning(seed: u64, io_timeout: Duration) -> (SimDrive, Arc<Engine>) {
    let options = SimOptions { io_timeout, ..SimOptions::default() };
    let drive = SimDrive::with_options(seed, options);
    let engine = open(&drive, 60, WritePolicy::Through).expect("opens");
    store_for(&engine, HERS, ALICE);
    store_for(&engine, HIS, BOB);
    engine.pager.flush(PATIENT).expect("flushed");
    drive.cut_power();
    close(engine);
    // Behind the chunks of both, which lie in the first slots.
    let stall = SimRule::new(SimFault::Stall).on(SimKind::Read).named("data");
    drive.inject(stall.at(u64::from(2 * CHUNKS) + 2));
    let engine = open(&drive, 60, WritePolicy::Through).expect("opens");
    (drive, engine)
}

#[test]
fn an_erasure_of_a_store_that_is_being_scanned_is_done_when_that_is_over() {
    for (seed, erasure) in (0..).zip(erasures_of_hers()) {
        let (drive, engine) = open_scanning(seed, SimOptions::default().io_timeout);
        engine.pager.erase(&erasure, PATIENT).expect("erased");
        assert_gone(&engine, HERS);
        wait_for(&engine, |health| *health == DiskHealth::Serving);
        assert_gone(&engine, HERS);
        assert_eq!(hit_tokens(&engine, HIS), ALL_TOKENS, "{erasure:?}");
        let engine = restart(&drive, engine);
        assert_gone(&engine, HERS);
        assert_eq!(hit_tokens(&engine, HIS), ALL_TOKENS, "{erasure:?}");
        assert!(close(engine));
    }
}

#[test]
fn an_erasure_that_waits_for_a_scan_says_so_and_hides_what_that_finds() {
    for (seed, erasure) in (0..).zip(erasures_of_hers()) {
        let (drive, engine) = open_scanning(seed, Duration::from_hours(10 * 24));
        let pending = engine.pager.erase(&erasure, Duration::from_millis(300));
        assert_eq!(pending, Err(DiskCommandError::ErasurePending));
        let start = Instant::now();
        while keys_of(HIS)[..CHUNKS as usize].iter().any(|key| engine.pager.point(*key).is_none()) {
            assert!(start.elapsed() < PATIENT, "what is his is found");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_gone(&engine, HERS);
        // Stored meanwhile, it is nothing that was to be erased.
        store_for(&engine, HERS, ALICE);
        drive.cut_power();
        close(engine);
    }
}

#[test]
fn what_the_scan_finds_before_the_erasure_is_told_is_erased_too() {
    let drive = SimDrive::new(3);
    let engine = open(&drive, 60, WritePolicy::Through).expect("opens");
    store_for(&engine, HERS, ALICE);
    store_for(&engine, HIS, BOB);
    engine.pager.flush(PATIENT).expect("flushed");
    drive.cut_power();
    close(engine);
    // The disk thread is held where it tells of its scan.
    let (is_held, is_there) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
    let (held, there) = (Arc::clone(&is_held), Arc::clone(&is_there));
    let mut settings = settings(WritePolicy::Through);
    settings.on_progress = Some(ProgressListener::new(move |_, _| {
        there.store(true, Ordering::SeqCst);
        while held.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }));
    let disk = Some((settings, drive.disk(7)));
    let engine = Engine::open_with(60, PIECES, PATIENT, disk).expect("opens");
    let start = Instant::now();
    while !is_there.load(Ordering::SeqCst) {
        assert!(start.elapsed() < PATIENT, "the scan does not begin");
        std::thread::sleep(Duration::from_millis(1));
    }
    let pending = engine.pager.erase(&Erasure::Tenant(ALICE), Duration::ZERO);
    assert_eq!(pending, Err(DiskCommandError::ErasurePending));
    is_held.store(false, Ordering::SeqCst);
    engine.pager.erase(&Erasure::Tenant(ALICE), PATIENT).expect("erased");
    let engine = restart(&drive, engine);
    assert_gone(&engine, HERS);
    assert_eq!(hit_tokens(&engine, HIS), ALL_TOKENS);
    assert!(close(engine));
}

#[test]
fn no_erasure_is_durable_before_a_write_that_was_given_up_is_over() {
    let (mut pending_count, mut erased_count) = (0, 0);
    for seed in 0..24 {
        let drive = SimDrive::new(seed);
        let engine = open(&drive, 60, WritePolicy::Through).expect("opens");
        drive.inject(SimRule::new(SimFault::Hang).on(SimKind::Write).named("data").at(seed % 5));
        store_for(&engine, HERS, ALICE);
        engine.pager.flush(PATIENT).expect("one write fails, and flushes go on");
        assert!(engine.pager.counters().write_failures > 0, "seed {seed}");
        // It may land within a while of the drive's time, or hang for good.
        let late = drive.clock().now().after(200_000_000_000);
        let erasure = &erasures_of_hers()[usize::from(seed % 2 == 1)];
        let mut erased = Err(DiskCommandError::ErasurePending);
        while erased == Err(DiskCommandError::ErasurePending) && drive.clock().now() < late {
            erased = engine.pager.erase(erasure, Duration::from_millis(20));
            pending_count += u32::from(erased.is_err());
        }
        let is_erased = erased.is_ok();
        erased_count += u32::from(is_erased);
        let engine = restart(&drive, engine);
        if is_erased {
            assert_gone(&engine, HERS);
        }
        close(engine);
    }
    assert!(pending_count > 0 && erased_count > 0, "{pending_count} {erased_count}");
}

#[test]
fn an_erasure_that_the_drive_fails_names_the_directory() {
    let drive = SimDrive::new(9);
    let engine = open(&drive, 60, WritePolicy::Through).expect("opens");
    store_for(&engine, HERS, ALICE);
    store_for(&engine, HIS, BOB);
    engine.pager.flush(PATIENT).expect("flushed");
    drive.inject(SimRule::new(SimFault::Error).on(SimKind::Write).named("data"));
    let error = engine.pager.erase(&Erasure::Tenant(ALICE), PATIENT).expect_err("it is failed");
    let DiskCommandError::NotErased { unreached } = &error else { panic!("{error}") };
    let message = error.to_string();
    assert!(!unreached.is_empty());
    for one in unreached {
        assert!(message.contains(&one.directory.display().to_string()), "{message}");
    }
    assert!(message.contains("check the drives"), "{message}");
    assert_gone(&engine, HERS);
    assert_eq!(hit_tokens(&engine, HIS), ALL_TOKENS, "what was not erased is still served");
    wait_for(&engine, |health| matches!(health, DiskHealth::ReadOnly { .. }));
    close(engine);
}

#[test]
fn two_tenants_with_the_same_tokens_are_erased_apart() {
    let content = content("simulated", KeyMode::Tokens);
    let keys_of_salt = |salt: &[u8]| {
        let salt = TenantSalt::new(salt);
        let mut chain = KeyChain::tokens(&content, &salt, FULL, TokenCount::new(32));
        let chain = chain.as_mut().expect("the mode fits");
        chain.push(&[5; 32 * 4]).expect("few tokens").to_vec()
    };
    let (hers, his) = (keys_of_salt(b"alice"), keys_of_salt(b"bob"));
    assert!(hers.iter().all(|key| !his.contains(key)));
    for erasure in [Erasure::Keys(hers.clone()), Erasure::Tenant(ALICE)] {
        let drive = SimDrive::new(10);
        let engine = open(&drive, 60, WritePolicy::Through).expect("opens");
        for (keys, tenant) in [(&hers, ALICE), (&his, BOB)] {
            let worker = Worker::of_tenant(&engine, 0, tenant);
            assert_eq!(worker.store(FULL, keys, 0).stages, vec![Stage::Done; 4]);
        }
        engine.pager.flush(PATIENT).expect("flushed");
        engine.pager.erase(&erasure, PATIENT).expect("erased");
        let engine = restart(&drive, engine);
        assert!(hers.iter().all(|key| engine.pager.point(*key).is_none()), "{erasure:?}");
        assert!(his.iter().all(|key| engine.pager.point(*key).is_some()), "{erasure:?}");
        assert!(close(engine));
    }
}

#[test]
fn a_chunk_on_disk_stays_whose_it_was() {
    let drive = SimDrive::new(11);
    let engine = open(&drive, 60, WritePolicy::Through).expect("opens");
    store_for(&engine, HERS, BOB);
    assert!(close(engine));
    // On disk only, it is stored by Alice too: a host copy of what is Bob's.
    let engine = open(&drive, 60, WritePolicy::Through).expect("opens");
    let worker = Worker::of_tenant(&engine, 0, ALICE);
    let lists = [keys(0, HERS, CHUNKS), keys(1, HERS, 2 * CHUNKS)];
    for (group, keys) in [0, 1].map(GroupIndex::new).into_iter().zip(&lists) {
        assert!(worker.store(group, keys, 0).stages.iter().all(|stage| *stage == Stage::Done));
    }
    drop(worker);
    engine.pager.flush(PATIENT).expect("flushed");
    engine.pager.erase(&Erasure::Tenant(ALICE), PATIENT).expect("erased");
    assert_eq!(hit_tokens(&engine, HERS), ALL_TOKENS, "Bob's");
    assert!(close(engine));
    let engine = open(&drive, 60, WritePolicy::Through).expect("opens");
    assert_eq!(hit_tokens(&engine, HERS), ALL_TOKENS, "Bob's, after a restart");
    engine.pager.erase(&Erasure::Tenant(BOB), PATIENT).expect("erased");
    let engine = restart(&drive, engine);
    assert_gone(&engine, HERS);
    assert!(close(engine));
}

#[test]
fn erasures_and_clears_at_the_same_time_are_all_done() {
    let drive = SimDrive::new(12);
    let engine = open(&drive, 60, WritePolicy::Through).expect("opens");
    store_for(&engine, HERS, ALICE);
    store_for(&engine, HIS, BOB);
    engine.pager.flush(PATIENT).expect("flushed");
    std::thread::scope(|scope| {
        for number in 0..4 {
            let pager = &engine.pager;
            scope.spawn(move || {
                for round in 0..100 {
                    match (number + round) % 4 {
                        0 => pager.clear(PATIENT).expect("cleared"),
                        1 => {
                            let hers = Erasure::Keys(keys_of(HERS));
                            pager.erase(&hers, PATIENT).expect("erased");
                        }
                        // More tenants than one sweep remembers.
                        _ => {
                            let tenant = TenantId::new(number * 1000 + round);
                            pager.erase(&Erasure::Tenant(tenant), PATIENT).expect("erased");
                        }
                    }
                }
            });
        }
    });
    engine.pager.audit().expect("all invariants hold");
    store_for(&engine, 12, BOB);
    engine.pager.flush(PATIENT).expect("flushed");
    let engine = restart(&drive, engine);
    for conversation in [HERS, HIS] {
        assert_gone(&engine, conversation);
    }
    assert_eq!(hit_tokens(&engine, 12), ALL_TOKENS);
    assert!(close(engine));
}

#[test]
fn the_staging_of_what_was_cleared_or_erased_comes_back() {
    let erase = |engine: &Engine| {
        engine.pager.erase(&Erasure::Keys(keys(0, HERS, 8)), Duration::ZERO).expect("erased");
    };
    let clear = |engine: &Engine| engine.pager.clear(Duration::ZERO).expect("cleared");
    for drop_it in [&erase as &dyn Fn(&Engine), &clear] {
        let engine = Engine::open(80, PIECES, PATIENT);
        let worker = Worker::new(&engine, 0);
        let keys = keys(0, HERS, 8);
        let blocks: Vec<_> = (0..8).flat_map(|chunk| worker.blocks_of(chunk).to_vec()).collect();
        for _ in 0..3 {
            let (hold, until) = channel::<()>();
            worker.stream.launch(move || {
                let _ended = until.recv();
            });
            worker.stream.record(worker.event).expect("the device's own event");
            let ticket = engine.pager.store(StoreChunks {
                group: FULL,
                parent: None,
                keys: &keys,
                blocks: &blocks,
                tenant: ALICE,
                ready: Ready::After(worker.event),
                timeout: None,
            });
            drop_it(&engine);
            drop(hold);
            let report = ticket.expect("a good request").wait();
            assert_eq!(report.stages, vec![Stage::Failed(Failure::Cleared); 8]);
        }
        assert_eq!(worker.store(FULL, &keys, 0).stages, vec![Stage::Done; 8]);
        drop(worker);
        assert!(close(engine));
    }
}

#[test]
fn without_a_disk_tier_erasing_is_done_at_once() {
    for erasure in erasures_of_hers() {
        let engine = Engine::open(80, PIECES, PATIENT);
        store_for(&engine, HERS, ALICE);
        store_for(&engine, HIS, BOB);
        engine.pager.erase(&erasure, Duration::ZERO).expect("erased");
        assert_gone(&engine, HERS);
        assert_eq!(hit_tokens(&engine, HIS), ALL_TOKENS, "{erasure:?}");
        store_for(&engine, HERS, ALICE);
        assert_eq!(hit_tokens(&engine, HERS), ALL_TOKENS, "{erasure:?}");
        assert!(close(engine));
    }
}
