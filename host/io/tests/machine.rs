//! What a real machine does to disks: file systems without `O_DIRECT` or without room, drives that
//! fail, hang or are read-only, and a system that refuses `io_uring` or pinned memory.
#![expect(unsafe_code, reason = "installs a system call filter")]

use super::conformance::{self, Stage};
use super::mounts::{is_root, may_mount, text};
use super::stage::{Folder, Mounted};
use crate::io::psync::Psync;
use crate::io::real::{Engine, RealDisk};
use crate::io::uring::Uring;
use crate::io::{
    Disk, DiskBackend, DiskError, DiskOptions, EntryKind, FileCall, FileId, Files, IoBuffer,
    IoFault, IoFinished, IoMemory, IoOperation, IoWork, Lock, OpenMode, SlotPages, open_disk, run,
};
use crate::mem::Slab;
use crate::units::{ByteCount, SlotIndex};
use nix::errno::Errno;
use nix::libc;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;
use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, symlink};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const BACKENDS: [DiskBackend; 2] = [DiskBackend::Uring, DiskBackend::Psync];

/// Far more than any test takes: a wait that lasts this long is a wait for ever.
const FOR_EVER: Duration = Duration::from_hours(1);

/// Soon over, for operations that hang for ever.
const SHORT: Duration = Duration::from_millis(50);

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;

/// Set in the child of the test about pinned memory.
const MEMLOCK_CHILD: &str = "KVTIDE_TEST_MEMLOCK_CHILD";

fn page_of(fill: u8) -> IoMemory {
    let mut buffer = IoBuffer::zeroed(1);
    buffer.bytes_mut().fill(fill);
    IoMemory::Buffer(buffer)
}

fn write(file: FileId, tag: u64, memory: IoMemory) -> IoOperation {
    IoOperation { tag, file, work: IoWork::Write { offset: tag * PAGE, memory } }
}

fn read(file: FileId, tag: u64) -> IoOperation {
    IoOperation { tag, file, work: IoWork::Read { offset: tag * PAGE, memory: page_of(0) } }
}

fn reports(disk: &mut dyn Disk, count: usize) -> Vec<IoFinished> {
    let mut reports = Vec::new();
    while reports.len() < count {
        disk.wait(FOR_EVER);
        disk.poll(&mut reports);
    }
    reports.sort_by_key(|report| report.tag);
    reports
}

#[test]
fn memory_file_systems_hold_the_bytes() {
    for backend in BACKENDS {
        if !may_mount("memory_file_systems_hold_the_bytes") {
            return;
        }
        let stage = Mounted::in_memory(backend, "tmpfs", "size=4m");
        conformance::reads_find_the_bytes_last_written(&stage);
    }
}

#[test]
fn a_file_system_without_direct_io_and_reservations_says_so_and_works() {
    for backend in BACKENDS {
        if !may_mount("a_file_system_without_direct_io_and_reservations_says_so_and_works") {
            return;
        }
        let stage = Mounted::in_memory(backend, "ramfs", "mode=0700");
        let mut disk = stage.disk();
        let path = stage.directory().join("file");
        let opened = disk.open(&path, OpenMode::Create).expect("buffered");
        let buffered = opened.buffered.expect("ramfs has no direct I/O");
        assert_eq!(buffered.what, "O_DIRECT");
        let why = format!("{}: the file system refuses it (EINVAL)", path.display());
        assert_eq!(buffered.why, why);
        let length = ByteCount::new(3 * PAGE);
        let reserved = disk.allocate(opened.file, length).expect("it is extended");
        let reserved = reserved.expect("ramfs has no fallocate");
        assert_eq!(reserved.what, "reserved blocks");
        assert!(reserved.why.contains("no fallocate"), "{}", reserved.why);
        assert_eq!(disk.length(opened.file), Ok(length));
        disk.remove_file(&path).expect("it exists");
        drop(disk);
        conformance::reads_find_the_bytes_last_written(&stage);
        conformance::a_read_past_the_end_says_how_much_is_missing(&stage);
    }
}

