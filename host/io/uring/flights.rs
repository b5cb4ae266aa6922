//! Transfers in the kernel, by place.
//!
//! Each drive may have so many places, and there are as many as the drives that were counted on may
//! have together.
//!
//! Invariants: a place is free or has one flight; a mark names one flight of the ring's life, so
//! that a late completion or cancel finds its own flight or none.
//!
//! Called by the ring's engine.

use super::super::files::DriveId;
use super::super::real::Load;
use super::super::transfer::Transfer;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How far a flight is from being given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// In time.
    InTime,
    /// Overdue and cancelled, at this time.
    Cancelled(Instant),
    /// Reported without its memory.
    Abandoned,
}

/// A transfer in the kernel.
#[derive(Debug)]
pub(super) struct Flight {
    /// What is moved.
    pub(super) transfer: Transfer,
    /// When it started.
    pub(super) started: Instant,
    /// How overdue it is.
    pub(super) stage: Stage,
    /// Comes back with its completion: its number, then its place.
    pub(super) mark: u64,
}

/// What is to be done about an overdue flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overdue {
    /// Cancel the flight of this mark.
    Cancel(u64),
    /// Report the operation of this tag without its memory.
    Abandon(u64),
}

/// The flights of one drive.
#[derive(Clone, Copy, Debug, Default)]
struct DriveFlights {
    count: u32,
    abandoned_count: u32,
    /// Bytes of those that are not abandoned.
    bytes: u64,
}

/// All flights of a ring.
#[derive(Debug)]
pub(super) struct Flights {
    places: Vec<Option<Flight>>,
    free: Vec<u32>,
    /// Places that a drive may have.
    depth: u32,
    drives: BTreeMap<DriveId, DriveFlights>,
    /// The next flight's number.
    number: u32,
    io_timeout: Duration,
    /// How long a cancel is waited for.
    grace: Duration,
    /// Nothing becomes overdue before.
    next_check: Instant,
}

impl Flights {
    /// Makes `depth` free places for each of so many drives.
    pub(super) fn new(depth: u32, drive_count: u32, io_timeout: Duration, grace: Duration) -> Self {
        let place_count = depth * drive_count;
        Self {
            places: (0..place_count).map(|_| None).collect(),
            free: (0..place_count).rev().collect(),
            depth,
            drives: BTreeMap::new(),
            number: 0,
            io_timeout,
            grace,
            next_check: Instant::now(),
        }
    }

    /// Returns the number of places that a drive may have.
    pub(super) fn depth(&self) -> u32 {
        self.depth
    }

    /// Returns the number of flights.
    pub(super) fn count(&self) -> u32 {
        u32::try_from(self.places.len() - self.free.len()).expect("made from a u32")
    }

    /// Returns the places that a drive may still have, and its bytes that are not abandoned.
    pub(super) fn load(&self, drive: DriveId) -> Load {
        let flights = self.drive(drive);
        let room = u32::try_from(self.free.len()).expect("at most the places");
        Load { free_places: room.min(self.depth - flights.count), bytes_under_way: flights.bytes }
    }

    fn drive(&self, drive: DriveId) -> DriveFlights {
        self.drives.get(&drive).copied().unwrap_or_default()
    }

    /// Gives a transfer a place, and returns its flight.
    ///
    /// # Panics
    ///
    /// Without a free place.
    pub(super) fn begin(&mut self, transfer: Transfer, now: Instant) -> &Flight {
        let place = self.free.pop().expect("there is room");
        let mark = u64::from(self.number) << 32 | u64::from(place);
        self.number = self.number.wrapping_add(1);
        let drive = self.drives.entry(transfer.file().drive()).or_default();
        drive.count += 1;
        drive.bytes += transfer.length();
        let flight = Flight { transfer, started: now, stage: Stage::InTime, mark };
        self.places[place as usize].insert(flight)
    }

    /// Returns the flight of a mark.
    pub(super) fn find(&mut self, mark: u64) -> Option<&mut Flight> {
        let flight = self.places.get_mut(place(mark))?.as_mut()?;
        (flight.mark == mark).then_some(flight)
    }

    /// Takes the flight of a mark, and frees its place.
    pub(super) fn end(&mut self, mark: u64) -> Option<Flight> {
        self.find(mark)?;
        let flight = self.places[place(mark)].take()?;
        let drive = self.drives.entry(flight.transfer.file().drive()).or_default();
        drive.count -= 1;
        if flight.stage == Stage::Abandoned {
            drive.abandoned_count -= 1;
        } else {
            drive.bytes -= flight.transfer.length();
        }
        self.free.push(u32::try_from(place(mark)).expect("the low half of a mark"));
        Some(flight)
    }

    /// Moves flights that are overdue to their next stage.
    pub(super) fn check(&mut self, now: Instant, mut act: impl FnMut(Overdue)) {
        if now < self.next_check {
            return;
        }
        // No flight that starts later becomes overdue before this.
        self.next_check = now + self.io_timeout;
        for flight in self.places.iter_mut().flatten() {
            let due = match flight.stage {
                Stage::InTime => flight.started + self.io_timeout,
                Stage::Cancelled(since) => since + self.grace,
                Stage::Abandoned => continue,
            };
            let due = match flight.stage {
                _ if now < due => due,
                Stage::InTime => {
                    act(Overdue::Cancel(flight.mark));
                    flight.stage = Stage::Cancelled(now);
                    now + self.grace
                }
                Stage::Cancelled(_) | Stage::Abandoned => {
                    act(Overdue::Abandon(flight.transfer.tag()));
                    let drive = self.drives.entry(flight.transfer.file().drive()).or_default();
                    drive.abandoned_count += 1;
                    drive.bytes -= flight.transfer.length();
                    flight.stage = Stage::Abandoned;
                    continue;
                }
            };
            self.next_check = self.next_check.min(due);
        }
    }

    /// Returns whether every place that a drive may have is held by an abandoned flight.
    pub(super) fn is_stuck(&self, drive: DriveId) -> bool {
        let abandoned = self.drives.values().map(|drive| drive.abandoned_count as usize);
        self.drive(drive).abandoned_count == self.depth
            || abandoned.sum::<usize>() == self.places.len()
    }

    /// Returns how long nothing becomes overdue.
    pub(super) fn quiet(&self) -> Duration {
        if self.count() == 0 {
            return Duration::MAX;
        }
        self.next_check.saturating_duration_since(Instant::now())
    }

    /// Keeps every flight's memory and file for ever.
    pub(super) fn leak(&mut self) {
        for flight in self.places.drain(..) {
            std::mem::forget(flight);
        }
        self.free.clear();
    }
}

/// Returns a mark's place.
fn place(mark: u64) -> usize {
    usize::try_from(mark & u64::from(u32::MAX)).expect("32 bits fit every target")
}
