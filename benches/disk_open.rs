//! Opening a disk tier: how long a store that was closed takes to be open and warm, and how fast
//! one that was not closed is scanned, beside `fio` that reads pages of the same file at random.
//!
//! `cargo bench --bench disk_open -- [DIRECTORY] [--slots N]`; the default is a folder of the build
//! and 1,000,000 slots of 8 KiB, each with a chunk, which take up 8 GiB until the end. Figures are
//! medians. Without `fio` there are no ratios.
//!
//! The store is that of a pager, so that both the store alone and the pager over it are measured.

use kvtide::device::cpu::{CpuConfig, CpuDevice, DeviceMemory};
use kvtide::fingerprint::{Codec, ContentFingerprint, KeyMode, KvScales, RopeSettings, StoreId};
use kvtide::io::{
    Disk, DiskBackend, DiskOptions, IoBuffer, IoFinished, IoMemory, IoOperation, IoWork, open_disk,
};
use kvtide::key::Key;
use kvtide::layout::engines::{LatentCache, LayerBase};
use kvtide::layout::{Attention, ElementType, Layout, Paging};
use kvtide::pager::{DiskConfig, DiskHealth, Pager, PagerConfig};
use kvtide::store::format::{FORMAT_VERSION, HeaderIdentity, HeaderStamp, PAGE_BYTES};
use kvtide::store::{
    ChunkShape, Finding, Landed, Opened, Recovery, ScanReason, Store, StoreFile, StoreOptions,
    TagSpace,
};
use kvtide::units::{BlockCount, ByteCount, GroupIndex, SlotIndex, TenantId, TokenCount};
use kvtide_kernels::checksum::{mix, seal, sum};
use nix::time::{ClockId, clock_gettime};
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Chunks of one prompt, and prompts that are stored side by side.
const CHAIN_CHUNKS: u32 = 64;

const OPEN_COUNT: usize = 7;
const SCAN_COUNT: usize = 5;

/// Slots of a scan that are taken in at a time: those of the pager.
const BATCH: usize = 64;

const SLOT_BYTES: u64 = 8192;
const PAYLOAD_BYTES: usize = 4096;
/// Bytes of the payload that hold fragments: two blocks of 16 tokens of 32 bytes.
const SUMMED_BYTES: usize = 1024;

/// Room that is left to others.
const SPARE_BYTES: u64 = 1 << 30;

const RUN: TagSpace = TagSpace::new(1);
const SCAN: TagSpace = TagSpace::new(2);

type Outcome<T> = Result<T, Box<dyn Error>>;

/// A folder that goes when it is dropped, with all that is in it.
struct Folder(PathBuf);

impl Folder {
    /// Makes it anew: what is there of that name, a run that was killed has left.
    fn make(path: PathBuf) -> Outcome<Self> {
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            println!("{} has to be removed by hand: {error}", self.0.display());
        }
    }
}

/// The tier that is opened, as its pager and its store are told of it.
struct Tier {
    memory: Arc<DeviceMemory>,
    pager: PagerConfig,
    store: StoreOptions,
}

impl Tier {
    /// Has a pager make the tier, so that the number of slots is one that it asks for again.
    fn make(root: &Path, slot_count: u32) -> Outcome<Self> {
        let memory = DeviceMemory::allocate(ByteCount::new(1 << 20))?;
        let layout = layout(memory.address())?;
        let content = ContentFingerprint::builder()
            .model_id("opening")
            .revision("1")
            .rope(RopeSettings::AsInCheckpoint)
            .element_type("u8")
            .kv_scales(KvScales::None)
            .key_mode(KeyMode::EngineHashes)
            .build()?;
        let group = &layout.groups()[0];
        let store_id = StoreId::of_group(&content, group, Codec::Raw, FORMAT_VERSION);
        let shape = ChunkShape::of_group(group, Codec::Raw);
        assert_eq!(shape.slot(), ByteCount::new(SLOT_BYTES));
        let mut store = StoreOptions::new(root, store_id, shape, slot_count);
        // Few slots of the host tier: their memory is not what is measured.
        let mut pager = PagerConfig::new(layout, ByteCount::new(4 << 20));
        let mut disk = DiskConfig::new(root, capacity(slot_count), content);
        disk.backend = DiskBackend::Uring;
        // Another reader would be measured too.
        disk.scrub_budget = ByteCount::new(0);
        pager.disk = Some(disk);

        let made = Pager::open(&pager, device(&pager.layout, &memory)?)?;
        let counts = made.disk_slots(GroupIndex::new(0)).expect("the layout's only group");
        store.slot_count = counts.free;
        made.close();
        Ok(Self { memory, pager, store })
    }