#[test]
fn drives_with_blocks_of_512_and_of_4096_bytes_bear_direct_io() {
    for (backend, block_bytes) in BACKENDS.into_iter().zip([512, 4096]) {
        for backend in [backend, DiskBackend::Uring] {
            if !may_mount("drives_with_blocks_of_512_and_of_4096_bytes_bear_direct_io") {
                return;
            }
            let stage = Mounted::ext4(backend, 32 * MIB, block_bytes);
            let setting = format!("/sys/block/{}/queue/logical_block_size", stage.device());
            let setting = fs::read_to_string(setting).expect("the kernel tells");
            assert_eq!(setting.trim(), block_bytes.to_string());
            let mut disk = stage.disk();
            let opened = disk.open(&stage.directory().join("file"), OpenMode::Create);
            assert_eq!(opened.expect("made").buffered, None);
            drop(disk);
            conformance::reads_find_the_bytes_last_written(&stage);
            conformance::a_read_past_the_end_says_how_much_is_missing(&stage);
        }
    }
}

#[test]
fn a_full_file_system_is_told_from_a_broken_one() {
    for backend in BACKENDS {
        if !may_mount("a_full_file_system_is_told_from_a_broken_one") {
            return;
        }
        let stages = [
            Mounted::in_memory(backend, "tmpfs", "size=256k"),
            Mounted::ext4(backend, 4 * MIB, 512),
        ];
        for stage in stages {
            let mut disk = stage.disk();
            let path = stage.directory().join("file");
            let file = disk.open(&path, OpenMode::Create).expect("made").file;
            disk.allocate(file, ByteCount::new(PAGE)).expect("there is room for a page");
            let room = disk.space(&path).expect("it exists").available.get();
            let error = disk.allocate(file, ByteCount::new(room + MIB)).expect_err("no room");
            assert_eq!((error.call, error.kind), (FileCall::Allocate, ErrorKind::StorageFull));
            assert_eq!(disk.length(file), Ok(ByteCount::new(PAGE)), "it is as it was");
            assert_eq!(disk.allocated(&path), Ok(ByteCount::new(PAGE)));

            let page_count = room / PAGE + 8;
            let writes = (1..page_count).map(|tag| write(file, tag, page_of(1))).collect();
            let reports = run(&mut *disk, writes);
            let failed: Vec<_> =
                reports.into_iter().filter_map(|report| report.outcome.err()).collect();
            assert!(!failed.is_empty());
            for fault in &failed {
                assert!(matches!(fault, IoFault::NoSpace { .. }), "{fault}");
            }
            assert_eq!(run(&mut *disk, vec![read(file, 0)])[0].outcome, Ok(()));
            assert_eq!(disk.shut(FOR_EVER).leaked_operations, 0);
        }
    }
}

#[test]
fn a_drive_that_fails_reads_is_reported_with_its_error() {
    for backend in BACKENDS {
        if !may_mount("a_drive_that_fails_reads_is_reported_with_its_error") {
            return;
        }
        let stage = Mounted::ext4(backend, 16 * MIB, 512);
        let mut disk = stage.disk();
        let path = stage.directory().join("file");
        let file = disk.open(&path, OpenMode::Create).expect("made").file;
        disk.allocate(file, ByteCount::new(8 * MIB)).expect("there is room");
        let mut writes: Vec<_> =
            (0..8 * MIB / PAGE).map(|tag| write(file, tag, page_of(1))).collect();
        writes.push(IoOperation { tag: u64::MAX, file, work: IoWork::Sync });
        assert!(run(&mut *disk, writes).iter().all(|report| report.outcome == Ok(())));
        // The drive loses most of its blocks.
        let image = OpenOptions::new().write(true).open(stage.image()).expect("it is ours");
        image.set_len(MIB).expect("it is cut");
        let reads = (0..8 * MIB / PAGE).map(|tag| read(file, tag)).collect();
        let failed: Vec<_> =
            run(&mut *disk, reads).into_iter().filter_map(|report| report.outcome.err()).collect();
        assert!(!failed.is_empty());
        for fault in &failed {
            let is_drive = matches!(fault, IoFault::Drive { errno: libc::EIO, .. });
            assert!(is_drive, "{fault}");
        }
        drop(disk);
        image.set_len(16 * MIB).expect("it grows again");
    }
}

