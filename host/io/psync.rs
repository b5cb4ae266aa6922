//! Reads, writes and syncs by system calls that block, on threads of their own.
//!
//! For machines where `io_uring` is refused. A thread stuck in a system call cannot be called back:
//! its operation is reported without its memory, which stays with the thread until the call ends.
//! Each drive may have so many threads, and there are as many as the drives that were counted on
//! may have together.
//!
//! Invariants: a transfer is in `queue`, with the thread in `running`, or in `finished`; the mutex
//! is not held over a system call.
//!
//! Called by [`open_disk`](super::open_disk), as an [`Engine`].
#![expect(unsafe_code, reason = "reads and writes memory that hardware or others use besides")]

use super::files::{DriveId, OpenFile};
use super::real::{Engine, Load};
use super::transfer::{Answer, Call, Transfer, Work};
use super::{DiskWaker, IoFault, IoFinished};
use crate::capability::Downgrade;
use crate::mem::Slab;
use nix::errno::Errno;
use nix::libc;
use std::collections::VecDeque;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Transfers that the engine takes for each thread, so that one is at hand when another ends.
const TRANSFERS_PER_THREAD: u32 = 2;

/// A thread's transfer, as far as the others need to know it.
#[derive(Debug)]
struct Running {
    tag: u64,
    drive: DriveId,
    bytes: u64,
    started: Instant,
    /// It was reported without its memory.
    is_given_up: bool,
}

/// What threads and the disk's owner share.
#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Transfer>,
    /// By thread.
    running: Vec<Option<Running>>,
    finished: Vec<IoFinished>,
    is_woken: bool,
    is_stopped: bool,
    /// Threads that a drive may have.
    depth: usize,
}

impl State {
    fn running_count(&self) -> usize {
        self.running.iter().flatten().count()
    }

    fn of_drive(&self, drive: DriveId) -> impl Iterator<Item = &Running> + Clone {
        self.running.iter().flatten().filter(move |running| running.drive == drive)
    }

    fn given_up_count(&self, drive: DriveId) -> usize {
        self.of_drive(drive).filter(|running| running.is_given_up).count()
    }

    /// Whether every thread that a drive may have is stuck in a call.
    fn is_stuck(&self, drive: DriveId) -> bool {
        let is_given_up =
            |running: &Option<Running>| running.as_ref().is_some_and(|it| it.is_given_up);
        self.given_up_count(drive) >= self.depth || self.running.iter().all(is_given_up)
    }

    /// Takes the next transfer of a drive that may have another thread.
    fn next(&mut self) -> Option<Transfer> {
        let may_begin =
            |transfer: &Transfer| self.of_drive(transfer.file().drive()).count() < self.depth;
        let at = self.queue.iter().position(may_begin)?;
        self.queue.remove(at)
    }
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// There is work, or the end.
    work: Condvar,
    /// Something finished, or somebody woke the owner.
    news: Condvar,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        // A thread that panicked left no half of a change: each is one assignment or push.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DiskWaker for Shared {
    fn wake(&self) {
        self.state().is_woken = true;
        self.news.notify_one();
    }
}

/// Threads that make blocking calls.
#[derive(Debug)]
pub(super) struct Psync {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Started, and not yet handed over.
    started: Vec<Transfer>,
    /// Threads that a drive may have.
    depth: u32,
    io_timeout: Duration,
    downgrade: Option<Downgrade>,
}

impl Psync {
    /// Starts `depth` threads for each of so many drives; `downgrade` says why there is nothing
    /// better.
    ///
    /// # Errors
    ///
    /// What the system says when it refuses a thread.
    pub(super) fn new(
        depth: u32,
        drive_count: u32,
        io_timeout: Duration,
        downgrade: Option<Downgrade>,
    ) -> io::Result<Self> {
        let mut psync = Self {
            shared: Arc::new(Shared::default()),
            threads: Vec::new(),
            started: Vec::new(),
            depth,
            io_timeout,
            downgrade,
        };
        psync.shared.state().depth = depth as usize;
        for index in 0..(depth * drive_count) as usize {
            psync.shared.state().running.push(None);
            let shared = Arc::clone(&psync.shared);
            let thread = thread::Builder::new().name(format!("kvtide-disk-{index}"));
            match thread.spawn(move || work(&shared, index)) {
                Ok(thread) => psync.threads.push(thread),
                Err(error) => {
                    psync.stop();
                    return Err(error);
                }
            }
        }
        Ok(psync)
    }
}

