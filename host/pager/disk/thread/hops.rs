//! Slot writes and reads: from the core's request to its completion.

use super::tasks::{Purpose, RunningTask};
use super::{DiskThread, GroupStore, HOPS, Place, Service};
use crate::core::{DiskFailure, DiskHop, DiskRequest};
use crate::io::{IoFault, IoFinished, IoMemory, IoOperation, IoWork, SlotPages, SlotWatch};
use crate::pager::disk::{DiskHealth, places};
use crate::pager::metrics::HopEnd;
use crate::store::TagSpace;
use crate::store::format::PAGE_BYTES;
use crate::units::SlotIndex;
use std::time::Instant;

/// Hops of a store that the kernel does not let go of, after which its drive counts as gone: each
/// keeps slots out of use.
const STUCK_MAX: usize = 4;

/// A slot write or read under way.
#[derive(Clone, Debug)]
pub(super) struct Flight {
    pub(super) request: DiskRequest,
    /// The store of its disk slot, and the slot in that.
    store: usize,
    slot: SlotIndex,
    started: Instant,
    /// Of the slot's memory, once the hop was submitted.
    watch: Option<SlotWatch>,
}

/// A hop that was given up while the kernel kept its memory.
#[derive(Debug)]
pub(super) struct StuckHop {
    request: DiskRequest,
    /// The store of its disk slot, and the slot in that.
    store: usize,
    slot: SlotIndex,
    watch: SlotWatch,
}

impl DiskThread {
    /// Submits every request that may begin: reads, and writes of stores that are in a run.
    pub(super) fn start_hops(&mut self) {
        let mut operations = self.start_parked();
        for request in std::mem::take(&mut self.requests) {
            let stores = self.stores.iter().map(GroupStore::place);
            let (store, slot) = places::find(stores, request.group, request.disk_slot);
            let started = self.shared.clock().instant();
            self.shared.meters().begin(request.hop.into(), started);
            let number = self.next_number;
            self.next_number = self.next_number.wrapping_add(1);
            let flight = Flight { request, store, slot, started, watch: None };
            self.flights.insert(number, flight.clone());
            match request.hop {
                DiskHop::Read => operations.extend(self.read(number, &flight)),
                DiskHop::Write if self.stores[store].store.is_running() => {
                    operations.extend(self.write(number, &flight));
                }
                DiskHop::Write => self.wait_for_run(store, number),
            }
        }
        if !operations.is_empty() {
            self.disk.submit(operations);
        }
    }

    /// Submits the writes that waited for their slot, where it was erased in the meantime.
    fn start_parked(&mut self) -> Vec<IoOperation> {
        let mut operations = Vec::new();
        for number in std::mem::take(&mut self.parked) {
            let flight = self.flights.get(&number).cloned();
            operations.extend(flight.and_then(|flight| self.write(number, &flight)));
        }
        operations
    }

    /// Makes a write wait until its store's run has begun.
    fn wait_for_run(&mut self, store: usize, number: u32) {
        let first = self.stores[store].wait_for_run(number);
        if let Some(error) = self.stores[store].store.poisoned() {
            self.stop_writes(store, &error.to_string());
            self.fail_waiting(store);
        } else if first {
            let space = self.take_space();
            let task = self.stores[store].store.begin_run(space);
            self.tasks.push(RunningTask { store, purpose: Purpose::BeginRun, task });
        }
    }

    /// Submits the writes that waited for their store's run.
    pub(super) fn start_waiting(&mut self, store: usize) {
        let mut operations = Vec::new();
        for number in self.stores[store].take_waiting() {
            let flight = self.flights.get(&number).cloned();
            operations.extend(flight.and_then(|flight| self.write(number, &flight)));
        }
        if !operations.is_empty() {
            self.disk.submit(operations);
        }
    }

    pub(super) fn fail_waiting(&mut self, store: usize) {
        for number in self.stores[store].take_waiting() {
            self.end_flight(number, Err(DiskFailure::Drive));
        }
    }