#[test]
fn a_file_system_that_turned_read_only_is_told() {
    for backend in BACKENDS {
        if !may_mount("a_file_system_that_turned_read_only_is_told") {
            return;
        }
        let stage = Mounted::ext4(backend, 16 * MIB, 512);
        let mut disk = stage.disk();
        let path = stage.directory().join("file");
        let file = disk.open(&path, OpenMode::Create).expect("made").file;
        assert_eq!(run(&mut *disk, vec![write(file, 0, page_of(7))])[0].outcome, Ok(()));
        let trigger = format!("/sys/fs/ext4/{}/trigger_fs_error", stage.device());
        fs::write(trigger, "kvtide's test").expect("ext4 has it");
        let outcome = &run(&mut *disk, vec![write(file, 9, page_of(8))])[0].outcome;
        assert_eq!(outcome, &Err(IoFault::ReadOnly));
        let error = disk.open(&path, OpenMode::Create).expect_err("it cannot be written");
        assert_eq!((error.call, error.kind), (FileCall::Open, ErrorKind::ReadOnlyFilesystem));
        assert!(disk.open(&path, OpenMode::ReadOnly).is_ok());
        assert_eq!(run(&mut *disk, vec![read(file, 0)])[0].outcome, Ok(()));
    }
}

/// What hangs in the kernel and cannot be called back: writes to a frozen file system.
fn hang<E: Engine>(engine: E, backend: DiskBackend) {
    let stage = Mounted::ext4(backend, 16 * MIB, 512);
    let mut disk = RealDisk::new(engine, SHORT, ByteCount::new(MIB));
    let path = stage.directory().join("file");
    let file = disk.open(&path, OpenMode::Create).expect("made").file;
    disk.allocate(file, ByteCount::new(MIB)).expect("there is room");
    let slab = Slab::allocate(5, ByteCount::new(2 * PAGE)).expect("a small slab");
    disk.register(&[Arc::clone(&slab)]);
    let slot = |index| slab.slot(SlotIndex::new(index), slab.slot_bytes());
    let operation = |index: u32| {
        let pages = SlotPages::to_write_out(slot(index)).expect("unused");
        write(file, index.into(), IoMemory::Slot(pages))
    };

    let frozen = stage.freeze();
    disk.submit((0..5).map(operation).collect());
    let ended = reports(&mut disk, 5);
    assert!(ended.iter().all(|report| report.outcome == Err(IoFault::TimedOut)), "{ended:?}");
    let is_held: Vec<_> = ended.iter().map(|report| report.memory.is_none()).collect();
    assert_eq!(is_held, [true, false, false, false, false], "one place, and it is taken");
    drop(ended);
    assert!(slot(0).write().is_none(), "the kernel may read it yet");
    assert!((1..5).all(|index| slot(index).write().is_some()), "these never began");
    // What comes later waits for the place in vain, and is not for ever.
    disk.submit(vec![operation(1)]);
    let ended = reports(&mut disk, 1);
    assert_eq!(ended[0].outcome, Err(IoFault::TimedOut));
    assert!(ended[0].memory.is_some());
    drop(ended);

    drop(frozen);
    let mut ended = Vec::new();
    while slot(0).write().is_none() {
        disk.wait(FOR_EVER);
        disk.poll(&mut ended);
    }
    assert!(ended.is_empty(), "it was reported: {ended:?}");
    disk.submit(vec![operation(2)]);
    let ended = reports(&mut disk, 1);
    assert_eq!(ended[0].outcome, Ok(()), "the place is free again");
    drop(ended);

    let frozen = stage.freeze();
    disk.submit(vec![operation(3)]);
    let report = Box::new(disk).shut(SHORT);
    assert_eq!(report.leaked_operations, 1);
    assert!(slot(3).write().is_none(), "the kernel may read it yet");
    drop(frozen);
}

#[test]
fn memory_of_a_ring_s_operation_that_hangs_is_kept_until_the_kernel_lets_go() {
    if may_mount("memory_of_a_ring_s_operation_that_hangs_is_kept_until_the_kernel_lets_go") {
        hang(Uring::new(1, 1, SHORT).expect("a ring"), DiskBackend::Uring);
    }
}

