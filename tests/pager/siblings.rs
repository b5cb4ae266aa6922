//! Several stores of one content below one root: what was cleared or erased in one comes back from
//! none that nobody had open, and what somebody has open is left alone and named.

use crate::disk::{close, open_disk, settings, wait_for};
use crate::engine::{Engine, PATIENT, Worker, keys};
use crate::stripes::Folder;
use crate::support::content;
use kvtide::core::{Stage, WritePolicy};
use kvtide::device::cpu::CpuConfig;
use kvtide::fingerprint::KeyMode;
use kvtide::io::sim::{SimDisk, SimDrive, SimFault, SimKind, SimRule};
use kvtide::io::{Files, Lock, OpenMode};
use kvtide::key::Key;
use kvtide::pager::{DiskCommandError, DiskConfig, DiskHealth, DiskStripe, Erasure};
use kvtide::store::find_stores;
use kvtide::units::{ByteCount, TenantId};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Chunks of one conversation: the window group has twice as many.
const LENGTH: u32 = 6;
const ALL_TOKENS: u32 = LENGTH * 32;
/// Conversations that share no chunk.
const OLD: u64 = 4;
const NEW: u64 = 8;
/// Room for one conversation, and little enough that a store of `LARGE` fits beside it.
const SMALL: ByteCount = ByteCount::new(640 << 10);
const LARGE: ByteCount = ByteCount::new(4 << 20);

/// How KV is dropped for good.
#[derive(Clone, Copy, Debug)]
enum Way {
    Clear,
    /// Of something else than what other instances hold.
    Erase,
}

const WAYS: [Way; 2] = [Way::Clear, Way::Erase];

impl Way {
    fn within(self, engine: &Engine, timeout: Duration) -> Result<(), DiskCommandError> {
        match self {
            Self::Clear => engine.pager.clear(timeout),
            Self::Erase => engine.pager.erase(&Erasure::Keys(vec![Key::from_u128(1)]), timeout),
        }
    }

    fn run(self, engine: &Engine) -> Result<(), DiskCommandError> {
        self.within(engine, PATIENT)
    }
}

fn settings_of(roots: &[&str], capacity: ByteCount, instance: u32) -> DiskConfig {
    let mut settings = settings(WritePolicy::Through);
    let stripe = |root: &&str| DiskStripe::new(root, capacity);
    settings.stripes = roots.iter().map(stripe).collect();
    settings.instance = Some(instance);
    settings
}

fn open_with(drive: &SimDrive, settings: DiskConfig) -> Arc<Engine> {
    let engine = open_disk(drive, 60, settings).expect("opens");
    wait_for(&engine, |health| *health == DiskHealth::Serving);
    engine
}

/// Opens the instance that an earlier engine has, and leaves, in `root`.
fn open_first(drive: &SimDrive) -> Arc<Engine> {
    open_with(drive, settings_of(&["root"], SMALL, 0))
}

/// Opens the instance beside it.
fn open_second(drive: &SimDrive) -> Arc<Engine> {
    open_with(drive, settings_of(&["root"], LARGE, 1))
}

fn keys_of(conversation: u64) -> [Vec<Key>; 2] {
    [keys(0, conversation, LENGTH), keys(1, conversation, 2 * LENGTH)]
}

fn store(engine: &Arc<Engine>, conversation: u64) {
    let stages = Worker::new(engine, 0).request(conversation, LENGTH);
    assert!(stages.iter().all(|stage| *stage == Stage::Done), "{stages:?}");
    engine.pager.flush(PATIENT).expect("flushed");
}

/// Returns the tokens of a conversation that hit.
fn hit_tokens(engine: &Engine, conversation: u64) -> u32 {
    let lists = keys_of(conversation);
    engine.pager.lookup(&[&lists[0], &lists[1]]).expect("a plan is free").tokens().get()
}

fn assert_gone(engine: &Engine, conversation: u64) {
    for key in keys_of(conversation).iter().flatten() {
        assert_eq!(engine.pager.point(*key), None, "{key} was dropped");
    }
}

/// Leaves a conversation in the first instance, for the life of another to find beside it.
fn leave_old(drive: &SimDrive, is_closed: bool) {
    let engine = open_first(drive);
    store(&engine, OLD);
    if !is_closed {
        drive.cut_power();
    }
    assert_eq!(close(engine), is_closed);
}

