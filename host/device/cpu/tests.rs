//! The CPU device: what it promises the pager and the engine, over real threads.

use super::fixture::{Shape, bytes_of, chunk, expected_image, noise};
use super::{CpuConfig, CpuDevice, DeviceMemory, Fault};
use crate::core::Hop;
use crate::device::{
    ChunkBlocks, Device, DeviceError, EventHandle, Finished, Misuse, Operation, Outcome,
    PieceIndex, Ready, Work,
};
use crate::layout::{Layout, Packing};
use crate::mem::{HEADER_BYTES, Slab, SlotMemory};
use crate::units::{BlockCount, BlockId, ByteCount, GroupIndex, SlotIndex};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Far more than any test takes: a wait that lasts this long is a wait for ever.
const FOR_EVER: Duration = Duration::from_hours(1);

/// A device over memory of noise, and a slab of slots for its images.
struct Rig {
    memory: Arc<DeviceMemory>,
    layout: Layout,
    device: Arc<CpuDevice>,
    slab: Arc<Slab>,
}

impl Rig {
    /// Two planes of odd rows, chunks of up to 2 blocks out of 6, two pieces each way.
    fn new() -> Self {
        Self::of(&Shape::plain(2, 6, &[132, 656]))
    }

    fn of(shape: &Shape) -> Self {
        let memory = shape.memory();
        memory.write(0, &noise(1, bytes_of(&memory).len()));
        let layout = shape.layout(&memory);
        let config = CpuConfig { out_pieces: 2, in_pieces: 2 };
        let device = CpuDevice::open(&layout, vec![Arc::clone(&memory)], config).expect("opens");
        let slab = Slab::allocate(4, device.staging().piece).expect("a small slab");
        Self { memory, layout, device, slab }
    }

    fn image_length(&self, block_count: u32) -> ByteCount {
        let group = &self.layout.groups()[0];
        Packing::new(group, BlockCount::new(block_count)).expect("a chunk").slot()
    }

    fn slot(&self, slot: u32, block_count: u32) -> SlotMemory {
        self.slab.slot(SlotIndex::new(slot), self.image_length(block_count))
    }

    fn submit(&self, tag: u64, piece: u32, work: Work) {
        self.device.submit(vec![operation(tag, piece, work)]).expect("taken in");
    }

    /// Submits one operation and returns how it ended.
    fn run(&self, piece: u32, work: Work) -> Outcome {
        self.submit(99, piece, work);
        let finished = self.finish(1);
        assert_eq!(finished[0].tag, 99);
        finished[0].outcome
    }

    /// Waits for `count` reports.
    fn finish(&self, count: usize) -> Vec<Finished> {
        let mut finished = Vec::new();
        while finished.len() < count {
            self.device.wait(FOR_EVER);
            self.device.poll(&mut finished);
        }
        assert_eq!(finished.len(), count, "{finished:?}");
        finished
    }

    /// Stores a chunk into a slot.
    fn store(&self, slot: u32, chunk: ChunkBlocks) {
        let block_count = u32::try_from(chunk.blocks.len()).expect("few");
        assert_eq!(self.run(0, Work::Pack(chunk)), Outcome::Done);
        let slot = self.slot(slot, block_count);
        assert_eq!(self.run(0, Work::OutLink { slot }), Outcome::Done);
    }

    /// Loads a chunk from a slot and returns how the unpack ended.
    fn load(&self, slot: u32, chunk: ChunkBlocks) -> Outcome {
        let block_count = u32::try_from(chunk.blocks.len()).expect("few");
        let slot = self.slot(slot, block_count);
        assert_eq!(self.run(1, Work::InLink { slot }), Outcome::Done);
        self.run(1, Work::Unpack(chunk))
    }

    fn image(&self, slot: u32, block_count: u32) -> Vec<u8> {
        let slot = self.slot(slot, block_count);
        let mut image = vec![0; HEADER_BYTES];
        slot.read_header(0, &mut image);
        image.extend_from_slice(slot.read().expect("no operation uses it").payload());
        image
    }

