//! Transfers in the kernel, by place.
//!
//! Invariants: a place is free or has one flight; a mark names one flight of the ring's life, so
//! that a late completion or cancel finds its own flight or none.
//!
//! Called by the ring's engine.

use super::super::transfer::Transfer;
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

/// All flights of a ring.
#[derive(Debug)]
pub(super) struct Flights {
    places: Vec<Option<Flight>>,
    free: Vec<u32>,
    /// Bytes of all flights that are not abandoned.
    bytes: u64,
    /// The next flight's number.
    number: u32,
    io_timeout: Duration,
    /// How long a cancel is waited for.
    grace: Duration,
    /// Nothing becomes overdue before.
    next_check: Instant,
}

impl Flights {
    /// Makes `depth` free places.
    pub(super) fn new(depth: u32, io_timeout: Duration, grace: Duration) -> Self {
        Self {
            places: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            bytes: 0,
            number: 0,
            io_timeout,
            grace,
            next_check: Instant::now(),
        }
    }

    /// Returns the number of places.
    pub(super) fn depth(&self) -> u32 {
        u32::try_from(self.places.len()).expect("made from a u32")
    }

    /// Returns the number of free places.
    pub(super) fn room(&self) -> u32 {
        u32::try_from(self.free.len()).expect("at most the places")
    }

    /// Returns the number of flights.
    pub(super) fn count(&self) -> u32 {
        self.depth() - self.room()
    }

    /// Returns the bytes of the flights that are not abandoned.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
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
        self.bytes += transfer.length();
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
        let flight = self.find(mark)?;
        let is_counted = flight.stage != Stage::Abandoned;
        let bytes = if is_counted { flight.transfer.length() } else { 0 };
        self.bytes -= bytes;
        self.free.push(u32::try_from(place(mark)).expect("the low half of a mark"));
        self.places[place(mark)].take()
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
                    self.bytes -= flight.transfer.length();
                    flight.stage = Stage::Abandoned;
                    continue;
                }
            };
            self.next_check = self.next_check.min(due);
        }
    }

    /// Returns whether every place is held by an abandoned flight.
    pub(super) fn is_stuck(&self) -> bool {
        let is_abandoned = |flight: &Flight| flight.stage == Stage::Abandoned;
        self.places.iter().all(|place| place.as_ref().is_some_and(is_abandoned))
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
