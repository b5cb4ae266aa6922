//! What can happen in a simulated system, one step at a time; how bytes say it, and how words do.
//!
//! Four bytes are a step, whatever they are, so that a random generator and a fuzzer need to know
//! nothing of steps. In words a step is a line, which stays what it is when steps are added.

use kvtide::core::Hop;
use std::fmt;

/// Bytes of one step.
pub(crate) const STEP_BYTES: usize = 4;

/// Bytes that say what the system is like.
pub(crate) const SETUP_BYTES: usize = 4;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The engine runs a prompt: looks it up, loads what hits, and computes and stores the rest.
    Request,
    /// It runs many prompts of one tenant at once.
    Flood,
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
    /// The time of day is set forward or back.
    StepClock,
    Cancel,
    DropPlan,
    Flush,
    Clear,
    /// The end of a conversation is erased.
    EraseKeys,
    /// What a tenant has stored is erased.
    EraseTenant,
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

/// Each kind's name, and how often it comes in 256 steps.
const KINDS: [(&str, Kind, usize); 26] = [
    ("request", Kind::Request, 30),
    ("flood", Kind::Flood, 2),
    ("end-work", Kind::EndWork, 14),
    ("pack", Kind::Hop(Hop::Pack), 18),
    ("out-link", Kind::Hop(Hop::OutLink), 18),
    ("in-link", Kind::Hop(Hop::InLink), 14),
    ("unpack", Kind::Hop(Hop::Unpack), 14),
    ("device-round", Kind::DeviceRound, 36),
    ("disk-round", Kind::DiskRound, 40),
    ("pump", Kind::Pump, 22),
    ("pass-time", Kind::PassTime, 14),
    ("stall", Kind::Stall, 1),
    ("step-clock", Kind::StepClock, 1),
    ("cancel", Kind::Cancel, 2),
    ("drop-plan", Kind::DropPlan, 6),
    ("flush", Kind::Flush, 5),
    ("clear", Kind::Clear, 2),
    ("erase-keys", Kind::EraseKeys, 2),
    ("erase-tenant", Kind::EraseTenant, 2),
    ("device-fault", Kind::DeviceFault, 1),
    ("drive-fault", Kind::DriveFault, 2),
    ("end-drive-faults", Kind::EndDriveFaults, 1),
    ("cut-power", Kind::CutPower, 2),
    ("cut-later", Kind::CutLater, 2),
    ("kill", Kind::Kill, 2),
    ("restart", Kind::Restart, 3),
];

/// One step: what happens, and two numbers to choose by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    pub(crate) kind: Kind,
    pub(crate) first: usize,
    pub(crate) second: usize,
}

impl Step {
    fn decode([kind, first, second, third]: [u8; STEP_BYTES]) -> Self {
        let mut left = usize::from(kind);
        let kind = KINDS.into_iter().find_map(|(_, kind, weight)| {
            let is_this = left < weight;
            left = left.saturating_sub(weight);
            is_this.then_some(kind)
        });
        Self {
            kind: kind.expect("the weights add up to 256"),
            first: usize::from(first),
            second: usize::from(u16::from_le_bytes([second, third])),
        }
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let name = words.next()?;
        let (_, kind, _) = KINDS.into_iter().find(|(known, ..)| *known == name)?;
        let mut number = || words.next()?.parse().ok();
        Some(Self { kind, first: number()?, second: number()? })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = KINDS.into_iter().find(|(_, kind, _)| *kind == self.kind);
        let (name, ..) = known.expect("every kind has a name");
        write!(formatter, "{name} {} {}", self.first, self.second)
    }
}

/// A whole run: what the system is like, and what happens.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) setup: [u8; SETUP_BYTES],
    pub(crate) steps: Vec<Step>,
}

impl Run {
    /// Makes a run of any bytes; `None` when they are too few to say what the system is like.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let (setup, steps) = bytes.split_first_chunk()?;
        let (steps, _) = steps.as_chunks();
        Some(Self { setup: *setup, steps: steps.iter().copied().map(Step::decode).collect() })
    }

    /// Reads a run in words, as [`Display`](fmt::Display) writes it.
    ///
    /// # Panics
    ///
    /// On a line that is none of them.
    pub(crate) fn parse(text: &str) -> Self {
        let mut lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let setup = lines.next().and_then(|line| line.strip_prefix("setup "));
        let setup = setup.and_then(|setup| setup.trim().parse::<u32>().ok());
        let setup = setup.expect("a run begins with what the system is like").to_le_bytes();
        let step = |line| Step::parse(line).unwrap_or_else(|| panic!("no step: {line}"));
        Self { setup, steps: lines.map(step).collect() }
    }
}

impl fmt::Display for Run {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "setup {}", u32::from_le_bytes(self.setup))?;
        self.steps.iter().try_for_each(|step| writeln!(formatter, "{step}"))
    }
}

/// The hops, by number.
pub(crate) const HOPS: [Hop; 4] = [Hop::Pack, Hop::OutLink, Hop::InLink, Hop::Unpack];
