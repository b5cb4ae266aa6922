//! Recovery done twice: with nothing written in between, it finds the same chunks and hands over
//! the same bytes, wherever the power was cut. And it changes no file.

use crate::disk::{CHUNKS, CONVERSATIONS, close, open, run, settings, store_one, wait_for};
use crate::engine::{Engine, PATIENT, Worker, keys};
use kvtide::core::{Stage, StorePoint, WritePolicy};
use kvtide::device::cpu::CpuConfig;
use kvtide::io::sim::{SimDrive, SimView};
use kvtide::key::Key;
use kvtide::pager::DiskHealth;
use kvtide::store::{StoreFile, find_stores};
use kvtide::units::{ByteCount, GroupIndex};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// What one recovery found.
#[derive(Debug, Default, PartialEq, Eq)]
struct Look {
    points: BTreeMap<Key, StorePoint>,
    /// How loading each chunk of each conversation ended; those that were handed over were compared
    /// with what was stored.
    stages: BTreeMap<(u64, u64), Vec<Stage>>,
    compared: u64,
}

/// Opens what a power cut left, loads all of it, and cuts the power again.
fn look(drive: &SimDrive) -> Look {
    let mut settings = settings(WritePolicy::Through);
    // Scrubbing would give torn chunks up, sooner or later than the look at them.
    settings.scrub_budget = ByteCount::new(0);
    let device = CpuConfig { out_pieces: 8, in_pieces: 8 };
    let engine = Engine::open_with(60, device, PATIENT, Some((settings, drive.disk(7))));
    let engine = engine.expect("what is left is a store");
    wait_for(&engine, |health| *health == DiskHealth::Serving);
    let mut look = Look::default();
    let worker = Worker::new(&engine, 0);
    for conversation in 0..CONVERSATIONS {
        let lists = [(0, CHUNKS), (1, 2 * CHUNKS)].map(|(group, count)| {
            let keys = keys(group, conversation, count);
            for key in &keys {
                look.points.extend(engine.pager.point(*key).map(|point| (*key, point)));
            }
            keys
        });
        let given: Vec<&[Key]> = lists.iter().map(Vec::as_slice).collect();
        let plan = engine.pager.lookup(&given).expect("a plan is free");
        for (group, keys) in (0..).zip(&lists) {
            let held = plan.groups()[usize::from(group)];
            let (first, count) = (held.first_chunk as usize, held.chunk_count as usize);
            if count > 0 {
                let keys = &keys[first..first + count];
                let report = worker.load(&plan, GroupIndex::new(group), keys, first);
                look.stages.insert((conversation, group.into()), report.stages);
            }
        }
    }
    drop(worker);
    look.compared = engine.compared.load(Ordering::Relaxed);
    assert_eq!(engine.pager.counters().written, 0);
    drive.cut_power();
    close(engine);
    look
}

/// Returns the bytes of every file that a store is made of.
fn files(drive: &SimDrive) -> BTreeMap<PathBuf, Vec<u8>> {
    let stores = find_stores(&mut drive.disk(3), Path::new("root")).expect("the drive is good");
    let names = [StoreFile::Superblock, StoreFile::Data, StoreFile::Index].map(StoreFile::name);
    let paths = stores.iter().flat_map(|store| names.map(|name| store.directory.join(name)));
    paths.filter_map(|path| Some((path.clone(), drive.bytes(&path, SimView::Volatile)?))).collect()
}

/// Has the first chunk of each store rot, if there is one.
fn rot(drive: &SimDrive) {
    for path in files(drive).into_keys().filter(|path| path.ends_with(StoreFile::Data.name())) {
        // Behind the header page.
        drive.flip(&path, 4096 + 5, 1);
    }
}

#[test]
fn a_second_recovery_finds_and_hands_over_what_the_first_did_and_neither_writes() {
    let (mut compared, mut failed) = (0, 0);
    for steps in (3..600).step_by(13) {
        let drive = SimDrive::new(steps);
        drive.cut_after(steps);
        if let Some(engine) = open(&drive, 14, WritePolicy::Through) {
            run(&engine, steps, 40);
            close(engine);
        }
        drive.cut_power();
        // Makes what the cut left half made.
        look(&drive);
        if steps % 2 == 0 {
            rot(&drive);
        }
        let before = files(&drive);
        let first = look(&drive);
        let second = look(&drive);
        assert_eq!(first, second, "after a cut at step {steps}");
        assert!(files(&drive) == before, "a recovery wrote, after a cut at step {steps}");
        compared += first.compared;
        let stages = first.stages.values().flatten();
        failed += stages.filter(|stage| **stage != Stage::Done).count();
    }
    assert!(compared > 0, "some of the cuts left chunks behind");
    assert!(failed > 0, "some of what they left rotted");
}

/// What a killed process wrote was never synced by anybody: a flush of the next one covers it.
#[test]
fn a_flush_makes_durable_what_recovery_has_found() {
    for seed in 0..10 {
        let drive = SimDrive::new(seed);
        let engine = open(&drive, 60, WritePolicy::Through).expect("opens");
        let keys = store_one(&engine, 4).concat();
        let start = Instant::now();
        while keys.iter().any(|key| engine.pager.point(*key) < Some(StorePoint::Written)) {
            assert!(start.elapsed() < PATIENT, "not everything is written");
            std::thread::yield_now();
        }
        (1..=2).for_each(|handle| drive.kill(handle));
        drop(engine);
        let engine = open(&drive, 60, WritePolicy::Through).expect("opens");
        wait_for(&engine, |health| *health == DiskHealth::Serving);
        engine.pager.flush(PATIENT).expect("a drive that works");
        for key in &keys {
            assert_eq!(engine.pager.point(*key), Some(StorePoint::Durable), "seed {seed}, {key}");
        }
        drive.cut_power();
        close(engine);
        let engine = open(&drive, 60, WritePolicy::Through).expect("opens");
        wait_for(&engine, |health| *health == DiskHealth::Serving);
        for key in &keys {
            assert!(engine.pager.point(*key).is_some(), "seed {seed}, {key}");
        }
        close(engine);
    }
}
