//! What every disk promises, real or simulated: one suite, run by a [`Stage`] for each back end.
//!
//! `conformance_tests!(name, expression)` makes a module of tests; the expression gives a fresh
//! stage for each.

use crate::io::{
    Disk, EntryKind, FileCall, FileId, IoBuffer, IoFault, IoFinished, IoMemory, IoOperation,
    IoWork, Lock, OpenMode, SlotPages, run,
};
use crate::mem::Slab;
use crate::units::{ByteCount, SlotIndex};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::io::ErrorKind;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Far more than any test takes: a wait that lasts this long is a wait for ever.
const FOR_EVER: Duration = Duration::from_hours(1);

const PAGE: u64 = 4096;

/// Where disks of one kind are tested.
pub(in crate::io) trait Stage {
    /// Returns an existing, empty directory.
    fn directory(&self) -> PathBuf;

    /// Opens a disk of a small depth; two of one stage see the same files.
    fn disk(&self) -> Box<dyn Disk>;
}

/// Makes the module of tests.
macro_rules! conformance_tests {
    ($name:ident, $stage:expr) => {
        mod $name {
            use super::*;
            use crate::io::tests::conformance;

            conformance_tests!(
                @each $stage,
                reads_find_the_bytes_last_written,
                memory_belongs_to_an_operation_until_its_report,
                parts_of_a_slot_move_under_one_hold,
                operations_that_cannot_be_are_refused_with_their_memory,
                a_read_past_the_end_says_how_much_is_missing,
                a_file_opened_read_only_is_never_written,
                a_wake_ends_a_wait_from_any_thread,
                a_disk_may_change_threads,
                closing_a_file_waits_for_its_operations,
                a_lock_has_one_owner_until_the_file_is_closed,
                a_disk_that_is_dropped_or_shut_lets_go_of_everything,
                files_grow_are_cut_and_keep_their_bytes,
                directories_are_made_listed_and_removed,
                what_does_not_exist_is_said_so,
            );
        }
    };
    (@each $stage:expr, $($promise:ident),+ $(,)?) => {
        $(
            #[test]
            fn $promise() {
                conformance::$promise(&$stage);
            }
        )+
    };
}
pub(in crate::io) use conformance_tests;

fn open(disk: &mut dyn Disk, stage: &dyn Stage, name: &str) -> FileId {
    disk.open(&stage.directory().join(name), OpenMode::Create).expect("a file is made").file
}

fn length_of(pages: u64) -> usize {
    usize::try_from(pages * PAGE).expect("a few pages")
}

fn buffer(pages: u64, fill: u8) -> IoMemory {
    let mut buffer = IoBuffer::zeroed(usize::try_from(pages).expect("a few pages"));
    buffer.bytes_mut().fill(fill);
    IoMemory::Buffer(buffer)
}

fn write(file: FileId, tag: u64, page: u64, pages: u64, fill: u8) -> IoOperation {
    let memory = buffer(pages, fill);
    IoOperation { tag, file, work: IoWork::Write { offset: page * PAGE, memory } }
}

fn read(file: FileId, tag: u64, page: u64, pages: u64) -> IoOperation {
    let memory = buffer(pages, 0xee);
    IoOperation { tag, file, work: IoWork::Read { offset: page * PAGE, memory } }
}

/// Runs one operation that must do.
fn run_one(disk: &mut dyn Disk, operation: IoOperation) -> Option<IoMemory> {
    let mut reports = run(disk, vec![operation]);
    let report = reports.pop().expect("one report");
    assert_eq!(report.outcome, Ok(()));
    report.memory
}

fn bytes(memory: Option<IoMemory>) -> Vec<u8> {
    let buffer = memory.and_then(IoMemory::into_buffer).expect("a buffer comes back");
    buffer.bytes().to_vec()
}

fn slab() -> Arc<Slab> {
    // Odd, so that slots begin anywhere but at the same place of a large page.
    Slab::allocate(64, ByteCount::new(9 * PAGE)).expect("a small slab")
}

fn shut(disk: Box<dyn Disk>) {
    assert_eq!(disk.shut(FOR_EVER).leaked_operations, 0);
}

/// One step of the model: what to do with which pages of which file.
#[derive(Clone, Debug)]
struct Step {
    file: usize,
    pages: Range<u64>,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Write { fill: u8, from_slot: bool },
    Read { into_slot: bool },
    Sync,
}

