//! Directories that a store does not touch: foreign, damaged, in use; and which one it takes.

use super::oracle::{Oracle, store_id};
use super::promises::file;
use super::rig::{Rig, options};
use kvtide::io::sim::{SimDrive, SimFault, SimKind, SimRule, SimView};
use kvtide::store::format::Superblock;
use kvtide::store::{
    Epoch, Generation, Store, StoreError, StoreFile, StoreOptions, StoreUuid, SuperblockCopies,
};
use kvtide::units::TenantId;
use std::path::Path;

const FILES: [&str; 3] = ["superblock", "data", "index"];

/// A drive with a store that was used, and closed if asked for.
fn used(is_closed: bool) -> SimDrive {
    let drive = SimDrive::new(1);
    let mut oracle = Oracle::default();
    let mut rig = Rig::open(&drive, 1, 6, &oracle).expect("it is made");
    rig.begin_run(&mut oracle).expect("the drive is good");
    rig.begin_write(&mut oracle, 0, 0, TenantId::new(1)).expect("the slot is free");
    rig.drain(&mut oracle).expect("the drive is good");
    if is_closed {
        rig.close(&mut oracle).expect("the drive is good");
    } else {
        rig.store.abandon(&mut rig.disk);
    }
    drive.settle();
    drive
}

fn bytes(drive: &SimDrive, name: &str) -> Vec<u8> {
    drive.bytes(&file(0, 1, name), SimView::Durable).expect("the file is there")
}

fn superblock(drive: &SimDrive) -> Superblock {
    let copies = SuperblockCopies::decode(&bytes(drive, "superblock"));
    copies.current().expect("a good copy").clone()
}

/// Writes both copies of another superblock over the store's.
fn replace(drive: &SimDrive, superblock: &Superblock) {
    let page = superblock.encode().expect("a superblock");
    drive.plant(&file(0, 1, "superblock"), &[page, page].concat());
}

/// Opens the store of instance 0, which must be refused and left as it is.
fn refused(drive: &SimDrive, options: &StoreOptions) -> StoreError {
    let before = FILES.map(|name| drive.bytes(&file(0, 1, name), SimView::Volatile));
    let mut disk = drive.disk(77);
    let error = Store::open(&mut disk, options).expect_err("it is refused");
    let after = FILES.map(|name| drive.bytes(&file(0, 1, name), SimView::Volatile));
    let unchanged = before.iter().zip(&after).all(|(before, after)| {
        before == after || before.is_none() && after.as_ref().is_some_and(Vec::is_empty)
    });
    assert!(unchanged, "{error}: it was changed");
    // Nothing is left locked.
    let again = Store::open(&mut drive.disk(78), options).err();
    assert_eq!(again, Some(error.clone()));
    error
}

#[test]
fn a_directory_of_another_store_is_refused() {
    let drive = used(true);
    let mut other = superblock(&drive);
    other.store_id = store_id(9);
    replace(&drive, &other);
    let error = refused(&drive, &options(6));
    let StoreError::ForeignStore { expected, found, .. } = error else { panic!("{error}") };
    assert_eq!((expected, found), (store_id(1), store_id(9)));
}

#[test]
fn files_of_two_stores_are_refused() {
    for (name, file_kind) in [("superblock", StoreFile::Index), ("index", StoreFile::Index)] {
        let drive = used(true);
        let mut other = superblock(&drive);
        other.store_uuid = StoreUuid::from_bytes([8; 16]);
        if name == "superblock" {
            replace(&drive, &other);
        } else {
            let there = SimDrive::new(2);
            let mut foreign = options(6);
            foreign.new_uuid = StoreUuid::from_bytes([8; 16]);
            Store::open(&mut there.disk(1), &foreign).expect("it is made");
            drive.plant(&file(0, 1, "index"), &bytes_of(&there, "index"));
        }
        let error = refused(&drive, &options(6));
        assert!(matches!(error, StoreError::ForeignFile { file, .. } if file == file_kind));
    }
    // The index says nothing; the first slot does.
    let drive = used(false);
    let mut other = superblock(&drive);
    other.store_uuid = StoreUuid::from_bytes([8; 16]);
    replace(&drive, &other);
    drive.plant(&file(0, 1, "index"), &[0; 8192]);
    let error = refused(&drive, &options(6));
    assert!(matches!(error, StoreError::ForeignFile { file: StoreFile::Data, .. }), "{error}");
}

