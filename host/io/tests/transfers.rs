//! What answers of the kernel mean, who begins next, and what the system's tables say.

use crate::capability::Downgrade;
use crate::io::direct::DirectNeeds;
use crate::io::files::{DriveId, OpenFile, RealFiles, lock_owner};
use crate::io::real::{Engine, Load, RealDisk};
use crate::io::transfer::{Answer, Transfer, Work};
use crate::io::waiting::Waiting;
use crate::io::{
    Disk, DiskWaker, FileId, IoBuffer, IoFault, IoFinished, IoMemory, IoOperation, IoWork,
};
use crate::mem::Slab;
use crate::units::ByteCount;
use nix::errno::Errno;
use proptest::prelude::*;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn transfer(tag: u64, work: IoWork) -> Transfer {
    let path = Path::new("/dev/null");
    let handle = File::options().read(true).write(true).open(path).expect("it always exists");
    let file = RealFiles::default().name(handle, path, true);
    let operation = IoOperation { tag, file: FileId::new(0), work };
    Transfer::new(operation, Some(Arc::new(file))).expect("a good operation")
}

fn read(pages: usize) -> Transfer {
    let memory = IoMemory::Buffer(IoBuffer::zeroed(pages));
    transfer(1, IoWork::Read { offset: 8192, memory })
}

fn write(pages: usize) -> Transfer {
    let memory = IoMemory::Buffer(IoBuffer::zeroed(pages));
    transfer(1, IoWork::Write { offset: 8192, memory })
}

proptest! {
    /// A kernel that moves bytes as it likes against a count of those that are in place.
    #[test]
    fn a_transfer_asks_for_what_is_missing_until_all_is_moved(
        pages in 1_usize..20,
        moves in prop::collection::vec((0_u32..100_000, any::<bool>()), 0..60),
        is_write in any::<bool>(),
    ) {
        let mut transfer = if is_write { write(pages) } else { read(pages) };
        let start = transfer.call().address.addr();
        let length = pages as u64 * 4096;
        let mut in_place = 0;
        for (bytes, is_interrupted) in moves {
            let call = transfer.call();
            let from = call.offset - 8192;
            prop_assert!(from <= in_place && in_place - from < 4096, "nothing is left out");
            prop_assert_eq!(call.address.addr() - start, usize::try_from(from).unwrap());
            prop_assert_eq!(from + u64::from(call.length), length);
            if is_interrupted {
                let answer = transfer.answer(Err(Errno::EINTR));
                if answer == Answer::More {
                    continue;
                }
                let is_error = matches!(answer, Answer::Done(Err(IoFault::Drive { .. })));
                prop_assert!(is_error, "{answer:?}");
                return Ok(());
            }
            let moved = bytes % (call.length + 1);
            in_place = in_place.max(from + u64::from(moved));
            match transfer.answer(Ok(moved)) {
                Answer::More => prop_assert!(moved >= 4096 && in_place < length),
                Answer::Done(Ok(())) => {
                    prop_assert_eq!(in_place, length);
                    return Ok(());
                }
                Answer::Done(Err(IoFault::EndOfFile { missing_bytes })) => {
                    prop_assert!(!is_write && moved < 4096);
                    prop_assert_eq!(missing_bytes, length - from - u64::from(moved));
                    return Ok(());
                }
                Answer::Done(Err(IoFault::Miscounted { asked_bytes, reported_bytes })) => {
                    prop_assert!(is_write && moved < 4096);
                    prop_assert_eq!(asked_bytes, u64::from(call.length));
                    prop_assert_eq!(reported_bytes, u64::from(moved));
                    return Ok(());
                }
                Answer::Done(outcome) => panic!("{outcome:?}"),
            }
        }
    }

    #[test]
    fn everything_that_waits_begins_once_and_nothing_waits_for_ever(
        kinds in prop::collection::vec(0_u8..3, 0..200),
    ) {
        let mut waiting = Waiting::default();
        let now = Instant::now();
        for (tag, kind) in (0..).zip(&kinds) {
            let memory = || IoMemory::Buffer(IoBuffer::zeroed(1));
            let work = match kind {
                0 => IoWork::Read { offset: 0, memory: memory() },
                1 => IoWork::Write { offset: 0, memory: memory() },
                _ => IoWork::Sync,
            };
            waiting.push(now, transfer(tag, work));
        }
        let mut begun = Vec::new();
        let mut since_write = 0;
        let is_write = |kind: &u8| *kind == 1;
        let mut writes_left = kinds.iter().copied().filter(is_write).count();
        while let Some(transfer) = waiting.pop() {
            if transfer.work() == Work::Write {
                let is_due = since_write == 15 || kinds.len() - begun.len() == writes_left;
                prop_assert!(is_due, "others go first");
                writes_left -= 1;
                since_write = 0;
            } else {
                since_write += 1;
                prop_assert!(since_write <= 15 || writes_left == 0, "a write was due");
            }
            begun.push((transfer.work() == Work::Write, transfer.tag()));
        }
        prop_assert!(waiting.is_empty());
        for is_write in [false, true] {
            let expected = (0_u64..).zip(&kinds).filter(|(_, kind)| (**kind == 1) == is_write);
            let expected: Vec<u64> = expected.map(|(tag, _)| tag).collect();
            let begun: Vec<u64> =
                begun.iter().filter(|(kind, _)| *kind == is_write).map(|(_, tag)| *tag).collect();
            prop_assert_eq!(begun, expected, "each in its turn");
        }
    }
}

