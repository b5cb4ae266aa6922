//! The disk at its limits: slots read and written in order, and pages read at random, over depths,
//! page sizes and back ends, beside `fio` on the same file.
//!
//! `cargo bench --bench disk_io -- [DIRECTORY]`; the default is a folder of the build. Figures are
//! medians of interleaved rounds. `fio` runs if it is installed, and with 2 MiB pages if at least
//! 64 MiB of them are reserved (`vm.nr_hugepages`).

use kvtide::io::{
    Disk, DiskBackend, DiskOptions, FileId, IoBuffer, IoMemory, IoOperation, IoWork, OpenMode,
    SlotPages, open_disk,
};
use kvtide::mem::Slab;
use kvtide::units::{ByteCount, SlotIndex};
use nix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of the file, and of one pass over it.
const FILE_BYTES: u64 = 1 << 30;

/// Reads of one pass at random.
const RANDOM_READ_COUNT: u64 = 40_000;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// What one pass does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Write,
    Read,
    RandomRead,
}

impl Pass {
    fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::Read => "read",
            Self::RandomRead => "randread",
        }
    }
}

/// Where a pass's bytes lie in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Memory {
    /// Slots on 2 MiB pages, registered.
    Registered,
    /// Slots on 2 MiB pages.
    Slots,
    /// Buffers on 4 KiB pages.
    SmallPages,
}

/// A way to run passes: a disk with its file, and memory for each operation under way.
struct Setup {
    disk: Box<dyn Disk>,
    file: FileId,
    block: u64,
    depth: u32,
    slab: Option<Arc<Slab>>,
}

/// Figures of one pass.
#[derive(Clone, Copy)]
struct Figures {
    gb_per_s: f64,
    cpu_s_per_gb: f64,
}

impl Setup {
    fn new(
        path: &Path,
        backend: DiskBackend,
        memory: Memory,
        depth: u32,
        block: u64,
    ) -> Outcome<Self> {
        // The depth is to be the only bound.
        let depth_bytes = ByteCount::new(u64::MAX);
        let options = DiskOptions { backend, depth, depth_bytes, ..DiskOptions::default() };
        let mut disk = open_disk(&options)?;
        let opened = disk.open(path, OpenMode::Create)?;
        if let Some(buffered) = opened.buffered {
            return Err(format!("the figures would be those of memory: {}", buffered.why).into());
        }
        let mut slab = None;
        if memory != Memory::SmallPages {
            // At least 2 MiB, so that the slab asks for huge pages at all.
            let slot_count = u64::from(depth).max(2 * MIB / block);
            let slots = Slab::allocate(u32::try_from(slot_count)?, ByteCount::new(block))?;
            if let Some(downgrade) = slots.downgrade() {
                return Err(format!("{}: {}", downgrade.what, downgrade.why).into());
            }
            if memory == Memory::Registered {
                disk.register(&[Arc::clone(&slots)]);
            }
            slab = Some(slots);
        }
        for downgrade in disk.downgrades() {
            println!("downgrade: {}: {}", downgrade.what, downgrade.why);
        }
        Ok(Self { disk, file: opened.file, block, depth, slab })
    }

    /// Returns the memory of one operation.
    fn memory(&self, pass: Pass, index: u32) -> IoMemory {
        let Some(slab) = &self.slab else {
            let mut buffer = IoBuffer::zeroed(usize::try_from(self.block / 4096).expect("small"));
            // Faulted in, as slots are.
            buffer.bytes_mut().fill(1);
            return IoMemory::Buffer(buffer);
        };
        let slot = slab.slot(SlotIndex::new(index), slab.slot_bytes());
        let pages = match pass {
            Pass::Write => SlotPages::to_write_out(slot),
            Pass::Read | Pass::RandomRead => SlotPages::to_fill(slot),
        };
        IoMemory::Slot(pages.expect("no other pass uses it"))
    }

