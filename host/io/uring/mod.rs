//! Reads, writes and syncs by one `io_uring`.
//!
//! | file | what |
//! |---|---|
//! | `mod.rs` | [`Uring`]: the engine: submissions, completions, waiting |
//! | `flights.rs` | transfers in the kernel, and how overdue they are |
//! | `pieces.rs` | slabs cut into registered buffers |
//! | `ring.rs` | the ring that the kernel at hand can best give |
//!
//! A transfer in the kernel is a *flight*. It keeps its place until its completion came, whatever
//! was reported meanwhile: after `io_timeout` it is cancelled; one that does not come back within
//! the grace after that is reported without its memory, which stays in its flight.
//!
//! Invariants: each flight has one submission in the kernel, or waiting to be handed over, and at
//! most one cancel, so that the queue is never full; a place in the table of files goes to
//! another file only when no flight uses the first; the ring is dropped only without flights, and
//! leaked with them otherwise.
//!
//! Called by [`open_disk`](super::open_disk), as an [`Engine`].
#![expect(unsafe_code, reason = "hands addresses of memory to the kernel")]

mod flights;
mod pieces;
mod ring;

use self::flights::{Flight, Flights, Overdue, Stage};
use self::pieces::Pieces;
use super::files::{DriveId, OpenFile};
use super::open::memlock_limit;
use super::real::{Engine, Load};
use super::transfer::{Answer, Transfer, Work};
use super::{DiskWaker, IoFault, IoFinished};
use crate::capability::Downgrade;
use crate::mem::Slab;
use crate::units::ByteCount;
use io_uring::squeue::{Entry, Flags};
use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};
use nix::errno::Errno;
use nix::libc;
use nix::sys::eventfd::{EfdFlags, EventFd};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Places in the table of files; further files are used without.
const FILE_PLACE_COUNT: u32 = 64;

/// The longest that a cancel is waited for; a tenth of `io_timeout` where that is less.
const CANCEL_GRACE_MAX: Duration = Duration::from_secs(1);

/// The longest sleep; the kernel refuses times beyond its clock's.
const SLEEP_MAX: Duration = Duration::from_hours(1);

/// The pause after a call that the kernel refuses, so that nobody spins on it.
const REFUSED_PAUSE: Duration = Duration::from_millis(1);

/// Marks the completion that a waker causes. Flights' marks are below.
const WAKE_MARK: u64 = u64::MAX;

/// Marks the completion of a cancel, which says nothing that its flight's does not.
const CANCEL_MARK: u64 = u64::MAX - 1;

/// Ends a wait by a number in an event descriptor.
#[derive(Debug)]
struct EventWaker {
    event: EventFd,
}

impl DiskWaker for EventWaker {
    fn wake(&self) {
        // Fails only when 2^64 - 1 wakes were not seen yet; one of them will do.
        let _ = self.event.write(1);
    }
}

/// One ring and what is under way in it.
pub(super) struct Uring {
    /// None once it was stopped.
    ring: Option<IoUring>,
    flights: Flights,
    free_file_places: Vec<u32>,
    /// Files that were closed, and may be in use.
    closing: Vec<Arc<OpenFile>>,
    pieces: Pieces,
    /// What is registered must stay mapped where it is.
    slabs: Vec<Arc<Slab>>,
    waker: Arc<EventWaker>,
    is_wake_awaited: bool,
    is_woken: bool,
    /// Completions being taken in, kept for its room.
    completions: Vec<(u64, i32)>,
    /// Reports that were not reaped.
    ended: Vec<IoFinished>,
    downgrade: Option<Downgrade>,
}

impl fmt::Debug for Uring {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Uring")
            .field("flights", &self.flights)
            .field("pieces", &self.pieces)
            .finish_non_exhaustive()
    }
}

