//! What is told of a store by its files alone.

use super::oracle::{Oracle, key};
use super::promises::file;
use super::rig::Rig;
use kvtide::io::sim::SimDrive;
use kvtide::store::{Erasure, ReadFault, SlotCheck, StoreError, check, inspect};
use kvtide::units::{SlotIndex, TenantId};

#[test]
fn a_check_tells_sound_slots_from_torn_blank_and_cleared_ones() {
    let drive = SimDrive::new(1);
    let mut oracle = Oracle::default();
    let mut rig = Rig::open(&drive, 1, 6, &oracle).expect("it is made");
    rig.begin_run(&mut oracle).expect("the drive is good");
    rig.begin_write(&mut oracle, 5, 5, TenantId::new(1)).expect("the slot is free");
    rig.drain(&mut oracle).expect("the drive is good");
    rig.clear(&mut oracle).expect("the drive is good");
    for slot in 0..4 {
        rig.begin_write(&mut oracle, slot, slot.into(), TenantId::new(1)).expect("it is free");
    }
    rig.drain(&mut oracle).expect("the drive is good");
    rig.erase(&mut oracle, &Erasure::Keys(vec![key(2)])).expect("the drive is good");
    let directory = rig.store.directory().to_owned();
    rig.close(&mut oracle).expect("the drive is good");
    // A byte of slot 1's payload, and one of slot 3's header.
    drive.flip(&file(0, 1, "data"), 8192 + 4096 + 9, 4);
    drive.flip(&file(0, 1, "data"), 3 * 8192 + 20, 4);

    let mut disk = drive.disk(2);
    let mut found = Vec::new();
    let superblock = check(&mut disk, &directory, &mut |slot, check| found.push((slot, check)))
        .expect("it can be read");
    let slots: Vec<u32> = found.iter().map(|(slot, _)| slot.get()).collect();
    assert_eq!((slots, superblock.slot_count), ((0..6).collect(), 6));
    let SlotCheck::Sound(header) = &found[0].1 else { panic!("{found:?}") };
    assert_eq!((header.identity.key, header.stamp.slot), (key(0), SlotIndex::new(0)));
    assert_eq!(found[1].1, SlotCheck::Unsound(ReadFault::Part { part: 0 }));
    assert_eq!(found[2].1, SlotCheck::Blank);
    assert!(matches!(found[3].1, SlotCheck::Unsound(ReadFault::Format(_))));
    assert_eq!([&found[4].1, &found[5].1], [&SlotCheck::Blank, &SlotCheck::Cleared]);

    let inspection = inspect(&mut disk, &directory).expect("it can be read");
    assert_eq!(inspection.copies.current(), Ok(&superblock));
    let snapshot = inspection.snapshot.expect("it was closed");
    // Chunks 0, 1 and 3: nobody has read them since.
    assert_eq!((snapshot.entry_count, snapshot.epoch), (3, superblock.epoch));
    assert_eq!(inspection.data.get(), 6 * 8192);
}

#[test]
fn a_directory_that_is_no_store_is_told_as_such() {
    let drive = SimDrive::new(1);
    let mut disk = drive.disk(1);
    let nowhere = file(3, 1, "");
    let inspection = inspect(&mut disk, &nowhere).expect("there is nothing to read");
    assert!(inspection.copies.has_blank() && inspection.copies.current().is_err());
    let checked = check(&mut disk, &nowhere, &mut |_, _| panic!("there is no slot"));
    assert!(matches!(checked, Err(StoreError::SuperblockDamaged { .. })));
}