    /// Returns the image that the memory's bytes now make.
    fn expected(&self, chunk: &ChunkBlocks) -> Vec<u8> {
        let (memory, address) = (bytes_of(&self.memory), self.memory.address());
        expected_image(&self.layout.groups()[0], chunk, &memory, address)
    }

    /// Starts work on a stream that fills the memory with noise of `seed` once it is let go, and
    /// records it in the event.
    fn blocked_fill(&self, event: EventHandle, seed: u64) -> mpsc::Sender<()> {
        let (go, gone) = mpsc::channel();
        let memory = Arc::clone(&self.memory);
        let stream = self.device.create_stream().expect("a thread");
        stream.launch(move || {
            gone.recv().expect("the test lets go");
            memory.write(0, &noise(seed, bytes_of(&memory).len()));
        });
        stream.record(event).expect("an event of the device");
        go
    }
}

fn operation(tag: u64, piece: u32, work: Work) -> Operation {
    Operation { tag, piece: PieceIndex::new(piece), work }
}

fn after(event: EventHandle, blocks: &[u32]) -> ChunkBlocks {
    ChunkBlocks { ready: Ready::After(event), ..chunk(7, blocks) }
}

#[test]
fn a_chunk_comes_back_byte_for_byte_into_other_blocks() {
    let rig = Rig::new();
    for blocks in [&[4, 1][..], &[3]] {
        let stored = chunk(7, blocks);
        let expected = rig.expected(&stored);
        rig.store(2, stored);
        let block_count = u32::try_from(blocks.len()).expect("few");
        assert_eq!(rig.image(2, block_count), expected);
        rig.memory.write(0, &noise(2, bytes_of(&rig.memory).len()));
        let loaded = chunk(7, &[5, 0][..blocks.len()]);
        assert_eq!(rig.load(2, loaded.clone()), Outcome::Done);
        assert_eq!(rig.expected(&loaded), expected);
    }
}

#[test]
fn an_engine_keeps_its_own_memory() {
    let mut pool = noise(1, 6 * 132 + 6 * 656 + 64);
    let start = pool.as_ptr().align_offset(4);
    let base = pool[start..].as_mut_ptr();
    let shape = Shape::plain(2, 6, &[132, 656]);
    let layout = shape.layout_at(base.expose_provenance() as u64);
    let config = CpuConfig { out_pieces: 1, in_pieces: 1 };
    #[expect(unsafe_code, reason = "the pool is the test's own")]
    // SAFETY: the pool holds all planes and outlives the device, and this thread touches it only
    // while no operation is under way.
    let device = unsafe { CpuDevice::open_foreign(&layout, config) }.expect("opens");
    let slab = Slab::allocate(1, device.staging().piece).expect("a small slab");
    let slot = || slab.slot(SlotIndex::new(0), slab.slot_bytes());
    let run = |work| {
        device.submit(vec![operation(1, 0, work)]).expect("taken in");
        let mut finished = Vec::new();
        while finished.is_empty() {
            device.wait(FOR_EVER);
            device.poll(&mut finished);
        }
        assert_eq!(finished, [Finished { tag: 1, outcome: Outcome::Done }]);
    };
    run(Work::Pack(chunk(7, &[4, 1])));
    run(Work::OutLink { slot: slot() });
    run(Work::InLink { slot: slot() });
    run(Work::Unpack(chunk(7, &[0, 5])));
    drop(device);
    let mut expected = noise(1, pool.len());
    for (plane, fragment) in [(0, 132), (6 * 132, 656)] {
        for (from, to) in [(4, 0), (1, 5)] {
            let from = start + plane + from * fragment;
            expected.copy_within(from..from + fragment, start + plane + to * fragment);
        }
    }
    assert_eq!(pool, expected);
}

