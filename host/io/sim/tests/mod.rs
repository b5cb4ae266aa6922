//! What the simulated disk promises to those who prove their promises on it.

mod conformance;
mod faults;
mod files;
mod memory;
mod model;
mod operations;
mod parts;
mod power;
mod versions;

use super::{SimDisk, SimDrive, SimOptions, SimView};
use crate::io::{
    Disk, FileId, Files, IoBuffer, IoFault, IoFinished, IoMemory, IoOperation, IoWork, OpenMode,
    run,
};
use std::path::Path;
use std::time::Duration;

/// The file of most tests.
const DATA: &str = "/store/data";

const PAGE: u64 = 4096;
const SECTOR: usize = 512;

fn data() -> &'static Path {
    Path::new(DATA)
}

/// Makes the directory and the file durably, and opens the file.
fn durable_file(disk: &mut SimDisk) -> FileId {
    disk.create_directory(Path::new("/store")).unwrap();
    let file = disk.open(data(), OpenMode::Create).unwrap().file;
    disk.sync_directory(Path::new("/store")).unwrap();
    disk.sync_directory(Path::new("/")).unwrap();
    file
}

fn drive_and_file(seed: u64) -> (SimDrive, SimDisk, FileId) {
    let drive = SimDrive::new(seed);
    let mut disk = drive.disk(seed);
    let file = durable_file(&mut disk);
    (drive, disk, file)
}

fn filled(pages: usize, byte: u8) -> IoMemory {
    let mut buffer = IoBuffer::zeroed(pages);
    buffer.bytes_mut().fill(byte);
    IoMemory::Buffer(buffer)
}

fn write(tag: u64, file: FileId, page: u64, pages: usize, byte: u8) -> IoOperation {
    let work = IoWork::Write { offset: page * PAGE, memory: filled(pages, byte) };
    IoOperation { tag, file, work }
}

fn read(tag: u64, file: FileId, page: u64, pages: usize) -> IoOperation {
    let work = IoWork::Read { offset: page * PAGE, memory: filled(pages, 0xEE) };
    IoOperation { tag, file, work }
}

fn sync(tag: u64, file: FileId) -> IoOperation {
    IoOperation { tag, file, work: IoWork::Sync }
}

/// Runs one operation and returns its outcome.
fn outcome(disk: &mut SimDisk, operation: IoOperation) -> Result<(), IoFault> {
    let mut finished = run(disk, vec![operation]);
    finished.remove(0).outcome
}

/// Runs one operation that succeeds.
fn succeed(disk: &mut SimDisk, operation: IoOperation) {
    assert_eq!(outcome(disk, operation), Ok(()));
}

fn bytes_of(finished: IoFinished) -> Vec<u8> {
    let buffer = finished.memory.and_then(IoMemory::into_buffer);
    buffer.expect("reads of these tests are into buffers").bytes().to_vec()
}

/// Runs one read and returns its outcome and what is in its memory.
fn read_back(
    disk: &mut SimDisk,
    file: FileId,
    page: u64,
    pages: usize,
) -> (Result<(), IoFault>, Vec<u8>) {
    let finished = run(disk, vec![read(0, file, page, pages)]).remove(0);
    (finished.outcome.clone(), bytes_of(finished))
}

/// Lets everything that is under way end, without asking for reports.
fn pass_time(drive: &SimDrive) {
    drive.clock().advance(Duration::from_secs(1));
}

fn poll(disk: &mut SimDisk) -> Vec<IoFinished> {
    let mut finished = Vec::new();
    disk.poll(&mut finished);
    finished
}

/// Returns what a test says of a sector: its byte, if it is all the same.
fn sectors(bytes: &[u8]) -> Vec<Option<u8>> {
    let all_same = |sector: &[u8]| {
        let first = sector[0];
        sector.iter().all(|&byte| byte == first).then_some(first)
    };
    bytes.chunks(SECTOR).map(all_same).collect()
}

/// Runs a case for many seeds and returns what each gave.
fn over_seeds<Seen>(mut case: impl FnMut(u64) -> Seen) -> Vec<Seen> {
    (0..200).map(&mut case).collect()
}
