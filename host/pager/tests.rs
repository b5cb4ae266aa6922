//! The pager over a device whose operations end when the test says so: what tickets, plans and
//! closing promise, without a byte moved.

use super::config::{Share, shares};
use super::{
    Health, LoadChunks, OpenError, Pager, PagerConfig, RequestError, StoreChunks, Ticket,
    TicketReport,
};
use crate::core::{Core, Failure, Hop, MissReason, Stage};
use crate::device::{
    Device, DeviceError, EventHandle, Finished, Operation, Outcome, Ready, Staging, Work,
};
use crate::key::Key;
use crate::layout::engines::{LatentCache, LayerBase};
use crate::layout::{Attention, ElementType, Group, Layout, Paging};
use crate::units::{BlockCount, BlockId, ByteCount, GroupIndex, TenantId, TokenCount};
use proptest::prelude::*;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

const GROUP: GroupIndex = GroupIndex::new(0);
const SOON: Duration = Duration::from_secs(20);
const BLOCK_COUNT: u32 = 4096;
const SLOT_BYTES: u64 = 8192;

/// Ends operations only when told to, or at once while `automatic`.
#[derive(Debug)]
struct ManualDevice {
    state: Mutex<State>,
    changed: Condvar,
    pieces: u32,
    is_claimed: AtomicBool,
    /// Panics at the next poll.
    panics: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    automatic: bool,
    operations: Vec<(u64, Hop)>,
    finished: Vec<Finished>,
    is_woken: bool,
    is_abandoned: bool,
    /// Refuses operations that read or write this block.
    refused: Option<BlockId>,
}

impl ManualDevice {
    fn new(automatic: bool, pieces: u32) -> Arc<Self> {
        let state = State { automatic, ..State::default() };
        let (state, changed) = (Mutex::new(state), Condvar::new());
        let (is_claimed, panics) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(Self { state, changed, pieces, is_claimed, panics })
    }

    /// Waits for operations of `hop` to be under way, and ends all that are.
    fn finish(&self, hop: Hop, outcome: Outcome) -> usize {
        let mut state = self.state.lock().unwrap();
        while !state.operations.iter().any(|(_, under_way)| *under_way == hop) {
            let (next, timeout) = self.changed.wait_timeout(state, SOON).unwrap();
            assert!(!timeout.timed_out(), "no {hop:?} came");
            state = next;
        }
        let (ended, rest) =
            state.operations.drain(..).partition::<Vec<_>, _>(|(_, under_way)| *under_way == hop);
        state.operations = rest;
        state.finished.extend(ended.iter().map(|(tag, _)| Finished { tag: *tag, outcome }));
        self.changed.notify_all();
        ended.len()
    }

    fn under_way(&self) -> usize {
        self.state.lock().unwrap().operations.len()
    }
}

impl Device for ManualDevice {
    fn name(&self) -> &'static str {
        "manual"
    }

    fn staging(&self) -> Staging {
        let piece = ByteCount::new(SLOT_BYTES);
        Staging { out_pieces: self.pieces, in_pieces: self.pieces, piece }
    }

    fn claim(&self) -> bool {
        !self.is_claimed.swap(true, Ordering::SeqCst)
    }

    fn release(&self) {
        self.is_claimed.store(false, Ordering::SeqCst);
    }

    fn capture(&self, event: EventHandle) -> Result<EventHandle, DeviceError> {
        Ok(event)
    }

    fn forget(&self, _captured: EventHandle) {}

    fn submit(&self, operations: Vec<Operation>) -> Result<(), DeviceError> {
        let mut state = self.state.lock().unwrap();
        let is_refused = |operation: &Operation| match &operation.work {
            Work::Pack(chunk) | Work::Unpack(chunk) => state.refused == Some(chunk.blocks[0]),
            Work::OutLink { .. } | Work::InLink { .. } => false,
        };
        if operations.iter().any(is_refused) {
            return Err(DeviceError::UnknownEvent { handle: 1 });
        }
        for operation in operations {
            if state.automatic {
                let outcome = Outcome::Done;
                state.finished.push(Finished { tag: operation.tag, outcome });
            } else {
                state.operations.push((operation.tag, operation.work.hop()));
            }
        }
        self.changed.notify_all();
        Ok(())
    }

    fn poll(&self, finished: &mut Vec<Finished>) {
        assert!(!self.panics.swap(false, Ordering::SeqCst), "as the test told it");
        finished.append(&mut self.state.lock().unwrap().finished);
    }

    fn wait(&self, timeout: Duration) {
        let mut state = self.state.lock().unwrap();
        if !state.is_woken && state.finished.is_empty() {
            state = self.changed.wait_timeout(state, timeout).unwrap().0;
        }
        state.is_woken = false;
    }

    fn wake(&self) {
        self.state.lock().unwrap().is_woken = true;
        self.changed.notify_all();
    }

    fn abandon(&self) {
        let mut state = self.state.lock().unwrap();
        state.is_abandoned = true;
        state.operations.clear();
    }
}

