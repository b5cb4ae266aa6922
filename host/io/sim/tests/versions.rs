//! A power cut against an oracle that knows the contract and nothing of the simulation.

use super::*;
use crate::units::ByteCount;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::ops::Range;

const PAGES: usize = 8;

/// One step of a run.
#[derive(Clone, Debug)]
enum Act {
    /// Submit a write of some pages.
    Write { page: usize, pages: usize },
    /// Submit a sync.
    Sync,
    /// Let some time pass and take the reports.
    Poll { microseconds: u64 },
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0..PAGES - 2, 1..3_usize).prop_map(|(page, pages)| Act::Write { page, pages }),
        1 => Just(Act::Sync),
        2 => (0..1500_u64).prop_map(|microseconds| Act::Poll { microseconds }),
    ]
}

/// A write, which fills its sectors with a byte of its own: its number in the run, from 1 on.
struct Written {
    sectors: Range<usize>,
    submitted_step: usize,
    reported_step: Option<usize>,
}

/// What each sector may hold by the contract.
struct Oracle {
    writes: Vec<Written>,
    /// The bytes that each sector may be full of; 0 at first.
    versions: Vec<BTreeSet<u8>>,
    /// Each sync's tag, and the writes reported when it was submitted.
    syncs: Vec<(u64, BTreeSet<u8>)>,
}

impl Oracle {
    fn new() -> Self {
        let versions = vec![BTreeSet::from([0]); PAGES * 8];
        Self { writes: Vec::new(), versions, syncs: Vec::new() }
    }

    fn of(&self, byte: u8) -> Option<&Written> {
        self.writes.get(usize::from(byte).checked_sub(1)?)
    }

    fn is_reported(&self, byte: u8) -> bool {
        self.of(byte).is_none_or(|write| write.reported_step.is_some())
    }

    fn write_submitted(&mut self, sectors: Range<usize>, submitted_step: usize) -> u8 {
        self.writes.push(Written { sectors: sectors.clone(), submitted_step, reported_step: None });
        let byte = u8::try_from(self.writes.len()).unwrap();
        for versions in &mut self.versions[sectors] {
            versions.insert(byte);
        }
        byte
    }

    fn sync_submitted(&mut self, tag: u64) {
        let numbers = 1..=u8::try_from(self.writes.len()).unwrap();
        let covered = numbers.filter(|&byte| self.is_reported(byte)).collect();
        self.syncs.push((tag, covered));
    }

    /// What had been reported before a covered write was submitted is overwritten for sure.
    fn sync_reported(&mut self, tag: u64) {
        let (_, covered) = self.syncs.iter().find(|(number, _)| *number == tag).unwrap();
        for &byte in covered.iter().filter(|&&byte| byte > 0) {
            let write = &self.writes[usize::from(byte) - 1];
            let others = (1..).zip(&self.writes).filter(|(_, other)| {
                other.reported_step.is_some_and(|step| step < write.submitted_step)
            });
            let older: BTreeSet<u8> = others.map(|(other, _)| other).chain([0]).collect();
            for versions in &mut self.versions[write.sectors.clone()] {
                versions.retain(|version| !older.contains(version));
            }
        }
    }

    fn reported(&mut self, tag: u64, step: usize) {
        match usize::try_from(tag).unwrap().checked_sub(1) {
            Some(index) if index < self.writes.len() => {
                self.writes[index].reported_step = Some(step);
            }
            _ => self.sync_reported(tag),
        }
    }

    /// A sector holds one version; or, torn, one and parts of writes that were not reported.
    fn check(&self, survived: &[u8]) -> Result<(), TestCaseError> {
        for (sector, versions) in survived.chunks(SECTOR).zip(&self.versions) {
            let found: BTreeSet<u8> = sector.iter().copied().collect();
            prop_assert!(found.is_subset(versions), "{found:?} of {versions:?}");
            let whole = found.iter().filter(|&&byte| self.is_reported(byte)).count();
            prop_assert!(found.len() == 1 || whole <= 1, "{found:?} in one sector");
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn a_cut_leaves_each_sector_one_of_its_versions_or_torn_by_a_write_under_way(
        seed: u64,
        acts in prop::collection::vec(act(), 1..60),
    ) {
        let (drive, mut disk, file) = drive_and_file(seed);
        disk.allocate(file, ByteCount::new(PAGES as u64 * PAGE)).unwrap();
        succeed(&mut disk, sync(0, file));
        let mut oracle = Oracle::new();
        for (step, act) in acts.into_iter().enumerate() {
            match act {
                Act::Write { page, pages } => {
                    let byte = oracle.write_submitted(page * 8..(page + pages) * 8, step);
                    disk.submit(vec![write(byte.into(), file, page as u64, pages, byte)]);
                }
                Act::Sync => {
                    let tag = 1000 + step as u64;
                    oracle.sync_submitted(tag);
                    disk.submit(vec![sync(tag, file)]);
                }
                Act::Poll { microseconds } => {
                    drive.clock().advance(Duration::from_micros(microseconds));
                    for report in poll(&mut disk) {
                        prop_assert_eq!(report.outcome, Ok(()));
                        oracle.reported(report.tag, step);
                    }
                }
            }
        }
        drive.cut_power();
        let survived = drive.bytes(data(), SimView::Volatile).unwrap();
        prop_assert_eq!(survived.len(), PAGES * 4096);
        oracle.check(&survived)?;
        let mut after = drive.disk(seed);
        let file = after.open(data(), OpenMode::Existing).unwrap().file;
        prop_assert_eq!(read_back(&mut after, file, 0, PAGES), (Ok(()), survived));
    }
}
