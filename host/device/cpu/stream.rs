//! The engine's side of the CPU device: streams and events, with CUDA's meaning.
//!
//! An event means the work that was recorded in it last. Whoever waits for it waits for what that
//! was when it asked: recording again later changes nothing for it, and an event that was never
//! recorded orders nothing.
//!
//! Called by engines and tests.

use super::queue::{Point, Queue, lock};
use crate::device::{DeviceError, EventHandle};
use std::collections::HashMap;
use std::fmt;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;

/// The events of one device, each with what was recorded in it last.
#[derive(Debug, Default)]
pub(super) struct Events(Mutex<EventTable>);

#[derive(Debug, Default)]
struct EventTable {
    last_handle: u64,
    recorded: HashMap<EventHandle, Option<Arc<Point>>>,
}

impl EventTable {
    fn add(&mut self, recorded: Option<Arc<Point>>) -> EventHandle {
        self.last_handle += 1;
        let event = EventHandle::new(self.last_handle);
        self.recorded.insert(event, recorded);
        event
    }
}

impl Events {
    pub(super) fn create(&self) -> EventHandle {
        lock(&self.0).add(None)
    }

    /// Returns a new event in which the same is recorded as in this one now.
    pub(super) fn capture(&self, event: EventHandle) -> Result<EventHandle, DeviceError> {
        let mut table = lock(&self.0);
        let recorded = table.recorded.get(&event).cloned().ok_or_else(|| unknown(event))?;
        Ok(table.add(recorded))
    }

    pub(super) fn destroy(&self, event: EventHandle) -> Result<(), DeviceError> {
        let removed = lock(&self.0).recorded.remove(&event);
        removed.map(drop).ok_or_else(|| unknown(event))
    }

    /// Returns what is recorded in the event now; none when nothing ever was.
    pub(super) fn recorded(&self, event: EventHandle) -> Result<Option<Arc<Point>>, DeviceError> {
        lock(&self.0).recorded.get(&event).cloned().ok_or_else(|| unknown(event))
    }

    pub(super) fn record(&self, event: EventHandle) -> Result<Arc<Point>, DeviceError> {
        let mut table = lock(&self.0);
        let recorded = table.recorded.get_mut(&event).ok_or_else(|| unknown(event))?;
        let point = Arc::new(Point::default());
        *recorded = Some(Arc::clone(&point));
        Ok(point)
    }
}

fn unknown(event: EventHandle) -> DeviceError {
    DeviceError::UnknownEvent { handle: event.get() }
}

/// What a stream runs.
type Closure = Box<dyn FnOnce() + Send>;

/// An in-order queue of the engine's work, on a thread of its own.
///
/// Dropping it returns at once: what was launched still runs, as on CUDA. A closure that panics
/// ends its stream: nothing after it runs, and events recorded after it never complete.
///
/// ```
/// use kvtide::device::cpu::{CpuConfig, CpuDevice, DeviceMemory};
/// # use kvtide::layout::{Attention, ElementType, Layout, Paging, engines};
/// # use kvtide::units::{BlockCount, ByteCount, TokenCount};
/// # let memory = DeviceMemory::allocate(ByteCount::new(1 << 20))?;
/// # let cache = engines::KeyValueCache {
/// #     paging: Paging {
/// #         block_tokens: TokenCount::new(16),
/// #         blocks_per_chunk: BlockCount::new(2),
/// #         block_count: BlockCount::new(8),
/// #         attention: Attention::Full,
/// #     },
/// #     element_type: ElementType::Bf16,
/// #     kv_heads: 1,
/// #     head_dim: 64,
/// # };
/// # let bases = [engines::LayerBase { layer: 0, base_address: memory.address() }];
/// # let layout = Layout::builder().group(cache.fused_in_heads(&bases)).build()?;
/// # let config = CpuConfig { out_pieces: 2, in_pieces: 2 };
/// let device = CpuDevice::open(&layout, vec![memory.clone()], config)?;
/// let stream = device.create_stream()?;
/// let event = device.create_event();
/// stream.launch(move || memory.write(0, b"keys and values"));
/// stream.record(event)?;
/// stream.synchronize()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CpuStream {
    queue: Arc<Queue<Closure>>,
    events: Arc<Events>,
}

impl fmt::Debug for CpuStream {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CpuStream").field("queue", &self.queue).finish_non_exhaustive()
    }
}

impl CpuStream {
    pub(super) fn start(events: Arc<Events>) -> Result<Self, DeviceError> {
        let queue = Queue::<Closure>::new();
        let taken = Arc::clone(&queue);
        let name = "kvtide-stream".to_owned();
        thread::Builder::new()
            .name(name.clone())
            .spawn(move || {
                let _closed_on_panic = CloseOnDrop(&taken);
                while let Some(closure) = taken.next() {
                    closure();
                }
            })
            .map_err(|error| DeviceError::Thread { name, reason: error.to_string() })?;
        Ok(Self { queue, events })
    }

    /// Appends work; returns at once.
    pub fn launch(&self, work: impl FnOnce() + Send + 'static) {
        self.queue.push(None, Box::new(work));
    }

    /// Records the work launched so far in the event.
    ///
    /// # Errors
    ///
    /// [`DeviceError::UnknownEvent`] for an event of another device, or a destroyed one.
    pub fn record(&self, event: EventHandle) -> Result<(), DeviceError> {
        let point = self.events.record(event)?;
        self.queue.push(None, Box::new(move || point.pass()));
        Ok(())
    }

    /// Has all later work of the stream wait for what is recorded in the event now; for nothing
    /// when nothing ever was.
    ///
    /// # Errors
    ///
    /// [`DeviceError::UnknownEvent`] for an event of another device, or a destroyed one.
    pub fn wait(&self, event: EventHandle) -> Result<(), DeviceError> {
        if let Some(point) = self.events.recorded(event)? {
            self.queue.push(Some(point), Box::new(|| ()));
        }
        Ok(())
    }

    /// Blocks until all work launched so far has ended.
    ///
    /// # Errors
    ///
    /// [`DeviceError::StreamFailed`] when a closure panicked, so that work after it never runs.
    pub fn synchronize(&self) -> Result<(), DeviceError> {
        let (ended, end) = mpsc::channel();
        self.launch(move || {
            // The receiver is there until the next line returns.
            let _ = ended.send(());
        });
        end.recv().map_err(|_| DeviceError::StreamFailed)
    }
}

impl Drop for CpuStream {
    fn drop(&mut self) {
        self.queue.drain();
    }
}

/// Closes a stream's queue when its thread ends, so that nobody waits for work that never runs.
struct CloseOnDrop<'queue>(&'queue Queue<Closure>);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}
