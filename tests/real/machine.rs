//! What a machine does to a disk tier: file systems without room, read-only ones, directories and
//! mounts that go away, drives with large sectors, drives that fail and that hang.
//!
//! The engine goes on with whatever tier is left, the health says what is wrong, and every byte
//! that is handed over is compared.

use crate::engine::{CHUNKS_MAX, Engine, PATIENT, Prompt, chunk_bytes, disk_tier};
use crate::mounts::{Mounted, command, may_mount, text};
use crate::support::scatter;
use kvtide::core::StorePoint;
use kvtide::io::{DiskBackend, FileCall};
use kvtide::pager::{DiskCommandError, DiskConfig, DiskHealth, Health, OpenError};
use kvtide::store::StoreError;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

const BACKENDS: [DiskBackend; 2] = [DiskBackend::Uring, DiskBackend::Psync];

const MIB: u64 = 1 << 20;

/// Chunks of tiers that hold every prompt, and of host tiers that do not.
const ROOMY: u64 = 120;
const HOST_CHUNKS: u64 = 20;

/// The only weights here: nothing is cleared.
const WEIGHTS: u64 = 0;

fn settings(root: &Path, chunks: u64, backend: DiskBackend) -> DiskConfig {
    let mut settings = disk_tier(root, chunks);
    settings.backend = backend;
    settings
}

/// Runs drawn prompts; returns how many chunks were loaded and compared.
fn work(engine: &Engine, seed: u64, count: u64) -> usize {
    let prompts = (0..count).map(|number| Prompt::drawn(scatter(seed << 32 | number)));
    prompts.map(|prompt| engine.request(prompt, WEIGHTS).0).sum()
}

/// The same, with time for everything to be written.
fn work_and_write(engine: &Engine, seed: u64, count: u64) -> usize {
    let parts = (0..count).map(|number| {
        let compared = work(engine, seed << 16 | number, 5);
        engine.pager.flush(PATIENT).expect("the drive is good");
        compared
    });
    parts.sum()
}

/// Stores conversations in full, and has them durable.
fn store_durably(engine: &Engine, conversations: impl IntoIterator<Item = u64>) {
    for conversation in conversations {
        let prompt = Prompt::whole(conversation);
        engine.request(prompt, WEIGHTS);
        engine.pager.flush(PATIENT).expect("the drive is good");
        let keys = prompt.keys().concat();
        assert_eq!(engine.at_least(StorePoint::Durable, &keys), keys);
    }
}

/// Checks that a conversation is there from its beginning to its end.
fn check_whole(engine: &Engine, conversation: u64) {
    let (steps, loaded) = engine.load(Prompt::whole(conversation));
    assert_eq!(steps, CHUNKS_MAX, "conversation {conversation} is there");
    for chunk in loaded {
        let bytes = chunk.bytes.unwrap_or_else(|failure| panic!("{}: {failure}", chunk.key));
        assert!(bytes == chunk_bytes(chunk.group, chunk.key, WEIGHTS));
    }
}

fn close(engine: Engine) -> bool {
    engine.pager.audit().expect("all invariants hold");
    let report = engine.pager.close();
    assert!(report.is_drained);
    report.is_disk_clean
}

/// Takes up all the room that a file system has left.
fn fill_up(directory: &Path) -> PathBuf {
    let path = directory.join("ballast");
    let mut file = File::create_new(&path).expect("there is room for an entry");
    for bytes in [vec![7; 64 << 10], vec![7; 512]] {
        loop {
            // Synced, since blocks are taken only then.
            if let Err(error) = file.write_all(&bytes).and_then(|()| file.sync_data()) {
                assert_eq!(error.kind(), ErrorKind::StorageFull);
                break;
            }
        }
    }
    path
}

/// Returns the files of slots below a root.
fn data_files(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(root).expect("it is there") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            files.extend(data_files(&path));
        } else if path.ends_with("data") {
            files.push(path);
        }
    }
    files
}