#[test]
fn memory_of_a_thread_s_operation_that_hangs_is_kept_until_the_kernel_lets_go() {
    if may_mount("memory_of_a_thread_s_operation_that_hangs_is_kept_until_the_kernel_lets_go") {
        hang(Psync::new(1, 1, SHORT, None).expect("a thread"), DiskBackend::Psync);
    }
}

/// A drive whose every place is lost to writes that hang takes none from another.
fn hang_beside_another<E: Engine>(engine: E, backend: DiskBackend) {
    let stages = [Mounted::ext4(backend, 16 * MIB, 512), Mounted::ext4(backend, 16 * MIB, 512)];
    let mut disk = RealDisk::new(engine, FOR_EVER, ByteCount::new(MIB));
    let files = stages.each_ref().map(|stage| {
        let path = stage.directory().join("file");
        let file = disk.open(&path, OpenMode::Create).expect("made").file;
        disk.allocate(file, ByteCount::new(MIB)).expect("there is room");
        file
    });
    let frozen = stages[0].freeze();
    // More than both drives have places for, and each with its own page.
    disk.submit((0..20).map(|at| write(files[0], at, page_of(1))).collect());
    for at in 100..120 {
        disk.submit(vec![write(files[1], at, page_of(2))]);
        let ended = reports(&mut disk, 1);
        assert_eq!((ended[0].tag, &ended[0].outcome), (at, &Ok(())));
    }
    drop(frozen);
    assert!(reports(&mut disk, 20).iter().all(|report| report.outcome == Ok(())));
    assert_eq!(Box::new(disk).shut(FOR_EVER).leaked_operations, 0);
}

#[test]
fn a_drive_that_hangs_takes_no_place_of_a_ring_from_another() {
    if may_mount("a_drive_that_hangs_takes_no_place_of_a_ring_from_another") {
        hang_beside_another(Uring::new(2, 2, FOR_EVER).expect("a ring"), DiskBackend::Uring);
    }
}

#[test]
fn a_drive_that_hangs_takes_no_thread_from_another() {
    if may_mount("a_drive_that_hangs_takes_no_thread_from_another") {
        hang_beside_another(Psync::new(2, 2, FOR_EVER, None).expect("threads"), DiskBackend::Psync);
    }
}

#[test]
fn an_operation_that_can_be_called_back_is_and_gives_its_memory() {
    let folder = Folder::new(DiskBackend::Uring);
    let path = folder.path().join("pipe");
    mkfifo(&path, Mode::S_IRUSR | Mode::S_IWUSR).expect("a pipe is made");
    // Open for both, so that a read neither ends nor fails: it waits for bytes that never come.
    let pipe = OpenOptions::new().read(true).write(true).open(&path).expect("it opens");
    let mut disk =
        RealDisk::new(Uring::new(2, 1, SHORT).expect("a ring"), SHORT, ByteCount::new(MIB));
    let pipe = disk.adopt(pipe);
    let file = disk.open(&folder.path().join("file"), OpenMode::Create).expect("made").file;
    disk.submit(vec![read(pipe, 0), read(pipe, 1), write(file, 2, page_of(1))]);
    let ended = reports(&mut disk, 3);
    let outcomes: Vec<_> = ended.iter().map(|report| report.outcome.clone()).collect();
    assert_eq!(outcomes, [Err(IoFault::TimedOut), Err(IoFault::TimedOut), Ok(())]);
    assert!(ended.iter().all(|report| report.memory.is_some()), "{ended:?}");
    assert_eq!(Box::new(disk).shut(FOR_EVER).leaked_operations, 0);
}

