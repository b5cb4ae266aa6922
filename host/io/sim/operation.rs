//! One operation on its way: what it moves, and how it ends.
//!
//! Invariants: a read's memory is written only as the operation ends, and a write's memory is read
//! only at its moment, which is drawn between its start and its end; whoever else changes either
//! meanwhile is caught.

use super::State;
use super::faults::{SimFault, SimKind};
use super::image::{Change, SECTOR_BYTES, mix};
use super::record::SimRecord;
use super::tree::NodeId;
use crate::io::{FileId, IO_ALIGN_BYTES, IoFault, IoMemory};
use crate::units::Timestamp;
use nix::errno::Errno;
use std::hash::{DefaultHasher, Hasher};
use std::path::PathBuf;

/// A read, write or sync that was taken in.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) disk: u32,
    pub(super) tag: u64,
    pub(super) file: FileId,
    pub(super) node: NodeId,
    pub(super) path: PathBuf,
    pub(super) kind: SimKind,
    /// Where the caller wants it.
    pub(super) offset: u64,
    /// Where it goes.
    pub(super) place: u64,
    pub(super) memory: Option<IoMemory>,
    /// Digest of the memory when the operation was submitted.
    pub(super) digest: u64,
    /// The last change that a sync covers.
    pub(super) covered: u64,
    pub(super) submitted_ns: u64,
    pub(super) fault: Option<SimFault>,
    /// What is moved; `None` before the operation's moment.
    pub(super) bytes: Option<Vec<u8>>,
    /// Bytes that a read asks for and the file does not have.
    pub(super) missing_bytes: u64,
}

impl Operation {
    pub(super) fn length(&self) -> u64 {
        self.memory.as_ref().map_or(0, |memory| memory.length().get())
    }

    fn length_usize(&self) -> usize {
        usize::try_from(self.length()).expect("memory fits the address space")
    }

    /// Returns what a write puts on the medium, once it is known.
    pub(super) fn write(&self) -> Option<Change> {
        let is_write = self.kind == SimKind::Write && self.fault != Some(SimFault::Lose);
        let bytes = self.bytes.as_ref().filter(|_| is_write)?;
        Some(Change::Write { offset: self.place, bytes: bytes.clone() })
    }

    fn copy(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length_usize()];
        if let Some(memory) = &self.memory {
            memory.copy_to(&mut bytes);
        }
        bytes
    }

    /// Notes what the memory holds when the operation is submitted.
    pub(super) fn sign(&mut self) {
        self.digest = digest(&self.copy());
    }

    /// Returns the memory's bytes.
    ///
    /// # Panics
    ///
    /// If they are not what was submitted.
    fn checked_copy(&self) -> Vec<u8> {
        let bytes = self.copy();
        assert!(
            digest(&bytes) == self.digest,
            "memory changed under a {:?} of {} bytes at {} of {}",
            self.kind,
            bytes.len(),
            self.offset,
            self.path.display()
        );
        bytes
    }

    fn fill(&mut self, bytes: &[u8]) {
        if let Some(memory) = &mut self.memory {
            memory.copy_from(bytes);
        }
    }

    pub(super) fn record(&self, is_ok: bool) -> SimRecord {
        SimRecord {
            disk: self.disk,
            kind: self.kind,
            path: self.path.clone(),
            offset: self.offset,
            length: self.length(),
            submitted: Timestamp::new(self.submitted_ns),
            reported: Timestamp::NEVER,
            is_ok,
            fault: self.fault,
        }
    }
}

fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}

/// The fault of an errno.
pub(super) fn drive_fault(errno: Errno) -> IoFault {
    IoFault::Drive { errno: errno as i32, reason: errno.desc().to_owned() }
}

/// How an operation ended: what is reported, and the change that took effect.
pub(super) type End = (Result<(), IoFault>, Option<u64>);

impl State {
    /// Lets an operation touch its memory and the file: a write's bytes are taken, a read's looked
    /// up.
    pub(super) fn reach_moment(&mut self, operation: &mut Operation) {
        if operation.fault == Some(SimFault::Misdirect) {
            operation.place = self.elsewhere(operation);
        }
        match operation.kind {
            SimKind::Write => {
                let mut bytes = operation.checked_copy();
                if operation.fault == Some(SimFault::FlipOnWire) {
                    self.flip_some_bit(&mut bytes);
                }
                operation.bytes = Some(bytes);
            }
            SimKind::Read => operation.bytes = Some(self.look_up(operation)),
            _ => {}
        }
    }

    /// Draws another place in the file for as many pages, or the next page where there is none.
    fn elsewhere(&mut self, operation: &Operation) -> u64 {
        let length = self.tree.file_mut(operation.node).volatile.length();
        let places = length.saturating_sub(operation.length()) / IO_ALIGN_BYTES + 1;
        let place = self.random.below(places) * IO_ALIGN_BYTES;
        if place == operation.offset { place + IO_ALIGN_BYTES } else { place }
    }

    fn flip_some_bit(&mut self, bytes: &mut [u8]) {
        let index = self.random.index(bytes.len());
        bytes[index] ^= 1 << self.random.below(8);
    }