#[test]
fn a_tier_that_does_not_fit_is_refused_and_one_that_does_has_all_its_room() {
    for backend in BACKENDS {
        if !may_mount("a_tier_that_does_not_fit_is_refused_and_one_that_does_has_all_its_room") {
            return;
        }
        for stage in [Mounted::in_memory("tmpfs", "size=6m"), Mounted::ext4(8 * MIB, 512)] {
            let root = stage.directory().join("root");
            let mut refused = 0;
            let engine = (0..140).rev().find_map(|chunks| {
                match Engine::open(HOST_CHUNKS, settings(&root, chunks, backend)) {
                    Ok(engine) => Some(engine),
                    Err(OpenError::Store(StoreError::NoRoom { .. })) => {
                        refused += 1;
                        None
                    }
                    // Beside the blocks that it counts, a file system needs some of its own.
                    Err(OpenError::Store(StoreError::File(error))) => {
                        assert_eq!(error.kind, ErrorKind::StorageFull, "{error}");
                        refused += 1;
                        None
                    }
                    Err(error) => panic!("{chunks} chunks: {error}"),
                }
            });
            let engine = engine.expect("a small one fits");
            assert!(refused > 10, "the first were far too large");
            fill_up(&stage.directory());
            assert!(work_and_write(&engine, 1, 40) > 0, "every block was reserved");
            let counters = engine.pager.counters();
            assert!(counters.written > 40 && counters.write_failures == 0, "{counters:?}");
            assert_eq!(engine.pager.disk_health(), Some(DiskHealth::Serving));
            assert!(close(engine));
        }
    }
}

#[test]
fn writes_that_find_no_room_cost_their_chunks_and_nothing_else() {
    for backend in BACKENDS {
        if !may_mount("writes_that_find_no_room_cost_their_chunks_and_nothing_else") {
            return;
        }
        for stage in [Mounted::in_memory("tmpfs", "size=12m"), Mounted::ext4(16 * MIB, 512)] {
            let root = stage.directory().join("root");
            let engine =
                Engine::open(HOST_CHUNKS, settings(&root, ROOMY, backend)).expect("it fits");
            store_durably(&engine, [0]);
            // Somebody takes away the blocks of the slots that were not used yet, and uses them.
            for file in data_files(&root) {
                let half = fs::metadata(&file).expect("it is there").len() / 2;
                let (from, length) = (half.to_string(), half.to_string());
                let hole = ["--punch-hole", "--offset", &from, "--length", &length, text(&file)];
                command("fallocate", &hole);
            }
            let ballast = fill_up(&stage.directory());
            let health = (1..1000).find_map(|round| {
                work(&engine, round, 20);
                // What finds no room waits for it in host memory, as long as that lasts.
                let flushed = engine.pager.flush(PATIENT);
                let health = engine.pager.disk_health().expect("a disk tier");
                let is_full = !health.takes_writes();
                assert!(flushed.is_ok() || is_full, "{flushed:?}");
                is_full.then_some(health)
            });
            let Some(DiskHealth::ReadOnly { reason }) = health else { panic!("{health:?}") };
            assert!(reason.contains("space"), "{reason}");
            assert!(engine.pager.counters().write_failures > 0);
            let refused = engine.pager.flush(PATIENT);
            assert!(matches!(refused, Err(DiskCommandError::ReadOnly { .. })), "{refused:?}");
            check_whole(&engine, 0);
            assert!(work(&engine, 2, 50) > 0, "both tiers serve what they hold");
            assert_eq!(engine.pager.health(), Health::Serving);
            close(engine);
            fs::remove_file(ballast).expect("it is ours");
            let engine =
                Engine::open(HOST_CHUNKS, settings(&root, ROOMY, backend)).expect("it is a store");
            engine.wait_for(|health| *health == DiskHealth::Serving);
            check_whole(&engine, 0);
            assert!(work(&engine, 3, 50) > 0);
            assert!(close(engine));
        }
    }
}

