//! A simulated disk: files on a drive that loses power, time that passes in jumps, faults by plan.
//!
//! Promises about torn files are proved against it: everything that a drive, a file system or the
//! kernel may do under the contract of [`Disk`](super::Disk) happens here by seed, and what they
//! should not do happens by rule.
//!
//! | file | what |
//! |---|---|
//! | `drive.rs` | [`SimDrive`]: what survives, power cuts, faults, inspection |
//! | `disk.rs`, `files.rs` | [`SimDisk`]: a handle, behind the two traits |
//! | `state.rs`, `schedule.rs` | the machine of events behind all handles of a drive |
//! | `operation.rs` | what an operation does at its moment and at its end |
//! | `tree.rs`, `file.rs`, `image.rs` | entries, files, bytes: seen by programs, and durable |
//! | `faults.rs`, `record.rs` | [`SimRule`]; [`SimRecord`] and [`SimCounters`] |
//! | `clock.rs`, `random.rs` | virtual time, seeded draws |
//!
//! # The model
//!
//! - **Time** is virtual. It passes only in [`Disk::wait`](super::Disk::wait),
//!   [`Disk::shut`](super::Disk::shut) and [`SimClock::advance`]. Each operation takes a drawn
//!   time, so operations end in any order.
//! - **A write** takes its bytes at a drawn moment and is in the file when it ends; a read that
//!   meets it on the way sees any of its sectors. A read looks the file up at a drawn moment and
//!   fills its memory when it ends. A write that fails has moved any of its sectors.
//! - **A timeout**: an operation that takes longer than `io_timeout` is cancelled and reported with
//!   its memory; one that cannot be cancelled is reported without it, and may act later. Operations
//!   that wait for a place are given up when nothing has ended for as long.
//! - **Memory** under an operation is compared between submission and end: whoever changes it
//!   makes the handle that lets time pass panic with "memory changed under a ...".
//! - **A sync** makes durable what it must and no more: the writes, lengths and blocks of its file
//!   that were reported before it was submitted. Directory entries become durable by
//!   [`Files::sync_directory`](super::Files::sync_directory) alone.
//! - **A power cut** draws for everything else whether it survives: of a write that had ended, any
//!   sectors of 512 bytes; of one under way, any sectors, some half old and half new; each length,
//!   reservation and cut; each directory entry, so that a new file may be gone and a removed one be
//!   back. A sector never holds what was not written to it, and reserved blocks read as zeros.
//! - **Parts** of a drive ([`SimDrive::mount`]) stand for several drives in one machine: one of
//!   them that hangs, vanishes or becomes read-only leaves the others alone. The power is that of
//!   all.
//! - **Locks** belong to a handle's open file and go when it is closed and idle, or the power goes.
//!
//! Only with the `testing` feature. Called by tests, here and of engines that link kvtide.

mod clock;
mod disk;
mod drive;
mod faults;
mod file;
mod files;
mod image;
mod operation;
mod random;
mod record;
mod schedule;
mod state;
#[cfg(test)]
mod tests;
mod tree;

pub use clock::SimClock;
pub use disk::SimDisk;
pub use drive::{SimDrive, SimOptions, SimView};
pub use faults::{SimFault, SimKind, SimRule};
pub use record::{SimCounters, SimRecord};

use state::State;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a drive's state. A panic under the lock is a test that fails: others may go on and look.
fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}