    fn slot_count(&self) -> u32 {
        self.store.slot_count
    }

    fn open_store(&self, disk: &mut dyn Disk) -> Outcome<Opened> {
        let opened = Store::open(disk, &self.store)?;
        match opened.store.downgrades().first() {
            Some(downgrade) => Err(format!("{}: {}", downgrade.what, downgrade.why).into()),
            None => Ok(opened),
        }
    }

    /// Opens a pager, and returns how long that took.
    fn open_pager(&self) -> Outcome<(Pager, Duration)> {
        let device = device(&self.pager.layout, &self.memory)?;
        let started = Instant::now();
        let pager = Pager::open(&self.pager, device)?;
        Ok((pager, started.elapsed()))
    }

    /// Checks that every slot of the tier has a chunk that may hit.
    fn check_warm(&self, pager: &Pager) -> Outcome<()> {
        let counts = pager.disk_slots(GroupIndex::new(0)).expect("the layout's only group");
        let last = Chunk::of_slot(self.slot_count() - 1);
        let chain: Vec<Key> = (0..=last.depth).map(|depth| Chunk { depth, ..last }.key()).collect();
        let plan = pager.lookup(&[&chain])?;
        let tokens = u64::from(last.depth + 1) * 32;
        if counts.used != self.slot_count() || u64::from(plan.tokens().get()) != tokens {
            return Err(format!("{counts:?} and {:?} tokens are not warm", plan.tokens()).into());
        }
        Ok(())
    }

    /// Returns the path of the slots.
    fn data_path(&self, disk: &mut dyn Disk) -> Outcome<PathBuf> {
        let store = self.open_store(disk)?.store;
        let path = store.directory().join(StoreFile::Data.name());
        store.abandon(disk);
        Ok(path)
    }
}

fn layout(base_address: u64) -> Outcome<Layout> {
    let paging = Paging {
        block_tokens: TokenCount::new(16),
        blocks_per_chunk: BlockCount::new(2),
        block_count: BlockCount::new(128),
        attention: Attention::Full,
    };
    let cache = LatentCache { paging, element_type: ElementType::U8, row: ByteCount::new(32) };
    let layers = [LayerBase { layer: 0, base_address }];
    Ok(Layout::builder().group(cache.rows(&layers)).build()?)
}

fn device(layout: &Layout, memory: &Arc<DeviceMemory>) -> Outcome<Arc<CpuDevice>> {
    let config = CpuConfig { out_pieces: 4, in_pieces: 4 };
    Ok(CpuDevice::open(layout, vec![Arc::clone(memory)], config)?)
}

/// Returns a capacity for so many slots, with what a pager sets aside for index and file system.
fn capacity(slot_count: u32) -> ByteCount {
    let slots = u64::from(slot_count) * (SLOT_BYTES + 66);
    ByteCount::new(slots + (256 << 10) + slots.div_ceil(1 << 15) + 4096)
}

fn uring() -> Outcome<Box<dyn Disk>> {
    Ok(open_disk(&DiskOptions { backend: DiskBackend::Uring, ..DiskOptions::default() })?)
}

/// A chunk, named by its place: prompts that are stored side by side lie interleaved.
#[derive(Clone, Copy)]
struct Chunk {
    chain: u32,
    depth: u32,
}

impl Chunk {
    fn of_slot(slot: u32) -> Self {
        let per_window = CHAIN_CHUNKS * CHAIN_CHUNKS;
        Self {
            chain: slot / per_window * CHAIN_CHUNKS + slot % CHAIN_CHUNKS,
            depth: slot % per_window / CHAIN_CHUNKS,
        }
    }

