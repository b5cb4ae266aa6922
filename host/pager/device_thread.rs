//! The device thread: turns the core's hops into operations, and their ends into completions.
//!
//! It alone assigns staging pieces and talks to the device. In a round it takes in new hops,
//! submits them, polls, reports what ended, and lets the core's time pass when that is due; then
//! it waits for the device, for a caller, or for the next due time. With nothing under way it
//! sleeps.
//!
//! A device that does not end an operation within `device_timeout` is lost: it is given up on,
//! whatever is under way fails, and so does every later hop, at once. Nothing of its memory is
//! used again.

use super::metrics::HopEnd;
use super::shared::{Effects, Round, Shared};
use crate::core::{Completion, Hop, HopFailure, HopRequest, TransferId};
use crate::device::{Finished, Operation, Outcome, PieceIndex, Work};
use crate::units::Timestamp;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a sleep lasts at most, so that a missed wake costs no more than this.
const SLEEP_MAX: Duration = Duration::from_millis(100);

/// An operation under way.
#[derive(Clone, Copy, Debug)]
struct Flight {
    hop: HopRequest,
    piece: PieceIndex,
    started: Instant,
}

/// The thread's own state.
#[derive(Debug)]
pub(super) struct DeviceThread {
    shared: Arc<Shared>,
    free_out: Vec<PieceIndex>,
    free_in: Vec<PieceIndex>,
    /// Pieces of chunks between their two hops, by transfer and position.
    held: HashMap<(TransferId, u8), PieceIndex>,
    flights: HashMap<u64, Flight>,
    next_tag: u64,
    hops: Vec<HopRequest>,
    finished: Vec<Finished>,
    completions: Vec<Completion>,
    effects: Effects,
    next_tick: Timestamp,
}