#[test]
fn a_mismatch_writes_nothing() {
    let rig = Rig::new();
    rig.store(0, chunk(7, &[0, 1]));
    rig.slot(0, 2).write().expect("unused").payload()[200] ^= 1;
    let before = bytes_of(&rig.memory);
    assert_eq!(rig.load(0, chunk(7, &[2, 3])), Outcome::Mismatch);
    rig.slot(0, 2).write().expect("unused").payload()[200] ^= 1;
    assert_eq!(rig.load(0, chunk(8, &[2, 3])), Outcome::Mismatch, "another key");
    assert_eq!(bytes_of(&rig.memory), before);
    assert_eq!(rig.load(0, chunk(7, &[2, 3])), Outcome::Done);
}

#[test]
fn skipped_blocks_are_verified_and_not_written() {
    let rig = Rig::new();
    rig.store(0, chunk(7, &[0, 1]));
    let skip = BlockId::SKIP.get();
    let before = bytes_of(&rig.memory);
    assert_eq!(rig.load(0, chunk(7, &[skip, skip])), Outcome::Done);
    assert_eq!(bytes_of(&rig.memory), before);
    // A byte of the first block, which is skipped.
    rig.slot(0, 2).write().expect("unused").payload()[0] ^= 1;
    assert_eq!(rig.load(0, chunk(7, &[skip, 3])), Outcome::Mismatch);
    assert_eq!(bytes_of(&rig.memory), before);
}

#[test]
fn a_pack_reads_only_what_the_engine_wrote_before_its_event() {
    let rig = Rig::new();
    let event = rig.device.create_event();
    let go = rig.blocked_fill(event, 5);
    rig.submit(1, 0, Work::Pack(after(event, &[0, 1])));
    // Recorded anew elsewhere, and passed: what was recorded at the submission still counts.
    let other = rig.device.create_stream().expect("a thread");
    other.record(event).expect("an event of the device");
    other.synchronize().expect("nothing panicked");
    go.send(()).expect("the closure waits");
    assert_eq!(rig.finish(1), [Finished { tag: 1, outcome: Outcome::Done }]);
    assert_eq!(rig.run(0, Work::OutLink { slot: rig.slot(0, 2) }), Outcome::Done);
    assert_eq!(bytes_of(&rig.memory), noise(5, bytes_of(&rig.memory).len()));
    assert_eq!(rig.image(0, 2), rig.expected(&chunk(7, &[0, 1])));
}

#[test]
fn an_unpack_writes_only_after_its_event() {
    let rig = Rig::new();
    let stored = rig.expected(&chunk(7, &[0, 1]));
    rig.store(0, chunk(7, &[0, 1]));
    let event = rig.device.create_event();
    let go = rig.blocked_fill(event, 5);
    assert_eq!(
        rig.run(0, Work::InLink { slot: rig.slot(0, 2) }),
        Outcome::Done,
        "waits on nothing"
    );
    rig.submit(1, 0, Work::Unpack(after(event, &[2, 3])));
    go.send(()).expect("the closure waits");
    assert_eq!(rig.finish(1), [Finished { tag: 1, outcome: Outcome::Done }]);
    // Had it written before the engine filled the memory, these blocks would hold the fill.
    assert_eq!(rig.expected(&chunk(7, &[2, 3])), stored);
}

#[test]
fn an_event_without_a_record_orders_nothing() {
    let rig = Rig::new();
    let event = rig.device.create_event();
    assert_eq!(rig.run(0, Work::Pack(after(event, &[0]))), Outcome::Done);
    let stream = rig.device.create_stream().expect("a thread");
    stream.wait(event).expect("an event of the device");
    stream.synchronize().expect("nothing panicked");
}

