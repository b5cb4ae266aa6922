//! A disk tier over several directories: they are filled together, and one that fails, hangs or is
//! missing takes nothing from the others.

use crate::disk::{
    ALL_TOKENS, CHUNKS, close, hit_tokens, open_disk, run, settings, store_one, wait_for,
};
use crate::engine::{Engine, Worker, keys};
use kvtide::core::{Stage, StorePoint, WritePolicy};
use kvtide::device::cpu::CpuConfig;
use kvtide::io::sim::{SimDrive, SimFault, SimKind, SimOptions, SimRule};
use kvtide::pager::{
    DiskCommandError, DiskConfig, DiskHealth, DiskStripe, Erasure, Health, OpenError,
};
use kvtide::store::{StoreError, find_stores};
use kvtide::units::{ByteCount, GroupIndex};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::engine::PATIENT;

/// Capacity of each stripe: about half of what the tests store.
const CAPACITY: ByteCount = ByteCount::new(2 << 20);

/// A machine with two drives.
fn drives(seed: u64) -> SimDrive {
    drives_with(seed, SimOptions::default())
}

fn drives_with(seed: u64, options: SimOptions) -> SimDrive {
    let drive = SimDrive::with_options(seed, options);
    drive.mount(Path::new("one"));
    drive.mount(Path::new("two"));
    drive
}

fn striped(roots: &[&str]) -> DiskConfig {
    let mut settings = settings(WritePolicy::Through);
    settings.stripes = roots.iter().map(|root| DiskStripe::new(root, CAPACITY)).collect();
    settings
}

fn try_open(drive: &SimDrive, host: u64, roots: &[&str]) -> Result<Arc<Engine>, OpenError> {
    open_disk(drive, host, striped(roots))
}

fn open(drive: &SimDrive, host: u64) -> Arc<Engine> {
    try_open(drive, host, &["one", "two"]).expect("opens")
}

/// Bytes of the stores below a root.
fn bytes(drive: &SimDrive, root: &str) -> u64 {
    let stores = find_stores(&mut drive.disk(99), Path::new(root)).expect("it can be listed");
    stores.iter().map(|store| store.bytes.get()).sum()
}

/// Chunks that are durable, of both groups of a conversation.
fn durable(engine: &Engine, conversation: u64) -> usize {
    let lists =
        [(0, CHUNKS), (1, 2 * CHUNKS)].map(|(group, count)| keys(group, conversation, count));
    let points = lists.iter().flatten().map(|key| engine.pager.point(*key));
    points.filter(|point| *point == Some(StorePoint::Durable)).count()
}

const CHUNKS_OF_ONE: usize = 3 * CHUNKS as usize;

fn is_degraded(health: &DiskHealth, root: &str) -> bool {
    matches!(health, DiskHealth::Degraded { reason } if reason.contains(root))
}

#[test]
fn stripes_are_filled_together_each_within_its_capacity_and_come_back_warm() {
    let drive = drives(1);
    let engine = open(&drive, 14);
    run(&engine, 1, 100);
    let counters = engine.pager.counters();
    assert!(counters.promoted > 0, "{counters:?}");
    assert_eq!((counters.lost, counters.read_failures), (0, 0));
    assert!(close(engine));
    let engine = open(&drive, 60);
    store_one(&engine, 4);
    engine.pager.flush(PATIENT).expect("flushed");
    let slots = engine.pager.disk_slots(GroupIndex::new(0)).expect("the group is there");
    assert!(close(engine));
    let one = try_open(&drive, 14, &["one"]).expect("opens");
    let half = one.pager.disk_slots(GroupIndex::new(0)).expect("the group is there");
    assert_eq!(2 * (half.used + half.free), slots.used + slots.free);
    // With so small a host tier each has one write under way: what comes then takes the other.
    let unevenness = half.used.abs_diff(slots.used - half.used);
    assert!(unevenness <= slots.used / 4, "{half:?} of {slots:?}");
    assert!(close(one));
    for root in ["one", "two"] {
        let bytes = bytes(&drive, root);
        assert!(bytes > CAPACITY.get() / 2 && bytes <= CAPACITY.get(), "{bytes} in {root}");
    }
    // In another order than before.
    let engine = try_open(&drive, 14, &["two", "one"]).expect("opens");
    assert_eq!(engine.pager.disk_health(), Some(DiskHealth::Serving), "no scan is needed");
    assert_eq!(hit_tokens(&engine, 4), ALL_TOKENS);
    assert!(close(engine));
}

