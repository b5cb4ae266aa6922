//! One operation between a disk's caller and the kernel: what to ask for next, and what an answer
//! means.
//!
//! Invariants: every answer of the kernel either moves at least one page, or ends the operation, or
//! is one of a bounded number of tries again; a sync is never tried again, since the kernel
//! reports a lost write only once; the next part of a transfer starts at a page.
//!
//! Called by [`real`](super::real) and the back ends.

use super::error::is_transient;
use super::files::OpenFile;
use super::{IO_ALIGN_BYTES, IoFault, IoFinished, IoMemory, IoOperation, IoWork};
use nix::errno::Errno;
use std::sync::Arc;

/// Tries again of a transfer that the kernel interrupted before it moved anything.
const RETRY_COUNT_MAX: u32 = 16;

/// Bytes of one call to the kernel. It moves at most 2 GiB less one page (`man 2 read`).
const CALL_BYTES_MAX: u64 = 1 << 30;

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Fills memory.
    Read,
    /// Writes memory out.
    Write,
    /// Makes data durable.
    Sync,
}

/// What to ask the kernel for next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// What to do; a sync has neither of the following.
    pub(super) work: Work,
    /// First byte in the file.
    pub(super) offset: u64,
    /// First byte in memory.
    pub(super) address: *mut u8,
    /// Bytes.
    pub(super) length: u32,
}

/// What an answer of the kernel means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// There is more to ask for.
    More,
    /// The operation is over.
    Done(Result<(), IoFault>),
}

/// An operation whose file is open and whose arguments are good.
#[derive(Debug)]
pub(super) struct Transfer {
    tag: u64,
    file: Arc<OpenFile>,
    work: Work,
    offset: u64,
    memory: Option<IoMemory>,
    moved_bytes: u64,
    retry_count: u32,
}

impl Transfer {
    /// Checks an operation; one that cannot be is reported at once.
    pub(super) fn new(
        operation: IoOperation,
        file: Option<Arc<OpenFile>>,
    ) -> Result<Self, IoFinished> {
        let IoOperation { tag, work, .. } = operation;
        let (work, offset, memory) = match work {
            IoWork::Read { offset, memory } => (Work::Read, offset, Some(memory)),
            IoWork::Write { offset, memory } => (Work::Write, offset, Some(memory)),
            IoWork::Sync => (Work::Sync, 0, None),
        };
        let is_writable = memory.as_ref().is_none_or(IoMemory::is_writable);
        let fault = match &file {
            None => Some(IoFault::NotOpen),
            Some(_) if !offset.is_multiple_of(IO_ALIGN_BYTES) => Some(IoFault::Misaligned),
            Some(file) if work == Work::Write && !file.is_writable() => Some(IoFault::ReadOnly),
            Some(_) if work == Work::Read && !is_writable => Some(IoFault::MemoryNotWritable),
            Some(_) => None,
        };
        match (file, fault) {
            (Some(file), None) => {
                Ok(Self { tag, file, work, offset, memory, moved_bytes: 0, retry_count: 0 })
            }
            (_, fault) => {
                let outcome = Err(fault.unwrap_or(IoFault::NotOpen));
                Err(IoFinished { tag, outcome, memory })
            }
        }
    }

    /// Returns the operation's tag.
    pub(super) fn tag(&self) -> u64 {
        self.tag
    }

    /// Returns what the operation does.
    pub(super) fn work(&self) -> Work {
        self.work
    }

    /// Returns the open file.
    pub(super) fn file(&self) -> &OpenFile {
        &self.file
    }

    /// Returns what to ask the kernel for next.
    pub(super) fn call(&self) -> Call {
        let address = self.memory.as_ref().map_or(std::ptr::null_mut(), IoMemory::address);
        let length = (self.length() - self.moved_bytes).min(CALL_BYTES_MAX);
        Call {
            work: self.work,
            // The kernel refuses an end beyond 2^63; nothing wraps below that.
            offset: self.offset.saturating_add(self.moved_bytes),
            address: address.wrapping_add(self.moved()),
            length: u32::try_from(length).expect("at most 1 GiB"),
        }
    }

    /// Takes the kernel's answer to the last [`call`](Self::call): bytes moved, or why not.
    pub(super) fn answer(&mut self, answer: Result<u32, Errno>) -> Answer {
        let asked_bytes = u64::from(self.call().length);
        let reported_bytes = match answer {
            Ok(bytes) => u64::from(bytes),
            Err(errno) if self.work != Work::Sync && is_transient(errno) => {
                self.retry_count += 1;
                if self.retry_count <= RETRY_COUNT_MAX {
                    return Answer::More;
                }
                return Answer::Done(Err(IoFault::from_errno(errno)));
            }
            Err(errno) => return Answer::Done(Err(IoFault::from_errno(errno))),
        };
        if self.work == Work::Sync {
            return Answer::Done(Ok(()));
        }
        if reported_bytes > asked_bytes {
            return Answer::Done(Err(IoFault::Miscounted { asked_bytes, reported_bytes }));
        }
        // What follows a page that was moved in part starts with that page once more.
        let whole_pages = reported_bytes - reported_bytes % IO_ALIGN_BYTES;
        self.moved_bytes += whole_pages;
        match (whole_pages, self.work) {
            _ if self.moved_bytes == self.length() => Answer::Done(Ok(())),
            (0, Work::Read) => {
                let missing_bytes = self.length() - self.moved_bytes - reported_bytes;
                Answer::Done(Err(IoFault::EndOfFile { missing_bytes }))
            }
            (0, _) => Answer::Done(Err(IoFault::Miscounted { asked_bytes, reported_bytes })),
            _ => Answer::More,
        }
    }

    /// Reports the end, and gives the memory back.
    pub(super) fn finish(self, outcome: Result<(), IoFault>) -> IoFinished {
        IoFinished { tag: self.tag, outcome, memory: self.memory }
    }

    /// Returns the bytes to be moved in all.
    pub(super) fn length(&self) -> u64 {
        self.memory.as_ref().map_or(0, |memory| memory.length().get())
    }

    fn moved(&self) -> usize {
        usize::try_from(self.moved_bytes).expect("at most the length of mapped memory")
    }
}
