//! The four hops: what the device's threads share, and what each does with an operation.
//!
//! Each hop is an in-order queue; its thread takes one operation after the other and reports its
//! end. The staging rings are slabs, whose account of who touches a piece guards it against a
//! second operation.
//!
//! Invariants: an operation is checked before it is queued, so that none that runs names memory
//! that is not there; an image is never copied longer than it was made.
//!
//! Called by the device, from its callers' threads and from its own.

use super::CpuConfig;
#[cfg(any(test, feature = "testing"))]
use super::faults::Faults;
use super::image::{GroupImages, matches_sums};
use super::kernels::Level;
use super::memory::DeviceMemory;
use super::queue::{Point, Queue};
use super::reports::Reports;
use super::stream::Events;
use crate::core::Hop;
use crate::device::{
    ChunkBlocks, DeviceError, Finished, Misuse, Operation, Outcome, PieceIndex, Ready, Work,
};
use crate::layout::Layout;
use crate::mem::{HEADER_BYTES, Slab, SlotMemory};
use crate::units::{ByteCount, GroupIndex, SlotIndex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The hops, in the order of their queues.
pub(super) const HOPS: [Hop; 4] = [Hop::Pack, Hop::OutLink, Hop::InLink, Hop::Unpack];

impl Hop {
    /// Returns the hop's place in [`HOPS`].
    pub(super) const fn index(self) -> usize {
        match self {
            Self::Pack => 0,
            Self::OutLink => 1,
            Self::InLink => 2,
            Self::Unpack => 3,
        }
    }
}

/// Returns the name of a hop's thread.
pub(super) const fn thread_name(hop: Hop) -> &'static str {
    match hop {
        Hop::Pack => "kvtide-pack",
        Hop::OutLink => "kvtide-out",
        Hop::InLink => "kvtide-in",
        Hop::Unpack => "kvtide-unpack",
    }
}

/// What the device's threads share.
#[derive(Debug)]
pub(super) struct Shared {
    level: Level,
    groups: Vec<GroupImages>,
    blocks: BlockMemory,
    pub(super) out_ring: Ring,
    pub(super) in_ring: Ring,
    queues: [Arc<Queue<Operation>>; 4],
    pub(super) reports: Reports,
    pub(super) events: Arc<Events>,
    #[cfg(any(test, feature = "testing"))]
    pub(super) faults: Faults,
}

impl Shared {
    pub(super) fn new(
        layout: &Layout,
        blocks: BlockMemory,
        config: CpuConfig,
    ) -> Result<Self, DeviceError> {
        let groups: Vec<GroupImages> =
            layout.groups().iter().map(GroupImages::new).collect::<Result<_, _>>()?;
        let piece = groups.iter().map(GroupImages::image_max).max();
        let piece = piece.expect("a layout has at least one group");
        Ok(Self {
            level: Level::detect(),
            groups,
            blocks,
            out_ring: Ring::new(config.out_pieces, piece, config)?,
            in_ring: Ring::new(config.in_pieces, piece, config)?,
            queues: HOPS.map(|_| Queue::new()),
            reports: Reports::default(),
            events: Arc::default(),
            #[cfg(any(test, feature = "testing"))]
            faults: Faults::default(),
        })
    }

    /// Takes in operations of any hops: all of them or none.
    pub(super) fn submit(&self, operations: Vec<Operation>) -> Result<(), DeviceError> {
        if self.reports.is_abandoned() {
            return Err(DeviceError::Lost);
        }
        let points: Vec<_> =
            operations.iter().map(|operation| self.admit(operation)).collect::<Result<_, _>>()?;
        for (operation, point) in operations.into_iter().zip(points) {
            self.queue(operation.work.hop()).push(point, operation);
        }
        Ok(())
    }

    fn queue(&self, hop: Hop) -> &Arc<Queue<Operation>> {
        &self.queues[hop.index()]
    }

    /// Runs a hop's operations until the device is abandoned.
    pub(super) fn serve(&self, hop: Hop) {
        while let Some(operation) = self.queue(hop).next() {
            self.carry_out(operation);
        }
    }

    /// Runs a hop's next operation if it may begin; returns whether it did.
    #[cfg(feature = "testing")]
    pub(super) fn serve_one(&self, hop: Hop) -> bool {
        let operation = self.queue(hop).try_next();
        let is_there = operation.is_some();
        if let Some(operation) = operation {
            self.carry_out(operation);
        }
        is_there
    }