impl Uring {
    /// Makes a ring for `depth` operations at a time on each of so many drives.
    ///
    /// # Errors
    ///
    /// What the system says when it refuses a ring or what belongs to one.
    pub(super) fn new(depth: u32, drive_count: u32, io_timeout: Duration) -> io::Result<Self> {
        // For each place a submission and a cancel, and the cancel of the flight before it; and one
        // for the waker.
        let ring = ring::make(3 * depth * drive_count + 1)?;
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        // A kernel without room for a table uses descriptors, which cost a look-up an operation.
        let empty_table = [-1; FILE_PLACE_COUNT as usize];
        let has_table = ring.submitter().register_files(&empty_table).is_ok();
        let file_place_count = if has_table { FILE_PLACE_COUNT } else { 0 };
        let grace = CANCEL_GRACE_MAX.min(io_timeout / 10);
        Ok(Self {
            ring: Some(ring),
            flights: Flights::new(depth, drive_count, io_timeout, grace),
            free_file_places: (0..file_place_count).rev().collect(),
            closing: Vec::new(),
            pieces: Pieces::default(),
            slabs: Vec::new(),
            waker: Arc::new(EventWaker { event }),
            is_wake_awaited: false,
            is_woken: false,
            completions: Vec::new(),
            ended: Vec::new(),
            downgrade: None,
        })
    }

    fn ring(&mut self) -> &mut IoUring {
        self.ring.as_mut().expect("a stopped engine is not used")
    }

    /// Adds a submission to the queue.
    fn push(&mut self, entry: &Entry) {
        // SAFETY: the memory that an entry names is owned by its flight, which lives until its
        // completion came or for ever.
        let pushed = unsafe { self.ring().submission().push(entry) };
        pushed.expect("three entries a place and one for the waker fit");
    }

    /// Hands the queue to the kernel, and lets it post what it has not posted.
    ///
    /// What the kernel does not take now stays in the queue for the next call.
    fn enter(&mut self) {
        let queue = self.ring().submission();
        let is_needed = !queue.is_empty() || queue.taskrun() || queue.cq_overflow();
        drop(queue);
        if is_needed {
            let _ = self.ring().submit();
        }
    }

    /// Takes completions in, and submits what they leave to do; returns whether there were any.
    fn collect(&mut self) -> bool {
        self.enter();
        let mut completions = std::mem::take(&mut self.completions);
        let marked = self.ring().completion();
        completions.extend(marked.map(|entry| (entry.user_data(), entry.result())));
        let has_news = !completions.is_empty();
        for (mark, result) in completions.drain(..) {
            match mark {
                CANCEL_MARK => {}
                WAKE_MARK => {
                    // Empty if a completion was late; then there is nothing to reset.
                    let _ = self.waker.event.read();
                    self.is_woken = true;
                    self.is_wake_awaited = false;
                }
                _ => self.complete(mark, result),
            }
        }
        self.completions = completions;
        self.release_closed();
        has_news
    }

    /// Takes in what the kernel says about a flight.
    fn complete(&mut self, mark: u64, result: i32) {
        let Some(flight) = self.flights.find(mark) else { return };
        // A negative result is an errno.
        let answer = u32::try_from(result).map_err(|_| Errno::from_raw(-result));
        let is_cancelled = matches!(answer, Err(Errno::ECANCELED | Errno::EINTR));
        let answer = flight.transfer.answer(answer);
        let outcome = match (flight.stage, answer) {
            (Stage::InTime, Answer::More) => {
                let entry = entry(flight, &self.pieces);
                self.push(&entry);
                return;
            }
            (_, Answer::More) => Err(IoFault::TimedOut),
            (Stage::Cancelled(_), Answer::Done(_)) if is_cancelled => Err(IoFault::TimedOut),
            (_, Answer::Done(outcome)) => outcome,
        };
        let Some(Flight { transfer, stage, .. }) = self.flights.end(mark) else { return };
        if stage != Stage::Abandoned {
            self.ended.push(transfer.finish(outcome));
        }
    }