    /// Returns what a read sees: the file, and any sectors of writes that are under way.
    fn look_up(&mut self, operation: &mut Operation) -> Vec<u8> {
        let length = operation.length_usize();
        let place = operation.place;
        if operation.fault == Some(SimFault::FlipAtRest) {
            let byte = place + self.random.below(length as u64);
            let mask = 1 << self.random.below(8);
            self.tree.file_mut(operation.node).flip(byte, mask);
        }
        let file = self.tree.file_mut(operation.node);
        let end = operation.offset + length as u64;
        operation.missing_bytes = end.saturating_sub(file.volatile.length()).min(length as u64);
        if operation.fault == Some(SimFault::EndOfFile) {
            let sectors = 1 + self.random.index(length / SECTOR_BYTES);
            let missing_bytes = (sectors * SECTOR_BYTES) as u64;
            operation.missing_bytes = operation.missing_bytes.max(missing_bytes);
        }
        if operation.fault == Some(SimFault::Stale) {
            return file.read_older(place, length);
        }
        let mut bytes = file.volatile.read(place, length);
        for other in self.under_way.values().filter(|other| other.node == operation.node) {
            if let Some(Change::Write { offset, bytes: written }) = other.write() {
                let start = offset.max(place);
                let end = (offset + written.len() as u64).min(place + length as u64);
                if start < end {
                    let within = |origin: u64| {
                        let index = |at: u64| usize::try_from(at - origin).expect("in memory");
                        index(start)..index(end)
                    };
                    mix(
                        &mut bytes[within(place)],
                        &written[within(offset)],
                        false,
                        &mut self.random,
                    );
                }
            }
        }
        if operation.fault == Some(SimFault::FlipOnWire) {
            self.flip_some_bit(&mut bytes);
        }
        bytes
    }

    /// Ends an operation; `is_late` says that it is given up.
    pub(super) fn finish(&mut self, operation: &mut Operation, is_late: bool) -> End {
        let failure = if self.is_gone {
            Some(drive_fault(Errno::ENODEV))
        } else if self.is_read_only && operation.kind != SimKind::Read {
            Some(IoFault::ReadOnly)
        } else if is_late {
            Some(IoFault::TimedOut)
        } else {
            match operation.fault {
                Some(SimFault::Error) => Some(drive_fault(Errno::EIO)),
                Some(SimFault::NoSpace) => Some(no_space()),
                _ => None,
            }
        };
        if operation.memory.is_some() {
            operation.checked_copy();
        }
        match operation.kind {
            SimKind::Read => (self.finish_read(operation, failure), None),
            SimKind::Write => self.finish_write(operation, failure),
            _ => (self.finish_sync(operation, failure), None),
        }
    }

    fn finish_read(
        &mut self,
        operation: &mut Operation,
        failure: Option<IoFault>,
    ) -> Result<(), IoFault> {
        let bytes = operation.bytes.take().expect("a read's moment is before its end");
        if let Some(failure) = failure {
            let sectors = self.random.index(bytes.len() / SECTOR_BYTES + 1);
            operation.fill(&bytes[..sectors * SECTOR_BYTES]);
            return Err(failure);
        }
        let missing_bytes = operation.missing_bytes;
        let missing = usize::try_from(missing_bytes).expect("at most the memory");
        // Memory is copied by words; a file's last word is zeros behind its end.
        operation.fill(&bytes[..(bytes.len() - missing).next_multiple_of(8)]);
        if missing_bytes > 0 { Err(IoFault::EndOfFile { missing_bytes }) } else { Ok(()) }
    }

    fn finish_write(&mut self, operation: &Operation, failure: Option<IoFault>) -> End {
        let Some(change) = operation.write() else {
            // Lost.
            return (failure.map_or(Ok(()), Err), None);
        };
        let refuses = matches!(failure, Some(IoFault::ReadOnly | IoFault::NoSpace { .. }));
        if refuses || !self.has_room(operation.node, &change) {
            return (Err(failure.unwrap_or_else(no_space)), None);
        }
        let Some(failure) = failure else {
            return (Ok(()), Some(self.apply(operation.node, change)));
        };
        let Change::Write { offset, bytes } = change else { return (Err(failure), None) };
        let mut mixed = self.tree.file_mut(operation.node).volatile.read(offset, bytes.len());
        let sequence = mix(&mut mixed, &bytes, false, &mut self.random)
            .then(|| self.apply(operation.node, Change::Write { offset, bytes: mixed }));
        (Err(failure), sequence)
    }

    fn finish_sync(
        &mut self,
        operation: &Operation,
        failure: Option<IoFault>,
    ) -> Result<(), IoFault> {
        let file = self.tree.file_mut(operation.node);
        match failure {
            // A sync that was given up failed nothing: what it should have covered is still open.
            Some(IoFault::TimedOut) => return Err(IoFault::TimedOut),
            Some(failure) => {
                file.fail_sync(operation.covered, &mut self.random);
                return Err(failure);
            }
            None if operation.fault == Some(SimFault::Lose) => {}
            None => file.sync(operation.covered),
        }
        Ok(())
    }
}

/// The fault of a full file system.
fn no_space() -> IoFault {
    IoFault::NoSpace { reason: Errno::ENOSPC.desc().to_owned() }
}