    /// Runs an operation and reports its end.
    fn carry_out(&self, operation: Operation) {
        #[cfg(any(test, feature = "testing"))]
        let outcome = self.run_with_faults(&operation);
        #[cfg(not(any(test, feature = "testing")))]
        let outcome = self.run(&operation);
        let tag = operation.tag;
        // Before the report: whoever reads it may use the memory anew.
        drop(operation);
        self.reports.add(Finished { tag, outcome });
    }

    /// Checks an operation and returns what it has to wait for.
    fn admit(&self, operation: &Operation) -> Result<Option<Arc<Point>>, DeviceError> {
        let misused = |misuse| DeviceError::Operation { tag: operation.tag, misuse };
        let ring = match operation.work.hop() {
            Hop::Pack | Hop::OutLink => &self.out_ring,
            Hop::InLink | Hop::Unpack => &self.in_ring,
        };
        let pieces = ring.pieces.slot_count();
        if operation.piece.get() >= pieces {
            return Err(misused(Misuse::Piece { piece: operation.piece, pieces }));
        }
        let (chunk, may_skip) = match &operation.work {
            Work::Pack(chunk) => (chunk, false),
            Work::Unpack(chunk) => (chunk, true),
            Work::OutLink { slot } | Work::InLink { slot } => {
                let (slot, piece) = (slot.length(), ring.pieces.slot_bytes());
                if slot > piece {
                    return Err(misused(Misuse::SlotLength { slot, piece }));
                }
                return Ok(None);
            }
        };
        let group = self.groups.get(usize::from(chunk.group.get()));
        let group = group.ok_or_else(|| misused(Misuse::Group { group: chunk.group }))?;
        group.check(chunk, may_skip).map_err(misused)?;
        match chunk.ready {
            Ready::Now => Ok(None),
            Ready::After(event) => self.events.recorded(event),
        }
    }

    fn group(&self, group: GroupIndex) -> &GroupImages {
        &self.groups[usize::from(group.get())]
    }

    pub(super) fn run(&self, operation: &Operation) -> Outcome {
        let piece = operation.piece;
        match &operation.work {
            Work::Pack(chunk) => self.pack(piece, chunk),
            Work::OutLink { slot } => self.out_link(piece, slot),
            Work::InLink { slot } => self.in_link(piece, slot),
            Work::Unpack(chunk) => self.unpack(piece, chunk),
        }
    }

    fn pack(&self, piece: PieceIndex, chunk: &ChunkBlocks) -> Outcome {
        let group = self.group(chunk.group);
        let packing = group.packing(chunk);
        self.out_ring.forget(piece);
        let memory = self.out_ring.piece(piece, packing.slot());
        let Some(mut access) = memory.write() else { return Outcome::Failed };
        let header = self.blocks.while_read(|| {
            // Given up on while it waited: its blocks are the engine's again.
            if self.reports.is_abandoned() {
                return None;
            }
            #[expect(unsafe_code, reason = "reads the engine's blocks")]
            // SAFETY: the blocks lie in memory that `self.blocks` holds, which nobody writes now;
            // or the engine answers for them by the contract of `open_foreign`.
            Some(unsafe { group.pack(self.level, chunk, &packing, access.payload()) })
        });
        let Some(header) = header else { return Outcome::Failed };
        memory.write_header(0, &header);
        self.out_ring.remember(piece, packing.slot());
        Outcome::Done
    }

    fn out_link(&self, piece: PieceIndex, slot: &SlotMemory) -> Outcome {
        // More than the image would carry an earlier chunk's bytes to the slot.
        if !self.out_ring.holds(piece, slot.length()) {
            return Outcome::Failed;
        }
        copy_image(self.level, slot, &self.out_ring.piece(piece, slot.length()))
    }

    fn in_link(&self, piece: PieceIndex, slot: &SlotMemory) -> Outcome {
        self.in_ring.forget(piece);
        let outcome = copy_image(self.level, &self.in_ring.piece(piece, slot.length()), slot);
        if outcome == Outcome::Done {
            self.in_ring.remember(piece, slot.length());
        }
        outcome
    }

    fn unpack(&self, piece: PieceIndex, chunk: &ChunkBlocks) -> Outcome {
        let group = self.group(chunk.group);
        let packing = group.packing(chunk);
        if !self.in_ring.holds(piece, packing.slot()) {
            return Outcome::Failed;
        }
        let memory = self.in_ring.piece(piece, packing.slot());
        let Some(access) = memory.read() else { return Outcome::Failed };
        let mut header = [0; HEADER_BYTES];
        memory.read_header(0, &mut header);
        if !matches_sums(self.level, chunk.key, &packing, &header, access.payload()) {
            return Outcome::Mismatch;
        }
        self.blocks.while_written(|| {
            // As in `pack`.
            if self.reports.is_abandoned() {
                return Outcome::Failed;
            }
            #[expect(unsafe_code, reason = "writes the engine's blocks")]
            // SAFETY: the blocks lie in memory that `self.blocks` holds, which nobody else touches
            // now; or the engine answers for them by the contract of `open_foreign`.
            unsafe {
                group.scatter(self.level, chunk, &packing, access.payload());
            }
            Outcome::Done
        })
    }