fn layout() -> Layout {
    let paging = Paging {
        block_tokens: TokenCount::new(16),
        blocks_per_chunk: BlockCount::new(1),
        block_count: BlockCount::new(BLOCK_COUNT),
        attention: Attention::Full,
    };
    let cache = LatentCache { paging, element_type: ElementType::Bf16, row: ByteCount::new(256) };
    let planes = [LayerBase { layer: 0, base_address: 0x1000 }];
    Layout::builder().group(cache.rows(&planes)).build().unwrap()
}

fn config(slot_count: u64) -> PagerConfig {
    PagerConfig::new(layout(), ByteCount::new(slot_count * SLOT_BYTES))
}

fn pager(device: &Arc<ManualDevice>, slot_count: u64) -> Pager {
    Pager::open(&config(slot_count), Arc::clone(device) as Arc<dyn Device>).unwrap()
}

fn keys(count: u128) -> Vec<Key> {
    (1..=count).map(Key::from_u128).collect()
}

fn blocks(count: u32) -> Vec<BlockId> {
    (0..count).map(BlockId::new).collect()
}

fn store<'a>(keys: &'a [Key], blocks: &'a [BlockId]) -> StoreChunks<'a> {
    let (group, parent, ready, timeout) = (GROUP, None, Ready::Now, None);
    StoreChunks { group, parent, keys, blocks, tenant: TenantId::new(0), ready, timeout }
}

fn load<'a>(keys: &'a [Key], blocks: &'a [BlockId]) -> LoadChunks<'a> {
    let (group, ready, timeout) = (GROUP, Ready::Now, None);
    LoadChunks { group, keys, blocks, ready, timeout }
}

/// Runs a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        std::thread::park_timeout(SOON);
    }
}

#[test]
fn what_was_stored_is_found_and_loaded() {
    let device = ManualDevice::new(true, 8);
    let pager = pager(&device, 400);
    let (keys, blocks) = (keys(200), blocks(200));
    let stored = pager.store(store(&keys, &blocks)).unwrap().wait();
    assert!(stored.is_done());
    assert_eq!(stored.stages.len(), 200);
    let plan = pager.lookup(&[&keys]).unwrap();
    assert_eq!(plan.tokens().get(), 200 * 16);
    assert_eq!(plan.groups()[0].miss, None);
    let loaded = block_on(pager.load(&plan, load(&keys, &blocks)).unwrap());
    assert!(loaded.is_done());
    drop(plan);
    let counters = pager.counters();
    assert_eq!((counters.stored, counters.loaded), (200, 200));
    pager.audit().unwrap();
    assert!(pager.close().is_drained);
}

#[test]
fn a_store_is_released_after_the_pack_and_done_after_the_copy() {
    let device = ManualDevice::new(false, 8);
    let pager = pager(&device, 8);
    let (keys, blocks) = (keys(3), blocks(3));
    let ticket = pager.store(store(&keys, &blocks)).unwrap();
    assert!(!ticket.is_released());
    assert_eq!(device.finish(Hop::Pack, Outcome::Done), 3);
    assert!(ticket.wait_released(SOON));
    assert_eq!(ticket.poll_report(), None);
    assert_eq!(ticket.stages(), [Stage::Running(Hop::OutLink); 3]);
    assert_eq!(pager.lookup(&[&keys]).unwrap().groups()[0].miss, Some(MissReason::Filling));
    device.finish(Hop::OutLink, Outcome::Done);
    assert!(ticket.wait().is_done());
    assert_eq!(ticket.stages(), [Stage::Done; 3]);
}