    /// Runs one pass over the file, or that many random reads.
    fn run(&mut self, pass: Pass) -> Outcome<Figures> {
        let block_count = FILE_BYTES / self.block;
        let count = if pass == Pass::RandomRead { RANDOM_READ_COUNT } else { block_count };
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next_block = |index: u64| {
            if pass != Pass::RandomRead {
                return index;
            }
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % block_count
        };
        let mut memory: Vec<IoMemory> =
            (0..self.depth).map(|index| self.memory(pass, index)).collect();
        let (started, cpu_started) = (Instant::now(), cpu_time());
        let (mut begun, mut ended, mut finished) = (0, 0, Vec::new());
        while ended < count {
            let mut operations = Vec::with_capacity(memory.len());
            while begun < count
                && let Some(memory) = memory.pop()
            {
                let offset = next_block(begun) * self.block;
                let work = match pass {
                    Pass::Write => IoWork::Write { offset, memory },
                    Pass::Read | Pass::RandomRead => IoWork::Read { offset, memory },
                };
                operations.push(IoOperation { tag: begun, file: self.file, work });
                begun += 1;
            }
            if !operations.is_empty() {
                self.disk.submit(operations);
            }
            self.disk.wait(Duration::from_secs(10));
            self.disk.poll(&mut finished);
            for report in finished.drain(..) {
                report.outcome?;
                memory.extend(report.memory);
                ended += 1;
            }
        }
        let (elapsed, cpu) = (started.elapsed(), cpu_time().saturating_sub(cpu_started));
        // Whole KiB of at most a few GiB, so that the division below is exact.
        let gigabytes = f64::from(u32::try_from(count * self.block / KIB)?) * 1024.0 / 1e9;
        Ok(Figures {
            gb_per_s: gigabytes / elapsed.as_secs_f64(),
            cpu_s_per_gb: cpu.as_secs_f64() / gigabytes,
        })
    }
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).expect("the clock exists");
    Duration::from(time)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Prints a table of depths by blocks, medians of `round_count` rounds.
fn depths(path: &Path, pass: Pass, blocks: &[u64], round_count: usize) -> Outcome<()> {
    let depths = [1, 2, 4, 8, 16, 32, 64, 128];
    println!("\n{} by depth, GB/s (CPU-s a GB), io_uring, registered, 2 MiB pages", pass.name());
    for &block in blocks {
        let mut figures = vec![Vec::new(); depths.len()];
        for _ in 0..round_count {
            for (depth, figures) in depths.iter().zip(&mut figures) {
                let mut setup =
                    Setup::new(path, DiskBackend::Uring, Memory::Registered, *depth, block)?;
                figures.push(setup.run(pass)?);
            }
        }
        print!("| {} KiB |", block / KIB);
        for figures in &figures {
            let rate = median(figures.iter().map(|figures| figures.gb_per_s).collect());
            let cpu = median(figures.iter().map(|figures| figures.cpu_s_per_gb).collect());
            print!(" {rate:.2} ({cpu:.3}) |");
        }
        println!();
    }
    Ok(())
}

/// Runs one pass of `fio` and returns its rate; none if it is not installed.
fn fio(path: &Path, pass: Pass, block: u64, depth: u32, is_huge: bool) -> Option<f64> {
    let size = match pass {
        Pass::RandomRead => RANDOM_READ_COUNT * block,
        Pass::Write | Pass::Read => FILE_BYTES,
    };
    let output = Command::new("fio")
        .args(["--name=pass", "--direct=1", "--ioengine=io_uring", "--output-format=terse"])
        .args(["--thread", "--norandommap", "--randrepeat=0", "--allow_file_create=0"])
        .arg(format!("--filename={}", path.display()))
        .arg(format!("--rw={}", pass.name()))
        .arg(format!("--bs={block}"))
        .arg(format!("--iodepth={depth}"))
        .arg(format!("--filesize={FILE_BYTES}"))
        .arg(format!("--io_size={size}"))
        .arg(if is_huge { "--mem=mmaphuge" } else { "--mem=mmap" })
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // Version 3 of the terse format: the read rate in KiB/s is field 7, the write rate field 48.
    let field = if pass == Pass::Write { 47 } else { 6 };
    let line = text.lines().find(|line| line.starts_with("3;"));
    let rate = line.and_then(|line| line.split(';').nth(field)).and_then(|rate| rate.parse().ok());
    if rate.is_none() {
        println!("fio: {}{text}", String::from_utf8_lossy(&output.stderr));
    }
    rate.map(|kibibytes: f64| kibibytes * 1024.0 / 1e9)
}

