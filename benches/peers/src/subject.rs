//! kvtide itself: slots of a slab, written and read in one operation each through `Disk`.
//!
//! A put stamps the header page (with sums: sums the payload first) and writes header and payload
//! together. A get reads both and, with sums, compares the
//! payload's with the header's. One thread does all of it.
//!
//! Called by `bench.rs`.

use crate::Failure;
use crate::memory::{Memory, Pages, Places, Reach, Use};
use crate::work::{Cost, Lap, LapKind, Watch, Workload, provision};
use kvtide::device::cpu::kernels::Level;
use kvtide::io::{Disk, FileId, IoMemory, IoOperation, IoWork, OpenMode};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How kvtide moves its slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Variant {
    /// Whether payloads are summed before a write and after a read.
    pub(crate) has_sums: bool,
    /// Where the slots lie.
    pub(crate) pages: Pages,
    /// How many of them are used.
    pub(crate) reach: Reach,
}

impl Variant {
    /// Names it in tables and on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match (self.has_sums, self.pages, self.reach) {
            (true, Pages::Huge, Reach::Wide) => "kvtide",
            (true, Pages::Huge, Reach::Narrow) => "kvtide-narrow",
            (true, Pages::Small, Reach::Wide) => "kvtide-4k",
            (true, Pages::Small, Reach::Narrow) => "kvtide-4k-narrow",
            (false, Pages::Huge, Reach::Wide) => "kvtide-plain",
            (false, Pages::Huge, Reach::Narrow) => "kvtide-plain-narrow",
            (false, Pages::Small, Reach::Wide) => "kvtide-plain-4k",
            (false, Pages::Small, Reach::Narrow) => "kvtide-plain-4k-narrow",
        }
    }

    /// Returns the workload as this variant does it: a narrow one has twice as many places as
    /// operations under way, since every other one waits inside the disk.
    pub(crate) fn workload(self, workload: Workload) -> Workload {
        let place_count = match self.reach {
            Reach::Wide => workload.place_count,
            Reach::Narrow => workload.place_count.min(2 * workload.depth),
        };
        Workload { place_count, ..workload }
    }
}

/// A disk, a file on it and the memory of its operations.
#[derive(Debug)]
pub(crate) struct Subject {
    disk: Box<dyn Disk>,
    path: PathBuf,
    workload: Workload,
    has_sums: bool,
    level: Level,
    memory: Arc<Memory>,
}

/// The places that a lap used.
struct Used {
    /// By slot: the place that it was written from.
    source_of: Vec<u32>,
    /// By place: the slot last read into it.
    slot_in: Vec<Option<u32>>,
}

impl Subject {
    /// Prepares laps on the file at `path` through `disk`.
    pub(crate) fn new(
        mut disk: Box<dyn Disk>,
        path: PathBuf,
        workload: Workload,
        has_sums: bool,
        memory: Arc<Memory>,
    ) -> Self {
        let places = [&memory.sources, &memory.targets];
        let slabs: Vec<_> = places.into_iter().filter_map(Places::slab).cloned().collect();
        disk.register(&slabs);
        Self { disk, path, workload, has_sums, level: Level::detect(), memory }
    }

    /// Says what the laps run on: back end, pages and downgrades.
    pub(crate) fn notes(&self) -> Vec<String> {
        let back_end = format!("{}, {}", self.disk.name(), self.memory.sources.page_kind());
        let downgrades = self.disk.downgrades().into_iter();
        let told =
            downgrades.map(|it| format!("downgrade: {}: {}; {}", it.what, it.why, it.effect));
        std::iter::once(back_end).chain(told).collect()
    }

    /// Writes and reads every slot once.
    pub(crate) fn lap(&mut self, kind: LapKind) -> Result<Lap, Failure> {
        if kind == LapKind::First {
            provision(&self.path, self.workload.total_bytes())?;
        }
        let opened = self.disk.open(&self.path, OpenMode::Existing)?;
        if let Some(downgrade) = opened.buffered {
            return Err(format!("no O_DIRECT: {}", downgrade.why).into());
        }
        let mut used = Used {
            source_of: vec![0; self.workload.slot_count as usize],
            slot_in: vec![None; self.workload.place_count as usize],
        };
        let order = self.workload.order(kind);
        let put = self.put(opened.file, &order, &mut used)?;
        // What the file system still does for the writes must not fall on the reads.
        sync(self.disk.as_mut(), opened.file)?;
        let get = self.get(opened.file, &order, &mut used)?;
        self.disk.close(opened.file);
        self.compare(&used)?;
        Ok(Lap { put, get })
    }