    fn key(self) -> Key {
        let name = mix(u64::from(self.chain) << 32 | u64::from(self.depth + 1));
        Key::from_u128(u128::from(name) << 64 | u128::from(mix(name)))
    }

    fn parent(self) -> Option<Key> {
        let depth = self.depth.checked_sub(1)?;
        Some(Self { depth, ..self }.key())
    }

    /// Fills the image of the chunk's slot, but for its stamp.
    fn fill(self, image: &mut [u8]) -> Outcome<()> {
        let key = self.key();
        let identity = HeaderIdentity {
            key,
            parent: self.parent(),
            group: GroupIndex::new(0),
            codec: Codec::Raw,
            depth: self.depth,
            blocks: BlockCount::new(2),
            tokens: TokenCount::new(32),
            payload: ByteCount::new(PAYLOAD_BYTES as u64),
            part_count: 1,
            tenant: TenantId::new(0),
            expires_s: 0,
            recompute_us: 0,
        };
        let (page, payload) = image.split_at_mut(PAGE_BYTES);
        let mut words = [0; SUMMED_BYTES / 8];
        for (index, word) in (0..).zip(&mut words) {
            *word = mix(key.low_u64() ^ index);
        }
        for (bytes, word) in payload.as_chunks_mut::<8>().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        page[..HeaderIdentity::BYTES].copy_from_slice(&identity.encode()?);
        let sealed = seal(sum(&words, 0), key.low_u64());
        page[HeaderIdentity::BYTES..][..8].copy_from_slice(&sealed.to_le_bytes());
        Ok(())
    }
}

/// Returns what has been reported, and waits for it if need be.
fn reports(disk: &mut dyn Disk, finished: &mut Vec<IoFinished>) {
    disk.poll(finished);
    if finished.is_empty() {
        disk.wait(Duration::from_secs(10));
        disk.poll(finished);
    }
}

/// Puts a chunk into every slot, and leaves the store as a process does that is killed.
fn fill(tier: &Tier) -> Outcome<()> {
    let mut disk = uring()?;
    let disk = &mut *disk;
    let mut store = tier.open_store(disk)?.store;
    store.begin_run(RUN).run(&mut store, disk)?;
    let image_pages = usize::try_from(SLOT_BYTES / 4096)?;
    let mut buffers: Vec<_> = (0..disk.depth()).map(|_| IoBuffer::zeroed(image_pages)).collect();
    let (mut begun, mut ended, mut finished) = (0, 0, Vec::new());
    while ended < tier.slot_count() {
        let mut operations = Vec::new();
        while begun < tier.slot_count()
            && let Some(mut buffer) = buffers.pop()
        {
            let (slot, image) = (SlotIndex::new(begun), buffer.bytes_mut());
            Chunk::of_slot(begun).fill(image)?;
            let start = image.first_chunk().expect("an image has a header page");
            let write = store.begin_write(slot, start, 1_790_000_000)?;
            image[HeaderStamp::OFFSET_BYTES..][..HeaderStamp::BYTES].copy_from_slice(&write.stamp);
            let (offset, memory) = (store.slot_offset(slot), IoMemory::Buffer(buffer));
            let work = IoWork::Write { offset, memory };
            operations.push(IoOperation { tag: begun.into(), file: store.data_file(), work });
            begun += 1;
        }
        disk.submit(operations);
        reports(disk, &mut finished);
        for IoFinished { tag, outcome, memory } in finished.drain(..) {
            if store.end_write(SlotIndex::new(u32::try_from(tag)?), &outcome) != Landed::Counts {
                return Err(format!("slot {tag}: {outcome:?}").into());
            }
            buffers.extend(memory.and_then(IoMemory::into_buffer));
            ended += 1;
        }
    }
    store.sync(RUN).run(&mut store, disk)?;
    store.abandon(disk);
    Ok(())
}

/// Begins a run and abandons it: the next open has to scan.
fn abandon_run(tier: &Tier) -> Outcome<()> {
    let mut disk = uring()?;
    let mut store = tier.open_store(&mut *disk)?.store;
    store.begin_run(RUN).run(&mut store, &mut *disk)?;
    store.abandon(&mut *disk);
    Ok(())
}