    /// Lets go of closed files that nothing uses any more.
    fn release_closed(&mut self) {
        let mut index = 0;
        while let Some(file) = self.closing.get(index) {
            if Arc::strong_count(file) > 1 {
                index += 1;
                continue;
            }
            let file = self.closing.swap_remove(index);
            if let Some(place) = file.place
                && self.ring().submitter().register_files_update(place, &[-1]).is_ok()
            {
                self.free_file_places.push(place);
            }
        }
    }

    /// Asks the ring to wait for the waker too.
    fn await_wake(&mut self) {
        if self.is_wake_awaited {
            return;
        }
        let event = Fd(self.waker.event.as_fd().as_raw_fd());
        let readable = u32::from(libc::POLLIN.cast_unsigned());
        self.push(&opcode::PollAdd::new(event, readable).build().user_data(WAKE_MARK));
        self.is_wake_awaited = true;
    }

    /// Registers the pieces; in vain, says why.
    fn register_pieces(&mut self) -> Option<Downgrade> {
        let buffers: Vec<libc::iovec> = self
            .pieces
            .as_slice()
            .iter()
            .map(|piece| libc::iovec {
                iov_base: std::ptr::with_exposed_provenance_mut(piece.memory.start),
                iov_len: piece.memory.len(),
            })
            .collect();
        if buffers.is_empty() {
            return None;
        }
        // SAFETY: the pieces lie in slabs, which stay mapped until the buffers are unregistered.
        let registered = unsafe { self.ring().submitter().register_buffers(&buffers) };
        let error = registered.err()?;
        self.pieces = Pieces::default();
        let bytes: u64 = self.slabs.iter().map(|slab| slab.memory().1.get()).sum();
        self.slabs.clear();
        Some(Downgrade {
            what: "registered buffers",
            why: refusal(&error, ByteCount::new(bytes)),
            effect: "the kernel looks up the pages of every operation anew: more CPU time",
        })
    }
}

