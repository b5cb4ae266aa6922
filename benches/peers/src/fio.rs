//! fio, the yardstick: the same file, block size, depth and order of work, nothing but I/O.
//!
//! Its buffers lie on reserved 2 MiB pages, which it can have no other way, or on 4 KiB pages from
//! the allocator. They are as many as its depth, so at the workload's they stay in the CPU's
//! caches, which favours it. A wide one is given as many as kvtide's slots in memory, and so many
//! operations under way too, since it takes no other buffers than it needs.
//!
//! Called by `bench.rs`.

use crate::Failure;
use crate::memory::{Pages, Reach, small_pages};
use crate::work::{Cost, Lap, LapKind, Workload, provision, settle};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Bytes of a huge page.
const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// A file to run fio on.
#[derive(Debug)]
pub(crate) struct Fio {
    path: PathBuf,
    workload: Workload,
    pages: Pages,
    depth: u32,
    version: String,
}

/// What fio prints with `--output-format=json`, as far as it is used.
#[derive(Debug, Deserialize)]
struct Output {
    jobs: Vec<Job>,
}

#[derive(Debug, Deserialize)]
struct Job {
    error: i32,
    read: Direction,
    write: Direction,
    /// Percent of the run time.
    usr_cpu: f64,
    /// Percent of the run time.
    sys_cpu: f64,
}

#[derive(Debug, Deserialize)]
struct Direction {
    io_bytes: u64,
    /// Milliseconds.
    runtime: f64,
}

impl Fio {
    /// Prepares laps on the file at `path`.
    ///
    /// Fails where fio is not installed, and for huge pages where too few are reserved.
    pub(crate) fn new(
        path: PathBuf,
        workload: Workload,
        pages: Pages,
        reach: Reach,
    ) -> Result<Self, Failure> {
        let told = Command::new("fio").arg("--version").output();
        let told = told.map_err(|error| format!("fio cannot be run ({error}); install it"))?;
        let depth = match reach {
            Reach::Narrow => workload.depth,
            Reach::Wide => workload.place_count,
        };
        let bytes = u64::from(depth) * workload.slot_bytes as u64;
        // One page more than its buffers fill, since it aligns them.
        let needed = bytes.div_ceil(HUGE_PAGE_BYTES) + 1;
        let free = free_huge_pages();
        if pages == Pages::Huge && free < needed {
            return Err(format!(
                "{free} reserved 2 MiB pages are free and {needed} are needed; raise \
                 vm.nr_hugepages"
            )
            .into());
        }
        let version = String::from_utf8_lossy(&told.stdout).trim().to_owned();
        Ok(Self { path, workload, pages, depth, version })
    }

    /// Says what the laps run on.
    pub(crate) fn notes(&self) -> Vec<String> {
        let kind = match self.pages {
            Pages::Huge => "reserved 2 MiB pages",
            Pages::Small => small_pages(),
        };
        vec![format!("{}, {kind}, {} operations under way", self.version, self.depth)]
    }

    /// Writes and reads every block once.
    pub(crate) fn lap(&self, kind: LapKind) -> Result<Lap, Failure> {
        if kind == LapKind::First {
            provision(&self.path, self.workload.total_bytes())?;
        }
        let order = if kind == LapKind::First { "" } else { "rand" };
        let put = self.run(&format!("{order}write"))?;
        settle(&self.path)?;
        let get = self.run(&format!("{order}read"))?;
        Ok(Lap { put: self.cost(&put, &put.write)?, get: self.cost(&get, &get.read)? })
    }

    fn run(&self, pattern: &str) -> Result<Job, Failure> {
        let (slot_bytes, depth) = (self.workload.slot_bytes, self.depth);
        let memory = if self.pages == Pages::Huge { "shmhuge" } else { "malloc" };
        let output = Command::new("fio")
            .args(["--name=peer", "--ioengine=io_uring", "--direct=1", "--fallocate=none"])
            .args(["--fixedbufs=1", "--registerfiles=1", "--gtod_reduce=1", "--thread"])
            .args(["--scramble_buffers=0", "--output-format=json"])
            .arg(format!("--filename={}", self.path.display()))
            .arg(format!("--rw={pattern}"))
            .arg(format!("--bs={slot_bytes}"))
            .arg(format!("--size={}", self.workload.total_bytes()))
            .arg(format!("--iodepth={depth}"))
            .arg(format!("--iomem={memory}"))
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        // Warnings may stand before the document.
        let document = text.find('{').map_or("", |start| &text[start..]);
        let parsed: Result<Output, _> = serde_json::from_str(document);
        let job = parsed.ok().and_then(|output| output.jobs.into_iter().next());
        match job {
            Some(job) if output.status.success() && job.error == 0 => Ok(job),
            _ => Err(format!("fio: {}", String::from_utf8_lossy(&output.stderr)).into()),
        }
    }

    fn cost(&self, job: &Job, direction: &Direction) -> Result<Cost, Failure> {
        if direction.io_bytes != self.workload.total_bytes() {
            return Err(format!("fio moved {} bytes", direction.io_bytes).into());
        }
        let seconds = direction.runtime / 1e3;
        Ok(Cost { seconds, cpu_seconds: seconds * (job.usr_cpu + job.sys_cpu) / 100.0 })
    }
}

/// Returns how many reserved 2 MiB pages nobody uses.
fn free_huge_pages() -> u64 {
    let path = Path::new("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}