#[test]
fn what_was_flushed_to_several_stripes_survives_a_power_cut() {
    let drive = drives(2);
    let engine = open(&drive, 60);
    store_one(&engine, 4);
    engine.pager.flush(PATIENT).expect("flushed");
    assert_eq!(durable(&engine, 4), CHUNKS_OF_ONE);
    drive.cut_power();
    close(engine);
    let engine = open(&drive, 60);
    wait_for(&engine, |health| *health == DiskHealth::Serving);
    assert_eq!(hit_tokens(&engine, 4), ALL_TOKENS);
    assert_eq!(engine.pager.counters().lost, 0);
    assert!(close(engine));
}

#[test]
fn a_power_cut_at_any_step_of_two_stripes_never_brings_a_wrong_byte() {
    let mut warm = 0;
    for steps in (0..400).step_by(23) {
        let drive = drives(steps);
        drive.cut_after(steps);
        if let Ok(engine) = try_open(&drive, 14, &["one", "two"]) {
            run(&engine, steps, 30);
            close(engine);
        }
        drive.cut_power();
        let engine = open(&drive, 14);
        wait_for(&engine, |health| *health == DiskHealth::Serving);
        warm += engine.pager.counters().adopted;
        run(&engine, steps, 30);
        assert!(close(engine));
    }
    assert!(warm > 0, "some of the cuts left chunks behind");
}

#[test]
fn a_stripe_that_takes_no_more_writes_leaves_them_to_the_others() {
    let drive = drives(3);
    let engine = open(&drive, 60);
    store_one(&engine, 4);
    engine.pager.flush(PATIENT).expect("flushed");
    drive.inject(SimRule::new(SimFault::ReadOnly).on(SimKind::Write).named("two").at(0));
    store_one(&engine, 9);
    let health = wait_for(&engine, |health| is_degraded(health, "two"));
    assert!(health.takes_writes());
    engine.pager.flush(PATIENT).expect("a tier that is degraded flushes to what works");
    store_one(&engine, 14);
    engine.pager.flush(PATIENT).expect("flushed");
    // All groups have met the fault by now: what is written goes where it can be.
    engine.pager.flush(PATIENT).expect("flushed");
    assert_eq!(durable(&engine, 14), CHUNKS_OF_ONE);
    assert_eq!(hit_tokens(&engine, 4), ALL_TOKENS, "what the stripe holds is still served");
    assert_eq!(engine.pager.counters().lost, 0);
    close(engine);
}

#[test]
fn a_stripe_that_disappears_costs_its_own_hits_and_nothing_else() {
    let drive = drives(4);
    let engine = open(&drive, 14);
    run(&engine, 1, 60);
    drive.inject(SimRule::new(SimFault::Vanish).named("two").at(0));
    run(&engine, 2, 200);
    wait_for(&engine, |health| is_degraded(health, "two"));
    let before = engine.pager.counters();
    run(&engine, 3, 60);
    let after = engine.pager.counters();
    assert!(after.promoted > before.promoted, "the other is read");
    assert!(after.written > before.written, "and written");
    assert_eq!(engine.pager.health(), Health::Serving);
    assert!(!close(engine), "the next open must scan what was lost");
    drive.cut_power();
    let engine = open(&drive, 14);
    wait_for(&engine, |health| *health == DiskHealth::Serving);
    run(&engine, 4, 20);
    assert!(close(engine));
}

#[test]
fn a_tier_of_which_every_stripe_is_lost_is_lost() {
    let drive = drives(5);
    let engine = open(&drive, 14);
    run(&engine, 1, 60);
    for root in ["one", "two"] {
        drive.inject(SimRule::new(SimFault::Vanish).named(root).at(0));
    }
    run(&engine, 2, 200);
    wait_for(&engine, |health| matches!(health, DiskHealth::Lost { .. }));
    let error = engine.pager.flush(PATIENT).expect_err("nothing can be written");
    assert!(matches!(error, DiskCommandError::ReadOnly { .. }), "{error}");
    close(engine);
}