#[test]
fn a_record_after_the_wait_is_not_waited_for() {
    let rig = Rig::new();
    let event = rig.device.create_event();
    let stream = rig.device.create_stream().expect("a thread");
    stream.record(event).expect("an event of the device");
    let waiting = rig.device.create_stream().expect("a thread");
    waiting.wait(event).expect("an event of the device");
    rig.submit(1, 0, Work::Pack(after(event, &[0])));
    let go = rig.blocked_fill(event, 5);
    // Both would hang here if the blocked record counted.
    assert_eq!(rig.finish(1), [Finished { tag: 1, outcome: Outcome::Done }]);
    waiting.synchronize().expect("nothing panicked");
    go.send(()).expect("the closure waits");
}

#[test]
fn streams_wait_for_each_other_by_events() {
    let rig = Rig::new();
    let event = rig.device.create_event();
    let go = rig.blocked_fill(event, 5);
    let stream = rig.device.create_stream().expect("a thread");
    stream.wait(event).expect("an event of the device");
    rig.device.destroy_event(event).expect("what was recorded goes on");
    let memory = Arc::clone(&rig.memory);
    let (seen, sight) = mpsc::channel();
    stream.launch(move || seen.send(bytes_of(&memory)).expect("the test waits"));
    go.send(()).expect("the closure waits");
    let bytes = sight.recv().expect("the stream ran");
    assert_eq!(bytes, noise(5, bytes.len()));
}

#[test]
fn a_dropped_stream_still_runs_what_was_launched() {
    let rig = Rig::new();
    let event = rig.device.create_event();
    // `blocked_fill` drops its stream before the work may begin.
    let go = rig.blocked_fill(event, 5);
    go.send(()).expect("the closure waits");
    assert_eq!(rig.run(0, Work::Pack(after(event, &[0]))), Outcome::Done);
    assert_eq!(bytes_of(&rig.memory), noise(5, bytes_of(&rig.memory).len()));
}

#[test]
fn work_that_panics_fails_its_stream_and_nobody_else() {
    let rig = Rig::new();
    let stream = rig.device.create_stream().expect("a thread");
    stream.launch(|| panic!("this panic is part of a test"));
    assert_eq!(stream.synchronize(), Err(DeviceError::StreamFailed));
    stream.launch(|| unreachable!("nothing runs after a panic"));
    assert_eq!(stream.synchronize(), Err(DeviceError::StreamFailed));
    assert_eq!(rig.run(0, Work::Pack(chunk(7, &[0]))), Outcome::Done);
}

#[test]
fn operations_of_a_hop_end_in_the_order_of_submission() {
    let rig = Rig::new();
    let event = rig.device.create_event();
    let go = rig.blocked_fill(event, 5);
    let packs = (0..20).map(|tag| {
        let chunk = if tag == 0 { after(event, &[0]) } else { chunk(7, &[1]) };
        operation(tag, u32::from(tag % 2 == 1), Work::Pack(chunk))
    });
    rig.device.submit(packs.collect()).expect("taken in");
    go.send(()).expect("the closure waits");
    let tags: Vec<u64> = rig.finish(20).iter().map(|finished| finished.tag).collect();
    assert_eq!(tags, (0..20).collect::<Vec<u64>>());
}