const MODEL_PAGES: u64 = 48;

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let write =
        (any::<u8>(), any::<bool>()).prop_map(|(fill, from_slot)| What::Write { fill, from_slot });
    let read = any::<bool>().prop_map(|into_slot| What::Read { into_slot });
    let what = prop_oneof![5 => write, 5 => read, 1 => Just(What::Sync)];
    let step = (0_usize..2, 0..MODEL_PAGES - 8, 1_u64..9, what)
        .prop_map(|(file, page, pages, what)| Step { file, pages: page..page + pages, what });
    prop::collection::vec(step, 1..120)
}

/// Two files and the bytes that they should have.
struct Model {
    disk: Box<dyn Disk>,
    slab: Arc<Slab>,
    files: Vec<(FileId, Vec<u8>)>,
    batch: Vec<(Step, Option<SlotIndex>)>,
}

impl Model {
    fn take(&mut self, step: Step) {
        let touches =
            |one: &Range<u64>, other: &Range<u64>| one.start < other.end && other.start < one.end;
        // Operations are unordered, so those of a batch must not get in each other's way.
        let is_apart = self
            .batch
            .iter()
            .all(|(other, _)| other.file != step.file || !touches(&other.pages, &step.pages));
        if !is_apart || self.batch.len() == 64 {
            self.run();
        }
        let uses_slot = matches!(
            step.what,
            What::Write { from_slot: true, .. } | What::Read { into_slot: true }
        );
        let slot = u32::try_from(self.batch.len()).expect("a small batch");
        self.batch.push((step, uses_slot.then(|| SlotIndex::new(slot))));
    }

    fn memory(&self, step: &Step, slot: Option<SlotIndex>) -> IoMemory {
        let pages = step.pages.end - step.pages.start;
        let fill = if let What::Write { fill, .. } = step.what { fill } else { 0xee };
        let Some(slot) = slot else { return buffer(pages, fill) };
        let slot = self.slab.slot(slot, ByteCount::new((pages + 1) * PAGE));
        slot.write().expect("nobody uses it").payload().fill(fill);
        let held = match step.what {
            What::Write { .. } => SlotPages::to_write_out(slot),
            What::Read { .. } | What::Sync => SlotPages::to_fill(slot),
        };
        let payload = length_of(1)..length_of(pages + 1);
        IoMemory::Slot(held.expect("nobody uses it").part(payload))
    }

    /// Runs the batch and compares what was read.
    fn run(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        let operations = (0..).zip(&batch).map(|(tag, (step, slot))| {
            let offset = step.pages.start * PAGE;
            let work = match step.what {
                What::Write { .. } => IoWork::Write { offset, memory: self.memory(step, *slot) },
                What::Read { .. } => IoWork::Read { offset, memory: self.memory(step, *slot) },
                What::Sync => IoWork::Sync,
            };
            IoOperation { tag, file: self.files[step.file].0, work }
        });
        let operations = operations.collect();
        let reports = run(&mut *self.disk, operations);
        assert_eq!(reports.len(), batch.len());
        for (index, (report, (step, _))) in (0..).zip(reports.into_iter().zip(batch)) {
            assert_eq!((report.tag, &report.outcome), (index, &Ok(())), "{step:?}");
            self.compare(&step, report);
        }
    }

    fn compare(&mut self, step: &Step, report: IoFinished) {
        let range = length_of(step.pages.start)..length_of(step.pages.end);
        let slab = &self.slab;
        let expected = &mut self.files[step.file].1[range];
        match (step.what, report.memory) {
            (What::Sync, None) => {}
            (What::Write { fill, .. }, Some(_)) => expected.fill(fill),
            (What::Read { .. }, Some(IoMemory::Buffer(buffer))) => {
                assert_eq!(buffer.bytes(), expected);
            }
            (What::Read { .. }, Some(IoMemory::Slot(pages))) => {
                let offset = pages.slot().address().addr() - slab.memory().0.addr();
                let index = offset as u64 / slab.slot_bytes().get();
                let index = SlotIndex::new(u32::try_from(index).expect("a small slab"));
                let slot = slab.slot(index, pages.slot().length());
                drop(pages);
                assert_eq!(slot.read().expect("the operation is over").payload(), expected);
            }
            (what, memory) => panic!("{what:?} gave {memory:?} back"),
        }
    }
}

