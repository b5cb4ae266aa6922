//! A CPU device without threads: whoever tests with it runs each operation, in any order that the
//! queues allow, and decides when the engine's events happen.
//!
//! Only with the `testing` feature. Called by tests, here and of engines that link kvtide.

use super::hops::{BlockMemory, Shared};
use super::queue::Point;
use super::{CpuConfig, CpuDevice, DeviceMemory, check_planes};
use crate::core::Hop;
use crate::device::{DeviceError, EventHandle};
use crate::layout::Layout;
use std::sync::Arc;

/// Work of the engine that was recorded in an event and has not ended.
#[derive(Debug)]
#[must_use = "nothing that waits for it goes on before it has ended"]
pub struct OpenWork(Arc<Point>);

impl OpenWork {
    /// Ends the work: what waits for the event may begin.
    pub fn end(self) {
        self.0.pass();
    }
}

impl CpuDevice {
    /// Opens a device, as [`CpuDevice::open`] does, that runs an operation only in
    /// [`step`](CpuDevice::step).
    ///
    /// # Errors
    ///
    /// As of [`CpuDevice::open`].
    pub fn open_stepped(
        layout: &Layout,
        memory: Vec<Arc<DeviceMemory>>,
        config: CpuConfig,
    ) -> Result<Arc<Self>, DeviceError> {
        check_planes(layout, &memory)?;
        let shared = Arc::new(Shared::new(layout, BlockMemory::owned(memory), config)?);
        Ok(Arc::new(Self::over(shared)))
    }

    /// Runs the next operation of a hop to its end, with what was planned for it, and returns
    /// whether there was one that could begin. One that is planned to take longer or to hang
    /// blocks the caller.
    pub fn step(&self, hop: Hop) -> bool {
        self.shared.serve_one(hop)
    }

    /// Records work in an event that ends when the caller says so.
    ///
    /// # Errors
    ///
    /// [`DeviceError::UnknownEvent`] for an event of another device, or a destroyed one.
    pub fn record_open(&self, event: EventHandle) -> Result<OpenWork, DeviceError> {
        self.shared.events.record(event).map(OpenWork)
    }
}