#[test]
fn one_bad_operation_keeps_the_whole_call_out() {
    let rig = Rig::new();
    let foreign = EventHandle::new(12345);
    let destroyed = rig.device.create_event();
    rig.device.destroy_event(destroyed).expect("once");
    assert!(rig.device.destroy_event(destroyed).is_err());
    let long = Slab::allocate(1, ByteCount::new(1 << 20)).expect("a small slab");
    let long = || long.slot(SlotIndex::new(0), ByteCount::new(1 << 20));
    let misused = |misuse| DeviceError::Operation { tag: 2, misuse };
    let mut elsewhere = chunk(7, &[0]);
    elsewhere.group = GroupIndex::new(1);
    let piece = rig.device.staging().piece;
    let bad = [
        (0, Work::Pack(after(foreign, &[0])), DeviceError::UnknownEvent { handle: 12345 }),
        (
            0,
            Work::Unpack(after(destroyed, &[0])),
            DeviceError::UnknownEvent { handle: destroyed.get() },
        ),
        (
            2,
            Work::Pack(chunk(7, &[0])),
            misused(Misuse::Piece { piece: PieceIndex::new(2), pieces: 2 }),
        ),
        (0, Work::Pack(elsewhere), misused(Misuse::Group { group: GroupIndex::new(1) })),
        (
            0,
            Work::Pack(chunk(7, &[6])),
            misused(Misuse::BlockId { block: BlockId::new(6), block_count: BlockCount::new(6) }),
        ),
        (
            0,
            Work::InLink { slot: long() },
            misused(Misuse::SlotLength { slot: ByteCount::new(1 << 20), piece }),
        ),
    ];
    for (piece, work, error) in bad {
        let good = operation(1, 0, Work::Pack(chunk(7, &[0])));
        let refused = rig.device.submit(vec![good, operation(2, piece, work)]);
        assert_eq!(refused, Err(error));
    }
    // In order: had the good one been taken in, it would be reported first.
    rig.submit(3, 0, Work::Pack(chunk(7, &[0])));
    assert_eq!(rig.finish(1), [Finished { tag: 3, outcome: Outcome::Done }]);
}

#[test]
fn a_link_never_moves_more_or_less_than_the_image() {
    let rig = Rig::of(&Shape::plain(2, 6, &[4096]));
    assert_eq!(rig.run(0, Work::OutLink { slot: rig.slot(0, 1) }), Outcome::Failed, "no image yet");
    assert_eq!(rig.run(0, Work::Pack(chunk(7, &[0, 1]))), Outcome::Done);
    assert_eq!(rig.run(0, Work::OutLink { slot: rig.slot(0, 1) }), Outcome::Failed, "too short");
    // A shorter chunk in the same piece: the longer one's rest stays where it is.
    assert_eq!(rig.run(0, Work::Pack(chunk(7, &[2]))), Outcome::Done);
    assert_eq!(rig.run(0, Work::OutLink { slot: rig.slot(0, 2) }), Outcome::Failed, "too long");
    assert_eq!(rig.image(0, 2), vec![0; rig.image(0, 2).len()]);
    assert_eq!(rig.run(0, Work::OutLink { slot: rig.slot(0, 1) }), Outcome::Done);
    assert_eq!(rig.run(0, Work::InLink { slot: rig.slot(0, 1) }), Outcome::Done);
    assert_eq!(rig.run(0, Work::Unpack(chunk(7, &[3, 4]))), Outcome::Failed, "another length");
    assert_eq!(rig.run(0, Work::Unpack(chunk(7, &[3]))), Outcome::Done);
}

#[test]
fn a_slot_in_use_fails_the_hop() {
    let rig = Rig::new();
    assert_eq!(rig.run(0, Work::Pack(chunk(7, &[0]))), Outcome::Done);
    let slot = rig.slot(0, 1);
    let reader = slot.read().expect("unused");
    assert_eq!(rig.run(0, Work::OutLink { slot: rig.slot(0, 1) }), Outcome::Failed);
    assert_eq!(rig.run(0, Work::InLink { slot: rig.slot(0, 1) }), Outcome::Done, "readers share");
    drop(reader);
    let writer = slot.write().expect("the reader left");
    assert_eq!(rig.run(0, Work::InLink { slot: rig.slot(0, 1) }), Outcome::Failed);
    drop(writer);
    assert_eq!(rig.run(0, Work::OutLink { slot: rig.slot(0, 1) }), Outcome::Done);
}