/// Slots read in so much time.
#[derive(Clone, Copy)]
struct Pace {
    slots_per_s: f64,
    cpu_s_per_million: f64,
}

impl Pace {
    fn of(slot_count: u32, elapsed: Duration, cpu: Duration) -> Self {
        let slots = f64::from(slot_count);
        Self {
            slots_per_s: slots / elapsed.as_secs_f64(),
            cpu_s_per_million: cpu.as_secs_f64() * 1e6 / slots,
        }
    }
}

/// Scans the store as the pager's disk thread does, with nothing else to do.
fn scan(tier: &Tier) -> Outcome<Pace> {
    let mut disk = uring()?;
    let disk = &mut *disk;
    let Opened { mut store, recovery, .. } = tier.open_store(disk)?;
    if recovery != Recovery::ScanNeeded(ScanReason::Unclean) {
        return Err("the store need not be scanned".into());
    }
    let (started, cpu_started) = (Instant::now(), cpu_time());
    let mut scan = store.scan(SCAN).ok_or("the store is recovered")?;
    let (mut chunk_count, mut finished) = (0, Vec::new());
    loop {
        let operations = scan.operations(&store, disk.depth());
        if !operations.is_empty() {
            disk.submit(operations);
        }
        loop {
            let batch = scan.take(&mut store, BATCH);
            if batch.is_empty() {
                break;
            }
            let chunk =
                |finding: &Finding| matches!(finding, Finding::Chunk { replaces: None, .. });
            chunk_count += batch.iter().filter(|scanned| chunk(&scanned.finding)).count();
        }
        if scan.is_done() {
            break;
        }
        reports(disk, &mut finished);
        finished.drain(..).for_each(|report| scan.finished(report));
    }
    let (elapsed, cpu) = (started.elapsed(), cpu_time().saturating_sub(cpu_started));
    store.abandon(disk);
    if chunk_count != tier.slot_count() as usize {
        return Err(format!("{chunk_count} chunks found in {} slots", tier.slot_count()).into());
    }
    Ok(Pace::of(tier.slot_count(), elapsed, cpu))
}

/// Has a pager recover the tier, and close it cleanly.
fn recover(tier: &Tier) -> Outcome<Pace> {
    let (started, cpu_started) = (Instant::now(), cpu_time());
    let (pager, _) = tier.open_pager()?;
    while pager.disk_health() != Some(DiskHealth::Serving) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let (elapsed, cpu) = (started.elapsed(), cpu_time().saturating_sub(cpu_started));
    tier.check_warm(&pager)?;
    let report = pager.close();
    if !report.is_disk_clean {
        return Err("the tier was not closed cleanly".into());
    }
    Ok(Pace::of(tier.slot_count(), elapsed, cpu))
}

/// Opens the store that was closed, and returns how long its entries took.
fn open_store(tier: &Tier) -> Outcome<Duration> {
    let mut disk = uring()?;
    let started = Instant::now();
    let Opened { store, recovery, .. } = tier.open_store(&mut *disk)?;
    let elapsed = started.elapsed();
    store.abandon(&mut *disk);
    match recovery {
        Recovery::Ready(entries) if entries.len() == tier.slot_count() as usize => Ok(elapsed),
        Recovery::Ready(entries) => Err(format!("{} entries in the index", entries.len()).into()),
        Recovery::ScanNeeded(reason) => Err(reason.into()),
    }
}

/// Opens the pager over what was closed, and returns how long it took until every chunk may hit.
fn open_pager(tier: &Tier) -> Outcome<Duration> {
    let (pager, elapsed) = tier.open_pager()?;
    tier.check_warm(&pager)?;
    pager.close();
    Ok(elapsed)
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).expect("the clock exists");
    Duration::from(time)
}

