//! Reads, writes, lengths and names against plain arrays, while nothing goes wrong.

use super::*;
use crate::units::ByteCount;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

/// One step of a run.
#[derive(Clone, Debug)]
enum Act {
    /// Write and read ranges that do not overlap, all at a time.
    Batch(Vec<(u64, usize, bool)>),
    Allocate(u64),
    Truncate(u64),
    Sync,
    /// Make a file, or remove it.
    Toggle(u8),
    /// Close everything and open it anew.
    Reopen,
}

fn act() -> impl Strategy<Value = Act> {
    let range = (0..4_u64, 1..4_usize, any::<bool>());
    prop_oneof![
        6 => prop::collection::vec(range, 1..6).prop_map(Act::Batch),
        1 => (0..80_000_u64).prop_map(Act::Allocate),
        1 => (0..80_000_u64).prop_map(Act::Truncate),
        1 => Just(Act::Sync),
        2 => (0..4_u8).prop_map(Act::Toggle),
        1 => Just(Act::Reopen),
    ]
}

/// The file as a plain array, and the other files' names.
#[derive(Default)]
struct Model {
    bytes: Vec<u8>,
    names: BTreeSet<String>,
    writes: u8,
}

impl Model {
    fn read(&self, offset: u64, length: usize) -> (Result<(), IoFault>, Vec<u8>) {
        let start = usize::try_from(offset).unwrap();
        let there: Vec<u8> = self.bytes.iter().copied().skip(start).take(length).collect();
        let missing_bytes = (length - there.len()) as u64;
        let outcome =
            if missing_bytes == 0 { Ok(()) } else { Err(IoFault::EndOfFile { missing_bytes }) };
        (outcome, there)
    }

    fn write(&mut self, offset: u64, length: usize) -> u8 {
        let start = usize::try_from(offset).unwrap();
        self.writes = self.writes.wrapping_add(1);
        self.bytes.resize(self.bytes.len().max(start + length), 0);
        self.bytes[start..start + length].fill(self.writes);
        self.writes
    }
}

/// Runs a batch: the ranges lie one behind the other, each after a gap.
fn run_batch(
    disk: &mut SimDisk,
    file: FileId,
    model: &mut Model,
    ranges: &[(u64, usize, bool)],
) -> Result<(), TestCaseError> {
    let mut operations = Vec::new();
    let mut expected = BTreeMap::new();
    let mut page = 0;
    let longest = model.bytes.len();
    for (tag, &(gap, pages, is_write)) in (0..).zip(ranges) {
        page += gap;
        if is_write {
            let byte = model.write(page * PAGE, pages * 4096);
            operations.push(write(tag, file, page, pages, byte));
        } else if usize::try_from(page * PAGE).unwrap() + pages * 4096 <= longest {
            // Ones past the end would depend on when the batch's writes end.
            expected.insert(tag, model.read(page * PAGE, pages * 4096));
            operations.push(read(tag, file, page, pages));
        }
        page += pages as u64;
    }
    for report in run(disk, operations) {
        match expected.remove(&report.tag) {
            None => prop_assert_eq!(report.outcome, Ok(())),
            Some(expected) => {
                prop_assert_eq!((report.outcome.clone(), bytes_of(report)), expected);
            }
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_file_is_an_array_of_bytes_and_a_directory_a_set_of_names(
        seed: u64,
        acts in prop::collection::vec(act(), 1..40),
    ) {
        let (drive, mut disk, mut file) = drive_and_file(seed);
        let mut model = Model::default();
        model.names.insert("data".to_owned());
        for act in acts {
            match act {
                Act::Batch(ranges) => run_batch(&mut disk, file, &mut model, &ranges)?,
                Act::Allocate(length) => {
                    disk.allocate(file, ByteCount::new(length)).unwrap();
                    let length = usize::try_from(length).unwrap();
                    model.bytes.resize(model.bytes.len().max(length), 0);
                }
                Act::Truncate(length) => {
                    disk.truncate(file, ByteCount::new(length)).unwrap();
                    model.bytes.resize(usize::try_from(length).unwrap(), 0);
                }
                Act::Sync => succeed(&mut disk, sync(0, file)),
                Act::Toggle(number) => {
                    let name = format!("{number}");
                    let path = Path::new("/store").join(&name);
                    if model.names.remove(&name) {
                        disk.remove_file(&path).unwrap();
                    } else {
                        let made = disk.open(&path, OpenMode::Create).unwrap();
                        prop_assert_eq!(made.length.get(), 0);
                        disk.close(made.file);
                        model.names.insert(name);
                    }
                }
                Act::Reopen => {
                    drop(disk);
                    disk = drive.disk(seed);
                    let opened = disk.open(data(), OpenMode::Existing).unwrap();
                    prop_assert_eq!(opened.length.get(), model.bytes.len() as u64);
                    file = opened.file;
                }
            }
            prop_assert_eq!(disk.length(file).unwrap().get(), model.bytes.len() as u64);
            let names = disk.list(Path::new("/store")).unwrap().into_iter();
            prop_assert!(names.map(|entry| entry.name).eq(model.names.iter().cloned()));
        }
        let pages = model.bytes.len() / 4096 + 1;
        let (outcome, bytes) = read_back(&mut disk, file, 0, pages);
        let (expected, there) = model.read(0, pages * 4096);
        prop_assert_eq!(outcome, expected);
        prop_assert_eq!(&bytes[..there.len()], &there);
        prop_assert_eq!(drive.bytes(data(), SimView::Volatile), Some(model.bytes));
    }
}