/// Opens both instances after one another, the first one last, and checks that nothing old is left.
fn assert_nothing_old(drive: &SimDrive) {
    for open in [open_second, open_first] {
        let engine = open(drive);
        assert_gone(&engine, OLD);
        assert!(close(engine));
    }
}

/// Directories of stores in one instance below a root.
fn directories(drive: &SimDrive, root: &str, instance: u32) -> Vec<PathBuf> {
    let found = find_stores(&mut drive.disk(99), Path::new(root)).expect("it can be listed");
    let of_instance = found.into_iter().filter(|store| store.instance == instance);
    of_instance.map(|store| store.directory).collect()
}

/// Takes a root's lock, as an engine does that opens a store.
fn hold_root(drive: &SimDrive) -> SimDisk {
    let mut disk = drive.disk(50);
    let lock = disk.open(Path::new("root/lock"), OpenMode::ReadOnly).expect("it is there");
    assert_eq!(disk.lock(lock.file), Ok(Lock::Taken));
    disk
}

#[test]
fn what_was_dropped_comes_back_from_no_other_instance() {
    for (seed, way) in (0..).zip(WAYS) {
        for (is_closed, is_cut) in [(true, true), (true, false), (false, true), (false, false)] {
            let drive = SimDrive::new(seed);
            leave_old(&drive, is_closed);
            let engine = open_second(&drive);
            store(&engine, NEW);
            assert!(!directories(&drive, "root", 0).is_empty(), "the old store is beside it");
            way.run(&engine).expect("dropped");
            assert!(directories(&drive, "root", 0).is_empty());
            assert!(engine.pager.uncleared().is_empty());
            if is_cut {
                drive.cut_power();
            }
            assert_eq!(close(engine), !is_cut);
            assert_nothing_old(&drive);
        }
    }
}

#[test]
fn an_erasure_takes_nothing_else_from_the_store_that_is_open() {
    let drive = SimDrive::new(2);
    leave_old(&drive, true);
    let engine = open_second(&drive);
    store(&engine, NEW);
    engine.pager.erase(&Erasure::Tenant(TenantId::new(9)), PATIENT).expect("erased");
    assert_eq!(hit_tokens(&engine, NEW), ALL_TOKENS);
    drive.cut_power();
    close(engine);
    let engine = open_second(&drive);
    assert_eq!(hit_tokens(&engine, NEW), ALL_TOKENS);
    assert!(close(engine));
}

#[test]
fn without_a_name_the_instance_that_was_cleared_is_the_one_that_is_left() {
    let drive = SimDrive::new(3);
    leave_old(&drive, true);
    let engine = open_second(&drive);
    engine.pager.clear(PATIENT).expect("cleared");
    store(&engine, NEW);
    assert!(close(engine));
    let mut unnamed = settings_of(&["root"], LARGE, 0);
    unnamed.instance = None;
    let engine = open_with(&drive, unnamed);
    assert_eq!(hit_tokens(&engine, NEW), ALL_TOKENS);
    assert_gone(&engine, OLD);
    assert!(close(engine));
}

#[test]
fn an_instance_that_is_open_is_left_as_it_is_and_named() {
    for (seed, way) in (4..).zip(WAYS) {
        let drive = SimDrive::new(seed);
        leave_old(&drive, true);
        let first = open_first(&drive);
        let second = open_second(&drive);
        assert!(second.pager.uncleared().is_empty(), "nothing was asked for yet");
        let held = directories(&drive, "root", 0);
        assert_eq!(held.len(), 2, "a store a group");
        way.run(&second).expect("what is open is somebody else's to drop from");
        let mut uncleared = second.pager.uncleared();
        uncleared.sort();
        assert_eq!(uncleared, held);
        // It serves what it had, and takes more.
        let before = first.compared.load(Ordering::Relaxed);
        store(&first, OLD);
        let compared = first.compared.load(Ordering::Relaxed) - before;
        assert!(compared >= u64::from(LENGTH), "what it had is loaded");
        assert!(close(first));
        let first = open_first(&drive);
        assert_eq!(hit_tokens(&first, OLD), ALL_TOKENS);
        // Its own clear drops it, and leaves the other to its engine.
        first.pager.clear(PATIENT).expect("cleared");
        assert_eq!(first.pager.uncleared().len(), 2);
        assert!(close(first));
        // Nobody has it any more.
        way.run(&second).expect("dropped");
        assert!(second.pager.uncleared().is_empty());
        assert!(close(second));
        assert_nothing_old(&drive);
    }
}