impl DeviceThread {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let staging = shared.setup.device.staging();
        let pieces = |count: u32| (0..count).rev().map(PieceIndex::new).collect();
        Self {
            free_out: pieces(staging.out_pieces),
            free_in: pieces(staging.in_pieces),
            held: HashMap::new(),
            flights: HashMap::new(),
            next_tag: 0,
            hops: Vec::new(),
            finished: Vec::new(),
            completions: Vec::new(),
            effects: Effects::new(),
            next_tick: Timestamp::new(0),
            shared,
        }
    }

    /// Runs until the pager closes and nothing is under way. A panic poisons the pager, so that
    /// no ticket waits for a thread that is gone.
    pub(super) fn run(&mut self) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.serve())) {
            self.shared.poison();
            resume_unwind(panic);
        }
    }

    fn serve(&mut self) {
        loop {
            match self.round() {
                Round::Over => return,
                Round::Busy => {}
                Round::Idle(sleep) => self.shared.setup.device.wait(sleep),
            }
        }
    }

    /// Does what there is to do now.
    pub(super) fn round(&mut self) -> Round {
        self.shared.take_inbox(&mut self.hops);
        self.start_hops();
        self.shared.setup.device.poll(&mut self.finished);
        self.take_reports();
        self.check_device();
        self.report();
        self.tick_if_due();
        if !self.hops.is_empty() {
            return Round::Busy;
        }
        if self.shared.is_ending() && !self.shared.is_busy() {
            return Round::Over;
        }
        Round::Idle(self.sleep())
    }

    /// Submits every hop, those of one transfer together: what the device refuses of one, such as
    /// an event that it does not know, is no fault of another.
    fn start_hops(&mut self) {
        let hops = std::mem::take(&mut self.hops);
        for hops in hops.chunk_by(|one, next| one.transfer == next.transfer) {
            self.start_together(hops);
        }
    }

    /// Gives every hop its staging piece and submits them.
    fn start_together(&mut self, hops: &[HopRequest]) {
        let mut operations = Vec::with_capacity(hops.len());
        let started = self.shared.clock().instant();
        for &hop in hops {
            let work = self.shared.with_job(hop.transfer, |job| {
                let chunk = &job.chunks[usize::from(hop.position)];
                let slot = || self.shared.slot(hop, job.image);
                match hop.hop {
                    Hop::Pack => Work::Pack(chunk.clone()),
                    Hop::OutLink => Work::OutLink { slot: slot() },
                    Hop::InLink => Work::InLink { slot: slot() },
                    Hop::Unpack => Work::Unpack(chunk.clone()),
                }
            });
            // A transfer under way keeps its job, unless the pager is poisoned.
            let Some(work) = work else { continue };
            let tag = self.next_tag;
            self.next_tag += 1;
            let piece = self.piece_for(hop);
            self.flights.insert(tag, Flight { hop, piece, started });
            self.shared.meters().begin(hop.hop.into(), started);
            operations.push(Operation { tag, piece, work });
        }
        if operations.is_empty() {
            return;
        }
        let tags: Vec<u64> = operations.iter().map(|operation| operation.tag).collect();
        let is_taken = !self.shared.is_device_lost() && {
            let submitted = self.shared.setup.device.submit(operations);
            if let Err(error) = &submitted {
                tracing::warn!(%error, "the device refused operations");
            }
            submitted.is_ok()
        };
        if !is_taken {
            let failed = |tag| Finished { tag, outcome: Outcome::Failed };
            self.finished.extend(tags.into_iter().map(failed));
        }
    }

    /// A first hop takes a free piece; a second hop goes on with the one that the first filled.
    fn piece_for(&mut self, hop: HopRequest) -> PieceIndex {
        let piece = match hop.hop {
            Hop::Pack => self.free_out.pop(),
            Hop::InLink => self.free_in.pop(),
            Hop::OutLink | Hop::Unpack => self.held.remove(&(hop.transfer, hop.position)),
        };
        piece.expect("the core starts a hop only with its staging reserved")
    }

    /// Turns the device's reports into completions.
    fn take_reports(&mut self) {
        let now = self.shared.clock().instant();
        for Finished { tag, outcome } in std::mem::take(&mut self.finished) {
            let Some(flight) = self.flights.remove(&tag) else {
                continue;
            };
            let hop = flight.hop;
            if hop.hop == Hop::OutLink && outcome == Outcome::Done {
                self.shared.describe(hop);
            }
            let end = match outcome {
                Outcome::Done => HopEnd::Moved(self.shared.bytes_of(hop)),
                Outcome::Mismatch | Outcome::Failed => HopEnd::Failed,
            };
            self.shared.meters().end(hop.hop.into(), flight.started, now, end);
            let is_first = matches!(hop.hop, Hop::Pack | Hop::InLink);
            if is_first && outcome == Outcome::Done {
                self.held.insert((hop.transfer, hop.position), flight.piece);
            } else {
                self.free_piece(hop.hop, flight.piece);
            }
            self.completions.push(hop.ended(match outcome {
                Outcome::Done => Ok(()),
                Outcome::Mismatch => Err(HopFailure::Checksum),
                Outcome::Failed => Err(HopFailure::Device),
            }));
        }
    }

    /// Gives the device up when an operation took too long.
    fn check_device(&mut self) {
        let timeout = self.shared.setup.device_timeout;
        let clock = self.shared.clock();
        let is_stuck = self.flights.values().any(|flight| clock.since(flight.started) > timeout);
        if is_stuck && !self.shared.is_device_lost() {
            tracing::error!(?timeout, "an operation did not end in time: the device is lost");
            self.shared.lose_device();
        }
        if self.shared.is_device_lost() {
            let failed = |tag: &u64| Finished { tag: *tag, outcome: Outcome::Failed };
            self.finished.extend(self.flights.keys().map(failed));
            self.take_reports();
        }
    }

    fn report(&mut self) {
        let completions = std::mem::take(&mut self.completions);
        self.shared.complete(&completions, &mut self.effects);
        self.take_back_pieces(&completions);
        self.take_effects();
    }

    /// Frees the pieces of chunks whose second hop does not begin, because they were cleared while
    /// the first was under way: the core has given their staging back.
    fn take_back_pieces(&mut self, completions: &[Completion]) {
        for completion in completions {
            let name = (completion.transfer, completion.position);
            let goes_on = self.effects.hops.iter().any(|hop| (hop.transfer, hop.position) == name);
            if goes_on {
                continue;
            }
            if let Some(piece) = self.held.remove(&name) {
                self.free_piece(completion.hop, piece);
            }
        }
    }

    /// Returns a piece to the ring of a hop.
    fn free_piece(&mut self, hop: Hop, piece: PieceIndex) {
        match hop {
            Hop::Pack | Hop::OutLink => self.free_out.push(piece),
            Hop::InLink | Hop::Unpack => self.free_in.push(piece),
        }
    }

    /// Keeps the hops that are its own, and hands on those of the disk.
    fn take_effects(&mut self) {
        self.hops.append(&mut self.effects.hops);
        self.shared.hand_over(Vec::new(), std::mem::take(&mut self.effects.disk));
    }

    fn tick_if_due(&mut self) {
        let now = self.shared.now();
        let ticked = self.shared.collect(&mut self.effects, |core| core.tick(now));
        if ticked.is_err() && self.shared.is_busy() {
            self.shared.end_poisoned();
        }
        // A poisoned core has no more time to keep.
        self.next_tick = ticked.unwrap_or(Timestamp::NEVER);
        self.shared.settle(&mut self.effects);
        self.take_effects();
    }

    fn sleep(&self) -> Duration {
        let until_tick = self.next_tick.get().saturating_sub(self.shared.now().get());
        SLEEP_MAX.min(Duration::from_nanos(until_tick))
    }
}