    fn put(&mut self, file: FileId, order: &[u32], used: &mut Used) -> Result<Cost, Failure> {
        let Self { disk, memory, level, has_sums, workload, .. } = self;
        let sources = &memory.sources;
        let begin = |slot: u32, place: u32| {
            let sum = if *has_sums { sources.view(place, |it| level.sum(it, 0)) } else { 0 };
            sources.write_header(place, [u64::from(slot), sealed(sum, slot)]);
            used.source_of[slot as usize] = place;
            let memory = sources.take(place, Use::WriteOut);
            IoWork::Write { offset: offset(workload, slot), memory }
        };
        let end = |_slot: u32, place: u32, memory: IoMemory| {
            sources.give_back(place, memory);
            Ok(())
        };
        let watch = Watch::start()?;
        stream(disk.as_mut(), file, workload, order, begin, end)?;
        watch.cost()
    }

    fn get(&mut self, file: FileId, order: &[u32], used: &mut Used) -> Result<Cost, Failure> {
        let Self { disk, memory, level, has_sums, workload, .. } = self;
        let targets = &memory.targets;
        let begin = |slot: u32, place: u32| {
            let memory = targets.take(place, Use::Fill);
            IoWork::Read { offset: offset(workload, slot), memory }
        };
        let end = |slot: u32, place: u32, memory: IoMemory| {
            targets.give_back(place, memory);
            used.slot_in[place as usize] = Some(slot);
            let [number, expected] = targets.read_header(place);
            let sum = if *has_sums { targets.view(place, |it| level.sum(it, 0)) } else { 0 };
            if number != u64::from(slot) || *has_sums && sealed(sum, slot) != expected {
                return Err(format!("slot {slot} came back wrong").into());
            }
            Ok(())
        };
        let watch = Watch::start()?;
        stream(disk.as_mut(), file, workload, order, begin, end)?;
        watch.cost()
    }

    /// Compares what is in memory now, byte for byte, with what was written.
    fn compare(&self, used: &Used) -> Result<(), Failure> {
        for (place, slot) in (0..).zip(&used.slot_in) {
            let Some(slot) = *slot else { continue };
            let source = used.source_of[slot as usize];
            if !self.memory.is_equal(place, source) {
                return Err(format!("slot {slot} came back wrong").into());
            }
        }
        Ok(())
    }
}

/// Adds what stands for a chunk's key, so that a payload in the wrong slot fails.
const fn sealed(sum: u64, slot: u32) -> u64 {
    sum.wrapping_add((slot as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

fn offset(workload: &Workload, slot: u32) -> u64 {
    u64::from(slot) * workload.slot_bytes as u64
}

/// Runs one operation a slot, in order, and uses the places in turn. As many operations are given
/// to the disk as it runs at a time, and as many again wait inside it.
fn stream(
    disk: &mut dyn Disk,
    file: FileId,
    workload: &Workload,
    order: &[u32],
    mut begin: impl FnMut(u32, u32) -> IoWork,
    mut end: impl FnMut(u32, u32, IoMemory) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let limit = (2 * disk.depth()).min(workload.place_count) as usize;
    let mut free: VecDeque<u32> = (0..workload.place_count).collect();
    let mut place_of = vec![0; workload.slot_count as usize];
    let mut waiting = order.iter().copied();
    let mut under_way = 0;
    let mut finished = VecDeque::new();
    loop {
        while under_way < limit
            && let Some(slot) = waiting.next()
        {
            let place = free.pop_front().expect("no more operations than places");
            place_of[slot as usize] = place;
            let work = begin(slot, place);
            disk.submit(vec![IoOperation { tag: u64::from(slot), file, work }]);
            under_way += 1;
        }
        if under_way == 0 {
            return Ok(());
        }
        let mut reports = Vec::new();
        disk.poll(&mut reports);
        finished.extend(reports);
        let Some(report) = finished.pop_front() else {
            disk.wait(Duration::from_millis(100));
            continue;
        };
        under_way -= 1;
        let slot = u32::try_from(report.tag)?;
        report.outcome.map_err(|fault| format!("slot {slot}: {fault}"))?;
        let place = place_of[slot as usize];
        end(slot, place, report.memory.ok_or("a report without its memory")?)?;
        free.push_back(place);
    }
}

/// Makes the file's data durable.
fn sync(disk: &mut dyn Disk, file: FileId) -> Result<(), Failure> {
    let operation = IoOperation { tag: 0, file, work: IoWork::Sync };
    for report in kvtide::io::run(disk, vec![operation]) {
        report.outcome.map_err(|fault| format!("the sync: {fault}"))?;
    }
    Ok(())
}
