//! Faults on demand, for tests of the pager and of engines that link kvtide.
//!
//! A fault is planned for one operation by its hop and its number on that hop, so a test says
//! exactly what fails and finds the same each time. An engine event that never completes needs no
//! fault: record one behind work that does not end.
//!
//! Only with the `testing` feature. Called by tests; consulted by the hops.

use super::CpuDevice;
use super::hops::{HOPS, Shared};
use super::queue::lock;
use crate::core::Hop;
use crate::device::{Operation, Outcome, Work};
use crate::mem::SlotMemory;
use std::collections::HashMap;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// What goes wrong with one operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// It ends [`Failed`](Outcome::Failed) and moves nothing.
    Fail,
    /// One bit of the image flips on the way: in the piece after a pack or in-link and before an
    /// unpack, in the slot after an out-link.
    Corrupt {
        /// Which byte of the payload; counted from the start again past its end. Padding between
        /// parts is not summed, byte 0 always is.
        payload_byte: u64,
    },
    /// It begins this much later.
    Slow(Duration),
    /// It never ends, until the device is abandoned or dropped.
    Hang,
}

/// The faults planned for a device.
#[derive(Debug, Default)]
pub(super) struct Faults {
    state: Mutex<FaultState>,
    abandoned: Condvar,
}

#[derive(Debug, Default)]
struct FaultState {
    /// Operations begun by hop.
    begun: [u64; HOPS.len()],
    planned: HashMap<(Hop, u64), Fault>,
    is_abandoned: bool,
}

impl CpuDevice {
    /// Plans a fault for a hop's operation number `operation`, counted from 0 since the device was
    /// opened. A later plan for the same operation replaces it.
    pub fn inject(&self, hop: Hop, operation: u64, fault: Fault) {
        lock(&self.shared.faults.state).planned.insert((hop, operation), fault);
    }

    /// Returns how many operations of a hop have begun: the number of the next.
    pub fn begun(&self, hop: Hop) -> u64 {
        lock(&self.shared.faults.state).begun[hop.index()]
    }
}

impl Faults {
    /// Counts an operation and returns what goes wrong with it.
    fn begin(&self, hop: Hop) -> Option<Fault> {
        let mut state = lock(&self.state);
        let begun = &mut state.begun[hop.index()];
        let number = *begun;
        *begun += 1;
        state.planned.remove(&(hop, number))
    }

    /// Sleeps for a while, at most until the device is abandoned.
    fn pause(&self, duration: Duration) {
        let state = lock(&self.state);
        let _state = self
            .abandoned
            .wait_timeout_while(state, duration, |state| !state.is_abandoned)
            .unwrap_or_else(PoisonError::into_inner);
    }

    /// Ends all pauses, now and later.
    pub(super) fn abandon(&self) {
        lock(&self.state).is_abandoned = true;
        self.abandoned.notify_all();
    }
}

impl Shared {
    /// Runs an operation with what was planned for it.
    pub(super) fn run_with_faults(&self, operation: &Operation) -> Outcome {
        match self.faults.begin(operation.work.hop()) {
            None => self.run(operation),
            Some(Fault::Fail) => Outcome::Failed,
            Some(Fault::Slow(duration)) => {
                self.faults.pause(duration);
                self.run(operation)
            }
            Some(Fault::Hang) => {
                self.faults.pause(Duration::MAX);
                // Nobody hears of it: the pause ends only once the device is given up on.
                Outcome::Failed
            }
            Some(Fault::Corrupt { payload_byte }) => {
                if let Work::Unpack(_) = &operation.work {
                    flip(&self.in_ring.image(operation.piece), payload_byte);
                    return self.run(operation);
                }
                let outcome = self.run(operation);
                match &operation.work {
                    Work::Pack(_) => flip(&self.out_ring.image(operation.piece), payload_byte),
                    Work::OutLink { slot } => flip(slot, payload_byte),
                    Work::InLink { .. } => flip(&self.in_ring.image(operation.piece), payload_byte),
                    Work::Unpack(_) => {}
                }
                outcome
            }
        }
    }
}

/// Flips a bit of a payload's byte.
fn flip(memory: &SlotMemory, payload_byte: u64) {
    let mut access = memory.write().expect("the operation owns its piece and slot");
    let payload = access.payload();
    if let Some(last) = payload.len().checked_sub(1) {
        let byte = usize::try_from(payload_byte % (last as u64 + 1)).expect("inside the payload");
        payload[byte] ^= 1;
    }
}
