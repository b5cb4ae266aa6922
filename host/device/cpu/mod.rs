//! The CPU device: host memory plays the engine's device memory, threads play its streams.
//!
//! The embedded default, the device of tests, and real use for engines that compute on CPUs.
//!
//! | file | what |
//! |---|---|
//! | `memory.rs` | [`DeviceMemory`], for engines without memory of their own |
//! | `stream.rs` | [`CpuStream`] and events, with CUDA's meaning |
//! | `hops.rs` | what the device's threads share, and what each hop does |
//! | `reports.rs` | the ends of operations, on their way to the pager |
//! | `queue.rs` | in-order queues that wait for points in other queues |
//! | `image.rs` | slot images: packed out of blocks, verified and unpacked into them |
//! | `faults.rs` | faults on demand, with the `testing` feature |
//! | `stepped.rs` | a device without threads, with the `testing` feature |
//! | `kernels/` | copies and sums over bytes, as fast as this CPU can |
//!
//! Each hop is an in-order queue with a thread of its own that sleeps when idle, so the four hops
//! overlap as they do on a GPU.
//!
//! Invariants: every operation taken in is reported once, unless the device was abandoned before
//! it ended; an operation holds all memory that it touches; dropping the device ends its threads,
//! whatever the engine's events do.

#[cfg(test)]
mod bodies_tests;
#[cfg(any(test, feature = "testing"))]
mod faults;
#[cfg(test)]
mod fixture;
mod hops;
mod image;
#[cfg(feature = "testing")]
pub mod kernels;
#[cfg(not(feature = "testing"))]
#[expect(unreachable_pub, reason = "public with the testing feature")]
mod kernels;
mod memory;
mod queue;
mod reports;
#[cfg(feature = "testing")]
mod stepped;
mod stream;
#[cfg(test)]
mod tests;

#[cfg(any(test, feature = "testing"))]
pub use faults::Fault;
pub use memory::DeviceMemory;
#[cfg(feature = "testing")]
pub use stepped::OpenWork;
pub use stream::CpuStream;

use super::{Device, DeviceError, EventHandle, Finished, Operation, Staging};
use crate::layout::Layout;
use hops::{BlockMemory, HOPS, Shared, thread_name};
use image::{plane_outside, plane_range};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// What the engine chooses of a CPU device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuConfig {
    /// Pieces of the staging ring from the device; at least 1. Two keep pack and out-link busy.
    pub out_pieces: u32,
    /// Pieces of the staging ring to the device; at least 1. Two keep in-link and unpack busy.
    pub in_pieces: u32,
}

/// A device whose memory is host memory and whose streams are threads.
#[derive(Debug)]
pub struct CpuDevice {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Whether a pager has it.
    is_claimed: AtomicBool,
    /// The process that started the threads.
    process: u32,
}

impl CpuDevice {
    /// Opens a device over memory that kvtide owns: safe, for engines that have none.
    ///
    /// A pack and an unpack take turns on the memory, so that no order of calls makes the bytes
    /// undefined.
    ///
    /// # Errors
    ///
    /// [`DeviceError::PlaneOutside`] when a plane does not lie in one of the memories,
    /// [`DeviceError::StagingMemory`] and [`DeviceError::Thread`].
    pub fn open(
        layout: &Layout,
        memory: Vec<Arc<DeviceMemory>>,
        config: CpuConfig,
    ) -> Result<Arc<Self>, DeviceError> {
        check_planes(layout, &memory)?;
        Self::start(layout, BlockMemory::owned(memory), config)
    }

    /// Opens a device over the engine's own memory. Packs and unpacks may run at the same time.
    ///
    /// # Errors
    ///
    /// As of [`CpuDevice::open`].
    ///
    /// # Safety
    ///
    /// Until the device is dropped:
    ///
    /// - every fragment of every block of the layout is initialised memory, valid for reads and
    ///   writes, and its address was exposed (an `as` cast of a pointer to it, in C any);
    /// - the blocks of a pack are written by nobody, those of an unpack are read and written by
    ///   nobody, from when the operation may touch them until it is reported, or the device
    ///   dropped.
    #[expect(unsafe_code, reason = "the engine answers for its memory")]
    pub unsafe fn open_foreign(
        layout: &Layout,
        config: CpuConfig,
    ) -> Result<Arc<Self>, DeviceError> {
        Self::start(layout, BlockMemory::Foreign, config)
    }