    /// Ends all queues. What runs goes on to its end, unreported: it holds the memory it touches.
    pub(super) fn abandon(&self) {
        self.reports.abandon();
        #[cfg(any(test, feature = "testing"))]
        self.faults.abandon();
        for queue in &self.queues {
            queue.close();
        }
    }
}

/// Copies an image between two slots of the same length; fails when one of them is in use.
fn copy_image(level: Level, target: &SlotMemory, source: &SlotMemory) -> Outcome {
    let (Some(mut target_access), Some(source_access)) = (target.write(), source.read()) else {
        return Outcome::Failed;
    };
    let mut header = [0; HEADER_BYTES];
    source.read_header(0, &mut header);
    target.write_header(0, &header);
    level.copy(target_access.payload(), source_access.payload());
    Outcome::Done
}

/// The memory of the engine's blocks.
#[derive(Debug)]
pub(super) enum BlockMemory {
    /// Ours, without repeats and by address, so that all who lock several do so in one order.
    Owned(Vec<Arc<DeviceMemory>>),
    /// The engine's, which answers for it.
    Foreign,
}

impl BlockMemory {
    pub(super) fn owned(mut memory: Vec<Arc<DeviceMemory>>) -> Self {
        memory.sort_by_key(|memory| memory.address());
        memory.dedup_by_key(|memory| memory.address());
        Self::Owned(memory)
    }

    fn regions(&self) -> &[Arc<DeviceMemory>] {
        match self {
            Self::Owned(memory) => memory,
            Self::Foreign => &[],
        }
    }

    /// Does `work` while nobody writes memory of ours.
    fn while_read<T>(&self, work: impl FnOnce() -> T) -> T {
        let _guards: Vec<_> = self.regions().iter().map(|memory| memory.shared()).collect();
        work()
    }

    /// Does `work` while nobody else touches memory of ours.
    fn while_written<T>(&self, work: impl FnOnce() -> T) -> T {
        let _guards: Vec<_> = self.regions().iter().map(|memory| memory.exclusive()).collect();
        work()
    }
}

/// A ring of staging pieces.
#[derive(Debug)]
pub(super) struct Ring {
    pub(super) pieces: Arc<Slab>,
    /// Bytes of the image in each piece; 0 for none.
    images: Box<[AtomicU64]>,
}

impl Ring {
    fn new(count: u32, piece: ByteCount, config: CpuConfig) -> Result<Self, DeviceError> {
        let pieces = Slab::allocate_for("staging ring", count, piece).map_err(|error| {
            let all = u64::from(config.out_pieces) + u64::from(config.in_pieces);
            let bytes = ByteCount::new(all.saturating_mul(piece.get()));
            DeviceError::StagingMemory { bytes, reason: error.to_string() }
        })?;
        Ok(Self { pieces, images: (0..count).map(|_| AtomicU64::new(0)).collect() })
    }

    fn piece(&self, piece: PieceIndex, length: ByteCount) -> SlotMemory {
        self.pieces.slot(SlotIndex::new(piece.get()), length)
    }

    /// Returns the memory of the image in the piece, or of all of it without one.
    #[cfg(any(test, feature = "testing"))]
    pub(super) fn image(&self, piece: PieceIndex) -> SlotMemory {
        let length = match self.image_length(piece).load(Ordering::Acquire) {
            0 => self.pieces.slot_bytes(),
            length => ByteCount::new(length),
        };
        self.piece(piece, length)
    }

    fn image_length(&self, piece: PieceIndex) -> &AtomicU64 {
        &self.images[piece.get() as usize]
    }

    /// Notes that the piece holds no whole image.
    fn forget(&self, piece: PieceIndex) {
        self.image_length(piece).store(0, Ordering::Release);
    }

    /// Notes that the piece holds an image of `length` bytes.
    fn remember(&self, piece: PieceIndex, length: ByteCount) {
        self.image_length(piece).store(length.get(), Ordering::Release);
    }

    /// Whether the piece holds an image of exactly `length` bytes.
    fn holds(&self, piece: PieceIndex, length: ByteCount) -> bool {
        self.image_length(piece).load(Ordering::Acquire) == length.get()
    }
}
