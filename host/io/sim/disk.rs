//! A handle on a drive: what a program that runs on the machine holds.

use super::clock::nanoseconds;
use super::{SimClock, SimDrive, State, lock};
use crate::capability::Downgrade;
use crate::io::{Disk, DiskWaker, IoFinished, IoOperation, ShutReport};
use crate::mem::Slab;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// A disk back end whose drive, time and luck are simulated.
///
/// [`SimDrive::kill`] ends the program that holds it, [`SimDrive::cut_power`] the machine.
///
/// ```
/// use kvtide::io::sim::SimDrive;
/// use kvtide::io::{Files, IoBuffer, IoMemory, IoOperation, IoWork, OpenMode, run};
/// use std::path::Path;
///
/// let drive = SimDrive::new(7);
/// let mut disk = drive.disk(1);
/// let file = disk.open(Path::new("/data"), OpenMode::Create)?.file;
/// let memory = IoMemory::Buffer(IoBuffer::zeroed(1));
/// let write = IoOperation { tag: 0, file, work: IoWork::Write { offset: 0, memory } };
/// assert_eq!(run(&mut disk, vec![write])[0].outcome, Ok(()));
///
/// // Never synced, neither the file nor its directory: whether it survives is the seed's.
/// drive.cut_power();
/// assert!(disk.list(Path::new("/")).is_err(), "the handle went with the power");
/// assert!(drive.disk(2).list(Path::new("/"))?.len() <= 1);
/// # Ok::<(), kvtide::io::FileError>(())
/// ```
#[derive(Debug)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
    clock: SimClock,
    pub(super) number: u32,
    waker: Arc<SimWaker>,
}

#[derive(Debug, Default)]
struct SimWaker {
    is_awake: AtomicBool,
}

impl DiskWaker for SimWaker {
    fn wake(&self) {
        self.is_awake.store(true, Ordering::SeqCst);
    }
}

impl SimDisk {
    pub(super) fn new(drive: &SimDrive, seed: u64) -> Self {
        let number = drive.lock_state().add_disk(seed);
        let state = Arc::clone(&drive.state);
        Self { state, clock: drive.clock(), number, waker: Arc::default() }
    }

    /// Returns the handle's number on its drive, from 1 on: the process that holds its locks.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Returns the drive as it is now.
    pub(super) fn lock_state(&self) -> MutexGuard<'_, State> {
        let mut state = lock(&self.state);
        state.advance(self.clock.now().get());
        state
    }

    /// Lets virtual time pass while something holds for this handle, at most for `timeout`.
    fn pass_time(&self, timeout: Duration, holds: impl Fn(&mut State, u32) -> bool) {
        let mut state = self.lock_state();
        let deadline = self.clock.now().after(nanoseconds(timeout));
        while holds(&mut state, self.number) && self.clock.now() < deadline {
            let next = state.next_event().map_or(deadline, |event| event.min(deadline));
            self.clock.advance_to(next);
            state.advance(self.clock.now().get());
        }
    }
}

impl Disk for SimDisk {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn downgrades(&self) -> Vec<Downgrade> {
        Vec::new()
    }

    fn register(&mut self, _slots: &[Arc<Slab>]) {}

    fn depth(&self) -> u32 {
        self.lock_state().options.depth
    }

    fn submit(&mut self, operations: Vec<IoOperation>) {
        self.lock_state().submit(self.number, operations);
    }

    fn poll(&mut self, finished: &mut Vec<IoFinished>) {
        self.lock_state().poll(self.number, finished);
    }

    /// Lets virtual time pass until a report of this handle, or `timeout`; never sleeps. A thread
    /// that waits for nothing but a wake therefore spins.
    fn wait(&mut self, timeout: Duration) {
        if self.waker.is_awake.swap(false, Ordering::SeqCst) {
            return;
        }
        self.pass_time(timeout, |state, number| !state.has_finished(number));
    }

    fn waker(&self) -> Arc<dyn DiskWaker> {
        Arc::<SimWaker>::clone(&self.waker)
    }

    fn shut(self: Box<Self>, timeout: Duration) -> ShutReport {
        self.pass_time(timeout, State::is_busy);
        ShutReport { leaked_operations: self.lock_state().disk(self.number).under_way() }
    }
}

impl Drop for SimDisk {
    fn drop(&mut self) {
        // While a test unwinds nothing may happen, let alone panic.
        if !std::thread::panicking() {
            let io_timeout = self.lock_state().options.io_timeout;
            self.pass_time(io_timeout, State::is_busy);
        }
        lock(&self.state).abandon(self.number);
    }
}
