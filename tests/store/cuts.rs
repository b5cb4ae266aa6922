//! Power cuts at every operation of everything that a store does.

use super::oracle::{Oracle, key};
use super::rig::{Rig, options};
use kvtide::io::sim::SimDrive;
use kvtide::store::{Erasure, StoreError};
use kvtide::units::{SlotIndex, TenantId};

const ALICE: TenantId = TenantId::new(1);
const BOB: TenantId = TenantId::new(2);

/// Everything that a store does, one after the other and some of it at a time. Ends with the first
/// error: the power went.
pub(crate) fn life(drive: &SimDrive, seed: u64, oracle: &mut Oracle) -> Result<(), StoreError> {
    // Made, written, synced in part, and never closed.
    let mut rig = Rig::open(drive, seed, 6, oracle)?;
    rig.begin_run(oracle)?;
    for slot in 0..4 {
        rig.begin_write(oracle, slot, u64::from(slot), ALICE)?;
    }
    rig.drain(oracle)?;
    rig.sync(oracle)?;
    rig.begin_write(oracle, 4, 4, BOB)?;
    rig.begin_write(oracle, 1, 5, BOB)?;
    rig.drain(oracle)?;
    rig.store.abandon(&mut rig.disk);

    // Scanned; a chunk that is stored again, so that an old header remains; closed.
    let mut rig = Rig::open(drive, seed + 1, 6, oracle)?;
    rig.begin_run(oracle)?;
    rig.begin_write(oracle, 5, 2, ALICE)?;
    rig.drain(oracle)?;
    rig.sync(oracle)?;
    rig.close(oracle)?;

    // Grown. What remains of a chunk is erased with it, though only the snapshot tells of it.
    let mut rig = Rig::open(drive, seed + 2, 9, oracle)?;
    rig.begin_run(oracle)?;
    rig.begin_write(oracle, 8, 8, ALICE)?;
    rig.erase(oracle, &Erasure::Keys(vec![key(2), key(8)]))?;
    rig.begin_write(oracle, 7, 9, BOB)?;
    rig.erase(oracle, &Erasure::Tenant(BOB))?;
    rig.begin_write(oracle, 6, 10, ALICE)?;
    rig.begin_write(oracle, 2, 11, ALICE)?;
    rig.drain(oracle)?;
    rig.close(oracle)?;

    // Shrunk, closed without a run; opened again, cleared with writes under way, written anew.
    oracle.shrink(3);
    let rig = Rig::open(drive, seed + 3, 3, oracle)?;
    rig.close(oracle)?;
    let mut rig = Rig::open(drive, seed + 4, 3, oracle)?;
    rig.begin_run(oracle)?;
    rig.begin_write(oracle, 0, 12, ALICE)?;
    rig.clear(oracle)?;
    rig.drain(oracle)?;
    rig.begin_write(oracle, 1, 12, ALICE)?;
    rig.drain(oracle)?;
    rig.sync(oracle)?;
    rig.close(oracle)?;

    // Cleared between runs.
    let mut rig = Rig::open(drive, seed + 5, 3, oracle)?;
    rig.clear(oracle)?;
    rig.close(oracle)?;
    let mut rig = Rig::open(drive, seed + 6, 3, oracle)?;
    rig.begin_run(oracle)?;
    rig.begin_write(oracle, 2, 13, BOB)?;
    rig.erase(oracle, &Erasure::Slots(vec![SlotIndex::new(2), SlotIndex::new(0)]))?;
    rig.drain(oracle)?;
    rig.close(oracle)?;
    Ok(())
}

/// Opens what a power cut left, twice, and goes on with it.
pub(crate) fn recover(drive: &SimDrive, seed: u64, oracle: &mut Oracle) {
    oracle.cut();
    for slot_count in [6, 3] {
        let mut first = Rig::open(drive, seed, slot_count, oracle).expect("it opens");
        let (index, is_scanned) = (first.index.clone(), first.is_scanned);
        first.store.abandon(&mut first.disk);
        let second = Rig::open(drive, seed + 1, slot_count, oracle).expect("it opens again");
        if is_scanned == second.is_scanned {
            assert_eq!(index, second.index, "recovered twice, it holds the same");
        } else {
            // Cutting slots off made the snapshot void; a scan also finds what was dropped and
            // not overwritten.
            let holds = |entry| second.index.values().any(|other| other == entry);
            assert!(index.values().all(holds), "{index:?}, then {:?}", second.index);
        }
        let mut rig = second;
        rig.begin_run(oracle).expect("the drive is good");
        rig.begin_write(oracle, 0, 20, ALICE).expect("the slot is free");
        rig.drain(oracle).expect("the drive is good");
        rig.sync(oracle).expect("the drive is good");
        let index = rig.index.clone();
        let report = rig.close(oracle).expect("the drive is good");
        assert!(report.is_clean);
        let rig = Rig::open(drive, seed + 2, slot_count, oracle).expect("it opens");
        assert_eq!(index, rig.index, "closed and opened, it holds the same");
        rig.close(oracle).expect("the drive is good");
        oracle.shrink(3);
    }
}

/// Returns how many steps the whole life takes, without a cut.
fn steps(seed: u64) -> u64 {
    let drive = SimDrive::new(seed);
    life(&drive, seed, &mut Oracle::default()).expect("the drive is good");
    drive.counters().steps
}

#[test]
fn a_power_cut_at_any_operation_loses_nothing_durable_and_brings_nothing_back() {
    for seed in 0..8 {
        let steps = steps(seed);
        assert!(steps > 150, "{steps} steps");
        for step in 0..steps {
            let drive = SimDrive::new(seed);
            drive.cut_after(step);
            let mut oracle = Oracle::default();
            let cut = life(&drive, seed, &mut oracle);
            assert!(cut.is_err(), "seed {seed}, step {step}: the power did not go");
            recover(&drive, seed + 100, &mut oracle);
        }
    }
}

#[test]
fn a_power_cut_between_operations_and_again_during_recovery_is_survived() {
    for seed in 100..106 {
        let steps = steps(seed);
        for step in (0..steps).step_by(7) {
            let drive = SimDrive::new(seed);
            drive.cut_after(step);
            let mut oracle = Oracle::default();
            life(&drive, seed, &mut oracle).expect_err("the power goes");
            for again in 0..6 {
                drive.cut_after(again * 3);
                // What it finds is not looked at: the power goes meanwhile.
                if let Ok(mut rig) = Rig::open_unchecked(&drive, seed + again, &options(6)) {
                    let _ = rig.begin_run(&mut oracle);
                }
                drive.cut_power();
            }
            recover(&drive, seed + 200, &mut oracle);
        }
    }
}
