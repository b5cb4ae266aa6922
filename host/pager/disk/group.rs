//! One group's store in one stripe as the disk thread sees it: what waits, what is scanned, what
//! failed. Its slots are the store's own; the core's are theirs by the store's place.

use super::erase::{Erased, PendingErasure, hide};
use super::places::Place;
use crate::core::{Core, DiskFailure, DiskHop, FoundChunk, KEY_COUNT_MAX, Refused};
use crate::io::{Disk, IoFault, IoFinished, IoOperation};
use crate::key::Key;
use crate::mem::SlotMemory;
use crate::store::format::{HeaderStamp, Page};
use crate::store::{
    CloseReport, Entry, Finding, Landed, ReadFault, Scan, ScanProgress, Scanned, Store, StoreError,
    TagSpace, Task,
};
use crate::units::{GroupIndex, SlotIndex};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Incidents in a row, with no success between them, after which a drive counts as gone. What was
/// under way together and failed together is one.
const INCIDENTS_MAX: u32 = 8;

/// Entries of a snapshot that the core takes in at a time.
const BATCH: usize = KEY_COUNT_MAX;

/// Something to be done to the core under its lock.
type CoreCommand<'a> = &'a mut dyn FnMut(&mut Core) -> Result<(), Refused>;

/// Failures of a drive with no success between them.
#[derive(Clone, Copy, Debug, Default)]
struct Incidents {
    count: u32,
    /// When the last of them was seen: what was under way then belongs to it.
    latest: Option<Instant>,
}

/// What a store is still used for; it only ever becomes less.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Service {
    /// Everything.
    Full,
    /// Its writes were stopped: none begins any more.
    ReadOnly,
    /// Its drive was given up: nothing reads it any more either.
    Lost,
}

/// A group's store in one stripe, and what is under way in it.
#[derive(Debug)]
pub(in crate::pager) struct GroupStore {
    pub(super) store: Store,
    place: Place,
    pub(super) service: Service,
    scan: Option<Scan>,
    /// When reads of the scan were last submitted.
    scan_submitted: Option<Instant>,
    /// How far the scan came in the end.
    scanned: ScanProgress,
    /// What is to be erased when the scan is over.
    erasures: Vec<PendingErasure>,
    /// How far the scan came, if it moved on since the last look.
    moved_on: Option<ScanProgress>,
    /// Numbers of writes that wait until the run has begun.
    waiting: Vec<u32>,
    /// Nothing was written since the last sync began.
    is_synced: bool,
    /// The scan found chunks since the last sync began: who wrote them may not have synced them.
    has_found: bool,
    /// Incidents in a row, by hop: writes, reads.
    incidents: [Incidents; 2],
}

impl GroupStore {
    /// Takes a store over; one that is not recovered is scanned in the space of tags `space`.
    pub(super) fn new(store: Store, place: Place, space: TagSpace) -> Self {
        let scan = store.scan(space);
        Self {
            store,
            place,
            service: Service::Full,
            scan,
            scan_submitted: None,
            scanned: ScanProgress::default(),
            erasures: Vec::new(),
            moved_on: None,
            waiting: Vec::new(),
            is_synced: true,
            has_found: false,
            incidents: [Incidents::default(); 2],
        }
    }

    pub(super) fn place(&self) -> Place {
        self.place
    }

    pub(super) fn group(&self) -> GroupIndex {
        self.place.group
    }

    /// Returns the directory of its stripe.
    pub(super) fn root(&self) -> &Path {
        self.store.root()
    }

    /// Returns how far the scan came.
    pub(super) fn progress(&self) -> ScanProgress {
        self.scan.as_ref().map_or(self.scanned, Scan::progress)
    }

    /// Whether nothing is under way, a scan included.
    pub(super) fn is_quiet(&self) -> bool {
        self.scan.as_ref().is_none_or(|scan| scan.in_flight() == 0)
    }

    pub(super) fn is_synced(&self) -> bool {
        self.is_synced || self.store.poisoned().is_some()
    }

    /// Has the next sync cover what the scan has found so far.
    pub(super) fn want_found_synced(&mut self) {
        self.is_synced &= !std::mem::take(&mut self.has_found);
    }

    /// Lets a write wait for the run; returns whether it is the first to.
    pub(super) fn wait_for_run(&mut self, number: u32) -> bool {
        self.waiting.push(number);
        self.waiting.len() == 1
    }