    /// Stamps a slot's header page for its write; `None` when it failed at once, or waits for zeros
    /// on their way into the slot.
    ///
    /// What was cleared or erased since the core asked for it is not written: its stamp would be
    /// newer than that, and a later scan would bring it back. A clear or erasure that comes after
    /// this look is one that the store has not been told of, so the stamp is older than that.
    fn write(&mut self, number: u32, flight: &Flight) -> Option<IoOperation> {
        let request = flight.request;
        let is_current =
            self.shared.collect(&mut self.effects, |core| core.is_current(request.chunk));
        if !is_current {
            self.end_flight(number, Err(DiskFailure::Cleared));
            return None;
        }
        let store = &mut self.stores[flight.store];
        if store.service != Service::Full {
            // It waited while the writes were stopped: zeros that were given up may land on it yet.
            self.end_flight(number, Err(DiskFailure::Drive));
            return None;
        }
        if store.store.is_writing(flight.slot) {
            self.parked.push(number);
            return None;
        }
        let slot = self.shared.whole_slot(request.group, request.slot);
        match store.stamp(flight.slot, &slot, self.shared.clock().unix_s()) {
            Ok(()) => {}
            Err(error) => {
                tracing::warn!(%error, key = %request.key, "a chunk is not written");
                self.end_flight(number, Err(DiskFailure::Drive));
                return None;
            }
        }
        let Some(pages) = SlotPages::to_write_out(slot) else {
            store.store.end_write(flight.slot, &Err(IoFault::NotOpen));
            self.end_flight(number, Err(DiskFailure::Drive));
            return None;
        };
        let (offset, file) = (store.store.slot_offset(flight.slot), store.store.data_file());
        self.watch(number, &pages);
        let work = IoWork::Write { offset, memory: IoMemory::Slot(pages) };
        Some(IoOperation { tag: HOPS.tag(number), file, work })
    }

    /// Remembers how to tell that nothing touches the slot's memory any more.
    fn watch(&mut self, number: u32, pages: &SlotPages) {
        if let Some(flight) = self.flights.get_mut(&number) {
            flight.watch = Some(pages.watch());
        }
    }

    fn read(&mut self, number: u32, flight: &Flight) -> Option<IoOperation> {
        let store = &self.stores[flight.store].store;
        let slot = self.shared.whole_slot(flight.request.group, flight.request.slot);
        let Some(pages) = SlotPages::to_fill(slot) else {
            self.end_flight(number, Err(DiskFailure::Drive));
            return None;
        };
        let (offset, file) = (store.slot_offset(flight.slot), store.data_file());
        self.watch(number, &pages);
        let work = IoWork::Read { offset, memory: IoMemory::Slot(pages) };
        Some(IoOperation { tag: HOPS.tag(number), file, work })
    }

    /// Takes in the end of a slot write or read.
    pub(super) fn end_hop(&mut self, report: IoFinished) {
        let number = TagSpace::number(report.tag);
        let Some(flight) = self.flights.get(&number).cloned() else { return };
        let Flight { request, store: at, slot: disk_slot, started, watch } = flight;
        // Before the completion: afterwards the slot may be anybody's.
        drop(report.memory);
        let outcome = match (watch.filter(|watch| !watch.is_over()), request.hop) {
            // The kernel may still fill the memory, or write it: for the store a write that may
            // land yet is under way.
            (Some(watch), _) => {
                self.stuck.push(StuckHop { request, store: at, slot: disk_slot, watch });
                Err(DiskFailure::Stuck)
            }
            (None, DiskHop::Write) => self.stores[at].end_write(disk_slot, &report.outcome),
            (None, DiskHop::Read) => {
                let slot = self.shared.whole_slot(request.group, request.slot);
                let mut page = [0; PAGE_BYTES];
                slot.read_header(0, &mut page);
                self.stores[at].end_read(disk_slot, request.key, &page, &report.outcome)
            }
        };
        if let Err(fault) = &report.outcome {
            let directory = self.stores[at].store.directory().display();
            let DiskRequest { hop, key, .. } = request;
            tracing::warn!(%fault, %directory, ?hop, %key, "a disk hop failed");
            self.judge_faults(at, request.hop, fault, started);
        }
        if self.stuck.iter().filter(|hop| hop.store == at).count() >= STUCK_MAX {
            self.lose_disk(at, "the drive does not let go of operations");
        }
        self.end_flight(number, outcome);
    }