#[test]
fn the_owner_of_a_lock_is_named() {
    if !may_mount("the_owner_of_a_lock_is_named") {
        return;
    }
    let stage = Mounted::in_memory(DiskBackend::Uring, "tmpfs", "size=1m");
    let path = stage.directory().join("file");
    let (mut one, mut other) = (stage.disk(), stage.disk());
    let mine = one.open(&path, OpenMode::Create).expect("made").file;
    let theirs = other.open(&path, OpenMode::Existing).expect("it exists").file;
    assert_eq!(one.lock(mine), Ok(Lock::Taken));
    let held = other.lock(theirs);
    assert_eq!(held, Ok(Lock::Held { process: Some(std::process::id()) }));
    one.close(mine);
    assert_eq!(other.lock(theirs), Ok(Lock::Taken));
    other.close(theirs);

    let mut owner = Command::new("flock")
        .args(["--no-fork", text(&path), "sleep", "3600"])
        .spawn()
        .expect("util-linux has it");
    let held = loop {
        let file = one.open(&path, OpenMode::Existing).expect("it exists").file;
        match one.lock(file).expect("it can be locked") {
            // The child has not begun; closing lets it have the lock that it waits for.
            Lock::Taken => one.close(file),
            held @ Lock::Held { .. } => break held,
        }
        thread::yield_now();
    };
    assert_eq!(held, Lock::Held { process: Some(owner.id()) });
    owner.kill().expect("it is our child");
    owner.wait().expect("it is our child");
}

#[test]
fn files_are_private_and_links_are_not_followed() {
    for backend in BACKENDS {
        let folder = Folder::new(backend);
        let mut disk = folder.disk();
        let inside = folder.path().join("a/b");
        disk.create_directory(&inside).expect("made");
        let path = inside.join("file");
        disk.open(&path, OpenMode::Create).expect("made");
        let mode = |path| fs::metadata(path).expect("it exists").mode() & 0o7777;
        assert_eq!(mode(folder.path().join("a")), 0o700);
        assert_eq!(mode(inside.clone()), 0o700);
        assert_eq!(mode(path.clone()), 0o600);

        let (to_file, to_folder) = (folder.path().join("to_file"), folder.path().join("to_folder"));
        symlink(&path, &to_file).expect("made");
        symlink(&inside, &to_folder).expect("made");
        let error = disk.open(&to_file, OpenMode::Existing).expect_err("it is a link");
        assert!(error.reason.contains("symbolic link"), "{error}");
        let error = disk.create_directory(&to_folder).expect_err("it is a link");
        assert!(error.reason.contains("symbolic link"), "{error}");
        assert!(disk.list(&to_folder).is_err());
        assert!(disk.sync_directory(&to_folder).is_err());
        assert!(disk.open(&inside, OpenMode::ReadOnly).is_err(), "a directory is no file");
        let entries = disk.list(folder.path()).expect("it exists");
        let kinds: Vec<_> = entries.iter().map(|entry| (entry.name.as_str(), entry.kind)).collect();
        let expected = [
            ("a", EntryKind::Directory),
            ("to_file", EntryKind::Other),
            ("to_folder", EntryKind::Other),
        ];
        assert_eq!(kinds, expected);
        disk.remove_file(&to_file).expect("the link goes");
        assert!(path.exists(), "and what it led to stays");
    }
}

/// Has `io_uring_setup` fail on this thread, as container profiles do.
fn refuse_io_uring() {
    // Load the call's number; skip one if it is io_uring_setup; allow; refuse.
    let program = [(0x20, 0, 0, 0), (0x15, 1, 0, 425), (0x06, 0, 0, 0x7fff_0000)];
    let refuse = (0x06, 0, 0, 0x0005_0000 | Errno::EPERM as u32);
    let mut program: Vec<_> = program
        .into_iter()
        .chain([refuse])
        .map(|(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k })
        .collect();
    let program = libc::sock_fprog { len: 4, filter: program.as_mut_ptr() };
    // SAFETY: takes numbers only.
    let result = unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
    assert_eq!(Errno::result(result), Ok(0));
    // SAFETY: the program is four instructions, alive during the call, which copies it.
    let result =
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) };
    assert_eq!(Errno::result(result), Ok(0));
}

