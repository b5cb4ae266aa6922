//! What every contender does, and what is measured of it.
//!
//! A *lap* writes each slot of a workload once and then reads each once. The first lap meets files
//! that were just made, in ascending order; later laps meet files written before, in one shuffled
//! order that is the same in every lap. A slot is a header page and a payload; contenders without
//! headers of that kind move the payload, or, where their files have fixed places, the whole slot.
//!
//! A put ends when every write is done; no contender syncs within the measurement, and most do
//! after it.
//!
//! Called by every contender.

use crate::Failure;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::resource::{UsageWho, getrusage};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Instant;

/// Bytes of a slot's header page.
pub(crate) const HEADER_BYTES: usize = 4096;

/// Which lap it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LapKind {
    /// On files just made.
    First,
    /// On files that were written before.
    Later,
}

impl LapKind {
    /// Returns the word that stands for it on command lines.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Later => "later",
        }
    }
}

/// How much is moved: slots of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::Args)]
pub(crate) struct Workload {
    /// Bytes of a slot: header page and payload.
    #[arg(long)]
    pub(crate) slot_bytes: usize,
    /// Slots that a lap writes and reads.
    #[arg(long)]
    pub(crate) slot_count: u32,
    /// Slots that the payloads are taken from, and read into, in turn.
    #[arg(long)]
    pub(crate) place_count: u32,
    /// Operations under way at a time.
    #[arg(long)]
    pub(crate) depth: u32,
}

impl Workload {
    /// Returns the bytes that a lap writes, and those that it reads.
    pub(crate) fn total_bytes(&self) -> u64 {
        self.slot_bytes as u64 * u64::from(self.slot_count)
    }

    /// Returns the bytes of one slot after its header page.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.slot_bytes - HEADER_BYTES
    }

    /// Returns the order in which a lap visits the slots.
    pub(crate) fn order(&self, kind: LapKind) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.slot_count).collect();
        if kind == LapKind::Later {
            shuffle(&mut order);
        }
        order
    }

    /// Returns the arguments that hand the workload to a process of its own.
    pub(crate) fn arguments(&self) -> Vec<String> {
        let Self { slot_bytes, slot_count, place_count, depth } = self;
        vec![
            format!("--slot-bytes={slot_bytes}"),
            format!("--slot-count={slot_count}"),
            format!("--place-count={place_count}"),
            format!("--depth={depth}"),
        ]
    }
}

/// Shuffles by a fixed seed (Fisher and Yates).
fn shuffle(items: &mut [u32]) {
    let mut state = 7_u64;
    for last in (1..items.len()).rev() {
        state = next_random(state);
        let at = (state >> 33) % (last as u64 + 1);
        items.swap(last, usize::try_from(at).expect("below a length"));
    }
}

/// Fills `payload` with words that no other place has.
pub(crate) fn fill(place: u32, payload: &mut [u8]) {
    let mut state = u64::from(place).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for word in payload.as_chunks_mut::<8>().0 {
        state = next_random(state);
        *word = (state ^ (state >> 29)).to_le_bytes();
    }
}

/// Steps a linear congruential generator (Knuth's constants).
const fn next_random(state: u64) -> u64 {
    state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f)
}

/// Makes `path` anew, of `length` bytes that are reserved and never written.
pub(crate) fn provision(path: &Path, length: u64) -> Result<(), Failure> {
    if path.exists() {
        std::fs::remove_file(path)?;
    }
    let file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    fallocate(&file, FallocateFlags::empty(), 0, i64::try_from(length)?)?;
    file.sync_all()?;
    Ok(())
}

/// Makes what was written to `path` durable, so that the file system's work for it does not fall on
/// the reads that follow.
pub(crate) fn settle(path: &Path) -> Result<(), Failure> {
    Ok(File::open(path)?.sync_data()?)
}

/// What one direction of a lap took.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Cost {
    /// From the first operation's start to the last one's end.
    pub(crate) seconds: f64,
    /// CPU time of all threads of the process meanwhile, the kernel's on its behalf included.
    pub(crate) cpu_seconds: f64,
}

/// What one lap took.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Lap {
    /// Writing every slot.
    pub(crate) put: Cost,
    /// Reading every slot.
    pub(crate) get: Cost,
}

/// A measurement under way.
#[derive(Debug)]
pub(crate) struct Watch {
    start: Instant,
    start_cpu_seconds: f64,
}

impl Watch {
    /// Starts measuring.
    pub(crate) fn start() -> Result<Self, Failure> {
        Ok(Self { start_cpu_seconds: cpu_seconds()?, start: Instant::now() })
    }

    /// Returns what went by since the start.
    pub(crate) fn cost(&self) -> Result<Cost, Failure> {
        let seconds = self.start.elapsed().as_secs_f64();
        Ok(Cost { seconds, cpu_seconds: cpu_seconds()? - self.start_cpu_seconds })
    }
}

/// Returns the CPU time that this process has used.
#[expect(clippy::cast_precision_loss, reason = "a run is short")]
fn cpu_seconds() -> Result<f64, Failure> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let times = [usage.user_time(), usage.system_time()];
    Ok(times.iter().map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6).sum())
}

#[cfg(test)]
mod tests {
    use super::{LapKind, Workload};

    const WORKLOAD: Workload =
        Workload { slot_bytes: 8192, slot_count: 1000, place_count: 16, depth: 8 };

    #[test]
    fn every_lap_visits_every_slot_once() {
        for kind in [LapKind::First, LapKind::Later] {
            let mut order = WORKLOAD.order(kind);
            assert_eq!(order.is_sorted(), kind == LapKind::First);
            order.sort_unstable();
            assert_eq!(order, (0..1000).collect::<Vec<u32>>());
        }
        assert_eq!(WORKLOAD.order(LapKind::Later), WORKLOAD.order(LapKind::Later));
    }

    #[test]
    fn no_two_places_share_a_payload() {
        let payload = |place| {
            let mut bytes = [0; 64];
            super::fill(place, &mut bytes);
            bytes
        };
        assert_ne!(payload(0), payload(1));
        assert_eq!(payload(3), payload(3));
    }
}