#[test]
fn a_power_cut_at_any_step_of_a_clear_keeps_its_answer() {
    let (mut cleared_count, mut cut_count) = (0, 0);
    for steps in 0..40 {
        let way = WAYS[usize::from(steps % 2 == 1)];
        let drive = SimDrive::new(steps);
        leave_old(&drive, steps % 3 > 0);
        let engine = open_second(&drive);
        store(&engine, NEW);
        drive.cut_after(steps);
        let dropped = way.run(&engine);
        drive.cut_power();
        close(engine);
        if dropped.is_ok() {
            cleared_count += 1;
            assert_nothing_old(&drive);
        } else {
            cut_count += 1;
            let engine = open_second(&drive);
            way.run(&engine).expect("dropped");
            drive.cut_power();
            close(engine);
            assert_nothing_old(&drive);
        }
    }
    assert!(cleared_count > 0 && cut_count > 0, "{cleared_count} dropped, {cut_count} cut");
}

#[test]
fn what_the_drive_keeps_from_being_removed_is_an_error_that_names_it() {
    for kind in [SimKind::Remove, SimKind::SyncDirectory] {
        for (seed, way) in (6..).zip(WAYS) {
            let drive = SimDrive::new(seed);
            leave_old(&drive, true);
            let engine = open_second(&drive);
            store(&engine, NEW);
            drive.inject(SimRule::new(SimFault::Error).on(kind).named("root/0/"));
            let error = way.run(&engine).expect_err("old KV is still there");
            let (DiskCommandError::NotCleared { unreached }
            | DiskCommandError::NotErased { unreached }) = &error
            else {
                panic!("{error}")
            };
            assert!(!unreached.is_empty());
            for one in unreached {
                assert!(one.directory.starts_with("root/0"), "{error}");
                assert!(
                    error.to_string().contains(&one.directory.display().to_string()),
                    "{error}"
                );
            }
            // Once the drive works again, it is done.
            drive.clear_faults();
            way.run(&engine).expect("dropped");
            drive.cut_power();
            close(engine);
            assert_nothing_old(&drive);
        }
    }
}

