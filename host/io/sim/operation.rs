//! One operation on its way: what it moves, and how it ends.
//!
//! Invariants: a read's memory is written only as the operation ends, and a write's memory is read
//! only at its moment, which is drawn between its start and its end; whoever else changes either
//! meanwhile is caught.

use super::State;
use super::faults::{SimFault, SimKind};
use super::image::{Change, SECTOR_BYTES, mix};
use super::record::SimRecord;
use super::state::Part;
use super::tree::NodeId;
use crate::io::{FileId, IO_ALIGN_BYTES, IoFault, IoMemory, IoOperation, IoWork};
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
    pub(super) part: Part,
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
    /// It was given up, and is still under way.
    pub(super) is_reported: bool,
}

impl Operation {
    /// Takes an operation in that was not looked at yet.
    pub(super) fn new(disk: u32, operation: IoOperation, now_ns: u64) -> Self {
        let IoOperation { tag, file, work } = operation;
        let (kind, offset, memory) = match work {
            IoWork::Read { offset, memory } => (SimKind::Read, offset, Some(memory)),
            IoWork::Write { offset, memory } => (SimKind::Write, offset, Some(memory)),
            IoWork::Sync => (SimKind::Sync, 0, None),
        };
        Self {
            disk,
            tag,
            file,
            node: NodeId::MAX,
            path: PathBuf::new(),
            part: 0,
            kind,
            offset,
            place: offset,
            memory,
            digest: 0,
            covered: 0,
            submitted_ns: now_ns,
            fault: None,
            bytes: None,
            missing_bytes: 0,
            is_reported: false,
        }
    }

    pub(super) fn length(&self) -> u64 {
        self.memory.as_ref().map_or(0, |memory| memory.length().get())
    }

    fn length_usize(&self) -> usize {
        usize::try_from(self.length()).expect("memory fits the address space")
    }

    /// Returns what a write puts on the medium, once it is known.
    fn written(&self) -> Option<&[u8]> {
        let is_write = self.kind == SimKind::Write && self.fault != Some(SimFault::Lose);
        self.bytes.as_deref().filter(|_| is_write)
    }

    /// Returns the change that a write makes, once it is known.
    pub(super) fn write(&self) -> Option<Change> {
        Some(Change::Write { offset: self.place, bytes: self.written()?.to_vec() })
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
            let file_length = self.tree.file_mut(operation.node).volatile.length();
            let there = file_length.saturating_sub(place).min(length as u64);
            let byte = place + self.random.below(there);
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
        self.meet_writes(operation, &mut bytes);
        if operation.fault == Some(SimFault::FlipOnWire) {
            self.flip_some_bit(&mut bytes);
        }
        bytes
    }

    /// Overlays what a read sees with any sectors of writes that are under way.
    fn meet_writes(&mut self, operation: &Operation, bytes: &mut [u8]) {
        for other in self.under_way.values().filter(|other| other.node == operation.node) {
            let Some(written) = other.written() else { continue };
            let start = other.place.max(operation.place);
            let end = (other.place + other.length()).min(operation.place + operation.length());
            if start < end {
                let within = |origin: u64| {
                    let index = |at: u64| usize::try_from(at - origin).expect("in memory");
                    index(start)..index(end)
                };
                let target = &mut bytes[within(operation.place)];
                mix(target, &written[within(other.place)], false, &mut self.random);
            }
        }
    }

    /// Ends an operation; `is_cancelled` says that it took too long.
    pub(super) fn finish(&mut self, operation: &mut Operation, is_cancelled: bool) -> End {
        let failure = if self.gone.contains(&operation.part) {
            Some(IoFault::from_errno(Errno::ENODEV))
        } else if self.read_only.contains(&operation.part) && operation.kind != SimKind::Read {
            Some(IoFault::ReadOnly)
        } else if is_cancelled {
            Some(IoFault::TimedOut)
        } else {
            match operation.fault {
                Some(SimFault::Error) => Some(IoFault::from_errno(Errno::EIO)),
                Some(SimFault::NoSpace) => Some(IoFault::from_errno(Errno::ENOSPC)),
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
            let no_space = || IoFault::from_errno(Errno::ENOSPC);
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