#[test]
fn a_device_given_up_on_takes_and_reports_nothing() {
    let rig = Rig::new();
    assert_eq!(rig.run(0, Work::Pack(chunk(7, &[0]))), Outcome::Done);
    let event = rig.device.create_event();
    let go = rig.blocked_fill(event, 5);
    let slot = rig.slot(0, 1);
    rig.device
        .submit(vec![
            operation(1, 0, Work::Pack(after(event, &[0]))),
            operation(2, 1, Work::Pack(chunk(7, &[0]))),
        ])
        .expect("taken in");
    rig.device.abandon();
    let late = rig.device.submit(vec![operation(3, 0, Work::InLink { slot })]);
    assert_eq!(late, Err(DeviceError::Lost));
    go.send(()).expect("the closure waits");
    let stream = rig.device.create_stream().expect("a thread");
    stream.wait(event).expect("an event of the device");
    stream.synchronize().expect("nothing panicked");
    let mut finished = Vec::new();
    rig.device.poll(&mut finished);
    assert_eq!(finished, []);
}

#[test]
fn a_device_is_dropped_while_an_event_never_completes() {
    let rig = Rig::new();
    let event = rig.device.create_event();
    let go = rig.blocked_fill(event, 5);
    rig.submit(1, 0, Work::Pack(after(event, &[0])));
    drop(rig);
    // Only now, so that the drop above did not wait for it.
    drop(go);
}

#[test]
fn a_wake_ends_the_next_wait() {
    let rig = Rig::new();
    rig.device.wake();
    rig.device.wait(FOR_EVER);
    let device = Arc::clone(&rig.device);
    let waiting = std::thread::spawn(move || device.wait(FOR_EVER));
    rig.device.wake();
    waiting.join().expect("the wait ended");
}

#[test]
fn planes_outside_the_memory_are_refused_by_name() {
    let shape = Shape::plain(2, 6, &[132, 656]);
    let (memory, other) = (shape.memory(), shape.memory());
    let layout = shape.layout(&memory);
    let config = CpuConfig { out_pieces: 1, in_pieces: 1 };
    assert!(CpuDevice::open(&layout, vec![other.clone(), memory], config).is_ok());
    let group = &layout.groups()[0];
    let refused = CpuDevice::open(&layout, vec![other], config);
    let address = group.planes()[0].base_address;
    let expected = DeviceError::PlaneOutside {
        group: GroupIndex::new(0),
        plane: 0,
        address,
        end: address + 6 * 132,
    };
    assert_eq!(refused.err(), Some(expected));
    let short = DeviceMemory::allocate(ByteCount::new(4096)).expect("one page");
    let mut long = Shape::plain(2, 6, &[132]);
    long.block_count = 32;
    let refused = CpuDevice::open(&long.layout(&short), vec![short], config);
    assert!(matches!(refused, Err(DeviceError::PlaneOutside { plane: 0, .. })), "{refused:?}");
}

#[test]
fn a_ring_without_pieces_is_refused() {
    let shape = Shape::plain(1, 1, &[64]);
    let memory = shape.memory();
    let layout = shape.layout(&memory);
    let config = CpuConfig { out_pieces: 1, in_pieces: 0 };
    let refused = CpuDevice::open(&layout, vec![memory], config).expect_err("no pieces");
    assert!(refused.to_string().contains("0 slots"), "{refused}");
}

#[test]
#[should_panic(expected = "3 bytes at 62 of 64 of device memory")]
fn an_access_past_the_device_memory_panics() {
    let memory = DeviceMemory::allocate(ByteCount::new(64)).expect("one page");
    memory.read(62, &mut [0; 3]);
}

