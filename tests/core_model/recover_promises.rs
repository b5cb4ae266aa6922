//! Single promises of recovery, each with the shortest run that would break it.

use crate::disk_bench::{DiskBench, GROUP, STRIPE, key, keys};
use kvtide::core::{FoundChunk, MissReason, Refused, Stage, StorePoint};
use kvtide::key::Key;
use kvtide::units::{SlotIndex, TenantTag};

fn found(number: u128, parent: Option<u128>, depth: u32, slot: u32) -> FoundChunk {
    let disk_slot = SlotIndex::new(slot);
    let (parent, tenant) = (parent.map(key), TenantTag::new(0));
    FoundChunk { key: key(number), parent, depth, tenant, disk_slot, is_durable: true }
}

#[test]
fn recovery_takes_chunks_in_in_any_order() {
    let mut bench = DiskBench::unscanned(4, 8, |_| {});
    assert_eq!(bench.store(None, &keys([9])), [Stage::Done]);
    assert_eq!(bench.core.point(key(9)), Some(StorePoint::Host), "no slot is known to be free");
    let chunks = [found(3, Some(2), 2, 5), found(1, None, 0, 2), found(2, Some(1), 1, 7)];
    for chunk in chunks {
        bench.core.adopt_disk(GROUP, &[chunk]).expect("the slot is there");
        bench.take_actions();
    }
    let plan = bench.plan(&keys([1, 2, 3]));
    bench.core.drop_plan(plan);
    assert_eq!(bench.core.point(key(3)), Some(StorePoint::Durable));
    assert_eq!(bench.core.free_disk_slots(GROUP, 0.into(), 8), Ok(5));
    bench.finish();
    assert_eq!(bench.core.point(key(9)), Some(StorePoint::Written), "it waited for the scan");
    assert_eq!(bench.load(&keys([1, 2, 3])), [Stage::Done; 3]);
}

#[test]
fn a_slot_that_recovery_could_not_read_keeps_no_write_waiting_once_it_is_over() {
    let mut bench = DiskBench::unscanned(8, 4, |_| {});
    assert_eq!(bench.core.free_disk_slots(GROUP, 1.into(), 3), Ok(3));
    for number in [1, 2, 3] {
        bench.store(None, &keys([number]));
    }
    bench.store_in_host(None, &keys([4]));
    assert_eq!((bench.used().1, bench.core.unwritten()), (3, 1), "slot 0 may yet be free");
    bench.core.end_recovery(GROUP, STRIPE).expect("the group is there");
    bench.finish();
    assert_eq!(bench.core.unwritten(), 0);
    assert_eq!(bench.core.point(key(4)), Some(StorePoint::Written), "another chunk made room");
    assert_eq!(bench.used().1, 3);
}

#[test]
fn what_recovery_finds_against_the_rest_is_skipped() {
    let mut bench = DiskBench::unscanned(4, 8, |_| {});
    bench.store(None, &keys([9]));
    let good = [found(1, None, 0, 0), found(2, Some(1), 1, 1)];
    bench.core.adopt_disk(GROUP, &good).expect("the slots are there");
    let bad = [
        found(3, None, 0, 1),
        found(2, Some(1), 1, 2),
        found(4, Some(1), 3, 3),
        found(5, Some(5), 1, 4),
        found(6, None, 2, 5),
        found(7, Some(1), 0, 6),
        found(9, Some(1), 1, 7),
    ];
    bench.core.adopt_disk(GROUP, &bad).expect("the slots are there");
    bench.take_actions();
    let counters = bench.counters();
    assert_eq!((counters.adopted, counters.adoptions_skipped), (2, 7));
    // A chunk that is in host memory gets its disk copy.
    bench.core.adopt_disk(GROUP, &[found(9, None, 0, 7)]).expect("the slot is there");
    assert_eq!(bench.core.point(key(9)), Some(StorePoint::Durable));
    let beyond = bench.core.adopt_disk(GROUP, &[found(8, None, 0, 8)]);
    assert!(matches!(beyond, Err(Refused::NoSuchDiskSlot { disk_slot_count: 8, .. })));
    let too_many = bench.core.adopt_disk(GROUP, &[found(8, None, 0, 7); 65]);
    assert_eq!(too_many, Err(Refused::KeyCount { key_count: 65 }));
}

#[test]
fn a_chunk_found_without_its_parent_is_reached_once_that_is_stored() {
    let mut bench = DiskBench::unscanned(4, 8, |_| {});
    bench.core.adopt_disk(GROUP, &[found(2, Some(1), 1, 0)]).expect("the slot is there");
    assert_eq!(bench.core.free_disk_slots(GROUP, 0.into(), 8), Ok(7));
    assert_eq!(bench.core.peek(key(1)), Some(MissReason::NeverStored));
    bench.store(None, &keys([1]));
    let plan = bench.plan(&keys([1, 2]));
    bench.core.drop_plan(plan);
}

#[test]
fn an_orphan_on_disk_is_the_first_victim() {
    let mut bench = DiskBench::unscanned(4, 2, |_| {});
    let chunks = [found(1, None, 0, 0), found(3, Some(2), 1, 1)];
    bench.core.adopt_disk(GROUP, &chunks).expect("the slots are there");
    bench.store(None, &keys([4]));
    assert_eq!(bench.core.peek(key(3)), Some(MissReason::Evicted));
    assert_eq!(bench.core.peek(key(1)), None);
}

#[test]
fn a_snapshot_brings_the_same_victims_back() {
    let mut bench = DiskBench::new(4, 8);
    bench.store(None, &keys([1, 2]));
    bench.store(None, &keys([3]));
    bench.store(None, &keys([4]));
    bench.load(&keys([3]));
    let plan = bench.plan(&keys([4]));
    bench.empty_host();
    let entries: Vec<FoundChunk> = bench.core.disk_entries(GROUP).collect();
    let order: Vec<Key> = entries.iter().map(|entry| entry.key).collect();
    assert_eq!(order, keys([1, 2, 3, 4]), "what is pinned comes last");
    bench.core.drop_plan(plan);
    let mut again = DiskBench::unscanned(4, 8, |_| {});
    again.core.adopt_disk(GROUP, &entries).expect("the slots are there");
    let told: Vec<FoundChunk> = again.core.disk_entries(GROUP).collect();
    let places = |entries: &[FoundChunk]| {
        entries
            .iter()
            .map(|entry| (entry.key, entry.parent, entry.depth, entry.disk_slot))
            .collect()
    };
    let (before, after): (Vec<_>, Vec<_>) = (places(&entries), places(&told));
    assert_eq!(before, after);
}