/// Random reads, writes and syncs of two files, from slots registered or not and from buffers, in
/// batches deeper than the disk, against a model of bytes.
pub(in crate::io) fn reads_find_the_bytes_last_written(stage: &dyn Stage) {
    let mut runner = TestRunner::new(Config::with_cases(24));
    let result = runner.run(&(steps(), any::<bool>()), |(steps, is_registered)| {
        let (mut disk, slab) = (stage.disk(), slab());
        if is_registered {
            disk.register(&[Arc::clone(&slab)]);
        }
        let length = ByteCount::new(MODEL_PAGES * PAGE);
        let files = ["one", "two"].map(|name| {
            let file = open(&mut *disk, stage, name);
            disk.truncate(file, ByteCount::new(0)).expect("it is cut");
            disk.allocate(file, length).expect("there is room");
            (file, vec![0; length_of(MODEL_PAGES)])
        });
        let mut model = Model { disk, slab, files: files.to_vec(), batch: Vec::new() };
        for step in steps {
            model.take(step);
        }
        for file in 0..2 {
            for start in (0..MODEL_PAGES).step_by(8) {
                let what = What::Read { into_slot: file == 0 };
                model.take(Step { file, pages: start..start + 8, what });
            }
        }
        model.run();
        shut(model.disk);
        Ok(())
    });
    result.unwrap_or_else(|failure| panic!("{failure}"));
}

pub(in crate::io) fn memory_belongs_to_an_operation_until_its_report(stage: &dyn Stage) {
    let (mut disk, slab) = (stage.disk(), slab());
    let file = open(&mut *disk, stage, "file");
    let slot = || slab.slot(SlotIndex::new(3), slab.slot_bytes());
    slot().write().expect("unused").payload().fill(5);
    let pages = SlotPages::to_write_out(slot()).expect("unused");
    let work = IoWork::Write { offset: 0, memory: IoMemory::Slot(pages) };
    disk.submit(vec![IoOperation { tag: 1, file, work }]);
    assert!(slot().write().is_none(), "the disk may read it");
    assert!(slot().read().is_some());
    let mut reports = Vec::new();
    while reports.is_empty() {
        disk.wait(FOR_EVER);
        disk.poll(&mut reports);
    }
    assert!(slot().write().is_none(), "the report has it");
    reports.clear();
    slot().write().expect("nobody has it").payload().fill(0);

    let pages = SlotPages::to_fill(slot()).expect("unused");
    let work = IoWork::Read { offset: 0, memory: IoMemory::Slot(pages) };
    disk.submit(vec![IoOperation { tag: 2, file, work }]);
    assert!(slot().read().is_none(), "the disk may write it");
    let mut reports = Vec::new();
    while reports.is_empty() {
        disk.wait(FOR_EVER);
        disk.poll(&mut reports);
    }
    assert_eq!((reports[0].tag, &reports[0].outcome), (2, &Ok(())));
    reports.clear();
    assert!(slot().read().expect("nobody writes it").payload().iter().all(|&byte| byte == 5));
    shut(disk);
}

pub(in crate::io) fn parts_of_a_slot_move_under_one_hold(stage: &dyn Stage) {
    let (mut disk, slab) = (stage.disk(), slab());
    disk.register(&[Arc::clone(&slab)]);
    let file = open(&mut *disk, stage, "file");
    for page in 0..9 {
        let fill = u8::try_from(page).expect("few pages");
        run_one(&mut *disk, write(file, 0, page, 1, fill));
    }
    let slot = || slab.slot(SlotIndex::new(63), slab.slot_bytes());
    let whole = SlotPages::to_fill(slot()).expect("unused");
    // Backwards: the file's first page becomes the slot's last.
    let operations = (0..9).map(|page| {
        let part = whole.part(length_of(8 - page)..length_of(9 - page));
        let work = IoWork::Read { offset: page * PAGE, memory: IoMemory::Slot(part) };
        IoOperation { tag: page, file, work }
    });
    let operations = operations.collect();
    drop(whole);
    let reports = run(&mut *disk, operations);
    assert!(reports.iter().all(|report| report.outcome == Ok(())), "{reports:?}");
    assert!(slot().read().is_none(), "the reports have parts of it");
    drop(reports);
    let slot = slot();
    let payload = slot.read().expect("all parts are back").payload().to_vec();
    for (fill, page) in (0..8).rev().zip(payload.chunks(length_of(1))) {
        assert!(page.iter().all(|&byte| byte == fill), "page {fill} of the file");
    }
    shut(disk);
}