#[test]
fn only_what_waits_too_long_is_given_up() {
    let mut waiting = Waiting::default();
    let start = Instant::now();
    let second = |count| start + Duration::from_secs(count);
    let memory = || IoMemory::Buffer(IoBuffer::zeroed(1));
    waiting.push(second(1), transfer(1, IoWork::Write { offset: 0, memory: memory() }));
    waiting.push(second(2), transfer(2, IoWork::Read { offset: 0, memory: memory() }));
    waiting.push(second(3), transfer(3, IoWork::Write { offset: 0, memory: memory() }));
    assert_eq!(waiting.oldest(), Some(second(1)));
    let mut old = Vec::new();
    waiting.take_older(second(2), |transfer| old.push(transfer.tag()));
    old.sort_unstable();
    assert_eq!(old, [1, 2]);
    assert_eq!(waiting.pop().map(|transfer| transfer.tag()), Some(3));
    assert_eq!(waiting.oldest(), None);
}

/// An engine that keeps what it is given, for ever.
#[derive(Debug, Default)]
struct Keeper {
    kept: Vec<Transfer>,
    is_stuck: bool,
}

impl Engine for Keeper {
    fn name(&self) -> &'static str {
        "keeper"
    }

    fn downgrades(&self) -> Vec<Downgrade> {
        Vec::new()
    }

    fn register(&mut self, _slabs: &[Arc<Slab>]) {}

    fn opened(&mut self, _file: &mut OpenFile) {}

    fn closed(&mut self, _file: Arc<OpenFile>) {}

    fn depth(&self) -> u32 {
        20
    }

    fn load(&self, _drive: DriveId) -> Load {
        Load {
            free_places: self.depth() - self.under_way(),
            bytes_under_way: self.kept.iter().map(Transfer::length).sum(),
        }
    }

    fn start(&mut self, transfer: Transfer, _now: Instant) {
        self.kept.push(transfer);
    }

    fn flush(&mut self) {}

    fn reap(&mut self, _now: Instant, _ready: &mut Vec<IoFinished>) {}

    fn is_stuck(&self, _drive: DriveId) -> bool {
        self.is_stuck
    }

    fn wait(&mut self, _timeout: Duration) {}

    fn waker(&self) -> Arc<dyn DiskWaker> {
        panic!("nobody waits for it")
    }

    fn under_way(&self) -> u32 {
        u32::try_from(self.kept.len()).expect("a few")
    }

    fn stop(&mut self) -> u32 {
        0
    }
}

/// Returns how many of 100 reads of `pages` pages begin, and what comes back in vain.
fn begun(keeper: Keeper, pages: usize, depth_pages: u64) -> (u32, usize) {
    let depth_bytes = ByteCount::new(depth_pages * 4096);
    let mut disk = RealDisk::new(keeper, Duration::from_nanos(1), depth_bytes);
    let handle = File::open("/dev/null").expect("it always exists");
    let file = disk.adopt(handle);
    let reads = (0..100).map(|tag| {
        let memory = IoMemory::Buffer(IoBuffer::zeroed(pages));
        IoOperation { tag, file, work: IoWork::Read { offset: 0, memory } }
    });
    disk.submit(reads.collect());
    let mut reports = Vec::new();
    for _ in 0..1000 {
        disk.poll(&mut reports);
    }
    assert!(reports.iter().all(|report| report.outcome == Err(IoFault::TimedOut)));
    let under_way = disk.engine().under_way();
    (under_way, reports.len())
}