    pub(super) fn take_waiting(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.waiting)
    }

    /// Names the write of a host slot into a disk slot, and stamps the header page for it.
    pub(super) fn stamp(
        &mut self,
        disk_slot: SlotIndex,
        slot: &SlotMemory,
        unix_s: u64,
    ) -> Result<(), StoreError> {
        let mut start = [0; HeaderStamp::OFFSET_BYTES];
        slot.read_header(0, &mut start);
        let write = self.store.begin_write(disk_slot, &start, unix_s)?;
        slot.write_header(HeaderStamp::OFFSET_BYTES, &write.stamp);
        Ok(())
    }

    /// Takes in the end of a slot write.
    pub(super) fn end_write(
        &mut self,
        disk_slot: SlotIndex,
        outcome: &Result<(), IoFault>,
    ) -> Result<(), DiskFailure> {
        let landed = self.store.end_write(disk_slot, outcome);
        match (landed, outcome) {
            (Landed::Counts, _) => {
                self.is_synced = false;
                self.incidents[hop_index(DiskHop::Write)] = Incidents::default();
                Ok(())
            }
            (_, Err(IoFault::NoSpace { .. })) => Err(DiskFailure::NoSpace),
            (Landed::Cleared, _) => Err(DiskFailure::Cleared),
            (Landed::Failed, _) => Err(DiskFailure::Drive),
        }
    }

    /// Takes in the end of a slot's read, whose header page is `page` now.
    pub(super) fn end_read(
        &mut self,
        disk_slot: SlotIndex,
        key: Key,
        page: &Page,
        outcome: &Result<(), IoFault>,
    ) -> Result<(), DiskFailure> {
        if outcome.is_err() {
            return Err(DiskFailure::Drive);
        }
        self.incidents[hop_index(DiskHop::Read)] = Incidents::default();
        match self.store.check_read(disk_slot, key, page) {
            Ok(_) => Ok(()),
            Err(ReadFault::Cleared { .. }) => Err(DiskFailure::Cleared),
            Err(fault) => {
                tracing::warn!(%fault, %key, slot = %disk_slot, "a slot is not what was written");
                Err(DiskFailure::Mismatch)
            }
        }
    }

    /// Counts the fault of a hop that was started then; returns whether the drive is to be given
    /// up for such hops.
    pub(super) fn has_failed_for_good(
        &mut self,
        hop: DiskHop,
        fault: &IoFault,
        started: Instant,
        now: Instant,
    ) -> bool {
        let incidents = &mut self.incidents[hop_index(hop)];
        if incidents.latest.is_none_or(|latest| started > latest) {
            *incidents = Incidents { count: incidents.count + 1, latest: Some(now) };
        }
        *fault == IoFault::ReadOnly || incidents.count >= INCIDENTS_MAX
    }

    /// Begins a sync of what is written by now.
    pub(super) fn sync(&mut self, space: TagSpace) -> Task {
        self.is_synced = true;
        self.store.sync(space)
    }

    pub(super) fn scans(&self, space: TagSpace) -> bool {
        self.scan.as_ref().is_some_and(|scan| scan.space() == space)
    }

    pub(super) fn scan_operations(&mut self, depth: u32, now: Instant) -> Vec<IoOperation> {
        let scan = self.scan.as_mut().filter(|_| self.service != Service::Lost);
        let operations = scan.map_or_else(Vec::new, |scan| scan.operations(&self.store, depth));
        if !operations.is_empty() {
            self.scan_submitted = Some(now);
        }
        operations
    }

    /// Takes in the end of a read of the scan. Returns the fault for which the drive is to be given
    /// up: writes of the group wait for a scan, and one of a drive that does not answer would take
    /// for ever.
    pub(super) fn scan_finished(&mut self, report: IoFinished, now: Instant) -> Option<IoFault> {
        let outcome = report.outcome.clone();
        if let Some(scan) = &mut self.scan {
            scan.finished(report);
        }
        match outcome {
            Ok(()) => {
                self.incidents[hop_index(DiskHop::Read)] = Incidents::default();
                None
            }
            Err(fault @ (IoFault::Drive { .. } | IoFault::TimedOut)) => {
                let submitted = self.scan_submitted.unwrap_or(now);
                self.has_failed_for_good(DiskHop::Read, &fault, submitted, now).then_some(fault)
            }
            Err(_) => None,
        }
    }

    /// Tells the core what the scan found, at most 64 slots a command.
    pub(super) fn adopt_scanned(
        &mut self,
        mut command: impl FnMut(CoreCommand<'_>) -> Result<(), Refused>,
    ) {
        let Some(scan) = &mut self.scan else { return };
        loop {
            let mut batch = scan.take(&mut self.store, BATCH);
            if batch.is_empty() {
                break;
            }
            hide(&self.erasures, &mut batch);
            self.moved_on = Some(scan.progress());
            let place = self.place;
            self.has_found |=
                batch.iter().any(|slot| matches!(slot.finding, Finding::Chunk { .. }));
            // A poisoned core takes nothing in: all lookups miss.
            let _poisoned = command(&mut |core| adopt_batch(core, place, &batch));
        }
        if scan.is_done() {
            self.scanned = scan.progress();
            self.moved_on = Some(self.scanned);
            self.scan = None;
            let ScanProgress { chunks, refused, unreadable, .. } = self.scanned;
            let directory = self.store.directory().display();
            if unreadable > 0 {
                tracing::warn!(%directory, chunks, refused, unreadable, "a store was scanned");
            } else {
                tracing::info!(%directory, chunks, refused, "a store was scanned");
            }
            let Place { group, stripe, .. } = self.place;
            let _poisoned = command(&mut |core| core.end_recovery(group, stripe));
        }
    }

    /// Takes an erasure on of what is written by now.
    pub(super) fn erase(&mut self, number: u32, erased: &Arc<Erased>) {
        let (erased, before) = (Arc::clone(erased), self.store.next_generation());
        self.erasures.push(PendingErasure { number, erased, before });
    }

    /// Returns the erasures that can begin, or never will: those of a store that was lost.
    pub(super) fn take_erasures(&mut self) -> Vec<PendingErasure> {
        let must_wait = self.scan.is_some() && self.service != Service::Lost;
        if must_wait { Vec::new() } else { std::mem::take(&mut self.erasures) }
    }

    /// Returns how far the scan came, if it moved on since the last call.
    pub(super) fn take_progress(&mut self) -> Option<ScanProgress> {
        self.moved_on.take()
    }

    /// Closes the store with a snapshot of what the core found worth keeping of its group, coldest
    /// first; what lies in other stores is left to them.
    pub(super) fn close(
        self,
        disk: &mut dyn Disk,
        found: &[FoundChunk],
    ) -> Result<CloseReport, StoreError> {
        let blocks = self.store.shape().blocks_per_chunk();
        let held = found.iter().filter_map(|chunk| {
            let slot = self.place.slot(chunk.disk_slot)?;
            Some((chunk, slot, self.store.generation(slot)))
        });
        let held: Vec<_> = held.collect();
        let entries = held.into_iter().filter_map(|(chunk, slot, generation)| {
            Some(Entry {
                slot,
                key: chunk.key,
                parent: chunk.parent,
                generation: generation?,
                tenant: chunk.tenant.into(),
                depth: chunk.depth,
                blocks,
                expires_s: 0,
            })
        });
        self.store.close(disk, entries)
    }
}