    /// Gives back the slots of hops that were given up and have ended after all.
    pub(super) fn release_stuck(&mut self) {
        let over = self.stuck.extract_if(.., |hop| hop.watch.is_over());
        for hop in over.collect::<Vec<_>>() {
            self.end_stuck_write(&hop);
            self.shared.collect(&mut self.effects, |core| core.unstick(hop.request));
        }
    }

    /// Ends a write for its store that was given up before: nobody knows what became of the slot.
    fn end_stuck_write(&mut self, hop: &StuckHop) {
        if hop.request.hop == DiskHop::Write {
            self.stores[hop.store].store.end_write(hop.slot, &Err(IoFault::TimedOut));
        }
    }

    /// Leaves slots to the next run into which a write may yet land.
    pub(super) fn forget_stuck_writes(&mut self) {
        for hop in std::mem::take(&mut self.stuck) {
            self.end_stuck_write(&hop);
        }
    }

    /// Gives up on what fails again and again.
    fn judge_faults(&mut self, store: usize, hop: DiskHop, fault: &IoFault, started: Instant) {
        let now = self.shared.clock().instant();
        let has_failed_for_good = self.stores[store].has_failed_for_good(hop, fault, started, now);
        match hop {
            DiskHop::Write if has_failed_for_good => self.stop_writes(store, &fault.to_string()),
            DiskHop::Read if has_failed_for_good => self.lose_disk(store, &fault.to_string()),
            DiskHop::Write | DiskHop::Read => {}
        }
    }

    /// Gives a store's drive up, and says so.
    pub(super) fn lose_disk(&mut self, store: usize, reason: &str) {
        let health = DiskHealth::Lost { reason: self.reason(store, reason) };
        if self.shared.disk_state().set_health(store, health) {
            let directory = self.stores[store].store.directory().display();
            tracing::error!(reason, %directory, "a store of the disk tier is lost");
            self.stores[store].service = Service::Lost;
            let Place { group, stripe, .. } = self.stores[store].place();
            self.shared.collect(&mut self.effects, |core| core.stop_disk(group, stripe));
        }
    }

    /// Takes no more writes of a store, and says so.
    pub(super) fn stop_writes(&mut self, store: usize, reason: &str) {
        let health = DiskHealth::ReadOnly { reason: self.reason(store, reason) };
        if self.shared.disk_state().set_health(store, health) {
            let directory = self.stores[store].store.directory().display();
            tracing::error!(reason, %directory, "a store of the disk tier takes no more writes");
            self.stores[store].service = Service::ReadOnly;
            let Place { group, stripe, .. } = self.stores[store].place();
            self.shared.collect(&mut self.effects, |core| core.stop_writes(group, stripe));
        }
    }

    /// Names the store's directory in front of a reason, unless that does.
    fn reason(&self, store: usize, reason: &str) -> String {
        let directory = self.stores[store].store.directory().display().to_string();
        if reason.contains(&directory) {
            reason.to_owned()
        } else {
            format!("{directory}: {reason}")
        }
    }

    fn end_flight(&mut self, number: u32, outcome: Result<(), DiskFailure>) {
        let Some(Flight { request, started, .. }) = self.flights.remove(&number) else { return };
        let end = match outcome {
            Ok(()) => HopEnd::Moved(self.shared.slot_bytes(request.group)),
            Err(DiskFailure::Cleared) => HopEnd::Dropped,
            Err(_) => HopEnd::Failed,
        };
        let now = self.shared.clock().instant();
        self.shared.meters().end(request.hop.into(), started, now, end);
        self.completions.push(request.ended(outcome));
    }
}