#[test]
fn a_root_that_somebody_has_is_waited_for_while_the_tier_serves() {
    for (seed, way) in (8..).zip(WAYS) {
        let drive = SimDrive::new(seed);
        leave_old(&drive, true);
        let engine = open_second(&drive);
        let holder = hold_root(&drive);
        let pending = way.within(&engine, Duration::ZERO);
        let expected = [DiskCommandError::TimedOut, DiskCommandError::ErasurePending];
        assert!(expected.contains(&pending.expect_err("the root is not to be had")));
        // Once this is answered the disk thread has taken that up.
        engine.pager.flush(PATIENT).expect("flushed");
        store(&engine, NEW);
        assert_eq!(hit_tokens(&engine, NEW), ALL_TOKENS);
        assert_eq!(directories(&drive, "root", 0).len(), 2, "nobody may touch it");
        drop(holder);
        let start = Instant::now();
        while !directories(&drive, "root", 0).is_empty() {
            assert!(start.elapsed() < PATIENT, "it goes on by itself");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(hit_tokens(&engine, NEW), ALL_TOKENS, "stored since");
        assert!(close(engine));
        assert_nothing_old(&drive);
    }
}

#[test]
fn a_root_that_is_not_to_be_had_in_time_is_an_error() {
    let drive = SimDrive::new(10);
    leave_old(&drive, true);
    let mut impatient = settings_of(&["root"], LARGE, 1);
    impatient.io_timeout = Duration::from_millis(50);
    let engine = open_with(&drive, impatient);
    let holder = hold_root(&drive);
    let cleared = engine.pager.clear(PATIENT).expect_err("nobody may look at the root");
    assert!(
        matches!(&cleared, DiskCommandError::NotCleared { unreached }
            if unreached[0].directory == Path::new("root")
                && unreached[0].reason.contains("in use")),
        "{cleared}"
    );
    let erased = engine.pager.erase(&Erasure::Tenant(TenantId::new(0)), PATIENT);
    assert!(matches!(erased, Err(DiskCommandError::NotErased { .. })), "{erased:?}");
    drop(holder);
    engine.pager.clear(PATIENT).expect("cleared");
    assert!(close(engine));
    assert_nothing_old(&drive);
}

#[test]
fn closing_waits_for_no_root() {
    let drive = SimDrive::new(11);
    leave_old(&drive, true);
    let mut impatient = settings_of(&["root"], LARGE, 1);
    impatient.io_timeout = Duration::from_millis(50);
    let engine = open_with(&drive, impatient);
    let holder = hold_root(&drive);
    assert_eq!(engine.pager.clear(Duration::ZERO), Err(DiskCommandError::TimedOut));
    close(engine);
    drop(holder);
}

#[test]
fn a_root_that_is_gone_is_not_called_clear() {
    let drive = SimDrive::new(12);
    leave_old(&drive, true);
    let engine = open_second(&drive);
    drive.disk(51).remove_file(Path::new("root/lock")).expect("it is there");
    let error = engine.pager.clear(PATIENT).expect_err("nobody can tell what lies there");
    assert!(
        matches!(&error, DiskCommandError::NotCleared { unreached }
            if unreached[0].directory == Path::new("root")),
        "{error}"
    );
    close(engine);
}

#[test]
fn what_other_instances_left_on_any_stripe_goes_with_a_clear() {
    for (seed, way) in (13..).zip(WAYS) {
        let drive = SimDrive::new(seed);
        let roots = ["one", "two"];
        for root in roots {
            drive.mount(Path::new(root));
        }
        let open = |capacity, instance| open_with(&drive, settings_of(&roots, capacity, instance));
        let engine = open(SMALL, 0);
        store(&engine, OLD);
        assert!(close(engine));
        let engine = open(LARGE, 1);
        store(&engine, NEW);
        way.run(&engine).expect("dropped");
        for root in roots {
            assert!(directories(&drive, root, 0).is_empty(), "{root}");
            assert_eq!(directories(&drive, root, 1).len(), 2, "{root}");
        }
        drive.cut_power();
        close(engine);
        let engine = open(SMALL, 0);
        assert_gone(&engine, OLD);
        assert!(close(engine));
    }
}

#[test]
fn stores_of_other_content_below_the_root_stay() {
    let drive = SimDrive::new(15);
    let mut other = settings_of(&["root"], SMALL, 0);
    other.content = content("another", KeyMode::EngineHashes);
    let engine = open_with(&drive, other.clone());
    store(&engine, OLD);
    assert!(close(engine));
    let engine = open_second(&drive);
    for way in WAYS {
        way.run(&engine).expect("dropped");
    }
    assert!(close(engine));
    let engine = open_with(&drive, other);
    assert_eq!(hit_tokens(&engine, OLD), ALL_TOKENS, "another model's");
    assert!(close(engine));
}

#[test]
fn on_this_machine_too_what_nobody_has_goes_and_what_is_open_stays() {
    let folder = Folder::new();
    let root = folder.0.to_str().expect("a plain name");
    let open = |capacity, instance| {
        let settings = settings_of(&[root], capacity, instance);
        let device = CpuConfig { out_pieces: 8, in_pieces: 8 };
        let opened = Engine::open_changed(60, device, None, |config| config.disk = Some(settings));
        opened.expect("opens")
    };
    let first = open(SMALL, 0);
    store(&first, OLD);
    let second = open(LARGE, 1);
    store(&second, NEW);
    for way in WAYS {
        way.run(&second).expect("dropped");
        assert_eq!(second.pager.uncleared().len(), 2, "{way:?}");
    }
    assert!(close(first));
    let first = open(SMALL, 0);
    assert_eq!(hit_tokens(&first, OLD), ALL_TOKENS, "it was open");
    assert!(close(first));
    store(&second, NEW);
    second.pager.clear(PATIENT).expect("cleared");
    assert!(second.pager.uncleared().is_empty());
    assert!(!folder.0.join("0").exists(), "nobody had it");
    assert_gone(&second, NEW);
    assert!(close(second));
}