/// Prints rates of several ways to run one pass, and their ratios to the first `fio`.
fn ways(path: &Path, pass: Pass, block: u64, depth: u32, round_count: usize) -> Outcome<()> {
    let is_fio_huge = fs::read_to_string("/proc/meminfo")?
        .lines()
        .find_map(|line| line.strip_prefix("HugePages_Free:"))
        .and_then(|count| count.trim().parse::<u64>().ok())
        .is_some_and(|count| count >= 32);
    let ours = [
        ("io_uring, registered, 2 MiB pages", DiskBackend::Uring, Memory::Registered),
        ("io_uring, 2 MiB pages", DiskBackend::Uring, Memory::Slots),
        ("io_uring, 4 KiB pages", DiskBackend::Uring, Memory::SmallPages),
        ("psync, 2 MiB pages", DiskBackend::Psync, Memory::Slots),
    ];
    let mut fio_rates = Vec::new();
    let mut figures = vec![Vec::new(); ours.len()];
    for _ in 0..round_count {
        fio_rates.extend(fio(path, pass, block, depth, is_fio_huge));
        for ((_, backend, memory), figures) in ours.iter().zip(&mut figures) {
            let mut setup = Setup::new(path, *backend, *memory, depth, block)?;
            figures.push(setup.run(pass)?);
        }
    }
    println!("\n{} of {} KiB at depth {depth}", pass.name(), block / KIB);
    if !fio_rates.is_empty() {
        let pages = if is_fio_huge { "2 MiB" } else { "4 KiB" };
        println!("| fio, {pages} pages | {:.2} GB/s |", median(fio_rates.clone()));
    }
    for ((name, ..), figures) in ours.iter().zip(&figures) {
        let rate = median(figures.iter().map(|figures| figures.gb_per_s).collect());
        let cpu = median(figures.iter().map(|figures| figures.cpu_s_per_gb).collect());
        let pairs = figures.iter().zip(&fio_rates);
        let ratios: Vec<f64> = pairs.map(|(figures, fio)| figures.gb_per_s / fio).collect();
        let ratio = if ratios.is_empty() { f64::NAN } else { median(ratios) };
        println!("| {name} | {rate:.2} GB/s | {ratio:.2} of fio | {cpu:.3} CPU-s a GB |");
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let given = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let directory =
        given.map_or_else(|| Path::new(env!("CARGO_TARGET_TMPDIR")).join("disk_io"), PathBuf::from);
    fs::create_dir_all(&directory)?;
    let path = directory.join("kvtide-disk-io");
    let sizes = [256 * KIB, MIB, 2 * MIB, 4 * MIB];

    let mut setup = Setup::new(&path, DiskBackend::Auto, Memory::Registered, 8, 2 * MIB)?;
    let downgrade = setup.disk.allocate(setup.file, ByteCount::new(FILE_BYTES))?;
    let first = setup.run(Pass::Write)?;
    println!("first lap over reserved blocks: {:.2} GB/s ({downgrade:?})", first.gb_per_s);
    drop(setup);

    depths(&path, Pass::Write, &sizes, 3)?;
    depths(&path, Pass::Read, &sizes, 3)?;
    depths(&path, Pass::RandomRead, &[4 * KIB], 3)?;
    for block in sizes {
        ways(&path, Pass::Write, block, 8, 7)?;
        ways(&path, Pass::Read, block, 8, 7)?;
    }
    ways(&path, Pass::RandomRead, 4 * KIB, 64, 7)?;
    fs::remove_file(&path)?;
    Ok(())
}
