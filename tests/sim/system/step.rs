//! What can happen in a simulated system, one step at a time, and how bytes say it.
//!
//! Four bytes are a step, whatever they are, so that a random generator, a fuzzer and a minimiser
//! need to know nothing of steps.

use kvtide::core::Hop;
use kvtide::io::sim::SimFault;

/// Bytes of one step.
pub(crate) const STEP_BYTES: usize = 4;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The engine runs a prompt: looks it up, loads what hits, and computes and stores the rest.
    Request,
    /// Work of the engine that its loads and stores wait for comes to its end.
    EndWork,
    /// An operation of the device runs.
    Hop(Hop),
    DeviceRound,
    DiskRound,
    /// Everybody gets a turn, some times.
    Pump,
    /// Time passes until something may happen, or a little.
    PassTime,
    /// Much time passes at once, and nobody gets a turn.
    Stall,
    Cancel,
    DropPlan,
    Flush,
    Clear,
    /// The host makes room.
    DeviceFault,
    /// Faults of the drive are planned.
    DriveFault,
    EndDriveFaults,
    /// The power goes; the next life begins.
    CutPower,
    /// The power goes in the middle of something that the drive does.
    CutLater,
    /// The process is killed.
    Kill,
    /// The pager is closed, and opened again, perhaps with another capacity.
    Restart,
}

/// One step: what happens, and two numbers to choose by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) kind: Kind,
    pub(crate) first: usize,
    pub(crate) second: usize,
}

/// How often each kind comes in 256 steps.
const WEIGHTS: [(Kind, usize); 22] = [
    (Kind::Request, 36),
    (Kind::EndWork, 14),
    (Kind::Hop(Hop::Pack), 18),
    (Kind::Hop(Hop::OutLink), 18),
    (Kind::Hop(Hop::InLink), 14),
    (Kind::Hop(Hop::Unpack), 14),
    (Kind::DeviceRound, 36),
    (Kind::DiskRound, 40),
    (Kind::Pump, 24),
    (Kind::PassTime, 14),
    (Kind::Stall, 1),
    (Kind::Cancel, 2),
    (Kind::DropPlan, 6),
    (Kind::Flush, 5),
    (Kind::Clear, 1),
    (Kind::DeviceFault, 1),
    (Kind::DriveFault, 2),
    (Kind::EndDriveFaults, 1),
    (Kind::CutPower, 2),
    (Kind::CutLater, 2),
    (Kind::Kill, 2),
    (Kind::Restart, 3),
];

impl Step {
    /// Reads a step.
    pub(crate) fn decode(bytes: [u8; STEP_BYTES]) -> Self {
        let [kind, first, second, third] = bytes;
        let mut left = usize::from(kind);
        let mut kinds = WEIGHTS.into_iter();
        let kind = kinds.find_map(|(kind, weight)| {
            if left < weight {
                return Some(kind);
            }
            left -= weight;
            None
        });
        Self {
            kind: kind.expect("the weights add up to 256"),
            first: usize::from(first),
            second: usize::from(u16::from_le_bytes([second, third])),
        }
    }
}

/// What a drive does wrong, by number.
pub(crate) const DRIVE_FAULTS: [SimFault; 12] = [
    SimFault::Error,
    SimFault::NoSpace,
    SimFault::EndOfFile,
    SimFault::Stall,
    SimFault::Hang,
    SimFault::FlipAtRest,
    SimFault::FlipOnWire,
    SimFault::Misdirect,
    SimFault::Stale,
    SimFault::Lose,
    SimFault::Vanish,
    SimFault::ReadOnly,
];

/// The hops, by number.
pub(crate) const HOPS: [Hop; 4] = [Hop::Pack, Hop::OutLink, Hop::InLink, Hop::Unpack];