#[test]
fn a_planned_failure_hits_that_operation_and_no_other() {
    let rig = Rig::new();
    rig.device.inject(Hop::Pack, 1, Fault::Fail);
    rig.device.inject(Hop::OutLink, 0, Fault::Fail);
    assert_eq!(rig.run(0, Work::Pack(chunk(7, &[0]))), Outcome::Done);
    assert_eq!(rig.run(1, Work::Pack(chunk(7, &[0]))), Outcome::Failed);
    assert_eq!(rig.run(1, Work::Pack(chunk(7, &[0]))), Outcome::Done);
    assert_eq!(rig.device.begun(Hop::Pack), 3);
    assert_eq!(rig.run(0, Work::OutLink { slot: rig.slot(0, 1) }), Outcome::Failed);
    assert_eq!(rig.run(0, Work::OutLink { slot: rig.slot(0, 1) }), Outcome::Done);
    rig.device.inject(Hop::InLink, 0, Fault::Fail);
    assert_eq!(rig.run(0, Work::InLink { slot: rig.slot(0, 1) }), Outcome::Failed);
    assert_eq!(rig.run(0, Work::InLink { slot: rig.slot(0, 1) }), Outcome::Done);
    rig.device.inject(Hop::Unpack, 0, Fault::Fail);
    let before = bytes_of(&rig.memory);
    assert_eq!(rig.run(0, Work::Unpack(chunk(7, &[1]))), Outcome::Failed);
    assert_eq!(bytes_of(&rig.memory), before);
    assert_eq!(rig.run(0, Work::Unpack(chunk(7, &[1]))), Outcome::Done);
}

#[test]
fn corruption_on_any_hop_is_a_mismatch() {
    for hop in [Hop::Pack, Hop::OutLink, Hop::InLink, Hop::Unpack] {
        let rig = Rig::new();
        rig.device.inject(hop, 0, Fault::Corrupt { payload_byte: 700 });
        rig.store(0, chunk(7, &[0, 1]));
        let before = bytes_of(&rig.memory);
        assert_eq!(rig.load(0, chunk(7, &[2, 3])), Outcome::Mismatch, "{hop:?}");
        assert_eq!(bytes_of(&rig.memory), before, "{hop:?}");
        rig.store(0, chunk(7, &[0, 1]));
        assert_eq!(rig.load(0, chunk(7, &[2, 3])), Outcome::Done, "{hop:?}");
    }
}

#[test]
fn a_slow_operation_keeps_its_place_in_the_order() {
    let rig = Rig::new();
    rig.device.inject(Hop::Pack, 0, Fault::Slow(Duration::from_millis(5)));
    let packs =
        (0..4).map(|tag| operation(tag, u32::from(tag % 2 == 1), Work::Pack(chunk(7, &[0]))));
    rig.device.submit(packs.collect()).expect("taken in");
    let tags: Vec<u64> = rig.finish(4).iter().map(|finished| finished.tag).collect();
    assert_eq!(tags, [0, 1, 2, 3]);
}

#[test]
fn a_device_given_up_on_begins_to_write_no_block() {
    let rig = Rig::new();
    rig.store(0, chunk(7, &[0, 1]));
    assert_eq!(rig.run(0, Work::InLink { slot: rig.slot(0, 2) }), Outcome::Done);
    rig.device.inject(Hop::Unpack, 0, Fault::Slow(FOR_EVER));
    rig.submit(1, 0, Work::Unpack(chunk(7, &[2, 3])));
    while rig.device.begun(Hop::Unpack) == 0 {
        std::thread::yield_now();
    }
    let Rig { memory, device, .. } = rig;
    let before = bytes_of(&memory);
    // Ends the delay. From here on the blocks are the engine's again.
    device.abandon();
    // Waits for its threads.
    drop(device);
    assert!(bytes_of(&memory) == before, "a block was written after its ticket had ended");
}

#[test]
fn an_operation_that_never_ends_ends_with_the_device() {
    let rig = Rig::new();
    rig.device.inject(Hop::Pack, 0, Fault::Hang);
    rig.submit(1, 0, Work::Pack(chunk(7, &[0])));
    rig.submit(2, 1, Work::Pack(chunk(7, &[0])));
    // Other hops go on.
    assert_eq!(rig.run(0, Work::InLink { slot: rig.slot(0, 1) }), Outcome::Done);
    rig.device.abandon();
    let mut finished = Vec::new();
    rig.device.poll(&mut finished);
    assert_eq!(finished, []);
}
