//! The drive: what outlives its handles, and what tests do to it and ask of it.

use super::faults::SimRule;
use super::file::SimFile;
use super::record::{SimCounters, SimRecord};
use super::tree::{Entries, Node};
use super::{SimClock, SimDisk, State, lock};
use crate::units::{ByteCount, Timestamp};
use nix::errno::Errno;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// What a drive is like.
#[derive(Clone, Debug)]
pub struct SimOptions {
    /// The time that its operations take. Share it to have several drives in one time.
    pub clock: SimClock,
    /// Bytes of the file system.
    pub total: ByteCount,
    /// Bytes of each file's writes that stay unsure until they are synced. When there are more, the
    /// oldest become durable, as a drive empties its cache: it bounds what a long run remembers.
    pub cache: ByteCount,
    /// Operations of one handle that are under way at a time on each part of the drive; at least 1.
    pub depth: u32,
    /// The longest that an operation takes by itself: each takes from 1 ns to this.
    pub latency_max: Duration,
    /// When an operation is given up.
    pub io_timeout: Duration,
}

impl Default for SimOptions {
    /// A terabyte, 64 MiB of cache a file, 32 operations at a time of up to a millisecond, given up
    /// after 10 s.
    fn default() -> Self {
        Self {
            clock: SimClock::default(),
            total: ByteCount::new(1 << 40),
            cache: ByteCount::new(64 << 20),
            depth: 32,
            latency_max: Duration::from_millis(1),
            io_timeout: Duration::from_secs(10),
        }
    }
}

/// Which of a file's bytes a test asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SimView {
    /// What programs see.
    Volatile,
    /// What is sure to survive a power cut at this moment.
    Durable,
}

/// A simulated drive with its file system. Clones are the same drive.
///
/// Its seed decides what a power cut leaves and which faults befall; the seeds of its handles
/// decide how long operations take. The same seeds and calls give the same run.
#[derive(Clone, Debug)]
pub struct SimDrive {
    pub(super) state: Arc<Mutex<State>>,
    clock: SimClock,
}

impl SimDrive {
    /// Makes an empty drive.
    pub fn new(seed: u64) -> Self {
        Self::with_options(seed, SimOptions::default())
    }

    /// Makes an empty drive of a given kind.
    ///
    /// # Panics
    ///
    /// If the depth is 0.
    pub fn with_options(seed: u64, options: SimOptions) -> Self {
        assert!(options.depth > 0, "a drive that carries out no operation");
        let clock = options.clock.clone();
        Self { state: Arc::new(Mutex::new(State::new(seed, options))), clock }
    }

    /// Opens a handle, as a program that starts on the machine does.
    pub fn disk(&self, seed: u64) -> SimDisk {
        SimDisk::new(self, seed)
    }

    /// Returns the drive's clock.
    pub fn clock(&self) -> SimClock {
        self.clock.clone()
    }