#[test]
fn a_chunk_that_fails_its_sum_is_lost_and_fails_alone() {
    let device = ManualDevice::new(true, 8);
    let pager = pager(&device, 8);
    let (keys, blocks) = (keys(2), blocks(2));
    assert!(pager.store(store(&keys, &blocks)).unwrap().wait().is_done());
    let plan = pager.lookup(&[&keys]).unwrap();
    device.state.lock().unwrap().automatic = false;
    let bad = pager.load(&plan, load(&keys[1..], &blocks[1..])).unwrap();
    device.finish(Hop::InLink, Outcome::Done);
    device.finish(Hop::Unpack, Outcome::Mismatch);
    assert_eq!(bad.wait().stages, [Stage::Failed(Failure::Checksum)]);
    device.state.lock().unwrap().automatic = true;
    assert!(pager.load(&plan, load(&keys[..1], &blocks[..1])).unwrap().wait().is_done());
    drop(plan);
    let plan = pager.lookup(&[&keys]).unwrap();
    assert_eq!(plan.tokens().get(), 16);
    assert_eq!(plan.groups()[0].miss, Some(MissReason::Lost));
    assert_eq!(pager.health(), Health::Serving);
}

#[test]
fn what_has_not_begun_ends_at_its_deadline_and_the_rest_by_the_device() {
    let device = ManualDevice::new(false, 1);
    let pager = pager(&device, 8);
    let (keys, blocks) = (keys(2), blocks(2));
    let request = StoreChunks { timeout: Some(Duration::from_millis(30)), ..store(&keys, &blocks) };
    let ticket = pager.store(request).unwrap();
    // One staging piece: the first chunk is under way, the second never begins.
    while ticket.stages()[1] != Stage::Failed(Failure::Deadline) {
        std::thread::yield_now();
    }
    assert_eq!(ticket.poll_report(), None, "the first chunk is still under way");
    device.finish(Hop::Pack, Outcome::Done);
    device.finish(Hop::OutLink, Outcome::Done);
    assert_eq!(ticket.wait().stages, [Stage::Done, Stage::Failed(Failure::Deadline)]);
    assert_eq!(ticket.wait().done_prefix(), 1);
}

#[test]
fn cancelling_gives_up_what_has_not_begun() {
    let device = ManualDevice::new(false, 1);
    let pager = pager(&device, 8);
    let (keys, blocks) = (keys(2), blocks(2));
    let ticket = pager.store(store(&keys, &blocks)).unwrap();
    ticket.cancel();
    device.finish(Hop::Pack, Outcome::Failed);
    let report = ticket.wait_for(SOON).unwrap();
    let expected = [Stage::Failed(Failure::Device), Stage::Failed(Failure::Cancelled)];
    assert_eq!(report.stages, expected);
    assert_eq!(pager.slots(GROUP).unwrap().used, 0);
}

#[test]
fn cancelling_a_ticket_of_which_nothing_has_begun_ends_it() {
    let device = ManualDevice::new(false, 1);
    let pager = pager(&device, 8);
    let (keys, blocks) = (keys(3), blocks(3));
    let ahead = pager.store(store(&keys[..1], &blocks[..1])).unwrap();
    let behind = Arc::new(pager.store(store(&keys[1..], &blocks[1..])).unwrap());
    let cancelled = Arc::clone(&behind);
    let cancelling = std::thread::spawn(move || cancelled.cancel());
    let report = behind.wait_for(SOON).expect("the ticket has ended");
    assert_eq!(report.stages, [Stage::Failed(Failure::Cancelled); 2]);
    cancelling.join().unwrap();
    device.finish(Hop::Pack, Outcome::Done);
    device.finish(Hop::OutLink, Outcome::Done);
    assert!(ahead.wait().is_done());
}

#[test]
fn a_waker_may_ask_the_ticket_at_once() {
    struct Ask(Mutex<Ticket>, Sender<Option<TicketReport>>);
    impl Wake for Ask {
        fn wake(self: Arc<Self>) {
            self.1.send(self.0.lock().unwrap().poll_report()).unwrap();
        }
    }
    let device = ManualDevice::new(false, 1);
    let pager = pager(&device, 8);
    let (keys, blocks) = (keys(1), blocks(1));
    let (told, report) = channel();
    let ask = Arc::new(Ask(Mutex::new(pager.store(store(&keys, &blocks)).unwrap()), told));
    let waker = Waker::from(Arc::clone(&ask));
    let poll =
        |waker: &Waker| Pin::new(&mut *ask.0.lock().unwrap()).poll(&mut Context::from_waker(waker));
    assert_eq!(poll(Waker::noop()), Poll::Pending);
    assert_eq!(poll(&waker), Poll::Pending, "the waker that polled last is the one to wake");
    device.finish(Hop::Pack, Outcome::Done);
    device.finish(Hop::OutLink, Outcome::Done);
    assert!(report.recv_timeout(SOON).expect("it returned").expect("it has ended").is_done());
}