#[test]
fn a_file_system_that_turns_read_only_still_serves_what_it_holds() {
    for backend in BACKENDS {
        if !may_mount("a_file_system_that_turns_read_only_still_serves_what_it_holds") {
            return;
        }
        let stage = Mounted::ext4(32 * MIB, 512);
        let root = stage.directory().join("root");
        let engine = Engine::open(HOST_CHUNKS, settings(&root, ROOMY, backend)).expect("it fits");
        store_durably(&engine, 0..6);
        let trigger = format!("/sys/fs/ext4/{}/trigger_fs_error", stage.device());
        fs::write(trigger, "kvtide's test").expect("ext4 has it");
        engine.request(Prompt::whole(6), WEIGHTS);
        let health = engine.wait_for(|health| !health.takes_writes());
        let DiskHealth::ReadOnly { reason } = &health else { panic!("{health}") };
        assert!(reason.contains("read-only"), "{reason}");
        let promoted = engine.pager.counters().promoted;
        for conversation in 0..6 {
            check_whole(&engine, conversation);
        }
        assert!(engine.pager.counters().promoted > promoted, "they came from disk");
        assert!(work(&engine, 1, 50) > 0);
        assert!(!close(engine), "the next open must scan");
        let refused = Engine::open(HOST_CHUNKS, settings(&root, ROOMY, backend));
        let Err(OpenError::Store(StoreError::File(error))) = refused else { panic!("{refused:?}") };
        assert_eq!((error.call, error.kind), (FileCall::Open, ErrorKind::ReadOnlyFilesystem));
    }
}

#[test]
fn a_drive_with_large_sectors_keeps_what_was_stored() {
    for backend in BACKENDS {
        if !may_mount("a_drive_with_large_sectors_keeps_what_was_stored") {
            return;
        }
        let stage = Mounted::ext4(32 * MIB, 4096);
        let setting = format!("/sys/block/{}/queue/logical_block_size", stage.device());
        assert_eq!(fs::read_to_string(setting).expect("the kernel tells").trim(), "4096");
        let root = stage.directory().join("root");
        for seed in 0..3 {
            // A third of what the prompts need, so that slots are written over.
            let engine = Engine::open(HOST_CHUNKS, settings(&root, 36, backend)).expect("it fits");
            assert_eq!(engine.pager.disk_health(), Some(DiskHealth::Serving), "closed cleanly");
            assert_eq!(engine.pager.counters().adopted > 0, seed > 0);
            assert!(work_and_write(&engine, seed, 30) > 0);
            let counters = engine.pager.counters();
            assert!(counters.promoted > 0 && counters.evicted > 0, "{counters:?}");
            assert_eq!((counters.lost, counters.read_failures, counters.write_failures), (0, 0, 0));
            assert!(close(engine));
        }
    }
}

#[test]
fn a_root_that_is_removed_costs_the_next_run_its_chunks_and_this_one_nothing() {
    for backend in BACKENDS {
        if !may_mount("a_root_that_is_removed_costs_the_next_run_its_chunks_and_this_one_nothing") {
            return;
        }
        let stage = Mounted::ext4(32 * MIB, 512);
        let root = stage.directory().join("root");
        let open = || Engine::open(HOST_CHUNKS, settings(&root, ROOMY, backend)).expect("it fits");
        let engine = open();
        store_durably(&engine, 0..6);
        fs::remove_dir_all(&root).expect("it is ours");
        // Its files stay as long as they are open.
        store_durably(&engine, 6..9);
        for conversation in 0..9 {
            check_whole(&engine, conversation);
        }
        // Whoever comes meanwhile begins anew, and neither gets bytes of the other's.
        let other = open();
        assert_eq!(other.load(Prompt::whole(0)).0, 0, "its directory is empty");
        store_durably(&other, [1]);
        check_whole(&engine, 0);
        assert!(work(&engine, 1, 50) > 0);
        close(engine);
        check_whole(&other, 1);
        assert!(close(other));
        let engine = open();
        check_whole(&engine, 1);
        assert_eq!(engine.load(Prompt::whole(4)).0, 0, "it was removed");
        assert!(close(engine));
    }
}