pub(in crate::io) fn operations_that_cannot_be_are_refused_with_their_memory(stage: &dyn Stage) {
    let (mut disk, slab) = (stage.disk(), slab());
    let file = open(&mut *disk, stage, "file");
    let closed = open(&mut *disk, stage, "closed");
    disk.close(closed);
    let again = open(&mut *disk, stage, "closed");
    assert_ne!(again, closed, "names of files are not used twice");
    let slot = slab.slot(SlotIndex::new(0), slab.slot_bytes());
    let shared = SlotPages::to_write_out(slot).expect("unused");
    let work = IoWork::Read { offset: 0, memory: IoMemory::Slot(shared) };
    let shared = IoOperation { tag: 3, file, work };
    let mut crooked = write(file, 2, 0, 1, 7);
    crooked.work = IoWork::Write { offset: 512, memory: buffer(1, 7) };
    let operations = vec![
        write(closed, 0, 0, 1, 7),
        read(FileId::new(u32::MAX), 1, 0, 1),
        crooked,
        shared,
        IoOperation { tag: 4, file: closed, work: IoWork::Sync },
        write(file, 5, 0, 1, 8),
    ];
    let reports = run(&mut *disk, operations);
    let outcomes: Vec<_> = reports.iter().map(|report| report.outcome.clone()).collect();
    let expected = [
        Err(IoFault::NotOpen),
        Err(IoFault::NotOpen),
        Err(IoFault::Misaligned),
        Err(IoFault::MemoryNotWritable),
        Err(IoFault::NotOpen),
        Ok(()),
    ];
    assert_eq!(outcomes, expected);
    let has_memory: Vec<_> = reports.iter().map(|report| report.memory.is_some()).collect();
    assert_eq!(has_memory, [true, true, true, true, false, true]);
    assert_eq!(disk.length(file).expect("it is open").get(), PAGE, "nothing else was written");
    shut(disk);
}

pub(in crate::io) fn a_read_past_the_end_says_how_much_is_missing(stage: &dyn Stage) {
    let mut disk = stage.disk();
    let file = open(&mut *disk, stage, "file");
    run_one(&mut *disk, write(file, 0, 0, 2, 9));
    let far = run(&mut *disk, vec![read(file, 0, 5, 3), read(file, 1, 1, 4)]);
    assert_eq!(far[0].outcome, Err(IoFault::EndOfFile { missing_bytes: 3 * PAGE }));
    assert_eq!(far[1].outcome, Err(IoFault::EndOfFile { missing_bytes: 3 * PAGE }));
    disk.truncate(file, ByteCount::new(5000)).expect("it is cut");
    let torn = run(&mut *disk, vec![read(file, 0, 0, 2), read(file, 1, 1, 1)]);
    assert_eq!(torn[0].outcome, Err(IoFault::EndOfFile { missing_bytes: 2 * PAGE - 5000 }));
    assert_eq!(torn[1].outcome, Err(IoFault::EndOfFile { missing_bytes: 2 * PAGE - 5000 }));
    assert_eq!(bytes(run_one(&mut *disk, read(file, 0, 0, 1))), [9; 4096]);
    shut(disk);
}

pub(in crate::io) fn a_file_opened_read_only_is_never_written(stage: &dyn Stage) {
    let mut disk = stage.disk();
    let file = open(&mut *disk, stage, "file");
    run_one(&mut *disk, write(file, 0, 0, 1, 1));
    let path = stage.directory().join("file");
    let opened = disk.open(&path, OpenMode::ReadOnly).expect("it exists");
    assert_eq!(opened.length.get(), PAGE);
    let reports = run(&mut *disk, vec![write(opened.file, 0, 0, 1, 2)]);
    assert_eq!(reports[0].outcome, Err(IoFault::ReadOnly));
    assert_eq!(bytes(run_one(&mut *disk, read(opened.file, 0, 0, 1))), [1; 4096]);
    shut(disk);
}