#[test]
fn loads_from_one_stripe_go_on_while_another_hangs() {
    let drive = drives_with(6, SimOptions { depth: 1, ..SimOptions::default() });
    let mut of_one = striped(&["one"]);
    of_one.depth = 1;
    let engine = open_disk(&drive, 60, of_one).expect("opens");
    store_one(&engine, 4);
    assert!(close(engine));
    let mut both = striped(&["one", "two"]);
    both.depth = 1;
    let engine = open_disk(&drive, 60, both).expect("opens");
    store_one(&engine, 9);
    engine.pager.flush(PATIENT).expect("flushed");
    assert!(close(engine), "the emptier one took most of it");
    let mut both = striped(&["one", "two"]);
    both.depth = 1;
    let engine = open_disk(&drive, 60, both).expect("opens");
    drive.inject(SimRule::new(SimFault::Hang).on(SimKind::Read).named("two"));
    let other = Arc::clone(&engine);
    let hanging = std::thread::spawn(move || Worker::new(&other, 1).request(9, CHUNKS));
    let before = engine.compared.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(hit_tokens(&engine, 4), ALL_TOKENS);
    let compared = engine.compared.load(std::sync::atomic::Ordering::Relaxed) - before;
    assert!(compared >= u64::from(CHUNKS), "all of them were read");
    let ended = hanging.join().expect("no panic");
    assert!(ended.iter().any(|stage| matches!(stage, Stage::Failed(_))), "the others did not end");
    assert!(engine.pager.counters().read_failures > 0);
    close(engine);
}

#[test]
fn a_stripe_that_does_not_answer_its_scan_is_given_up_and_holds_no_write_back() {
    // Few reads at a time, so that the scan would time out many times over.
    let drive = drives_with(14, SimOptions { depth: 4, ..SimOptions::default() });
    let engine = open(&drive, 60);
    store_one(&engine, 4);
    engine.pager.flush(PATIENT).expect("flushed");
    drive.cut_power();
    close(engine);
    let stores = find_stores(&mut drive.disk(99), Path::new("two")).expect("it can be listed");
    for store in stores {
        let data = store.directory.join("data").display().to_string();
        drive.inject(SimRule::new(SimFault::Stall).on(SimKind::Read).named(&data));
    }
    let engine = open(&drive, 60);
    wait_for(&engine, |health| is_degraded(health, "two"));
    // More than the other holds, so that it must evict.
    for conversation in 0..12 {
        Worker::new(&engine, 0).request(100 + 4 * conversation, CHUNKS);
        engine.pager.flush(PATIENT).expect("nothing waits for the scan");
    }
    assert!(engine.pager.counters().written > 4 * u64::from(CHUNKS));
    assert!(!close(engine), "the next open must scan what was lost");
}

#[test]
fn a_stripe_that_is_missing_at_open_is_left_out_and_named() {
    let drive = drives(7);
    let engine = open(&drive, 60);
    store_one(&engine, 4);
    assert!(close(engine));
    drive.inject(SimRule::new(SimFault::Vanish).named("two"));
    let engine = open(&drive, 60);
    let health = engine.pager.disk_health().expect("a disk tier");
    assert!(is_degraded(&health, "two"), "{health}");
    let report = engine.pager.capabilities().to_string();
    assert!(report.contains("stripe of the disk tier: two cannot be opened"), "{report}");
    // A chain over both stripes ends where its first lost chunk was.
    let adopted = engine.pager.counters().adopted;
    assert!(adopted > 0 && adopted < CHUNKS_OF_ONE as u64, "{adopted}");
    run(&engine, 1, 60);
    engine.pager.flush(PATIENT).expect("what is there can be written");
    assert!(close(engine));
    // The drive is back: what it holds is served again.
    drive.clear_faults();
    drive.cut_power();
    let engine = open(&drive, 60);
    wait_for(&engine, |health| *health == DiskHealth::Serving);
    run(&engine, 2, 30);
    assert!(close(engine));
}

#[test]
fn a_clear_that_does_not_reach_every_stripe_says_which() {
    let drive = drives(8);
    let engine = open(&drive, 60);
    store_one(&engine, 4);
    assert!(close(engine));
    // Missing since the open.
    drive.inject(SimRule::new(SimFault::Vanish).named("two"));
    let engine = open(&drive, 60);
    let error = engine.pager.clear(PATIENT).expect_err("one stripe still holds old KV");
    assert_eq!(uncleared(&error), [Path::new("two")]);
    assert!(error.to_string().contains("two (") && error.to_string().contains("remove"), "{error}");
    close(engine);
    drive.clear_faults();
    drive.cut_power();
    // What was reached is cleared; a chunk of the other may come back, as the error says.
    let one = try_open(&drive, 60, &["one"]).expect("opens");
    wait_for(&one, |health| *health == DiskHealth::Serving);
    assert_eq!(one.pager.counters().adopted, 0);
    assert!(close(one));
    // Lost while it ran.
    let engine = open(&drive, 60);
    store_one(&engine, 9);
    engine.pager.flush(PATIENT).expect("flushed");
    drive.inject(SimRule::new(SimFault::Vanish).named("one").at(0));
    let error = engine.pager.clear(PATIENT).expect_err("one stripe still holds old KV");
    assert_eq!(uncleared(&error), [Path::new("one")]);
    assert_eq!(hit_tokens(&engine, 9), 0, "in this run nothing of it is found");
    close(engine);
    // Once both are there, a clear is one again.
    drive.clear_faults();
    drive.cut_power();
    let engine = open(&drive, 60);
    engine.pager.clear(PATIENT).expect("cleared");
    close(engine);
}

