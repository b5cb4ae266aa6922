//! Arbitrary files of a store on a simulated drive: looked at, checked, opened and scanned without
//! a panic. Every chunk that is handed over matches its sums, as `check` has it and as computed
//! here, and a recovery after another finds the same.
#![no_main]

#[path = "support/image.rs"]
mod image;
#[path = "../../tests/support/store.rs"]
mod support;

use image::Image;
use kvtide::fingerprint::StoreId;
use kvtide::io::sim::{SimDisk, SimDrive, SimOptions};
use kvtide::io::{Disk, IoBuffer, IoMemory, IoOperation, IoWork, run};
use kvtide::key::Key;
use kvtide::store::{
    Access, Finding, Opened, Recovery, SlotCheck, Store, StoreError, StoreOptions, StoreUuid,
    SuperblockCopies, TagSpace, check, find_stores, inspect, survey,
};
use kvtide::units::{ByteCount, SlotIndex};
use kvtide_kernels::checksum;
use libfuzzer_sys::fuzz_target;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;
use support::shape;

const ROOT: &str = "/kv";
const SLOT_COUNT: u32 = 4;
const SLOT_BYTES: usize = 8192;

/// Summed bytes of one block.
const BLOCK_BYTES: usize = 512;

/// What a superblock may claim here: its slots are gone through, and one is read whole.
const SLOTS_CLAIMED_MAX: u32 = 1024;
const SLOT_BYTES_CLAIMED_MAX: u64 = 1 << 20;

const SHORT: Duration = Duration::from_millis(100);

/// Chunks that were handed over, with their images.
type Handed = BTreeMap<SlotIndex, (Key, Vec<u8>)>;

fn store_id() -> StoreId {
    StoreId::from_bytes([1; 16])
}

fn directory() -> PathBuf {
    Path::new(ROOT).join("0").join(store_id().to_string())
}

fn options() -> StoreOptions {
    let mut options = StoreOptions::new(ROOT, store_id(), shape(), SLOT_COUNT);
    options.new_uuid = StoreUuid::from_bytes([7; 16]);
    options.lock_wait = SHORT;
    options
}

/// Whether a superblock claims more than a run of the fuzzer has time and memory for.
fn claims_much(superblock: &[u8]) -> bool {
    let copies = SuperblockCopies::decode(superblock);
    [copies.first, copies.second].into_iter().flatten().any(|superblock| {
        superblock.slot_count > SLOTS_CLAIMED_MAX
            || superblock.shape.slot().get() > SLOT_BYTES_CLAIMED_MAX
    })
}

/// Looks at whatever is there as those do who look after stores; returns what `check` finds sound.
fn look(drive: &SimDrive) -> BTreeSet<(SlotIndex, Key)> {
    let mut disk = drive.disk(2);
    let mut sound = BTreeSet::new();
    // What cannot be read, or be trusted, is refused; any answer will do.
    let _inspected = inspect(&mut disk, &directory());
    let _checked = check(&mut disk, &directory(), &mut |slot, found| {
        if let SlotCheck::Sound(header) = found {
            sound.insert((slot, header.identity.key));
        }
    });
    for found in find_stores(&mut disk, Path::new(ROOT)).expect("the drive is good") {
        let _surveyed = survey(&mut disk, &found, SHORT);
        if let Ok((_, Some(mut store))) = Store::examine(&mut disk, &found, Access::Read, SHORT) {
            scan(&mut disk, &mut store);
            store.abandon(&mut disk);
        }
    }
    sound
}

/// Returns the chunks that a scan offers.
fn scan(disk: &mut SimDisk, store: &mut Store) -> BTreeMap<SlotIndex, Key> {
    let mut offered = BTreeMap::new();
    let mut scan = store.scan(TagSpace::new(1)).expect("it is not recovered");
    while !scan.is_done() {
        let reads = scan.operations(store, disk.depth());
        for report in run(disk, reads) {
            scan.finished(report);
        }
        for scanned in scan.take(store, 64) {
            if let Finding::Chunk { entry, replaces } = scanned.finding {
                offered.insert(scanned.slot, entry.key);
                replaces.map(|older| offered.remove(&older));
            }
        }
    }
    offered
}

/// Opens what is there, and reads every chunk that it offers.
fn recover(drive: &SimDrive) -> Result<Handed, StoreError> {
    let mut disk = drive.disk(1);
    let Opened { mut store, recovery, .. } = Store::open(&mut disk, &options())?;
    let offered = match recovery {
        Recovery::Ready(entries) => {
            entries.into_iter().map(|entry| (entry.slot, entry.key)).collect()
        }
        Recovery::ScanNeeded(_) => scan(&mut disk, &mut store),
    };
    let mut handed = Handed::new();
    for (slot, key) in offered {
        assert!(slot.get() < SLOT_COUNT, "an offer of slot {slot}");
        let memory = IoMemory::Buffer(IoBuffer::zeroed(SLOT_BYTES / 4096));
        let work = IoWork::Read { offset: store.slot_offset(slot), memory };
        let read = IoOperation { tag: 0, file: store.data_file(), work };
        let report = run(&mut disk, vec![read]).pop().expect("one report");
        let buffer = report.memory.and_then(IoMemory::into_buffer).expect("a buffer");
        if report.outcome.is_ok() && store.verify(slot, key, buffer.bytes()).is_ok() {
            verify(key, buffer.bytes());
            handed.insert(slot, (key, buffer.bytes().to_vec()));
        }
    }
    store.abandon(&mut disk);
    Ok(handed)
}

/// Checks key and sum of a chunk by what the format says, without the code under test.
fn verify(key: Key, image: &[u8]) {
    assert_eq!(image[16..32], key.to_bytes());
    let blocks = usize::from(u16::from_le_bytes([image[86], image[87]]));
    let payload = &image[4096..][..blocks * BLOCK_BYTES];
    let words: Vec<u64> =
        payload.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
    let sealed = checksum::sum(&words, 0).wrapping_add(key.low_u64());
    assert_eq!(image[1024..1032], sealed.to_le_bytes());
}

/// Recovers what is there; no chunk is handed over that a look before finds unsound.
fn recover_and_compare(drive: &SimDrive) -> Result<Handed, StoreError> {
    let sound = look(drive);
    let recovered = recover(drive);
    for (slot, (key, _)) in recovered.iter().flatten() {
        assert!(sound.contains(&(*slot, *key)), "slot {slot} is not sound");
    }
    recovered
}

fuzz_target!(|bytes: &[u8]| {
    let image = Image::parse(bytes);
    if claims_much(&image.superblock) {
        return;
    }
    // Far more than four slots, and less than what would exhaust memory.
    let options = SimOptions { total: ByteCount::new(64 << 20), ..SimOptions::default() };
    let drive = SimDrive::with_options(1, options);
    let files = [("superblock", image.superblock), ("index", image.index), ("data", image.data)];
    for (name, bytes) in files {
        drive.plant(&directory().join(name), &bytes);
    }
    // The first may make the store anew, give its files their length, or change its size.
    let _recovered = recover_and_compare(&drive);
    let second = recover_and_compare(&drive);
    let third = recover_and_compare(&drive);
    assert_eq!(second, third);
});