/// Takes in what a scan found in consecutive slots.
fn adopt_batch(core: &mut Core, place: Place, batch: &[Scanned]) -> Result<(), Refused> {
    let group = place.group;
    for Scanned { slot, finding } in batch {
        let disk_slot = place.disk_slot(*slot);
        match finding {
            Finding::Chunk { entry, replaces } => {
                let has_moved = match replaces {
                    Some(older) => {
                        core.move_disk(group, &found(place, entry), place.disk_slot(*older))?
                    }
                    None => false,
                };
                if !has_moved {
                    core.adopt_disk(group, &[found(place, entry)])?;
                }
                // What the core did not take in.
                core.free_disk_slots(group, disk_slot, 1)?;
            }
            // Better not used: the drive could not read it.
            Finding::Unreadable(_) => {}
            _ => {
                core.free_disk_slots(group, disk_slot, 1)?;
            }
        }
    }
    Ok(())
}

/// What the core is told of a chunk that was on disk before this run began.
pub(super) fn found(place: Place, entry: &Entry) -> FoundChunk {
    FoundChunk {
        key: entry.key,
        parent: entry.parent,
        depth: entry.depth,
        tenant: entry.tenant.tag(),
        disk_slot: place.disk_slot(entry.slot),
        // After a power cut it would not have been found; after a kill it may still be lost.
        is_durable: false,
    }
}

const fn hop_index(hop: DiskHop) -> usize {
    match hop {
        DiskHop::Write => 0,
        DiskHop::Read => 1,
    }
}