fn median(mut values: Vec<f64>) -> f64 {
    if values.is_empty() {
        return f64::NAN;
    }
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Reads that many pages at random, and returns how many in a second; none without `fio`.
fn fio(path: &Path, count: u32) -> Option<f64> {
    let output = Command::new("fio")
        .args(["--name=pages", "--rw=randread", "--bs=4k", "--iodepth=64", "--direct=1"])
        .args(["--ioengine=io_uring", "--thread", "--norandommap", "--randrepeat=0"])
        .args(["--allow_file_create=0", "--readonly", "--output-format=terse"])
        .arg(format!("--filename={}", path.display()))
        .arg(format!("--io_size={}", u64::from(count) * 4096))
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // Version 3 of the terse format: reads a second are field 8.
    let line = text.lines().find(|line| line.starts_with("3;"));
    let rate = line.and_then(|line| line.split(';').nth(7)).and_then(|rate| rate.parse().ok());
    if rate.is_none() {
        println!("fio: {}{text}", String::from_utf8_lossy(&output.stderr));
    }
    rate
}

fn print_row(what: &str, figure: &str, goal: &str) {
    println!("| {what} | {figure} | {goal} |");
}

/// Prints what the paces of one way to recover come to, beside `fio`'s of the same rounds.
fn print_paces(what: &str, paces: &[Pace], fio_rates: &[f64], goal: &str) {
    let pairs = paces.iter().zip(fio_rates);
    let ratio = median(pairs.map(|(pace, fio)| pace.slots_per_s / fio).collect());
    let rate = median(paces.iter().map(|pace| pace.slots_per_s).collect());
    let cpu = median(paces.iter().map(|pace| pace.cpu_s_per_million).collect());
    let figure = format!("{rate:.0} slots/s, {ratio:.2} of fio, {cpu:.2} CPU-s a million");
    print_row(what, &figure, goal);
}

/// Measures everything over a tier in `root`.
fn measure(root: &Path, slot_count: u32) -> Outcome<()> {
    let tier = Tier::make(root, slot_count)?;
    fill(&tier)?;
    let data_path = tier.data_path(&mut *uring()?)?;
    let (mut scans, mut recoveries, mut fio_rates) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..SCAN_COUNT {
        abandon_run(&tier)?;
        scans.push(scan(&tier)?);
        fio_rates.extend(fio(&data_path, tier.slot_count()));
        recoveries.push(recover(&tier)?);
    }
    let (mut stores, mut pagers) = (Vec::new(), Vec::new());
    for _ in 0..OPEN_COUNT {
        stores.push(open_store(&tier)?.as_secs_f64());
        pagers.push(open_pager(&tier)?.as_secs_f64());
    }

    println!("\n{} slots of 8 KiB, each with a chunk", tier.slot_count());
    print_row("what", "figure", "goal");
    print_row("---", "---", "---");
    print_row("clean open, the store", &format!("{:.3} s", median(stores)), "< 0.1 s");
    print_row("clean open, the pager over it", &format!("{:.3} s", median(pagers)), "");
    print_paces("scan, the store", &scans, &fio_rates, ">= .90 of fio");
    print_paces("recovery, the pager over it", &recoveries, &fio_rates, "");
    let rate = median(fio_rates);
    print_row("fio, 4 KiB at random, 64 under way", &format!("{rate:.0} reads/s"), "");
    Ok(())
}

fn main() -> Outcome<()> {
    let mut directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("disk_open");
    let mut slot_count = 1_000_000;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--slots" => slot_count = arguments.next().ok_or("--slots: give a number")?.parse()?,
            // What cargo adds.
            "--bench" => {}
            _ if argument.starts_with("--") => {
                return Err(format!("{argument}: the only option is --slots N").into());
            }
            _ => directory = PathBuf::from(argument),
        }
    }
    let folder = Folder::make(directory.join("kvtide-disk-open"))?;
    let available = uring()?.space(&folder.0)?.available;
    let needed = ByteCount::new(capacity(slot_count).get() + SPARE_BYTES);
    if available < needed {
        let path = directory.display();
        return Err(format!(
            "{path} has {available} left, and {slot_count} slots of 8 KiB need {needed}, with \
             1 GiB for others; name another directory, or give --slots fewer"
        )
        .into());
    }
    measure(&folder.0, slot_count)
}
