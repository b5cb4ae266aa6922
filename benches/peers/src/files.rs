//! One file a slot, as vLLM's fs tier does it: a pool of threads, `O_DIRECT`, one write or read
//! system call a file.
//!
//! A put looks whether the name exists, makes a file of another name, writes the payload in one
//! call, closes and renames it; nothing is synced. A get opens, reads in one call and closes. Both
//! are those of vLLM 0.33; its folders, which it makes as it goes, are made beforehand here.
//!
//! Files are always new: a name that exists is never written again, in vLLM neither. So the first
//! lap differs from later ones in the order only.
//!
//! Called by `bench.rs`.

use crate::Failure;
use crate::memory::Memory;
use crate::work::{Cost, Lap, LapKind, Watch, Workload};
use nix::fcntl::OFlag;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Threads of the pool, vLLM's default.
const THREAD_COUNT: u32 = 16;

/// Folders that the files are spread over.
const FOLDER_COUNT: u32 = 256;

/// A folder of files and the memory that they are written from and read into.
#[derive(Debug)]
pub(crate) struct Files {
    folder: PathBuf,
    workload: Workload,
    memory: Arc<Memory>,
}

impl Files {
    /// Prepares laps in `folder`, which need not exist.
    pub(crate) fn new(
        folder: PathBuf,
        workload: Workload,
        memory: Arc<Memory>,
    ) -> Result<Self, Failure> {
        if workload.place_count < THREAD_COUNT {
            return Err(format!("{THREAD_COUNT} threads need as many places").into());
        }
        Ok(Self { folder, workload, memory })
    }

    /// Says what the laps run on.
    pub(crate) fn notes(&self) -> Vec<String> {
        vec![format!("{THREAD_COUNT} threads, {}", self.memory.sources.page_kind())]
    }

    /// Writes and reads every slot once.
    pub(crate) fn lap(&self, kind: LapKind) -> Result<Lap, Failure> {
        if self.folder.exists() {
            fs::remove_dir_all(&self.folder)?;
        }
        for folder in 0..FOLDER_COUNT {
            fs::create_dir_all(self.folder.join(format!("{folder:02x}")))?;
        }
        let order = self.workload.order(kind);
        let put = self.pool(&order, |slot, _| self.write(slot))?;
        let get = self.pool(&order, |slot, place| self.read(slot, place))?;
        self.compare(&order)?;
        fs::remove_dir_all(&self.folder)?;
        Ok(Lap { put, get })
    }

    /// Has the threads do `work` for every slot, each in places of its own.
    fn pool(
        &self,
        order: &[u32],
        work: impl Fn(u32, u32) -> Result<(), Failure> + Sync,
    ) -> Result<Cost, Failure> {
        let next = AtomicUsize::new(0);
        let watch = Watch::start()?;
        let run = |thread: u32| {
            let mut places =
                (thread..self.workload.place_count).step_by(THREAD_COUNT as usize).cycle();
            while let Some(&slot) = order.get(next.fetch_add(1, Ordering::Relaxed)) {
                let place = places.next().expect("a cycle has no end");
                work(slot, place).map_err(|error| format!("slot {slot}: {error}"))?;
            }
            Ok(())
        };
        let outcomes: Vec<Result<(), String>> = thread::scope(|scope| {
            let threads: Vec<_> =
                (0..THREAD_COUNT).map(|thread| scope.spawn(move || run(thread))).collect();
            let ended = threads.into_iter().map(thread::ScopedJoinHandle::join);
            ended.map(|end| end.unwrap_or_else(|_| Err("a thread panicked".to_owned()))).collect()
        });
        outcomes.into_iter().collect::<Result<(), String>>()?;
        watch.cost()
    }

    fn write(&self, slot: u32) -> Result<(), Failure> {
        let path = self.path(slot);
        if path.exists() {
            return Ok(());
        }
        let temporary = path.with_extension("tmp");
        let mut file = options().write(true).create_new(true).open(&temporary)?;
        let written = self.memory.sources.view(self.source(slot), |payload| file.write(payload))?;
        drop(file);
        if written != self.workload.payload_bytes() {
            return Err(format!("{written} bytes written").into());
        }
        fs::rename(&temporary, &path)?;
        Ok(())
    }

    fn read(&self, slot: u32, place: u32) -> Result<(), Failure> {
        let mut file = options().read(true).open(self.path(slot))?;
        let read = self.memory.targets.change(place, |payload| file.read(payload))?;
        if read != self.workload.payload_bytes() {
            return Err(format!("{read} bytes read").into());
        }
        Ok(())
    }

    /// Reads some files again, outside of the measurement, and compares every byte.
    fn compare(&self, order: &[u32]) -> Result<(), Failure> {
        for &slot in order.iter().rev().take(self.workload.place_count as usize) {
            self.read(slot, 0)?;
            if !self.memory.is_equal(0, self.source(slot)) {
                return Err(format!("slot {slot} came back wrong").into());
            }
        }
        Ok(())
    }

    fn source(&self, slot: u32) -> u32 {
        slot % self.workload.place_count
    }

    fn path(&self, slot: u32) -> PathBuf {
        let folder = format!("{:02x}", slot % FOLDER_COUNT);
        [&self.folder, Path::new(&folder), Path::new(&format!("{slot:016x}.bin"))].iter().collect()
    }
}

fn options() -> fs::OpenOptions {
    let mut options = File::options();
    options.mode(0o644).custom_flags(OFlag::O_DIRECT.bits());
    options
}