#[test]
fn small_operations_are_bounded_by_their_number_and_large_ones_by_their_bytes() {
    assert_eq!(begun(Keeper::default(), 1, 32), (20, 0));
    assert_eq!(begun(Keeper::default(), 4, 32), (8, 0));
    assert_eq!(begun(Keeper::default(), 5, 32), (7, 0), "the last may begin below the bound");
    assert_eq!(begun(Keeper::default(), 40, 32), (1, 0), "one always may");
}

#[test]
fn what_waits_is_given_up_only_when_no_place_ever_comes_free() {
    let stuck = Keeper { is_stuck: true, ..Keeper::default() };
    assert_eq!(begun(stuck, 1, 32), (20, 80));
}

#[test]
fn more_bytes_than_asked_for_are_no_success() {
    let fault = IoFault::Miscounted { asked_bytes: 4096, reported_bytes: 8192 };
    assert_eq!(read(1).answer(Ok(8192)), Answer::Done(Err(fault)));
}

#[test]
fn a_sync_that_failed_is_not_tried_again() {
    let mut sync = transfer(1, IoWork::Sync);
    assert!(matches!(sync.answer(Err(Errno::EINTR)), Answer::Done(Err(IoFault::Drive { .. }))));
    assert_eq!(transfer(1, IoWork::Sync).answer(Ok(0)), Answer::Done(Ok(())));
}

#[test]
fn interruptions_without_end_are_an_error() {
    let mut transfer = read(1);
    let answers = (0..100).map(|_| transfer.answer(Err(Errno::EAGAIN)));
    let given_up = answers.take_while(|answer| *answer == Answer::More).count();
    assert_eq!(given_up, 16);
}

#[test]
fn errors_of_the_system_are_told_apart() {
    let fault = |errno| read(1).answer(Err(errno));
    for errno in [Errno::ENOSPC, Errno::EDQUOT] {
        assert!(matches!(fault(errno), Answer::Done(Err(IoFault::NoSpace { .. }))));
    }
    assert_eq!(fault(Errno::EROFS), Answer::Done(Err(IoFault::ReadOnly)));
    for errno in [Errno::EIO, Errno::ENODATA, Errno::ETIMEDOUT, Errno::EINVAL] {
        let number = errno as i32;
        let expected = IoFault::Drive { errno: number, reason: errno.desc().to_owned() };
        assert_eq!(fault(errno), Answer::Done(Err(expected)));
    }
}

#[test]
fn a_lock_s_owner_is_found_by_device_and_inode() {
    let metadata = std::env::current_exe().and_then(std::fs::metadata).expect("it runs");
    let device = metadata.dev();
    let (major, minor) = (nix::sys::stat::major(device), nix::sys::stat::minor(device));
    let inode = metadata.ino();
    let place = format!("{major:02x}:{minor:02x}:{inode}");
    let locks = format!(
        "1: POSIX  ADVISORY  WRITE 11 {place} 0 EOF\n\
         2: FLOCK  ADVISORY  WRITE 12 {major:02x}:{minor:02x}:{} 0 EOF\n\
         3: FLOCK  ADVISORY  WRITE 13 {place} 0 EOF\n\
         3: -> FLOCK  ADVISORY  WRITE 14 {place} 0 EOF\n",
        inode + 1
    );
    assert_eq!(lock_owner(&locks, &metadata), Some(13));
    let hidden = format!("3: FLOCK  ADVISORY  WRITE 0 {place} 0 EOF\n");
    assert_eq!(lock_owner(&hidden, &metadata), None, "its namespace is another");
    assert_eq!(lock_owner("", &metadata), None);
    assert_eq!(lock_owner("nonsense\n1:\n1: FLOCK\n", &metadata), None);
}

#[test]
fn only_drives_that_need_at_most_4096_bytes_get_direct_io() {
    let needs = |memory_align_bytes, offset_align_bytes| {
        DirectNeeds { memory_align_bytes, offset_align_bytes }.unfit()
    };
    for (memory, offset) in [(4, 512), (512, 512), (512, 4096), (4096, 4096)] {
        assert_eq!(needs(memory, offset), None);
    }
    let why = needs(512, 16384).expect("our pages are smaller");
    assert_eq!(why, "the drive needs multiples of 16384 bytes, ours are of 4,096");
    assert!(needs(8192, 512).is_some());
    assert!(needs(0, 0).is_some(), "there is no direct I/O");
}