pub(in crate::io) fn a_wake_ends_a_wait_from_any_thread(stage: &dyn Stage) {
    let mut disk = stage.disk();
    disk.waker().wake();
    disk.wait(FOR_EVER);
    for _ in 0..20 {
        let (waker, is_over) = (disk.waker(), Arc::new(AtomicBool::new(false)));
        let told = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            told.store(true, Ordering::Release);
            waker.wake();
        });
        // A wait may end for nothing, but never lasts when somebody woke it.
        while !is_over.load(Ordering::Acquire) {
            disk.wait(FOR_EVER);
        }
        thread.join().expect("it only wakes");
    }
    let waker = disk.waker();
    shut(disk);
    waker.wake();
}

pub(in crate::io) fn a_disk_may_change_threads(stage: &dyn Stage) {
    let mut disk = stage.disk();
    let file = open(&mut *disk, stage, "file");
    disk.submit((0..40).map(|tag| write(file, tag, tag, 1, 6)).collect());
    let thread = thread::spawn(move || {
        let mut reports = Vec::new();
        while reports.len() < 40 {
            disk.wait(FOR_EVER);
            disk.poll(&mut reports);
        }
        assert!(reports.iter().all(|report| report.outcome == Ok(())), "{reports:?}");
        disk
    });
    let mut disk = thread.join().expect("the disk works there");
    assert_eq!(bytes(run_one(&mut *disk, read(file, 0, 39, 1))), [6; 4096]);
    shut(disk);
}

pub(in crate::io) fn closing_a_file_waits_for_its_operations(stage: &dyn Stage) {
    let mut disk = stage.disk();
    let file = open(&mut *disk, stage, "file");
    let other = open(&mut *disk, stage, "other");
    disk.submit((0..30).map(|tag| write(file, tag, 2 * tag, 2, 3)).collect());
    disk.close(file);
    let third = open(&mut *disk, stage, "third");
    disk.submit((30..60).map(|tag| write(third, tag, 2 * (tag - 30), 2, 4)).collect());
    let mut reports = Vec::new();
    while reports.len() < 60 {
        disk.wait(FOR_EVER);
        disk.poll(&mut reports);
    }
    assert!(reports.iter().all(|report| report.outcome == Ok(())), "{reports:?}");
    assert_eq!(disk.length(other).expect("it is open").get(), 0);
    for (name, fill) in [("file", 3), ("third", 4)] {
        let file = open(&mut *disk, stage, name);
        for page in 0..60 {
            assert_eq!(bytes(run_one(&mut *disk, read(file, 0, page, 1))), [fill; 4096]);
        }
    }
    shut(disk);
}

pub(in crate::io) fn a_lock_has_one_owner_until_the_file_is_closed(stage: &dyn Stage) {
    let (mut one, mut other) = (stage.disk(), stage.disk());
    let mine = open(&mut *one, stage, "file");
    let theirs = open(&mut *other, stage, "file");
    assert_eq!(one.lock(mine), Ok(Lock::Taken));
    assert_eq!(one.lock(mine), Ok(Lock::Taken), "it is ours already");
    assert!(matches!(other.lock(theirs), Ok(Lock::Held { .. })));
    one.close(mine);
    assert_eq!(other.lock(theirs), Ok(Lock::Taken));
    let mine = open(&mut *one, stage, "file");
    assert!(matches!(one.lock(mine), Ok(Lock::Held { .. })));
    shut(other);
    assert_eq!(one.lock(mine), Ok(Lock::Taken));
    shut(one);
}

pub(in crate::io) fn a_disk_that_is_dropped_or_shut_lets_go_of_everything(stage: &dyn Stage) {
    let slab = slab();
    let slot = |index| slab.slot(SlotIndex::new(index), slab.slot_bytes());
    for is_shut in [true, false] {
        let mut disk = stage.disk();
        disk.register(&[Arc::clone(&slab)]);
        let file = open(&mut *disk, stage, "file");
        assert_eq!(disk.lock(file), Ok(Lock::Taken));
        let operations = (0..40).map(|index| {
            let pages = SlotPages::to_write_out(slot(index)).expect("unused");
            let offset = u64::from(index) * slab.slot_bytes().get();
            let work = IoWork::Write { offset, memory: IoMemory::Slot(pages) };
            IoOperation { tag: index.into(), file, work }
        });
        disk.submit(operations.collect());
        if is_shut {
            shut(disk);
        } else {
            drop(disk);
        }
        assert!((0..40).all(|index| slot(index).write().is_some()), "shut: {is_shut}");
    }
    let mut disk = stage.disk();
    let file = open(&mut *disk, stage, "file");
    assert_eq!(disk.length(file).expect("it is open").get(), 40 * slab.slot_bytes().get());
    shut(disk);
    assert_eq!(Arc::strong_count(&slab), 1, "no disk keeps the slab");
}