fn bytes_of(drive: &SimDrive, name: &str) -> Vec<u8> {
    drive.bytes(&file(0, 1, name), SimView::Volatile).expect("the file is there")
}

#[test]
fn slots_of_another_shape_are_refused() {
    let drive = used(true);
    let mut options = options(6);
    options.shape = larger_shape();
    let error = refused(&drive, &options);
    assert!(matches!(error, StoreError::SlotBytes { .. }), "{error}");
}

/// Slots of three pages.
fn larger_shape() -> kvtide::store::ChunkShape {
    use kvtide::fingerprint::Codec;
    use kvtide::layout::engines::{LatentCache, LayerBase};
    use kvtide::layout::{Attention, ElementType, Layout, Paging};
    use kvtide::units::{BlockCount, ByteCount, TokenCount};
    let paging = Paging {
        block_tokens: TokenCount::new(16),
        blocks_per_chunk: BlockCount::new(2),
        block_count: BlockCount::new(100),
        attention: Attention::Full,
    };
    let cache = LatentCache { paging, element_type: ElementType::U8, row: ByteCount::new(256) };
    let layers = [LayerBase { layer: 0, base_address: 4096 }];
    let layout = Layout::builder().group(cache.rows(&layers)).build().expect("a layout");
    kvtide::store::ChunkShape::of_group(&layout.groups()[0], Codec::Raw)
}

#[test]
fn another_version_is_refused_even_where_one_copy_is_of_this_one() {
    for copies in [[true, true], [true, false], [false, true]] {
        let drive = used(true);
        let mut both = bytes(&drive, "superblock");
        for (copy, _) in [0, 4096].into_iter().zip(copies).filter(|(_, is_other)| *is_other) {
            both[copy + 8] = 2;
            let words: Vec<u64> = both[copy..copy + 4088]
                .as_chunks::<8>()
                .0
                .iter()
                .map(|word| u64::from_le_bytes(*word))
                .collect();
            let sum = kvtide_kernels::checksum::sum(&words, 0);
            both[copy + 4088..copy + 4096].copy_from_slice(&sum.to_le_bytes());
        }
        drive.plant(&file(0, 1, "superblock"), &both);
        let error = refused(&drive, &options(6));
        assert!(matches!(error, StoreError::Version { found: 2, .. }), "{error}");
    }
}

#[test]
fn a_store_without_a_good_superblock_is_refused_and_never_wiped() {
    // Both copies rotten.
    let drive = used(true);
    for copy in [0, 4096] {
        drive.flip(&file(0, 1, "superblock"), copy + 100, 1);
    }
    let error = refused(&drive, &options(6));
    assert!(matches!(error, StoreError::SuperblockDamaged { .. }), "{error}");
    assert!(error.to_string().contains("remove it"), "{error}");
    // The file empty, but slots in use.
    let drive = used(true);
    drive.plant(&file(0, 1, "superblock"), &[]);
    let error = refused(&drive, &options(6));
    assert!(matches!(error, StoreError::SuperblockDamaged { .. }), "{error}");
}

#[test]
fn one_good_copy_is_enough() {
    for copy in [0, 4096] {
        let drive = used(true);
        drive.flip(&file(0, 1, "superblock"), copy + 100, 1);
        let mut rig = Rig::open_unchecked(&drive, 3, &options(6)).expect("it opens");
        assert_eq!((rig.index.len(), rig.is_scanned), (1, false));
        rig.begin_run(&mut Oracle::default()).expect("the drive is good");
        let copies = SuperblockCopies::decode(&bytes(&drive, "superblock"));
        assert!(copies.first.is_ok() && copies.first == copies.second, "both are good again");
    }
}