#[test]
fn what_is_stored_after_a_lazy_unmount_is_there_once_it_is_mounted_again() {
    for backend in BACKENDS {
        if !may_mount("what_is_stored_after_a_lazy_unmount_is_there_once_it_is_mounted_again") {
            return;
        }
        let stage = Mounted::ext4(32 * MIB, 512);
        let root = stage.directory().join("root");
        let open = || Engine::open(HOST_CHUNKS, settings(&root, ROOMY, backend)).expect("it fits");
        let engine = open();
        store_durably(&engine, 0..5);
        let directory = stage.directory();
        command("umount", &["--lazy", text(&directory)]);
        assert!(!root.exists(), "it is not mounted any more");
        store_durably(&engine, 5..9);
        for conversation in 0..9 {
            check_whole(&engine, conversation);
        }
        assert!(close(engine));
        command("mount", &[&format!("/dev/{}", stage.device()), text(&directory)]);
        let engine = open();
        assert_eq!(engine.pager.disk_health(), Some(DiskHealth::Serving), "closed cleanly");
        for conversation in 0..9 {
            check_whole(&engine, conversation);
        }
        assert!(close(engine));
    }
}

#[test]
fn a_drive_that_loses_its_blocks_costs_its_hits_and_nothing_else() {
    for backend in BACKENDS {
        if !may_mount("a_drive_that_loses_its_blocks_costs_its_hits_and_nothing_else") {
            return;
        }
        let stage = Mounted::ext4(32 * MIB, 512);
        let root = stage.directory().join("root");
        let engine = Engine::open(HOST_CHUNKS, settings(&root, ROOMY, backend)).expect("it fits");
        store_durably(&engine, 0..9);
        let image = OpenOptions::new().write(true).open(stage.image()).expect("it is ours");
        let device = format!("/dev/{}", stage.device());
        let cut = |bytes| {
            image.set_len(bytes).expect("it is ours");
            command("losetup", &["--set-capacity", &device]);
        };
        cut(64 << 10);
        let lost = (1..1000).find_map(|round| {
            work(&engine, round, 20);
            let health = engine.pager.disk_health().expect("a disk tier");
            matches!(health, DiskHealth::Lost { .. }).then_some(health)
        });
        assert!(lost.is_some(), "reads fail, and nobody says so");
        let before = engine.pager.counters();
        assert!(before.read_failures > 0, "{before:?}");
        assert!(work(&engine, 0, 50) > 0, "the host tier goes on");
        let after = engine.pager.counters();
        // One group's store is lost; what the other still calls a hit fails to be read.
        assert_eq!(after.promoted, before.promoted);
        assert_eq!(engine.pager.health(), Health::Serving);
        assert!(!close(engine), "the next open must scan");
        cut(32 * MIB);
    }
}

#[test]
fn a_drive_that_hangs_stops_no_ticket_and_no_close() {
    for backend in BACKENDS {
        if !may_mount("a_drive_that_hangs_stops_no_ticket_and_no_close") {
            return;
        }
        let stage = Mounted::ext4(32 * MIB, 512);
        let root = stage.directory().join("root");
        let mut settings = settings(&root, ROOMY, backend);
        settings.io_timeout = Duration::from_millis(100);
        let engine = Engine::open(HOST_CHUNKS, settings).expect("it fits");
        store_durably(&engine, [0]);
        let frozen = stage.freeze();
        let health = (1..1000).find_map(|round| {
            // Every ticket in it ends.
            work(&engine, round, 10);
            let health = engine.pager.disk_health().expect("a disk tier");
            (!health.takes_writes()).then_some(health)
        });
        assert!(health.is_some(), "writes hang, and nobody says so");
        let flushed = engine.pager.flush(Duration::from_millis(100));
        assert!(flushed.is_err(), "nothing was written");
        assert!(work(&engine, 0, 50) > 0, "the host tier goes on");
        assert_eq!(engine.pager.health(), Health::Serving);
        engine.pager.audit().expect("all invariants hold");
        let (sender, closed) = channel();
        thread::spawn(move || sender.send(engine.pager.close()));
        // It thaws by itself after twice that.
        let report = closed.recv_timeout(PATIENT / 2).expect("closing does not wait for the drive");
        assert!(report.is_drained && !report.is_disk_clean);
        drop(frozen);
    }
}