#[test]
fn without_io_uring_threads_do_and_the_downgrade_says_so() {
    // A filter is its thread's own, and ends with it.
    let refused = thread::spawn(|| {
        refuse_io_uring();
        let options = DiskOptions { backend: DiskBackend::Uring, ..DiskOptions::default() };
        let error = open_disk(&options).expect_err("it is refused");
        let folder = Folder::new(DiskBackend::Auto);
        conformance::reads_find_the_bytes_last_written(&folder);
        let disk = folder.disk();
        (error, disk.name(), disk.downgrades())
    });
    let (error, name, downgrades) = refused.join().expect("threads work");
    let DiskError::Uring { reason } = &error else { panic!("{error}") };
    assert!(reason.contains("Operation not permitted"), "{reason}");
    assert!(error.to_string().contains("let the back end be chosen"), "{error}");
    assert_eq!((name, downgrades.len()), ("psync", 1));
    assert_eq!((downgrades[0].what, &downgrades[0].why), ("io_uring", reason));

    let folder = Folder::new(DiskBackend::Auto);
    let disk = folder.disk();
    assert_eq!((disk.name(), disk.downgrades()), ("io_uring", Vec::new()), "here it is not");
}

#[test]
fn without_room_for_pinned_memory_slots_work_unregistered() {
    let test = "io::tests::machine::without_room_for_pinned_memory_slots_work_unregistered";
    if std::env::var_os(MEMLOCK_CHILD).is_none() {
        let program = std::env::current_exe().expect("it runs");
        // 1 MiB, room for rings only, and no capability that overrides it.
        let script = "ulimit -l 1024 && exec \"$@\"";
        let mut child = Command::new("sh");
        child.args(["-c", script, "sh"]);
        if is_root() {
            let dropped = "--bounding-set=-ipc_lock";
            child.args(["setpriv", dropped, "--inh-caps=-ipc_lock"]);
        }
        child.arg(program).args(["--exact", test]).env(MEMLOCK_CHILD, "1");
        let output = child.output().expect("sh and setpriv exist");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
        return;
    }
    let folder = Folder::new(DiskBackend::Uring);
    let mut disk = folder.disk();
    let slab = Slab::allocate(4, ByteCount::new(MIB)).expect("a small slab");
    disk.register(&[Arc::clone(&slab)]);
    let downgrades = disk.downgrades();
    assert_eq!(downgrades.len(), 1, "{downgrades:?}");
    assert_eq!(downgrades[0].what, "registered buffers");
    for text in ["4.0 MiB of host slots", "RLIMIT_MEMLOCK is 1.0 MiB", "ulimit -l"] {
        assert!(downgrades[0].why.contains(text), "{}", downgrades[0].why);
    }
    assert_eq!(Arc::strong_count(&slab), 1, "what is not registered is not kept");
    conformance::reads_find_the_bytes_last_written(&folder);
}

#[test]
fn registered_slots_are_no_downgrade() {
    if !may_mount("registered_slots_are_no_downgrade") {
        return;
    }
    let folder = Folder::new(DiskBackend::Uring);
    let mut disk = folder.disk();
    let slabs: Vec<_> = [MIB, 3 * PAGE]
        .map(|bytes| Slab::allocate(16, ByteCount::new(bytes)).expect("a small slab"))
        .to_vec();
    disk.register(&slabs);
    disk.register(&slabs);
    assert_eq!(disk.downgrades(), Vec::new());
    assert_eq!(Arc::strong_count(&slabs[1]), 2, "what is registered stays mapped");
    disk.register(&[]);
    assert_eq!(Arc::strong_count(&slabs[1]), 1);
}

#[test]
fn options_without_sense_are_refused_by_name() {
    for depth in [0, 1025, u32::MAX] {
        let refused = open_disk(&DiskOptions { depth, ..DiskOptions::default() });
        assert_eq!(refused.err(), Some(DiskError::Depth { depth }));
    }
    for (depth, drive_count) in [(1, 0), (1024, 9), (1, u32::MAX)] {
        let refused = open_disk(&DiskOptions { depth, drive_count, ..DiskOptions::default() });
        assert_eq!(refused.err(), Some(DiskError::Places { depth, drive_count }));
    }
    let depth_bytes = ByteCount::new(0);
    let refused = open_disk(&DiskOptions { depth_bytes, ..DiskOptions::default() });
    assert_eq!(refused.err(), Some(DiskError::DepthBytes));
    for io_timeout in [Duration::ZERO, Duration::MAX] {
        let refused = open_disk(&DiskOptions { io_timeout, ..DiskOptions::default() });
        assert_eq!(refused.err(), Some(DiskError::IoTimeout { io_timeout }));
    }
}