    fn start(
        layout: &Layout,
        blocks: BlockMemory,
        config: CpuConfig,
    ) -> Result<Arc<Self>, DeviceError> {
        let shared = Arc::new(Shared::new(layout, blocks, config)?);
        // Before its threads, so that those which did start end when another does not.
        let mut device = Self::over(shared);
        for hop in HOPS {
            let shared = Arc::clone(&device.shared);
            let name = thread_name(hop).to_owned();
            let thread = thread::Builder::new()
                .name(name.clone())
                .spawn(move || shared.serve(hop))
                .map_err(|error| DeviceError::Thread { name, reason: error.to_string() })?;
            device.threads.push(thread);
        }
        Ok(Arc::new(device))
    }

    /// Makes a device without threads.
    fn over(shared: Arc<Shared>) -> Self {
        let process = std::process::id();
        Self { shared, threads: Vec::new(), is_claimed: AtomicBool::new(false), process }
    }

    /// Creates an event in which nothing is recorded yet.
    pub fn create_event(&self) -> EventHandle {
        self.shared.events.create()
    }

    /// Forgets an event; what waits for what was recorded in it goes on waiting.
    ///
    /// # Errors
    ///
    /// [`DeviceError::UnknownEvent`] when it is not one of this device's, or was destroyed.
    pub fn destroy_event(&self, event: EventHandle) -> Result<(), DeviceError> {
        self.shared.events.destroy(event)
    }

    /// Starts an in-order queue of the engine's own work, with a thread of its own.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Thread`].
    pub fn create_stream(&self) -> Result<CpuStream, DeviceError> {
        CpuStream::start(Arc::clone(&self.shared.events))
    }
}

/// Checks that every plane lies in one of the memories.
fn check_planes(layout: &Layout, memory: &[Arc<DeviceMemory>]) -> Result<(), DeviceError> {
    for group in layout.groups() {
        for plane in 0..group.planes().len() {
            let (start, end) = plane_range(group, plane);
            let holds = |memory: &Arc<DeviceMemory>| {
                let memory_end = memory.address() + memory.length().get();
                memory.address() <= start && end <= memory_end
            };
            if !memory.iter().any(holds) {
                return Err(plane_outside(group, plane));
            }
        }
    }
    Ok(())
}

impl Device for CpuDevice {
    fn name(&self) -> &'static str {
        "cpu"
    }

    fn staging(&self) -> Staging {
        Staging {
            out_pieces: self.shared.out_ring.pieces.slot_count(),
            in_pieces: self.shared.in_ring.pieces.slot_count(),
            piece: self.shared.out_ring.pieces.slot_bytes(),
        }
    }

    fn claim(&self) -> bool {
        !self.is_claimed.swap(true, Ordering::AcqRel)
    }

    fn release(&self) {
        self.is_claimed.store(false, Ordering::Release);
    }

    fn capture(&self, event: EventHandle) -> Result<EventHandle, DeviceError> {
        self.shared.events.capture(event)
    }

    fn forget(&self, captured: EventHandle) {
        // One that is not there is as forgotten as can be.
        let _ = self.shared.events.destroy(captured);
    }

    fn submit(&self, operations: Vec<Operation>) -> Result<(), DeviceError> {
        self.shared.submit(operations)
    }

    fn poll(&self, finished: &mut Vec<Finished>) {
        self.shared.reports.take(finished);
    }

    fn wait(&self, timeout: Duration) {
        self.shared.reports.wait(timeout);
    }

    fn wake(&self) {
        self.shared.reports.wake();
    }

    fn abandon(&self) {
        self.shared.abandon();
    }
}

impl Drop for CpuDevice {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            // A forked child has none of these threads to join; they are the parent's.
            std::mem::forget(std::mem::take(&mut self.threads));
            return;
        }
        self.shared.abandon();
        for thread in self.threads.drain(..) {
            // A hop that panicked was told by its thread already; there is nobody to tell here.
            let _ = thread.join();
        }
    }
}