#[test]
fn the_copy_with_the_higher_sequence_counts() {
    let drive = used(true);
    let current = superblock(&drive);
    let older = Superblock {
        sequence: current.sequence - 1,
        epoch: Epoch::default(),
        min_generation: Generation::NONE,
        is_clean: false,
        ..current.clone()
    };
    for order in [[&current, &older], [&older, &current]] {
        let pages = order.map(|copy| copy.encode().expect("a superblock"));
        let copies = SuperblockCopies::decode(&pages.concat());
        assert_eq!(copies.current(), Ok(&current));
    }
}

#[test]
fn a_store_in_use_is_waited_for_then_refused_with_its_process() {
    let drive = SimDrive::new(1);
    let mut named = options(6);
    named.instance = Some(0);
    let mut first = drive.disk(1);
    let opened = Store::open(&mut first, &named).expect("it is made");
    let mut second = drive.disk(2);
    let before = drive.clock().now();
    let error = Store::open(&mut second, &named).expect_err("it is in use");
    let StoreError::Locked { path, process } = error else { panic!("{error}") };
    assert_eq!(path, opened.store.directory());
    assert_eq!(process, Some(first.number()));
    let waited_ns = drive.clock().now().get() - before.get();
    assert!(waited_ns >= 100_000_000, "{waited_ns} ns");

    opened.store.close(&mut first, []).expect("the drive is good");
    let adopted = Store::open(&mut second, &named).expect("nobody has it");
    assert!(!adopted.is_new);
}

#[test]
fn without_a_name_the_first_free_instance_is_taken_or_one_is_added() {
    let drive = SimDrive::new(1);
    let mut disks: Vec<_> = (0..4).map(|seed| drive.disk(seed)).collect();
    let mut stores: Vec<Store> = Vec::new();
    for disk in &mut disks[..3] {
        stores.push(Store::open(disk, &options(6)).expect("it is made").store);
    }
    let instances: Vec<u32> = stores.iter().map(Store::instance).collect();
    assert_eq!(instances, [0, 1, 2]);
    // The one in the middle is free again.
    stores.remove(1).close(&mut disks[1], []).expect("the drive is good");
    let adopted = Store::open(&mut disks[3], &options(6)).expect("one is free");
    assert_eq!((adopted.store.instance(), adopted.is_new), (1, false));
    // Another kind of store begins at 0 again.
    let mut other = options(6);
    other.store_id = store_id(2);
    let other = Store::open(&mut disks[1], &other).expect("it is made");
    assert_eq!((other.store.instance(), other.is_new), (0, true));
    assert!(drive.bytes(Path::new("/kv/lock"), SimView::Volatile).is_some());
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    let drive = SimDrive::new(1);
    let opened = Store::open(&mut drive.disk(1), &options(0));
    assert_eq!(opened.err(), Some(StoreError::NoSlots));
}

#[test]
fn a_store_is_in_use_while_an_operation_of_its_last_process_is_under_way() {
    for name in ["superblock", "index"] {
        let drive = SimDrive::new(1);
        let mut oracle = Oracle::default();
        let mut rig = Rig::open(&drive, 1, 6, &oracle).expect("it is made");
        rig.begin_run(&mut oracle).expect("the drive is good");
        let process = rig.disk.number();
        drive.inject(SimRule::new(SimFault::Hang).on(SimKind::Write).named(name));
        rig.close(&mut oracle).expect_err("it is not written in time");
        drive.clear_faults();
        // Nobody has the data file any more, but what is written now might be overwritten yet.
        let error = Store::open(&mut drive.disk(2), &options(6)).expect_err("it is in use");
        let in_use = StoreError::Locked { path: file(0, 1, name), process: Some(process) };
        assert_eq!(error, in_use);
        drive.cut_power();
        assert!(Store::open(&mut drive.disk(3), &options(6)).is_ok(), "{name}");
    }
}