impl Engine for Uring {
    fn name(&self) -> &'static str {
        "io_uring"
    }

    fn downgrades(&self) -> Vec<Downgrade> {
        self.downgrade.iter().cloned().collect()
    }

    fn register(&mut self, slabs: &[Arc<Slab>]) {
        self.enter();
        if !self.pieces.as_slice().is_empty() {
            // Operations under way keep their buffers.
            let _ = self.ring().submitter().unregister_buffers();
        }
        let pieces = slabs.iter().flat_map(|slab| {
            let (base, _) = slab.memory();
            let slot_bytes = usize::try_from(slab.slot_bytes().get()).expect("a slot is mapped");
            pieces::cut(base.expose_provenance(), slot_bytes, slab.slot_count() as usize)
        });
        self.pieces = Pieces::new(pieces.collect());
        self.slabs = slabs.to_vec();
        self.downgrade = self.register_pieces();
    }

    fn opened(&mut self, file: &mut OpenFile) {
        let Some(place) = self.free_file_places.pop() else { return };
        let descriptor = file.handle().as_raw_fd();
        match self.ring().submitter().register_files_update(place, &[descriptor]) {
            Ok(_) => file.place = Some(place),
            Err(_) => self.free_file_places.push(place),
        }
    }

    fn closed(&mut self, file: Arc<OpenFile>) {
        self.closing.push(file);
        self.release_closed();
    }

    fn depth(&self) -> u32 {
        self.flights.depth()
    }

    fn load(&self, drive: DriveId) -> Load {
        self.flights.load(drive)
    }

    fn start(&mut self, transfer: Transfer, now: Instant) {
        let entry = entry(self.flights.begin(transfer, now), &self.pieces);
        self.push(&entry);
    }

    fn flush(&mut self) {
        self.enter();
    }

    fn reap(&mut self, now: Instant, ready: &mut Vec<IoFinished>) {
        self.collect();
        let mut cancels = Vec::new();
        self.flights.check(now, |overdue| match overdue {
            Overdue::Cancel(mark) => cancels.push(mark),
            Overdue::Abandon(tag) => {
                let outcome = Err(IoFault::TimedOut);
                ready.push(IoFinished { tag, outcome, memory: None });
            }
        });
        for mark in cancels {
            self.push(&opcode::AsyncCancel::new(mark).build().user_data(CANCEL_MARK));
        }
        ready.append(&mut self.ended);
    }

    fn is_stuck(&self, drive: DriveId) -> bool {
        self.flights.is_stuck(drive)
    }

    fn wait(&mut self, timeout: Duration) {
        self.await_wake();
        let has_news = self.collect() || self.is_woken || !self.ended.is_empty();
        let timeout = timeout.min(self.flights.quiet()).min(SLEEP_MAX);
        if !has_news && !timeout.is_zero() {
            let time = Timespec::from(timeout);
            let arguments = SubmitArgs::new().timespec(&time);
            let waited = self.ring().submitter().submit_with_args(1, &arguments);
            let errno = waited.err().and_then(|error| error.raw_os_error()).map(Errno::from_raw);
            if !matches!(errno, None | Some(Errno::ETIME | Errno::EINTR)) {
                thread::sleep(timeout.min(REFUSED_PAUSE));
            }
            self.collect();
        }
        self.is_woken = false;
    }

    fn waker(&self) -> Arc<dyn DiskWaker> {
        Arc::clone(&self.waker) as Arc<dyn DiskWaker>
    }

    fn under_way(&self) -> u32 {
        self.flights.count()
    }

    /// Gives the ring back, or leaks it with what the kernel still uses.
    fn stop(&mut self) -> u32 {
        self.collect();
        let count = self.flights.count();
        let Some(ring) = self.ring.take() else { return count };
        if count == 0 {
            // At once, so that files and memory are free when this returns; a ring that is only
            // dropped is taken apart later, by a thread of the kernel.
            let _ = ring.submitter().unregister_files();
            let _ = ring.submitter().unregister_buffers();
        } else {
            std::mem::forget(ring);
            std::mem::forget(std::mem::take(&mut self.slabs));
            std::mem::forget(std::mem::take(&mut self.closing));
            self.flights.leak();
        }
        count
    }
}

/// Returns the submission that asks for a flight's next bytes.
fn entry(flight: &Flight, pieces: &Pieces) -> Entry {
    let (call, file) = (flight.transfer.call(), flight.transfer.file());
    let (descriptor, flags) = match file.place {
        // The crate's own type for a place does the same; a number and a flag need no two paths.
        Some(place) => (Fd(place.cast_signed()), Flags::FIXED_FILE),
        None => (Fd(file.handle().as_raw_fd()), Flags::empty()),
    };
    let (address, length, offset) = (call.address, call.length, call.offset);
    let buffer = pieces.find(address.addr(), length as usize);
    let entry = match (call.work, buffer) {
        (Work::Read, Some(buffer)) => {
            opcode::ReadFixed::new(descriptor, address, length, buffer).offset(offset).build()
        }
        (Work::Read, None) => opcode::Read::new(descriptor, address, length).offset(offset).build(),
        (Work::Write, Some(buffer)) => {
            opcode::WriteFixed::new(descriptor, address, length, buffer).offset(offset).build()
        }
        (Work::Write, None) => {
            opcode::Write::new(descriptor, address, length).offset(offset).build()
        }
        (Work::Sync, _) => opcode::Fsync::new(descriptor).flags(FsyncFlags::DATASYNC).build(),
    };
    entry.flags(flags).user_data(flight.mark)
}

/// Says why memory was not registered, and what helps.
fn refusal(error: &io::Error, bytes: ByteCount) -> String {
    let why = format!("{bytes} of host slots: {error}");
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOMEM) => format!("{why}; {}", memlock_limit()),
        _ => why,
    }
}