#[test]
fn what_the_device_refuses_of_one_ticket_is_no_fault_of_another() {
    let device = ManualDevice::new(false, 2);
    let pager = pager(&device, 8);
    let (keys, blocks) = (keys(4), blocks(4));
    let ahead = pager.store(store(&keys[..2], &blocks[..2])).unwrap();
    device.state.lock().unwrap().refused = Some(blocks[2]);
    let bad = pager.store(store(&keys[2..3], &blocks[2..3])).unwrap();
    let good = pager.store(store(&keys[3..], &blocks[3..])).unwrap();
    device.finish(Hop::Pack, Outcome::Done);
    // Frees both pieces at once, so that both packs are handed over at once.
    device.finish(Hop::OutLink, Outcome::Done);
    assert!(ahead.wait().is_done());
    assert_eq!(bad.wait().stages, [Stage::Failed(Failure::Device)]);
    device.finish(Hop::Pack, Outcome::Done);
    device.finish(Hop::OutLink, Outcome::Done);
    assert!(good.wait().is_done());
    assert_eq!(pager.health(), Health::Serving);
}

#[test]
fn a_poisoned_pager_ends_every_ticket_and_closes() {
    let device = ManualDevice::new(false, 2);
    let pager = pager(&device, 8);
    let (keys, blocks) = (keys(4), blocks(4));
    let ticket = pager.store(store(&keys, &blocks)).unwrap();
    pager.shared.command(Core::poison);
    let report = ticket.wait_for(SOON).expect("it has ended");
    assert_eq!(report.stages, [Stage::Failed(Failure::Poisoned); 4]);
    assert_eq!(pager.health(), Health::Poisoned);
    assert!(device.state.lock().unwrap().is_abandoned, "nothing is read after the ticket's end");
    assert!(pager.store(store(&keys, &blocks)).is_err());
    assert!(pager.close().is_drained);
}

#[test]
fn a_device_thread_that_panics_poisons_the_pager_and_ends_every_ticket() {
    let device = ManualDevice::new(false, 2);
    let pager = pager(&device, 8);
    let (keys, blocks) = (keys(4), blocks(4));
    let ticket = pager.store(store(&keys, &blocks)).unwrap();
    device.panics.store(true, Ordering::SeqCst);
    device.wake();
    let report = ticket.wait_for(SOON).expect("it has ended");
    assert_eq!(report.stages, [Stage::Failed(Failure::Poisoned); 4]);
    assert_eq!(pager.health(), Health::Poisoned);
    assert!(pager.store(store(&keys, &blocks)).is_err(), "nothing would move it");
    assert!(!pager.close().is_drained);
}

#[test]
fn a_device_serves_one_pager_at_a_time() {
    let device = ManualDevice::new(true, 2);
    let first = pager(&device, 8);
    let open = || Pager::open(&config(8), Arc::clone(&device) as Arc<dyn Device>);
    assert_eq!(open().unwrap_err(), OpenError::Device(DeviceError::InUse));
    assert!(first.close().is_drained);
    assert!(open().unwrap().close().is_drained);
}

#[test]
fn a_close_timeout_may_be_as_long_as_it_likes() {
    let device = ManualDevice::new(true, 2);
    let config = PagerConfig { close_timeout: Duration::MAX, ..config(8) };
    let pager = Pager::open(&config, Arc::clone(&device) as Arc<dyn Device>).unwrap();
    assert!(pager.close().is_drained);
}

