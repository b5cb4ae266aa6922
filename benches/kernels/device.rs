//! The hops of a device, driven through `trait Device` alone.

use crate::geometry::Geometry;
use kvtide::device::cpu::{CpuConfig, CpuDevice, DeviceMemory};
use kvtide::device::{ChunkBlocks, Device, Finished, Operation, Outcome, PieceIndex, Ready, Work};
use kvtide::key::Key;
use kvtide::mem::{Slab, SlotMemory};
use kvtide::units::{ByteCount, GroupIndex, SlotIndex};
use std::sync::Arc;
use std::time::Duration;

/// How long to wait for a report before the device is looked at again.
const WAIT: Duration = Duration::from_secs(1);

/// The memory of an engine's blocks, which every back end reaches its own way.
pub(crate) trait EngineMemory {
    /// Overwrites all of it.
    fn write(&self, bytes: &[u8]);

    /// Copies all of it.
    fn read(&self, bytes: &mut [u8]);
}

impl EngineMemory for Arc<DeviceMemory> {
    fn write(&self, bytes: &[u8]) {
        DeviceMemory::write(self, 0, bytes);
    }

    fn read(&self, bytes: &mut [u8]) {
        DeviceMemory::read(self, 0, bytes);
    }
}

/// Opens a device over memory for a geometry.
pub(crate) type BackEnd = fn(&Geometry) -> (Arc<dyn Device>, Box<dyn EngineMemory>);

/// Returns the back ends at hand.
pub(crate) fn back_ends() -> Vec<BackEnd> {
    vec![open_cpu]
}

fn open_cpu(geometry: &Geometry) -> (Arc<dyn Device>, Box<dyn EngineMemory>) {
    let length = ByteCount::new(geometry.engine_bytes() as u64);
    let memory = DeviceMemory::allocate(length).expect("memory");
    let layout = geometry.layout_at(memory.address());
    let config = CpuConfig { out_pieces: 1, in_pieces: 1 };
    let device = CpuDevice::open(&layout, vec![Arc::clone(&memory)], config).expect("a device");
    (device, Box::new(memory))
}

/// A hop and its work.
pub(crate) struct TimedHop {
    pub(crate) name: &'static str,
    pub(crate) work: fn(&Rig) -> Work,
}

/// The hops in the order of a store and a load, so that each finds what the one before left.
pub(crate) const HOPS: [TimedHop; 4] = [
    TimedHop { name: "pack", work: |rig| Work::Pack(rig.blocks()) },
    TimedHop { name: "out_link", work: |rig| Work::OutLink { slot: rig.slot() } },
    TimedHop { name: "in_link", work: |rig| Work::InLink { slot: rig.slot() } },
    TimedHop { name: "unpack", work: |rig| Work::Unpack(rig.blocks()) },
];

/// A device with one chunk and one host slot.
pub(crate) struct Rig {
    geometry: Geometry,
    device: Arc<dyn Device>,
    engine: Box<dyn EngineMemory>,
    slab: Arc<Slab>,
}

impl Rig {
    /// Opens a back end.
    pub(crate) fn new(geometry: Geometry, open: BackEnd) -> Self {
        let (device, engine) = open(&geometry);
        assert!(device.claim(), "the device is new");
        let slab = Slab::allocate(1, geometry.packing().slot()).expect("memory");
        Self { geometry, device, engine, slab }
    }

    /// Names the device.
    pub(crate) fn name(&self) -> &'static str {
        self.device.name()
    }

    pub(crate) const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Runs one operation to its report.
    pub(crate) fn run(&self, work: Work) {
        let operation = Operation { tag: 1, piece: PieceIndex::new(0), work };
        self.device.submit(vec![operation]).expect("an operation that the device can do");
        let mut finished = Vec::new();
        while finished.is_empty() {
            self.device.wait(WAIT);
            self.device.poll(&mut finished);
        }
        assert_eq!(finished, [Finished { tag: 1, outcome: Outcome::Done }]);
    }

    /// Stores the chunk, loads it into blocks that were wiped, and compares all bytes.
    pub(crate) fn verify(&self) {
        let noise = self.geometry.noise();
        let packed = self.geometry.pack(&noise);
        self.engine.write(&noise);
        let [pack, out_link, in_link, unpack] = HOPS.map(|hop| hop.work);
        self.run(pack(self));
        self.run(out_link(self));
        let slot = self.slot();
        let access = slot.read().expect("the link has ended");
        assert!(access.payload() == packed, "the slot's bytes");
        drop(access);
        let mut expected = vec![0; noise.len()];
        self.engine.write(&expected);
        self.geometry.unpack(&packed, &mut expected);
        self.run(in_link(self));
        self.run(unpack(self));
        let mut engine = noise;
        self.engine.read(&mut engine);
        assert!(engine == expected, "the engine's bytes");
    }

    fn slot(&self) -> SlotMemory {
        self.slab.slot(SlotIndex::new(0), self.slab.slot_bytes())
    }

    fn blocks(&self) -> ChunkBlocks {
        ChunkBlocks {
            group: GroupIndex::new(0),
            key: Key::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef),
            blocks: self.geometry.block_ids(),
            ready: Ready::Now,
        }
    }
}