impl Engine for Psync {
    fn name(&self) -> &'static str {
        "psync"
    }

    fn downgrades(&self) -> Vec<Downgrade> {
        self.downgrade.iter().cloned().collect()
    }

    fn register(&mut self, _slabs: &[Arc<Slab>]) {}

    fn opened(&mut self, _file: &mut OpenFile) {}

    fn closed(&mut self, file: Arc<OpenFile>) {
        drop(file);
    }

    fn depth(&self) -> u32 {
        self.depth
    }

    fn load(&self, drive: DriveId) -> Load {
        let state = self.shared.state();
        let queued = self.started.iter().chain(&state.queue);
        let queued = queued.filter(|transfer| transfer.file().drive() == drive);
        let running = state.of_drive(drive).filter(|running| !running.is_given_up);
        let taken = queued.clone().count() + running.clone().count();
        let working = state.depth.saturating_sub(state.given_up_count(drive));
        let places = working * TRANSFERS_PER_THREAD as usize;
        Load {
            free_places: u32::try_from(places.saturating_sub(taken)).unwrap_or(u32::MAX),
            bytes_under_way: queued.map(Transfer::length).sum::<u64>()
                + running.map(|running| running.bytes).sum::<u64>(),
        }
    }

    fn start(&mut self, transfer: Transfer, _now: Instant) {
        self.started.push(transfer);
    }

    fn flush(&mut self) {
        if self.started.is_empty() {
            return;
        }
        self.shared.state().queue.extend(self.started.drain(..));
        self.shared.work.notify_all();
    }

    fn reap(&mut self, now: Instant, ready: &mut Vec<IoFinished>) {
        let mut state = self.shared.state();
        ready.append(&mut state.finished);
        let timed_out = || Err(IoFault::TimedOut);
        for running in state.running.iter_mut().flatten() {
            if !running.is_given_up && now.duration_since(running.started) >= self.io_timeout {
                running.is_given_up = true;
                ready.push(IoFinished { tag: running.tag, outcome: timed_out(), memory: None });
            }
        }
        let queue = std::mem::take(&mut state.queue);
        let (stuck, queue): (VecDeque<_>, _) =
            queue.into_iter().partition(|transfer| state.is_stuck(transfer.file().drive()));
        state.queue = queue;
        ready.extend(stuck.into_iter().map(|transfer| transfer.finish(timed_out())));
    }

    fn is_stuck(&self, drive: DriveId) -> bool {
        self.shared.state().is_stuck(drive)
    }

    fn wait(&mut self, timeout: Duration) {
        let mut state = self.shared.state();
        let running = state.running.iter().flatten().filter(|running| !running.is_given_up);
        let due = running.map(|running| running.started + self.io_timeout).min();
        let quiet = match due {
            Some(due) => due.saturating_duration_since(Instant::now()),
            // No thread has taken it yet; what it starts now is not overdue before this.
            None if !state.queue.is_empty() => self.io_timeout,
            None => Duration::MAX,
        };
        let is_quiet = |state: &mut State| !state.is_woken && state.finished.is_empty();
        let news = &self.shared.news;
        state = match news.wait_timeout_while(state, timeout.min(quiet), is_quiet) {
            Ok((state, _)) => state,
            Err(poisoned) => poisoned.into_inner().0,
        };
        state.is_woken = false;
    }

    fn waker(&self) -> Arc<dyn DiskWaker> {
        Arc::clone(&self.shared) as Arc<dyn DiskWaker>
    }

    fn under_way(&self) -> u32 {
        let state = self.shared.state();
        let count = self.started.len() + state.queue.len() + state.running_count();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Ends the threads. One that is stuck ends, and frees what it holds, when its call does.
    fn stop(&mut self) -> u32 {
        let is_stuck: Vec<bool> = {
            let mut state = self.shared.state();
            state.is_stopped = true;
            state.queue.clear();
            state.running.iter().map(Option::is_some).collect()
        };
        self.shared.work.notify_all();
        let mut stuck_count = 0;
        for (thread, is_stuck) in self.threads.drain(..).zip(is_stuck) {
            if is_stuck {
                stuck_count += 1;
            } else {
                // Joined so that nothing of the disk is left; a panic of its was printed.
                let _ = thread.join();
            }
        }
        stuck_count
    }
}

/// Works off the queue until the end.
fn work(shared: &Shared, index: usize) {
    let mut state = shared.state();
    loop {
        let mut transfer = loop {
            if let Some(transfer) = state.next() {
                break transfer;
            }
            if state.is_stopped {
                return;
            }
            state = shared.work.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        state.running[index] = Some(Running {
            tag: transfer.tag(),
            drive: transfer.file().drive(),
            bytes: transfer.length(),
            started: Instant::now(),
            is_given_up: false,
        });
        drop(state);
        let outcome = run(&mut transfer);
        state = shared.state();
        let running = state.running[index].take();
        if running.is_some_and(|running| running.is_given_up) {
            // Closing its file may take time.
            drop(state);
            drop(transfer);
            state = shared.state();
            // There is a place for what waits.
            state.is_woken = true;
            shared.news.notify_one();
        } else {
            state.finished.push(transfer.finish(outcome));
            shared.news.notify_one();
        }
    }
}

/// Runs a transfer to its end.
fn run(transfer: &mut Transfer) -> Result<(), IoFault> {
    loop {
        let answer = call(&transfer.call(), transfer.file());
        if let Answer::Done(outcome) = transfer.answer(answer) {
            return outcome;
        }
    }
}

/// Makes one system call; returns the bytes that it moved.
fn call(call: &Call, file: &OpenFile) -> Result<u32, Errno> {
    let descriptor = file.handle().as_raw_fd();
    let length = call.length as usize;
    // An offset beyond 2^63 becomes negative, which the kernel refuses.
    let offset = call.offset.cast_signed();
    let bytes = match call.work {
        Work::Read => {
            // SAFETY: the transfer owns the memory, checked to be writable, until the call is over.
            unsafe { libc::pread64(descriptor, call.address.cast(), length, offset) }
        }
        Work::Write => {
            // SAFETY: the transfer owns the memory until the call is over.
            unsafe { libc::pwrite64(descriptor, call.address.cast(), length, offset) }
        }
        Work::Sync => {
            // SAFETY: takes no memory; the file is open.
            let result = unsafe { libc::fdatasync(descriptor) };
            return Errno::result(result).map(|_| 0);
        }
    };
    let bytes = Errno::result(bytes)?;
    Ok(u32::try_from(bytes).expect("a call moves at most what it was asked for"))
}