#[test]
fn a_device_that_does_not_answer_is_lost_and_every_ticket_ends() {
    let device = ManualDevice::new(false, 4);
    let config = PagerConfig { device_timeout: Duration::from_millis(30), ..config(8) };
    let pager = Pager::open(&config, Arc::clone(&device) as Arc<dyn Device>).unwrap();
    let (keys, blocks) = (keys(6), blocks(6));
    let stuck = pager.store(store(&keys, &blocks)).unwrap();
    assert_eq!(stuck.wait().stages, [Stage::Failed(Failure::Device); 6]);
    assert_eq!(pager.health(), Health::DeviceLost);
    assert!(device.state.lock().unwrap().is_abandoned);
    let later = pager.store(store(&keys, &blocks)).unwrap();
    assert_eq!(later.wait().stages, [Stage::Failed(Failure::Device); 6]);
    assert_eq!(pager.lookup(&[&keys]).unwrap().tokens().get(), 0);
    pager.audit().unwrap();
    assert!(pager.close().is_drained);
}

#[test]
fn closing_waits_for_what_is_under_way() {
    let device = ManualDevice::new(false, 4);
    let pager = pager(&device, 8);
    let (keys, blocks) = (keys(1), blocks(1));
    let ticket = pager.store(store(&keys, &blocks)).unwrap();
    let closing = std::thread::spawn(move || pager.close());
    device.finish(Hop::Pack, Outcome::Done);
    device.finish(Hop::OutLink, Outcome::Done);
    assert!(closing.join().unwrap().is_drained);
    assert!(ticket.wait().is_done());
}

#[test]
fn closing_gives_up_on_a_device_that_does_not_end() {
    let device = ManualDevice::new(false, 4);
    let config = PagerConfig { close_timeout: Duration::from_millis(30), ..config(8) };
    let pager = Pager::open(&config, Arc::clone(&device) as Arc<dyn Device>).unwrap();
    let (keys, blocks) = (keys(1), blocks(1));
    let ticket = pager.store(store(&keys, &blocks)).unwrap();
    assert!(!pager.close().is_drained);
    assert_eq!(ticket.wait().stages, [Stage::Failed(Failure::Device)]);
    assert_eq!(device.under_way(), 0);
}

#[test]
fn a_dropped_plan_lets_go_of_its_chunks() {
    let device = ManualDevice::new(true, 4);
    let pager = pager(&device, 2);
    let (keys, blocks) = (keys(4), blocks(4));
    assert!(pager.store(store(&keys[..2], &blocks[..2])).unwrap().wait().is_done());
    let plan = pager.lookup(&[&keys[..2]]).unwrap();
    let other = [Key::from_u128(77), Key::from_u128(78)];
    let full = pager.store(store(&other, &blocks[..2])).unwrap().wait();
    assert_eq!(full.stages, [Stage::Failed(Failure::Full); 2]);
    drop(plan);
    assert!(pager.store(store(&other, &blocks[..2])).unwrap().wait().is_done());
}

#[test]
fn a_lapsed_plan_is_refused() {
    let device = ManualDevice::new(true, 4);
    let config = PagerConfig { lease: Duration::from_millis(5), ..config(8) };
    let pager = Pager::open(&config, Arc::clone(&device) as Arc<dyn Device>).unwrap();
    let (keys, blocks) = (keys(1), blocks(1));
    assert!(pager.store(store(&keys, &blocks)).unwrap().wait().is_done());
    let plan = pager.lookup(&[&keys]).unwrap();
    while pager.counters().lapsed == 0 {
        std::thread::yield_now();
    }
    let refused = pager.load(&plan, load(&keys, &blocks)).unwrap_err();
    assert!(refused.to_string().contains("look the prefix up again"), "{refused}");
}

#[test]
fn wrong_requests_are_errors_that_name_the_value() {
    let device = ManualDevice::new(true, 4);
    let pager = pager(&device, 8);
    let (keys, blocks) = (keys(2), blocks(2));
    let refused = |request: StoreChunks<'_>| pager.store(request).unwrap_err().to_string();
    let elsewhere = StoreChunks { group: GroupIndex::new(1), ..store(&keys, &blocks) };
    assert!(refused(elsewhere).contains("group 1"));
    assert_eq!(pager.store(store(&[], &[])).unwrap_err(), RequestError::NoKeys);
    assert!(refused(store(&keys, &blocks[..1])).contains("1 ids for 2 keys"));
    let beyond = [BlockId::new(BLOCK_COUNT), BlockId::new(0)];
    assert!(refused(store(&keys, &beyond)).contains("4096"));
    assert!(matches!(pager.lookup(&[]), Err(RequestError::GroupCount { given: 0, .. })));
    let plan = pager.lookup(&[&keys]).unwrap();
    let twice = [BlockId::new(5), BlockId::new(5)];
    let repeated = pager.load(&plan, load(&keys, &twice)).unwrap_err();
    assert_eq!(repeated, RequestError::RepeatedBlock { block: BlockId::new(5) });
    let skipped = [BlockId::SKIP, BlockId::SKIP];
    assert!(pager.load(&plan, load(&keys, &skipped)).is_ok(), "skipping any number is allowed");
}