#[test]
fn what_somebody_has_to_put_right_is_an_error_though_another_stripe_opens() {
    let drive = drives(9);
    let mut held = striped(&["two"]);
    held.instance = Some(0);
    let other = open_disk(&drive, 14, held).expect("opens");
    let mut both = striped(&["one", "two"]);
    both.instance = Some(0);
    let refused = open_disk(&drive, 14, both).err();
    assert!(matches!(refused, Some(OpenError::Store(StoreError::Locked { .. }))), "{refused:?}");
    assert!(close(other));
    // Its own files are all closed again.
    assert!(close(open(&drive, 14)));
    drive.plant_link(Path::new("three"));
    let refused = try_open(&drive, 14, &["one", "three"]).err();
    assert!(matches!(refused, Some(OpenError::Store(StoreError::File(_)))), "{refused:?}");
    let mut small = striped(&["one", "two"]);
    small.stripes[1].capacity = ByteCount::new(4096);
    match open_disk(&drive, 14, small).err() {
        Some(OpenError::CapacityTooSmall { field, .. }) => {
            assert_eq!(field, "disk.stripes[1].capacity");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_stripe_without_room_is_left_out_when_its_drive_is_full_and_refused_when_its_capacity_is() {
    let drive = drives(13);
    drive.inject(SimRule::new(SimFault::NoSpace).on(SimKind::Allocate).named("two"));
    let engine = open(&drive, 14);
    let health = engine.pager.disk_health().expect("a disk tier");
    assert!(is_degraded(&health, "two"), "{health}");
    run(&engine, 1, 20);
    assert!(close(engine));
    drive.clear_faults();
    let other = try_open(&drive, 14, &["two"]).expect("opens");
    let refused = try_open(&drive, 14, &["one", "two"]).err();
    assert!(matches!(refused, Some(OpenError::Store(StoreError::NoRoom { .. }))), "{refused:?}");
    assert!(close(other));
}

#[test]
fn a_tier_of_which_no_stripe_opens_is_the_first_one_s_error() {
    let drive = drives(10);
    assert!(close(open(&drive, 14)));
    drive.inject(SimRule::new(SimFault::Vanish));
    let refused = try_open(&drive, 14, &["one", "two"]).err().map(|error| error.to_string());
    assert!(refused.as_ref().is_some_and(|refused| refused.contains("one")), "{refused:?}");
}

#[test]
fn stripes_that_are_none_or_one_twice_are_refused_by_name() {
    let drive = SimDrive::new(11);
    let none = try_open(&drive, 14, &[]).err();
    assert_eq!(none, Some(OpenError::StripeCount { stripe_count: 0 }));
    let names: Vec<String> = (0..17).map(|number| format!("stripe-{number}")).collect();
    let many: Vec<&str> = names.iter().map(String::as_str).collect();
    let many = try_open(&drive, 14, &many).err();
    assert_eq!(many, Some(OpenError::StripeCount { stripe_count: 17 }));

    let folder = Folder::new();
    let path = |name: &str| folder.0.join(name).to_str().expect("a path in UTF-8").to_owned();
    std::fs::create_dir(path("one")).expect("the folder is ours");
    symlink(path("one"), path("link")).expect("the folder is ours");
    let spellings = ["one", "one/", "../NAME/one", "link", "new/../one", "one/below", "."];
    for spelling in spellings {
        let name = folder.0.file_name().expect("a name").to_str().expect("UTF-8");
        let again = path(&spelling.replace("NAME", name));
        let refused = try_open(&drive, 14, &[&path("other"), &path("one"), &again]).err();
        let root = PathBuf::from(&again);
        let other = usize::from(spelling != ".");
        assert_eq!(refused, Some(OpenError::StripeRepeated { stripe: 2, other, root }));
    }
}

#[test]
fn no_fault_of_one_stripe_brings_a_wrong_byte() {
    use SimFault::{Error, FlipOnWire, Hang, Lose, Misdirect, NoSpace, Stale, Stall};
    let faults = [Error, NoSpace, Stall, Hang, FlipOnWire, Misdirect, Stale, Lose];
    let mut promoted = 0;
    for (seed, fault) in (20..).zip(faults) {
        let drive = drives(seed);
        let engine = open(&drive, 14);
        run(&engine, seed, 20);
        for kind in [SimKind::Read, SimKind::Write] {
            if fault.applies_to(kind) {
                drive.inject(SimRule::new(fault).on(kind).named("two").one_in(4));
            }
        }
        run(&engine, seed + 100, 60);
        promoted += engine.pager.counters().promoted;
        drive.clear_faults();
        run(&engine, seed + 200, 20);
        assert_eq!(engine.pager.health(), Health::Serving, "{fault:?}");
        close(engine);
    }
    assert!(promoted > 0, "bytes came back from disk");
}

/// A folder below the temporary one, removed at the end.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("kvtide-stripes-{process}-{number}"));
        std::fs::create_dir(&path).expect("a temporary folder");
        Self(path.canonicalize().expect("it was just made"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Bytes of all blocks below a directory.
fn blocks(path: &Path) -> u64 {
    let metadata = std::fs::symlink_metadata(path).expect("it is there");
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    metadata.blocks() * 512 + entries.map(|entry| blocks(&entry.path())).sum::<u64>()
}

#[test]
fn two_directories_of_this_machine_serve_as_one_tier() {
    let folder = Folder::new();
    let roots = ["one", "two"].map(|name| folder.0.join(name));
    let open = |host| {
        let mut settings = settings(WritePolicy::Through);
        settings.stripes = roots.clone().map(|root| DiskStripe::new(root, CAPACITY)).to_vec();
        let device = CpuConfig { out_pieces: 8, in_pieces: 8 };
        let opened =
            Engine::open_changed(host, device, None, |config| config.disk = Some(settings));
        opened.expect("opens")
    };
    let engine = open(14);
    let stages: Vec<Stage> = run(&engine, 1, 60);
    assert!(stages.contains(&Stage::Done));
    assert!(close(engine));
    let engine = open(60);
    store_one(&engine, 4);
    engine.pager.flush(PATIENT).expect("flushed");
    assert!(close(engine));
    for root in &roots {
        let bytes = blocks(root);
        assert!(bytes > CAPACITY.get() / 2 && bytes <= CAPACITY.get(), "{bytes}");
    }
    let engine = open(60);
    assert_eq!(engine.pager.disk_health(), Some(DiskHealth::Serving));
    assert_eq!(hit_tokens(&engine, 4), ALL_TOKENS);
    assert!(close(engine));
}

/// The directories that a clear did not reach.
fn uncleared(error: &DiskCommandError) -> Vec<&Path> {
    let DiskCommandError::NotCleared { unreached } = error else { panic!("{error}") };
    unreached.iter().map(|one| one.directory.as_path()).collect()
}

#[test]
fn a_clear_names_every_stripe_that_it_does_not_reach() {
    let drive = SimDrive::new(10);
    for root in ["one", "two", "three"] {
        drive.mount(Path::new(root));
    }
    let engine = try_open(&drive, 60, &["one", "two", "three"]).expect("opens");
    store_one(&engine, 4);
    assert!(close(engine));
    drive.inject(SimRule::new(SimFault::Vanish).named("two"));
    let engine = try_open(&drive, 60, &["one", "two", "three"]).expect("opens");
    drive.inject(SimRule::new(SimFault::Vanish).named("three"));
    let error = engine.pager.clear(PATIENT).expect_err("two stripes still hold old KV");
    assert_eq!(uncleared(&error), [Path::new("two"), Path::new("three")]);
    close(engine);
}

#[test]
fn an_erasure_is_not_pending_for_a_stripe_that_was_lost_while_it_was_scanned() {
    let drive = drives(14);
    let engine = open(&drive, 60);
    let keys = store_one(&engine, 4).concat();
    engine.pager.flush(PATIENT).expect("flushed");
    drive.cut_power();
    close(engine);
    for store in find_stores(&mut drive.disk(99), Path::new("two")).expect("it can be listed") {
        let data = store.directory.join("data").display().to_string();
        drive.inject(SimRule::new(SimFault::Error).on(SimKind::Read).named(&data));
    }
    let engine = open(&drive, 60);
    wait_for(&engine, |health| matches!(health, DiskHealth::Degraded { .. }));
    let erased = engine.pager.erase(&Erasure::Keys(keys), PATIENT);
    let Err(DiskCommandError::NotErased { unreached }) = erased else { panic!("{erased:?}") };
    assert!(unreached.iter().all(|one| one.directory.starts_with("two")), "{unreached:?}");
    close(engine);
}