    /// Returns the drive as it is now.
    pub(super) fn lock_state(&self) -> MutexGuard<'_, State> {
        let mut state = lock(&self.state);
        state.advance(self.clock.now().get());
        state
    }

    /// Cuts the power and turns it on again. Every handle is dead from now on; what was not synced
    /// survives in part or not at all. A drive that vanished or became read-only is itself again.
    pub fn cut_power(&self) {
        self.lock_state().cut();
    }

    /// Kills the program that holds a handle, by the handle's number: what waits never starts, what
    /// is under way ends in its time, and locks go with the last operation of their file. The
    /// handle is dead from now on.
    pub fn kill(&self, disk: u32) {
        self.lock_state().kill(disk);
    }

    /// Has the power go with a later step, when `steps` more have gone through: each operation
    /// that ends, and each [`Files`](crate::io::Files) call that changes something, is one. An
    /// operation with which the power goes is still under way; a call has just been carried out,
    /// and fails.
    pub fn cut_after(&self, steps: u64) {
        self.lock_state().cut_in = Some(steps);
    }

    /// Returns when something happens next on the drive by itself, if nobody asks for more; `None`
    /// when nothing is under way.
    pub fn next_event(&self) -> Option<Timestamp> {
        self.lock_state().next_event()
    }

    /// Makes what lies below a directory a drive of its own, as far as faults and places go: it has
    /// its own depth, and vanishes or becomes read-only by itself. Call it before anything is
    /// there.
    ///
    /// # Panics
    ///
    /// If the directory is below another such one, or above it.
    pub fn mount(&self, path: &Path) {
        let mut state = self.lock_state();
        let is_nested = |other: &PathBuf| path.starts_with(other) || other.starts_with(path);
        assert!(!state.mounts.iter().any(is_nested), "a mount below {}", path.display());
        state.mounts.push(path.to_owned());
    }

    /// Adds a rule for faults. If several befall an operation, the first that was added wins.
    pub fn inject(&self, rule: SimRule) {
        self.lock_state().faults.add(rule);
    }

    /// Removes all rules. What they did to the drive stays.
    pub fn clear_faults(&self) {
        self.lock_state().faults.clear();
    }

    /// Makes everything that programs see durable, as if the machine had been idle for long.
    pub fn settle(&self) {
        let mut state = self.lock_state();
        state.tree.sync_all();
        for (_, file) in state.tree.files_mut() {
            file.sync(u64::MAX);
        }
    }

    /// Puts a durable file where a test wants one, with the directories above it. A file that is
    /// there is replaced.
    ///
    /// # Panics
    ///
    /// If a directory is at `path`, or a file above it.
    pub fn plant(&self, path: &Path, bytes: &[u8]) {
        let modified_s = self.clock.unix_s();
        self.put(path, Node::File(SimFile::planted(bytes, modified_s)));
    }

    /// Puts a durable entry that is neither file nor directory, such as a symbolic link.
    ///
    /// # Panics
    ///
    /// If a directory is at `path`, or a file above it.
    pub fn plant_link(&self, path: &Path) {
        self.put(path, Node::Other);
    }

    fn put(&self, path: &Path, node: Node) {
        let mut state = self.lock_state();
        let parent = path.parent().unwrap_or(Path::new(""));
        let put = state.tree.make_directories(parent).and_then(|()| {
            match state.tree.remove_file(path) {
                Ok(()) | Err(Errno::ENOENT) => {}
                Err(errno) => return Err(errno),
            }
            state.tree.make(path, node)
        });
        assert!(put.is_ok(), "cannot plant {}: {put:?}", path.display());
        state.tree.sync_all();
    }

    /// Flips the bits `mask` of one byte on the medium.
    ///
    /// # Panics
    ///
    /// If there is no such byte.
    pub fn flip(&self, path: &Path, offset: u64, mask: u8) {
        let mut state = self.lock_state();
        let node = state.tree.find(path, Entries::Volatile);
        let node = node.ok().filter(|&node| {
            state.tree.file(node).is_ok_and(|file| offset < file.volatile.length())
        });
        let Some(node) = node else { panic!("{} has no byte {offset}", path.display()) };
        state.tree.file_mut(node).flip(offset, mask);
    }

    /// Returns a file's bytes; `None` if there is no file. A file whose entry is not durable is
    /// not there in the durable view.
    pub fn bytes(&self, path: &Path, view: SimView) -> Option<Vec<u8>> {
        let state = self.lock_state();
        let entries = match view {
            SimView::Volatile => Entries::Volatile,
            SimView::Durable => Entries::Durable,
        };
        let file = state.tree.file(state.tree.find(path, entries).ok()?).ok()?;
        Some(match view {
            SimView::Volatile => file.volatile.bytes(),
            SimView::Durable => file.durable.bytes(),
        })
    }

    /// Returns how many changes of a file are not durable; `None` if there is no file.
    pub fn pending_changes(&self, path: &Path) -> Option<usize> {
        let state = self.lock_state();
        let node = state.tree.find(path, Entries::Volatile).ok()?;
        Some(state.tree.file(node).ok()?.pending_count())
    }

    /// Returns what was reported since the drive was made, in the order of the reports.
    pub fn log(&self) -> Vec<SimRecord> {
        self.lock_state().log.clone()
    }

    /// Returns sums over what was done.
    pub fn counters(&self) -> SimCounters {
        self.lock_state().counters
    }
}