pub(in crate::io) fn files_grow_are_cut_and_keep_their_bytes(stage: &dyn Stage) {
    let mut disk = stage.disk();
    let path = stage.directory().join("file");
    let opened = disk.open(&path, OpenMode::Create).expect("a file is made");
    assert_eq!(opened.length.get(), 0);
    let file = opened.file;
    let length = |disk: &mut dyn Disk| disk.length(file).expect("it is open").get();
    run_one(&mut *disk, write(file, 0, 0, 4, 1));
    let downgrade = disk.allocate(file, ByteCount::new(64 * PAGE)).expect("there is room");
    assert_eq!(length(&mut *disk), 64 * PAGE);
    if downgrade.is_none() {
        assert!(disk.allocated(&path).expect("it exists").get() >= 64 * PAGE);
    }
    disk.allocate(file, ByteCount::new(8 * PAGE)).expect("there is room");
    assert_eq!(length(&mut *disk), 64 * PAGE, "reserving never cuts");
    let content = bytes(run_one(&mut *disk, read(file, 0, 0, 64)));
    assert_eq!(content[..length_of(4)], [1; 16384], "reserving keeps what was written");
    assert!(content[length_of(4)..].iter().all(|&byte| byte == 0), "and shows nothing old");
    disk.truncate(file, ByteCount::new(2 * PAGE)).expect("it is cut");
    assert_eq!(length(&mut *disk), 2 * PAGE);
    assert!(disk.allocated(&path).expect("it exists").get() < 64 * PAGE);
    assert!(disk.modified_s(&path).expect("it exists") > 0);
    let room = disk.space(&stage.directory()).expect("it exists");
    assert!(room.available <= room.total && room.total.get() > 0, "{room:?}");
    shut(disk);
}

pub(in crate::io) fn directories_are_made_listed_and_removed(stage: &dyn Stage) {
    let mut disk = stage.disk();
    let top = stage.directory();
    disk.create_directory(&top.join("b/c")).expect("both are made");
    disk.create_directory(&top.join("b/c")).expect("it may exist");
    let file = open(&mut *disk, stage, "a");
    disk.close(file);
    disk.sync_directory(&top).expect("it exists");
    let entries = disk.list(&top).expect("it exists");
    let entries: Vec<_> = entries.iter().map(|entry| (entry.name.as_str(), entry.kind)).collect();
    assert_eq!(entries, [("a", EntryKind::File), ("b", EntryKind::Directory)]);
    let error = disk.remove_directory(&top.join("b")).expect_err("it is not empty");
    assert_eq!((error.call, error.kind), (FileCall::Remove, ErrorKind::DirectoryNotEmpty));
    for name in ["b/c", "b", "b"] {
        disk.remove_directory(&top.join(name)).expect("removed, or not there");
    }
    for _ in 0..2 {
        disk.remove_file(&top.join("a")).expect("removed, or not there");
    }
    assert_eq!(disk.list(&top), Ok(Vec::new()));
    shut(disk);
}

pub(in crate::io) fn what_does_not_exist_is_said_so(stage: &dyn Stage) {
    let mut disk = stage.disk();
    let path = stage.directory().join("none");
    for mode in [OpenMode::Existing, OpenMode::ReadOnly] {
        let error = disk.open(&path, mode).expect_err("there is none");
        assert_eq!((error.call, error.kind), (FileCall::Open, ErrorKind::NotFound));
        assert_eq!(error.path, path);
    }
    assert_eq!(disk.list(&path).expect_err("there is none").kind, ErrorKind::NotFound);
    assert_eq!(disk.allocated(&path), Ok(ByteCount::new(0)));
    assert_eq!(disk.modified_s(&path), Ok(0));
    assert!(disk.lock(FileId::new(77)).is_err());
    assert!(disk.length(FileId::new(77)).is_err());
    shut(disk);
}