#[test]
fn settings_that_cannot_work_are_errors_at_open() {
    let device = ManualDevice::new(true, 4);
    let open = |config: &PagerConfig| {
        Pager::open(config, Arc::clone(&device) as Arc<dyn Device>).unwrap_err()
    };
    let small = open(&PagerConfig::new(layout(), ByteCount::new(SLOT_BYTES - 1)));
    assert_eq!(
        small,
        OpenError::CapacityTooSmall {
            field: "host_capacity".to_owned(),
            group: GROUP,
            capacity: ByteCount::new(SLOT_BYTES - 1),
            needed: ByteCount::new(SLOT_BYTES),
        }
    );
    // Refused before its tables, of a tenth of a terabyte, are touched.
    let absurd = open(&PagerConfig::new(layout(), ByteCount::new(1 << 43)));
    assert!(matches!(absurd, OpenError::Slab(_)), "{absurd}");
    let zero = PagerConfig { lease: Duration::ZERO, ..config(8) };
    assert_eq!(open(&zero), OpenError::ZeroTimeout { field: "lease" });
}

/// A layout of groups given by block tokens, blocks per chunk and bytes per token.
fn layout_of(groups: &[(u32, u32, u64)]) -> Layout {
    let mut builder = Layout::builder();
    for (block_tokens, blocks_per_chunk, row) in groups {
        let paging = Paging {
            block_tokens: TokenCount::new(*block_tokens),
            blocks_per_chunk: BlockCount::new(*blocks_per_chunk),
            block_count: BlockCount::new(16),
            attention: Attention::Full,
        };
        let cache =
            LatentCache { paging, element_type: ElementType::U8, row: ByteCount::new(*row) };
        builder = builder.group(cache.rows(&[LayerBase { layer: 0, base_address: 0x1000 }]));
    }
    builder.build().unwrap()
}

proptest! {
    #[test]
    #[expect(clippy::cast_precision_loss, reason = "compared with room for rounding")]
    fn capacity_is_a_bound_and_every_group_holds_the_same_tokens(
        groups in prop::collection::vec((1..64_u32, 1..64_u32, 1..64_u64), 1..8),
        capacity in 1..1_u64 << 34,
    ) {
        let groups: Vec<_> = groups.into_iter().map(|(t, b, row)| (t, b, row * 4)).collect();
        let layout = layout_of(&groups);
        let split = match shares(&layout, ByteCount::new(capacity)) {
            Ok(split) => split,
            Err(OpenError::Boundary(_)) => return Ok(()),
            Err(OpenError::CapacityTooSmall { needed, .. }) => {
                // What it asks for is enough, and a byte less is not.
                prop_assert!(needed.get() > capacity);
                prop_assert!(shares(&layout, needed).is_ok());
                let less = ByteCount::new(needed.get() - 1);
                prop_assert!(shares(&layout, less).is_err());
                return Ok(());
            }
            Err(error) => panic!("{error}"),
        };
        let bytes = |share: &Share| u64::from(share.slot_count) * share.slot.get();
        prop_assert!(split.iter().map(bytes).sum::<u64>() <= capacity);
        // No group holds a whole chunk less than the tokens that the capacity is worth.
        let worth = |(group, share): (&Group, &Share)| {
            share.slot.get() as f64 / f64::from(group.chunk_tokens().get())
        };
        let per_token: f64 = layout.groups().iter().zip(&split).map(worth).sum();
        let tokens = capacity as f64 / per_token;
        for (group, share) in layout.groups().iter().zip(&split) {
            let chunk_tokens = f64::from(group.chunk_tokens().get());
            let held = f64::from(share.slot_count) * chunk_tokens;
            prop_assert!(held <= tokens * (1.0 + 1e-9));
            prop_assert!(held + chunk_tokens > tokens * (1.0 - 1e-9));
        }
    }
}
